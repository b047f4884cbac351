"""Exact counts over a holder's rows. Nothing here may leave the holder but through `holder.py`, with noise.

Rows are kept grouped by node: a permutation in which every node is one range, each entry a row's number with its
label in the lowest bits. Splitting a node partitions its range; the codes are never moved.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hedgerow.compiled import AHEAD, compiled, prefetch_row
from hedgerow.criteria import Criterion, add_impurities
from hedgerow.encoding import Codes, check_codes
from hedgerow.errors import InvalidTable
from hedgerow.schema import Schema
from hedgerow.threads import even_parts, n_threads, run_all

IntArray = NDArray[np.int64]
Counts = NDArray[np.int32]

MEMORY = 48 * 2**20  # bytes of histograms that are kept for subtraction
ROWS_WORTH_A_THREAD = 16_384  # waking one takes as long as some 5,000 rows
CELLS_WORTH_A_THREAD = 2**16
ROWS_WORTH_A_TURN = 65_536
TURNS = 4
CELLS_WORTH_A_TURN = 2**18  # every part has a spare histogram
ROOT = 0
NONE = -1


class GroupedRows:
    """The rows of every node, and `[node, class, bin]` histograms of them.

    `rows` restricts the table to a sample, by index, without copying it.
    """

    def __init__(
        self, codes: Codes, labels: NDArray[Any], schema: Schema, rows: NDArray[np.integer[Any]] | None = None
    ) -> None:
        check_codes(codes, labels, schema)
        self.schema = schema
        self._columns = codes.by_column
        self._codes: tuple[NDArray[Any], NDArray[Any]] = (codes.narrow, codes.wide)
        # Of a candidate split: is its column wide, which of those is it, and the bins that go left.
        table = schema.split_table
        self._rules = np.concatenate([codes.places[table[:, 0]], table[:, 1:]], axis=1)
        starts, is_wide = schema.bin_start[:-1].astype(np.uint64), codes.places[:, 0] == 1
        self._offsets = starts[~is_wide], starts[is_wide]  # of the columns' bins in a histogram
        if rows is not None:
            check_rows(rows, codes.n_rows)
        n_rows = codes.n_rows if rows is None else len(rows)
        self._label_bits = (schema.n_classes - 1).bit_length()
        is_small = codes.n_rows << self._label_bits <= 2**32
        self._order = np.empty(n_rows, dtype=np.uint32 if is_small else np.uint64)
        self._scratch = np.empty_like(self._order)
        chosen = np.empty(0, dtype=np.int64) if rows is None else rows.astype(np.int64)
        _pack(labels, chosen, self._label_bits, self._order)
        self._ranges = np.array([[0, len(self._order)]])
        self._parent = np.array([NONE])
        shape = schema.n_classes, int(schema.bin_start[-1])  # of a histogram, all columns' bins in a row
        self._n_cells = math.prod(shape)
        # The newest histograms, in a ring: a row of the store holds that of the node that is its `_owner`.
        n_stored = max(6, MEMORY // max(4 * self._n_cells, 1))
        self._store = np.empty((n_stored, *shape), dtype=np.int32)
        self._owner = np.full(n_stored, NONE)
        self._row = np.array([NONE])  # [node], of the store
        self._next_row = 0

    @property
    def n_rows(self) -> int:
        """Number of rows; private."""
        return len(self._order)

    def fingerprint(self) -> str:
        """A hash of the rows with their labels, before any is split; private."""
        content = hashlib.sha256(self._order.data)
        for matrix in self._codes:
            content.update(np.ascontiguousarray(matrix).data)
        return content.hexdigest()

    def split(self, nodes: IntArray, splits: IntArray) -> None:
        """Partition each node's rows by its split; the children get the next numbers, left before right."""
        work = _Work(self._ranges[nodes])
        rules = self._rules[splits]
        n_left = np.zeros((len(work.parts), len(nodes)), dtype=np.int64)
        run_all(
            lambda part: _partition(
                *self._columns, self._order, self._label_bits, work.ranges, *part, rules, self._scratch,
                n_left[work.parts.index(part)],
            ),
            work.parts,
        )  # fmt: skip
        if len(work.parts) > 1:
            run_all(
                lambda part: _gather(
                    self._scratch, work.ranges, *part, n_left, work.parts.index(part), self._order
                ),
                work.parts,
            )
        middles = work.ranges[:, 0] + n_left.sum(axis=0)
        edges = np.stack([work.ranges[:, 0], middles, middles, work.ranges[:, 1]], axis=1)
        self._parent = np.concatenate([self._parent, np.repeat(nodes, 2)])
        self._ranges = np.concatenate([self._ranges, edges.reshape(-1, 2)])
        self._row = np.concatenate([self._row, np.full(2 * len(nodes), NONE)])

    def histograms(self, nodes: IntArray) -> Iterator[tuple[IntArray, Counts]]:
        """Batches of (positions in `nodes`, histograms [node, class, bin]); each is good until the next one."""
        batch = len(self._store) // 3  # the parents of a batch, and those of the next, fit beside it
        for start in range(0, len(nodes), batch):
            here = np.arange(start, min(start + batch, len(nodes)))
            rows = self._rows_of(nodes[here])
            together = rows[-1] - rows[0] == len(rows) - 1 and (np.diff(rows) == 1).all()
            yield here, self._store[rows[0] : rows[-1] + 1] if together else self._store[rows]

    def scores(self, histograms: Counts, criteria: Criterion | IntArray) -> NDArray[np.float64]:
        """V = -F(left) - F(right) of every candidate split: [node, split]; one criterion, or one a node."""
        schema = self.schema
        out = np.empty((len(histograms), len(schema.splits)))
        which = np.broadcast_to(np.asarray(criteria, dtype=np.int64), len(histograms)).copy()
        args = int(schema.n_bins[0]), schema.split_bins
        run_all(
            lambda part: _score(histograms[slice(*part)], *args, which[slice(*part)], out[slice(*part)]),
            even_parts(len(histograms), at_least=max(1, CELLS_WORTH_A_THREAD // self._n_cells)),
        )
        return out

    def cells(self, nodes: IntArray, splits: IntArray) -> IntArray:
        """Class counts on both sides of a split of a node: [place, side, class]; nodes may repeat."""
        out = np.zeros((len(nodes), 2, self.schema.n_classes), dtype=np.int64)
        distinct, place = np.unique(nodes, return_inverse=True)
        for here, histograms in self.histograms(distinct):
            mine = np.flatnonzero((place >= here[0]) & (place <= here[-1]))
            out[mine] = self._cells_of(histograms, place[mine] - here[0], splits[mine])
        return out

    def _cells_of(self, histograms: Counts, which: IntArray, splits: IntArray) -> IntArray:
        cells: IntArray = _cells(histograms, which, self.schema.bin_start, self.schema.split_table[splits])
        return cells

    def all_cells(self, nodes: IntArray) -> IntArray:
        """Class counts on both sides of every candidate split: [node, split, side, class]."""
        schema = self.schema
        out = np.empty((len(nodes), len(schema.splits), 2, schema.n_classes), dtype=np.int64)
        for here, histograms in self.histograms(nodes):
            _all_cells(histograms, int(schema.n_bins[0]), schema.split_bins, out[here[0] : here[-1] + 1])
        return out

    def columns(self, nodes: IntArray) -> IntArray:
        """A histogram of every column, one after another: [node, bin, class]."""
        batches = [histograms.astype(np.int64).swapaxes(1, 2) for _, histograms in self.histograms(nodes)]
        return np.concatenate(batches)

    def label_counts(self, nodes: IntArray) -> IntArray:
        """Class counts of each node: [node, class]."""
        out = np.zeros((len(nodes), self.schema.n_classes), dtype=np.int64)
        ranges = self._ranges[nodes]
        run_all(
            lambda part: _count_labels(
                self._order, self._label_bits, ranges[slice(*part)], out[slice(*part)]
            ),
            even_parts(len(nodes), at_least=8),
        )
        return out

    def _rows_of(self, nodes: IntArray) -> IntArray:
        """Where in the store the histograms of these nodes are; those that are not there yet are made."""
        if (self._row[nodes] == NONE).any():
            room = self._make_room(len(nodes))
            # A node that is named twice is counted once, or its rows would weigh double.
            missing = np.unique(nodes[self._row[nodes] == NONE])
            self._row[missing] = room[: len(missing)]
            try:
                self._make(missing)
            except BaseException:
                self._row[missing] = NONE  # or what is in the store would be taken for their counts
                raise
            self._owner[room[: len(missing)]] = missing
        return self._row[nodes]

    def _make_room(self, n: int) -> IntArray:
        """The next n rows of the ring; the nodes whose histograms were there have none any more."""
        first = self._next_row if self._next_row + n <= len(self._store) else 0
        self._next_row = first + n
        owners = self._owner[first : first + n]
        self._row[owners[owners != NONE]] = NONE
        owners[:] = NONE
        return np.arange(first, first + n)

    def _make(self, nodes: IntArray) -> None:
        """Count the histograms of nodes; the larger of two siblings is the parent's less the smaller one's."""
        by_subtraction = self._by_subtraction(nodes)
        counted, rest = nodes[~by_subtraction], nodes[by_subtraction]
        self._count(counted)
        _subtract(self._store, self._row[self._parent[rest]], self._row[_sibling(rest)], self._row[rest])

    def _by_subtraction(self, nodes: IntArray) -> NDArray[np.bool_]:
        """Which of the new histograms are quicker made by subtraction."""
        parent, sibling = self._parent[nodes], _sibling(nodes)
        is_new = np.zeros(len(self._row), dtype=bool)
        is_new[nodes] = True
        size = self._ranges[:, 1] - self._ranges[:, 0]
        is_larger = np.where(size[nodes] == size[sibling], nodes > sibling, size[nodes] > size[sibling])
        has_both = (parent != NONE) & (self._row[parent] != NONE) & (self._row[sibling] != NONE)
        found: NDArray[np.bool_] = has_both & (is_larger | ~is_new[sibling])
        return found

    def _count(self, nodes: IntArray) -> None:
        """One pass over the nodes' rows, on all cores.

        A node whose rows two threads share is counted by the second of them into a spare histogram.
        """
        if not len(nodes):
            return
        work = _Work(self._ranges[nodes], turns=TURNS if self._n_cells <= CELLS_WORTH_A_TURN else 1)
        targets = self._row[nodes]
        spare = np.zeros((len(work.parts), *self._store.shape[1:]), dtype=np.int32)

        def count(part: tuple[int, int, int, int]) -> None:
            first, last, begin, _ = part
            _clear(self._store, targets[first + (begin > work.ranges[first, 0]) : last + 1])
            for matrix, offsets in zip(self._codes, self._offsets, strict=True):
                if matrix.shape[1]:
                    _count(
                        matrix, self._order, self._label_bits, work.ranges, *part, offsets, self._store, targets,
                        spare[work.parts.index(part)],
                    )  # fmt: skip

        run_all(count, work.parts)
        for (first, _, _, _), extra in zip(work.parts[1:], spare[1:], strict=True):
            self._store[targets[first]] += extra


def check_rows(rows: NDArray[np.integer[Any]], n_rows: int) -> None:
    """A row that counted twice would pay once, and one that is not there would be read from beyond the table."""
    if (
        rows.dtype.kind not in "iu"
        or rows.ndim != 1
        or rows.min(initial=0) < 0
        or rows.max(initial=-1) >= n_rows
    ):
        raise InvalidTable("holders are lists of row numbers, from 0 to one less than there are rows.")
    if len(rows) and np.bincount(rows).max() > 1:
        raise InvalidTable("a row number stands twice among the holders; a row belongs to one holder, once.")


def _sibling(nodes: IntArray) -> IntArray:
    """Siblings are numbered side by side after the root: 1 and 2, 3 and 4, ... The root has none but itself."""
    return np.where(nodes == 0, 0, ((nodes - 1) ^ 1) + 1)


class _Work:
    """Ranges of rows cut into parts, equal in rows: one a thread, or several that threads take in turn.

    A part (first, last, begin, end) is ranges first..last, of which the first starts at `begin` and the
    last stops at `end`.
    """

    def __init__(self, ranges: IntArray, turns: int = TURNS) -> None:
        self.ranges = ranges
        size = ranges[:, 1] - ranges[:, 0]
        total = int(size.sum())
        if total < 2 * ROWS_WORTH_A_THREAD:
            self.parts: list[tuple[int, int, int, int]] = [
                (0, len(ranges) - 1, int(ranges[0, 0]), int(ranges[-1, 1]))
            ]
            return
        shares = min(n_threads(), total // ROWS_WORTH_A_THREAD)
        if total >= shares * ROWS_WORTH_A_TURN:  # a core that is busy elsewhere does not hold up the other
            shares = min(total // ROWS_WORTH_A_TURN, turns * shares)
        self.parts = []
        ends = np.cumsum(size)
        first, begin = 0, int(ranges[0, 0])
        for share in range(1, shares + 1):
            upto = total * share // shares
            last = int(np.searchsorted(ends, upto)) if share < shares else len(ranges) - 1
            end = int(ranges[last, 1] - (ends[last] - upto)) if share < shares else int(ranges[last, 1])
            self.parts.append((first, last, begin, end))
            first, begin = last, end


@compiled
def _pack(labels, rows, bits, order):  # type: ignore[no-untyped-def]
    """Entries of the rows with these numbers; of all rows if there are none."""
    for i in range(len(order)):
        row = i if len(rows) == 0 else rows[i]
        order[i] = (np.uint64(row) << np.uint64(bits)) | np.uint64(labels[row])


@compiled
def partition_by(column, order, bits, start, stop, span, scratch):  # type: ignore[no-untyped-def]
    """Partition one segment into scratch: left rows from its start, right rows backwards from its end.

    Without branches: each row is written to both ends, and only the end that it belongs to moves on.
    """
    first, last, also = span
    left, right = start, stop - 1
    width = np.uint64(last - first)
    for i in range(start, stop):
        prefetch_row(column, np.int64(np.uint64(order[min(i + AHEAD, stop - 1)]) >> bits))
        entry = order[i]
        code = np.int64(column[np.uint64(entry) >> bits])
        goes_left = (np.uint64(code - first) <= width) | (code == also)
        scratch[left] = entry
        scratch[right] = entry
        left += goes_left
        right -= 1 - goes_left
    return left - start


@compiled
def put_back(scratch, start, stop, n_left, left, right, order):  # type: ignore[no-untyped-def]
    """Copy a partitioned segment: its left rows to `left` in order, its right rows to `right`."""
    order[left : left + n_left] = scratch[start : start + n_left]
    for j in range(stop - start - n_left):
        order[right + j] = scratch[stop - 1 - j]


@compiled
def _partition(  # type: ignore[no-untyped-def]
    narrow, wide, order, label_bits, ranges, first, last, begin, end, rules, scratch, n_left
):
    bits = np.uint64(label_bits)
    for i in range(first, last + 1):
        start = begin if i == first else ranges[i, 0]
        stop = end if i == last else ranges[i, 1]
        is_wide, column = rules[i, 0], rules[i, 1]
        span = (np.int64(rules[i, 2]), np.int64(rules[i, 3]), np.int64(rules[i, 4]))
        if is_wide:
            n_left[i] = partition_by(wide[column], order, bits, start, stop, span, scratch)
        else:
            n_left[i] = partition_by(narrow[column], order, bits, start, stop, span, scratch)
        if start == ranges[i, 0] and stop == ranges[i, 1]:  # while it is in the cache
            put_back(scratch, start, stop, n_left[i], start, start + n_left[i], order)


@compiled
def _gather(scratch, ranges, first, last, begin, end, n_left, part, order):  # type: ignore[no-untyped-def]
    """Move a part's segments of nodes that it shares from scratch to their places among the other parts' segments."""
    for i in range(first, last + 1):
        start = begin if i == first else ranges[i, 0]
        stop = end if i == last else ranges[i, 1]
        if start == ranges[i, 0] and stop == ranges[i, 1]:
            continue
        mine = n_left[part, i]
        before, all_left = 0, 0
        for p in range(len(n_left)):
            all_left += n_left[p, i]
            if p < part:
                before += n_left[p, i]
        left = ranges[i, 0] + before
        right = ranges[i, 0] + all_left + (start - ranges[i, 0] - before)
        put_back(scratch, start, stop, mine, left, right, order)


@compiled
def _count(  # type: ignore[no-untyped-def]
    codes, order, label_bits, ranges, first, last, begin, end, offsets, out, targets, spare
):
    """Add the rows of a part to histograms. Unsigned indices spare the test for negative ones."""
    n_columns = codes.shape[1]
    bits = np.uint64(label_bits)
    labels = (np.uint64(1) << bits) - np.uint64(1)
    for i in range(first, last + 1):
        start = begin if i == first else ranges[i, 0]
        stop = end if i == last else ranges[i, 1]
        histogram = spare if start > ranges[i, 0] else out[targets[i]]
        for j in range(start, stop):
            prefetch_row(codes, np.int64(np.uint64(order[min(j + AHEAD, stop - 1)]) >> bits))
            entry = np.uint64(order[j])
            row, of_class = entry >> bits, histogram[entry & labels]
            for f in range(n_columns):
                of_class[offsets[f] + np.uint64(codes[row, f])] += 1


@compiled
def _clear(store, rows):  # type: ignore[no-untyped-def]
    for row in rows:
        store[row] = 0


@compiled
def _subtract(store, parents, siblings, targets):  # type: ignore[no-untyped-def]
    for i in range(len(targets)):
        whole, part, rest = store[parents[i]], store[siblings[i]], store[targets[i]]
        for a in range(rest.shape[0]):
            for b in range(rest.shape[1]):
                rest[a, b] = whole[a, b] - part[a, b]


@compiled
def _count_labels(order, label_bits, ranges, out):  # type: ignore[no-untyped-def]
    labels = (np.uint64(1) << np.uint64(label_bits)) - np.uint64(1)
    # Four counts side by side: a count does not have to wait for the one before it.
    counts = np.zeros((4, out.shape[1]), dtype=np.int64)
    for i in range(len(ranges)):
        counts[:] = 0
        for j in range(ranges[i, 0], ranges[i, 1]):
            counts[j & 3, np.uint64(order[j]) & labels] += 1
        out[i] = counts[0] + counts[1] + counts[2] + counts[3]


@compiled
def _sides(histogram, n_bins, split_bins, prefix, left, right):  # type: ignore[no-untyped-def]
    """Class counts [class, split] on both sides of every split, from sums over the bins of all columns up to each.

    The first `n_bins` are those of one column, which has every row once; `prefix[0]` is 0.
    """
    start, stop, more, also = split_bins
    for a in range(len(histogram)):
        total = prefix[0]
        for b in range(histogram.shape[1]):
            total += histogram[a, b]
            prefix[b + 1] = total
        for s in range(len(start)):
            left[a, s] = prefix[stop[s]] - prefix[start[s]]
        for i in range(len(more)):
            left[a, more[i]] += histogram[a, also[i]]
        for s in range(len(start)):
            right[a, s] = prefix[n_bins] - left[a, s]


@compiled
def _score(histograms, n_bins, split_bins, criteria, out):  # type: ignore[no-untyped-def]
    """-F(left) - F(right) of every split of every node."""
    n_classes, n_splits = histograms.shape[1], out.shape[1]
    prefix = np.zeros(histograms.shape[2] + 1, np.int64)
    left, right = np.empty((n_classes, n_splits)), np.empty((n_classes, n_splits))
    impurity, total, work = np.empty(n_splits), np.empty(n_splits), np.empty(n_splits)
    for node in range(len(histograms)):
        _sides(histograms[node], n_bins, split_bins, prefix, left, right)
        impurity[:] = 0.0
        add_impurities(left, criteria[node], total, work, impurity)
        add_impurities(right, criteria[node], total, work, impurity)
        for s in range(n_splits):
            out[node, s] = -impurity[s]


@compiled
def _all_cells(histograms, n_bins, split_bins, out):  # type: ignore[no-untyped-def]
    """Cells [node, split, side, class] of every split of every node."""
    prefix = np.zeros(histograms.shape[2] + 1, np.int64)
    for node in range(len(histograms)):
        _sides(histograms[node], n_bins, split_bins, prefix, out[node, :, 0].T, out[node, :, 1].T)


@compiled
def _cells(histograms, which, bin_start, rules):  # type: ignore[no-untyped-def]
    """Cells [place, side, class] of rule i at node which[i]."""
    n_classes = histograms.shape[1]
    out = np.zeros((len(which), 2, n_classes), dtype=np.int64)
    for i in range(len(which)):
        histogram = histograms[which[i]]
        begin = bin_start[rules[i, 0]]
        for b in range(bin_start[rules[i, 0] + 1] - begin):
            goes_left = (rules[i, 1] <= b and b <= rules[i, 2]) or b == rules[i, 3]
            side = 0 if goes_left else 1
            for a in range(n_classes):
                out[i, side, a] += histogram[a, begin + b]
    return out
