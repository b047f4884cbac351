"""PrivateSplit: how the holders are asked for a good split of each node, and its cells.

A PrivateSplit is a small value; it sees noisy answers only, never rows.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from hedgerow.budget import NodeBudget
from hedgerow.criteria import Criterion
from hedgerow.messages import CountCells, IntArray, Nominate
from hedgerow.network import Network


class PrivateSplit(Protocol):
    """Chooses a split for each node and counts its cells."""

    def evaluate(
        self, network: Network, nodes: IntArray, criterion: Criterion, budgets: Sequence[NodeBudget]
    ) -> tuple[IntArray, IntArray]:
        """The splits [node] and their noisy cells [node, side, class], summed over holders."""


@dataclass(frozen=True)
class SelectSplit:
    """One holder selects the split and then counts its cells: the paper's SingleMachine, repaired.

    The paper releases the winner's noisy gain with its index, which costs more than it says; here the index
    alone is released, and the cells are counted afresh.
    """

    selector: str = "permute_and_flip"

    def evaluate(
        self, network: Network, nodes: IntArray, criterion: Criterion, budgets: Sequence[NodeBudget]
    ) -> tuple[IntArray, IntArray]:
        """See `PrivateSplit.evaluate`."""
        [splits] = network.ask(Nominate(nodes, criterion, self.selector, [b.select for b in budgets]))
        [cells] = network.ask(CountCells(nodes, splits, [b.count for b in budgets]))
        return splits, cells
