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
from hedgerow.transport.console_log import printable
from hedgerow.transport.frames import request_frame
from hedgerow.transport.study import Study

# Carries a frame to each of the named holders; the replies of those who replied within so many seconds. A frame that
# is sent again before it was answered is carried once.
Send = Callable[[Mapping[str, bytes], float], Mapping[str, bytes]]

TRY_SECONDS = 5.0  # how long a try waits before it is looked whether the study was stopped
RETRY_SECONDS = 0.2  # at least, between two tries


class HolderLost(HedgerowError):
    """A holder does not answer, and the study does not go on without it."""

    def __init__(self, holders: Sequence[str]) -> None:
        super().__init__(f"no answer from {', '.join(holders)}; the study can be resumed when they are back.")
        self.holders = tuple(holders)


class Stopped(HedgerowError):
    """The study was stopped from outside; it can be resumed."""

    def __init__(self) -> None:
        super().__init__("the study was stopped; resume it when you like.")


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
        connected: Callable[[str], bool] = lambda _: True,
    ) -> None:
        self._study = study
        self._send = send
        self._answers = answers
        self._tell = tell
        self._stopped = stopped
        self._connected = connected
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
        began = time.monotonic()
        while missing := self._waiting_for(requests, values):
            if self._stopped():
                raise Stopped
            asked = time.monotonic()
            replies = self._send({holder: request_frame(data[holder]) for holder in missing}, TRY_SECONDS)
            wrong: dict[str, HedgerowError] = {}
            for holder in missing:
                if (reply := replies.get(holder)) is None:
                    continue
                try:
                    values[holder] = self._checked(requests[holder], holder, reply)
                except (InvalidMessage, Refused) as error:
                    wrong[holder] = error
                else:
                    self._count(data[holder], reply)
                    self._answers.keep(identifier, holder, digests[holder], reply)
            if wrong:
                self._lose(identifier, list(wrong), next(iter(wrong.values())))
            now = time.monotonic()
            if silent := self._overdue(self._waiting_for(requests, values), now - began):
                self._lose(identifier, silent, HolderLost(silent))
            if self._waiting_for(requests, values):
                time.sleep(max(0.0, RETRY_SECONDS - (now - asked)))
        return values, stored

    def _waiting_for(self, requests: Mapping[str, Request], values: Mapping[str, IntArray]) -> list[str]:
        return [holder for holder in requests if holder in self._active and holder not in values]

    def _count(self, request: bytes, answer: bytes) -> None:
        self.traffic.bytes_sent += len(request)
        self.traffic.bytes_received += len(answer)

    def _overdue(self, silent: Sequence[str], waited: float) -> list[str]:
        """Who of the silent ones is given up on after so many seconds."""
        study = self._study
        match study.when_a_holder_is_lost:
            case "continue":
                return list(silent) if waited > study.answer_seconds else []
            case "abort":
                return [h for h in silent if waited > study.answer_seconds or not self._connected(h)]
        return list(silent) if waited > max(study.answer_seconds, 60 * study.return_minutes) else []

    def _lose(self, identifier: str, holders: Sequence[str], why: HedgerowError) -> None:
        """Go on without some holders if the study says so and somebody is left; else stop."""
        if self._study.when_a_holder_is_lost != "continue" or len(holders) >= len(self._active):
            raise why
        for holder in holders:
            self._answers.lose(identifier, holder)
            self._active.remove(holder)

    def _checked(self, request: Request, holder: str, data: bytes) -> IntArray:
        """A holder's values, if it sent what was asked for; nothing is computed from anything else."""
        try:
            message = from_bytes(data)
        except InvalidMessage as error:
            raise InvalidMessage(f"{holder} sent something else than a message: {error}") from error
        if isinstance(message, Refusal):
            raise Refused(f"{holder} refuses: {printable(message.reason)}")
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
