"""Budgets: schedules add up, rounding never rounds up, nodes plan from what is known of them."""

from __future__ import annotations

import math
from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hedgerow.budget import (
    GRAINS,
    SCHEDULES,
    Adaptive,
    NodeBudgets,
    Scheduled,
    Standing,
    Unlimited,
    priced,
    promise,
    round_down,
)
from hedgerow.criteria import Criterion

EPSILON = Fraction(1)
ADAPTIVE = Adaptive(epsilon=EPSILON, n_candidates=159, n_classes=2, max_rows=2**31 - 1)


def standing(rows: float, left: int = GRAINS, depth: int = 1, hope: float = 1.0) -> Standing:
    """One node."""
    counts = np.array([[0.75 * rows, 0.25 * rows]])
    return Standing(np.array([depth]), counts, np.array([left]), np.array([hope]))


def is_leaf(budget: NodeBudgets) -> bool:
    return not budget.select.any()


def test_grains_add_up_exactly():
    prices = priced(np.array([GRAINS // 4, 3 * (GRAINS // 4), GRAINS // 4]), Fraction(3, 10))
    assert list(prices) == [Fraction(3, 40), Fraction(9, 40), Fraction(3, 40)]
    assert len(prices.items) == 2
    assert list(priced(np.array([1, 7]), math.inf)) == [math.inf, math.inf]


@pytest.mark.parametrize("name", SCHEDULES)
@pytest.mark.parametrize("depths", [1, 2, 9, 512])
def test_the_shares_of_all_depths_add_up_to_at_most_one(name, depths):
    shares = [SCHEDULES[name](depth, depths) for depth in range(1, depths + 1)]
    assert all(share > 0 for share in shares)
    assert sum(shares) <= 1
    assert name == "decay" or sum(shares) == 1


def test_decay_is_the_papers():
    assert [SCHEDULES["decay"](depth, 512) for depth in (1, 2, 10)] == [
        Fraction(1, 2),
        Fraction(1, 4),
        Fraction(1, 1024),
    ]


@given(st.integers(2**12, GRAINS))
def test_rounding_a_leafs_budget_down_costs_less_than_a_step(grains):
    [step] = round_down(np.array([grains]))
    assert 0.91 * grains <= step <= grains * (1 + 1e-8)


def test_more_rows_and_more_epsilon_are_worth_more_levels():
    levels = [ADAPTIVE.levels(standing(rows))[0] for rows in (0, 100, 1_000, 30_000, 1_000_000)]
    assert levels == sorted(levels)
    assert levels[0] == 0
    assert ADAPTIVE.levels(standing(30_000, GRAINS // 10)) < ADAPTIVE.levels(standing(30_000))
    assert ADAPTIVE.levels(standing(30_000, hope=2.0)) > ADAPTIVE.levels(standing(30_000))


@pytest.mark.parametrize("noisiness", [1, 4])
def test_levels_solve_their_equation(noisiness):
    [r] = replace(ADAPTIVE, noisiness=noisiness).levels(standing(30_000))
    impurity = 2 * (30_000 - (22_500**2 + 7_500**2) / 30_000)
    assert r * 1.6**r == pytest.approx(0.2 * impurity / ((4 * noisiness + 0.5) * math.log(159)), rel=1e-4)


def test_a_small_node_is_a_leaf_and_gets_all_that_is_left():
    assert is_leaf(ADAPTIVE.nodes(standing(20)))
    assert ADAPTIVE.leaves(np.array([GRAINS // 2, 0])).tolist() == [GRAINS // 2, 0]


def test_the_last_level_planned_is_chosen_by_error():
    deep, last = ADAPTIVE.nodes(standing(30_000)), ADAPTIVE.nodes(standing(400))
    assert not is_leaf(deep)
    assert deep.criterion == [Criterion.gini]
    assert not is_leaf(last)
    assert last.criterion == [Criterion.error]


def test_a_users_criterion_is_kept_and_max_depth_ends_the_plan():
    rule = Adaptive(EPSILON, 159, 2, 2**31 - 1, criterion=Criterion.gini, max_depth=2)
    budget = rule.nodes(standing(30_000, depth=2))
    assert not is_leaf(budget)
    assert budget.criterion == [Criterion.gini]
    assert is_leaf(rule.nodes(standing(30_000, depth=3)))


@given(st.integers(0, 10**7), st.integers(0, 1000))
def test_a_node_never_plans_more_than_its_path_has_left(rows, thousandth):
    left = thousandth * GRAINS // 1000
    budget = ADAPTIVE.nodes(standing(rows, left))
    assert budget.total <= left
    assert is_leaf(budget) == (budget.total == 0)


def test_without_privacy_everything_but_a_pure_node_is_evaluated():
    rule = Unlimited(Criterion.gini)
    counts = np.array([[5.0, 0.0], [5.0, 1.0], [0.0, 0.0]])
    budgets = rule.nodes(Standing(np.ones(3, dtype=np.int64), counts, np.full(3, GRAINS), np.ones(3)))
    assert (budgets.select > 0).tolist() == [False, True, True]


def test_a_schedule_plans_its_depth_from_the_number_of_rows():
    rule = Scheduled(
        Criterion.gini,
        "uniform",
        None,
        ADAPTIVE,
        Fraction(15, 100),
        Fraction(3, 100),
        Fraction(3, 4),
    )
    few, many = (rule.settle(standing(rows)) for rows in (1_000, 1_000_000))
    assert isinstance(few, Scheduled)
    assert isinstance(many, Scheduled)
    assert few.depths < many.depths
    total = rule.root + rule.leaves(np.array([GRAINS]))[0]
    for depth in range(1, many.depths + 1):
        budget = many.nodes(standing(10, depth=depth))
        assert not is_leaf(budget)
        total += budget.total[0]
    assert 0.999999 * GRAINS < total <= GRAINS
    assert is_leaf(many.nodes(standing(10, depth=many.depths + 1)))


def test_a_good_split_raises_the_promise_and_a_useless_one_lowers_it():
    counts = np.array([[1000.0, 1000.0]])
    good = np.array([[[1000.0, 0.0], [0.0, 1000.0]]])
    useless = np.array([[[500.0, 500.0], [500.0, 500.0]]])
    one, quiet, loud = np.ones(1), np.ones(1), np.full(1, 1e12)
    assert promise(one, counts, good, quiet)[0] > 2
    assert promise(one, counts, useless, quiet)[0] < 0.5
    assert promise(one, counts, good, loud)[0] == pytest.approx(1.0, abs=0.01)


@pytest.mark.parametrize(("above", "passed_on"), [(1.7, math.sqrt(1.7 / 0.07)), (1.8, 5.0)])
def test_no_promise_is_above_5(above, passed_on):
    """The split takes off all of the impurity; the counts are exact."""
    pure = np.array([[[1000.0, 0.0], [0.0, 1000.0]]])
    found = promise(np.array([above]), np.array([[1000.0, 1000.0]]), pure, np.zeros(1))
    assert found == pytest.approx([passed_on])


@pytest.mark.parametrize(("above", "passed_on"), [(0.3, math.sqrt(0.3 * 0.01 / 0.07)), (0.25, 0.2)])
def test_no_promise_is_below_a_fifth(above, passed_on):
    """The split takes off a hundredth of the impurity; the counts are exact."""
    mixed = np.array([[[550.0, 450.0], [450.0, 550.0]]])
    found = promise(np.array([above]), np.array([[1000.0, 1000.0]]), mixed, np.zeros(1))
    assert found == pytest.approx([passed_on])


def test_a_schedule_ends_where_a_share_buys_nothing_but_noise():
    """0.49 * 2**40 / 2**depth is 8028 grains at depth 26, 4014 at 27 and so below LEAST, 4096."""
    half = Fraction(1, 2)
    rule = Scheduled(Criterion.gini, "decay", 512, ADAPTIVE, half, Fraction(1, 100), half)
    assert rule.nodes(standing(10, depth=26)).total == [math.floor(0.49 * 2**14)]
    assert rule.nodes(standing(10, depth=27)).total == [0]


@pytest.mark.parametrize("name", SCHEDULES)
def test_shares_of_very_many_depths_stay_within_epsilon(name):
    rule = Scheduled(
        Criterion.gini, name, 3_000, ADAPTIVE, Fraction(15, 100), Fraction(3, 100), Fraction(3, 4)
    )
    depth = np.arange(1, 3_002)
    nodes = Standing(depth, np.ones((3_001, 2)), np.full(3_001, GRAINS), np.ones(3_001))
    budgets = rule.nodes(nodes)
    assert budgets.total.sum() + rule.root + rule.leaves(np.array([GRAINS]))[0] <= GRAINS
    assert (budgets.select[:20] > 0).all()
    assert budgets.total[-1] == 0


def test_a_leaf_never_gets_more_than_is_left() -> None:
    left = np.floor(2.0 ** (-np.arange(1, 160) / 8) * GRAINS).astype(np.int64) - 1
    assert (ADAPTIVE.leaves(left) <= left).all()


@pytest.mark.parametrize("name", SCHEDULES)
def test_weighing_is_part_of_a_nodes_share(name: str) -> None:
    half = Fraction(1, 2)
    rule = Scheduled(Criterion.gini, name, 20, ADAPTIVE, half, Fraction(1, 100), half, half)
    depths = np.arange(1, 21)
    budgets = rule.nodes(Standing(depths, np.ones((20, 2)), np.full(20, GRAINS), np.ones(20)))
    assert budgets.total.sum() + rule.root + rule.leaves(np.array([GRAINS]))[0] <= GRAINS
