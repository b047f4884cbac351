"""What only the owner of the rows is told: how they fit their schema, and that they were trained on before.

All of it depends on the rows and is not paid for, so it must never be part of an outcome: it is a warning on the
owner's own console. Imports `encoding` and `schema`.
"""

from __future__ import annotations

import math
import os
import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hedgerow.compiled import compiled
from hedgerow.encoding import Codes, values_at
from hedgerow.schema import Categorical, Column, Numeric, Schema
from hedgerow.threads import even_parts, run_all

MUST_NOT_BE_PUBLISHED = "(This is about your rows: do not publish it.)"
MOST_SAMPLED = 2_048  # rows of which the values are looked at
LEAST_RECOGNISED, MOST_RECOGNISED = 16, 512
ENOUGH_ROWS = 100  # to say how often something happens
HALF, TENTH, NEARLY_ALL = 0.5, 0.1, 0.995
MOST_NAMED = 3
ALL_PICKS = 2**16


# ---- A sample of rows, by their value ----------------------------------------------------------------------

# Of this process alone: nobody outside can compute a row's hash.
_MULTIPLIERS = np.frombuffer(os.urandom(8 * 4096), dtype=np.uint64) | np.uint64(1)


@dataclass(frozen=True)
class Sample:
    """Some rows of a table; equal rows are in it together or not at all, and so they are in any other sample.

    `picks` are small hashes of the rows; all rows with a pick below `below` are here. `hashes` [half, row], of every
    other column each, tell rows of different values apart (of different codes, where only those are known).
    """

    rows: NDArray[np.int64]
    picks: NDArray[np.uint16]
    hashes: NDArray[np.uint64]
    below: int
    numbers: dict[int, NDArray[np.float64]]  # the values of numeric columns

    @classmethod
    def of(cls, codes: Codes, labels: NDArray[Any], below: int = ALL_PICKS, table: Any = None,
           schema: Schema | None = None) -> Sample:  # fmt: skip
        """At most MOST_SAMPLED rows, or of a table in which hardly two rows differ so many of those."""
        picks = _picks(codes, labels)
        below = _below(picks, below)
        rows = np.flatnonzero(picks < below)[:MOST_SAMPLED]
        numbers = {}
        if schema is not None:
            numeric = [i for i, column in enumerate(schema.columns) if isinstance(column, Numeric)]
            numbers = values_at(table, schema, rows, numeric)
        hashes = np.zeros((2, len(rows)), dtype=np.uint64)
        hashes[0] = (labels[rows].astype(np.uint64) + np.uint64(1)) * _MULTIPLIERS[-1]
        for i in range(len(codes.places)):
            if i in numbers:
                same_zero_and_nan = np.where(np.isnan(numbers[i]), np.nan, numbers[i] + 0.0)
                words = same_zero_and_nan.astype(np.float64).view(np.uint64)
            else:
                words = codes.column(i)[rows].astype(np.uint64)
            hashes[i % 2] = _mixed(hashes[i % 2] + words * _MULTIPLIERS[i % 4000])
        return cls(rows, picks[rows], hashes, below, numbers)

    def whole(self) -> NDArray[np.uint64]:
        """One hash a row."""
        return _joined(self.hashes)


def _mixed(words: NDArray[np.uint64]) -> NDArray[np.uint64]:
    mixed: NDArray[np.uint64] = words * _MULTIPLIERS[-2]
    return mixed ^ (mixed >> np.uint64(29))


def _joined(halves: NDArray[np.uint64]) -> NDArray[np.uint64]:
    return _mixed(halves[0] + halves[1] * _MULTIPLIERS[-3])


def _below(picks: NDArray[np.uint16], below: int) -> int:
    """The bound, halved until at most MOST_SAMPLED picks are below it."""
    while below > 1 and np.count_nonzero(picks < below) > MOST_SAMPLED:
        below //= 2
    return below


