"""The auditor catches the mistakes that people make, planted into the real classes.

Every leak here claims an epsilon and follows the real code but for one mistake. Noise is seeded, so each test
passes or fails for good; a lower bound that a private mechanism would pass with probability 1e-6 / LEAKS is
evidence of a leak and not of bad luck. Leaks in a holder's answers are found by audits of the quick suite itself, with
its runs and its confidence.
"""

from __future__ import annotations

import itertools
import math
import warnings
from collections.abc import Callable
from copy import copy
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from hedgerow.audit.evidence import Insider, overhear
from hedgerow.audit.mechanisms import COUNTS, Choosing, Counting, Fitting, Mechanism, Selection
from hedgerow.audit.neighbours import Neighbours, catalogue
from hedgerow.audit.suite import RUNS, suite
from hedgerow.classifier import PrivateTreeClassifier
from hedgerow.criteria import FRACTION_BITS, Criterion, score_sensitivity, to_fixed_point, weighted_impurities
from hedgerow.errors import BudgetExceeded
from hedgerow.holder.counts import GroupedRows
from hedgerow.holder.holder import Holder, prices_of
from hedgerow.messages import (
    ROOT,
    CountCells,
    CountColumns,
    CountForks,
    CountLabels,
    IntArray,
    NominateAndCount,
    NominateForks,
    Query,
)
from hedgerow.privacy.audit import AuditResult, Outcome, audit_outcomes, suite_confidence
from hedgerow.privacy.exact import add_laplace
from hedgerow.privacy.ledger import Ledger
from hedgerow.privacy.noise import SeededNoise, _opendp_laplace
from hedgerow.privacy.selectors import SELECTORS
from hedgerow.repeated import Repeated
from hedgerow.schema import Numeric, Schema
from hedgerow.tables import read_codes

LEAKS = 30  # audits in this module that are not the suite's, at most
CONFIDENCE = suite_confidence(LEAKS)
EPSILON = Fraction(1)
NODE = np.array([ROOT])
BY_NAME = {pair.name: pair for pair in catalogue()}
ONE_FALLS = BY_NAME["first of its class, 1 of 4 candidates falls"]
TOGETHER = BY_NAME["first of its class, 10 candidates fall together"]
EMPTY = BY_NAME["first row of an empty table"]
SECOND = BY_NAME["second row of a table"]


def found(
    mechanism: Mechanism, neighbours: Neighbours, runs: int, epsilon: Fraction = EPSILON
) -> AuditResult:
    first, second = (mechanism.outcomes(neighbours, side, epsilon, runs, 100 + side) for side in (0, 1))
    return audit_outcomes((first, second), CONFIDENCE)


@dataclass(frozen=True)
class Leak:
    """A mechanism made of one function of (rows, epsilon, seed)."""

    release: Callable[[GroupedRows, Neighbours, Fraction, int], Outcome]
    name: str = "leak"

    def spread(self, neighbours: Neighbours) -> str:
        return ""

    def outcomes(
        self, neighbours: Neighbours, side: int, epsilon: Fraction, runs: int, seed: int
    ) -> list[Outcome]:
        rows = GroupedRows(*neighbours.sides[side], neighbours.schema)
        seeds = np.random.SeedSequence(seed).generate_state(runs, np.uint64).tolist()
        return [self.release(rows, neighbours, epsilon, own_seed) for own_seed in seeds]


def scores_of(rows: GroupedRows, criterion: Criterion) -> NDArray[np.float64]:
    [(_, store, where)] = rows.histograms(NODE)
    return rows.scores(store, where, criterion)


def asked(
    query: Callable[[Fraction], Query], noise: type[SeededNoise] = SeededNoise
) -> Callable[[GroupedRows, Neighbours, Fraction, int], Outcome]:
    """What a holder with a (faulty) source of noise answers to a query."""

    def release(rows: GroupedRows, neighbours: Neighbours, epsilon: Fraction, seed: int) -> Outcome:
        holder = Holder(copy(rows), noise(seed), Ledger(epsilon), neighbours.max_rows)
        return tuple(holder.answer(query(epsilon)).ravel().tolist())

    return release


