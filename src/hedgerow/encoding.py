"""From tables to codes: every value becomes the number of its bin, once, in compiled code.

A holder encodes its rows when it loads them; prediction encodes rows in the same way.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from numbers import Number
from typing import Any

import narwhals as nw
import numpy as np
from numpy.typing import NDArray

from hedgerow.compiled import compiled
from hedgerow.errors import HedgerowError, InvalidSchema, InvalidTable, InvalidType
from hedgerow.schema import Categorical, Numeric, Schema
from hedgerow.threads import even_parts, run_all

NARROW = 256  # the most bins that a byte can number
BLOCK = 65_536  # rows of a table with named columns encoded at a time: their codes stay in the cache
WORTH_A_COPY = 32 * 2**20  # bytes of codes
MAX_ROWS = 2**31 - 1  # rows are numbered by int32


@dataclass(frozen=True)
class Codes:
    """Rows as bins: `narrow` [row, column] uint8, `wide` [row, column] uint16 (columns of over 256 bins).

    `places` [column, (is wide, position)] says where each column of the schema is.
    """

    narrow: NDArray[np.uint8]
    wide: NDArray[np.uint16]
    places: NDArray[np.int32]

    @property
    def n_rows(self) -> int:
        """Number of rows; private wherever the rows are."""
        return len(self.narrow)

    @cached_property
    def by_column(self) -> tuple[NDArray[np.uint8], NDArray[np.uint16]]:
        """The same, [column, row]: counting reads all columns of a row, splitting one column of all rows.

        A copy, which the cache holds a column of, if it is small beside what a process takes anyway; else a view.
        """
        if self.narrow.nbytes + self.wide.nbytes > WORTH_A_COPY:
            return self.narrow.T, self.wide.T
        narrow, wide = np.ascontiguousarray(self.narrow.T), np.ascontiguousarray(self.wide.T)
        for matrix in (self.narrow, self.wide):  # or a tree could be learned from rows that are gone
            matrix.flags.writeable = False
        return narrow, wide

    def __getstate__(self) -> dict[str, Any]:
        # A copy of an object can be written to; it makes its own `by_column`.
        return {name: value for name, value in self.__dict__.items() if name != "by_column"}

    def take(self, rows: NDArray[Any]) -> Codes:
        """A copy of these rows."""
        return Codes(self.narrow[rows], self.wide[rows], self.places)

    def column(self, index: int) -> NDArray[np.uint8] | NDArray[np.uint16]:
        """The codes of one column, a view."""
        is_wide, position = self.places[index]
        return self.wide[:, position] if is_wide else self.narrow[:, position]


def encode(table: Any, schema: Schema) -> Codes:
    """Encode a NumPy, pandas, Polars or Arrow table; columns are matched by name where there are names."""
    source = _Table(table, schema)
    places = column_places(schema)
    n_wide = int(places[:, 0].sum())
    narrow = np.empty((source.n_rows, len(places) - n_wide), dtype=np.uint8)
    wide = np.empty((source.n_rows, n_wide), dtype=np.uint16)
    codes = Codes(narrow, wide, places)
    bins = _NumericBins.of(schema)

    def encode_rows(part: tuple[int, int]) -> None:
        if source.matrix is not None and bins.even and not n_wide:
            _bin_evenly(source.matrix, *part, *bins.arrays, narrow)
            return
        if source.matrix is not None:
            _bin_matrix(source.matrix, *part, *bins.arrays, narrow, wide, places)
            return
        for start in range(*part, BLOCK):
            source.encode_block(start, min(start + BLOCK, part[1]), codes, bins)

    run_all(encode_rows, even_parts(source.n_rows, at_least=1_024))
    return codes


def values_at(
    table: Any, schema: Schema, rows: NDArray[Any], columns: Sequence[int]
) -> dict[int, NDArray[Any]]:
    """The values of some columns in some rows: floats of numeric ones, objects of categorical ones."""
    source = _Table(table, schema)
    return {i: source.values_at(i, rows) for i in columns}


def encode_labels(labels: Any, schema: Schema) -> NDArray[Any]:
    """The class number of each label; a label that is not a class is an error, never dropped."""
    what = f"the label {schema.label!r}"
    dtype = np.uint8 if schema.n_classes <= NARROW else np.uint16
    with _no_value_quoted(what):
        values = _one_dimension(labels, what)
        try:
            found = _positions(values, schema.classes, what)
        except InvalidType as error:
            raise InvalidType(f"{error} {_advice(values)}".rstrip()) from None
    if found.size and int(found.max()) == schema.n_classes:
        raise InvalidTable(
            f"the label {schema.label!r} has values that are missing or not among its classes "
            f"{list(schema.classes)}; correct those rows or remove them. (A class belongs in the schema if everybody "
            "knows of it, not because it occurs.)"
        )
    return found.astype(dtype)


def _advice(labels: Any) -> str:
    """What may have been meant by labels of another kind than the schema's classes."""
    values = labels.to_list() if isinstance(labels, nw.Series) else labels.tolist()
    kinds = {type(value) for value in values}
    return next((advice for kind, advice in _ADVICE.items() if kinds == {kind}), "")


