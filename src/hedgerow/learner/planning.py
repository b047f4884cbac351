"""From a user's parameters to a plan: method, criterion, budget. From public facts only."""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction

from hedgerow.budget import GRAINS, Adaptive, BudgetRule, Scheduled, Unlimited
from hedgerow.criteria import Criterion
from hedgerow.errors import InvalidParameter
from hedgerow.learner.coordinator import Plan
from hedgerow.learner.private_split import LocalSelection, NoisyCounts, PrivateSplit, SelectSplit
from hedgerow.learner.turns import TakeTurns
from hedgerow.repeated import Epsilon, as_written
from hedgerow.schema import Schema

PAPER_TARGET_ERROR = 0.1
PAPER_MIN_GAIN = 0.01


@dataclass(frozen=True)
class Wishes:
    """What the user asked for; None or "auto" leaves it to the plan."""

    epsilon: Epsilon  # what each holder grants
    n_holders: int = 1
    method: str = "auto"
    selector: str = "auto"
    criterion: str = "auto"
    budget: str = "auto"
    leaf_fraction: float | None = None
    max_splits: int = 512
    max_depth: int | None = None
    target_error: float | None = None
    min_gain: float | None = None
    max_rows: int = 2**31 - 1
    neighbours: str = "add-remove"
    least_price: Fraction = Fraction(0)  # no holder makes a release for less than this share of epsilon

    @property
    def to_spend(self) -> Epsilon:
        """What each holder can be asked for: a row that is replaced is one row less and one more, and pays twice."""
        return self.epsilon / 2 if self.neighbours == "replace" else self.epsilon


def make_plan(schema: Schema, wishes: Wishes) -> Plan:
    """The plan for these wishes; refuses those that do not go together."""
    if wishes.criterion == Criterion.root_gini.name and schema.n_classes != 2:
        raise InvalidParameter(
            "criterion='root_gini' needs two classes; choose 'gini', 'entropy' or 'error'."
        )
    is_paper = wishes.method == "paper"
    criterion = None if wishes.criterion == "auto" else Criterion[wishes.criterion]
    if is_paper and criterion is None:
        criterion = Criterion.entropy
    target_error, min_gain = wishes.target_error, wishes.min_gain
    if target_error is None:
        target_error = PAPER_TARGET_ERROR if is_paper else 0.0
    if min_gain is None and is_paper:
        min_gain = PAPER_MIN_GAIN
    elif min_gain is None and math.isinf(wishes.epsilon):
        min_gain = 0.0
    private_split = _private_split(wishes)
    return Plan(
        private_split=private_split,
        budget=_budget(schema, wishes, criterion, private_split),
        criterion=criterion or Criterion.gini,
        epsilon=wishes.to_spend,
        neighbours=wishes.neighbours,
        max_splits=wishes.max_splits,
        max_depth=wishes.max_depth,
        min_weight=target_error / wishes.max_splits,
        min_gain=min_gain,
    )


def _private_split(wishes: Wishes) -> PrivateSplit | TakeTurns:
    method, holders = wishes.method, wishes.n_holders
    is_private = not math.isinf(wishes.epsilon)
    selector = "permute_and_flip" if wishes.selector == "auto" else wishes.selector
    if method == "auto" and holders > 1:
        # Without noise, counts give the very tree of all rows together, however they are divided.
        method = (
            "turns"
            if is_private and wishes.budget == "auto"
            else "noisy_columns"
            if not is_private
            else "local"
        )
    match method:
        case "turns":
            if not is_private or wishes.budget != "auto":
                raise InvalidParameter(
                    "method='turns' is for a finite epsilon and budget='auto': who chooses, and at which price, is planned "
                    "from noisy counts."
                )
            return TakeTurns(selector)
        case "noisy_counts":
            return NoisyCounts("per-split")
        case "noisy_columns":
            return NoisyCounts("per-column")
        case "local":
            return LocalSelection(selector)
    if holders > 1:
        raise InvalidParameter(
            f"method={method!r} selects at one holder, but there are {holders}; "
            "choose 'turns', 'local', 'noisy_counts', 'noisy_columns' or 'auto'."
        )
    return SelectSplit("report_noisy_max" if method == "paper" else selector)


def _budget(
    schema: Schema, wishes: Wishes, criterion: Criterion | None, private_split: PrivateSplit | TakeTurns
) -> BudgetRule:
    epsilon = wishes.to_spend
    noisiness, most_nominees = 1.0, 1
    if not isinstance(private_split, TakeTurns):
        noisiness = private_split.noisiness(schema, wishes.n_holders)
        most_nominees = private_split.most_nominees(wishes.n_holders)
    if not isinstance(epsilon, Fraction):
        return Unlimited(criterion or Criterion.gini)
    adaptive = Adaptive(
        epsilon=epsilon,
        n_candidates=len(schema.splits),
        n_classes=schema.n_classes,
        max_rows=wishes.max_rows,
        noisiness=noisiness,
        criterion=criterion,
        max_depth=wishes.max_depth,
        n_pairs=_pairs_to_count(schema, wishes, private_split),
        least_price=math.ceil(GRAINS * wishes.least_price),
        most_nominees=most_nominees,
    )
    is_paper = wishes.method == "paper"
    if wishes.budget == "auto" and not is_paper:
        if wishes.leaf_fraction is not None:
            raise InvalidParameter(
                f"leaf_fraction={wishes.leaf_fraction!r} is for a schedule, and budget='auto' has none: it gives "
                "a leaf all that its path has left; choose 'uniform', 'decay' or 'harmonic'."
            )
        return adaptive
    usual = PAPER_SHARES if is_paper else SHARES
    leaf = usual.leaf if wishes.leaf_fraction is None else as_written(wishes.leaf_fraction)
    return Scheduled(
        criterion=criterion or Criterion.gini,
        schedule="decay" if wishes.budget == "auto" else wishes.budget,
        depths=wishes.max_splits if is_paper and wishes.max_depth is None else wishes.max_depth,
        planner=adaptive,
        leaf_fraction=leaf,
        root_fraction=min(usual.root, (1 - leaf) / 4),
        select=usual.select,
        weigh=usual.weigh,
    )


def _pairs_to_count(schema: Schema, wishes: Wishes, private_split: PrivateSplit | TakeTurns) -> int | None:
    """How many pairs of columns a fork asks about; None if there are to be none.

    Whoever names a selector gets just that, one split at a time.
    """
    is_alone = wishes.n_holders == 1 and wishes.method in {"auto", "select"}
    if (
        not (is_alone or isinstance(private_split, TakeTurns))
        or wishes.selector != "auto"
        or wishes.budget != "auto"
        or not schema.can_fork
    ):
        return None
    return math.comb(len(schema.columns) + 1, 2)


@dataclass(frozen=True)
class Shares:
    """How epsilon is divided: to the root's and the leaves' class counts; a node's part, within itself."""

    root: Fraction
    leaf: Fraction
    select: Fraction
    weigh: Fraction


SHARES = Shares(Fraction(3, 100), Fraction(15, 100), Fraction(3, 4), Fraction(0))
# The paper pays nothing for the number of all rows, which it takes to be public; we do.
PAPER_SHARES = Shares(Fraction(1, 100), Fraction(1, 2), Fraction(1, 2), Fraction(1, 2))
