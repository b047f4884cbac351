"""The data holder: charged before noise, refused without a trace, and nothing but noise depends on the rows."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from hedgerow import BudgetExceeded, Categorical, HedgerowError, Numeric, PrivateTreeClassifier, Schema
from hedgerow.classifier import BUDGETS, METHODS
from hedgerow.criteria import Criterion, score_sensitivity
from hedgerow.encoding import encode, encode_labels
from hedgerow.holder.counts import GroupedRows
from hedgerow.holder.holder import Holder
from hedgerow.holder.keys import PathKeys
from hedgerow.messages import (
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
from hedgerow.privacy.ledger import Ledger
from hedgerow.privacy.noise import Noise, NoNoise, SecureNoise, SeededNoise
from hedgerow.privacy.selectors import SELECTORS

SCHEMA = Schema(
    [Numeric("x", low=0, high=1, thresholds=3), Categorical("c", ["a", "b"])],
    label="y",
    classes=["no", "yes"],
)
ONE = Fraction(1)
Table = tuple[NDArray[np.object_], NDArray[np.str_]]


def table(n_rows: int, seed: int = 0, labels: tuple[str, ...] = ("no", "yes")) -> Table:
    rng = np.random.default_rng(seed)
    values = np.empty((n_rows, 2), dtype=object)
    values[:, 0] = rng.uniform(0, 1, n_rows)
    values[:, 1] = rng.choice(["a", "b", "other"], n_rows)
    return values, rng.choice(labels, n_rows)


def holder(rows: Table, noise: Noise | None = None, grant: Fraction | float = Fraction(100)) -> Holder:
    grouped = GroupedRows(encode(rows[0], SCHEMA), encode_labels(rows[1], SCHEMA), SCHEMA)
    return Holder(grouped, noise or SeededNoise(1), Ledger(grant), max_rows=1000)


def growth(node: int, split: int, first: int) -> Grow:
    return Grow(np.array([node]), np.array([split]), first)


KINDS: dict[str, Callable[[list[int], Fraction | float], Query]] = {
    "rows": lambda nodes, price: CountRows(np.array(nodes), [price] * len(nodes)),
    "class counts": lambda nodes, price: CountLabels(np.array(nodes), [price] * len(nodes)),
    "cells": lambda nodes, price: CountCells(
        np.array(nodes), np.arange(len(nodes)) % 4, [price] * len(nodes)
    ),
    "cells of a fork": lambda nodes, price: CountForks(
        np.array(nodes), *np.repeat([[1], [-1], [4]], len(nodes), axis=1), [price] * len(nodes)
    ),
    "cells of every split": lambda nodes, price: CountSplits(np.array(nodes), [price] * len(nodes)),
    "histograms": lambda nodes, price: CountColumns(np.array(nodes), [price] * len(nodes)),
    "a choice and its cells": lambda nodes, price: NominateAndCount(
        np.array(nodes),
        [Criterion.gini] * len(nodes),
        "permute_and_flip",
        [price / 3] * len(nodes),
        [2 * price / 3] * len(nodes),
    ),
    "a fork and its cells": lambda nodes, price: NominateForks(
        np.array(nodes),
        [Criterion.gini] * len(nodes),
        "exponential",
        [price / 3] * len(nodes),
        [2 * price / 3] * len(nodes),
    ),
} | {
    f"{selector}, {criterion.name}": lambda nodes, price, selector=selector, criterion=criterion: Nominate(  # type: ignore[misc]
        np.array(nodes), [criterion] * len(nodes), selector, [price] * len(nodes)
    )
    for selector, criterion in itertools.product(SELECTORS, Criterion)
}
TABLES = {
    "empty": table(0),
    "one row": table(1),
    "one class": table(50, labels=("yes",)),
    "full": table(200),
}
every_kind = pytest.mark.parametrize("kind", KINDS)


# ---- The account -----------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Broken:
    """A source of noise that fails at the first draw."""

    private: bool = True

    def laplace(self, values: object, scale: object, keys: object) -> NDArray[np.int64]:
        raise OSError("no entropy")

    def tapes(self, keys: NDArray[np.uint64]) -> object:
        raise OSError("no entropy")


@every_kind
def test_a_query_is_charged_before_noise_is_drawn(kind: str) -> None:
    asked = holder(TABLES["full"], Broken())  # type: ignore[arg-type]
    with pytest.raises(OSError, match="no entropy"):
        asked.answer(KINDS[kind]([0], Fraction(1, 3)))
    assert asked.ledger.spent == Fraction(1, 3)


@every_kind
def test_a_refused_query_releases_and_spends_nothing(kind: str) -> None:
    asked = holder(TABLES["full"], Broken(), grant=ONE)  # type: ignore[arg-type]
    with pytest.raises(BudgetExceeded):  # and not the error of a draw
        asked.answer(KINDS[kind]([0], Fraction(101, 100)))
    assert (asked.ledger.spent, asked.ledger.entries) == (0, [])


@every_kind
def test_a_query_of_which_one_node_is_too_expensive_is_refused_as_a_whole(kind: str) -> None:
    asked = holder(TABLES["full"], grant=ONE)
    asked.grow(growth(0, 0, 1))
    asked.answer(CountRows(np.array([2]), [Fraction(1, 2)]))
    with pytest.raises(BudgetExceeded):
        asked.answer(KINDS[kind]([1, 2], Fraction(3, 4)))
    assert asked.ledger.spent == Fraction(1, 2)
    assert len(asked.ledger.entries) == 1


@every_kind
@pytest.mark.parametrize("price", [Fraction(0), Fraction(-1), math.nan, math.inf])
def test_a_price_that_is_none_is_refused(kind: str, price: Fraction | float) -> None:
    asked = holder(TABLES["full"], Broken())  # type: ignore[arg-type]
    with pytest.raises(HedgerowError):
        asked.answer(KINDS[kind]([0], price))
    assert asked.ledger.spent == 0


@every_kind
def test_nothing_is_said_about_an_unknown_node(kind: str) -> None:
    asked = holder(TABLES["full"], Broken())  # type: ignore[arg-type]
    for nodes in ([7], [-1], [0, 7]):
        with pytest.raises(HedgerowError, match="does not exist"):
            asked.answer(KINDS[kind](nodes, ONE))
    assert asked.ledger.spent == 0


@pytest.mark.parametrize("noise", [SeededNoise(1), NoNoise()])
def test_a_choice_with_its_cells_is_a_choice_and_then_its_cells(noise: Noise) -> None:
    """The same answers, and the same account, in one request."""
    grant: Fraction | float = math.inf if isinstance(noise, NoNoise) else Fraction(2)
    together, apart = (holder(TABLES["full"], noise, grant) for _ in range(2))
    for asked in (together, apart):
        asked.grow(growth(0, 0, 1))
    nodes, criteria = np.array([1, 2]), [Criterion.gini, Criterion.entropy]
    choose, count = (
        ([math.inf] * 2, [math.inf] * 2)
        if isinstance(noise, NoNoise)
        else ([Fraction(1, 3), Fraction(1, 2)], [Fraction(1, 4), Fraction(1, 5)])
    )
    answer = together.answer(NominateAndCount(nodes, criteria, "permute_and_flip", choose, count))
    splits = apart.answer(Nominate(nodes, criteria, "permute_and_flip", choose))
    cells = apart.answer(CountCells(nodes, splits, count))
    assert answer[:, 0].tolist() == splits.tolist()
    assert answer[:, 1:].reshape(cells.shape).tolist() == cells.tolist()
    assert together.ledger.entries == apart.ledger.entries
    assert together.ledger.spent == apart.ledger.spent


@pytest.mark.parametrize(("choose", "count"), [(2, 1), (1, 2)])
def test_a_choice_and_its_cells_are_paid_for_together(choose: int, count: int) -> None:
    asked = holder(TABLES["full"], Broken(), grant=ONE)  # type: ignore[arg-type]
    prices = [[Fraction(share, 3) + Fraction(1, 1000)] for share in (choose, count)]
    with pytest.raises(BudgetExceeded, match="choice of a split and cells of a split"):
        asked.answer(NominateAndCount(np.array([0]), [Criterion.gini], "permute_and_flip", *prices))
    assert (asked.ledger.spent, asked.ledger.entries) == (0, [])


def test_rows_belong_to_one_holder() -> None:
    """A second one would take the first one's nodes for its own, and its account would be of others."""
    rows = GroupedRows(encode(TABLES["full"][0], SCHEMA), encode_labels(TABLES["full"][1], SCHEMA), SCHEMA)
    Holder(rows, SeededNoise(1), Ledger(ONE), max_rows=1000)
    with pytest.raises(ValueError, match="another holder's already"):
        Holder(rows, SeededNoise(1), Ledger(ONE), max_rows=1000)