_ADVICE = {
    bool: "If the labels are booleans, write classes = [false, true] in the schema.",
    float: "Labels are classes, not measurements.",
    int: "(Some of scikit-learn's tools, such as VotingClassifier, number the classes before they train: for those, "
    "let labels and the schema's classes be numbers from 0.)",
}


def column_places(schema: Schema) -> NDArray[np.int32]:
    """Where each column's codes are: [column, (is wide, position)]."""
    is_wide = schema.n_bins > NARROW
    position = np.where(is_wide, np.cumsum(is_wide), np.cumsum(~is_wide)) - 1
    return np.stack([is_wide, position], axis=1).astype(np.int32)


def check_codes(codes: Codes, labels: NDArray[Any], schema: Schema) -> None:
    """Refuse rows that this schema cannot have encoded: compiled code finds its places in memory by them."""
    n_wide = int((schema.n_bins > NARROW).sum())
    shapes = [(len(labels), len(schema.columns) - n_wide), (len(labels), n_wide)]
    if [codes.narrow.shape, codes.wide.shape] != shapes or labels.ndim != 1:
        raise InvalidTable(
            "the codes do not have the schema's columns or the labels' rows; encode them anew."
        )
    most = {0: _largest(codes.narrow), 1: _largest(codes.wide)}
    for column, (is_wide, position) in zip(schema.columns, column_places(schema).tolist(), strict=True):
        if most[is_wide][position] >= column.n_bins:
            raise InvalidTable(f"column {column.name!r} has codes of another schema; encode it by this one.")
    if (
        labels.dtype.kind not in "iu"
        or labels.min(initial=0) < 0
        or labels.max(initial=0) >= schema.n_classes
    ):
        raise InvalidTable(f"the label {schema.label!r} has codes that number none of its classes.")


def _largest(matrix: NDArray[Any]) -> NDArray[Any]:
    """The largest code of each column; 256 rows side by side, which is ten times as fast as row by row."""
    whole = len(matrix) // 256
    folded = matrix[: whole * 256].reshape(whole, 256, matrix.shape[1])
    rest = matrix[whole * 256 :]
    largest: NDArray[Any] = np.maximum(folded.max(axis=0, initial=0).max(axis=0), rest.max(axis=0, initial=0))
    return largest


# ---- A schema read from the data ---------------------------------------------------------------------------


def is_frame(table: Any) -> bool:
    """Whether a table has named columns (pandas, Polars, Arrow)."""
    try:
        frame = nw.from_native(table, pass_through=True)
        if isinstance(frame, nw.LazyFrame):
            raise InvalidTable("a lazy table has no rows yet; collect() it first.")
        return isinstance(frame, nw.DataFrame)
    except nw.exceptions.DuplicateError:
        raise InvalidTable(_two_of_one_name(table)) from None


