"""How far the noise may have moved a class share."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from hedgerow.tree import Tree

# Standard deviations within which 95 of 100 values of Laplace noise lie, log(20) / sqrt(2); sums of several
# such values are nearer to normal and need fewer.
REACH = 2.12

Bounds = tuple[NDArray[np.float64], NDArray[np.float64]]


def share_bounds(tree: Tree) -> Bounds | None:
    """Low and high [node, class]: the shares that the released counts do not speak against.

    Fieller's argument: with noise of standard deviation s in each of K counts c, of sum n, the noise of
    c - p n has variance s^2 ((1 - p)^2 + (K - 1) p^2). A share p lies within the bounds if c - p n is within
    its reach: a quadratic in p. Where it holds for large p as well as for small, nothing is known.
    """
    if tree.noise is None:
        return None
    counts, reach = tree.counts, (REACH * tree.noise[:, None]) ** 2
    totals = counts.sum(axis=1, keepdims=True)
    a = totals**2 - tree.schema.n_classes * reach
    b = counts * totals - reach
    root = np.sqrt(np.maximum(b**2 - a * (counts**2 - reach), 0.0))
    known = a > 0
    divisor = np.where(known, a, 1.0)
    low, high = np.where(known, (b - root) / divisor, 0.0), np.where(known, (b + root) / divisor, 1.0)
    return np.clip(low, 0.0, 1.0), np.clip(high, 0.0, 1.0)
