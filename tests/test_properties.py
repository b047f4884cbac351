"""What must hold for every table: properties of the exact learner, and the extremes of its input."""

from __future__ import annotations

import math

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hedgerow import Categorical, Numeric, PrivateTreeClassifier, Schema
from hedgerow.schema import Schema as PublicSchema

seeds = st.integers(0, 2**32 - 1)
criteria = st.sampled_from(["gini", "entropy", "error"])


def fit(schema, table, labels, **parameters):
    return PrivateTreeClassifier(schema=schema, epsilon=math.inf, **parameters).fit(table, labels)


def splits_in_words(tree):
    """The tree without counts: the texts of its splits, depth first."""
    return [str(tree.schema.splits[s]) if s >= 0 else None for s in tree.split.tolist()]


@settings(max_examples=30)
@given(seed=seeds, criterion=criteria)
def test_the_order_of_rows_changes_nothing(made_up, seed, criterion):
    made = made_up(seed)
    order = np.random.default_rng(seed).permutation(len(made.labels))
    first = fit(made.schema, made.table, made.labels, criterion=criterion)
    second = fit(made.schema, made.table.iloc[order], made.labels[order], criterion=criterion)
    assert first.tree_ == second.tree_


@settings(max_examples=30)
@given(seed=seeds, criterion=criteria)
def test_the_order_of_columns_changes_nothing_but_their_places(made_up, seed, criterion):
    made = made_up(seed)
    order = np.random.default_rng(seed).permutation(len(made.schema.columns))
    turned = PublicSchema(
        [made.schema.columns[i] for i in order], label=made.schema.label, classes=made.schema.classes
    )
    first = fit(made.schema, made.table, made.labels, criterion=criterion)
    # A matrix has no names: its columns must be permuted as the schema's are.
    second = fit(turned, made.table.to_numpy()[:, order], made.labels, criterion=criterion)
    assert splits_in_words(first.tree_) == splits_in_words(second.tree_)
    assert first.tree_.counts.tolist() == second.tree_.counts.tolist()
    third = fit(made.schema, made.table.iloc[:, order], made.labels, criterion=criterion)
    assert third.tree_ == first.tree_


@settings(max_examples=30)
@given(seed=seeds, criterion=criteria)
def test_doubling_every_row_changes_no_split(made_up, seed, criterion):
    made = made_up(seed)
    first = fit(made.schema, made.table, made.labels, criterion=criterion)
    twice = np.repeat(np.arange(len(made.labels)), 2)
    second = fit(made.schema, made.table.iloc[twice], made.labels[twice], criterion=criterion)
    assert second.tree_.split.tolist() == first.tree_.split.tolist()
    assert second.tree_.counts.tolist() == (2 * first.tree_.counts).tolist()


@settings(max_examples=30)
@given(seed=seeds, criterion=criteria, max_splits=st.sampled_from([1, 4, 512]))
def test_every_training_row_is_routed_to_the_leaf_that_counted_it(made_up, seed, criterion, max_splits):
    made = made_up(seed)
    model = fit(made.schema, made.table, made.labels, criterion=criterion, max_splits=max_splits)
    tree = model.tree_
    counted = np.zeros_like(tree.counts)
    np.add.at(counted, (model.apply(made.table), np.searchsorted(made.schema.classes, made.labels)), 1)
    leaves = tree.split < 0
    assert counted[leaves].tolist() == tree.counts[leaves].tolist()
    assert counted[~leaves].sum() == 0


@settings(max_examples=30)
@given(seed=seeds)
def test_the_counts_of_children_add_up_to_their_parents(made_up, seed):
    made = made_up(seed)
    tree = fit(made.schema, made.table, made.labels).tree_
    inner = np.flatnonzero(tree.split >= 0)
    assert tree.counts[0].sum() == len(made.labels)
    children = tree.counts[tree.left[inner]] + tree.counts[tree.right[inner]]
    assert children.tolist() == tree.counts[inner].tolist()


@settings(max_examples=30)
@given(seed=seeds)
def test_a_saved_model_is_the_model(made_up, tmp_path_factory, seed):
    made = made_up(seed)
    model = fit(made.schema, made.table, made.labels)
    path = tmp_path_factory.mktemp("model") / "tree.json"
    model.save(path)
    loaded = PrivateTreeClassifier.load(path)
    assert loaded.tree_ == model.tree_
    assert loaded.schema_ == model.schema_
    values = made.table.to_numpy()
    assert loaded.predict(values).tolist() == model.predict(made.table).tolist()
    assert loaded.predict_proba(values).tolist() == model.predict_proba(made.table).tolist()


