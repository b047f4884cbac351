"""Exact counts: every histogram equals a plain count, whatever the batches, threads and subtractions."""

from __future__ import annotations

import tracemalloc

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hedgerow import Categorical, InvalidTable, Numeric, Schema
from hedgerow import threads as threads_module
from hedgerow.criteria import Criterion, weighted_impurities
from hedgerow.encoding import Codes, encode
from hedgerow.holder import counts as counts_module
from hedgerow.holder.counts import GroupedRows


class Rows:
    """Random rows in narrow and wide columns, and the plain way of counting them."""

    def __init__(self, seed, n_rows=2_000, n_classes=3):
        rng = np.random.default_rng(seed)
        columns = [
            Numeric("a", 0, 1, 5, missing=True),
            Numeric("b", 0, 1, 400),
            Categorical("c", [f"k{i}" for i in range(6)]),
            Categorical("d", list(range(300)), missing=True),
            Numeric("e", 0, 1, [0.3]),
        ]
        self.schema = Schema(columns, label="y", classes=list(range(n_classes)))
        self.bins = np.column_stack([rng.integers(0, n, n_rows) for n in self.schema.n_bins])
        self.bins = self.bins.reshape(n_rows, len(columns))
        places = encode(np.empty((0, 5)), all_numeric(self.schema)).places
        is_wide = places[:, 0] == 1
        self.codes = Codes(
            np.ascontiguousarray(self.bins[:, ~is_wide]).astype(np.uint8),
            np.ascontiguousarray(self.bins[:, is_wide]).astype(np.uint16),
            places,
        )
        self.labels = rng.integers(0, n_classes, n_rows).astype(np.uint8)
        self.rng = rng

    def grouped(self, rows=None):
        return GroupedRows(self.codes, self.labels, self.schema, rows)

    def goes_left(self, split):
        rule = self.schema.splits[split]
        b = self.bins[:, rule.column]
        return ((rule.first <= b) & (b <= rule.last)) | (b == rule.also)

    def histogram(self, members):
        """[class, bin] of the rows `members`, which may repeat, column after column."""
        k = self.schema.n_classes
        parts = [
            np.bincount(b[members] + n * self.labels[members], minlength=n * k).reshape(k, n)
            for b, n in zip(self.bins.T, self.schema.n_bins, strict=True)
        ]
        return np.concatenate(parts, axis=1)

    def cells(self, members, split):
        left = self.goes_left(split)[members]
        k = self.schema.n_classes
        return [np.bincount(self.labels[members[side]], minlength=k).tolist() for side in (left, ~left)]


def all_numeric(schema):
    """A schema with as many bins in each column, into which a matrix of numbers may be encoded."""
    columns = [Numeric(c.name, 0, 1, c.n_bins - 1) for c in schema.columns]
    return Schema(columns, label="y", classes=[0])


def histograms(grouped, nodes):
    nodes = np.array(nodes, dtype=np.int64)
    out = np.full((len(nodes), *grouped._store.shape[1:]), -1)
    for here, store, rows in grouped.histograms(nodes):
        out[here] = store[rows]
    return out


