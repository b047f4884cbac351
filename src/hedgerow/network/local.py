"""The network of one process: holders are asked directly, one after another."""

from __future__ import annotations

from collections.abc import Sequence

from hedgerow.holder.holder import Holder
from hedgerow.messages import Grow, IntArray, Query


class LocalNetwork:
    """Data holders in this process."""

    def __init__(self, holders: Sequence[Holder]) -> None:
        self.holders = list(holders)

    @property
    def n_holders(self) -> int:
        """See `Network.n_holders`."""
        return len(self.holders)

    def announce(self, growth: Grow) -> None:
        """See `Network.announce`."""
        for holder in self.holders:
            holder.grow(growth)

    def ask(self, query: Query) -> list[IntArray]:
        """See `Network.ask`."""
        return [holder.answer(query) for holder in self.holders]
