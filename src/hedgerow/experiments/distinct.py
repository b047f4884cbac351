"""Equal rows are kept once, with how often they occur: 445,000 rows of kddcup99 are 15,000 different ones.

Only for simulations: how many rows of a table differ is nobody's business but the holder's.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hedgerow.compiled import compiled
from hedgerow.encoding import Codes
from hedgerow.holder.counts import Counts, GroupedRows, IntArray
from hedgerow.schema import Schema
from hedgerow.tree import Tree


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


class RepeatedRows(GroupedRows):
    """Exact counts over rows of which each occurs several times."""

    def __init__(self, distinct: Distinct, times: IntArray, schema: Schema) -> None:
        super().__init__(distinct.codes, distinct.labels, schema, np.flatnonzero(times))
        self._times = times

    @property
    def n_rows(self) -> int:
        """Number of rows, counted as often as they occur."""
        return int(self._times.sum())

    def label_counts(self, nodes: IntArray) -> IntArray:
        """See `GroupedRows.label_counts`."""
        out = np.zeros((len(nodes), self.schema.n_classes), dtype=np.int64)
        _count_labels(self._order, self._times, self._label_bits, self._ranges[self._places(nodes)], out)
        return out

    def _count(self, places: IntArray) -> None:
        targets = self._row[places]
        self._store[targets] = 0
        for matrix, offsets in self._matrices:
            _count(
                matrix, self._order, self._times, self._label_bits, self._ranges[places], offsets, self._store,
                targets,
            )  # fmt: skip


@compiled
def _count_labels(
    order: NDArray[Any], times: IntArray, label_bits: int, ranges: IntArray, out: IntArray
) -> None:
    bits = np.uint64(label_bits)
    labels = (np.uint64(1) << bits) - np.uint64(1)
    for i in range(len(ranges)):
        for j in range(ranges[i, 0], ranges[i, 1]):
            entry = np.uint64(order[j])
            out[i, entry & labels] += times[entry >> bits]


@compiled
def _count(
    codes: NDArray[Any],
    order: NDArray[Any],
    times: IntArray,
    label_bits: int,
    ranges: IntArray,
    offsets: NDArray[np.uint64],
    out: Counts,
    targets: IntArray,
) -> None:
    bits = np.uint64(label_bits)
    labels = (np.uint64(1) << bits) - np.uint64(1)
    for i in range(len(ranges)):
        for j in range(ranges[i, 0], ranges[i, 1]):
            entry = np.uint64(order[j])
            row, of_class = entry >> bits, out[targets[i], entry & labels]
            n = np.int32(times[row])
            for f in range(codes.shape[1]):
                of_class[offsets[f] + np.uint64(codes[row, f])] += n
