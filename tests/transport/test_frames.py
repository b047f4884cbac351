"""Bytes that anybody may send: what is made of them, and what a site says to them."""

from __future__ import annotations

import json
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from study_files import write_csv, write_policy

from hedgerow.datasets import HOSPITALS_SCHEMA, synthetic_hospitals
from hedgerow.errors import InvalidMessage
from hedgerow.messages import CountRows, Refusal, Request, from_bytes, to_bytes
from hedgerow.transport.frames import (
    DECLINED,
    GREETED,
    GREETING,
    MOST_GREETING,
    REQUEST,
    greeting_frame,
    read_frame,
    request_frame,
)
from hedgerow.transport.site import NOT_HERE, Site

QUESTION = request_frame(to_bytes(Request("malaria", "q0", None, CountRows(np.array([0]), [Fraction(1, 4)]))))
GREETED_WELL = greeting_frame(
    {
        "study": "malaria",
        "schema": HOSPITALS_SCHEMA.hash,
        "epsilon": "1",
        "neighbours": "add-remove",
        "method": "local",
        "least_price": "1/10",
    }
)
FAILURE = to_bytes(Refusal("unknown", "unknown", NOT_HERE))
json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=10), inner, max_size=4),
)


@st.composite
def damaged(draw: st.DrawFn) -> bytes:
    """A frame that was good until some of its bytes were changed, taken out or put in."""
    frame = bytearray(draw(st.sampled_from([QUESTION, GREETED_WELL])))
    for _ in range(draw(st.integers(1, 4))):
        place = draw(st.integers(0, len(frame)))
        frame[place : place + draw(st.integers(0, 8))] = draw(st.binary(max_size=8))
    return bytes(frame)


frames = (
    st.binary(max_size=200)
    | st.binary(max_size=200).map(lambda body: GREETING + body)
    | st.binary(max_size=200).map(lambda body: REQUEST + body)
    | json_values.map(lambda value: GREETING + json.dumps(value).encode())
    | damaged()
)


@given(frames)
def test_bytes_are_a_greeting_or_a_request_or_refused(frame: bytes):
    try:
        found = read_frame(frame)
    except InvalidMessage:
        return
    if frame[:1] == REQUEST:
        assert found == frame[1:]
    else:
        assert frame[:1] == GREETING
        assert all(isinstance(name, str) and isinstance(value, str) for name, value in found.items())


@given(st.dictionaries(st.text(max_size=20), st.text(max_size=50), max_size=6), st.binary(max_size=100))
def test_frames_are_read_as_they_were_written(greeting: dict[str, str], request: bytes):
    assert read_frame(greeting_frame(greeting)) == greeting
    assert read_frame(request_frame(request)) == request


@pytest.mark.parametrize("most", [MOST_GREETING, MOST_GREETING + 1])
def test_a_greeting_has_a_most_of_bytes(most: int):
    body = json.dumps({"study": "x" * (most - len('{"study": ""}'))}).encode()
    assert len(body) == most
    if most == MOST_GREETING:
        assert read_frame(GREETING + body)["study"].startswith("x")
    else:
        with pytest.raises(InvalidMessage):
            read_frame(GREETING + body)


@pytest.mark.parametrize("body", [b"[" * 4096, b'{"a":' * 800, b"1" * 4096, b'"\xff"', b"NaN", b""])
def test_a_greeting_that_is_hard_to_parse_is_refused(body: bytes):
    with pytest.raises(InvalidMessage):
        read_frame(GREETING + body)


# ---- What a site says to it ------------------------------------------------------------------------------------------


def make_site(folder: Path, n_rows: int, grants: tuple[str, ...]) -> Site:
    folder.mkdir(mode=0o700)
    [(table, labels)] = synthetic_hospitals(1, rows=300).holders
    names, label = HOSPITALS_SCHEMA.names, HOSPITALS_SCHEMA.label
    write_csv(folder / "rows.csv", names, label, table[:n_rows], labels[:n_rows])
    HOSPITALS_SCHEMA.save(folder / "schema.toml")
    grant = {"epsilon": 1.0, "methods": ["local"], "quantum": 0}
    write_policy(folder / "hedgerow.toml", dict.fromkeys(grants, grant), lifetime_epsilon=2.0)
    return Site(folder / "hedgerow.toml")


@pytest.fixture(scope="module")
def two_sites(tmp_path_factory: pytest.TempPathFactory) -> tuple[Site, Site]:
    """One that has granted the study something, and one with other rows that has not."""
    folder = tmp_path_factory.mktemp("sites")
    return make_site(folder / "one", 300, ("malaria",)), make_site(folder / "other", 100, ())


@given(frames)
def test_a_site_replies_to_any_bytes(two_sites: tuple[Site, Site], frame: bytes):
    """And to what is no question as any other site does."""
    reply, other = (site.reply(frame) for site in two_sites)
    if frame[:1] == GREETING:
        assert reply in GREETED or from_bytes(reply).reason == NOT_HERE
        assert other in {DECLINED, reply}
        return
    try:
        is_question = isinstance(from_bytes(frame[1:]), Request) and frame[:1] == REQUEST
    except InvalidMessage:
        is_question = False
    said = from_bytes(reply)
    if not is_question:
        assert isinstance(said, Refusal)
        assert (said.study, said.identifier) == ("unknown", "unknown")
        assert reply == other


@pytest.mark.parametrize(
    "error", [KeyError("Ada Lovelace"), MemoryError(), OSError(28, "full"), RecursionError()]
)
def test_whatever_goes_wrong_at_a_site_goes_back_as_a_constant(
    two_sites: tuple[Site, Site], monkeypatch: pytest.MonkeyPatch, capsys, error: Exception
):
    def fail(*_: object) -> None:
        raise error

    site, _ = two_sites
    monkeypatch.setattr(site, "_reread", fail)
    assert site.reply(GREETED_WELL) == DECLINED
    assert site.reply(QUESTION) == FAILURE
    said = capsys.readouterr().out
    assert f"{type(error).__name__} in test_frames.py, line " in said
    assert "Lovelace" not in said


def test_a_frame_of_another_kind_goes_back_as_a_constant(two_sites: tuple[Site, Site]):
    for frame in (b"", b"X", b"x" + QUESTION[1:], b"\x00" * 100, GREETING, GREETING + b"[]"):
        assert two_sites[0].reply(frame) == FAILURE