def _picks(codes: Codes, labels: NDArray[Any]) -> NDArray[np.uint16]:
    """A small hash of each row's label and of the codes of up to eight of its columns."""
    picks = np.empty(codes.n_rows, dtype=np.uint16)
    some = codes.places[np.unique(np.linspace(0, len(codes.places) - 1, 8).astype(np.int64))]
    narrow, wide = (some[some[:, 0] == is_wide, 1].astype(np.uint64) for is_wide in (0, 1))

    def pick(part: tuple[int, int]) -> None:
        start, stop = map(np.uint64, part)
        _pick(codes.narrow, codes.wide, labels, narrow, wide, _MULTIPLIERS, start, stop, picks)

    run_all(pick, even_parts(codes.n_rows, at_least=65_536))
    return picks


@compiled
def _pick(narrow, wide, labels, at_narrow, at_wide, multipliers, start, stop, picks):  # type: ignore[no-untyped-def]
    """Positions are unsigned: asking of each whether it counts from the end takes as long as all the rest."""
    n_narrow, n_wide = len(at_narrow), len(at_wide)
    for i in range(start, stop):
        h = np.uint64(labels[i]) * multipliers[0]
        for j in range(n_narrow):
            h += np.uint64(narrow[i, at_narrow[j]]) * multipliers[1 + j]
        for j in range(n_wide):
            h += np.uint64(wide[i, at_wide[j]]) * multipliers[1 + n_narrow + j]
        h ^= h >> np.uint64(32)
        picks[i] = np.uint16((h * multipliers[1 + n_narrow + n_wide]) >> np.uint64(48))


# ---- Do the rows fit the schema? ---------------------------------------------------------------------------


@dataclass
class _Values:
    """What was seen of a column's values, in the rows that were looked at."""

    n_values: int = 0
    n_outside: int = 0
    n_at_bound: int = 0
    all_whole: bool = True
    distinct: set[Any] = field(default_factory=set)

    def see_numbers(self, column: Numeric, values: NDArray[np.float64]) -> None:
        values = values[~np.isnan(values)]
        self.n_outside += int(((values < column.low) | (values > column.high)).sum())
        self.n_at_bound += int(((values == column.low) | (values == column.high)).sum())
        self.all_whole &= bool((values == np.floor(values)).all())
        self._see(np.unique(values).tolist() if self.all_whole else [], len(values))

    def see_objects(self, values: NDArray[Any]) -> None:
        texts = [value for value in values if isinstance(value, str | int)]
        self._see(texts, len(texts))

    def _see(self, values: list[Any], n_values: int) -> None:
        if len(self.distinct) >= NEARLY_ALL * self.n_values:
            self.distinct.update(values)
        self.n_values += n_values

    @property
    def are_identifiers(self) -> bool:
        is_known = self.all_whole and self.n_values >= ENOUGH_ROWS
        return is_known and len(self.distinct) >= NEARLY_ALL * self.n_values


