"""What a PrivateSplit says of its noise is true, however it asks and however many holders answer."""

from __future__ import annotations

from copy import copy
from fractions import Fraction

import numpy as np
import pytest
from numpy.typing import NDArray

from hedgerow import Numeric, Schema
from hedgerow.budget import GRAINS, NodeBudgets
from hedgerow.criteria import Criterion
from hedgerow.encoding import encode, encode_labels
from hedgerow.holder.counts import GroupedRows
from hedgerow.holder.holder import Holder
from hedgerow.learner.private_split import LocalSelection, NoisyCounts, PrivateSplit, SelectSplit
from hedgerow.messages import ROOT
from hedgerow.network.local import LocalNetwork
from hedgerow.paths import Paths
from hedgerow.privacy.ledger import Ledger
from hedgerow.privacy.noise import SeededNoise

# 8 bins a column. The label follows the first column, but at the last of several holders the second: the best
# split of all rows is the middle of the first column, by far, and is not the only nominee.
SCHEMA = Schema([Numeric(name, 0, 1, 7) for name in ("a", "b")], label="y", classes=[0, 1])
MIDDLE = 3
ROWS, SEEDS = 2_000, 400
EPSILON = Fraction(2)
HALVES = NodeBudgets(*(np.array([n]) for n in (Criterion.gini, GRAINS // 2, GRAINS // 2, 0, False)))

Part = tuple[NDArray[np.float64], NDArray[np.int64]]


def parts(n_holders: int) -> list[Part]:
    tables = np.random.default_rng(0).random((n_holders, ROWS, 2))
    followed = [1 if i and i == n_holders - 1 else 0 for i in range(n_holders)]
    return [(table, (table[:, column] > 0.5) * 1) for table, column in zip(tables, followed, strict=True)]


def exact_cells(dealt: list[Part]) -> NDArray[np.int64]:
    """[side, class] of the split MIDDLE."""
    cells = np.zeros((2, 2), dtype=np.int64)
    for table, labels in dealt:
        np.add.at(cells, ((table[:, 0] > 0.5) * 1, labels), 1)
    return cells


@pytest.mark.parametrize(
    ("private_split", "n_holders"),
    [
        (SelectSplit(), 1),
        *(
            (split, n)
            for split in (LocalSelection(), NoisyCounts("per-split"), NoisyCounts())
            for n in (1, 4)
        ),
    ],
    ids=lambda value: getattr(value, "method", value),
)
def test_the_variance_is_that_of_the_cells(private_split: PrivateSplit, n_holders: int) -> None:
    """Squared errors, in units of the variance, have mean 1: over 400 seeds, both sides and both classes.

    One holder's 1600 squares, of kurtosis 6.5 at most, have a mean of standard deviation 0.059; sums over
    bins and holders are nearer to normal. That a mean is off by 0.4 has probability below 1.2e-7, by Chernoff's
    bound on squares up to a limit and the union bound on those above; below 1e-6 for all seven cases.
    """
    dealt = parts(n_holders)
    rows = [
        GroupedRows(encode(table, SCHEMA), encode_labels(labels, SCHEMA), SCHEMA) for table, labels in dealt
    ]
    squares = []
    for seed in range(SEEDS):
        holders = [
            Holder(copy(mine), SeededNoise(SEEDS * i + seed), Ledger(EPSILON), max_rows=ROWS)
            for i, mine in enumerate(rows)
        ]
        network = LocalNetwork(holders)
        found = private_split.evaluate(network, Paths.root(SCHEMA), np.array([ROOT]), HALVES, EPSILON)
        assert found.splits == [MIDDLE]
        squares.append((found.cells[0] - exact_cells(dealt)) ** 2 / found.variance[0])
    assert np.mean(squares) == pytest.approx(1, abs=0.4)
