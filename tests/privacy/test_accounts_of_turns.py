"""Holders take turns: what is asked follows from answers alone, and every holder pays for what it is asked itself.

All noise is seeded, so every test passes or fails for good.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from fractions import Fraction

import numpy as np
import pytest

from hedgerow import BudgetExceeded, Numeric, Schema
from hedgerow.budget import GRAINS
from hedgerow.encoding import encode, encode_labels
from hedgerow.holder.counts import GroupedRows
from hedgerow.holder.holder import Holder
from hedgerow.learner.coordinator import Coordinator
from hedgerow.learner.planning import Wishes, make_plan
from hedgerow.learner.turns import TurnsStudy
from hedgerow.messages import CountForks, CountLabels, Grow, NominateAndCount, NominateForks, Query
from hedgerow.network import Traffic
from hedgerow.network.local import LocalNetwork
from hedgerow.privacy.ledger import Ledger
from hedgerow.privacy.noise import SeededNoise
from hedgerow.repeated import IntArray
from hedgerow.tree import Tree

SCHEMA = Schema([Numeric(f"x{i}", 0, 1, 7) for i in range(4)], label="y", classes=[0, 1])
SIZES = (1500, 900, 1200)
EPSILON = Fraction(3)
Round = tuple[list[Grow], Mapping[int, Query], dict[int, IntArray]]


def holders(seed: int = 0, sizes: tuple[int, ...] = SIZES, grant: Fraction = EPSILON) -> list[Holder]:
    rng = np.random.default_rng(seed)
    made = []
    for i, n in enumerate(sizes):
        values = rng.random((n, 4))
        labels = ((values[:, 0] > 0.5) ^ (values[:, 1] > 0.4)) | (rng.random(n) < 0.1)
        rows = GroupedRows(encode(values, SCHEMA), encode_labels(labels * 1, SCHEMA), SCHEMA)
        made.append(Holder(rows, SeededNoise(10 * seed + i), Ledger(grant), max_rows=10_000))
    return made


class Recording(LocalNetwork):
    """Writes down what was announced, asked and answered, round by round."""

    def __init__(self, asked: list[Holder]) -> None:
        super().__init__(asked)
        self.rounds: list[Round] = []
        self._announced: list[Grow] = []

    def announce(self, growth: Grow) -> None:
        self._announced.append(growth)
        super().announce(growth)

    def ask_each(self, queries: Mapping[int, Query]) -> dict[int, IntArray]:
        answers = super().ask_each(queries)
        self.rounds.append((self._announced, queries, {holder: answers[holder].copy() for holder in answers}))
        self._announced = []
        return answers


class Replaying:
    """No holders and no rows: the answers of another study, to whatever is asked."""

    def __init__(self, rounds: list[Round]) -> None:
        self.rounds: list[Round] = []
        self._old = iter(rounds)
        self._announced: list[Grow] = []
        self.traffic = Traffic(holders=len(SIZES))
        self.n_holders = len(SIZES)

    def announce(self, growth: Grow) -> None:
        self._announced.append(growth)

    def ask(self, query: Query) -> list[IntArray]:
        return list(self.ask_each(dict.fromkeys(range(self.n_holders), query)).values())

    def ask_each(self, queries: Mapping[int, Query]) -> dict[int, IntArray]:
        _, _, answers = next(self._old)
        self.rounds.append((self._announced, queries, answers))
        self._announced = []
        return answers


def learn(network: LocalNetwork | Replaying, max_splits: int = 20, selector: str = "auto") -> Tree:
    wishes = Wishes(
        EPSILON, n_holders=3, method="turns", max_splits=max_splits, selector=selector, max_rows=10_000
    )
    tree, _ = Coordinator(network).learn(SCHEMA, make_plan(SCHEMA, wishes))
    return tree


def plain(rounds: list[Round]) -> list[object]:
    """What was announced and asked, to be compared."""

    def fields(value: Grow | Query) -> list[object]:
        return [
            type(value).__name__,
            *(field if isinstance(field, str | int) else list(field) for field in vars(value).values()),
        ]

    return [
        [
            [fields(growth) for growth in announced],
            {holder: fields(asked) for holder, asked in queries.items()},
        ]
        for announced, queries, _ in rounds
    ]


@pytest.mark.parametrize("seed", range(4))
def test_what_is_asked_of_whom_and_at_which_price_follows_from_answers_alone(seed: int) -> None:
    """The same answers, without any rows behind them: the same questions, announcements and tree."""
    recorded = Recording(holders(seed))
    tree = learn(recorded)
    replayed = Replaying(recorded.rounds)
    again = learn(replayed)
    assert plain(replayed.rounds) == plain(recorded.rounds)
    assert np.array_equal(again.split, tree.split)
    assert np.array_equal(again.counts, tree.counts)
    kinds = {type(query) for _, queries, _ in recorded.rounds for query in queries.values()}
    assert kinds >= {CountLabels, NominateForks, CountForks}


@pytest.mark.parametrize("selector", ["auto", "permute_and_flip"])
@pytest.mark.parametrize("seed", range(4))
def test_a_split_is_chosen_by_one_holder_and_only_it_pays_for_the_choice(seed: int, selector: str) -> None:
    """Which splits the others count is what it has chosen."""
    network = Recording(asked := holders(seed))
    learn(network, selector=selector)
    chosen: dict[int, list[int]] = {}
    n_choices, n_counted = [0] * len(asked), 0
    for _, queries, answers in network.rounds:
        for holder, query in queries.items():
            if isinstance(query, NominateAndCount):
                n_splits = 3 if isinstance(query, NominateForks) else 1
                for node, splits in zip(
                    query.nodes.tolist(), answers[holder][:, :n_splits].tolist(), strict=True
                ):
                    assert node not in chosen
                    chosen[node] = [*splits, -1, -1][:3]
                n_choices[holder] += len(query.nodes)
            elif isinstance(query, CountForks):
                assert query.forks.tolist() == [chosen[node] for node in query.nodes.tolist()]
                n_counted += len(query.nodes)
    assert n_counted >= len(chosen) > 5
    booked = [sum("choice" in entry.what for entry in holder.ledger.entries) for holder in asked]
    assert booked == n_choices


class Spied(TurnsStudy):
    """Compares accounts when the tree is grown, before its leaves are labelled."""

    asked: list[Holder]
    compared = 0

    def label(self) -> None:
        parents = self.growth.nodes["parent"].tolist()
        for number, holder in enumerate(self.asked):
            paid = [Fraction(0)] * len(parents)
            for entry in holder.ledger.entries:
                paid[entry.part] += Fraction(entry.epsilon)
            for node, parent in enumerate(parents):
                paid[node] += paid[parent] if node else 0
                remaining = int(self._by_holder.nodes["remaining"][node, number])
                assert EPSILON * Fraction(remaining, GRAINS) == EPSILON - paid[node]
                Spied.compared += 1
        super().label()


@pytest.mark.parametrize("selector", ["auto", "permute_and_flip"])
@pytest.mark.parametrize("seed", range(4))
def test_the_coordinator_books_for_every_holder_what_the_holders_ledger_books(
    seed: int, selector: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """At every node, to the last grain; and each holder's ledger is its own."""
    monkeypatch.setattr("hedgerow.learner.coordinator.TurnsStudy", Spied)
    monkeypatch.setattr(Spied, "compared", 0)
    Spied.asked = holders(seed)
    learn(LocalNetwork(Spied.asked), selector=selector)
    assert Spied.compared > 30
    spent = [holder.ledger.spent for holder in Spied.asked]
    assert all(Fraction(9, 10) * EPSILON <= each <= EPSILON for each in spent)


