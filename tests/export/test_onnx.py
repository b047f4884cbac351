"""ONNX Runtime predicts what Hedgerow predicts, on every kind of schema and at every edge."""

from __future__ import annotations

import sys

import numpy as np
import onnxruntime
import polars as pl
import pytest
from kinds import KINDS, random_model, random_rows

from hedgerow import Categorical, Numeric, Schema
from hedgerow.errors import MissingPackage
from hedgerow.export.onnx import missing_value


def run(model, table: pl.DataFrame, float32: bool = False) -> tuple[np.ndarray, np.ndarray]:
    session = onnxruntime.InferenceSession(model.to_onnx(float32=float32).SerializeToString())
    return session.run(None, feeds(model.schema_, table))


def feeds(schema: Schema, table: pl.DataFrame) -> dict[str, np.ndarray]:
    """What the inputs' descriptions ask for."""
    arrays = {}
    for column in schema.columns:
        values = table[column.name]
        if isinstance(column, Numeric):
            array = values.fill_null(float("nan")).to_numpy()
        elif values.dtype == pl.String:
            array = values.fill_null(missing_value(column)).to_numpy().astype(object)
        else:
            array = values.cast(pl.Int64).fill_null(missing_value(column)).to_numpy()
        arrays[column.name] = array[:, None]
    return arrays


@pytest.mark.parametrize("float32", [False, True])
@pytest.mark.parametrize("kind", KINDS)
def test_onnx_predicts_exactly_what_the_model_does(kind, float32):
    model = random_model(KINDS[kind], n_splits=200)
    table = random_rows(model.schema_, float32=float32)
    assert len(np.unique(model.apply(table))) >= min(model.tree_.n_leaves, 50)
    labels, probabilities = run(model, table, float32)
    assert np.array_equal(labels, model.predict(table))
    assert labels.dtype.kind == ("O" if model.classes_.dtype.kind == "U" else model.classes_.dtype.kind)
    assert np.array_equal(probabilities, model.predict_proba(table))


@pytest.mark.parametrize("kind", KINDS)
def test_a_tree_of_a_single_leaf(kind):
    model = random_model(KINDS[kind], n_splits=0)
    table = random_rows(model.schema_, n_rows=5)
    labels, probabilities = run(model, table)
    assert labels.tolist() == model.predict(table).tolist()
    assert np.array_equal(probabilities, model.predict_proba(table))


@pytest.mark.parametrize("n_rows", [0, 1, 2])
def test_tables_of_few_rows(n_rows):
    model = random_model(KINDS["mixed"], n_splits=20)
    labels, probabilities = run(model, random_rows(model.schema_, n_rows=n_rows))
    assert labels.shape == (n_rows,)
    assert probabilities.shape == (n_rows, 3)


def test_inputs_are_named_as_the_columns_and_say_how_to_write_a_missing_value():
    schema = Schema(
        [
            Numeric("age", 0, 90),
            Categorical("sex", ["f", "m"]),
            Categorical("text", ["", "?"], missing=True),
            Categorical("code", [-(2**63)]),
        ],
        label="y",
        classes=[0, 1],
    )
    inputs = {i.name: i.doc_string for i in random_model(schema, 3).to_onnx().graph.input}
    assert list(inputs) == ["age", "sex", "text", "code"]
    assert [text.split(" where")[0] for text in inputs.values()] == ["NaN", "''", "'??'", str(1 - 2**63)]


def test_without_onnx_a_sentence_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "onnx", None)
    with pytest.raises(MissingPackage, match=r"pip install 'hedgerow\[onnx\]'"):
        random_model(KINDS["numbers"], 1).to_onnx()
