"""The made-up hospitals: the same every time, of different sizes, and better together than alone."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.tree import DecisionTreeClassifier

from hedgerow import datasets
from hedgerow.encoding import encode, encode_labels
from hedgerow.schema import Categorical, Numeric

HOSPITALS = datasets.synthetic_hospitals(seed=0)


def features(table: NDArray[Any]) -> NDArray[np.float64]:
    """Codes of numbers and one column a category: exactly what the candidate splits can see."""
    codes = encode(table, HOSPITALS.schema)
    parts = []
    for i, column in enumerate(HOSPITALS.schema.columns):
        bins = codes.column(i)[:, None].astype(np.float64)
        parts.append(bins if isinstance(column, Numeric) else bins == np.arange(column.n_bins))
    return np.concatenate(parts, axis=1)


POOLED = features(np.concatenate([table for table, _ in HOSPITALS.holders]))
POOLED_LABELS = np.concatenate([labels for _, labels in HOSPITALS.holders])
TEST = features(HOSPITALS.test_table)


def accuracy(model: Any, rows: NDArray[np.float64], labels: NDArray[np.str_]) -> float:
    return float(model.fit(rows, labels).score(TEST, HOSPITALS.test_labels))


def tree(leaves: int) -> DecisionTreeClassifier:
    return DecisionTreeClassifier(max_leaf_nodes=leaves, random_state=0)


def test_a_seed_gives_the_same_rows_and_another_seed_others() -> None:
    again, other = datasets.synthetic_hospitals(seed=0), datasets.synthetic_hospitals(seed=1)
    for (table, labels), (table_again, labels_again) in zip(HOSPITALS.holders, again.holders, strict=True):
        np.testing.assert_array_equal(
            encode(table, again.schema).narrow, encode(table_again, again.schema).narrow
        )
        assert (labels == labels_again).all()
    assert (HOSPITALS.test_labels == again.test_labels).all()
    assert (HOSPITALS.holders[0][1] != other.holders[0][1]).any()


def test_sizes_fall_and_add_up() -> None:
    sizes = [len(labels) for _, labels in HOSPITALS.holders]
    assert sum(sizes) == 20_000
    assert len(HOSPITALS.test_labels) == 5_000
    np.testing.assert_allclose(np.array(sizes) / 20_000, [0.50, 0.27, 0.15, 0.08], atol=0.005)


@pytest.mark.parametrize(("n_holders", "rows"), [(1, 1), (4, 4), (9, 100), (40, 5_000)])
def test_any_number_of_hospitals_has_rows_each(n_holders: int, rows: int) -> None:
    hospitals = datasets.synthetic_hospitals(n_holders, rows=rows)
    sizes = [len(table) for table, _ in hospitals.holders]
    assert len(sizes) == n_holders
    assert sum(sizes) == rows
    assert min(sizes) >= 1


@pytest.mark.parametrize(("n_holders", "rows"), [(0, 10), (4, 3)])
def test_too_few_rows_are_refused(n_holders: int, rows: int) -> None:
    with pytest.raises(datasets.InvalidHospitals, match=f"n_holders={n_holders}, rows={rows}"):
        datasets.synthetic_hospitals(n_holders, rows=rows)


def test_every_value_is_one_that_the_schema_names() -> None:
    for table, labels in (*HOSPITALS.holders, (HOSPITALS.test_table, HOSPITALS.test_labels)):
        codes = encode(table, HOSPITALS.schema)
        encode_labels(labels, HOSPITALS.schema)
        for i, column in enumerate(HOSPITALS.schema.columns):
            if isinstance(column, Categorical):
                assert (codes.column(i) != column.other_bin).all(), column.name
                continue
            values = table[:, i].astype(float)
            assert np.isnan(values).any() <= column.missing, column.name
            assert np.nanmin(values) >= column.low, column.name
            assert np.nanmax(values) <= column.high, column.name


def test_hospitals_differ_in_their_patients() -> None:
    rates = [float((labels == "yes").mean()) for _, labels in HOSPITALS.holders]
    assert 0.30 < (POOLED_LABELS == "yes").mean() < 0.45
    assert max(rates) - min(rates) > 0.15
    region = HOSPITALS.schema.names.index("region")
    commonest = [
        max(set(table[:, region]), key=table[:, region].tolist().count) for table, _ in HOSPITALS.holders
    ]
    assert commonest == ["city", "lakeside", "lowland", "highland"]


def test_a_tree_finds_the_rule_and_a_simpler_model_does_not() -> None:
    together = accuracy(tree(32), POOLED, POOLED_LABELS)
    linear = make_pipeline(StandardScaler(), LogisticRegression(max_iter=500))
    assert 0.86 < together < 0.92
    assert accuracy(tree(2), POOLED, POOLED_LABELS) < together - 0.15
    assert accuracy(linear, POOLED, POOLED_LABELS) < together - 0.04


def test_no_hospital_does_as_well_alone() -> None:
    together = accuracy(tree(32), POOLED, POOLED_LABELS)
    alone = [accuracy(tree(32), features(table), labels) for table, labels in HOSPITALS.holders]
    assert max(alone) < together - 0.03
    assert np.mean(alone) < together - 0.08
