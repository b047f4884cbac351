"""The tree grown in waves is the tree of Algorithm 1, which pops one leaf at a time."""

from __future__ import annotations

import heapq
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hedgerow import Categorical, Numeric, PrivateTreeClassifier, Schema
from hedgerow.criteria import Criterion, weighted_impurities
from hedgerow.learner.topdown import all_of, third_of, top_down
from hedgerow.network.local import LocalNetwork

ROUNDING = 1e-12


def algorithm_1(
    made, criterion=Criterion.gini, max_splits=512, max_depth=None, min_gain=0.0, target_error=0.0
):
    """Algorithm 1 of the paper, one leaf at a time, with its own exact counting.

    Returns nested tuples: (split, left, right) or a leaf's class counts.
    """
    goes_left = made.goes_left()
    one_hot = (made.labels[:, None] == np.array(made.schema.classes)[None, :]).astype(np.int64)
    floor = target_error / max_splits * len(made.labels)
    inner = {}  # path -> split

    def best_split(rows):
        sides = goes_left[rows].T.astype(np.int64) @ one_hot[rows]
        total = one_hot[rows].sum(axis=0)
        f_left = weighted_impurities(sides, criterion)
        f_right = weighted_impurities(total - sides, criterion)
        split = int((-f_left - f_right).argmax())
        f_node = weighted_impurities(total[None, :], criterion)[0]
        return split, float(f_node - f_left[split] - f_right[split])

    def push(rows, path, depth):
        n = len(rows)
        if n == 0 or n < floor or (max_depth is not None and depth > max_depth):
            return
        split, weighted_gain = best_split(rows)
        if weighted_gain > (min_gain + ROUNDING) * n:
            heapq.heappush(queue, (-weighted_gain, path, depth, split, rows))

    queue = []
    members = {1: np.arange(len(made.labels))}
    push(members[1], 1, 1)
    while queue and len(inner) < max_splits:
        _, path, depth, split, rows = heapq.heappop(queue)
        inner[path] = split
        left = goes_left[rows, split]
        for child, part in ((2 * path, rows[left]), (2 * path + 1, rows[~left])):
            members[child] = part
            push(part, child, depth + 1)

    def nested(path):
        if path in inner:
            return inner[path], nested(2 * path), nested(2 * path + 1)
        return tuple(one_hot[members[path]].sum(axis=0).tolist())

    return nested(1)


def nested(tree, node=0):
    if tree.split[node] < 0:
        return tuple(int(c) for c in tree.counts[node])
    return int(tree.split[node]), nested(tree, tree.left[node]), nested(tree, tree.right[node])


def waves(made, criterion=Criterion.gini, **parameters):
    model = PrivateTreeClassifier(
        schema=made.schema, epsilon=math.inf, criterion=criterion.name, **parameters
    ).fit(made.table, made.labels)
    return nested(model.tree_)


def n_splits(tree):
    return 1 + n_splits(tree[1]) + n_splits(tree[2]) if len(tree) == 3 and isinstance(tree[1], tuple) else 0


@settings(max_examples=200)
@given(
    seed=st.integers(0, 2**32 - 1),
    n_rows=st.integers(0, 200),
    n_classes=st.sampled_from([1, 2, 3, 5]),
    criterion=st.sampled_from([Criterion.gini, Criterion.entropy, Criterion.error]),
    max_splits=st.sampled_from([1, 2, 3, 5, 8, 17, 512]),
    max_depth=st.sampled_from([None, None, 1, 2, 4]),
    min_gain=st.sampled_from([None, 0.0, 0.01, 0.1, 1.0]),
    target_error=st.sampled_from([None, 0.0, 0.3, 1.0]),
)
def test_waves_grow_the_tree_of_algorithm_1(
    made_up, seed, n_rows, n_classes, criterion, max_splits, max_depth, min_gain, target_error
):
    made = made_up(seed, n_rows, n_classes)
    expected = algorithm_1(made, criterion, max_splits, max_depth, min_gain or 0.0, target_error or 0.0)
    found = waves(
        made,
        criterion,
        max_splits=max_splits,
        max_depth=max_depth,
        min_gain=min_gain,
        target_error=target_error,
    )
    assert found == expected


@pytest.mark.parametrize("seed", range(6))
def test_waves_grow_the_tree_of_algorithm_1_also_with_root_gini(made_up, seed):
    made = made_up(seed, 150, 2)
    assert waves(made, Criterion.root_gini) == algorithm_1(made, Criterion.root_gini)


@pytest.mark.parametrize("max_splits", [1, 2, 7, 40, 200])
def test_a_larger_table_gives_the_same_tree_both_ways(made_up, max_splits):
    made = made_up(12, 3_000, 3, 5)
    expected = algorithm_1(made, max_splits=max_splits)
    assert waves(made, max_splits=max_splits) == expected
    assert n_splits(expected) == max_splits


