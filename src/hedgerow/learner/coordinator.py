"""The coordinator: grows one tree from the holders' noisy answers. Knows no rows."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np

from hedgerow.budget import BudgetRule, Epsilon, NodeBudget, Standing, promise
from hedgerow.criteria import Criterion, weighted_impurities
from hedgerow.learner.estimates import combine, laplace_variance, least_squares, on_simplex, reconcile, smooth
from hedgerow.learner.private_split import PrivateSplit
from hedgerow.learner.topdown import ROUNDING, FloatArray, Node, top_down
from hedgerow.messages import ROOT, CountLabels, CountRows, Grow, IntArray
from hedgerow.network import Network
from hedgerow.schema import Schema
from hedgerow.tree import LEAF, Tree


@dataclass(frozen=True)
class Plan:
    """All that a study fixes before it asks the first question, and the rule for what it decides later."""

    private_split: PrivateSplit
    budget: BudgetRule
    criterion: Criterion
    epsilon: Epsilon
    max_splits: int
    max_depth: int | None = None
    min_weight: float = 0.0
    min_gain: float | None = None  # None: what was worth evaluating is split
    reasons: tuple[str, ...] = ()

    def explain(self) -> str:
        """What was planned, and why, for people."""
        head = f"epsilon {float(self.epsilon):g} (adding or removing a row), {self.private_split}"
        limits = f"At most {self.max_splits} splits" + (
            f", {self.max_depth} deep." if self.max_depth else "."
        )
        return "\n".join([head, *self.reasons, limits])

    def node_budget(self, node: Node, counts: FloatArray, n_rows: float) -> NodeBudget | None:
        """What evaluating a node with about `counts` [class] rows may cost; None if it is to be a leaf."""
        if self.max_depth is not None and node.depth > self.max_depth:
            return None
        if self.min_weight > 0 and n_rows > 0 and counts.sum() < self.min_weight * n_rows:
            return None
        budget = self.budget.node(Standing(node.depth, counts, node.left, node.promise))
        return budget if budget is not None and budget.total <= node.left else None


class Coordinator:
    """Learns trees over a network of data holders."""

    def __init__(self, network: Network) -> None:
        self._network = network

    def learn(self, schema: Schema, plan: Plan) -> tuple[Tree, Plan]:
        """Grow a tree as `plan` says, then label its leaves; the plan comes back with its reasons."""
        study = _Study(self._network, schema, plan)
        root = study.root()
        top_down(root, study.evaluate, study.open_children, plan.max_splits)
        study.label(list(root.leaves()))
        return study.finish(root), study.plan


class _Study:
    """The state of one tree's growth."""

    def __init__(self, network: Network, schema: Schema, plan: Plan) -> None:
        self._network = network
        self._schema = schema
        self.plan = plan
        self._numbers = ROOT + 1
        self._n_rows = math.nan  # estimated

    def root(self) -> Node:
        """The root, with the class counts of all rows if the plan pays for them."""
        nothing = np.zeros(self._schema.n_classes)
        root = Node(ROOT, 1, 1, self.plan.epsilon, nothing, math.inf, nothing, math.inf)
        if self.plan.budget.root:
            self._measure([root], [self.plan.budget.root])
            self._n_rows = max(float(root.counts.sum()), 1.0)
        known = Standing(root.depth, on_simplex(root.counts), root.left)
        budget = self.plan.budget.settle(known)
        self.plan = replace(self.plan, budget=budget, reasons=tuple(budget.explain(known)))
        return root

    def evaluate(self, nodes: Sequence[Node]) -> None:
        """Find a split for each node that may be split, count its cells, and say if it is wanted."""
        plan = self.plan
        if not nodes:
            return
        counts = on_simplex(np.array([node.counts for node in nodes]))
        planned = [
            (node, plan.node_budget(node, c, self._n_rows)) for node, c in zip(nodes, counts, strict=True)
        ]
        affordable = [(node, budget) for node, budget in planned if budget is not None]
        if not affordable:
            return
        numbers = _numbers(node for node, _ in affordable)
        budgets = [budget for _, budget in affordable]
        rows = self._weigh(numbers, budgets)
        found = plan.private_split.evaluate(self._network, self._schema, numbers, budgets)
        for i, (node, budget) in enumerate(affordable):
            node.left = node.left - budget.total if math.isfinite(node.left) else node.left
            node.split = int(found.splits[i])
            node.cells = found.cells[i]
            node.cell_noise = float(found.variance[i])
        self._judge([node for node, _ in affordable], rows)

    def _weigh(self, numbers: IntArray, budgets: Sequence[NodeBudget]) -> IntArray | None:
        """The paper's weights: noisy numbers of rows, where the budget has a share for them."""
        if not budgets[0].weigh:
            return None
        return sum_answers(self._network.ask(CountRows(numbers, [budget.weigh for budget in budgets])))[:, 0]

    def _judge(self, nodes: Sequence[Node], rows: IntArray | None) -> None:
        """How much would each split gain, and is it worth a place in the queue?"""
        plan = self.plan
        cells = on_simplex(np.array([node.cells for node in nodes]))
        impurities = weighted_impurities(
            np.concatenate([cells, cells.sum(axis=1, keepdims=True)], axis=1), plan.criterion
        )
        gains = impurities[:, 2] - impurities[:, 0] - impurities[:, 1]
        totals = cells.sum(axis=(1, 2))
        if math.isnan(self._n_rows):
            self._n_rows = max(float(totals[0]), 1.0)
        wanted = np.ones(len(nodes), dtype=bool)
        if plan.min_gain is not None:
            wanted = gains > (plan.min_gain + ROUNDING) * totals
        if rows is not None:
            wanted &= rows >= plan.min_weight * self._n_rows
            gains *= np.maximum(rows, 0) / np.maximum(totals, 1.0)
        for node, gain, is_wanted in zip(nodes, gains.tolist(), wanted.tolist(), strict=True):
            node.gain, node.wanted = gain, is_wanted

    def open_children(self, nodes: Sequence[Node]) -> None:
        """Split nodes by the splits they were evaluated with, at every holder."""
        children = self._numbers + np.arange(2 * len(nodes)).reshape(-1, 2)
        self._numbers += 2 * len(nodes)
        splits = np.array([node.split for node in nodes], dtype=np.int64)
        self._network.announce(Grow(_numbers(nodes), splits, children))
        _give_birth(nodes, children)

    def label(self, leaves: Sequence[Node]) -> None:
        """Count the classes at the leaves, each with what the rule grants from what its path has left."""
        budgets = [self.plan.budget.leaf(leaf.affordable) for leaf in leaves]
        paid = [(leaf, budget) for leaf, budget in zip(leaves, budgets, strict=True) if budget > 0]
        if paid:
            self._measure([leaf for leaf, _ in paid], [budget for _, budget in paid])

    def finish(self, root: Node) -> Tree:
        """Reconcile all that was released and assemble the tree."""
        if math.isfinite(self.plan.epsilon):
            least_squares(root)
            smooth(root)
        return assemble(root, self._schema)

    def _measure(self, nodes: Sequence[Node], epsilons: Sequence[Epsilon]) -> None:
        """Ask for class counts and combine them with what is known of the nodes."""
        answer = sum_answers(self._network.ask(CountLabels(_numbers(nodes), epsilons)))
        for node, counts, epsilon in zip(nodes, answer.astype(np.float64), epsilons, strict=True):
            noise = self._network.n_holders * laplace_variance(epsilon)
            node.left = node.left - epsilon if math.isfinite(node.left) else node.left
            node.measured, node.noise = combine(node.measured, node.noise, counts, noise)
            node.counts, node.variance = combine(node.counts, node.variance, counts, noise)