@settings(max_examples=30)
@given(seed=seeds)
def test_a_longer_tree_begins_with_the_shorter_one(made_up, seed):
    made = made_up(seed)
    full = fit(made.schema, made.table, made.labels)
    for max_splits in range(1, min(full.tree_.n_splits, 6) + 1):
        part = fit(made.schema, made.table, made.labels, max_splits=max_splits)
        assert part.tree_.n_splits == max_splits
        # Rows that the long tree holds together, the short one does too.
        of_leaf = pd.Series(part.apply(made.table)).groupby(full.apply(made.table)).nunique()
        assert (of_leaf == 1).all()


# Extremes

PLAIN = Schema(
    [Numeric("x", 0, 1, 4), Categorical("k", ["a", "b"], missing=True)], label="y", classes=["no", "yes"]
)


def rows(*values):
    table = np.empty((len(values), 2), dtype=object)
    for i, value in enumerate(values):
        table[i] = value
    return table


def test_no_rows_give_one_leaf_that_knows_nothing():
    for table in (np.empty((0, 2)), pd.DataFrame({"x": [], "k": []})):
        model = fit(PLAIN, table, [])
        assert model.tree_.n_nodes == 1
        assert model.tree_.counts.tolist() == [[0, 0]]
        assert model.predict(table).tolist() == []
        one = pd.DataFrame({"x": [0.5], "k": ["a"]})
        one = one if isinstance(table, pd.DataFrame) else one.to_numpy()
        assert model.predict_proba(one).tolist() == [[0.5, 0.5]]


def test_one_row_gives_one_leaf():
    model = fit(PLAIN, rows((0.5, "a")), ["yes"])
    assert model.tree_.counts.tolist() == [[0, 1]]
    assert model.predict(rows((0.1, "b"), (0.9, None))).tolist() == ["yes", "yes"]


def test_one_class_in_the_rows_gives_one_leaf():
    model = fit(PLAIN, rows(*[(i / 10, "a") for i in range(10)]), ["no"] * 10)
    assert model.tree_.counts.tolist() == [[10, 0]]


def test_one_class_in_the_schema_gives_one_leaf():
    schema = Schema(PLAIN.columns, label="y", classes=["only"])
    model = fit(schema, rows(*[(i / 10, "a") for i in range(10)]), ["only"] * 10)
    assert model.tree_.counts.tolist() == [[10]]
    assert model.predict_proba(rows((0.5, "a"))).tolist() == [[1.0]]


def test_constant_columns_give_one_leaf():
    model = fit(PLAIN, rows(*[(0.5, "a")] * 10), ["no", "yes"] * 5)
    assert model.tree_.counts.tolist() == [[5, 5]]


def test_one_column_is_enough():
    schema = Schema([Numeric("x", 0, 1, 4)], label="y", classes=[0, 1])
    model = fit(schema, np.linspace(0, 1, 100)[:, None], [0] * 62 + [1] * 38)
    assert str(schema.splits[model.tree_.split[0]]) == "x <= 0.625"
    assert model.tree_.n_splits == 1
    assert model.tree_.counts[1:].tolist() == [[62, 0], [0, 38]]
    assert model.predict([[0.625], [0.626]]).tolist() == [0, 1]


def test_nothing_but_missing_values_give_one_leaf():
    model = fit(PLAIN, rows(*[(None, None)] * 4), ["no", "yes", "yes", "yes"])
    assert model.tree_.counts.tolist() == [[1, 3]]


def test_missing_values_can_be_all_that_tells_classes_apart():
    schema = Schema([Numeric("x", 0, 1, 2, missing=True)], label="y", classes=[0, 1])
    table = np.array([[0.1], [0.9], [np.nan], [np.nan]])
    model = fit(schema, table, [0, 0, 1, 1])
    assert model.predict(table).tolist() == [0, 0, 1, 1]
    assert model.tree_.n_leaves == 3  # thresholds cannot single out missing values, two of them can


def test_a_thousand_categories_are_told_apart():
    names = [f"k{i}" for i in range(1_000)]
    schema = Schema([Categorical("k", names)], label="y", classes=[0, 1])
    wanted = {"k3", "k500", "k998"}
    table = pd.DataFrame({"k": names * 2})
    model = fit(schema, table, [int(name in wanted) for name in names * 2])
    assert model.tree_.n_splits == 3
    found = model.predict(table)[:1_000]
    assert {name for name, one in zip(names, found, strict=True) if one} == wanted
    assert model.predict(pd.DataFrame({"k": ["never seen"]})).tolist() == [0]


@pytest.mark.parametrize("criterion", ["gini", "entropy", "error"])
def test_two_hundred_classes_are_told_apart(criterion):
    schema = Schema([Numeric("x", 0, 200, 200)], label="y", classes=list(range(200)))
    values = np.repeat(np.arange(200), 3)
    model = fit(schema, values[:, None], values, criterion=criterion)
    assert model.tree_.n_leaves == 200
    assert model.predict(values[:, None]).tolist() == values.tolist()
    assert model.predict_proba(values[:, None]).max(axis=1).tolist() == [1.0] * 600
