"""The theorems' sample sizes: the printed formulas, and promises kept in simulation at their own sizes.

A promise that fails with probability delta is tried 2,000 times; more than delta + 4 standard errors of failures
would mean that it does not hold (false alarm below 1e-4 if it holds with equality, which it never nearly does).
"""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest

from hedgerow import Numeric, Schema
from hedgerow.budget import NodeBudget
from hedgerow.criteria import Criterion, score_sensitivity, to_fixed_point, weighted_impurities
from hedgerow.encoding import encode, encode_labels
from hedgerow.holder.counts import GroupedRows
from hedgerow.learner.estimates import on_simplex
from hedgerow.messages import ROOT
from hedgerow.privacy.noise import SeededNoise
from hedgerow.privacy.selectors import PermuteAndFlip
from hedgerow.theory import (
    accuracy_of_splits,
    least_share,
    rows_for_counts,
    rows_for_leaves,
    rows_for_noisy_counts,
    rows_for_noisy_max,
    rows_for_selection,
    rows_for_tree,
    rows_for_weights,
)

RUNS = 2_000
DELTA = 0.05
MOST_FAILURES = RUNS * (DELTA + 4 * math.sqrt(DELTA * (1 - DELTA) / RUNS))
ROOT_ONLY = np.array([ROOT])


def test_the_papers_formulas_by_hand():
    assert accuracy_of_splits(0.5, 0.1, 10) == pytest.approx(0.25 * 0.1 / (80 * math.log(20)) / 6)
    assert rows_for_weights(0.01, 0.5, 0.05, 10) == pytest.approx(math.log(1600) * 2 / 0.005)
    assert rows_for_weights(0.01, 0.5, 0.05, 10, holders=4) == pytest.approx(math.log(6400) * 8 / 0.005)
    assert rows_for_leaves(0.1, 1.0, 0.05, 9) == pytest.approx(math.log(800) * 80 / 0.1)
    b = math.log(100 / 0.05) * 40 / (0.5 * 0.1)
    assert rows_for_noisy_max(0.1, 0.5, 0.05, 100) == pytest.approx(2 * b * math.log(b))
    b = 60 * math.log(3 * 400 / 0.05) * 400 / (0.5 * 0.1)
    assert rows_for_noisy_counts(0.1, 0.5, 0.05, 100, 4) == pytest.approx(2 * b * math.log(b))


def test_the_whole_tree_asks_for_the_largest_part_and_decay_for_more_than_there_is():
    size = rows_for_tree(0.2, 0.1, 1.0, 0.05, max_splits=8, n_candidates=20)
    node = 1.0 / 8 / 2
    assert least_share("uniform", 8) == 1 / 8
    assert size.weights == rows_for_weights(size.zeta, node, 0.05, 8)
    assert size.splits == 160 * rows_for_noisy_max(size.zeta, node / 2, 0.05 / 34, 20)
    assert size.rows == size.splits
    assert rows_for_tree(0.2, 0.1, 1.0, 0.05, 8, 20, schedule="decay").rows > size.rows
    assert rows_for_tree(0.2, 0.1, 1.0, 0.05, 4_096, 20, schedule="decay").rows == math.inf


@pytest.mark.parametrize("wrong", [{"advantage": 0.0}, {"advantage": 1.5}, {"target_error": 0.0}])
def test_nonsense_is_named(wrong):
    with pytest.raises(ValueError, match=next(iter(wrong))):
        accuracy_of_splits(**({"advantage": 0.1, "target_error": 0.1, "max_splits": 8} | wrong))


def near_ties(rows: int, candidates: int, zeta: float) -> GroupedRows:
    """One column that is right about a share of the rows, and many whose gain is a little over zeta less."""
    rng = np.random.default_rng(0)
    labels = np.arange(rows) % 2
    best = math.sqrt(2 * zeta + 0.05)  # a column right with probability (1 + a)/2 gains a^2, in gini
    others = math.sqrt(best**2 - 1.2 * zeta)
    share = np.full(candidates, others)
    share[0] = best
    right = rng.random((rows, candidates)) < (1 + share) / 2
    table = np.where(right, labels[:, None], 1 - labels[:, None]).astype(np.float32)
    schema = Schema([Numeric(f"x{i:03d}", 0, 1, 1) for i in range(candidates)], label="y", classes=[0, 1])
    return GroupedRows(encode(table, schema), encode_labels(labels, schema), schema)


