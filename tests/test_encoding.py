"""Tables and labels to codes: the same for every library, exact to the bit, and never a row in an error."""

from __future__ import annotations

import copy
import tracemalloc

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hedgerow import Categorical, InvalidTable, Numeric, PrivateTreeClassifier, Schema, encoding
from hedgerow.encoding import BLOCK, encode, encode_labels, is_frame, schema_from_data


def schema_of(*columns, classes=("no", "yes")):
    return Schema(columns, label="y", classes=classes)


def bins(table, schema, column=0):
    return encode(table, schema).column(column).tolist()


# One column of each kind in every library. `None` is missing, "zebra", 7 are unknown categories.

NUMBERS = [0.1, None, 0.5, 0.25, -3.0, 9.0, 0.75]
NUMBER_BINS = {False: [0, 0, 1, 0, 0, 2, 1], True: [0, 3, 1, 0, 0, 2, 1]}
TEXTS = ["red", None, "zebra", "blue", "red"]
TEXT_BINS = {False: [0, 2, 2, 1, 0], True: [0, 3, 2, 1, 0]}
INTEGERS = [30, None, 7, 10, 30]
BOOLEANS = [True, None, False]


def as_nan(values):
    return [np.nan if v is None else v for v in values]


def as_object(values):
    return np.array([[v] for v in values], dtype=object)


def pandas_column(values, dtype):
    return pd.DataFrame({"x": pd.Series(values, dtype=dtype)})


NUMBER_TABLES = {
    "numpy float64": np.array(as_nan(NUMBERS))[:, None],
    "numpy object": as_object(NUMBERS),
    "numpy object with NaN and NA": as_object([0.1, pd.NA, *NUMBERS[2:]]),
    "lists": [[v] for v in as_nan(NUMBERS)],
    "pandas float64": pandas_column(NUMBERS, "float64"),
    "pandas Float64": pandas_column(NUMBERS, "Float64"),
    "pandas object": pandas_column([0.1, pd.NA, *NUMBERS[2:]], object),
    "pandas on Arrow": pandas_column(NUMBERS, "double[pyarrow]"),
    "Polars": pl.DataFrame({"x": NUMBERS}),
    "Polars with NaN": pl.DataFrame({"x": as_nan(NUMBERS)}),
    "Arrow": pa.table({"x": NUMBERS}),
    "Arrow in chunks": pa.table({"x": pa.chunked_array([NUMBERS[:2], NUMBERS[2:]])}),
}
TEXT_TABLES = {
    "numpy object": as_object(TEXTS),
    "numpy object with NaN": as_object(as_nan(TEXTS)),
    "numpy strings of any length": np.array(
        [[v] for v in TEXTS], dtype=np.dtypes.StringDType(na_object=None)
    ),
    "pandas str": pandas_column(TEXTS, "str"),
    "pandas string": pandas_column(TEXTS, "string"),
    "pandas string on Arrow": pandas_column(TEXTS, "string[pyarrow]"),
    "pandas object": pandas_column(TEXTS, object),
    "pandas object with NaN": pandas_column(as_nan(TEXTS), object),
    "pandas category": pandas_column(TEXTS, "category"),
    "Polars": pl.DataFrame({"x": TEXTS}),
    "Polars Categorical": pl.DataFrame({"x": pl.Series(TEXTS, dtype=pl.Categorical)}),
    "Polars Enum": pl.DataFrame({"x": pl.Series(TEXTS, dtype=pl.Enum(["zebra", "blue", "red"]))}),
    "Arrow": pa.table({"x": TEXTS}),
    "Arrow large_string": pa.table({"x": pa.array(TEXTS, pa.large_string())}),
    "Arrow string_view": pa.table({"x": pa.array(TEXTS, pa.string_view())}),
    "Arrow dictionary": pa.table({"x": pa.array(TEXTS).dictionary_encode()}),
}
INTEGER_TABLES = {
    "numpy float64": np.array(as_nan(INTEGERS))[:, None],
    "numpy object": as_object(INTEGERS),
    "pandas float64": pandas_column(INTEGERS, "float64"),
    "pandas Int64": pandas_column(INTEGERS, "Int64"),
    "pandas UInt8": pandas_column(INTEGERS, "UInt8"),
    "pandas object": pandas_column(INTEGERS, object),
    "pandas category": pandas_column(INTEGERS, pd.CategoricalDtype([7, 10, 30])),
    "Polars": pl.DataFrame({"x": INTEGERS}),
    "Polars UInt8": pl.DataFrame({"x": pl.Series(INTEGERS, dtype=pl.UInt8)}),
    "Arrow": pa.table({"x": INTEGERS}),
    "Arrow dictionary": pa.table({"x": pa.array(INTEGERS).dictionary_encode()}),
}
BOOLEAN_TABLES = {
    "numpy object": as_object(BOOLEANS),
    "pandas boolean": pandas_column(BOOLEANS, "boolean"),
    "pandas object": pandas_column(BOOLEANS, object),
    "Polars": pl.DataFrame({"x": BOOLEANS}),
    "Arrow": pa.table({"x": BOOLEANS}),
}


