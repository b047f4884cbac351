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
from types import MappingProxyType
from typing import Any

from hedgerow.errors import BudgetExceeded, Refused

WHOLE = 0
MOST_BITS = 2**13  # of a sum's denominator: more would only keep the holder busy
NO_DIVISIONS: Mapping[int, tuple[int, ...]] = MappingProxyType({})

Epsilon = Fraction | float  # a float only for infinity


@dataclass(frozen=True, slots=True)
class Entry:
    """One release: about which part, at which depth (the whole has depth 1), how, what, and its price."""

    part: int
    depth: int
    mechanism: str
    what: str
    epsilon: Epsilon


@dataclass(frozen=True, slots=True)
class Quote:
    """What a ledger would be after something that has not been booked yet: `spent`, and all that changes."""

    spent: Epsilon
    along: Mapping[int, Epsilon]
    depth: Mapping[int, int]
    into: Mapping[int, tuple[int, ...]]
    entries: Sequence[Entry]


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
        self.entries: list[Entry] = []
        self._spent: Epsilon = Fraction(0)
        self._factor = 2 if neighbours == "replace" else 1
        self._along: dict[int, Epsilon] = {WHOLE: Fraction(0)}  # the sum along the path to a part
        self._depth = {WHOLE: 1}
        self._into: dict[int, tuple[int, ...]] = {}

    def __repr__(self) -> str:
        state = f"granted={float(self.grant):g}, spent={float(self.spent):g}"
        return f"Ledger({state}{'' if self.private else ', not private: ' + '; '.join(self.leaks)})"

    @property
    def private(self) -> bool:
        """Whether the sum means anything: nothing has left the house outside the account."""
        return not self.leaks

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
        path = [max(self._along, key=self._along.__getitem__)]
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
        lines.append("A row takes part in one node of each depth, so it pays at most one line of each kind:")
        groups: dict[tuple[int, str, str], list[Epsilon]] = {}
        for entry in self.entries:
            groups.setdefault((entry.depth, entry.what, entry.mechanism), []).append(entry.epsilon)
        for (depth, what, mechanism), prices in sorted(groups.items()):
            low, high = _number(min(prices)), _number(max(prices))
            each = low if low == high else f"{low} to {high}"
            nodes = "1 node" if len(prices) == 1 else f"{len(prices)} nodes"
            lines.append(f"  depth {depth:2d}: {what} ({mechanism}), {nodes}, epsilon {each}")
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
        self.book(self.quote([], "", "", [], {part: tuple(into)}))

    def charge(self, parts: Sequence[int], mechanism: str, what: str, epsilons: Sequence[Epsilon]) -> None:
        """Book one release about each part, or refuse them all and book nothing."""
        self.book(self.quote(parts, mechanism, what, epsilons))

    def quote(
        self,
        parts: Sequence[int],
        mechanism: str,
        what: str,
        epsilons: Sequence[Epsilon],
        divisions: Mapping[int, tuple[int, ...]] = NO_DIVISIONS,
    ) -> Quote:
        """What the account would be after some divisions, then one release about each part. Books nothing.

        Refuses what costs too much, what costs nothing, and parts that are unknown or divided in two ways.
        """
        # Changes are kept beside the account; what has not changed is looked up in it.
        along: dict[int, Epsilon] = {}
        depth: dict[int, int] = {}
        pieces: dict[int, tuple[int, ...]] = {}
        for part, into in divisions.items():
            named = [new for new in into if new in self._along or new in along]
            known = part in along or part in self._along
            if not known or part in self._into or named or len({*into}) < len(into):
                raise Refused(f"part {part} cannot be divided into {into}: unknown, or named before.")
            pieces[part] = into
            level = depth[part] if part in depth else self._depth[part]
            for new in into:
                along[new] = along[part] if part in along else self._along[part]
                depth[new] = level + 1
        spent, grant, factor = self._spent, self.grant, self._factor
        prices: dict[int, Epsilon] = {}  # by identity: hashing a fraction is slow
        entries = []
        for part, epsilon in zip(parts, epsilons, strict=True):
            if part not in along and part not in self._along:
                raise Refused(f"part {part} is unknown; nothing is released about it.")
            if not epsilon > 0:
                raise Refused(f"a release costs a positive epsilon, not {epsilon}.")
            price = prices.get(id(epsilon))
            if price is None:
                price = prices[id(epsilon)] = _exact(epsilon) * factor
            level = depth[part] if part in depth else self._depth[part]
            entries.append(Entry(part, level, mechanism, what, price))
            if price == math.inf == grant:  # no privacy: there is nothing to add up
                along[part] = spent = price
                continue
            divided = part in pieces or part in self._into
            for reached in _below(part, pieces, self._into) if divided else (part,):
                total = (along[reached] if reached in along else self._along[reached]) + price
                if total > grant:
                    raise BudgetExceeded(
                        f"{what} of part {part} would bring the spending to {float(total):.6g}, "
                        f"above the granted {float(self.grant):.6g}; nothing was released or charged."
                    )
                if type(total) is Fraction and total.denominator.bit_length() > MOST_BITS:
                    raise Refused("the exact sum of these epsilons has too many digits; use rounder numbers.")
                along[reached] = total
                spent = max(spent, total)
        return Quote(spent, along, depth, pieces, entries)

    def book(self, quote: Quote) -> None:
        """Make the account what was quoted; nothing else may have been booked since."""
        self._along.update(quote.along)
        self._depth.update(quote.depth)
        self._into.update(quote.into)
        self.entries += quote.entries
        self._spent = quote.spent


def _below(part: int, *pieces: Mapping[int, tuple[int, ...]]) -> Iterator[int]:
    """The part and all that it has been divided into: a release about it is about them too."""
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
    return f"{float(epsilon):.6g}"
