"""Pairs of made-up tables that differ in one row, chosen to show mistakes. Imports encoding and tables."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from hedgerow.encoding import MAX_ROWS, Codes, encode, encode_labels
from hedgerow.schema import Categorical, Numeric, Schema
from hedgerow.tables import read_codes, table_writer

Encoded = tuple[Codes, NDArray[Any]]
NAN = float("nan")


@dataclass(frozen=True, eq=False)
class Neighbours:
    """Two tables that differ in one row: `row` is there or not; or stands in the place of `replaced`.

    `bound` is the public bound on the rows of both, by default the least that holds. With `file`, ".csv" or
    ".parquet", the tables are written to files of that kind and read from there.
    """

    name: str
    schema: Schema
    table: NDArray[Any]  # the rows of both, [row, column]; objects if there are categories
    labels: NDArray[np.int64]
    row: tuple[Any, ...]
    label: int
    replaced: tuple[tuple[Any, ...], int] | None = None
    bound: int | None = None
    file: str | None = None

    @cached_property
    def sides(self) -> tuple[Encoded, Encoded]:
        """Both tables, encoded: without the row (or with the one it replaces), and with it."""
        without = (self.table, self.labels) if self.replaced is None else self._with(*self.replaced)
        return self._encoded(*without), self._encoded(*self._with(self.row, self.label))

    @property
    def max_rows(self) -> int:
        """A bound that holds for both (and with which there is anything to learn)."""
        return max(len(self.table) + 1, 2) if self.bound is None else self.bound

    @cached_property
    def probe(self) -> Codes:
        """The row alone: where an attacker looks."""
        return encode(np.array([self.row], dtype=self.table.dtype), self.schema)

    def _with(self, row: tuple[Any, ...], label: int) -> tuple[NDArray[Any], NDArray[np.int64]]:
        added = np.array([row], dtype=self.table.dtype)  # or NumPy would make text of numbers beside text
        return np.vstack([self.table, added]), np.append(self.labels, label)

    def _encoded(self, table: NDArray[Any], labels: NDArray[np.int64]) -> Encoded:
        if self.file is None:
            return encode(table, self.schema), encode_labels(labels, self.schema)
        with TemporaryDirectory() as folder:
            path = Path(folder) / f"table{self.file}"
            with table_writer(path) as write:
                write(_as_arrow(table, labels, self.schema))
            return read_codes(path, self.schema)


def _as_arrow(table: NDArray[Any], labels: NDArray[np.int64], schema: Schema) -> pa.Table:
    columns = {
        column.name: pa.array(
            [None if value is None or value != value else value for value in values.tolist()],  # noqa: PLR0124 - NaN
            pa.float64() if isinstance(column, Numeric) else pa.string(),
        )
        for column, values in zip(schema.columns, table.T, strict=True)
    }
    return pa.table(columns | {schema.label: pa.array(labels.tolist(), pa.int64())})


def from_file(pair: Neighbours, file: str) -> Neighbours:
    """The same tables in files of which one has a line more."""
    return replace(pair, name=f"{pair.name}, read from {file}", file=file)


def without_max_rows(pair: Neighbours) -> Neighbours:
    """The same tables of a user who leaves `max_rows` out: its default is as many rows as there can be."""
    return replace(pair, name=f"{pair.name}, max_rows left out", bound=MAX_ROWS)


# ---- The catalogue ---------------------------------------------------------------------------------------------


def catalogue() -> list[Neighbours]:
    """Pairs of tables on which a mistake would show."""
    rng = np.random.default_rng(0)
    three = (rng.random((30, 3)) < 0.5).astype(float)
    close = np.repeat([[0.0, 0.0], [0.0, 1.0], [1.0, 0.0], [1.0, 1.0]], [8, 4, 4, 8], axis=0)
    ladder = np.linspace(0, 0.7, 20).reshape(-1, 1)
    ones = np.ones(99, np.int64)
    return [
        _pure("first of its class, 1 of 4 candidates falls", 4, 3),
        _pure("first of its class, 3 of 4 candidates fall", 4, 1),
        _pure("first of its class, 1 of 10 candidates stays", 10, 1),
        _pure("first of its class, 1 of 20 candidates stays", 20, 1),
        _pure("first of its class, 10 candidates fall together", 10, 0),
        _pure("first of its class, 100 candidates fall together", 100, 0),
        _pure("one more row in a pure node", 4, 1, label=1),
        _pure("first row of an empty table", 4, 2, rows=0),
        _pure("second row of a table", 4, 2, rows=1),
        Neighbours("only row of one of three classes", _columns(3, 3), three, (three[:, 0] > 0) * 1, (0, 1, 1), 2),
        Neighbours(
            "best candidate changes", _columns(2), close, np.repeat([0, 1, 0, 1], [8, 4, 4, 8]), (0, 1), 0
        ),
        Neighbours("row alone beyond a threshold", _columns(1, thresholds=8), ladder, np.arange(20) % 2, (1.0,), 0),
        Neighbours(
            "row replaced in a pure node", _columns(4), np.zeros((99, 4)), ones, (0, 1, 1, 1), 0, ((1, 0, 0, 0), 0)
        ),
        *tables_of_all_kinds(),
    ]  # fmt: skip


def tables_of_all_kinds() -> list[Neighbours]:
    """Missing values, categories, columns of more than 256 bins, more rows than one thread counts, files."""
    kinds = _kinds()
    return [_missing(), kinds, _wide(), _many_rows(), from_file(kinds, ".csv"), from_file(kinds, ".parquet")]


def _columns(count: int, n_classes: int = 2, thresholds: int = 1) -> Schema:
    return _schema(
        [Numeric(f"x{i:03d}", low=0, high=1, thresholds=thresholds) for i in range(count)], n_classes
    )


def _schema(columns: Sequence[Numeric | Categorical], n_classes: int = 2) -> Schema:
    return Schema(columns, label="y", classes=list(range(n_classes)))


def _pure(name: str, columns: int, alone_in: int, *, rows: int = 99, label: int = 0) -> Neighbours:
    """All rows are alike and of class 1; the new row is beside nobody in the last `alone_in` columns.

    A candidate on one of those keeps its score. On the others it falls by D, if the row is of another class.
    """
    row = (0.0,) * (columns - alone_in) + (1.0,) * alone_in
    schema = _columns(columns)
    return Neighbours(name, schema, np.zeros((rows, columns)), np.ones(rows, np.int64), row, label)


def _missing() -> Neighbours:
    """Of the two splits at a threshold, the one that sends missing values to the others falls."""
    schema = _schema([Numeric(name, low=0, high=1, thresholds=1, missing=True) for name in ("x0", "x1")])
    return Neighbours("first missing values", schema, np.zeros((99, 2)), np.ones(99, np.int64), (NAN, NAN), 0)


def _kinds() -> Neighbours:
    """A missing category, one that the schema does not know, and a missing number that has no bin of its own."""
    schema = _schema([
        Categorical("x0", ["a", "b", "c"], missing=True),
        Categorical("x1", ["d", "e"]),
        Numeric("x2", low=0, high=1, thresholds=1),
    ])  # fmt: skip
    table = np.array([["a", "d", 1.0]] * 99, dtype=object)
    return Neighbours(
        "missing and unknown categories", schema, table, np.ones(99, np.int64), (None, "f", None), 0
    )


def _wide() -> Neighbours:
    """A column of 301 bins, whose codes have 16 bits, beside one of two."""
    columns = [Numeric("x0", low=0, high=1, thresholds=300), Numeric("x1", low=0, high=1, thresholds=1)]
    return Neighbours("301 bins", _schema(columns), np.zeros((99, 2)), np.ones(99, np.int64), (0.5, 1.0), 0)


def _many_rows() -> Neighbours:
    """More rows than one thread counts; in the first column they are on both sides."""
    table = np.zeros((20_000, 4))
    table[1::2, 0] = 1
    ones = np.ones(len(table), np.int64)
    return Neighbours(
        "first of its class among 20,000 rows", _columns(4), table, ones, (0.0, 1.0, 1.0, 1.0), 0
    )
