"""The theorems as code: how many rows a promise of accuracy asks for.

First the paper's sample sizes with the constants that stand in its proofs, as printed and corrected; then the
same for our own mechanisms, about the noise that the code draws. docs/theory.md has the derivations. All are
worst cases and most are enormous: `hedgerow.plan` says more about a particular study. Logarithms are natural
unless the paper writes lg (base 2).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from fractions import Fraction

import numpy as np

from hedgerow.budget import GRAINS, LEAST, SCHEDULES
from hedgerow.criteria import FRACTION_BITS, Criterion, impurity_bound, score_sensitivity
from hedgerow.encoding import MAX_ROWS
from hedgerow.learner.planning import SHARES, Wishes, make_plan
from hedgerow.learner.private_split import LocalSelection, NoisyCounts, PrivateSplit, SelectSplit
from hedgerow.learner.turns import TakeTurns
from hedgerow.schema import Schema


@dataclass(frozen=True)
class SampleSize:
    """What a theorem about a whole tree asks for, part by part; `rows` is the largest.

    `zeta` is how far from the best a split may be, as a share of all rows.
    """

    zeta: float
    weights: float
    leaves: float
    splits: float

    @property
    def rows(self) -> float:
        """Rows with which the theorem promises the error."""
        return max(self.weights, self.leaves, self.splits)


# ---- The paper's -----------------------------------------------------------------------------------------------


def accuracy_of_splits(advantage: float, target_error: float, max_splits: int) -> float:
    """zeta: how nearly optimal every split must be. Proof of Theorem 3: 6 zeta = gamma^2 e / (8 M log(2/e)).

    `advantage` is gamma of the Weak Learning Assumption, `target_error` e, `max_splits` M.
    """
    _check_unit(advantage=advantage, target_error=target_error)
    _check_positive(max_splits=max_splits)
    return advantage**2 * target_error / (8 * max_splits * math.log(2 / target_error)) / 6


def least_share(schedule: str, max_splits: int) -> float:
    """The share of the poorest depth, b = min B(d) over d = 1..M: 1/M uniformly, 2^-M with decay."""
    if schedule not in {"uniform", "decay"}:
        raise ValueError(f"schedule={schedule!r}; the paper has 'uniform' and 'decay'.")
    return 1 / max_splits if schedule == "uniform" else 2.0**-max_splits


def rows_for_weights(
    zeta: float, epsilon: float, failure_probability: float, max_splits: int, holders: int = 1
) -> float:
    """Rows with which all weights are within zeta: |S| >= ln(8kM/delta) 2k / (zeta alpha_l).

    Proof of Theorem 3 (k = 1) and of its distributed corollary (k holders); `epsilon` is alpha_l, a node's
    whole budget, of which half counts its rows.
    """
    _check_positive(zeta=zeta, epsilon=epsilon, max_splits=max_splits, holders=holders)
    _check_unit(failure_probability=failure_probability)
    return math.log(8 * holders * max_splits / failure_probability) * 2 * holders / (zeta * epsilon)


def rows_for_leaves(
    target_error: float,
    epsilon: float,
    failure_probability: float,
    max_splits: int,
    holders: int = 1,
    *,
    corrected: bool = False,
) -> float:
    """Rows with which labelling the leaves costs at most half of the error.

    |S| >= ln(4k(M+1)/delta) 8k(M+1) / (e alpha), with half of epsilon for the leaves: proof of Theorem 3 and
    its distributed corollary. Corrected: 8 for 4, because each leaf has two labels' noise.
    """
    _check_positive(target_error=target_error, epsilon=epsilon, max_splits=max_splits, holders=holders)
    _check_unit(failure_probability=failure_probability)
    leaves, draws = max_splits + 1, 8 if corrected else 4
    failing = math.log(draws * holders * leaves / failure_probability)
    return failing * 8 * holders * leaves / (target_error * epsilon)


def rows_for_noisy_max(
    zeta: float, epsilon: float, failure_probability: float, n_candidates: int, *, corrected: bool = False
) -> float:
    """N(zeta, alpha, delta) of the paper's SingleMachine: 2 b log b, b = ln(|H|/delta) 40 / (alpha zeta).

    Theorem "RNM implements PrivateSplit". It rests on the noise scale 20 lg(m) / (alpha m), which is not
    private (the number of rows m is not public); `miss` has ours. Corrected: lg for log.
    """
    _check_positive(zeta=zeta, epsilon=epsilon)
    _check_unit(failure_probability=failure_probability)
    return _more_than_its_log(
        math.log(n_candidates / failure_probability) * 40 / (epsilon * zeta), corrected=corrected
    )


def rows_for_noisy_counts(
    zeta: float,
    epsilon: float,
    failure_probability: float,
    n_candidates: int,
    holders: int,
    *,
    corrected: bool = False,
) -> float:
    """N(zeta, alpha, delta) of the paper's NoisyCounts: 2 b log b, b = 60 ln(3k|H|/delta) k|H| / (alpha zeta).

    Theorem "NoisyCounts implements distributed PrivateSplit", with noise of scale 3|H|/alpha. Corrected: lg
    for log, and 8 for 3, because each split has four cells, two row sums and two column sums.
    """
    _check_positive(zeta=zeta, epsilon=epsilon)
    _check_unit(failure_probability=failure_probability)
    kh, draws = holders * n_candidates, 8 if corrected else 3
    b = 60 * math.log(draws * kh / failure_probability) * kh / (epsilon * zeta)
    return _more_than_its_log(b, corrected=corrected)


def rows_for_tree(
    advantage: float,
    target_error: float,
    epsilon: float,
    failure_probability: float,
    max_splits: int,
    n_candidates: int,
    schedule: str = "uniform",
    holders: int = 1,
    *,
    corrected: bool = False,
) -> SampleSize:
    """Theorem 3 (one holder, RNM) and its corollary (several, NoisyCounts): training error <= target_error.

    Every node's budget is at least alpha b / 2, half of it for PrivateSplit, and every node that is split
    holds at least e / (2M) of the rows. Corrected: the parts are, and the proof's e is two thirds of
    `target_error`, because it shows that leaves are found while the error is above e, not e / 2. Either way
    it promises nothing unless `max_splits` is as large as `log_splits_for_error` says.
    """
    error = target_error * 2 / 3 if corrected else target_error
    zeta = accuracy_of_splits(advantage, error, max_splits)
    node = epsilon * least_share(schedule, max_splits) / 2
    if node == 0.0:
        return SampleSize(zeta, math.inf, math.inf, math.inf)
    failure = failure_probability / (2 * (2 * max_splits + 1))
    if holders == 1:
        at_a_node = rows_for_noisy_max(zeta, node / 2, failure, n_candidates, corrected=corrected)
    else:
        at_a_node = rows_for_noisy_counts(zeta, node / 2, failure, n_candidates, holders, corrected=corrected)
    return SampleSize(
        zeta=zeta,
        weights=rows_for_weights(zeta, node, failure_probability, max_splits, holders),
        leaves=rows_for_leaves(error, epsilon, failure_probability, max_splits, holders, corrected=corrected),
        splits=2 * max_splits / error * at_a_node,
    )


def log_splits_for_error(
    advantage: float, target_error: float, criterion: Criterion = Criterion.entropy, *, printed: bool = False
) -> float:
    """Ln of the number of splits after which half of the promised fall brings the error to target_error / 2.

    Theorem 3's (1/e)^O(log(1/e) / gamma^2), in full: 2 int_e^1 dG / f(G), where a split of a tree of t leaves
    and potential G lowers the potential by at least f(G) / t without noise. Printed: f of the paper's proof.
    """
    _check_unit(advantage=advantage, target_error=target_error)
    if printed:
        return 4 / advantage**2 * (math.log(2 / target_error) ** 2 - math.log(2) ** 2)
    match criterion:
        case Criterion.gini:  # f = gamma^2 G^2
            return 2 / advantage**2 * (1 / target_error - 1)
        case Criterion.root_gini:  # f = 2 gamma^2 G
            return math.log(1 / target_error) / advantage**2
        case Criterion.entropy:  # f = 4 gamma^2 x / ln 2, where x is the error whose entropy is G
            log_x = np.linspace(math.log(_inverse_entropy(target_error)), math.log(0.5), 10_001)
            slope = np.log2(np.exp(-log_x) - 1)  # dG/dx, and dx / x = d log x
            integral = float(((slope[1:] + slope[:-1]) / 2 * np.diff(log_x)).sum())
            return math.log(2) / (2 * advantage**2) * integral
        case Criterion.error:
            return math.inf


def _inverse_entropy(bits: float) -> float:
    """The x up to 1/2 whose entropy is `bits`, by bisection."""
    low, high = 0.0, 0.5
    for _ in range(80):
        x = (low + high) / 2
        entropy = -(x * math.log2(x) + (1 - x) * math.log2(1 - x))
        low, high = (x, high) if entropy < bits else (low, x)
    return high


def _more_than_its_log(b: float, *, corrected: bool) -> float:
    """An x with x >= b lg x. The paper's 2 b log b is large enough for log, and for lg if b is not small.

    Corrected: the least such x beyond the turning point, by bisection.
    """
    if not corrected:
        return 2 * b * math.log(b)
    low, high = b / math.log(2), 4 * (b + 2) * math.log2(b + 2)  # x - b lg x falls below `low`
    while high - low > 1e-9 * high:
        middle = (low + high) / 2
        low, high = (middle, high) if middle < b * math.log2(middle) else (low, middle)
    return high


# ---- Ours ------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Deal:
    """Rows dealt at random to `holders`, each of whom sees a sample of a node's rows (docs/theory.md, Lemma 7).

    `failing` is ln(events / failure probability), over all events in which a sample misleads.
    """

    holders: int
    criterion: Criterion
    n_classes: int
    failing: float

    def share_seen(self, rows: float) -> float:
        """The share that every holder has at least of the rows of a node that has so many."""
        return max(1 / self.holders - math.sqrt(2 * self.failing / (self.holders * rows)), 0.0)

    def choice_off(self, share: float, rows: float, best_gain: float) -> float:
        """How much gain, in rows, choosing by a sample of this share costs, at a node of so many rows.

        Two gains are compared, the best one's and that of the split chosen. For gini and two classes the
        square root of J is within 4 sqrt(failing / sample), so gains that are small are little off.
        """
        if share == 0.0:
            return math.inf
        off = 2 * self.score_off(share, rows)
        if self.criterion is Criterion.gini and self.n_classes == 2:
            return min(off, 16 * math.sqrt(self.failing * best_gain / share))
        return off

    def score_off(self, share: float, rows: float) -> float:
        """How far, in rows, any split's score in a sample of this share is off, at a node of so many rows.

        Gini and error: D times the rows by which the cells are off (Serfling). Entropy and root gini: by the
        square roots of the cells, in which they have a slope even where a cell is empty (Chernoff).
        """
        if self.criterion in {Criterion.gini, Criterion.error}:
            bound = float(impurity_bound(self.criterion, self.n_classes, MAX_ROWS))
            return bound * math.sqrt(self.failing * ((1 - share) * rows + 1) / (2 * share))
        slope = 2 * math.sqrt(ENTROPY_SQUARED if self.criterion is Criterion.entropy else 1.0)
        return slope * math.sqrt(2 * self.n_classes * self.failing * rows / share)


ENTROPY_SQUARED = 1.18  # at least sum p ln(p)^2 / ln(K)^2 of any K probabilities: docs/theory.md, Lemma 7


@dataclass(frozen=True)
class Miss:
    """How far, in rows, a PrivateSplit is off at a node of any size, except with the failure probability.

    `choice`: the gain of the split chosen, from the best one's, in the rows that it was chosen by. `gain`: its
    estimate, from the truth. `rows`: the estimated number of rows, from the truth. `deal`: if the split is
    chosen by a sample of the node's rows, how that came about.
    """

    choice: float
    gain: float
    rows: float
    deal: Deal | None = None

    def choice_at(self, best_gain: float, most: float) -> float:
        """`choice` in all rows of a node of at most `most`, whose best split gains `best_gain` rows.

        A node has as many rows as its splits gain, or more.
        """
        if self.deal is None:
            return self.choice
        share = self.deal.share_seen(best_gain)
        return self.choice / share + self.deal.choice_off(share, most, best_gain) if share else math.inf

    def rows_needed(self, zeta: float) -> float:
        """N(zeta, epsilon, delta): at so many rows the split is zeta-optimal and its gain zeta-accurate."""
        _check_positive(zeta=zeta)
        least = max(self.choice, self.gain + self.rows) / zeta
        return _least_rows(least, lambda rows: self.choice_at(rows, rows) <= zeta * rows)


def _least_rows(at_least: float, is_enough: Callable[[float], bool]) -> float:
    """The smallest number of rows from `at_least` on that is enough; more are enough as well."""
    if math.isinf(at_least) or is_enough(at_least):
        return at_least
    low, high = at_least, 2 * at_least
    while not is_enough(high):
        low, high = high, 2 * high
    while high - low > 1e-9 * high:
        middle = (low + high) / 2
        low, high = (low, middle) if is_enough(middle) else (middle, high)
    return high


def total_noise(draws: int, scale: float, failure_probability: float, holders: int = 1) -> float:
    """What the absolute values of `draws` numbers add up to at most, but for the failure (docs/theory.md, noise).

    Each number is the sum of one discrete Laplace number of every holder. |Z| is stochastically at most
    scale (E + ln(2 / (1 + exp(-1/scale)))), with E exponential, and a sum of exponentials has a gamma
    distribution. The noise of many holders partly cancels: then Chernoff's bound is smaller.
    """
    from scipy.special import gammainccinv  # type: ignore[import-untyped, unused-ignore]

    n = draws * holders
    discreteness = math.log(2 / (1 + math.exp(-1 / scale)))
    without_cancelling = scale * (float(gammainccinv(n, failure_probability)) + n * discreteness)
    if holders == 1:
        return without_cancelling
    # exp(rate |sum|) is exp(rate sum) + exp(-rate sum) at most; every rate, here t / scale, gives a bound.
    t = np.geomspace(1e-4, 0.9999, 4_000)
    ratio = np.exp((t - 1) / (2 * scale)) * np.expm1(-t / scale) / np.expm1(-1 / scale)
    exponent = draws * math.log(2) - math.log(failure_probability) - n * np.log1p(-(ratio**2))
    return min(without_cancelling, float((scale * exponent / t).min()))


def selection_miss(selector: str, scale: float, n_candidates: int, failure_probability: float) -> float:
    """How far below the best score a selector's choice is at most, but for the failure (docs/theory.md)."""
    failing = math.log(n_candidates / failure_probability)
    match selector:
        case "permute_and_flip":
            return scale * max(failing - math.log(2), 0.0)
        case "exponential":
            return scale * failing
        case "report_noisy_max":
            return 2 * scale * (failing - math.log(1 + math.exp(-1 / scale)))
    raise ValueError(f"there is no selector {selector!r}.")


