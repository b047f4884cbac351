"""The desk: a request is taken as a whole or not at all, answered once, and repeated byte for byte."""

from __future__ import annotations

import logging
import math
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from hedgerow import Categorical, InvalidTable, Numeric, Schema, SchemaMismatch
from hedgerow.criteria import Criterion
from hedgerow.encoding import encode, encode_labels
from hedgerow.errors import InvalidStore, Refused
from hedgerow.holder.counts import GroupedRows
from hedgerow.holder.desk import QUERIES, Desk, Memory, StudyGrant
from hedgerow.holder.holder import MOST_DEPTH, Holder, shape_of
from hedgerow.messages import (
    Answer,
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
    Refusal,
    Request,
    from_bytes,
    to_bytes,
)
from hedgerow.privacy.ledger import Epsilon, Ledger
from hedgerow.privacy.noise import Noise, SeededNoise
from hedgerow.privacy.selectors import SELECTORS

SCHEMA = Schema([Numeric("x", 0, 1, 3), Categorical("c", ["a", "b"])], label="y", classes=["no", "yes"])
THIRD = Fraction(1, 3)


def rows(n_rows: int = 60, seed: int = 0) -> GroupedRows:
    rng = np.random.default_rng(seed)
    values = np.empty((n_rows, 2), dtype=object)
    values[:, 0], values[:, 1] = rng.random(n_rows), rng.choice(["a", "b"], n_rows)
    labels = encode_labels(rng.choice(["no", "yes"], n_rows), SCHEMA)
    return GroupedRows(encode(values, SCHEMA), labels, SCHEMA)


def desk(grant: Epsilon = Fraction(1), noise: Noise | None = None, journal: Any = None) -> Desk:
    holder = Holder(rows(), noise or SeededNoise(1), Ledger(grant), max_rows=1000)
    return Desk("study", holder, journal)


def growth(node: int = 0, split: int = 1, first: int = 1) -> Grow:
    return Grow(np.array([node]), np.array([split]), first)


def rows_at(*nodes: int, price: Epsilon = THIRD) -> CountRows:
    return CountRows(np.array(nodes), [price] * len(nodes))


def ask(at: Desk, query: Query, name: str = "a", grow: Grow | None = None) -> Answer | Refusal:
    reply = from_bytes(at.handle(to_bytes(Request("study", name, grow, query))))
    assert isinstance(reply, Answer | Refusal)
    assert (reply.study, reply.identifier) == ("study", name)
    return reply


def refused(reply: Answer | Refusal, reason: str) -> bool:
    return isinstance(reply, Refusal) and reason in reply.reason


def state(at: Desk) -> tuple[Any, ...]:
    holder = at.holder
    account = (holder.ledger.to_json(), holder.ledger._sums.tolist(), holder.ledger._children.tolist())
    return (
        *account,
        holder._paths.parent.tolist(),
        holder._paths.split.tolist(),
        *map(str, vars(holder._keys).values()),
        holder._rows._ranges.tolist(),
    )


# ---- Once, and the same again ---------------------------------------------------------------------------------------


def test_a_request_that_is_repeated_gets_the_same_bytes_and_costs_nothing() -> None:
    at = desk()
    data = to_bytes(Request("study", "a", growth(), rows_at(1, 2)))
    first = at.handle(data)
    before = state(at)
    assert [at.handle(data) for _ in range(3)] == [first] * 3
    assert state(at) == before
    assert at.holder.ledger.spent == THIRD


def test_a_name_stands_for_one_request() -> None:
    at = desk()
    ask(at, rows_at(0))
    before = state(at)
    for other in (rows_at(0, price=Fraction(1, 4)), rows_at(0, 0), CountLabels(np.array([0]), [THIRD])):
        assert refused(ask(at, other), "was used for another request")
    assert refused(ask(at, rows_at(0), grow=growth()), "was used for another request")
    assert state(at) == before


def test_another_study_is_not_served() -> None:
    at = desk()
    reply = from_bytes(at.handle(to_bytes(Request("other", "a", None, rows_at(0)))))
    assert isinstance(reply, Refusal)
    assert "not been granted" in reply.reason
    assert at.holder.ledger.entries == []


def test_answers_and_refusals_are_not_answered() -> None:
    at = desk()
    for message in (Answer("study", "a", np.array([1])), Refusal("study", "a", "no")):
        reply = from_bytes(at.handle(to_bytes(message)))
        assert isinstance(reply, Refusal)
        assert "only requests" in reply.reason