def class_counts(epsilon: Fraction) -> CountLabels:
    return CountLabels(NODE, [epsilon])


def cells(epsilon: Fraction) -> CountCells:
    return CountCells(NODE, np.array([0]), [epsilon])


# ---- Selection ---------------------------------------------------------------------------------------------------


def test_the_winners_value_is_not_free() -> None:
    """Report-noisy-max "together with the estimate", as the paper has it."""

    def winner_and_value(rows: GroupedRows, neighbours: Neighbours, epsilon: Fraction, seed: int) -> Outcome:
        sensitivity = score_sensitivity(Criterion.gini, 2, neighbours.max_rows)
        scores = to_fixed_point(scores_of(rows, Criterion.gini))
        noisy = SeededNoise(seed).laplace(scores, sensitivity / epsilon, np.zeros(1, np.uint64))
        return int(noisy.argmax()), int(noisy.max())

    assert found(Leak(winner_and_value), TOGETHER, 10_000).lower_bound > 1.5 * EPSILON
    honest = found(Selection("report_noisy_max", Criterion.gini), TOGETHER, 10_000)
    assert honest.lower_bound == 0  # the index alone shows nothing of what all candidates share


@pytest.mark.parametrize("selector", SELECTORS)
def test_a_selector_with_half_the_noise_is_found(selector: str) -> None:
    class TwiceTheEpsilon(Selection):
        def outcomes(
            self, neighbours: Neighbours, side: int, epsilon: Fraction, runs: int, seed: int
        ) -> list[Outcome]:
            return super().outcomes(neighbours, side, 2 * epsilon, runs, seed)

    result = found(TwiceTheEpsilon(selector, Criterion.gini), ONE_FALLS, 40_000)
    assert EPSILON < result.lower_bound <= 2 * EPSILON


def test_a_fork_with_half_the_noise_is_found() -> None:
    class TwiceTheEpsilon(Choosing):
        def outcomes(
            self, neighbours: Neighbours, side: int, epsilon: Fraction, runs: int, seed: int
        ) -> list[Outcome]:
            return super().outcomes(neighbours, side, 2 * epsilon, runs, seed)

    mechanism = TwiceTheEpsilon("fork", Fraction(1, 1000))
    result = found(mechanism, BY_NAME["first of its class, 1 of 20 candidates stays"], 20_000)
    assert EPSILON < result.lower_bound <= 2 * EPSILON


def pure_node(m: int) -> Neighbours:
    """m rows of which one is replaced: it joins a pure side, or stands alone in 3 of 4 columns."""
    columns = [Numeric(f"x{i}", low=0, high=1, thresholds=1) for i in range(4)]
    return Neighbours(
        f"pure node of {m}",
        Schema(columns, label="y", classes=[0, 1]),
        np.zeros((m - 1, 4)),
        np.ones(m - 1, np.int64),
        (0.0, 1.0, 1.0, 1.0),
        0,
        replaced=((0.0, 1.0, 1.0, 1.0), 1),
    )


def test_the_printed_sensitivity_of_root_gini_is_found_too_small() -> None:
    """Scores divided by m, noise of scale 2 (10/m) / epsilon: private only if 10/m were the sensitivity.

    The row that is replaced changes one score by 2 sqrt(m-1) / m: sqrt(m-1) / 10 epsilon, as large as m allows.
    """
    m = 1024

    def printed(rows: GroupedRows, neighbours: Neighbours, epsilon: Fraction, seed: int) -> Outcome:
        normalised = to_fixed_point(scores_of(rows, Criterion.root_gini) * (2.0**10 / m))
        scale = 2 * Fraction(10, m) / epsilon * 2 ** (FRACTION_BITS + 10)
        noisy = SeededNoise(seed).laplace(normalised, scale, np.zeros(1, np.uint64))
        return (int(noisy.argmax()),)

    assert found(Leak(printed), pure_node(m), 20_000).lower_bound > 1.5 * EPSILON


