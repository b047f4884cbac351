"""Plots, statements and the pages made of them."""

from __future__ import annotations

import gzip
import re

import pandas as pd
import pytest

pytest.importorskip("matplotlib")

from tiny_study import cells, tiny
from typer.testing import CliRunner

from hedgerow.cli import app
from hedgerow.datasets import DatasetUnavailable
from hedgerow.experiments import runner, statements
from hedgerow.experiments.cells import NO_NOISE, VERSIONS
from hedgerow.experiments.plots import draw_all, how_many_runs, means, read
from hedgerow.experiments.runner import reproduce
from hedgerow.experiments.statements import STATEMENTS, put_between_markers, write_report


@pytest.fixture(scope="module")
def study(tmp_path_factory):
    out = tmp_path_factory.mktemp("study") / "out"
    reproduce(cells(), out, jobs=1, source=tiny)
    return out


@pytest.fixture(scope="module")
def written(study):
    return draw_all(study)


def test_every_figure_is_written_twice(written):
    names = ("figure1", "figure2", "figure2-more", "figure3", "figure3-training")
    assert {p.name for p in written} == {
        f"{n}-{v}.{k}" for n in names for v in VERSIONS for k in ("png", "svg")
    }
    assert all(path.stat().st_size > 5_000 for path in written)


@pytest.mark.usefixtures("written")
def test_plots_say_what_is_not_private_and_what_is_a_sample(study):
    for version in VERSIONS:
        text = (study / f"figure2-{version}.svg").read_text()
        assert ("NOT PRIVATE" in text) == (version == "as_printed")
        assert "samples only" in text


def test_a_share_is_judged_by_the_middle_and_not_by_the_best_of_many():
    setting = {
        "version": "corrected",
        "dataset": "adult",
        "algorithm": "LocalRNM",
        "alpha": 1.0,
        "budget": "uniform",
    }
    line = pd.DataFrame({"leaf_fraction": [0.1, 0.3, 0.5, 0.7, 0.9], "train_fraction": 1.0} | setting)
    for accuracies, expected in (([0.8, 0.9, 0.7, 0.6, 0.5], False), ([0.7, 0.75, 0.8, 0.75, 0.7], True)):
        [finding] = statements.leaf_share_inside(line.assign(test_accuracy=accuracies), "corrected")
        assert finding.holds == expected


def test_means_count_the_runs(study):
    mean = means(read(study))
    noisy = mean[mean.alpha != NO_NOISE]
    assert set(noisy.runs) == {2}
    assert mean.runs.sum() == len(cells())
    assert not mean.isna().any().any()


def test_runs_are_counted_where_they_differ_too(study):
    mean = means(read(study))
    assert how_many_runs(mean) == "2 runs"
    assert how_many_runs(mean.assign(runs=1)) == "1 run"
    mean.loc[mean.index[mean.alpha != NO_NOISE][0], "runs"] = 7
    assert how_many_runs(mean) == "2 to 7 runs"


def test_a_packed_study_is_read_as_it_is(study, tmp_path):
    packed = tmp_path / runner.PACKED
    packed.write_bytes(gzip.compress((study / runner.CSV).read_bytes()))
    assert read(tmp_path).equals(read(study))
    assert list(tmp_path.iterdir()) == [packed]


def test_the_report_has_every_statement_and_keeps_what_was_written_by_hand(study, written):
    page = study.with_suffix(".md")
    page.write_text(f"# By hand\n\n{statements.BEGIN}\nfound before\n{statements.END}\n\nThe end.\n")
    write_report(study, written)
    text = page.read_text()
    assert text.startswith("# By hand\n")
    assert text.endswith("\nThe end.\n")
    assert "found before" not in text
    assert f"{len(cells()):,} trees, data sets" in text
    for version in VERSIONS:
        assert f"- `{version}`: figure 1 2 runs, figure 2 2 runs, figure 3 2 runs of a setting.\n" in text
    assert re.search(r"\n- [\d,]+ trees of .* took \d+ (seconds|minutes) \(--jobs 1\)\.\n", text)
    for statement in STATEMENTS:
        assert f"| {statement.source} | {statement.text} |" in text
    write_report(study, written)
    assert page.read_text() == text