def first_repeated(names: Sequence[Any]) -> tuple[int, int] | None:
    """The numbers, from 1, of the first two columns of one name.

    Errors name columns of a table by these: where the first line is a row, or a table was made without names, a name is
    somebody's value.
    """
    for second, name in enumerate(names):
        if (first := names.index(name)) < second:
            return first + 1, second + 1
    return None


def _two_of_one_name(table: Any) -> str:
    names = getattr(table, "column_names", None)  # Arrow's
    repeated = first_repeated(list(table.columns) if names is None else list(names))
    which = "two columns" if repeated is None else "columns {} and {}".format(*repeated)
    return f"{which} of the table have the same name; rename one."


def schema_from_data(table: Any, labels: Any, thresholds: int = 32) -> Schema:
    """Bounds, categories and classes as they stand in the rows. They give rows away: for public data only."""
    with _no_value_quoted("the table, or its labels,"):
        values = _one_dimension(labels, "the label")
        values = values.to_numpy() if isinstance(values, nw.Series) else values
        if values.dtype.kind == "O" and all(isinstance(v, Number) for v in values.tolist()):
            values = np.array(values.tolist())
        is_infinite = values.dtype.kind == "f" and np.isinf(values).any()
        if values.dtype.kind == "c" or is_infinite or _is_missing(values).any():
            raise InvalidTable("Input y contains NaN or infinity: every row needs a class.")
        if values.dtype.kind == "f" and (values != np.floor(values)).any():
            raise InvalidTable("Unknown label type: continuous. Labels are classes, not measurements.")
        series: dict[str, Any]
        if is_frame(table):
            series = _series_by_name(table)
        else:
            array = np.asarray(table)
            series = {f"x{i}": array[:, i] for i in range(array.shape[1])}
        if len(values) == 0:
            raise InvalidTable("Found array with 0 sample(s): no bounds can be read from an empty table.")
        label = "label"
        while label in series:
            label += "_"
        classes = _distinct(values, "the label")
        try:
            columns = [
                _column_from_data(name, f"column {number}", column, thresholds)
                for number, (name, column) in enumerate(series.items(), start=1)
            ]
            return Schema(columns, label=label, classes=classes)
        except InvalidSchema:  # which quotes what it is made of
            raise InvalidTable(
                "no schema can be read from these rows: a column holds numbers, text, integers or booleans, and has a "
                "name; classes are no more than a schema may have. Write the schema yourself."
            ) from None


def _column_from_data(name: str, what: str, values: Any, thresholds: int) -> Numeric | Categorical:
    gone = _is_missing(values)
    array = values.to_numpy() if isinstance(values, nw.Series) else values
    if isinstance(values, nw.Series) and values.dtype in (nw.Categorical, nw.Enum):
        is_text = True
    elif array.dtype.kind == "O":
        is_text = all(isinstance(v, str) for v in array[~gone].tolist())
    else:
        is_text = not isinstance(values, nw.Series) and array.dtype.kind in "UT"
    if is_text:
        return Categorical(name, _distinct(array[~gone], what) or ["none"], missing=bool(gone.any()))
    numbers = _numbers(values, what).astype(np.float64)  # as `encode` will read them
    numbers = numbers[np.isfinite(numbers)]
    low, high = (float(numbers.min()), float(numbers.max())) if numbers.size else (0.0, 1.0)
    if not low < high:
        high = math.nextafter(low, math.inf) if abs(low) > 2**52 else low + 1.0
    return Numeric(name, low, high, thresholds, missing=bool(gone.any()))


def _distinct(values: NDArray[Any], what: str) -> list[Any]:
    try:
        return np.unique(values).tolist()  # type: ignore[no-any-return]
    except TypeError:
        raise InvalidType(f"{what} mixes kinds of values that have no order; convert them to text.") from None


# ---- Tables of every library -------------------------------------------------------------------------------


