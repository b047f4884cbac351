"""What noisy counts say about the true ones. Post-processing: costs no privacy and sees no rows.

Every released count is a measurement of some node's class counts with a known variance, and a node's counts
are the sum of its children's. The best linear estimate that honours both is found in two passes over the
tree (Hay et al. 2010, with unequal variances).
"""

from __future__ import annotations

import math
from fractions import Fraction
from functools import lru_cache

import numpy as np

from hedgerow.learner.topdown import FloatArray, Node

EXACT = 1e-12  # the variance that stands for none: a weight must be finite


@lru_cache(maxsize=1024)
def laplace_variance(epsilon: Fraction | float) -> float:
    """The variance of discrete Laplace noise of scale 1 / epsilon."""
    decay = math.exp(-float(epsilon))
    return max(2 * decay / (1 - decay) ** 2, EXACT)


def combine(
    first: FloatArray, first_variance: float, second: FloatArray, second_variance: float
) -> tuple[FloatArray, float]:
    """Two measurements of the same counts, weighted by inverse variance; infinite: not measured."""
    if math.isinf(first_variance):
        return second, second_variance
    share = second_variance / (first_variance + second_variance)
    return second + share * (first - second), share * first_variance


def reconcile(
    parent: FloatArray, variance: FloatArray, cells: FloatArray, noise: FloatArray
) -> tuple[FloatArray, FloatArray]:
    """Children's counts [node, side, class] from estimates of their parents [node, class] and noisy cells.

    What the cells' sum lacks of the parent is divided evenly between them, as far as the parent is the better
    known. Also the variance [node] of a child's counts.
    """
    lack = parent - cells.sum(axis=1)
    share = noise / (variance + 2 * noise)
    return cells + share[:, None, None] * lack[:, None, :], noise * (1 - share)


def on_simplex(counts: FloatArray) -> FloatArray:
    """The non-negative counts [..., class] nearest to noisy ones of the same sum (zero if that is negative)."""
    if counts.size and counts.min() >= 0:
        return counts
    totals = np.maximum(counts.sum(axis=-1, keepdims=True), 0.0)
    ordered = -np.sort(-counts, axis=-1)
    excess = (np.cumsum(ordered, axis=-1) - totals) / np.arange(1, counts.shape[-1] + 1)
    kept = np.maximum(np.count_nonzero(ordered > excess, axis=-1, keepdims=True), 1)
    projected: FloatArray = np.maximum(counts - np.take_along_axis(excess, kept - 1, axis=-1), 0.0)
    return projected


def least_squares(root: Node) -> None:
    """Set the counts of every node to the best linear estimate from all measurements of the whole tree."""
    order: list[Node] = []
    stack = [root]
    while stack:
        node = stack.pop()
        order.append(node)
        stack += node.children or ()
    for node in reversed(order):  # what a node and all below it say about it
        node.counts, node.variance = node.measured, node.noise
        if below := _below(node):
            node.counts, node.variance = combine(node.measured, node.noise, *below)
    for node in order:  # what the nodes above add to that
        if node.children is not None:
            left, right = node.children
            lack = node.counts - left.counts - right.counts
            share = left.variance / (left.variance + right.variance)
            left.counts = left.counts + share * lack
            right.counts = right.counts + (1 - share) * lack


def _below(node: Node) -> tuple[FloatArray, float] | None:
    """The sum of the children's estimates; of the cells, if the node was evaluated but has no children."""
    if node.children is not None:
        left, right = node.children
        return left.counts + right.counts, left.variance + right.variance
    if node.cells is not None:
        return node.cells.sum(axis=0), 2 * node.cell_noise
    return None


def smooth(root: Node) -> None:
    """Make counts non-negative and pull a leaf's class shares towards its parent's, as far as noise reaches.

    A leaf with no more rows than noise would otherwise claim a class for certain. The parent's shares count
    as many rows as the standard deviation of the leaf's counts; the leaf's total stays.
    """
    stack = [(root, np.full(len(root.counts), 1 / len(root.counts)))]
    while stack:
        node, above = stack.pop()
        counts, borrowed = on_simplex(node.counts), math.sqrt(node.variance)
        total = float(counts.sum())
        shares = (counts + borrowed * above) / (total + borrowed)
        node.counts = shares * max(total, 1.0)
        stack += [(child, shares) for child in node.children or ()]