def test_the_exact_parent_in_a_gain_is_found() -> None:
    """The published C++ subtracts a noisy impurity from an exact one; the cells themselves are released too."""

    def impurity_of_released(noisy: Outcome) -> float:
        sides = np.maximum(np.array(noisy).reshape(2, 2), 0)
        return float(weighted_impurities(sides, Criterion.gini).sum())

    def attacked(rows: GroupedRows, neighbours: Neighbours, epsilon: Fraction, seed: int) -> Outcome:
        noisy = asked(cells)(rows, neighbours, epsilon, seed)
        exact = float(weighted_impurities(rows.label_counts(NODE), Criterion.gini)[0])
        gain = exact - impurity_of_released(noisy)
        # An attacker takes the children's impurity off again, and sees whether the node is pure.
        return (round(gain + impurity_of_released(noisy), 3),)

    assert found(Leak(attacked), ONE_FALLS, 2_000).lower_bound > 4 * EPSILON


# ---- Counts --------------------------------------------------------------------------------------------------------


def test_counts_with_half_the_noise_are_found() -> None:
    class HalfTheNoise(SeededNoise):
        def laplace(self, values: IntArray, scale: Any, keys: NDArray[np.uint64]) -> IntArray:
            return super().laplace(values, scale.map(lambda s: s / 2), keys)

    result = found(Leak(asked(class_counts, HalfTheNoise)), ONE_FALLS, 10_000)
    assert EPSILON < result.lower_bound <= 2 * EPSILON
    assert found(Counting("class counts"), ONE_FALLS, 10_000).lower_bound <= EPSILON