@dataclass(frozen=True)
class _NumericBins:
    """What compiled code needs to bin numbers; categorical columns have no cuts and are never asked.

    `edges` of a column are its cuts between two NaNs: no comparison with them holds, so no search leaves
    the column. `rate` guesses the bin of evenly spaced cuts; 0 asks for a binary search.
    """

    edges: NDArray[np.float64]
    start: NDArray[np.int64]
    low: NDArray[np.float64]
    rate: NDArray[np.float64]
    missing: NDArray[np.int64]

    @classmethod
    def of(cls, schema: Schema) -> _NumericBins:
        edges: list[NDArray[np.float64]] = []
        low, rate = [], []
        for column in schema.columns:
            cuts = column.cuts if isinstance(column, Numeric) else np.empty(0)
            edges.append(np.concatenate([[np.nan], cuts, [np.nan]]))
            even = isinstance(column, Numeric) and isinstance(column.thresholds, int)
            low.append(column.low if isinstance(column, Numeric) else 0.0)
            guess = len(cuts) / (column.high - column.low) if even else 0.0  # type: ignore[union-attr]
            rate.append(guess if _guesses_well(cuts, low[-1], guess) else 0.0)
        start = np.concatenate([[0], np.cumsum([len(e) for e in edges])])
        missing = np.array([column.missing_bin for column in schema.columns], dtype=np.int64)
        return cls(np.concatenate(edges), start, np.array(low), np.array(rate), missing)

    @property
    def even(self) -> bool:
        """Whether the bin of every column can be guessed to one bin."""
        return bool((self.rate > 0).all())

    @property
    def arrays(self) -> tuple[NDArray[Any], ...]:
        return self.edges, self.start, self.low, self.rate, self.missing


def _guesses_well(cuts: NDArray[np.float64], low: float, rate: float) -> bool:
    """Whether the guess (x - low) * rate + 0.5 is never off by more than one bin.

    It grows with x, so it is enough to look at both ends of every bin: just above the cut below, and the cut.
    """
    if not (math.isfinite(rate) and rate > 0):
        return False
    bins = np.arange(len(cuts))
    above = np.floor((np.nextafter(cuts, np.inf) - low) * rate + 0.5)
    at = np.floor((cuts - low) * rate + 0.5)
    return bool((above >= bins).all() and (at <= bins + 1).all())


class _Table:
    """One of the table kinds, checked against the schema, read block by block."""

    def __init__(self, table: Any, schema: Schema) -> None:
        self.schema = schema
        self.matrix: NDArray[Any] | None = None  # a plain matrix of numbers goes to compiled code at once
        self._array: NDArray[Any] | None = None
        if isinstance(table, np.ndarray | list | tuple):
            self._array = _two_dimensions(table, schema)
            self.n_rows = len(self._array)
            all_numeric = all(isinstance(column, Numeric) for column in schema.columns)
            if all_numeric and self._array.dtype in (np.float32, np.float64) and self._array.dtype.isnative:
                self.matrix = self._array
        else:
            series = _series_by_name(table)
            _check_names(list(series), schema)
            self._series = [series[name] for name in schema.names]
            self.n_rows = len(self._series[0])
        if self.n_rows > MAX_ROWS:
            raise InvalidTable(f"a table may have at most {MAX_ROWS} rows.")

    def encode_block(self, start: int, stop: int, codes: Codes, bins: _NumericBins) -> None:
        for i, column in enumerate(self.schema.columns):
            values = self._values(i, start, stop)
            target = codes.column(i)[start:stop]
            with _no_value_quoted(f"column {column.name!r}"):
                if isinstance(column, Numeric):
                    _bin_column(_numbers(values, f"column {column.name!r}"), i, *bins.arrays, target)
                else:
                    target[:] = _category_bins(values, column)

    def _values(self, i: int, start: int, stop: int) -> Any:
        if self._array is not None:
            return self._array[start:stop, i]
        return self._series[i][start:stop]

    def values_at(self, i: int, rows: NDArray[Any]) -> NDArray[Any]:
        """The values of a column in some rows: floats of a numeric one, objects of a categorical one."""
        column = self.schema.columns[i]
        with _no_value_quoted(f"column {column.name!r}"):
            values = self._array[rows, i] if self._array is not None else self._series[i][rows.tolist()]
            if isinstance(column, Numeric):
                return _numbers(values, column.name)
            objects = np.empty(len(rows), dtype=object)
            objects[:] = values.to_list() if isinstance(values, nw.Series) else values.tolist()
            return objects