@pytest.mark.parametrize("missing", [False, True])
@pytest.mark.parametrize("kind", NUMBER_TABLES)
def test_numbers_get_the_same_bins_from_every_library(kind, missing):
    schema = schema_of(Numeric("x", 0, 1, 2, missing=missing))
    assert bins(NUMBER_TABLES[kind], schema) == NUMBER_BINS[missing]


@pytest.mark.parametrize("missing", [False, True])
@pytest.mark.parametrize("kind", TEXT_TABLES)
def test_texts_get_the_same_bins_from_every_library(kind, missing):
    schema = schema_of(Categorical("x", ["red", "blue"], missing=missing))
    assert bins(TEXT_TABLES[kind], schema) == TEXT_BINS[missing]


@pytest.mark.parametrize("missing", [False, True])
@pytest.mark.parametrize("kind", INTEGER_TABLES)
def test_integer_categories_get_the_same_bins_from_every_library(kind, missing):
    schema = schema_of(Categorical("x", [30, 10], missing=missing))
    assert bins(INTEGER_TABLES[kind], schema) == TEXT_BINS[missing]


@pytest.mark.parametrize("missing", [False, True])
@pytest.mark.parametrize("kind", BOOLEAN_TABLES)
def test_boolean_categories_get_the_same_bins_from_every_library(kind, missing):
    schema = schema_of(Categorical("x", [False, True], missing=missing))
    assert bins(BOOLEAN_TABLES[kind], schema) == [1, 3 if missing else 2, 0]


@pytest.mark.parametrize("kind", BOOLEAN_TABLES)
def test_booleans_in_a_numeric_column_are_0_and_1(kind):
    assert bins(BOOLEAN_TABLES[kind], schema_of(Numeric("x", 0, 1, 1, missing=True))) == [1, 2, 0]


@pytest.mark.parametrize(
    "dtype",
    ["float32", "float64", "float16", "int8", "uint16", "int64", "uint64", "object", ">f8", ">i4", "bool"],
)
@pytest.mark.parametrize("order", ["C", "F", "every second", "backwards"])
def test_a_matrix_of_any_type_and_layout_gets_the_same_codes(dtype, order):
    rng = np.random.default_rng(0)
    values = rng.integers(0, 2 if dtype == "bool" else 100, (300, 6))
    schema = schema_of(*(Numeric(f"x{i}", 0, 100, 10 if i else 300) for i in range(6)))
    if order == "every second":
        matrix = np.repeat(np.repeat(values, 2, axis=0), 2, axis=1).astype(dtype)[::2, ::2]
    elif order == "backwards":
        matrix = values[::-1, ::-1].astype(dtype)[::-1, ::-1]
    else:
        matrix = np.asarray(values.astype(dtype), order=order)
    codes = encode(matrix, schema)
    for i, column in enumerate(schema.columns):
        assert codes.column(i).tolist() == np.searchsorted(column.cuts, values[:, i]).tolist()


# Exactness

finite = st.floats(-1e9, 1e9)


