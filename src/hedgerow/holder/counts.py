"""Exact counts over a holder's rows. Nothing here may leave the holder but through `holder.py`, with noise.

Rows are kept grouped by node: a permutation in which every node is one range, each entry a row's number with its
label in the lowest bits. Splitting a node partitions its range; the codes are never moved.
"""

from __future__ import annotations

import hashlib
import math
import secrets
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hedgerow.compiled import AHEAD, compiled, prefetch_row, take
from hedgerow.criteria import Criterion
from hedgerow.encoding import Codes, check_codes
from hedgerow.errors import InvalidTable
from hedgerow.holder.scores import all_cells, cells_of, count_quarters, find_best, score, score_forks
from hedgerow.schema import MAX_BINS, Schema
from hedgerow.threads import n_threads, share

IntArray = NDArray[np.int64]
Counts = NDArray[np.int32]
Kernel = Callable[..., None]

# Bytes of histograms that are kept for subtraction. The C library hands 32 MB or more back to the system at once,
# and the next fit would wait for new pages.
MEMORY = 31 * 2**20
MOST_STORED = (
    2**14
)  # histograms, however small: to number a million of them would take longer than a small fit
ROWS_TO_COUNT = 8_192  # are worth a part: waking a thread takes as long
ROWS_TO_PARTITION = 65_536
CELLS_WORTH_A_THREAD = 2**16
TURNS = 4
CELLS_WORTH_A_TURN = 2**18  # every part has a spare histogram
ROOT = 0
NONE = -1
ONCE = np.empty(0, dtype=np.int64)  # how often each row occurs: all of them once


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
        self._times = ONCE
        self._ranges = np.array([[0, len(self._order)]])
        self._parent = np.array([NONE])
        shape = schema.n_classes, int(schema.bin_start[-1])  # of a histogram, all columns' bins in a row
        self._n_cells = math.prod(shape)
        # Several parts a thread: one that wakes up late, or is busy elsewhere, does not hold up the other.
        self._turns = n_threads()
        if self._turns > 1 and self._n_cells <= CELLS_WORTH_A_TURN:
            self._turns *= TURNS
        # The newest histograms, in a ring: a row of the store holds that of the node that is its `_owner`.
        n_stored = max(6, min(MEMORY // max(4 * self._n_cells, 1), MOST_STORED))
        self._store = np.empty((n_stored, *shape), dtype=np.int32)
        self._owner = np.full(n_stored, NONE)
        self._row = np.array([NONE])  # [node], of the store
        self._next_row = 0
        self._is_claimed = False

    @property
    def n_rows(self) -> int:
        """Number of rows; private."""
        return len(self._order)

    def claim(self) -> None:
        """For one holder, once: its account is of the nodes that it has made of these rows itself."""
        if self._is_claimed:
            raise ValueError("these rows are another holder's already; group them anew.")
        self._is_claimed = True

    def fingerprint(self, key: bytes) -> str:
        """A hash, with a key, of the rows with their labels, before any is split; private.

        Without the key nobody can test a guess at the rows: who knows all of them but one would have few to try.
        """
        content = hashlib.blake2b(self._order.data, key=key, digest_size=32)
        for matrix in self._codes:
            content.update(np.ascontiguousarray(matrix).data)
        return content.hexdigest()

    def split(self, nodes: IntArray, splits: IntArray) -> None:
        """Partition each node's rows by its split; the children get the next numbers, left before right."""
        if not len(nodes):
            return
        known, rules = self._ranges, self._rules[splits]
        ranges = known[nodes]
        self._ranges = known[
            :0
        ]  # until every row is in its place again: what is interrupted cannot be counted
        parts = _parts(ranges, blurred(ROWS_TO_PARTITION), self._turns)
        n_left = np.zeros((len(parts), len(nodes)), dtype=np.int64)
        share(
            lambda tickets: _partition(
                *self._columns, self._order, self._label_bits, ranges, parts, tickets, rules, self._scratch,
                n_left,
            ),
            len(parts),
        )  # fmt: skip
        if len(parts) > 1:
            _join(self._order, self._scratch, ranges, parts, n_left)
        self._parent = np.concatenate([self._parent, np.repeat(nodes, 2)])
        self._row = np.concatenate([self._row, np.full(2 * len(nodes), NONE)])
        self._ranges = np.concatenate([known, _halves(ranges, n_left)])

    def histograms(self, nodes: IntArray) -> Iterator[tuple[IntArray, Counts, IntArray]]:
        """Batches of (positions in `nodes`, store, rows): the histogram [class, bin] of the i-th is `store[rows[i]]`.

        Each is good until the next one.
        """
        batch = len(self._store) // 3  # the parents of a batch, and those of the next, fit beside it
        for start in range(0, len(nodes), batch):
            here = np.arange(start, min(start + batch, len(nodes)))
            yield here, self._store, self._rows_of(nodes[here])

    def scores(self, store: Counts, rows: IntArray, criteria: Criterion | IntArray) -> NDArray[np.float64]:
        """V = -F(left) - F(right) of every candidate split: [node, split]; one criterion, or one a node."""
        out = np.empty((len(rows), len(self.schema.splits)))
        self._score(score, store, rows, criteria, out)
        return out

    def best_splits(self, store: Counts, rows: IntArray, criteria: Criterion | IntArray) -> IntArray:
        """Where those scores are highest, the first of equals: [node]."""
        out = np.empty(len(rows), dtype=np.int64)
        self._score(find_best, store, rows, criteria, out)
        return out

    def _score(
        self, kernel: Kernel, store: Counts, rows: IntArray, criteria: Criterion | IntArray, out: NDArray[Any]
    ) -> None:
        which = np.full(len(rows), criteria, dtype=np.int64)
        args = int(self.schema.n_bins[0]), self.schema.split_bins
        share(
            lambda tickets: kernel(store, rows, *args, which, tickets, out),
            len(rows) * self._n_cells // CELLS_WORTH_A_THREAD,
        )

    def fork_scores(
        self, nodes: IntArray, criteria: IntArray
    ) -> Iterator[tuple[IntArray, NDArray[np.float64]]]:
        """Batches of (positions in `nodes`, scores [node, side, split, split and none]).

        V = -F(left) - F(right) of every split of every part that a split makes of a node; the last one is -F of the
        part as it is. Criteria are one a node.
        """
        n_splits = len(self.schema.splits)
        batch = max(1, MEMORY // (16 * n_splits * (n_splits + 1)))
        for first in range(0, len(nodes), batch):
            here = np.arange(first, min(first + batch, len(nodes)))
            out = np.empty((len(here), 2, n_splits, n_splits + 1))
            self._score_forks(nodes[here], criteria[here], out)
            yield here, out

    def _score_forks(self, nodes: IntArray, criteria: IntArray, out: NDArray[np.float64]) -> None:
        n_classes, n_bins = self._store.shape[1:]
        pairs = np.broadcast_to(np.int32(0), (n_classes, n_bins, n_bins))
        schema = self.schema
        splits = int(schema.n_bins[0]), schema.split_bins, schema.bin_start, schema.split_table
        rows = self._order, self._label_bits, self._ranges_of(nodes), self._times
        share(
            lambda tickets: score_forks(
                *self._codes, *self._offsets, *rows, pairs, *splits, criteria, tickets, out
            ),
            min(len(nodes), max(1, MEMORY // pairs.nbytes)),  # every thread has its own
        )  # fmt: skip

    def quarters(self, nodes: IntArray, forks: IntArray) -> IntArray:
        """Class counts of what the forks [node, 3] make of nodes: [node, side, side, class].

        A fork is a split and one more on each of its sides; where that is NONE, all rows go left. What is named often is
        counted once.
        """
        distinct, which = np.unique(np.column_stack([nodes, forks]), axis=0, return_inverse=True)
        nodes, forks = distinct[:, 0], distinct[:, 1:]
        out = np.zeros((len(nodes), 2, 2, self.schema.n_classes), dtype=np.int64)
        all_left = [*self._rules[0, :2], 0, MAX_BINS, NONE]
        rules = np.where(forks[:, :, None] == NONE, all_left, self._rules[forks])
        ranges = self._ranges_of(nodes)
        share(
            lambda tickets: count_quarters(
                *self._columns, self._order, self._label_bits, ranges, self._times, rules, tickets, out
            ),
            int((ranges[:, 1] - ranges[:, 0]).sum()) // blurred(ROWS_TO_PARTITION),
        )
        return out[which.ravel()]

    def _ranges_of(self, nodes: IntArray) -> IntArray:
        """Where the rows of nodes are."""
        if len(self._ranges) < len(self._row):
            raise IndexError("a partition was interrupted; group the rows anew")
        return self._ranges[nodes]

    def cells(self, nodes: IntArray, splits: IntArray) -> IntArray:
        """Class counts on both sides of a split of a node: [place, side, class]; nodes may repeat."""
        out = np.empty((len(nodes), 2, self.schema.n_classes), dtype=np.int64)
        for here, store, rows in self.histograms(nodes):
            out[here] = self._cells_of(store, rows, splits[here])
        return out

    def _cells_of(self, store: Counts, rows: IntArray, splits: IntArray) -> IntArray:
        cells: IntArray = cells_of(store, rows, self.schema.bin_start, self.schema.split_table[splits])
        return cells

    def all_cells(self, nodes: IntArray) -> IntArray:
        """Class counts on both sides of every candidate split: [node, split, side, class]."""
        schema = self.schema
        out = np.empty((len(nodes), len(schema.splits), 2, schema.n_classes), dtype=np.int64)
        for here, store, rows in self.histograms(nodes):
            all_cells(store, rows, int(schema.n_bins[0]), schema.split_bins, out[here[0] : here[-1] + 1])
        return out

    def columns(self, nodes: IntArray) -> IntArray:
        """A histogram of every column, one after another: [node, bin, class]."""
        batches = [store[rows].astype(np.int64).swapaxes(1, 2) for _, store, rows in self.histograms(nodes)]
        return np.concatenate(batches)

    def label_counts(self, nodes: IntArray) -> IntArray:
        """Class counts of each node: [node, class]; nodes may repeat, and are counted once."""
        nodes, which = np.unique(nodes, return_inverse=True)
        out = np.zeros((len(nodes), self.schema.n_classes), dtype=np.int64)
        ranges, rows = self._ranges[nodes], self._row[nodes]
        is_stored = rows != NONE  # then the bins of the first column have every row once
        out[is_stored] = self._store[rows[is_stored], :, : self.schema.n_bins[0]].sum(axis=2)
        ranges[is_stored] = 0
        share(
            lambda tickets: _count_labels(self._order, self._label_bits, ranges, tickets, out),
            int((ranges[:, 1] - ranges[:, 0]).sum()) // blurred(ROWS_TO_PARTITION),
        )
        return out[which]

    def _rows_of(self, nodes: IntArray) -> IntArray:
        """Where in the store the histograms of these nodes are; those that are not there yet are made."""
        self._ranges_of(nodes)
        if (self._row[nodes] == NONE).any():
            room = self._make_room(len(nodes))
            counted, rest = _to_make(nodes, self._parent, self._ranges, self._row)
            self._make(counted, rest, room)
        return self._row[nodes]

    def _make_room(self, n: int) -> IntArray:
        """The next n rows of the ring; the nodes whose histograms were there have none any more."""
        first = self._next_row if self._next_row + n <= len(self._store) else 0
        owners = self._owner[first : first + n]
        self._row[owners[owners != NONE]] = NONE
        owners[:] = NONE
        return np.arange(first, first + n)

    def _make(self, counted: IntArray, rest: IntArray, room: IntArray) -> None:
        """Count histograms; those of `rest` are what their siblings leave of their parents', which are lost."""
        room = room[: len(counted)]
        if len(room):
            self._next_row = int(room[-1]) + 1
        try:
            self._row[counted] = room
            self._count(counted)
            _subtract(self._store, self._parent, rest, self._row, self._owner)
            self._owner[room] = counted
        except BaseException:  # or what is in the store would be taken for their counts
            self._row[counted] = self._row[rest] = self._row[self._parent[rest]] = NONE
            raise

    def _count(self, nodes: IntArray) -> None:
        """One pass over the nodes' rows, on all cores.

        Of a node that several parts share, the first is counted into its histogram, every other into a spare one.
        """
        if not len(nodes):
            return
        ranges, targets = self._ranges[nodes], self._row[nodes]
        parts = _parts(ranges, blurred(ROWS_TO_COUNT), self._turns)
        spare = np.zeros((len(parts), *self._store.shape[1:]), dtype=np.int32)
        share(
            lambda tickets: _count(
                *self._codes, *self._offsets, self._order, self._label_bits, ranges, parts, tickets, self._store,
                targets, spare,
            ),
            len(parts),
        )  # fmt: skip
        if len(parts) > 1:
            _add_spare(self._store, targets, parts, spare)


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


# ---- Rows in their order, and how they are divided ---------------------------------------------------------


def blurred(rows: int) -> int:
    """A number of rows between half and one and a half times as many, drawn anew each time.

    With a fixed number of rows that are worth a thread, one row more could wake one, again and again, and be seen by a
    clock. So it does with probability 1 / rows.
    """
    return rows // 2 + 1 + secrets.randbelow(rows)


@compiled
def _parts(ranges, at_least, most):  # type: ignore[no-untyped-def]
    """Ranges of rows cut into at most `most` parts, equal in rows, of `at_least` so many: threads take them in turn.

    A part (first, last, begin, end) is ranges first..last, of which the first starts at `begin` and the last stops
    at `end`.
    """
    total = 0
    for i in range(len(ranges)):
        total += ranges[i, 1] - ranges[i, 0]
    n_parts = max(1, min(total // at_least, most))
    parts = np.empty((n_parts, 4), np.int64)
    i, begin, before = 0, ranges[0, 0], 0  # rows before `begin`
    for part in range(n_parts):
        parts[part, 0], parts[part, 2] = i, begin
        upto = total * (part + 1) // n_parts
        while i < len(ranges) - 1 and before + ranges[i, 1] - begin < upto:
            before += ranges[i, 1] - begin
            i += 1
            begin = ranges[i, 0]
        begin += upto - before
        before = upto
        parts[part, 1], parts[part, 3] = i, begin
    parts[n_parts - 1, 1], parts[n_parts - 1, 3] = len(ranges) - 1, ranges[len(ranges) - 1, 1]
    return parts


@compiled
def _pack(labels, rows, bits, order):  # type: ignore[no-untyped-def]
    """Entries of the rows with these numbers; of all rows if there are none."""
    for i in range(len(order)):
        row = i if len(rows) == 0 else rows[i]
        order[i] = (np.uint64(row) << np.uint64(bits)) | np.uint64(labels[row])


@compiled
def partition_by(column, order, bits, start, stop, span, scratch):  # type: ignore[no-untyped-def]
    """Move the left rows of a segment to its front, in order, and copy its right rows to scratch, from `start` on.

    Without branches: each row is written to both places, and only the one that it belongs to moves on. Unsigned
    indices spare the test for negative ones.
    """
    one, ahead = np.uint64(1), np.uint64(AHEAD)
    first, width, also = np.uint64(span[0]), np.uint64(span[1] - span[0]), np.uint64(span[2])
    left = right = np.uint64(start)
    known = np.uint64(max(start, stop - AHEAD))  # so far there is a row to fetch ahead
    for i in range(np.uint64(start), np.uint64(stop)):
        if i < known:
            prefetch_row(column, np.int64(np.uint64(order[i + ahead]) >> bits))
        entry = order[i]
        code = np.uint64(column[np.uint64(entry) >> bits])
        goes_left = np.uint64((code - first <= width) | (code == also))
        order[left] = entry
        scratch[right] = entry
        left += goes_left
        right += one - goes_left
    return np.int64(left) - start


@compiled
def _partition(  # type: ignore[no-untyped-def]
    narrow, wide, order, label_bits, ranges, parts, tickets, rules, scratch, n_left
):
    bits = np.uint64(label_bits)
    for _ in range(len(parts)):
        part = take(tickets)
        if part >= len(parts):
            break
        first, last, begin, end = parts[part]
        for i in range(first, last + 1):
            start = begin if i == first else ranges[i, 0]
            stop = end if i == last else ranges[i, 1]
            is_wide, column = rules[i, 0], rules[i, 1]
            span = (np.int64(rules[i, 2]), np.int64(rules[i, 3]), np.int64(rules[i, 4]))
            if is_wide:
                here = partition_by(wide[column], order, bits, start, stop, span, scratch)
            else:
                here = partition_by(narrow[column], order, bits, start, stop, span, scratch)
            n_left[part, i] = here
            if start == ranges[i, 0] and stop == ranges[i, 1]:  # while it is in the cache
                order[start + here : stop] = scratch[start : stop - here]


@compiled
def _join(order, scratch, ranges, parts, n_left):  # type: ignore[no-untyped-def]
    """Put the segments together of nodes that several parts share: left rows, then right rows, in order."""
    for i in range(len(ranges)):
        put = ranges[i, 0]
        for side in range(2):
            for p in range(len(parts)):
                first, last, begin, end = parts[p]
                if i < first or i > last:
                    continue
                start = begin if i == first else ranges[i, 0]
                stop = end if i == last else ranges[i, 1]
                if start == ranges[i, 0] and stop == ranges[i, 1]:
                    continue
                n_rows = n_left[p, i] if side == 0 else stop - start - n_left[p, i]
                source = order if side == 0 else scratch
                order[put : put + n_rows] = source[start : start + n_rows]
                put += n_rows


@compiled
def _halves(ranges, n_left):  # type: ignore[no-untyped-def]
    """The ranges of the children, left before right."""
    out = np.empty((2 * len(ranges), 2), np.int64)
    for i in range(len(ranges)):
        middle = ranges[i, 0] + n_left[:, i].sum()
        out[2 * i, 0], out[2 * i, 1] = ranges[i, 0], middle
        out[2 * i + 1, 0], out[2 * i + 1, 1] = middle, ranges[i, 1]
    return out


# ---- Histograms --------------------------------------------------------------------------------------------


@compiled
def _count(  # type: ignore[no-untyped-def]
    narrow, wide, narrow_offsets, wide_offsets, order, label_bits, ranges, parts, tickets, out, targets, spare
):
    """Histograms of nodes, part by part."""
    bits = np.uint64(label_bits)
    for _ in range(len(parts)):
        part = take(tickets)
        if part >= len(parts):
            break
        first, last, begin, end = parts[part]
        for i in range(first, last + 1):
            start = begin if i == first else ranges[i, 0]
            stop = end if i == last else ranges[i, 1]
            histogram = spare[part]
            if start == ranges[i, 0]:
                histogram = out[targets[i]]
                histogram[:] = 0
            _add_rows(narrow, order, bits, start, stop, narrow_offsets, histogram)
            if wide.shape[1]:
                _add_rows(wide, order, bits, start, stop, wide_offsets, histogram)


@compiled
def _add_rows(codes, order, bits, start, stop, offsets, histogram):  # type: ignore[no-untyped-def]
    n_columns, ahead = np.uint64(codes.shape[1]), np.uint64(AHEAD)
    labels = (np.uint64(1) << bits) - np.uint64(1)
    known = np.uint64(max(start, stop - AHEAD))
    for j in range(np.uint64(start), np.uint64(stop)):
        if j < known:
            coming = np.int64(np.uint64(order[j + ahead]) >> bits)
            prefetch_row(codes, coming)
            prefetch_row(codes, coming + 1)  # where it ends, which may be another line of the cache
        entry = np.uint64(order[j])
        row, of_class = entry >> bits, histogram[entry & labels]
        for f in range(n_columns):
            of_class[offsets[f] + np.uint64(codes[row, f])] += 1


@compiled
def _add_spare(store, targets, parts, spare):  # type: ignore[no-untyped-def]
    for part in range(1, len(parts)):
        store[targets[parts[part, 0]]] += spare[part]


@compiled
def _to_make(nodes, parent, ranges, row):  # type: ignore[no-untyped-def]
    """Which histograms are to be counted, and which are quicker made by subtraction.

    Those are what a sibling leaves of a parent's that nobody asks for. A node that is named twice is made once, or its
    rows would weigh double.
    """
    is_asked = np.zeros(len(row), np.bool_)
    for node in nodes:
        is_asked[node] = True
    counted, rest = np.empty(len(nodes), np.int64), np.empty(len(nodes), np.int64)
    n_counted = n_rest = 0
    for node in range(len(row)):
        if not is_asked[node] or row[node] != NONE:
            continue
        above, sibling = parent[node], _sibling(node)
        by_subtraction = False
        if above != NONE and row[above] != NONE and not is_asked[above]:
            more = (ranges[node, 1] - ranges[node, 0]) - (ranges[sibling, 1] - ranges[sibling, 0])
            is_larger = more > 0 or (more == 0 and node > sibling)
            by_subtraction = row[sibling] != NONE or (is_asked[sibling] and is_larger)
        if by_subtraction:
            rest[n_rest] = node
            n_rest += 1
        else:
            counted[n_counted] = node
            n_counted += 1
    return counted[:n_counted], rest[:n_rest]


@compiled
def _sibling(node):  # type: ignore[no-untyped-def]
    """Siblings are numbered side by side after the root: 1 and 2, 3 and 4, ..."""
    return ((node - 1) ^ 1) + 1


@compiled
def _subtract(store, parent, rest, row, owner):  # type: ignore[no-untyped-def]
    """Histograms of nodes: what their siblings leave of their parents', whose places they take."""
    for node in rest:
        place = row[parent[node]]
        store[place] -= store[row[_sibling(node)]]
        row[parent[node]], row[node], owner[place] = NONE, place, node


@compiled
def _count_labels(order, label_bits, ranges, tickets, out):  # type: ignore[no-untyped-def]
    labels = (np.uint64(1) << np.uint64(label_bits)) - np.uint64(1)
    # Four counts side by side: a count does not have to wait for the one before it.
    counts = np.zeros((4, out.shape[1]), dtype=np.int64)
    for _ in range(len(ranges)):
        i = take(tickets)
        if i >= len(ranges):
            break
        counts[:] = 0
        for j in range(ranges[i, 0], ranges[i, 1]):
            counts[j & 3, np.uint64(order[j]) & labels] += 1
        out[i] += counts[0] + counts[1] + counts[2] + counts[3]