def test_the_noise_that_protects_people_is_what_is_audited(monkeypatch: pytest.MonkeyPatch) -> None:
    """A mistake in the samplers of `SecureNoise` is found, not in those of simulations only."""

    def add_half(words, position, first, values, numerators, *rest):  # type: ignore[no-untyped-def]
        return add_laplace(words, position, first, values, (numerators + 1) // 2, *rest)

    monkeypatch.setattr("hedgerow.privacy.noise.add_laplace", add_half)
    assert found(Counting("class counts"), ONE_FALLS, 10_000, Fraction(1, 4)).lower_bound > Fraction(1, 4)


def test_noise_on_non_empty_cells_only_is_found() -> None:
    class SkipsEmptyCells(SeededNoise):
        def laplace(self, values: IntArray, scale: Any, keys: NDArray[np.uint64]) -> IntArray:
            return np.where(values > 0, super().laplace(values, scale, keys), 0)

    result = found(Leak(asked(class_counts, SkipsEmptyCells)), ONE_FALLS, 4_000)
    assert result.lower_bound > 4 * EPSILON


def test_noise_scaled_by_the_exact_number_of_rows_is_found() -> None:
    """Shares of the rows, with noise made for the sensitivity 1/m of a table whose m everybody knows."""

    class Shares(SeededNoise):
        def laplace(self, values: IntArray, scale: Any, keys: NDArray[np.uint64]) -> IntArray:
            m = max(int(values.sum()), 1)
            shares = np.floor(1000 * values / m).astype(np.int64)
            return super().laplace(shares, scale.map(lambda s: s * Fraction(1000, m)), keys)

    result = found(Leak(asked(class_counts, Shares)), pure_and_one_more(1), 20_000)
    assert result.lower_bound > 1.5 * EPSILON


def pure_and_one_more(rows: int) -> Neighbours:
    """Rows of one class, and one more of the same: the shares stay, the scale of their noise falls."""
    columns = [Numeric("x0", low=0, high=1, thresholds=1)]
    schema = Schema(columns, label="y", classes=[0, 1])
    return Neighbours("one more", schema, np.zeros((rows, 1)), np.ones(rows, np.int64), (0.0,), 1)


# ---- Found by the suite's own audits ---------------------------------------------------------------------------------

AUDITS = suite("quick")
FALLS, STAYS = "first of its class, 1 of 4 candidates falls", "first of its class, 1 of 20 candidates stays"


def exceeds(mechanism: str, neighbours: str, more_runs: int = 1) -> bool:
    """Whether the quick suite would alarm, at this audit of it."""
    [(seed, audit)] = [
        (seed, audit)
        for seed, audit in enumerate(AUDITS)
        if (audit.mechanism.name, audit.neighbours.name) == (mechanism, neighbours)
    ]
    result = audit.run(more_runs * RUNS["quick"], suite_confidence(len(AUDITS)), seed)
    return result.lower_bound > audit.epsilon


def plant(monkeypatch: pytest.MonkeyPatch, mistake: Callable[[Query], Query]) -> None:
    """Holders draw the noise of another query than the one that was paid for."""
    real = Holder.release
    monkeypatch.setattr(
        Holder, "release", lambda self, paid: real(self, replace(paid, query=mistake(paid.query)))
    )


@pytest.mark.parametrize(
    ("kind", "mechanism", "neighbours"),
    [(NominateAndCount, "a split, gini,", FALLS), (NominateForks, "a fork, gini,", STAYS)],
)
def test_cells_drawn_at_the_price_of_the_choice_are_found(
    monkeypatch: pytest.MonkeyPatch, kind: type[NominateAndCount], mechanism: str, neighbours: str
) -> None:
    def mistake(query: Query) -> Query:
        return replace(query, cell_epsilons=query.epsilons) if type(query) is kind else query

    plant(monkeypatch, mistake)
    assert exceeds(f"{mechanism} and its cells for 1/10 of the root", neighbours)


@pytest.mark.parametrize(
    ("kind", "mechanism", "neighbours"),
    [(NominateAndCount, "a split, gini,", FALLS), (NominateForks, "a fork, gini,", STAYS)],
)
def test_a_choice_drawn_at_the_price_of_its_cells_is_found(
    monkeypatch: pytest.MonkeyPatch, kind: type[NominateAndCount], mechanism: str, neighbours: str
) -> None:
    def mistake(query: Query) -> Query:
        return replace(query, epsilons=query.cell_epsilons) if type(query) is kind else query

    plant(monkeypatch, mistake)
    assert exceeds(f"{mechanism} and its cells for 9/10 of the root", neighbours)


@pytest.mark.parametrize(
    "what", ["rows", "class counts", "cells", "cells of a fork", "histograms of every column"]
)
def test_a_node_that_is_counted_at_the_price_of_the_one_beside_it_is_found(
    monkeypatch: pytest.MonkeyPatch, what: str
) -> None:
    def mistake(query: Query) -> Query:
        return replace(query, epsilons=Repeated.one(max(query.epsilons), len(query.nodes)))

    plant(monkeypatch, mistake)
    assert exceeds(f"{what} of the children", FALLS)


@pytest.mark.parametrize(
    ("place", "neighbours"), [("root", FALLS), ("children", FALLS), ("root", EMPTY.name)]
)
def test_cells_of_a_fork_with_half_the_noise_are_found(
    monkeypatch: pytest.MonkeyPatch, place: str, neighbours: str
) -> None:
    plant(monkeypatch, lambda query: at_times(2, query, CountForks))
    assert exceeds(f"cells of a fork of the {place}", neighbours)


def at_times(factor: int, query: Query, kind: type[Query]) -> Query:
    """The query at a multiple of its price, if it is of this kind."""
    if type(query) is not kind:
        return query
    return replace(query, epsilons=Repeated.of(query.epsilons).map(lambda price: factor * price))


@pytest.mark.parametrize(
    ("kind", "row_at", "neighbours"),
    [
        (CountForks, "counter", EMPTY.name),
        (CountLabels, "chooser", "first of its class among 20,000 rows"),
    ],
)
def test_a_holder_that_takes_turns_and_forgets_its_noise_is_found(
    monkeypatch: pytest.MonkeyPatch, kind: type[Query], row_at: str, neighbours: str
) -> None:
    """Counts at a million times their price, in a study that is otherwise what it should be.

    At the chooser with three times the quick suite's runs: its 160 do not show an answer without noise every time.
    """
    seed_studies(monkeypatch)
    plant(monkeypatch, lambda query: at_times(10**6, query, kind))
    more_runs = 3 if row_at == "chooser" else 1
    assert exceeds(f"study of two holders: turns, the row is at the {row_at}", neighbours, more_runs)


def seed_studies(monkeypatch: pytest.MonkeyPatch) -> None:
    """Studies draw cryptographic noise; here every holder has a seed of its own, in the order in which they are made."""
    seeds = itertools.count(1)
    monkeypatch.setattr("hedgerow.audit.mechanisms.SecureNoise", lambda: SeededNoise(next(seeds)))


def test_a_chooser_that_counts_its_cells_without_noise_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """With three times the quick suite's runs."""
    seed_studies(monkeypatch)

    def mistake(query: Query) -> Query:
        if not isinstance(query, NominateAndCount):
            return query
        return replace(query, cell_epsilons=Repeated.one(Fraction(10**6), len(query.nodes)))

    plant(monkeypatch, mistake)
    studied = "study of two holders: turns, the row is at the chooser"
    assert exceeds(studied, "first of its class among 20,000 rows", more_runs=3)


@pytest.mark.parametrize(
    ("mechanism", "neighbours"),
    [
        ("two splits in one question, error for 9/10 and entropy", FALLS),
        ("two forks in one question, error for 9/10 and gini", STAYS),
    ],
)
def test_half_the_sensitivity_of_one_criterion_of_a_question_is_found(
    monkeypatch: pytest.MonkeyPatch, mechanism: str, neighbours: str
) -> None:
    def half(criterion: Criterion, n_classes: int, max_rows: int) -> int:
        return score_sensitivity(criterion, n_classes, max_rows) // (1 + (criterion is Criterion.error))

    monkeypatch.setattr("hedgerow.holder.holder.score_sensitivity", half)
    assert exceeds(mechanism, neighbours)


@pytest.mark.parametrize("criterion", ["entropy", "root_gini"])
def test_a_sensitivity_that_overflows_where_max_rows_is_left_out_is_found(
    monkeypatch: pytest.MonkeyPatch, criterion: str
) -> None:
    """Though the noise is so large there that twice the price would not be noticed."""

    def overflowing(of: Criterion, n_classes: int, max_rows: int) -> int:
        return score_sensitivity(of, n_classes, max_rows) if max_rows < 2**30 else 1

    monkeypatch.setattr("hedgerow.holder.holder.score_sensitivity", overflowing)
    assert exceeds(f"permute_and_flip, {criterion}", f"{FALLS}, max_rows left out")


def bins_of(schema: Schema, what: str) -> NDArray[np.int64]:
    """Bins among those of all columns: those of missing values, of unknown categories, of wide columns."""
    chosen = []
    for start, column in zip(schema.bin_start, schema.columns, strict=False):
        if what == "missing values" and column.missing:
            chosen.append(start + column.missing_bin)
        if what == "unknown categories" and not isinstance(column, Numeric):
            chosen.append(start + column.other_bin)
        if what == "wide columns" and column.n_bins > 256:
            chosen += range(start, start + column.n_bins)
    return np.array(chosen, dtype=np.int64)


@pytest.mark.parametrize(
    ("what", "neighbours"),
    [
        ("missing values", "first missing values"),
        ("missing values", "missing and unknown categories, read from .csv"),
        ("unknown categories", "missing and unknown categories"),
        ("unknown categories", "missing and unknown categories, read from .parquet"),
        ("wide columns", "301 bins"),
    ],
)
def test_bins_without_noise_are_found(monkeypatch: pytest.MonkeyPatch, what: str, neighbours: str) -> None:
    real = Holder._noisy

    def forgetful(self: Holder, kind: type[Query], prices: Any, keys: Any, counts: IntArray) -> IntArray:
        noisy = real(self, kind, prices, keys, counts)
        if kind is CountColumns:
            bins = bins_of(self.schema, what)
            noisy[:, bins] = counts[:, bins]
        return noisy

    monkeypatch.setattr(Holder, "_noisy", forgetful)
    assert exceeds("histograms of every column of the root", neighbours)


def test_a_large_table_with_too_little_noise_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its counts are drawn with half of the noise that those of small tables have."""
    real = Holder._noisy

    def generous(self: Holder, kind: type[Query], prices: Any, keys: Any, counts: IntArray) -> IntArray:
        factor = 2 if counts.max() > 1_000 else 1
        return real(self, kind, Repeated.of(prices).map(lambda price: price * factor), keys, counts)

    monkeypatch.setattr(Holder, "_noisy", generous)
    assert exceeds("histograms of every column of the root", "first of its class among 20,000 rows")


@pytest.mark.parametrize("file", [".csv", ".parquet"])
def test_a_reader_of_files_that_takes_the_last_line_twice_is_found(
    monkeypatch: pytest.MonkeyPatch, file: str
) -> None:
    def twice(path: Any, schema: Schema) -> Any:
        codes, labels = read_codes(path, schema)
        rows = np.append(np.arange(len(labels) - 1), len(labels) - 1)
        rows[0] = len(labels) - 1  # in the place of the first, so that there are no more than max_rows
        return codes.take(rows), labels[rows]

    monkeypatch.setattr("hedgerow.audit.neighbours.read_codes", twice)
    monkeypatch.setattr(f"{__name__}.AUDITS", suite("quick"))  # tables that were not read yet
    assert exceeds(
        "histograms of every column of the root", f"missing and unknown categories, read from {file}"
    )


def test_half_of_opendps_noise_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """It cannot be seeded: with so many runs the bound is 17 standard deviations above the claim."""
    monkeypatch.setattr("hedgerow.privacy.noise._opendp_laplace", lambda scale: _opendp_laplace(scale / 2))
    assert exceeds("class counts of the root, opendp noise", FALLS, more_runs=4)


def test_none_of_these_audits_alarms_without_a_mistake() -> None:
    """False alarm: 1e-6 for all audits of the suite; two of those above, which are cheap."""
    assert not exceeds("class counts of the children", FALLS)
    assert not exceeds("histograms of every column of the root", "first missing values")


# ---- Releases that are not charged ------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Greedy:
    """A coordinator that asks for 24 releases in one question, and for one if that is refused."""

    query: Callable[[IntArray, Repeated[Fraction]], Query]
    name: str = "greedy"

    def spread(self, neighbours: Neighbours) -> str:
        return ""

    def outcomes(
        self, neighbours: Neighbours, side: int, epsilon: Fraction, runs: int, seed: int
    ) -> list[Outcome]:
        insider, rows = Insider(neighbours), GroupedRows(*neighbours.sides[side], neighbours.schema)
        released = []
        for own_seed in np.random.SeedSequence(seed).generate_state(runs, np.uint64).tolist():
            holder = Holder(copy(rows), SeededNoise(own_seed), Ledger(epsilon), neighbours.max_rows)
            transcript = overhear(holder, insider)
            try:
                holder.answer(self.query(np.repeat(NODE, 24), Repeated.one(epsilon, 24)))
            except BudgetExceeded:
                holder.answer(self.query(NODE, Repeated.one(epsilon, 1)))
            released.append(transcript.outcome())
        return released


def a_split_and_its_cells(nodes: IntArray, prices: Repeated[Fraction]) -> Query:
    choices, cells = prices.map(lambda price: price * 99 / 100), prices.map(lambda price: price / 100)
    return NominateAndCount(nodes, [Criterion.gini] * len(nodes), "permute_and_flip", choices, cells)


@pytest.mark.parametrize(
    "query", [COUNTS["cells of a fork"], a_split_and_its_cells], ids=["cells of a fork", "choice of a split"]
)
def test_a_release_that_is_charged_for_a_hundredth_is_found(
    monkeypatch: pytest.MonkeyPatch, query: Callable[[IntArray, Repeated[Fraction]], Query]
) -> None:
    """The first release of a question: the cells of a fork, or a chooser's choice."""
    assert found(Greedy(query), ONE_FALLS, 1_500).lower_bound <= EPSILON

    def charged(asked: Query) -> Any:
        first, *others = prices_of(asked)
        cheap = Repeated.of(first.epsilons).map(lambda price: price / 100)
        return [replace(first, epsilons=cheap), *others]

    monkeypatch.setattr("hedgerow.holder.holder.prices_of", charged)
    assert found(Greedy(query), ONE_FALLS, 1_500).lower_bound > EPSILON


# ---- Whole fits ------------------------------------------------------------------------------------------------------


def test_bounds_read_from_the_rows_are_found() -> None:
    """schema="from_data": the largest value is one row's, and stands in the model."""
    columns = [Numeric("x0", low=0, high=100, thresholds=4)]
    schema = Schema(columns, label="y", classes=[0, 1])
    table = np.linspace(0, 50, 20).reshape(-1, 1)
    outlier = Neighbours("outlier", schema, table, np.arange(20) % 2, (99.0,), 0)

    def fit(neighbours: Neighbours, side: int, seed: int) -> Outcome:
        rows = (neighbours.table, neighbours.labels)
        if side:
            rows = np.vstack([rows[0], neighbours.row]), np.append(rows[1], neighbours.label)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UserWarning)
            model = PrivateTreeClassifier(schema="from_data", epsilon=1.0, max_splits=1, noise_seed=seed).fit(
                *rows
            )
        return (model.tree_.schema.columns[0].high,)

    outcomes = [[fit(outlier, side, seed) for seed in range(400)] for side in (0, 1)]
    result = audit_outcomes((outcomes[0], outcomes[1]), CONFIDENCE)
    assert result.lower_bound > 2 * EPSILON


