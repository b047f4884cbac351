"""A black-box lower bound on epsilon: run a mechanism on two neighbours and count an event.

Pure differential privacy says Pr[event on one] <= exp(epsilon) Pr[event on the other]. Half of the runs look
for an event that breaks this; the other half, which had no part in the choice, bound it with confidence. The
auditor knows nothing of the mechanism, so it finds what a proof, or the code that should follow it, missed.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain, compress
from typing import Any, Protocol, TypeGuard, TypeVar

import numpy as np
from numpy.typing import NDArray

Table = TypeVar("Table")
Outcome = tuple[Any, ...]
Sides = tuple[list[Outcome], list[Outcome]]  # runs on the likelier and on the other neighbour

BLOCKS = 64  # a unit of parallel work is this part of a neighbour's runs, whatever the number of jobs
MOST_VALUES = 64  # a number with more distinct values than this is looked at in bins
MOST_THRESHOLDS = 128
MOST_CONDITIONS = 2


class Statistic(Protocol):
    """A number computed from an outcome; an event says that it is large."""

    def values(self, outcomes: Sequence[Outcome]) -> NDArray[np.float64]:
        """The statistic of each outcome."""

    def describe(self, threshold: float) -> str:
        """The condition that the statistic is at least `threshold`, for a reader."""


@dataclass(frozen=True)
class Entry:
    """One number of the outcome, or its negative."""

    index: int
    sign: int

    def values(self, outcomes: Sequence[Outcome]) -> NDArray[np.float64]:
        """See `Statistic.values`."""
        entries = _values(outcomes, self.index, ())
        return np.array([self.sign * float(entry) if _is_number(entry) else -math.inf for entry in entries])

    def describe(self, threshold: float) -> str:
        """See `Statistic.describe`."""
        relation = ">=" if self.sign > 0 else "<="
        return f"outcome[{self.index}] {relation} {self.sign * threshold:g}"


@dataclass(frozen=True)
class LogRatio:
    """The estimated log likelihood ratio of one entry (or of the whole outcome, `index` None).

    That it is large says that the entry is one of a set of values: the best set, by Neyman and Pearson.
    Numbers with many values are put into bins between the `edges` first. Values not seen before count 0.
    """

    index: int | None
    edges: tuple[float, ...]
    ratios: Mapping[Hashable, float]

    def values(self, outcomes: Sequence[Outcome]) -> NDArray[np.float64]:
        """See `Statistic.values`."""
        ratio = self.ratios.get
        return np.array([ratio(value, 0.0) for value in _values(outcomes, self.index, self.edges)])

    def describe(self, threshold: float) -> str:
        """See `Statistic.describe`."""
        values = [str(value) for value, ratio in self.ratios.items() if ratio >= threshold]
        shown = ", ".join(values[:6]) + (f", ... ({len(values)} in all)" if len(values) > 6 else "")
        entry = "outcome" if self.index is None else f"outcome[{self.index}]"
        return f"{'bin of ' if self.edges else ''}{entry} in {{{shown}}}"


@dataclass(frozen=True)
class SumOfLogRatios:
    """The sum of the entries' log likelihood ratios: finds leaks that are spread over many entries."""

    parts: tuple[LogRatio, ...]

    def values(self, outcomes: Sequence[Outcome]) -> NDArray[np.float64]:
        """See `Statistic.values`."""
        sums: NDArray[np.float64] = np.sum([part.values(outcomes) for part in self.parts], axis=0)
        return sums

    def describe(self, threshold: float) -> str:
        """See `Statistic.describe`."""
        return f"sum of the log likelihood ratios of {len(self.parts)} entries >= {threshold:.3g}"


Conditions = tuple[tuple[Statistic, float], ...]


@dataclass(frozen=True)
class Event:
    """What the auditor counted: every statistic is at least its threshold.

    `likelier` is the neighbour (0 or 1) on which that should happen more often.
    """

    conditions: Conditions
    likelier: int

    def among(self, outcomes: list[Outcome]) -> list[Outcome]:
        """The outcomes in which it happened."""
        for statistic, threshold in self.conditions:
            met = (statistic.values(outcomes) >= threshold).tolist()
            outcomes = list(compress(outcomes, met))
        return outcomes

    def __str__(self) -> str:
        return " and ".join(statistic.describe(threshold) for statistic, threshold in self.conditions)