def miss(
    private_split: PrivateSplit | TakeTurns,
    schema: Schema,
    select: float,
    count: float,
    failure_probability: float,
    criterion: Criterion = Criterion.gini,
    holders: int = 1,
    max_rows: int = MAX_ROWS,
    nodes: int = 1,
) -> Miss:
    """The guarantee of a PrivateSplit at one node (docs/theory.md, our mechanisms; turns).

    `select` and `count` are what the node may spend; NoisyCounts spends both on its counts. With `TakeTurns`
    one holder, any of them, spends `select`, and all spend `count`. Its guarantee is for rows dealt at random,
    at each of `nodes` that were fixed before: say 1 for the root, `possible_nodes` for nodes of a tree.
    `LocalSelection` has none, here as in the paper: a split that is best for each holder's own rows can be
    the worst for all rows together, however many there are. It misses by infinitely many rows.
    """
    _check_unit(failure_probability=failure_probability)
    _check_positive(select=select, count=count, holders=holders)
    k = schema.n_classes
    bound = float(impurity_bound(criterion, k, 2 * max_rows))
    # Impurities of fractional counts: entropy and root gini may rise by D within the first part of a row.
    parts = 0 if criterion in {Criterion.gini, Criterion.error} else 2 * k
    match private_split:
        case SelectSplit(selector):
            unit = 2.0**-FRACTION_BITS
            scale = score_sensitivity(criterion, k, max_rows) / select
            off = selection_miss(selector, scale, len(schema.splits), failure_probability / 2)
            rows = total_noise(2 * k, 1 / count, failure_probability / 2, holders)
            return Miss(unit * (off + 1), bound * (rows + parts), rows)
        case TakeTurns(selector):
            alone = SelectSplit(selector)
            failing = failure_probability if holders == 1 else failure_probability / 2
            one = miss(alone, schema, select, count, failing, criterion, holders, max_rows)
            events = nodes * holders * _ways_to_mislead(criterion, k, len(schema.splits))
            deal = Deal(holders, criterion, k, math.log(events) - math.log(failing))
            return one if holders == 1 else replace(one, deal=deal)
        case NoisyCounts(kind):
            histograms, cells = (
                (len(schema.splits), 2 * k)
                if kind == "per-split"
                else (len(schema.columns), k * int(schema.n_bins.max()))
            )
            scale = histograms / (select + count)
            rows = total_noise(cells, scale, failure_probability / histograms, holders)
            gain = bound * (rows + parts)
            return Miss(2 * gain, gain, rows)
        case LocalSelection():
            return Miss(math.inf, math.inf, math.inf)
    raise ValueError(f"nothing is promised about {private_split!r}.")


