"""One row more, of whatever it may consist, leaves all other rows as they were, or the table is refused.

Theorem 5 rests on it. Every way to read a table is tried: CSV in files and on standard input, Parquet, lists, arrays,
and the frames of every library.
"""

from __future__ import annotations

import datetime as dt
import io
import sys
from collections.abc import Callable, Sequence
from contextlib import suppress
from decimal import Decimal
from typing import Any
from unittest import mock

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from pyarrow import parquet

from hedgerow import Categorical, Numeric, Schema, encoding, tables
from hedgerow.encoding import encode, encode_labels
from hedgerow.errors import HedgerowError, InvalidTable
from hedgerow.tables import read_codes

# ---- CSV ------------------------------------------------------------------------------------------------------------

SCHEMA = Schema(
    [
        Categorical("town", ["Graz", "Wien", "Lima, Ohio", "\ufeffGraz"], missing=True),
        Numeric("age", 0, 100, thresholds=20, missing=True),
        Categorical("ward", [1, 2, 30], missing=True),
    ],
    label="ill",
    classes=[0, 1],
)
HEADER = b"town,age,ill,ward"  # the last is no label, so that whatever a quote swallows there is a category
LINES = [
    line.encode()
    for line in (
        "Graz,5,0,1",
        "Wien,70.5,1,30",
        '"Lima, Ohio",,"1",2.0',
        '"the ""Hague""",NA,0,',
        'the "Hague",1e400,1,"1"',
        "\ufeffGraz,-3,0,NA",
        '"",inf, 1 ,2',
        "Gr\x00az,12,1,7",
    )
]
FRAGMENTS = [b'"', b'""', b",", b"\r", b"\x00", b" ", b"\\", b"'", b"\xff", b"\xef\xbb\xbf", b"\x0b", b"\x1a"]
FRAGMENTS += [b"\xe2\x80\xa8", b"Graz", b"1", b"0", b"-7", b"1e999", b"NA", b"x" * 300]
FIELD = st.lists(st.sampled_from(FRAGMENTS), max_size=2).map(b"".join)
LINE_OF_ANY_BYTES = st.one_of(
    st.binary(max_size=40).map(lambda data: data.replace(b"\n", b"")),
    st.lists(st.sampled_from(FRAGMENTS), max_size=12).map(b"".join),
    st.tuples(FIELD, st.sampled_from([b"5", b"NA"]), st.sampled_from([b"0", b"1"]), FIELD).map(b",".join),
    st.tuples(st.sampled_from(LINES), st.sampled_from(FRAGMENTS)).map(b"".join),
)


def rows_of_csv(text: bytes, path: Any = None, block_bytes: int = 2**20) -> list[tuple[int, ...]]:
    """The codes and label of each row: of a file, or of standard input."""
    stdin = io.TextIOWrapper(io.BytesIO(text))
    with mock.patch.object(tables, "BLOCK_BYTES", block_bytes), mock.patch.object(sys, "stdin", stdin):
        if path is not None:
            path.write_bytes(text)
        codes, labels = read_codes(path or "-", SCHEMA)
    assert not codes.wide.size
    return [(*map(int, row), int(label)) for row, label in zip(codes.narrow, labels, strict=True)]


@pytest.fixture(scope="session")
def csv_file(tmp_path_factory):
    return tmp_path_factory.mktemp("csv") / "rows.csv"


@pytest.mark.parametrize("where", ["file", "standard input"])
@settings(max_examples=120)
@given(
    lines=st.lists(st.sampled_from(LINES), max_size=8),
    place=st.integers(0, 8),
    more=LINE_OF_ANY_BYTES,
    line_end=st.sampled_from([b"\n", b"\r\n"]),
    last_end=st.booleans(),
    block_bytes=st.sampled_from([70, 200, 2**20]),
)
@example([LINES[0]] * 5, 2, b'Graz,5,0,"', b"\n", True, 2**20)
@example([LINES[0]] * 5, 2, b'Gr"az,5,0,"', b"\n", True, 2**20)
@example([LINES[0]] * 5, 5, b'Graz,5,0,"', b"\n", True, 2**20)
@example([LINES[0]] * 5, 5, b'Graz,5,0,"1', b"\n", False, 2**20)
@example([LINES[2], LINES[0], LINES[2]], 1, b'Graz,5,1,"1', b"\r\n", True, 2**20)
@example([LINES[0]] * 3, 1, b'Graz,5,1,1\rGraz,5,1,"', b"\n", True, 2**20)
@example([LINES[5]] * 3, 0, LINES[0], b"\n", True, 2**20)
@example([LINES[5]] * 8, 0, LINES[1], b"\n", True, 70)
@example([LINES[0]] * 3, 1, b"", b"\n", True, 2**20)
@example([LINES[0]] * 3, 1, b"\r", b"\r\n", True, 2**20)
def test_a_line_of_any_bytes_leaves_all_other_rows_of_a_csv_as_they_were(
    csv_file, where, lines, place, more, line_end, last_end, block_bytes
):
    place = min(place, len(lines))

    def read(below: Sequence[bytes]) -> list[tuple[int, ...]]:
        text = line_end.join([HEADER, *below]) + (line_end if last_end else b"")
        return rows_of_csv(text, csv_file if where == "file" else None, block_bytes)

    before = read(lines)
    assert len(before) == len(lines)
    try:
        after = read([*lines[:place], more, *lines[place:]])
    except InvalidTable:
        return
    n_more = 0 if more in {b"", b"\r"} else 1
    assert len(after) == len(lines) + n_more
    assert after[:place] == before[:place]
    assert after[place + n_more :] == before[place:]


