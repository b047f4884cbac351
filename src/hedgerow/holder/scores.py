"""What histograms say about splits, compiled: scores, cells, and the same for forks. Exact, and the holder's alone.

Only `counts.py` calls this module; it imports no noise.
"""

from __future__ import annotations

import numpy as np

from hedgerow.compiled import compiled, take
from hedgerow.criteria import add_impurities


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
def score(store, rows, n_bins, split_bins, criteria, tickets, out):  # type: ignore[no-untyped-def]
    """-F(left) - F(right) of every split of every node."""
    scratch = _scratch(store, out.shape[1])
    for _ in range(len(rows)):
        node = take(tickets)
        if node >= len(rows):
            break
        _set_potentials(store[rows[node]], n_bins, split_bins, criteria[node], scratch, out[node])
        for s in range(out.shape[1]):
            out[node, s] = -out[node, s]


@compiled
def find_best(store, rows, n_bins, split_bins, criteria, tickets, out):  # type: ignore[no-untyped-def]
    """The split of every node that leaves the least, the first of equals."""
    potentials = np.empty(len(split_bins[0]))
    scratch = _scratch(store, len(potentials))
    for _ in range(len(rows)):
        node = take(tickets)
        if node >= len(rows):
            break
        _set_potentials(store[rows[node]], n_bins, split_bins, criteria[node], scratch, potentials)
        best = 0
        for s in range(1, len(potentials)):
            if potentials[s] < potentials[best]:
                best = s
        out[node] = best


@compiled
def _scratch(store, n_splits):  # type: ignore[no-untyped-def]
    sides = np.empty((2, store.shape[1], n_splits))
    return np.zeros(store.shape[2] + 1, np.int64), sides[0], sides[1], np.empty(n_splits), np.empty(n_splits)


@compiled
def _set_potentials(histogram, n_bins, split_bins, criterion, scratch, out):  # type: ignore[no-untyped-def]
    """F(left) + F(right) of every split of a node."""
    prefix, left, right, total, work = scratch
    _sides(histogram, n_bins, split_bins, prefix, left, right)
    out[:] = 0.0
    add_impurities(left, criterion, total, work, out)
    add_impurities(right, criterion, total, work, out)


@compiled
def all_cells(store, rows, n_bins, split_bins, out):  # type: ignore[no-untyped-def]
    """Cells [node, split, side, class] of every split of every node."""
    prefix = np.zeros(store.shape[2] + 1, np.int64)
    for node in range(len(rows)):
        _sides(store[rows[node]], n_bins, split_bins, prefix, out[node, :, 0].T, out[node, :, 1].T)


@compiled
def cells_of(store, rows, bin_start, rules):  # type: ignore[no-untyped-def]
    """Cells [node, side, class] of rule i at the i-th node."""
    n_classes = store.shape[1]
    out = np.zeros((len(rows), 2, n_classes), dtype=np.int64)
    for i in range(len(rows)):
        histogram = store[rows[i]]
        begin = bin_start[rules[i, 0]]
        for b in range(bin_start[rules[i, 0] + 1] - begin):
            goes_left = (rules[i, 1] <= b and b <= rules[i, 2]) or b == rules[i, 3]
            side = 0 if goes_left else 1
            for a in range(n_classes):
                out[i, side, a] += histogram[a, begin + b]
    return out


# ---- Forks: a split, and one more on each of its sides -----------------------------------------------------


@compiled
def score_forks(  # type: ignore[no-untyped-def]
    narrow, wide, narrow_offsets, wide_offsets, order, label_bits, ranges, times, pairs, n_bins, split_bins, bin_start,
    rules, criteria, tickets, out,
):  # fmt: skip
    """Scores of what follows every split of every node; `pairs` [class, bin, bin] has the shape of their counts."""
    n_splits = out.shape[2]
    pairs = np.empty_like(pairs)
    part, rest = np.empty((2, *pairs.shape[:2]), np.int64)
    sides = np.empty((2, len(pairs), n_splits + 1))
    scratch = (
        np.zeros(pairs.shape[1] + 1, np.int64),
        sides[0],
        sides[1],
        np.empty(n_splits + 1),
        np.empty(n_splits + 1),
    )
    for _ in range(len(ranges)):
        node = take(tickets)
        if node >= len(ranges):
            break
        start, stop = ranges[node]
        _count_pairs(narrow, wide, narrow_offsets, wide_offsets, order, label_bits, start, stop, times, pairs)
        _add_up(pairs, bin_start)
        for s in range(n_splits):
            _parts_of(pairs, s, bin_start, rules, part, rest)
            _set_all_potentials(part, n_bins, split_bins, criteria[node], scratch, out[node, 0, s])
            _set_all_potentials(rest, n_bins, split_bins, criteria[node], scratch, out[node, 1, s])
        for i in range(out[node].size):
            out[node].flat[i] = -out[node].flat[i]


