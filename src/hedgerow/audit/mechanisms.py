"""What is audited: single questions to a holder, whole fits, studies of two holders."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Protocol

import numpy as np

from hedgerow.audit.evidence import NONE, Insider, Path, Transcript, overhear
from hedgerow.audit.neighbours import Encoded, Neighbours
from hedgerow.classifier import SimulatedTree
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
    CountForks,
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
from hedgerow.privacy.audit import Outcome
from hedgerow.privacy.ledger import Ledger
from hedgerow.privacy.noise import SECURE_NOISE, Noise, RepeatableNoise, SecureNoise, SeededNoise
from hedgerow.repeated import IntArray, Repeated
from hedgerow.tree import LEAF, Tree

RUNS_A_QUERY = 500
MOST_NUMBERS = 2  # of an answer that are shown to the auditor as they are
NEARLY_ALL, NEARLY_NOTHING = Fraction(9, 10), Fraction(1, 1000)
SIDE_BY_SIDE = 9  # times the price of the row's node is what a node beside it pays


class Mechanism(Protocol):
    """Releases something about a table, many times over."""

    @property
    def name(self) -> str:
        """For the report."""

    def spread(self, neighbours: Neighbours) -> str:
        """Over what the evidence of the row is spread, if it is."""

    def outcomes(
        self, neighbours: Neighbours, side: int, epsilon: Fraction, runs: int, seed: int
    ) -> list[Outcome]:
        """What `runs` independent runs on one of the neighbours release.

        The first entry of an outcome is the evidence of the row in all of it (see `Evidence`).
        """


# ---- One question ----------------------------------------------------------------------------------------------


Prices = Repeated[Fraction]
Ask = Callable[[IntArray, Prices], Query]


class _Together:
    """One release, or one that has nearly all of the price."""

    def spread(self, neighbours: Neighbours) -> str:
        """See `Mechanism.spread`."""
        del neighbours
        return ""


@dataclass(frozen=True)
class Selection(_Together):
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

        def query(nodes: IntArray, prices: Prices) -> Query:
            return Nominate(nodes, Repeated.one(self.criterion, len(nodes)), self.selector, prices)

        return _Questions(neighbours, side, seed).ask(query, epsilon, runs)


@dataclass(frozen=True)
class Choosing(_Together):
    """The choice of a split or of a fork with its cells, which get `for_cells` of the price.

    If both paid the same, it would not show that one is drawn at the price of the other.
    """

    what: str  # "split" or "fork"
    for_cells: Fraction
    criterion: Criterion = Criterion.gini
    at: str = "root"

    @property
    def name(self) -> str:
        """See `Mechanism.name`."""
        return f"a {self.what}, {self.criterion.name}, and its cells for {self.for_cells} of the {self.at}"

    def outcomes(
        self, neighbours: Neighbours, side: int, epsilon: Fraction, runs: int, seed: int
    ) -> list[Outcome]:
        """See `Mechanism.outcomes`."""

        def query(nodes: IntArray, prices: Prices) -> Query:
            return _choose(self.what, nodes, Repeated.one(self.criterion, len(nodes)), prices, self.for_cells)

        return _Questions(neighbours, side, seed, self.at).ask(query, epsilon, runs)


@dataclass(frozen=True)
class Mixing(_Together):
    """Two choices about the same node in one question, by two criteria; the first pays nearly all."""

    what: str  # "split" or "fork"
    criteria: tuple[Criterion, Criterion]

    @property
    def name(self) -> str:
        """See `Mechanism.name`."""
        first, second = (criterion.name for criterion in self.criteria)
        return f"two {self.what}s in one question, {first} for {NEARLY_ALL} and {second}"

    def outcomes(
        self, neighbours: Neighbours, side: int, epsilon: Fraction, runs: int, seed: int
    ) -> list[Outcome]:
        """See `Mechanism.outcomes`."""

        def query(nodes: IntArray, prices: Prices) -> Query:
            [price] = prices.items
            in_turn = np.tile([0, 1], len(nodes))
            shared = Repeated([price * NEARLY_ALL, price * (1 - NEARLY_ALL)], in_turn)
            criteria = Repeated(self.criteria, in_turn)
            return _choose(self.what, np.repeat(nodes, 2), criteria, shared, NEARLY_NOTHING)

        return _Questions(neighbours, side, seed).ask(query, epsilon, runs)


def _choose(
    what: str,
    nodes: IntArray,
    criteria: Sequence[Criterion],
    prices: Prices,
    for_cells: Fraction,
) -> Query:
    chooses, counts = (
        prices.map(lambda price: price * (1 - for_cells)),
        prices.map(lambda price: price * for_cells),
    )
    if what == "fork":
        return NominateForks(nodes, criteria, "exponential", chooses, counts)
    return NominateAndCount(nodes, criteria, "permute_and_flip", chooses, counts)


@dataclass(frozen=True)
class Counting:
    """Counts released by the holder, at the root or at both of its children."""

    what: str  # one of COUNTS
    at: str = "root"
    noise: str = "exact"

    @property
    def name(self) -> str:
        """See `Mechanism.name`."""
        noise = "" if self.noise == "exact" else f", {self.noise} noise"
        return f"{self.what} of the {self.at}{noise}"

    def spread(self, neighbours: Neighbours) -> str:
        """See `Mechanism.spread`."""
        schema = neighbours.schema
        kinds = {
            "cells of every split": len(schema.splits),
            "histograms of every column": len(schema.columns),
        }
        n = kinds.get(self.what, 1)
        return f"the row is spread over {n} counts, each with {n} times the noise of one" if n > 1 else ""

    def outcomes(
        self, neighbours: Neighbours, side: int, epsilon: Fraction, runs: int, seed: int
    ) -> list[Outcome]:
        """See `Mechanism.outcomes`. The noise of others than `exact` cannot be drawn again."""
        questions = _Questions(neighbours, side, seed, self.at, self.noise)
        return questions.ask(COUNTS[self.what], epsilon, runs)


def _count_cells(nodes: IntArray, prices: Prices) -> Query:
    return CountCells(nodes, np.zeros_like(nodes), prices)


def _count_forks(nodes: IntArray, prices: Prices) -> Query:
    """Cells of a fork of which one side is divided and the other is not."""
    return CountForks(nodes, np.zeros_like(nodes), np.ones_like(nodes), np.full_like(nodes, NONE), prices)


COUNTS: dict[str, Ask] = {
    "rows": CountRows,
    "class counts": CountLabels,
    "cells": _count_cells,
    "cells of a fork": _count_forks,
    "cells of every split": CountSplits,
    "histograms of every column": CountColumns,
}


@dataclass(frozen=True)
class _Questions:
    """One holder that is asked the same question again and again, and pays for each run."""

    neighbours: Neighbours
    side: int
    seed: int
    at: str = "root"
    noise: str = "exact"

    def ask(self, query: Ask, epsilon: Fraction, runs: int) -> list[Outcome]:
        """What the answers show of the row, and the first numbers of each."""
        insider, schema = Insider(self.neighbours), self.neighbours.schema
        paths: list[Path] = [()]
        nodes = np.array([ROOT])
        growth = None
        if self.at == "children":
            middle = len(schema.splits) // 2  # both sides can be divided further
            growth = Grow(nodes, np.array([middle]), first=1)
            paths += [((middle, 0),), ((middle, 1),)]
            nodes = np.array([1, 2])
        prices = Repeated.of([
            epsilon * (1 if insider.holds_row(paths[node]) else SIDE_BY_SIDE) for node in nodes.tolist()
        ])  # fmt: skip
        holder = _holder(self.neighbours, self.side, self._noise(), max(prices.items) * runs)
        if growth is not None:
            holder.grow(growth)
        released: list[Outcome] = []
        while len(released) < runs:
            n = min(RUNS_A_QUERY, runs - len(released))
            question = query(np.tile(nodes, n), Repeated(prices.items, np.tile(prices.which, n)))
            answer = holder.answer(question)
            shown = insider.evidence(paths, question, answer).outcomes(n)
            heads = answer.reshape(n, -1)[:, :MOST_NUMBERS].tolist()
            released += [(*evidence, *head) for evidence, head in zip(shown, heads, strict=True)]
        return released

    def _noise(self) -> Noise:
        """The samplers that protect people, on words that can be drawn again; OpenDP's draw their own."""
        if self.noise != "exact":
            return SECURE_NOISE[self.noise]
        [(tape, _)] = SeededNoise(self.seed).tapes(np.zeros(1, np.uint64))
        return RepeatableNoise(tape)


