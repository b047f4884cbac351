"""The ledger: exact sums along paths, refusals that cost nothing."""

from __future__ import annotations

import json
import math
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hedgerow.errors import BudgetExceeded, HedgerowError, Refused
from hedgerow.privacy.ledger import MOST_BITS, WHOLE, Ledger, Price

TENTH = Fraction(1, 10)


def charge(ledger: Ledger, parts: list[int], epsilons: list[Any]) -> None:
    ledger.book(ledger.quote(np.array(parts), [Price("discrete Laplace", "class counts", epsilons)]))


def divide(ledger: Ledger, *parts: int) -> None:
    ledger.book(ledger.quote(np.array([], dtype=np.int64), [], np.array(parts)))


def test_ten_tenths_are_one_exactly():
    ledger = Ledger(Fraction(1))
    for _ in range(10):
        charge(ledger, [WHOLE], [TENTH])
    assert ledger.spent == 1
    assert ledger.left == 0
    with pytest.raises(BudgetExceeded):
        charge(ledger, [WHOLE], [Fraction(1, 10**30)])


def test_parts_side_by_side_pay_the_larger_and_nested_parts_the_sum():
    ledger = Ledger(Fraction(1))
    charge(ledger, [WHOLE], [TENTH])
    divide(ledger, WHOLE)
    charge(ledger, [1, 2], [2 * TENTH, 3 * TENTH])
    assert ledger.spent == 4 * TENTH
    divide(ledger, 1)
    charge(ledger, [3], [5 * TENTH])
    assert ledger.spent == 8 * TENTH


def test_a_charge_on_a_divided_part_reaches_all_that_lies_below():
    ledger = Ledger(Fraction(1))
    divide(ledger, WHOLE)
    charge(ledger, [1], [9 * TENTH])
    with pytest.raises(BudgetExceeded):
        charge(ledger, [WHOLE], [2 * TENTH])
    charge(ledger, [WHOLE], [TENTH])
    assert ledger.spent == 1


def test_a_refused_charge_books_nothing_at_all():
    ledger = Ledger(Fraction(1))
    divide(ledger, WHOLE)
    with pytest.raises(BudgetExceeded):
        charge(ledger, [1, 2], [TENTH, 11 * TENTH])
    with pytest.raises(BudgetExceeded):  # the same part twice in one request is paid twice
        charge(ledger, [1, 1], [6 * TENTH, 6 * TENTH])
    assert ledger.spent == 0
    assert ledger.entries == []


@pytest.mark.parametrize("epsilon", [Fraction(0), Fraction(-1), float("nan")])
def test_a_release_has_a_positive_price(epsilon):
    with pytest.raises(HedgerowError, match="positive"):
        charge(Ledger(Fraction(1)), [WHOLE], [epsilon])


def test_a_price_beyond_all_floats_is_refused_in_words():
    ledger = Ledger(Fraction(1))
    with pytest.raises(BudgetExceeded, match="more than 1e"):
        charge(ledger, [WHOLE], [Fraction(10**400)])
    assert ledger.spent == 0


def test_unknown_parts_and_second_divisions_are_refused():
    ledger = Ledger(Fraction(1))
    divide(ledger, WHOLE)
    for parts, reason in (
        ([WHOLE], "split already"),
        ([1, WHOLE], "split already"),
        ([1, 1], "split already"),
        ([3], "does not exist"),
        ([1, 5], "does not exist"),
        ([3, 1], "does not exist"),  # before it is there
        ([1, 3, 3], "split already"),
        ([-1], "does not exist"),
    ):
        with pytest.raises(Refused, match=reason):
            divide(ledger, *parts)
    for part in (3, -1):
        with pytest.raises(Refused, match="does not exist"):
            charge(ledger, [part], [TENTH])
    assert ledger._children.tolist() == [1, -1, -1]


def test_parts_that_are_divided_as_soon_as_they_are_there_have_paid_what_the_whole_has():
    at_once, one_by_one = Ledger(Fraction(1)), Ledger(Fraction(1))
    for ledger, steps in ((at_once, [[WHOLE, 1, 2, 4]]), (one_by_one, [[WHOLE], [1], [2], [4]])):
        charge(ledger, [WHOLE], [TENTH])
        for step in steps:
            divide(ledger, *step)
        charge(ledger, [7, 8], [TENTH, 2 * TENTH])
    assert at_once.entries == one_by_one.entries
    assert [entry.depth for entry in at_once.entries] == [1, 4, 4]
    assert at_once.spent == one_by_one.spent == 3 * TENTH
    assert at_once._children.tolist() == one_by_one._children.tolist()


def test_replacing_a_row_costs_twice():
    ledger = Ledger(Fraction(1), neighbours="replace")
    charge(ledger, [WHOLE], [Fraction(1, 2)])
    assert ledger.spent == 1
    assert "twice" in ledger.explain()


def test_leaks_are_loud_everywhere():
    ledger = Ledger(Fraction(1), leaks=["seeded noise"])
    assert not ledger.private
    assert "not private: seeded noise" in repr(ledger)
    assert "NOT PRIVATE: seeded noise" in ledger.explain()
    assert json.loads(ledger.to_json())["private"] is False


def test_the_account_for_machines_is_exact():
    ledger = Ledger(Fraction(1))
    charge(ledger, [WHOLE], [Fraction(1, 3)])
    plain = json.loads(ledger.to_json())
    assert plain["spent"] == "1/3"
    assert plain["entries"] == [
        {"part": 0, "depth": 1, "mechanism": "discrete Laplace", "what": "class counts", "epsilon": "1/3"}
    ]


