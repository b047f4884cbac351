"""The data holder: the only place where exact counts and noise meet.

Every answer is charged to the holder's own ledger before noise is drawn, and no answer, error or branch
depends on the rows in any other way.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hedgerow.criteria import score_sensitivity, to_fixed_point
from hedgerow.holder.counts import GroupedRows
from hedgerow.messages import (
    ROOT,
    CountCells,
    CountColumns,
    CountLabels,
    CountRows,
    CountSplits,
    Grow,
    IntArray,
    Nominate,
    Query,
)
from hedgerow.privacy.ledger import Ledger
from hedgerow.privacy.noise import Noise
from hedgerow.privacy.selectors import SELECTORS


class Holder:
    """Answers queries about its rows with noise, and keeps the account."""

    def __init__(self, rows: GroupedRows, noise: Noise, ledger: Ledger, max_rows: int) -> None:
        self._rows = rows
        self._noise = noise
        self._max_rows = max_rows
        self.ledger = ledger
        self._path_key = {ROOT: 1}  # names a node by the splits that lead to it, for seeded noise

    def grow(self, announcement: Grow) -> None:
        """Follow the coordinator's tree: partition the rows of the nodes that it has split."""
        for node, (left, right) in zip(
            announcement.nodes.tolist(), announcement.children.tolist(), strict=True
        ):
            self.ledger.divide(node, (left, right))
            key = self._path_key[node]
            self._path_key[left], self._path_key[right] = 2 * key, 2 * key + 1
        self._rows.split(announcement.nodes, announcement.splits, announcement.children)

    def answer(self, query: Query) -> IntArray:
        """One noisy answer; charged first, refused if it would cost too much."""
        match query:
            case Nominate():
                self._charge(query, query.selector, "choice of a split")
                return self._nominate(query)
            case CountCells():
                self._charge(query, "discrete Laplace", "cells of a split")
                return self._noisy(query, self._rows.cells(query.nodes, query.splits))
            case CountRows():
                self._charge(query, "discrete Laplace", "number of rows")
                return self._noisy(query, self._rows.label_counts(query.nodes).sum(axis=1, keepdims=True))
            case CountLabels():
                self._charge(query, "discrete Laplace", "class counts")
                return self._noisy(query, self._rows.label_counts(query.nodes))
            case CountSplits():
                self._charge(query, "discrete Laplace", "cells of every split")
                n_splits = len(self._rows.schema.splits)
                return self._noisy(query, self._rows.all_cells(query.nodes), sensitivity=n_splits)
            case CountColumns():
                self._charge(query, "discrete Laplace", "histograms of every column")
                n_columns = len(self._rows.schema.columns)
                return self._noisy(query, self._rows.columns(query.nodes), sensitivity=n_columns)

    def _charge(self, query: Query, mechanism: str, what: str) -> None:
        self.ledger.charge(query.nodes.tolist(), mechanism, what, query.epsilons)

    def _nominate(self, query: Nominate) -> IntArray:
        """Selection on V = -F(left) - F(right), in fixed point (docs/privacy.md, selection)."""
        selector = SELECTORS[query.selector]
        n_classes = self._rows.schema.n_classes
        chosen = np.empty(len(query.nodes), dtype=np.int64)
        for batch, histograms in self._rows.histograms(query.nodes):
            for (epsilon, criterion), here in _alike(batch, query.epsilons, query.criteria):
                mine = self._rows.scores(histograms[here - batch[0]], criterion)
                sensitivity = score_sensitivity(criterion, n_classes, self._max_rows)
                if math.isinf(epsilon):
                    chosen[here] = mine.argmax(axis=1)
                else:
                    chosen[here] = selector.select(
                        to_fixed_point(mine), sensitivity, Fraction(epsilon), self._noise,
                        self._keys(query, here),
                    )  # fmt: skip
        return chosen

    def _noisy(self, query: Query, counts: IntArray, sensitivity: int = 1) -> IntArray:
        """Noise of scale sensitivity/epsilon, where a row changes `sensitivity` of a node's counts by one.

        That is one of disjoint cells, and one of each histogram where there are several over the same rows.
        """
        noisy = counts.reshape(len(counts), -1).copy()
        for (epsilon,), here in _alike(np.arange(len(counts)), query.epsilons):
            if not math.isinf(epsilon):
                noisy[here] = self._noise.laplace(
                    noisy[here], sensitivity / Fraction(epsilon), self._keys(query, here)
                )
        return noisy.reshape(counts.shape)

    def _keys(self, query: Query, here: IntArray) -> NDArray[np.uint64]:
        """A number for each (kind of query, path): seeded noise does not depend on the order of asking."""
        purpose = {CountRows: 1, Nominate: 2, CountCells: 3, CountLabels: 4, CountSplits: 5, CountColumns: 6}[
            type(query)
        ]
        paths = [self._path_key[node] for node in query.nodes[here].tolist()]
        return np.array([_mix(8 * path + purpose) for path in paths], dtype=np.uint64)


def _alike(positions: IntArray, *facts: Sequence[Any]) -> Iterator[tuple[tuple[Any, ...], IntArray]]:
    """The positions that share all facts, such as epsilon: one call of a mechanism for all of them."""
    groups: dict[tuple[Any, ...], list[int]] = {}
    for i in positions.tolist():
        groups.setdefault(tuple(fact[i] for fact in facts), []).append(i)
    for shared, here in groups.items():
        yield shared, np.array(here)


def _mix(number: int) -> int:
    """64 well-mixed bits of a number of any size."""
    state = 0
    while number:
        state = (state ^ (number & (2**64 - 1))) * 0xBF58476D1CE4E5B9 % 2**64
        state ^= state >> 31
        number >>= 64
    return state