def test_a_request_from_many_threads_is_charged_once() -> None:
    at = desk()
    data = to_bytes(Request("study", "a", growth(), rows_at(1, 2)))
    with ThreadPoolExecutor(8) as pool:
        replies = set(pool.map(at.handle, [data] * 64))
    assert len(replies) == 1
    assert len(at.holder.ledger.entries) == 2


def test_a_request_waits_until_the_one_before_it_is_answered() -> None:
    """Or both could be found to cost no more than what is left. The second has half a second to come too early."""
    events: list[str] = []
    at = desk(journal=Diary(events))
    other = threading.Thread(target=lambda: ask(at, rows_at(0), "b"))
    noise = at.holder._noise

    class Slow:
        private = True

        def laplace(self, *arguments: Any) -> NDArray[np.int64]:
            if not events.count("answered") and other.ident is None:
                other.start()
                other.join(0.5)
            return noise.laplace(*arguments)

    at.holder._noise = Slow()  # type: ignore[assignment]
    ask(at, rows_at(0), "a")
    other.join()
    assert events == ["charged", "answered"] * 2


# ---- All or nothing -------------------------------------------------------------------------------------------------

NODE = np.array([0])
TINY, HUGE = Fraction(1, 10**60), Fraction(10**60)
SENSELESS: dict[str, tuple[Query, str]] = {
    "an unknown node": (rows_at(7), "node 7 does not exist"),
    "an unknown node among known ones": (rows_at(0, 1, 7), "node 7 does not exist"),
    "too dear": (rows_at(0, price=Fraction(2)), "above the granted"),
    "too dear together": (rows_at(0, 1, 0, 1, 0), "above the granted"),
    "too dear by far": (rows_at(0, price=HUGE), "above the granted"),
    "too little at one of two": (CountRows(np.array([0, 0]), [THIRD, TINY]), "so small"),
    "infinitely dear": (rows_at(0, price=math.inf), "above the granted"),
    "a split that there is not": (CountCells(NODE, np.array([5]), [THIRD]), "not in the schema"),
    "a fork of a split that there is not": (CountForks(NODE, np.array([5]), NODE, NODE, [THIRD]), "not in the schema"),
    "a left side by a split that there is not": (CountForks(NODE, NODE, np.array([5]), NODE, [THIRD]), "not in the schema"),
    "a right side by a split that there is not": (CountForks(NODE, NODE, NODE - 1, np.array([5]), [THIRD]), "not in the schema"),
    "one of two forks by a split that there is not": (
        CountForks(np.zeros(2, int), np.zeros(2, int), np.array([-1, 5]), np.zeros(2, int), [THIRD] * 2), "not in the schema",
    ),
    "a fork of an unknown node": (CountForks(np.array([7]), NODE, NODE, NODE, [THIRD]), "node 7 does not exist"),
    "a fork too dear": (CountForks(NODE, NODE, NODE - 1, NODE - 1, [Fraction(2)]), "above the granted"),
    "too little for the cells of a fork": (CountForks(NODE, NODE, NODE, NODE, [TINY]), "so small"),
    "a selector that there is not": (Nominate(NODE, [Criterion.gini], "best", [THIRD]), "no selector"),
    "too little for rows": (rows_at(0, price=TINY), "so small"),
    "too little for class counts": (CountLabels(NODE, [TINY]), "so small"),
    "too little for cells": (CountCells(NODE, NODE, [TINY]), "so small"),
    "too little for the cells of a choice": (NominateAndCount(NODE, [Criterion.gini], "exponential", [THIRD], [TINY]), "so small"),
    "too little for a choice with cells": (NominateAndCount(NODE, [Criterion.gini], "exponential", [TINY], [THIRD]), "so small"),
    "cells of a choice infinitely dear": (NominateAndCount(NODE, [Criterion.gini], "exponential", [THIRD], [math.inf]), "above the granted"),
    "too little for cells of every split": (CountSplits(NODE, [TINY]), "so small"),
    "too little for histograms": (CountColumns(NODE, [TINY]), "so small"),
    "enough for one split, too little for every one": (CountSplits(NODE, [Fraction(1, 2**42)]), "so small"),
    "enough for one column, too little for every one": (CountColumns(NODE, [Fraction(1, 2**43)]), "so small"),
    "enough for one criterion, too little for another": (Nominate(np.array([0, 0]), [Criterion.error, Criterion.root_gini], "exponential", [Fraction(1, 2**40)] * 2), "so small"),
    "enough for one node, too little for another": (CountRows(np.array([0, 0]), [THIRD, Fraction(1, 2**44)]), "so small"),
    "little enough for one sampler": (rows_at(0, price=Fraction(1, 2**44)), "so small"),
    **{
        f"too little for {selector}": (Nominate(NODE, [Criterion.gini], selector, [TINY]), "so small")
        for selector in SELECTORS
    },
}  # fmt: skip