def test_an_infinite_price_is_above_every_grant_also_beside_finite_ones():
    ledger = Ledger(Fraction(1))
    divide(ledger, WHOLE)
    for parts, prices in (([1, 2], [TENTH, math.inf]), ([2, 2], [math.inf, TENTH]), ([1], [math.inf])):
        with pytest.raises(BudgetExceeded):
            charge(ledger, parts, prices)
    two = [Price("laplace", what, [price]) for what, price in (("rows", TENTH), ("cells", math.inf))]
    with pytest.raises(BudgetExceeded):
        ledger.quote(np.array([1]), two)
    assert (ledger.spent, ledger.entries) == (0, [])


def test_a_float_is_booked_and_granted_as_what_it_is():
    """The float 0.1 is a little above a tenth, and three of them are above 0.3."""
    ledger = Ledger(0.3)
    assert ledger.grant == Fraction(0.3) < 3 * TENTH
    charge(ledger, [WHOLE, WHOLE], [0.1, 0.1])
    assert ledger.spent == 2 * Fraction(0.1) > 2 * TENTH
    with pytest.raises(BudgetExceeded):
        charge(ledger, [WHOLE], [0.1])


def test_a_cheap_part_does_not_make_a_dear_one_forgotten():
    ledger = Ledger(Fraction(1))
    divide(ledger, WHOLE)
    charge(ledger, [1], [9 * TENTH])
    charge(ledger, [2], [TENTH])
    assert ledger.spent == 9 * TENTH
    assert ledger.left == TENTH


@given(
    st.lists(
        st.tuples(
            st.booleans(),
            st.lists(
                st.tuples(st.integers(0, 30), st.integers(1, 20), st.integers(1, 20)), min_size=1, max_size=4
            ),
        ),
        max_size=40,
    )
)
def test_spending_is_the_largest_path_sum_and_never_above_the_grant(steps):
    """After every step; parts are named several times, at two prices of their own each."""
    ledger = Ledger(Fraction(1))
    parent: dict[int, int] = {}
    own: dict[int, Fraction] = {WHOLE: Fraction(0)}

    def most(sums: dict[int, Fraction]) -> Fraction:
        def along(part: int) -> Fraction:
            return sums[part] + (along(parent[part]) if part in parent else 0)

        return max(along(part) for part in sums)

    for divides, named in steps:
        parts = [part % len(own) for part, _, _ in named]
        if divides and parts[0] not in parent.values():
            children = (len(own), len(own) + 1)
            divide(ledger, parts[0])
            parent |= dict.fromkeys(children, parts[0])
            own |= dict.fromkeys(children, Fraction(0))
            continue
        after = dict(own)
        for part, (_, first, second) in zip(parts, named, strict=True):
            after[part] += Fraction(first + second, 100)
        prices = [
            Price("discrete Laplace", what, [Fraction(each[place], 100) for each in named])
            for place, what in ((1, "rows"), (2, "class counts"))
        ]
        try:
            ledger.book(ledger.quote(np.array(parts), prices))
            own = after
        except BudgetExceeded:
            assert most(after) > 1
        assert ledger.spent == most(own) <= 1


def test_a_sum_of_too_many_digits_is_refused_before_it_is_long(monkeypatch):
    lengths = []

    def lcm(*numbers):
        together = math.prod(numbers) // math.gcd(*numbers)
        lengths.append(together.bit_length())
        return together

    monkeypatch.setattr("hedgerow.privacy.ledger.math.lcm", lcm)
    account = Ledger(Fraction(1))
    prices = [Fraction(1, 10**999 + i) for i in range(1, 200)]
    with pytest.raises(Refused, match="too many digits"):
        charge(account, [WHOLE] * len(prices), prices)
    assert max(lengths) <= 2 * MOST_BITS
    assert account.entries == []


def test_what_would_fill_the_memory_is_refused(monkeypatch):
    ledger = Ledger(1)
    for part in range(7):
        divide(ledger, part)
    monkeypatch.setattr("hedgerow.privacy.ledger.MOST_PAYERS", 30)
    charge(ledger, [0, 0], [Fraction(1, 10)] * 2)  # fifteen parts pay, twice
    for parts in ([0, 14], [1, 2, 7, 8, 9, 10]):
        with pytest.raises(Refused, match="too many nodes would pay"):
            charge(ledger, [*parts, 0], [Fraction(1, 10)] * (len(parts) + 1))
    assert ledger.spent == Fraction(1, 5)


def test_a_quote_that_is_not_the_newest_is_not_booked():
    ledger = Ledger(1)
    first, second = (
        ledger.quote(np.array([0]), [Price("laplace", "rows", [Fraction(3, 5)])]) for _ in range(2)
    )
    ledger.book(first)
    with pytest.raises(ValueError, match="booked since"):
        ledger.book(second)
    assert ledger.spent == Fraction(3, 5)
    assert len(ledger.entries) == 1


def test_a_part_named_often_does_not_overflow_its_sum() -> None:
    ledger = Ledger(Fraction(2))
    with pytest.raises(BudgetExceeded):
        charge(ledger, [WHOLE] * 3, [Fraction(2**62 - 1, 2**62)] * 3)
    assert (ledger.spent, ledger.entries) == (0, [])
