"""The coordinator: grows one tree from the holders' noisy answers. Knows no rows."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from hedgerow.budget import GRAINS, BudgetRule, NodeBudgets, Standing, priced, promise
from hedgerow.criteria import Criterion, split_gains
from hedgerow.learner.estimates import (
    assemble,
    combine,
    laplace_variance,
    least_squares,
    on_simplex,
    reconcile,
    smooth,
)
from hedgerow.learner.private_split import PrivateSplit, select_forks
from hedgerow.learner.topdown import NONE, ROUNDING, FloatArray, Growth, all_of, third_of, top_down
from hedgerow.learner.turns import TakeTurns, TurnsStudy
from hedgerow.messages import ROOT, CountLabels, CountRows, Grow
from hedgerow.network import Network
from hedgerow.paths import Paths
from hedgerow.repeated import Epsilon, IntArray
from hedgerow.schema import Schema
from hedgerow.tree import Tree


@dataclass(frozen=True)
class Plan:
    """All that a study fixes before it asks the first question, and the rule for what it decides later."""

    private_split: PrivateSplit | TakeTurns
    budget: BudgetRule
    criterion: Criterion
    epsilon: Epsilon
    max_splits: int
    max_depth: int | None = None
    min_weight: float = 0.0
    min_gain: float | None = None  # None: what was worth evaluating is split
    neighbours: str = "add-remove"  # `epsilon` is for these in any case; replacing a row costs twice as much
    reasons: tuple[str, ...] = ()

    @property
    def is_exact(self) -> bool:
        """Whether counts are exact: the baseline without noise."""
        return math.isinf(self.epsilon)

    def explain(self) -> str:
        """What was planned, and why, for people."""
        epsilon = float(self.epsilon)
        promise = f"epsilon {epsilon:g} (adding or removing a row)"
        if self.neighbours == "replace":
            promise = f"epsilon {2 * epsilon:g} (replacing a row; {epsilon:g} for adding or removing one)"
        head = f"{promise}, {self.private_split}"
        limits = f"At most {self.max_splits} splits" + (
            f", {self.max_depth} deep." if self.max_depth else "."
        )
        return "\n".join([head, *self.reasons, limits])

    def node_budgets(self, nodes: Standing, n_rows: float) -> NodeBudgets:
        """What evaluating each node may cost, of about `n_rows` rows in all; nothing if it is to be a leaf."""
        budgets = self.budget.nodes(nodes)
        inner = budgets.total <= nodes.left
        if self.max_depth is not None:
            inner &= nodes.depth <= self.max_depth
        if self.min_weight > 0 and n_rows > 0:
            inner &= nodes.counts.sum(axis=1) >= self.min_weight * n_rows
        return budgets.only(inner)


class Coordinator:
    """Learns trees over a network of data holders."""

    def __init__(self, network: Network) -> None:
        self._network = network

    def learn(self, schema: Schema, plan: Plan) -> tuple[Tree, Plan]:
        """Grow a tree as `plan` says, then label its leaves; the plan comes back with its reasons."""
        is_by_turns = isinstance(plan.private_split, TakeTurns)
        study = (TurnsStudy if is_by_turns else _Study)(self._network, schema, plan)
        study.count_all()
        # What a private study has evaluated is paid for, and decides what is left for the labels.
        at_once = third_of if plan.is_exact else all_of
        top_down(study.growth, study.evaluate, study.open_children, plan.max_splits, at_once)
        if not plan.is_exact:
            study.label()
        return study.finish(), study.plan


class _Study:
    """The state of one tree's growth."""

    def __init__(self, network: Network, schema: Schema, plan: Plan) -> None:
        assert not isinstance(plan.private_split, TakeTurns)
        self._private_split = plan.private_split
        self._network = network
        self._schema = schema
        self.plan = plan
        self.growth = Growth(schema.n_classes, GRAINS)
        self._n_rows = math.nan  # estimated

    def count_all(self) -> None:
        """The class counts of all rows, if the plan pays for them; then the plan is settled."""
        root = np.array([ROOT])
        if self.plan.budget.root:
            self._measure(root, np.array([self.plan.budget.root]))
            self._n_rows = max(float(self.growth.nodes["counts"][ROOT].sum()), 1.0)
        known = self._standing(root)
        budget = self.plan.budget.settle(known)
        self.plan = replace(
            self.plan, budget=budget, reasons=tuple(budget.explain(known, self._private_split.selects))
        )

    def _standing(self, nodes: IntArray) -> Standing:
        known = self.growth.nodes
        counts = on_simplex(known["counts"][nodes])
        return Standing(known["depth"][nodes], counts, known["left"][nodes], known["promise"][nodes])

    def evaluate(self, nodes: IntArray) -> None:
        """Find a split for each node that may be split, count its cells, and say if it is wanted."""
        plan, known = self.plan, self.growth.nodes
        nodes = nodes[known["split"][nodes] == NONE]  # a fork decides about children too
        if not len(nodes):
            return
        paths = Paths(self._schema, known["parent"], known["split"])
        planned = plan.node_budgets(self._standing(nodes), self._n_rows)
        may_be_split = (planned.select > 0) & paths.divisible(nodes)
        forks, singles = (
            np.flatnonzero(may_be_split & planned.fork),
            np.flatnonzero(may_be_split & ~planned.fork),
        )
        if len(singles):
            self._split(paths, nodes[singles], planned.at(singles))
        if len(forks):
            self._fork(nodes[forks], planned.at(forks))

    def _split(self, paths: Paths, nodes: IntArray, budgets: NodeBudgets) -> None:
        plan, known = self.plan, self.growth.nodes
        rows = self._weigh(nodes, budgets)
        found = self._private_split.evaluate(self._network, paths, nodes, budgets, plan.epsilon)
        known["split"][nodes], known["cells"][nodes] = found.splits, found.cells
        if not plan.is_exact:
            known["left"][nodes] -= budgets.total
            known["cell_noise"][nodes] = found.variance
        self._judge(nodes, found.cells, rows)

    def _fork(self, nodes: IntArray, budgets: NodeBudgets) -> None:
        """A split for each node and for its children; those wait until they are born."""
        known = self.growth.nodes
        found = select_forks(self._network, nodes, budgets, self.plan.epsilon)
        known["split"][nodes], known["fork"][nodes] = found.splits[:, 0], found.splits[:, 1:]
        known["fork_cells"][nodes], known["fork_noise"][nodes] = found.cells, found.variance
        known["cells"][nodes], known["cell_noise"][nodes] = found.cells.sum(axis=2), 2 * found.variance
        known["left"][nodes] -= budgets.total
        self._judge(nodes, known["cells"][nodes], None)

    def _weigh(self, nodes: IntArray, budgets: NodeBudgets) -> IntArray | None:
        """The paper's weights: noisy numbers of rows, where the budget has a share for them."""
        if not budgets.weigh[0]:
            return None
        query = CountRows(nodes, priced(budgets.weigh, self.plan.epsilon))
        return sum_answers(self._network.ask(query))[:, 0]

    def _judge(self, nodes: IntArray, cells: FloatArray, rows: IntArray | None) -> None:
        """How much would each split gain, and is it worth a place in the queue?"""
        plan, known = self.plan, self.growth.nodes
        gains, totals = split_gains(on_simplex(cells), int(plan.criterion))
        if math.isnan(self._n_rows):
            self._n_rows = max(float(totals[0]), 1.0)
        wanted = np.ones(len(nodes), dtype=bool)
        if plan.min_gain is not None:
            wanted = gains > (plan.min_gain + ROUNDING) * totals
        if rows is not None:
            wanted &= rows >= plan.min_weight * self._n_rows
            gains *= np.maximum(rows, 0) / np.maximum(totals, 1.0)
        known["gain"][nodes], known["wanted"][nodes] = gains, wanted

    def open_children(self, nodes: IntArray) -> IntArray:
        """Split nodes by the splits they were evaluated with, at every holder; their children [node, side]."""
        children = self.growth.open(nodes)
        known = self.growth.nodes
        self._network.announce(Grow(nodes, known["split"][nodes], int(children[0, 0])))
        cells, noise = known["cells"][nodes], known["cell_noise"][nodes]
        if self.plan.is_exact:
            known["counts"][children] = cells
            return children
        parents = known["counts"][nodes]
        counts, variances = reconcile(parents, known["variance"][nodes], cells, noise)
        promises = promise(known["promise"][nodes], on_simplex(parents), on_simplex(counts), variances)
        known["counts"][children], known["variance"][children] = counts, variances[:, None]
        known["measured"][children], known["noise"][children] = cells, noise[:, None]
        known["promise"][children] = promises[:, None]
        self._inherit(nodes, children)
        return children

    def _inherit(self, parents: IntArray, children: IntArray) -> None:
        """Children get the splits that were chosen for them when their parents were evaluated.

        Their cells are then what is measured; the sums of those are no measurement besides.
        """
        known = self.growth.nodes
        place, side = np.nonzero(known["fork"][parents] != NONE)
        if not len(place):
            return
        heirs, parents = children[place, side], parents[place]
        known["split"][heirs] = known["fork"][parents, side]
        known["cells"][heirs] = known["fork_cells"][parents, side]
        known["cell_noise"][heirs] = known["fork_noise"][parents]
        known["noise"][heirs] = np.inf
        self._judge(heirs, known["cells"][heirs], None)
        least = self.plan.min_weight * self._n_rows
        known["wanted"][heirs] &= on_simplex(known["counts"][heirs]).sum(axis=1) >= least

    def label(self) -> None:
        """Count the classes at the leaves, each with what the rule grants from what its path has left."""
        leaves = self.growth.leaves()
        grains = self.plan.budget.leaves(self.growth.affordable()[leaves])
        if grains.any():
            self._measure(leaves[grains > 0], grains[grains > 0])

    def finish(self) -> Tree:
        """Reconcile all that was released and assemble the tree."""
        if self.plan.is_exact:
            self.growth.nodes["variance"] = 0.0
        else:
            least_squares(self.growth)
            smooth(self.growth)
        return assemble(self.growth, self._schema)

    def _measure(self, nodes: IntArray, grains: IntArray) -> None:
        """Ask for class counts and combine them with what is known of the nodes."""
        known, epsilons = self.growth.nodes, priced(grains, self.plan.epsilon)
        counts = sum_answers(self._network.ask(CountLabels(nodes, epsilons))).astype(np.float64)
        noise = self._network.n_holders * epsilons.each(laplace_variance)
        known["left"][nodes] -= grains
        for estimate, variance in (("measured", "noise"), ("counts", "variance")):
            known[estimate][nodes], known[variance][nodes] = combine(
                known[estimate][nodes], known[variance][nodes], counts, noise
            )


def sum_answers(answers: Sequence[IntArray]) -> IntArray:
    """What all holders have together."""
    total: IntArray = np.sum(answers, axis=0)
    return total
