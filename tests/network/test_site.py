"""A holder's site behind its policy file. No FLARE needed."""

from __future__ import annotations

from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest

from hedgerow.datasets import HOSPITALS_SCHEMA, synthetic_hospitals
from hedgerow.errors import HedgerowError, InvalidTable
from hedgerow.holder.store import StudyOpen
from hedgerow.messages import Answer, CountRows, CountSplits, Grow, Refusal, Request, from_bytes, to_bytes
from hedgerow.network.flare.say import plain_error
from hedgerow.network.flare.site import NOT_HERE, NoGrant, Site

from .conftest import write_csv


@pytest.fixture
def policy(tmp_path: Path) -> Path:
    [(table, labels)] = synthetic_hospitals(1, rows=300).holders
    write_csv(tmp_path / "rows.csv", HOSPITALS_SCHEMA.names, HOSPITALS_SCHEMA.label, table, labels)
    HOSPITALS_SCHEMA.save(tmp_path / "schema.toml")
    write_policy(tmp_path / "hedgerow.toml", {"malaria": 1.0})
    return tmp_path / "hedgerow.toml"


def write_policy(path: Path, grants: dict[str, float], lifetime: float = 2.0) -> None:
    text = f'data = "rows.csv"\nschema = "schema.toml"\njournal = "journal"\nlifetime_epsilon = {lifetime}\n'
    for study, epsilon in grants.items():
        text += f'[[grants]]\nstudy = "{study}"\nepsilon = {epsilon}\nmethods = ["local"]\n'
    path.write_text(text)


def greeting(**others: object) -> dict[str, object]:
    terms = {"schema": HOSPITALS_SCHEMA.hash, "epsilon": "1", "neighbours": "add-remove", "method": "local"}
    return {"study": "malaria"} | terms | others


def ask(
    site: Site,
    name: str,
    epsilon: Fraction = Fraction(1, 4),
    study: str = "malaria",
    kind=CountRows,
    growth=None,
):
    return from_bytes(site.handle(to_bytes(Request(study, name, growth, kind(np.array([0]), [epsilon])))))


def test_a_site_answers_what_it_has_granted_and_no_more(policy: Path):
    site = Site(policy)
    site.greet(greeting())
    assert all(isinstance(ask(site, f"q{i}"), Answer) for i in range(4))
    assert isinstance(ask(site, "q4"), Refusal)
    assert isinstance(ask(site, "q5", kind=CountSplits), Refusal)
    assert "spent 1." in site.account("malaria")


@pytest.mark.parametrize(
    ("others", "why"),
    [
        ({"schema": "0" * 64}, "another schema"),
        ({"neighbours": "replace"}, "neighbours 'replace', granted is 'add-remove'"),
        ({"method": "noisy_counts"}, "'noisy_counts', which is not granted"),
        ({"method": "guessing"}, "'guessing', which is not granted"),
        ({"method": None}, "which is not granted"),
        ({"method": ["local"]}, "which is not granted"),
        ({"epsilon": "11/10"}, "means to spend epsilon 1.1; it is granted 1"),
        ({"epsilon": "inf"}, "means to spend epsilon inf"),
        ({"epsilon": "1e9"}, "positive fraction"),
        ({"epsilon": None}, "positive fraction"),
    ],
)
def test_a_study_that_would_be_refused_later_is_refused_before_it_spends(policy: Path, others, why):
    site = Site(policy)
    with pytest.raises(HedgerowError, match=why):
        site.greet(greeting(**others))
    assert site.greet(greeting(epsilon="1/2"))  # less than is granted will do


def test_a_greeting_counts_what_other_studies_have_left(policy: Path):
    write_policy(policy, {"malaria": 1.5, "dengue": 1.5})
    site = Site(policy)
    assert isinstance(ask(site, "q0", Fraction(3, 2)), Answer)
    assert site.greet(greeting(epsilon="3/2"))  # of that it has spent all itself
    with pytest.raises(HedgerowError, match=r"other studies have left it 0\.5"):
        site.greet(greeting(study="dengue"))
    assert site.greet(greeting(study="dengue", epsilon="1/2"))


