"""The public schema: columns with bounds or categories, classes, and the candidate splits that follow.

Everything here is agreed before a row is read, so nothing here is private. The bottom layer: any module
may import it, it imports only `errors` and `files`.
"""

from __future__ import annotations

import hashlib
import json
import math
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hedgerow.errors import InvalidSchema
from hedgerow.files import write_text

FORMAT_VERSION = 1
MAX_BINS = 65_536
MAX_CLASSES = 65_536
MOST_FORKING_SPLITS = 2**10
MOST_PAIRS = 2**22  # of splits or bins, for each class

Value = str | int | float | bool


@dataclass(frozen=True, slots=True)
class Split:
    """A yes/no question about one column; the rows that answer yes go left.

    In terms of codes, a row goes left if its bin lies in `first..last` or is `also` (the bin of missing
    values; -1 where missing values go right or have no bin).
    """

    column: int
    first: int
    last: int
    also: int
    text: str

    def __str__(self) -> str:
        return self.text


@dataclass(frozen=True)
class Numeric:
    """A column of numbers with public bounds.

    `thresholds` is how many evenly spaced thresholds to offer, or the thresholds themselves. Values outside
    the bounds fall into the first or last bin. With `missing=True` missing values have a bin of their own and
    each threshold comes twice, sending them either way; without, a missing number goes to the first bin.

    Examples:
        >>> Numeric("age", low=0, high=90, thresholds=3).cuts.tolist()
        [15.0, 45.0, 75.0]
        >>> [str(split) for split in Numeric("dose", low=0, high=9, thresholds=[5], missing=True).splits(0)]
        ['dose <= 5 or missing', 'dose <= 5']
    """

    name: str
    low: float
    high: float
    thresholds: int | Sequence[float] = 10
    missing: bool = False

    def __post_init__(self) -> None:
        _check_name(self.name)
        for bound, value in (("low", self.low), ("high", self.high)):
            if not _is_finite(value):
                raise InvalidSchema(f"column {self.name!r}: {bound}={value!r}; write a finite number.")
            object.__setattr__(self, bound, float(value))
        if not self.low < self.high:  # as floats: integers beyond 2**53 may differ and yet be one float
            raise InvalidSchema(
                f"column {self.name!r}: low={self.low!r} is not below high={self.high!r}; "
                "write the smallest possible value as low and the largest as high."
            )
        if not isinstance(self.missing, bool):
            raise InvalidSchema(f"column {self.name!r}: missing={self.missing!r}; write true or false.")
        object.__setattr__(self, "thresholds", self._checked_thresholds())
        _check_bins(self.name, self.n_bins)
        if not math.isfinite((self.high - self.low) * self.n_bins):
            raise InvalidSchema(f"column {self.name!r}: high - low overflows; write narrower bounds.")

    def _checked_thresholds(self) -> int | tuple[float, ...]:
        given: Any = self.thresholds
        if isinstance(given, np.ndarray):
            given = given.tolist()
        if isinstance(given, int | np.integer) and not isinstance(given, bool):
            if given < 1:
                raise InvalidSchema(f"column {self.name!r}: thresholds={given!r}; write at least 1.")
            _check_bins(self.name, int(given) + 1)
            return int(given)
        if isinstance(given, str | bytes) or not isinstance(given, Sequence) or len(given) == 0:
            raise InvalidSchema(
                f"column {self.name!r}: thresholds={given!r}; write how many to offer, or a list of numbers."
            )
        if not all(_is_finite(t) for t in given):
            raise InvalidSchema(f"column {self.name!r}: thresholds must be finite numbers.")
        listed = tuple(float(t) for t in given)
        if any(a >= b for a, b in pairwise(listed)):
            raise InvalidSchema(f"column {self.name!r}: thresholds must increase strictly; sort the list.")
        if listed[0] < self.low or listed[-1] >= self.high:
            raise InvalidSchema(
                f"column {self.name!r}: thresholds must lie in [low, high); one outside splits nothing off."
            )
        return listed

    @cached_property
    def cuts(self) -> NDArray[np.float64]:
        """The thresholds, increasing; bin i holds cuts[i - 1] < x <= cuts[i]."""
        if isinstance(self.thresholds, int):
            steps = np.arange(self.thresholds) + 0.5
            return self.low + steps * (self.high - self.low) / self.thresholds
        return np.array(self.thresholds, dtype=np.float64)

    @property
    def missing_bin(self) -> int:
        """The bin of a missing value."""
        return self.n_bins - 1 if self.missing else 0

    @property
    def n_bins(self) -> int:
        """One more than the thresholds, and one for missing values if they are declared."""
        n_cuts = self.thresholds if isinstance(self.thresholds, int) else len(self.thresholds)
        return n_cuts + 1 + self.missing

    def splits(self, column: int) -> Iterator[Split]:
        """`x <= threshold` for every threshold."""
        for i, cut in enumerate(self.cuts.tolist()):
            test = f"{self.name} <= {cut:.6g}"
            if self.missing:
                yield Split(column, 0, i, self.missing_bin, f"{test} or missing")
            yield Split(column, 0, i, -1, test)

    def to_dict(self) -> dict[str, Any]:
        """Plain values, as they stand in TOML and JSON."""
        thresholds = self.thresholds if isinstance(self.thresholds, int) else list(self.thresholds)
        plain = {"name": self.name, "kind": "numeric", "low": self.low, "high": self.high}
        return plain | {"thresholds": thresholds, "missing": self.missing}


