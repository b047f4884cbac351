"""The public schema: candidate splits, equality, hash, files, and errors that say what to write."""

from __future__ import annotations

import json
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hedgerow import Categorical, InvalidSchema, Numeric, Schema
from hedgerow.schema import MAX_BINS


def small_schema() -> Schema:
    return Schema(
        [
            Numeric("size", low=0, high=8, thresholds=2, missing=True),
            Categorical("colour", ["red", "blue"], missing=True),
            Numeric("age", low=10, high=20, thresholds=[12, 15.5]),
        ],
        label="kind",
        classes=["no", "yes"],
    )


# Candidate splits


@pytest.mark.parametrize(
    ("low", "high", "thresholds", "cuts"),
    [
        (0, 10, 5, [1, 3, 5, 7, 9]),
        (17, 90, 2, [35.25, 71.75]),
        (-1, 1, 1, [0]),
        (-8, -4, 4, [-7.5, -6.5, -5.5, -4.5]),
        (0, 1, [0.0, 0.125, 0.5], [0, 0.125, 0.5]),
    ],
)
def test_thresholds_lie_in_the_middle_of_equal_steps_or_as_listed(low, high, thresholds, cuts):
    assert Numeric("x", low, high, thresholds).cuts.tolist() == cuts


@given(st.floats(-1e6, 1e6), st.floats(1e-3, 1e6), st.integers(1, 100))
def test_evenly_spaced_thresholds_follow_the_published_formula(low, width, n):
    column = Numeric("x", low, low + width, n)
    expected = [column.low + (i + 0.5) * (column.high - column.low) / n for i in range(n)]
    assert column.cuts.tolist() == expected


def test_candidate_splits_come_by_column_name_and_send_declared_missing_values_both_ways():
    assert [str(split) for split in small_schema().splits] == [
        "age <= 12",
        "age <= 15.5",
        "colour == red",
        "colour == blue",
        "colour is missing",
        "size <= 2 or missing",
        "size <= 2",
        "size <= 6 or missing",
        "size <= 6",
    ]


def test_the_split_table_numbers_the_bins_that_go_left():
    assert small_schema().split_table.tolist() == [
        [2, 0, 0, -1],
        [2, 0, 1, -1],
        [1, 0, 0, -1],
        [1, 1, 1, -1],
        [1, 3, 3, -1],
        [0, 0, 0, 3],
        [0, 0, 0, -1],
        [0, 0, 1, 3],
        [0, 0, 1, -1],
    ]


def test_a_column_has_a_bin_more_than_thresholds_and_one_for_declared_missing_values():
    assert small_schema().n_bins.tolist() == [4, 4, 3]
    numeric = [Numeric("x", 0, 1, 10, missing=missing) for missing in (False, True)]
    assert [(c.n_bins, c.missing_bin) for c in numeric] == [(11, 0), (12, 11)]
    categorical = [Categorical("x", ["a", "b"], missing=missing) for missing in (False, True)]
    assert [(c.n_bins, c.other_bin, c.missing_bin) for c in categorical] == [(3, 2, 2), (4, 2, 3)]


def test_the_order_of_columns_does_not_change_which_split_comes_first():
    schema = small_schema()
    turned = Schema(schema.columns[::-1], label="kind", classes=["no", "yes"])
    assert [s.text for s in turned.splits] == [s.text for s in schema.splits]
    assert {s.text: s.column for s in turned.splits}["age <= 12"] == 0


def test_most_bins_are_65536():
    assert Numeric("x", 0, 1, MAX_BINS - 1).n_bins == 65_536
    assert Categorical("x", list(range(MAX_BINS - 1))).n_bins == 65_536


# Equality and hash


def test_the_hash_of_a_schema_never_changes():
    assert small_schema().hash == "446bdbedb1cd01a069cd7dcce434b55100a21d2fe3ec6030f3c704254a66863d"
    words = Schema([Categorical("città", ["\t", 'a"b', "é"])], label="y", classes=[True, False])
    assert words.hash == "5f803f20250f377bfdf99511c8c4a9f7d03f5dc21e07244c3709ba16b2f12af5"


def test_equal_schemas_are_equal_whatever_types_their_numbers_came_in():
    one = Schema([Numeric("x", 0, 1, 3), Categorical("k", [1, 2])], label="y", classes=["a", "b"])
    other = Schema(
        (Numeric("x", np.float32(0), np.int64(1), np.int8(3)), Categorical("k", np.array([1, 2]))),
        label="y",
        classes=np.array(["a", "b"]),
    )
    assert one == other
    assert hash(one) == hash(other)
    assert one.hash == other.hash
    assert len({one, other}) == 1


