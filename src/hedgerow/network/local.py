"""The network of one process: nothing lies between the coordinator and the holders."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

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
        self._growth: list[Grow | None] = [None] * len(holders)  # announced, but not heard of yet
        self.traffic = Traffic(holders=len(holders))

    @property
    def n_holders(self) -> int:
        """See `Network.n_holders`."""
        return len(self._holders)

    def announce(self, growth: Grow) -> None:
        """See `Network.announce`."""
        self._growth = [joined(waiting, growth) for waiting in self._growth]

    def ask(self, query: Query) -> list[IntArray]:
        """See `Network.ask`."""
        return list(self.ask_each(dict.fromkeys(range(self.n_holders), query)).values())

    def ask_each(self, queries: Mapping[int, Query]) -> dict[int, IntArray]:
        """See `Network.ask_each`."""
        name, answers = f"round-{self.traffic.rounds}", {}
        for holder, query in queries.items():
            growth, self._growth[holder] = self._growth[holder], None
            answers[holder] = self._holders[holder].answer(query, growth)
            if self.n_holders > 1:
                self.traffic.bytes_sent += len(to_bytes(Request("fit", name, growth, query)))
                self.traffic.bytes_received += len(to_bytes(Answer("fit", name, answers[holder])))
        self.traffic.rounds += 1
        return answers