@dataclass(frozen=True)
class Categorical:
    """A column of categories, all of one type; each is one candidate split, `x == category`.

    Unknown categories share the bin `other`, which no split names. With `missing=True` missing values have
    a bin and a split of their own; without, they are `other` too.

    Examples:
        >>> [str(split) for split in Categorical("ward", [1, 2], missing=True).splits(0)]
        ['ward == 1', 'ward == 2', 'ward is missing']
    """

    name: str
    categories: Sequence[str] | Sequence[int] | Sequence[bool]
    missing: bool = False

    def __post_init__(self) -> None:
        _check_name(self.name)
        if not isinstance(self.missing, bool):
            raise InvalidSchema(f"column {self.name!r}: missing={self.missing!r}; write true or false.")
        values = _plain_values(f"column {self.name!r}", "categories", self.categories)
        if any(isinstance(v, float) for v in values):
            raise InvalidSchema(f"column {self.name!r}: categories must be strings, integers or booleans.")
        object.__setattr__(self, "categories", values)
        _check_bins(self.name, self.n_bins)

    @property
    def other_bin(self) -> int:
        """The bin of every value that the schema does not name."""
        return len(self.categories)

    @property
    def missing_bin(self) -> int:
        """The bin of a missing value."""
        return self.other_bin + self.missing

    @property
    def n_bins(self) -> int:
        """One a category, one for all others, and one for missing values if they are declared."""
        return len(self.categories) + 1 + self.missing

    def splits(self, column: int) -> Iterator[Split]:
        """`x == category` for every category."""
        for i, category in enumerate(self.categories):
            yield Split(column, i, i, -1, f"{self.name} == {category}")
        if self.missing:
            yield Split(column, self.missing_bin, self.missing_bin, -1, f"{self.name} is missing")

    def to_dict(self) -> dict[str, Any]:
        """Plain values, as they stand in TOML and JSON."""
        plain = {"name": self.name, "kind": "categorical", "categories": list(self.categories)}
        return plain | {"missing": self.missing}


Column = Numeric | Categorical


