"""The bar that shows that a command is at work."""

from __future__ import annotations

import io
import time

import pytest
from rich.console import Console

from hedgerow.cli import console


@pytest.fixture
def terminal(monkeypatch) -> io.StringIO:
    screen = io.StringIO()
    monkeypatch.setattr(console, "to_owner", Console(file=screen, force_terminal=True, width=80))
    monkeypatch.setattr(console, "PATIENCE", 0.05)
    return screen


def test_long_work_shows_how_much_time_remains(terminal):
    with console.progress("reading rows.csv") as done:
        for share in (0.2, 0.4, 0.6, 0.8):
            time.sleep(0.2)
            done(share)
    assert "reading rows.csv" in terminal.getvalue()
    assert "0:00:0" in terminal.getvalue()


def test_quick_work_shows_nothing(terminal):
    with console.progress("reading rows.csv") as done:
        done(1.0)
    assert "reading" not in terminal.getvalue()


def test_a_file_gets_no_bar(monkeypatch):
    log = io.StringIO()
    monkeypatch.setattr(console, "to_owner", Console(file=log))
    monkeypatch.setattr(console, "PATIENCE", 0.0)
    with console.progress("reading rows.csv") as done:
        time.sleep(0.2)
        done(0.5)
    assert not log.getvalue().strip()
