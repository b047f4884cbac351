"""What carries queries to the data holders. The coordinator knows this interface and nothing behind it."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Protocol

import numpy as np

if TYPE_CHECKING:  # a site's main process needs neither these nor the compiler that they bring along
    from collections.abc import Mapping

    from hedgerow.messages import Grow, Query
    from hedgerow.repeated import IntArray


@dataclass
class Traffic:
    """What has gone over a network: rounds of questions, and bytes to and from all holders.

    Counted are the questions that were answered, whenever that was: a study that was resumed has the traffic of
    an undisturbed one.
    """

    holders: int
    rounds: int = 0
    bytes_sent: int = 0
    bytes_received: int = 0

    def __str__(self) -> str:
        rounds = f"{self.rounds} rounds with {self.holders} holder{'s' if self.holders != 1 else ''}"
        if not self.bytes_sent:
            return rounds
        sent, received = (n / self.rounds / self.holders for n in (self.bytes_sent, self.bytes_received))
        return f"{rounds}; on average a round sends {sent:.0f} bytes to each holder and brings back {received:.0f}"


class Network(Protocol):
    """Carries queries to every data holder and brings back their answers, in a fixed order of holders."""

    traffic: Traffic

    @property
    def n_holders(self) -> int:
        """How many data holders there are; public."""

    def announce(self, growth: Grow) -> None:
        """Tell every holder which nodes have been split, and how; it goes along with its next query."""

    def ask(self, query: Query) -> list[IntArray]:
        """Ask every holder the same; one answer a holder."""

    def ask_each(self, queries: Mapping[int, Query]) -> dict[int, IntArray]:
        """Ask some holders, each its own query, in one round; holders are numbered from 0.

        A holder that the study goes on without has no answer.
        """


def joined(waiting: Grow | None, then: Grow) -> Grow:
    """Two announcements with nothing asked between them, as one: neither must be lost."""
    if waiting is None:
        return then
    return replace(
        then,
        nodes=np.concatenate([waiting.nodes, then.nodes]),
        splits=np.concatenate([waiting.splits, then.splits]),
        first=waiting.first,
    )