@settings(max_examples=120)
@given(
    st.lists(st.sampled_from([*FRAGMENTS, b"\n", b"\r\n", b'"\n', b',"']), max_size=30).map(b"".join),
    st.booleans(),
    st.integers(8, 40),
)
def test_neither_blocks_nor_places_change_how_csv_is_read(text, line_breaks, block_bytes):
    """Any bytes as a column of text: what Arrow reads at once is what is read in small blocks, row by row."""

    def read(size: int) -> list[str]:
        stdin = io.TextIOWrapper(io.BytesIO(b"a\n" + text))
        with mock.patch.object(tables, "BLOCK_BYTES", size), mock.patch.object(sys, "stdin", stdin):
            source = tables._Csv("-", line_breaks=line_breaks)
            try:
                return [value for table, _ in source.read(["a"]) for value in table["a"].to_pylist()]
            except (InvalidTable, pa.ArrowInvalid):
                return ["refused"]

    whole, parts = read(2**20), read(block_bytes)
    assert parts in (whole, ["refused"])
    if not line_breaks and whole != ["refused"]:
        assert len(whole) == sum(line not in {b"", b"\r"} for line in text.split(b"\n"))


# ---- Tables of values with types of their own -----------------------------------------------------------------------

LARGE = 2**53 + 1
COLUMNS = [
    Numeric("x", -5, 9, 8, missing=True),
    Categorical("x", ["1", "2", "nan", "red", "True"], missing=True),
    Categorical("x", ["red", "1"]),
    Categorical("x", [1, 2, LARGE, LARGE - 1], missing=True),
    Categorical("x", [True, False], missing=True),
]
PLAIN = [
    st.sampled_from(v) for v in ([0, 1, 2, None], [1.5, 2.0, np.nan], ["1", "red"], [True, False], [LARGE])
]
ANY_VALUE = st.one_of(
    *PLAIN,
    st.none(),
    st.booleans(),
    st.integers(),
    st.sampled_from([0, 1, 2, LARGE, LARGE - 1, 1.5, 2.0, "1", "red", "True", "nan", b"red", float("nan")]),
    st.floats(),
    st.text(max_size=3),
    st.decimals(),
    st.fractions(),
    st.complex_numbers(),
    st.dates(),
    st.sampled_from([pd.NA, pd.NaT, np.nan, np.float32(2), np.int8(1), np.str_("red"), np.datetime64("nat")]),
    st.sampled_from(
        [(), [], [1], ("red",), {}, {1}, object(), np.array([1]), np.array([]), Decimal("sNaN"), range(2)]
    ),
)


def column_codes(table: Any, schema: Schema) -> list[Any] | None:
    """The codes of its only column; None if it is refused."""
    with mock.patch.object(encoding, "BLOCK", 3), suppress(HedgerowError):
        return encode(table, schema).column(0).tolist()
    return None


def label_codes(table: Any, schema: Schema) -> list[Any] | None:
    with suppress(HedgerowError):
        return encode_labels(labels_of(table), schema).tolist()
    return None


