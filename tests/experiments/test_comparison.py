"""The comparison: every library gets the same rows; one that is not installed is left out with a sentence."""

from __future__ import annotations

import io
import json
import sys

import numpy as np
import pandas as pd
import pytest

pytest.importorskip("lightgbm")
pytest.importorskip("matplotlib")

from rich.console import Console
from tiny_study import made_up

from hedgerow.experiments import _other_libraries, comparison


def test_rows_are_clipped_numbers_and_category_numbers():
    plain = comparison.Plain.of(made_up("tiny"))
    assert plain.categorical == [2]
    assert plain.train.shape == (480, 3)
    assert plain.test.shape == (120, 3)
    assert set(np.unique(plain.train[:, 2])) == {0.0, 1.0, 2.0, 3.0}  # "d" is other
    hot, (low, high) = _other_libraries.expand(plain.train, plain.columns, one_hot=True)
    assert hot.shape == (480, 2 + 4)
    assert ((low <= hot) & (hot <= high)).all()
    numbers, (low, high) = _other_libraries.expand(plain.train, plain.columns, one_hot=False)
    np.testing.assert_array_equal(numbers, plain.train)
    assert ((low <= numbers) & (numbers <= high)).all()


def test_a_comparison_writes_table_and_plot_and_says_what_is_left_out(tmp_path, monkeypatch):
    monkeypatch.setattr(comparison, "load", made_up)
    monkeypatch.setattr(comparison, "EPSILONS", (1.0, 8.0))
    said = io.StringIO()
    out = tmp_path / "comparison"
    page = comparison.compare(["tiny"], 2, sys.executable, out, Console(file=said, width=300))
    outcomes = pd.read_csv(out / comparison.CSV)
    counts = outcomes.groupby("library").size()
    assert counts["Hedgerow"] == 4
    assert counts["scikit-learn tree"] == 3
    assert counts["LightGBM"] == 1
    assert outcomes.accuracy.between(0.5, 1).all()
    text = page.read_text()
    assert "| tiny | 8 | Hedgerow |" in text
    assert "| tiny | no privacy | LightGBM |" in text
    assert {p.suffix for p in out.iterdir()} == {".csv", ".png", ".svg"}
    if "diffprivlib" not in counts.index.str.split().str[0]:
        assert "diffprivlib tree is left out" in said.getvalue()


def test_a_comparison_that_was_stopped_goes_on(tmp_path, monkeypatch):
    monkeypatch.setattr(comparison, "load", made_up)
    monkeypatch.setattr(comparison, "EPSILONS", (1.0, 8.0))
    quiet, path = Console(file=io.StringIO()), tmp_path / "comparison" / comparison.CSV
    comparison.compare(["tiny"], 2, None, path.parent, quiet)
    whole = path.read_bytes()
    assert len(comparison.finished(path)) == whole.count(b"\n") - 1 == 8
    path.write_bytes(whole[: whole.rfind(b"8.0,1")])  # in the middle of a line
    kept = path.read_text().splitlines()[:-1]
    comparison.compare(["tiny"], 2, None, path.parent, quiet)
    assert path.read_text().splitlines()[: len(kept)] == kept
    assert len(comparison.finished(path)) == path.read_bytes().count(b"\n") - 1 == 8


@pytest.mark.parametrize("python", [None, "no/such/python"])
def test_without_an_environment_the_others_are_left_out(tmp_path, monkeypatch, python):
    monkeypatch.setattr(comparison, "load", made_up)
    monkeypatch.setattr(comparison, "EPSILONS", (1.0,))
    said = io.StringIO()
    comparison.compare(["tiny"], 1, python, tmp_path / "c", Console(file=said, width=300))
    assert "diffprivlib and interpret are left out" in said.getvalue()


def test_the_best_setting_is_the_most_accurate():
    rows = [("a", "x", s, 1.0, r, acc, 0.9, 1.0) for s, acc in (("one", 0.7), ("two", 0.8)) for r in range(2)]
    frame = pd.DataFrame(rows, columns=list(comparison.Outcome.__dataclass_fields__))
    [best] = comparison.best_settings(frame).to_dict("records")
    assert (best["setting"], best["runs"]) == ("two", 2)


def test_tasks_survive_the_hand_over(tmp_path):
    plain = comparison.Plain.of(made_up("tiny"))
    comparison.hand_over(plain, [{"library": "interpret DP-EBM"}], tmp_path)
    assert json.loads((tmp_path / "columns.json").read_text()) == plain.columns
    np.testing.assert_array_equal(np.load(tmp_path / "test-labels.npy"), plain.test_labels)
