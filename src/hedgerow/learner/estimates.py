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
from numpy.typing import NDArray

from hedgerow.learner.topdown import NONE, FloatArray, Growth

EXACT = 1e-12  # the variance that stands for none: a weight must be finite


@lru_cache(maxsize=1024)
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
    _combine_at(growth, tips, nodes["cells"][tips].sum(axis=1), 2 * nodes["cell_noise"][tips])
    for parents, children in growth.families(top_down=False):
        _combine_at(
            growth, parents, nodes["counts"][children].sum(axis=1), nodes["variance"][children].sum(axis=1)
        )
    for parents, children in growth.families():  # what the nodes above add to that
        counts, variance = nodes["counts"][children], nodes["variance"][children]
        lack = nodes["counts"][parents] - counts.sum(axis=1)
        share = variance / variance.sum(axis=1, keepdims=True)
        nodes["counts"][children] = counts + share[:, :, None] * lack[:, None, :]


def _combine_at(growth: Growth, at: NDArray[np.int64], counts: FloatArray, variance: FloatArray) -> None:
    nodes = growth.nodes
    nodes["counts"][at], nodes["variance"][at] = combine(
        nodes["counts"][at], nodes["variance"][at], counts, variance
    )


def smooth(growth: Growth) -> None:
    """Make counts non-negative and pull a node's class shares towards its parent's, as far as noise reaches.

    A leaf with no more rows than noise would otherwise claim a class for certain. The parent's shares count
    as many rows as the standard deviation of the node's counts; the node's total stays.
    """
    nodes = growth.nodes
    counts = on_simplex(nodes["counts"])
    borrowed = np.sqrt(nodes["variance"])
    total = counts.sum(axis=1)
    shares = np.empty_like(counts)
    for level in growth.levels():
        parent = nodes["parent"][level]
        above = np.where((parent == NONE)[:, None], 1 / counts.shape[1], shares[parent])
        rows = total[level] + borrowed[level]
        shares[level] = (counts[level] + borrowed[level, None] * above) / rows[:, None]
    nodes["counts"] = shares * np.maximum(total, 1.0)[:, None]
