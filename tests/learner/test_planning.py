"""Plans follow from public facts and say why."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest

from hedgerow import Numeric, PrivateTreeClassifier, Schema
from hedgerow.budget import GRAINS, Adaptive, Scheduled, Unlimited
from hedgerow.criteria import Criterion
from hedgerow.encoding import encode, encode_labels
from hedgerow.errors import InvalidParameter, InvalidTable
from hedgerow.holder.counts import GroupedRows
from hedgerow.holder.holder import Holder
from hedgerow.learner.coordinator import Coordinator, _Study
from hedgerow.learner.planning import Wishes, make_plan
from hedgerow.learner.private_split import LocalSelection, NoisyCounts, SelectSplit
from hedgerow.learner.turns import TakeTurns
from hedgerow.network.local import LocalNetwork
from hedgerow.privacy.ledger import Ledger
from hedgerow.privacy.noise import SeededNoise

ONE = Fraction(1)


def schema(columns: int = 4, thresholds: int = 10) -> Schema:
    return Schema([Numeric(f"x{i}", 0, 1, thresholds) for i in range(columns)], label="y", classes=[0, 1])


def test_one_holder_selects_and_several_take_turns():
    assert make_plan(schema(), Wishes(ONE)).private_split == SelectSplit("permute_and_flip")
    assert make_plan(schema(), Wishes(ONE, n_holders=4)).private_split == TakeTurns("permute_and_flip")
    chosen = make_plan(schema(), Wishes(ONE, n_holders=4, selector="exponential")).private_split
    assert chosen == TakeTurns("exponential")


def test_what_several_holders_do_where_turns_cannot_be_planned():
    assert make_plan(schema(), Wishes(ONE, n_holders=4, budget="decay")).private_split == LocalSelection()
    exact = make_plan(schema(), Wishes(math.inf, n_holders=4)).private_split
    assert exact == NoisyCounts("per-column")
    with pytest.raises(InvalidParameter, match="finite epsilon"):
        make_plan(schema(), Wishes(math.inf, n_holders=4, method="turns"))
    with pytest.raises(InvalidParameter, match="budget='auto'"):
        make_plan(schema(), Wishes(ONE, n_holders=4, method="turns", budget="decay"))


@pytest.mark.parametrize("method", ["select", "paper"])
def test_selecting_at_one_of_several_holders_is_refused(method):
    with pytest.raises(InvalidParameter, match="there are 3"):
        make_plan(schema(), Wishes(ONE, n_holders=3, method=method))


def test_a_share_for_the_leaves_needs_a_schedule():
    with pytest.raises(InvalidParameter, match="is for a schedule"):
        make_plan(schema(), Wishes(ONE, leaf_fraction=0.9))
    for wishes in (
        Wishes(ONE, leaf_fraction=0.9, budget="uniform"),
        Wishes(ONE, method="paper", leaf_fraction=0.9),
    ):
        assert make_plan(schema(), wishes).budget.leaf_fraction == Fraction("0.9")


def test_root_gini_is_planned_for_two_classes_only():
    three = Schema(schema().columns, label="y", classes=[0, 1, 2])
    assert make_plan(schema(), Wishes(ONE, criterion="root_gini")).criterion == Criterion.root_gini
    with pytest.raises(InvalidParameter, match="needs two classes"):
        make_plan(three, Wishes(ONE, criterion="root_gini"))


def test_the_papers_flow_has_the_papers_settings():
    plan = make_plan(schema(), Wishes(ONE, method="paper"))
    assert isinstance(plan.budget, Scheduled)
    assert plan.private_split == SelectSplit("report_noisy_max")
    assert (plan.budget.schedule, plan.budget.leaf_fraction) == ("decay", Fraction(1, 2))
    assert (plan.criterion, plan.min_gain, plan.min_weight) == (Criterion.entropy, 0.01, 0.1 / 512)
    assert plan.budget.weigh == Fraction(1, 2)


def test_infinite_epsilon_plans_nothing_and_asks_for_gains():
    plan = make_plan(schema(), Wishes(math.inf))
    assert isinstance(plan.budget, Unlimited)
    assert plan.min_gain == 0.0


def test_the_automatic_plan_adapts_and_explains_itself():
    rng = np.random.default_rng(0)
    table = rng.random((5_000, 4))
    model = PrivateTreeClassifier(schema=schema(), epsilon=1.0, noise_seed=0)
    model.fit(table, (table[:, 0] > 0.5).astype(int))
    assert isinstance(model.plan_.budget, Adaptive)
    text = model.plan_.explain()
    assert "3 % of epsilon counted the classes of all rows" in text
    assert "among 40 splits of 2 classes" in text
    assert "levels are planned" in text
    assert "5000" not in text  # the exact number of rows is nobody's business


@pytest.mark.parametrize("budget", ["auto", "uniform"])
def test_the_plan_says_what_is_paid_for(budget):
    table = np.random.default_rng(0).random((2_000, 4))
    texts = {
        method: PrivateTreeClassifier(schema=schema(), method=method, budget=budget, noise_seed=0)
        .fit(table, (table[:, 0] > 0.5).astype(int))
        .plan_.explain()
        for method in ("select", "local", "noisy_columns", "noisy_counts")
    }
    for method, text in texts.items():
        assert ("choos" in text.split("levels are planned")[-1]) == (method in ("select", "local")), text
        assert ("counts that its split follows from" in text) == (method in ("noisy_columns", "noisy_counts"))
        assert "0 % count its rows" not in text
    assert "every holder counts every column" in texts["noisy_columns"]


def test_the_plan_names_the_epsilon_that_was_asked_for():
    plan = PrivateTreeClassifier(schema=schema(), epsilon=1.0, neighbours="replace").plan()
    assert plan.epsilon == Fraction(1, 2)
    assert "epsilon 1 (replacing a row; 0.5 for adding or removing one)" in plan.explain()
    assert "epsilon 1 (adding or removing a row)" in PrivateTreeClassifier(schema=schema()).plan().explain()


@pytest.mark.parametrize("method", ["auto", "select", "paper"])
@pytest.mark.parametrize("budget", ["auto", "uniform", "decay", "harmonic"])
@pytest.mark.parametrize("neighbours", ["add-remove", "replace"])
def test_no_plan_spends_more_than_epsilon(method, budget, neighbours):
    rng = np.random.default_rng(1)
    table = rng.random((2_000, 4))
    model = PrivateTreeClassifier(
        schema=schema(), epsilon=2.0, method=method, budget=budget, neighbours=neighbours, noise_seed=1
    )
    model.fit(table, (table[:, 0] + table[:, 1] > 1).astype(int))
    assert 0 < model.ledger_.spent <= 2


@pytest.mark.parametrize("leaf_fraction", [0.01, 0.5, 0.97, 0.999])
@pytest.mark.parametrize("method", ["auto", "paper"])
def test_any_leaf_fraction_leaves_something_for_the_rest(leaf_fraction, method):
    table = np.random.default_rng(2).random((500, 4))
    model = PrivateTreeClassifier(
        schema=schema(),
        epsilon=1.0,
        method=method,
        budget="uniform",
        leaf_fraction=leaf_fraction,
        noise_seed=2,
    )
    model.fit(table, (table[:, 0] > 0.5).astype(int))
    assert 0 < model.ledger_.spent <= 1


def test_holders_that_share_a_row_are_refused():
    table = np.random.default_rng(3).random((50, 4))
    codes, labels = encode(table, schema()), encode_labels(np.arange(50) % 2, schema())
    model = PrivateTreeClassifier(schema=schema(), epsilon=1.0, noise_seed=0)
    for dealt in ([[0, 1], [1, 2]], [[0, 0], [1]], [[0], [50]], [[-1], [0]]):
        with pytest.raises(InvalidTable, match="row number"):
            model.fit_codes(codes, labels, [np.array(rows) for rows in dealt])


@pytest.mark.parametrize("leaf", [0.5, 0.97, 0.999])
def test_root_and_leaves_leave_something(leaf):
    rule = make_plan(schema(), Wishes(ONE, budget="uniform", leaf_fraction=leaf)).budget
    assert rule.root + rule.leaves(np.array([GRAINS]))[0] < GRAINS


@pytest.mark.parametrize(("rows", "wanted"), [(24, False), (26, True)])
def test_a_node_lighter_than_the_floor_is_not_wanted(rows, wanted):
    plan = make_plan(schema(1, 1), Wishes(ONE, method="paper", target_error=0.5, max_splits=2))
    study = _Study(None, schema(1, 1), plan)
    study._n_rows = 100.0
    study._judge(np.array([0]), np.array([[[50.0, 0.0], [0.0, 50.0]]]), np.array([rows]))
    assert study.growth.nodes["wanted"][0] == wanted
    # All of the entropy of the rows as they were weighed, whatever number of them the cells add up to.
    assert study.growth.nodes["gain"][0] == pytest.approx(rows)


def test_what_the_cells_lack_of_a_well_known_parent_is_divided_between_the_children():
    study = _Study(LocalNetwork([]), schema(1, 1), make_plan(schema(1, 1), Wishes(ONE)))
    root = study.growth.nodes[0]
    root["counts"], root["variance"], root["split"] = [60, 40], 1e-12, 0
    root["cells"], root["cell_noise"] = [[50, 0], [0, 60]], 8.0
    [children] = study.open_children(np.array([0]))
    born = study.growth.nodes[children]
    assert born["counts"] == pytest.approx(np.array([[55, -10], [5, 50]]))
    assert born["variance"] == pytest.approx([4.0, 4.0])
    assert born["measured"].tolist() == [[50, 0], [0, 60]]
    assert born["noise"].tolist() == [8.0, 8.0]


@pytest.mark.parametrize("neighbours", ["add-remove", "replace"])
@pytest.mark.parametrize("budget", ["auto", "decay"])
@pytest.mark.parametrize(
    ("method", "n_holders"),
    [("auto", 1), ("paper", 1), ("auto", 5), ("local", 5), ("noisy_columns", 5), ("noisy_counts", 2)],
)
def test_a_plan_keeps_to_the_least_price_of_a_release(method, n_holders, budget, neighbours):
    """The ledgers would refuse it otherwise."""
    rng = np.random.default_rng(0)
    table = rng.random((20_000, 4))
    labels = (np.sin(9 * table[:, 0]) * table[:, 1] > 0.2).astype(int)
    codes, numbers = encode(table, schema()), encode_labels(labels, schema())
    least, epsilon = Fraction(1, 500), Fraction(4)
    wishes = Wishes(
        epsilon, n_holders=n_holders, method=method, budget=budget, neighbours=neighbours, least_price=least
    )
    plan = make_plan(schema(), wishes)
    ledgers = [Ledger(epsilon, neighbours=neighbours, least_price=least * epsilon) for _ in range(n_holders)]
    dealt = np.array_split(rng.permutation(20_000), n_holders)
    holders = [
        Holder(GroupedRows(codes, numbers, schema(), rows), SeededNoise(i), ledger, 2**20)
        for i, (rows, ledger) in enumerate(zip(dealt, ledgers, strict=True))
    ]
    tree, _ = Coordinator(LocalNetwork(holders)).learn(schema(), plan)
    assert tree.n_splits > 1
    assert min(entry.epsilon for entry in ledgers[0].entries) >= least * epsilon
