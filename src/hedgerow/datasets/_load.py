"""From published files to tables: one small reader a data set, and the fixed division into training and test.

pandas reads the files and is imported only then. Imports `_files`, `_schemas` and `_avazu`.
"""

from __future__ import annotations

import io
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hedgerow.datasets import _avazu, _files
from hedgerow.datasets._schemas import SCHEMAS
from hedgerow.errors import HedgerowError, MissingPackage
from hedgerow.schema import Schema

NAMES = tuple(SCHEMAS)
SPLIT_SEED = 0


class UnknownDataset(HedgerowError, ValueError):
    """There is no data set, or no label set, of that name."""


@dataclass(frozen=True)
class Dataset:
    """Rows of a published data set with its public schema.

    `table` is a pandas frame with the schema's columns, `labels` [row] holds classes of the schema; `train`
    and `test` are row numbers. `note` says what differs from the paper's data, empty if nothing does.
    """

    name: str
    table: Any
    labels: NDArray[Any]
    schema: Schema
    train: NDArray[np.int64]
    test: NDArray[np.int64]
    note: str = ""

    def rows(self, numbers: NDArray[np.int64]) -> tuple[Any, NDArray[Any]]:
        """The table and the labels of some rows, such as `train` or a part of it."""
        return self.table.iloc[numbers].reset_index(drop=True), self.labels[numbers]


def schema(name: str, *, labels: str | None = None) -> Schema:
    """The public schema of a data set; needs no files.

    Examples:
        >>> adult = schema("adult")
        >>> adult.label, adult.classes, len(adult.columns)
        ('income', ('<=50K', '>50K'), 14)
    """
    if name not in SCHEMAS:
        raise UnknownDataset(f"there is no data set {name!r}; choose one of {', '.join(NAMES)}.")
    label_sets = SCHEMAS[name]
    chosen = next(iter(label_sets)) if labels is None else labels
    if chosen not in label_sets:
        raise UnknownDataset(f"{name} has no labels {chosen!r}; choose one of {', '.join(label_sets)}.")
    return label_sets[chosen]


def load(
    name: str, *, labels: str | None = None, folder: str | Path | None = None, download: bool = True
) -> Dataset:
    """A data set of the paper, from `folder` (or HEDGEROW_DATA), the cache, or its publisher.

    Creditcard and Avazu cannot be downloaded by a program: the error says where to get them.

    `labels` chooses a label set where there are two: `binary` or `kinds` for kddcup99.
    """
    described = schema(name, labels=labels)
    pandas = _pandas()
    note = ""
    if name == "avazu":
        table, found, note = _read_avazu(pandas, folder, download)
    else:
        table, found = _READERS[name](pandas, _files.obtain(name, folder=folder, download=download))
    if name == "kddcup99" and labels != "kinds":
        found = np.where(found == "normal", "normal", "attack")
    train, test = (np.arange(60_000), np.arange(60_000, 70_000)) if name == "mnist" else _divide(len(table))
    return Dataset(name, table[list(described.names)], found, described, train, test, note)


def check_files(names: Iterable[str]) -> None:
    """Refuse data sets whose files the user has to fetch and has not, before hours are spent on the others."""
    for name in names:
        has_all = name == "avazu" and any(_avazu.full_file(place) for place in _files.places(None))
        if not has_all and not _files.can_be_had(name):
            raise _files.unavailable(name)


def _pandas() -> Any:
    try:
        import pandas as pd
    except ImportError as error:
        raise MissingPackage(
            "reading data sets needs the package pandas: pip install 'hedgerow[experiments]'."
        ) from error
    return pd