def test_a_node_is_split_once_and_in_one_way() -> None:
    """Two partitions of the same rows would overlap, and what a row pays would not lie on one path."""
    asked = holder(TABLES["full"])
    asked.grow(growth(0, 0, 1))
    before = asked.answer(CountRows(np.array([1]), [Fraction(1, 1000)]))
    for refused, reason in (
        (growth(0, 0, 1), "the next node is number 3, not 1"),
        (growth(0, 0, 3), "node 0 is split already"),
        (growth(0, 1, 3), "node 0 is split already"),
        (Grow(np.array([1, 1]), np.array([0, 1]), 3), "node 1 is split already"),
        (Grow(np.array([1, 0]), np.array([1, 1]), 3), "node 0 is split already"),
        (growth(1, 1, 2), "the next node is number 3, not 2"),
        (growth(1, 1, 5), "the next node is number 3, not 5"),
        (growth(3, 0, 3), "node 3 does not exist"),
        (Grow(np.array([1, 5]), np.array([1, 1]), 3), "node 5 does not exist"),
        (Grow(np.array([3, 1]), np.array([1, 1]), 3), "node 3 does not exist"),
        (growth(1, len(SCHEMA.splits), 3), "not in the schema"),
    ):
        with pytest.raises(HedgerowError, match=reason):
            asked.grow(refused)
    for number in (3, 4, 5, 6):  # nothing of a refused announcement is known
        with pytest.raises(HedgerowError):
            asked.answer(CountRows(np.array([number]), [ONE]))
    assert len(asked.ledger.entries) == len(before) == 1


