"""Several holders take turns: each node's split is chosen by one of them, and a few count its cells.

Every holder has an epsilon of its own. If all of them paid for every choice, each would have the budget of one and a
fraction of the rows. So one holder chooses, from its own rows, with what all would have spent on several levels; the
others pay nothing for it. A choice among n/k rows at k times the price has the ratio of signal to noise of one among n
rows. Counting is much the same: where g of k like holders count at k/g times the price, the noise of the sum has g/k of
the variance, and only the sampling error of g/k of the rows comes in.

What is decided here follows from public facts and released numbers alone.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from hedgerow.budget import GRAINS, LONG_WORK, Adaptive, priced, promise, round_down, solve_levels
from hedgerow.criteria import Criterion, impurity_bound, split_gains, weighted_impurities
from hedgerow.learner.estimates import (
    UNKNOWN,
    assemble,
    combine,
    laplace_variance,
    on_simplex,
    reconcile,
    smooth,
    sum_of_holders,
    tree_least_squares,
)
from hedgerow.learner.topdown import NONE, ROUNDING, FloatArray, Growth
from hedgerow.messages import (
    MOST_FORKS,
    ROOT,
    CountForks,
    CountLabels,
    Grow,
    NominateAndCount,
    NominateForks,
    Query,
)
from hedgerow.network import Network
from hedgerow.paths import Paths
from hedgerow.repeated import Epsilon, IntArray, Repeated
from hedgerow.schema import Schema
from hedgerow.tree import Tree

if TYPE_CHECKING:
    from hedgerow.learner.coordinator import Plan


LEAST_PRICE = GRAINS // 4096  # a holder that has less to spend on a release is not asked for it


@dataclass(frozen=True)
class TakeTurns:
    """At each node one holder chooses the split, or a fork; then it and a few others count its cells.

    The constants were chosen on tables that no result is reported of, the same for all.
    """

    selector: str = "permute_and_flip"  # of a split; forks are chosen by the exponential mechanism
    most_at_once: float = 0.9  # of what a holder has left, that it spends on one choice
    fork_levels: float = 1.0  # planned, for which a fork is chosen and not a split
    further_holders: float = 0.7  # of k holders beyond one a level only k ** 0.7 count
    labelling: float = 0.1  # exponent by which the share for the leaves rises with the number of holders
    counters: float = 0.5  # of k holders k ** 0.5 count at a node
    most_for_counts: float = 0.6  # of what a holder has left, that it spends on the cells of one node
    spread: float = 0.3  # by how much the division of a holder's rows is thought to differ from everybody's

    @property
    def method(self) -> str:
        """See `PrivateSplit.method`."""
        return "turns"

    def __str__(self) -> str:
        return "holders take turns to choose splits and to count their cells"


@dataclass(frozen=True)
class Turns:
    """Who chooses at each node, at which price, and what every holder pays to count [node, holder]; in grains."""

    chooser: IntArray
    select: IntArray
    count: IntArray
    criterion: IntArray
    fork: NDArray[np.bool_]

    def at(self, places: IntArray) -> Turns:
        """The turns of some of the nodes, by place."""
        return Turns(
            self.chooser[places],
            self.select[places],
            self.count[places],
            self.criterion[places],
            self.fork[places],
        )


class ByHolder:
    """What is known of each node, holder by holder: records whose fields are [node, holder, ...]."""

    def __init__(self, n_holders: int, n_classes: int) -> None:
        kind = np.dtype(
            [
                ("remaining", np.int64, n_holders),  # grains of epsilon that the path may still spend
                ("rows", np.float64, n_holders),  # how many, as far as is known
                ("counts", np.float64, (n_holders, n_classes)),  # the estimate so far, and its variance
                ("variance", np.float64, n_holders),
                ("measured", np.float64, (n_holders, n_classes)),  # what was released about this node itself
                ("measured_variance", np.float64, n_holders),
                ("cells", np.float64, (n_holders, 2, n_classes)),  # of its split, as released
                ("cell_variance", np.float64, n_holders),
                ("fork_cells", np.float64, (n_holders, 2, 2, n_classes)),
                ("fork_variance", np.float64, n_holders),
            ]
        )
        self.nodes = np.zeros(0, kind)
        self.extend(1)
        self.nodes["remaining"] = GRAINS

    def extend(self, n_nodes: int) -> None:
        """Make room for the nodes that have been opened."""
        more = np.zeros(n_nodes - len(self.nodes), self.nodes.dtype)
        for field in ("variance", "measured_variance", "cell_variance", "fork_variance"):
            more[field] = UNKNOWN
        self.nodes = np.concatenate([self.nodes, more])

    def affordable(self, parent: IntArray) -> IntArray:
        """What every path through each node has left [node, holder]; nodes below have spent too."""
        least: IntArray = self.nodes["remaining"].copy()
        for node in range(len(parent) - 1, 0, -1):
            np.minimum(least[parent[node]], least[node], out=least[parent[node]])
        return least


class TurnsStudy:
    """The state of one tree's growth."""

    def __init__(self, network: Network, schema: Schema, plan: Plan) -> None:
        assert isinstance(plan.private_split, TakeTurns)
        assert isinstance(plan.budget, Adaptive)
        self.plan = plan
        self.growth = Growth(schema.n_classes, GRAINS)
        self._network = network
        self._schema = schema
        self._how, self._rule = plan.private_split, plan.budget
        self._by_holder = ByHolder(network.n_holders, schema.n_classes)
        self._is_there = np.ones(network.n_holders, dtype=np.bool_)  # not lost
        self._n_rows = math.nan  # estimated
        self._may_fork = False
        self._n_choices = np.zeros(network.n_holders, dtype=np.int64)
        self._leaf_levels = plan.budget.leaf_levels

    # ---- The five steps of a study ----

    def count_all(self) -> None:
        """The class counts of every holder's rows; then the plan is settled."""
        root = np.array([ROOT])
        self._measure(root, np.where(self._is_there, self._rule.root, 0)[None, :])
        nodes, known = self._by_holder.nodes, self.growth.nodes
        nodes["rows"][ROOT] = np.maximum(nodes["counts"][ROOT].sum(axis=1), 1.0)
        self._leaf_levels *= float(_equal_ones(nodes["rows"][ROOT])) ** self._how.labelling
        self._sum_up(root)
        self._n_rows = max(float(known["counts"][ROOT].sum()), 1.0)
        largest = float(nodes["rows"][ROOT].max())
        pairs = self._rule.n_pairs
        self._may_fork = pairs is not None and pairs * largest <= LONG_WORK
        self.plan = replace(self.plan, reasons=tuple(self._explain()))

    def evaluate(self, nodes: IntArray) -> None:
        """Have a split chosen for each node that may be split, count its cells, and say if it is wanted."""
        known = self.growth.nodes
        nodes = nodes[known["split"][nodes] == NONE]  # a fork decides about children too
        if not len(nodes):
            return
        paths = Paths(self._schema, known["parent"], known["split"])
        undecided = nodes[paths.divisible(nodes)]
        while len(undecided):  # once; again if a chooser is lost
            turns, inner = self._take_turns(undecided)
            undecided = undecided[inner]
            if not len(undecided):
                return
            chosen = self._choose(undecided, turns.at(np.flatnonzero(inner)))
            undecided = undecided[~chosen]

    def open_children(self, nodes: IntArray) -> IntArray:
        """Split nodes by the splits they were evaluated with, at every holder; their children [node, side]."""
        children = self.growth.open(nodes)
        known = self.growth.nodes
        self._network.announce(Grow(nodes, known["split"][nodes], int(children[0, 0])))
        self._by_holder.extend(len(known))
        records = self._by_holder.nodes
        records["remaining"][children] = records["remaining"][nodes][:, None]
        cells, noise = records["cells"][nodes], records["cell_variance"][nodes]
        counts, variance = _by_node_and_holder(
            reconcile, records["counts"][nodes], records["variance"][nodes], cells, noise
        )
        by_side = (0, 2, 1, 3)  # [node, holder, side, class] as [node, side, holder, class]
        records["counts"][children], records["measured"][children] = (
            counts.transpose(by_side),
            cells.transpose(by_side),
        )
        records["variance"][children], records["measured_variance"][children] = (
            variance[:, None],
            noise[:, None],
        )
        records["rows"][children] = self._rows_of(nodes, children)
        self._sum_up(children.ravel())
        known["promise"][children] = promise(
            known["promise"][nodes],
            on_simplex(known["counts"][nodes]),
            on_simplex(known["counts"][children]),
            known["variance"][children[:, 0]],
        )[:, None]
        self._inherit(nodes, children)
        return children

    def label(self) -> None:
        """Count the classes at the leaves, at every holder with all that its path has left."""
        leaves = self.growth.leaves()
        remaining = self._by_holder.affordable(self.growth.nodes["parent"])[leaves]
        self._measure(leaves, self._prices(remaining.astype(np.float64)))

    def finish(self) -> Tree:
        """Reconcile all that was released by each holder, add them up, and assemble the tree."""
        known, records = self.growth.nodes, self._by_holder.nodes
        tips = np.flatnonzero((known["child"] == NONE) & (known["split"] != NONE))
        for holder in np.flatnonzero(self._is_there):
            counts, variance = (
                records["measured"][:, holder].copy(),
                records["measured_variance"][:, holder].copy(),
            )
            cells, noise = records["cells"][tips, holder], records["cell_variance"][tips, holder]
            counts[tips], variance[tips] = combine(counts[tips], variance[tips], cells.sum(axis=1), 2 * noise)
            tree_least_squares(known["child"], counts, variance)
            records["counts"][:, holder], records["variance"][:, holder] = counts, variance
        self._sum_up(np.arange(len(known)))
        smooth(self.growth)
        self.plan = replace(self.plan, reasons=(*self.plan.reasons, self._who_chose()))
        return assemble(self.growth, self._schema)

    # ---- Planning ----

    def _take_turns(self, nodes: IntArray) -> tuple[Turns, NDArray[np.bool_]]:
        """Who chooses at each node and at which price, and which nodes are worth it.

        A holder with n rows that spends all it has left on one choice would choose as well as its quality q says: n rows
        beside the noise of the mechanism and that of the rows themselves. The best one chooses. It spends what this
        level may use of the signal of all holders, the sum of rows times budget, as far as it can.
        """
        rule, how, known = self._rule, self._how, self.growth.nodes
        counts = on_simplex(known["counts"][nodes])
        total = np.maximum(counts.sum(axis=1), 1e-9)
        rows = np.where(self._is_there, self._by_holder.nodes["rows"][nodes], 0.0)
        remaining = np.maximum(self._by_holder.nodes["remaining"][nodes] / GRAINS, 1e-9)
        bound = float(impurity_bound(rule.criterion or Criterion.gini, rule.n_classes, rule.max_rows))
        quality = rows / (bound / (float(rule.epsilon) * remaining) + rule.sampling)
        worth = (
            rule.reach
            * np.sqrt(known["promise"][nodes])
            * weighted_impurities(counts, Criterion.gini)
            / total
        )
        worth /= math.log(max(rule.n_candidates, 2))
        levels, counts_for = self._levels(worth, quality)
        to_go = np.full(len(nodes), np.inf)
        if rule.max_depth is not None:
            to_go = rule.max_depth - known["depth"][nodes] + 1.0
            levels = np.minimum(levels, to_go)
        inner = levels >= rule.least_levels
        inner &= total >= self.plan.min_weight * self._n_rows
        span = np.maximum(levels, rule.least_levels) + self._leaf_levels
        part = (rule.rise - 1) / (rule.rise**span - 1)
        fork = np.full(len(nodes), self._may_fork) & (levels >= how.fork_levels) & (to_go >= 2)
        part *= np.where(fork, 1 + rule.rise, 1.0)
        chooser = quality.argmax(axis=1)
        best = np.arange(len(nodes)), chooser
        signal = part * rule.select * (rows * remaining * counts_for).sum(axis=1)
        select = np.minimum(how.most_at_once * remaining[best], signal / np.maximum(rows[best], 1e-9))
        # What the choice leaves is for counting.
        not_spent = remaining.copy()
        not_spent[best] -= select
        share = np.minimum(part, 0.6) * (1 - rule.select)
        counts_now, frequency = self._who_counts(rows * not_spent, chooser)
        price = share[:, None] * remaining / frequency
        count = np.where(counts_now, np.minimum(price, how.most_for_counts * not_spent), 0.0)
        turns = Turns(
            chooser,
            self._prices(GRAINS * select),
            self._prices(GRAINS * count),
            rule.criteria(levels, fork),
            fork,
        )
        inner &= (turns.select > 0) & (turns.count[best] > 0)
        return turns, inner

    def _levels(self, worth: FloatArray, quality: FloatArray) -> tuple[FloatArray, FloatArray]:
        """How many more levels are worth their price, and how much each holder's signal counts for [node, holder].

        Every level needs one chooser. Of holders beyond that, more can be had than used.
        """
        order = np.argsort(-quality, axis=1)
        rank = np.empty_like(order)
        np.put_along_axis(rank, order, np.arange(1, quality.shape[1] + 1)[None, :], axis=1)
        counts_for = np.ones_like(quality)
        levels = solve_levels(worth * quality.sum(axis=1), self._rule.growth)
        for _ in range(3):
            beyond = np.maximum(rank / np.maximum(levels, 1.0)[:, None], 1.0)
            exponent = self._how.further_holders
            counts_for = np.where(beyond > 1, exponent * beyond ** (exponent - 1), 1.0)
            levels = solve_levels(worth * (quality * counts_for).sum(axis=1), self._rule.growth)
        return levels, counts_for

    def _who_counts(self, signal: FloatArray, chooser: IntArray) -> tuple[NDArray[np.bool_], FloatArray]:
        """Which holders count a node's cells, and at how many of such nodes each would [node, holder].

        Of k equal holders k ** `counters` count, the chooser among them. A holder counts as often as its signal says, and
        pays that much more when it does.
        """
        n_counters = np.ceil(_equal_ones(signal) ** self._how.counters)
        first = signal.copy()
        first[np.arange(len(signal)), chooser] = np.inf
        rank = np.argsort(np.argsort(-first, axis=1, kind="stable"), axis=1)
        counts_now = (rank < n_counters[:, None]) & self._is_there
        return counts_now, _frequencies(signal, n_counters)

    def _prices(self, grains: FloatArray) -> IntArray:
        """Rounded down, so that nodes share prices; 0 for what no holder would release anything for."""
        prices = np.minimum(round_down(np.maximum(grains, 1.0).astype(np.int64)), grains.astype(np.int64))
        return np.where(prices >= max(LEAST_PRICE, self._rule.least_price), prices, 0)

    def _rows_of(self, parents: IntArray, children: IntArray) -> FloatArray:
        """Each holder's rows at children [node, side, holder], from its noisy counts and from those of all holders.

        A holder's rows are thought to divide like everybody's, give or take `spread`, unless its own counts say more.
        """
        records = self._by_holder.nodes
        mine = records["counts"][children].sum(axis=3)
        noise = self._schema.n_classes * records["variance"][children]
        known = (noise < UNKNOWN / 2**50) & self._is_there
        of_all = np.maximum(np.where(known, mine, 0.0).sum(axis=2), 1.0)
        above = records["rows"][parents]
        expected = above[:, None, :] * (of_all / of_all.sum(axis=1, keepdims=True))[:, :, None]
        between = (self._how.spread * expected) ** 2 + expected
        trust = between / (between + noise)
        rows = np.maximum(expected + trust * (mine - expected), 0.05 * expected)
        divided: FloatArray = rows * (above / np.maximum(rows.sum(axis=1), 1e-9))[:, None, :]
        return divided

    # ---- Asking ----

    def _choose(self, nodes: IntArray, turns: Turns) -> NDArray[np.bool_]:
        """Ask the choosers, then those who count; which nodes got a split. A chooser that is lost gives none."""
        n_classes, holders = self._schema.n_classes, range(len(self._is_there))
        forks = np.full((len(nodes), 3), NONE)
        cells = np.zeros((len(nodes), len(holders), 2, 2, n_classes))
        counted = np.zeros((len(nodes), len(holders)), dtype=np.bool_)
        records = self._by_holder.nodes
        for batch in self._nominations(turns):
            answers = self._ask(
                {holder: self._nominate(nodes, turns, holder, places) for holder, places in batch.items()}
            )
            for holder, answer in answers.items():
                places = batch[holder]
                if turns.fork[places[0]]:
                    forks[places] = answer[:, :3]
                    cells[places, holder] = answer[:, 3:].reshape(-1, 2, 2, n_classes)
                else:
                    forks[places, 0] = answer[:, 0]
                    cells[places, holder, :, 0] = answer[:, 1:].reshape(-1, 2, n_classes)
                counted[places, holder] = True
                records["remaining"][nodes[places], holder] -= turns.select[places]
                self._n_choices[holder] += len(places)
        chosen: NDArray[np.bool_] = forks[:, 0] != NONE
        others = {
            holder: np.flatnonzero(chosen & (turns.chooser != holder) & (turns.count[:, holder] > 0))
            for holder in holders
        }
        others = {
            holder: places for holder, places in others.items() if len(places) and self._is_there[holder]
        }
        queries: dict[int, Query] = {
            holder: _count_forks(nodes[places], forks[places], self._priced(turns.count[places, holder]))
            for holder, places in others.items()
        }
        for holder, answer in self._ask(queries).items():
            cells[others[holder], holder] = answer
            counted[others[holder], holder] = True
        done = np.flatnonzero(chosen)
        self._keep(nodes[done], forks[done], cells[done], counted[done], turns.at(done))
        return chosen

    def _nominations(self, turns: Turns) -> list[dict[int, IntArray]]:
        """The places at which each chooser is asked, round by round: one kind of question at a time."""
        rounds: list[dict[int, IntArray]] = []
        for holder in np.unique(turns.chooser).tolist():
            mine = turns.chooser == holder
            forks, splits = np.flatnonzero(mine & turns.fork), np.flatnonzero(mine & ~turns.fork)
            parts = [forks[i : i + MOST_FORKS] for i in range(0, len(forks), MOST_FORKS)]
            for i, places in enumerate([*parts, *([splits] if len(splits) else [])]):
                if i == len(rounds):
                    rounds.append({})
                rounds[i][holder] = places
        return rounds

    def _nominate(self, nodes: IntArray, turns: Turns, holder: int, places: IntArray) -> Query:
        mine = turns.at(places)
        criteria = [Criterion(number) for number in mine.criterion.tolist()]
        prices = self._priced(mine.select), self._priced(mine.count[:, holder])
        if mine.fork[0]:
            return NominateForks(nodes[places], criteria, "exponential", *prices)
        return NominateAndCount(nodes[places], criteria, self._how.selector, *prices)

    def _keep(
        self, nodes: IntArray, forks: IntArray, cells: FloatArray, counted: NDArray[np.bool_], turns: Turns
    ) -> None:
        """Write down what was chosen and counted."""
        known, records = self.growth.nodes, self._by_holder.nodes
        paid = np.where(counted, turns.count, 0)
        records["remaining"][nodes] -= paid
        variance = self._variances(paid)
        is_fork = turns.fork[:, None]
        records["fork_cells"][nodes] = cells
        records["fork_variance"][nodes] = variance
        records["cells"][nodes] = cells.sum(axis=3)
        # The right cells below a single split are empty, and what was drawn there is noise alone.
        single = np.flatnonzero(~turns.fork)
        records["cells"][nodes[single]] = cells[single][:, :, :, 0]
        records["cell_variance"][nodes] = np.where(is_fork, 2, 1) * variance
        known["split"][nodes], known["fork"][nodes] = forks[:, 0], forks[:, 1:]
        self._judge(nodes)

    def _inherit(self, parents: IntArray, children: IntArray) -> None:
        """Children get the splits that were chosen for them with their parents'.

        Their cells are then what is measured; the sums of those are no measurement besides.
        """
        known, records = self.growth.nodes, self._by_holder.nodes
        place, side = np.nonzero(known["fork"][parents] != NONE)
        if not len(place):
            return
        decided, parents = children[place, side], parents[place]
        known["split"][decided] = known["fork"][parents, side]
        records["cells"][decided] = records["fork_cells"][parents][np.arange(len(decided)), :, side]
        records["cell_variance"][decided] = records["fork_variance"][parents]
        records["measured_variance"][decided] = UNKNOWN
        self._judge(decided)

    def _judge(self, nodes: IntArray) -> None:
        """How much would each split gain, and is it worth a place in the queue?"""
        known = self.growth.nodes
        cells, _ = self._added_up("cells", "cell_variance", nodes)
        gains, totals = split_gains(on_simplex(cells), int(self.plan.criterion))
        wanted = np.ones(len(nodes), dtype=np.bool_)
        if self.plan.min_gain is not None:
            wanted = gains > (self.plan.min_gain + ROUNDING) * totals
        known["gain"][nodes], known["wanted"][nodes] = gains, wanted

    def _measure(self, nodes: IntArray, grains: IntArray) -> None:
        """Ask for class counts at prices [node, holder], and combine them with what is known of the nodes."""
        asked = {
            holder: np.flatnonzero(grains[:, holder] > 0)
            for holder in np.flatnonzero(self._is_there).tolist()
        }
        asked = {holder: places for holder, places in asked.items() if len(places)}
        queries: dict[int, Query] = {
            holder: CountLabels(nodes[places], self._priced(grains[places, holder]))
            for holder, places in asked.items()
        }
        records = self._by_holder.nodes
        for holder, answer in self._ask(queries).items():
            mine, paid = nodes[asked[holder]], grains[asked[holder], holder]
            records["remaining"][mine, holder] -= paid
            noise = self._variances(paid)
            for estimate, variance in (("measured", "measured_variance"), ("counts", "variance")):
                records[estimate][mine, holder], records[variance][mine, holder] = combine(
                    records[estimate][mine, holder],
                    records[variance][mine, holder],
                    answer.astype(np.float64),
                    noise,
                )

    def _ask(self, queries: Mapping[int, Query]) -> dict[int, IntArray]:
        """Ask some holders; who does not answer is lost, and nothing of it is used from then on."""
        if not queries:
            return {}
        answers = self._network.ask_each(queries)
        self._is_there[[holder for holder in queries if holder not in answers]] = False
        return answers

    # ---- What is known ----

    def _priced(self, grains: IntArray) -> Repeated[Epsilon]:
        return priced(grains, self.plan.epsilon)

    def _variances(self, grains: IntArray) -> FloatArray:
        """The variance of a count at a price; UNKNOWN for what was not counted."""
        flat = grains.ravel()
        variances = priced(np.maximum(flat, 1), self.plan.epsilon).each(laplace_variance)
        return np.where(flat > 0, variances, UNKNOWN).reshape(grains.shape)

    def _added_up(self, field: str, variance: str, nodes: IntArray) -> tuple[FloatArray, FloatArray]:
        """A field of nodes over all holders that are there, and its variance."""
        records = self._by_holder.nodes
        return sum_of_holders(
            records[field][nodes],
            np.where(self._is_there, records[variance][nodes], UNKNOWN),
            np.where(self._is_there, records["rows"][nodes], 0.0),
        )

    def _sum_up(self, nodes: IntArray) -> None:
        """Set the counts of nodes over all holders."""
        known = self.growth.nodes
        known["counts"][nodes], known["variance"][nodes] = self._added_up("counts", "variance", nodes)

    # ---- What people are told ----

    def _explain(self) -> list[str]:
        rule = self._rule
        turns, inner = self._take_turns(np.array([ROOT]))
        rows = np.sort(self._by_holder.nodes["rows"][ROOT])
        [part] = turns.select / GRAINS
        first = "no split is worth its price, so the tree is one leaf"
        if inner[0]:
            first = (
                f"at the root this is holder {turns.chooser[0] + 1}, with {100 * part:.0f} % of its epsilon"
            )
        fork = " (or a fork: a split and those of both children at once)" if self._may_fork else ""
        return [
            f"{float(100 * rule.root_fraction):.3g} % of every holder's epsilon counted the classes of its rows: about "
            f"{self._n_rows:.0f} rows, {rows[0]:.0f} to {rows[-1]:.0f} a holder.",
            f"At each node the holder whose rows and remaining budget promise the best choice chooses a split{fork} from "
            f"its own rows, and the others pay nothing for it; {first}.",
            f"Then it and some others, about the root of the number of holders, count the split's cells: every holder "
            f"uses about {100 * (1 - rule.select):.0f} % of its budget for levels on that, at the nodes where it is its "
            "turn. Every node plans again from these noisy counts, and a leaf's classes are counted by all holders with "
            "all that each has left.",
            f"The criterion is {rule.criterion.name}."
            if rule.criterion is not None
            else "The criterion is gini; error for the last level planned, where it needs half the noise.",
        ]

    def _who_chose(self) -> str:
        n = self._n_choices
        if not n.sum():
            return "Nobody chose anything."
        most = np.argsort(-n, kind="stable")[:8]
        shown = ", ".join(f"holder {h + 1} {n[h]}" for h in most.tolist() if n[h])
        others = int(n.sum() - n[most].sum())
        return f"Choices made: {shown}{f', others {others}' if others else ''}."


