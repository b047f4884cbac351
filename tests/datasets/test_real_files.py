"""The published files: rows, labels and values are those of their descriptions. Needs HEDGEROW_DATA."""

from __future__ import annotations

from functools import cache
from pathlib import Path

import numpy as np
import pytest

from hedgerow import datasets
from hedgerow.encoding import encode, encode_labels
from hedgerow.schema import Categorical, Numeric

LABELS: dict[str, dict[object, int]] = {
    "adult": {"<=50K": 24_720, ">50K": 7_841},
    "bank": {"no": 39_922, "yes": 5_289},
    "kddcup99": {"normal": 97_278, "attack": 396_743},
    "mnist": dict(enumerate([6903, 7877, 6990, 7141, 6824, 6313, 6876, 7293, 6825, 6958])),
    "creditcard": {0: 23_364, 1: 6_636},
    "avazu": {0: 70_955, 1: 14_680},
    "skin": {"skin": 50_859, "non-skin": 194_198},
}
N_TRAIN = {
    "adult": 29_305,
    "bank": 40_690,
    "kddcup99": 444_619,
    "mnist": 60_000,
    "creditcard": 27_000,
    "avazu": 77_072,
    "skin": 220_552,
}
# Rows that no category names: "?" in adult, one rare site category in avazu.
OTHER = {
    ("adult", "workclass"): 1_836,
    ("adult", "occupation"): 1_843,
    ("adult", "native-country"): 583,
    ("avazu", "site_category"): 1,
}

pytestmark = pytest.mark.usefixtures("real_files")


@cache
def loaded(name: str) -> datasets.Dataset:
    return datasets.load(name, download=False)


@pytest.mark.parametrize("name", datasets.NAMES)
def test_rows_and_labels_are_as_published(name: str) -> None:
    dataset = loaded(name)
    values, counts = np.unique(dataset.labels, return_counts=True)
    assert dict(zip(values.tolist(), counts.tolist(), strict=True)) == LABELS[name]
    assert len(dataset.table) == sum(LABELS[name].values())
    assert tuple(dataset.table.columns) == dataset.schema.names
    assert np.bincount(encode_labels(dataset.labels, dataset.schema)).tolist() == [
        LABELS[name][value] for value in dataset.schema.classes
    ]


@pytest.mark.parametrize("name", datasets.NAMES)
def test_training_and_test_rows_are_fixed_and_disjoint(name: str) -> None:
    dataset = loaded(name)
    assert len(dataset.train) == N_TRAIN[name]
    assert len(dataset.test) == len(dataset.table) - N_TRAIN[name]
    assert len(np.unique(np.concatenate([dataset.train, dataset.test]))) == len(dataset.table)
    table, labels = dataset.rows(dataset.test[:5])
    assert labels.tolist() == dataset.labels[dataset.test[:5]].tolist()
    assert table.iloc[0].tolist() == dataset.table.iloc[int(dataset.test[0])].tolist()


@pytest.mark.parametrize("name", datasets.NAMES)
def test_every_number_lies_in_its_bounds_and_touches_them(name: str) -> None:
    dataset = loaded(name)
    for column in dataset.schema.columns:
        if not isinstance(column, Numeric):
            continue
        values = dataset.table[column.name].to_numpy()
        if column.name == "C20":
            values = values[values != -1]
        assert values.min() >= column.low, column.name
        assert values.max() <= column.high, column.name
        # Bounds are the published ranges; samples of Avazu and block means need not reach them.
        if name not in ("avazu", "mnist") and column.name != "num_outbound_cmds":
            assert (values.min(), values.max()) == (column.low, column.high), column.name


@pytest.mark.parametrize("name", datasets.NAMES)
def test_the_categories_cover_all_rows_but_the_unknown_ones(name: str) -> None:
    dataset = loaded(name)
    codes = encode(dataset.table, dataset.schema)
    for i, column in enumerate(dataset.schema.columns):
        if isinstance(column, Categorical):
            counts = np.bincount(codes.column(i), minlength=column.n_bins)
            assert counts[column.other_bin] == OTHER.get((name, column.name), 0), column.name
            if name != "avazu":
                assert counts[: column.other_bin].min() > 0, column.name


def test_adults_unknown_values_are_question_marks() -> None:
    table = loaded("adult").table
    assert {name: int((table[name] == "?").sum()) for name in table if (table[name] == "?").any()} == {
        "workclass": 1_836,
        "occupation": 1_843,
        "native-country": 583,
    }


def test_kddcup99_comes_with_the_23_kinds() -> None:
    dataset = datasets.load("kddcup99", labels="kinds", download=False)
    values, counts = np.unique(dataset.labels, return_counts=True)
    found = dict(zip(values.tolist(), counts.tolist(), strict=True))
    assert set(found) == set(dataset.schema.classes)
    assert (found["smurf"], found["neptune"], found["normal"], found["spy"]) == (280_790, 107_201, 97_278, 2)


def test_mnist_blocks_are_means_of_16_pixels(real_files: Path) -> None:
    import gzip

    raw = gzip.decompress((real_files / "mnist" / "train-images-idx3-ubyte.gz").read_bytes())
    image = np.frombuffer(raw, np.uint8, offset=16).reshape(-1, 28, 28)[7]
    blocks = loaded("mnist").table
    for row, column in ((0, 0), (2, 3), (6, 5)):
        mean = image[4 * row : 4 * row + 4, 4 * column : 4 * column + 4].mean()
        assert blocks[f"block_{row}_{column}"].iloc[7] == mean


def test_only_avazu_has_a_note() -> None:
    notes = {name: loaded(name).note for name in datasets.NAMES}
    assert "85,635" in notes.pop("avazu")
    assert set(notes.values()) == {""}
