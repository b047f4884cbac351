"""From a user's parameters to a plan: method, criterion, budget. From public facts only."""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction

from hedgerow.budget import SCHEDULES, Adaptive, BudgetRule, Epsilon, Scheduled, Unlimited
from hedgerow.criteria import Criterion
from hedgerow.learner.coordinator import Plan
from hedgerow.learner.private_split import SelectSplit
from hedgerow.schema import Schema

PAPER_LEAF_FRACTION = Fraction(1, 2)
PAPER_TARGET_ERROR = 0.1
PAPER_MIN_GAIN = 0.01


@dataclass(frozen=True)
class Wishes:
    """What the user asked for; None or "auto" leaves it to the plan."""

    epsilon: Epsilon  # for adding or removing a row
    method: str = "auto"
    selector: str = "permute_and_flip"
    criterion: str = "auto"
    budget: str = "auto"
    leaf_fraction: float | None = None
    max_splits: int = 512
    max_depth: int | None = None
    target_error: float | None = None
    min_gain: float | None = None
    max_rows: int = 2**31 - 1


def make_plan(schema: Schema, wishes: Wishes) -> Plan:
    """The plan for one holder."""
    criterion = None if wishes.criterion == "auto" else Criterion[wishes.criterion]
    if wishes.method == "paper":
        criterion = criterion or Criterion.entropy
        selector = "report_noisy_max"
    else:
        selector = wishes.selector
    is_paper = wishes.method == "paper"
    target_error = (
        (PAPER_TARGET_ERROR if is_paper else 0.0) if wishes.target_error is None else wishes.target_error
    )
    min_gain = wishes.min_gain
    if min_gain is None and not isinstance(wishes.epsilon, Fraction):
        min_gain = 0.0
    elif min_gain is None and is_paper:
        min_gain = PAPER_MIN_GAIN
    return Plan(
        private_split=SelectSplit(selector),
        budget=_budget(schema, wishes, criterion),
        criterion=criterion or Criterion.gini,
        epsilon=wishes.epsilon,
        max_splits=wishes.max_splits,
        max_depth=wishes.max_depth,
        min_weight=target_error / wishes.max_splits,
        min_gain=min_gain,
    )


def _budget(schema: Schema, wishes: Wishes, criterion: Criterion | None) -> BudgetRule:
    epsilon = wishes.epsilon
    if not isinstance(epsilon, Fraction):
        return Unlimited(criterion or Criterion.gini)
    if wishes.method == "paper":
        leaf = PAPER_LEAF_FRACTION if wishes.leaf_fraction is None else Fraction(wishes.leaf_fraction)
        schedule = "decay" if wishes.budget == "auto" else wishes.budget
        half = Fraction(1, 2)
        return Scheduled(
            epsilon, schedule, wishes.max_depth or wishes.max_splits, leaf, Fraction(1, 100), half, half
        )
    if wishes.budget in SCHEDULES:
        leaf = Fraction(15, 100) if wishes.leaf_fraction is None else Fraction(wishes.leaf_fraction)
        return Scheduled(criterion or Criterion.gini, epsilon, wishes.budget, wishes.max_depth or 8, leaf, Fraction(1, 50), Fraction(3, 4))
    return Adaptive(epsilon, len(schema.splits), schema.n_classes, wishes.max_rows, criterion)
