"""`hedgerow schema`, and `hedgerow ledger` of a holder's store."""

from __future__ import annotations

import json
import re
import tomllib
from fractions import Fraction

import numpy as np
import pandas as pd

from hedgerow import Schema
from hedgerow.encoding import encode, encode_labels
from hedgerow.holder.counts import GroupedRows
from hedgerow.holder.desk import StudyGrant
from hedgerow.holder.store import Store
from hedgerow.messages import CountLabels, Request, to_bytes
from hedgerow.privacy.noise import SecureNoise

from .conftest import SCHEMA, hedgerow, patients


def test_a_draft_is_the_same_whatever_the_rows_hold(study):
    """Names and types only: other rows of the same types give the same draft."""
    other = patients(50, seed=9).assign(age=np.arange(50) * 1e6 + 0.5, sex="Zanzibarrow", ward=77)
    for suffix in ("csv", "parquet"):
        before = hedgerow("schema", "draft", f"rows.{suffix}", "--label", "ill").stdout
        if suffix == "csv":
            other.to_csv("rows.csv", index=False)
        else:
            other.to_parquet("rows.parquet")
        assert hedgerow("schema", "draft", f"rows.{suffix}", "--label", "ill").stdout == before
        assert "male" not in before
        assert "must not be read from the rows" in before


def test_a_draft_is_refused_with_a_sentence_for_each_gap_and_works_when_they_are_filled(study):
    assert hedgerow("schema", "draft", "rows.csv", "--label", "ill", "--out", "draft.toml").exit_code == 0
    result = hedgerow("schema", "check", "draft.toml")
    assert result.exit_code == 1
    assert result.stderr.splitlines() == [
        "the schema lacks classes.",
        "column 'number' lacks high, low.",
        "column 'age' lacks high, low.",
        "column 'sex' lacks categories.",
        "column 'ward' lacks high, low.",
    ]
    text = (study / "draft.toml").read_text()
    for gap, filled in (
        (r"# classes = \[\]", 'classes = ["no", "yes"]'),
        (r"# categories = \[\]", 'categories = ["female", "male"]'),
        (r"# low = ", "low = 0"),
        (r"# high = ", "high = 100"),
    ):
        text = re.sub(gap, filled, text)
    (study / "draft.toml").write_text(text)
    result = hedgerow("schema", "check", "draft.toml", "--data", "rows.csv", "--data", "rows.parquet")
    assert result.exit_code == 0, result.output
    assert "rows.parquet can be read by it" in result.stdout
    assert Schema.load("draft.toml").names == ("number", "age", "sex", "ward")


def test_a_draft_knows_every_type(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    table = pd.DataFrame(
        {
            'odd "name"\n\x7f': [True, False],
            "when": pd.to_datetime(["2020-01-01", "2021-01-01"]),
            "group": pd.Categorical(["a", "b"]),
            "size": np.array([1, 2], dtype="int8"),
        }
    )
    table.to_parquet("rows.parquet")
    text = hedgerow("schema", "draft", "rows.parquet").stdout
    odd, group, size = tomllib.loads(text)["columns"]
    assert odd == {
        "name": 'odd "name"\n\x7f',
        "kind": "categorical",
        "categories": [True, False],
        "missing": False,
    }
    assert group == {"name": "group", "kind": "categorical", "missing": False}
    assert size == {"name": "size", "kind": "numeric", "thresholds": 10, "missing": False}
    assert "'when' is left out" in text
    assert "# label = " in text


def test_a_checked_schema_tells_its_hash(study):
    told = json.loads(hedgerow("schema", "check", "schema.toml", "--json").stdout)
    assert told["hash"] == SCHEMA.hash
    assert told["splits"] == len(SCHEMA.splits)
    assert SCHEMA.hash in hedgerow("schema", "check", "schema.toml").stdout


def test_a_table_that_does_not_fit_the_schema_is_found_before_training(study):
    patients(20).assign(ill="maybe").to_csv("labels.csv", index=False)
    result = hedgerow("schema", "check", "schema.toml", "--data", "labels.csv")
    assert result.exit_code == 1
    assert "labels.csv: the label 'ill'" in result.stderr


def test_the_owner_is_told_of_columns_that_cannot_be_meant_so(study):
    table = patients(200)
    table.assign(sex=" " + table["sex"], age=table["age"] * 365).to_csv("strange.csv", index=False)
    result = hedgerow("schema", "check", "schema.toml", "--data", "strange.csv")
    assert result.exit_code == 0
    assert result.stderr.splitlines() == [
        "strange.csv: column 'age': most values lie at or outside the bounds. "
        "Are unit, scaling and the order of the columns those of the schema?",
        "strange.csv: column 'sex': no row has one of the categories; are they written differently?",
        "(This is about your rows: do not publish it.)",
    ]
    assert not hedgerow("schema", "check", "schema.toml", "--data", "rows.csv").stderr
    table.replace({"sex": {"male": "Male"}}).to_csv("strange.csv", index=False)
    [told, _] = hedgerow("schema", "check", "schema.toml", "--data", "strange.csv").stderr.splitlines()
    assert told == (
        "strange.csv: column 'sex': some values are none of the categories, and no row has the category 'male'; "
        "is it written differently?"
    )
    # A category that does not occur is no mistake by itself, nor is a value that has no category.
    for fine in (table[table["sex"] == "male"], table.assign(sex=["unknown", *table["sex"][1:]])):
        fine.to_csv("fine.csv", index=False)
        assert not hedgerow("schema", "check", "schema.toml", "--data", "fine.csv").stderr


def test_the_ledger_of_a_store_says_what_each_study_has_left(study):
    table = patients(100)
    rows = encode(table[list(SCHEMA.names)], SCHEMA), encode_labels(table["ill"], SCHEMA)
    store = Store("holder.db", lifetime_epsilon=Fraction(3))
    for name, spent in (("malaria", Fraction(1, 4)), ("dengue", Fraction(1, 2))):
        grant = StudyGrant(name, SCHEMA.hash, Fraction(1), max_rows=1000, quantum=0)
        with store.open_study(grant) as open_study:
            desk = open_study.desk(GroupedRows(*rows, SCHEMA), SecureNoise())
            desk.handle(to_bytes(Request(name, "first", None, CountLabels(np.array([0]), [spent]))))
    told = hedgerow("ledger", "holder.db").stdout
    assert "malaria was granted epsilon 1, spent 0.25, has 0.75 left." in told
    assert "dengue was granted epsilon 1, spent 0.5, has 0.5 left." in told
    assert "All studies together have spent epsilon 0.75." in told
    assert json.loads(hedgerow("ledger", "holder.db", "--json").stdout) == [
        {"study": "malaria", "granted": "1", "spent": "1/4"},
        {"study": "dengue", "granted": "1", "spent": "1/2"},
    ]
