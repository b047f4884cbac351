"""A holder's desk: where requests arrive as bytes, and answers or refusals leave as bytes.

It repeats the stored answer to a request that it has answered before, and writes charges down before noise
is drawn and answers before they leave. A refusal's reason depends on the requests and the account alone, and
a refused request changes nothing.
"""

from __future__ import annotations

import logging
import math
import threading
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Protocol

from hedgerow.errors import HedgerowError, InvalidMessage, InvalidStore, Refused, SchemaMismatch
from hedgerow.holder.clock import AnswerClock
from hedgerow.holder.counts import GroupedRows
from hedgerow.holder.holder import MOST_GENERATIONS, Charged, Holder
from hedgerow.messages import (
    Answer,
    CountCells,
    CountColumns,
    CountForks,
    CountLabels,
    CountRows,
    CountSplits,
    Nominate,
    NominateAndCount,
    NominateForks,
    Query,
    Refusal,
    Request,
    from_bytes,
    to_bytes,
)
from hedgerow.privacy.ledger import NEIGHBOURS, Ledger
from hedgerow.privacy.noise import Noise
from hedgerow.repeated import Epsilon

LOG = logging.getLogger(__name__)

# What a study may do to read a clock, unless its grant says otherwise.
LEAST_PRICE = Fraction(
    1, 4096
)  # of its epsilon; plans of trees that are worth something have none below 1/1500
MOST_RELEASES = 100_000
QUANTUM = 0.1  # seconds
MOST_QUANTUM = 60
AT_ONCE = AnswerClock(0)

ALL_QUERIES: frozenset[type[Query]] = frozenset(Query.__args__)
SELECTING = frozenset({CountRows, CountLabels, NominateAndCount})
QUERIES: dict[str, frozenset[type[Query]]] = {  # what each method of learning asks
    "select": SELECTING | {NominateForks},
    "paper": SELECTING,
    "turns": frozenset({CountLabels, NominateAndCount, NominateForks, CountForks}),
    "local": frozenset({CountRows, CountLabels, Nominate, CountCells}),
    "noisy_counts": frozenset({CountRows, CountLabels, CountSplits}),
    "noisy_columns": frozenset({CountRows, CountLabels, CountColumns}),
}

OF_ONE_HOLDER = ("select", "paper")  # of these methods; the others are for any number


class Journal(Protocol):
    """Where a study's requests and answers are kept."""

    def past(self) -> Iterator[tuple[str, bytes, bool]]:
        """What was charged before, in order: its name, the request, and whether it has been answered."""

    def find(self, identifier: str) -> tuple[bytes, bytes | None] | None:
        """The request of this name, as bytes, and its answer if there is one."""

    def charged(self, identifier: str, request: bytes, spent: Epsilon) -> None:
        """A request is charged and brings the study's spending to `spent`; kept before noise is drawn.

        May refuse: then nothing is kept.
        """

    def answered(self, identifier: str, answer: bytes) -> None:
        """An answer has been made; it is kept before it leaves."""


class Memory:
    """A journal that ends with the process: for studies within one."""

    def __init__(self) -> None:
        self._known: dict[str, tuple[bytes, bytes | None]] = {}

    def past(self) -> Iterator[tuple[str, bytes, bool]]:
        """See `Journal.past`."""
        return ((name, request, answer is not None) for name, (request, answer) in self._known.items())

    def find(self, identifier: str) -> tuple[bytes, bytes | None] | None:
        """See `Journal.find`."""
        return self._known.get(identifier)

    def charged(self, identifier: str, request: bytes, spent: Epsilon) -> None:  # noqa: ARG002
        """See `Journal.charged`."""
        self._known[identifier] = (request, None)

    def answered(self, identifier: str, answer: bytes) -> None:
        """See `Journal.answered`."""
        self._known[identifier] = (self._known[identifier][0], answer)


