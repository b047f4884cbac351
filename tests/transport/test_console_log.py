"""A site's console: one line a sentence, whatever a stranger has put into it, and never more than two files."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hedgerow.transport import console_log
from hedgerow.transport.console_log import log_to, printable, say

LINE = re.compile(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d [+-]\d{4} hedgerow: .*")


@contextmanager
def logging_to(path: Path) -> Iterator[Path]:
    """The log of a process that has gone to the background; in truth this one, which comes back."""
    kept = [os.dup(number) for number in (1, 2)]
    with open(1, "w", encoding="utf-8", closefd=False) as out, pytest.MonkeyPatch.context() as patched:
        patched.setattr(sys, "stdout", out)
        patched.setattr(console_log, "_log", None)
        try:
            log_to(path)
            yield path
        finally:
            for number, copy in zip((1, 2), kept, strict=True):
                os.dup2(copy, number)
                os.close(copy)


def test_a_line_has_date_and_zone(capsys: pytest.CaptureFixture[str]):
    say("the site is up.")
    [line] = capsys.readouterr().out.splitlines()
    assert LINE.fullmatch(line)
    assert line.endswith(" hedgerow: the site is up.")


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        (
            "a\n2026-01-01 00:00:00 +0000 hedgerow: all is well.",
            r"a\n2026-01-01 00:00:00 +0000 hedgerow: all is well.",
        ),
        ("\x1b[2J\x1b]0;title\x07", r"\x1b[2J\x1b]0;title\x07"),
        ("\r\t\x7f\x00\x85\x9b", r"\r\t\x7f\x00\x85\x9b"),
        ("\u2028\u202e\ufeff", r"\u2028\u202e\ufeff"),
        ("\ud800", r"\ud800"),
        ("città, 1 °C, 日本", "città, 1 °C, 日本"),
    ],
)
def test_control_characters_are_escaped(text: str, shown: str, capsys: pytest.CaptureFixture[str]):
    say(text)
    assert capsys.readouterr().out.partition(" hedgerow: ")[2] == shown + "\n"


@given(st.text())
def test_nothing_in_a_text_begins_a_line_or_moves_the_cursor(text: str):
    assert printable(text).isprintable()
    assert printable(printable(text)) == printable(text)
    if text.isprintable():
        assert printable(text) == text


def said_in(log: Path) -> list[str]:
    return [line.partition(" hedgerow: ")[2] for line in log.read_text().splitlines()]


def test_a_log_is_its_owners_alone_and_goes_on_where_it_ended(tmp_path: Path):
    usual = os.umask(0)
    try:
        for i in range(2):
            with logging_to(tmp_path / "console.log") as log:
                say(f"line {i}")
    finally:
        os.umask(usual)
    assert log.stat().st_mode & 0o777 == 0o600
    assert said_in(log) == ["line 0", "line 1"]


def test_what_a_library_prints_goes_to_the_log_too(tmp_path: Path):
    with logging_to(tmp_path / "console.log") as log:
        print("by accident", flush=True)
        os.write(2, b"in C\n")
    assert log.read_text() == "by accident\nin C\n"


def test_a_log_keeps_two_files_of_a_most_of_bytes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(console_log, "MOST_BYTES", 1000)
    with logging_to(tmp_path / "console.log") as log:
        for i in range(500):
            say(f"line {i:4d}")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["console.log", "console.log.1"]
    older, newer = log.with_name("console.log.1").read_text(), log.read_text()
    assert len(newer) <= len(older) <= 1100
    numbers = [int(line[-4:]) for line in (older + newer).splitlines()]
    assert numbers == list(range(numbers[0], 500))  # the last ones, and none of them lost
    assert all(LINE.fullmatch(line) for line in (older + newer).splitlines())
    assert {path.stat().st_mode & 0o777 for path in tmp_path.iterdir()} == {0o600}


def test_a_log_that_its_owner_has_removed_is_begun_anew(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(console_log, "MOST_BYTES", 1000)
    with logging_to(tmp_path / "console.log") as log:
        say("x" * 500)
        log.unlink()
        say("x" * 500)
        say("not lost.")
    assert said_in(log) == ["not lost."]


def test_a_log_that_cannot_be_turned_loses_the_line_and_nothing_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(console_log, "MOST_BYTES", 1000)
    with logging_to(tmp_path / "console.log") as log:
        say("x" * 1000)
        (tmp_path / "console.log.1").mkdir()  # in the way
        say("lost.")
        (tmp_path / "console.log.1").rmdir()
        say("not lost.")
    assert said_in(log) == ["not lost."]
    assert said_in(tmp_path / "console.log.1") == ["x" * 1000]


def test_a_link_in_the_place_of_a_log_is_not_written_through(tmp_path: Path):
    (tmp_path / "patients.csv").write_text("age\n80\n")
    (tmp_path / "console.log").symlink_to("patients.csv")
    with pytest.raises(OSError, match="symbolic links"), logging_to(tmp_path / "console.log"):
        pytest.fail("written through")
    assert (tmp_path / "patients.csv").read_text() == "age\n80\n"


def test_a_full_disk_loses_the_line_and_nothing_else(monkeypatch: pytest.MonkeyPatch, capsys):
    if not Path("/dev/full").exists():
        pytest.skip("there is no /dev/full")
    full = Path("/dev/full").open("w", encoding="utf-8")  # noqa: SIM115 - it cannot be closed without an error
    with monkeypatch.context() as patched:
        patched.setattr(sys, "stdout", full)
        for _ in range(1000):
            say("lost.")
    with suppress(OSError):
        full.close()
    say("not lost.")
    assert capsys.readouterr().out.endswith("hedgerow: not lost.\n")
