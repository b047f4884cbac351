"""The network of one process: the same bytes as on a wire, handed over directly."""

from __future__ import annotations

from collections.abc import Sequence

from hedgerow.errors import Refused
from hedgerow.holder.desk import Desk
from hedgerow.messages import Grow, Query, Refusal, Request, from_bytes, to_bytes
from hedgerow.network import Traffic, joined
from hedgerow.repeated import IntArray


class LocalNetwork:
    """Data holders in this process, each behind its desk."""

    def __init__(self, desks: Sequence[Desk], study: str) -> None:
        self._desks = list(desks)
        self._study = study
        self._growth: Grow | None = None
        self.traffic = Traffic(holders=len(self._desks))

    @property
    def n_holders(self) -> int:
        """See `Network.n_holders`."""
        return len(self._desks)

    def announce(self, growth: Grow) -> None:
        """See `Network.announce`."""
        self._growth = joined(self._growth, growth)

    def ask(self, query: Query) -> list[IntArray]:
        """See `Network.ask`."""
        identifier = f"round-{self.traffic.rounds}"
        sent = to_bytes(Request(self._study, identifier, self._growth, query))
        self._growth = None
        self.traffic.rounds += 1
        return [self._exchange(desk, sent) for desk in self._desks]

    def _exchange(self, desk: Desk, sent: bytes) -> IntArray:
        received = desk.handle(sent)
        self.traffic.bytes_sent += len(sent)
        self.traffic.bytes_received += len(received)
        message = from_bytes(received)
        if isinstance(message, Refusal):
            raise Refused(message.reason)
        assert not isinstance(message, Request)
        return message.values
