"""Histograms that are remembered are those that counting would give, and no more of them than fit."""

from __future__ import annotations

import numpy as np
import pytest

from hedgerow import Numeric, Schema
from hedgerow.encoding import encode
from hedgerow.experiments import remembered
from hedgerow.experiments.distinct import Distinct, RepeatedRows
from hedgerow.experiments.remembered import Histograms, RememberedRows
from hedgerow.holder.counts import GroupedRows

SCHEMA = Schema([Numeric("a", 0, 1, 4), Numeric("b", 0, 1, 3)], label="y", classes=[0, 1, 2])
RNG = np.random.default_rng(0)
CODES = encode(RNG.random((500, 2)), SCHEMA)
LABELS = RNG.integers(0, 3, 500).astype(np.uint8)
DISTINCT = Distinct.of(CODES, LABELS)


def all_histograms(rows, splits):
    """Of the root, of both children by splits[0], of the children of the left one by splits[1]."""
    found = [rows.columns(np.array([0]))]
    for node, split in enumerate(splits):
        rows.split(np.array([node]), np.array([split]), np.array([[2 * node + 1, 2 * node + 2]]))
        found.append(rows.columns(np.array([2 * node + 1, 2 * node + 2])))
    return np.concatenate(found)


@pytest.mark.parametrize("most_bytes", [0, 300, 2**20])
def test_remembered_histograms_are_the_counted_ones(most_bytes, monkeypatch):
    monkeypatch.setattr(remembered, "WORTH_REMEMBERING", 1)
    memory = Histograms(most_bytes)
    for splits in ([1, 5], [5, 1], [1, 5], [1, 6], [2, 5]):
        counted = all_histograms(GroupedRows(CODES, LABELS, SCHEMA), splits)
        assert (all_histograms(RememberedRows(DISTINCT, SCHEMA, memory), splits) == counted).all()


def test_what_a_tree_has_met_is_not_counted_again_in_whichever_order_it_is_reached(monkeypatch):
    monkeypatch.setattr(remembered, "WORTH_REMEMBERING", 1)
    memory, counted = Histograms(), []
    count = RepeatedRows._count
    monkeypatch.setattr(
        RepeatedRows, "_count", lambda rows, places: (counted.append(len(places)), count(rows, places))
    )
    all_histograms(RememberedRows(DISTINCT, SCHEMA, memory), [1, 5])
    assert sum(counted) == 3  # the root, and the smaller of two siblings twice
    counted.clear()
    all_histograms(RememberedRows(DISTINCT, SCHEMA, memory), [1, 5])
    assert sum(counted) == 0
    again = RememberedRows(DISTINCT, SCHEMA, memory)
    again.split(np.array([0]), np.array([5]), np.array([[1, 2]]))
    again.split(np.array([1]), np.array([1]), np.array([[3, 4]]))
    known = [way for way in memory._known if len(way) == 2]
    [place] = [i for i, way in enumerate(again._ways) if way in known]
    again.columns(np.array([place]))
    assert sum(counted) == 0


def test_the_histogram_not_asked_for_longest_is_forgotten():
    memory = Histograms(most_bytes=2 * 24)
    ways, histogram = [frozenset({i}) for i in range(3)], np.zeros((2, 3), dtype=np.int32)
    memory.keep(ways[0], histogram)
    memory.keep(ways[1], histogram + 1)
    histogram += 7
    assert (memory.find(ways[0]) == 0).all()  # a copy; and now the other one is the older
    memory.keep(ways[2], histogram)
    assert memory.find(ways[1]) is None
    assert memory.find(ways[0]) is not None
    assert (memory.find(ways[2]) == 7).all()