@dataclass(frozen=True, eq=False)
class Schema:
    """Columns, label and classes, agreed by everyone before any row is read.

    Examples:
        >>> schema = Schema(
        ...     [Numeric("age", low=17, high=90, thresholds=2), Categorical("sex", ["Female", "Male"])],
        ...     label="income", classes=["<=50K", ">50K"],
        ... )
        >>> [str(split) for split in schema.splits]
        ['age <= 35.25', 'age <= 71.75', 'sex == Female', 'sex == Male']
        >>> Schema.from_toml(schema.to_toml()) == schema
        True
    """

    columns: Sequence[Column]
    label: str = field(kw_only=True)
    classes: Sequence[Value] = field(kw_only=True)

    def __post_init__(self) -> None:
        if isinstance(self.columns, str | Mapping) or not hasattr(self.columns, "__iter__"):
            raise InvalidSchema(f"columns={self.columns!r}; write a list of Numeric and Categorical columns.")
        columns = tuple(self.columns)
        object.__setattr__(self, "columns", columns)
        _check_name(self.label, what="label")
        if not columns:
            raise InvalidSchema("the schema has no columns; write at least one Numeric or Categorical.")
        seen: set[str] = set()
        for column in columns:
            if not isinstance(column, Numeric | Categorical):
                raise InvalidSchema(f"{column!r} is not a column; write Numeric(...) or Categorical(...).")
            if column.name in seen:
                raise InvalidSchema(f"column {column.name!r} stands twice; give each column its own name.")
            seen.add(column.name)
        if self.label in seen:
            raise InvalidSchema(f"the label {self.label!r} is also a column; take it out of the columns.")
        object.__setattr__(self, "classes", _plain_values("the label", "classes", self.classes))
        if len(self.classes) > MAX_CLASSES:
            raise InvalidSchema(f"the label has {len(self.classes)} classes; at most {MAX_CLASSES} work.")

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the columns, in order."""
        return tuple(column.name for column in self.columns)

    @property
    def n_classes(self) -> int:
        """Number of classes, K."""
        return len(self.classes)

    @cached_property
    def class_order(self) -> NDArray[np.int64]:
        """Where the smallest class stands, the next, ...: scikit-learn takes classes to be sorted."""
        return np.argsort(np.array(self.classes))

    @cached_property
    def splits(self) -> tuple[Split, ...]:
        """The candidate splits H, column by column in the order of names.

        By name, so that the order of a table's columns does not decide between splits that are equally good.
        """
        ordered = sorted(enumerate(self.columns), key=lambda item: item[1].name)
        return tuple(split for i, column in ordered for split in column.splits(i))

    @cached_property
    def split_table(self) -> NDArray[np.int32]:
        """The candidate splits as numbers, for compiled code: [split, (column, first, last, also)]."""
        rows = [(s.column, s.first, s.last, s.also) for s in self.splits]
        return np.array(rows, dtype=np.int32)

    @cached_property
    def split_range(self) -> NDArray[np.int64]:
        """Where in `splits` those of each column stand: [column, (begin, end)]."""
        _, begin, n_splits = np.unique(self.split_table[:, 0], return_index=True, return_counts=True)
        return np.stack([begin, begin + n_splits], axis=1)

    @cached_property
    def n_bins(self) -> NDArray[np.int64]:
        """Number of bins of each column."""
        return np.array([column.n_bins for column in self.columns], dtype=np.int64)

    @cached_property
    def bin_start(self) -> NDArray[np.int64]:
        """Where each column's bins start among those of all columns, one after another; and where the last ends."""
        return np.concatenate([[0], np.cumsum(self.n_bins)])

    @cached_property
    def split_bins(self) -> tuple[NDArray[np.uint64], ...]:
        """The bins that go left, numbered through all columns: from, up to; and which splits send one more, and which."""
        column, first, last, also = self.split_table.T
        start, more = self.bin_start[column], np.flatnonzero(also >= 0)
        bins = start + first, start + last + 1, more, (start + also)[more]
        # Unsigned, or compiled code would test every index for a negative one.
        return tuple(each.astype(np.uint64) for each in bins)

    @property
    def can_fork(self) -> bool:
        """Whether splits are so few that all forks, three splits at once, can be compared: some 10 ms and 50 MB a node."""
        n_splits, n_bins = len(self.splits), int(self.bin_start[-1])
        return n_splits <= MOST_FORKING_SPLITS and self.n_classes * max(n_splits, n_bins) ** 2 <= MOST_PAIRS

    @cached_property
    def hash(self) -> str:
        """The same for equal schemas on every machine and in every version of this format."""
        canonical = json.dumps(self.to_dict(), sort_keys=True, separators=(",", ":"), ensure_ascii=True)
        return hashlib.sha256(canonical.encode()).hexdigest()

    def __eq__(self, other: object) -> bool:
        # By hash, because Python holds 1, 1.0 and True to be equal and a schema does not.
        return self.hash == other.hash if isinstance(other, Schema) else NotImplemented

    def __hash__(self) -> int:
        return hash(self.hash)

    def to_dict(self) -> dict[str, Any]:
        """Plain values, as they stand in TOML and JSON."""
        columns = [column.to_dict() for column in self.columns]
        head = {"version": FORMAT_VERSION, "label": self.label, "classes": list(self.classes)}
        return head | {"columns": columns}

    def to_json(self) -> str:
        """The schema as JSON text."""
        return json.dumps(self.to_dict(), indent=2, ensure_ascii=False)

    def to_toml(self) -> str:
        """The schema as TOML text, for people to read and edit."""
        plain = self.to_dict()
        columns = plain.pop("columns")
        lines = [f"{key} = {toml_value(value)}" for key, value in plain.items()]
        for column in columns:
            lines += ["", "[[columns]]", *(f"{key} = {toml_value(value)}" for key, value in column.items())]
        return "\n".join(lines) + "\n"

    @classmethod
    def from_dict(cls, plain: Mapping[str, Any]) -> Schema:
        """The inverse of `to_dict`; unknown or missing entries are refused by name."""
        plain = _table(plain, "the schema", {"version", "label", "classes", "columns"})
        if type(plain["version"]) is not int or plain["version"] != FORMAT_VERSION:
            raise InvalidSchema(
                f"the schema has version {plain['version']!r}; this Hedgerow reads {FORMAT_VERSION}."
            )
        if not isinstance(plain["columns"], list):
            raise InvalidSchema("columns must be a list of tables.")
        columns = [_column_from_dict(i, column) for i, column in enumerate(plain["columns"])]
        return cls(columns, label=plain["label"], classes=plain["classes"])

    @classmethod
    def from_json(cls, text: str) -> Schema:
        """Read what `to_json` wrote."""
        try:
            plain = json.loads(text)
        except (ValueError, RecursionError) as error:
            raise InvalidSchema(f"the schema is not JSON: {error}.") from error
        return cls.from_dict(plain)

    @classmethod
    def from_toml(cls, text: str) -> Schema:
        """Read what `to_toml` or a person wrote."""
        try:
            plain = tomllib.loads(text)
        except (ValueError, RecursionError) as error:
            raise InvalidSchema(f"the schema is not TOML: {error}.") from error
        return cls.from_dict(plain)

    def save(self, path: str | Path) -> None:
        """Write a `.toml` or `.json` file."""
        path = Path(path)
        write_text(path, self.to_toml() if _is_toml(path) else self.to_json())

    @classmethod
    def load(cls, path: str | Path) -> Schema:
        """Read a `.toml` or `.json` file."""
        path = Path(path)
        read = cls.from_toml if _is_toml(path) else cls.from_json
        try:
            text = path.read_text(encoding="utf-8")
        except UnicodeDecodeError as error:
            raise InvalidSchema(f"{path.name!r} is not a text file in UTF-8.") from error
        return read(text)


