"""A query with several releases: each node's choice is made, and its cells are counted, at its own price of each.

Prices differ between choice and cells and from node to node, so that no price can stand in for another. Noise has
fixed seeds. The tests of its scale would fail with probability 1e-6 or less, together, if their seeds were drawn anew.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy import stats  # type: ignore[import-untyped, unused-ignore]

from hedgerow import BudgetExceeded, Categorical, Numeric, Schema
from hedgerow.criteria import Criterion, score_sensitivity, to_fixed_point
from hedgerow.encoding import encode, encode_labels
from hedgerow.holder.counts import GroupedRows
from hedgerow.holder.holder import Holder
from hedgerow.messages import (
    CountCells,
    CountColumns,
    CountForks,
    CountLabels,
    CountRows,
    CountSplits,
    Grow,
    NominateAndCount,
    NominateForks,
    Query,
)
from hedgerow.privacy.ledger import Entry, Ledger
from hedgerow.privacy.noise import Noise, NoNoise, RepeatableNoise, SeededNoise
from hedgerow.privacy.selectors import SELECTORS, select_forks
from hedgerow.repeated import Epsilon, IntArray

SCHEMA = Schema(
    [Numeric("x", 0, 1, 5), Categorical("c", ["a", "b", "d"]), Numeric("z", 0, 1, 3)],
    label="y",
    classes=["no", "yes"],
)
MAX_ROWS = 1000
NODES, DEPTHS = [3, 4, 5, 6, 2], [3, 3, 3, 3, 2]  # node 2 is divided already
CRITERIA = [*Criterion, Criterion.gini]
CHOICES: list[Epsilon] = [Fraction(5, 4), Fraction(7, 3), Fraction(5), Fraction(2, 5), Fraction(3)]
CELLS: list[Epsilon] = [Fraction(1, 30), Fraction(1, 5), Fraction(2, 3), Fraction(1, 11), Fraction(1, 100)]
SPENT = 5 + Fraction(2, 3) + 3 + Fraction(1, 100)  # by node 5, which is a part of node 2
PER_TEST = 1e-8  # of fewer than 100 tests of a scale


@dataclass(frozen=True)
class Kind:
    """A query that chooses and counts."""

    query: type[NominateAndCount]
    selector: str

    @property
    def n_choices(self) -> int:
        return 3 if self.query is NominateForks else 1

    @property
    def names(self) -> tuple[str, str]:
        what = "fork" if self.query is NominateForks else "split"
        return f"choice of a {what}", f"cells of a {what}"

    def ask(
        self, nodes: list[int], criteria: list[Criterion], choices: list[Epsilon], cells: list[Epsilon]
    ) -> NominateAndCount:
        return self.query(np.array(nodes), criteria, self.selector, choices, cells)

    def cells(self, rows: GroupedRows, nodes: list[int], chosen: IntArray) -> IntArray:
        """Exact, in a row a node."""
        counted = (
            rows.quarters(np.array(nodes), chosen)
            if self.query is NominateForks
            else rows.cells(np.array(nodes), chosen[:, 0])
        )
        return counted.reshape(len(nodes), -1)


KINDS = [Kind(NominateAndCount, selector) for selector in SELECTORS] + [Kind(NominateForks, "exponential")]
every_kind = pytest.mark.parametrize(
    "kind", KINDS, ids=lambda kind: f"{kind.query.__name__}, {kind.selector}"
)


def grown(noise: Noise, grant: Epsilon = Fraction(100)) -> Holder:
    """A holder whose tree has the nodes 0 to 6, three deep."""
    rng = np.random.default_rng(3)
    values = np.empty((600, 3), dtype=object)
    values[:, 0], values[:, 2] = rng.random((2, 600))
    values[:, 1] = rng.choice(["a", "b", "d", "other"], 600)
    likely = 0.2 + 0.6 * (values[:, 0] > 0.4) * (values[:, 1] != "b")
    labels = np.where(rng.random(600) < likely.astype(float), "yes", "no")
    rows = GroupedRows(encode(values, SCHEMA), encode_labels(labels, SCHEMA), SCHEMA)
    holder = Holder(rows, noise, Ledger(grant), MAX_ROWS)
    holder.grow(Grow(np.array([0, 1, 2]), np.array([0, 4, 6]), 1))
    return holder


def repeatable(seed: int) -> RepeatableNoise:
    """The sampler that protects people, on words that can be drawn again."""
    [(tape, _)] = SeededNoise(seed).tapes(np.zeros(1, np.uint64))
    return RepeatableNoise(tape)


def chosen_alone(
    kind: Kind, holder: Holder, node: int, criterion: Criterion, price: Epsilon, key: NDArray[np.uint64]
) -> list[int]:
    """What a node's choice is by its own scores, sensitivity, price and key, without any other node."""
    rows, where, number = holder._rows, np.array([node]), np.array([int(criterion)])
    sensitivity = score_sensitivity(criterion, SCHEMA.n_classes, MAX_ROWS)
    exactly = Fraction(price)
    if kind.query is NominateForks:
        [(_, scores)] = rows.fork_scores(where, number)
        options, among = holder._paths.undecided_below(where), holder._paths.undecided(where)
        found = select_forks(
            to_fixed_point(scores),
            options,
            among,
            np.zeros(1, np.int64),
            sensitivity,
            exactly,
            holder._noise,
            key,
        )
        return np.where(found == len(SCHEMA.splits), -1, found)[0].tolist()
    [(_, store, at)] = rows.histograms(where)
    scores = to_fixed_point(rows.scores(store, at, number))
    among = holder._paths.undecided(where)
    select = SELECTORS[kind.selector].select
    return select(scores, sensitivity, exactly, holder._noise, key, among).tolist()