def test_a_page_is_begun_where_there_is_none(tmp_path):
    page = put_between_markers(tmp_path / "new.md", "found", "Title")
    assert page.read_text() == f"# Title\n\n{statements.BEGIN}\nfound\n{statements.END}\n"


def line(accuracy, error=0.001, **setting):
    usual = {
        "dataset": "adult", "version": "as_printed", "algorithm": "LocalRNM", "alpha": 1.0, "budget": "decay",
        "leaf_fraction": 0.5, "train_fraction": 1.0, "runs": 100,
    }  # fmt: skip
    measures = {"test_accuracy": accuracy, "train_accuracy": accuracy, "depth": 3.0, "nodes": 5.0}
    return usual | measures | {f"{key}_sem": error for key in measures} | setting


def check(statement, lines):
    found = list(statement(pd.DataFrame(lines), "as_printed"))
    return [finding.holds for finding in found]


def test_accuracy_that_rises_agrees_and_one_that_falls_does_not():
    rising = [line(0.7, alpha=1.0), line(0.8, alpha=2.0), line(0.799, alpha=4.0)]  # within the error
    assert check(statements.rises_with_alpha, rising) == [True]
    assert check(statements.rises_with_alpha, [*rising, line(0.75, alpha=8.0)]) == [False]


def test_local_above_counts_speaks_of_four_data_sets():
    lines = [
        line(accuracy, dataset=name, algorithm=algorithm)
        for name, accuracies in (("adult", (0.8, 0.7)), ("skin", (0.8, 0.9)), ("mnist", (0.8, 0.9)))
        for algorithm, accuracy in zip(("LocalRNM", "NoisyCounts"), accuracies, strict=True)
    ]
    assert check(statements.local_above_counts, lines) == [True, False]


def test_convergence_is_within_a_point_of_the_baseline():
    near = [line(0.845, alpha=512.0), line(0.85, alpha=NO_NOISE)]
    far = [line(0.82, alpha=512.0), line(0.85, alpha=NO_NOISE)]
    assert check(statements.converges, near) == [True]
    assert check(statements.converges, far) == [False]


def test_decay_above_uniform_compares_means():
    lines = [line(0.8, budget="decay"), line(0.7, budget="uniform")]
    assert check(statements.decay_above_uniform, lines) == [True]
    assert check(statements.decay_above_uniform, [line(0.8), line(0.9, budget="uniform")]) == [False]


def test_a_verdict_says_how_often():
    finding = statements.Finding("here", True, "")
    other = statements.Finding("there", False, "")
    assert statements.verdict([]) == "no data"
    assert statements.verdict([finding, finding]) == "**agrees** (2 of 2)"
    assert statements.verdict([finding, other, other]) == "**not seen** (1 of 3)"
    assert statements.verdict([finding, other]) == "**not seen** (1 of 2)"
    assert statements.verdict([finding, finding, other]) == "**mostly** (2 of 3)"


def test_the_command_names_what_there_is():
    result = CliRunner().invoke(app, ["reproduce", "--dataset", "iris"])
    assert result.exit_code == 2
    assert "adult" in result.output


def test_there_is_nothing_to_report_without_a_csv(tmp_path):
    result = CliRunner().invoke(app, ["reproduce", "--report", "--out", str(tmp_path)])
    assert result.exit_code == 2
    assert "cells.csv" in result.output


def test_missing_data_end_in_one_sentence(tmp_path, monkeypatch):
    def unavailable(name):
        raise DatasetUnavailable(f"no files of {name}")

    monkeypatch.setattr(runner, "load", unavailable)
    result = CliRunner().invoke(app, ["reproduce", "--quick", "--dataset", "adult", "--out", str(tmp_path)])
    assert result.exit_code == 1
    assert "no files of adult" in result.output
    assert "Traceback" not in result.output
