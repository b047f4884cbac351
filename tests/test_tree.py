"""The model: routing, shape, text, and files that are checked before anything is built."""

from __future__ import annotations

import contextlib
import copy
import json

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hedgerow import Categorical, InvalidModel, Numeric, Schema
from hedgerow.encoding import encode
from hedgerow.tree import Tree, parse_json

SCHEMA = Schema(
    [Numeric("size", 0, 8, 2, missing=True), Categorical("colour", ["red", "blue"])],
    label="kind",
    classes=["no", "yes"],
)
# 0 colour == red, 1 colour == blue, 2 size <= 2 or missing, 3 size <= 2, 4 size <= 6 or missing, 5 size <= 6


def small_tree() -> Tree:
    """size <= 2 or missing? yes: leaf 1; no: colour == red? yes: leaf 3, no: leaf 4."""
    return Tree(
        SCHEMA,
        split=np.array([2, -1, 0, -1, -1], dtype=np.int32),
        left=np.array([1, -1, 3, -1, -1], dtype=np.int32),
        right=np.array([2, -1, 4, -1, -1], dtype=np.int32),
        counts=np.array([[10.0, 8], [6, 0], [4, 8], [3, 1], [1, 7]]),
    )


def one_leaf(counts=(0.0, 0.0)) -> Tree:
    minus = np.array([-1], dtype=np.int32)
    return Tree(SCHEMA, minus, minus.copy(), minus.copy(), np.array([counts]))


ROWS = np.array(
    [[1.0, "red"], [None, "blue"], [5.0, "red"], [5.0, "blue"], [5.0, "green"], [99.0, None], [-99.0, "red"]],
    dtype=object,
)


# Shape and routing


def test_every_row_reaches_the_leaf_that_its_answers_lead_to():
    assert small_tree().apply(encode(ROWS, SCHEMA)).tolist() == [1, 1, 3, 4, 4, 4, 1]
    assert one_leaf().apply(encode(ROWS, SCHEMA)).tolist() == [0] * 7
    assert small_tree().apply(encode(ROWS[:0], SCHEMA)).tolist() == []


def test_a_large_table_is_routed_like_its_rows_one_by_one():
    many = np.tile(ROWS, (3_000, 1))
    assert small_tree().apply(encode(many, SCHEMA)).tolist() == [1, 1, 3, 4, 4, 4, 1] * 3_000


def test_rows_of_wide_columns_are_routed_by_their_own_codes():
    schema = Schema([Numeric("n", 0, 1, 4), Numeric("w", 0, 1, 1_000)], label="y", classes=[0, 1])
    at = [str(s) for s in schema.splits].index("w <= 0.7005")
    tree = Tree(schema, *(np.array(a, dtype=np.int32) for a in ([at, -1, -1], [1, -1, -1], [2, -1, -1])),
                counts=np.ones((3, 2)))  # fmt: skip
    values = np.random.default_rng(0).random((500, 2))
    assert tree.apply(encode(values, schema)).tolist() == np.where(values[:, 1] <= 0.7005, 1, 2).tolist()


def test_the_shape_of_a_tree():
    tree = small_tree()
    assert (tree.n_nodes, tree.n_splits, tree.n_leaves, tree.depth) == (5, 2, 3, 2)
    assert tree.depths.tolist() == [0, 1, 1, 2, 2]
    assert (one_leaf().n_nodes, one_leaf().n_splits, one_leaf().n_leaves, one_leaf().depth) == (1, 0, 1, 0)


def test_probabilities_are_shares_and_uniform_where_nothing_is_known():
    assert small_tree().probabilities[[1, 3, 4]].tolist() == [[1, 0], [0.75, 0.25], [0.125, 0.875]]
    assert one_leaf().probabilities.tolist() == [[0.5, 0.5]]


def test_the_tree_in_words():
    assert small_tree().export_text().splitlines() == [
        "|--- size <= 2 or missing: no (100.0%)",
        "|--- not (size <= 2 or missing)",
        "|   |--- colour == red: no (75.0%)",
        "|   |--- not (colour == red): yes (87.5%)",
    ]
    assert one_leaf((1.0, 3.0)).export_text() == "yes (75.0%)"


def test_trees_are_equal_if_everything_in_them_is():
    assert small_tree() == small_tree()
    assert small_tree() != one_leaf()
    assert small_tree() != "tree"
    other = small_tree()
    other.counts[4, 0] = 2
    assert small_tree() != other


