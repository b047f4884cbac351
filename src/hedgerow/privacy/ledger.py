"""What has been spent, exactly, and the refusal to spend more.

The data are divided into parts, a part into two smaller ones. A row takes part only in the releases about the
parts that hold it, so what is spent is the largest sum along any path of nested parts (sequential
composition along a path, parallel composition across). Knows nothing of trees or rows.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hedgerow.compiled import compiled
from hedgerow.errors import BudgetExceeded, Refused
from hedgerow.repeated import Epsilon, IntArray, Repeated

NEIGHBOURS = ("add-remove", "replace")
WHOLE = 0
NONE = -1
MOST_BITS = 2**13  # of the sums' denominator: more would only keep the holder busy
MOST_PAYERS = 2**24  # of one request: more would fill the holder's memory


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

    parts: IntArray
    depths: IntArray
    mechanism: str
    what: str
    epsilons: Repeated[Epsilon]

    def entries(self) -> Iterator[Entry]:
        """As the account lists them."""
        for part, depth, epsilon in zip(
            self.parts.tolist(), self.depths.tolist(), self.epsilons, strict=True
        ):
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
    children: IntArray
    releases: Sequence[Release]
    before: NDArray[Any]  # the sums that it was made from
    releases_of_a_row: int  # how many of them one row can take part in


class Ledger:
    """The account of one data holder for one study.

    `grant` is what may be spent in all; `leaks` says what else has been shown of the rows, outside the
    account (seeded noise, bounds read from the data). A row that is replaced, not added or removed, is one row less and
    one more: with `neighbours="replace"` every release costs twice its price.

    No release costs less than `least_price`, and there are at most `most_releases`: how long an answer takes is not paid
    for, so there must not be any number of answers that cost next to nothing.
    """

    def __init__(
        self,
        grant: Epsilon,
        *,
        neighbours: str = "add-remove",
        leaks: Sequence[str] = (),
        least_price: Fraction = Fraction(0),
        most_releases: float = math.inf,
    ) -> None:
        self.grant = _exact(grant)
        self.least_price = least_price
        self.most_releases = most_releases
        self.neighbours = neighbours
        self.leaks = tuple(leaks)
        self._spent: Epsilon = Fraction(0)
        self._factor = 2 if neighbours == "replace" else 1
        self._releases: list[Release] = []
        self._n_releases = 0
        # By the number of a part: its depth, and the first of the two that it is divided into, which stand together.
        self._depths = np.array([1])
        self._children = np.array([NONE])
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
    def n_parts(self) -> int:
        """How many parts there are, the whole and all that have been divided among them."""
        return len(self._sums)

    @property
    def entries(self) -> list[Entry]:
        """Every release, in order."""
        return [entry for release in self._releases for entry in release.entries()]

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
        divided = np.flatnonzero(self._children != NONE)
        above = dict(zip(self._children[divided].tolist(), divided.tolist(), strict=True))
        path = [int(self._sums.argmax())]
        while path[-1] != WHOLE:
            path.append(above[path[-1] - (path[-1] + 1) % 2])  # first children have odd numbers
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

    def quote(self, parts: IntArray, prices: Sequence[Price], divided: IntArray | None = None) -> Quote:
        """What the account would be after some divisions, then releases about each part at these prices. Books nothing.

        Parts are divided in two, one after another; the halves get the next numbers, and may be divided in turn. Refuses what costs too much, what costs nothing, and
        parts that are unknown or divided already.
        """
        if divided is None:
            divided = np.empty(0, dtype=np.int64)
        children = self._divide(divided)
        _check_known(parts, len(children))
        costs = [self._cost(price.epsilons, len(parts)) for price in prices]
        if self._n_releases + len(parts) * len(prices) > self.most_releases:
            raise Refused(f"a study has at most {self.most_releases} releases here.")
        each = [epsilon for cost in costs for epsilon in cost.items]
        finite = [epsilon for epsilon in each if isinstance(epsilon, Fraction)]
        unit = self._unit
        for epsilon in finite:
            unit = math.lcm(unit, epsilon.denominator)
            if unit.bit_length() > MOST_BITS:
                raise Refused("the exact sum of these epsilons has too many digits; use rounder numbers.")

        reached, payer = _reached(parts, children)
        units = [[_in_units(epsilon, unit) for epsilon in cost.items] for cost in costs]
        finer = unit // self._unit
        most = int(self._sums.max()) * finer + sum(max(u, default=0) for u in units) * len(reached)
        kind: Any = np.int64 if max(most, finer) < 2**63 else object
        origin, depths = _descent(divided, self._depths)
        sums = self._sums[origin].astype(kind, copy=False) * finer
        for cost, in_units in zip(costs, units, strict=True):
            if any(in_units):
                np.add.at(sums, reached, np.array(in_units, dtype=kind)[cost.which[payer]])

        spent = self._spent
        if len(reached):
            total: Epsilon = math.inf
            if len(finite) == len(each):
                total = Fraction(int(sums[reached].max()), unit)
            if total > self.grant:
                what = " and ".join(price.what for price in prices)
                raise BudgetExceeded(
                    f"{what} would bring the spending to {_number(total)}, above the granted "
                    f"{_number(self.grant)}; nothing was released or charged."
                )
            spent = max(spent, total)
        releases = [
            Release(parts, depths[parts], price.mechanism, price.what, cost)
            for price, cost in zip(prices, costs, strict=True)
        ]
        of_a_row = int(np.bincount(reached, minlength=1).max()) * len(prices)
        return Quote(spent, unit, sums, depths, children, releases, self._sums, of_a_row)

    def _divide(self, divided: IntArray) -> IntArray:
        """The first child of every part, old and new; a part is there before it is divided, and is divided once."""
        first = 2 * np.arange(len(divided)) + len(self._children)
        _check_known(divided, first)
        children = np.concatenate([self._children, np.full(2 * len(divided), NONE)])
        again = children[divided] != NONE
        children[divided] = first
        again |= children[divided] != first  # named twice here: the last one counts
        if again.any():
            raise Refused(f"node {divided[again].min()} is split already.")
        return children

    def _cost(self, epsilons: Sequence[Epsilon], n_parts: int) -> Repeated[Epsilon]:
        """What a release is booked at, exactly."""
        prices = Repeated.of(epsilons)
        if len(prices) != n_parts:
            raise ValueError(f"{len(prices)} prices for {n_parts} parts")
        for epsilon in prices.items:
            if not epsilon > 0:
                raise Refused(f"a release costs a positive epsilon, not {epsilon}.")
        exact = prices.map(_exact)
        booked = exact if self._factor == 1 else exact.map(lambda epsilon: epsilon * self._factor)
        if (least := min(booked.items, default=math.inf)) < self.least_price:
            raise Refused(
                f"a release costs at least epsilon {_number(self.least_price)} here, not {_number(least)}."
            )
        return booked

    def book(self, quote: Quote) -> None:
        """Make the account what was quoted; nothing else may have been booked since."""
        if quote.before is not self._sums:
            raise ValueError("something else has been booked since this was quoted")
        self._spent, self._unit, self._sums, self._depths = quote.spent, quote.unit, quote.sums, quote.depths
        self._children = quote.children
        self._releases += quote.releases
        self._n_releases += sum(len(release.parts) for release in quote.releases)


def _reached(parts: IntArray, children: IntArray) -> tuple[IntArray, IntArray]:
    """All parts that pay for a release about each of `parts`, and for which of them they pay.

    A release about a part is about all that it has been divided into too.
    """
    if (children[parts] == NONE).all():
        return parts, np.arange(len(parts))
    below: dict[int, IntArray] = {}
    n_payers, first = 0, children.tolist()
    for part in parts.tolist():
        if part not in below:
            found = [part]
            for reached in found:  # which grows meanwhile
                if first[reached] != NONE:
                    found += (first[reached], first[reached] + 1)
            below[part] = np.array(found)
        n_payers += len(below[part])
        if n_payers > MOST_PAYERS:
            raise Refused("too many nodes would pay at once; ask about fewer, or before they are divided.")
    payers = [below[part] for part in parts.tolist()]
    return np.concatenate(payers), np.repeat(np.arange(len(parts)), [len(each) for each in payers])


@compiled
def _descent(divided: IntArray, depths: IntArray) -> tuple[IntArray, IntArray]:
    """Of all parts, old and new: the old one that it is a part of, and its depth."""
    n_parts = len(depths)
    origin, all_depths = np.arange(n_parts + 2 * len(divided)), np.empty(n_parts + 2 * len(divided), np.int64)
    all_depths[:n_parts] = depths
    for i in range(len(divided)):
        for child in range(n_parts + 2 * i, n_parts + 2 * i + 2):
            origin[child], all_depths[child] = origin[divided[i]], all_depths[divided[i]] + 1
    return origin, all_depths


def _check_known(parts: IntArray, n: int | IntArray) -> None:
    if len(unknown := parts[(parts < 0) | (parts >= n)]):
        raise Refused(f"node {unknown[0]} does not exist.")


def _exact(epsilon: Epsilon) -> Epsilon:
    """A fraction, so that sums are exact; infinity stays."""
    return epsilon if isinstance(epsilon, Fraction) or math.isinf(epsilon) else Fraction(epsilon)


def _in_units(epsilon: Epsilon, unit: int) -> int:
    """So many units; infinity is none, because no sum is made with it."""
    return epsilon.numerator * (unit // epsilon.denominator) if isinstance(epsilon, Fraction) else 0


def _number(epsilon: Epsilon) -> str:
    is_huge = isinstance(epsilon, Fraction) and epsilon > 10**300
    return "more than 1e+300" if is_huge else f"{float(epsilon):.6g}"
