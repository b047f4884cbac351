"""DP-TopDown, Algorithm 1 of Wang, Dick and Balcan (2020), grown in waves.

Algorithm 1 pops one leaf at a time, which would be a round of the network for every split. A node's
evaluation depends only on its own rows and its own noise, never on the order of popping, and a node's price
is the same whether it ends up in the tree or not. So a wave evaluates, in one round, the children of every
node that would be split next if nothing unknown turned out to be better. The tree is the one that Algorithm 1
grows, in about as many rounds as it is deep.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hedgerow.compiled import compiled
from hedgerow.messages import ROOT
from hedgerow.repeated import IntArray

FloatArray = NDArray[np.float64]

NONE = -1
WORTH_A_ROUND = 64  # nodes
ROOM = 2**17  # bytes of records to begin with
ROUNDING = 1e-12  # a gain below this is the rounding error of an impurity


class Growth:
    """A growing tree, as the coordinator knows it: from noisy answers only.

    `nodes[i]` is a record of what is known of node i. The root is node 0, a parent comes before its
    children, and a right child stands next to the left one.
    """

    def __init__(self, n_classes: int, budget: int) -> None:
        kind = np.dtype(
            [
                ("parent", np.int64),
                ("depth", np.int64),  # the root's is 1
                ("child", np.int64),  # the left one
                ("left", np.int64),  # grains of epsilon that its path may still spend
                ("counts", np.float64, n_classes),  # the estimate so far, and its variance
                ("variance", np.float64),
                ("measured", np.float64, n_classes),  # what was released about this node itself
                ("noise", np.float64),  # its variance
                ("promise", np.float64),  # see budget.Standing
                ("split", np.int64),  # NONE: not evaluated
                ("cells", np.float64, (2, n_classes)),  # [side, class], as released
                ("cell_noise", np.float64),  # their variance
                ("gain", np.float64),  # weight times gain, in rows: what the split takes off the potential
                ("wanted", np.bool_),  # worth a place in the queue
                ("is_split", np.bool_),
                ("fork", np.int64, 2),  # its children's splits, if chosen with its own, else NONE
                ("fork_cells", np.float64, (2, 2, n_classes)),  # [side, side, class], and their variance
                ("fork_noise", np.float64),
            ]
        )
        self._records = _unborn(max(256, ROOM // kind.itemsize), kind)
        self._n_nodes = 0
        root = self._born(1)
        root["parent"], root["depth"], root["left"], root["promise"] = NONE, 1, budget, 1.0
        root["variance"] = root["noise"] = np.inf

    @property
    def nodes(self) -> NDArray[Any]:
        """The records of all nodes; the view is good until more nodes are born."""
        return self._records[: self._n_nodes]

    def open(self, parents: IntArray) -> IntArray:
        """Make the children of evaluated nodes: their numbers [node, side]."""
        children = self._n_nodes + np.arange(2 * len(parents)).reshape(-1, 2)
        born = self._born(2 * len(parents))
        self.nodes["child"][parents] = children[:, 0]
        born["parent"] = np.repeat(parents, 2)
        born["depth"] = self.nodes["depth"][born["parent"]] + 1
        born["left"] = self.nodes["left"][born["parent"]]
        return children

    def _born(self, n: int) -> NDArray[Any]:
        first, self._n_nodes = self._n_nodes, self._n_nodes + n
        if self._n_nodes > len(self._records):
            self._records = np.concatenate([self._records, _unborn(self._n_nodes, self._records.dtype)])
        return self._records[first : self._n_nodes]

    def leaves(self) -> IntArray:
        """The leaves of the tree."""
        nodes = self.nodes
        in_tree = (nodes["parent"] == NONE) | nodes["is_split"][nodes["parent"]]
        return np.flatnonzero(in_tree & ~nodes["is_split"])

    def depth_first(self) -> IntArray:
        """The nodes of the tree, each before its children and a left child with all below it before the right one."""
        order: IntArray = _depth_first(self.nodes["child"], self.nodes["is_split"])
        return order

    def affordable(self) -> IntArray:
        """What every path through each node has left; nodes below, evaluated ahead of need, have spent too."""
        least = self.nodes["left"].copy()
        _pass_up(self.nodes["parent"], least)
        return least


def _unborn(n: int, kind: np.dtype[Any]) -> NDArray[Any]:
    records = np.zeros(n, kind)
    records["child"] = records["split"] = NONE
    records["fork"] = NONE
    return records


def all_of(n_left: int) -> int:
    """Nothing is held back: the fewest rounds."""
    return n_left


def third_of(n_left: int) -> int:
    """Most splits are left to nodes that the wave makes known: about as many rounds, fewer nodes in vain."""
    return max(WORTH_A_ROUND, n_left // 3)


def top_down(
    growth: Growth,
    evaluate: Callable[[IntArray], None],
    open_children: Callable[[IntArray], IntArray],
    max_splits: int,
    at_once: Callable[[int], int] = all_of,
) -> None:
    """Grow the tree, best first, until no leaf is wanted or `max_splits` are made.

    `evaluate` gives nodes a split and a gain, if they have none yet, and says whether they are `wanted` in the queue;
    `open_children` makes the children of nodes that have been evaluated. With n splits left
    to make, a wave opens at most `at_once(n)` nodes.
    """
    evaluate(np.array([ROOT]))
    while True:
        chosen = _chosen(growth, max_splits)
        wave = chosen[growth.nodes["child"][chosen] == NONE]
        if not len(wave):
            growth.nodes["is_split"][chosen] = True
            return
        wave = wave[: at_once(max_splits - len(chosen) + len(wave))]
        evaluate(_open(growth, open_children, wave, max_splits))


def _open(
    growth: Growth, open_children: Callable[[IntArray], IntArray], wave: IntArray, max_splits: int
) -> IntArray:
    """Open a wave, and at once those of its children whose splits came with their parents': nothing need be asked."""
    opened = [open_children(wave).ravel()]
    while (growth.nodes["split"][opened[-1]] != NONE).any():
        best = _chosen(growth, max_splits)
        decided = np.intersect1d(best[growth.nodes["child"][best] == NONE], opened[-1])
        if not len(decided):
            break
        opened.append(open_children(decided).ravel())
    return np.concatenate(opened)


