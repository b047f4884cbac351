"""Learn the tree of a cell: three versions of each of the paper's three algorithms.

`as_printed` has the paper's noise and is NOT PRIVATE; `corrected` is the paper's budget and criterion with
mechanisms that cost what they say; `hedgerow` is what a user gets who sets nothing but epsilon.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from hedgerow.classifier import SimulatedTree
from hedgerow.experiments import as_printed
from hedgerow.experiments.accuracy import Encoded
from hedgerow.experiments.cells import AUTO, NO_NOISE, Cell
from hedgerow.experiments.distinct import Distinct, Histograms, RepeatedRows
from hedgerow.holder.counts import GroupedRows
from hedgerow.holder.holder import Holder
from hedgerow.learner.coordinator import Coordinator
from hedgerow.learner.planning import Wishes, make_plan
from hedgerow.learner.private_split import LocalSelection, NoisyCounts, PrivateSplit, SelectSplit
from hedgerow.network.local import LocalNetwork
from hedgerow.privacy.ledger import Ledger
from hedgerow.privacy.noise import NoNoise, SeededNoise
from hedgerow.repeated import as_written
from hedgerow.schema import Schema
from hedgerow.tree import LEAF, Tree

HOLDERS = 4


@dataclass(frozen=True)
class Result:
    """What the figures show of a tree."""

    test_accuracy: float
    train_accuracy: float
    depth: int
    nodes: int

    def to_row(self) -> list[str]:
        """As the CSV has it."""
        return [
            f"{self.test_accuracy:.6f}", f"{self.train_accuracy:.6f}", str(self.depth), str(self.nodes)
        ]  # fmt: skip


@dataclass(frozen=True)
class Rows:
    """The rows that one tree is learned from, by their numbers, and how they are dealt out to holders."""

    schema: Schema
    distinct: Distinct
    histograms: Histograms
    chosen: NDArray[np.int64]
    n_holders: int
    rng: np.random.Generator

    @classmethod
    def of(cls, data: Encoded, cell: Cell) -> Rows:
        """The cell's random part of the training rows, for one holder or for four."""
        train, _ = data.distinct
        rng = np.random.default_rng([cell.seed, 0])
        chosen = np.arange(len(train.which))
        if cell.train_fraction < 1:
            chosen = np.sort(rng.permutation(chosen)[: round(cell.train_fraction * len(chosen))])
        n_holders = 1 if cell.algorithm == "SingleMachine" else HOLDERS
        return cls(data.schema, train, data.histograms, chosen, n_holders, rng)

    @cached_property
    def holders(self) -> list[NDArray[np.int64]]:
        """Equal random parts."""
        parts = np.array_split(self.rng.permutation(len(self.chosen)), self.n_holders)
        return [self.chosen[part] for part in parts]

    def grouped(self) -> list[GroupedRows]:
        """Exact counts over each holder's rows."""
        if self.n_holders == 1:
            return [self.together()]
        return [self._counted(self.distinct.times(rows)) for rows in self.holders]

    def together(self) -> GroupedRows:
        """Exact counts over all rows; other runs have the same if they have all rows of the data set."""
        if len(self.chosen) < len(self.distinct.which):
            return self._counted(self.times)
        return RepeatedRows(self.distinct, self.distinct.all_times, self.schema, self.histograms)

    @cached_property
    def times(self) -> NDArray[np.int64]:
        """How often each distinct row is among them."""
        if len(self.chosen) < len(self.distinct.which):
            return self.distinct.times(self.chosen)
        return self.distinct.all_times

    def _counted(self, times: NDArray[np.int64]) -> GroupedRows:
        return RepeatedRows(self.distinct, times, self.schema)


def run(cell: Cell, data: Encoded) -> Result:
    """Learn the cell's tree and measure it."""
    rows = Rows.of(data, cell)
    tree = LEARN[cell.version](cell, rows)
    train, test = data.distinct
    return Result(
        test_accuracy=test.accuracy(tree, test.all_times),
        train_accuracy=train.accuracy(tree, rows.times),
        depth=tree.depth,
        nodes=int((tree.split != LEAF).sum()),  # the paper counts inner nodes: "excluding leaves"
    )


def learn_as_printed(cell: Cell, rows: Rows) -> Tree:
    """The paper's noise; NOT PRIVATE."""
    entities = as_printed.Entities(rows.grouped(), np.random.default_rng([cell.seed, 1]))
    paper = as_printed.Paper(cell.alpha, cell.budget, cell.leaf_fraction)
    return as_printed.learn(entities, as_printed.PRIVATE_SPLITS[cell.algorithm], paper)


CORRECTED: dict[str, PrivateSplit] = {
    "SingleMachine": SelectSplit("report_noisy_max"),
    "NoisyCounts": NoisyCounts("per-split"),
    "LocalRNM": LocalSelection("report_noisy_max"),
}


def learn_corrected(cell: Cell, rows: Rows) -> Tree:
    """`method="paper"` and its siblings for four holders.

    The paper takes the number of rows to be public; here a public bound is, the next power of two.
    """
    epsilon = _epsilon(cell.alpha)
    max_rows = 2 ** max(1, math.ceil(math.log2(len(rows.chosen) + 1)))
    wishes = Wishes(
        epsilon=epsilon,
        method="paper",
        budget=cell.budget,
        leaf_fraction=cell.leaf_fraction,
        max_rows=max_rows,
    )
    # For four holders the paper changes how a split is found, and nothing else.
    plan = replace(make_plan(rows.schema, wishes), private_split=CORRECTED[cell.algorithm])
    seeds = np.random.SeedSequence([cell.seed, 1]).generate_state(rows.n_holders, np.uint64).tolist()
    holders = [
        Holder(table, _noise(cell.alpha, seed), Ledger(epsilon), max_rows)
        for table, seed in zip(rows.grouped(), seeds, strict=True)
    ]
    tree, _ = Coordinator(LocalNetwork(holders)).learn(rows.schema, plan)
    return tree


HEDGEROW = {"SingleMachine": "auto", "NoisyCounts": "noisy_columns", "LocalRNM": "local"}


def learn_hedgerow(cell: Cell, rows: Rows) -> Tree:
    """The defaults; figure 1 sets the budget's schedule and the leaves' share."""
    fixed = {} if cell.budget == AUTO else {"budget": cell.budget, "leaf_fraction": cell.leaf_fraction}
    model = SimulatedTree(
        schema=rows.schema,
        epsilon=cell.alpha,
        method=HEDGEROW[cell.algorithm],
        noise_seed=cell.seed,
        **fixed,  # type: ignore[arg-type]
    )
    return model._fit_grouped(rows.grouped()).tree_  # noqa: SLF001 - equal rows once, for simulations only


LEARN: dict[str, Callable[[Cell, Rows], Tree]] = {
    "as_printed": learn_as_printed,
    "corrected": learn_corrected,
    "hedgerow": learn_hedgerow,
}


def _epsilon(alpha: float) -> Fraction | float:
    return alpha if alpha == NO_NOISE else as_written(alpha)


def _noise(alpha: float, seed: int) -> NoNoise | SeededNoise:
    return NoNoise() if alpha == NO_NOISE else SeededNoise(seed)
