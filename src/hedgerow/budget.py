"""How much of epsilon each release may cost.

A node pays for choosing its split and for counting the split's cells; a leaf pays for its class counts with
what its path has left. Rules see public facts and noisy estimates only, so what they decide is free.

Budgets are whole numbers of grains, of which epsilon has 2**40: sums along a path are exact, for all the nodes
of a wave at once.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import lru_cache
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from hedgerow.compiled import compiled
from hedgerow.criteria import Criterion, impurity_bound, weighted_impurities
from hedgerow.repeated import Epsilon, IntArray, Repeated

FloatArray = NDArray[np.float64]

GRAINS = 2**40
LEAST = 2**12  # a node's budget below this buys nothing but noise of millions of rows

LONG_WORK = 2**27  # steps: about a tenth of a second for every two levels

# Budgets are rounded to powers of 2**(1/STEPS), so that nodes that share a scale share a call: a node's to the
# nearest, because the nodes below it plan with what is left in any case, a leaf's down.
NODE_STEPS, LEAF_STEPS = 2, 8


def priced(grains: IntArray, epsilon: Epsilon) -> Repeated[Epsilon]:
    """So many grains of epsilon each."""
    if math.isinf(epsilon):
        return Repeated([epsilon], np.zeros(len(grains), dtype=np.int64))
    whole = Fraction(epsilon)
    return Repeated.of_numbers(grains, lambda n: Fraction(n * whole.numerator, GRAINS * whole.denominator))


@dataclass(frozen=True)
class Standing:
    """What is known of nodes before they are evaluated; all of it public or released."""

    depth: IntArray  # [node], the root's is 1
    counts: FloatArray  # [node, class], the estimate so far, non-negative
    left: IntArray  # [node], grains that the path may still spend
    promise: FloatArray  # [node], how much the splits above gained, compared with what is usual


@dataclass(frozen=True)
class NodeBudgets:
    """What nodes may cost, in grains [node], and by which criterion their splits are chosen.

    `weigh` counts a node's rows (the paper's weights), `select` chooses a split, `count` counts the split's
    cells. A node that is to be a leaf has nothing to select with. `fork` says whether the splits of its children are
    chosen along with its own.
    """

    criterion: IntArray
    select: IntArray
    count: IntArray
    weigh: IntArray
    fork: NDArray[np.bool_]

    @property
    def total(self) -> IntArray:
        """All of it."""
        return self.select + self.count + self.weigh

    def only(self, inner: NDArray[np.bool_]) -> NodeBudgets:
        """The same, but the other nodes are to be leaves."""
        return replace(self, select=self.select * inner)

    def at(self, nodes: IntArray) -> NodeBudgets:
        """The budgets of some of the nodes, by place."""
        return NodeBudgets(
            self.criterion[nodes], self.select[nodes], self.count[nodes], self.weigh[nodes], self.fork[nodes]
        )

    def criteria(self) -> Repeated[Criterion]:
        """The criterion of each node."""
        return Repeated.of_numbers(self.criterion, Criterion)


class BudgetRule(Protocol):
    """Decides what to spend, as the tree grows."""

    @property
    def root(self) -> int:
        """Grains for the first release, the class counts of all rows; 0 for no such release."""

    def settle(self, root: Standing) -> BudgetRule:
        """The rule, once the class counts of all rows are (roughly) known."""

    def explain(self, root: Standing, selects: bool) -> list[str]:
        """What the rule does and why, in sentences; `selects` as in `PrivateSplit`."""

    def nodes(self, nodes: Standing) -> NodeBudgets:
        """The budgets of nodes."""

    def leaves(self, left: IntArray) -> IntArray:
        """Grains for the class counts of leaves whose paths have `left`."""


@dataclass(frozen=True)
class Unlimited:
    """epsilon = infinity, of which one grain is enough for everything.

    The class counts of all rows are asked for, the others follow: leaves need not be counted again.
    """

    criterion: Criterion
    root: int = 1

    def settle(self, root: Standing) -> BudgetRule:
        """See `BudgetRule.settle`."""
        del root
        return self

    def explain(self, root: Standing, selects: bool) -> list[str]:
        """See `BudgetRule.explain`."""
        del root, selects
        return ["epsilon is infinite: exact counts, no noise, no privacy."]

    def nodes(self, nodes: Standing) -> NodeBudgets:
        """See `BudgetRule.nodes`: pure nodes are leaves."""
        impure = ((nodes.counts != 0).sum(axis=1) != 1).astype(np.int64)
        criterion = np.full(len(impure), int(self.criterion))
        return NodeBudgets(
            criterion, impure, impure, np.zeros_like(impure), np.zeros(len(impure), dtype=np.bool_)
        )

    def leaves(self, left: IntArray) -> IntArray:
        """See `BudgetRule.leaves`."""
        return np.zeros_like(left)


def uniform(depth: int, depths: int) -> Fraction:
    """The same share for each of `depths`."""
    return Fraction(1, depths) if depth <= depths else Fraction(0)


def decay(depth: int, depths: int) -> Fraction:
    """The paper's 2**-depth."""
    del depths
    return Fraction(1, 2**depth)