def sum_answers(answers: Sequence[IntArray]) -> IntArray:
    """What all holders have together."""
    total: IntArray = np.sum(answers, axis=0)
    return total


def _numbers(nodes: Iterator[Node] | Sequence[Node]) -> IntArray:
    return np.array([node.number for node in nodes], dtype=np.int64)


def _give_birth(nodes: Sequence[Node], numbers: IntArray) -> None:
    """Make the children of evaluated nodes, with what is known of them; `numbers` are [node, side]."""
    known = np.array([node.counts for node in nodes])
    cells = np.array([node.cells for node in nodes])
    variance = np.array([node.variance for node in nodes])
    noise = np.array([node.cell_noise for node in nodes])
    counts, variances = reconcile(known, variance, cells, noise)
    promises = promise(
        np.array([node.promise for node in nodes]), on_simplex(known), on_simplex(counts), variances
    )
    for i, node in enumerate(nodes):
        left, right = (
            Node(
                number=int(numbers[i, side]),
                path=2 * node.path + side,
                depth=node.depth + 1,
                left=node.left,
                counts=counts[i, side],
                variance=float(variances[i]),
                measured=cells[i, side],
                noise=node.cell_noise,
                promise=float(promises[i]),
            )
            for side in range(2)
        )
        node.children = left, right


def assemble(root: Node, schema: Schema) -> Tree:
    """The finished tree, depth first; an inner node's counts are the sums of its leaves'."""
    order: list[Node] = []
    stack = [root]
    while stack:
        node = stack.pop()
        order.append(node)
        if node.is_split and node.children is not None:
            stack += reversed(node.children)
    place = {node: i for i, node in enumerate(order)}
    split, left, right = (np.full(len(order), LEAF, dtype=np.int32) for _ in range(3))
    counts = np.zeros((len(order), schema.n_classes))
    variance = np.array([node.variance for node in order])
    for i in reversed(range(len(order))):
        node = order[i]
        if node.is_split and node.children is not None:
            split[i] = node.split
            left[i], right[i] = place[node.children[0]], place[node.children[1]]
            counts[i] = counts[left[i]] + counts[right[i]]
            # Without noise nothing has estimated the node itself.
            variance[i] = min(variance[i], variance[left[i]] + variance[right[i]])
        else:
            counts[i] = on_simplex(node.counts)
    return Tree(schema, split, left, right, counts, np.sqrt(variance))