CHANGED = [
    Schema([Numeric("x", 0, 1, 3)], label="y", classes=[0, 1]),
    Schema([Numeric("x", 0, 1, 4)], label="y", classes=[0, 1]),
    Schema([Numeric("x", 0, 2, 3)], label="y", classes=[0, 1]),
    Schema([Numeric("x", 0, 1, 3, missing=True)], label="y", classes=[0, 1]),
    Schema([Numeric("x", 0, 1, [1 / 6, 0.5, 5 / 6])], label="y", classes=[0, 1]),
    Schema([Numeric("z", 0, 1, 3)], label="y", classes=[0, 1]),
    Schema([Numeric("x", 0, 1, 3)], label="z", classes=[0, 1]),
    Schema([Numeric("x", 0, 1, 3)], label="y", classes=[1, 0]),
    Schema([Numeric("x", 0, 1, 3)], label="y", classes=[0.0, 1.0]),
    Schema([Numeric("x", 0, 1, 3)], label="y", classes=[False, True]),
    Schema([Numeric("x", 0, 1, 3)], label="y", classes=["0", "1"]),
    Schema([Categorical("x", [0, 1])], label="y", classes=[0, 1]),
    Schema([Categorical("x", [False, True])], label="y", classes=[0, 1]),
]


def test_schemas_that_differ_in_anything_differ_in_hash():
    assert len({schema.hash for schema in CHANGED}) == len(CHANGED) == len(set(CHANGED))


def test_a_schema_is_not_equal_to_other_things():
    assert small_schema() != "schema"
    assert small_schema() != small_schema().hash


# Files

texts = st.text(st.characters(codec="utf-8"), max_size=12) | st.sampled_from(
    ['"', "\\", "'''", "\x00", "\x7f", "\x85", "\u2028", "\ufeff", "a\r\nb", "# no", "]", "=", "\U0001f333"]
)
names = texts.filter(bool)
floats = st.floats(allow_nan=False, allow_infinity=False, min_value=-1e300, max_value=1e300)


@st.composite
def columns(draw, name):
    missing = draw(st.booleans())
    if draw(st.booleans()):
        low, high = sorted(draw(st.lists(floats, min_size=2, max_size=2, unique=True)))
        thresholds = draw(st.integers(1, 50) | st.lists(st.floats(low, high, exclude_max=True), min_size=1))
        thresholds = thresholds if isinstance(thresholds, int) else sorted(set(thresholds))
        return Numeric(name, low, high, thresholds, missing)
    kinds = st.sampled_from([texts, st.integers(-(2**63), 2**63 - 1), st.booleans()])
    return Categorical(name, draw(st.lists(draw(kinds), min_size=1, max_size=6, unique=True)), missing)


@st.composite
def schemas(draw):
    label, *column_names = draw(st.lists(names, min_size=2, max_size=6, unique=True))
    kinds = st.sampled_from([texts, st.integers(-(2**63), 2**63 - 1), floats, st.booleans()])
    classes = draw(st.lists(draw(kinds), min_size=1, max_size=5, unique=True))
    return Schema([draw(columns(name)) for name in column_names], label=label, classes=classes)


@given(schemas())
def test_json_and_toml_bring_back_the_same_schema(schema):
    for back in (Schema.from_json(schema.to_json()), Schema.from_toml(schema.to_toml())):
        assert back == schema
        assert back.hash == schema.hash
        assert back.columns == schema.columns
        assert [type(c) for c in back.classes] == [type(c) for c in schema.classes]
        assert [s.text for s in back.splits] == [s.text for s in schema.splits]


@pytest.mark.parametrize("suffix", ["toml", "json"])
def test_a_saved_file_brings_back_the_same_schema(tmp_path, suffix):
    schema = Schema([Categorical("città \x7f", ["\u2028", "\r\n", '"'])], label="🌳", classes=[1, 2])
    schema.save(tmp_path / f"schema.{suffix}")
    assert Schema.load(tmp_path / f"schema.{suffix}") == schema


def test_a_file_of_another_kind_is_refused_by_name(tmp_path):
    with pytest.raises(InvalidSchema, match=r"schema\.yaml.*\.toml or \.json"):
        small_schema().save(tmp_path / "schema.yaml")
    with pytest.raises(InvalidSchema, match=r"schema\.yaml.*\.toml or \.json"):
        Schema.load(tmp_path / "schema.yaml")


