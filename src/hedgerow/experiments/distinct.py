"""Equal rows are kept once, with how often they occur: 445,000 rows of kddcup99 are 15,000 different ones.

Only for simulations: how many rows of a table differ is nobody's business but the holder's.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hedgerow.compiled import compiled
from hedgerow.encoding import Codes
from hedgerow.holder.counts import NONE, ROOT, Counts, GroupedRows, IntArray, partition_by
from hedgerow.schema import Schema
from hedgerow.tree import Tree

N_NODES = 256  # room at first; more is made as it is needed
MANY_ROWS = 2**62
MOST_BYTES = 64 * 2**20
WORTH_REMEMBERING = 2_000  # different rows of a node: fewer are counted as fast as looked up

# The sides of splits that lead to a node, in any order: 2 x split, 1 more for the right side.
Way = frozenset[int]


@dataclass(frozen=True)
class Distinct:
    """The different rows of a table, with their labels, and which of them each row of the table is."""

    codes: Codes
    labels: NDArray[Any]
    which: IntArray

    @classmethod
    def of(cls, codes: Codes, labels: NDArray[Any]) -> Distinct:
        """Of all rows."""
        parts = (codes.narrow, codes.wide, labels.reshape(-1, 1))
        as_bytes = np.concatenate([np.ascontiguousarray(part).view(np.uint8) for part in parts], axis=1)
        keys = np.ascontiguousarray(as_bytes).view(np.dtype((np.void, as_bytes.shape[1]))).ravel()
        _, first, which = np.unique(keys, return_index=True, return_inverse=True)
        return cls(codes.take(first), labels[first], which.ravel())

    @cached_property
    def all_times(self) -> IntArray:
        """How often each occurs in the table."""
        return self.times(np.arange(len(self.which)))

    def times(self, rows: IntArray) -> IntArray:
        """How often each occurs among these rows of the table."""
        return np.bincount(self.which[rows], minlength=len(self.labels))

    def accuracy(self, tree: Tree, times: IntArray) -> float:
        """The share of rows whose label the tree predicts, when each occurs so often."""
        present = np.flatnonzero(times)
        leaves = tree.apply(self.codes.take(present) if len(present) < len(times) else self.codes)
        is_right = tree.counts.argmax(axis=1)[leaves] == self.labels[present]
        return float(times[present][is_right].sum() / times.sum())


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


class RepeatedRows(GroupedRows):
    """Exact counts over rows of which each occurs several times.

    They are so few that a node is counted as soon as its parent is split, and that no histogram is given up.
    Large nodes are looked up in `memory` first, if there is one; it must be of the same rows.
    """

    def __init__(
        self, distinct: Distinct, times: IntArray, schema: Schema, memory: Histograms | None = None
    ) -> None:
        super().__init__(distinct.codes, distinct.labels, schema, np.flatnonzero(times))
        self._times, self._memory = times, memory
        # By node: its split, its parent, the range of its rows, and its histogram.
        self._n_nodes = 1
        self._splits, self._parents = np.full(N_NODES, NONE), np.full(N_NODES, NONE)
        self._spans = np.zeros((N_NODES, 2), dtype=np.int64)
        self._spans[ROOT, 1] = len(self._order)
        self._counts = np.zeros((N_NODES, *self._store.shape[1:]), dtype=np.int32)
        self._fill(ROOT)

    @property
    def n_rows(self) -> int:
        """Number of rows, counted as often as they occur."""
        return int(self._times.sum())

    def split(self, nodes: IntArray, splits: IntArray) -> None:
        """See `GroupedRows.split`."""
        first = self._n_nodes
        last = self._n_nodes = first + 2 * len(nodes)
        while len(self._parents) < last:
            self._splits, self._parents, self._spans, self._counts = (
                np.concatenate([known, np.zeros_like(known)])
                for known in (self._splits, self._parents, self._spans, self._counts)
            )
        self._splits[nodes] = splits
        self._parents[first:last] = np.repeat(nodes, 2)
        large = _split(
            *self._columns, *self._codes, *self._offsets, self._order, self._scratch, self._times,
            self._label_bits, self._rules[splits], nodes, first, self._spans, self._counts,
            MANY_ROWS if self._memory is None else WORTH_REMEMBERING,
        )  # fmt: skip
        for node in large.tolist():
            self._fill(node)
            sibling = ((node - 1) ^ 1) + 1
            self._counts[sibling] = self._counts[self._parents[node]] - self._counts[node]

    def _ranges_of(self, nodes: IntArray) -> IntArray:
        return self._spans[nodes]

    def histograms(self, nodes: IntArray) -> Iterator[tuple[IntArray, Counts, IntArray]]:
        """See `GroupedRows.histograms`."""
        yield np.arange(len(nodes)), self._counts, nodes

    def cells(self, nodes: IntArray, splits: IntArray) -> IntArray:
        """See `GroupedRows.cells`."""
        return self._cells_of(self._counts, nodes, splits)

    def label_counts(self, nodes: IntArray) -> IntArray:
        """See `GroupedRows.label_counts`."""
        one_column = self._counts[nodes, :, : int(self.schema.n_bins[0])]
        counts: IntArray = one_column.sum(axis=2, dtype=np.int64)
        return counts

    def _fill(self, node: int) -> None:
        """Count a large node, or remember its counts."""
        known = None if self._memory is None else self._memory.find(self._way(node))
        if known is not None:
            self._counts[node] = known
            return
        _count(
            *self._codes, *self._offsets, self._order, self._times, np.uint64(self._label_bits),
            *self._spans[node], self._counts[node],
        )  # fmt: skip
        if self._memory is not None:
            self._memory.keep(self._way(node), self._counts[node])

    def _way(self, node: int) -> Way:
        """The sides of splits that lead to a node."""
        sides = []
        while node != ROOT:
            parent = int(self._parents[node])
            sides.append(2 * int(self._splits[parent]) + (node + 1) % 2)
            node = parent
        return frozenset(sides)


@compiled
def _split(
    narrow_columns: NDArray[np.uint8],
    wide_columns: NDArray[np.uint16],
    narrow: NDArray[np.uint8],
    wide: NDArray[np.uint16],
    narrow_offsets: NDArray[np.uint64],
    wide_offsets: NDArray[np.uint64],
    order: NDArray[Any],
    scratch: NDArray[Any],
    times: IntArray,
    label_bits: int,
    rules: IntArray,
    nodes: IntArray,
    first: int,
    spans: IntArray,
    counts: Counts,
    most_rows: int,
) -> IntArray:
    """Split nodes into children numbered `first`, `first + 1`, ..., and count them.

    The smaller child is counted, the other is the rest. Smaller children of `most_rows` or more are left to the
    caller: their numbers.
    """
    bits = np.uint64(label_bits)
    large = np.empty(len(nodes), np.int64)
    n_large = 0
    for i in range(len(nodes)):
        start, stop = spans[nodes[i], 0], spans[nodes[i], 1]
        column, span = rules[i, 1], (rules[i, 2], rules[i, 3], rules[i, 4])
        if rules[i, 0]:
            n_left = partition_by(wide_columns[column], order, bits, start, stop, span, scratch)
        else:
            n_left = partition_by(narrow_columns[column], order, bits, start, stop, span, scratch)
        order[start + n_left : stop] = scratch[start : stop - n_left]
        left, right = first + 2 * i, first + 2 * i + 1
        spans[left, 0], spans[left, 1] = start, start + n_left
        spans[right, 0], spans[right, 1] = start + n_left, stop
        smaller, larger = (left, right) if 2 * n_left <= stop - start else (right, left)
        n_rows = spans[smaller, 1] - spans[smaller, 0]
        if n_rows >= most_rows:
            large[n_large] = smaller
            n_large += 1
            continue
        mine, rest, whole = counts[smaller], counts[larger], counts[nodes[i]]
        _count(
            narrow,
            wide,
            narrow_offsets,
            wide_offsets,
            order,
            times,
            bits,
            spans[smaller, 0],
            spans[smaller, 1],
            mine,
        )
        for a in range(mine.shape[0]):
            for b in range(mine.shape[1]):
                rest[a, b] = whole[a, b] - mine[a, b]
    return large[:n_large]


@compiled
def _count(
    narrow: NDArray[np.uint8],
    wide: NDArray[np.uint16],
    narrow_offsets: NDArray[np.uint64],
    wide_offsets: NDArray[np.uint64],
    order: NDArray[Any],
    times: IntArray,
    bits: np.uint64,
    start: int,
    stop: int,
    out: Counts,
) -> None:
    """The histogram [class, bin] of a range of rows."""
    out[:] = 0
    labels = (np.uint64(1) << bits) - np.uint64(1)
    for j in range(start, stop):
        entry = np.uint64(order[j])
        row, of_class = entry >> bits, out[entry & labels]
        n = np.int32(times[row])
        for f in range(narrow.shape[1]):
            of_class[narrow_offsets[f] + np.uint64(narrow[row, f])] += n
        for f in range(wide.shape[1]):
            of_class[wide_offsets[f] + np.uint64(wide[row, f])] += n
