"""The paper's figures from the CSV: one panel a data set, solid baselines, dotted private curves.

The shade is one standard deviation of the mean. What is not private says so in its title.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from hedgerow.experiments.cells import ALGORITHMS, DATASETS, NO_NOISE, VERSIONS, usual_budget
from hedgerow.experiments.runner import CSV, NOTES, PACKED

TITLES = {
    "as_printed": "the noise that the paper prints: NOT PRIVATE",
    "corrected": "the paper's budget with corrected mechanisms",
    "hedgerow": "Hedgerow's defaults",
}
COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00")  # told apart by the colour-blind, too
LABELS = {
    "test_accuracy": "test accuracy",
    "train_accuracy": "training accuracy",
    "depth": "depth of the tree",
    "nodes": "inner nodes",
}
KEYS = ["dataset", "version", "algorithm", "alpha", "budget", "leaf_fraction", "train_fraction"]

Draw = Callable[[Any, pd.DataFrame, str], None]


def read(out: Path) -> pd.DataFrame:
    """All cells of a study."""
    return pd.read_csv(out / CSV if (out / CSV).exists() else out / PACKED)


def means(cells: pd.DataFrame) -> pd.DataFrame:
    """One line a setting: mean and standard deviation of the mean of every measure, and the number of runs."""
    grouped = cells.groupby(KEYS)[list(LABELS)]
    spread = grouped.sem().fillna(0.0).add_suffix("_sem")
    return grouped.mean().join(spread).join(grouped.size().rename("runs")).reset_index()


def how_many_runs(mean: pd.DataFrame) -> str:
    """Of the settings that are random, for people."""
    runs = mean[np.isfinite(mean.alpha)].runs if np.isfinite(mean.alpha).any() else mean.runs
    low, high = runs.min(), runs.max()
    return f"{high} run{'s' if high > 1 else ''}" if low == high else f"{low} to {high} runs"


def figure_1(mean: pd.DataFrame, version: str) -> pd.DataFrame:
    """The settings that figure 1 and its twin in the appendix show: alphas for which both budgets were tried."""
    chosen = mean[(mean.version == version) & (mean.train_fraction == 1)]
    alphas = chosen[chosen.budget == "uniform"].alpha.unique()
    return chosen[chosen.budget.isin(["decay", "uniform"]) & chosen.alpha.isin(alphas)]


def figure_3(mean: pd.DataFrame, version: str) -> pd.DataFrame:
    """The settings that figure 3 shows; all rows among them are figure 2's."""
    budget, share = usual_budget(version)
    return mean[(mean.version == version) & (mean.budget == budget) & (mean.leaf_fraction == share)]


def figure_2(mean: pd.DataFrame, version: str) -> pd.DataFrame:
    """The settings that figure 2 shows."""
    shown = figure_3(mean, version)
    return shown[shown.train_fraction == 1]


def draw_all(out: Path) -> list[Path]:
    """Every figure that the CSV has cells for, as PNG and SVG."""
    mean, notes = means(read(out)), json.loads((out / NOTES).read_text())
    written: list[Path] = []
    for version in VERSIONS:
        for name, shown, rows, draw in _figures(mean, version):
            written += _draw(out / f"{name}-{version}", shown, rows, draw, TITLES[version], notes)
    return written


def _figures(mean: pd.DataFrame, version: str) -> Iterator[tuple[str, pd.DataFrame, Sequence[str], Draw]]:
    """Name, settings, what the rows of panels are, and how a panel is drawn."""
    leaves, sizes, alphas = figure_1(mean, version), figure_3(mean, version), figure_2(mean, version)
    if len(set(leaves.leaf_fraction)) > 1:
        yield "figure1", leaves, ALGORITHMS, _against_leaf_fraction
    if not alphas.empty:
        yield "figure2", alphas, ["test_accuracy"], _against_alpha
        yield "figure2-more", alphas, ["train_accuracy", "depth", "nodes"], _against_alpha
    if len(set(sizes.train_fraction)) > 1:
        yield "figure3", sizes, ALGORITHMS, _by_training_size("test_accuracy")
        yield "figure3-training", sizes, ALGORITHMS, _by_training_size("train_accuracy")