@compiled
def _count_pairs(  # type: ignore[no-untyped-def]
    narrow, wide, narrow_offsets, wide_offsets, order, label_bits, start, stop, times, pairs
):
    """How many rows of each class are in a bin and in another one: [class, bin, bin]."""
    pairs[:] = 0
    bits = np.uint64(label_bits)
    labels = (np.uint64(1) << bits) - np.uint64(1)
    n_narrow, n_columns = narrow.shape[1], narrow.shape[1] + wide.shape[1]
    bins = np.empty(n_columns, np.uint64)
    for j in range(start, stop):
        entry = np.uint64(order[j])
        row, of_class = entry >> bits, pairs[entry & labels]
        n = np.int32(times[row]) if len(times) else np.int32(1)
        for f in range(n_narrow):
            bins[f] = narrow_offsets[f] + np.uint64(narrow[row, f])
        for f in range(n_narrow, n_columns):
            bins[f] = wide_offsets[f - n_narrow] + np.uint64(wide[row, f - n_narrow])
        for f in range(n_columns):
            of_bin = of_class[bins[f]]
            for g in range(f, n_columns):
                of_bin[bins[g]] += n
    for a in range(len(pairs)):  # each two columns were counted one way round
        for b in range(pairs.shape[1]):
            for c in range(b):
                both = pairs[a, b, c] + pairs[a, c, b]
                pairs[a, b, c] = pairs[a, c, b] = both


@compiled
def _add_up(pairs, bin_start):  # type: ignore[no-untyped-def]
    """Turn counts of rows in a bin into those of rows in it and all bins of its column before."""
    for a in range(len(pairs)):
        for column in range(len(bin_start) - 1):
            for b in range(bin_start[column] + 1, bin_start[column + 1]):
                pairs[a, b] += pairs[a, b - 1]


@compiled
def _parts_of(sums, s, bin_start, rules, part, rest):  # type: ignore[no-untyped-def]
    """Histograms [class, bin] of the rows on the left side of split s, and on its right side."""
    column, first, last, also = rules[s]
    begin, end = bin_start[column], bin_start[column + 1] - 1
    for a in range(len(sums)):
        part[a] = sums[a, begin + last]
        if first > 0:
            part[a] -= sums[a, begin + first - 1]
        if also >= 0:
            part[a] += sums[a, begin + also]
        if also > 0:
            part[a] -= sums[a, begin + also - 1]
        rest[a] = sums[a, end] - part[a]


@compiled
def _set_all_potentials(histogram, n_bins, split_bins, criterion, scratch, out):  # type: ignore[no-untyped-def]
    """F(left) + F(right) of every split of some rows, and their F as they are."""
    _, left, right, _, _ = scratch
    for a in range(len(histogram)):  # beyond all splits one more, which sends all rows left
        left[a, -1], right[a, -1] = histogram[a, :n_bins].sum(), 0.0
    _set_potentials(histogram, n_bins, split_bins, criterion, scratch, out)


@compiled
def count_quarters(  # type: ignore[no-untyped-def]
    narrow, wide, order, label_bits, ranges, times, rules, tickets, out
):
    """Class counts [node, side, side, class] of rows by a split and the splits of its sides: rules [node, 3]."""
    bits = np.uint64(label_bits)
    labels = (np.uint64(1) << bits) - np.uint64(1)
    for _ in range(len(ranges)):
        i = take(tickets)
        if i >= len(ranges):
            break
        for j in range(ranges[i, 0], ranges[i, 1]):
            entry = np.uint64(order[j])
            row = entry >> bits
            side = _side(narrow, wide, row, rules[i, 0])
            below = _side(narrow, wide, row, rules[i, 1 + side])
            out[i, side, below, entry & labels] += times[row] if len(times) else 1


@compiled
def _side(narrow, wide, row, rule):  # type: ignore[no-untyped-def]
    code = np.int64(wide[rule[1], row]) if rule[0] else np.int64(narrow[rule[1], row])
    return 0 if (rule[2] <= code and code <= rule[3]) or code == rule[4] else 1
