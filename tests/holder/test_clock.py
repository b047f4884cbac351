"""When answers leave: nothing that a grant can buy shows how long they took."""

from __future__ import annotations

import math
import time
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import partial

import numpy as np
import pytest

from hedgerow import Numeric, Schema
from hedgerow.criteria import Criterion
from hedgerow.encoding import encode, encode_labels
from hedgerow.holder.clock import AnswerClock
from hedgerow.holder.counts import GroupedRows
from hedgerow.holder.desk import LEAST_PRICE, MOST_RELEASES, QUANTUM, Desk, StudyGrant
from hedgerow.messages import (
    Answer,
    CountLabels,
    CountRows,
    Grow,
    NominateForks,
    Query,
    Refusal,
    Request,
    from_bytes,
    to_bytes,
)
from hedgerow.privacy.noise import SecureNoise

SCHEMA = Schema([Numeric(f"x{i}", 0, 1, 8) for i in range(8)], label="y", classes=[0, 1])
GRANT = StudyGrant("study", SCHEMA.hash, Fraction(1), max_rows=10_000, quantum=0)
LEAST = GRANT.least_price * GRANT.epsilon


@dataclass
class FastTime:
    """A clock in which work takes as long as it does, and waiting takes no time."""

    slept: float = 0.0

    def now(self) -> float:
        return time.perf_counter() + self.slept

    def sleep(self, seconds: float) -> None:
        self.slept += seconds


def rows(*, with_one_more: bool = False) -> GroupedRows:
    rng = np.random.default_rng(0)
    table, labels = 0.9 * rng.random((2000, 8)), rng.integers(0, 2, 2000)
    if with_one_more:
        table, labels = np.vstack([table, np.full(8, 0.99)]), np.append(labels, 0)
    return GroupedRows(encode(table, SCHEMA), encode_labels(labels, SCHEMA), SCHEMA)


def ask(desk: Desk, name: str, query: Query, growth: Grow | None = None) -> Answer | Refusal:
    answer = from_bytes(desk.handle(to_bytes(Request("study", name, growth, query))))
    assert isinstance(answer, (Answer, Refusal))
    return answer


def forks(node: int, times: int = 1, price: Fraction = LEAST) -> NominateForks:
    prices = [price] * times
    return NominateForks(np.full(times, node), [Criterion.gini] * times, "exponential", prices, prices)


# ---- The limits of a grant -------------------------------------------------------------------------------------------


def test_a_release_below_the_least_price_is_refused_before_anything_is_computed(monkeypatch) -> None:
    desk = GRANT.desk(rows(), SecureNoise())
    monkeypatch.setattr(desk.holder, "release", lambda _: pytest.fail("something was computed"))
    for choice, cells in ((LEAST * Fraction(99, 100), LEAST), (LEAST, LEAST / 2)):
        query = NominateForks(np.zeros(1, np.int64), [Criterion.gini], "exponential", [choice], [cells])
        refusal = ask(desk, "a", query)
        assert isinstance(refusal, Refusal)
        assert "costs at least epsilon 0.000244141 here" in refusal.reason
    # One that is too small among many that are not.
    query = CountRows(np.zeros(3, np.int64), [LEAST, LEAST / 3, LEAST])
    assert "costs at least" in ask(desk, "a", query).reason
    assert desk.holder.ledger.spent == 0


def test_the_least_price_is_compared_with_what_is_booked() -> None:
    desk = replace(GRANT, neighbours="replace").desk(rows(), SecureNoise())
    assert isinstance(ask(desk, "a", CountRows(np.zeros(1, np.int64), [LEAST / 2])), Answer)
    assert isinstance(ask(desk, "b", CountRows(np.zeros(1, np.int64), [LEAST / 3])), Refusal)


def test_a_study_has_no_more_releases_than_granted() -> None:
    desk = replace(GRANT, most_releases=10).desk(rows(), SecureNoise())
    assert isinstance(ask(desk, "a", forks(0, times=4)), Answer)  # eight releases
    assert "at most 10 releases" in ask(desk, "b", forks(0, times=2)).reason
    assert isinstance(ask(desk, "c", CountRows(np.zeros(2, np.int64), [LEAST] * 2)), Answer)
    assert isinstance(ask(desk, "d", CountRows(np.zeros(1, np.int64), [LEAST])), Refusal)
    assert isinstance(ask(desk, "a", forks(0, times=4)), Answer)  # a stored answer is no release


def test_by_default_a_row_takes_part_in_a_few_thousand_releases_at_most() -> None:
    assert Fraction(1, 4096) == LEAST_PRICE
    assert QUANTUM >= 0.1
    assert MOST_RELEASES <= 100_000