@pytest.mark.parametrize("selector", SELECTORS)
@pytest.mark.parametrize("noise", [SeededNoise(1), SecureNoise(), NoNoise()])
def test_only_a_split_that_the_path_leaves_undecided_is_chosen(selector: str, noise: Noise) -> None:
    """A node whose path knows the bin of x, and that c is not a: only c == b is open there."""
    asked = holder(TABLES["full"], noise, math.inf if isinstance(noise, NoNoise) else Fraction(100))
    by_name = {str(split): i for i, split in enumerate(SCHEMA.splits)}
    at, unknown = 0, 1
    for test, goes_left in (("x <= 0.5", True), ("x <= 0.166667", False), ("c == a", False)):
        asked.grow(growth(at, by_name[test], unknown))
        at, unknown = unknown + (not goes_left), unknown + 2
    price = math.inf if isinstance(noise, NoNoise) else Fraction(1, 50)
    asking = Nominate(np.full(40, at), [Criterion.gini] * 40, selector, [price] * 40)
    assert set(asked.answer(asking).tolist()) == {by_name["c == b"]}


@pytest.mark.parametrize("noise", [SeededNoise(1), SecureNoise(), NoNoise()])
def test_only_a_fork_that_the_path_leaves_undecided_is_chosen(noise: Noise) -> None:
    """Below c == a nothing but x is open, on either side of a split of it; a bin of x cannot be split any more."""
    asked = holder(TABLES["full"], noise, math.inf if isinstance(noise, NoNoise) else Fraction(100))
    by_name = {str(split): i for i, split in enumerate(SCHEMA.splits)}
    asked.grow(growth(0, by_name["c == a"], 1))
    price = [math.inf if isinstance(noise, NoNoise) else Fraction(1, 50)] * 200
    asking = NominateForks(np.full(200, 1), [Criterion.gini] * 200, "exponential", price, price)
    found = {tuple(fork) for fork in asked.answer(asking)[:, :3].tolist()}
    low, middle, high = (by_name[f"x <= {x}"] for x in ("0.166667", "0.5", "0.833333"))
    possible = {(low, -1, middle), (low, -1, high), (middle, low, high), (high, low, -1), (high, middle, -1)}
    assert found <= possible
    assert found == possible or isinstance(noise, NoNoise)


def test_a_schema_of_too_many_splits_for_forks_is_told_so_before_anything_is_spent() -> None:
    schema = Schema([Numeric("x", 0, 1, 1_100)], label="y", classes=["no", "yes"])
    grouped = GroupedRows(
        encode(np.zeros((3, 1)), schema), encode_labels(np.array(["no"] * 3), schema), schema
    )
    asked = Holder(grouped, Broken(), Ledger(ONE), max_rows=10)  # type: ignore[arg-type]
    forks = NominateForks(np.array([0]), [Criterion.gini], "exponential", [ONE / 4], [ONE / 4])
    with pytest.raises(HedgerowError, match="too many splits"):
        asked.answer(forks)
    assert asked.ledger.spent == 0