def test_toml_reads_what_a_person_would_write():
    text = """
    version = 1
    label = "income"
    classes = ["low", "high"]
    [[columns]]
    name = "age"
    kind = "numeric"
    low = 17
    high = 90
    [[columns]]
    name = "sex"
    kind = "categorical"
    categories = ["F", "M"]
    """
    expected = Schema(
        [Numeric("age", 17, 90), Categorical("sex", ["F", "M"])], label="income", classes=["low", "high"]
    )
    assert Schema.from_toml(text) == expected


def changed(**entries):
    return small_schema().to_dict() | entries


def without(key):
    plain = small_schema().to_dict()
    del plain[key]
    return plain


def with_column(**entries):
    return changed(columns=[{"name": "x", "kind": "numeric", "low": 0, "high": 1} | entries])


@pytest.mark.parametrize(
    ("plain", "reason"),
    [
        (changed(version=2), "version 2; this Hedgerow reads 1"),
        (changed(version="1"), "version '1'"),
        (changed(version=True), "version True"),
        (changed(colour=1), "unknown entries: colour"),
        (without("label"), "lacks label"),
        (without("version"), "lacks version"),
        (without("classes"), "lacks classes"),
        (changed(columns={}), "columns must be a list"),
        (changed(columns=[]), "no columns"),
        (changed(columns=[3]), "column number 1"),
        (changed(columns=[{"kind": "numeric"}]), "column number 1 lacks high, low, name"),
        (with_column(kind="ordinal"), "column 'x': kind='ordinal'; write kind"),
        (with_column(kind=[]), "column 'x': kind"),
        (with_column(bins=3), "column 'x' has unknown entries: bins"),
        (with_column(categories=["a"]), "column 'x' has unknown entries: categories"),
        (with_column(name=3), "the column name 3"),
        (with_column(low="0"), "column 'x': low='0'"),
        (with_column(low=10**400), "column 'x': low=1000"),
        (with_column(missing="yes"), "column 'x': missing='yes'; write true or false"),
        (with_column(thresholds="many"), "column 'x': thresholds='many'"),
        (with_column(thresholds=True), "column 'x': thresholds=True"),
        (changed(label=None), "label name None"),
        (changed(classes="ab"), "classes='ab'; write a list"),
        (changed(classes=None), "classes=None; write a list"),
        ([], "must be a table"),
        (None, "must be a table"),
    ],
)
def test_a_damaged_file_is_refused_with_the_reason(plain, reason):
    with pytest.raises(InvalidSchema) as caught:
        Schema.from_json(json.dumps(plain))
    assert reason in str(caught.value)


def test_text_that_is_neither_json_nor_toml_is_refused():
    with pytest.raises(InvalidSchema, match="not JSON"):
        Schema.from_json("{")
    with pytest.raises(InvalidSchema, match="not TOML"):
        Schema.from_toml("label = ")
    with pytest.raises(InvalidSchema, match="not JSON"):
        Schema.from_json("[" + "1" * 5_000 + "]")
    with pytest.raises(InvalidSchema, match="not JSON"):
        Schema.from_json("[" * 100_000)
    with pytest.raises(InvalidSchema, match="not TOML"):
        Schema.from_toml("label = " + "[" * 100_000)


def test_a_file_that_is_not_text_is_refused_by_name(tmp_path):
    (tmp_path / "schema.toml").write_bytes(b"\xff\xfe")
    with pytest.raises(InvalidSchema, match=r"'schema\.toml' is not a text file"):
        Schema.load(tmp_path / "schema.toml")