def harmonic(depth: int, depths: int) -> Fraction:
    """In proportion to 1 / depth: the root matters most, but the last level is not starved."""
    return Fraction(1, depth) / _harmonic_number(depths) if depth <= depths else Fraction(0)


@lru_cache(maxsize=64)
def _harmonic_number(n: int) -> Fraction:
    return sum((Fraction(1, i) for i in range(1, n + 1)), Fraction(0))


SCHEDULES: dict[str, Callable[[int, int], Fraction]] = {
    "uniform": uniform,
    "decay": decay,
    "harmonic": harmonic,
}


@dataclass(frozen=True)
class Scheduled:
    """A fixed share for each depth, and a fixed share for the leaves.

    Of a node's share, `weigh` counts its rows, `select` chooses the split, the rest counts its cells. How many
    depths there are is planned from the number of rows, as `planner` does it, if `depths` is None.
    """

    criterion: Criterion
    schedule: str
    depths: int | None
    planner: Adaptive
    leaf_fraction: Fraction
    root_fraction: Fraction
    select: Fraction
    weigh: Fraction = Fraction(0)

    @property
    def root(self) -> int:
        """See `BudgetRule.root`."""
        return max(math.floor(GRAINS * self.root_fraction), self.planner.least_price)

    def settle(self, root: Standing) -> BudgetRule:
        """See `BudgetRule.settle`."""
        if self.depths is not None:
            return self
        return replace(self, depths=max(1, round(float(self.planner.levels(root)[0]))))

    def explain(self, root: Standing, selects: bool) -> list[str]:
        """See `BudgetRule.explain`."""
        weigh, inner = self.weigh, 1 - self.leaf_fraction - self.root_fraction
        uses = [f"{_percent(weigh)} count its rows"] if weigh else []
        if selects:
            uses.append(f"{_percent((1 - weigh) * self.select)} choose its split")
            uses.append(f"{_percent((1 - weigh) * (1 - self.select))} count the split's cells")
        else:
            uses.append(f"{_percent(1 - weigh)} are for the counts that its split follows from")
        return [
            f"{_percent(self.root_fraction)} of epsilon counted the classes of all rows: about "
            f"{root.counts.sum():.0f} rows.",
            f"{_percent(inner)} are spread over {self.depths} depths ({self.schedule}); of a node's share "
            f"{', '.join(uses)}.",
            f"{_percent(self.leaf_fraction)} label the leaves.",
            f"The criterion is {self.criterion.name}.",
        ]

    def nodes(self, nodes: Standing) -> NodeBudgets:
        """See `BudgetRule.nodes`."""
        depths, which = np.unique(nodes.depth, return_inverse=True)
        select, count, weigh = np.array([self._at_depth(d) for d in depths.tolist()]).T[:, which.ravel()]
        never = np.zeros(len(which), dtype=np.bool_)
        return NodeBudgets(np.full(len(which), self.criterion), select, count, weigh, never)

    def _at_depth(self, depth: int) -> tuple[int, int, int]:
        """Grains to select with, to count with and to weigh with."""
        if self.depths is None or depth > self.depths:
            return 0, 0, 0
        inner = 1 - self.leaf_fraction - self.root_fraction
        share = math.floor(GRAINS * inner * SCHEDULES[self.schedule](depth, self.depths))
        weigh = math.floor(share * self.weigh)
        select = math.floor((share - weigh) * self.select)
        count = share - weigh - select
        least = self.planner.least_price
        is_too_little = count < least * self.planner.most_nominees or select < least or 0 < weigh < least
        return (0, 0, 0) if share < LEAST or is_too_little else (select, count, weigh)

    def leaves(self, left: IntArray) -> IntArray:
        """See `BudgetRule.leaves`: the fixed share; what a short path has left over stays unspent."""
        grains = np.minimum(math.floor(GRAINS * self.leaf_fraction), left)
        return np.where(grains >= self.planner.least_price, grains, 0)