def test_no_request_asks_for_more_forks_than_a_holder_has_time_for() -> None:
    asked = holder(TABLES["full"], Broken())  # type: ignore[arg-type]
    n = MOST_FORKS + 1
    forks = NominateForks(
        np.zeros(n, np.int64), [Criterion.gini] * n, "exponential", [ONE / n] * n, [ONE / n] * n
    )
    with pytest.raises(HedgerowError, match="ask about fewer nodes"):
        asked.answer(forks)
    assert asked.ledger.spent == 0


def test_an_announcement_of_very_many_generations_is_refused() -> None:
    """Each is a pass of its own; between two questions a coordinator has two or three."""
    for n, is_known in ((64, True), (65, False)):
        asked = holder(TABLES["full"])
        caterpillar = Grow(np.concatenate([[0], 2 * np.arange(1, n)]), np.zeros(n, np.int64), 1)
        if is_known:
            asked.grow(caterpillar)
            assert asked.answer(CountRows(np.array([2 * n]), [ONE])).shape == (1, 1)
        else:
            with pytest.raises(HedgerowError, match="generations"):
                asked.grow(caterpillar)
            assert asked.ledger.n_parts == 1


def test_forks_have_one_selector() -> None:
    asked = holder(TABLES["full"], Broken())  # type: ignore[arg-type]
    forks = NominateForks(np.array([0]), [Criterion.gini], "permute_and_flip", [ONE / 4], [ONE / 4])
    with pytest.raises(HedgerowError, match="'exponential' only"):
        asked.answer(forks)
    assert asked.ledger.spent == 0


@pytest.mark.parametrize("selector", SELECTORS)
def test_no_split_is_chosen_where_the_path_decides_all(selector: str) -> None:
    """Nor in the request that makes the node; and nothing is spent."""
    asked = holder(TABLES["full"], Broken())  # type: ignore[arg-type]
    for node, split in ((0, 0), (2, 1), (4, 2)):  # c is neither a nor b, and then x is above 1/6
        asked.consider(None, Nominate(np.array([0, node]), [Criterion.gini] * 2, selector, [ONE] * 2))
        asked.grow(growth(node, split, node + 1))
    asking = Nominate(np.array([0, 6, 7]), [Criterion.gini] * 3, selector, [ONE] * 3)
    announced = growth(6, 3, 7)  # and at most a half
    with pytest.raises(HedgerowError, match="node 7 cannot be divided"):
        asked.consider(announced, asking)
    asked.grow(announced)
    with pytest.raises(HedgerowError, match="node 7 cannot be divided"):
        asked.answer(asking)
    assert asked.ledger.spent == 0


@pytest.mark.parametrize("kind", ["a choice and its cells", "a fork and its cells"])
def test_nothing_is_chosen_and_counted_where_the_path_decides_all(kind: str) -> None:
    asked = holder(TABLES["full"], Broken())  # type: ignore[arg-type]
    for node, split in ((0, 0), (2, 1), (4, 2), (6, 3)):  # as above
        asked.consider(None, KINDS[kind]([0, node], ONE))
        asked.grow(growth(node, split, node + 1))
    with pytest.raises(HedgerowError, match="node 7 cannot be divided"):
        asked.answer(KINDS[kind]([0, 6, 7], ONE))
    assert asked.ledger.spent == 0


def test_a_query_about_a_divided_node_is_charged_to_all_below_it() -> None:
    asked = holder(TABLES["full"], grant=ONE)
    asked.grow(growth(0, 0, 1))
    asked.answer(CountRows(np.array([1]), [Fraction(3, 4)]))
    with pytest.raises(BudgetExceeded):
        asked.answer(CountRows(np.array([0]), [Fraction(1, 2)]))


@pytest.mark.parametrize(
    "kind", ["rows", "class counts", "cells", "cells of a fork", "cells of every split", "histograms"]
)
def test_a_node_named_twice_costs_no_more_than_is_booked(kind: str) -> None:
    """A coordinator that names a node twice, cheaply and dearly, must not get the dear one doubled."""
    values, labels = table(21)
    prices = [Fraction(1, 100), ONE]
    answers = []
    asked = []
    for n_rows in (20, 21):
        asked.append(holder((values[:n_rows], labels[:n_rows]), NoNoise()))
        query = KINDS[kind]([0, 0], ONE)
        answers.append(asked[-1].answer(type(query)(**{**vars(query), "epsilons": prices})))
    histograms = {"cells of every split": len(SCHEMA.splits), "histograms": len(SCHEMA.columns)}.get(kind, 1)
    change = np.abs(answers[1] - answers[0]).reshape(2, -1).sum(axis=1).tolist()
    true = sum(Fraction(c, histograms) * price for c, price in zip(change, prices, strict=True))
    assert true <= asked[1].ledger.spent