@given(
    low=finite, width=st.floats(1e-9, 1e9), n=st.integers(1, 300), listed=st.booleans(), seed=st.integers(0)
)
def test_bins_are_those_of_a_binary_search_also_beside_thresholds(low, width, n, listed, seed):
    rng = np.random.default_rng(seed)
    high = low + width
    if not low < high:
        high = np.nextafter(low, np.inf)
    thresholds = np.unique(rng.uniform(low, high, n)) if listed else n
    if listed:
        thresholds = thresholds[thresholds < high]
    column = Numeric("x", low, high, thresholds if np.size(thresholds) else n)
    cuts = column.cuts
    beside = [np.nextafter(cuts, -np.inf), cuts, np.nextafter(cuts, np.inf)]
    extremes = [-np.inf, np.inf, low, high, 0.0, -0.0, 5e-324, -1.7e308, 1.7e308]
    values = np.concatenate([*beside, extremes, rng.normal(low, 2 * width, 50)])
    expected = np.searchsorted(cuts, values, side="left")
    assert bins(values[:, None], schema_of(column)) == expected.tolist()
    narrow = values[np.abs(values) < 1e30].astype(np.float32)
    expected = np.searchsorted(cuts, narrow.astype(np.float64), side="left")
    assert bins(narrow[:, None], schema_of(column)) == expected.tolist()


@pytest.mark.parametrize("width", [5e-324, 1e-320, 1e-310])
def test_bounds_of_the_smallest_distance_do_not_lead_out_of_the_bins(width):
    column = Numeric("x", 0.0, width, 10)
    values = np.array([0.0, width / 2, width, 1.0, -1.0, np.inf, -np.inf])
    assert bins(values[:, None], schema_of(column)) == np.searchsorted(column.cuts, values).tolist()


def test_a_missing_number_goes_to_the_first_bin_or_its_own():
    values = np.array([[np.nan], [5.0], [np.nan]])
    assert bins(values, schema_of(Numeric("x", 0, 10, 4))) == [0, 2, 0]
    assert bins(values, schema_of(Numeric("x", 0, 10, 4, missing=True))) == [5, 2, 5]


@pytest.mark.parametrize(("n_bins", "dtype"), [(255, "uint8"), (256, "uint8"), (257, "uint16")])
def test_codes_are_bytes_up_to_256_bins(n_bins, dtype):
    values = np.linspace(-0.1, 1.1, 3_000)
    column = Numeric("x", 0, 1, n_bins - 1)
    codes = encode(values[:, None], schema_of(column)).column(0)
    assert codes.dtype == dtype
    assert codes.max() == n_bins - 1
    assert codes.tolist() == np.searchsorted(column.cuts, values).tolist()
    texts = [f"k{i}" for i in range(n_bins - 1)]
    codes = encode(pd.DataFrame({"x": [*texts, "?"]}), schema_of(Categorical("x", texts))).column(0)
    assert codes.dtype == dtype
    assert codes.tolist() == list(range(n_bins))


def test_narrow_and_wide_columns_keep_their_places():
    columns = [Numeric(f"x{i}", 0, 1, 1_000 if i in {1, 3} else 10) for i in range(5)]
    values = np.random.default_rng(0).random((500, 5))
    codes = encode(values, schema_of(*columns))
    assert codes.narrow.shape == (500, 3)
    assert codes.wide.shape == (500, 2)
    assert codes.places.tolist() == [[0, 0], [1, 0], [0, 1], [1, 1], [0, 2]]
    for i, column in enumerate(columns):
        assert codes.column(i).tolist() == np.searchsorted(column.cuts, values[:, i]).tolist()


@pytest.mark.parametrize("most", [0, 2**20])
def test_codes_by_column_are_the_same_codes(most, monkeypatch):
    monkeypatch.setattr(encoding, "WORTH_A_COPY", most)
    columns = [Numeric(f"x{i}", 0, 1, 1_000 if i == 1 else 10) for i in range(3)]
    codes = encode(np.random.default_rng(0).random((40_001, 3)), schema_of(*columns))
    narrow, wide = codes.by_column
    assert (narrow == codes.narrow.T).all()
    assert (wide == codes.wide.T).all()
    assert np.shares_memory(narrow, codes.narrow) == (most == 0)
    if most:
        with pytest.raises(ValueError, match="read-only"):  # one copy cannot change without the other
            codes.narrow[0, 0] = 1
    again = copy.deepcopy(codes)
    again.narrow[0, 0] = 7
    assert again.by_column[0][0, 0] == 7


LARGE = 2**53 + 1  # the first integer that is not a float


