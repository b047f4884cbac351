"""By how much one row can move a score or a count: brute force over all small tables, and over huge counts.

The scores and counts are those of the code that runs, not of a copy. Nothing here is random except where
seeds are fixed, so there are no false alarms.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from decimal import ROUND_CEILING, Decimal, localcontext
from fractions import Fraction

import numpy as np
import pytest
from numpy.typing import NDArray

from hedgerow.criteria import (
    FRACTION_BITS,
    Criterion,
    impurity_bound,
    rounding_error,
    score_sensitivity,
    to_fixed_point,
    weighted_impurities,
)
from hedgerow.encoding import MAX_ROWS, encode, encode_labels
from hedgerow.holder.counts import GroupedRows
from hedgerow.holder.holder import Holder
from hedgerow.messages import CountCells, CountForks, CountLabels, CountRows, Grow, Query
from hedgerow.privacy.ledger import Ledger
from hedgerow.privacy.noise import NoNoise
from hedgerow.schema import Categorical, Numeric, Schema

Counts = NDArray[np.int64]

ROUNDING = 1e-11  # of impurities of a few dozen rows
UNIT = 2.0**-FRACTION_BITS
CASES = [
    (criterion, n_classes)
    for criterion in Criterion
    for n_classes in (2, 3)
    if criterion is not Criterion.root_gini or n_classes == 2
]


def all_counts(length: int, most: int) -> Counts:
    """All vectors of `length` counts whose sum is at most `most`."""
    grids = np.indices((most + 1,) * length, dtype=np.int8).reshape(length, -1).T
    return grids[grids.sum(axis=1) <= most].astype(np.int64)


def two_sided(n_classes: int) -> GroupedRows:
    """An empty table with one threshold: its histograms are the class counts on both sides of one split."""
    schema = Schema([Numeric("x", low=0, high=1, thresholds=1)], label="y", classes=list(range(n_classes)))
    return GroupedRows(encode(np.empty((0, 1)), schema), encode_labels(np.empty(0, int), schema), schema)


def scores(sides: Counts, criterion: Criterion) -> NDArray[np.float64]:
    """V of class counts [table, side x class], as the holder computes it."""
    rows = two_sided(sides.shape[1] // 2)
    by_class = sides.reshape(len(sides), 2, -1).swapaxes(1, 2)
    store = np.ascontiguousarray(by_class, dtype=np.int32)
    return rows.scores(store, np.arange(len(store)), criterion)[:, 0]


# ---- The weighted impurity F -----------------------------------------------------------------------------------

MOST = 40  # rows with the new one


def rises(criterion: Criterion, n_classes: int, max_rows: int) -> NDArray[np.float64]:
    """F(c + e_a) - F(c) for all c of fewer than `max_rows` rows and all classes a: [c, a]."""
    counts = all_counts(n_classes, max_rows - 1)
    more = counts[:, None, :] + np.eye(n_classes, dtype=np.int64)
    return weighted_impurities(more, criterion) - weighted_impurities(counts, criterion)[:, None]


@pytest.mark.parametrize(("criterion", "n_classes"), CASES)
def test_one_more_row_never_lowers_the_impurity(criterion: Criterion, n_classes: int) -> None:
    assert rises(criterion, n_classes, MOST).min() >= -ROUNDING


@pytest.mark.parametrize("max_rows", [1, 2, 3, 10, MOST])
@pytest.mark.parametrize(("criterion", "n_classes"), CASES)
def test_one_more_row_raises_the_impurity_by_at_most_the_bound(
    criterion: Criterion, n_classes: int, max_rows: int
) -> None:
    bound = float(impurity_bound(criterion, n_classes, max_rows))
    assert rises(criterion, n_classes, max_rows).max() <= bound + ROUNDING


@pytest.mark.parametrize("max_rows", [1, 2, 3, 1000, 2**31 - 1])
@pytest.mark.parametrize(("criterion", "n_classes"), [*CASES, (Criterion.gini, 4), (Criterion.error, 60_000)])
def test_the_claimed_range_has_room_for_the_bound_and_for_all_rounding(
    criterion: Criterion, n_classes: int, max_rows: int
) -> None:
    """Two changes are apart by the bound, by less than a unit more for fixed point, and by four errors of floats."""
    rows = Fraction(impurity_bound(criterion, n_classes, max_rows))
    rows += 4 * Fraction(rounding_error(n_classes, max_rows))
    assert score_sensitivity(criterion, n_classes, max_rows) >= 2**FRACTION_BITS * rows + 1


@pytest.mark.parametrize(("criterion", "n_classes"), CASES)
def test_the_bound_is_reached_to_a_tenth_with_forty_rows(criterion: Criterion, n_classes: int) -> None:
    """All but Gini's are reached exactly: by a row of a new class in a pure node of max_rows - 1 rows.

    There Gini rises by 2K/(K-1) (m / (m+1)) with m = max_rows - 1: a table of few rows gets more noise than
    it needs (twice as much for max_rows = 2), in return for a bound that asks for no max_rows.
    """
    bound = float(impurity_bound(criterion, n_classes, MOST))
    largest = rises(criterion, n_classes, MOST).max()
    share = (MOST - 1) / MOST if criterion is Criterion.gini else 1.0
    assert largest == pytest.approx(share * bound, rel=1e-9)


def test_the_bound_for_two_rows_is_twice_what_gini_needs() -> None:
    assert rises(Criterion.gini, 2, 2).max() == impurity_bound(Criterion.gini, 2, 2) / 2


@pytest.mark.parametrize(("criterion", "n_classes"), CASES)
def test_replacing_a_row_changes_the_impurity_by_at_most_the_bound(
    criterion: Criterion, n_classes: int
) -> None:
    """One row less lowers F by 0 to D, one more raises it by 0 to D: together -D to D."""
    counts = all_counts(n_classes, MOST - 1)  # the rows that stay
    more = counts[:, None, :] + np.eye(n_classes, dtype=np.int64)
    impurities = weighted_impurities(more, criterion)
    changes = impurities.max(axis=1) - impurities.min(axis=1)
    assert changes.max() <= float(impurity_bound(criterion, n_classes, MOST)) + ROUNDING


def exact_bound(criterion: Criterion, n_classes: int, max_rows: int) -> Decimal:
    """D to 60 digits; the differences that it is made of lose no more than 20 of them."""
    k, n = Decimal(n_classes), Decimal(max_rows)
    with localcontext() as context:
        context.prec = 60
        match criterion:
            case Criterion.gini:
                return 2 * k / (k - 1)
            case Criterion.entropy:
                return (n * n.ln() - (n - 1) * (n - 1).ln()) / k.ln()
            case Criterion.root_gini:
                return 2 * (n - 1).sqrt()
            case Criterion.error:
                return k / (k - 1)


def row_bounds() -> list[int]:
    """The smallest, the largest, those beside powers of two, some where plain formulas fail, and some by chance."""
    beside = {2**i + d for i in range(2, 32) for d in (-1, 0, 1)}
    drawn = np.exp(np.random.default_rng(4).uniform(np.log(2), np.log(MAX_ROWS), 300)).astype(int).tolist()
    return sorted({*range(2, 60), 786_280_871, MAX_ROWS, 2 * MAX_ROWS, *beside, *drawn})


@pytest.mark.parametrize("criterion", Criterion)
def test_no_rounding_makes_the_sensitivity_smaller_than_the_bound(criterion: Criterion) -> None:
    """Against 60 digits. Entropy may be one unit above (its D can be a whole number of units), the others never."""
    slack = 1 if criterion is Criterion.entropy else 0
    for n_classes in (2,) if criterion is Criterion.root_gini else (2, 3, 4, 5, 7, 10, 29, 1_000, 65_536):
        for max_rows in row_bounds():
            bound = exact_bound(criterion, n_classes, max_rows)
            with localcontext() as context:
                context.prec = 60
                units = int((bound * 2**FRACTION_BITS).quantize(Decimal(1), ROUND_CEILING))
            rounding = 1 + math.ceil(4 * rounding_error(n_classes, max_rows) * 2**FRACTION_BITS)
            found = score_sensitivity(criterion, n_classes, max_rows) - rounding
            assert units <= found <= units + slack, (n_classes, max_rows)
            assert Fraction(impurity_bound(criterion, n_classes, max_rows)) >= Fraction(bound) * (
                1 - Fraction(1, 10**58)
            )


def test_root_ginis_printed_sensitivity_is_passed_from_27_rows_on() -> None:
    """The paper prints 10 / m for the impurity of m rows, one of which is replaced; it is 2 sqrt(m-1) / m."""

    def true_sensitivity(m: int) -> float:
        counts = np.stack([np.arange(m + 1), m - np.arange(m + 1)], axis=1)
        return float(np.abs(np.diff(weighted_impurities(counts, Criterion.root_gini))).max()) / m

    assert true_sensitivity(32) == pytest.approx(0.348, abs=5e-4)
    assert true_sensitivity(64) == pytest.approx(0.248, abs=5e-4)
    assert next(m for m in range(2, 65) if true_sensitivity(m) > 10 / m) == 27


# ---- Scores of candidate splits, in fixed point ----------------------------------------------------------------


def changes_by_table(
    criterion: Criterion, n_classes: int, most: int
) -> dict[tuple[tuple[int, ...], int], tuple[int, int]]:
    """The smallest and the largest change of a score, in units, over all splits of each table.

    A table is (class counts, class of the new row). Any two ways to cut a table's rows in two can be two
    candidates of one schema, and the new row can join either side of each.
    """
    sides = all_counts(2 * n_classes, most)
    before = to_fixed_point(scores(sides, criterion))
    totals = list(map(tuple, (sides[:, :n_classes] + sides[:, n_classes:]).tolist()))
    extremes: dict[tuple[tuple[int, ...], int], tuple[int, int]] = {}
    for label, side in itertools.product(range(n_classes), range(2)):
        more = sides.copy()
        more[:, side * n_classes + label] += 1
        changes = to_fixed_point(scores(more, criterion)) - before
        for counts, change in zip(totals, changes.tolist(), strict=True):
            low, high = extremes.get((counts, label), (change, change))
            extremes[counts, label] = min(low, change), max(high, change)
    return extremes


@pytest.mark.parametrize(("criterion", "n_classes"), CASES)
def test_one_row_moves_all_scores_within_the_claimed_range(criterion: Criterion, n_classes: int) -> None:
    """All tables of up to 24 rows (two classes) or 9 (three), all pairs of candidates."""
    most = {2: 24, 3: 9}[n_classes]
    extremes = changes_by_table(criterion, n_classes, most)
    for (counts, _), (low, high) in extremes.items():
        assert high - low <= score_sensitivity(criterion, n_classes, sum(counts) + 1)
        assert high <= 1  # nor does any score rise, but for the rounding
    widest = max(high - low for low, high in extremes.values())
    assert widest >= 0.85 * score_sensitivity(criterion, n_classes, most + 1)


@pytest.mark.parametrize(("criterion", "n_classes"), CASES)
def test_replacing_a_row_moves_all_scores_within_twice_the_claimed_range(
    criterion: Criterion, n_classes: int
) -> None:
    """One row out, another in: the changes that two rows make to those that stay, one less the other.

    Candidates are free to put the two rows anywhere, so the range is that of the one plus that of the other.
    """
    extremes = changes_by_table(criterion, n_classes, most=8)
    for (counts, label), (low, high) in extremes.items():
        for other in range(n_classes):
            other_low, other_high = extremes[counts, other]
            highest, lowest = high - other_low, low - other_high
            assert highest - lowest <= 2 * score_sensitivity(criterion, n_classes, sum(counts) + 1), label


# ---- Huge counts, where double precision is worst ---------------------------------------------------------------


def exact_impurity(counts: Sequence[int], criterion: Criterion) -> Decimal:
    """F to 40 digits."""
    k, m = len(counts), sum(counts)
    with localcontext() as context:
        context.prec = 40
        if m == 0:
            return Decimal(0)
        match criterion:
            case Criterion.gini:
                return Decimal(k * (m * m - sum(c * c for c in counts))) / ((k - 1) * m)
            case Criterion.entropy:
                known = {c: c * (Decimal(m).ln() - Decimal(c).ln()) for c in set(counts) if c}
                return sum((known[c] for c in counts if c), Decimal(0)) / Decimal(k).ln()
            case Criterion.root_gini:
                return 2 * Decimal(counts[0] * counts[1]).sqrt()
            case Criterion.error:
                return Decimal(k * (m - max(counts))) / (k - 1)


def huge_tables(n_classes: int, count: int, rng: np.random.Generator) -> Counts:
    """Class counts [table, side x class] of just below 2**31 rows: even, skewed, and nearly pure."""
    tables = []
    for concentration in (1.0, 0.05, 1e6):
        shares = rng.dirichlet(np.full(2 * n_classes, concentration), size=count)
        tables.append(np.floor(shares * (MAX_ROWS - 1)).astype(np.int64))
    few = np.repeat(rng.integers(0, 40, size=(count, 1)), 2 * n_classes, axis=1)
    few[:, 0] = 0
    few[:, 0] = MAX_ROWS - 1 - few.sum(axis=1)  # squares of the others are lost beside this one's
    alone = rng.integers(0, 3, size=(count, 2 * n_classes))
    alone[:, [0, n_classes]] = 0
    alone[:, 0] = rng.integers(0, MAX_ROWS - 1000, size=count)
    alone[:, n_classes] = MAX_ROWS - 1 - alone.sum(axis=1)
    return np.concatenate([*tables, few, alone])


PRECISE = [
    (criterion, n_classes)
    for criterion in Criterion
    for n_classes in (2, 3, 10, 200)
    if criterion is not Criterion.root_gini or n_classes == 2
]


def largest_error(tables: Counts, criterion: Criterion) -> float:
    """How far computed scores are from exact ones, in units."""
    k = tables.shape[1] // 2
    exact = [-exact_impurity(t[:k], criterion) - exact_impurity(t[k:], criterion) for t in tables.tolist()]
    computed = scores(tables, criterion).tolist()
    errors = [abs(Decimal(score) - right) for score, right in zip(computed, exact, strict=True)]
    return float(max(errors)) / UNIT


@pytest.mark.parametrize(("criterion", "n_classes"), PRECISE)
def test_a_score_of_two_thousand_million_rows_is_right_to_a_sixteenth_of_a_unit(
    criterion: Criterion, n_classes: int
) -> None:
    tables = huge_tables(n_classes, 8, np.random.default_rng(7))
    assert largest_error(tables, criterion) < 1 / 16


@pytest.mark.parametrize("criterion", [Criterion.gini, Criterion.entropy, Criterion.error])
@pytest.mark.parametrize("n_classes", [2, 200, 4096, 65_536])
def test_the_rounding_error_is_less_than_half_of_what_is_allowed_for(
    criterion: Criterion, n_classes: int
) -> None:
    """Half, because the changes of two scores differ by the errors of four scores, and two are added."""
    tables = huge_tables(n_classes, 1, np.random.default_rng(9))
    assert largest_error(tables, criterion) < rounding_error(n_classes, MAX_ROWS) / 2 / UNIT


@pytest.mark.parametrize(("criterion", "n_classes"), PRECISE)
def test_one_row_among_two_thousand_million_moves_all_scores_within_the_claimed_range(
    criterion: Criterion, n_classes: int
) -> None:
    rng = np.random.default_rng(8)
    tables = huge_tables(n_classes, 8, rng)
    # The row of the largest change: the first of its class on its side, all the others of another class.
    pure = np.zeros((1, 2 * n_classes), dtype=np.int64)
    pure[0, 1] = MAX_ROWS - 1
    tables = np.concatenate([tables, pure])
    before = to_fixed_point(scores(tables, criterion))
    changes = []
    for cell in {0, n_classes, 2 * n_classes - 1, *rng.integers(0, 2 * n_classes, 4).tolist()}:
        more = tables.copy()
        more[:, cell] += 1
        changes.append(to_fixed_point(scores(more, criterion)) - before)
    claimed = score_sensitivity(criterion, n_classes, MAX_ROWS)
    assert 0.9 * claimed <= np.max(changes) - np.min(changes) <= claimed


def test_sixty_thousand_classes_in_two_thousand_million_rows_stay_within_the_claimed_range() -> None:
    """Squares lost beside a huge one: 65 535 of them jump together when the sum passes 2**61.

    Split 1 puts the new row of class 0 beside 1000 rows of class 1; split 2 beside everybody.
    """
    k = 65_536
    everybody = np.full(k, 17, dtype=np.int64)  # 17**2 is 256 in a sum below 2**61, 512 in one above
    everybody[1] = 1_000
    everybody[0] = 1_518_500_249  # the largest whose square is below 2**61
    beside_class_1 = np.zeros(2 * k, dtype=np.int64)
    beside_class_1[k + 1] = 1_000
    beside_class_1[:k] = everybody - beside_class_1[k:]
    beside_everybody = np.concatenate([everybody, np.zeros(k, dtype=np.int64)])
    tables = np.stack([beside_class_1, beside_everybody])
    more = tables.copy()
    more[0, k] += 1
    more[1, 0] += 1
    changes = to_fixed_point(scores(more, Criterion.gini)) - to_fixed_point(scores(tables, Criterion.gini))
    assert np.ptp(changes) <= score_sensitivity(Criterion.gini, k, int(more[0].sum()))


# ---- Counts ------------------------------------------------------------------------------------------------------

SCHEMA = Schema(
    [Numeric("x", low=0, high=1, thresholds=3, missing=True), Categorical("c", ["a", "b"])],
    label="y",
    classes=["no", "yes", "maybe"],
)
NODES = np.array([3, 4, 5, 6])  # all nodes of depth 3


def random_rows(n: int, rng: np.random.Generator) -> tuple[NDArray[np.object_], NDArray[np.str_]]:
    table = np.empty((n, 2), dtype=object)
    table[:, 0] = np.where(rng.random(n) < 0.2, np.nan, rng.uniform(-0.2, 1.2, n))
    table[:, 1] = rng.choice(["a", "b", "unknown"], n)
    return table, rng.choice(SCHEMA.classes, n)


def grown_holder(table: NDArray[np.object_], labels: NDArray[np.str_], splits: Sequence[int]) -> Holder:
    """A holder without noise, its rows divided into four nodes by three splits."""
    rows = GroupedRows(encode(table, SCHEMA), encode_labels(labels, SCHEMA), SCHEMA)
    holder = Holder(rows, NoNoise(), Ledger(Fraction(1000)), max_rows=100)
    holder.grow(Grow(np.array([0]), np.array(splits[:1]), 1))
    holder.grow(Grow(np.array([1, 2]), np.array(splits[1:]), 3))
    return holder


@pytest.mark.parametrize("n_rows", [0, 1, 5, 40])
def test_one_row_changes_one_count_of_a_depth_by_one(n_rows: int) -> None:
    """Cells of splits and of forks, class counts and rows: over all nodes of a depth together the L1 distance is 1."""
    rng = np.random.default_rng(n_rows)
    prices = [Fraction(1)] * len(NODES)
    for _ in range(40):
        table, labels = random_rows(n_rows + 1, rng)
        splits = rng.integers(0, len(SCHEMA.splits), 3).tolist()
        more, fewer = (grown_holder(table[:n], labels[:n], splits) for n in (n_rows + 1, n_rows))
        asked = rng.integers(0, len(SCHEMA.splits), len(NODES))
        queries: list[Query] = [
            CountCells(NODES, asked, prices),
            CountForks(NODES, *rng.integers([[0], [-1], [-1]], len(SCHEMA.splits), (3, len(NODES))), prices),
            CountLabels(NODES, prices),
            CountRows(NODES, prices),
        ]
        for query in queries:
            change = more.answer(query) - fewer.answer(query)
            assert change.sum() == 1
            assert np.abs(change).sum() == 1


def every_kind_of_row() -> tuple[NDArray[np.object_], NDArray[np.str_]]:
    """One row of each value (also missing, unknown and out of bounds) and class."""
    values = [-0.1, 0.1, 0.3, 0.6, 0.9, 1.1, np.nan]
    kinds = list(itertools.product(values, ["a", "b", "unknown"], SCHEMA.classes))
    table = np.empty((len(kinds), 2), dtype=object)
    table[:, 0], table[:, 1] = [value for value, _, _ in kinds], [category for _, category, _ in kinds]
    return table, np.array([label for _, _, label in kinds])


def test_every_kind_of_row_is_in_one_cell_of_every_fork() -> None:
    """All forks of a small schema, also with no split on a side, or one that the fork's first split decides already.

    A table of one row: its cells are what it changes, wherever else the rows are, because exact counts add up.
    """
    below = range(-1, len(SCHEMA.splits))
    forks = np.array(list(itertools.product(range(len(SCHEMA.splits)), below, below))).T
    root = np.zeros(forks.shape[1], np.int64)
    table, labels = every_kind_of_row()
    for i in range(len(table)):
        codes, classes = encode(table[i : i + 1], SCHEMA), encode_labels(labels[i : i + 1], SCHEMA)
        holder = Holder(
            GroupedRows(codes, classes, SCHEMA), NoNoise(), Ledger(Fraction(10_000)), max_rows=100
        )
        cells = holder.answer(CountForks(root, *forks, [Fraction(1)] * len(root)))
        every = np.arange(len(SCHEMA.splits))
        by_split = holder.answer(CountCells(every * 0, every, [Fraction(1)] * len(every)))
        is_right = np.append(by_split[:, 1].sum(axis=1), 0)  # the last is -1's: all go left
        side = is_right[forks[0]]
        within = is_right[forks[1 + side, np.arange(len(root))]]
        expected = np.zeros_like(cells)
        expected[np.arange(len(root)), side, within, classes[0]] = 1
        assert np.array_equal(cells, expected)


def test_a_row_changes_one_cell_of_every_fork_that_is_asked_for_and_pays_for_each() -> None:
    """A node in three places, twice with the same fork and once below a split that its path decides.

    Over all places the change is that of three releases, and three prices are booked to the row's path.
    """
    rng = np.random.default_rng(4)
    nodes = np.array([3, 3, 3, 4])
    forks = np.array([[0, 4, -1], [0, 4, -1], [2, -1, 2], [1, 1, 0]]).T  # node 3 is below split 2
    prices = [Fraction(1, 7), Fraction(2, 7), Fraction(3, 7), Fraction(1, 9)]
    n_changed = []
    for _ in range(40):
        table, labels = random_rows(30, rng)
        more, fewer = (grown_holder(table[:n], labels[:n], [0, 2, 3]) for n in (30, 29))
        query = CountForks(nodes, *forks, prices)
        change = (more.answer(query) - fewer.answer(query)).reshape(4, -1)
        assert set(change.ravel().tolist()) <= {0, 1}
        changed = change.sum(axis=1)
        assert changed.tolist() in ([0, 0, 0, 0], [1, 1, 1, 0], [0, 0, 0, 1])
        loss = sum(price * int(cells) for price, cells in zip(prices, changed, strict=True))
        assert loss <= more.ledger.spent == Fraction(6, 7)
        n_changed.append(int(changed.sum()))
    assert set(n_changed) == {0, 1, 3}