@pytest.mark.parametrize("what", SENSELESS)
def test_a_refused_request_changes_nothing_not_even_the_tree(what: str) -> None:
    """The announcement that came with it is forgotten too, or the tree would be another after a restart."""
    query, reason = SENSELESS[what]
    at = desk()
    before = state(at)
    assert refused(ask(at, query, grow=growth()), reason)
    assert state(at) == before
    assert isinstance(ask(at, rows_at(1, 2), grow=growth(split=2)), Answer)


def test_an_answer_too_long_for_a_message_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("hedgerow.holder.holder.MOST_BYTES", 16 * 20 * 3)  # three nodes' cells of every split
    at = desk(Fraction(100))
    assert isinstance(ask(at, CountSplits(np.zeros(3, dtype=np.int64), [THIRD] * 3), "a"), Answer)
    before = state(at)
    query = CountSplits(np.zeros(4, dtype=np.int64), [THIRD] * 4)
    assert refused(ask(at, query, "b", growth()), "too long for a message")
    assert state(at) == before


def test_an_answer_has_the_shape_that_it_was_measured_by() -> None:
    for i, query in enumerate(ONE_OF_EACH.values()):
        reply = ask(desk(Fraction(100)), query, f"round-{i}")
        assert isinstance(reply, Answer)
        assert reply.values.shape == shape_of(query, SCHEMA)


def test_the_least_epsilon_that_is_served_has_noise_that_fits_an_answer() -> None:
    """Noise of scale 2**43 is above 2**53 with probability exp(-1024)."""
    at = desk()
    reply = ask(at, rows_at(0, price=Fraction(1, 2**43)))
    assert isinstance(reply, Answer)
    assert abs(int(reply.values[0, 0])) > 2**30  # below with probability 2**-12; the seed is fixed


def test_a_sum_with_endless_digits_is_refused() -> None:
    """Prices with coprime denominators of a thousand digits would keep a ledger of exact sums busy for hours."""
    at = desk()
    prices = [Fraction(1, 10**999 + odd) for odd in range(1, 40, 2)]
    reply = ask(at, CountRows(np.zeros(len(prices), dtype=np.int64), prices))
    assert refused(reply, "too many digits")
    assert at.holder.ledger.entries == []


def test_a_chain_of_splits_may_be_deep_but_not_endless() -> None:
    """The name of a node spells its path: a chain of a million nodes would need gigabytes."""
    at = desk(Fraction(10))
    for node in range(0, 2 * (MOST_DEPTH - 1), 2):
        at.holder.grow(growth(node, 0, node + 1))
    deepest = 2 * (MOST_DEPTH - 1)
    assert isinstance(ask(at, rows_at(0)), Answer)  # is charged to all of them, without running out of stack
    before = at.holder.ledger.to_json()
    reply = ask(at, rows_at(0), "b", growth(deepest, 0, deepest + 1))
    assert refused(reply, "deep")
    assert at.holder.ledger.to_json() == before


# ---- Written down first ---------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Watched:
    """Noise that tells when it is drawn."""

    events: list[str]
    private: bool = True

    def laplace(
        self, values: NDArray[np.int64], scale: Fraction, keys: NDArray[np.uint64]
    ) -> NDArray[np.int64]:
        self.events.append("drawn")
        return values


class Diary(Memory):
    """A journal that tells what is written, and fails when told to."""

    def __init__(self, events: list[str]) -> None:
        super().__init__()
        self.events = events
        self.failing = ""

    def charged(self, identifier: str, request: bytes, spent: Epsilon) -> None:
        self._write("charged")
        super().charged(identifier, request, spent)

    def answered(self, identifier: str, answer: bytes) -> None:
        self._write("answered")
        super().answered(identifier, answer)

    def _write(self, event: str) -> None:
        if event == self.failing:
            raise InvalidStore("/home/holder/secret.db: disk is full.")
        self.events.append(event)


