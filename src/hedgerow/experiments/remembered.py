"""Exact histograms that outlive a tree: runs over the same rows meet the same nodes again, most of all near the root.

Only for simulations, whose trees are all learned from the same rows by one process.
"""

from __future__ import annotations

from collections import OrderedDict

import numpy as np

from hedgerow.experiments.distinct import Distinct, RepeatedRows
from hedgerow.holder.counts import Counts, IntArray
from hedgerow.schema import Schema

MOST_BYTES = 64 * 2**20
WORTH_REMEMBERING = 2_000  # different rows of a node: fewer are counted as fast as looked up

# The sides of splits that lead to a node, in any order: 2 x split, 1 more for the right side.
Way = frozenset[int]


class Histograms:
    """Histograms [class, bin] of nodes, by the way to them; the one that was not asked for longest goes first."""

    def __init__(self, most_bytes: int = MOST_BYTES) -> None:
        self._most_bytes = most_bytes
        self._known: OrderedDict[Way, Counts] = OrderedDict()

    def find(self, way: Way) -> Counts | None:
        """The histogram, if it is remembered."""
        found = self._known.get(way)
        if found is not None:
            self._known.move_to_end(way)
        return found

    def keep(self, way: Way, histogram: Counts) -> None:
        """Remember a copy; all histograms are of one size."""
        if (len(self._known) + 1) * histogram.nbytes > self._most_bytes and self._known:
            self._known.popitem(last=False)
        self._known[way] = histogram.copy()


class RememberedRows(RepeatedRows):
    """Rows that count a large node only if no tree has met it before."""

    def __init__(self, distinct: Distinct, schema: Schema, histograms: Histograms) -> None:
        super().__init__(distinct, distinct.all_times, schema)
        self._histograms = histograms
        self._ways: list[Way] = [frozenset()]

    def split(self, nodes: IntArray, splits: IntArray, children: IntArray) -> None:
        """See `GroupedRows.split`."""
        for place, split in zip(self._places(nodes).tolist(), splits.tolist(), strict=True):
            way = self._ways[place]
            self._ways += [way | {2 * split}, way | {2 * split + 1}]
        super().split(nodes, splits, children)

    def _count(self, places: IntArray) -> None:
        size = self._ranges[places, 1] - self._ranges[places, 0]
        is_new = np.ones(len(places), dtype=bool)
        large = np.flatnonzero(size >= WORTH_REMEMBERING).tolist()
        for i in large:
            known = self._histograms.find(self._ways[places[i]])
            if known is not None:
                self._store[self._row[places[i]]] = known
                is_new[i] = False
        super()._count(places[is_new])
        for i in large:
            if is_new[i]:
                self._histograms.keep(self._ways[places[i]], self._store[self._row[places[i]]])
