"""The data holder: the only place where exact counts and noise meet.

Every answer is charged to the holder's own ledger before noise is drawn, and no answer, error or branch
depends on the rows in any other way.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from itertools import islice

import numpy as np
from numpy.typing import NDArray

from hedgerow.criteria import Criterion, score_sensitivity, to_fixed_point
from hedgerow.errors import InvalidTable, Refused
from hedgerow.holder.counts import NONE, Counts, GroupedRows
from hedgerow.holder.keys import NoKeys, PathKeys
from hedgerow.messages import (
    MOST_BYTES,
    MOST_FORKS,
    CountCells,
    CountColumns,
    CountForks,
    CountLabels,
    CountRows,
    CountSplits,
    Grow,
    Nominate,
    NominateAndCount,
    NominateForks,
    Query,
)
from hedgerow.paths import Paths
from hedgerow.privacy.ledger import Ledger, Price, Quote
from hedgerow.privacy.noise import LARGEST_SCALE, Noise, NoNoise, SeededNoise
from hedgerow.privacy.selectors import SELECTORS, Exponential, best_of, select_forks
from hedgerow.repeated import Epsilon, IntArray, Repeated
from hedgerow.schema import Schema

MOST_NODES = 2**20  # of one study: what a holder is willing to remember
MOST_DEPTH = 2**12
MOST_GENERATIONS = 2**6  # of one announcement; between two questions a coordinator has two or three
NO_NODES: IntArray = np.empty(0, dtype=np.int64)
LARGEST_NOISE = (
    2**43
)  # a count's noise is above 2**53, the largest number of a message, once in exp(1024) draws

WHAT: dict[type[Query], str] = {
    CountRows: "number of rows",
    CountLabels: "class counts",
    Nominate: "choice of a split",
    CountCells: "cells of a split",
    CountSplits: "cells of every split",
    CountColumns: "histograms of every column",
    CountForks: "cells of a fork",
}
CHOICE_OF_A_FORK = "choice of a fork"
LAPLACE = "discrete Laplace"
PURPOSE = {kind: i for i, kind in enumerate(WHAT)}


@dataclass(frozen=True, eq=False)
class Considered:
    """A request that is in order: what it would make of the tree and of the account. Nothing is done yet."""

    growth: Grow | None
    paths: Paths
    query: Query
    quote: Quote


@dataclass(frozen=True, eq=False)
class Charged:
    """A query that has been paid for, and the keys [node] of the seeded noise of each of its releases."""

    query: Query
    keys: Sequence[NDArray[np.uint64]]
    looks_at_a_row: int  # how often one row is looked at: in releases, and when nodes are split


class Holder:
    """Answers queries about its rows with noise, and keeps the account."""

    def __init__(self, rows: GroupedRows, noise: Noise, ledger: Ledger, max_rows: int) -> None:
        if rows.n_rows > max_rows:
            raise InvalidTable(
                f"the table has more than max_rows={max_rows} rows, the public bound that the noise is made for; "
                "raise max_rows, or give fewer rows."
            )
        rows.claim()
        self._rows = rows
        self._noise = noise
        self._max_rows = max_rows
        self.ledger = ledger
        self._paths = Paths.root(rows.schema)  # as announced
        self._keys = PathKeys(len(PURPOSE)) if isinstance(noise, SeededNoise) else NoKeys()

    @property
    def schema(self) -> Schema:
        """What is public about the rows."""
        return self._rows.schema

    def grow(self, announcement: Grow) -> None:
        """Follow the coordinator's tree: partition the rows of the nodes that it has split."""
        paths, quote = self._quote(announcement, NO_NODES, [])
        self.ledger.book(quote)
        self._follow(announcement, paths)

    def answer(self, query: Query, growth: Grow | None = None) -> IntArray:
        """One noisy answer, after an announcement; checked and charged first, refused if it would cost too much."""
        return self.release(self.charge(self.consider(growth, query)))

    def consider(self, growth: Grow | None, query: Query) -> Considered:
        """Check an announcement and the query that follows it; refuse what nobody may ask or what costs too much.

        Changes nothing, so that a request is written down, or refused, as a whole.
        """
        self._check(query)
        prices = prices_of(query)
        paths, quote = self._quote(growth, query.nodes, prices)
        if isinstance(query, Nominate) and not (divisible := paths.divisible(query.nodes)).all():
            node = query.nodes[~divisible].min()
            raise Refused(f"node {node} cannot be divided: its path decides every split.")
        self._check_scale(query, prices)
        return Considered(growth, paths, query, quote)

    def charge(self, considered: Considered) -> Charged:
        """Book a request that was considered last; the noise of its answer is settled, but not drawn."""
        self.ledger.book(considered.quote)
        self._follow(considered.growth, considered.paths)
        query = considered.query
        keys = [self._keys.serve(query.nodes, PURPOSE[kind]) for kind in releases_of(query)]
        generations = 0 if considered.growth is None else sum(1 for _ in considered.growth.generations())
        return Charged(query, keys, considered.quote.releases_of_a_row + generations)

    def _quote(self, growth: Grow | None, nodes: IntArray, prices: Sequence[Price]) -> tuple[Paths, Quote]:
        """The tree and the account after an announcement, then releases about nodes.

        The ledger refuses nodes that are unknown, or split already: two different partitions of the same rows would
        overlap, and its sums would be too small.
        """
        n_nodes = len(self._paths.parent)
        if self.ledger.n_parts != n_nodes:
            raise Refused("the holder was interrupted, and its account and its rows have parted.")
        if growth is None:
            return self._paths, self.ledger.quote(nodes, prices)
        if growth.splits.max() >= len(self.schema.splits):
            raise Refused("an announced split is not in the schema.")
        if growth.first != n_nodes:
            raise Refused(f"the next node is number {n_nodes}, not {growth.first}.")
        if n_nodes + 2 * len(growth.nodes) > MOST_NODES:
            raise Refused(f"a study has at most {MOST_NODES} nodes.")
        quote = self.ledger.quote(nodes, prices, growth.nodes)
        if quote.depths[n_nodes:].max() > MOST_DEPTH:
            raise Refused(f"a study's tree is at most {MOST_DEPTH} nodes deep.")
        if len(list(islice(growth.generations(), MOST_GENERATIONS + 1))) > MOST_GENERATIONS:
            raise Refused(
                f"an announcement splits at most {MOST_GENERATIONS - 1} generations of its own children."
            )
        return self._paths.grown(growth.nodes, growth.splits), quote

    def _follow(self, growth: Grow | None, paths: Paths) -> None:
        """Partition the rows as an announcement says that is in order."""
        if growth is None:
            return
        for part in growth.generations():
            self._rows.split(growth.nodes[part], growth.splits[part])
            self._keys.grow(growth.nodes[part])
        self._paths = paths  # at last: whatever was interrupted is noticed by the next question

    def _check(self, query: Query) -> None:
        """Refuse a query that makes no sense for this schema, or whose answer would not fit a message."""
        n_splits, n_classes = len(self.schema.splits), self.schema.n_classes
        if isinstance(query, CountCells) and query.splits.max() >= n_splits:
            raise Refused("a split is not in the schema.")
        if isinstance(query, CountForks) and query.forks.max() >= n_splits:
            raise Refused("a split is not in the schema.")
        if isinstance(query, NominateForks):
            if query.selector != Exponential.name:
                raise Refused(f"forks are chosen by {Exponential.name!r} only.")
            if not self.schema.can_fork:
                raise Refused("the schema has too many splits to choose three at once.")
            if len(query.nodes) > MOST_FORKS:
                raise Refused(f"at most {MOST_FORKS} forks are chosen at a time; ask about fewer nodes.")
        if isinstance(query, Nominate):
            if query.selector not in SELECTORS:
                raise Refused(f"there is no selector {query.selector!r}.")
            if Criterion.root_gini in Repeated.of(query.criteria).items and n_classes != 2:
                raise Refused("root gini needs two classes.")
        # Eight bytes a number, and room to spare.
        if 16 * math.prod(shape_of(query, self.schema)) > MOST_BYTES:
            raise Refused("the answer would be too long for a message; ask about fewer nodes at a time.")

    def _check_scale(self, query: Query, prices: Sequence[Price]) -> None:
        """Refuse an epsilon so small that no sampler, or no message, could hold the noise."""
        for kind, price in zip(releases_of(query), prices, strict=True):
            sensitivity, largest = self._histograms(kind), LARGEST_NOISE
            if isinstance(query, Nominate) and kind is Nominate:
                n_classes, n_rows = self.schema.n_classes, self._max_rows
                sensitivity = max(
                    score_sensitivity(c, n_classes, n_rows) for c in Repeated.of(query.criteria).items
                )
                largest = LARGEST_SCALE
            if sensitivity > largest * min(Repeated.of(price.epsilons).items):
                raise Refused("an epsilon is so small that its noise would not fit a message; raise epsilon.")

    def _histograms(self, kind: type[Query]) -> int:
        """In how many histograms of a query's answer a row is counted: the sensitivity of its counts."""
        kinds = {CountSplits: len(self.schema.splits), CountColumns: len(self.schema.columns)}
        return kinds.get(kind, 1)

    def release(self, charged: Charged) -> IntArray:
        """The noisy answer to a query that has been charged. Seeded noise is the same every time."""
        rows, query = self._rows, charged.query
        match query:
            case NominateForks():
                forks = self._nominate_forks(query, charged.keys[0])
                cells = rows.quarters(query.nodes, forks)
                noisy = self._noisy(CountCells, query.cell_epsilons, charged.keys[1], cells)
                return np.concatenate([forks, noisy.reshape(len(forks), -1)], axis=1)
            case NominateAndCount():
                splits = self._nominate(query, charged.keys[0])
                cells = rows.cells(query.nodes, splits)
                noisy = self._noisy(CountCells, query.cell_epsilons, charged.keys[1], cells)
                return np.concatenate([splits[:, None], noisy.reshape(len(splits), -1)], axis=1)
            case Nominate():
                return self._nominate(query, charged.keys[0])
            case CountRows():
                counts = rows.label_counts(query.nodes).sum(axis=1, keepdims=True)
            case CountLabels():
                counts = rows.label_counts(query.nodes)
            case CountCells():
                counts = rows.cells(query.nodes, query.splits)
            case CountForks():
                counts = rows.quarters(query.nodes, query.forks)
            case CountSplits():
                counts = rows.all_cells(query.nodes)
            case CountColumns():
                counts = rows.columns(query.nodes)
        return self._noisy(type(query), query.epsilons, charged.keys[0], counts)

    def _nominate(self, query: Nominate, keys: NDArray[np.uint64]) -> IntArray:
        """Selection on V = -F(left) - F(right), in fixed point, among the splits that a node's path leaves undecided.

        Which they are is public (docs/privacy.md, selection).
        """
        selector, n_classes = SELECTORS[query.selector], self._rows.schema.n_classes
        epsilons, criteria = Repeated.of(query.epsilons), Repeated.of(query.criteria)
        numbers = np.array([int(criterion) for criterion in criteria.items])[criteria.which]
        chosen = np.empty(len(query.nodes), dtype=np.int64)
        for batch, store, rows in self._rows.histograms(query.nodes):
            if math.inf in epsilons.items:
                chosen[batch] = self._best(query.nodes[batch], store, rows, numbers[batch])
                continue
            sensitivities = criteria.map(lambda each: score_sensitivity(each, n_classes, self._max_rows))
            chosen[batch] = selector.select(
                to_fixed_point(self._rows.scores(store, rows, numbers[batch])),
                sensitivities.at(batch),
                epsilons.at(batch).map(_fraction),
                self._noise,
                keys[batch],
                self._paths.undecided(query.nodes[batch]),
            )
        return chosen

    def _nominate_forks(self, query: NominateForks, keys: NDArray[np.uint64]) -> IntArray:
        """Selection on the sum of V over both sides of a split, each side with a split of its own.

        A row is on one side of every split, so it changes a fork's score as it changes a split's; the other side's
        part of it stays the same to the last bit.
        """
        n_classes = self.schema.n_classes
        epsilons, criteria = Repeated.of(query.epsilons), Repeated.of(query.criteria)
        numbers = np.array([int(criterion) for criterion in criteria.items])[criteria.which]
        sensitivities = criteria.map(lambda each: score_sensitivity(each, n_classes, self._max_rows))
        # What is named often is scored once.
        (nodes, of_nodes), which = np.unique([query.nodes, numbers], axis=1, return_inverse=True)
        which = which.ravel()
        is_exact = math.inf in epsilons.items
        rates = epsilons.map(lambda each: Fraction(1) if is_exact else _fraction(each))
        chosen = np.empty((len(query.nodes), 3), dtype=np.int64)
        for batch, scores in self._rows.fork_scores(nodes, of_nodes):
            places = np.flatnonzero((which >= batch[0]) & (which <= batch[-1]))
            chosen[places] = select_forks(
                to_fixed_point(scores),
                self._paths.undecided_below(nodes[batch]),
                self._paths.undecided(nodes[batch]),
                which[places] - batch[0],
                sensitivities.at(places),
                rates.at(places),
                NoNoise() if is_exact else self._noise,
                keys[places],
            )
        return np.where(chosen == len(self.schema.splits), NONE, chosen)

    def _best(self, nodes: IntArray, store: Counts, rows: IntArray, criteria: IntArray) -> IntArray:
        """The undecided split of the highest score, the first of equals.

        A decided split gains nothing, so it comes first only where no split gains anything.
        """
        best = self._rows.best_splits(store, rows, criteria)
        decided = np.flatnonzero(~self._paths.are_undecided(nodes, best))
        if len(decided):
            scores = self._rows.scores(store, rows[decided], criteria[decided])
            best[decided] = best_of(scores, self._paths.undecided(nodes[decided]))
        return best

    def _noisy(
        self, kind: type[Query], prices: Sequence[Epsilon], keys: NDArray[np.uint64], counts: IntArray
    ) -> IntArray:
        """Noise of scale (histograms) / epsilon: a row changes one cell of each histogram by one."""
        epsilons, histograms = Repeated.of(prices), self._histograms(kind)
        if math.inf in epsilons.items:
            return counts
        flat = counts.reshape(len(counts), -1)
        return self._noise.laplace(
            flat, epsilons.map(lambda epsilon: histograms / _fraction(epsilon)), keys
        ).reshape(counts.shape)