def _two_dimensions(table: Any, schema: Schema) -> NDArray[Any]:
    array = as_matrix(table, len(schema.columns))
    if array.shape[1] != len(schema.columns):
        raise InvalidTable(
            f"the table has {array.shape[1]} columns, the schema {len(schema.columns)}: "
            f"{', '.join(schema.names)}."
        )
    return array


def as_matrix(table: Any, n_columns: int | None = None) -> NDArray[Any]:
    """A table without names as an array [row, column]; a list of no rows has the columns that are expected."""
    array = _array(table, "a table")
    if n_columns is not None and isinstance(table, list | tuple) and not len(table):
        return array.reshape(0, n_columns)
    if array.ndim == 1 and any(isinstance(row, list | tuple | np.ndarray) for row in array.tolist()):
        raise InvalidTable("a table has rows of different lengths.")
    if array.ndim != 2:
        raise InvalidTable(
            f"Reshape your data: a table has two dimensions, [row, column], this has {array.ndim}."
        )
    return array


def _array(values: Any, what: str) -> NDArray[Any]:
    """An array; values that have no type together, such as those of a list, keep each their own.

    NumPy would find one type for all of them, and a single row more could change how every other row is read.
    """
    has_type = hasattr(values, "__array__") or hasattr(values, "__array_interface__")
    with _no_value_quoted(what):
        try:
            return np.asarray(values) if has_type else np.array(values, dtype=object)
        except ValueError:
            raise InvalidTable(f"{what} has rows of different lengths.") from None


def _series_by_name(table: Any) -> dict[str, nw.Series[Any]]:
    """The columns of a pandas, Polars or Arrow table; names that are not text, such as 0, are read as text."""
    try:
        frame: nw.DataFrame[Any] = nw.from_native(table, eager_only=True)
    except nw.exceptions.DuplicateError:
        raise InvalidTable(_two_of_one_name(table)) from None
    except TypeError:
        raise InvalidType(
            f"a table is a NumPy array or a pandas, Polars or Arrow table, not a {type(table).__name__}."
        ) from None
    with _no_value_quoted("the table"):
        names = [str(name) for name in frame.columns]
        if repeated := first_repeated(names):
            raise InvalidTable(
                "columns {} and {} have names that are equal as text; rename one.".format(*repeated)
            )
        return {str(name): frame.get_column(name) for name in frame.columns}


def check_names(table: Any, schema: Schema) -> None:
    """Refuse a table with named columns that are not the schema's."""
    _check_names(list(_series_by_name(table)), schema)


def _check_names(names: list[str], schema: Schema) -> None:
    strange = [number for number, name in enumerate(names, start=1) if name not in schema.names]
    if missing := [name for name in schema.names if name not in names]:
        meant = f" Its column {strange[0]} has a name that the schema does not have." if strange else ""
        raise InvalidTable(f"the table lacks the column {missing[0]!r} of the schema.{meant}")
    if schema.label in names and schema.label not in schema.names:
        raise InvalidTable(
            f"the table still has the label {schema.label!r} among its columns; drop it, and give it as y."
        )
    if strange:
        raise InvalidTable(
            f"column {strange[0]} of the table has a name that the schema does not have; drop it."
        )


def _one_dimension(labels: Any, what: str) -> Any:
    """A NumPy array or a narwhals series."""
    if not isinstance(labels, np.ndarray | list | tuple):
        try:
            return nw.from_native(labels, series_only=True)
        except TypeError:
            pass
    array = _array(labels, what)
    if array.ndim == 2 and array.shape[1] == 1:
        from sklearn.exceptions import DataConversionWarning

        warnings.warn(
            f"A column-vector y was passed when a 1d array was expected: {what} should be y.ravel().",
            DataConversionWarning,
            stacklevel=2,
        )
        array = array[:, 0]
    if array.ndim != 1:
        raise InvalidTable(f"{what} has {array.ndim} dimensions; give one value a row.")
    return array


# ---- The values of a column --------------------------------------------------------------------------------