def test_a_fit_that_forgets_the_noise_of_its_leaves_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """Class counts as they are, in a learner that is otherwise what it should be."""
    real = SeededNoise.laplace

    def generous(self: SeededNoise, values: IntArray, scale: Fraction, keys: NDArray[np.uint64]) -> IntArray:
        return values if values.shape[1] == EMPTY.schema.n_classes else real(self, values, scale, keys)

    monkeypatch.setattr(SeededNoise, "laplace", generous)
    assert found(Fitting(seeded=True), EMPTY, 400).lower_bound > 2 * EPSILON


def test_the_same_noise_at_two_scales_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """A root that stays a leaf is counted twice: two equations with two unknowns, the count and the noise."""
    real = SeededNoise.laplace

    def repeated(self: SeededNoise, values: IntArray, scale: Fraction, keys: NDArray[np.uint64]) -> IntArray:
        return real(self, values, scale, np.full_like(keys, values.shape[1]))

    monkeypatch.setattr(SeededNoise, "laplace", repeated)
    assert found(Fitting(seeded=True), ONE_FALLS, 3_000).lower_bound > 1.5 * EPSILON


def test_an_honest_twin_of_these_leaks_is_not_accused() -> None:
    """The other direction: the real holder on the same neighbours, with the same number of runs."""
    for query in (class_counts, cells):
        for neighbours in (ONE_FALLS, EMPTY, SECOND):
            result = found(Leak(asked(query)), neighbours, 4_000)
            assert result.lower_bound <= EPSILON
            assert not math.isnan(result.lower_bound)