class RowReview:
    """How the rows of one holder fit their schema, block by block. For the owner of the rows alone."""

    def __init__(self, schema: Schema, *, copies: bool = True) -> None:
        self._schema = schema
        self._looks_for_copies = copies  # who pays nothing may have any number of them
        self._n_rows = 0
        self._bins = [np.zeros(column.n_bins, dtype=bool) for column in schema.columns]
        self._classes = np.zeros(schema.n_classes, dtype=bool)
        self._values = [_Values() for _ in schema.columns]
        self._below = ALL_PICKS
        self._picks = np.empty(0, dtype=np.uint16)
        self._hashes = np.empty((2, 0), dtype=np.uint64)

    def see(self, table: Any, codes: Codes, labels: NDArray[Any]) -> Sample:
        """Some more rows: as they are, and encoded."""
        self._n_rows += codes.n_rows
        for i, bins in enumerate(self._bins):
            _mark(bins, codes.column(i))
        _mark(self._classes, labels)
        sample = Sample.of(codes, labels, self._below, table, self._schema)
        self._see_values(table, codes, sample)
        self._see_copies(sample)
        return sample

    def _see_values(self, table: Any, codes: Codes, sample: Sample) -> None:
        for i, (column, values) in enumerate(zip(self._schema.columns, self._values, strict=True)):
            if isinstance(column, Numeric):
                values.see_numbers(column, sample.numbers[i])
            elif (codes.column(i)[sample.rows] == column.other_bin).sum() > HALF * len(sample.rows):
                values.see_objects(values_at(table, self._schema, sample.rows, [i])[i])

    def _see_copies(self, sample: Sample) -> None:
        self._picks = np.concatenate([self._picks, sample.picks])
        self._hashes = np.concatenate([self._hashes, sample.hashes], axis=1)
        self._below = _below(self._picks, sample.below)
        kept = self._picks < self._below
        self._picks, self._hashes = self._picks[kept], self._hashes[:, kept]

    def sentences(self) -> list[str]:
        """What the owner should know, a sentence each; nothing, as a rule."""
        if self._n_rows == 0:
            return ["there are no rows; the tree is trained as if there were some."]
        schema = self._schema
        found: dict[str, list[str]] = {}
        for column, seen, values in zip(schema.columns, self._bins, self._values, strict=True):
            for sentence in _about_column(column, seen, values):
                found.setdefault(sentence, []).append(column.name)
        sentences = [s.format(columns=_named("column", "columns", names)) for s, names in found.items()]
        if absent := [c for c, seen in zip(schema.classes, self._classes, strict=True) if not seen]:
            sentences.append(f"no row has the {_named('class', 'classes', absent)} of {schema.label!r}.")
        return [*sentences, *self._about_copies()]

    def _about_copies(self) -> Iterator[str]:
        times = np.unique(_joined(self._hashes), return_counts=True)[1]
        share = _share_of_copies(times)
        if not self._looks_for_copies or times.sum() < ENOUGH_ROWS:
            return
        if share > TENTH + 2 * self._usual_share_of_copies():
            yield (
                f"about {100 * share:.0f} % of the rows are exact copies of others; one of them stands there "
                f"{times.max()} times. Privacy is counted a row: whoever stands in a table {times.max()} times pays "
                f"{times.max()} times epsilon. Do not repeat rows to balance the classes."
            )

    def _usual_share_of_copies(self) -> float:
        """The share that chance would make, if one half of the columns told nothing about the other.

        Rows put together from the halves of different rows are equal as often as there are few values.
        """
        first = np.unique(_joined(self._hashes), return_index=True)[1]
        halves = self._hashes[:, np.random.default_rng(0).permutation(first)]
        times = np.unique(_joined(np.array([halves[0], np.roll(halves[1], 1)])), return_counts=True)[1]
        others = float((times * (times - 1)).sum()) / len(first) * self._n_rows / len(first)
        return 1 - (1 - math.exp(-others)) / others if others else 0.0


def _share_of_copies(times: NDArray[np.int64]) -> float:
    """Of rows that stand there so many times, the share that are not the first."""
    return 1 - len(times) / max(int(times.sum()), 1)