# Errors


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: Numeric("age", 5, 5), ["'age'", "low=5.0", "high=5.0", "smallest possible"]),
        (lambda: Numeric("age", 6, 5), ["'age'", "low=6.0", "high=5.0"]),
        (lambda: Numeric("age", 2**53, 2**53 + 1), ["'age'", "is not below"]),
        (lambda: Numeric("age", math.nan, 5), ["'age'", "low=nan", "finite"]),
        (lambda: Numeric("age", 0, math.inf), ["'age'", "high=inf", "finite"]),
        (lambda: Numeric("age", "0", 5), ["'age'", "low='0'"]),
        (lambda: Numeric("age", 0, True), ["'age'", "high=True"]),
        (lambda: Numeric("age", 0, 10**400), ["'age'", "high=1000", "finite"]),
        (lambda: Numeric("age", -1.7e308, 1.7e308), ["'age'", "narrower bounds"]),
        (lambda: Numeric("age", -8e307, 8e307), ["'age'", "narrower bounds"]),
        (lambda: Numeric("age", 0, 5, 0), ["'age'", "thresholds=0", "at least 1"]),
        (lambda: Numeric("age", 0, 5, 2.5), ["'age'", "thresholds=2.5", "list of numbers"]),
        (lambda: Numeric("age", 0, 5, []), ["'age'", "thresholds=[]"]),
        (lambda: Numeric("age", 0, 5, [1, math.nan]), ["'age'", "finite"]),
        (lambda: Numeric("age", 0, 5, [1, 10**400]), ["'age'", "finite"]),
        (lambda: Numeric("age", 0, 5, [2, 1]), ["'age'", "sort the list"]),
        (lambda: Numeric("age", 0, 5, [1, 1]), ["'age'", "increase strictly"]),
        (lambda: Numeric("age", 0, 5, [1, 5]), ["'age'", "[low, high)"]),
        (lambda: Numeric("age", 0, 5, [-1, 2]), ["'age'", "[low, high)"]),
        (lambda: Numeric("age", 0, 5, MAX_BINS), ["'age'", "65537 bins", "fewer thresholds"]),
        (lambda: Numeric("age", 0, 5, MAX_BINS - 1, missing=True), ["'age'", "65537 bins"]),
        (lambda: Numeric("age", 0, 5, 10**30), ["'age'", "fewer thresholds"]),
        (lambda: Numeric("age", 0, 5, missing=1), ["'age'", "missing=1", "true or false"]),
        (lambda: Numeric("", 0, 5), ["column name ''"]),
        (lambda: Numeric(3, 0, 5), ["column name 3"]),
        (lambda: Numeric("\ud800", 0, 5), ["Unicode"]),
        (lambda: Categorical("sex", []), ["'sex'", "no categories", "list of all"]),
        (lambda: Categorical("sex", ["F", "F"]), ["'sex'", "'F'", "twice", "once"]),
        (lambda: Categorical("sex", "FM"), ["'sex'", "categories='FM'", "list"]),
        (lambda: Categorical("sex", ["F", 1]), ["'sex'", "all be of one kind"]),
        (lambda: Categorical("sex", [1, True]), ["'sex'", "strings, integers or booleans"]),
        (lambda: Categorical("sex", [0.5, 1.5]), ["'sex'", "strings, integers or booleans"]),
        (lambda: Categorical("sex", [None]), ["'sex'", "all be of one kind"]),
        (lambda: Categorical("sex", [2**63]), ["'sex'", "64 bits", "text"]),
        (lambda: Categorical("sex", ["\udfff"]), ["'sex'", "Unicode"]),
        (lambda: Categorical("sex", range(MAX_BINS)), ["'sex'", "65537 bins"]),
        (lambda: Categorical("sex", ["F"], missing="no"), ["'sex'", "missing='no'"]),
    ],
)
def test_an_impossible_column_is_refused_by_name_and_the_error_says_what_to_write(make, words):
    with pytest.raises(InvalidSchema) as caught:
        make()
    assert [word for word in words if word not in str(caught.value)] == []


@pytest.mark.parametrize(
    ("entries", "words"),
    [
        ({"classes": []}, ["the label", "no classes", "list of all"]),
        ({"classes": ["a", "a"]}, ["the label", "'a'", "twice"]),
        ({"classes": [0.0, math.nan]}, ["the label", "finite"]),
        ({"classes": ["a", 1]}, ["the label", "all be of one kind"]),
        ({"classes": range(65_537)}, ["the label", "65537 classes", "65536"]),
        ({"classes": [2**64]}, ["the label", "64 bits"]),
        ({"label": "x"}, ["the label 'x'", "also a column"]),
        ({"label": ""}, ["label name ''"]),
        ({"columns": []}, ["no columns", "Numeric or Categorical"]),
        ({"columns": 5}, ["columns=5", "list"]),
        ({"columns": Numeric("x", 0, 1)}, ["columns=", "list"]),
        ({"columns": ["x"]}, ["'x' is not a column", "Numeric(...)"]),
        ({"columns": [Numeric("x", 0, 1), Categorical("x", ["a"])]}, ["'x'", "twice", "its own name"]),
    ],
)
def test_an_impossible_schema_is_refused_and_the_error_says_what_to_write(entries, words):
    given_entries = {"columns": [Numeric("x", 0, 1)], "label": "y", "classes": ["a", "b"]} | entries
    with pytest.raises(InvalidSchema) as caught:
        Schema(given_entries.pop("columns"), **given_entries)
    assert [word for word in words if word not in str(caught.value)] == []
