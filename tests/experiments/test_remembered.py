"""Histograms that are remembered are those that counting would give, and no more of them than fit."""

from __future__ import annotations

import numpy as np
import pytest

from hedgerow import Numeric, Schema
from hedgerow.encoding import encode
from hedgerow.experiments import distinct
from hedgerow.experiments.distinct import Distinct, Histograms, RepeatedRows
from hedgerow.holder.counts import GroupedRows

SCHEMA = Schema([Numeric("a", 0, 1, 4), Numeric("b", 0, 1, 3)], label="y", classes=[0, 1, 2])
RNG = np.random.default_rng(0)
CODES = encode(RNG.random((500, 2)), SCHEMA)
LABELS = RNG.integers(0, 3, 500).astype(np.uint8)
DISTINCT = Distinct.of(CODES, LABELS)


def all_histograms(rows, splits):
    """Of the root, of both children by splits[0], of the left one's by splits[1], of the right one's by splits[2]."""
    found = [rows.columns(np.array([0]))]
    for node, split in enumerate(splits):
        rows.split(np.array([node]), np.array([split]))
        found.append(rows.columns(np.array([2 * node + 1, 2 * node + 2])))
    return np.concatenate(found)


@pytest.mark.parametrize("most_bytes", [0, 300, 2**20])
def test_remembered_histograms_are_the_counted_ones(most_bytes, monkeypatch):
    monkeypatch.setattr(distinct, "WORTH_REMEMBERING", 1)
    memory = Histograms(most_bytes)
    for splits in ([1, 5, 5], [5, 1, 1], [1, 5, 5], [1, 6, 5], [2, 5, 6]):
        counted = all_histograms(GroupedRows(CODES, LABELS, SCHEMA), splits)
        assert (
            all_histograms(RepeatedRows(DISTINCT, DISTINCT.all_times, SCHEMA, memory), splits) == counted
        ).all()


def test_what_a_tree_has_met_is_not_counted_again_in_whichever_order_it_is_reached(monkeypatch):
    monkeypatch.setattr(distinct, "WORTH_REMEMBERING", 1)
    memory, counted, count = Histograms(), [], distinct._count
    monkeypatch.setattr(distinct, "_count", lambda *args: (counted.append(args[-1]), count(*args)))
    all_histograms(RepeatedRows(DISTINCT, DISTINCT.all_times, SCHEMA, memory), [1, 5, 5])
    assert len(counted) == 4  # the root, and the smaller of two siblings three times
    counted.clear()
    all_histograms(RepeatedRows(DISTINCT, DISTINCT.all_times, SCHEMA, memory), [1, 5, 5])
    assert not counted
    again = RepeatedRows(DISTINCT, DISTINCT.all_times, SCHEMA, memory)
    again.split(np.array([0]), np.array([5]))
    again.split(np.array([1]), np.array([1]))
    assert {again._way(place) for place in range(5)} & {way for way in memory._known if len(way) == 2}


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
