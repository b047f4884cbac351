"""What noisy counts say about the true ones. Post-processing: costs no privacy and sees no rows.

Every released count is a measurement of some node's class counts with a known variance, and a node's counts
are the sum of its children's. The best linear estimate that honours both is found in two passes over the
tree (Hay et al. 2010, with unequal variances).
"""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from hedgerow.compiled import compiled
from hedgerow.learner.topdown import NONE, FloatArray, Growth
from hedgerow.repeated import IntArray
from hedgerow.schema import Schema
from hedgerow.tree import LEAF, Tree

EXACT = 1e-12  # the variance that stands for none: a weight must be finite
UNKNOWN = 1e30  # the variance that stands for no measurement, where many are added up


def laplace_variance(epsilon: Fraction | float) -> float:
    """The variance of discrete Laplace noise of scale 1 / epsilon."""
    decay = math.exp(-float(epsilon))
    return max(2 * decay / (1 - decay) ** 2, EXACT)


def combine(
    first: FloatArray, first_variance: FloatArray, second: FloatArray, second_variance: FloatArray
) -> tuple[FloatArray, FloatArray]:
    """Two measurements [node, class] of the same counts, weighted by inverse variance [node].

    A variance that is infinite stands for no measurement.
    """
    share = second_variance / (first_variance + second_variance)
    known = np.isfinite(first_variance)
    variance = np.where(known, share * np.where(known, first_variance, 0.0), second_variance)
    return second + share[:, None] * (first - second), variance


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


def least_squares(growth: Growth) -> None:
    """Set the counts of every node to the best linear estimate from all measurements of the whole tree."""
    nodes = growth.nodes
    nodes["counts"], nodes["variance"] = nodes["measured"], nodes["noise"]
    # What a node and all below it say about it: its cells, if it was evaluated but has no children.
    tips = np.flatnonzero((nodes["child"] == NONE) & (nodes["split"] != NONE))
    nodes["counts"][tips], nodes["variance"][tips] = combine(
        nodes["counts"][tips],
        nodes["variance"][tips],
        nodes["cells"][tips].sum(axis=1),
        2 * nodes["cell_noise"][tips],
    )
    tree_least_squares(nodes["child"], nodes["counts"], nodes["variance"])


def tree_least_squares(child: IntArray, counts: FloatArray, variance: FloatArray) -> None:
    """Set counts [node, class] to the best linear estimate from measurements of single nodes, and their variances."""
    _gather(child, counts, variance)
    _spread(child, counts, variance)


HOLDERS_DIFFER = 0.5  # standard deviation of a class's share among the rows of a node, between holders
OF_A_ROW = 0.2  # variance of the class of one row


def sum_of_holders(
    values: FloatArray, variance: FloatArray, rows: FloatArray
) -> tuple[FloatArray, FloatArray]:
    """What all holders have together, from noisy values [node, holder, ...], their variances and rows [node, holder].

    A holder with few rows adds more noise than it knows. So each counts for as much as it may differ from the others,
    beside its noise, and what is left out is taken to be like the rest. Also the variance [node], of noise and of what
    was left out.
    """
    differs = OF_A_ROW * rows + (HOLDERS_DIFFER * rows) ** 2
    weight = (differs + 1e-9) / (differs + 1e-9 + variance)
    weight *= np.clip(rows.sum(axis=1) / np.maximum((weight * rows).sum(axis=1), 1e-9), 1.0, 20.0)[:, None]
    summed: FloatArray = np.einsum("nh,nh...->n...", weight, values)
    return summed, (weight**2 * variance + (1 - weight) ** 2 * differs).sum(axis=1)


@compiled
def _gather(child: IntArray, counts: FloatArray, variance: FloatArray) -> None:
    """Combine what is known of each node with the sums of its children, which come later: see `combine`."""
    for node in range(len(child) - 1, -1, -1):
        if child[node] == NONE:
            continue
        left, right = child[node], child[node] + 1
        own, below = variance[node], variance[left] + variance[right]
        share = below / (own + below)
        for a in range(counts.shape[1]):
            summed = counts[left, a] + counts[right, a]
            counts[node, a] = summed + share * (counts[node, a] - summed)
        variance[node] = share * own if np.isfinite(own) else below


@compiled
def _spread(child: IntArray, counts: FloatArray, variance: FloatArray) -> None:
    """Divide what children lack of their parent's counts between them, by their variances."""
    for node in range(len(child)):
        if child[node] == NONE:
            continue
        left, right = child[node], child[node] + 1
        both = variance[left] + variance[right]
        for a in range(counts.shape[1]):
            lack = counts[node, a] - (counts[left, a] + counts[right, a])
            counts[left, a] += variance[left] / both * lack
            counts[right, a] += variance[right] / both * lack


def smooth(growth: Growth) -> None:
    """Make counts non-negative and pull a node's class shares towards its parent's, as far as noise reaches.

    A leaf with no more rows than noise would otherwise claim a class for certain. The parent's shares count
    as many rows as the standard deviation of the node's counts; the node's total stays.
    """
    nodes = growth.nodes
    counts = on_simplex(nodes["counts"])
    total, shares = counts.sum(axis=1), np.empty_like(counts)
    _blend(nodes["parent"], counts, total, np.sqrt(nodes["variance"]), shares)
    nodes["counts"] = shares * np.maximum(total, 1.0)[:, None]


@compiled
def _blend(
    parent: IntArray, counts: FloatArray, total: FloatArray, borrowed: FloatArray, shares: FloatArray
) -> None:
    """Class shares of nodes, each after its parent, of which `borrowed` rows come from there."""
    n_classes = counts.shape[1]
    for node in range(len(parent)):
        for a in range(n_classes):
            above = 1 / n_classes if parent[node] == NONE else shares[parent[node], a]
            shares[node, a] = (counts[node, a] + borrowed[node] * above) / (total[node] + borrowed[node])


def assemble(growth: Growth, schema: Schema) -> Tree:
    """The finished tree, depth first; an inner node's counts are the sums of its leaves'."""
    order = growth.depth_first()
    nodes, place = growth.nodes[order], np.empty(len(growth.nodes), dtype=np.int64)
    place[order] = np.arange(len(order))
    split, left, right = (
        np.where(nodes["is_split"], values, LEAF).astype(np.int32)
        for values in (nodes["split"], place[nodes["child"]], place[nodes["child"] + 1])
    )
    counts = on_simplex(nodes["counts"]).copy()
    _add_up(left, right, counts)
    return Tree(schema, split, left, right, counts, np.sqrt(nodes["variance"]))


@compiled
def _add_up(left: NDArray[np.int32], right: NDArray[np.int32], counts: FloatArray) -> None:
    """Set inner nodes' counts to their children's sums; those come later in the order."""
    for node in range(len(left) - 1, -1, -1):
        if left[node] != LEAF:
            for a in range(counts.shape[1]):
                counts[node, a] = counts[left[node], a] + counts[right[node], a]
