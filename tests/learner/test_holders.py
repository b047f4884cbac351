"""Many holders, one tree: in any order of asking, however the rows are divided, at the price that was planned."""

from __future__ import annotations

import heapq
import itertools
import math
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from hedgerow import Categorical, Numeric, PrivateTreeClassifier, Schema
from hedgerow.encoding import encode, encode_labels
from hedgerow.holder.counts import GroupedRows
from hedgerow.holder.holder import Holder
from hedgerow.learner.coordinator import Coordinator, Plan, _Study
from hedgerow.learner.planning import Wishes, make_plan
from hedgerow.learner.turns import TakeTurns, TurnsStudy
from hedgerow.messages import ROOT, Answer, Grow, Query, Request, from_bytes, to_bytes
from hedgerow.network.local import LocalNetwork
from hedgerow.privacy.ledger import Ledger
from hedgerow.privacy.noise import NoNoise, SeededNoise
from hedgerow.tree import Tree

Dealt = list[NDArray[np.int64]]


class Recorded(Holder):
    """A holder behind a wire: it gets and gives what was written and read back, and remembers every request."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.requests: list[Request] = []
        self.bytes = [0, 0]

    def answer(self, query: Query, growth: Grow | None = None) -> NDArray[np.int64]:
        name = f"round-{len(self.requests)}"
        asked = to_bytes(Request("fit", name, growth, query))
        request = from_bytes(asked)
        assert isinstance(request, Request)
        answered = to_bytes(Answer("fit", name, super().answer(request.query, request.growth)))
        reply = from_bytes(answered)
        assert isinstance(reply, Answer)
        self.requests.append(request)
        self.bytes = [self.bytes[0] + len(asked), self.bytes[1] + len(answered)]
        return reply.values


def holders(
    made: Any, dealt: Dealt, epsilon: Fraction | float, neighbours: str = "add-remove"
) -> list[Recorded]:
    codes, labels = encode(made.table, made.schema), encode_labels(made.labels, made.schema)
    return [
        Recorded(
            GroupedRows(codes, labels, made.schema, mine),
            SeededNoise(i) if math.isfinite(epsilon) else NoNoise(),
            Ledger(epsilon, neighbours=neighbours),
            max_rows=10_000,
        )
        for i, mine in enumerate(dealt)
    ]


def deal(seed: int, n_rows: int, weights: list[int]) -> Dealt:
    """Rows dealt out at random, in proportion to the holders' weights; a weight of 0 is a holder without rows."""
    shares = np.array(weights, dtype=float)
    shares = shares / shares.sum() if shares.sum() else np.ones(len(shares)) / len(shares)
    owner = np.random.default_rng(seed).choice(len(weights), n_rows, p=shares)
    return [np.flatnonzero(owner == i) for i in range(len(weights))]


def one_leaf_at_a_time(network: LocalNetwork, schema: Schema, plan: Plan) -> Tree:
    """Algorithm 1 as it is printed: pop the best leaf, split it, evaluate its two children, go on."""
    study = (TurnsStudy if isinstance(plan.private_split, TakeTurns) else _Study)(network, schema, plan)
    study.count_all()
    paths = {ROOT: 1}
    queue: list[tuple[float, int, int]] = []

    def evaluate(nodes: list[int]) -> None:
        study.evaluate(np.array(nodes))
        for node in nodes:
            if study.growth.nodes["wanted"][node]:
                heapq.heappush(queue, (-study.growth.nodes["gain"][node], paths[node], node))

    evaluate([ROOT])
    n_splits = 0
    while queue and n_splits < plan.max_splits:
        _, path, best = heapq.heappop(queue)
        left, right = study.open_children(np.array([best]))[0].tolist()
        paths |= {left: 2 * path, right: 2 * path + 1}
        study.growth.nodes["is_split"][best] = True
        n_splits += 1
        evaluate([left, right])
    study.label()
    return study.finish()


def same_splits(one: Tree, other: Tree) -> bool:
    return all(
        np.array_equal(getattr(one, part), getattr(other, part)) for part in ("split", "left", "right")
    )