def choices_are_free(study: TurnsStudy, monkeypatch: pytest.MonkeyPatch) -> None:
    real = TurnsStudy._choose

    def forgetful(self, nodes, turns):  # type: ignore[no-untyped-def]
        chosen = real(self, nodes, turns)
        done = np.flatnonzero(chosen)
        self._by_holder.nodes["remaining"][nodes[done], turns.chooser[done]] += turns.select[done]
        return chosen

    monkeypatch.setattr(study, "_choose", forgetful)


def cells_are_free(study: TurnsStudy, monkeypatch: pytest.MonkeyPatch) -> None:
    real = TurnsStudy._keep

    def forgetful(self, nodes, forks, cells, counted, turns):  # type: ignore[no-untyped-def]
        before = self._by_holder.nodes["remaining"][nodes]
        real(self, nodes, forks, cells, counted, turns)
        self._by_holder.nodes["remaining"][nodes] = before

    monkeypatch.setattr(study, "_keep", forgetful)


def children_begin_anew(study: TurnsStudy, monkeypatch: pytest.MonkeyPatch) -> None:
    real = TurnsStudy.open_children

    def forgetful(self, nodes):  # type: ignore[no-untyped-def]
        children = real(self, nodes)
        self._by_holder.nodes["remaining"][children] = GRAINS
        return children

    monkeypatch.setattr(study, "open_children", forgetful)


@pytest.mark.parametrize("mistake", [choices_are_free, cells_are_free, children_begin_anew])
def test_a_coordinator_that_forgets_what_was_paid_is_refused(
    mistake: Callable[..., None], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its plan is no part of the guarantee: a holder answers no more than it has granted."""
    mistake(TurnsStudy, monkeypatch)
    asked = holders()
    with pytest.raises(BudgetExceeded):
        learn(LocalNetwork(asked))
    assert all(holder.ledger.spent <= EPSILON for holder in asked)