# ---- The same answers, one by one -----------------------------------------------------------------------------------


@every_kind
@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("memory", [0, 2**20])  # one or two nodes a batch, or all
def test_a_choice_and_its_cells_are_drawn_each_at_its_own_price(
    kind: Kind, seed: int, memory: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    noise = SeededNoise(seed)
    apart = grown(noise)
    monkeypatch.setattr("hedgerow.holder.counts.MEMORY", memory)
    together = grown(noise)
    query = kind.ask(NODES, CRITERIA, CHOICES, CELLS)
    answer = together.answer(query)
    choice_keys, cell_keys = apart.charge(apart.consider(None, query)).keys
    for i, node in enumerate(NODES):
        own = slice(i, i + 1)
        chosen = chosen_alone(kind, apart, node, CRITERIA[i], CHOICES[i], choice_keys[own])
        cells = kind.cells(apart._rows, [node], np.array([chosen]))
        noisy = noise.laplace(cells, 1 / Fraction(CELLS[i]), cell_keys[own])
        assert answer[i].tolist() == [*chosen, *noisy[0].tolist()]


@every_kind
def test_a_nodes_answer_does_not_depend_on_the_prices_of_others(kind: Kind) -> None:
    """Neither does a choice depend on the price of cells."""
    noise = SeededNoise(1)
    answer = grown(noise).answer(kind.ask(NODES, CRITERIA, CHOICES, CELLS))
    for i in range(len(NODES)):
        here = np.arange(len(NODES)) == i
        choices = [own if mine else own / 3 for own, mine in zip(CHOICES, here, strict=True)]
        cells = [own if mine else own * 2 for own, mine in zip(CELLS, here, strict=True)]
        assert np.array_equal(grown(noise).answer(kind.ask(NODES, CRITERIA, choices, cells))[i], answer[i])
    cheaper = grown(noise).answer(kind.ask(NODES, CRITERIA, CHOICES, [own / 9 for own in CELLS]))
    assert np.array_equal(cheaper[:, : kind.n_choices], answer[:, : kind.n_choices])


@every_kind
def test_without_noise_the_cells_are_those_of_the_chosen(kind: Kind) -> None:
    asked, free = grown(NoNoise(), math.inf), [math.inf] * len(NODES)
    answer = asked.answer(kind.ask(NODES, CRITERIA, free, free))
    chosen = answer[:, : kind.n_choices]
    assert np.array_equal(answer[:, kind.n_choices :], kind.cells(asked._rows, NODES, chosen))


# ---- The account ----------------------------------------------------------------------------------------------------


@every_kind
def test_a_choice_and_its_cells_are_booked_each_at_its_own_price(kind: Kind) -> None:
    asked = grown(SeededNoise(1))
    asked.answer(kind.ask(NODES, CRITERIA, CHOICES, CELLS))
    choice, cells = kind.names
    places = list(zip(NODES, DEPTHS, strict=True))
    assert asked.ledger.entries == [
        *(Entry(*at, kind.selector, choice, price) for at, price in zip(places, CHOICES, strict=True)),
        *(Entry(*at, "discrete Laplace", cells, price) for at, price in zip(places, CELLS, strict=True)),
    ]
    assert asked.ledger.spent == SPENT


@every_kind
@pytest.mark.parametrize("share", [Fraction(1, 300), Fraction(299, 300)])
@pytest.mark.parametrize("place", range(len(NODES)))
def test_a_choice_and_its_cells_are_paid_for_together(kind: Kind, share: Fraction, place: int) -> None:
    """At every node: all of the grant is spent on one, to the last unit, and a thousandth more is refused."""
    tiny = Fraction(1, 10_000)
    above_or_below = 2 * tiny if NODES[place] in {2, 5, 6} else 0  # what the other end of the path pays
    for own, is_refused in ((3 - above_or_below, False), (3 - above_or_below + Fraction(1, 1000), True)):
        asked = grown(SeededNoise(1), Fraction(3))
        choices, cells = [[tiny] * len(NODES) for _ in range(2)]
        choices[place], cells[place] = own * share, own * (1 - share)
        query = kind.ask(NODES, CRITERIA, choices, cells)
        if is_refused:
            with pytest.raises(BudgetExceeded, match=" and ".join(kind.names)):
                asked.answer(query)
            assert (asked.ledger.spent, asked.ledger.entries) == (0, [])
        else:
            asked.answer(query)
            assert asked.ledger.spent == 3


def test_the_cells_of_a_fork_are_booked_each_node_at_its_own_price() -> None:
    asked = grown(SeededNoise(1))
    nodes = np.array(NODES)
    asked.answer(CountForks(nodes, *fork_of(nodes), CELLS))
    assert asked.ledger.entries == [
        Entry(node, depth, "discrete Laplace", "cells of a fork", price)
        for node, depth, price in zip(NODES, DEPTHS, CELLS, strict=True)
    ]
    assert asked.ledger.spent == Fraction(2, 3) + Fraction(1, 100)


# ---- The scale of the noise -----------------------------------------------------------------------------------------


def p_value(sample: NDArray[np.int64], scale: Fraction) -> float:
    """Of a chi-square test against the discrete Laplace distribution, in about twenty bins of equal probability."""
    ratio = math.exp(-1 / float(scale))

    def at_most(z: NDArray[np.int64]) -> NDArray[np.float64]:
        upper = 1 - ratio ** (np.maximum(z, 0) + 1) / (1 + ratio)
        return np.where(z >= 0, upper, ratio ** (-np.minimum(z, 0)) / (1 + ratio))

    width = math.ceil(20 * float(scale))
    values = np.arange(-width, width + 1)
    edges = np.unique(values[np.searchsorted(at_most(values), np.linspace(0.05, 0.95, 19))])
    expected = np.diff(np.concatenate([[0], at_most(edges), [1]])) * sample.size
    counted = np.bincount(np.searchsorted(edges, sample.ravel()), minlength=len(expected))
    return float(stats.chisquare(counted, expected).pvalue)


@every_kind
@pytest.mark.parametrize("source", ["seeded", "exact"])
def test_the_noise_of_each_nodes_cells_has_the_scale_of_their_price(kind: Kind, source: str) -> None:
    """40 p-values in these eight tests, each below 1e-8 with probability 1e-8."""
    times = 400
    asked = grown(SeededNoise(7) if source == "seeded" else repeatable(7), Fraction(10_000))
    query = kind.ask(NODES * times, CRITERIA * times, CHOICES * times, CELLS * times)
    answer = asked.answer(query)
    chosen, noisy = answer[:, : kind.n_choices], answer[:, kind.n_choices :]
    noise = noisy - kind.cells(asked._rows, NODES * times, chosen)
    for i, price in enumerate(CELLS):
        own = noise[i :: len(NODES)]
        assert p_value(own, 1 / Fraction(price)) > PER_TEST
        for other in {*CELLS, *CHOICES} - {price}:  # and a price in another's place would be noticed
            assert p_value(own, 1 / Fraction(other)) < PER_TEST


def fork_of(nodes: IntArray) -> IntArray:
    """A fork of each node, [split, node]: not all alike, and some without a split on a side."""
    return np.array([[1, 5, -1], [0, 7, 2], [6, -1, -1]])[nodes % 3].T.copy()


COUNTS: dict[str, tuple[Callable[[IntArray, list[Epsilon]], Query], int]] = {
    "rows": (CountRows, 1),
    "class counts": (CountLabels, 1),
    "cells": (lambda nodes, prices: CountCells(nodes, np.full(len(nodes), 1), prices), 1),
    "cells of a fork": (lambda nodes, prices: CountForks(nodes, *fork_of(nodes), prices), 1),
    "cells of every split": (CountSplits, len(SCHEMA.splits)),
    "histograms": (CountColumns, len(SCHEMA.columns)),
}


@pytest.mark.parametrize("kind", COUNTS)
@pytest.mark.parametrize("source", ["seeded", "exact"])
def test_the_noise_of_each_nodes_counts_has_the_scale_of_their_price(kind: str, source: str) -> None:
    """A row stands in one cell of every histogram, and pays for all. 60 p-values, each below 1e-8 once in 10**8."""
    make, histograms = COUNTS[kind]
    times = 1500 if kind == "rows" else 400
    nodes = np.array(NODES * times)
    truth = grown(NoNoise(), math.inf).answer(make(nodes, [math.inf] * len(nodes)))
    asked = grown(SeededNoise(8) if source == "seeded" else repeatable(8), Fraction(10_000))
    noise = (asked.answer(make(nodes, CELLS * times)) - truth).reshape(times, len(NODES), -1)
    for i, price in enumerate(CELLS):
        own = noise[:, i]
        assert p_value(own, histograms / Fraction(price)) > PER_TEST
        for other in {*CELLS} - {price}:
            assert p_value(own, histograms / Fraction(other)) < PER_TEST


@every_kind
@pytest.mark.parametrize("source", ["seeded", "exact"])
def test_a_choice_at_a_high_price_is_the_best_and_at_a_low_one_any(kind: Kind, source: str) -> None:
    """Whatever its cells cost, and whatever others pay in the same query.

    At 10**6 the best is missed less than once in exp(200). At a ten-thousandth, one of at least six is chosen nearly
    uniformly: all 50 times the same with probability below 5**-49.
    """
    criteria, free = (
        [*list(Criterion)[:3], *list(Criterion)[:2]],
        [math.inf] * len(NODES),
    )  # of which none has ties
    best = grown(NoNoise(), math.inf).answer(kind.ask(NODES, criteria, free, free))[:, : kind.n_choices]
    times, high, low = 100, Fraction(10**6), Fraction(1, 10_000)
    is_high = np.arange(times * len(NODES)) % 2 == 0  # of five nodes: each pays either price in turn
    choices, cells = ([high if one else low for one in which] for which in (is_high, ~is_high))
    asked = grown(SeededNoise(3) if source == "seeded" else repeatable(3), Fraction(10**9))
    answer = asked.answer(kind.ask(NODES * times, criteria * times, choices, cells))
    is_best = (answer[:, : kind.n_choices] == np.tile(best, (times, 1))).all(axis=1)
    assert is_best[is_high].all()
    for node in range(len(NODES)):
        assert not is_best[node :: len(NODES)][~is_high[node :: len(NODES)]].all()
