"""What several test modules share: made-up tables with every kind of column, and the folder of real data."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import hypothesis
import numpy as np
import pandas as pd
import pytest

from hedgerow import Categorical, Numeric, Schema
from hedgerow.schema import Column

# The first call of a kernel compiles it, which takes longer than any deadline.
hypothesis.settings.register_profile("compiled", deadline=None, derandomize=True)
hypothesis.settings.load_profile("compiled")


@dataclass(frozen=True)
class MadeUp:
    """A table that fits its schema: values on thresholds, out of bounds, missing and unknown included."""

    schema: Schema
    table: pd.DataFrame
    labels: np.ndarray

    def bins(self) -> np.ndarray:
        """[row, column], computed without Hedgerow's encoder."""
        columns = [_plain_bins(column, self.table[column.name].tolist()) for column in self.schema.columns]
        return np.array(columns, dtype=np.int64).reshape(len(columns), len(self.table)).T

    def goes_left(self) -> np.ndarray:
        """[row, split]: which rows answer yes to which candidate split."""
        bins = self.bins()
        answers = [
            ((split.first <= b) & (b <= split.last)) | (b == split.also)
            for split in self.schema.splits
            for b in [bins[:, split.column]]
        ]
        return np.column_stack(answers)


def _plain_bins(column: Column, values: list) -> list[int]:
    bins = []
    for value in values:
        if value is None or value != value:  # noqa: PLR0124 - NaN
            bins.append(column.missing_bin)
        elif isinstance(column, Numeric):
            bins.append(int(np.searchsorted(column.cuts, value, side="left")))
        else:
            known = list(column.categories)
            bins.append(known.index(value) if value in known else column.other_bin)
    return bins


@pytest.fixture(scope="session")
def made_up() -> Callable[..., MadeUp]:
    """A function from a seed to a table; the same seed gives the same table."""

    def make(
        seed: int, n_rows: int | None = None, n_classes: int | None = None, n_columns: int | None = None
    ) -> MadeUp:
        rng = np.random.default_rng(seed)
        n_rows = int(rng.integers(1, 120)) if n_rows is None else n_rows
        n_classes = int(rng.choice([1, 2, 2, 3, 5])) if n_classes is None else n_classes
        n_columns = int(rng.integers(1, 6)) if n_columns is None else n_columns
        names = rng.permutation(["age", "b m i", "città", "dose", "eye"])[:n_columns].tolist()
        columns, series = [], {}
        for name in names:
            column, series[name] = _column(rng, name, n_rows)
            columns.append(column)
        labels = rng.integers(0, n_classes, n_rows)
        first = next(iter(series.values()))
        known = np.array([v in {"k0", "k3"} or (isinstance(v, float) and v > 0) for v in first], dtype=bool)
        labels[known & (rng.random(n_rows) < 0.7)] = 0
        schema = Schema(columns, label="class", classes=[f"c{i}" for i in range(n_classes)])
        frame = pd.DataFrame({name: pd.Series(values, dtype=object) for name, values in series.items()})
        return MadeUp(schema, frame, np.array(schema.classes)[labels])

    return make


def _column(rng: np.random.Generator, name: str, n_rows: int) -> tuple[Column, list]:
    missing = bool(rng.integers(2))
    if rng.random() < 0.5:
        low = float(rng.normal())
        high = low + float(rng.exponential()) + 0.1
        if rng.random() < 0.3:
            column: Column = Numeric(name, low, high, sorted({low, (low + high) / 2}), missing=missing)
        else:
            column = Numeric(name, low, high, int(rng.choice([1, 3, 7, 300])), missing=missing)
        values = rng.uniform(low - 0.3, high + 0.3, n_rows)
        on_a_cut = rng.random(n_rows) < 0.2
        values[on_a_cut] = rng.choice(column.cuts, on_a_cut.sum())
        values[rng.random(n_rows) < 0.05] = rng.choice([-np.inf, np.inf])
        values[rng.random(n_rows) < 0.1] = np.nan
        return column, values.tolist()
    categories = [f"k{i}" for i in range(int(rng.choice([1, 2, 6, 270])))]
    column = Categorical(name, categories, missing=missing)
    drawn = rng.integers(0, min(len(categories), 8) + 2, n_rows)
    values = [*categories[:8], "unknown", None]
    return column, [values[min(i, len(values) - 1)] for i in drawn.tolist()]


@pytest.fixture(scope="session", autouse=True)
def state_of_its_own(tmp_path_factory: pytest.TempPathFactory) -> None:
    """Holders count what they spend in the user's home too; here, and in all processes that tests start, elsewhere."""
    os.environ["XDG_STATE_HOME"] = str(tmp_path_factory.mktemp("state"))


@pytest.fixture(scope="session")
def data_folder() -> Path:
    """The folder of the published data sets; a test that needs it is skipped where there is none."""
    folder = os.environ.get("HEDGEROW_DATA")
    if not folder:
        pytest.skip("HEDGEROW_DATA does not name a folder with the published files")
    return Path(folder)