@dataclass(frozen=True)
class AuditResult:
    """`epsilon >= lower_bound`, except with probability at most 1 - confidence."""

    lower_bound: float
    event: Event
    hits: tuple[int, int]  # of the event, on the likelier and on the other neighbour
    trials: int  # runs a neighbour that `hits` were counted in
    confidence: float
    runs: int  # a neighbour

    def runs_to_exceed(self, epsilon: float) -> int | None:
        """About how many runs would prove more than `epsilon`, were the event to happen as often as it did.

        None if no number would (or none below a thousand times as many).
        """
        for more in np.geomspace(1, 1000, 61).tolist():
            hits, other_hits = (np.array(more * max(n, 1)) for n in self.hits)
            trials = math.ceil(more * self.trials)
            if _log_ratio_bound(hits, other_hits, trials, 1 - self.confidence) > epsilon:
                runs: int = math.ceil(more * self.runs)
                return runs
        return None

    def __str__(self) -> str:
        return (
            f"epsilon >= {self.lower_bound:.3f}: {self.event}, on {self.trials} runs {self.hits[0]} times "
            f"with neighbour {self.event.likelier} and {self.hits[1]} times with the other "
            f"(false alarm: {1 - self.confidence:.1g})"
        )


def audit(
    mechanism: Callable[[Table, int], object],
    neighbours: tuple[Table, Table],
    *,
    runs: int,
    confidence: float,
    seed: int = 0,
    jobs: int = 1,
    progress: bool = False,
) -> AuditResult:
    """Bound epsilon of `mechanism(table, seed)` from below by `runs` runs on each of two neighbours.

    The outcome may be anything hashable, or a sequence or array of such things; entries that are numbers are
    also compared with thresholds. Each run gets a 64-bit seed of its own. Given the same `seed` the result is the same for any number of jobs.

    Theorem: Pr[lower_bound > epsilon] <= 1 - confidence for an epsilon-private mechanism. The event does not
    depend on the runs it is counted in, so the counts are binomial; each of the two Clopper-Pearson bounds
    (1934) fails with probability at most (1 - confidence) / 2. Audits of a suite add up their failures: see
    `suite_confidence`.
    """
    if runs < 8:
        raise ValueError(f"runs must be at least 8, to choose an event and to bound it, got {runs}")
    if not 0 < confidence < 1:
        raise ValueError(f"confidence must lie strictly between 0 and 1, got {confidence}")
    return audit_outcomes(_run(mechanism, neighbours, runs, seed, jobs, progress), confidence)


def audit_outcomes(outcomes: Sides, confidence: float) -> AuditResult:
    """Bound epsilon from below by independent runs that are there already, equally many on both neighbours."""
    runs = len(outcomes[0])
    if runs < 8 or len(outcomes[1]) != runs:
        raise ValueError(f"expected equally many runs, at least 8, got {runs} and {len(outcomes[1])}")
    quarter, half = runs // 4, runs // 2
    ordering, choosing, bounding = (
        (outcomes[0][part], outcomes[1][part])
        for part in (slice(0, quarter), slice(quarter, half), slice(half, runs))
    )
    failure = 1 - confidence
    event = _choose(ordering, choosing, failure)
    hits, other_hits = map(len, _within(event, _likelier_first(bounding, event.likelier)))
    trials = runs - half
    bound = float(_log_ratio_bound(np.array(hits), np.array(other_hits), trials, failure))
    return AuditResult(max(0.0, bound), event, (hits, other_hits), trials, confidence, runs)


def suite_confidence(audits: int, false_alarm: float = 1e-6) -> float:
    """The confidence each of `audits` audits needs for a false-alarm probability of `false_alarm` in all.

    By the union bound it does not matter whether the audits are independent.

    >>> 1 - suite_confidence(10) <= 1.0001e-7
    True
    """
    if audits < 1 or not 0 < false_alarm < 1:
        raise ValueError(f"expected audits >= 1 and 0 < false_alarm < 1, got {audits} and {false_alarm}")
    return 1 - false_alarm / audits