def _divide(n_rows: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Nine tenths for training, one for the test, always the same."""
    order = np.random.default_rng(SPLIT_SEED).permutation(n_rows)
    n_test = n_rows // 10
    return order[n_test:], order[:n_test]


def _take_label(table: Any, label: str) -> tuple[Any, NDArray[Any]]:
    labels = table.pop(label).to_numpy()
    return table, labels if labels.dtype.kind in "iu" else labels.astype(str)


def _read_adult(pandas: Any, files: dict[str, bytes]) -> tuple[Any, NDArray[Any]]:
    names = [*schema("adult").names, "income"]
    source = io.BytesIO(files["adult.data"])
    # "?" stays as it is: no category of the schema, so it is `other`.
    table = pandas.read_csv(source, names=names, skipinitialspace=True, keep_default_na=False)
    return _take_label(table, "income")


def _read_bank(pandas: Any, files: dict[str, bytes]) -> tuple[Any, NDArray[Any]]:
    source = io.BytesIO(files["bank-full.csv"])
    return _take_label(pandas.read_csv(source, sep=";", keep_default_na=False), "y")


def _read_kddcup99(pandas: Any, files: dict[str, bytes]) -> tuple[Any, NDArray[Any]]:
    names = [*schema("kddcup99").names, "connection"]
    source = io.BytesIO(files["kddcup.data_10_percent"])
    # As categories the four columns of text take little memory; 23 labels lose their full stop at once.
    text = dict.fromkeys(("protocol_type", "service", "flag", "connection"), "category")
    table = pandas.read_csv(source, names=names, dtype=text, keep_default_na=False)
    kinds = table.pop("connection").cat
    plain = np.array([kind.removesuffix(".") for kind in kinds.categories])
    for column in ("protocol_type", "service", "flag"):
        table[column] = table[column].astype(str)
    return table, plain[kinds.codes.to_numpy()]


def _read_mnist(pandas: Any, files: dict[str, bytes]) -> tuple[Any, NDArray[Any]]:
    parts = ("train", "t10k")
    blocks = np.concatenate([_block_means(files[f"{part}-images-idx3-ubyte"]) for part in parts])
    digits = np.concatenate([_idx_body(files[f"{part}-labels-idx1-ubyte"], 8) for part in parts])
    return pandas.DataFrame(blocks, columns=list(schema("mnist").names)), digits.astype(np.int64)


def _block_means(images: bytes) -> NDArray[np.float64]:
    """The mean grey of the 4 x 4 blocks: [image, block], row by row."""
    pixels = _idx_body(images, 16).reshape(-1, 7, 4, 7, 4)
    means: NDArray[np.float64] = pixels.sum(axis=(2, 4), dtype=np.uint16).reshape(-1, 49) / 16.0
    return means


def _idx_body(content: bytes, header: int) -> NDArray[np.uint8]:
    # The hash of the whole file has been checked, so its header says what we know: unsigned bytes.
    return np.frombuffer(content, dtype=np.uint8, offset=header)


def _read_creditcard(pandas: Any, files: dict[str, bytes]) -> tuple[Any, NDArray[Any]]:
    table = pandas.read_csv(io.BytesIO(files["UCI_Credit_Card.csv"]))
    return _take_label(table, "default.payment.next.month")


def _read_skin(pandas: Any, files: dict[str, bytes]) -> tuple[Any, NDArray[Any]]:
    names = [*schema("skin").names, "pixel"]
    table = pandas.read_csv(io.BytesIO(files["Skin_NonSkin.txt"]), sep="\t", names=names)
    return table, np.where(table.pop("pixel").to_numpy() == 1, "skin", "non-skin")


def _read_avazu(pandas: Any, folder: str | Path | None, download: bool) -> tuple[Any, NDArray[Any], str]:
    """Kaggle's full file wherever there is one, else the samples."""
    for place in _files.places(folder):
        if path := _avazu.full_file(place):
            table, labels = _take_label(_avazu.balanced_rows(pandas, path).reset_index(drop=True), "click")
            fewer = f"only {len(labels):,} rows" if len(labels) < 2 * _avazu.PER_CLASS else ""
            return table, labels, fewer
    content = _files.obtain("avazu", folder=folder, download=download)["train_union.csv"]
    table, labels = _take_label(_avazu.read_columns(pandas, io.BytesIO(content)), "click")
    return table, labels, f"samples only: {len(labels):,} unbalanced rows, the paper has 1,100,000 balanced"


Reader = Callable[[Any, dict[str, bytes]], tuple[Any, NDArray[Any]]]

_READERS: dict[str, Reader] = {
    "adult": _read_adult,
    "bank": _read_bank,
    "kddcup99": _read_kddcup99,
    "mnist": _read_mnist,
    "creditcard": _read_creditcard,
    "skin": _read_skin,
}
