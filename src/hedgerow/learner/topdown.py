"""DP-TopDown, Algorithm 1 of Wang, Dick and Balcan (2020), grown in waves.

Algorithm 1 pops one leaf at a time, which would be a round of the network for every split. A node's
evaluation depends only on its own rows and its own noise, never on the order of popping, and a node's price
is the same whether it ends up in the tree or not. So a wave evaluates, in one round, the children of every
node that would be split next if nothing unknown turned out to be better. The tree is the one that Algorithm 1
grows, in about as many rounds as it is deep.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from hedgerow.budget import Epsilon

FloatArray = NDArray[np.float64]

ROUNDING = 1e-12  # a gain below this is the rounding error of an impurity


@dataclass(slots=True, eq=False)
class Node:
    """A node of the growing tree, as the coordinator knows it: from noisy answers only.

    `path` spells the way from the root in binary (left 0, right 1, after a leading 1): it breaks ties in a
    way that no order of evaluation can change.
    """

    number: int
    path: int
    depth: int  # the root's is 1
    left: Epsilon  # what the path may still spend
    counts: FloatArray  # [class], the estimate so far, and its variance
    variance: float
    measured: FloatArray  # [class], the count released about this node itself, and its variance
    noise: float
    promise: float = 1.0  # see budget.Standing
    split: int = -1
    cells: FloatArray | None = None  # [side, class], as released
    cell_noise: float = 0.0
    gain: float = 0.0  # weight times gain, in rows: what the split takes off the tree's potential
    children: tuple[Node, Node] | None = None
    is_split: bool = False
    wanted: bool = False

    @property
    def affordable(self) -> Epsilon:
        """What every path through this node has left; nodes below, evaluated ahead of need, have spent too."""
        least, stack = self.left, [self]
        while stack:
            node = stack.pop()
            least = min(least, node.left)
            stack += node.children or ()
        return least

    def leaves(self) -> Iterator[Node]:
        """The leaves of the tree below, left to right."""
        stack = [self]
        while stack:
            node = stack.pop()
            if node.is_split and node.children is not None:
                stack += reversed(node.children)
            else:
                yield node


def top_down(
    root: Node,
    evaluate: Callable[[Sequence[Node]], None],
    open_children: Callable[[Sequence[Node]], None],
    max_splits: int,
) -> None:
    """Grow the tree below `root`, best first, until no leaf is wanted or `max_splits` are made.

    `evaluate` gives nodes a split and a gain, and says whether they are `wanted` in the queue;
    `open_children` makes the children of nodes that have been evaluated.
    """
    evaluate([root])
    queue: list[Entry] = []
    _push(queue, root)
    for done in range(max_splits):
        if not queue:
            return
        if queue[0][2].children is None:
            wave = _next_splits(queue, max_splits - done)
            open_children(wave)
            evaluate([child for node in wave for child in node.children or ()])
        _, _, best = heapq.heappop(queue)
        best.is_split = True
        for child in best.children or ():
            _push(queue, child)


Entry = tuple[float, int, Node]


def _push(queue: list[Entry], node: Node) -> None:
    if node.wanted:
        heapq.heappush(queue, (-node.gain, node.path, node))


def _next_splits(queue: Sequence[Entry], n_splits: int) -> list[Node]:
    """The nodes without children among the next `n_splits` to be popped, as far as is known now."""
    ahead = list(queue)
    without_children: list[Node] = []
    for _ in range(n_splits):
        if not ahead:
            break
        _, _, node = heapq.heappop(ahead)
        if node.children is None:
            without_children.append(node)
        for child in node.children or ():
            _push(ahead, child)
    return without_children