# ---- Running ---------------------------------------------------------------------------------------------------


def _run(
    mechanism: Callable[[Table, int], object],
    neighbours: tuple[Table, Table],
    runs: int,
    seed: int,
    jobs: int,
    progress: bool,
) -> Sides:
    seeds = np.random.SeedSequence(seed).generate_state(2 * runs, np.uint64).reshape(2, runs).tolist()
    length = math.ceil(runs / BLOCKS)
    blocks = [
        (mechanism, table, table_seeds[start : start + length])
        for table, table_seeds in zip(neighbours, seeds, strict=True)
        for start in range(0, runs, length)
    ]
    done = list(chain.from_iterable(_watch(_run_blocks(blocks, jobs), len(blocks), progress)))
    return done[:runs], done[runs:]


def _run_blocks(blocks: Sequence[tuple[Any, Any, list[int]]], jobs: int) -> Iterator[list[Outcome]]:
    if jobs == 1:
        return (_run_block(*block) for block in blocks)
    import joblib  # type: ignore[import-untyped, unused-ignore]

    parallel = joblib.Parallel(n_jobs=jobs, return_as="generator")
    finished: Iterator[list[Outcome]] = parallel(joblib.delayed(_run_block)(*block) for block in blocks)
    return finished


def _run_block(mechanism: Callable[[Table, int], object], table: Table, seeds: list[int]) -> list[Outcome]:
    return [_as_outcome(mechanism(table, seed)) for seed in seeds]


def _watch(blocks: Iterable[list[Outcome]], total: int, progress: bool) -> Iterable[list[Outcome]]:
    if not progress:
        return blocks
    from rich.progress import track

    return track(blocks, description="auditing", total=total)


def _as_outcome(outcome: object) -> Outcome:
    if isinstance(outcome, np.ndarray):
        return tuple(outcome.ravel().tolist())
    if isinstance(outcome, list | tuple):
        return tuple(entry.item() if isinstance(entry, np.generic) else entry for entry in outcome)
    return (outcome.item() if isinstance(outcome, np.generic) else outcome,)


# ---- Choosing the event ----------------------------------------------------------------------------------------
#
# One quarter of the runs estimates likelihood ratios, the next picks statistic and threshold. Were it the same
# quarter, outcomes that happened once would look like perfect evidence and be picked.


def _choose(ordering: Sides, choosing: Sides, failure: float) -> Event:
    """The event of either direction that promises the largest bound."""
    found = (
        (
            likelier,
            *_conditions(_likelier_first(ordering, likelier), _likelier_first(choosing, likelier), failure),
        )
        for likelier in (0, 1)
    )
    likelier, conditions, _ = max(found, key=lambda candidate: candidate[2])
    return Event(conditions, likelier)


def _conditions(ordering: Sides, choosing: Sides, failure: float) -> tuple[Conditions, float]:
    """Add conditions, each the best among the runs that meet the earlier ones, while the bound grows."""
    trials = len(choosing[0])
    conditions: Conditions = ()
    best = -math.inf
    while len(conditions) < MOST_CONDITIONS and all(map(len, ordering)):
        found = [
            (statistic, *_best_threshold(statistic, choosing, trials, failure))
            for statistic in _statistics(ordering)
        ]
        statistic, threshold, bound = max(found, key=lambda candidate: candidate[2])
        if bound <= best:
            break
        best, conditions = bound, (*conditions, (statistic, threshold))
        met = Event(conditions, 0)
        ordering, choosing = _within(met, ordering), _within(met, choosing)
    return conditions, best