def _ways_to_mislead(criterion: Criterion, n_classes: int, n_candidates: int) -> int:
    """Events at one node and one holder: it has too few rows, or too many or few are in some cells of a split.

    Gini and error: too many in a set of cells, of which there are 2^2K, all and none left out; and too many or
    too few on a side, or of a class on either side. Entropy and root gini: too many or too few in one of 2K
    cells.
    """
    is_by_sets = criterion in {Criterion.gini, Criterion.error}
    return 1 + n_candidates * (2 ** (2 * n_classes) + 4 if is_by_sets else 4 * n_classes)


def possible_nodes(n_candidates: int, max_depth: int) -> int:
    """How many nodes down to a depth there can be in any tree: sets of up to max_depth - 1 decided splits."""
    at_depth, total = 1, 1
    for depth in range(1, min(max_depth, n_candidates + 1)):
        at_depth = at_depth * 2 * (n_candidates - depth + 1) // depth
        total += at_depth
    return total


def least_fall(criterion: Criterion, advantage: float, error: float) -> float:
    """What the best split of a tree of t leaves takes off its potential, times t, while its error is `error`.

    From the Weak Learning Assumption, for two classes (docs/theory.md, the recurrence). A split may leave the
    criterion error where it was.
    """
    _check_unit(advantage=advantage, error=error)
    match criterion:
        case Criterion.entropy:
            return 4 / math.log(2) * advantage**2 * error
        case Criterion.gini:
            return 16 * advantage**2 * error**2
        case Criterion.root_gini:
            return 4 * advantage**2 * error
        case Criterion.error:
            return 0.0