def test_another_process_repeats_the_answers_of_the_first(policy: Path):
    first = Site(policy)
    said = ask(first, "q0").values.tolist()
    with pytest.raises(StudyOpen):  # while it is there
        Site(policy).greet(greeting())
    first.close()
    second = Site(policy)
    assert ask(second, "q0").values.tolist() == said
    assert "spent 0.25." in second.account("malaria")


def test_a_study_without_a_grant_is_not_told_why(policy: Path, capsys: pytest.CaptureFixture[str]):
    site = Site(policy)
    with pytest.raises(NoGrant):
        site.greet(greeting(study="other"))
    assert ask(site, "q0", study="other").reason == NOT_HERE
    assert "study 'other': it has no grant" in capsys.readouterr().out


def test_a_withdrawn_grant_counts_from_the_next_question_on(policy: Path):
    site = Site(policy)
    assert isinstance(ask(site, "q0"), Answer)
    write_policy(policy, {})
    assert ask(site, "q0").reason == NOT_HERE
    write_policy(policy, {"malaria": 1.0})
    assert isinstance(ask(site, "q1"), Answer)
    assert "spent 0.5." in site.account("malaria")


def test_a_broken_or_deleted_policy_grants_nothing(policy: Path):
    site = Site(policy)
    assert isinstance(ask(site, "q0"), Answer)
    policy.write_text("nonsense")
    assert ask(site, "q1").reason == NOT_HERE
    policy.unlink()
    assert ask(site, "q1").reason == NOT_HERE
    write_policy(policy, {"malaria": 1.0}, lifetime=100.0)  # more than a grant has changed
    assert ask(site, "q1").reason == NOT_HERE


def test_a_data_file_that_is_not_there_is_named(policy: Path):
    (policy.parent / "rows.csv").unlink()
    with pytest.raises(InvalidTable, match=r"rows\.csv cannot be read: No such file"):
        Site(policy)


def test_a_site_without_rows_takes_part_like_any_other(policy: Path):
    """Whoever sees it decline would know that there are none."""
    header = (policy.parent / "rows.csv").read_text().splitlines()[0]
    (policy.parent / "rows.csv").write_text(header + "\n")
    site = Site(policy)
    site.greet(greeting())
    assert ask(site, "q0").values.shape == (1, 1)
    assert "spent 0.25." in site.account("malaria")


def test_all_studies_together_stay_within_the_lifetime(policy: Path):
    write_policy(policy, {"malaria": 1.5, "dengue": 1.5})
    site = Site(policy)
    assert isinstance(ask(site, "q0", Fraction(3, 2)), Answer)
    assert isinstance(ask(site, "q0", Fraction(3, 4), study="dengue"), Refusal)
    assert isinstance(ask(site, "q1", Fraction(1, 2), study="dengue"), Answer)


def test_a_site_that_ran_out_of_memory_goes_on_from_its_journal(policy: Path, monkeypatch):
    site, growth = Site(policy), Grow(np.array([0]), np.array([0]), np.array([[1, 2]]))

    def full(*_: object) -> None:
        raise MemoryError

    with monkeypatch.context() as patched:
        patched.setattr("hedgerow.holder.counts.GroupedRows.split", full)
        with pytest.raises(MemoryError):
            ask(site, "q0", growth=growth)
    assert isinstance(ask(site, "q0", growth=growth), Answer)
    assert "spent 0.25." in site.account("malaria")


def test_bytes_that_are_no_message_are_refused(policy: Path):
    site = Site(policy)
    for data in (b"", b"\x00", b"\x91" * 1000, to_bytes(Refusal("malaria", "x", "y"))):
        assert isinstance(from_bytes(site.handle(data)), Refusal)


def test_a_foreign_error_is_told_without_its_text():
    try:
        int("a patient's name")
    except ValueError as error:
        said = plain_error(error)
    assert "patient" not in said
    assert said.startswith("ValueError in test_site.py, line ")
