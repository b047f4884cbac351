"""One value a node, where many nodes share few: what stands where never changes."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hedgerow.repeated import FEW, Repeated, as_written

values = st.lists(st.integers(0, 2 * FEW), max_size=4 * FEW)


@given(values)
def test_every_place_has_its_own_value_however_many_there_are(numbers: list[int]) -> None:
    array = np.array(numbers, dtype=np.int64)
    kept = Repeated.of_numbers(array, lambda number: Fraction(number, 7))
    assert list(kept) == [Fraction(number, 7) for number in numbers]
    assert list(Repeated.of(numbers)) == numbers
    assert len(kept.items) == len(set(numbers))
    backwards = np.arange(len(numbers))[::-1]
    assert list(kept.at(backwards)) == list(kept)[::-1]
    assert list(kept.map(lambda price: 2 * price)) == [2 * price for price in kept]


@pytest.mark.parametrize("n", [3, FEW - 1, FEW, 3 * FEW])
def test_many_values_in_any_order_stay_where_they_are(n: int) -> None:
    numbers = np.random.default_rng(n).permutation(np.repeat(np.arange(n), 2))
    kept = Repeated.of_numbers(numbers, lambda number: Fraction(number, 7))
    assert list(kept) == [Fraction(number, 7) for number in numbers.tolist()]
    assert list(kept.items) == list(Repeated.of(list(kept)).items)


@pytest.mark.parametrize("n", [3, FEW - 1, FEW, 3 * FEW])
def test_pairs_are_made_of_what_stands_at_the_same_place(n: int) -> None:
    rng = np.random.default_rng(n)
    prices, ranges = [Fraction(int(i), 100) for i in rng.permutation(n)], rng.integers(1, 9, n).tolist()
    pairs = Repeated.of(prices).times(Repeated.of(ranges), lambda price, range_: price / range_)
    assert list(pairs) == [price / range_ for price, range_ in zip(prices, ranges, strict=True)]


def test_a_decimal_is_what_stands_there() -> None:
    """The float nearest to 0.1 is above a tenth."""
    assert as_written(0.1) == Fraction(1, 10) < Fraction(0.1)
    assert as_written(3) == 3
    assert as_written(Fraction(5, 7)) == Fraction(5, 7)
    assert as_written(np.float64(1e-3)) == Fraction(1, 1000)
    assert as_written(np.int64(2)) == 2
