"""What is to be learned: one cell is one tree of the study, and a figure is a set of cells.

A cell's random numbers come from a hash of the cell, never from the order of work, so that a study can stop,
resume and spread over machines. Figures share cells: a tree is learned once, whichever figures show it.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Iterator, Sequence
from dataclasses import astuple, dataclass, fields
from itertools import product

DATASETS = ("adult", "bank", "creditcard", "skin", "mnist", "kddcup99", "avazu")
VERSIONS = ("as_printed", "corrected", "hedgerow")
ALGORITHMS = ("SingleMachine", "NoisyCounts", "LocalRNM")
FIGURES = (1, 2, 3)
RUNS, QUICK_RUNS = 100, 5

NO_NOISE = math.inf
AUTO = "auto"


@dataclass(frozen=True, order=True)
class Cell:
    """One tree. `alpha` infinite is the baseline; Hedgerow's own budget has no `leaf_fraction` (-1)."""

    dataset: str
    version: str
    algorithm: str
    alpha: float
    budget: str
    leaf_fraction: float
    train_fraction: float
    run: int

    @property
    def seed(self) -> int:
        """64 bits that depend on the cell alone."""
        return int.from_bytes(hashlib.blake2b(repr(astuple(self)).encode(), digest_size=8).digest(), "big")

    @property
    def guarantee(self) -> str:
        """What an honest CSV says beside the result."""
        if self.alpha == NO_NOISE:
            return "none: no noise"
        return "NOT PRIVATE" if self.version == "as_printed" else "epsilon = alpha, simulated"

    def to_row(self) -> list[str]:
        """As the CSV has it."""
        return [value if isinstance(value, str) else repr(value) for value in astuple(self)]

    @classmethod
    def from_row(cls, row: Sequence[str]) -> Cell:
        """The inverse of `to_row`."""
        kinds = {"str": str, "float": float, "int": int}
        return cls(*(kinds[str(f.type)](value) for f, value in zip(fields(cls), row, strict=True)))


@dataclass(frozen=True)
class Grid:
    """The points of the figures."""

    alphas: Sequence[float]
    leaf_fractions: Sequence[float]
    leaf_alphas: Sequence[float]
    train_fractions: Sequence[float]


FULL = Grid(
    alphas=tuple(2.0**i for i in range(-3, 10)),
    leaf_fractions=tuple(i / 10 for i in range(1, 10)),
    leaf_alphas=(0.125, 1.0, 8.0),
    train_fractions=(0.01, 0.05, 0.1, 0.5, 1.0),
)
QUICK = Grid(
    alphas=(0.125, 1.0, 8.0, 512.0),
    leaf_fractions=(0.1, 0.5, 0.9),
    leaf_alphas=(0.125, 8.0),
    train_fractions=(0.01, 0.1, 1.0),
)


def cells_of(
    figures: Sequence[int], datasets: Sequence[str], versions: Sequence[str], runs: int, grid: Grid
) -> list[Cell]:
    """The cells that the figures show, each once, data set by data set."""
    draw = {1: _figure_1, 2: _figure_2, 3: _figure_3}
    settings = [
        (dataset, version, algorithm, *point)
        for dataset, version, algorithm in product(datasets, versions, ALGORITHMS)
        for figure in figures
        for point in draw[figure](version, grid)
    ]
    return [
        Cell(*setting, run)
        for setting in dict.fromkeys(settings)
        for run in range(1 if _is_fixed(*setting) else runs)
    ]


Point = tuple[float, str, float, float]  # alpha, budget, leaf_fraction, train_fraction


def usual_budget(version: str) -> tuple[str, float]:
    """The budget and the leaves' share of figures 2 and 3: the paper's, or Hedgerow's own plan."""
    return (AUTO, -1.0) if version == "hedgerow" else ("decay", 0.5)


def _figure_1(version: str, grid: Grid) -> Iterator[Point]:
    del version
    for alpha, budget, share in product(grid.leaf_alphas, ("decay", "uniform"), grid.leaf_fractions):
        yield alpha, budget, share, 1.0


def _figure_2(version: str, grid: Grid) -> Iterator[Point]:
    for alpha in (*grid.alphas, NO_NOISE):
        yield alpha, *usual_budget(version), 1.0


def _figure_3(version: str, grid: Grid) -> Iterator[Point]:
    for fraction, alpha in product(grid.train_fractions, (*grid.alphas, NO_NOISE)):
        yield alpha, *usual_budget(version), fraction


def _is_fixed(
    dataset: str, version: str, algorithm: str, alpha: float, budget: str, share: float, fraction: float
) -> bool:
    """Without noise, and with all rows in one place (or only sums of counts asked for), every run is the same."""
    del dataset, version, budget, share
    return alpha == NO_NOISE and algorithm != "LocalRNM" and fraction == 1.0