@pytest.mark.parametrize("selector", SELECTORS)
def test_a_node_named_twice_is_nominated_from_its_own_scores(selector: str) -> None:
    """Doubled counts have doubled scores, and one row moves them by twice the sensitivity."""
    values, _ = table(100)
    asked = holder((values, np.where(values[:, 1] == "b", "yes", "no")), NoNoise())
    best = [str(split) for split in SCHEMA.splits].index("c == b")
    assert asked.answer(KINDS[f"{selector}, gini"]([0, 0, 0], ONE)).tolist() == [best] * 3


@pytest.mark.parametrize("kind", ["histograms", "permute_and_flip, gini"])
def test_a_node_named_twice_leaves_later_answers_right(kind: str) -> None:
    """Children are counted by subtraction: a parent remembered wrongly would put a row on two paths."""
    asked, plain = (holder(TABLES["full"], NoNoise()) for _ in range(2))
    asked.answer(KINDS[kind]([0, 0], ONE))
    for one in (asked, plain):
        one.grow(growth(0, 0, 1))
    answers = [one.answer(KINDS["histograms"]([1, 2], ONE)) for one in (asked, plain)]
    assert np.array_equal(*answers)


@pytest.mark.parametrize("nodes", [[0, 1, 2], [2, 0, 1], [0, 1], [2, 0]])
def test_a_parent_that_is_asked_about_with_its_children_keeps_its_own_counts(nodes: list[int]) -> None:
    """A child may be made of its parent's histogram only if nobody asks for that."""
    asked, plain = (holder(TABLES["full"], NoNoise()) for _ in range(2))
    asked.answer(KINDS["histograms"]([0], ONE))
    for one in (asked, plain):
        one.grow(growth(0, 0, 1))
    one_by_one = [plain.answer(KINDS["histograms"]([node], ONE)) for node in nodes]
    assert np.array_equal(asked.answer(KINDS["histograms"](nodes, ONE)), np.concatenate(one_by_one))


def test_a_node_named_many_times_gets_noise_of_its_own_each_time() -> None:
    """The same noise twice would cancel out; two equal numbers of scale 10**6 come up once in 10**6."""
    asked = holder(TABLES["full"])
    query = KINDS["class counts"]([0] * 10, Fraction(1, 10**6))
    noisy = np.concatenate([asked.answer(query), asked.answer(query)])
    assert len(np.unique(noisy[:, 0])) == 20


def test_every_node_of_a_tree_gets_noise_of_its_own() -> None:
    """Siblings too, or the difference of two counts would be exact; of scale 10**6, with a fixed seed."""
    asked, exact = four_nodes(), holder(TABLES["full"], NoNoise(), math.inf)
    exact.grow(growth(0, 1, 1))
    exact.grow(Grow(np.array([1, 2]), np.array([3, 3]), 3))
    truth = exact.answer(CountRows(np.arange(7), [math.inf] * 7))
    noise = asked.answer(CountRows(np.arange(7), [Fraction(1, 10**6)] * 7)) - truth
    assert len(np.unique(noise)) == 7


# ---- Nothing but noise depends on the rows ------------------------------------------------------------------------


@every_kind
def test_shapes_types_and_the_account_do_not_depend_on_the_rows(kind: str) -> None:
    seen = set()
    for rows in TABLES.values():
        asked = holder(rows)
        first = asked.answer(KINDS[kind]([0], Fraction(1, 7)))
        asked.grow(growth(0, 1, 1))
        asked.grow(growth(2, 4, 3))
        second = asked.answer(KINDS[kind]([1, 3, 4], Fraction(1, 3)))
        shapes = tuple((a.shape, a.dtype) for a in (first, second))
        seen.add((shapes, tuple(asked.ledger.entries), asked.ledger.spent))
    assert len(seen) == 1


@every_kind
@pytest.mark.parametrize("noise", [SeededNoise(3), SecureNoise()])
def test_empty_nodes_are_answered_like_any_other(kind: str, noise: Noise) -> None:
    """Every path of the same split twice has an empty end."""
    for rows in TABLES.values():
        asked = holder(rows, noise)
        asked.grow(growth(0, 0, 1))
        asked.grow(Grow(np.array([1, 2]), np.array([0, 0]), 3))
        answer = asked.answer(KINDS[kind]([3, 4, 5, 6], Fraction(1, 2)))
        assert len(answer) == 4


