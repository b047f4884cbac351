"""What a coordinator may ask of a data holder, and what comes back. Values only, no behaviour.

Nodes are numbered by the coordinator; the root is 0. Every query says what it costs at each of its nodes:
`epsilons`, exact rationals, or infinity for the non-private baseline.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from hedgerow.criteria import Criterion

IntArray = NDArray[np.int64]
Epsilon = Fraction | float  # a float only for infinity

ROOT = 0


@dataclass(frozen=True, eq=False)
class Grow:
    """An announcement: `nodes` are split by `splits` into `children` [node, (left, right)]. Costs nothing."""

    nodes: IntArray
    splits: IntArray
    children: IntArray


@dataclass(frozen=True, eq=False)
class Nominate:
    """Which candidate split is (nearly) the best at each node? Answer: its index, [node]."""

    nodes: IntArray
    criterion: Criterion
    selector: str
    epsilons: Sequence[Epsilon]


@dataclass(frozen=True, eq=False)
class CountCells:
    """How many rows of each class go left and right under a split? Answer: [node, side, class]."""

    nodes: IntArray
    splits: IntArray
    epsilons: Sequence[Epsilon]


@dataclass(frozen=True, eq=False)
class CountLabels:
    """How many rows of each class are at a node? Answer: [node, class]."""

    nodes: IntArray
    epsilons: Sequence[Epsilon]


@dataclass(frozen=True, eq=False)
class CountRows:
    """How many rows are at a node? Answer: [node, 1]."""

    nodes: IntArray
    epsilons: Sequence[Epsilon]


Query = CountRows | Nominate | CountCells | CountLabels