def rows_for_our_tree(
    schema: Schema,
    advantage: float,
    target_error: float,
    epsilon: float,
    failure_probability: float,
    max_splits: int,
    *,
    method: str = "auto",
    selector: str = "permute_and_flip",
    criterion: Criterion = Criterion.gini,
    schedule: str = "uniform",
    holders: int = 1,
    max_rows: int = MAX_ROWS,
) -> SampleSize:
    """Theorem 3 for `PrivateTreeClassifier` with this schedule, max_depth = max_splits and two classes.

    Our gains are off by a number of rows that does not depend on the node, so no node needs to be large: the
    paper's factor 2M/e is gone. Weights come with the cells and cost nothing. The leaves are labelled by
    their own counts; what the code adds to these has less variance but no proven tail. The automatic budget
    plans from noisy counts and stops where it sees fit, and method="paper" multiplies gains by noisy weights:
    nothing is promised about either. With method="turns" the holders choose in turn, a depth each, the rows
    are dealt at random, and the schedule's budgets are pooled: a holder that chooses at one of k depths pays
    for the choice what it would pay for k.
    """
    _check_positive(epsilon=epsilon, max_splits=max_splits, holders=holders)
    fall = least_fall(criterion, advantage, target_error / 2) / max_splits / 2
    if schedule not in SCHEDULES:
        raise ValueError(f"schedule={schedule!r}; choose one of {', '.join(map(repr, SCHEDULES))}.")
    poorest = float(SCHEDULES[schedule](max_splits, max_splits))  # the deepest nodes have least
    share = float(1 - SHARES.root - SHARES.leaf) * poorest
    if fall == 0.0 or share < LEAST / GRAINS or method == "paper":
        return SampleSize(fall, math.inf, math.inf, math.inf)
    node = epsilon * share
    nodes, leaves = 2 * max_splits + 1, max_splits + 1
    select = node * float(SHARES.select)
    wishes = Wishes(Fraction(epsilon), n_holders=holders, method=method, selector=selector)
    private_split = make_plan(schema, wishes).private_split
    in_turn = isinstance(private_split, TakeTurns)
    choices = math.ceil(max_splits / holders) if in_turn else max_splits  # of a holder, on a path
    off = miss(
        private_split,
        schema,
        select * max_splits / choices,
        node - select,
        failure_probability / (2 * nodes),
        criterion,
        holders,
        max_rows,
        possible_nodes(len(schema.splits), max_splits) if in_turn else 1,
    )
    label = epsilon * float(SHARES.leaf)
    noise = total_noise(schema.n_classes, 1 / label, failure_probability / (2 * leaves), holders)
    return SampleSize(
        zeta=fall,
        weights=0.0,
        leaves=2 * leaves * noise / target_error,
        splits=_least_rows(
            (off.choice + 2 * off.gain) / fall,
            lambda rows: off.choice_at(2 * fall * rows, rows) + 2 * off.gain <= fall * rows,
        ),
    )


def _check_unit(**values: float) -> None:
    for name, value in values.items():
        if not 0 < value <= 1:
            raise ValueError(f"{name}={value!r}; it must lie between 0 and 1.")


def _check_positive(**values: float) -> None:
    for name, value in values.items():
        if not value > 0:
            raise ValueError(f"{name}={value!r}; it must be positive.")