def _numbers(values: Any, what: str) -> NDArray[Any]:
    """A block of a numeric column as float32 or float64, missing values as NaN."""
    if isinstance(values, nw.Series):
        if values.dtype.is_numeric() or values.dtype == nw.Boolean:
            values = _floats(values)
        elif values.is_null().all():  # a column of nothing but missing values has whatever type
            return np.full(len(values), np.nan)
        elif values.dtype in (
            nw.Object,
            nw.String,
        ):  # objects of pandas look like text if the first are missing
            values = values.to_numpy()
        else:
            raise _not_numeric(what, values)
    if values.dtype in (np.float32, np.float64) and values.dtype.isnative:
        return values  # type: ignore[no-any-return]
    if values.dtype.kind in "USTMmc":
        raise _not_numeric(what, values)
    try:
        if values.dtype.kind == "O":
            if any(isinstance(v, str | bytes) for v in values.tolist()):
                raise TypeError  # noqa: TRY301 - "12" is text here as it is in a column of strings
            values = np.where(_is_missing(values), np.nan, values)
        return values.astype(np.float64)  # type: ignore[no-any-return]
    except (TypeError, ValueError, OverflowError):
        raise InvalidType(
            f"{what} is numeric in the schema, but the table holds other things, such as text."
        ) from None


def _not_numeric(what: str, values: Any) -> InvalidType:
    return InvalidType(f"{what} is numeric in the schema, but holds {_kind_of(values)} in the table.")


def _kind_of(values: Any) -> str:
    """What a column holds, in a fixed word. The name that a library has for a type may list categories or fields."""
    dtype = values.dtype
    if not isinstance(values, nw.Series):
        return _NUMPY_KINDS.get(dtype.kind, "other things")
    if dtype.is_numeric():
        return "numbers"
    return next((word for kinds, word in _NARWHALS_KINDS if dtype in kinds), "other things")


_NUMPY_KINDS = {
    **dict.fromkeys("iuf", "numbers"),
    **dict.fromkeys("UT", "text"),
    "b": "booleans",
    "c": "complex numbers",
    "S": "bytes",
    "M": "dates or times",
    "m": "spans of time",
    "V": "structures",
}
_NARWHALS_KINDS = (
    ((nw.Boolean,), "booleans"),
    ((nw.String,), "text"),
    ((nw.Categorical, nw.Enum), "categories"),
    ((nw.Date, nw.Datetime, nw.Time), "dates or times"),
    ((nw.Duration,), "spans of time"),
    ((nw.List, nw.Array), "lists"),
    ((nw.Struct,), "structures"),
    ((nw.Binary,), "bytes"),
)


def _floats(values: nw.Series[Any]) -> NDArray[Any]:
    if values.dtype.is_integer() and values.dtype not in (nw.Int128, nw.UInt128):
        # Rounded to the nearest; Arrow's own conversion refuses large ones.
        present, gone = _present(values)
        floats = np.full(len(values), np.nan)
        floats[~gone] = present.to_numpy()
        return floats
    is_float = values.dtype in (nw.Float32, nw.Float64)
    return (values if is_float else values.cast(nw.Float64)).to_numpy()


def _present(values: nw.Series[Any]) -> tuple[nw.Series[Any], NDArray[np.bool_]]:
    """The values that are there, and which [row] are missing.

    Beside missing values integers would become floats, and large ones others.
    """
    gone = values.is_null()
    return (values.filter(~gone) if gone.any() else values), gone.to_numpy()


@contextmanager
def _no_value_quoted(what: str) -> Iterator[None]:
    """What other libraries say of a value that they cannot read may quote it."""
    try:
        yield
    except (HedgerowError, MemoryError):
        raise
    except Exception:  # noqa: BLE001 - whatever it is
        raise InvalidType(f"{what} holds values that cannot be read.") from None


def _category_bins(values: Any, column: Categorical) -> NDArray[Any]:
    """Bins of a block of a categorical column."""
    bins = _positions(values, column.categories, f"column {column.name!r}")
    if column.missing:
        bins = np.where(_is_missing(values), column.missing_bin, bins)
    return bins


