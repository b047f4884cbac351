"""The `Network` that the coordinator sees, over anything that carries bytes to named holders and back.

Every request has a name that follows from its place in the study alone. So a coordinator that begins again
asks the same questions in the same order: what it has on disk it does not ask, what a holder has answered
before the holder repeats, and neither is charged twice.
"""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from hedgerow.errors import HedgerowError, InvalidMessage, Refused
from hedgerow.holder.holder import quote_of, shape_of
from hedgerow.messages import (
    Answer,
    Grow,
    Nominate,
    NominateForks,
    Query,
    Refusal,
    Request,
    from_bytes,
    to_bytes,
)
from hedgerow.network import Traffic, joined
from hedgerow.privacy.ledger import Ledger
from hedgerow.repeated import IntArray
from hedgerow.transport.answers import AnswerFile
from hedgerow.transport.study import Study

# Carries a request to each of the named holders; the replies of those who replied within so many seconds.
Send = Callable[[Mapping[str, bytes], float], Mapping[str, bytes]]

FIRST_TRY = 10.0  # seconds; every further try of the same request waits twice as long
RETRY_SECONDS = 1.0  # at least, between two tries
UNREACHABLE_SECONDS = 12.0  # of tries that fail at once: the holder's process is not there


class HolderLost(HedgerowError):
    """A holder does not answer, and the study does not go on without it."""

    def __init__(self, holders: Sequence[str]) -> None:
        super().__init__(f"no answer from {', '.join(holders)}; the study can be resumed when they are back.")
        self.holders = tuple(holders)


class Stopped(HedgerowError):
    """The study was stopped from outside; it can be resumed."""


@dataclass(frozen=True)
class Round:
    """What the coordinator saw of one round: enough for people to follow, nothing of the answers."""

    number: int
    wave: int
    query: str
    nodes: int
    seconds: float
    bytes_sent: int
    bytes_received: int
    stored: int  # answers that were on disk already
    spent: dict[str, str]

    def to_dict(self) -> dict[str, Any]:
        """Plain values."""
        return dict(self.__dict__)