def _equal_ones(sizes: FloatArray) -> FloatArray:
    """How many equal holders would be like these [..., holder]: k if they are equal, 1 if one of them has nearly all."""
    squares = np.maximum((sizes**2).sum(axis=-1), 1e-300)
    like: FloatArray = np.maximum(sizes.sum(axis=-1) ** 2 / squares, 1.0)
    return like


def _frequencies(signal: FloatArray, n_counters: FloatArray) -> FloatArray:
    """Numbers in (0, 1] [node, holder] of the sums `n_counters`, in proportion to the signal as far as 1 allows."""
    frequency = np.zeros_like(signal)
    while True:
        always = frequency >= 1
        others = np.where(always, 0.0, np.maximum(signal, 1e-300))
        to_share = np.maximum(n_counters - always.sum(axis=1), 0.0)
        shared = others * (to_share / np.maximum(others.sum(axis=1), 1e-300))[:, None]
        frequency = np.where(always, 1.0, shared)
        if (frequency[~always] < 1).all():
            return np.maximum(frequency, 1e-6)


def _count_forks(nodes: IntArray, forks: IntArray, epsilons: Repeated[Epsilon]) -> CountForks:
    splits, left, right = forks.T.copy()
    return CountForks(nodes, splits, left, right, epsilons)


def _by_node_and_holder(function: Any, *arrays: FloatArray) -> tuple[FloatArray, FloatArray]:
    """A function of arrays [node, ...] applied to arrays [node, holder, ...]."""
    n_nodes, n_holders = arrays[0].shape[:2]
    counts, variance = function(*(array.reshape(n_nodes * n_holders, *array.shape[2:]) for array in arrays))
    return counts.reshape(n_nodes, n_holders, *counts.shape[1:]), variance.reshape(n_nodes, n_holders)