def _draw(
    path: Path, shown: pd.DataFrame, rows: Sequence[str], draw: Draw, title: str, notes: dict[str, str]
) -> list[Path]:
    names = [name for name in DATASETS if name in set(shown.dataset)]
    names += sorted(set(shown.dataset) - set(names))
    figure = Figure(figsize=(2.6 * len(names) + 1.4, 2.3 * len(rows) + 1.2), layout="constrained")
    panels = figure.subplots(len(rows), len(names), squeeze=False, sharex=True)
    for i, row in enumerate(rows):
        for j, name in enumerate(names):
            panel = panels[i][j]
            draw(panel, shown[shown.dataset == name], row)
            if i == 0:
                panel.set_title(_panel_title(name, notes.get(name, "")), fontsize=9)
            if j == 0:
                panel.set_ylabel(LABELS.get(row, f"{row}\naccuracy"), fontsize=9)
            if i < len(rows) - 1:
                panel.set_xlabel("")
            panel.tick_params(labelsize=7)
            panel.grid(alpha=0.25)
    runs = how_many_runs(shown)
    figure.suptitle(f"{title} ({runs})", fontsize=11)
    handles, labels = panels[0][0].get_legend_handles_labels()
    columns = min(len(labels), max(2, len(names)))
    figure.legend(handles, labels, loc="outside lower center", ncols=columns, fontsize=8, frameon=False)
    written = [path.with_name(f"{path.name}.{kind}") for kind in ("png", "svg")]
    save(figure, written)
    return written


def save(figure: Figure, files: Sequence[Path]) -> None:
    """Write a figure, laid out once; an SVG bears no date, so that the same numbers give the same file."""
    figure.draw_without_rendering()
    figure.set_layout_engine("none")
    for file in files:
        figure.savefig(file, dpi=110, metadata={"Date": None} if file.suffix == ".svg" else None)


def _panel_title(name: str, note: str) -> str:
    return f"{name}\n({note.partition(':')[0]})" if note else name


def _curve(panel: Any, line: pd.DataFrame, x: str, y: str, **style: Any) -> None:
    line = line.sort_values(x)
    panel.plot(line[x], line[y], marker=".", markersize=4, linewidth=1.3, **style)
    band = line[y] - line[f"{y}_sem"], line[y] + line[f"{y}_sem"]
    panel.fill_between(line[x], *band, color=style["color"], alpha=0.2, linewidth=0)


def _private_and_baseline(panel: Any, shown: pd.DataFrame, y: str, place: int, label: str) -> None:
    """A dotted curve, and a solid line for what the same algorithm does without noise."""
    baseline, colour = shown[shown.alpha == NO_NOISE], COLOURS[place]
    if not baseline.empty:  # later lines are thinner, so that equal ones can both be seen
        width = 2.2 - 0.4 * place
        panel.axhline(baseline[y].iloc[0], color=colour, linewidth=width, label=f"{label}, no noise")
    noisy = shown[shown.alpha != NO_NOISE]
    _curve(panel, noisy, "alpha", y, color=colour, linestyle=":", label=label)


def _against_alpha(panel: Any, shown: pd.DataFrame, measure: str) -> None:
    for place, algorithm in enumerate(ALGORITHMS):
        _private_and_baseline(panel, shown[shown.algorithm == algorithm], measure, place, algorithm)
    panel.set_xscale("log", base=2)
    panel.set_xlabel("alpha", fontsize=8)


def _against_leaf_fraction(panel: Any, shown: pd.DataFrame, algorithm: str) -> None:
    mine = shown[shown.algorithm == algorithm]
    for alpha, colour in zip(sorted(mine.alpha.unique()), COLOURS, strict=False):
        for budget, line in (("decay", "-"), ("uniform", "--")):
            chosen = mine[(mine.alpha == alpha) & (mine.budget == budget)]
            label = f"{budget}, alpha {alpha:g}"
            _curve(panel, chosen, "leaf_fraction", "test_accuracy", color=colour, linestyle=line, label=label)
    panel.set_xlabel("share of alpha for the leaves", fontsize=8)
    panel.set_xticks(np.arange(0.1, 1, 0.2))


def _by_training_size(measure: str) -> Draw:
    def draw(panel: Any, shown: pd.DataFrame, algorithm: str) -> None:
        mine = shown[shown.algorithm == algorithm]
        for place, fraction in enumerate(sorted(mine.train_fraction.unique())):
            part = mine[mine.train_fraction == fraction]
            _private_and_baseline(panel, part, measure, place, f"{fraction:g} of the rows")
        panel.set_xscale("log", base=2)
        panel.set_xlabel("alpha", fontsize=8)

    return draw