class RemoteNetwork:
    """Asks every holder, keeps what comes back, and knows what to do about a holder that is lost."""

    def __init__(
        self,
        study: Study,
        send: Send,
        answers: AnswerFile,
        tell: Callable[[Round], None] = lambda _: None,
        stopped: Callable[[], bool] = lambda: False,
        gone: Callable[[str], bool] = lambda _: False,
    ) -> None:
        self._study = study
        self._send = send
        self._answers = answers
        self._tell = tell
        self._stopped = stopped
        self._gone = gone
        # Announced, but not heard of yet.
        self._growth: dict[str, Grow | None] = dict.fromkeys(study.holders)
        self._waves = 0  # each begins with an announcement of what was split
        self._active = list(study.holders)
        # What each holder may have spent, by the coordinator's own reckoning; the holder's ledger decides.
        self.ledgers = {h: Ledger(study.exact_epsilon, neighbours=study.neighbours) for h in study.holders}
        self.traffic = Traffic(holders=len(study.holders))

    @property
    def n_holders(self) -> int:
        """See `Network.n_holders`."""
        return len(self._active)

    @property
    def lost(self) -> dict[str, str]:
        """The holders that the study goes on without, and the first request that they did not answer."""
        return {h: self._answers.lost[h] for h in self._study.holders if h not in self._active}

    @property
    def spent(self) -> dict[str, str]:
        """What each holder may have spent, for people."""
        return {holder: f"{float(ledger.spent):.6g}" for holder, ledger in self.ledgers.items()}

    def announce(self, growth: Grow) -> None:
        """See `Network.announce`."""
        self._waves += 1
        self._growth = {holder: joined(waiting, growth) for holder, waiting in self._growth.items()}

    def ask(self, query: Query) -> list[IntArray]:
        """See `Network.ask`."""
        return list(self.ask_each(dict.fromkeys(range(len(self._study.holders)), query)).values())

    def ask_each(self, queries: Mapping[int, Query]) -> dict[int, IntArray]:
        """See `Network.ask_each`."""
        began = time.monotonic()
        before = self.traffic.bytes_sent, self.traffic.bytes_received
        number = self.traffic.rounds
        holders = self._study.holders
        # Who is lost over this question may have been charged for it.
        asked = {holders[i]: query for i, query in queries.items() if holders[i] in self._active}
        if not asked:
            return {}
        requests = {
            holder: Request(self._study.name, f"round-{number}", self._growth[holder], query)
            for holder, query in asked.items()
        }
        self._growth |= dict.fromkeys(asked)
        values, stored = self._collect(requests, f"round-{number}")
        self.traffic.rounds += 1
        for holder, request in requests.items():
            ledger = self.ledgers[holder]
            ledger.book(quote_of(ledger, request.growth, request.query))
        self._tell(
            Round(
                number=number,
                wave=self._waves,
                query=", ".join(dict.fromkeys(type(query).__name__ for query in asked.values())),
                nodes=len(np.unique(np.concatenate([query.nodes for query in asked.values()]))),
                seconds=time.monotonic() - began,
                bytes_sent=self.traffic.bytes_sent - before[0],
                bytes_received=self.traffic.bytes_received - before[1],
                stored=stored,
                spent=self.spent,
            )
        )
        return {i: values[holders[i]] for i in queries if holders[i] in self._active}

    def _collect(self, requests: Mapping[str, Request], identifier: str) -> tuple[dict[str, IntArray], int]:
        """The answer of everybody who was asked, and how many of them had been stored."""
        data = {holder: to_bytes(request) for holder, request in requests.items()}
        digests = {holder: hashlib.sha256(asked).digest() for holder, asked in data.items()}
        self._active = [h for h in self._active if self._answers.lost.get(h) != identifier]
        values: dict[str, IntArray] = {}
        for holder in self._waiting_for(requests, values):
            if (answer := self._answers.find(identifier, holder, digests[holder])) is not None:
                values[holder] = self._checked(requests[holder], holder, answer)
                self._count(data[holder], answer)
        stored = len(values)
        began = heard = time.monotonic()  # heard: when the silent ones were last not known to be out of reach
        patience = FIRST_TRY
        while missing := self._waiting_for(requests, values):
            if self._stopped():
                raise Stopped("the study was stopped; resume it when you like.")
            asked = time.monotonic()
            replies = self._send(
                {holder: data[holder] for holder in missing}, min(patience, self._study.answer_seconds)
            )
            for holder in missing:
                if holder in replies:
                    values[holder] = self._checked(requests[holder], holder, replies[holder])
                    self._count(data[holder], replies[holder])
                    self._answers.keep(identifier, holder, digests[holder], replies[holder])
            now = time.monotonic()
            if now - asked >= patience / 2:
                heard = now
                patience *= 2
            if silent := [holder for holder in missing if holder not in values]:
                self._miss(
                    identifier, silent, late=now - began > self._study.answer_seconds, unheard=now - heard
                )
                time.sleep(max(0.0, RETRY_SECONDS - (now - asked)))
        return values, stored

    def _waiting_for(self, requests: Mapping[str, Request], values: Mapping[str, IntArray]) -> list[str]:
        return [holder for holder in requests if holder in self._active and holder not in values]

    def _count(self, request: bytes, answer: bytes) -> None:
        self.traffic.bytes_sent += len(request)
        self.traffic.bytes_received += len(answer)

    def _miss(self, identifier: str, silent: Sequence[str], *, late: bool, unheard: float) -> None:
        """Give up on holders that do not answer, if it is time; as the study says."""
        going_on = self._study.when_a_holder_is_lost == "continue"
        lost = list(silent) if late else [holder for holder in silent if self._gone(holder)]
        if going_on and len(lost) < len(self._active):
            for holder in lost:
                self._answers.lose(identifier, holder)
                self._active.remove(holder)
        elif lost:
            raise HolderLost(lost)
        elif not going_on and unheard > UNREACHABLE_SECONDS:
            raise HolderLost(silent)  # a new job finds it, if it is back

    def _checked(self, request: Request, holder: str, data: bytes) -> IntArray:
        """A holder's values, if it sent what was asked for; nothing is computed from anything else."""
        message = from_bytes(data)
        if isinstance(message, Refusal):
            raise Refused(f"{holder} refuses: {message.reason}")
        if not isinstance(message, Answer) or (message.study, message.identifier) != (
            request.study,
            request.identifier,
        ):
            raise InvalidMessage(f"{holder} sent something else than the answer to {request.identifier}.")
        schema, values = self._study.schema, message.values
        if values.shape != shape_of(request.query, schema):
            raise InvalidMessage(f"{holder} answered {request.identifier} in another shape than asked for.")
        if isinstance(request.query, Nominate):
            n_named = 3 if isinstance(request.query, NominateForks) else 1
            nominees = values.reshape(len(values), -1)[:, :n_named]
            least = np.array([0, -1, -1])[:n_named]  # a side of a fork may be one that no split can divide
            if not ((nominees >= least) & (nominees < len(schema.splits))).all():
                raise InvalidMessage(f"{holder} nominated a split that is not in the schema.")
        return values
