"""The auditor finds planted leaks, and does not cry wolf.

All mechanisms here are seeded, so every test passes or fails for good. The confidence is that of a suite of
AUDITS audits with a false-alarm probability of 1e-6 in all.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from fractions import Fraction

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy import stats  # type: ignore[import-untyped, unused-ignore]

from hedgerow.privacy.audit import _log_ratio_bound, audit, suite_confidence
from hedgerow.privacy.noise import SeededNoise
from hedgerow.privacy.selectors import SELECTORS

AUDITS = 20
CONFIDENCE = suite_confidence(AUDITS)
KEY = np.zeros(1, np.uint64)
Table = NDArray[np.int64]

NOBODY = np.zeros((1, 10), np.int64)
EVERYWHERE = NOBODY + 1  # one row that raises all ten scores
FIRST = NOBODY + np.eye(1, 10, dtype=np.int64)  # one row that raises the first
REST = EVERYWHERE - FIRST


def noisy_counts(scale: Fraction) -> Callable[[Table, int], object]:
    return lambda table, seed: SeededNoise(seed).laplace(table, scale, KEY)[0]


def selection(name: str, epsilon: Fraction) -> Callable[[Table, int], object]:
    return lambda table, seed: SELECTORS[name].select(table, 1, epsilon, SeededNoise(seed), KEY)[0]


def noisy_max_with_its_value(table: Table, seed: int) -> tuple[int, int]:
    """What the paper releases: the winner together with its noisy score; scale 1, claimed epsilon 1."""
    noisy = SeededNoise(seed).laplace(table, Fraction(1), KEY)[0]
    return int(noisy.argmax()), int(noisy.max())


# ---- Planted leaks -------------------------------------------------------------------------------------------


def test_the_winners_value_is_found_not_to_be_free() -> None:
    result = audit(noisy_max_with_its_value, (NOBODY, EVERYWHERE), runs=10_000, confidence=CONFIDENCE)
    assert result.lower_bound > 2


def test_half_the_noise_is_found() -> None:
    neighbours = (NOBODY[:, :1], FIRST[:, :1])
    result = audit(noisy_counts(Fraction(1, 2)), neighbours, runs=10_000, confidence=CONFIDENCE)
    assert 1.5 < result.lower_bound <= 2


@pytest.mark.parametrize("name", SELECTORS)
def test_a_selector_at_twice_its_epsilon_is_found(name: str) -> None:
    """The exact loss between these neighbours is at least 1.9: the row helps all but one candidate."""
    result = audit(selection(name, Fraction(2)), (NOBODY, REST), runs=20_000, confidence=CONFIDENCE)
    assert 1.2 < result.lower_bound <= 2


def test_a_leak_spread_over_many_entries_is_found() -> None:
    """One row in ten counts of scale 1 costs 10; each count alone shows 1."""
    result = audit(noisy_counts(Fraction(1)), (NOBODY, EVERYWHERE), runs=6_000, confidence=CONFIDENCE)
    assert 3 < result.lower_bound <= 10


def test_a_leak_in_absence_is_found() -> None:
    """Empty cells that are skipped: the outcome's length gives the row away."""

    def skip_empty(table: Table, seed: int) -> tuple[int, ...]:
        noisy = SeededNoise(seed).laplace(table, Fraction(1), KEY)[0]
        return tuple(int(count) for count, exact in zip(noisy, table[0], strict=True) if exact > 0)

    result = audit(skip_empty, (NOBODY, FIRST), runs=4_000, confidence=CONFIDENCE)
    assert result.lower_bound > 4


def test_a_leak_in_a_word_is_found_among_outcomes_that_never_repeat() -> None:
    """Outcomes seen once must not look like evidence and hide the entry that is."""

    def randomised_response(row: str, seed: int) -> tuple[int, str]:
        draw = np.random.default_rng(seed)
        number, honest = int(draw.integers(2**60)), draw.random() < 0.9
        return number, row if honest else {"yes": "no", "no": "yes"}[row]

    result = audit(randomised_response, ("yes", "no"), runs=4_000, confidence=CONFIDENCE)
    assert 1.7 < result.lower_bound <= math.log(9)


def test_a_leak_in_one_rare_and_odd_outcome_does_not_stop_the_audit() -> None:
    """None, NaN and shorter outcomes may turn up in runs after those that settled what entries look like."""

    def odd(table: int, seed: int) -> tuple[object, ...]:
        kind = seed % 1000
        return ((None, 0), (math.nan, 0), (1,), ())[kind] if kind < 4 else (float(seed % 7919) + table, 0)

    assert audit(odd, (0, 0), runs=4_000, confidence=CONFIDENCE).lower_bound == 0