# Files


def plain() -> dict:
    return small_tree().to_dict()


def load(document) -> Tree:
    return Tree.from_dict(parse_json(json.dumps(document)))


def test_a_file_brings_back_the_same_tree():
    for tree in (small_tree(), one_leaf(), one_leaf((0.1, 1e15))):
        back = load(tree.to_dict())
        assert back == tree
        assert back.schema == tree.schema
        assert [a.dtype for a in (back.split, back.left, back.right, back.counts)] == [
            np.int32, np.int32, np.int32, np.float64,
        ]  # fmt: skip
        assert back.to_dict() == tree.to_dict()


def test_the_file_format_never_changes():
    assert one_leaf((1.0, 2.5)).to_dict() == {
        "format": "hedgerow-tree",
        "version": 1,
        "schema_hash": SCHEMA.hash,
        "schema": SCHEMA.to_dict(),
        "nodes": [{"counts": [1.0, 2.5]}],
    }
    assert plain()["nodes"][2] == {
        "counts": [4.0, 8.0],
        "split": 0,
        "test": "colour == red",
        "left": 3,
        "right": 4,
    }


def without(key):
    document = plain()
    del document[key]
    return document


def node(index, **entries):
    document = plain()
    document["nodes"][index] |= entries
    return document


def node_without(index, key):
    document = plain()
    del document["nodes"][index][key]
    return document


def with_stray_node():
    document = plain()
    document["nodes"].append({"counts": [1, 1]})
    return document


def tampered_schema():
    document = plain()
    document["schema"]["columns"][0]["high"] = 9.0
    return document


def foreign_schema():
    other = Schema([Numeric("x", 0, 1)], label="y", classes=["a", "b"])
    return plain() | {"schema_hash": other.hash}


def deeper_schema(**entries):
    document = plain()
    document["schema"] |= entries
    return document


@pytest.mark.parametrize(
    ("document", "reason"),
    [
        ([], "not a hedgerow-tree file"),
        (None, "not a hedgerow-tree file"),
        ("x", "not a hedgerow-tree file"),
        (plain() | {"format": "other"}, "not a hedgerow-tree file"),
        (without("format"), "not a hedgerow-tree file"),
        (plain() | {"version": 2}, "version 2; this Hedgerow reads 1"),
        (plain() | {"version": "1"}, "version '1'"),
        (plain() | {"version": True}, "version True"),
        (without("version"), "version None"),
        (without("schema"), "schema is invalid"),
        (plain() | {"schema": 3}, "schema is invalid"),
        (deeper_schema(classes=[]), "schema is invalid: the label has no classes"),
        (deeper_schema(version=2), "schema is invalid: the schema has version 2"),
        (deeper_schema(classes=["no", "\ud800"]), "schema is invalid"),
        (without("schema_hash"), "hash"),
        (tampered_schema(), "hash"),
        (foreign_schema(), "hash"),
        (without("nodes"), "no list of nodes"),
        (plain() | {"nodes": []}, "no list of nodes"),
        (plain() | {"nodes": {}}, "no list of nodes"),
        (plain() | {"nodes": [3]}, "node 0 is not a table"),
        (node(2, left=0), "node 0 is reached out of depth-first order"),
        (node(2, left=2), "node 2 is reached out of depth-first order"),
        (node(2, right=3), "node 3 is reached out of depth-first order"),
        (node(0, left=2, right=1), "node 2 is reached out of depth-first order"),
        (node(2, right=5), "node 2: right=5 is out of range"),
        (node(2, left=-1), "node 2: left=-1 is out of range"),
        (node(2, split=6), "node 2: split=6 is out of range"),
        (node(2, split=-1), "node 2: split=-1 is out of range"),
        (node(2, split=10**30), "out of range"),
        (node(2, split=0.0), "node 2: split=0.0"),
        (node(2, split=True), "node 2: split=True"),
        (node(2, split="0"), "node 2: split='0'"),
        (node(2, split=None), "node 2: split=None"),
        (node_without(2, "split"), "node 2: split=None"),
        (node_without(2, "left"), "node 2: left=None"),
        (node_without(2, "right"), "node 2: right=None"),
        (with_stray_node(), "only 5 of 6 nodes can be reached"),
        (node(1, counts=[-1, 2]), "node 1: counts must be 2 numbers"),
        (node(1, counts=[1]), "node 1: counts"),
        (node(1, counts=[1, 2, 3]), "node 1: counts"),
        (node(1, counts=["1", 2]), "node 1: counts"),
        (node(1, counts=[True, 2]), "node 1: counts"),
        (node(1, counts=[None, 2]), "node 1: counts"),
        (node(1, counts={"no": 1}), "node 1: counts"),
        (node(1, counts=[1e308, 1e308]), "node 1: counts"),
        (node(1, counts=[10**400, 1]), "node 1: counts"),
        (node_without(1, "counts"), "node 1: counts"),
        (node(1, counts=[float("nan"), 1]), "the model contains NaN"),
        (node(1, counts=[float("inf"), 1]), "the model contains Infinity"),
        (node(1, counts=[-float("inf"), 1]), "the model contains -Infinity"),
    ],
)
def test_a_damaged_file_is_refused_with_the_reason(document, reason):
    with pytest.raises(InvalidModel) as caught:
        load(document)
    assert reason in str(caught.value)


