"""The theorems' sample sizes: the printed formulas, and promises kept in simulation at their own sizes.

A promise that fails with probability delta is tried 2,000 times; more than delta + 4 standard errors of failures
would mean that it does not hold (false alarm below 1e-4 if it holds with equality; seeds are fixed).
"""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest

from hedgerow import Numeric, PrivateTreeClassifier, Schema
from hedgerow.budget import GRAINS, NodeBudgets
from hedgerow.criteria import Criterion, weighted_impurities
from hedgerow.encoding import Codes, encode, encode_labels
from hedgerow.holder.counts import GroupedRows
from hedgerow.holder.holder import Holder
from hedgerow.learner.estimates import on_simplex
from hedgerow.learner.private_split import LocalSelection, NoisyCounts, PrivateSplit, SelectSplit
from hedgerow.messages import ROOT
from hedgerow.network.local import LocalNetwork
from hedgerow.paths import Paths
from hedgerow.privacy.ledger import Ledger
from hedgerow.privacy.noise import SeededNoise
from hedgerow.privacy.selectors import SELECTORS
from hedgerow.theory import (
    accuracy_of_splits,
    least_fall,
    least_share,
    log_splits_for_error,
    miss,
    rows_for_leaves,
    rows_for_noisy_counts,
    rows_for_noisy_max,
    rows_for_our_tree,
    rows_for_tree,
    rows_for_weights,
    total_noise,
)

RUNS = 2_000
DELTA = 0.05
MOST_FAILURES = RUNS * (DELTA + 4 * math.sqrt(DELTA * (1 - DELTA) / RUNS))
CANDIDATES = 50
SPLITS = [
    *(SelectSplit(selector) for selector in SELECTORS),
    NoisyCounts("per-split"),
    NoisyCounts("per-column"),
]


# ---- The paper's formulas --------------------------------------------------------------------------------------


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
    several = rows_for_tree(0.2, 0.1, 1.0, 0.05, 8, 20, holders=4)
    assert several.splits == 160 * rows_for_noisy_counts(size.zeta, node / 2, 0.05 / 34, 20, 4)
    assert several.weights > 4 * size.weights


def test_the_printed_2_b_log_b_is_too_small_for_lg_and_the_corrected_one_just_enough():
    """The proof needs m >= b lg m; the lemma that it cites is about the natural logarithm."""
    epsilon, zeta, failure, candidates = 1.0, 0.2, 0.05, 2
    b = math.log(candidates / failure) * 40 / (epsilon * zeta)
    printed = rows_for_noisy_max(zeta, epsilon, failure, candidates)
    corrected = rows_for_noisy_max(zeta, epsilon, failure, candidates, corrected=True)
    assert 200 < b < 1000
    assert printed < b * math.log2(printed)
    assert corrected == pytest.approx(b * math.log2(corrected), rel=1e-6)


def test_a_corrected_tree_asks_for_more_than_the_printed_one():
    for holders in (1, 4):
        size, corrected = (
            rows_for_tree(0.2, 0.1, 1.0, 0.05, 8, 20, holders=holders, corrected=flag)
            for flag in (False, True)
        )
        assert corrected.zeta < size.zeta
        assert size.weights < corrected.weights < 3 * size.weights
        assert size.leaves < corrected.leaves < 3 * size.leaves


def test_the_number_of_splits_solves_the_recurrence():
    """G falls by f(G)/2t: after so many splits it is below the target, in the criterion whose f is shown."""
    for advantage, error in ((0.5, 0.3), (0.4, 0.4)):
        splits = math.exp(log_splits_for_error(advantage, error, Criterion.root_gini))
        potential = 1.0
        for t in range(1, math.ceil(splits) + 1):
            potential -= 2 * advantage**2 * potential / (2 * t)
        assert error / 2 < potential <= error
    assert log_splits_for_error(0.1, 0.1, printed=True) == pytest.approx(
        400 * (math.log(20) ** 2 - math.log(2) ** 2)
    )
    # Entropy: the integral of dG / H^-1(G), here by crude sums over a grid.
    x = np.geomspace(1e-4, 0.5, 200_001)
    bits = -(x * np.log2(x) + (1 - x) * np.log2(1 - x))
    above = bits >= 0.2
    crude = 2 * math.log(2) / (4 * 0.3**2) * float(np.sum(np.diff(bits[above]) / x[above][1:]))
    assert log_splits_for_error(0.3, 0.2) == pytest.approx(crude, rel=1e-3)
    assert log_splits_for_error(0.3, 0.2, Criterion.error) == math.inf
    assert (4 / math.log(2) * x >= 1.6 * bits / np.log(2 / bits)).all()  # beside the paper's 1/4


