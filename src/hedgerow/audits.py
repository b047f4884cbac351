"""The audit suite: the real learner on nasty neighbours, and the epsilon that an attacker can prove it costs.

Nothing here is a copy of what it audits: selections, counts and whole fits run the code that users run, the noise
that protects people included. (`noise="opendp"` is OpenDP's to audit.) The command line imports this module; nothing
else does.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from hedgerow.budget import SCHEDULES
from hedgerow.classifier import METHODS, PrivateTreeClassifier
from hedgerow.criteria import Criterion
from hedgerow.encoding import Codes, encode, encode_labels
from hedgerow.holder.counts import GroupedRows
from hedgerow.holder.holder import Holder
from hedgerow.learner.coordinator import Coordinator
from hedgerow.learner.planning import Wishes, make_plan
from hedgerow.messages import (
    ROOT,
    CountCells,
    CountColumns,
    CountLabels,
    CountRows,
    CountSplits,
    Grow,
    Nominate,
    NominateAndCount,
    NominateForks,
    Query,
)
from hedgerow.network.local import LocalNetwork
from hedgerow.privacy.audit import AuditResult, Outcome, audit_outcomes, suite_confidence
from hedgerow.privacy.ledger import Ledger
from hedgerow.privacy.noise import RepeatableNoise, SecureNoise, SeededNoise
from hedgerow.privacy.selectors import SELECTORS
from hedgerow.repeated import IntArray
from hedgerow.schema import Numeric, Schema
from hedgerow.tree import LEAF, Tree

FALSE_ALARM = 1e-6  # that any audit of a suite passes its epsilon although the code is private
EPSILONS = (Fraction(1, 10), Fraction(1), Fraction(5))
LEVELS = ("quick", "full")
RUNS_A_QUERY = 500
RUNS = {"quick": 8_000, "full": 40_000}  # selections a neighbour; what takes longer is run less often


# ---- Nasty neighbours ------------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class Neighbours:
    """Two tables that differ in one row: `row` is there or not; or stands in the place of `replaced`."""

    name: str
    schema: Schema
    table: NDArray[np.float64]  # the rows of both
    labels: NDArray[np.int64]
    row: tuple[float, ...]
    label: int
    replaced: tuple[tuple[float, ...], int] | None = None

    @cached_property
    def sides(self) -> tuple[tuple[Codes, NDArray[Any]], tuple[Codes, NDArray[Any]]]:
        """Both tables, encoded: without the row (or with the one it replaces), and with it."""
        without = (self.table, self.labels) if self.replaced is None else self._with(*self.replaced)
        first, second = (
            (encode(table, self.schema), encode_labels(labels, self.schema))
            for table, labels in (without, self._with(self.row, self.label))
        )
        return first, second

    @property
    def max_rows(self) -> int:
        """The least bound that holds for both (and with which there is anything to learn)."""
        return max(len(self.table) + 1, 2)

    @cached_property
    def probe(self) -> Codes:
        """The row alone: where an attacker looks."""
        return encode(np.array([self.row]), self.schema)

    def _with(self, row: tuple[float, ...], label: int) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
        return np.vstack([self.table, row]), np.append(self.labels, label)


def _columns(count: int, n_classes: int = 2, thresholds: int = 1) -> Schema:
    columns = [Numeric(f"x{i:03d}", low=0, high=1, thresholds=thresholds) for i in range(count)]
    return Schema(columns, label="y", classes=list(range(n_classes)))


def _pure(name: str, columns: int, alone_in: int, *, rows: int = 99, label: int = 0) -> Neighbours:
    """All rows are alike and of class 1; the new row is beside nobody in the last `alone_in` columns.

    A candidate on one of those keeps its score. On the others it falls by D, if the row is of another class.
    """
    row = (0.0,) * (columns - alone_in) + (1.0,) * alone_in
    schema = _columns(columns)
    return Neighbours(name, schema, np.zeros((rows, columns)), np.ones(rows, np.int64), row, label)


def catalogue() -> list[Neighbours]:
    """Pairs of tables on which a mistake would show."""
    rng = np.random.default_rng(0)
    three = (rng.random((30, 3)) < 0.5).astype(float)
    close = np.repeat([[0.0, 0.0], [0.0, 1.0], [1.0, 0.0], [1.0, 1.0]], [8, 4, 4, 8], axis=0)
    ladder = np.linspace(0, 0.7, 20).reshape(-1, 1)
    ones = np.ones(99, np.int64)
    return [
        _pure("first of its class, 1 of 4 candidates falls", 4, 3),
        _pure("first of its class, 3 of 4 candidates fall", 4, 1),
        _pure("first of its class, 1 of 10 candidates stays", 10, 1),
        _pure("first of its class, 10 candidates fall together", 10, 0),
        _pure("first of its class, 100 candidates fall together", 100, 0),
        _pure("one more row in a pure node", 4, 1, label=1),
        _pure("first row of an empty table", 4, 2, rows=0),
        _pure("second row of a table", 4, 2, rows=1),
        Neighbours("only row of one of three classes", _columns(3, 3), three, (three[:, 0] > 0) * 1, (0, 1, 1), 2),
        Neighbours(
            "best candidate changes", _columns(2), close, np.repeat([0, 1, 0, 1], [8, 4, 4, 8]), (0, 1), 0
        ),
        Neighbours("row alone beyond a threshold", _columns(1, thresholds=8), ladder, np.arange(20) % 2, (1.0,), 0),
        Neighbours(
            "row replaced in a pure node", _columns(4), np.zeros((99, 4)), ones, (0, 1, 1, 1), 0, ((1, 0, 0, 0), 0)
        ),
    ]  # fmt: skip


# ---- What is audited -------------------------------------------------------------------------------------------


class Mechanism(Protocol):
    """Releases something about a table, many times over."""

    @property
    def name(self) -> str:
        """For the report."""

    def outcomes(
        self, neighbours: Neighbours, side: int, epsilon: Fraction, runs: int, seed: int
    ) -> list[Outcome]:
        """What `runs` independent runs on one of the neighbours release."""


@dataclass(frozen=True)
class Selection:
    """The choice of a split by the holder, at the root."""

    selector: str
    criterion: Criterion

    @property
    def name(self) -> str:
        """See `Mechanism.name`."""
        return f"{self.selector}, {self.criterion.name}"

    def outcomes(
        self, neighbours: Neighbours, side: int, epsilon: Fraction, runs: int, seed: int
    ) -> list[Outcome]:
        """See `Mechanism.outcomes`."""

        def query(nodes: IntArray, epsilons: Sequence[Fraction]) -> Query:
            return Nominate(nodes, [self.criterion] * len(nodes), self.selector, epsilons)

        return _asked(_holder(neighbours, side, epsilon * runs, seed), np.array([ROOT]), query, epsilon, runs)


@dataclass(frozen=True)
class Forking:
    """The choice of a fork by the holder, at the root; its cells cost a thousandth, and are not looked at."""

    criterion: Criterion

    @property
    def name(self) -> str:
        """See `Mechanism.name`."""
        return f"forks, {self.criterion.name}"

    def outcomes(
        self, neighbours: Neighbours, side: int, epsilon: Fraction, runs: int, seed: int
    ) -> list[Outcome]:
        """See `Mechanism.outcomes`."""

        def query(nodes: IntArray, epsilons: Sequence[Fraction]) -> Query:
            return _fork(nodes, epsilons, self.criterion, Fraction(1, 1000))

        holder = _holder(neighbours, side, epsilon * runs, seed)
        return [outcome[:3] for outcome in _asked(holder, np.array([ROOT]), query, epsilon, runs)]


def _fork(
    nodes: IntArray, epsilons: Sequence[Fraction], criterion: Criterion, for_cells: Fraction
) -> NominateForks:
    chooses, counts = ([epsilon * share for epsilon in epsilons] for share in (1 - for_cells, for_cells))
    return NominateForks(nodes, [criterion] * len(nodes), "exponential", chooses, counts)


@dataclass(frozen=True)
class Counting:
    """Counts released by the holder, at the root or at both of its children."""

    what: str  # one of COUNTS
    at: str = "root"

    @property
    def name(self) -> str:
        """See `Mechanism.name`."""
        return f"{self.what} of the {self.at}"

    def outcomes(
        self, neighbours: Neighbours, side: int, epsilon: Fraction, runs: int, seed: int
    ) -> list[Outcome]:
        """See `Mechanism.outcomes`."""
        holder = _holder(neighbours, side, epsilon * runs, seed)
        if self.at == "children":
            middle = len(neighbours.schema.splits) // 2  # both sides can be divided further
            holder.grow(Grow(np.array([ROOT]), np.array([middle]), first=1))
        nodes = np.array([ROOT] if self.at == "root" else [1, 2])
        return _asked(holder, nodes, COUNTS[self.what], epsilon, runs)


Ask = Callable[[IntArray, Sequence[Fraction]], Query]


def _holder(neighbours: Neighbours, side: int, grant: Fraction, seed: int) -> Holder:
    rows = GroupedRows(*neighbours.sides[side], neighbours.schema)
    [(tape, _)] = SeededNoise(seed).tapes(np.zeros(1, np.uint64))
    return Holder(rows, RepeatableNoise(tape), Ledger(grant), neighbours.max_rows)


def _asked(holder: Holder, nodes: IntArray, query: Ask, epsilon: Fraction, runs: int) -> list[Outcome]:
    """One holder is asked again and again, and pays for each run."""
    released: list[Outcome] = []
    while len(released) < runs:
        n = min(RUNS_A_QUERY, runs - len(released))
        answer = holder.answer(query(np.tile(nodes, n), [epsilon] * (n * len(nodes))))
        released += map(tuple, answer.reshape(n, -1).tolist())
    return released


def _count_cells(nodes: IntArray, epsilons: Sequence[Fraction]) -> Query:
    return CountCells(nodes, np.zeros_like(nodes), epsilons)


def _choose_and_count(nodes: IntArray, epsilons: Sequence[Fraction]) -> Query:
    halves = [epsilon / 2 for epsilon in epsilons]
    return NominateAndCount(nodes, [Criterion.gini] * len(nodes), "permute_and_flip", halves, halves)


def _fork_and_count(nodes: IntArray, epsilons: Sequence[Fraction]) -> Query:
    return _fork(nodes, epsilons, Criterion.gini, Fraction(1, 2))


COUNTS: dict[str, Ask] = {
    "rows": CountRows,
    "class counts": CountLabels,
    "cells": _count_cells,
    "a choice and its cells": _choose_and_count,
    "a fork and its cells": _fork_and_count,
    "cells of every split": CountSplits,
    "histograms of every column": CountColumns,
}


@dataclass(frozen=True)
class Fitting:
    """A whole fit: what a reader of the model and of the ledger sees of it.

    With the cryptographic noise that protects people; seeded, what simulations draw instead.
    """

    method: str = "auto"
    selector: str = "auto"
    budget: str = "auto"
    criterion: str = "auto"
    seeded: bool = False

    @property
    def name(self) -> str:
        """See `Mechanism.name`."""
        selects = self.method in {"auto", "select", "local"}
        details = [self.selector if selects else "auto", self.budget, self.criterion]
        told = [detail for detail in details if detail != "auto"] + ["seeded"] * self.seeded
        return ", ".join([f"fit: {self.method}", *told])

    def outcomes(
        self, neighbours: Neighbours, side: int, epsilon: Fraction, runs: int, seed: int
    ) -> list[Outcome]:
        """See `Mechanism.outcomes`."""
        model = PrivateTreeClassifier(
            schema=neighbours.schema,
            epsilon=float(epsilon),
            method=self.method,
            selector=self.selector,
            budget=self.budget,
            criterion=self.criterion,
            max_splits=3,
            max_rows=neighbours.max_rows,
            neighbours="add-remove" if neighbours.replaced is None else "replace",
        )
        released = []
        for own_seed in _seeds(seed, runs):
            model.noise_seed = own_seed if self.seeded else None
            model.fit_codes(*neighbours.sides[side])
            released.append(_seen(model.tree_, model.ledger_, neighbours.probe))
        return released


def _seen(tree: Tree, ledger: Ledger, probe: Codes) -> Outcome:
    """The first splits, the counts at the root and where the row would be, sizes, and all prices.

    Prices are an entry of their own, because adaptive budgets are decided by what was released before.
    """
    leaf = int(tree.apply(probe)[0])
    root = int(tree.split[0])
    below = [int(tree.split[child[0]]) if root != LEAF else LEAF for child in (tree.left, tree.right)]
    counts = np.rint(4 * np.concatenate([tree.counts[leaf], tree.counts[0]])).astype(int).tolist()
    prices = tuple(entry.epsilon for entry in ledger.entries)
    return (tree.n_leaves, root, *below, *counts, int(tree.counts[leaf].argmax()), str(hash(prices)))


@dataclass(frozen=True)
class Watching:
    """A study of two holders as the coordinator sees it: every answer of the one whose row is in question."""

    method: str

    @property
    def name(self) -> str:
        """See `Mechanism.name`."""
        return f"study of two holders: {self.method}"

    def outcomes(
        self, neighbours: Neighbours, side: int, epsilon: Fraction, runs: int, seed: int
    ) -> list[Outcome]:
        """See `Mechanism.outcomes`. The other holder has a few rows of both classes."""
        schema, max_rows = neighbours.schema, max(neighbours.max_rows, 8)
        others = np.linspace(0, 1, 8 * len(schema.columns)).reshape(8, -1)
        other = encode(others, schema), encode_labels(np.arange(8) % 2, schema)
        plan = make_plan(
            schema, Wishes(epsilon, n_holders=2, method=self.method, max_splits=3, max_rows=max_rows)
        )
        released = []
        for own_seed in _seeds(seed, runs):
            holders = [
                Holder(GroupedRows(*table, schema), noise, Ledger(epsilon), max_rows)
                for table, noise in (
                    (neighbours.sides[side], SecureNoise()),
                    (other, SeededNoise(own_seed)),
                )
            ]
            network = _Overheard(holders)
            Coordinator(network).learn(schema, plan)
            released.append(network.heard())
        return released


class _Overheard(LocalNetwork):
    """Writes down what the first holder answers."""

    def __init__(self, holders: Sequence[Holder]) -> None:
        super().__init__(holders)
        self._answers: list[int] = []

    def ask(self, query: Query) -> list[IntArray]:
        """See `Network.ask`."""
        answers = super().ask(query)
        self._answers += answers[0].ravel().tolist()
        return answers

    def heard(self) -> Outcome:
        """The number of rounds and answers, and the first and the last answers: a fixed number of entries."""
        padded = [*self._answers[:12], *[0] * (12 - len(self._answers)), *self._answers[-4:]]
        return (self.traffic.rounds, len(self._answers), *padded)


def _seeds(seed: int, runs: int) -> list[int]:
    seeds: list[int] = np.random.SeedSequence(seed).generate_state(runs, np.uint64).tolist()
    return seeds


# ---- The suite ---------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Audit:
    """One mechanism on one pair of neighbours, and the epsilon that it claims."""

    mechanism: Mechanism
    neighbours: Neighbours
    epsilon: Fraction
    share: float = 1.0  # of the suite's runs: what is slow is run less often

    def run(self, runs: int, confidence: float, seed: int = 0) -> Finding:
        """Bound the true epsilon from below."""
        runs = max(8, round(runs * self.share))
        first, second = (
            self.mechanism.outcomes(self.neighbours, side, self.epsilon, runs, 2 * seed + side)
            for side in (0, 1)
        )
        return Finding(self, audit_outcomes((first, second), confidence))


@dataclass(frozen=True)
class Finding:
    """What an audit found."""

    audit: Audit
    result: AuditResult

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
        }


def suite(level: str = "full") -> list[Audit]:
    """All audits of a level: "full" leaves nothing out, "quick" takes the worst neighbours at epsilon 1."""
    if level not in LEVELS:
        raise ValueError(f"level={level!r}; choose one of {', '.join(map(repr, LEVELS))}.")
    every = catalogue()
    one_more = [pair for pair in every if pair.replaced is None]
    ways = [
        Fitting(selector=selector, budget=budget) for selector in SELECTORS for budget in ("auto", *SCHEDULES)
    ]
    ways.append(Fitting())
    ways += [Fitting(method=method) for method in METHODS if method != "auto"]
    if level == "full":
        fits = _fits(every, ways, EPSILONS, share=0.05)
        studies = _studies(one_more, EPSILONS, share=0.05)
        return [*_selections(one_more, EPSILONS), *_counts(one_more, EPSILONS), *fits, *studies]
    one = EPSILONS[1:2]
    worst, first_row = [every[0], every[1]], [pair for pair in every if "empty table" in pair.name]
    ways = [Fitting(), Fitting(method="paper"), Fitting(method="noisy_columns")]
    fits = _fits([worst[0], *first_row], ways, one, share=0.15)
    studies = _studies(first_row, one, share=0.15)
    return [*_selections([*worst, *first_row], one), *_counts([worst[0], *first_row], one), *fits, *studies]


def _selections(pairs: Sequence[Neighbours], epsilons: Sequence[Fraction]) -> Iterator[Audit]:
    for pair in pairs:
        for criterion in Criterion:
            if criterion is Criterion.root_gini and pair.schema.n_classes != 2:
                continue
            for selector in SELECTORS:
                for epsilon in epsilons:
                    yield Audit(Selection(selector, criterion), pair, epsilon)
            for epsilon in epsilons:
                yield Audit(Forking(criterion), pair, epsilon)


def _counts(pairs: Sequence[Neighbours], epsilons: Sequence[Fraction]) -> Iterator[Audit]:
    for pair in pairs:
        for at in ("root", "children"):
            for what in COUNTS:
                if what.startswith(("cells of every", "histograms")) and len(pair.schema.splits) > 10:
                    continue  # hundreds of counts, each with hundreds of times the noise: slow, and nothing to see
                for epsilon in epsilons:
                    yield Audit(Counting(what, at), pair, epsilon, share=0.25)


def _studies(pairs: Sequence[Neighbours], epsilons: Sequence[Fraction], share: float) -> Iterator[Audit]:
    for pair in pairs:
        if len(pair.schema.splits) <= 10:
            for method in ("local", "noisy_counts", "noisy_columns"):
                for epsilon in epsilons:
                    yield Audit(Watching(method), pair, epsilon, share)


def _fits(
    pairs: Sequence[Neighbours], ways: Sequence[Fitting], epsilons: Sequence[Fraction], share: float
) -> Iterator[Audit]:
    names = ("1 of 4", "empty table", "second row", "best candidate", "beyond a threshold", "replaced")
    for pair in pairs:
        if any(name in pair.name for name in names):
            for way in ways:
                for epsilon in epsilons:
                    yield Audit(way, pair, epsilon, share)


def run_suite(
    level: str = "full", runs: int | None = None, jobs: int = 1, *, progress: bool = False
) -> list[Finding]:
    """Run all audits of a level; that any of them alarms falsely has probability at most 1e-6.

    `runs` is the number of selections on each neighbour. The findings do not depend on `jobs`.
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
        return (audit.run(runs, confidence, seed) for seed, audit in enumerate(audits))
    import joblib  # type: ignore[import-untyped, unused-ignore]

    parallel = joblib.Parallel(n_jobs=jobs, return_as="generator")
    found: Iterator[Finding] = parallel(
        joblib.delayed(audit.run)(runs, confidence, seed) for seed, audit in enumerate(audits)
    )
    return found
