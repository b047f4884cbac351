"""PrivateSplit: how the holders are asked for a good split of each node, and its cells.

A PrivateSplit is a small value; it sees noisy answers only, never rows.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal, Protocol

import numpy as np
from numpy.typing import NDArray

from hedgerow.budget import NodeBudgets, priced
from hedgerow.criteria import Criterion, weighted_impurities
from hedgerow.learner.estimates import laplace_variance, on_simplex
from hedgerow.messages import (
    MOST_FORKS,
    CountCells,
    CountColumns,
    CountSplits,
    Nominate,
    NominateAndCount,
    NominateForks,
)
from hedgerow.network import Network
from hedgerow.paths import Paths
from hedgerow.repeated import Epsilon, IntArray, Repeated
from hedgerow.schema import Schema


@dataclass(frozen=True)
class Evaluation:
    """A split for each node, its cells [node, side, class] over all holders, and a cell's variance [node]."""

    splits: IntArray
    cells: NDArray[np.float64]
    variance: NDArray[np.float64]


class PrivateSplit(Protocol):
    """Chooses a split for each node and counts its cells."""

    @property
    def method(self) -> str:
        """The name by which a holder grants its queries."""

    @property
    def selects(self) -> bool:
        """Whether a node pays for a choice and for its cells, or for counts that the choice follows from."""

    def noisiness(self, schema: Schema, n_holders: int) -> float:
        """How much noisier its choices are than those of one holder who selects: for planning."""

    def most_nominees(self, n_holders: int) -> int:
        """Among how many splits, at most, a node's budget for counting is divided."""

    def evaluate(
        self,
        network: Network,
        paths: Paths,
        nodes: IntArray,
        budgets: NodeBudgets,
        epsilon: Epsilon,
    ) -> Evaluation:
        """Ask the holders about the nodes; each may cost its budget, in grains of epsilon.

        The splits are undecided ones; every node has some.
        """


@dataclass(frozen=True)
class SelectSplit:
    """One holder selects the split and then counts its cells: the paper's SingleMachine, repaired.

    The paper releases the winner's noisy gain with its index, which costs more than it says; here the index
    alone is released, and the cells are counted afresh.
    """

    selector: str = "permute_and_flip"

    @property
    def method(self) -> str:
        """See `PrivateSplit.method`."""
        return "select"

    @property
    def selects(self) -> bool:
        """See `PrivateSplit.selects`."""
        return True

    def __str__(self) -> str:
        return f"the holder selects splits by {self.selector}"

    def noisiness(self, schema: Schema, n_holders: int) -> float:
        """See `PrivateSplit.noisiness`."""
        del schema, n_holders
        return 1.0

    def most_nominees(self, n_holders: int) -> int:
        """See `PrivateSplit.most_nominees`."""
        del n_holders
        return 1

    def evaluate(
        self,
        network: Network,
        paths: Paths,  # noqa: ARG002 - the holder knows them
        nodes: IntArray,
        budgets: NodeBudgets,
        epsilon: Epsilon,
    ) -> Evaluation:
        """See `PrivateSplit.evaluate`."""
        to_select, to_count = priced(budgets.select, epsilon), priced(budgets.count, epsilon)
        query = NominateAndCount(nodes, budgets.criteria(), self.selector, to_select, to_count)
        [answer] = network.ask(query)
        cells = answer[:, 1:].reshape(len(nodes), 2, -1).astype(np.float64)
        return Evaluation(answer[:, 0], cells, _variances(network, to_count))


def select_forks(network: Network, nodes: IntArray, budgets: NodeBudgets, epsilon: Epsilon) -> Evaluation:
    """One holder selects forks: a split for each node and one for each of its children, by the exponential mechanism.

    The splits are [node, 3], NONE for a child that no split can divide; the cells [node, side, side, class].
    """
    answers = []
    for first in range(0, len(nodes), MOST_FORKS):
        some = np.arange(first, min(first + MOST_FORKS, len(nodes)))
        mine = budgets.at(some)
        prices = priced(mine.select, epsilon), priced(mine.count, epsilon)
        answers += network.ask(NominateForks(nodes[some], mine.criteria(), "exponential", *prices))
    answer = np.concatenate(answers)
    cells = answer[:, 3:].reshape(len(nodes), 2, 2, -1).astype(np.float64)
    return Evaluation(answer[:, :3], cells, _variances(network, priced(budgets.count, epsilon)))


