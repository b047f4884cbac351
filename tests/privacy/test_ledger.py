"""The ledger: exact sums along paths, refusals that cost nothing."""

from __future__ import annotations

import json
import math
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hedgerow.errors import BudgetExceeded, HedgerowError, Refused
from hedgerow.privacy.ledger import MOST_BITS, WHOLE, Ledger, Price

TENTH = Fraction(1, 10)


def test_ten_tenths_are_one_exactly():
    ledger = Ledger(Fraction(1))
    for _ in range(10):
        ledger.charge([WHOLE], "m", "w", [TENTH])
    assert ledger.spent == 1
    assert ledger.left == 0
    with pytest.raises(BudgetExceeded):
        ledger.charge([WHOLE], "m", "w", [Fraction(1, 10**30)])


def test_parts_side_by_side_pay_the_larger_and_nested_parts_the_sum():
    ledger = Ledger(Fraction(1))
    ledger.charge([WHOLE], "m", "w", [TENTH])
    ledger.divide(WHOLE, (1, 2))
    ledger.charge([1, 2], "m", "w", [2 * TENTH, 3 * TENTH])
    assert ledger.spent == 4 * TENTH
    ledger.divide(1, (3, 4))
    ledger.charge([3], "m", "w", [5 * TENTH])
    assert ledger.spent == 8 * TENTH


def test_a_charge_on_a_divided_part_reaches_all_that_lies_below():
    ledger = Ledger(Fraction(1))
    ledger.divide(WHOLE, (1, 2))
    ledger.charge([1], "m", "w", [9 * TENTH])
    with pytest.raises(BudgetExceeded):
        ledger.charge([WHOLE], "m", "w", [2 * TENTH])
    ledger.charge([WHOLE], "m", "w", [TENTH])
    assert ledger.spent == 1


def test_a_refused_charge_books_nothing_at_all():
    ledger = Ledger(Fraction(1))
    ledger.divide(WHOLE, (1, 2))
    with pytest.raises(BudgetExceeded):
        ledger.charge([1, 2], "m", "w", [TENTH, 11 * TENTH])
    with pytest.raises(BudgetExceeded):  # the same part twice in one request is paid twice
        ledger.charge([1, 1], "m", "w", [6 * TENTH, 6 * TENTH])
    assert ledger.spent == 0
    assert ledger.entries == []


@pytest.mark.parametrize("epsilon", [Fraction(0), Fraction(-1), float("nan")])
def test_a_release_has_a_positive_price(epsilon):
    with pytest.raises(HedgerowError, match="positive"):
        Ledger(Fraction(1)).charge([WHOLE], "m", "w", [epsilon])


def test_a_price_beyond_all_floats_is_refused_in_words():
    ledger = Ledger(Fraction(1))
    with pytest.raises(BudgetExceeded, match="more than 1e"):
        ledger.charge([WHOLE], "m", "w", [Fraction(10**400)])
    assert ledger.spent == 0


def test_unknown_parts_and_second_divisions_are_refused():
    ledger = Ledger(Fraction(1))
    ledger.divide(WHOLE, (1, 2))
    for part, into in ((WHOLE, (3, 4)), (7, (3, 4)), (1, (2, 3)), (1, (3, 3))):
        with pytest.raises(HedgerowError):
            ledger.divide(part, into)
    with pytest.raises(HedgerowError, match="unknown"):
        ledger.charge([7], "m", "w", [TENTH])


def test_replacing_a_row_costs_twice():
    ledger = Ledger(Fraction(1), neighbours="replace")
    ledger.charge([WHOLE], "m", "w", [Fraction(1, 2)])
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
    ledger.charge([WHOLE], "discrete Laplace", "class counts", [Fraction(1, 3)])
    plain = json.loads(ledger.to_json())
    assert plain["spent"] == "1/3"
    assert plain["entries"] == [
        {"part": 0, "depth": 1, "mechanism": "discrete Laplace", "what": "class counts", "epsilon": "1/3"}
    ]


@given(st.lists(st.tuples(st.integers(0, 30), st.integers(1, 40), st.booleans()), max_size=60))
def test_spending_is_the_largest_path_sum_and_never_above_the_grant(steps):
    ledger = Ledger(Fraction(1))
    parent: dict[int, int] = {}
    own: dict[int, Fraction] = {WHOLE: Fraction(0)}
    for part, percent, divides in steps:
        if part in own and divides and part not in parent.values():
            children = (len(own), len(own) + 1)
            ledger.divide(part, children)
            parent |= dict.fromkeys(children, part)
            own |= dict.fromkeys(children, Fraction(0))
        elif part in own:
            try:
                ledger.charge([part], "m", "w", [Fraction(percent, 100)])
                own[part] += Fraction(percent, 100)
            except BudgetExceeded:
                pass

    def along(part: int) -> Fraction:
        return own[part] + (along(parent[part]) if part in parent else 0)

    assert ledger.spent == max(along(part) for part in own)
    assert ledger.spent <= 1


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
        account.charge([WHOLE] * len(prices), "discrete Laplace", "rows", prices)
    assert max(lengths) <= 2 * MOST_BITS
    assert account.entries == []


def test_what_would_fill_the_memory_is_refused(monkeypatch):
    ledger = Ledger(1)
    for part in range(7):
        ledger.divide(part, (2 * part + 1, 2 * part + 2))
    monkeypatch.setattr("hedgerow.privacy.ledger.MOST_PAYERS", 30)
    ledger.charge([0, 0], "laplace", "rows", [Fraction(1, 10)] * 2)  # fifteen parts pay, twice
    for parts in ([0, 14], [1, 2, 7, 8, 9, 10]):
        with pytest.raises(Refused, match="too many nodes would pay"):
            ledger.charge([*parts, 0], "laplace", "rows", [Fraction(1, 10)] * (len(parts) + 1))
    assert ledger.spent == Fraction(1, 5)


def test_a_quote_that_is_not_the_newest_is_not_booked():
    ledger = Ledger(1)
    first, second = (ledger.quote([0], [Price("laplace", "rows", [Fraction(3, 5)])]) for _ in range(2))
    ledger.book(first)
    with pytest.raises(ValueError, match="booked since"):
        ledger.book(second)
    assert ledger.spent == Fraction(3, 5)
    assert len(ledger.entries) == 1


def test_a_part_named_often_does_not_overflow_its_sum() -> None:
    ledger = Ledger(Fraction(2))
    with pytest.raises(BudgetExceeded):
        ledger.charge([WHOLE] * 3, "m", "w", [Fraction(2**62 - 1, 2**62)] * 3)
    assert (ledger.spent, ledger.entries) == (0, [])