def _chosen(growth: Growth, max_splits: int) -> IntArray:
    """The nodes that would be split if nothing more became known, best first."""
    known = growth.nodes
    gain, child = known["gain"].copy(), known["child"].copy()  # nearer to each other than the records are
    best: IntArray = _best_first(gain, known["wanted"], known["depth"], known["parent"], child, max_splits)
    return best


@compiled
def _pass_up(parent: IntArray, least: IntArray) -> None:
    """Children come after their parents."""
    for node in range(len(parent) - 1, 0, -1):
        least[parent[node]] = min(least[parent[node]], least[node])


@compiled
def _depth_first(child: IntArray, is_split: NDArray[np.bool_]) -> IntArray:
    order, waiting = np.empty(len(child), np.int64), np.empty(len(child), np.int64)
    waiting[0] = ROOT
    n_waiting, n_done = 1, 0
    while n_waiting:
        n_waiting -= 1
        node = order[n_done] = waiting[n_waiting]
        n_done += 1
        if is_split[node]:
            waiting[n_waiting], waiting[n_waiting + 1] = child[node] + 1, child[node]
            n_waiting += 2
    return order[:n_done]


@compiled
def _best_first(
    gain: FloatArray,
    wanted: NDArray[np.bool_],
    depth: IntArray,
    parent: IntArray,
    child: IntArray,
    max_splits: int,
) -> IntArray:
    """The first `max_splits` nodes to be split, in order, as far as is known: the queue of Algorithm 1."""
    queue = np.empty(len(gain), np.int64)  # a heap
    chosen = np.empty(min(max_splits, len(gain)), np.int64)
    n_queued, n_chosen = 0, 0
    if wanted[0]:
        queue[0], n_queued = 0, 1
    while n_queued and n_chosen < len(chosen):
        node = queue[0]
        chosen[n_chosen] = node
        n_chosen += 1
        n_queued -= 1
        last, place = queue[n_queued], 0  # the last one sinks from the top to where it belongs
        while 2 * place + 1 < n_queued:
            lower = 2 * place + 1
            if lower + 1 < n_queued and _comes_first(queue[lower + 1], queue[lower], gain, depth, parent):
                lower += 1
            if not _comes_first(queue[lower], last, gain, depth, parent):
                break
            queue[place] = queue[lower]
            place = lower
        queue[place] = last
        if child[node] == NONE:
            continue
        for new in range(child[node], child[node] + 2):
            if wanted[new]:
                place = n_queued
                n_queued += 1
                while place and _comes_first(new, queue[(place - 1) // 2], gain, depth, parent):
                    queue[place] = queue[(place - 1) // 2]
                    place = (place - 1) // 2
                queue[place] = new
    return chosen[:n_chosen]


@compiled
def _comes_first(a: int, b: int, gain: FloatArray, depth: IntArray, parent: IntArray) -> bool:
    """Does a leave the queue before b? Ties go up and to the left: no order of evaluation can change that."""
    if gain[a] != gain[b]:
        return bool(gain[a] > gain[b])
    if depth[a] != depth[b]:
        return bool(depth[a] < depth[b])
    while parent[a] != parent[b]:
        a, b = parent[a], parent[b]
    return a < b
