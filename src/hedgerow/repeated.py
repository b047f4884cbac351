"""One value a node, where many nodes share few: prices, criteria. Anything may import this module."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from numbers import Rational
from typing import Any, Generic, TypeVar

import numpy as np
from numpy.typing import NDArray

from hedgerow.compiled import compiled

FEW = 64

T = TypeVar("T")
U = TypeVar("U")
V = TypeVar("V")
IntArray = NDArray[np.int64]
Epsilon = Fraction | float  # a float only for infinity


def as_written(number: float | Rational) -> Fraction:
    """The decimal that stands in a program or a file, exactly: 0.1 is 1/10 and not the float nearest to it."""
    if isinstance(number, Rational):  # of NumPy too, whose integers would overflow in a fraction
        return Fraction(int(number.numerator), int(number.denominator))
    return Fraction(repr(float(number)))


@dataclass(frozen=True, eq=False)
class Repeated(Sequence[T], Generic[T]):
    """One item a node, where many nodes share few: item `which[i]` stands at place i."""

    items: Sequence[T]
    which: IntArray

    @classmethod
    def of(cls, values: Sequence[T]) -> Repeated[T]:
        """The same values; each item is kept once, in the order in which they are first named."""
        if isinstance(values, Repeated):
            return values
        place = {value: i for i, value in enumerate(dict.fromkeys(values))}
        return cls(list(place), np.array([place[value] for value in values], dtype=np.int64))

    @classmethod
    def of_numbers(cls, numbers: IntArray, item: Callable[[int], T]) -> Repeated[T]:
        """`item(number)` for each number; different numbers make different items."""
        which = np.empty(len(numbers), np.int64)
        few = _few(numbers, which)
        if len(few) < FEW:
            return cls([item(number) for number in few.tolist()], which)
        distinct, first, which = np.unique(numbers, return_index=True, return_inverse=True)
        order = np.argsort(first)  # as in `of`
        place = np.empty_like(order)
        place[order] = np.arange(len(order))
        return cls([item(number) for number in distinct[order].tolist()], place[which])

    @classmethod
    def one(cls, item: T | Repeated[T], n: int) -> Repeated[T]:
        """The same item at n places, unless it is one a place already."""
        return item if isinstance(item, Repeated) else cls([item], np.zeros(n, dtype=np.int64))

    def at(self, places: IntArray) -> Repeated[T]:
        """The items at some of the places."""
        return Repeated(self.items, self.which[places])

    def map(self, function: Callable[[T], U]) -> Repeated[U]:
        """`function` of the item at each place, called once an item."""
        return Repeated([function(item) for item in self.items], self.which)

    def times(self, other: Repeated[U], function: Callable[[T, U], V]) -> Repeated[V]:
        """`function` of both items at each place, called once a pair of items that stand at the same place."""
        n_others = len(other.items)
        return Repeated.of_numbers(
            self.which * n_others + other.which,
            lambda pair: function(self.items[pair // n_others], other.items[pair % n_others]),
        )

    def each(self, function: Callable[[T], float]) -> NDArray[np.float64]:
        """The same, as an array of numbers."""
        values: NDArray[np.float64] = np.array([function(item) for item in self.items])[self.which]
        return values

    def __len__(self) -> int:
        return len(self.which)

    def __getitem__(self, place: Any) -> Any:
        return self.items[self.which[place]]


@compiled
def _few(numbers: IntArray, which: IntArray) -> IntArray:
    """The different numbers, as they are first named, and which of them stands where; FEW if there are so many."""
    distinct, n = np.empty(FEW, np.int64), 0
    for place in range(len(numbers)):
        i = 0
        while i < n and distinct[i] != numbers[place]:
            i += 1
        if i == n:
            distinct[n] = numbers[place]
            n += 1
            if n == FEW:
                break
        which[place] = i
    return distinct[:n]