def same_tree(one: Tree, other: Tree) -> bool:
    """The same splits, and the same counts but for the last bit of an average."""
    return same_splits(one, other) and np.allclose(one.counts, other.counts, rtol=1e-12, atol=1e-9)


# ---- Waves ----------------------------------------------------------------------------------------------------------

weights = st.lists(st.sampled_from([0, 1, 1, 10, 1000]), min_size=1, max_size=4)


@settings(max_examples=120)
@given(
    seed=st.integers(0, 2**32 - 1),
    n_rows=st.integers(0, 300),
    weights=weights,
    epsilon=st.sampled_from([Fraction(1, 2), Fraction(4), Fraction(30), math.inf]),
    method=st.sampled_from(["select", "paper", "turns", "turns", "local", "noisy_counts", "noisy_columns"]),
    budget=st.sampled_from(["auto", "auto", "uniform", "harmonic"]),
    max_splits=st.sampled_from([1, 2, 3, 7, 20, 512]),
    max_depth=st.sampled_from([None, 2, 6]),
)
def test_waves_and_one_leaf_at_a_time_give_the_same_tree(
    made_up, seed, n_rows, weights, epsilon, method, budget, max_splits, max_depth
):
    """With the same noise at the same node. Only the leaves of a tree that was cut short may know more or less:

    a wave may have evaluated nodes below them, whose counts are used and whose price is paid.
    """
    assume(method != "turns" or (budget == "auto" and math.isfinite(epsilon)))
    made = made_up(seed, n_rows, 2 + seed % 2)
    dealt = deal(seed, n_rows, weights[:1] if method in {"select", "paper"} else weights)
    wishes = Wishes(
        epsilon,
        len(dealt),
        method,
        budget=budget,
        max_splits=max_splits,
        max_depth=max_depth,
        max_rows=10_000,
    )
    plan = make_plan(made.schema, wishes)
    asked = [holders(made, dealt, epsilon) for _ in range(2)]
    waves, _ = Coordinator(LocalNetwork(asked[0])).learn(made.schema, plan)
    single = one_leaf_at_a_time(LocalNetwork(asked[1]), made.schema, plan)
    assert same_splits(waves, single)
    if waves.n_splits < max_splits or math.isinf(epsilon):
        assert waves == single
    assert len(asked[0][0].requests) <= len(asked[1][0].requests)


# ---- Without noise --------------------------------------------------------------------------------------------------


def exact(made: Any, dealt: Dealt, method: str, **parameters: Any) -> Tree:
    model = PrivateTreeClassifier(schema=made.schema, epsilon=math.inf, method=method, **parameters)
    codes, labels = encode(made.table, made.schema), encode_labels(made.labels, made.schema)
    return model.fit_codes(codes, labels, dealt).tree_


@settings(max_examples=100)
@given(
    seed=st.integers(0, 2**32 - 1),
    n_rows=st.integers(0, 400),
    weights=weights,
    method=st.sampled_from(["noisy_counts", "noisy_columns"]),
    criterion=st.sampled_from(["gini", "entropy", "error"]),
    max_splits=st.sampled_from([1, 5, 512]),
    by_class=st.booleans(),
)
def test_holders_without_noise_grow_the_tree_of_all_rows_together(
    made_up, seed, n_rows, weights, method, criterion, max_splits, by_class
):
    made = made_up(seed, n_rows, 2 + seed % 3)
    if by_class:  # one holder a class
        dealt = [np.flatnonzero(made.labels == name) for name in made.schema.classes]
    else:
        dealt = deal(seed, n_rows, weights)
    parameters = {"criterion": criterion, "max_splits": max_splits}
    together = exact(made, [np.arange(n_rows)], method, **parameters)
    assert same_tree(exact(made, dealt, method, **parameters), together)


@pytest.mark.parametrize("method", ["noisy_counts", "noisy_columns", "local"])
@pytest.mark.parametrize("seed", range(5))
def test_the_order_of_holders_does_not_matter(made_up, method, seed):
    made = made_up(seed, 100, 2, 3)
    dealt = deal(seed, 100, [1, 10, 100])
    trees = [exact(made, list(order), method) for order in itertools.permutations(dealt)]
    assert all(tree == trees[0] for tree in trees)


