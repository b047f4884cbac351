"""A study of made-up rows; as a script it runs until it is killed or done: `python tiny_study.py FOLDER`."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pandas as pd

from hedgerow import Categorical, Numeric, Schema
from hedgerow.datasets import Dataset
from hedgerow.experiments.accuracy import Encoded
from hedgerow.experiments.cells import FIGURES, VERSIONS, Grid, cells_of
from hedgerow.experiments.runner import reproduce

SCHEMA = Schema(
    [Numeric("age", 0, 100), Numeric("dose", 0, 1, 5), Categorical("ward", ["a", "b", "c"])],
    label="ill",
    classes=["no", "yes"],
)
GRID = Grid(
    alphas=(1.0, 64.0), leaf_fractions=(0.1, 0.5, 0.9), leaf_alphas=(1.0,), train_fractions=(0.1, 1.0)
)
RUNS = 2


def made_up(name: str, n_rows: int = 600) -> Dataset:
    rng = np.random.default_rng(3)
    table = pd.DataFrame(
        {
            "age": rng.uniform(0, 100, n_rows),
            "dose": rng.random(n_rows),
            "ward": rng.choice(["a", "b", "c", "d"], n_rows),
        }
    )
    ill = (table.age > 60) ^ ((table.dose < 0.3) & (table.ward == "a")) ^ (rng.random(n_rows) < 0.1)
    rows = np.arange(n_rows)
    labels = np.where(ill, "yes", "no")
    return Dataset(
        name, table, labels, SCHEMA, rows[n_rows // 5 :], rows[: n_rows // 5], "samples only: made up"
    )


def tiny(name: str) -> tuple[Encoded, str]:
    dataset = made_up(name)
    return Encoded.of(dataset), dataset.note


def cells(figures=FIGURES):
    return cells_of(figures, ["tiny"], VERSIONS, RUNS, GRID)


if __name__ == "__main__":
    reproduce(cells([2]), Path(sys.argv[1]), jobs=1, source=tiny)