@pytest.mark.parametrize("wrong", [{"advantage": 0.0}, {"advantage": 1.5}, {"target_error": 0.0}])
def test_nonsense_is_named(wrong):
    with pytest.raises(ValueError, match=next(iter(wrong))):
        accuracy_of_splits(**({"advantage": 0.1, "target_error": 0.1, "max_splits": 8} | wrong))


# ---- One node --------------------------------------------------------------------------------------------------


def near_ties(rows: int, zeta: float, best: float = 0.2) -> tuple[Schema, Codes, np.ndarray]:
    """One column whose split gains `best`, and many whose splits gain a little over zeta less, in gini."""
    labels = np.arange(rows) % 2  # rows are even, or the classes would tell something of the splits
    rank = np.arange(rows) // 2 * 2 / rows  # within its class, from 0 to 1
    gains = np.full(CANDIDATES, best)
    gains[1:] -= 1.02 * zeta
    right = rank[:, None] < (1 + np.sqrt(gains)) / 2  # right about a share (1 + a)/2 of the rows: gains a^2
    table = np.where(right, labels[:, None], 1 - labels[:, None]).astype(np.float32)
    schema = Schema([Numeric(f"x{i:03d}", 0, 1, 1) for i in range(CANDIDATES)], label="y", classes=[0, 1])
    return schema, encode(table, schema), encode_labels(labels, schema)


def hundreds(rows: float) -> int:
    """Rounded up, so that shares of the rows come out."""
    return 100 * math.ceil(rows / 100)


def gains(cells: np.ndarray) -> np.ndarray:
    """J of cells [..., side, class], as the coordinator computes it."""
    cells = on_simplex(cells.astype(np.float64))
    whole = weighted_impurities(cells.sum(axis=-2), Criterion.gini)
    parts = weighted_impurities(cells, Criterion.gini).sum(axis=-1)
    return (whole - parts) / np.maximum(cells.sum(axis=(-2, -1)), 1.0)


def failures(
    private_split: PrivateSplit, rows: int, zeta: float, epsilons: tuple[Fraction, Fraction], holders: int
) -> int:
    """How many of RUNS runs of the real code on near ties break the promise; the rows are dealt out evenly."""
    schema, codes, labels = near_ties(rows, zeta)
    true = gains(GroupedRows(codes, labels, schema).all_cells(np.array([ROOT]))[0])
    assert (true[1:] < true[0] - zeta).all()  # every choice but one would break it
    dealt = [
        Holder(GroupedRows(codes, labels, schema, mine), SeededNoise(i), Ledger(Fraction(10**9)), rows)
        for i, mine in enumerate(np.array_split(np.arange(rows), holders))
    ]
    found = evaluate(private_split, LocalNetwork(dealt), schema, epsilons)
    estimated = gains(found.cells)
    off = (true[found.splits] < true.max() - zeta) | (np.abs(estimated - true[found.splits]) > zeta)
    return int(off.sum())


def evaluate(private_split, network, schema, epsilons):
    """The root RUNS times over, each time with noise of its own; a grain is a tenth."""
    select, count = (np.full(RUNS, int(10 * epsilon)) for epsilon in epsilons)
    none = np.zeros(RUNS, dtype=np.int64)
    budgets = NodeBudgets(np.full(RUNS, Criterion.gini), select, count, none, none > 0)
    return private_split.evaluate(
        network, Paths.root(schema), np.full(RUNS, ROOT), budgets, Fraction(GRAINS, 10)
    )


# Where each has least to spare: selectors with little to choose by, counts with 1 for all.
SETTINGS = {
    "SelectSplit": (0.1, (Fraction(1, 10), Fraction(4)), 1),
    "NoisyCounts": (0.15, (Fraction(20), Fraction(20)), 2),
}


@pytest.mark.parametrize("private_split", SPLITS, ids=str)
def test_a_private_split_keeps_its_promise_at_its_own_sample_size(private_split):
    zeta, epsilons, holders = SETTINGS[type(private_split).__name__]
    schema = near_ties(2, zeta)[0]
    promised = miss(private_split, schema, *map(float, epsilons), DELTA, holders=holders, max_rows=10**6)
    rows = hundreds(promised.rows_needed(zeta))
    assert failures(private_split, rows, zeta, epsilons, holders) <= MOST_FAILURES