def _mark(seen: NDArray[np.bool_], codes: NDArray[Any]) -> None:
    """Mark the codes that occur; all rows are looked at only if a few of them do not have all codes."""
    if not seen.all():
        seen[codes[:: max(1, len(codes) // MOST_SAMPLED)]] = True
    if not seen.all():
        seen[np.bincount(codes, minlength=len(seen)) > 0] = True


def _about_column(column: Column, seen: NDArray[np.bool_], values: _Values) -> Iterator[str]:
    """Sentences about a column; those that are said of several are said once."""
    if values.are_identifiers:
        yield (
            "{columns}: hardly two rows have the same value, as if it named people. Leave identifiers out of the "
            "schema; nothing can be learned from them."
        )
    if isinstance(column, Categorical):
        named, has_others = seen[: column.other_bin], bool(seen[column.other_bin])
        if not named.any():
            yield "{columns}: no row has one of the categories; are they written differently?"
        elif has_others and not named.all():  # neither is a mistake by itself
            absent = [c for c, is_there in zip(column.categories, named, strict=True) if not is_there]
            what = _named("category", "categories", absent).replace("{", "{{").replace("}", "}}")
            yield f"{{columns}}: some values are none of the categories, and no row has the {what}; is it written differently?"
        return
    ask = "Are unit, scaling and the order of the columns those of the schema?"
    n_beyond = values.n_outside + values.n_at_bound
    if values.n_outside > TENTH * values.n_values:
        share = "most" if n_beyond > HALF * values.n_values else "more than a tenth of the"
        yield f"{{columns}}: {share} values lie at or outside the bounds. {ask}"
    elif seen[: len(column.cuts) + 1].sum() == 1 and len(column.cuts) > 1:
        yield f"{{columns}}: all values fall into one bin, so no split divides them; are the bounds too wide? {ask}"
    elif n_beyond > HALF * values.n_values:
        yield "{columns}: most values lie at a bound; check the bounds unless that is what they are like."


def _named(one: str, several: str, names: Sequence[Any]) -> str:
    shown = ", ".join(repr(name) for name in names[:MOST_NAMED])
    more = f" and {len(names) - MOST_NAMED} more" if len(names) > MOST_NAMED else ""
    return f"{one if len(names) == 1 else several} {shown}{more}"


# ---- Rows that were trained on before ----------------------------------------------------------------------


@dataclass
class _Spent:
    epsilon: float
    is_said: bool


class SpentInProcess:
    """What this process has spent on rows that it has seen more than once; in memory, by keyed hashes.

    Fits of the same rows, or of many of them (the folds of a cross-validation), are recognised by rows that are unlike
    all others: in tables that have few such rows, only by all rows together.
    """

    MOST_REMEMBERED = 2**20

    def __init__(self) -> None:
        self._known: dict[int, _Spent] = {}
        self._one_at_a_time = threading.Lock()

    def add(self, sample: Sample, n_rows: int, epsilon: float, tell: Callable[[str], None]) -> None:
        """Remember a fit that is about to spend epsilon; tell the owner, once, if it is not the first.

        Where `tell` raises, nothing will be spent and nothing is remembered.
        """
        keys = _recognisable(sample, n_rows)
        with self._one_at_a_time:
            before = [self._known[key] for key in keys if key in self._known]
            is_again = _are_known(np.array([key in self._known for key in keys], dtype=bool))
            if is_again and not any(spent.is_said for spent in before):
                total = max(spent.epsilon for spent in before) + epsilon
                tell(
                    "these rows, or many of them, have been trained on before in this process. What is spent on a row "
                    f"adds up: epsilon {total:g} so far, and every further fit adds its own. (Searches, "
                    "cross-validation and calibration fit many times. This is said once.)"
                )
            for key in keys:
                spent = self._known.setdefault(key, _Spent(0.0, is_said=False))
                spent.epsilon += epsilon
                spent.is_said |= is_again
            while len(self._known) > self.MOST_REMEMBERED:
                del self._known[next(iter(self._known))]


def _recognisable(sample: Sample, n_rows: int) -> list[int]:
    """Hashes by which rows are recognised: of single rows that are unlike all others, or of all together."""
    hashes, first, times = np.unique(sample.whole(), return_index=True, return_counts=True)
    alone = times == 1
    if alone.sum() >= max(LEAST_RECOGNISED, (1 - TENTH) * len(sample.rows)):
        # By pick: of a larger table only the lowest picks are remembered.
        in_order = np.argsort(sample.picks[first[alone]], kind="stable")
        return hashes[alone][in_order][:MOST_RECOGNISED].tolist()  # type: ignore[no-any-return]
    return [hash((n_rows, sample.below, tuple(hashes.tolist()), tuple(times.tolist())))] if n_rows else []


def _are_known(known: NDArray[np.bool_]) -> bool:
    """Whether a third of the rows have been seen before: of the first 32, or 64, or more.

    Rows of another table are hardly ever equal by chance where nine rows of ten are unlike all others.
    """
    if len(known) <= 1:
        return bool(known.any())
    sizes = 2 ** np.arange(5, 20)
    return any(known[:size].mean() > 1 / 3 for size in sizes[sizes // 2 < len(known)])


SPENT_IN_PROCESS = SpentInProcess()
