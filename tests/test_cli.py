"""The command line, as a user meets it."""

from __future__ import annotations

from typer.testing import CliRunner

from hedgerow import PrivateTreeClassifier
from hedgerow.cli import app
from hedgerow.datasets import HOSPITALS_SCHEMA


def test_the_demo_runs_without_arguments_and_leaves_a_tree(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    result = CliRunner().invoke(app, ["demo"])
    assert result.exit_code == 0, result.output
    assert "Four synthetic hospitals" in result.output
    for hospital in range(1, 5):
        assert f"Hospital {hospital} spent " in result.output
        assert f"hospital {hospital} alone" in result.output
    model = PrivateTreeClassifier.load(tmp_path / "hedgerow-demo" / "tree.json", schema=HOSPITALS_SCHEMA)
    assert model.tree_.n_splits >= 1


def test_no_arguments_shows_the_commands():
    result = CliRunner().invoke(app, [])
    assert "demo" in result.output
    assert "audit" in result.output