@pytest.mark.parametrize(
    "wrong",
    [{"least_price": Fraction(2)}, {"least_price": 0.1}, {"most_releases": 0}, {"most_releases": 1.5},
     {"quantum": -1.0}, {"quantum": math.nan}, {"quantum": 1e9}],
)  # fmt: skip
def test_limits_that_make_no_sense_are_refused(wrong) -> None:
    with pytest.raises(ValueError, match=next(iter(wrong))):
        replace(GRANT, **wrong)


# ---- The clock -------------------------------------------------------------------------------------------------------


def held_back(seconds: float, quantum: float = 0.1, releases: int = 1) -> float:
    """How long after its question an answer leaves that took so many seconds."""
    passed = [seconds]
    clock = AnswerClock(
        quantum, now=lambda: passed[0], sleep=lambda rest: passed.__setitem__(0, passed[0] + rest)
    )
    clock.hold_back(0.0, releases)
    return passed[0]


def test_answers_leave_at_multiples_of_the_quantum_and_never_early() -> None:
    for seconds in (0.0, 0.03, 0.0999, 0.1, 0.25, 3.14):
        left = np.array([held_back(seconds) for _ in range(50)])
        assert (left >= seconds).all()
        np.testing.assert_allclose(left / 0.1, np.rint(left / 0.1), atol=1e-9)
        assert len(np.unique(np.rint(left / 0.1))) <= 2


def test_what_a_longer_answer_changes_is_a_probability_of_its_length_over_the_quantum() -> None:
    """40,000 draws; each frequency is off by 0.0125, five standard deviations, once in 1.7 million."""
    for seconds in (0.0, 0.049, 0.0999, 0.1):  # also where it ends just before a quantum or just after
        late = np.mean(
            [held_back(seconds) > 0.1 * math.floor(seconds / 0.1 + 1) + 1e-9 for _ in range(40_000)]
        )
        assert abs(late - seconds % 0.1 / 0.1) < 0.0125


def test_a_question_with_many_releases_about_one_row_has_a_longer_quantum() -> None:
    left = {round(held_back(0.01, releases=7), 9) for _ in range(20)}
    assert left <= {0.7, 1.4}


def test_without_a_quantum_answers_leave_at_once() -> None:
    assert held_back(0.37, quantum=0) == 0.37


@pytest.mark.parametrize("times", [1, 5])
def test_releases_that_a_row_takes_part_in_are_counted_along_its_path(monkeypatch, times: int) -> None:
    seen: list[int] = []
    monkeypatch.setattr(AnswerClock, "hold_back", lambda _self, _came, releases: seen.append(releases))
    desk = GRANT.desk(rows(), SecureNoise())
    ask(desk, "a", forks(0, times))
    ask(
        desk,
        "b",
        CountLabels(np.repeat([1, 2], times), [LEAST] * 2 * times),
        Grow(np.array([0]), np.array([3]), 1),
    )
    ask(desk, "c", CountLabels(np.repeat([0, 1, 2], times), [LEAST] * 3 * times))
    ask(
        desk, "c", CountLabels(np.repeat([0, 1, 2], times), [LEAST] * 3 * times)
    )  # repeated: nothing is computed
    ask(desk, "d", CountRows(np.array([9]), [LEAST]))  # refused
    assert seen == [2 * times, times, 2 * times, 0, 0]


def test_the_time_of_an_answer_shows_nothing_at_what_a_grant_can_buy(monkeypatch) -> None:
    """The attack: ask as often as the grant allows about a node that one row has for itself, and compare the times.

    Of forks, whose time depends on the rows most. The threshold is passed by chance once in 1.7 million.
    """
    times = [FastTime(), FastTime()]
    desks = []
    for side, clock in enumerate(times):
        monkeypatch.setattr(
            "hedgerow.holder.desk.AnswerClock", partial(AnswerClock, now=clock.now, sleep=clock.sleep)
        )
        grant = replace(GRANT, quantum=QUANTUM)
        desks.append(grant.desk(rows(with_one_more=bool(side)), SecureNoise()))
    last = [i for i, split in enumerate(SCHEMA.splits) if split.column == 0][-1]
    left: tuple[list[float], list[float]] = ([], [])
    for question in range(4096):
        growth = Grow(np.array([0]), np.array([last]), first=1) if question == 0 else None
        answers = []
        for side in np.random.default_rng(question).permutation(2).tolist():
            came = times[side].now()
            answers.append(ask(desks[side], f"q{question}", forks(node=2), growth))
            left[side].append(times[side].now() - came)
        if all(isinstance(answer, Refusal) for answer in answers):
            break
    assert question == 2048  # forks, of two releases each
    # A fork and its cells are two releases, so the quantum is twice as long. The first questions compile.
    quanta = np.floor(np.array(left)[:, 10:-1] / (2 * QUANTUM))
    assert quanta.min() >= 1
    difference = quanta[1].mean() - quanta[0].mean()
    error = math.sqrt(quanta.var(axis=1).sum() / quanta.shape[1])
    assert abs(difference) <= 5 * error
