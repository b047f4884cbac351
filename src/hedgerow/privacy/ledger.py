"""What has been spent, exactly, and the refusal to spend more.

The data are divided into parts, parts into smaller parts. A row takes part only in the releases about the
parts that hold it, so what is spent is the largest sum along any path of nested parts (sequential
composition along a path, parallel composition across). Knows nothing of trees or rows.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from fractions import Fraction

from hedgerow.errors import BudgetExceeded, Refused

WHOLE = 0

Epsilon = Fraction | float  # a float only for infinity


@dataclass(frozen=True, slots=True)
class Entry:
    """One release: about which part, at which depth (the whole has depth 1), how, what, and its price."""

    part: int
    depth: int
    mechanism: str
    what: str
    epsilon: Epsilon


class Ledger:
    """The account of one data holder for one study.

    `grant` is what may be spent in all; `leaks` says what else has been shown of the rows, outside the
    account (seeded noise, bounds read from the data). A row that is replaced, not added or removed, is one row less and
    one more: with `neighbours="replace"` every release costs twice its price.
    """

    def __init__(self, grant: Epsilon, *, neighbours: str = "add-remove", leaks: Sequence[str] = ()) -> None:
        self.grant = grant
        self.neighbours = neighbours
        self.leaks = tuple(leaks)
        self.entries: list[Entry] = []
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
        return max(self._along.values())

    @property
    def left(self) -> Epsilon:
        """What may still be spent on the most expensive path."""
        return self.grant - self.spent if math.isfinite(self.grant) else self.grant

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
        into = tuple(into)
        if (
            part not in self._along
            or part in self._into
            or len(set(into)) < len(into)
            or any(p in self._along for p in into)
        ):
            raise Refused(f"part {part} cannot be divided into {into}: unknown, or named before.")
        self._into[part] = into
        for new in into:
            self._along[new] = self._along[part]
            self._depth[new] = self._depth[part] + 1

    def charge(self, parts: Sequence[int], mechanism: str, what: str, epsilons: Sequence[Epsilon]) -> None:
        """Book one release about each part, or refuse them all and book nothing."""
        after = _Overlay(self._along)
        entries = []
        for part, epsilon in zip(parts, epsilons, strict=True):
            if part not in self._along:
                raise Refused(f"part {part} is unknown; nothing is released about it.")
            if not epsilon > 0:
                raise Refused(f"a release costs a positive epsilon, not {epsilon}.")
            price = epsilon * self._factor
            for reached in self._below(part):
                after[reached] = after[reached] + price
                if after[reached] > self.grant:
                    raise BudgetExceeded(
                        f"{what} of part {part} would bring the spending to {float(after[reached]):.6g}, "
                        f"above the granted {float(self.grant):.6g}; nothing was released or charged."
                    )
            entries.append(Entry(part, self._depth[part], mechanism, what, price))
        self._along.update(after.changed)
        self.entries += entries

    def _below(self, part: int) -> Iterator[int]:
        """The part and all that it has been divided into: a release about it is about them too."""
        yield part
        for new in self._into.get(part, ()):
            yield from self._below(new)


class _Overlay:
    """Changes to a dictionary that are not made yet."""

    def __init__(self, base: dict[int, Epsilon]) -> None:
        self._base = base
        self.changed: dict[int, Epsilon] = {}

    def __getitem__(self, key: int) -> Epsilon:
        return self.changed[key] if key in self.changed else self._base[key]

    def __setitem__(self, key: int, value: Epsilon) -> None:
        self.changed[key] = value


def _number(epsilon: Epsilon) -> str:
    return f"{float(epsilon):.6g}"