@dataclass(frozen=True)
class LocalSelection:
    """Each holder nominates the split that is best for its own rows; the nominees are counted everywhere.

    The paper's LocalRNM is `LocalSelection("report_noisy_max")`. A nominee that several holders name is
    counted once, so the fewer nominees there are, the less noise each one's cells get.
    """

    selector: str = "permute_and_flip"

    @property
    def method(self) -> str:
        """See `PrivateSplit.method`."""
        return "local"

    @property
    def selects(self) -> bool:
        """See `PrivateSplit.selects`."""
        return True

    def __str__(self) -> str:
        return f"every holder nominates splits by {self.selector}, and all count the nominees"

    def noisiness(self, schema: Schema, n_holders: int) -> float:
        """See `PrivateSplit.noisiness`: a holder's share of the rows is that much smaller."""
        del schema
        return float(n_holders)

    def most_nominees(self, n_holders: int) -> int:
        """See `PrivateSplit.most_nominees`."""
        return n_holders

    def evaluate(
        self,
        network: Network,
        paths: Paths,  # noqa: ARG002 - the holders know them
        nodes: IntArray,
        budgets: NodeBudgets,
        epsilon: Epsilon,
    ) -> Evaluation:
        """See `PrivateSplit.evaluate`."""
        query = Nominate(nodes, budgets.criteria(), self.selector, priced(budgets.select, epsilon))
        ballots = np.stack(network.ask(query), axis=1)
        ballots.sort(axis=1)
        is_new = np.diff(ballots, axis=1, prepend=-1) != 0
        place, splits = np.nonzero(is_new)[0], ballots[is_new]
        epsilons = priced((budgets.count // is_new.sum(axis=1))[place], epsilon)
        cells = np.sum(network.ask(CountCells(nodes[place], splits, epsilons)), axis=0).astype(np.float64)
        best = _best_of_groups(_potentials(cells, budgets.criterion[place]), place)
        return Evaluation(splits[best], cells[best], _variances(network, epsilons)[best])


@dataclass(frozen=True)
class NoisyCounts:
    """The holders release counts from which the coordinator computes every split's gain.

    "per-split" is the paper's: the cells of each of the |H| splits, at scale |H| / epsilon. "per-column" asks
    for one histogram a column, at scale (number of columns) / epsilon, which holds the same information.
    """

    kind: Literal["per-split", "per-column"] = "per-column"

    @property
    def method(self) -> str:
        """See `PrivateSplit.method`."""
        return "noisy_counts" if self.kind == "per-split" else "noisy_columns"

    @property
    def selects(self) -> bool:
        """See `PrivateSplit.selects`."""
        return False

    def __str__(self) -> str:
        return f"every holder counts {'the cells of every split' if self.kind == 'per-split' else 'every column'}"

    def noisiness(self, schema: Schema, n_holders: int) -> float:
        """See `PrivateSplit.noisiness`: the standard deviation of a gain, beside a selector's noise."""
        if self.kind == "per-split":
            return 0.1 * len(schema.splits) * math.sqrt(n_holders)
        bins_a_side = float(schema.n_bins.mean()) / 2
        return 0.25 * len(schema.columns) * math.sqrt(n_holders * bins_a_side)

    def most_nominees(self, n_holders: int) -> int:
        """See `PrivateSplit.most_nominees`."""
        del n_holders
        return 1

    def evaluate(
        self,
        network: Network,
        paths: Paths,
        nodes: IntArray,
        budgets: NodeBudgets,
        epsilon: Epsilon,
    ) -> Evaluation:
        """See `PrivateSplit.evaluate`."""
        schema = paths.schema
        ask = CountSplits if self.kind == "per-split" else CountColumns
        shares = len(schema.splits) if self.kind == "per-split" else len(schema.columns)
        epsilons = priced(budgets.select + budgets.count, epsilon)
        answers = np.sum(network.ask(ask(nodes, epsilons)), axis=0).astype(np.float64)
        cells, n_summed = answers, np.ones(len(schema.splits))
        if self.kind == "per-column":
            cells, n_summed = _cells_of(answers, schema)
        flat = cells.reshape(-1, 2, schema.n_classes)
        place = np.repeat(np.arange(len(nodes)), len(schema.splits))
        potentials = _potentials(flat, budgets.criterion[place])
        potentials[~paths.undecided(nodes).ravel()] = math.inf
        best = _best_of_groups(potentials, place)
        chosen = best % len(schema.splits)
        return Evaluation(chosen, flat[best], _variances(network, epsilons, shares) * n_summed[chosen])


def _potentials(cells: NDArray[np.float64], criteria: IntArray) -> NDArray[np.float64]:
    """F(left) + F(right) of cells [split, side, class]: what a split leaves of a node's impurity."""
    out = np.empty(len(cells))
    projected = on_simplex(cells)
    for criterion in np.unique(criteria).tolist():
        mine = criteria == criterion
        out[mine] = weighted_impurities(projected[mine], Criterion(criterion)).sum(axis=1)
    return out


def _cells_of(
    histograms: NDArray[np.float64], schema: Schema
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Cells [node, split, side, class] from histograms [node, bin, class], and how many bins a cell sums up."""
    column = schema.split_table[:, 0]
    start, stop, more, also = schema.split_bins
    prefix = np.concatenate([np.zeros_like(histograms[:, :1]), np.cumsum(histograms, axis=1)], axis=1)
    left = prefix[:, stop] - prefix[:, start]
    left[:, more] += histograms[:, also]
    # Each column's histogram has noise of its own, so their sums differ.
    right = prefix[:, schema.bin_start[column + 1]] - prefix[:, schema.bin_start[column]] - left
    return np.stack([left, right], axis=2), schema.n_bins[column] / 2


def _best_of_groups(potentials: NDArray[np.float64], group: IntArray) -> IntArray:
    """The place of the smallest potential in each group of consecutive places; the first of equals."""
    starts = np.flatnonzero(np.diff(group, prepend=-1))
    smallest = np.minimum.reduceat(potentials, starts)
    places = np.flatnonzero(potentials == smallest[group])
    best: IntArray = places[np.unique(group[places], return_index=True)[1]]
    return best


def _variances(network: Network, epsilons: Repeated[Epsilon], shares: int = 1) -> NDArray[np.float64]:
    """The variance of a count summed over all holders, where a row is counted in `shares` places."""
    return network.n_holders * epsilons.each(lambda epsilon: laplace_variance(epsilon / shares))