def test_the_number_of_rows_of_an_empty_node_is_noisy() -> None:
    """Zeros that stay zeros would give themselves away: 200 draws of noise of scale 10."""
    asked = holder(TABLES["empty"], SecureNoise(), grant=Fraction(1000))
    answers = {int(asked.answer(CountRows(np.array([0]), [Fraction(1, 10)]))[0, 0]) for _ in range(200)}
    assert len(answers) > 10  # false alarm: below 1e-100


@every_kind
def test_seeded_answers_do_not_depend_on_batches_or_order(kind: str) -> None:
    asked = [holder(TABLES["full"]) for _ in range(3)]
    for one in asked:
        one.grow(growth(0, 1, 1))
        one.grow(Grow(np.array([1, 2]), np.array([0, 4]), 3))

    def ask(one: Holder, nodes: list[int]) -> NDArray[np.int64]:
        query = KINDS[kind](nodes, Fraction(1, 3))
        if isinstance(query, CountCells):
            query = CountCells(query.nodes, query.nodes % 4, query.epsilons)
        return one.answer(query)

    together = ask(asked[0], [3, 4, 5, 6])
    assert np.array_equal(ask(asked[1], [6, 4, 3, 5])[[2, 1, 3, 0]], together)
    assert np.array_equal(np.concatenate([ask(asked[2], [node]) for node in (3, 4, 5, 6)]), together)


def test_seeded_answers_do_not_depend_on_the_numbers_of_nodes() -> None:
    answers = []
    for nodes, splits, children in (([1, 2], [0, 3], [3, 4, 5, 6]), ([2, 1], [3, 0], [5, 6, 3, 4])):
        asked = holder(TABLES["full"])
        asked.grow(growth(0, 1, 1))
        asked.grow(Grow(np.array(nodes), np.array(splits), 3))
        answers.append(asked.answer(CountLabels(np.array(children), [ONE] * 4)))
    assert np.array_equal(*answers)


@pytest.mark.parametrize("kind", ["rows", "class counts", "cells", "cells of a fork", "histograms"])
def test_the_same_question_asked_twice_is_answered_with_other_noise(kind: str) -> None:
    """Two answers with the same noise, at two scales, would give the exact count away (and spoil simulations)."""
    asked, exact = holder(TABLES["full"]), holder(TABLES["full"], NoNoise())
    truth = exact.answer(KINDS[kind]([0], ONE))
    noise = [asked.answer(KINDS[kind]([0], Fraction(1, 1000))) - truth for _ in range(2)]
    assert not np.array_equal(*noise)


# ---- Exact answers ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("labels", [("no",), ("no", "yes")])
def test_without_noise_a_node_where_nothing_is_gained_nominates_what_its_path_leaves_open(
    labels: tuple[str, ...],
) -> None:
    """Other holders may gain by it. All splits of a pure node are equal, and the first ones are decided."""
    asked = holder(table(200, labels=labels), NoNoise(), grant=math.inf)
    asked.grow(growth(0, 0, 1))  # c == a: neither that nor c == b is open to the left
    nodes = np.array([1, 2])
    nominees = asked.answer(Nominate(nodes, [Criterion.gini] * 2, "permute_and_flip", [math.inf] * 2))
    assert asked._paths.are_undecided(nodes, nominees).all()
    if len(labels) == 1:
        assert nominees.tolist() == [2, 1]


def test_without_noise_the_answers_are_plain_counts() -> None:
    values, labels = TABLES["full"]
    asked = holder((values, labels), NoNoise(), grant=math.inf)
    at_most = [str(split) for split in SCHEMA.splits].index("x <= 0.5")
    is_a = [str(split) for split in SCHEMA.splits].index("c == a")
    asked.grow(growth(0, at_most, 1))
    left, yes, a = values[:, 0].astype(float) <= 0.5, labels == "yes", values[:, 1] == "a"
    nodes, prices = np.array([2, 1]), [math.inf, math.inf]
    rows = asked.answer(CountRows(nodes, prices))
    assert rows.tolist() == [[(~left).sum()], [left.sum()]]
    by_class = asked.answer(CountLabels(nodes, prices))
    assert by_class.tolist() == [[(side & ~yes).sum(), (side & yes).sum()] for side in (~left, left)]
    in_cells = asked.answer(CountCells(nodes, np.array([is_a, is_a]), prices))
    assert in_cells.tolist() == [
        [[(side & part & ~yes).sum(), (side & part & yes).sum()] for part in (a, ~a)]
        for side in (~left, left)
    ]
    of_every_split = asked.answer(CountSplits(nodes, prices))
    assert np.array_equal(of_every_split[:, is_a], in_cells)
    columns = asked.answer(CountColumns(nodes, prices))
    assert columns.shape == (2, int(SCHEMA.n_bins.sum()), 2)
    assert np.array_equal(columns[:, : int(SCHEMA.n_bins[0])].sum(axis=1), by_class)