def check_one_more_row(
    make_table: Callable[[list[Any]], Any], values: list[Any], place: int, more: Any
) -> None:
    """`make_table` of a column; as a column of each kind, and as labels."""
    place = min(place, len(values))
    less_and_more = make_table(values), make_table([*values[:place], more, *values[place:]])
    for column in COLUMNS:
        schema = Schema([column], label="y", classes=[0])
        before, after = (column_codes(table, schema) for table in less_and_more)
        check_others(before, after, place)
    for classes in ([0, 1], ["1", "red"], [True, False], [LARGE, LARGE - 1]):
        schema = Schema([Numeric("z", 0, 1)], label="x", classes=classes)
        known = [value for value in values if any(type(value) is type(c) and value == c for c in classes)]
        place = min(place, len(known))
        before = label_codes(make_table(known), schema)
        after = label_codes(make_table([*known[:place], more, *known[place:]]), schema)
        check_others(before, after, place)


def check_others(before: list[Any] | None, after: list[Any] | None, place: int) -> None:
    if before is not None and after is not None:
        assert after[:place] + after[place + 1 :] == before


def labels_of(table: Any) -> Any:
    if isinstance(table, list):
        return [row[0] for row in table]
    return table[:, 0] if isinstance(table, np.ndarray) else table["x"]


def objects(values: list[Any]) -> np.ndarray:
    array = np.empty((len(values), 1), dtype=object)
    for i, value in enumerate(values):
        array[i, 0] = value
    return array


OBJECTS = {
    "list": lambda values: [[value] for value in values],
    "list of tuples": lambda values: [(value,) for value in values],
    "NumPy object": objects,
    "pandas object": lambda values: pd.DataFrame({"x": pd.Series(objects(values)[:, 0], dtype=object)}),
    "Polars Object": lambda values: pl.DataFrame({"x": pl.Series(values, dtype=pl.Object)}),
}
PLACE = st.integers(0, 7)


@pytest.mark.parametrize("kind", OBJECTS)
@settings(max_examples=50)
@given(
    values=st.one_of(st.lists(value, max_size=7) for value in [*PLAIN, ANY_VALUE]),
    place=PLACE,
    more=ANY_VALUE,
)
def test_a_row_of_any_objects_leaves_all_others_as_they_were(kind, values, place, more):
    check_one_more_row(OBJECTS[kind], values, place, more)


@given(
    values=st.lists(st.sampled_from([0, 1, 2, LARGE]), max_size=7),
    place=PLACE,
    more=st.one_of(ANY_VALUE, st.lists(ANY_VALUE, max_size=3), st.tuples(ANY_VALUE)),
)
def test_a_row_of_any_length_leaves_all_others_of_a_list_as_they_were(values, place, more):
    place, schema = min(place, len(values)), Schema([COLUMNS[4]], label="y", classes=[0])
    rows: list[Any] = [[value] for value in values]
    check_others(
        column_codes(rows, schema), column_codes([*rows[:place], more, *rows[place:]], schema), place
    )


WHOLE = st.one_of(
    st.none(), st.sampled_from([0, 1, 2, 7, LARGE, LARGE - 1]), st.integers(-(2**63), 2**63 - 1)
)
SMALL = st.one_of(st.none(), st.integers(0, 255))
REAL = st.one_of(st.none(), st.sampled_from([0.0, 1.0, 1.5, 2.0, float(LARGE), float("nan")]), st.floats())
TEXT = st.one_of(st.none(), st.sampled_from(["1", "2", "red", "nan", "True", ""]), st.text(max_size=3))
NAMED = st.sampled_from([None, "1", "red", "blue"])
TRUTH = st.sampled_from([None, True, False])
EXACT = st.one_of(st.none(), st.decimals(-99, 99, places=2))
DAY = st.one_of(st.none(), st.dates(dt.date(1990, 1, 1), dt.date(2050, 1, 1)))


def of_pandas(dtype: Any) -> Callable[[list[Any]], Any]:
    return lambda values: pd.DataFrame({"x": pd.Series(values, dtype=dtype)})


def of_polars(dtype: Any) -> Callable[[list[Any]], Any]:
    return lambda values: pl.DataFrame({"x": pl.Series(values, dtype=dtype)})


def of_arrow(dtype: Any) -> Callable[[list[Any]], Any]:
    return lambda values: (
        pa.table({"x": pa.array(values, pa.string()).cast(dtype)})
        if (pa.types.is_dictionary(dtype))
        else pa.table({"x": pa.array(values, dtype)})
    )


def of_numpy(dtype: Any) -> Callable[[list[Any]], Any]:
    return lambda values: np.array(values, dtype=dtype).reshape(len(values), 1)


