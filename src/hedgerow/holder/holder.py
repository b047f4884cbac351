"""The data holder: the only place where exact counts and noise meet.

Every answer is charged to the holder's own ledger before noise is drawn, and no answer, error or branch
depends on the rows in any other way.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from hedgerow.criteria import score_sensitivity, to_fixed_point
from hedgerow.holder.counts import GroupedRows
from hedgerow.messages import ROOT, CountCells, CountLabels, CountRows, Epsilon, Grow, IntArray, Nominate, Query
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

    def _charge(self, query: Query, mechanism: str, what: str) -> None:
        self.ledger.charge(query.nodes.tolist(), mechanism, what, query.epsilons)

    def _nominate(self, query: Nominate) -> IntArray:
        """Selection on V = -F(left) - F(right), in fixed point (docs/privacy.md, selection)."""
        selector = SELECTORS[query.selector]
        sensitivity = score_sensitivity(query.criterion, self._rows.schema.n_classes, self._max_rows)
        chosen = np.empty(len(query.nodes), dtype=np.int64)
        for batch, histograms in self._rows.histograms(query.nodes):
            scores = self._rows.scores(histograms, query.criterion)
            for epsilon, here in _alike(query, batch):
                mine = scores[here - batch[0]]
                if math.isinf(epsilon):
                    chosen[here] = mine.argmax(axis=1)
                else:
                    chosen[here] = selector.select(
                        to_fixed_point(mine), sensitivity, Fraction(epsilon), self._noise,
                        self._keys(query, here),
                    )  # fmt: skip
        return chosen

    def _noisy(self, query: Query, counts: IntArray) -> IntArray:
        """Counts of disjoint cells: a row changes one of them by one, so the scale is 1/epsilon."""
        noisy = counts.reshape(len(counts), -1).copy()
        for epsilon, here in _alike(query, np.arange(len(counts))):
            if not math.isinf(epsilon):
                noisy[here] = self._noise.laplace(noisy[here], 1 / Fraction(epsilon), self._keys(query, here))
        return noisy.reshape(counts.shape)

    def _keys(self, query: Query, here: IntArray) -> NDArray[np.uint64]:
        """A number for each (kind of query, path): seeded noise does not depend on the order of asking."""
        purpose = {CountRows: 0, Nominate: 1, CountCells: 2, CountLabels: 3}[type(query)]
        paths = [self._path_key[node] for node in query.nodes[here].tolist()]
        return np.array([_mix(4 * path + purpose) for path in paths], dtype=np.uint64)


def _alike(query: Query, positions: IntArray) -> Iterator[tuple[Epsilon, IntArray]]:
    """The positions that share an epsilon, and so a scale: one call of a mechanism for all of them."""
    groups: dict[Epsilon, list[int]] = {}
    for i in positions.tolist():
        groups.setdefault(query.epsilons[i], []).append(i)
    for epsilon, here in groups.items():
        yield epsilon, np.array(here)


def _mix(number: int) -> int:
    """64 well-mixed bits of a number of any size."""
    state = 0
    while number:
        state = (state ^ (number & (2**64 - 1))) * 0xBF58476D1CE4E5B9 % 2**64
        state ^= state >> 31
        number >>= 64
    return state
