"""The data holder: the only place where exact counts and noise meet.

Every answer is charged to the holder's own ledger before noise is drawn, and no answer, error or branch
depends on the rows in any other way.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Sequence
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hedgerow.criteria import Criterion, score_sensitivity, to_fixed_point
from hedgerow.errors import Refused
from hedgerow.holder.counts import GroupedRows
from hedgerow.messages import (
    ROOT,
    CountCells,
    CountColumns,
    CountLabels,
    CountRows,
    CountSplits,
    Grow,
    IntArray,
    Nominate,
    Query,
)
from hedgerow.privacy.ledger import Ledger
from hedgerow.privacy.noise import Noise
from hedgerow.privacy.selectors import SELECTORS

MOST_NODES = 2**20  # of one study: what a holder is willing to remember

WHAT: dict[type[Query], str] = {
    CountRows: "number of rows",
    CountLabels: "class counts",
    Nominate: "choice of a split",
    CountCells: "cells of a split",
    CountSplits: "cells of every split",
    CountColumns: "histograms of every column",
}
PURPOSE = {kind: i for i, kind in enumerate(WHAT)}


class Holder:
    """Answers queries about its rows with noise, and keeps the account."""

    def __init__(self, rows: GroupedRows, noise: Noise, ledger: Ledger, max_rows: int) -> None:
        self._rows = rows
        self._noise = noise
        self._max_rows = max_rows
        self.ledger = ledger
        self._path = {ROOT: 1}  # names a node by the way to it, for seeded noise
        self._splits: dict[int, tuple[int, int, int]] = {}  # node -> (split, left, right), as announced
        self._asked: Counter[tuple[int, int]] = Counter()  # (path, purpose) -> releases so far

    def grow(self, announcement: Grow) -> None:
        """Follow the coordinator's tree: partition the rows of the nodes that it has split."""
        growth = self._new(announcement)
        if growth is None:
            return
        for node, split, (left, right) in zip(
            growth.nodes.tolist(), growth.splits.tolist(), growth.children.tolist(), strict=True
        ):
            self.ledger.divide(node, (left, right))
            self._splits[node] = (split, left, right)
            self._path[left], self._path[right] = 2 * self._path[node], 2 * self._path[node] + 1
        self._rows.split(growth.nodes, growth.splits, growth.children)

    def _new(self, growth: Grow) -> Grow | None:
        """What an announcement adds to what is known; refused unless each node is split once, by one split.

        Two different partitions of the same rows would overlap, and the ledger's sums would be too small.
        """
        if len(growth.nodes) and growth.splits.max() >= len(self._rows.schema.splits):
            raise Refused("an announced split is not in the schema.")
        fresh: list[int] = []
        splitting: set[int] = set()
        born: set[int] = set()
        for i, (node, split, (left, right)) in enumerate(
            zip(growth.nodes.tolist(), growth.splits.tolist(), growth.children.tolist(), strict=True)
        ):
            if self._splits.get(node) == (split, left, right):
                continue  # announced before, word for word
            if node in self._splits or node in splitting:
                raise Refused(f"node {node} is split already, in another way.")
            if node not in self._path:
                raise Refused(f"node {node} does not exist.")
            if left == right or {left, right} & (self._path.keys() | born):
                raise Refused(f"the children of node {node} have numbers that are taken.")
            fresh.append(i)
            splitting.add(node)
            born |= {left, right}
        if len(self._path) + len(born) > MOST_NODES:
            raise Refused(f"a study has at most {MOST_NODES} nodes.")
        return Grow(growth.nodes[fresh], growth.splits[fresh], growth.children[fresh]) if fresh else None

    def answer(self, query: Query) -> IntArray:
        """One noisy answer; checked and charged first, refused if it would cost too much."""
        self.charge(query)
        return self.release(query)

    def charge(self, query: Query) -> None:
        """Book a query in the ledger; refuse, and book nothing, what nobody may ask or what costs too much."""
        if unknown := set(query.nodes.tolist()) - self._path.keys():
            raise Refused(f"node {min(unknown)} does not exist.")
        mechanism = "discrete Laplace"
        if isinstance(query, CountCells) and query.splits.max() >= len(self._rows.schema.splits):
            raise Refused("a split is not in the schema.")
        if isinstance(query, Nominate):
            mechanism = query.selector
            if query.selector not in SELECTORS:
                raise Refused(f"there is no selector {query.selector!r}.")
            if Criterion.root_gini in query.criteria and self._rows.schema.n_classes != 2:
                raise Refused("root gini needs two classes.")
        self.ledger.charge(query.nodes.tolist(), mechanism, WHAT[type(query)], query.epsilons)

    def release(self, query: Query) -> IntArray:
        """The noisy answer to a query that has been charged."""
        rows = self._rows
        match query:
            case Nominate():
                return self._nominate(query)
            case CountRows():
                return self._noisy(query, rows.label_counts(query.nodes).sum(axis=1, keepdims=True))
            case CountLabels():
                return self._noisy(query, rows.label_counts(query.nodes))
            case CountCells():
                return self._noisy(query, rows.cells(query.nodes, query.splits))
            case CountSplits():
                return self._noisy(query, rows.all_cells(query.nodes), histograms=len(rows.schema.splits))
            case CountColumns():
                return self._noisy(query, rows.columns(query.nodes), histograms=len(rows.schema.columns))

    def _nominate(self, query: Nominate) -> IntArray:
        """Selection on V = -F(left) - F(right), in fixed point (docs/privacy.md, selection)."""
        selector = SELECTORS[query.selector]
        n_classes = self._rows.schema.n_classes
        chosen = np.empty(len(query.nodes), dtype=np.int64)
        for batch, histograms in self._rows.histograms(query.nodes):
            for (epsilon, criterion), here in _alike(batch, query.epsilons, query.criteria):
                mine = self._rows.scores(histograms[here - batch[0]], criterion)
                sensitivity = score_sensitivity(criterion, n_classes, self._max_rows)
                if math.isinf(epsilon):
                    chosen[here] = mine.argmax(axis=1)
                else:
                    chosen[here] = selector.select(
                        to_fixed_point(mine), sensitivity, Fraction(epsilon), self._noise,
                        self._keys(query, here),
                    )  # fmt: skip
        return chosen

    def _noisy(self, query: Query, counts: IntArray, histograms: int = 1) -> IntArray:
        """Noise of scale `histograms` / epsilon: a row changes one cell of each histogram by one."""
        noisy = counts.reshape(len(counts), -1).copy()
        keys = self._keys(query, np.arange(len(counts)))
        for (epsilon,), here in _alike(np.arange(len(counts)), query.epsilons):
            if not math.isinf(epsilon):
                noisy[here] = self._noise.laplace(noisy[here], histograms / Fraction(epsilon), keys[here])
        return noisy.reshape(counts.shape)

    def _keys(self, query: Query, here: IntArray) -> NDArray[np.uint64]:
        """A number for each release, by the node's path, the kind of query, and how often it was asked.

        So seeded noise does not depend on the order in which nodes are asked, and never repeats.
        """
        purpose = PURPOSE[type(query)]
        keys = []
        for node in query.nodes[here].tolist():
            place = (self._path[node], purpose)
            keys.append(
                _mix((self._path[node] * len(PURPOSE) + purpose) * 2**16 + self._asked[place] % 2**16)
            )
            self._asked[place] += 1
        return np.array(keys, dtype=np.uint64)


def _alike(positions: IntArray, *facts: Sequence[Any]) -> Iterator[tuple[tuple[Any, ...], IntArray]]:
    """The positions that share all facts, such as epsilon: one call of a mechanism for all of them."""
    groups: dict[tuple[Any, ...], list[int]] = {}
    for i in positions.tolist():
        groups.setdefault(tuple(fact[i] for fact in facts), []).append(i)
    for shared, here in groups.items():
        yield shared, np.array(here)


def _mix(number: int) -> int:
    """64 well-mixed bits of a number of any size."""
    state = 0
    while number:
        state = (state ^ (number & (2**64 - 1))) * 0xBF58476D1CE4E5B9 % 2**64
        state ^= state >> 31
        number >>= 64
    return state