# ---- Whole fits ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("step", [(GroupedRows, "split"), (PathKeys, "grow"), (Holder, "_follow")])
def test_a_holder_that_was_interrupted_while_it_followed_answers_nothing_more(
    monkeypatch: pytest.MonkeyPatch, step: tuple[type, str]
) -> None:
    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    asked = holder(TABLES["full"])
    with monkeypatch.context() as during:
        during.setattr(*step, interrupted)
        with pytest.raises(KeyboardInterrupt):
            asked.grow(growth(0, 0, 1))
    spent = asked.ledger.spent
    for node in (0, 1, 2):
        for kind in ("rows", "permute_and_flip, gini"):
            with pytest.raises(HedgerowError, match="interrupted"):
                asked.answer(KINDS[kind]([node], ONE))
    with pytest.raises(HedgerowError, match="interrupted"):
        asked.grow(growth(1, 1, 3))
    assert asked.ledger.spent == spent


def test_an_interrupted_fit_shows_what_was_spent_and_has_no_tree(monkeypatch: pytest.MonkeyPatch) -> None:
    model = PrivateTreeClassifier(schema=SCHEMA, epsilon=5.0, noise_seed=0).fit(*table(400))
    drawn = 0
    real = SeededNoise.laplace

    def interrupted(self: SeededNoise, *arguments: object) -> NDArray[np.int64]:
        nonlocal drawn
        drawn += 1
        if drawn == 2:
            raise KeyboardInterrupt
        return real(self, *arguments)  # type: ignore[arg-type]

    monkeypatch.setattr(SeededNoise, "laplace", interrupted)
    with pytest.raises(KeyboardInterrupt):
        model.fit(*table(400))
    assert not hasattr(model, "tree_")
    entries = model.ledger_.entries  # what was about to be released is charged already
    assert [entry.what for entry in entries] == ["class counts", "choice of a fork", "cells of a fork"]
    assert model.ledger_.spent == sum(entry.epsilon for entry in entries) > 0


def test_a_draw_that_fails_in_the_middle_of_a_fit_leaves_its_charge(monkeypatch: pytest.MonkeyPatch) -> None:
    drawn = 0
    real = SecureNoise.laplace

    def failing(self: SecureNoise, *arguments: object) -> NDArray[np.int64]:
        nonlocal drawn
        drawn += 1
        if drawn == 2:
            raise OSError("no entropy")
        return real(self, *arguments)  # type: ignore[arg-type]

    monkeypatch.setattr(SecureNoise, "laplace", failing)
    model = PrivateTreeClassifier(schema=SCHEMA, epsilon=5.0)
    with pytest.raises(OSError, match="no entropy"):
        model.fit(*table(400))
    assert not hasattr(model, "tree_")
    assert [entry.what for entry in model.ledger_.entries][-1] in {
        "cells of a fork",
        "cells of a split",
        "class counts",
    }


