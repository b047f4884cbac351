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
from hedgerow.holder.counts import GroupedRows, blurred
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
        assert len(np.unique(np.rint(left / 0.1))) <= 3


@pytest.mark.parametrize("seconds", [0.0, 0.049, 0.0999, 0.1])  # also just before a quantum and just after
def test_no_question_can_be_made_for_which_a_longer_answer_shows_much(seconds: float) -> None:
    """40,000 draws; a frequency is off by 0.0125, five standard deviations, once in 1.7 million."""
    begun = seconds / 0.1 % 1
    left = np.array([held_back(seconds) for _ in range(40_000)])
    quanta = np.rint(left / 0.1).astype(int) - math.floor(seconds / 0.1) - 1
    found = np.bincount(quanta, minlength=3) / 40_000
    expected = np.array([(1 - begun) ** 2 / 2, 1 / 2 + begun * (1 - begun), begun**2 / 2])
    np.testing.assert_allclose(found, expected, atol=0.0125)


def test_the_information_of_an_answers_time_is_bounded_for_every_time() -> None:
    begun = np.linspace(0, 1, 1001)[1:-1]
    shares = np.array([(1 - begun) ** 2 / 2, 1 / 2 + begun * (1 - begun), begun**2 / 2])
    slopes = np.array([begun - 1, 1 - 2 * begun, begun])
    assert (slopes**2 / shares).sum(axis=0).max() <= 6


def test_a_question_with_many_releases_about_one_row_has_a_longer_quantum() -> None:
    left = {round(held_back(0.01, releases=7), 9) for _ in range(20)}
    assert left <= {0.7, 1.4, 2.1}


def test_without_a_quantum_answers_leave_at_once() -> None:
    assert held_back(0.37, quantum=0) == 0.37


@pytest.mark.parametrize("times", [1, 5])
def test_how_often_a_row_is_looked_at_is_counted_along_its_path(monkeypatch, times: int) -> None:
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
    assert seen == [2 * times, times + 1, 2 * times, 0, 0]  # and once where a node was split


def test_an_answer_that_fails_is_held_back_too(monkeypatch) -> None:
    seen: list[int] = []
    monkeypatch.setattr(AnswerClock, "hold_back", lambda _self, _came, times: seen.append(times))
    desk = GRANT.desk(rows(), SecureNoise())

    def fail(_: object) -> None:
        raise MemoryError

    monkeypatch.setattr(desk.holder, "release", fail)
    with pytest.raises(MemoryError):
        ask(desk, "a", forks(0, times=3))
    assert seen == [6]


# What is asked again and again, at which price, and how often a row is looked at for it.
LAST = [i for i, split in enumerate(SCHEMA.splits) if split.column == 0][-1]
ATTACKS = {
    "forks by gini": (lambda _: (forks(node=2), None), 2),
    "forks by entropy": (
        lambda _: (NominateForks(np.array([2]), [Criterion.entropy], "exponential", [LEAST], [LEAST]), None),
        2,
    ),
    "growth": (lambda question: (CountRows(np.array([0]), [Fraction(1, 64)]), chain(question)), 17),
}


def chain(question: int, generations: int = 16) -> Grow:
    """Split the right child of a right child of ..., where the row is."""
    first = 3 + 2 * generations * question
    nodes = np.array([first - 1, *(first + 1 + 2 * np.arange(generations - 1))])
    return Grow(nodes, np.full(generations, LAST), first)


@pytest.mark.parametrize("attack", ATTACKS)
def test_the_time_of_an_answer_shows_nothing_at_what_a_grant_can_buy(monkeypatch, attack: str) -> None:
    """The attack: ask as often as the grant allows about a node that one row has for itself, and compare the times.

    Computing takes as long as it does, waiting takes no time. The threshold is passed by chance once in 1.7 million.
    """
    times, desks = [FastTime(), FastTime()], []
    for side, clock in enumerate(times):
        fast = partial(AnswerClock, now=clock.now, sleep=clock.sleep)
        monkeypatch.setattr("hedgerow.holder.desk.AnswerClock", fast)
        grant = replace(GRANT, quantum=QUANTUM)
        desks.append(grant.desk(rows(with_one_more=bool(side)), SecureNoise()))
        ask(
            desks[side],
            "split",
            CountRows(np.array([0]), [LEAST]),
            Grow(np.array([0]), np.array([LAST]), first=1),
        )
    question_of, looks = ATTACKS[attack]
    left: tuple[list[float], list[float]] = ([], [])
    for question in range(4096):
        query, growth = question_of(question)
        answers = []
        for side in np.random.default_rng(question).permutation(2).tolist():
            came = times[side].now()
            answers.append(ask(desks[side], f"q{question}", query, growth))
            left[side].append(times[side].now() - came)
        if all(isinstance(answer, Refusal) for answer in answers):
            break
    assert question == (2047 if attack.startswith("forks") else 63)
    quanta = np.floor(np.array(left)[:, 5:-1] / (looks * QUANTUM))  # the first questions compile
    assert quanta.min() >= 1
    difference = quanta[1].mean() - quanta[0].mean()
    error = math.sqrt(quanta.var(axis=1).sum() / quanta.shape[1])
    assert abs(difference) <= 5 * error


def test_whether_a_thread_is_woken_does_not_depend_on_one_row() -> None:
    """10,000 draws: that fewer than 5,000 of them differ has a probability below 1e-100."""
    drawn = [blurred(8192) for _ in range(10_000)]
    assert min(drawn) >= 4096
    assert max(drawn) <= 12288
    assert len(set(drawn)) > 5000