def _holder(neighbours: Neighbours, side: int, noise: Noise, grant: Fraction) -> Holder:
    rows = GroupedRows(*neighbours.sides[side], neighbours.schema)
    return Holder(rows, noise, Ledger(grant), neighbours.max_rows)


# ---- Whole fits and studies ------------------------------------------------------------------------------------


class _Spent:
    """Many releases."""

    def spread(self, neighbours: Neighbours) -> str:
        """See `Mechanism.spread`."""
        del neighbours
        return "epsilon is spread over all that is released on the way"


@dataclass(frozen=True)
class Fitting(_Spent):
    """A whole fit: what a reader of the model and of the ledger sees of it, and what the holder answered.

    With the cryptographic noise that protects people; seeded, what simulations draw instead.
    """

    method: str = "auto"
    selector: str = "auto"
    budget: str = "auto"
    criterion: str = "auto"
    leaf_fraction: float | None = None
    max_splits: int = 3
    noise: str = "exact"
    seeded: bool = False

    @property
    def name(self) -> str:
        """See `Mechanism.name`."""
        selects = self.method in {"auto", "select", "local"}
        details = [self.selector if selects else "auto", self.budget, self.criterion]
        told = [detail for detail in details if detail != "auto"] + ["seeded"] * self.seeded
        told += [] if self.leaf_fraction is None else [f"leaves for {self.leaf_fraction:g}"]
        told += [f"{self.noise} noise"] * (self.noise != "exact")
        return ", ".join([f"fit: {self.method}", *told])

    def outcomes(
        self, neighbours: Neighbours, side: int, epsilon: Fraction, runs: int, seed: int
    ) -> list[Outcome]:
        """See `Mechanism.outcomes`."""
        model = _OverheardTree(
            schema=neighbours.schema,
            epsilon=float(epsilon),
            method=self.method,
            selector=self.selector,
            budget=self.budget,
            criterion=self.criterion,
            leaf_fraction=self.leaf_fraction,
            max_splits=self.max_splits,
            max_rows=neighbours.max_rows,
            neighbours="add-remove" if neighbours.replaced is None else "replace",
            noise=self.noise,
        )
        model.insider = Insider(neighbours)
        released = []
        for own_seed in _seeds(seed, runs):
            model.noise_seed = own_seed if self.seeded else None
            model.fit_codes(*neighbours.sides[side])
            seen = _seen(model.tree_, model.ledger_, neighbours.probe)
            released.append((*model.transcript.outcome(), *seen))
        return released