def gains(cells: np.ndarray) -> np.ndarray:
    """J of cells [..., side, class], as the coordinator computes it."""
    cells = on_simplex(cells.astype(np.float64))
    whole = weighted_impurities(cells.sum(axis=-2), Criterion.gini)
    parts = weighted_impurities(cells, Criterion.gini).sum(axis=-1)
    return (whole - parts) / np.maximum(cells.sum(axis=(-2, -1)), 1.0)


def test_selection_keeps_its_promise_at_its_own_sample_size():
    zeta, candidates = 0.1, 50
    budget = NodeBudget(Criterion.gini, select=Fraction(1, 5), count=Fraction(1, 2))
    rows = math.ceil(rows_for_selection(zeta, 0.2, 0.5, DELTA, candidates, 2))
    grouped = near_ties(rows, candidates, zeta)
    true = gains(grouped.all_cells(ROOT_ONLY)[0])
    [(_, histograms)] = grouped.histograms(ROOT_ONLY)
    scores = np.repeat(to_fixed_point(grouped.scores(histograms, Criterion.gini)), RUNS, axis=0)
    keys = np.arange(RUNS, dtype=np.uint64)
    noise = SeededNoise(1)
    sensitivity = score_sensitivity(Criterion.gini, 2, 2**31 - 1)
    chosen = PermuteAndFlip().select(scores, sensitivity, budget.select, noise, keys)
    cells = grouped.cells(np.zeros(RUNS, np.int64), chosen)
    noisy = noise.laplace(cells.reshape(RUNS, -1), 1 / budget.count, keys).reshape(cells.shape)
    far = (true[chosen] < true.max() - zeta) | (np.abs(gains(noisy) - true[chosen]) > zeta)
    assert far.sum() <= MOST_FAILURES


def test_noisy_columns_keep_their_promise_at_their_own_sample_size():
    zeta, candidates, holders = 0.4, 5, 2
    rows = math.ceil(rows_for_counts(zeta, 4.0, DELTA, candidates, 2, holders, candidates, 2))
    grouped = near_ties(rows, candidates, zeta)
    true_cells = grouped.all_cells(ROOT_ONLY)[0]
    true = gains(true_cells)
    keys = np.arange(RUNS, dtype=np.uint64)
    flat = np.repeat(
        true_cells.reshape(1, -1), RUNS, axis=0
    )  # one threshold a column: its cells are its bins
    scale = Fraction(candidates, 4)
    noisy = flat.copy()
    for holder in range(holders):
        noisy += SeededNoise(holder).laplace(np.zeros_like(flat), scale, keys)
    estimated = gains(noisy.reshape(RUNS, candidates, 2, 2))
    chosen = estimated.argmax(axis=1)
    far = (true[chosen] < true.max() - zeta) | (
        np.abs(estimated[np.arange(RUNS), chosen] - true[chosen]) > zeta
    )
    assert far.sum() <= MOST_FAILURES


def test_far_too_few_rows_break_the_promise():
    """So the simulation could have failed."""
    zeta, candidates = 0.1, 50
    rows = 60
    grouped = near_ties(rows, candidates, zeta)
    true = gains(grouped.all_cells(ROOT_ONLY)[0])
    [(_, histograms)] = grouped.histograms(ROOT_ONLY)
    scores = np.repeat(to_fixed_point(grouped.scores(histograms, Criterion.gini)), RUNS, axis=0)
    sensitivity = score_sensitivity(Criterion.gini, 2, 2**31 - 1)
    keys = np.arange(RUNS, dtype=np.uint64)
    chosen = PermuteAndFlip().select(scores, sensitivity, Fraction(1, 5), SeededNoise(1), keys)
    assert (true[chosen] < true.max() - zeta).sum() > MOST_FAILURES
