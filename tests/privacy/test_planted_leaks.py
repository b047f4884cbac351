"""The auditor catches the mistakes that people make, planted into the real classes.

Every leak here claims an epsilon and follows the real code but for one mistake. Noise is seeded, so each test
passes or fails for good; a lower bound that a private mechanism would pass with probability 1e-6 / LEAKS is
evidence of a leak and not of bad luck.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable
from copy import copy
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from hedgerow.audits import Counting, Fitting, Forking, Mechanism, Neighbours, Selection, catalogue
from hedgerow.classifier import PrivateTreeClassifier
from hedgerow.criteria import FRACTION_BITS, Criterion, score_sensitivity, to_fixed_point, weighted_impurities
from hedgerow.holder.counts import GroupedRows
from hedgerow.holder.holder import Holder
from hedgerow.messages import ROOT, CountCells, CountLabels, IntArray, Query
from hedgerow.privacy.audit import AuditResult, Outcome, audit_outcomes, suite_confidence
from hedgerow.privacy.exact import add_laplace
from hedgerow.privacy.ledger import Ledger
from hedgerow.privacy.noise import SeededNoise
from hedgerow.privacy.selectors import SELECTORS
from hedgerow.schema import Numeric, Schema

LEAKS = 20  # audits in this module, at most
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
    class TwiceTheEpsilon(Forking):
        def outcomes(
            self, neighbours: Neighbours, side: int, epsilon: Fraction, runs: int, seed: int
        ) -> list[Outcome]:
            return super().outcomes(neighbours, side, 2 * epsilon, runs, seed)

    result = found(
        TwiceTheEpsilon(Criterion.gini), BY_NAME["first of its class, 1 of 10 candidates stays"], 40_000
    )
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
