"""Splitting criteria as weighted impurities F(c) = m G(c / m), compiled, over any number of classes.

G is scaled to G(uniform) = 1 and F(0) = 0. F is concave and homogeneous: adding a row never lowers it, and
a split never raises the sum. Imports only `compiled`.
"""

from __future__ import annotations

import math
from enum import IntEnum
from fractions import Fraction
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hedgerow.compiled import compiled


class Criterion(IntEnum):
    """The criteria by number, as compiled code knows them."""

    gini = 0
    entropy = 1
    root_gini = 2
    error = 3


@compiled
def add_impurities(counts, criterion, total, work, out):  # type: ignore[no-untyped-def]
    """Add F of each column of `counts` [class, item] to `out` [item]; `total` and `work` [item] are scratch.

    Items lie next to each other, so every loop over them becomes vector instructions. Each criterion is
    computed so that doubling the counts doubles the result to the last bit: ties stay ties when all rows
    are repeated.
    """
    n_classes, n_items = counts.shape
    if n_classes == 1:
        return
    scale = n_classes / (n_classes - 1.0)
    if criterion == 0 and n_classes == 2:  # the usual case, in a third of the time: one pass, nothing is kept
        for i in range(n_items):
            rows = counts[0, i] + counts[1, i]
            squares = counts[0, i] * counts[0, i] + counts[1, i] * counts[1, i]
            out[i] += scale * (rows - squares / rows) if rows > 0.0 else 0.0
        return
    for i in range(n_items):
        total[i] = 0.0
        work[i] = 0.0
    for a in range(n_classes):
        for i in range(n_items):
            total[i] += counts[a, i]
    if criterion == 0:
        for a in range(n_classes):
            for i in range(n_items):
                work[i] += counts[a, i] * counts[a, i]
        for i in range(n_items):
            out[i] += scale * (total[i] - work[i] / total[i]) if total[i] > 0.0 else 0.0
    elif criterion == 1:
        for a in range(n_classes):
            for i in range(n_items):
                # No branch: how long it takes must not tell which counts are 0. (0 log 1/m is 0.)
                share = (counts[a, i] if counts[a, i] > 0.0 else 1.0) / (total[i] if total[i] > 0.0 else 1.0)
                work[i] -= counts[a, i] * np.log(share)
        for i in range(n_items):
            out[i] += work[i] / np.log(n_classes)
    elif criterion == 2:
        for i in range(n_items):
            out[i] += 2.0 * np.sqrt(counts[0, i] * counts[1, i])
    else:
        for a in range(n_classes):
            for i in range(n_items):
                work[i] = max(work[i], counts[a, i])
        for i in range(n_items):
            out[i] += scale * (total[i] - work[i])


def weighted_impurities(counts: NDArray[Any], criterion: Criterion) -> NDArray[np.float64]:
    """F of counts [..., class], one number for each leading index."""
    by_class = np.ascontiguousarray(counts.reshape(-1, counts.shape[-1]).T, dtype=np.float64)
    total, work, out = np.zeros((3, by_class.shape[1]))
    add_impurities(by_class, int(criterion), total, work, out)
    return out.reshape(counts.shape[:-1])


@compiled
def split_gains(cells, criterion):  # type: ignore[no-untyped-def]
    """What splits take off a node's F, and its number of rows, from their cells [node, side, class]."""
    n_nodes, _, n_classes = cells.shape
    items = np.empty((n_classes, 3 * n_nodes))  # of each node the left side, the right side, and both
    for i in range(n_nodes):
        for a in range(n_classes):
            items[a, 3 * i], items[a, 3 * i + 1] = cells[i, 0, a], cells[i, 1, a]
            items[a, 3 * i + 2] = cells[i, 0, a] + cells[i, 1, a]
    impurities, total, work = np.zeros(3 * n_nodes), np.empty(3 * n_nodes), np.empty(3 * n_nodes)
    add_impurities(items, criterion, total, work, impurities)
    gains, rows = np.empty(n_nodes), np.zeros(n_nodes)
    for i in range(n_nodes):
        gains[i] = impurities[3 * i + 2] - impurities[3 * i] - impurities[3 * i + 1]
        for a in range(n_classes):
            rows[i] += items[a, 3 * i + 2]
    return gains, rows


FRACTION_BITS = 10  # scores are integers in units of 2**-10 rows


def impurity_bound(criterion: Criterion, n_classes: int, max_rows: int) -> Fraction:
    """D, or a little more: by how much one more row can raise F, which it never lowers.

    - gini: F(c + e_a) - F(c) = K/(K-1) (1 - (2 c_a + 1)/(m+1) + sum c^2 / (m(m+1))) < 2K/(K-1), approached
      by c_a = 0 in a large pure node;
    - entropy: largest for c_a = 0, where it is (N log N - (N-1) log(N-1)) / log K, growing with N;
    - root gini: 2 (sqrt((c_0+1) c_1) - sqrt(c_0 c_1)) <= 2 sqrt(c_1), with c_0 = 0 and c_1 = N - 1;
    - error: K/(K-1) times 1 (the row is not of the largest class) or 0.

    N is `max_rows`, a public bound on the rows with the new one. Gini's and error's are exact, root gini's is
    rounded up to 2**-40, entropy's is above D by less than one part in 2**47: never below (docs/privacy.md,
    Theorem 3).
    """
    k, n = n_classes, max_rows
    if k == 1 or n <= 1:
        return Fraction(0)
    match criterion:
        case Criterion.gini:
            return Fraction(2 * k, k - 1)
        case Criterion.entropy:
            # Equal to N log N - (N-1) log(N-1), but a sum of positive numbers: nothing cancels.
            nats = math.log(n) + (n - 1) * math.log1p(1 / (n - 1))
            return Fraction(nats / math.log(k)) * (1 + Fraction(1, 2**48))
        case Criterion.root_gini:
            return Fraction(1 + math.isqrt((n - 1) * 2**82 - 1), 2**40)
        case Criterion.error:
            return Fraction(k, k - 1)


@lru_cache(maxsize=1024)  # asked for in every round
def score_sensitivity(criterion: Criterion, n_classes: int, max_rows: int) -> int:
    """The range, in units, of the changes that one row makes to the scores -F(left) - F(right) of all splits.

    One more row joins one side of every split and lowers every score by 0 to D. Rounding down to a unit moves
    two changes apart by less than one unit more. A change is the difference of two scores computed in double
    precision, so two changes move apart by up to four times `rounding_error` more.
    Selectors depend on differences of scores only, so the range of the changes is what counts. The sum is one of
    fractions, so nothing is lost before it is rounded up.
    """
    exact: int = math.ceil(impurity_bound(criterion, n_classes, max_rows) * 2**FRACTION_BITS)
    rounding: int = 1 + math.ceil(4 * rounding_error(n_classes, max_rows) * 2**FRACTION_BITS)
    return exact + rounding


def rounding_error(n_classes: int, max_rows: int) -> Fraction:
    """How far a score computed in double precision can be from the true one, in rows (docs/privacy.md)."""
    return Fraction(64 * (n_classes + 4) * max_rows, 2**53)


@compiled
def to_fixed_point(scores: NDArray[np.float64]) -> NDArray[np.int64]:
    """Scores in units of 2**-10, rounded down."""
    units = np.empty(scores.shape, np.int64)
    for i in range(scores.size):
        units.flat[i] = np.int64(np.floor(scores.flat[i] * 2.0**FRACTION_BITS))
    return units
