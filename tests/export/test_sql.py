"""DuckDB and Postgres predict what Hedgerow predicts, on every kind of schema and at every edge."""

from __future__ import annotations

import duckdb
import numpy as np
import polars as pl
import pytest
from kinds import KINDS, model_of, random_model, random_rows

from hedgerow import Categorical, Numeric, Schema
from hedgerow.errors import InvalidParameter, InvalidSchema
from hedgerow.tree import Tree


def in_duckdb(table: pl.DataFrame, *expressions: str) -> list[np.ndarray]:
    with duckdb.connect() as database:
        database.register("rows", table.to_arrow())
        listed = ", ".join(f"{e} AS e{i}" for i, e in enumerate(expressions))
        return [column.to_numpy() for column in database.sql(f"SELECT {listed} FROM rows").pl()]


@pytest.mark.parametrize("float32", [False, True])
@pytest.mark.parametrize("kind", KINDS)
def test_duckdb_predicts_exactly_what_the_model_does(kind, float32):
    model = random_model(KINDS[kind], n_splits=200)
    table = random_rows(model.schema_, float32=float32)
    last = model.classes_[-1].item()
    predicted, probability = in_duckdb(
        table, model.to_sql("duckdb"), model.to_sql("duckdb", probability_of=last)
    )
    assert np.array_equal(predicted, model.predict(table))
    assert predicted.dtype.kind == ("O" if model.classes_.dtype.kind == "U" else model.classes_.dtype.kind)
    assert np.array_equal(probability, model.predict_proba(table)[:, -1])


def test_a_chain_of_512_splits():
    schema = Schema([Numeric("x", 0, 1, 600)], label="y", classes=[0, 1])
    inner, n = np.arange(512), 1025
    split, left, right = (np.full(n, -1, dtype=np.int32) for _ in range(3))
    split[:512], left[:512] = 511 - inner, inner + 1
    right[:512] = n - 1 - inner
    counts = np.random.default_rng(0).random((n, 2))
    model = model_of(Tree(schema, split, left, right, counts))
    table = random_rows(schema, n_rows=2_000)
    assert np.array_equal(in_duckdb(table, model.to_sql("duckdb"))[0], model.predict(table))


def test_text_is_compared_byte_by_byte_whatever_the_collation():
    schema = Schema([Categorical("sex", ["male"])], label="y", classes=["no", "yes"])
    leaves = np.array([[1.0, 1.0], [0.0, 1.0], [1.0, 0.0]])
    split, left, right = (np.array(a, dtype=np.int32) for a in ([0, -1, -1], [1, -1, -1], [2, -1, -1]))
    model = model_of(Tree(schema, split, left, right, leaves))
    with duckdb.connect() as database:
        database.execute("CREATE TABLE rows (sex VARCHAR COLLATE NOCASE)")
        database.execute("INSERT INTO rows VALUES ('male'), ('MALE'), (NULL)")
        answers = database.execute(f"SELECT {model.to_sql('duckdb')} FROM rows").fetchall()
    assert answers == [("yes",), ("no",), ("no",)]


def test_other_dialects_and_classes_are_refused_by_name():
    model = random_model(KINDS["text, missing"], n_splits=3)  # its classes are booleans
    with pytest.raises(InvalidParameter, match="dialect='mysql'; choose one of 'postgres', 'duckdb'"):
        model.to_sql("mysql")
    for stranger in (1, "True", None.__class__):
        with pytest.raises(InvalidParameter, match="not among the classes"):
            model.to_sql("duckdb", probability_of=stranger)
    assert model.to_sql("duckdb", probability_of=np.True_) == model.to_sql("duckdb", probability_of=True)


def test_what_sql_cannot_write_is_refused():
    schema = Schema([Numeric("a\0b", 0, 1)], label="y", classes=[0, 1])
    with pytest.raises(InvalidSchema, match="NUL"):
        random_model(schema, n_splits=1).to_sql("postgres")


@pytest.mark.parametrize("float32", [False, True])
@pytest.mark.parametrize("kind", KINDS)
def test_postgres_predicts_exactly_what_the_model_does(kind, float32, in_postgres):
    model = random_model(KINDS[kind], n_splits=200)
    table = random_rows(model.schema_, n_rows=20_000, float32=float32)
    last = model.classes_[-1].item()
    predicted, probability = in_postgres(
        table, model.to_sql("postgres"), model.to_sql("postgres", probability_of=last)
    )
    assert as_text(predicted) == as_text(model.predict(table))
    assert np.array_equal(probability.to_numpy(), model.predict_proba(table)[:, -1])


def test_backslashes_survive_an_old_setting_of_postgres(in_postgres):
    model = random_model(KINDS["text"], n_splits=200)
    table = random_rows(model.schema_, n_rows=5_000)
    sql = model.to_sql("postgres")
    assert "back\\\\slash" in sql
    (predicted,) = in_postgres(table, sql, settings="SET standard_conforming_strings = off;")
    assert as_text(predicted) == as_text(model.predict(table))


def test_numeric_columns_may_be_integers(in_postgres):
    schema = Schema(
        [Numeric("x", -(2.0**60), 2.0**60, [-1, 0, 2.0**53], missing=True)], label="y", classes=[*range(9)]
    )
    model = random_model(schema, n_splits=5)
    values = [-(2**62), -2, -1, 0, 1, 2**53 - 1, 2**53, 2**53 + 1, 2**53 + 2, 2**62, None]
    table = pl.DataFrame({"x": pl.Series(values, dtype=pl.Int64)})
    expected = model.predict(table)
    assert len({*expected.tolist()}) > 2
    assert np.array_equal(in_duckdb(table, model.to_sql("duckdb"))[0], expected)
    assert as_text(in_postgres(table, model.to_sql("postgres"))[:, 0]) == as_text(expected)


def as_text(classes: np.ndarray | pl.Series) -> list[str]:
    return pl.Series(classes).cast(pl.String).replace({"true": "t", "false": "f"}).to_list()