@pytest.fixture
def events() -> Iterator[list[str]]:
    return []  # type: ignore[return-value]


def test_a_charge_is_written_before_noise_is_drawn_and_an_answer_before_it_leaves(events: list[str]) -> None:
    at = desk(noise=Watched(events), journal=Diary(events))  # type: ignore[arg-type]
    assert isinstance(ask(at, rows_at(0)), Answer)
    assert events == ["charged", "drawn", "answered"]


def test_what_cannot_be_written_down_is_not_done(events: list[str], caplog: pytest.LogCaptureFixture) -> None:
    journal = Diary(events)
    at = desk(noise=Watched(events), journal=journal)  # type: ignore[arg-type]
    before = state(at)
    journal.failing = "charged"
    with caplog.at_level(logging.CRITICAL):
        reply = ask(at, rows_at(1), grow=growth())
    assert refused(reply, "cannot write its account down")
    assert "secret" not in reply.reason  # the holder's files are its own business
    assert (state(at), events) == (before, [])
    journal.failing = ""
    assert isinstance(ask(at, rows_at(1), grow=growth()), Answer)


def test_an_answer_that_cannot_be_written_down_does_not_leave_and_is_drawn_again(
    events: list[str], caplog: pytest.LogCaptureFixture
) -> None:
    journal = Diary(events)
    at = desk(journal=journal)
    journal.failing = "answered"
    with caplog.at_level(logging.CRITICAL):
        assert refused(ask(at, rows_at(1), grow=growth()), "cannot write")
    spent = at.holder.ledger.spent
    journal.failing = ""
    assert isinstance(ask(at, rows_at(1), grow=growth()), Answer)
    assert at.holder.ledger.spent == spent == THIRD
    assert events == ["charged", "answered"]


def test_seeded_noise_is_settled_when_a_request_is_charged(events: list[str]) -> None:
    """So a run that was interrupted between charge and answer ends like one that was not."""
    undisturbed, disturbed = desk(), desk(journal=Diary(events))
    expected = [ask(undisturbed, rows_at(0), name) for name in "ab"]
    disturbed._journal.failing = "answered"  # type: ignore[attr-defined]
    ask(disturbed, rows_at(0), "a")
    disturbed._journal.failing = ""  # type: ignore[attr-defined]
    found = [ask(disturbed, rows_at(0), name) for name in "ba"]  # and in another order
    assert [to_bytes(reply) for reply in reversed(found)] == [to_bytes(reply) for reply in expected]


def test_a_desk_goes_on_where_its_journal_ends() -> None:
    journal = Memory()
    first, undisturbed = desk(journal=journal), desk()
    for at in (first, undisturbed):
        ask(at, rows_at(0, price=Fraction(1, 8)), "a")
        ask(at, rows_at(1, 2, price=Fraction(1, 8)), "b", growth())
    second = desk(journal=journal)
    assert state(second) == state(first) == state(undisturbed)
    query, grow = rows_at(1, 4, price=Fraction(1, 8)), growth(2, 0, 3)
    assert to_bytes(ask(second, query, "c", grow)) == to_bytes(ask(undisturbed, query, "c", grow))


def test_a_journal_that_cannot_be_followed_is_an_error() -> None:
    for request in (
        b"rubbish",
        to_bytes(Refusal("study", "a", "no")),
        to_bytes(Request("study", "a", None, rows_at(9))),
    ):
        journal = Memory()
        journal.charged("a", request, THIRD)
        with pytest.raises(InvalidStore, match="cannot be followed"):
            desk(journal=journal)


# ---- Grants ---------------------------------------------------------------------------------------------------------

GRANT = StudyGrant("study", SCHEMA.hash, Fraction(2), max_rows=1000, quantum=0)
ONE_OF_EACH: dict[type[Query], Query] = {
    CountRows: rows_at(0),
    CountLabels: CountLabels(NODE, [THIRD]),
    Nominate: Nominate(NODE, [Criterion.gini], "exponential", [THIRD]),
    NominateAndCount: NominateAndCount(NODE, [Criterion.gini], "exponential", [THIRD], [THIRD]),
    NominateForks: NominateForks(NODE, [Criterion.gini], "exponential", [THIRD], [THIRD]),
    CountCells: CountCells(NODE, NODE, [THIRD]),
    CountForks: CountForks(NODE, NODE, NODE - 1, NODE + 3, [THIRD]),
    CountSplits: CountSplits(NODE, [THIRD]),
    CountColumns: CountColumns(NODE, [THIRD]),
}


