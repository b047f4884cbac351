"""What every process of tests needs, imported once: they are forked from one that has it. Nothing of Hedgerow."""

# ruff: noqa: F401 - it is the import that counts
from __future__ import annotations

import hypothesis
import msgpack
import narwhals
import numba
import numpy as np
import pandas as pd
import pytest
import scipy.stats
import sklearn.base
import sklearn.utils.validation


@numba.njit(nogil=True)
def _first(values: np.ndarray) -> tuple[int, np.uint64]:
    """The first thing that Numba compiles takes it a second longer than the next ones."""
    squares = np.empty(len(values), np.int64)
    for i in range(len(values)):
        squares[i] = values[i] * values[i]
    return squares.sum(), np.uint64(len(squares))


_first(np.arange(3))
pd.DataFrame({"x": [1]})