# ---- Correct mechanisms --------------------------------------------------------------------------------------


@pytest.mark.parametrize("neighbours", [(NOBODY, FIRST), (NOBODY, REST), (NOBODY, EVERYWHERE)])
@pytest.mark.parametrize("name", SELECTORS)
def test_a_correct_selector_stays_within_its_epsilon(name: str, neighbours: tuple[Table, Table]) -> None:
    result = audit(selection(name, Fraction(1)), neighbours, runs=16_000, confidence=CONFIDENCE)
    assert result.lower_bound <= 1
    assert (result.lower_bound > 0.3) == (neighbours[1] is not EVERYWHERE)  # a common shift changes nothing


def test_correct_counts_stay_within_their_epsilon() -> None:
    result = audit(noisy_counts(Fraction(1)), (NOBODY, FIRST), runs=10_000, confidence=CONFIDENCE)
    assert 0.7 < result.lower_bound <= 1


def test_outcomes_that_have_nothing_to_do_with_the_table_show_nothing() -> None:
    for mechanism in (lambda _, seed: seed, lambda _, seed: seed % 3, lambda _, seed: "constant"):
        assert audit(mechanism, (0, 1), runs=2_000, confidence=CONFIDENCE).lower_bound == 0


def test_the_false_alarm_rate_is_kept() -> None:
    """At confidence 0.8 no more than 20 % of audits of a mechanism may pass its epsilon.

    100 audits with fixed seeds; a rate of 0.2 would give 45 or more with probability below 1e-7.
    """

    def randomised_response(row: int, seed: int) -> int:
        return row ^ int(np.random.default_rng(seed).random() < 0.3)

    exact = math.log(0.7 / 0.3)
    alarms = sum(
        audit(randomised_response, (0, 1), runs=100, confidence=0.8, seed=seed).lower_bound > exact
        for seed in range(100)
    )
    assert alarms < 45


# ---- Bookkeeping ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("failure", [0.1, 1e-6])
@pytest.mark.parametrize(("hits", "other_hits"), [(50, 3), (100, 0), (1, 100), (37, 37)])
def test_the_bound_is_that_of_clopper_and_pearson(hits: int, other_hits: int, failure: float) -> None:
    low = stats.binomtest(hits, 100, alternative="greater").proportion_ci(1 - failure / 2).low
    high = stats.binomtest(other_hits, 100, alternative="less").proportion_ci(1 - failure / 2).high
    bound = _log_ratio_bound(np.array(hits), np.array(other_hits), 100, failure)
    # SciPy solves for `low` to 2e-12, which is seen where the bound itself is 5e-9.
    assert float(bound) == pytest.approx(math.log(low / high), rel=1e-5)


def test_no_hit_at_all_bounds_nothing() -> None:
    assert _log_ratio_bound(np.array(0), np.array(0), 100, 0.1) == -math.inf


def test_a_result_says_what_was_counted() -> None:
    result = audit(lambda table, _: table, ("a", "b"), runs=1_000, confidence=0.99)
    assert (result.hits, result.trials, result.runs, result.confidence) == ((500, 0), 500, 1_000, 0.99)
    assert result.lower_bound == pytest.approx(math.log(0.005 ** (1 / 500) / (1 - 0.005 ** (1 / 500))))
    assert "on 500 runs 500 times with neighbour" in str(result)


def test_the_result_depends_on_the_seed_and_not_on_the_jobs(capsys: pytest.CaptureFixture[str]) -> None:
    neighbours = (NOBODY[:, :1], FIRST[:, :1])
    mechanism = noisy_counts(Fraction(1))
    alone, together, other = (
        audit(mechanism, neighbours, runs=500, confidence=0.99, seed=seed, jobs=jobs, progress=jobs > 1)
        for seed, jobs in ((1, 1), (1, 2), (2, 1))
    )
    assert alone == together
    assert alone.hits != other.hits
    assert "auditing" in capsys.readouterr().out


def test_the_failures_of_a_suite_add_up() -> None:
    assert sum(1 - suite_confidence(37) for _ in range(37)) == pytest.approx(1e-6, rel=1e-6)
    assert suite_confidence(1, 0.05) == 0.95
    with pytest.raises(ValueError, match="audits >= 1"):
        suite_confidence(0)


@pytest.mark.parametrize(("runs", "confidence"), [(7, 0.9), (100, 0.0), (100, 1.0)])
def test_what_makes_no_sense_is_refused(runs: int, confidence: float) -> None:
    with pytest.raises(ValueError, match="must"):
        audit(lambda table, seed: seed, (0, 1), runs=runs, confidence=confidence)
