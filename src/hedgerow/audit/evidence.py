"""What an attacker who knows every row but one makes of a holder's answers.

The attacker counts with code of its own, not with the holder's. Imports the messages and the criteria.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import product

import numpy as np
from numpy.typing import NDArray

from hedgerow.audit.neighbours import Encoded, Neighbours
from hedgerow.criteria import FRACTION_BITS, score_sensitivity, weighted_impurities
from hedgerow.holder.holder import Holder
from hedgerow.messages import (
    CountCells,
    CountColumns,
    CountForks,
    CountRows,
    CountSplits,
    Grow,
    Nominate,
    NominateAndCount,
    NominateForks,
    Query,
)
from hedgerow.privacy.audit import Outcome
from hedgerow.repeated import IntArray, Repeated
from hedgerow.schema import Schema

FloatArray = NDArray[np.float64]
Path = tuple[tuple[int, int], ...]  # (split, side) from the root on
NONE = -1  # a side of a fork that no split can divide
SPLITS = {NominateForks: 3, NominateAndCount: 1, Nominate: 1}  # that an answer names


@dataclass(frozen=True, eq=False)
class Evidence:
    """How much likelier answers are with the row than without, one entry an answer about a node.

    `choice` and `counts` are log likelihood ratios, up to a constant, of noise as large as is claimed: of the
    exponential mechanism, and of Laplace noise. For honest counts their sum is the best statistic there is (Neyman and
    Pearson), however many counts the row is spread over. If the noise is not as claimed they are still functions of
    the answer, so a bound found with them is valid. The counts in which the row is not should show nothing: `exact`
    is how many of them came without noise, `deviation` how much noise is in all of them.
    """

    choice: FloatArray
    counts: FloatArray
    exact: FloatArray
    deviation: FloatArray

    def outcomes(self, runs: int) -> list[Outcome]:
        """One outcome a run of the consecutive answers of `runs` runs: the sum of both ratios, then each of them."""
        each = [
            part.reshape(runs, -1).sum(axis=1)
            for part in (self.choice, self.counts, self.exact, self.deviation)
        ]
        # Rounded: sums in another order are the same outcome.
        return list(map(tuple, np.round(np.column_stack([each[0] + each[1], *each]), 6).tolist()))


class Insider:
    """Knows both neighbours: what an honest holder would count without the row and with it."""

    def __init__(self, neighbours: Neighbours) -> None:
        self.schema = neighbours.schema
        self._max_rows = neighbours.max_rows
        self._tables = [_Table(side, neighbours.schema) for side in neighbours.sides]
        self._counted: dict[tuple[type[Query], Path, tuple[int, ...]], tuple[IntArray, IntArray]] = {}

    def evidence(self, paths: Sequence[Path], query: Query, answer: IntArray) -> Evidence:
        """What the answer to a query says about the row; `paths` lead to the nodes by their numbers."""
        n = len(query.nodes)
        answers = answer.reshape(n, -1)
        n_splits = SPLITS.get(type(query), 0)
        named = answers[:, :n_splits]
        if isinstance(query, CountCells):
            named = query.splits[:, None]
        elif isinstance(query, CountForks):
            named = query.forks
        noisy = answers[:, n_splits:]
        keys, which = np.unique(np.column_stack([query.nodes, named]), axis=0, return_inverse=True)
        which = which.ravel()
        pairs = [self._expected(type(query), paths[node], tuple(splits)) for node, *splits in keys.tolist()]
        expected = np.array(pairs)  # [key, with the row, count]
        choice, counts, exact, deviation = np.zeros((4, n))
        if isinstance(query, Nominate):
            choice = -Repeated.of(query.epsilons).each(float) * self._falls(query, expected, which)
        if noisy.shape[1]:
            prices = query.cell_epsilons if isinstance(query, NominateAndCount) else query.epsilons
            scales = self._histograms(query) / Repeated.of(prices).each(float)
            off = np.abs(noisy - expected[which, 0])
            ratios = off - np.abs(noisy - expected[which, 1])
            counts = ratios.sum(axis=1) / scales
            shared = (expected[:, 0] == expected[:, 1])[which]
            exact, deviation = (shared & (off == 0)).sum(axis=1), (shared * off).sum(axis=1)
        return Evidence(choice, counts, exact, deviation)

    def holds_row(self, path: Path) -> bool:
        """Whether the row in question is at a node."""
        without, with_row = self._expected(CountRows, path, ())
        return bool((without != with_row).any())

    def _falls(self, query: Nominate, expected: FloatArray, which: IntArray) -> FloatArray:
        """By how much the row lowers the score of what was chosen, as a share of what the noise is made for."""
        n_classes = self.schema.n_classes
        parts = expected.reshape(len(expected), 2, -1, n_classes)
        falls = np.empty(len(which))
        criteria = Repeated.of(query.criteria)
        for i, criterion in enumerate(criteria.items):
            mine = criteria.which == i
            impurities = weighted_impurities(parts, criterion).sum(axis=2)
            rows = score_sensitivity(criterion, n_classes, self._max_rows) / 2**FRACTION_BITS
            falls[mine] = ((impurities[:, 1] - impurities[:, 0]) / rows)[which[mine]]
        return falls

    def _histograms(self, query: Query) -> int:
        kinds = {CountSplits: len(self.schema.splits), CountColumns: len(self.schema.columns)}
        return kinds.get(type(query), 1)

    def _expected(self, kind: type[Query], path: Path, splits: tuple[int, ...]) -> tuple[IntArray, IntArray]:
        """What a query counts at a node, without and with the row; the same few are asked for again and again."""
        key = kind, path, splits
        if key not in self._counted:
            without, with_row = (table.count(*key).ravel() for table in self._tables)
            self._counted[key] = without, with_row
        return self._counted[key]


class _Table:
    """One of the neighbours, counted the simple way."""

    def __init__(self, encoded: Encoded, schema: Schema) -> None:
        codes, labels = encoded
        self._bins = np.stack([codes.column(i).astype(np.int64) for i in range(len(schema.columns))])
        self._classes = (labels == np.arange(schema.n_classes)[:, None]).astype(np.int64)  # [class, row]
        self._schema = schema
        self._sides: dict[tuple[int, int], NDArray[np.bool_]] = {}

    def count(self, kind: type[Query], path: Path, splits: tuple[int, ...]) -> IntArray:
        here = np.ones(self._bins.shape[1], dtype=bool)
        for split, side in path:
            here = here & self._side(split, side)
        if kind in {NominateForks, CountForks}:
            first, *below = splits
            return np.array([
                self._labels(here & self._side(first, side) & self._side(below[side], within))
                for side, within in product((0, 1), repeat=2)
            ])  # fmt: skip
        if kind in {Nominate, NominateAndCount, CountCells}:
            return self._cells(here, splits[0])
        if kind is CountSplits:
            return np.array([self._cells(here, split) for split in range(len(self._schema.splits))])
        if kind is CountColumns:
            return np.array([
                self._labels(here & (bins == b))
                for bins, n_bins in zip(self._bins, self._schema.n_bins, strict=True)
                for b in range(n_bins)
            ])  # fmt: skip
        labels = self._labels(here)
        return labels.sum(keepdims=True) if kind is CountRows else labels

    def _cells(self, here: NDArray[np.bool_], split: int) -> IntArray:
        return np.array([self._labels(here & self._side(split, side)) for side in (0, 1)])

    def _side(self, split: int, side: int) -> NDArray[np.bool_]:
        """Which rows go to a side of a split; all go left where there is none."""
        if split == NONE:
            return np.full(self._bins.shape[1], side == 0)
        if (split, side) not in self._sides:
            rule = self._schema.splits[split]
            bins = self._bins[rule.column]
            goes_left = ((bins >= rule.first) & (bins <= rule.last)) | (bins == rule.also)
            self._sides[split, 0], self._sides[split, 1] = goes_left, ~goes_left
        return self._sides[split, side]

    def _labels(self, here: NDArray[np.bool_]) -> IntArray:
        counts: IntArray = self._classes @ here
        return counts


@dataclass
class Transcript:
    """All that one holder says in a study, and what it shows of the row."""

    insider: Insider
    _paths: list[Path] = field(default_factory=lambda: [()])
    _heard: list[Evidence] = field(default_factory=list)

    def grow(self, growth: Grow) -> None:
        """Follow an announcement."""
        for node, split in zip(growth.nodes.tolist(), growth.splits.tolist(), strict=True):
            self._paths += [(*self._paths[node], (split, side)) for side in (0, 1)]

    def hear(self, query: Query, answer: IntArray) -> None:
        """Write an answer down."""
        self._heard.append(self.insider.evidence(self._paths, query, answer))

    def outcome(self) -> Outcome:
        """The evidence of all answers together, and their number."""
        parts = ("choice", "counts", "exact", "deviation")
        total = Evidence(*(np.concatenate([getattr(heard, part) for heard in self._heard]) for part in parts))
        return (*total.outcomes(1)[0], len(self._heard))


def overhear(holder: Holder, insider: Insider) -> Transcript:
    """The transcript of all that a holder will answer from now on."""
    transcript = Transcript(insider)
    answer: Callable[..., IntArray] = holder.answer

    def answer_aloud(query: Query, growth: Grow | None = None) -> IntArray:
        noisy = answer(query, growth)
        if growth is not None:
            transcript.grow(growth)
        transcript.hear(query, noisy)
        return noisy

    holder.answer = answer_aloud  # type: ignore[method-assign]
    return transcript