# ---- The account ----------------------------------------------------------------------------------------------------


def largest_path_sum(requests: list[Request]) -> Fraction | float:
    """What the requests cost, by plain sums over the announced tree."""
    parent: dict[int, int | None] = {0: None}
    price: dict[int, Fraction | float] = {}
    for request in requests:
        if request.growth is not None:
            for node in request.growth.nodes.tolist():
                parent |= dict.fromkeys((len(parent), len(parent) + 1), node)
        for prices in (value for name, value in vars(request.query).items() if name.endswith("epsilons")):
            for node, epsilon in zip(request.query.nodes.tolist(), prices, strict=True):
                price[node] = price.get(node, Fraction(0)) + epsilon
    total: dict[int | None, Fraction | float] = {None: Fraction(0)}
    for node, above in parent.items():
        total[node] = total[above] + price.get(node, 0)
    return max(total.values())


@settings(max_examples=80)
@given(
    seed=st.integers(0, 2**32 - 1),
    n_rows=st.integers(0, 300),
    weights=weights,
    epsilon=st.sampled_from([Fraction(1, 10), Fraction(1), Fraction(20)]),
    method=st.sampled_from(["local", "noisy_counts", "noisy_columns", "auto", "auto"]),
    budget=st.sampled_from(["auto", "uniform", "decay", "harmonic"]),
    neighbours=st.sampled_from(["add-remove", "replace"]),
)
def test_every_holder_has_spent_what_the_coordinator_planned(
    made_up, seed, n_rows, weights, epsilon, method, budget, neighbours
):
    made = made_up(seed, n_rows, 2)
    dealt = deal(seed, n_rows, weights)
    factor = 2 if neighbours == "replace" else 1
    plan = make_plan(
        made.schema, Wishes(epsilon / factor, len(dealt), method, budget=budget, max_rows=10_000)
    )
    asked = holders(made, dealt, epsilon, neighbours)
    Coordinator(LocalNetwork(asked)).learn(made.schema, plan)
    for holder in asked:
        ledger = holder.ledger
        assert ledger.spent == factor * largest_path_sum(holder.requests) <= epsilon
        if plan.private_split.method != "turns":  # there every holder pays for its own choices
            assert ledger.entries == asked[0].ledger.entries
        if budget == "auto":  # the leaves take what is left, rounded down to a scale that many share
            assert ledger.spent >= Fraction(9, 10) * epsilon


def test_traffic_is_what_has_passed(made_up):
    made = made_up(3, 200, 2)
    asked = holders(made, deal(3, 200, [1, 1, 5]), Fraction(2))
    network = LocalNetwork(asked)
    plan = make_plan(made.schema, Wishes(Fraction(2), 3, "noisy_columns", max_rows=10_000))
    Coordinator(network).learn(made.schema, plan)
    traffic = network.traffic
    assert [traffic.bytes_sent, traffic.bytes_received] == [sum(h.bytes[i] for h in asked) for i in range(2)]
    assert {len(holder.requests) for holder in asked} == {traffic.rounds}
    assert traffic.rounds > 1
    assert f"{traffic.rounds} rounds with 3 holders" in str(traffic)


# ---- The estimator --------------------------------------------------------------------------------------------------

SCHEMA = Schema([Numeric("x", 0, 1, 8), Categorical("c", ["a", "b"])], label="y", classes=["no", "yes"])


def table(n_rows: int, seed: int = 0) -> tuple[NDArray[np.object_], NDArray[np.str_]]:
    rng = np.random.default_rng(seed)
    values = np.empty((n_rows, 2), dtype=object)
    values[:, 0], values[:, 1] = rng.random(n_rows), rng.choice(["a", "b"], n_rows)
    return values, np.where((values[:, 0].astype(float) > 0.5) ^ (rng.random(n_rows) < 0.1), "yes", "no")