def _best_threshold(
    statistic: Statistic, choosing: Sides, trials: int, failure: float
) -> tuple[float, float]:
    """The threshold with the largest bound, and that bound."""
    likelier, other = (np.sort(statistic.values(side)) for side in choosing)
    if len(likelier) == 0:
        return math.inf, -math.inf
    thresholds = _spread(np.unique(likelier))
    hits, other_hits = (len(side) - np.searchsorted(side, thresholds) for side in (likelier, other))
    bounds = _log_ratio_bound(hits, other_hits, trials, failure)
    best = int(np.argmax(bounds))
    return float(thresholds[best]), float(bounds[best])


def _spread(values: NDArray[np.float64]) -> NDArray[np.float64]:
    """At most MOST_THRESHOLDS of the sorted values, dense near the top, where events are rare."""
    count = len(values)
    ranks = [spacing(1, count, MOST_THRESHOLDS // 2) for spacing in (np.geomspace, np.linspace)]
    spread: NDArray[np.float64] = values[np.unique(count - np.concatenate(ranks).astype(int))]
    return spread


def _statistics(ordering: Sides) -> list[Statistic]:
    statistics: list[Statistic] = [_log_ratio(ordering, None)]
    widths = {len(outcome) for outcome in chain(*ordering)}
    if len(widths) > 1:
        return statistics  # entries of outcomes of different lengths do not correspond
    entries = [index for index in range(widths.pop()) if len(set(_values(chain(*ordering), index, ()))) > 1]
    ratios = tuple(_log_ratio(ordering, index) for index in entries)
    numbers = [index for index in entries if all(_is_number(outcome[index]) for outcome in chain(*ordering))]
    statistics += [Entry(index, sign) for index in numbers for sign in (1, -1)]
    return [*statistics, *ratios, *([SumOfLogRatios(ratios)] if ratios else [])]


def _log_ratio(ordering: Sides, index: int | None) -> LogRatio:
    values = _values(chain(*ordering), index, ())
    edges: tuple[float, ...] = ()
    if index is not None and all(map(_is_number, values)) and len(set(values)) > MOST_VALUES:
        inner = np.linspace(0, 1, MOST_VALUES // 2 + 1)[1:-1]
        edges = tuple(np.unique(np.quantile(np.array(values, float), inner)).tolist())
    likelier, other = (Counter(_values(side, index, edges)) for side in ordering)
    # One is added to both counts, so that what was seen once is no strong evidence.
    ratios = {value: math.log((likelier[value] + 1) / (other[value] + 1)) for value in likelier | other}
    return LogRatio(index, edges, ratios)


def _values(outcomes: Iterable[Outcome], index: int | None, edges: tuple[float, ...]) -> Sequence[Hashable]:
    """An entry of each outcome (None beyond its end), or the bin it lies in, or the whole outcome."""
    if index is None:
        return list(outcomes)
    values = [outcome[index] if index < len(outcome) else None for outcome in outcomes]
    return (
        [bisect_right(edges, value) if _is_number(value) else value for value in values] if edges else values
    )


def _is_number(value: object) -> TypeGuard[float]:
    return isinstance(value, int | float) and not math.isnan(value)


def _likelier_first(sides: Sides, likelier: int) -> Sides:
    return sides[likelier], sides[1 - likelier]


def _within(event: Event, sides: Sides) -> Sides:
    first, second = map(event.among, sides)
    return first, second


def _log_ratio_bound(
    hits: NDArray[Any], other_hits: NDArray[Any], trials: int, failure: float
) -> NDArray[np.float64]:
    """log(p_low / q_high), with Clopper-Pearson bounds that fail with probability `failure` / 2 each."""
    from scipy.special import betaincinv  # type: ignore[import-untyped, unused-ignore]

    k, m = np.asarray(hits, float), np.asarray(other_hits, float)
    # The beta distribution has no parameter 0: no hit bounds p by 0, nothing but hits bounds q by 1.
    low = np.where(k > 0, betaincinv(np.maximum(k, 1), trials - k + 1, failure / 2), 0.0)
    high = np.where(m < trials, 1 - betaincinv(np.maximum(trials - m, 1), m + 1, failure / 2), 1.0)
    with np.errstate(divide="ignore"):
        bound: NDArray[np.float64] = np.log(low) - np.log(high)
    return bound