def _is_missing(values: Any) -> NDArray[np.bool_]:
    if isinstance(values, nw.Series):
        gone = values.is_null()
        if values.dtype.is_float():
            gone = gone | values.is_nan()
        is_gone: NDArray[np.bool_] = gone.to_numpy()
        return is_gone
    if values.dtype.kind == "f":
        return np.asarray(np.isnan(values))
    if values.dtype.kind in "OT":
        # None, NaN, and pandas.NA (whose comparison with itself is not a truth value).
        return np.array([v is None or _differs_from_itself(v) for v in values.tolist()], bool)
    return np.zeros(len(values), dtype=bool)


def _differs_from_itself(value: Any) -> bool:
    try:
        return bool(value != value)  # noqa: PLR0124 - so does NaN
    except TypeError:
        return True
    except ValueError:  # an array
        return False


def _positions(values: Any, known: Any, what: str) -> NDArray[Any]:
    """Where each value stands among `known`; len(known) for unknown and missing values."""
    if len(values) == 0 or (isinstance(values, nw.Series) and values.is_null().all()):
        return np.full(len(values), len(known))  # whatever the type of nothing
    if isinstance(known[0], str):
        return _text_positions(values, known, what)
    if isinstance(values, nw.Series):
        present, gone = _present(values)
        found = np.full(len(values), len(known))
        found[~gone] = _number_positions(_as_numbers(present, what), known, what)
        return found
    return _number_positions(values, known, what)


def _as_numbers(values: nw.Series[Any], what: str) -> NDArray[Any]:
    if values.dtype.is_numeric() or values.dtype in (nw.Boolean, nw.Object):
        return values.to_numpy()
    if values.dtype in (nw.Categorical, nw.Enum, nw.String):  # of pandas, they may hold numbers
        array = values.to_numpy()
        if not any(isinstance(v, str) for v in array.tolist()):
            return array
    raise InvalidType(f"{what} holds numbers in the schema, but {_kind_of(values)} in the table.")


def _number_positions(values: NDArray[Any], known: Any, what: str) -> NDArray[Any]:
    if values.dtype.kind == "O":
        return _object_positions(values.tolist(), known)
    if values.dtype.kind not in "biuf":
        raise InvalidType(f"{what} holds numbers in the schema, but {_kind_of(values)} in the table.")
    ordered = np.asarray(known)
    ranks = np.argsort(ordered)
    kind = np.float64 if ordered.dtype.kind == "f" else np.int64
    ordered = ordered[ranks].astype(kind)
    found = np.empty(len(values), dtype=np.uint32)
    for start in range(0, len(values), BLOCK):
        block = slice(start, start + BLOCK)
        here, fits = values[block], None
        if kind == np.int64 and here.dtype.kind in "uf":
            # Of floats and large unsigned numbers, those that are no integer of 64 bits equal no category.
            fits = (here >= -(2.0**63)) & (here < 2.0**63)
            if here.dtype.kind == "f":
                fits &= here == np.floor(here)
            here = np.where(fits, here, 0)
        _find(here.astype(kind), ordered, ranks, found[block])
        if fits is not None:
            found[block][~fits] = len(known)
    return found


def _text_positions(values: Any, known: Any, what: str) -> NDArray[Any]:
    if isinstance(values, nw.Series):
        if values.dtype in (nw.String, nw.Categorical, nw.Enum):
            return _replaced(values, known, what)
        if values.dtype != nw.Object:
            raise InvalidType(f"{what} holds text in the schema, but {_kind_of(values)} in the table.")
        values = values.to_numpy()
    if values.dtype.kind not in "OUT":
        raise InvalidType(f"{what} holds text in the schema, but {_kind_of(values)} in the table.")
    return _object_positions(values.tolist(), known)