def _is_toml(path: Path) -> bool:
    if path.suffix not in {".toml", ".json"}:
        raise InvalidSchema(f"{path.name!r}: a schema file ends in .toml or .json.")
    return path.suffix == ".toml"


def _is_finite(value: Any) -> bool:
    if not isinstance(value, int | float | np.integer | np.floating) or isinstance(value, bool):
        return False
    try:
        return math.isfinite(float(value))
    except OverflowError:  # an integer beyond every float
        return False


def _check_name(name: object, what: str = "column") -> None:
    if not isinstance(name, str) or not name:
        raise InvalidSchema(f"the {what} name {name!r} is not a non-empty string.")
    if not _is_unicode(name):
        raise InvalidSchema(f"the {what} name {name!r} is not valid Unicode: no file can hold it.")


def _is_unicode(text: str) -> bool:
    """Whether a string has no lone surrogates, which files in UTF-8 cannot hold."""
    return not any("\ud800" <= c <= "\udfff" for c in text)


def _check_bins(name: str, n_bins: int) -> None:
    if n_bins > MAX_BINS:
        raise InvalidSchema(
            f"column {name!r} would have {n_bins} bins; write fewer thresholds or categories "
            f"(at most {MAX_BINS} bins)."
        )


def _plain_values(owner: str, what: str, values: Any) -> tuple[Value, ...]:
    """Distinct strings, integers, finite floats or booleans, all of one type, as plain Python values."""
    if isinstance(values, str | bytes | Mapping) or not hasattr(values, "__iter__"):
        raise InvalidSchema(f"{owner}: {what}={values!r}; write a list of values.")
    plain = tuple(v.item() if isinstance(v, np.generic) else v for v in values)
    if not plain:
        raise InvalidSchema(f"{owner} has no {what}; write a list of all of them.")
    kinds = {type(v) for v in plain}
    if len(kinds) != 1 or not kinds <= {str, int, float, bool}:
        raise InvalidSchema(f"{owner}: {what} must all be of one kind: strings, integers or booleans.")
    if kinds == {float} and not all(math.isfinite(v) for v in plain):
        raise InvalidSchema(f"{owner}: {what} must be finite; NaN and infinity name nothing.")
    if kinds == {int} and not all(-(2**63) <= v < 2**63 for v in plain):
        raise InvalidSchema(f"{owner}: {what} must be integers of at most 64 bits; write others as text.")
    if kinds == {str} and not all(_is_unicode(v) for v in plain):
        raise InvalidSchema(f"{owner}: {what} must be valid Unicode, or no file can hold them.")
    seen: set[Value] = set()
    for value in plain:
        if value in seen:
            raise InvalidSchema(f"{owner}: {value!r} stands twice among the {what}; write it once.")
        seen.add(value)
    return plain