@pytest.mark.parametrize(
    ("table", "expected"),
    [
        (np.array([[LARGE], [LARGE - 1], [-1]]), [0, 1, 2]),
        (np.array([[2**64 - 1], [2**63], [LARGE]], dtype=np.uint64), [3, 3, 0]),
        (np.array([[float(LARGE)], [-1.0], [-1.5], [np.inf], [-np.inf], [1e300]]), [1, 2, 3, 3, 3, 3]),
        (pl.DataFrame({"x": [LARGE, None, LARGE - 1]}), [0, 3, 1]),
        (pa.table({"x": [LARGE, None, LARGE - 1]}), [0, 3, 1]),
        (pandas_column([LARGE, None, LARGE - 1], "Int64"), [0, 3, 1]),
        (pandas_column([LARGE, None, LARGE - 1], object), [0, 3, 1]),
    ],
)
def test_large_integers_are_never_taken_for_their_neighbours(table, expected):
    assert bins(table, schema_of(Categorical("x", [LARGE, LARGE - 1, -1]))) == expected


@pytest.mark.parametrize("values", [np.array([[2.0**63]]), np.array([[2**63]], dtype=np.uint64)])
def test_a_number_beyond_64_bits_is_not_taken_for_the_lowest_one(values):
    lowest = schema_of(Categorical("x", [-(2**63), 5]))
    assert bins(values, lowest) == [2]
    assert bins(np.array([[-(2.0**63)]]), lowest) == [0]


ODD = st.sampled_from(
    ["1", "2", 1, 2, 1.0, 2.5, True, None, float("nan"), "nan", LARGE, LARGE - 1, "red", b"red"]
)


@given(st.lists(ODD, max_size=6), ODD)
def test_a_row_of_a_list_is_read_the_same_whatever_else_is_in_the_list(values, other):
    for categories in (["1", "2", "nan", "red"], [1, 2, LARGE, LARGE - 1]):
        schema = schema_of(Categorical("x", categories, missing=True))
        alone = [bins([[value]], schema)[0] for value in [*values, other]]
        assert bins([[value] for value in [*values, other]], schema) == alone
        labels = Schema([Categorical("x", ["a"])], label="y", classes=categories)
        known = [value for value in [*values, other] if value in categories and not isinstance(value, float)]
        one_by_one = [int(encode_labels([value], labels)[0]) for value in known]
        assert encode_labels(known, labels).tolist() == one_by_one


MAKERS = {  # of a column of one declared type, whatever is in it
    "numpy object": as_object,
    "pandas object": lambda values: pandas_column(values, object),
    "pandas Int64": lambda values: pandas_column(values, "Int64"),
    "pandas on Arrow": lambda values: pandas_column(values, "int64[pyarrow]"),
    "pandas category": lambda values: pandas_column(values, pd.CategoricalDtype([1, 2, LARGE, LARGE - 1, 7])),
    "Polars": lambda values: pl.DataFrame({"x": pl.Series(values, dtype=pl.Int64)}),
    "Polars Int128": lambda values: pl.DataFrame({"x": pl.Series(values, dtype=pl.Int128)}),
    "Arrow": lambda values: pa.table({"x": pa.array(values, pa.int64())}),
    "Arrow dictionary": lambda values: pa.table({"x": pa.array(values, pa.int64()).dictionary_encode()}),
}


@pytest.mark.parametrize("kind", MAKERS)
@given(values=st.lists(st.sampled_from([1, 2, 7, LARGE, LARGE - 1, None]), min_size=1, max_size=6))
def test_a_row_of_a_table_is_read_the_same_whatever_else_is_in_it(kind, values):
    columns = [Numeric("x", 0, 9, 8, missing=True), Categorical("x", [1, 2, LARGE, LARGE - 1], missing=True)]
    dictionaries = {"pandas category", "Arrow dictionary"}  # hold categories, not numbers to measure by
    for column in [c for c in columns if not (isinstance(c, Numeric) and kind in dictionaries)]:
        if kind == "Polars Int128" and isinstance(column, Categorical):
            continue  # NumPy has no such numbers
        schema = schema_of(column)
        together = bins(MAKERS[kind](values), schema)
        assert together == [bins(MAKERS[kind]([value]), schema)[0] for value in values]


@pytest.mark.parametrize("kind", ["Arrow", "pandas on Arrow", "Polars", "pandas Int64"])
def test_a_number_too_large_for_a_float_is_clamped_like_any_other(kind):
    assert bins(MAKERS[kind]([LARGE, -LARGE, 3]), schema_of(Numeric("x", 0, 9, [4]))) == [1, 0, 0]


