"""Rows that are equal are routed once, and every row gets its own tree's answer."""

from __future__ import annotations

import math

import numpy as np
import pytest

from hedgerow import Numeric, PrivateTreeClassifier, Schema
from hedgerow.encoding import encode
from hedgerow.experiments.accuracy import Distinct

N_ROWS = 3_000


@pytest.mark.parametrize("wide", [False, True])
def test_distinct_rows_are_predicted_like_all_rows(wide):
    rng = np.random.default_rng(0)
    schema = Schema(
        [Numeric("a", 0, 1, 300 if wide else 4), Numeric("b", 0, 1, 3)], label="y", classes=[0, 1, 2]
    )
    X = rng.choice(rng.random((400, 2)), N_ROWS)
    y = (3 * X.sum(axis=1) / 2).astype(int)
    tree = PrivateTreeClassifier(schema=schema, epsilon=math.inf).fit(X, y).tree_
    codes = encode(X, schema)
    expected = tree.counts.argmax(axis=1)[tree.apply(codes)]
    distinct = Distinct.of(codes)
    assert 5 < distinct.codes.n_rows <= 400
    for rows in (np.arange(N_ROWS), rng.permutation(N_ROWS)[:40], *np.arange(40)[:, None]):
        assert distinct.predict(tree, rows).tolist() == expected[rows].tolist()
