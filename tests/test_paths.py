"""A test whose answer a path knows already is never asked again: neither chosen, nor counted on."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hedgerow import Categorical, Numeric, PrivateTreeClassifier, Schema
from hedgerow.paths import Paths
from hedgerow.privacy.selectors import SELECTORS

SCHEMAS = [
    Schema(columns, label="y", classes=["no", "yes"])
    for columns in (
        [Numeric("x", 0, 1, 5), Categorical("c", ["a", "b"])],
        [Categorical("c", ["a", "b", "d"], missing=True), Numeric("x", 0, 1, [0.2, 0.6], missing=True)],
        [Numeric("z", 0, 1, 1, missing=True), Categorical("b", [True, False]), Numeric("a", 0, 1, 3)],
        [Categorical("c", ["a"])],
        [Numeric("x", 0, 1, 1)],
    )
]
seeds = st.integers(0, 2**32 - 1)


def sides(schema: Schema, split: int) -> tuple[int, set[int], set[int]]:
    """A split's column, and the bins of the column that go left and right."""
    rule = schema.splits[split]
    bins = set(range(schema.columns[rule.column].n_bins))
    left = {b for b in bins if rule.first <= b <= rule.last or b == rule.also}
    return rule.column, left, bins - left


def below(reachable: list[set[int]], schema: Schema, split: int, is_right: bool) -> list[set[int]]:
    column, *parts = sides(schema, split)
    return [bins & parts[is_right] if i == column else bins for i, bins in enumerate(reachable)]


def is_undecided(reachable: list[set[int]], schema: Schema, split: int) -> bool:
    column, left, right = sides(schema, split)
    return bool(reachable[column] & left) and bool(reachable[column] & right)


def everything(schema: Schema) -> list[set[int]]:
    return [set(range(column.n_bins)) for column in schema.columns]


@settings(max_examples=200)
@given(schema=st.sampled_from(SCHEMAS), seed=seeds, any_split=st.booleans())
def test_a_split_is_undecided_if_both_of_its_sides_can_be_reached(schema, seed, any_split):
    """Of trees whose splits are all undecided, and of those that a coordinator may announce."""
    rng = np.random.default_rng(seed)
    paths, reachable, leaves = Paths.root(schema), [everything(schema)], [0]
    for _ in range(12):
        nodes = np.arange(len(reachable))
        expected = [[is_undecided(at, schema, s) for s in range(len(schema.splits))] for at in reachable]
        assert paths.undecided(nodes).tolist() == expected
        assert paths.divisible(nodes).tolist() == [any(row) for row in expected]
        some = rng.integers(0, len(schema.splits), len(nodes))
        assert paths.are_undecided(nodes, some).tolist() == [
            row[s] for row, s in zip(expected, some, strict=True)
        ]
        choices = [
            (leaf, s)
            for leaf, s in itertools.product(leaves, range(len(schema.splits)))
            if any_split or expected[leaf][s]
        ]
        if not choices:
            break
        node, split = choices[rng.integers(len(choices))]
        paths = paths.grown(np.array([node]), np.array([split]))
        leaves = [leaf for leaf in leaves if leaf != node] + [len(reachable), len(reachable) + 1]
        reachable += [below(reachable[node], schema, split, is_right) for is_right in (False, True)]


@settings(max_examples=30)
@given(schema=st.sampled_from(SCHEMAS), seed=seeds)
def test_what_is_undecided_below_a_split_is_what_would_be_if_it_were_made(schema, seed):
    rng = np.random.default_rng(seed)
    paths, n_splits = Paths.root(schema), len(schema.splits)
    for _ in range(3):
        nodes = np.arange(len(paths.parent))
        found, n_nodes = paths.undecided_below(nodes), len(nodes)
        for node in nodes.tolist():
            for split in range(n_splits):
                after = paths.grown(np.array([node]), np.array([split]))
                expected = after.undecided(np.array([n_nodes, n_nodes + 1]))
                assert found[node, :, split, :n_splits].tolist() == expected.tolist()
                assert found[node, :, split, n_splits].tolist() == (~expected.any(axis=1)).tolist()
        leaves = np.flatnonzero(paths.split == -1)
        paths = paths.grown(rng.choice(leaves, 1), rng.integers(0, n_splits, 1))


def decided_splits(tree) -> list[str]:
    """The splits of a tree that their paths had decided."""
    found, waiting = [], [(0, everything(tree.schema))]
    while waiting:
        node, reachable = waiting.pop()
        if (split := int(tree.split[node])) < 0:
            continue
        if not is_undecided(reachable, tree.schema, split):
            found.append(str(tree.schema.splits[split]))
        for is_right, child in ((False, tree.left[node]), (True, tree.right[node])):
            waiting.append((int(child), below(reachable, tree.schema, split, is_right)))
    return found


def made_up_rows(schema, seed, n_rows):
    rng = np.random.default_rng(seed)
    table = np.empty((n_rows, len(schema.columns)), dtype=object)
    for i, column in enumerate(schema.columns):
        drawn = rng.random(n_rows) if isinstance(column, Numeric) else rng.choice(column.categories, n_rows)
        table[:, i] = np.where(rng.random(n_rows) < 0.2, None, drawn.astype(object))
    return table, rng.choice(["no", "yes"], n_rows)


WAYS = [("select", selector) for selector in ("auto", *SELECTORS)] + [
    *(("local", selector) for selector in SELECTORS),
    ("noisy_counts", "permute_and_flip"),
    ("noisy_columns", "permute_and_flip"),
]


@pytest.mark.parametrize("paper", [False, True])
@pytest.mark.parametrize(("method", "selector"), WAYS)
@settings(max_examples=12)
@given(schema=st.sampled_from(SCHEMAS), seed=seeds, epsilon=st.sampled_from([0.5, 20, math.inf]))
def test_no_path_of_a_tree_asks_what_it_knows(method, selector, paper, schema, seed, epsilon):
    """The paper's budgets split whatever there is until nothing is left to split, noise alone included."""
    extra = {"budget": "uniform", "max_depth": 8, "max_splits": 100} if paper else {}
    model = PrivateTreeClassifier(
        schema=schema, epsilon=epsilon, method=method, selector=selector, noise_seed=seed % 2**31, **extra
    )
    tables = [made_up_rows(schema, seed + i, 60) for i in range(1 if method == "select" else 2)]
    if method == "select":
        model.fit(*tables[0])
    else:
        model.fit_holders(tables)
    assert decided_splits(model.tree_) == []


def test_a_tree_ends_where_its_schema_does():
    """One threshold tells two bins apart: two leaves, however deep and costly the plan."""
    schema = SCHEMAS[-1]
    table, labels = made_up_rows(schema, 1, 200)
    model = PrivateTreeClassifier(
        schema=schema, epsilon=50, method="select", budget="uniform", max_depth=6, noise_seed=1
    ).fit(table, labels)
    assert model.tree_.n_splits == 1
