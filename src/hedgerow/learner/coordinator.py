"""The coordinator: grows one tree from the holders' noisy answers. Knows no rows."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from hedgerow.budget import UNLIMITED, NodeBudget
from hedgerow.criteria import Criterion, weighted_impurities
from hedgerow.learner.private_split import PrivateSplit
from hedgerow.learner.topdown import ROUNDING, Node, top_down
from hedgerow.messages import ROOT, CountLabels, Grow
from hedgerow.network import Network
from hedgerow.schema import Schema
from hedgerow.tree import LEAF, Tree


@dataclass(frozen=True)
class Plan:
    """All that a study fixes before it asks the first question."""

    private_split: PrivateSplit
    criterion: Criterion
    max_splits: int
    max_depth: int | None = None
    min_weight: float = 0.0
    min_gain: float = 0.0

    def node_budget(self, depth: int) -> NodeBudget:
        """What a node of this depth may cost."""
        return UNLIMITED


class Coordinator:
    """Learns trees over a network of data holders."""

    def __init__(self, network: Network) -> None:
        self._network = network

    def learn(self, schema: Schema, plan: Plan) -> Tree:
        """Grow a tree as `plan` says, then label its leaves."""
        study = _Study(self._network, schema, plan)
        root = Node(number=ROOT, path=1, depth=1, counts=None)
        top_down(root, study.evaluate, study.open_children, plan.max_splits)
        study.label(list(root.leaves()))
        return _assemble(root, schema)


class _Study:
    """The state of one tree's growth."""

    def __init__(self, network: Network, schema: Schema, plan: Plan) -> None:
        self._network = network
        self._schema = schema
        self._plan = plan
        self._numbers = ROOT + 1
        self._n_rows = math.nan  # estimated, from the root's cells

    def evaluate(self, nodes: Sequence[Node]) -> None:
        """Find a split for each node that may be split, count its cells, and say if it is wanted."""
        nodes = [node for node in nodes if self._may_split(node)]
        if not nodes:
            return
        plan = self._plan
        numbers = np.array([node.number for node in nodes], dtype=np.int64)
        budgets = [plan.node_budget(node.depth) for node in nodes]
        splits, noisy = plan.private_split.evaluate(self._network, numbers, plan.criterion, budgets)
        cells = np.maximum(noisy, 0).astype(np.float64)
        gains = _gains(cells, plan.criterion)
        totals = cells.sum(axis=(1, 2))
        for i, node in enumerate(nodes):
            node.split = int(splits[i])
            node.cells = cells[i]
            node.gain = float(gains[i])
            node.wanted = bool(gains[i] > (plan.min_gain + ROUNDING) * totals[i])
        if math.isnan(self._n_rows):
            self._n_rows = float(totals[0])

    def open_children(self, nodes: Sequence[Node]) -> None:
        """Split nodes by the splits they were evaluated with, at every holder."""
        children = self._numbers + np.arange(2 * len(nodes)).reshape(-1, 2)
        self._numbers += 2 * len(nodes)
        numbers = np.array([node.number for node in nodes], dtype=np.int64)
        splits = np.array([node.split for node in nodes], dtype=np.int64)
        self._network.announce(Grow(numbers, splits, children))
        for node, (left, right) in zip(nodes, children.tolist(), strict=True):
            assert node.cells is not None
            node.children = (
                Node(left, 2 * node.path, node.depth + 1, node.cells[0], node),
                Node(right, 2 * node.path + 1, node.depth + 1, node.cells[1], node),
            )

    def label(self, leaves: Sequence[Node]) -> None:
        """Count the classes at the leaves."""
        numbers = np.array([leaf.number for leaf in leaves], dtype=np.int64)
        answers = self._network.ask(CountLabels(numbers, [math.inf] * len(leaves)))
        counts = np.maximum(sum(answers), 0).astype(np.float64)
        for leaf, labels in zip(leaves, counts, strict=True):
            leaf.counts = labels

    def _may_split(self, node: Node) -> bool:
        plan = self._plan
        if plan.max_depth is not None and node.depth > plan.max_depth:
            return False
        if node.counts is None:
            return True
        rows = float(node.counts.sum())
        impure = rows > float(node.counts.max())
        return impure and rows >= plan.min_weight * self._n_rows


def _gains(cells: NDArray[np.float64], criterion: Criterion) -> NDArray[np.float64]:
    """F(node) - F(left) - F(right), in rows, of cells [node, side, class]."""
    impurities = weighted_impurities(
        np.concatenate([cells, cells.sum(axis=1, keepdims=True)], axis=1), criterion
    )
    gains: NDArray[np.float64] = impurities[:, 2] - impurities[:, 0] - impurities[:, 1]
    return gains


def _assemble(root: Node, schema: Schema) -> Tree:
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
    for i in reversed(range(len(order))):
        node = order[i]
        if node.is_split and node.children is not None:
            split[i] = node.split
            left[i], right[i] = place[node.children[0]], place[node.children[1]]
            counts[i] = counts[left[i]] + counts[right[i]]
        else:
            counts[i] = node.counts
    return Tree(schema, split, left, right, counts)