def _table(
    plain: Any, what: str, required: set[str], optional: frozenset[str] = frozenset()
) -> dict[str, Any]:
    if not isinstance(plain, Mapping):
        raise InvalidSchema(f"{what} must be a table of keys and values.")
    if missing := required - plain.keys():
        raise InvalidSchema(f"{what} lacks {', '.join(sorted(missing))}.")
    if unknown := plain.keys() - required - optional:
        raise InvalidSchema(f"{what} has unknown entries: {', '.join(sorted(map(str, unknown)))}.")
    return dict(plain)


_FIELDS: dict[str, tuple[type[Numeric | Categorical], set[str], frozenset[str]]] = {
    "numeric": (Numeric, {"name", "low", "high"}, frozenset({"thresholds", "missing"})),
    "categorical": (Categorical, {"name", "categories"}, frozenset({"missing"})),
}


def _column_from_dict(index: int, plain: Any) -> Column:
    what = f"column number {index + 1}"
    if isinstance(plain, Mapping) and isinstance(plain.get("name"), str):
        what = f"column {plain['name']!r}"
    kind = plain.get("kind") if isinstance(plain, Mapping) else None
    if not isinstance(kind, str) or kind not in _FIELDS:
        raise InvalidSchema(f'{what}: kind={kind!r}; write kind = "numeric" or "categorical".')
    make, required, optional = _FIELDS[kind]
    fields = _table(plain, what, required | {"kind"}, optional)
    del fields["kind"]
    return make(**fields)


def toml_value(value: Any) -> str:
    """One value in TOML; JSON's notation is TOML's for all that a schema holds."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str):
        return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
    if isinstance(value, list):
        return "[" + ", ".join(toml_value(v) for v in value) + "]"
    return repr(value)
