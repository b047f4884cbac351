"""What seeded noise is drawn by: a number for each release."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from hedgerow.repeated import IntArray

Keys = NDArray[np.uint64]


class PathKeys:
    """Keys by the node's path, the purpose of the release, and how often that was served.

    So seeded noise does not depend on the order in which nodes are asked, and never repeats.
    """

    def __init__(self, n_purposes: int) -> None:
        self._path = np.array([1], dtype=np.uint64)  # [node], a hash of the way from the root
        self._served = np.zeros((1, n_purposes), dtype=np.int64)  # [node, purpose]

    def grow(self, parents: IntArray) -> None:
        """Nodes are split; their children get the next numbers."""
        above = np.repeat(parents, 2)
        side = np.arange(len(above), dtype=np.uint64) % np.uint64(2)
        self._path = np.concatenate([self._path, _mixed(self._path[above], side)])
        none = np.zeros((len(above), self._served.shape[1]), dtype=np.int64)
        self._served = np.concatenate([self._served, none])

    def serve(self, nodes: IntArray, purpose: int) -> Keys:
        """A key for the next release about each node."""
        times = self._served[nodes, purpose] + _earlier(nodes)
        np.add.at(self._served[:, purpose], nodes, 1)
        n_purposes = np.uint64(self._served.shape[1])
        return _mixed(self._path[nodes], times.astype(np.uint64) * n_purposes + np.uint64(purpose + 2))


class NoKeys:
    """For noise that is drawn by nothing that could be known."""

    def grow(self, parents: IntArray) -> None:
        """See `PathKeys.grow`."""

    def serve(self, nodes: IntArray, purpose: int) -> Keys:  # noqa: ARG002
        """See `PathKeys.serve`."""
        return np.zeros(len(nodes), dtype=np.uint64)


def _earlier(nodes: IntArray) -> IntArray:
    """How often each node was named earlier in the list."""
    order = np.argsort(nodes, kind="stable")
    starts = np.flatnonzero(np.diff(nodes[order], prepend=-1))
    times = np.empty_like(nodes)
    times[order] = np.arange(len(nodes)) - np.repeat(starts, np.diff(np.append(starts, len(nodes))))
    return times


def _mixed(first: Keys, second: Keys) -> Keys:
    """64 well-mixed bits of two numbers each (the finaliser of SplitMix64)."""
    state = (first + np.uint64(0x9E3779B97F4A7C15) * (second + np.uint64(1))).astype(np.uint64)
    for shift, factor in ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB)):
        state = (state ^ (state >> np.uint64(shift))) * np.uint64(factor)
    mixed: Keys = state ^ (state >> np.uint64(31))
    return mixed
