"""Trees whose nodes choose their children's splits with their own."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest

from hedgerow import Categorical, Numeric, PrivateTreeClassifier, Schema
from hedgerow.budget import GRAINS, LONG_WORK, Adaptive, Standing
from hedgerow.criteria import Criterion
from hedgerow.encoding import encode, encode_labels
from hedgerow.holder.counts import GroupedRows
from hedgerow.holder.holder import Holder
from hedgerow.learner.coordinator import Coordinator, _Study
from hedgerow.learner.planning import Wishes, make_plan
from hedgerow.learner.topdown import NONE
from hedgerow.messages import Grow, NominateForks, Query
from hedgerow.network.local import LocalNetwork
from hedgerow.privacy.ledger import Ledger
from hedgerow.privacy.noise import SeededNoise
from hedgerow.repeated import IntArray
from hedgerow.tree import LEAF

COLUMNS = [Categorical(f"c{i}", ["a", "b"]) for i in range(6)]
SCHEMA = Schema([*COLUMNS, Numeric("x", 0, 1, 9)], label="y", classes=["no", "yes"])
N_PAIRS = 28


def table(n_rows: int, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """The label is "yes" where exactly one of the first two columns is a: no split alone says anything."""
    rng = np.random.default_rng(seed)
    rows = np.empty((n_rows, 7), dtype=object)
    rows[:, :6] = rng.choice(["a", "b"], (n_rows, 6))
    rows[:, 6] = rng.random(n_rows)
    is_one = (rows[:, 0] == "a") != (rows[:, 1] == "a")
    noisy = rng.random(n_rows) < 0.05
    return rows, np.where(is_one != noisy, "yes", "no")


class Heard(LocalNetwork):
    """Writes down what is asked."""

    def __init__(self, holders: list[Holder]) -> None:
        super().__init__(holders)
        self.queries: list[Query] = []
        self.announced: list[Grow] = []

    def announce(self, growth: Grow) -> None:
        self.announced.append(growth)
        super().announce(growth)

    def ask(self, query: Query) -> list[IntArray]:
        self.queries.append(query)
        return super().ask(query)


def network(rows: tuple[np.ndarray, np.ndarray], epsilon: Fraction, seed: int = 1) -> Heard:
    grouped = GroupedRows(encode(rows[0], SCHEMA), encode_labels(rows[1], SCHEMA), SCHEMA)
    return Heard([Holder(grouped, SeededNoise(seed), Ledger(epsilon), max_rows=10**6)])


def test_a_fork_sees_splits_that_are_worth_something_only_together() -> None:
    train, test = table(4_000), table(2_000, seed=1)
    forks, singles = (
        PrivateTreeClassifier(schema=SCHEMA, epsilon=1.0, selector=selector, noise_seed=3).fit(*train)
        for selector in ("auto", "permute_and_flip")
    )
    assert forks.score(*test) > 0.93
    assert singles.score(*test) < 0.8
    root = forks.tree_.schema.splits[forks.tree_.split[0]]
    assert root.column in {0, 1}


def test_what_was_chosen_with_a_parent_is_split_by_that_and_not_asked_again() -> None:
    heard = network(table(4_000), Fraction(1))
    tree, _ = Coordinator(heard).learn(SCHEMA, make_plan(SCHEMA, Wishes(Fraction(1))))
    asked = [node for query in heard.queries for node in query.nodes.tolist() if hasattr(query, "criteria")]
    assert len(asked) == len(set(asked))
    [first] = [query for query in heard.queries if isinstance(query, NominateForks) and 0 in query.nodes]
    assert first.selector == "exponential"
    assert not {1, 2} & set(asked)
    announced = {
        node: split
        for growth in heard.announced
        for node, split in zip(growth.nodes.tolist(), growth.splits.tolist(), strict=True)
    }
    assert {0, 1, 2} <= announced.keys()
    below = {announced[1], announced[2]}
    assert {SCHEMA.splits[split].column for split in (announced[0], *below)} == {0, 1}
    assert tree.n_splits >= 3


def test_a_forks_cells_are_used_once() -> None:
    """At the tips; what they add up to is no measurement of its own."""
    heard = network(table(2_000), Fraction(1))
    study = _Study(heard, SCHEMA, make_plan(SCHEMA, Wishes(Fraction(1))))
    study.count_all()
    study.evaluate(np.array([0]))
    known = study.growth.nodes
    [below] = known["fork_cells"][:1]
    assert known["cells"][0].tolist() == below.sum(axis=1).tolist()
    assert known["cell_noise"][0] == 2 * known["fork_noise"][0] > 0
    children = study.open_children(np.array([0]))[0]
    known = study.growth.nodes
    for side, child in enumerate(children):
        assert known["split"][child] == known["fork"][0, side] != NONE
        assert known["cells"][child].tolist() == below[side].tolist()
        assert known["cell_noise"][child] == known["fork_noise"][0]
        assert math.isinf(known["noise"][child])
        assert known["left"][child] == known["left"][0]
    before = len(heard.queries)
    study.evaluate(children)  # there is nothing to ask
    assert len(heard.queries) == before


def test_a_child_that_nothing_can_divide_is_measured_by_its_parents_cells() -> None:
    schema = Schema([Categorical("c", ["a", "b"]), Categorical("d", ["a"])], label="y", classes=["no", "yes"])
    rng = np.random.default_rng(0)
    rows = np.empty((3_000, 2), dtype=object)
    rows[:, 0], rows[:, 1] = rng.choice(["a", "b"], 3_000), rng.choice(["a", "b"], 3_000)
    labels = np.where((rows[:, 0] == "a") != (rows[:, 1] == "a"), "yes", "no")
    model = PrivateTreeClassifier(schema=schema, epsilon=4.0, noise_seed=0).fit(rows, labels)
    assert model.score(rows, labels) > 0.95


@pytest.mark.parametrize("max_depth", [1, 2, 3])
@pytest.mark.parametrize("max_splits", [1, 2, 512])
def test_forks_keep_to_the_limits_of_a_tree(max_depth: int, max_splits: int) -> None:
    model = PrivateTreeClassifier(
        schema=SCHEMA, epsilon=2.0, max_depth=max_depth, max_splits=max_splits, noise_seed=0
    ).fit(*table(4_000))
    assert model.tree_.depth <= max_depth
    assert model.tree_.n_splits <= max_splits
    assert model.ledger_.spent <= 2


@pytest.mark.parametrize(("target_error", "is_split"), [(1.0, False), (0.2, True)])
def test_a_child_lighter_than_the_floor_stays_whole_whatever_was_chosen_for_it(
    target_error: float, is_split: bool
) -> None:
    """Where c0 == a, in one row of ten, c1 decides, else c2; a quarter of the rows is the floor, or a twentieth."""
    rows, _ = table(4_000)
    rows[:, 0] = np.where(np.arange(4_000) % 10 == 0, "a", "b")
    deciding = np.where(rows[:, 0] == "a", rows[:, 1], rows[:, 2])
    labels = np.where(deciding == "a", "yes", "no")
    heard = network((rows, labels), Fraction(2))
    wishes = Wishes(Fraction(2), max_splits=4, target_error=target_error)
    tree, _ = Coordinator(heard).learn(SCHEMA, make_plan(SCHEMA, wishes))
    assert any(isinstance(query, NominateForks) for query in heard.queries)
    inner = tree.counts[tree.split != LEAF].sum(axis=1)
    assert (inner.min() < 600) == is_split


def test_seeded_trees_do_not_depend_on_how_nodes_are_asked() -> None:
    """One leaf at a time, or in waves: the same noise, and the same splits."""
    trees = []
    for most in (1, 10**6):
        heard = network(table(3_000), Fraction(2))
        study = _Study(heard, SCHEMA, make_plan(SCHEMA, Wishes(Fraction(2), max_splits=20)))
        study.count_all()
        from hedgerow.learner.topdown import top_down

        top_down(
            study.growth, study.evaluate, study.open_children, 20, lambda n_left, most=most: min(most, n_left)
        )
        nodes, order = study.growth.nodes, study.growth.depth_first()
        trees.append(np.where(nodes["is_split"], nodes["split"], NONE)[order].tolist())
    assert trees[0] == trees[1]


def test_more_forks_than_a_holder_chooses_at_a_time_are_asked_for_in_turn(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    trees, requests = [], []
    for most in (4096, 1):
        monkeypatch.setattr("hedgerow.learner.private_split.MOST_FORKS", most)
        rows, labels = table(20_000)
        labels = np.where(np.sin(40 * rows[:, 6].astype(float)) > 0, labels, "no")  # something on all sides
        heard = network((rows, labels), Fraction(2))
        tree, _ = Coordinator(heard).learn(SCHEMA, make_plan(SCHEMA, Wishes(Fraction(2))))
        trees.append(tree)
        requests.append(sorted(len(q.nodes) for q in heard.queries if isinstance(q, NominateForks)))
    assert trees[0] == trees[1]
    assert sum(requests[0]) == sum(requests[1])
    assert requests[0][-1] > 1 == requests[1][-1]


# ---- When there are forks ------------------------------------------------------------------------------------------


def has_forks(**parameters: object) -> bool:
    model = PrivateTreeClassifier(schema=SCHEMA, epsilon=1.0, noise_seed=0).set_params(**parameters)
    what = {entry.what for entry in model.fit(*table(4_000)).ledger_.entries}
    told = "at once" in model.plan_.explain()
    assert told == ("choice of a fork" in what) == ("cells of a fork" in what)
    return told


def test_whoever_sets_nothing_gets_forks() -> None:
    assert has_forks()
    assert has_forks(method="select")
    assert has_forks(criterion="entropy")
    assert has_forks(neighbours="replace")


@pytest.mark.parametrize(
    "parameters",
    [{"selector": "exponential"}, {"budget": "uniform"}, {"method": "paper"}, {"method": "noisy_columns"}],
)
def test_whoever_says_how_to_choose_gets_that(parameters: dict[str, str]) -> None:
    assert not has_forks(**parameters)


def standing(rows: float, left: float = 1.0) -> Standing:
    counts = np.array([[rows / 2, rows / 2]])
    return Standing(np.array([1]), counts, np.array([int(left * GRAINS)]), np.ones(1))


def rule(epsilon: float = 1.0, n_pairs: int | None = N_PAIRS, **wishes: int) -> Adaptive:
    return Adaptive(Fraction(epsilon), 100, 2, 10**9, n_pairs=n_pairs, **wishes)  # type: ignore[arg-type]


def test_a_table_that_would_take_long_has_no_forks() -> None:
    small, large = standing(LONG_WORK / N_PAIRS - 1), standing(LONG_WORK / N_PAIRS + 1)
    assert rule().settle(small) == rule()
    assert rule().settle(large) == rule(n_pairs=None)
    assert not rule(n_pairs=None).nodes(small).fork.any()


def test_a_node_forks_if_it_plans_two_levels_and_has_little_to_choose_with() -> None:
    assert rule().nodes(standing(10_000)).fork.tolist() == [True]
    assert rule().nodes(standing(50)).fork.tolist() == [False]
    assert rule(max_depth=1).nodes(standing(10_000)).fork.tolist() == [False]
    assert rule(max_depth=2).nodes(standing(10_000)).fork.tolist() == [True]
    assert rule(epsilon=20, max_depth=2).nodes(standing(10_000)).fork.tolist() == [False]


def test_a_fork_takes_the_part_of_two_levels() -> None:
    fork, single = rule().nodes(standing(10_000)), rule(n_pairs=None).nodes(standing(10_000))
    assert 1.8 < int(fork.total[0]) / int(single.total[0]) < 2.4
    assert fork.total[0] <= GRAINS


def test_the_last_levels_planned_are_chosen_by_error() -> None:
    by_depth = [rule(max_depth=depth).nodes(standing(10_000)).criterion[0] for depth in (2, 3)]
    assert by_depth == [Criterion.error, Criterion.gini]


@pytest.mark.parametrize(
    ("n_thresholds", "n_classes", "can_fork"),
    [(1_024, 2, True), (1_025, 2, False), (200, 100, True), (200, 110, False)],
)
def test_a_schema_of_very_many_splits_or_classes_has_no_forks(
    n_thresholds: int, n_classes: int, can_fork: bool
) -> None:
    schema = Schema([Numeric("x", 0, 1, n_thresholds)], label="y", classes=list(range(n_classes)))
    assert schema.can_fork == can_fork
    budget = make_plan(schema, Wishes(Fraction(1))).budget
    assert isinstance(budget, Adaptive)
    assert budget.n_pairs == (1 if can_fork else None)