@pytest.mark.parametrize("private_split", SPLITS, ids=str)
def test_far_too_few_rows_break_the_promise(private_split):
    """So the simulation could have failed."""
    zeta, epsilons, holders = SETTINGS[type(private_split).__name__]
    assert failures(private_split, 100, zeta, epsilons, holders) > MOST_FAILURES


def test_permute_and_flip_has_nothing_to_spare():
    """Nearly as many failures as promised: the bound on its choice cannot be made much smaller."""
    zeta, epsilons, holders = SETTINGS["SelectSplit"]
    private_split = SelectSplit("permute_and_flip")
    promised = miss(private_split, near_ties(2, zeta)[0], *map(float, epsilons), DELTA, max_rows=10**6)
    assert promised.choice > promised.gain + promised.rows
    rows = hundreds(promised.rows_needed(zeta))
    assert failures(private_split, rows, zeta, epsilons, holders) > RUNS * DELTA / 8
    assert failures(private_split, hundreds(rows / 2), zeta, epsilons, holders) > MOST_FAILURES


def test_the_total_of_noise_is_bounded_and_not_by_much():
    runs = 40_000
    for draws, scale in ((1, Fraction(1, 2)), (4, Fraction(2)), (40, Fraction(25))):
        noise = SeededNoise(5).laplace(
            np.zeros((runs, draws), np.int64), scale, np.arange(runs, dtype=np.uint64)
        )
        totals = np.abs(noise).sum(axis=1)
        above = int((totals > total_noise(draws, float(scale), 0.01)).sum())
        assert above <= 400 + 5 * math.sqrt(400)
        assert totals.max() > total_noise(draws, float(scale), 0.05)


def test_making_counts_non_negative_takes_them_no_farther_from_the_truth():
    rng = np.random.default_rng(0)
    for n_classes in (2, 3, 10):
        truth = rng.integers(0, 20, (20_000, n_classes)) * (rng.random((20_000, n_classes)) < 0.6)
        noisy = truth + rng.laplace(scale=10.0, size=truth.shape)
        assert (noisy.sum(axis=1) < 0).any()
        before, after = (np.abs(counts - truth).sum(axis=1) for counts in (noisy, on_simplex(noisy)))
        assert (after <= before + 1e-9).all()


def test_local_selection_promises_nothing_and_no_number_of_rows_helps_it():
    """Half of the holders have y = a, the others y != a: all nominate a, which says nothing about all rows."""
    schema = Schema([Numeric("a", 0, 1, 1), Numeric("b", 0, 1, 1)], label="y", classes=[0, 1])
    assert miss(LocalSelection(), schema, 1.0, 1.0, DELTA, holders=2).choice == math.inf
    for rows in (1_000, 100_000):
        y = np.arange(rows) % 2
        b = np.where(np.arange(rows) % 10 < 8, y, 1 - y)  # right about four in five
        tables = [(np.column_stack([a, b]).astype(float), y) for a in (y, 1 - y)]
        model = PrivateTreeClassifier(
            schema=schema, epsilon=math.inf, method="local", max_splits=1, min_gain=0.0
        )
        assert model.fit_holders(tables).tree_.n_splits == 0  # the nominee gains nothing
        model.set_params(method="noisy_columns").fit_holders(tables)
        assert schema.columns[schema.splits[int(model.tree_.split[0])].column].name == "b"


# ---- The whole tree --------------------------------------------------------------------------------------------


VOTERS = 5
ADVANTAGE = 1 / (
    2 * VOTERS
)  # a majority agrees with (1 + 1/VOTERS)/2 of its voters or more, so one voter does
MOST_SPLITS = 12
TARGET = 0.4


def elections(rows: int, seed: int) -> tuple[Schema, np.ndarray, np.ndarray]:
    """Votes of five and their majority: the Weak Learning Assumption holds for every distribution of rows."""
    rng = np.random.default_rng(seed)
    every = (np.arange(2**VOTERS)[:, None] >> np.arange(VOTERS)) & 1
    counts = rng.multinomial(rows, rng.dirichlet(np.ones(2**VOTERS)))
    votes = np.repeat(every, counts, axis=0)
    columns = [Numeric(f"x{i}", 0, 1, 1) for i in range(VOTERS)]
    labels = (2 * votes.sum(axis=1) > VOTERS).astype(int)
    return Schema(columns, label="y", classes=[0, 1]), votes.astype(np.float32), labels