def test_a_method_is_granted_what_it_asks_and_no_more() -> None:
    one_holder, several = {NominateAndCount}, {Nominate, CountCells}
    own = {"select": one_holder | {NominateForks}, "paper": one_holder, "local": several}
    own |= {"noisy_counts": {CountSplits}, "noisy_columns": {CountColumns}}
    own |= {"turns": {NominateAndCount, NominateForks, CountForks}}
    assert ONE_OF_EACH.keys() == set(Query.__args__)
    assert CountRows not in QUERIES["turns"]
    assert {method: kinds - {CountRows, CountLabels} for method, kinds in QUERIES.items()} == own


@pytest.mark.parametrize("method", QUERIES)
@pytest.mark.parametrize("kind", ONE_OF_EACH)
def test_only_the_queries_of_the_granted_methods_are_answered(method: str, kind: type[Query]) -> None:
    at = replace(GRANT, methods=(method,)).desk(rows(), SeededNoise(1))
    reply = ask(at, ONE_OF_EACH[kind])
    if kind in QUERIES[method]:
        assert isinstance(reply, Answer)
    else:
        assert refused(reply, f"{kind.__name__} is not among the queries granted")
        assert at.holder.ledger.entries == []


def test_a_grant_makes_the_account() -> None:
    at = replace(GRANT, neighbours="replace").desk(rows(), SeededNoise(1))
    assert refused(ask(at, rows_at(0, price=Fraction(101, 100))), "above the granted")
    assert isinstance(ask(at, rows_at(0, price=Fraction(1))), Answer)
    ledger = at.holder.ledger
    assert (ledger.grant, ledger.spent, ledger.private) == (2, 2, False)  # seeded noise protects nobody


def test_rows_of_another_schema_are_not_served() -> None:
    other = Schema([Numeric("x", 0, 1, 4)], label="y", classes=["no", "yes"])
    with pytest.raises(SchemaMismatch, match="another schema"):
        replace(GRANT, schema=other.hash).desk(rows(), SeededNoise(1))


def test_more_rows_than_the_noise_is_made_for_are_not_served() -> None:
    replace(GRANT, max_rows=60).desk(rows(60), SeededNoise(1))
    with pytest.raises(InvalidTable, match="max_rows"):
        replace(GRANT, max_rows=59).desk(rows(60), SeededNoise(1))


@pytest.mark.parametrize(
    "changes",
    [
        {"epsilon": Fraction(0)},
        {"epsilon": Fraction(-1)},
        {"epsilon": math.inf},
        {"epsilon": 0.5},
        {"neighbours": "all"},
        {"methods": ("luck",)},
        {"max_rows": 0},
        {"study": ""},
        {"study": "s" * 201},
    ],
)
def test_a_grant_that_makes_no_sense_is_an_error(changes: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=r"grant|choose|most|name"):
        replace(GRANT, **changes)


def test_two_announcements_before_one_question_both_arrive() -> None:
    from hedgerow.network.local import LocalNetwork

    network = LocalNetwork([desk().holder])
    network.announce(growth())
    [first] = network.ask(rows_at(1, 2))
    network.announce(growth(1, 0, 3))
    network.announce(growth(2, 0, 5))
    [second] = network.ask(rows_at(3, 4, 5, 6))
    assert (first.shape, second.shape) == ((2, 1), (4, 1))
    with pytest.raises(Refused, match="does not exist"):
        network.ask(rows_at(7))


def test_a_desk_that_was_interrupted_while_it_followed_a_request_asks_to_be_started_anew(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    journal = Memory()
    at = desk(journal=journal)

    def full(*_: object) -> None:
        raise MemoryError

    with monkeypatch.context() as patched:
        patched.setattr(GroupedRows, "split", full)
        with pytest.raises(MemoryError):
            ask(at, rows_at(1, 2), "first", growth())
    for query, name in ((rows_at(1, 2), "first"), (rows_at(1), "second"), (rows_at(0), "third")):
        assert refused(ask(at, query, name, growth()), "started anew")
    again = desk(journal=journal)
    assert isinstance(ask(again, rows_at(1, 2), "first", growth()), Answer)
    assert again.holder.ledger.spent == THIRD  # charged once