@pytest.mark.parametrize("method", ["auto", "local", "noisy_counts", "noisy_columns"])
@pytest.mark.parametrize("epsilon", [1.0, math.inf])
@pytest.mark.parametrize("sizes", [(0,), (0, 0, 0), (0, 500), (500, 0, 1), (1, 1, 1000)])
def test_holders_may_have_few_rows_or_none(method, epsilon, sizes):
    model = PrivateTreeClassifier(schema=SCHEMA, epsilon=epsilon, method=method, noise_seed=1)
    model.fit_holders([table(size, seed) for seed, size in enumerate(sizes)])
    assert len(model.ledgers_) == model.traffic_.holders == len(sizes)
    spent = {ledger.spent for ledger in model.ledgers_}
    assert max(spent) <= epsilon
    assert len(spent) == 1 or method == "auto"  # holders take turns
    probabilities = model.predict_proba(table(20, 9)[0])
    assert np.isfinite(probabilities).all()
    assert np.allclose(probabilities.sum(axis=1), 1)


def test_holders_with_one_class_each_learn_together():
    values, labels = table(4000)
    parts = [(values[labels == name], labels[labels == name]) for name in ("no", "yes")]
    model = PrivateTreeClassifier(schema=SCHEMA, epsilon=4.0, method="noisy_columns", noise_seed=0)
    # 0.9 of the labels follow from x; the noise of a thousand rows' counts is a few rows.
    assert model.fit_holders(parts).score(values, labels) > 0.85


# ---- Rounds ---------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def large() -> tuple[Schema, Any, Any, Dealt]:
    rng = np.random.default_rng(0)
    n = 20_000
    values = rng.random((n, 6))
    schema = Schema([Numeric(f"x{i}", 0, 1, 20) for i in range(6)], label="y", classes=[0, 1])
    labels = ((values[:, 0] + values[:, 1] * values[:, 2] > 0.8) ^ (rng.random(n) < 0.2)).astype(int)
    return schema, encode(values, schema), encode_labels(labels, schema), deal(0, n, [1, 1, 5, 1000])


@pytest.mark.parametrize(
    ("method", "most_rounds"), [("noisy_counts", 25), ("noisy_columns", 25), ("local", 50)]
)
@pytest.mark.parametrize(
    "parameters", [{"epsilon": math.inf}, {"epsilon": 8.0, "budget": "uniform", "max_depth": 15}]
)
def test_a_tree_of_512_splits_takes_few_rounds(large, method, most_rounds, parameters):
    schema, codes, labels, dealt = large
    model = PrivateTreeClassifier(schema=schema, method=method, max_splits=512, noise_seed=0, **parameters)
    model.fit_codes(codes, labels, dealt)
    assert model.tree_.n_splits == 512
    assert model.traffic_.rounds <= most_rounds


def test_turns_of_512_splits_take_few_rounds(large):
    schema, codes, labels, _ = large
    dealt = deal(0, len(labels), [1] * 8)
    model = PrivateTreeClassifier(schema=schema, epsilon=200.0, max_splits=512, noise_seed=0)
    model.fit_codes(codes, labels, dealt)
    assert model.plan_.private_split.method == "turns"
    assert model.tree_.n_splits == 512
    assert model.traffic_.rounds <= 50


@pytest.mark.parametrize("method", ["noisy_counts", "noisy_columns"])
@pytest.mark.parametrize("seed", range(8))
def test_without_noise_every_method_grows_the_same_tree(made_up, method, seed):
    made = made_up(seed, 120, 2)
    one, other = (
        PrivateTreeClassifier(schema=made.schema, epsilon=math.inf, method=m)
        .fit(made.table, made.labels)
        .tree_
        for m in ("select", method)
    )
    assert one == other


def test_nominees_that_agree_get_all_that_was_meant_for_counting():
    schema = Schema([Numeric("x", 0, 1, 3)], label="y", classes=[0, 1])
    x = np.linspace(0, 1, 3_000)[:, None]
    model = PrivateTreeClassifier(
        schema=schema, epsilon=8.0, method="local", budget="uniform", max_depth=2, noise_seed=0
    )
    model.fit_holders([(x, (x[:, 0] > 0.5).astype(int))] * 3)
    [choice, cells] = [
        entry.epsilon for entry in model.ledger_.entries if entry.depth == 1 and entry.what != "class counts"
    ]
    assert float(choice / cells) == pytest.approx(3, rel=1e-6)
