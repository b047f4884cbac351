"""How much of epsilon each release may cost.

A node pays for choosing its split and for counting the split's cells; a leaf pays for its class counts with
what its path has left. Rules see public facts and noisy estimates only, so what they decide is free.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cached_property, lru_cache
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from hedgerow.criteria import Criterion, impurity_bound, weighted_impurities

Epsilon = Fraction | float  # a float only for infinity
FloatArray = NDArray[np.float64]

# Budgets are rounded to powers of 2**(1/STEPS), so that nodes that share a scale share a call: a node's to the
# nearest, because the nodes below it plan with what is left in any case, a leaf's down.
NODE_STEPS, LEAF_STEPS = 2, 8


@dataclass(frozen=True, slots=True)
class Standing:
    """What is known of a node before it is evaluated; all of it public or released."""

    depth: int  # the root's is 1
    counts: FloatArray  # [class], the estimate so far, non-negative
    left: Epsilon  # what its path may still spend
    promise: float = 1.0  # how much the splits above gained, compared with what is usual


@dataclass(frozen=True)
class NodeBudget:
    """What one node may cost, and by which criterion its split is chosen.

    `weigh` counts its rows (the paper's weights), `select` chooses a split, `count` counts the split's cells.
    """

    criterion: Criterion
    select: Epsilon
    count: Epsilon
    weigh: Epsilon = 0

    @cached_property
    def total(self) -> Epsilon:
        """All of it."""
        return self.select + self.count + self.weigh


class BudgetRule(Protocol):
    """Decides what to spend, as the tree grows."""

    @property
    def root(self) -> Epsilon:
        """What the first release, the class counts of all rows, may cost; 0 for no such release."""

    def settle(self, root: Standing) -> BudgetRule:
        """The rule, once the class counts of all rows are (roughly) known."""

    def explain(self, root: Standing) -> list[str]:
        """What the rule does and why, in sentences."""

    def node(self, node: Standing) -> NodeBudget | None:
        """The budget of a node; None if it is to be a leaf."""

    def leaf(self, left: Epsilon) -> Epsilon:
        """What a leaf's class counts may cost when its path has `left`."""


@dataclass(frozen=True)
class Unlimited:
    """epsilon = infinity."""

    criterion: Criterion
    root: Epsilon = 0

    def settle(self, root: Standing) -> BudgetRule:
        """See `BudgetRule.settle`."""
        del root
        return self

    def explain(self, root: Standing) -> list[str]:
        """See `BudgetRule.explain`."""
        del root
        return ["epsilon is infinite: exact counts, no noise, no privacy."]

    def node(self, node: Standing) -> NodeBudget | None:
        """Everything, unless the node is pure."""
        counts = node.counts.tolist()  # quicker than NumPy for so few
        pure = 0 < sum(counts) == max(counts)
        return None if pure else NodeBudget(self.criterion, math.inf, math.inf)

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

    Of a node's share, `weigh` counts its rows, `select` chooses the split, the rest counts its cells. How many
    depths there are is planned from the number of rows, as `planner` does it, if `depths` is None.
    """

    criterion: Criterion
    epsilon: Fraction
    schedule: str
    depths: int | None
    planner: Adaptive
    leaf_fraction: Fraction
    root_fraction: Fraction
    select: Fraction
    weigh: Fraction = Fraction(0)

    @property
    def root(self) -> Epsilon:
        """See `BudgetRule.root`."""
        return self.epsilon * self.root_fraction

    def settle(self, root: Standing) -> BudgetRule:
        """See `BudgetRule.settle`."""
        if self.depths is not None:
            return self
        return replace(self, depths=max(1, round(self.planner.levels(root))))

    def explain(self, root: Standing) -> list[str]:
        """See `BudgetRule.explain`."""
        weigh, inner = self.weigh, 1 - self.leaf_fraction - self.root_fraction
        return [
            f"{_percent(self.root_fraction)} of epsilon counted the classes of all rows: about "
            f"{root.counts.sum():.0f} rows.",
            f"{_percent(inner)} are spread over {self.depths} depths ({self.schedule}); of a node's share "
            f"{_percent(weigh)} count its rows, {_percent((1 - weigh) * self.select)} choose its split, "
            f"{_percent((1 - weigh) * (1 - self.select))} count the split's cells.",
            f"{_percent(self.leaf_fraction)} label the leaves.",
            f"The criterion is {self.criterion.name}.",
        ]

    def node(self, node: Standing) -> NodeBudget | None:
        """See `BudgetRule.node`."""
        if self.depths is None or node.depth > self.depths:
            return None
        inner = self.epsilon * (1 - self.leaf_fraction - self.root_fraction)
        share = _short(inner * SCHEDULES[self.schedule](node.depth, self.depths))
        if share == 0:
            return None
        weigh = share * self.weigh
        select = (share - weigh) * self.select
        return NodeBudget(self.criterion, select, share - weigh - select, weigh)

    def leaf(self, left: Epsilon) -> Epsilon:
        """See `BudgetRule.leaf`: the fixed share; what a short path has left over stays unspent."""
        return min(self.epsilon * self.leaf_fraction, left)


def _short(share: Fraction) -> Fraction:
    """Rounded down to a multiple of 2**-24: many depths would make hundreds of digits, and less buys nothing."""
    return Fraction(math.floor(share * 2**24), 2**24)


def round_down(epsilon: float, total: Fraction) -> Fraction:
    """The largest of the budgets total * 2**(-i/8) that is not above epsilon (or above by rounding error)."""
    return _step(max(0, math.ceil(-math.log2(epsilon / float(total)) * LEAF_STEPS - 1e-9)), LEAF_STEPS, total)


def _nearest(epsilon: float, total: Fraction) -> int:
    """The i whose budget total * 2**(-i/2) is nearest to epsilon, on a logarithmic scale."""
    return max(0, round(-math.log2(epsilon / float(total)) * NODE_STEPS))


@lru_cache(maxsize=4096)
def _node_budget(criterion: Criterion, select: int, count: int, total: Fraction) -> NodeBudget:
    """Nodes that share a budget share the object, and with it the sum of its parts."""
    return NodeBudget(criterion, _step(select, NODE_STEPS, total), _step(count, NODE_STEPS, total))


@lru_cache(maxsize=4096)
def _step(i: int, steps: int, total: Fraction) -> Fraction:
    return total * Fraction(math.floor(2.0 ** (-i / steps) * 2**30), 2**30)


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
    """

    epsilon: Fraction
    n_candidates: int
    n_classes: int
    max_rows: int
    noisiness: float = 1.0  # of choosing a split, compared with one holder who selects
    criterion: Criterion | None = None
    max_depth: int | None = None
    root_fraction: Fraction = Fraction(3, 100)
    select: float = 0.85
    reach: float = 0.2
    growth: float = 1.6
    sampling: float = 0.5  # noise of the rows themselves, in units of D / epsilon
    least_levels: float = 0.6
    leaf_levels: float = 0.75  # what a leaf's counts take, in levels
    rise: float = 1.1

    @property
    def root(self) -> Epsilon:
        """See `BudgetRule.root`."""
        return self.epsilon * self.root_fraction

    def settle(self, root: Standing) -> BudgetRule:
        """See `BudgetRule.settle`: every node decides for itself."""
        del root
        return self

    def explain(self, root: Standing) -> list[str]:
        """See `BudgetRule.explain`."""
        levels = self.levels(root)
        impurity = float(weighted_impurities(root.counts, Criterion.gini))
        noise = self._selection_noise(root.left) * math.log(max(self.n_candidates, 2))
        plan = (
            f"about {levels:.1f} levels are planned below the root"
            if levels >= self.least_levels
            else ("no split is worth its price, so the tree is one leaf")
        )
        return [
            f"{_percent(self.root_fraction)} of epsilon counted the classes of all rows: about "
            f"{root.counts.sum():.0f} rows.",
            f"Their impurity is worth {impurity:.0f} rows; choosing among {self.n_candidates} splits of "
            f"{self.n_classes} classes with all that is left would be off by about {noise:.0f} rows: {plan}.",
            "Every node plans again from its own noisy counts. It spends its part of what its path has left, "
            f"{100 * self.select:g} % of it on choosing the split and the rest on counting its cells; a leaf "
            "spends all that is left on its class counts.",
            f"The criterion is {self.criterion.name}."
            if self.criterion is not None
            else "The criterion is gini; error for the last level planned, where it needs half the noise.",
        ]

    def node(self, node: Standing) -> NodeBudget | None:
        """See `BudgetRule.node`."""
        levels = self.levels(node)
        if levels < self.least_levels:
            return None
        rise, span = self.rise, levels + self.leaf_levels
        share = float(node.left) * (rise - 1) / (rise**span - 1)
        criterion = self.criterion
        if criterion is None:
            criterion = Criterion.gini if levels >= 2 else Criterion.error
        select, count = share * self.select, share * (1 - self.select)
        return _node_budget(
            criterion, _nearest(select, self.epsilon), _nearest(count, self.epsilon), self.epsilon
        )

    def levels(self, node: Standing) -> float:
        """How many more levels below a node are worth their price."""
        impurity = float(weighted_impurities(node.counts, Criterion.gini))
        noise = (self._selection_noise(node.left) + self.sampling) * math.log(max(self.n_candidates, 2))
        levels = _levels(self.reach * math.sqrt(node.promise) * impurity / noise, self.growth)
        return levels if self.max_depth is None else min(levels, self.max_depth - node.depth + 1)

    def _selection_noise(self, left: Epsilon) -> float:
        """The scale of the noise in rows, if all that is left were spent on one choice."""
        bound = impurity_bound(self.criterion or Criterion.gini, self.n_classes, self.max_rows)
        return self.noisiness * bound / float(left)

    def leaf(self, left: Epsilon) -> Epsilon:
        """See `BudgetRule.leaf`: all that is left, but for what rounding down costs."""
        step = round_down(float(left), self.epsilon) if left > 0 else Fraction(0)
        return min(step, left)


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


def _levels(ratio: float, growth: float) -> float:
    """The r with r growth**r = ratio, by bisection."""
    low, high = 0.0, 64.0
    while high - low > 1e-6:
        middle = (low + high) / 2
        if middle * growth**middle < ratio:
            low = middle
        else:
            high = middle
    return low


def _percent(share: Fraction) -> str:
    return f"{float(100 * share):.3g} %"