def test_waves_that_hold_splits_back_evaluate_less_in_as_many_rounds(made_up, monkeypatch):
    made, opened, trees = made_up(12, 20_000, 3, 8), [], []
    for at_once in (third_of, all_of):

        def counted(growth, evaluate, open_children, max_splits, _, at_once=at_once):
            waves = []

            def open_them(nodes):
                waves.append(len(nodes))
                return open_children(nodes)

            top_down(growth, evaluate, open_them, max_splits, at_once)
            opened.append(waves)

        monkeypatch.setattr("hedgerow.learner.coordinator.top_down", counted)
        trees.append(waves(made, max_splits=512))
    assert trees[0] == trees[1]
    assert sum(opened[0]) < 0.85 * sum(opened[1])
    assert len(opened[0]) <= len(opened[1]) + 1


def test_the_weight_floor_keeps_light_nodes_whole(made_up):
    made = made_up(12, 1_000, 3, 5)
    target_error, max_splits = 1.0, 20
    tree = waves(made, max_splits=max_splits, target_error=target_error)
    assert tree == algorithm_1(made, max_splits=max_splits, target_error=target_error)

    def weights_of_inner_nodes(node):
        if len(node) == 3 and isinstance(node[1], tuple):
            left, right = weights_of_inner_nodes(node[1]), weights_of_inner_nodes(node[2])
            return [left[0] + right[0], left[1] + right[1] + [left[0] + right[0]]]
        return [sum(node), []]

    n, inner = weights_of_inner_nodes(tree)
    assert n == 1_000
    assert min(inner) >= target_error / max_splits * n
    assert len(inner) > 3
    assert waves(made, max_splits=max_splits) != tree  # the floor was felt


def test_max_depth_is_the_most_splits_on_a_path(made_up):
    made = made_up(12, 1_000, 3, 5)
    for max_depth in (1, 2, 3, 6):
        model = PrivateTreeClassifier(schema=made.schema, epsilon=math.inf, max_depth=max_depth)
        assert model.fit(made.table, made.labels).tree_.depth == max_depth


def test_no_split_gains_less_than_min_gain(made_up):
    made = made_up(12, 1_000, 3, 5)
    sizes = []
    for min_gain in (0.0, 0.002, 0.005, 0.1, 1.0):
        model = PrivateTreeClassifier(
            schema=made.schema, epsilon=math.inf, criterion="gini", min_gain=min_gain
        ).fit(made.table, made.labels)
        tree = model.tree_
        impurity = weighted_impurities(tree.counts, Criterion.gini)
        inner = np.flatnonzero(tree.split >= 0)
        gain = impurity[inner] - impurity[tree.left[inner]] - impurity[tree.right[inner]]
        assert (gain > min_gain * tree.counts[inner].sum(axis=1)).all()
        sizes.append(tree.n_splits)
    assert sizes == sorted(sizes, reverse=True)
    assert sizes[0] > sizes[1] > sizes[-1] == 0


def test_equal_gains_are_split_in_the_order_of_paths():
    # Four like quarters: after the first split by a, both halves gain the same by b; the left one is first.
    schema = Schema(
        [Categorical("a", [0, 1]), Categorical("b", [0, 1])], label="y", classes=["p", "q", "r", "s"]
    )
    table = np.array([[0, 0], [0, 1], [1, 0], [1, 1]])
    model = PrivateTreeClassifier(schema=schema, epsilon=math.inf, criterion="gini", max_splits=2)
    tree = model.fit(table, ["p", "q", "r", "s"]).tree_
    assert nested(tree) == (0, (2, (1, 0, 0, 0), (0, 1, 0, 0)), (0, 0, 1, 1))


@pytest.fixture
def rounds(monkeypatch):
    """How often the coordinator has asked or announced, by kind of message."""
    counts = {}
    for name in ("ask", "announce"):
        original = getattr(LocalNetwork, name)

        def counted(self, message, *rest, original=original):
            kind = type(message).__name__
            counts[kind] = counts.get(kind, 0) + 1
            return original(self, message, *rest)

        monkeypatch.setattr(LocalNetwork, name, counted)
    return counts


@pytest.mark.parametrize("seed", [0, 1, 2])
def test_a_tree_of_512_splits_takes_about_as_many_rounds_as_it_is_deep(rounds, seed):
    rng = np.random.default_rng(seed)
    n = 20_000
    table = rng.random((n, 6))
    schema = Schema([Numeric(f"x{i}", 0, 1, 20) for i in range(6)], label="y", classes=[0, 1])
    labels = ((table[:, 0] + table[:, 1] * table[:, 2] > 0.8) ^ (rng.random(n) < 0.2)).astype(int)
    tree = PrivateTreeClassifier(schema=schema, epsilon=math.inf).fit(table, labels).tree_
    assert tree.n_splits == 512
    assert rounds["Grow"] <= tree.depth + 3
    assert rounds["NominateAndCount"] <= rounds["Grow"] + 1
    assert sum(rounds.values()) <= 2 * (tree.depth + 3) + 3  # grow, choose and count; and the root and labels