TYPED = {
    "pandas float64": (of_pandas("float64"), REAL),
    "pandas float32": (of_pandas("float32"), REAL),
    "pandas Float64": (of_pandas("Float64"), REAL),
    "pandas Int64": (of_pandas("Int64"), WHOLE),
    "pandas int64": (of_pandas("int64"), WHOLE.filter(lambda v: v is not None)),
    "pandas boolean": (of_pandas("boolean"), TRUTH),
    "pandas string": (of_pandas("string"), TEXT),
    "pandas str": (of_pandas("str"), TEXT),
    "pandas category": (of_pandas(pd.CategoricalDtype(["blue", "red", "1"])), NAMED),
    "pandas category of numbers": (
        of_pandas(pd.CategoricalDtype([2, LARGE, 1, 7])),
        st.sampled_from([1, 2, 7, None]),
    ),
    "pandas dates": (of_pandas("datetime64[ns]"), DAY),
    "pandas Arrow integers": (of_pandas("int64[pyarrow]"), WHOLE),
    "pandas Arrow text": (of_pandas(pd.ArrowDtype(pa.string())), TEXT),
    "Polars Int64": (of_polars(pl.Int64), WHOLE),
    "Polars UInt8": (of_polars(pl.UInt8), SMALL),
    "Polars Int128": (of_polars(pl.Int128), WHOLE),
    "Polars Float32": (of_polars(pl.Float32), REAL),
    "Polars Float64": (of_polars(pl.Float64), REAL),
    "Polars String": (of_polars(pl.String), TEXT),
    "Polars Categorical": (of_polars(pl.Categorical), NAMED),
    "Polars Enum": (of_polars(pl.Enum(["blue", "red", "1"])), NAMED),
    "Polars Boolean": (of_polars(pl.Boolean), TRUTH),
    "Polars Decimal": (of_polars(pl.Decimal(10, 2)), EXACT),
    "Polars Date": (of_polars(pl.Date), DAY),
    "Arrow int64": (of_arrow(pa.int64()), WHOLE),
    "Arrow uint8": (of_arrow(pa.uint8()), SMALL),
    "Arrow double": (of_arrow(pa.float64()), REAL),
    "Arrow string": (of_arrow(pa.string()), TEXT),
    "Arrow large_string": (of_arrow(pa.large_string()), TEXT),
    "Arrow string_view": (of_arrow(pa.string_view()), TEXT),
    "Arrow dictionary": (of_arrow(pa.dictionary(pa.int32(), pa.string())), NAMED),
    "Arrow bool": (of_arrow(pa.bool_()), TRUTH),
    "Arrow decimal": (of_arrow(pa.decimal128(10, 2)), EXACT),
    "Arrow date": (of_arrow(pa.date32()), DAY),
    "NumPy float64": (of_numpy("float64"), REAL),
    "NumPy float32": (of_numpy("float32"), st.floats(width=32)),
    "NumPy int64": (of_numpy("int64"), WHOLE.filter(lambda v: v is not None)),
    "NumPy bool": (of_numpy("bool"), st.booleans()),
    "NumPy text": (of_numpy("U4"), st.sampled_from(["1", "2", "red", "nan", "True", "blue"])),
}


@pytest.mark.parametrize("kind", TYPED)
@settings(max_examples=12)
@given(data=st.data())
def test_a_row_of_the_columns_type_leaves_all_others_as_they_were(kind, data):
    make_table, values = TYPED[kind]
    rows = data.draw(st.lists(values, max_size=7))
    check_one_more_row(make_table, rows, data.draw(PLACE), data.draw(values))


@pytest.mark.parametrize("kind", [kind for kind in TYPED if kind.startswith("Arrow")])
@settings(max_examples=12)
@given(data=st.data())
def test_a_row_of_a_parquet_file_leaves_all_others_as_they_were(kind, csv_file, data):
    make_table, any_value = TYPED[kind]
    values = data.draw(st.lists(any_value, max_size=7))
    place = data.draw(st.integers(0, len(values)))
    more, path = data.draw(any_value), csv_file.with_suffix(".parquet")

    def codes_of_file(values: list[Any], schema: Schema) -> list[Any] | None:
        table = make_table(values).append_column("y", pa.array([0] * len(values), pa.int64()))
        parquet.write_table(table, path, row_group_size=3)
        with mock.patch.object(tables, "BLOCK_ROWS", 2), suppress(HedgerowError):
            return read_codes(path, schema)[0].column(0).tolist()
        return None

    for column in COLUMNS:
        schema = Schema([column], label="y", classes=[0])
        before = codes_of_file(values, schema)
        after = codes_of_file([*values[:place], more, *values[place:]], schema)
        check_others(before, after, place)