def test_categories_of_an_enum_that_lacks_some_of_the_schemas():
    table = pl.DataFrame({"x": pl.Series(["red", None, "grey"], dtype=pl.Enum(["red", "grey"]))})
    assert bins(table, schema_of(Categorical("x", ["red", "blue"], missing=True))) == [0, 3, 2]


def test_no_error_quotes_a_value_or_another_library(monkeypatch):
    def fail(*_):
        raise RuntimeError("cannot read 'Ada Lovelace'")

    monkeypatch.setattr(encoding, "_positions", fail)
    schema = schema_of(Categorical("x", ["red"]))
    for read in (lambda: bins(pl.DataFrame({"x": ["red"]}), schema), lambda: encode_labels([0], schema)):
        with pytest.raises(InvalidTable, match="holds values that cannot be read") as error:
            read()
        assert error.value.__cause__ is None
        assert error.value.__suppress_context__


def test_a_list_of_no_rows_is_a_table():
    schema = Schema([Numeric("x", 0, 1), Categorical("z", ["a"])], label="y", classes=[0, 1])
    for nothing in ([], (), np.empty((0, 2))):
        assert encode(nothing, schema).n_rows == 0
    model = PrivateTreeClassifier(schema=schema)
    assert model.fit([], []).predict([]).shape == (0,)
    model.fit_holders([([], []), ([[0.5, "a"]], [1])])


@pytest.mark.parametrize(
    ("labels", "advice"),
    [
        (np.array([True, False]), r"write classes = \[false, true\]"),
        (pd.Series([True, False]), r"write classes = \[false, true\]"),
        (np.array([0.5, 1.5]), "not measurements"),
        (pa.chunked_array([[0, 1]]), "such as VotingClassifier"),
    ],
)
def test_labels_of_another_kind_come_with_advice(labels, advice):
    with pytest.raises(InvalidTable, match=advice):
        encode_labels(labels, schema_of(Numeric("x", 0, 1), classes=["no", "yes"]))


def test_values_that_no_category_can_equal_are_other():
    table = np.empty((4, 1), dtype=object)
    table[:, 0] = [["red"], (["red"],), np.arange(3), "red"]
    assert bins(table, schema_of(Categorical("x", ["red"], missing=True))) == [1, 1, 1, 0]


ALL_MISSING = {
    "numpy object": as_object([None, None]),
    "pandas object": pandas_column([None, None], object),
    "pandas float": pandas_column([None, None], "float64"),
    "pandas category": pandas_column([None, None], "category"),
    "Polars": pl.DataFrame({"x": [None, None]}),
    "Arrow": pa.table({"x": pa.nulls(2)}),
}


@pytest.mark.parametrize("kind", ALL_MISSING)
@pytest.mark.parametrize(
    "column",
    [Numeric("x", 0, 1, 2, True), Categorical("x", [1, 2], True), Categorical("x", ["a", "b"], True)],
)
def test_a_column_of_nothing_but_missing_values_has_one_bin(kind, column):
    assert bins(ALL_MISSING[kind], schema_of(column)) == [3, 3]


