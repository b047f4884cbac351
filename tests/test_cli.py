"""The command line, as a user meets it."""

from __future__ import annotations

from typer.testing import CliRunner

from hedgerow.cli import app


def test_no_arguments_shows_the_commands():
    result = CliRunner().invoke(app, [])
    assert "demo" in result.output
    assert "audit" in result.output