class _OverheardTree(SimulatedTree):
    """The learner that users have, with somebody listening to its one holder."""

    insider: Insider
    transcript: Transcript

    def _holders(self, tables: Sequence[GroupedRows]) -> list[Holder]:
        [holder] = super()._holders(tables)
        self.transcript = overhear(holder, self.insider)
        return [holder]


def _seen(tree: Tree, ledger: Ledger, probe: Codes) -> Outcome:
    """The size, the first split, the counts where the row would be and at the root, and all prices.

    Prices are an entry of their own, because adaptive budgets are decided by what was released before.
    """
    leaf, root = int(tree.apply(probe)[0]), int(tree.split[0])
    counts = np.rint(4 * np.concatenate([tree.counts[leaf], tree.counts[0]])).astype(int).tolist()
    prices = tuple(entry.epsilon for entry in ledger.entries)
    return (tree.n_leaves, root if root != LEAF else "leaf", *counts, str(hash(prices)))


@dataclass(frozen=True)
class Watching(_Spent):
    """A study of two holders as the coordinator sees it: every answer of the one whose row is in question."""

    method: str
    leaf_fraction: float | None = None
    max_splits: int = 3
    row_at: str = ""  # "chooser" or "counter", where holders take turns

    @property
    def name(self) -> str:
        """See `Mechanism.name`."""
        told = "" if self.leaf_fraction is None else f", leaves for {self.leaf_fraction:g}"
        told += f", the row is at the {self.row_at}" if self.row_at else ""
        splits = f", {self.max_splits} splits" if self.row_at and self.max_splits > 1 else ""
        return f"study of two holders: {self.method}{told}{splits}"

    def outcomes(
        self, neighbours: Neighbours, side: int, epsilon: Fraction, runs: int, seed: int
    ) -> list[Outcome]:
        """See `Mechanism.outcomes`."""
        schema, other = neighbours.schema, self._other(neighbours)
        max_rows = max(neighbours.max_rows, other[0].n_rows)
        plan = make_plan(schema, self._wishes(epsilon, max_rows))
        insider = Insider(neighbours)
        released = []
        for own_seed in _seeds(seed, runs):
            holders = [
                Holder(GroupedRows(*table, schema), noise, Ledger(epsilon), max_rows)
                for table, noise in (
                    (neighbours.sides[side], SecureNoise()),
                    (other, SeededNoise(own_seed)),
                )
            ]
            transcript = overhear(holders[0], insider)
            Coordinator(LocalNetwork(holders)).learn(schema, plan)
            released.append(transcript.outcome())
        return released

    def _other(self, neighbours: Neighbours) -> Encoded:
        """The other holder's rows: a few of both classes; so many that it chooses; or half as many, so that it counts.

        Who chooses is decided by noisy numbers of rows. A chooser's own rows may all be of one class: with the other's, of
        class 0, it is worth choosing.
        """
        schema, n_rows = neighbours.schema, len(neighbours.table)
        n = {"counter": 500 + 4 * n_rows, "chooser": 4 + n_rows // 2}.get(self.row_at, 8)
        values = np.linspace(0, 1, n * len(schema.columns)).reshape(n, -1)
        labels = np.arange(n) % 2 if self.row_at != "chooser" else np.zeros(n, np.int64)
        return encode(values, schema), encode_labels(labels, schema)

    def _wishes(self, epsilon: Fraction, max_rows: int) -> Wishes:
        budget = "auto" if self.leaf_fraction is None else "uniform"
        return Wishes(
            epsilon,
            n_holders=2,
            method=self.method,
            budget=budget,
            leaf_fraction=self.leaf_fraction,
            max_splits=self.max_splits,
            max_rows=max_rows,
        )


def _seeds(seed: int, runs: int) -> list[int]:
    seeds: list[int] = np.random.SeedSequence(seed).generate_state(runs, np.uint64).tolist()
    return seeds