@settings(max_examples=80, deadline=None, derandomize=True)
@given(
    n_rows=st.integers(0, 60),
    seed=st.integers(0, 2**32),
    epsilon=st.floats(0.01, 20),
    method=st.sampled_from(METHODS),
    selector=st.sampled_from(tuple(SELECTORS)),
    budget=st.sampled_from(BUDGETS),
    criterion=st.sampled_from(("auto", *(c.name for c in Criterion))),
    neighbours=st.sampled_from(("add-remove", "replace")),
    leaf_fraction=st.sampled_from((None, 0.1, 0.5, 0.9)),
    max_depth=st.sampled_from((None, 1, 3, 20)),
    max_splits=st.sampled_from((1, 4, 64)),
)
def test_a_fit_never_spends_more_than_epsilon(
    n_rows: int, seed: int, epsilon: float, neighbours: str, **parameters: object
) -> None:
    if parameters["method"] == "turns":
        parameters["budget"] = "auto"
    if parameters["budget"] == "auto" and parameters["method"] != "paper":
        parameters["leaf_fraction"] = None  # is for schedules
    model = PrivateTreeClassifier(
        schema=SCHEMA, epsilon=epsilon, neighbours=neighbours, noise_seed=seed, max_rows=1000, **parameters
    )
    model.fit(*table(n_rows, seed))
    entries = model.ledger_.entries
    assert 0 < model.ledger_.spent <= Fraction(repr(epsilon))
    assert all(isinstance(entry.epsilon, Fraction) and entry.epsilon > 0 for entry in entries)
    # The sum along the most expensive path, from the entries alone.
    assert model.ledger_.spent <= sum(
        max(entry.epsilon for entry in group)
        for _, group in itertools.groupby(
            sorted(entries, key=lambda e: (e.depth, e.what, e.mechanism)),
            key=lambda e: (e.depth, e.what, e.mechanism),
        )
    ) + max(entry.epsilon for entry in entries if entry.what == "class counts")


def test_replacing_a_row_is_booked_twice() -> None:
    one, two = (
        PrivateTreeClassifier(schema=SCHEMA, epsilon=e, neighbours=n, noise_seed=5).fit(*table(300))
        for e, n in ((1.0, "add-remove"), (2.0, "replace"))
    )
    assert one.tree_ == two.tree_
    assert two.ledger_.spent == 2 * one.ledger_.spent


# ---- Many nodes in one query, and how many there may be --------------------------------------------------------


FOUR = np.array([3, 4, 5, 6])


def four_nodes() -> Holder:
    asked = holder(TABLES["full"])
    asked.grow(growth(0, 1, 1))
    asked.grow(Grow(np.array([1, 2]), np.array([3, 3]), 3))
    return asked


@pytest.mark.parametrize("memory", [0, 2**20])  # two nodes a batch, or all
def test_each_node_is_chosen_for_at_its_price_and_with_its_criterions_sensitivity(
    monkeypatch: pytest.MonkeyPatch, memory: int
) -> None:
    """Of max_rows, not of the rows that are there."""
    told: dict[Fraction, int] = {}

    class Listening:
        def select(self, scores, sensitivity, epsilons, noise, keys, candidates):
            told.update(zip(epsilons, sensitivity, strict=True))
            return candidates.argmax(axis=1)

    monkeypatch.setattr("hedgerow.holder.counts.MEMORY", memory)
    monkeypatch.setitem(SELECTORS, "exponential", Listening())
    prices, criteria = [Fraction(1, n) for n in (3, 5, 7, 9)], list(Criterion)[::-1]
    four_nodes().answer(Nominate(FOUR, criteria, "exponential", prices))
    assert told == {p: score_sensitivity(c, 2, 1000) for p, c in zip(prices, criteria, strict=True)}


@every_kind
def test_answers_do_not_depend_on_how_many_histograms_fit_into_memory(
    kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    answers = []
    for memory in (0, 2**20):
        monkeypatch.setattr("hedgerow.holder.counts.MEMORY", memory)
        query = KINDS[kind](FOUR.tolist() * 3, ONE)
        prices = [Fraction(1, 100)] * 6 + [Fraction(3)] * 6
        answers.append(four_nodes().answer(replace(query, epsilons=prices)))
    assert np.array_equal(*answers)


def test_root_gini_of_three_classes_is_refused() -> None:
    schema = Schema(SCHEMA.columns, label="y", classes=["a", "b", "c"])
    rows = GroupedRows(encode(TABLES["full"][0], schema), np.zeros(200, np.uint8), schema)
    asked = Holder(rows, Broken(), Ledger(ONE), max_rows=1000)  # type: ignore[arg-type]
    with pytest.raises(HedgerowError, match="two classes"):
        asked.answer(Nominate(np.array([0]), [Criterion.root_gini], "exponential", [ONE]))
    assert asked.ledger.spent == 0


@pytest.mark.parametrize("most", [5, 6])
def test_a_study_has_no_more_nodes_than_a_holder_remembers(
    monkeypatch: pytest.MonkeyPatch, most: int
) -> None:
    """A split makes two, of which neither may be too many."""
    monkeypatch.setattr("hedgerow.holder.holder.MOST_NODES", most)
    asked = holder(TABLES["full"])
    asked.grow(growth(0, 0, 1))
    asked.grow(growth(1, 1, 3))
    with pytest.raises(HedgerowError, match=f"at most {most} nodes"):
        asked.grow(growth(2, 1, 5))
