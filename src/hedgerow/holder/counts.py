"""Exact counts over a holder's rows. Nothing here may leave the holder: only `holder.py` imports it.

Rows are kept grouped by node: a permutation of row numbers in which every node is one range, and beside it
the labels in the same order. Splitting a node partitions its range; the codes are never moved.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hedgerow.compiled import AHEAD, compiled, prefetch_row
from hedgerow.criteria import Criterion, add_impurities
from hedgerow.encoding import Codes, check_codes
from hedgerow.schema import Schema
from hedgerow.threads import even_parts, n_threads, run_all

IntArray = NDArray[np.int64]
Counts = NDArray[np.int32]

MEMORY = 24 * 2**20  # bytes of histograms made at a time, and of histograms kept for subtraction
ROWS_WORTH_A_THREAD = 4_096
ROOT = 0


class GroupedRows:
    """The rows of every node, and `[node, bin, class]` histograms of them.

    `rows` restricts the table to a sample, by index, without copying it.
    """

    def __init__(
        self, codes: Codes, labels: NDArray[Any], schema: Schema, rows: NDArray[np.integer[Any]] | None = None
    ) -> None:
        check_codes(codes, labels, schema)
        self.schema = schema
        self._codes = codes
        self._order = np.arange(codes.n_rows, dtype=np.int32) if rows is None else rows.astype(np.int32)
        self._labels = labels.copy() if rows is None else labels[rows]
        self._scratch_order = np.empty_like(self._order)
        self._scratch_labels = np.empty_like(self._labels)
        self._ranges = {ROOT: (0, len(self._order))}
        self._family: dict[int, tuple[int, int]] = {}  # node -> (parent, sibling)
        self._kept: dict[int, Counts] = {}
        self._newest: tuple[Sequence[int], Counts] = ([], np.empty((0, 0), dtype=np.int32))
        self._bin_start = np.concatenate([[0], np.cumsum(schema.n_bins)]).astype(np.int64)
        self._n_cells = int(self._bin_start[-1]) * schema.n_classes
        columns = schema.split_table[:, 0]  # the splits of a column stand together
        self._split_start = np.concatenate([[0], 1 + np.flatnonzero(np.diff(columns)), [len(columns)]])
        offsets = (self._bin_start[:-1] * schema.n_classes).astype(np.uint64)
        self._matrices = [
            (matrix, offsets[codes.places[:, 0] == is_wide])
            for is_wide, matrix in ((0, codes.narrow), (1, codes.wide))
            if matrix.shape[1]
        ]

    @property
    def n_rows(self) -> int:
        """Number of rows; private."""
        return len(self._order)

    def split(self, nodes: IntArray, splits: IntArray, children: IntArray) -> None:
        """Partition each node's rows by its split; `children` [node, (left, right)] names the parts."""
        work = _Work(self._ranges_of(nodes))
        rules = self.schema.split_table[splits]
        rules = np.concatenate([self._codes.places[rules[:, 0]], rules[:, 1:]], axis=1)
        n_left = np.zeros((len(work.parts), len(nodes)), dtype=np.int64)
        now, scratch = (self._order, self._labels), (self._scratch_order, self._scratch_labels)
        run_all(
            lambda part: _partition(
                self._codes.narrow, self._codes.wide, *now, work.ranges, *part, rules, *scratch,
                n_left[work.parts.index(part)],
            ),
            work.parts,
        )  # fmt: skip
        run_all(
            lambda part: _gather(*scratch, work.ranges, *part, n_left, work.parts.index(part), *now),
            work.parts,
        )
        middles = work.ranges[:, 0] + n_left.sum(axis=0)
        for node, (left, right), (start, stop), middle in zip(
            nodes.tolist(), children.tolist(), work.ranges.tolist(), middles.tolist(), strict=True
        ):
            self._ranges[left], self._ranges[right] = (start, middle), (middle, stop)
            self._family[left], self._family[right] = (node, right), (node, left)

    def histograms(self, nodes: IntArray) -> Iterator[tuple[IntArray, Counts]]:
        """Batches of (positions in `nodes`, histograms [node, bin x class]) that fit into memory."""
        batch = max(2, MEMORY // (4 * self._n_cells))
        for start in range(0, len(nodes), batch):
            here = np.arange(start, min(start + batch, len(nodes)))
            named = nodes[here].tolist()
            place = {node: i for i, node in enumerate(dict.fromkeys(named))}
            counts = self._histograms(list(place))
            # A node that is named twice is counted once, or its rows would weigh double.
            yield here, counts if len(place) == len(named) else counts[[place[node] for node in named]]

    def scores(self, histograms: Counts, criterion: Criterion) -> NDArray[np.float64]:
        """V = -F(left) - F(right) of every candidate split: [node, split]."""
        out = np.empty((len(histograms), len(self.schema.splits)))
        args = (
            self._bin_start, self._split_start, self.schema.split_table, self.schema.n_classes, int(criterion),
        )  # fmt: skip
        run_all(
            lambda part: _score(histograms[slice(*part)], *args, out[slice(*part)]),
            even_parts(len(histograms), at_least=8),
        )
        return out

    def cells(self, nodes: IntArray, splits: IntArray) -> IntArray:
        """Class counts on both sides of a split of a node: [place, side, class]; nodes may repeat."""
        out = np.zeros((len(nodes), 2, self.schema.n_classes), dtype=np.int64)
        distinct, place = np.unique(nodes, return_inverse=True)
        for here, histograms in self.histograms(distinct):
            mine = np.flatnonzero((place >= here[0]) & (place <= here[-1]))
            rules = self.schema.split_table[splits[mine]]
            out[mine] = _cells(
                histograms, place[mine] - here[0], self._bin_start, rules, self.schema.n_classes
            )
        return out

    def all_cells(self, nodes: IntArray) -> IntArray:
        """Class counts on both sides of every candidate split: [node, split, side, class]."""
        n_splits = len(self.schema.splits)
        splits = np.tile(np.arange(n_splits), len(nodes))
        cells = self.cells(np.repeat(nodes, n_splits), splits)
        return cells.reshape(len(nodes), n_splits, 2, self.schema.n_classes)

    def columns(self, nodes: IntArray) -> IntArray:
        """A histogram of every column, one after another: [node, bin, class]."""
        batches = [histograms for _, histograms in self.histograms(nodes)]
        return np.concatenate(batches).astype(np.int64).reshape(len(nodes), -1, self.schema.n_classes)

    def label_counts(self, nodes: IntArray) -> IntArray:
        """Class counts of each node: [node, class]."""
        out = np.zeros((len(nodes), self.schema.n_classes), dtype=np.int64)
        _count_labels(self._labels, self._ranges_of(nodes), out)
        return out

    def _ranges_of(self, nodes: IntArray) -> IntArray:
        return np.array([self._ranges[node] for node in nodes.tolist()], dtype=np.int64).reshape(-1, 2)

    def _size(self, node: int) -> int:
        start, stop = self._ranges[node]
        return stop - start

    def _histograms(self, nodes: Sequence[int]) -> Counts:
        """Histograms of the nodes: kept ones, counted ones, and siblings by subtraction."""
        if nodes == self._newest[0]:
            return self._newest[1]
        out = np.zeros((len(nodes), self._n_cells), dtype=np.int32)
        row_of = {node: i for i, node in enumerate(nodes)}
        counted, subtracted = [], []
        for i, node in enumerate(nodes):
            if node in self._kept:
                out[i] = self._kept[node]
            elif self._is_larger_sibling(node, row_of):
                subtracted.append(node)
            else:
                counted.append(node)
        self._count(counted, out, row_of)
        for node in subtracted:
            parent, sibling = self._family[node]
            np.subtract(self._kept[parent], out[row_of[sibling]], out=out[row_of[node]])
        self._keep(nodes, out)
        out.flags.writeable = False
        self._newest = (nodes, out)  # a wave asks twice: which split, and then for its cells
        return out

    def _is_larger_sibling(self, node: int, together: dict[int, int]) -> bool:
        parent, sibling = self._family.get(node, (-1, -1))
        if parent not in self._kept or sibling not in together or sibling in self._kept:
            return False
        return (self._size(node), node) > (self._size(sibling), sibling)

    def _keep(self, nodes: Sequence[int], histograms: Counts) -> None:
        """Remember the newest histograms; a parent whose children are both counted is of no more use."""
        for node, histogram in zip(nodes, histograms, strict=True):
            if node not in self._kept:
                self._kept[node] = histogram.copy()
            parent, sibling = self._family.get(node, (-1, -1))
            if sibling in self._kept:
                self._kept.pop(parent, None)
        while len(self._kept) * 4 * self._n_cells > MEMORY and len(self._kept) > 1:
            self._kept.pop(next(iter(self._kept)))

    def _count(self, nodes: Sequence[int], out: Counts, row_of: dict[int, int]) -> None:
        """One pass over the nodes' rows, on all cores.

        A node whose rows two threads share is counted by the second of them into a spare histogram.
        """
        if not nodes:
            return
        work = _Work(self._ranges_of(np.array(nodes)))
        targets = np.array([row_of[node] for node in nodes])
        spare = np.zeros((len(work.parts), self._n_cells), dtype=np.int32)

        def count(part: tuple[int, int, int, int]) -> None:
            for matrix, offsets in self._matrices:
                _count(
                    matrix, self._order, self._labels, work.ranges, *part, offsets, self.schema.n_classes,
                    out, targets, spare[work.parts.index(part)],
                )  # fmt: skip

        run_all(count, work.parts)
        for (first, _, _, _), extra in zip(work.parts, spare, strict=True):
            out[targets[first]] += extra


class _Work:
    """Ranges of rows cut into one part a thread, equal in rows.

    A part (first, last, begin, end) is ranges first..last, of which the first starts at `begin` and the
    last stops at `end`.
    """

    def __init__(self, ranges: IntArray) -> None:
        self.ranges = ranges
        ends = np.cumsum(ranges[:, 1] - ranges[:, 0])
        total = int(ends[-1])
        shares = n_threads() if total >= ROWS_WORTH_A_THREAD else 1
        self.parts: list[tuple[int, int, int, int]] = []
        first, begin = 0, int(ranges[0, 0])
        for share in range(1, shares + 1):
            upto = total * share // shares
            last = int(np.searchsorted(ends, upto)) if share < shares else len(ranges) - 1
            end = int(ranges[last, 1] - (ends[last] - upto)) if share < shares else int(ranges[last, 1])
            self.parts.append((first, last, begin, end))
            first, begin = last, end


@compiled
def _partition_by(codes, column, order, labels, start, stop, span, new_order, new_labels):  # type: ignore[no-untyped-def]
    """Partition one segment into scratch: left rows from its start, right rows backwards from its end.

    Without branches: each row is written to both ends, and only the end that it belongs to moves on.
    """
    first, last, also = span
    left, right = start, stop - 1
    width = np.uint64(last - first)
    for i in range(start, stop):
        prefetch_row(codes, np.int64(order[min(i + AHEAD, stop - 1)]))
        row = order[i]
        label = labels[i]
        code = np.int64(codes[row, column])
        goes_left = (np.uint64(code - first) <= width) | (code == also)
        new_order[left] = row
        new_order[right] = row
        new_labels[left] = label
        new_labels[right] = label
        left += goes_left
        right -= 1 - goes_left
    return left - start


@compiled
def _partition(  # type: ignore[no-untyped-def]
    narrow, wide, order, labels, ranges, first, last, begin, end, rules, new_order, new_labels, n_left
):
    for i in range(first, last + 1):
        start = begin if i == first else ranges[i, 0]
        stop = end if i == last else ranges[i, 1]
        is_wide, column = rules[i, 0], rules[i, 1]
        span = (np.int64(rules[i, 2]), np.int64(rules[i, 3]), np.int64(rules[i, 4]))
        if is_wide:
            n_left[i] = _partition_by(wide, column, order, labels, start, stop, span, new_order, new_labels)
        else:
            n_left[i] = _partition_by(narrow, column, order, labels, start, stop, span, new_order, new_labels)


@compiled
def _gather(  # type: ignore[no-untyped-def]
    new_order, new_labels, ranges, first, last, begin, end, n_left, part, order, labels
):
    """Move a part's segments from scratch to their places among the other parts' segments of the node."""
    for i in range(first, last + 1):
        start = begin if i == first else ranges[i, 0]
        stop = end if i == last else ranges[i, 1]
        mine = n_left[part, i]
        before, all_left = 0, 0
        for p in range(len(n_left)):
            all_left += n_left[p, i]
            if p < part:
                before += n_left[p, i]
        left = ranges[i, 0] + before
        order[left : left + mine] = new_order[start : start + mine]
        labels[left : left + mine] = new_labels[start : start + mine]
        right = ranges[i, 0] + all_left + (start - ranges[i, 0] - before)
        for j in range(stop - start - mine):
            order[right + j] = new_order[stop - 1 - j]
            labels[right + j] = new_labels[stop - 1 - j]


@compiled
def _count(  # type: ignore[no-untyped-def]
    codes, order, labels, ranges, first, last, begin, end, offsets, n_classes, out, targets, spare
):
    """Add the rows of a part to histograms. Unsigned indices spare the test for negative ones."""
    n_columns = codes.shape[1]
    k = np.uint64(n_classes)
    for i in range(first, last + 1):
        start = begin if i == first else ranges[i, 0]
        stop = end if i == last else ranges[i, 1]
        histogram = spare if start > ranges[i, 0] else out[targets[i]]
        for j in range(start, stop):
            prefetch_row(codes, np.int64(order[min(j + AHEAD, stop - 1)]))
            row = np.uint64(order[j])
            label = np.uint64(labels[j])
            for f in range(n_columns):
                histogram[offsets[f] + np.uint64(codes[row, f]) * k + label] += 1


@compiled
def _count_labels(labels, ranges, out):  # type: ignore[no-untyped-def]
    for i in range(len(ranges)):
        for j in range(ranges[i, 0], ranges[i, 1]):
            out[i, labels[j]] += 1


@compiled
def _score(histograms, bin_start, split_start, splits, n_classes, criterion, out):  # type: ignore[no-untyped-def]
    """-F(left) - F(right) of every split of every node, column by column, from prefix sums over the bins.

    Splits split_start[g] .. split_start[g + 1] are those of one column.
    """
    most_bins, most_splits = 0, 0
    for g in range(len(split_start) - 1):
        column = splits[split_start[g], 0]
        most_bins = max(most_bins, bin_start[column + 1] - bin_start[column])
        most_splits = max(most_splits, split_start[g + 1] - split_start[g])
    prefix = np.zeros((n_classes, most_bins + 1))
    left = np.empty((n_classes, most_splits))
    right = np.empty((n_classes, most_splits))
    impurity, total, work = np.empty(most_splits), np.empty(most_splits), np.empty(most_splits)
    for node in range(len(histograms)):
        histogram = histograms[node]
        for g in range(len(split_start) - 1):
            begin, end = split_start[g], split_start[g + 1]
            n = end - begin
            column = splits[begin, 0]
            first_cell = bin_start[column] * n_classes
            n_bins = bin_start[column + 1] - bin_start[column]
            for a in range(n_classes):
                for b in range(n_bins):
                    prefix[a, b + 1] = prefix[a, b] + histogram[first_cell + b * n_classes + a]
                for s in range(n):
                    also = splits[begin + s, 3]
                    goes_left = prefix[a, splits[begin + s, 2] + 1] - prefix[a, splits[begin + s, 1]]
                    if also >= 0:
                        goes_left += histogram[first_cell + also * n_classes + a]
                    left[a, s] = goes_left
                    right[a, s] = prefix[a, n_bins] - goes_left
            impurity[:n] = 0.0
            add_impurities(left[:, :n], criterion, total[:n], work[:n], impurity[:n])
            add_impurities(right[:, :n], criterion, total[:n], work[:n], impurity[:n])
            for s in range(n):
                out[node, begin + s] = -impurity[s]


@compiled
def _cells(histograms, which, bin_start, rules, n_classes):  # type: ignore[no-untyped-def]
    """Cells [place, side, class] of rule i at node which[i]."""
    out = np.zeros((len(which), 2, n_classes), dtype=np.int64)
    for i in range(len(which)):
        histogram = histograms[which[i]]
        begin = bin_start[rules[i, 0]]
        for b in range(bin_start[rules[i, 0] + 1] - begin):
            goes_left = (rules[i, 1] <= b and b <= rules[i, 2]) or b == rules[i, 3]
            side = 0 if goes_left else 1
            for a in range(n_classes):
                out[i, side, a] += histogram[(begin + b) * n_classes + a]
    return out
