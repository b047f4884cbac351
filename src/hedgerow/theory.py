"""The theorems as code: how many rows a promise of accuracy asks for.

The paper's sample sizes with the explicit constants that stand in its proofs, and the same for our own
mechanisms, whose derivations are in docs/theory.md. All of them are worst cases and most are enormous:
simulation says more about a particular study. Logarithms are natural unless the paper writes lg (base 2).
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from hedgerow.criteria import Criterion, impurity_bound


def accuracy_of_splits(advantage: float, target_error: float, max_splits: int) -> float:
    """zeta: how nearly optimal every split must be. Proof of Theorem 3: 6 zeta = gamma^2 e / (8 M log(2/e)).

    `advantage` is gamma of the Weak Learning Assumption, `target_error` e, `max_splits` M.
    """
    _check_unit(advantage=advantage, target_error=target_error)
    return advantage**2 * target_error / (8 * max_splits * math.log(2 / target_error)) / 6


def least_share(schedule: str, max_splits: int) -> float:
    """The share of the poorest depth, b = min B(d) over d = 1..M: 1/M uniformly, 2^-M with decay."""
    shares = {"uniform": 1 / max_splits, "decay": 2.0**-max_splits}
    if schedule not in shares:
        raise ValueError(f"schedule={schedule!r}; the paper has 'uniform' and 'decay'.")
    return shares[schedule]


def rows_for_weights(
    zeta: float, epsilon: float, failure_probability: float, max_splits: int, holders: int = 1
) -> float:
    """Rows with which all weights are within zeta: |S| >= ln(8kM/delta) 2k / (zeta alpha_l).

    Proof of Theorem 3 (k = 1) and Corollary (k holders); `epsilon` is alpha_l, a node's whole budget, of
    which half counts its rows.
    """
    _check_positive(zeta=zeta, epsilon=epsilon)
    return math.log(8 * holders * max_splits / failure_probability) * 2 * holders / (zeta * epsilon)


def rows_for_leaves(
    target_error: float, epsilon: float, failure_probability: float, max_splits: int, holders: int = 1
) -> float:
    """Rows with which labelling the leaves costs at most half of the error.

    |S| >= ln(4k(M+1)/delta) 8k(M+1) / (e alpha), with half of epsilon for the leaves: proof of Theorem 3 and
    its corollary.
    """
    _check_positive(target_error=target_error, epsilon=epsilon)
    leaves = max_splits + 1
    return (
        math.log(4 * holders * leaves / failure_probability) * 8 * holders * leaves / (target_error * epsilon)
    )


def rows_for_noisy_max(zeta: float, epsilon: float, failure_probability: float, n_candidates: int) -> float:
    """N(zeta, alpha, delta) of the paper's SingleMachine: 2 b log b, b = ln(|H|/delta) 40 / (alpha zeta).

    Theorem "RNM implements PrivateSplit". It rests on the noise scale 20 lg(m) / (alpha m), which is not
    private (the number of rows m is not public); `rows_for_selection` is ours.
    """
    _check_positive(zeta=zeta, epsilon=epsilon)
    return _more_than_its_log(math.log(n_candidates / failure_probability) * 40 / (epsilon * zeta))


def rows_for_noisy_counts(
    zeta: float, epsilon: float, failure_probability: float, n_candidates: int, holders: int
) -> float:
    """N(zeta, alpha, delta) of the paper's NoisyCounts: 2 b log b, b = 60 ln(3k|H|/delta) k|H| / (alpha zeta)."""
    _check_positive(zeta=zeta, epsilon=epsilon)
    kh = holders * n_candidates
    return _more_than_its_log(60 * math.log(3 * kh / failure_probability) * kh / (epsilon * zeta))