def test_a_block_of_nothing_but_missing_values_does_not_change_the_type_of_a_column():
    gone = [None] * BLOCK
    numbers = schema_of(Numeric("x", 0, 10, 1, missing=True))
    assert bins(pandas_column([*gone, 9, 1], object), numbers) == [2] * BLOCK + [1, 0]
    categories = schema_of(Categorical("x", [1, 9], missing=True))
    assert bins(pandas_column([*gone, 9, 1], object), categories) == [3] * BLOCK + [1, 0]
    texts = schema_of(Categorical("x", ["1", "9"], missing=True))
    assert bins(pandas_column([*gone, "9", "1"], object), texts) == [3] * BLOCK + [1, 0]
    read = schema_from_data(pandas_column([*gone, 9, 1], object), [0, 1] * (BLOCK // 2 + 1), thresholds=3)
    assert read.columns == (Numeric("x", 1, 9, 3, missing=True),)


def test_a_table_of_several_blocks_and_threads_is_encoded_like_its_rows_one_by_one():
    rng = np.random.default_rng(1)
    n = 2 * BLOCK + 17
    numbers, kinds = rng.random(n), rng.choice(["a", "b", "c"], n)
    schema = schema_of(Categorical("k", ["b", "a"]), Numeric("x", 0, 1, 20))
    codes = encode(pl.DataFrame({"x": numbers, "k": kinds}), schema)
    assert (codes.column(0) == np.array([1, 0, 2])[np.searchsorted(["a", "b", "c"], kinds)]).all()
    assert (codes.column(1) == np.searchsorted(schema.columns[1].cuts, numbers)).all()


def test_mixed_tables_get_the_same_codes_from_every_library(made_up):
    for seed in range(25):
        made = made_up(seed, n_rows=60)
        expected = made.bins()
        frame = made.table.convert_dtypes()
        tables = {
            "pandas object": made.table,
            "pandas nullable": frame,
            "Polars": pl.DataFrame({name: as_plain(made.table[name]) for name in made.schema.names}),
            "Arrow": pa.table({name: as_plain(made.table[name]) for name in made.schema.names}),
            "numpy": made.table.to_numpy(),
        }
        for kind, table in tables.items():
            codes = encode(table, made.schema)
            found = np.column_stack([codes.column(i) for i in range(expected.shape[1])])
            assert (found == expected).all(), (seed, kind)


def as_plain(series):
    return [None if v is None or v != v else v for v in series.tolist()]  # noqa: PLR0124


def test_the_order_of_a_frames_columns_does_not_matter():
    schema = schema_of(Numeric("b", 0, 1, 10), Numeric("a", 0, 1, 10), Categorical("c", ["u", "v"]))
    frame = pd.DataFrame({"a": [0.1, 0.9], "b": [0.5, 0.3], "c": ["v", "u"]})
    expected = encode(frame[["b", "a", "c"]], schema).narrow.tolist()
    assert expected == [[5, 1, 1], [3, 9, 0]]
    for names in (["a", "b", "c"], ["c", "a", "b"]):
        assert encode(frame[names], schema).narrow.tolist() == expected
        assert encode(pl.from_pandas(frame[names]), schema).narrow.tolist() == expected


def test_names_that_are_numbers_are_read_as_text():
    frame = pd.DataFrame([[0.9, 0.1]], columns=[1, 0])
    assert encode(frame, schema_of(Numeric("0", 0, 1, 1), Numeric("1", 0, 1, 1))).narrow.tolist() == [[0, 1]]


def test_a_table_without_rows_has_no_codes():
    schema = schema_of(Numeric("x", 0, 1), Categorical("k", ["a"]))
    empty = {"x": [], "k": []}
    for table in (pd.DataFrame(empty), pl.DataFrame(empty), pa.table(empty), np.empty((0, 2))):
        assert encode(table, schema).narrow.shape == (0, 2)
    assert encode_labels([], schema).tolist() == []


# Memory


@pytest.mark.parametrize("kind", ["numpy", "Polars", "integers"])
def test_encoding_never_copies_the_whole_table(kind):
    n, n_columns = 2_000_000, 8
    matrix = np.random.default_rng(0).random((n, n_columns), dtype=np.float32)
    table = matrix
    if kind == "Polars":
        table = pl.DataFrame({f"x{i}": matrix[:, i] for i in range(n_columns)})
    elif kind == "integers":
        table = (matrix * 10).astype(np.int32)
    schema = schema_of(*(Numeric(f"x{i}", 0, 1, 20) for i in range(n_columns)))
    encode(table[:10], schema)
    tracemalloc.start()
    codes = encode(table, schema)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert codes.narrow.nbytes == n * n_columns
    assert peak < 1.25 * n * n_columns + 4e6  # float64 would take 8 bytes a cell


# Errors

SECRET = "Zacharias"  # no error may quote a row
TWO = schema_of(Numeric("age", 0, 100), Categorical("town", ["Bern", "Brno"]))
ROWS = {"age": [1.0, 2.0], "town": ["Bern", "Brno"]}


@pytest.mark.parametrize(
    ("table", "words"),
    [
        (pd.DataFrame({"age": [1.0]}), ["lacks", "'town'"]),
        (pd.DataFrame(ROWS | {SECRET: [SECRET, "x"]}), ["column 3 ", "drop it"]),
        (pd.DataFrame({"age": [1.0], SECRET: [2.0]}), ["lacks", "'town'", "Its column 2 "]),
        (pl.DataFrame(ROWS | {"age": [SECRET, "x"]}), ["'age'", "numeric"]),
        (pd.DataFrame(ROWS | {"age": [SECRET, "x"]}), ["'age'", "numeric"]),
        (pd.DataFrame(ROWS | {"age": [SECRET, 3]}), ["'age'", "numeric"]),
        (pa.table(ROWS | {"age": [SECRET, "x"]}), ["'age'", "numeric"]),
        (np.array([[SECRET, "Bern"]], dtype=object), ["'age'", "numeric"]),
        (np.array([[SECRET, "Bern"]]), ["'age'", "numeric", "holds text"]),
        (np.array([["12", "Bern"]], dtype=object), ["'age'", "numeric"]),
        (np.array([[10**400, "Bern"]], dtype=object), ["'age'", "numeric"]),
        (np.array([[1.0, 2.0]]), ["'town'", "text", "numbers"]),
        (pd.DataFrame(ROWS | {"town": [1.0, 2.0]}), ["'town'", "text", "numbers"]),
        (pl.DataFrame(ROWS | {"town": [[SECRET], ["x"]]}), ["'town'", "text", "lists"]),
        (pa.table(ROWS | {"town": pa.array([1, 2]).dictionary_encode()}), ["'town'", "text"]),
        (
            pd.DataFrame(ROWS | {"age": pd.to_datetime(["2020-01-01"] * 2)}),
            ["'age'", "numeric", "dates or times"],
        ),
        (
            pd.DataFrame(ROWS | {"town": pd.to_datetime(["2020-01-01"] * 2)}),
            ["'town'", "text", "dates or times"],
        ),
        (pd.DataFrame([[1.0, 2.0]], columns=[SECRET, SECRET]), ["columns 1 and 2", "same name", "rename"]),
        (
            pa.table([[1], [2], [3]], names=["age", SECRET, SECRET]),
            ["columns 2 and 3", "same name", "rename"],
        ),
        (pd.DataFrame([[1.0, 2.0]], columns=["1", 1]), ["columns 1 and 2", "equal as text", "rename"]),
        (np.array([1.0, 2.0]), ["two dimensions", "this has 1"]),
        (np.ones((2, 2, 2)), ["two dimensions", "this has 3"]),
        (np.array(SECRET), ["two dimensions", "this has 0"]),
        (np.ones((2, 3)), ["3 columns", "the schema 2: age, town"]),
        ([[1.0], [1.0, 2.0]], ["different lengths"]),
        ([SECRET, SECRET], ["two dimensions", "this has 1"]),
        ([{"age": SECRET}], ["two dimensions", "this has 1"]),
        (pd.Series([1.0]), ["pandas, Polars or Arrow", "Series"]),
        (pl.DataFrame(ROWS).lazy(), ["pandas, Polars or Arrow", "LazyFrame"]),
        (None, ["NoneType"]),
        ("table.csv", ["str"]),
    ],
)
def test_a_table_that_does_not_fit_is_refused_by_column_and_never_quotes_a_row(table, words):
    with pytest.raises(InvalidTable) as caught:
        encode(table, TWO)
    message = str(caught.value)
    assert [word for word in words if word not in message] == []
    assert SECRET not in message


@pytest.mark.parametrize(
    "table", [np.array([["2020-01-01"]], "M8[D]"), np.array([["a"]]), np.array([[b"a"]])]
)
def test_integer_categories_in_a_column_of_other_things_are_refused_by_name(table):
    with pytest.raises(InvalidTable, match="column 'x' holds numbers in the schema"):
        encode(table, schema_of(Categorical("x", [1, 2])))


@pytest.mark.parametrize("values", [["a"], pl.Series(["a"], dtype=pl.Categorical), pl.Series([[1]])])
def test_integer_categories_in_a_frame_of_other_things_are_refused_by_name(values):
    with pytest.raises(InvalidTable, match="column 'x' holds numbers in the schema"):
        encode(pl.DataFrame({"x": values}), schema_of(Categorical("x", [1, 2])))


# Labels

LABELS = ["yes", "no", "yes"]


@pytest.mark.parametrize(
    "labels",
    [
        LABELS,
        tuple(LABELS),
        np.array(LABELS),
        np.array(LABELS, dtype=object),
        pd.Series(LABELS),
        pd.Series(LABELS, index=[5, 5, 1]),
        pd.Series(LABELS, dtype="category"),
        pd.Categorical(LABELS),
        pd.Index(LABELS),
        pl.Series(LABELS),
        pa.array(LABELS),
        pa.chunked_array([LABELS[:1], LABELS[1:]]),
    ],
    ids=lambda labels: type(labels).__name__,
)
def test_labels_of_every_kind_become_class_numbers(labels):
    found = encode_labels(labels, TWO)
    assert found.tolist() == [1, 0, 1]
    assert found.dtype == np.uint8


@pytest.mark.parametrize("classes", [[5, -2], [2.5, 0.0], [True, False]])
@pytest.mark.parametrize("library", [np.array, pd.Series, pl.Series, list])
def test_classes_may_be_numbers_or_booleans(classes, library):
    labels = library([classes[1], classes[0], classes[1]])
    assert encode_labels(labels, schema_of(Numeric("x", 0, 1), classes=classes)).tolist() == [1, 0, 1]


def test_more_than_256_classes_take_two_bytes():
    schema = schema_of(Numeric("x", 0, 1), classes=range(1_000))
    found = encode_labels(np.arange(1_000), schema)
    assert found.dtype == np.uint16
    assert found.tolist() == list(range(1_000))


@pytest.mark.parametrize(
    "labels",
    [
        ["yes", SECRET],
        ["yes", None],
        np.array(["yes", np.nan], dtype=object),
        pd.Series(["yes", None], dtype="string"),
        pl.Series(["yes", None]),
        pl.Series([None, None]),
        pa.array(["no", SECRET]),
        [1, 2],
        np.array([np.nan]),
        [["yes", "no"]],
        [["yes"], ["yes", "no"]],
        "yes",
        None,
        pd.DataFrame({"a": ["yes"], "b": ["no"]}),
    ],
)
def test_labels_that_are_not_classes_are_refused_and_not_quoted(labels):
    with pytest.raises(InvalidTable) as caught:
        encode_labels(labels, TWO)
    assert "the label 'y'" in str(caught.value)
    assert SECRET not in str(caught.value)


# A schema read from the data


def test_a_schema_read_from_the_data_has_their_bounds_categories_and_classes():
    frame = pd.DataFrame(
        {"x": [3.0, np.nan, -1.0], "k": ["b", "a", None], "i": [5, 5, 5], "label": [True, False, True]}
    )
    schema = schema_from_data(frame, ["q", "p", "q"], thresholds=4)
    assert schema.columns == (
        Numeric("x", -1, 3, 4, missing=True),
        Categorical("k", ["a", "b"], missing=True),
        Numeric("i", 5, 6, 4),
        Numeric("label", 0, 1, 4),
    )
    assert schema.label == "label_"
    assert schema.classes == ("p", "q")
    assert encode(frame, schema).n_rows == 3


@pytest.mark.parametrize("value", [0.0, -3.5, 2.0**53, 1e300, -1e308, 5e-324, np.inf, np.nan])
def test_a_constant_column_can_be_read_from_the_data_and_encoded(value):
    schema = schema_from_data(np.full((3, 1), value), [0, 1, 0])
    codes = encode(np.full((3, 1), value), schema).column(0)
    assert len(set(codes.tolist())) == 1
    assert codes.max() < schema.n_bins[0]


def test_integer_categories_of_pandas_survive_being_read_from_the_data():
    frame = pandas_column([7, 3, 7], "category")
    schema = schema_from_data(frame, [0, 1, 0])
    assert schema.columns[0] == Categorical("x", [3, 7])
    assert bins(frame, schema) == [1, 0, 1]


@pytest.mark.parametrize(
    ("labels", "reason"),
    [
        ([0.5, 1.5], "Unknown label type"),
        ([0.0, np.nan], "NaN"),
        ([1 + 2j, 0j], "every row needs a class"),
        (np.array(["a", 1], dtype=object), "mixes kinds"),
    ],
)
def test_labels_without_classes_to_read_are_refused(labels, reason):
    with pytest.raises(InvalidTable, match=reason):
        schema_from_data(np.zeros((2, 1)), labels)


def test_a_schema_cannot_be_read_from_no_rows():
    with pytest.raises(InvalidTable, match=r"0 sample\(s\)"):
        schema_from_data(np.empty((0, 2)), [])


def test_frames_are_told_from_arrays():
    frames = [pd.DataFrame(ROWS), pl.DataFrame(ROWS), pa.table(ROWS)]
    assert [is_frame(f) for f in frames] == [True] * 3
    assert [is_frame(a) for a in (np.ones((1, 1)), [[1]], pd.Series([1]), None, "x")] == [False] * 5