def _replaced(values: nw.Series[Any], known: Any, what: str) -> NDArray[Any]:
    numbers: dict[str, Any] = {"default": len(known), "return_dtype": nw.Int64}
    if values.dtype == nw.Enum and values.implementation.is_polars():  # which knows no category but its own
        values = values.cast(nw.String)
    try:
        found = values.replace_strict(list(known), list(range(len(known))), **numbers)
    except NotImplementedError:  # Arrow has no such kernel for string_view
        found = values.cast(nw.String).replace_strict(list(known), list(range(len(known))), **numbers)
    except TypeError:
        raise InvalidType(f"{what} holds text in the schema, but other categories in the table.") from None
    return found.to_numpy()


def _object_positions(values: list[Any], known: Any) -> NDArray[np.int64]:
    position = {value: i for i, value in enumerate(known)}
    unknown = len(known)

    def find(value: Any) -> int:
        try:
            return position.get(value, unknown)
        except TypeError:  # lists, and tuples of them, have no hash
            return unknown

    return np.array([find(value) for value in values], dtype=np.int64)


# ---- Compiled ----------------------------------------------------------------------------------------------


@compiled
def _find(values, ordered, ranks, out):  # type: ignore[no-untyped-def]
    """The rank of each value among `ordered`, by binary search; len(ordered) if it is not there."""
    n = len(ordered)
    for i in range(len(values)):
        low, high = 0, n - 1
        while low < high:
            middle = (low + high) // 2
            if ordered[middle] < values[i]:
                low = middle + 1
            else:
                high = middle
        out[i] = ranks[low] if ordered[low] == values[i] else n


@compiled
def _bin_evenly(values, begin, end, edges, start, low, rate, missing, out):  # type: ignore[no-untyped-def]
    """Bins of rows begin..end where every column's guess is good to one bin: no search, no branches."""
    n_columns = values.shape[1]
    last = np.empty(n_columns)
    for column in range(n_columns):
        last[column] = start[column + 1] - start[column] - 2
    for i in range(begin, end):
        for column in range(n_columns):
            x = np.float64(values[i, column])
            guess = (x - low[column]) * rate[column] + 0.5
            guess = guess if guess > 0.0 else 0.0  # noqa: FURB136 - NaN too
            guess = guess if guess < last[column] else last[column]  # noqa: FURB136
            b = np.int64(guess)
            at = np.uint64(start[column] + b)
            b += np.int64(x > edges[at + np.uint64(1)]) - np.int64(x <= edges[at])
            out[i, column] = b if x == x else missing[column]  # noqa: PLR0124 - NaN is missing


@compiled
def _bin(x, edges, first, n_cuts, low, rate):  # type: ignore[no-untyped-def]
    """The number of cuts below x, exactly: a guess (or a binary search), then comparisons."""
    if rate > 0.0:
        guess = (x - low) * rate + 0.5
        b = 0 if guess < 0.0 else (n_cuts if guess > n_cuts else int(guess))
    else:
        b, above = 0, n_cuts
        while b < above:
            middle = (b + above) // 2
            if x > edges[first + 1 + middle]:
                b = middle + 1
            else:
                above = middle
    while x > edges[first + 1 + b]:
        b += 1
    while x <= edges[first + b]:
        b -= 1
    return b


@compiled
def _bin_column(values, column, edges, start, low, rate, missing, out):  # type: ignore[no-untyped-def]
    first = start[column]
    n_cuts = start[column + 1] - first - 2
    for i in range(len(values)):
        x = np.float64(values[i])
        if np.isnan(x):
            out[i] = missing[column]
        else:
            out[i] = _bin(x, edges, first, n_cuts, low[column], rate[column])


@compiled
def _bin_matrix(  # type: ignore[no-untyped-def]
    values, begin, end, edges, start, low, rate, missing, narrow, wide, places
):
    """One pass over rows begin..end, in blocks that stay in the cache while the columns take turns."""
    for block in range(begin, end, 512):
        stop = min(block + 512, end)
        for column in range(len(places)):
            position = places[column, 1]
            target = values[block:stop, column]
            if places[column, 0]:
                _bin_column(target, column, edges, start, low, rate, missing, wide[block:stop, position])
            else:
                _bin_column(target, column, edges, start, low, rate, missing, narrow[block:stop, position])
