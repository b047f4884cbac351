"""A holder's desk: where requests arrive as bytes, and answers or refusals leave as bytes.

It repeats the stored answer to a request that it has answered before, and writes charges down before noise
is drawn and answers before they leave. A refusal's reason depends on the request and the account alone.
"""

from __future__ import annotations

from typing import Protocol

from hedgerow.errors import HedgerowError, InvalidMessage, Refused
from hedgerow.holder.holder import Holder
from hedgerow.messages import Answer, IntArray, Refusal, Request, from_bytes, to_bytes


class Journal(Protocol):
    """Where a study's requests and answers are kept."""

    def find(self, identifier: str) -> tuple[bytes, bytes | None] | None:
        """The request of this name, as bytes, and its answer if there is one."""

    def charged(self, identifier: str, request: bytes, holder: Holder) -> None:
        """A request has been charged; this is on disk before noise is drawn. May refuse."""

    def answered(self, identifier: str, answer: bytes) -> None:
        """An answer has been made; this is on disk before it leaves."""


class Memory:
    """A journal that ends with the process: for studies within one."""

    def __init__(self) -> None:
        self._known: dict[str, tuple[bytes, bytes | None]] = {}

    def find(self, identifier: str) -> tuple[bytes, bytes | None] | None:
        """See `Journal.find`."""
        return self._known.get(identifier)

    def charged(self, identifier: str, request: bytes, holder: Holder) -> None:  # noqa: ARG002
        """See `Journal.charged`."""
        self._known[identifier] = (request, None)

    def answered(self, identifier: str, answer: bytes) -> None:
        """See `Journal.answered`."""
        self._known[identifier] = (self._known[identifier][0], answer)


class Desk:
    """Serves one study of one holder."""

    def __init__(self, study: str, holder: Holder, journal: Journal | None = None) -> None:
        self.study = study
        self.holder = holder
        self._journal: Journal = Memory() if journal is None else journal

    def handle(self, data: bytes) -> bytes:
        """Answer a request, or refuse it with a reason. Never raises for what a stranger sent."""
        try:
            request = from_bytes(data)
        except InvalidMessage as error:
            return to_bytes(Refusal(self.study, "unknown", str(error)))
        if not isinstance(request, Request):
            return to_bytes(Refusal(self.study, "unknown", "only requests are answered."))
        try:
            return self._answer(request, data)
        except HedgerowError as error:
            return to_bytes(Refusal(self.study, request.identifier, str(error)[:2000]))

    def _answer(self, request: Request, data: bytes) -> bytes:
        if request.study != self.study:
            raise Refused("this study has not been granted here.")
        known = self._journal.find(request.identifier)
        if known is None:
            if request.growth is not None:
                self.holder.grow(request.growth)
            self.holder.charge(request.query)
            self._journal.charged(request.identifier, data, self.holder)
        else:
            asked, answer = known
            if asked != data:
                raise Refused(f"the name {request.identifier!r} was used for another request.")
            if answer is not None:
                return answer
            # Charged, but the process ended before an answer was written down, so none has left: draw it now.
        values: IntArray = self.holder.release(request.query)
        answer = to_bytes(Answer(self.study, request.identifier, values))
        self._journal.answered(request.identifier, answer)
        return answer
