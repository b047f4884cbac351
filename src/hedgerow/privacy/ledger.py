"""What has been spent, exactly, and the refusal to spend more.

The data are divided into parts, parts into smaller parts. A row takes part only in the releases about the
parts that hold it, so what is spent is the largest sum along any path of nested parts (sequential
composition along a path, parallel composition across). Knows nothing of trees or rows.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from fractions import Fraction
from itertools import chain
from types import MappingProxyType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hedgerow.errors import BudgetExceeded, Refused
from hedgerow.repeated import Epsilon, IntArray, Repeated

NEIGHBOURS = ("add-remove", "replace")
WHOLE = 0
NOWHERE = -1
MOST_BITS = 2**13  # of the sums' denominator: more would only keep the holder busy
MOST_PAYERS = 2**24  # of one request: more would fill the holder's memory
NO_DIVISIONS: Mapping[int, tuple[int, ...]] = MappingProxyType({})


@dataclass(frozen=True, slots=True)
class Entry:
    """One release: about which part, at which depth (the whole has depth 1), how, what, and its price."""

    part: int
    depth: int
    mechanism: str
    what: str
    epsilon: Epsilon


@dataclass(frozen=True, eq=False)
class Release:
    """One release about each of many parts."""

    parts: Sequence[int]
    depths: IntArray
    mechanism: str
    what: str
    epsilons: Repeated[Epsilon]

    def entries(self) -> Iterator[Entry]:
        """As the account lists them."""
        for part, depth, epsilon in zip(self.parts, self.depths.tolist(), self.epsilons, strict=True):
            yield Entry(part, depth, self.mechanism, self.what, epsilon)


@dataclass(frozen=True, eq=False)
class Price:
    """What a release costs at each of the parts that it is about, and what it is."""

    mechanism: str
    what: str
    epsilons: Sequence[Epsilon]


@dataclass(frozen=True, eq=False)
class Quote:
    """What a ledger would be after something that has not been booked yet."""

    spent: Epsilon
    unit: int
    sums: NDArray[Any]
    depths: IntArray
    divisions: Mapping[int, tuple[int, ...]]
    born: Mapping[int, int]
    releases: Sequence[Release]
    before: NDArray[Any]  # the sums that it was made from


class Ledger:
    """The account of one data holder for one study.

    `grant` is what may be spent in all; `leaks` says what else has been shown of the rows, outside the
    account (seeded noise, bounds read from the data). A row that is replaced, not added or removed, is one row less and
    one more: with `neighbours="replace"` every release costs twice its price.
    """

    def __init__(self, grant: Epsilon, *, neighbours: str = "add-remove", leaks: Sequence[str] = ()) -> None:
        self.grant = _exact(grant)
        self.neighbours = neighbours
        self.leaks = tuple(leaks)
        self._spent: Epsilon = Fraction(0)
        self._factor = 2 if neighbours == "replace" else 1
        self._releases: list[Release] = []
        self._into: dict[int, tuple[int, ...]] = {}
        self._place = {WHOLE: 0}  # of a part, in the arrays that follow
        self._depths = np.array([1])
        # What the path to a part has paid is a whole number of units: exact, and all parts at once. The numbers
        # are 64 bits wide while they fit, and of any size from there on.
        self._sums: NDArray[Any] = np.array([0])
        self._unit = 1  # of which there are so many in an epsilon of one

    def __repr__(self) -> str:
        state = f"granted={_number(self.grant)}, spent={_number(self.spent)}"
        return f"Ledger({state}{'' if self.private else ', not private: ' + '; '.join(self.leaks)})"

    @property
    def private(self) -> bool:
        """Whether the sum means anything: nothing has left the house outside the account."""
        return not self.leaks

    @property
    def entries(self) -> list[Entry]:
        """Every release, in order."""
        return [entry for release in self._releases for entry in release.entries()]

    def paid(self, part: int) -> Fraction:
        """What a row in this part, and in none that it has been divided into, has paid."""
        return Fraction(int(self._sums[self._place[part]]), self._unit)

    @property
    def spent(self) -> Epsilon:
        """The most that any row can have paid."""
        return self._spent

    @property
    def left(self) -> Epsilon:
        """What may still be spent on the most expensive path."""
        return self.grant - self.spent if math.isfinite(self.grant) else self.grant

    @property
    def dearest(self) -> list[Entry]:
        """All releases about some rows that have paid the most: their epsilons add up to `spent`."""
        above = {new: part for part, into in self._into.items() for new in into}
        path = [max(self._place, key=lambda part: self._sums[self._place[part]])]
        while path[-1] in above:
            path.append(above[path[-1]])
        parts = frozenset(path)
        return [entry for entry in self.entries if entry.part in parts]

    def explain(self) -> str:
        """The account in words, for the person who answers for the data."""
        lines = [f"Granted epsilon {_number(self.grant)}, spent {_number(self.spent)}."]
        lines += [f"NOT PRIVATE: {leak}." for leak in self.leaks]
        if self.neighbours == "replace":
            lines.append("Neighbours replace a row: every release is booked at twice its epsilon.")
        lines.append("A row takes part only in the releases about one node of each depth:")
        groups: dict[tuple[int, str, str], list[Epsilon]] = {}
        for entry in self.entries:
            groups.setdefault((entry.depth, entry.what, entry.mechanism), []).append(entry.epsilon)
        for (depth, what, mechanism), prices in sorted(groups.items()):
            low, high = _number(min(prices)), _number(max(prices))
            each = low if low == high else f"{low} to {high}"
            number = "1 release" if len(prices) == 1 else f"{len(prices)} releases"
            lines.append(f"  depth {depth:2d}: {what} ({mechanism}), {number}, epsilon {each}")
        return "\n".join(lines)

    def plot(self) -> Any:
        """Draw what rows that paid the most paid at each depth, and what is left, with matplotlib."""
        from hedgerow.privacy.picture import plot_accounts

        payments = [(entry.depth, entry.what, float(entry.epsilon)) for entry in self.dearest]
        return plot_accounts([(float(self.grant), float(self.spent), payments)], self.leaks)[0]

    def to_json(self) -> str:
        """The account for machines; every epsilon is an exact fraction, as text."""
        plain = {
            "version": 1,
            "granted": str(self.grant),
            "spent": str(self.spent),
            "neighbours": self.neighbours,
            "private": self.private,
            "leaks": list(self.leaks),
            "entries": [asdict(entry) | {"epsilon": str(entry.epsilon)} for entry in self.entries],
        }
        return json.dumps(plain, indent=1)

    def divide(self, part: int, into: Iterable[int]) -> None:
        """The rows of a part are divided, each into exactly one of the new parts; once only."""
        self.book(self.quote([], [], {part: tuple(into)}))

    def charge(self, parts: Sequence[int], mechanism: str, what: str, epsilons: Sequence[Epsilon]) -> None:
        """Book one release about each part, or refuse them all and book nothing."""
        self.book(self.quote(parts, [Price(mechanism, what, epsilons)]))

    def quote(
        self,
        parts: Sequence[int],
        prices: Sequence[Price],
        divisions: Mapping[int, tuple[int, ...]] = NO_DIVISIONS,
    ) -> Quote:
        """What the account would be after some divisions, then releases about each part at these prices. Books nothing.

        Refuses what costs too much, what costs nothing, and parts that are unknown or divided in two ways.
        """
        born = self._born(divisions)
        places = self._places(parts, born)
        costs = [self._cost(price.epsilons, len(parts)) for price in prices]
        each = [epsilon for cost in costs for epsilon in cost.items]
        finite = [epsilon for epsilon in each if isinstance(epsilon, Fraction)]
        unit = self._unit
        for epsilon in finite:
            unit = math.lcm(unit, epsilon.denominator)
            if unit.bit_length() > MOST_BITS:
                raise Refused("the exact sum of these epsilons has too many digits; use rounder numbers.")

        reached, payer = self._reached(parts, places, divisions, born)
        units = [[int(e * unit) if isinstance(e, Fraction) else 0 for e in cost.items] for cost in costs]
        finer = unit // self._unit
        most = int(self._sums.max()) * finer + sum(max(u, default=0) for u in units) * len(reached)
        kind: Any = np.int64 if max(most, finer) < 2**63 else object
        parents = [self._place[part] for part in divisions for _ in divisions[part]]
        sums = self._sums.astype(kind) * finer
        sums = np.concatenate([sums, sums[parents]])
        depths = np.concatenate([self._depths, self._depths[parents] + 1])
        for cost, in_units in zip(costs, units, strict=True):
            np.add.at(sums, reached, np.array(in_units, dtype=kind)[cost.which[payer]])

        spent = self._spent
        if len(reached):
            total: Epsilon = Fraction(int(sums[reached].max()), unit)
            if len(finite) < len(each):
                total = math.inf
            if total > self.grant:
                what = " and ".join(price.what for price in prices)
                raise BudgetExceeded(
                    f"{what} would bring the spending to {_number(total)}, above the granted "
                    f"{_number(self.grant)}; nothing was released or charged."
                )
            spent = max(spent, total)
        releases = [
            Release(parts, depths[places], price.mechanism, price.what, cost)
            for price, cost in zip(prices, costs, strict=True)
        ]
        return Quote(spent, unit, sums, depths, divisions, born, releases, self._sums)

    def _cost(self, epsilons: Sequence[Epsilon], n_parts: int) -> Repeated[Epsilon]:
        """What a release is booked at, exactly."""
        prices = Repeated.of(epsilons)
        if len(prices) != n_parts:
            raise ValueError(f"{len(prices)} prices for {n_parts} parts")
        for epsilon in prices.items:
            if not epsilon > 0:
                raise Refused(f"a release costs a positive epsilon, not {epsilon}.")
        return Repeated([_exact(epsilon) * self._factor for epsilon in prices.items], prices.which)

    def _born(self, divisions: Mapping[int, tuple[int, ...]]) -> dict[int, int]:
        """The places of new parts; only old parts are divided, and only once."""
        new = [*chain.from_iterable(divisions.values())]
        unknown = divisions.keys() - self._place.keys()
        again = divisions.keys() & self._into.keys()
        taken = self._place.keys() & set(new)
        if unknown or again or taken or len(set(new)) < len(new):
            part = min(unknown | again or divisions.keys())
            raise Refused(
                f"part {part} cannot be divided: it is unknown, or divided, or its parts have names taken."
            )
        return dict(zip(new, range(len(self._place), len(self._place) + len(new)), strict=True))

    def _places(self, parts: Iterable[int], born: Mapping[int, int]) -> IntArray:
        places = [born[part] if part in born else self._place.get(part, NOWHERE) for part in parts]
        if NOWHERE in places:
            raise Refused("nothing is released about a part that is unknown.")
        return np.array(places, dtype=np.int64)

    def _reached(
        self,
        parts: Sequence[int],
        places: IntArray,
        divisions: Mapping[int, tuple[int, ...]],
        born: Mapping[int, int],
    ) -> tuple[IntArray, IntArray]:
        """The places of all parts that pay for a release about each of `parts`, and for which of them they pay.

        A release about a part is about all that it has been divided into too.
        """
        if self._into.keys().isdisjoint(parts) and divisions.keys().isdisjoint(parts):
            return places, np.arange(len(parts))
        below: dict[int, IntArray] = {}
        n_payers = 0
        for part in parts:
            if part not in below:
                below[part] = self._places(_below(part, self._into, divisions), born)
            n_payers += len(below[part])
            if n_payers > MOST_PAYERS:
                raise Refused(
                    "too many nodes would pay at once; ask about fewer, or before they are divided."
                )
        reached = [below[part] for part in parts]
        return np.concatenate(reached), np.repeat(np.arange(len(parts)), [len(places) for places in reached])

    def book(self, quote: Quote) -> None:
        """Make the account what was quoted; nothing else may have been booked since."""
        if quote.before is not self._sums:
            raise ValueError("something else has been booked since this was quoted")
        self._spent, self._unit, self._sums, self._depths = quote.spent, quote.unit, quote.sums, quote.depths
        self._place.update(quote.born)
        self._into.update(quote.divisions)
        self._releases += quote.releases


def _below(part: int, *pieces: Mapping[int, tuple[int, ...]]) -> Iterator[int]:
    """The part and all that it has been divided into."""
    stack = [part]
    while stack:
        reached = stack.pop()
        yield reached
        for division in pieces:
            stack += division.get(reached, ())


def _exact(epsilon: Epsilon) -> Epsilon:
    """A fraction, so that sums are exact; infinity stays."""
    return epsilon if isinstance(epsilon, Fraction) or math.isinf(epsilon) else Fraction(epsilon)


def _number(epsilon: Epsilon) -> str:
    is_huge = isinstance(epsilon, Fraction) and epsilon > 10**300
    return "more than 1e+300" if is_huge else f"{float(epsilon):.6g}"
