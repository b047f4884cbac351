"""Rows kept once with how often they occur count, and are predicted, like all of them."""

from __future__ import annotations

import math

import numpy as np
import pytest

from hedgerow import Numeric, PrivateTreeClassifier, Schema
from hedgerow.encoding import encode, encode_labels
from hedgerow.experiments.distinct import Distinct, RepeatedRows
from hedgerow.holder.counts import GroupedRows

N_ROWS = 3_000


@pytest.fixture(params=[False, True], ids=["narrow", "wide"])
def table(request):
    rng = np.random.default_rng(0)
    schema = Schema(
        [Numeric("a", 0, 1, 300 if request.param else 4), Numeric("b", 0, 1, 3)], label="y", classes=[0, 1, 2]
    )
    X = rng.choice(rng.random((400, 2)), N_ROWS)
    y = (1.4 * X.sum(axis=1) + 0.2 * rng.random(N_ROWS)).astype(int)
    return schema, encode(X, schema), encode_labels(y, schema)


def samples():
    rng = np.random.default_rng(1)
    return [np.arange(N_ROWS), rng.permutation(N_ROWS)[:40], *np.arange(10)[:, None]]


def test_rows_that_differ_in_the_label_only_are_kept_apart(table):
    _, codes, labels = table
    distinct = Distinct.of(codes, labels)
    n_different = len(
        {(*row, *wide, y) for row, wide, y in zip(codes.narrow, codes.wide, labels, strict=True)}
    )
    assert len(Distinct.of(codes, np.zeros_like(labels)).labels) < len(distinct.labels) == n_different < 500
    assert (distinct.codes.narrow[distinct.which] == codes.narrow).all()
    assert (distinct.codes.wide[distinct.which] == codes.wide).all()
    assert (distinct.labels[distinct.which] == labels).all()
    assert distinct.all_times.sum() == N_ROWS


@pytest.mark.parametrize("rows", samples(), ids=len)
def test_accuracy_is_that_of_all_rows(table, rows):
    schema, codes, labels = table
    tree = PrivateTreeClassifier(schema=schema, epsilon=math.inf, max_splits=3).fit_codes(codes, labels).tree_
    is_right = tree.counts.argmax(axis=1)[tree.apply(codes)] == labels
    distinct = Distinct.of(codes, labels)
    assert 0.5 < is_right.mean() < 1
    assert distinct.accuracy(tree, distinct.times(rows)) == is_right[rows].mean()


@pytest.mark.parametrize("rows", [*samples(), np.empty(0, dtype=np.int64)], ids=len)
def test_repeated_rows_count_as_often_as_they_occur(table, rows, monkeypatch):
    monkeypatch.setattr("hedgerow.experiments.distinct.N_NODES", 2)  # room for more is made twice
    schema, codes, labels = table
    distinct = Distinct.of(codes, labels)
    once = RepeatedRows(distinct, distinct.times(rows), schema)
    each = GroupedRows(codes, labels, schema, rows)
    assert once.n_rows == len(rows)
    splits = np.random.default_rng(2).choice(len(schema.splits), 3, replace=False)
    nodes = np.array([0])
    for node, split in enumerate(splits):
        for grouped in (once, each):
            grouped.split(np.array([node]), np.array([split]))
        nodes = np.arange(2 * node + 3)
        assert (once.label_counts(nodes) == each.label_counts(nodes)).all()
        assert (once.columns(nodes) == each.columns(nodes)).all()
        assert (once.all_cells(nodes) == each.all_cells(nodes)).all()
        forks = np.resize(splits, (len(nodes), 3))
        assert (once.quarters(nodes, forks) == each.quarters(nodes, forks)).all()
        for (_, some), (_, others) in zip(
            *(g.fork_scores(nodes, 0 * nodes) for g in (once, each)), strict=True
        ):
            assert (some == others).all()


def test_a_tree_learned_from_repeated_rows_is_the_one_of_all_rows(table):
    schema, codes, labels = table
    distinct = Distinct.of(codes, labels)
    halves = np.array_split(np.random.default_rng(3).permutation(N_ROWS), 2)

    def model():
        return PrivateTreeClassifier(schema=schema, epsilon=4.0, noise_seed=0)

    repeated = [RepeatedRows(distinct, distinct.times(rows), schema) for rows in halves]
    tree = model()._fit_grouped(repeated).tree_
    assert tree == model().fit_codes(codes, labels, halves).tree_
    assert tree.n_splits > 2