def rows_for_selection(
    zeta: float,
    select: float,
    count: float,
    failure_probability: float,
    n_candidates: int,
    n_classes: int,
    criterion: Criterion = Criterion.gini,
    max_rows: int = 2**31 - 1,
) -> float:
    """N of our SelectSplit: permute-and-flip with epsilon `select`, cells with epsilon `count`.

    The chosen split is zeta-optimal if m >= (D / select) ln(2|H|/delta) / zeta, because permute-and-flip is
    nowhere worse than the exponential mechanism, which misses the best score by more than
    (D / select) ln(|H|/delta') with probability at most delta'. The gain computed from the cells is
    zeta-accurate if m >= 4K(2D + 1) ln(4K/delta) / (count zeta), because F changes by at most D for a row
    and every one of the 2K cells is off by at most ln(4K/delta) / count (docs/theory.md).
    """
    _check_positive(zeta=zeta, select=select, count=count)
    bound = impurity_bound(criterion, n_classes, max_rows)
    chosen = bound / select * math.log(2 * n_candidates / failure_probability) / zeta
    return max(
        chosen, _rows_for_cells(zeta, 1 / count, 1, failure_probability / 2, 2 * n_classes, n_classes, bound)
    )


def rows_for_counts(
    zeta: float,
    epsilon: float,
    failure_probability: float,
    n_histograms: int,
    bins: int,
    holders: int,
    n_candidates: int,
    n_classes: int,
) -> float:
    """N of our NoisyCounts, of both kinds, with gini.

    Per column: `n_histograms` is the number of columns and `bins` the most bins of one; a cell is the sum of
    up to `bins` noisy numbers of each holder. Per split: the number of splits, and bins = 1. All gains must
    be within zeta/2, so that the best of them is zeta-optimal.
    """
    _check_positive(zeta=zeta, epsilon=epsilon)
    bound = impurity_bound(Criterion.gini, n_classes, 2)
    scale = n_histograms / epsilon
    draws = 2 * n_classes * n_candidates * bins * holders
    return _rows_for_cells(zeta / 2, scale, bins * holders, failure_probability, draws, n_classes, bound)


def _rows_for_cells(
    zeta: float, scale: float, terms: int, failure: float, draws: int, n_classes: int, bound: float
) -> float:
    """Rows with which a gain from 2K cells, each off by up to terms * scale * ln(draws/failure), is near."""
    off = terms * scale * math.log(draws / failure)
    return 4 * n_classes * (2 * bound + 1) * off / zeta


@dataclass(frozen=True)
class SampleSize:
    """What a theorem asks for, part by part; `rows` is the largest."""

    zeta: float
    weights: float
    leaves: float
    splits: float

    @property
    def rows(self) -> float:
        """Rows with which the theorem promises the error."""
        return max(self.weights, self.leaves, self.splits)


def rows_for_tree(
    advantage: float,
    target_error: float,
    epsilon: float,
    failure_probability: float,
    max_splits: int,
    n_candidates: int,
    schedule: str = "uniform",
    holders: int = 1,
) -> SampleSize:
    """Theorem 3 (one holder, RNM) and its corollary (several, NoisyCounts): training error <= target_error.

    Every node's budget is at least alpha b / 2, half of it for PrivateSplit, and every node that is split
    holds at least e / (2M) of the rows.
    """
    zeta = accuracy_of_splits(advantage, target_error, max_splits)
    node = epsilon * least_share(schedule, max_splits) / 2
    if node == 0.0:
        return SampleSize(zeta, math.inf, math.inf, math.inf)
    failure = failure_probability / (2 * (2 * max_splits + 1))
    if holders == 1:
        at_a_node = rows_for_noisy_max(zeta, node / 2, failure, n_candidates)
    else:
        at_a_node = rows_for_noisy_counts(zeta, node / 2, failure, n_candidates, holders)
    return SampleSize(
        zeta=zeta,
        weights=rows_for_weights(zeta, node, failure_probability, max_splits, holders),
        leaves=rows_for_leaves(target_error, epsilon, failure_probability, max_splits, holders),
        splits=2 * max_splits / target_error * at_a_node,
    )


def _more_than_its_log(b: float) -> float:
    """The paper's technical lemma: x >= 2 b log b makes x >= b log x."""
    return 2 * b * math.log(b)


def _check_unit(**values: float) -> None:
    for name, value in values.items():
        if not 0 < value <= 1:
            raise ValueError(f"{name}={value!r}; it must lie between 0 and 1.")


def _check_positive(**values: float) -> None:
    for name, value in values.items():
        if not value > 0:
            raise ValueError(f"{name}={value!r}; it must be positive.")