class Desk:
    """Serves one study of one holder, and goes on where its journal ends."""

    def __init__(
        self,
        study: str,
        holder: Holder,
        journal: Journal | None = None,
        queries: Collection[type[Query]] = ALL_QUERIES,
        clock: AnswerClock = AT_ONCE,
    ) -> None:
        self.study = study
        self._clock = clock
        self.holder = holder
        self._queries = queries
        self._journal: Journal = Memory() if journal is None else journal
        self._unanswered: dict[str, Charged] = {}
        self._looks_at_a_row = 0  # how often, for the question that is being answered
        self._is_behind = False  # its journal: interrupted between charging a request and following it
        self._one_at_a_time = threading.Lock()
        for identifier, asked, is_answered in self._journal.past():
            charged = self._again(asked)
            if not is_answered:
                self._unanswered[identifier] = charged

    def _again(self, asked: bytes) -> Charged:
        """Follow a request that was charged before this process began."""
        try:
            request = from_bytes(asked)
            assert isinstance(request, Request)
            return self.holder.charge(self.holder.consider(request.growth, request.query))
        except (HedgerowError, AssertionError) as error:
            raise InvalidStore(f"the journal of study {self.study!r} cannot be followed: {error}") from error

    def handle(self, data: bytes) -> bytes:
        """Answer a request, or refuse it with a reason, when its quantum of time is over.

        Never raises for what a stranger sent.
        """
        came = self._clock.now()
        with self._one_at_a_time:
            self._looks_at_a_row = 0
            try:
                return self._respond(data)
            finally:  # whatever went wrong
                self._clock.hold_back(came, self._looks_at_a_row)

    def _respond(self, data: bytes) -> bytes:
        try:
            request = from_bytes(data)
        except InvalidMessage as error:
            return to_bytes(Refusal(self.study, "unknown", str(error)))
        if not isinstance(request, Request):
            return to_bytes(Refusal(self.study, "unknown", "only requests are answered."))
        try:
            return self._answer(request, data)
        except InvalidStore:
            LOG.exception("study %r: a request could not be written down", self.study)
            reason = "the holder cannot write its account down; ask again later."
        except HedgerowError as error:
            reason = str(error)[:2000]
        return to_bytes(Refusal(self.study, request.identifier, reason))

    def _answer(self, request: Request, data: bytes) -> bytes:
        if request.study != self.study:
            raise Refused("this study has not been granted here.")
        if self._is_behind:
            raise Refused("the holder was interrupted; ask again when it has been started anew.")
        known = self._journal.find(request.identifier)
        if known is None:
            if type(request.query) not in self._queries:
                raise Refused(
                    f"{type(request.query).__name__} is not among the queries granted to this study."
                )
            considered = self.holder.consider(request.growth, request.query)
            self._journal.charged(request.identifier, data, considered.quote.spent)
            self._is_behind = True
            self._looks_at_a_row = MOST_GENERATIONS  # until it is known
            self._unanswered[request.identifier] = self.holder.charge(considered)
            self._is_behind = False
        else:
            asked, answer = known
            if asked != data:
                raise Refused(f"the name {request.identifier!r} was used for another request.")
            if answer is not None:
                return answer
            # Charged, but no answer was kept, so none has left: noise may be drawn now.
        charged = self._unanswered[request.identifier]
        self._looks_at_a_row = charged.looks_at_a_row
        values = self.holder.release(charged)
        answer = to_bytes(Answer(self.study, request.identifier, values))
        self._journal.answered(request.identifier, answer)
        del self._unanswered[request.identifier]
        return answer


@dataclass(frozen=True)
class StudyGrant:
    """What a holder grants to one study. It comes from the holder's own configuration, never from the coordinator.

    `schema` is the hash of the schema agreed on, `methods` the ways of learning whose queries are answered. A release
    costs at least the share `least_price` of epsilon, there are at most `most_releases`, and answers leave at multiples
    of `quantum` seconds: how long they take is not paid for.
    """

    study: str
    schema: str
    epsilon: Fraction
    max_rows: int
    neighbours: str = "add-remove"
    methods: tuple[str, ...] = tuple(QUERIES)
    least_price: Fraction = LEAST_PRICE
    most_releases: int = MOST_RELEASES
    quantum: float = QUANTUM

    def __post_init__(self) -> None:
        if not isinstance(self.epsilon, Fraction) or not 0 < self.epsilon < math.inf:
            raise ValueError(f"epsilon={self.epsilon!r}; a study is granted a positive Fraction.")
        if self.neighbours not in NEIGHBOURS:
            raise ValueError(f"neighbours={self.neighbours!r}; choose one of {', '.join(NEIGHBOURS)}.")
        if unknown := set(self.methods) - QUERIES.keys():
            raise ValueError(f"there is no method {min(unknown)!r}; choose from {', '.join(QUERIES)}.")
        if self.max_rows < 1 or not 0 < len(self.study) <= 200:
            raise ValueError("a study has a name of at most 200 characters, and max_rows of at least 1.")
        if not isinstance(self.least_price, Fraction) or not 0 <= self.least_price <= 1:
            raise ValueError(f"least_price={self.least_price!r}; it is a share of epsilon, from 0 to 1.")
        if type(self.most_releases) is not int or self.most_releases < 1:
            raise ValueError(f"most_releases={self.most_releases!r}; it is a whole number of at least 1.")
        if not 0 <= self.quantum <= MOST_QUANTUM:
            raise ValueError(f"quantum={self.quantum!r}; it is a number of seconds from 0 to {MOST_QUANTUM}.")

    def desk(self, rows: GroupedRows, noise: Noise, journal: Journal | None = None) -> Desk:
        """The desk that serves this study from these rows; errors here are for the holder's eyes only."""
        if rows.schema.hash != self.schema:
            raise SchemaMismatch(
                f"the rows are encoded by another schema than study {self.study!r} was granted."
            )
        leaks = () if noise.private else (f"the noise can be taken off again: {noise!r}",)
        ledger = self.ledger(leaks)
        holder = Holder(rows, noise, ledger, self.max_rows)
        return Desk(self.study, holder, journal, self.queries, AnswerClock(self.quantum))

    def ledger(self, leaks: Sequence[str]) -> Ledger:
        """An empty account of what is granted."""
        return Ledger(
            self.epsilon,
            neighbours=self.neighbours,
            leaks=leaks,
            least_price=self.least_price * self.epsilon,
            most_releases=self.most_releases,
        )

    @property
    def queries(self) -> frozenset[type[Query]]:
        """What may be asked."""
        return frozenset().union(*(QUERIES[method] for method in self.methods))
