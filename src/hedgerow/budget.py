"""How much of epsilon each release may cost.

A node pays for choosing its split and for counting the split's cells; a leaf pays for its class counts with
what its path has left. Rules see public facts and noisy estimates only, so what they decide is free.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from hedgerow.criteria import Criterion, weighted_impurities

Epsilon = Fraction | float  # a float only for infinity

STEPS = 8  # budgets are rounded down to powers of 2**(1/8): nodes that share a scale share a call


@dataclass(frozen=True, slots=True)
class NodeBudget:
    """What one node may cost: counting its rows (the paper's weights), choosing a split, counting its cells."""

    select: Epsilon
    count: Epsilon
    weigh: Epsilon = 0

    @property
    def total(self) -> Epsilon:
        """All of it."""
        return self.select + self.count + self.weigh


class BudgetRule(Protocol):
    """Decides what to spend, as the tree grows."""

    @property
    def root(self) -> Epsilon:
        """What the first release, the class counts of all rows, may cost; 0 for no such release."""

    def node(self, depth: int, counts: NDArray[np.float64], left: Epsilon) -> NodeBudget | None:
        """The budget of a node at `depth` (the root's is 1) with about `counts` rows a class; None: a leaf."""

    def leaf(self, left: Epsilon) -> Epsilon:
        """What a leaf's class counts may cost when its path has `left`."""


@dataclass(frozen=True)
class Unlimited:
    """epsilon = infinity."""

    root: Epsilon = 0

    def node(self, depth: int, counts: NDArray[np.float64], left: Epsilon) -> NodeBudget | None:
        """Everything."""
        del depth, left
        pure = counts.sum() > 0 and counts.max() == counts.sum()
        return None if pure else NodeBudget(math.inf, math.inf)

    def leaf(self, left: Epsilon) -> Epsilon:
        """Everything."""
        return left


def uniform(depth: int, depths: int) -> Fraction:
    """The same share for each of `depths`."""
    return Fraction(1, depths) if depth <= depths else Fraction(0)


def decay(depth: int, depths: int) -> Fraction:
    """The paper's 2**-depth."""
    del depths
    return Fraction(1, 2**depth)


def harmonic(depth: int, depths: int) -> Fraction:
    """In proportion to 1 / depth: the root matters most, but the last level is not starved."""
    total = sum(Fraction(1, d) for d in range(1, depths + 1))
    return Fraction(1, depth) / total if depth <= depths else Fraction(0)


SCHEDULES: dict[str, Callable[[int, int], Fraction]] = {
    "uniform": uniform,
    "decay": decay,
    "harmonic": harmonic,
}


@dataclass(frozen=True)
class Scheduled:
    """A fixed share for each depth, and a fixed share for the leaves.

    Of a node's share, `weigh` counts its rows, `select` chooses the split, the rest counts its cells.
    """

    epsilon: Fraction
    schedule: str
    depths: int
    leaf_fraction: Fraction
    root_fraction: Fraction
    select: Fraction
    weigh: Fraction = Fraction(0)

    @property
    def root(self) -> Epsilon:
        """See `BudgetRule.root`."""
        return self.epsilon * self.root_fraction

    def node(self, depth: int, counts: NDArray[np.float64], left: Epsilon) -> NodeBudget | None:
        """See `BudgetRule.node`."""
        del counts, left
        if depth > self.depths:
            return None
        inner = self.epsilon * (1 - self.leaf_fraction - self.root_fraction)
        share = inner * SCHEDULES[self.schedule](depth, self.depths)
        weigh = share * self.weigh
        select = (share - weigh) * self.select
        return NodeBudget(select, share - weigh - select, weigh)

    def leaf(self, left: Epsilon) -> Epsilon:
        """See `BudgetRule.leaf`: the fixed share; what a short path has left over stays unspent."""
        return min(self.epsilon * self.leaf_fraction, left)


def round_down(epsilon: float | Fraction, total: Fraction) -> Fraction:
    """The largest of the budgets total * 2**(-i/8), each rounded to a fraction, that is not above epsilon."""
    if epsilon >= total:
        return total
    i = math.ceil(-math.log2(float(epsilon / total)) * STEPS - 1e-9)
    step = total * Fraction(math.floor(2.0 ** (-i / STEPS) * 2**40), 2**40)
    return step if step <= epsilon else round_down(epsilon * Fraction(999_999, 1_000_000), total)


@dataclass(frozen=True)
class Adaptive:
    """Each node plans the depth below it from its own noisy size, and spends accordingly.

    Selection is reliable while the impurity left in a node outweighs the selector's noise, (D / epsilon)
    log |H|. Each level halves the rows and every level takes its part of epsilon, so r more levels are worth
    it if r 2**r is below `reach` times that ratio. The node then spends left / (r + 1), the leaves the rest.
    """

    epsilon: Fraction
    n_candidates: int
    n_classes: int
    sensitivity: float  # D, of the criterion
    root_fraction: Fraction = Fraction(1, 50)
    select: Fraction = Fraction(3, 4)
    reach: float = 0.2

    @property
    def root(self) -> Epsilon:
        """See `BudgetRule.root`."""
        return self.epsilon * self.root_fraction

    def node(self, depth: int, counts: NDArray[np.float64], left: Epsilon) -> NodeBudget | None:
        """See `BudgetRule.node`."""
        del depth
        levels = self.levels(counts, float(left))
        if levels < 1:
            return None
        share = Fraction(float(left) / (levels + 1))
        select = round_down(share * self.select, self.epsilon)
        return NodeBudget(select, round_down(share - share * self.select, self.epsilon))

    def levels(self, counts: NDArray[np.float64], left: float) -> float:
        """How many more levels below a node are worth their price."""
        impurity = float(weighted_impurities(counts, Criterion.gini))
        noise = self.sensitivity / left * math.log(max(self.n_candidates, 2))
        return _levels(self.reach * impurity / noise)

    def leaf(self, left: Epsilon) -> Epsilon:
        """See `BudgetRule.leaf`: all that is left."""
        return round_down(left, self.epsilon) if left > 0 else left


def _levels(ratio: float) -> float:
    """The r with r 2**r = ratio, by bisection."""
    low, high = 0.0, 64.0
    while high - low > 1e-6:
        middle = (low + high) / 2
        if middle * 2.0**middle < ratio:
            low = middle
        else:
            high = middle
    return low
