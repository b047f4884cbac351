"""What carries queries to the data holders. The coordinator knows this interface and nothing behind it."""

from __future__ import annotations

from typing import Protocol

from hedgerow.messages import Grow, IntArray, Query


class Network(Protocol):
    """Carries queries to every data holder and brings back their answers, in a fixed order of holders."""

    @property
    def n_holders(self) -> int:
        """How many data holders there are; public."""

    def announce(self, growth: Grow) -> None:
        """Tell every holder which nodes have been split, and how."""

    def ask(self, query: Query) -> list[IntArray]:
        """Ask every holder the same; one answer a holder."""
