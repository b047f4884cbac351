"""The network of one process: nothing lies between the coordinator and the holders."""

from __future__ import annotations

from collections.abc import Sequence

from hedgerow.holder.holder import Holder
from hedgerow.messages import Answer, Grow, Query, Request, to_bytes
from hedgerow.network import Traffic, joined
from hedgerow.repeated import IntArray


class LocalNetwork:
    """Data holders in this process.

    The bytes of its traffic are what would have gone over a wire; a holder that is alone would need none.
    """

    def __init__(self, holders: Sequence[Holder]) -> None:
        self._holders = holders
        self._growth: Grow | None = None
        self.traffic = Traffic(holders=len(holders))

    @property
    def n_holders(self) -> int:
        """See `Network.n_holders`."""
        return len(self._holders)

    def announce(self, growth: Grow) -> None:
        """See `Network.announce`."""
        self._growth = joined(self._growth, growth)

    def ask(self, query: Query) -> list[IntArray]:
        """See `Network.ask`."""
        growth, self._growth = self._growth, None
        answers = [holder.answer(query, growth) for holder in self._holders]
        if len(answers) > 1:
            name = "fit", f"round-{self.traffic.rounds}"
            self.traffic.bytes_sent += len(answers) * len(to_bytes(Request(*name, growth, query)))
            self.traffic.bytes_received += sum(len(to_bytes(Answer(*name, each))) for each in answers)
        self.traffic.rounds += 1
        return answers