def round_down(grains: IntArray) -> IntArray:
    """The largest of the budgets 2**(-i/8) of epsilon that is not above (or above by rounding error)."""
    return _step(np.ceil(-np.log2(grains / GRAINS) * LEAF_STEPS - 1e-9), LEAF_STEPS)


def _nearest(grains: FloatArray) -> IntArray:
    """The nearest of the budgets 2**(-i/2) of epsilon, on a logarithmic scale."""
    return _step(np.rint(-np.log2(grains / GRAINS) * NODE_STEPS), NODE_STEPS)


def _step(i: FloatArray, steps: int) -> IntArray:
    grains: IntArray = np.floor(2.0 ** (-np.maximum(i, 0) / steps) * GRAINS).astype(np.int64)
    return grains


@dataclass(frozen=True)
class Adaptive:
    """Each node plans the depth below it from its own noisy counts, and spends accordingly.

    A selector finds a good split while the impurity left in the node outweighs its noise, (D / epsilon)
    log |H|. Every level multiplies the nodes and takes its part of epsilon, so r more levels are worth it if
    r 1.6**r is below `reach` times that ratio. Below r = 0.6 the node is a leaf, with all that its path has
    left; otherwise it takes its part of that, each level a tenth more than the one above it.

    The constants were chosen on public data sets, the same for all of them (docs/privacy.md says why what
    they decide is free). `criterion` None: gini, and error for the last level planned, where only the
    majority on each side still matters and error needs half the noise.

    Where `n_pairs` is given, a node that plans two levels or more takes the parts of both and chooses a fork: its own
    split and those of its children, among all such triples at once. That costs one choice in place of two, and sees
    splits that are worth something only together. A choice for which there is more than `fork_epsilon` is not made
    that way: it has little noise of ours, and the best of so many triples would fit that of the rows themselves.
    Counting what a fork needs takes a step for each row and each pair of columns, so it is for tables of which that is
    no long work.
    """

    epsilon: Fraction
    n_candidates: int
    n_classes: int
    max_rows: int
    noisiness: float = 1.0  # of choosing a split, compared with one holder who selects
    criterion: Criterion | None = None
    max_depth: int | None = None
    n_pairs: int | None = None  # of columns, each with itself too; None: no forks
    least_price: int = 0  # grains of a release, below which no holder makes one
    most_nominees: int = 1  # among which a budget for counting is divided
    root_fraction: Fraction = Fraction(3, 100)
    select: float = 0.85
    reach: float = 0.2
    growth: float = 1.6
    sampling: float = 0.5  # noise of the rows themselves, in units of D / epsilon
    least_levels: float = 0.6
    fork_levels: float = 1.5
    fork_epsilon: float = 1.5
    leaf_levels: float = 0.75  # what a leaf's counts take, in levels
    rise: float = 1.1

    @property
    def root(self) -> int:
        """See `BudgetRule.root`."""
        return max(math.floor(GRAINS * self.root_fraction), self.least_price)

    def settle(self, root: Standing) -> BudgetRule:
        """See `BudgetRule.settle`: every node decides for itself, but whether there are forks depends on all rows."""
        if self.n_pairs is None or self.n_pairs * root.counts.sum() <= LONG_WORK:
            return self
        return replace(self, n_pairs=None)

    def explain(self, root: Standing, selects: bool) -> list[str]:
        """See `BudgetRule.explain`."""
        [levels] = self.levels(root)
        [impurity] = weighted_impurities(root.counts, Criterion.gini)
        [noise] = self._selection_noise(root.left) * math.log(max(self.n_candidates, 2))
        plan = (
            f"about {levels:.1f} levels are planned below the root"
            if levels >= self.least_levels
            else ("no split is worth its price, so the tree is one leaf")
        )
        on_what = "all of it on the counts that its split follows from"
        if selects:
            on_what = (
                f"{100 * self.select:g} % of it on choosing the split and the rest on counting its cells"
            )
        return [
            f"{_percent(self.root_fraction)} of epsilon counted the classes of all rows: about "
            f"{root.counts.sum():.0f} rows.",
            f"Their impurity is worth {impurity:.0f} rows; choosing among {self.n_candidates} splits of "
            f"{self.n_classes} classes with all that is left would be off by about {noise:.0f} rows: {plan}.",
            "Every node plans again from its own noisy counts. It spends its part of what its path has left, "
            f"{on_what}; a leaf spends all that is left on its class counts.",
            *self._about_forks(),
            f"The criterion is {self.criterion.name}."
            if self.criterion is not None
            else "The criterion is gini; error for the last level planned, where it needs half the noise.",
        ]

    def _about_forks(self) -> list[str]:
        if self.n_pairs is None:
            return []
        return [
            f"A node that plans two levels, and has at most epsilon {self.fork_epsilon:g} to choose with, chooses its "
            "own split and those of its children at once, with the budget of both."
        ]

    def nodes(self, nodes: Standing) -> NodeBudgets:
        """See `BudgetRule.nodes`."""
        levels = self.levels(nodes)
        span = np.maximum(levels, self.least_levels) + self.leaf_levels
        share = np.maximum(nodes.left, 1) * (self.rise - 1) / (self.rise**span - 1)
        fork = np.full(len(levels), self.n_pairs is not None) & (levels >= self.fork_levels)
        fork &= share * (1 + self.rise) * self.select * float(self.epsilon) <= self.fork_epsilon * GRAINS
        share *= np.where(fork, 1 + self.rise, 1)
        select, count = _nearest(share * self.select), _nearest(share * (1 - self.select))
        least = max(LEAST, self.least_price * self.most_nominees)
        is_leaf = (levels < self.least_levels) | (np.minimum(select, count) < least)
        select[is_leaf] = count[is_leaf] = 0
        return NodeBudgets(self.criteria(levels, fork), select, count, np.zeros_like(select), fork)

    def criteria(self, levels: FloatArray, fork: NDArray[np.bool_]) -> IntArray:
        """By which criterion nodes with so many levels to go choose a split or a fork."""
        if self.criterion is not None:
            return np.full(len(levels), self.criterion)
        return np.where(levels >= np.where(fork, 3, 2), Criterion.gini, Criterion.error)

    def levels(self, nodes: Standing) -> FloatArray:
        """How many more levels below each node are worth their price."""
        impurity = weighted_impurities(nodes.counts, Criterion.gini)
        noise = (self._selection_noise(nodes.left) + self.sampling) * math.log(max(self.n_candidates, 2))
        levels: FloatArray = solve_levels(self.reach * np.sqrt(nodes.promise) * impurity / noise, self.growth)
        return levels if self.max_depth is None else np.minimum(levels, self.max_depth - nodes.depth + 1)

    def _selection_noise(self, left: IntArray) -> FloatArray:
        """The scale of the noise in rows, if all that is left were spent on one choice."""
        bound = float(impurity_bound(self.criterion or Criterion.gini, self.n_classes, self.max_rows))
        epsilon = float(self.epsilon) * np.maximum(left, 1) / GRAINS
        noise: FloatArray = self.noisiness * bound / epsilon
        return noise

    def leaves(self, left: IntArray) -> IntArray:
        """See `BudgetRule.leaves`: all that is left, but for what rounding down costs."""
        grains = np.minimum(np.where(left > 0, round_down(np.maximum(left, 1)), 0), left)
        return np.where(grains >= self.least_price, grains, 0)