@pytest.mark.parametrize(
    "text",
    [
        json.dumps(plain())[:-1],
        json.dumps(plain())[:500],
        "",
        "tree",
        "[" * 100_000,
        '{"counts": ' + "1" * 5_000 + "}",
    ],
)
def test_text_that_is_not_json_is_refused(text):
    with pytest.raises(InvalidModel, match="not JSON"):
        parse_json(text)


def test_a_number_beyond_every_float_is_refused():
    text = json.dumps(plain()).replace("[6.0, 0.0]", "[1e999, 0.0]")
    with pytest.raises(InvalidModel, match="node 1: counts"):
        Tree.from_dict(parse_json(text))


# Mutations

SCRAPS = st.sampled_from(
    [
        None,
        True,
        False,
        0,
        1,
        -1,
        2,
        3,
        5,
        2**31,
        10**400,
        0.5,
        -0.0,
        1e308,
        "",
        "no",
        "numeric",
        [],
        {},
        [[]],
    ]
)


def places(document, path=()):
    yield path
    if isinstance(document, dict):
        entries = document.items()
    elif isinstance(document, list):
        entries = enumerate(document)
    else:
        return
    for key, value in entries:
        yield from places(value, (*path, key))


def mutate(document, draw):
    path = draw(st.sampled_from([p for p in places(document) if p]))
    parent = document
    for key in path[:-1]:
        parent = parent[key]
    key = path[-1]
    action = draw(st.sampled_from(["replace", "remove", "copy", "swap"]))
    if action == "replace":
        parent[key] = draw(SCRAPS)
    elif action == "remove":
        del parent[key]
    else:
        other = draw(st.sampled_from([p for p in places(document) if p]))
        value = document
        for step in other:
            value = value[step]
        parent[key] = copy.deepcopy(value)


@settings(max_examples=600)
@given(st.data())
def test_a_mutated_file_is_a_valid_tree_or_refused_and_nothing_else(data):
    document = plain()
    for _ in range(data.draw(st.integers(1, 3))):
        mutate(document, data.draw)
    fix_hash = data.draw(st.booleans())
    if fix_hash:
        with contextlib.suppress(ValueError, KeyError):
            document["schema_hash"] = Schema.from_dict(document["schema"]).hash
    try:
        tree = load(document)
    except InvalidModel:
        return
    assert load(tree.to_dict()) == tree
    assert tree.n_leaves == tree.n_splits + 1
    assert np.isfinite(tree.probabilities).all()
    assert tree.probabilities.sum(axis=1) == pytest.approx(1.0)
    assert tree.export_text()


@settings(max_examples=300)
@given(st.data())
def test_a_file_with_changed_letters_is_a_valid_tree_or_refused_and_nothing_else(data):
    text = json.dumps(plain())
    for _ in range(data.draw(st.integers(1, 4))):
        at = data.draw(st.integers(0, len(text) - 1))
        new = data.draw(st.sampled_from(['"', "{", "]", ",", "-", "9", "e", "\\", "\x00", ""]))
        text = text[:at] + new + text[at + 1 :]
    try:
        tree = Tree.from_dict(parse_json(text))
    except InvalidModel:
        return
    assert load(tree.to_dict()) == tree