def too_slow(criterion: Criterion, epsilon: float, rows: int, seed: int) -> int:
    """How many splits of a tree take less off its potential than half of what they would without noise."""
    schema, votes, labels = elections(rows, seed)
    codes, encoded = encode(votes, schema), encode_labels(labels, schema)
    model = PrivateTreeClassifier(
        schema=schema, epsilon=epsilon, method="select", criterion=criterion.name, budget="uniform",
        max_depth=MOST_SPLITS, max_rows=2 * rows, noise_seed=seed,
    )  # fmt: skip
    states = [state_of(model, codes, encoded, criterion, splits) for splits in range(1, MOST_SPLITS + 1)]
    whole = np.bincount(encoded, minlength=2)
    before = [(float(weighted_impurities(whole, criterion)) / rows, whole.min() / rows, 1), *states[:-1]]
    slow = 0
    for (potential, error, leaves), (after, _, leaves_after) in zip(before, states, strict=True):
        if error > TARGET / 2 and leaves < leaves_after:
            slow += potential - after < least_fall(criterion, ADVANTAGE, error) / leaves / 2
    return slow


def state_of(model, codes, labels, criterion, splits) -> tuple[float, float, int]:
    """Potential and error of the tree with so many splits, over the true rows, and its number of leaves."""
    tree = model.set_params(max_splits=splits).fit_codes(codes, labels).tree_
    leaf = tree.apply(codes)
    counts = np.zeros((len(tree.split), 2))
    np.add.at(counts, (leaf, labels), 1)
    potential = float(weighted_impurities(counts, criterion).sum()) / len(labels)
    return potential, float(counts.min(axis=1).sum()) / len(labels), tree.n_leaves


@pytest.mark.parametrize("criterion", [Criterion.gini, Criterion.entropy], ids=lambda c: c.name)
def test_the_potential_falls_as_the_recurrence_says(criterion):
    """At the theorem's own number of rows, which takes a large epsilon to be small enough to try."""
    epsilon = 500.0
    schema = elections(10, 0)[0]
    size = rows_for_our_tree(
        schema, ADVANTAGE, TARGET, epsilon, DELTA, MOST_SPLITS, criterion=criterion, max_rows=10**6
    )
    rows = math.ceil(size.rows)
    assert 10_000 < rows < 600_000
    assert sum(too_slow(criterion, epsilon, rows, seed) for seed in range(3)) == 0


def test_with_far_too_few_rows_the_potential_falls_too_slowly():
    """So the check of the recurrence could have failed."""
    assert sum(too_slow(Criterion.gini, 0.5, 400, seed) for seed in range(6)) > 0


def test_the_theorem_assumes_no_more_epsilon_than_a_node_gets():
    """The poorest node of a real fit has what the theorem is computed with, and the leaves too."""
    schema, votes, labels = elections(20_000, 0)
    model = PrivateTreeClassifier(
        schema=schema, epsilon=40.0, method="select", budget="uniform", criterion="gini",
        max_splits=MOST_SPLITS, max_depth=MOST_SPLITS, noise_seed=0,
    ).fit(votes, labels)  # fmt: skip
    paid = {what: min(float(e.epsilon) for e in model.ledger_.entries if e.what == what and e.depth > 1)
            for what in ("choice of a split", "cells of a split", "class counts")}  # fmt: skip
    node = 40.0 * 0.82 / MOST_SPLITS
    assert paid["choice of a split"] == pytest.approx(0.75 * node, rel=1e-6)
    assert paid["cells of a split"] == pytest.approx(0.25 * node, rel=1e-6)
    assert paid["class counts"] == pytest.approx(40.0 * 0.15, rel=1e-6)


def test_our_tree_asks_for_far_fewer_rows_than_the_papers_and_for_none_that_would_do_with_decay():
    schema = Schema([Numeric(f"x{i}", 0, 1, 10) for i in range(10)], label="y", classes=[0, 1])
    ours = rows_for_our_tree(schema, 0.1, 0.1, 1.0, 0.05, 32, criterion=Criterion.entropy)
    papers = rows_for_tree(0.1, 0.1, 1.0, 0.05, 32, n_candidates=100)
    assert ours.rows < papers.rows / 1e4
    assert rows_for_our_tree(schema, 0.1, 0.1, 1.0, 0.05, 32, schedule="decay").rows == math.inf
    assert rows_for_our_tree(schema, 0.1, 0.1, 1.0, 0.05, 32, method="local", holders=2).rows == math.inf
    assert rows_for_our_tree(schema, 0.1, 0.1, 1.0, 0.05, 32, method="paper").rows == math.inf
    assert rows_for_our_tree(schema, 0.1, 0.1, 1.0, 0.05, 32, criterion=Criterion.error).rows == math.inf