def grow(rows, grouped, n_waves=4, sample=None):
    """Split at random, wave after wave; yields the nodes and their rows after every wave."""
    members = {0: np.arange(len(rows.labels)) if sample is None else sample}
    leaves, n_nodes = [0], 1
    for _ in range(n_waves):
        chosen = rows.rng.permutation(leaves)[: max(1, len(leaves) * 3 // 4)]
        splits = rows.rng.integers(0, len(rows.schema.splits), len(chosen))
        children = n_nodes + np.arange(2 * len(chosen)).reshape(-1, 2)
        n_nodes += children.size
        grouped.split(chosen.astype(np.int64), splits.astype(np.int64))
        for node, split, (left, right) in zip(chosen.tolist(), splits, children.tolist(), strict=True):
            mine = members[node]
            goes_left = rows.goes_left(split)[mine]
            members[left], members[right] = mine[goes_left], mine[~goes_left]
            leaves.remove(node)
            leaves += [left, right]
        yield leaves, members


def assert_all_counts_are_right(rows, grouped, leaves, members):
    found = histograms(grouped, leaves)
    for node, histogram in zip(leaves, found, strict=True):
        assert (histogram == rows.histogram(members[node])).all(), node
    k = rows.schema.n_classes
    labels = grouped.label_counts(np.array(leaves))
    assert labels.tolist() == [np.bincount(rows.labels[members[n]], minlength=k).tolist() for n in leaves]
    splits = rows.rng.integers(0, len(rows.schema.splits), len(leaves))
    cells = grouped.cells(np.array(leaves), splits)
    assert cells.tolist() == [rows.cells(members[n], s) for n, s in zip(leaves, splits, strict=True)]
    every = grouped.all_cells(np.array(leaves))
    assert every[np.arange(len(leaves)), splits].tolist() == cells.tolist()
    assert (grouped.columns(np.array(leaves)) == np.stack(found).swapaxes(1, 2)).all()


@pytest.fixture(params=[1, 2, 5], ids=lambda n: f"{n} threads")
def threads(request, monkeypatch):
    for module in (counts_module, threads_module):
        monkeypatch.setattr(module, "n_threads", lambda: request.param)
    for size in ("ROWS_TO_COUNT", "ROWS_TO_PARTITION", "CELLS_WORTH_A_THREAD"):
        monkeypatch.setattr(counts_module, size, 1)
    threads_module._helpers.cache_clear()
    yield request.param
    threads_module._helpers.cache_clear()


@pytest.mark.parametrize("n_rows", [0, 1, 7, 3_000])
def test_counts_of_every_node_equal_a_plain_count(threads, n_rows):
    rows = Rows(n_rows + threads, n_rows)
    grouped = rows.grouped()
    assert_all_counts_are_right(rows, grouped, [0], {0: np.arange(n_rows)})
    for leaves, members in grow(rows, grouped):
        assert_all_counts_are_right(rows, grouped, leaves, members)


@pytest.mark.parametrize("n_classes", [1, 2, 3, 200])
def test_any_number_of_classes_is_counted(n_classes):
    rows = Rows(5, 1_000, n_classes)
    grouped = rows.grouped()
    for leaves, members in grow(rows, grouped, n_waves=2):
        assert_all_counts_are_right(rows, grouped, leaves, members)


def test_more_than_256_classes_are_counted():
    rows = Rows(6, 1_000, 1_000)
    rows.labels = rows.rng.integers(0, 1_000, 1_000).astype(np.uint16)
    for leaves, members in grow(rows, grouped := rows.grouped(), n_waves=2):
        assert_all_counts_are_right(rows, grouped, leaves, members)


@pytest.mark.parametrize("n_histograms", [0, 7, 10, 30])
def test_little_memory_means_more_batches_and_the_same_counts(monkeypatch, n_histograms):
    rows = Rows(8)
    monkeypatch.setattr(counts_module, "MEMORY", n_histograms * 4 * rows.grouped()._n_cells)
    grouped = rows.grouped()
    for leaves, members in grow(rows, grouped, n_waves=5):
        assert_all_counts_are_right(rows, grouped, leaves, members)
        n_batches = sum(1 for _ in grouped.histograms(np.array(leaves)))
        assert n_batches == -(-len(leaves) // (max(6, n_histograms) // 3))
        assert len(grouped._store) == max(6, n_histograms)


def test_the_larger_sibling_is_the_parent_minus_the_smaller(monkeypatch):
    rows = Rows(9)
    grouped = rows.grouped()
    histograms(grouped, [0])
    grouped.split(np.array([0]), np.array([2]))
    counted = []
    count = GroupedRows._count
    monkeypatch.setattr(
        GroupedRows, "_count", lambda self, nodes, *rest: counted.extend(nodes) or count(self, nodes, *rest)
    )
    left = rows.goes_left(2)
    found = histograms(grouped, [1, 2])
    assert counted == [1 if left.sum() <= (~left).sum() else 2]
    assert (found[0] == rows.histogram(np.flatnonzero(left))).all()
    assert (found[1] == rows.histogram(np.flatnonzero(~left))).all()


def test_counting_without_subtraction_gives_the_same(monkeypatch):
    results = []
    for subtract in (True, False):
        rows = Rows(10)
        grouped = rows.grouped()
        if not subtract:
            monkeypatch.setattr(
                counts_module, "_to_make", lambda nodes, _, __, row: (nodes[row[nodes] == -1], nodes[:0])
            )
        found = [histograms(grouped, leaves) for leaves, _ in grow(rows, grouped, n_waves=5)]
        results.append(found)
    assert all((a == b).all() for a, b in zip(*results, strict=True))


@pytest.mark.parametrize("is_stored", [False, True])
def test_a_node_that_is_named_often_is_counted_once(is_stored):
    """A copy of its histogram for each place would take 500 MB."""
    schema, rng = (
        Schema([Numeric("x", 0, 1, 2_000)], label="y", classes=list(range(4))),
        np.random.default_rng(12),
    )
    labels = rng.integers(0, 4, 100).astype(np.uint8)
    grouped = GroupedRows(encode(rng.random((100, 1)), schema), labels, schema)
    if is_stored:
        histograms(grouped, [0])
    tracemalloc.start()
    found = grouped.label_counts(np.zeros(2**14, dtype=np.int64))
    _, most = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert most < 16 * 2**20
    assert (found == np.bincount(labels, minlength=4)).all()


def test_the_children_of_a_node_add_up_to_it():
    rows = Rows(11)
    grouped = rows.grouped()
    before = histograms(grouped, [0])[0]
    grouped.split(np.array([0]), np.array([700]))
    grouped._row[:] = grouped._owner[:] = -1  # so that the children are counted, not subtracted
    assert (histograms(grouped, [1])[0] + histograms(grouped, [2])[0] == before).all()
    cells = grouped.cells(np.array([0]), np.array([700]))[0]
    assert cells.tolist() == grouped.label_counts(np.array([1, 2])).tolist()


def test_a_sample_by_row_index_is_counted_alone_and_copies_nothing(threads):
    rows = Rows(12)
    sample = rows.rng.choice(2_000, 900, replace=False).astype(np.int32)
    grouped = rows.grouped(sample)
    assert grouped._columns is rows.codes.by_column
    assert grouped._codes[0] is rows.codes.narrow
    assert_all_counts_are_right(rows, grouped, [0], {0: sample})
    for leaves, members in grow(rows, grouped, n_waves=3, sample=sample):
        assert_all_counts_are_right(rows, grouped, leaves, members)


def test_rows_are_never_changed():
    rows = Rows(13)
    before = rows.codes.narrow.copy(), rows.codes.wide.copy(), rows.labels.copy()
    for _ in grow(rows, rows.grouped()):
        pass
    assert (rows.codes.narrow == before[0]).all()
    assert (rows.codes.wide == before[1]).all()
    assert (rows.labels == before[2]).all()


def test_a_node_that_is_named_twice_is_counted_once(threads):
    rows = Rows(20)
    for leaves, members in grow(rows, grouped := rows.grouped(), n_waves=3):
        assert_all_counts_are_right(rows, grouped, [*leaves[::-1], *leaves[:2], leaves[0]], members)
        assert_all_counts_are_right(rows, grouped, leaves, members)


@pytest.mark.parametrize("n_histograms", [0, 1_000])
def test_counts_that_failed_are_made_anew(monkeypatch, n_histograms):
    """What the store holds of other nodes, or of anything, is never taken for them."""
    rows = Rows(12)
    monkeypatch.setattr(counts_module, "MEMORY", n_histograms * 4 * rows.grouped()._n_cells)
    grouped = rows.grouped()
    grouped._store[:] = 77
    for leaves, members in grow(rows, grouped, n_waves=3):
        with monkeypatch.context() as broken:
            broken.setattr(counts_module, "share", fail)
            with pytest.raises(MemoryError):
                histograms(grouped, leaves)
        assert_all_counts_are_right(rows, grouped, leaves, members)


@pytest.mark.parametrize("step", ["share", "_join"])
def test_rows_whose_partition_was_interrupted_are_not_counted(monkeypatch, threads, step):
    if step == "_join" and threads == 1:
        pytest.skip("there is nothing to join")
    rows = Rows(21)
    grouped = rows.grouped()
    with monkeypatch.context() as broken:
        broken.setattr(counts_module, step, fail)
        with pytest.raises(MemoryError):
            grouped.split(np.array([0]), np.array([2]))
    for count in (grouped.label_counts, grouped.columns):
        with pytest.raises(IndexError):
            count(np.array([0]))


def fail(*_):
    raise MemoryError


def test_a_node_without_rows_counts_nothing():
    rows = Rows(14, 50)
    rows.bins[:, 4] = 0
    rows.codes.column(4)[:] = 0
    everything_left = next(i for i, s in enumerate(rows.schema.splits) if s.text == "e <= 0.3")
    grouped = rows.grouped()
    grouped.split(np.array([0]), np.array([everything_left]))
    grouped.split(np.array([2, 1]), np.array([0, 3]))
    assert grouped.label_counts(np.array([2, 3, 4])).sum() == 0
    assert histograms(grouped, [2, 3, 4]).sum() == 0
    assert grouped.label_counts(np.array([5, 6])).sum() == 50


def test_many_nodes_are_counted_in_one_pass(threads):
    rows = Rows(15, 5_000)
    grouped = rows.grouped()
    for leaves, members in grow(rows, grouped, n_waves=9):
        last = leaves, members
    assert len(last[0]) > 100
    assert_all_counts_are_right(rows, grouped, *last)


def test_threads_that_share_a_node_never_write_to_the_same_histogram(monkeypatch):
    rows = Rows(17, 1_000)
    monkeypatch.setattr(counts_module, "n_threads", lambda: 4)
    monkeypatch.setattr(counts_module, "ROWS_TO_COUNT", 1)
    monkeypatch.setattr(counts_module, "TURNS", 1)
    add, spares = counts_module._add_spare, []

    def recorded(store, targets, parts, spare):
        spares.extend(spare.sum(axis=(1, 2)).tolist())
        add(store, targets, parts, spare)

    monkeypatch.setattr(counts_module, "_add_spare", recorded)
    assert (histograms(rows.grouped(), [0])[0] == rows.histogram(np.arange(1_000))).all()
    # The first part is counted into the node's own histogram, the others' 250 rows x 5 columns are apart.
    assert spares == [0, 1_250, 1_250, 1_250]


@pytest.mark.parametrize("row", [0, 255, 256, 999])
def test_rows_encoded_by_another_schema_are_refused_before_they_are_counted(row):
    Rows(18, 1_000).grouped()
    rows = Rows(18, 1_000)
    for column in range(5):
        codes = rows.codes.column(column)
        kept, codes[row] = int(codes[row]), rows.schema.n_bins[column]
        with pytest.raises(InvalidTable, match=f"column '{'abcde'[column]}' has codes of another schema"):
            rows.grouped()
        codes[row] = kept
    for wrong in (3, 255):
        rows.labels[row] = wrong
        with pytest.raises(InvalidTable, match="number none of its classes"):
            rows.grouped()
    rows.labels = np.full(1_000, -1)
    with pytest.raises(InvalidTable, match="number none of its classes"):
        rows.grouped()


@pytest.mark.parametrize("sample", [[0, 3, 3], [-1, 2], [10], [0.0, 1.0], [[0, 1]]])
def test_a_sample_names_rows_that_are_there_once(sample):
    rows = Rows(19, 10)
    with pytest.raises(InvalidTable, match="row number"):
        rows.grouped(np.array(sample))


def test_codes_of_another_shape_are_refused():
    rows = Rows(19, 10)
    narrow, wide, places = rows.codes.narrow, rows.codes.wide, rows.codes.places
    for codes in (
        Codes(narrow[:, :2], wide, places),
        Codes(narrow, wide[:9], places),
        Codes(narrow[:9], wide[:9], places),
    ):
        with pytest.raises(InvalidTable, match="encode them anew"):
            GroupedRows(codes, rows.labels, rows.schema)


@pytest.mark.parametrize("criterion", [Criterion.gini, Criterion.entropy, Criterion.error])
def test_scores_are_minus_the_impurity_of_both_sides(criterion):
    rows = Rows(16, 500)
    grouped = rows.grouped()
    for leaves, members in grow(rows, grouped, n_waves=2):
        [(_, store, where)] = grouped.histograms(np.array(leaves))
        scores = grouped.scores(store, where, criterion)
        assert scores.shape == (len(leaves), len(rows.schema.splits))
        for node, found in zip(leaves, scores, strict=True):
            cells = np.array([rows.cells(members[node], s) for s in range(len(rows.schema.splits))])
            assert (found == -weighted_impurities(cells, criterion).sum(axis=1)).all()


# ---- Forks ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("criterion", Criterion)
@pytest.mark.parametrize("n_rows", [0, 1, 500])
def test_scores_of_forks_are_minus_the_impurity_of_what_they_make(threads, criterion, n_rows):
    """Some of them, at random: a split, a side of it, and a split of that, or none."""
    rows = Rows(n_rows + threads, n_rows, n_classes=2)
    grouped, n_splits = rows.grouped(), len(rows.schema.splits)
    *_, (leaves, members) = grow(rows, grouped, n_waves=2)
    nodes, which = np.array(leaves[:3]), np.full(3, int(criterion))
    found = {}
    for here, scores in grouped.fork_scores(nodes, which):
        found |= {leaves[i]: score for i, score in zip(here, scores, strict=True)}
    assert list(found) == leaves[:3]
    for node, scores in found.items():
        assert scores.shape == (2, n_splits, n_splits + 1)
        for split, below in rows.rng.integers(0, n_splits, (40, 2)):
            goes_left = rows.goes_left(split)[members[node]]
            for side, part in enumerate((members[node][goes_left], members[node][~goes_left])):
                cells = np.array(rows.cells(part, below))
                expected = -weighted_impurities(cells, criterion).sum()
                assert scores[side, split, below] == pytest.approx(expected, abs=1e-9)
                whole = -weighted_impurities(cells.sum(axis=0), criterion)
                assert scores[side, split, -1] == pytest.approx(float(whole), abs=1e-9)


def test_little_memory_means_more_batches_and_the_same_scores_of_forks(monkeypatch):
    rows = Rows(3, 300, n_classes=2)
    grouped = rows.grouped()
    *_, (leaves, _) = grow(rows, grouped, n_waves=2)
    nodes, which = np.array(leaves), np.zeros(len(leaves), np.int64)
    at_once, one_by_one = [], []
    for memory, kept in ((2**30, at_once), (1, one_by_one)):
        monkeypatch.setattr(counts_module, "MEMORY", memory)
        kept += [(here.tolist(), scores) for here, scores in grouped.fork_scores(nodes, which)]
    assert [here for here, _ in one_by_one] == [[i] for i in range(len(leaves))]
    assert np.array_equal(np.concatenate([s for _, s in at_once]), np.concatenate([s for _, s in one_by_one]))


def test_quarters_that_are_named_often_are_counted_once(monkeypatch):
    rows = Rows(4)
    counted, kernel = [], counts_module.count_quarters
    monkeypatch.setattr(
        counts_module, "count_quarters", lambda *a: (counted.append(len(a[4])), kernel(*a))[1]
    )
    nodes, forks = np.zeros(1000, np.int64), np.tile([[3, 1, 2], [3, 2, 1]], (500, 1))
    found = rows.grouped().quarters(nodes, forks)
    assert counted == [2]
    assert (found[::2] == found[0]).all()
    assert (found[1::2] == found[1]).all()
    assert found[0].tolist() != found[1].tolist()


def test_quarters_are_the_cells_of_both_sides(threads):
    """Where a side has no split of its own, all of its rows are counted as left."""
    rows = Rows(8 + threads)
    grouped, n_splits = rows.grouped(), len(rows.schema.splits)
    *_, (leaves, members) = grow(rows, grouped, n_waves=3)
    forks = rows.rng.integers(0, n_splits, (len(leaves), 3))
    forks[0, 1] = forks[1, 2] = -1
    found = grouped.quarters(np.array(leaves), forks)
    for node, (split, *below), quarters in zip(leaves, forks, found, strict=True):
        goes_left = rows.goes_left(split)[members[node]]
        for side, part in enumerate((members[node][goes_left], members[node][~goes_left])):
            if below[side] >= 0:
                assert quarters[side].tolist() == rows.cells(part, below[side])
            else:
                classes = np.bincount(rows.labels[part], minlength=rows.schema.n_classes)
                assert quarters[side].tolist() == [classes.tolist(), [0] * len(classes)]


def test_quarters_have_missing_values_on_the_side_to_which_their_splits_send_them():
    rows = Rows(3)
    grouped, everybody = rows.grouped(), np.arange(2_000)
    with_missing = [i for i, split in enumerate(rows.schema.splits) if split.also >= 0]
    forks = rows.rng.choice(with_missing, (40, 3))
    for (split, *below), quarters in zip(forks, grouped.quarters(np.zeros(40, np.int64), forks), strict=True):
        goes_left = rows.goes_left(split)
        for side, part in enumerate((everybody[goes_left], everybody[~goes_left])):
            assert quarters[side].tolist() == rows.cells(part, below[side])


@settings(max_examples=30)
@given(seed=st.integers(0, 2**32 - 1), n_rows=st.integers(0, 300), n_classes=st.sampled_from([1, 2, 3, 20]))
def test_random_trees_of_splits_count_like_a_plain_count(seed, n_rows, n_classes):
    rows = Rows(seed, n_rows, n_classes)
    grouped = rows.grouped()
    for leaves, members in grow(rows, grouped, n_waves=3):
        assert_all_counts_are_right(rows, grouped, leaves, members)