def _fraction(epsilon: Epsilon) -> Fraction:
    return epsilon if isinstance(epsilon, Fraction) else Fraction(epsilon)


def releases_of(query: Query) -> tuple[type[Query], ...]:
    """The mechanisms that answer a query, each named by the query that has it alone."""
    return (Nominate, CountCells) if isinstance(query, NominateAndCount) else (type(query),)


def prices_of(query: Query) -> list[Price]:
    """What the releases that answer a query cost, as a ledger has them."""
    if not isinstance(query, Nominate):
        return [Price(LAPLACE, WHAT[type(query)], query.epsilons)]
    choice, cells = WHAT[Nominate], WHAT[CountCells]
    if isinstance(query, NominateForks):
        choice, cells = CHOICE_OF_A_FORK, WHAT[CountForks]
    prices = [Price(query.selector, choice, query.epsilons)]
    if isinstance(query, NominateAndCount):
        prices.append(Price(LAPLACE, cells, query.cell_epsilons))
    return prices


def quote_of(ledger: Ledger, growth: Grow | None, query: Query) -> Quote:
    """What a request would make of an account: it follows from the request alone."""
    return ledger.quote(query.nodes, prices_of(query), None if growth is None else growth.nodes)


def shape_of(query: Query, schema: Schema) -> tuple[int, ...]:
    """The shape of the answer to a query."""
    n_classes = schema.n_classes
    a_node: dict[type[Query], tuple[int, ...]] = {
        CountRows: (1,),
        CountLabels: (n_classes,),
        Nominate: (),
        NominateAndCount: (1 + 2 * n_classes,),
        NominateForks: (3 + 4 * n_classes,),
        CountCells: (2, n_classes),
        CountForks: (2, 2, n_classes),
        CountSplits: (len(schema.splits), 2, n_classes),
        CountColumns: (int(schema.bin_start[-1]), n_classes),
    }
    return (len(query.nodes), *a_node[type(query)])
