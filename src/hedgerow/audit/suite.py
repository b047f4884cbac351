"""All audits, each with a twin that really costs twice its claim, and what is reported of them."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

from hedgerow.audit.mechanisms import (
    COUNTS,
    NEARLY_ALL,
    NEARLY_NOTHING,
    Choosing,
    Counting,
    Fitting,
    Mechanism,
    Mixing,
    Selection,
    Watching,
)
from hedgerow.audit.neighbours import Neighbours, catalogue, tables_of_all_kinds, without_max_rows
from hedgerow.budget import SCHEDULES
from hedgerow.classifier import METHODS
from hedgerow.criteria import Criterion
from hedgerow.privacy.audit import AuditResult, Outcome, audit_outcomes, suite_confidence
from hedgerow.privacy.selectors import SELECTORS

FALSE_ALARM = 1e-6  # that any audit of a suite passes its epsilon although the code is private
EPSILONS = (Fraction(1, 10), Fraction(1), Fraction(5))
# Of whole fits. At less than 1 no number of runs that anybody waits for shows a doubled price, nor does it above 2.
FIT_EPSILONS = (Fraction(1), Fraction(2))
LEVELS = ("quick", "full")
RUNS = {"quick": 8_000, "full": 20_000}  # selections a neighbour; what takes longer is run less often
TWIN = 2  # times its claim is what a twin costs

ONE_FALLS = "first of its class, 1 of 4 candidates falls"
ONE_STAYS = "first of its class, 1 of 20 candidates stays"
EMPTY = "first row of an empty table"
SECOND = "second row of a table"
REPLACED = "row replaced in a pure node"
KINDS = "missing and unknown categories"
MANY_ROWS = "first of its class among 20,000 rows"
STUDIED = ("local", "noisy_counts", "noisy_columns")  # and "turns", with the row at either kind of holder
LOPSIDED = (0.98, 0.1)  # of epsilon for the leaves
MIXTURES = (
    (Criterion.gini, Criterion.error),
    (Criterion.error, Criterion.entropy),
    (Criterion.entropy, Criterion.root_gini),
    (Criterion.root_gini, Criterion.gini),
)
SHARE_OF_CHOICES = 2.0  # it must show if both parts are drawn at the higher of their prices
MOST_CELLS = 40  # of an answer that is drawn with all runs


@dataclass(frozen=True)
class Audit:
    """One mechanism on one pair of neighbours, and the epsilon that it claims."""

    mechanism: Mechanism
    neighbours: Neighbours
    epsilon: Fraction
    share: float = 1.0  # of the suite's runs: what is slow is run less often

    def run(self, runs: int, confidence: float, seed: int = 0) -> AuditResult:
        """Bound the true epsilon from below."""
        return audit_outcomes(self._outcomes(self.epsilon, runs, seed), confidence)

    def run_twin(self, runs: int, confidence: float, seed: int = 0) -> Twin:
        """The same attack on the same mechanism at twice the price: would it have been found?"""
        first, second = self._outcomes(TWIN * self.epsilon, runs, seed)
        evidence = [outcome[0] for outcome in (*first, *second)]
        return Twin(self, audit_outcomes((first, second), confidence), max(evidence) - min(evidence))

    def examine(self, runs: int, confidence: float, seed: int = 0) -> Finding:
        """What is found of the mechanism, and of its twin."""
        return Finding(self, self.run(runs, confidence, seed), self.run_twin(runs, confidence, seed))

    def _outcomes(self, epsilon: Fraction, runs: int, seed: int) -> tuple[list[Outcome], list[Outcome]]:
        runs = max(8, round(runs * self.share))
        first, second = (
            self.mechanism.outcomes(self.neighbours, side, epsilon, runs, 2 * seed + side) for side in (0, 1)
        )
        return first, second


@dataclass(frozen=True)
class Twin:
    """What an audit finds of a mechanism that costs twice its claim.

    No outcome is more than exp(`range_of_evidence`) times likelier on one neighbour than on the other.
    """

    audit: Audit
    result: AuditResult
    range_of_evidence: float

    @property
    def found(self) -> bool:
        """Whether the audit has the power to see a doubled price."""
        return self.result.lower_bound > self.audit.epsilon

    @property
    def why_not(self) -> str:
        """Why it is not found, in a sentence; nothing if it is."""
        claim, most, pair = float(self.audit.epsilon), self.range_of_evidence, self.audit.neighbours
        if self.found:
            return ""
        if most == 0:
            return "the row changes none of the scores and counts that answers are made of here"
        if most <= claim:
            why = "the row changes little of what is released here"
            if pair.bound is not None:
                why = f"the noise is made for {pair.max_rows:,} rows, and there are {len(pair.table) + 1:,}"
            return f"{why}: even the twin costs at most {most:.2g}"
        spread, runs = self.audit.mechanism.spread(pair), f"{self.result.runs:,} runs"
        needed = self.result.runs_to_exceed(claim)
        few = f"{runs} show no event that tells {TWIN * claim:g} from {claim:g}"
        if needed is not None:
            few = (
                f"it takes some {_rounded(needed):,} runs to tell {TWIN * claim:g} from {claim:g}, not {runs}"
            )
        return f"{spread}; {few}" if spread else few


@dataclass(frozen=True)
class Finding:
    """What an audit found, and whether it would have found its twin."""

    audit: Audit
    result: AuditResult
    twin: Twin

    @property
    def exceeds(self) -> bool:
        """Whether the mechanism is proven to cost more than it claims."""
        return self.result.lower_bound > self.audit.epsilon

    def to_dict(self) -> dict[str, Any]:
        """Plain values for JSON."""
        return {
            "mechanism": self.audit.mechanism.name,
            "neighbours": self.audit.neighbours.name,
            "claimed": float(self.audit.epsilon),
            "lower_bound": self.result.lower_bound,
            "exceeds": self.exceeds,
            "runs": self.result.runs,
            "event": str(self.result.event),
            "twin": {
                "costs": float(TWIN * self.audit.epsilon),
                "lower_bound": self.twin.result.lower_bound,
                "found": self.twin.found,
                "why_not": self.twin.why_not,
            },
        }


def _rounded(runs: int) -> int:
    """To two digits: it is an estimate."""
    return int(float(f"{runs:.1e}"))


# ---- Which audits ------------------------------------------------------------------------------------------------


def suite(level: str = "full") -> list[Audit]:
    """All audits of a level: "full" takes all neighbours and epsilons, "quick" the worst and few."""
    if level not in LEVELS:
        raise ValueError(f"level={level!r}; choose one of {', '.join(map(repr, LEVELS))}.")
    return list(_quick() if level == "quick" else _full())


def _full() -> Iterator[Audit]:
    every = catalogue()
    pairs = [pair for pair in every if pair.replaced is None]
    by_name = {pair.name: pair for pair in every}
    yield from _selections(pairs, EPSILONS)
    yield from _selections([without_max_rows(by_name[ONE_FALLS])], EPSILONS)
    yield from _choices(pairs, EPSILONS, ("root", "children"))
    yield from _mixed(by_name[ONE_FALLS], by_name[ONE_STAYS], EPSILONS)
    yield from _counts(pairs, EPSILONS, ("root", "children"))
    yield from _opendp(by_name[ONE_FALLS], EPSILONS)
    schedules = [
        Fitting(selector=selector, budget=budget) for selector in SELECTORS for budget in ("auto", *SCHEDULES)
    ]
    yield from _fits([by_name[ONE_FALLS], by_name[EMPTY]], schedules)
    ways = [Fitting(), Fitting(noise="opendp"), *(Fitting(method=method) for method in METHODS[1:])]
    ways += [
        Fitting(method=method, budget="uniform", leaf_fraction=fraction, max_splits=1)
        for method in ("select", "noisy_columns")
        for fraction in LOPSIDED
    ]
    fitted = [
        ONE_FALLS,
        EMPTY,
        SECOND,
        "best candidate changes",
        "row alone beyond a threshold",
        REPLACED,
        KINDS,
    ]
    yield from _fits([by_name[name] for name in fitted], ways)
    watched = [
        Watching(method, fraction, 3 if fraction is None else 1)
        for method in STUDIED
        for fraction in (None, *LOPSIDED)
    ]
    pairs = [by_name[name] for name in (ONE_FALLS, EMPTY, SECOND)]
    yield from _one_epsilon_each(itertools.product(watched, pairs), FIT_EPSILONS, share=0.05)
    yield from _turns(by_name)


def _turns(by_name: Mapping[str, Neighbours]) -> Iterator[Audit]:
    """Who chooses has the more rows, so tables of few rows are for the one who counts.

    A chooser spends epsilon on more, so that it takes more runs to show it.
    """
    tables = {
        "chooser": (0.1, (MANY_ROWS, ONE_STAYS, ONE_FALLS)),
        "counter": (0.05, (EMPTY, SECOND, ONE_FALLS)),
    }
    for row_at, (share, names) in tables.items():
        watched = [Watching("turns", max_splits=splits, row_at=row_at) for splits in (1, 3)]
        pairs = itertools.product(watched, [by_name[name] for name in names])
        yield from _one_epsilon_each(pairs, FIT_EPSILONS[::-1], share)


def _quick() -> Iterator[Audit]:
    by_name = {pair.name: pair for pair in catalogue()}
    worst, one_stays, empty = by_name[ONE_FALLS], by_name[ONE_STAYS], by_name[EMPTY]
    one, two = (Fraction(1),), Fraction(2)
    yield from _selections([worst], one)
    left_out = without_max_rows(worst)
    for criterion in (Criterion.entropy, Criterion.root_gini):
        yield Audit(Selection("permute_and_flip", criterion), left_out, one[0])
    yield from _choices([worst], one, ("root",), ("split",), SHARE_OF_CHOICES)
    yield from _choices([one_stays], one, ("children",), ("split",), SHARE_OF_CHOICES)
    yield from _choices([one_stays], one, ("root",), ("fork",), SHARE_OF_CHOICES)
    yield from _mixed(
        worst, one_stays, one, forks=((Criterion.entropy, Criterion.gini), (Criterion.error, Criterion.gini))
    )
    yield from _counts([worst], one, ("root", "children"))
    yield from _counts([empty], one, ("root",))
    for pair in tables_of_all_kinds():
        if pair.file is None:
            yield Audit(Selection("permute_and_flip", Criterion.gini), pair, one[0])
        yield Audit(Choosing("split", NEARLY_ALL), pair, one[0], share=0.5)
        if len(pair.schema.splits) < MOST_CELLS:
            yield Audit(Choosing("fork", NEARLY_ALL), pair, one[0], share=0.5)
        yield _count("histograms of every column", "root", pair, one[0])
    yield from _opendp(worst, one)
    # Whole fits are slow. Those whose leaves have nearly all of epsilon show a doubled price in few runs; the others
    # are run so often that an answer without noise would show.
    yield Audit(Fitting(budget="uniform", leaf_fraction=LOPSIDED[0], max_splits=1), worst, two, share=0.1)
    yield Audit(Watching("turns", max_splits=1, row_at="counter"), empty, two, share=0.1)
    yield Audit(Watching("turns", max_splits=1, row_at="chooser"), by_name[MANY_ROWS], one[0], share=0.02)
    yield Audit(Watching("local", LOPSIDED[0], max_splits=1), empty, one[0], share=0.02)
    yield Audit(Fitting(), worst, one[0], share=0.02)
    yield Audit(Fitting(method="paper"), worst, one[0], share=0.02)
    yield Audit(Watching("noisy_columns"), empty, one[0], share=0.02)


def _selections(pairs: Sequence[Neighbours], epsilons: Sequence[Fraction]) -> Iterator[Audit]:
    for pair in pairs:
        for criterion in _criteria(pair):
            for selector in SELECTORS:
                yield from (Audit(Selection(selector, criterion), pair, epsilon) for epsilon in epsilons)


def _choices(
    pairs: Sequence[Neighbours],
    epsilons: Sequence[Fraction],
    places: Sequence[str],
    kinds: Sequence[str] = ("split", "fork"),
    share: float = 1.0,
) -> Iterator[Audit]:
    """Of a price, nine tenths or one tenth are for the cells; of forks also a thousandth, for each criterion."""
    every = []
    for pair in pairs:
        for what in kinds:
            every += [
                (Choosing(what, cells, at=at), pair)
                for at in places
                if at == "root" or _has_divisible_children(pair)
                for cells in (NEARLY_ALL, 1 - NEARLY_ALL)
            ]
            if what == "fork" and len(epsilons) > 1:
                every += [(Choosing(what, NEARLY_NOTHING, criterion), pair) for criterion in _criteria(pair)]
    yield from _one_epsilon_each(every, epsilons, share)


def _one_epsilon_each(
    every: Iterable[tuple[Mechanism, Neighbours]], epsilons: Sequence[Fraction], share: float
) -> Iterator[Audit]:
    """What is slow is not attacked at all epsilons: they take turns."""
    for (mechanism, pair), epsilon in zip(every, itertools.cycle(epsilons), strict=False):
        yield Audit(mechanism, pair, epsilon, share)


def _has_divisible_children(pair: Neighbours) -> bool:
    return len(pair.schema.columns) > 1 or len(pair.schema.splits) > 2


def _criteria(pair: Neighbours) -> list[Criterion]:
    return [
        criterion
        for criterion in Criterion
        if criterion is not Criterion.root_gini or pair.schema.n_classes == 2
    ]


def _mixed(
    for_splits: Neighbours,
    for_forks: Neighbours,
    epsilons: Sequence[Fraction],
    forks: Sequence[tuple[Criterion, Criterion]] = MIXTURES,
) -> Iterator[Audit]:
    for epsilon in epsilons:
        yield from (Audit(Mixing("split", criteria), for_splits, epsilon) for criteria in MIXTURES)
        yield from (
            Audit(Mixing("fork", criteria), for_forks, epsilon, SHARE_OF_CHOICES) for criteria in forks
        )


def _counts(
    pairs: Sequence[Neighbours], epsilons: Sequence[Fraction], places: Sequence[str]
) -> Iterator[Audit]:
    for pair in pairs:
        for at in places:
            for what in COUNTS:
                yield from (_count(what, at, pair, epsilon) for epsilon in epsilons)


def _count(what: str, at: str, pair: Neighbours, epsilon: Fraction) -> Audit:
    """One count shows in few runs; counts that share a price need many, unless they are too many to draw."""
    schema = pair.schema
    n_cells = {
        "cells of every split": 2 * len(schema.splits),
        "histograms of every column": int(schema.bin_start[-1]),
    }
    are_few = what in n_cells and n_cells[what] <= MOST_CELLS
    return Audit(Counting(what, at), pair, epsilon, share=1.5 if are_few else 0.25)


def _fits(pairs: Sequence[Neighbours], ways: Sequence[Fitting]) -> Iterator[Audit]:
    yield from _one_epsilon_each(itertools.product(ways, pairs), FIT_EPSILONS, share=0.05)


def _opendp(pair: Neighbours, epsilons: Sequence[Fraction]) -> Iterator[Audit]:
    for what in ("class counts", "cells"):
        yield from (Audit(Counting(what, noise="opendp"), pair, epsilon, share=0.25) for epsilon in epsilons)


# ---- Running -----------------------------------------------------------------------------------------------------


def run_suite(
    level: str = "full", runs: int | None = None, jobs: int = 1, *, progress: bool = False
) -> list[Finding]:
    """Run all audits of a level; that any of them alarms falsely has probability at most 1e-6.

    `runs` is the number of selections on each neighbour. The findings do not depend on `jobs`, but for what cannot be
    repeated: whole fits and studies, which draw cryptographic noise, and OpenDP's. Twins are no alarms, so they take
    no part in the union bound.
    """
    audits = suite(level)
    confidence = suite_confidence(len(audits), FALSE_ALARM)
    n_runs = RUNS[level] if runs is None else runs
    found = _run_all(audits, n_runs, confidence, jobs)
    if progress:
        from rich.console import Console
        from rich.progress import track

        found = iter(track(found, description="auditing", total=len(audits), console=Console(stderr=True)))
    return list(found)


def _run_all(audits: Sequence[Audit], runs: int, confidence: float, jobs: int) -> Iterator[Finding]:
    if jobs == 1:
        return (audit.examine(runs, confidence, seed) for seed, audit in enumerate(audits))
    import joblib  # type: ignore[import-untyped, unused-ignore]

    parallel = joblib.Parallel(n_jobs=jobs, return_as="generator")
    found: Iterator[Finding] = parallel(
        joblib.delayed(audit.examine)(runs, confidence, seed) for seed, audit in enumerate(audits)
    )
    return found