USUAL_GAIN = 0.07  # of a node's impurity that a split takes off


def promise(above: FloatArray, counts: FloatArray, children: FloatArray, variance: FloatArray) -> FloatArray:
    """The promise [node] that nodes pass on to their children: their own, corrected by what they gained.

    `counts` are [node, class], `children` [node, side, class]. Gains far above noise move a promise; where
    noise drowns the gain it stays near what it was.
    """
    noise = 2 * np.sqrt(counts.shape[-1] * variance)
    whole = weighted_impurities(counts, Criterion.gini)
    gain = np.maximum(whole - weighted_impurities(children, Criterion.gini).sum(axis=1), 0.0)
    gained = (gain + noise * USUAL_GAIN * above) / (whole + noise)
    passed_on: FloatArray = np.clip(np.sqrt(above * gained / USUAL_GAIN), 0.2, 5.0)
    return passed_on


@compiled
def solve_levels(ratios: FloatArray, growth: float) -> FloatArray:
    """The r with r growth**r = ratio, by bisection."""
    out, exponent = np.empty(len(ratios)), np.log(growth)
    for i in range(len(ratios)):
        low, high = 0.0, 64.0
        while high - low > 1e-6:
            middle = (low + high) / 2
            if middle * np.exp(exponent * middle) < ratios[i]:
                low = middle
            else:
                high = middle
        out[i] = low
    return out


def _percent(share: Fraction) -> str:
    return f"{float(100 * share):.3g} %"
