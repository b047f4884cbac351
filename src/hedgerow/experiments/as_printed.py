"""The paper's algorithms with the noise that the paper prints. NOT PRIVATE, whatever epsilon they are given.

Only for redrawing the published curves: the noise is scaled by exact numbers of rows, and the noisy gain of a
winner is used as if it were free (docs/privacy.md says what either costs). What the paper leaves open is done as its
authors' code does it (docs/reproduction.md). Exact counts and NumPy's noise meet
here, as nowhere else outside `holder`; only experiments may import this module.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache

import numpy as np
from numpy.typing import NDArray

from hedgerow.budget import SCHEDULES
from hedgerow.compiled import compiled
from hedgerow.criteria import Criterion, add_impurities, weighted_impurities
from hedgerow.holder.counts import GroupedRows
from hedgerow.learner.estimates import assemble
from hedgerow.learner.topdown import ROUNDING, Growth, top_down
from hedgerow.schema import Schema
from hedgerow.tree import Tree

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.int64]

ROOT = 0
ENTROPY = int(Criterion.entropy)
HOPELESS = 1e9  # noise so many times as wide as the table leaves one count in a billion between its ends
AT_ONCE = 8  # noise makes deep nodes look better than all that is known, so looking far ahead is in vain
TINY = float(np.finfo(np.float64).tiny)


@dataclass(frozen=True)
class Paper:
    """The parameters of Section 4. `alpha` infinite: no noise, the baseline."""

    alpha: float
    budget: str = "decay"
    leaf_fraction: float = 0.5
    max_splits: int = 512
    target_error: float = 0.1
    min_gain: float = 0.01

    def for_nodes(self, depths: IntArray) -> FloatArray:
        """alpha_l: the share of a node at each of these depths; the root's depth is 1."""
        shares = [_share(self.budget, depth, self.max_splits) for depth in depths.tolist()]
        alphas: FloatArray = self.alpha * (1 - self.leaf_fraction) * np.array(shares)
        return np.maximum(alphas, 1e-300)  # a thousand nodes deep 2**-depth is 0 in floating point

    @property
    def for_leaves(self) -> float:
        """What labels the leaves."""
        return self.alpha * self.leaf_fraction


@lru_cache(maxsize=4096)
def _share(budget: str, depth: int, max_splits: int) -> float:
    return float(SCHEDULES[budget](depth, max_splits))


def selection_scale(m: FloatArray, alpha: FloatArray) -> FloatArray:
    """Of report-noisy-max on gains at nodes of m rows: 20 lg(m) / (alpha m); below two rows as at two."""
    rows = np.maximum(m, 2)
    scale: FloatArray = 20 * np.log2(rows) / (alpha * rows)
    return scale


def counts_scale(n_splits: NDArray[np.integer] | int, alpha: FloatArray) -> FloatArray:
    """Of NoisyCounts' counts: 3 |H| / alpha, as its proof has it; its text prints |H| / (3 alpha)."""
    scale: FloatArray = 3 * n_splits / alpha
    return scale


def weight_scale(n_rows: int, alpha: FloatArray) -> FloatArray:
    """Of a node's weight, as a share of all rows: 2 / (|S| alpha_l)."""
    return 2 / (n_rows * alpha)


def label_scale(alpha: float) -> float:
    """Of a leaf's class counts: 2 / alpha, report-noisy-max as Section 2 defines it, and two labels' counts."""
    return 2 / alpha


@dataclass(frozen=True)
class Entities:
    """The paper's k entities."""

    tables: Sequence[GroupedRows]
    rng: np.random.Generator

    @property
    def schema(self) -> Schema:
        """What is public about the rows."""
        return self.tables[0].schema

    @cached_property
    def n_rows(self) -> list[int]:
        """How many rows each entity has."""
        return [int(rows.label_counts(np.array([ROOT])).sum()) for rows in self.tables]

    def laplace(self, scale: FloatArray, n: int) -> FloatArray:
        """One entity's noise: n Laplace variables of each scale."""
        noise: FloatArray = scale[:, None] * self.rng.laplace(size=(len(scale), n))
        return noise

    def label_counts(self, nodes: IntArray) -> list[IntArray]:
        """Each entity's exact class counts [node, class]."""
        return [rows.label_counts(nodes) for rows in self.tables]

    def publish(self, counts: Sequence[IntArray], scale: FloatArray) -> FloatArray:
        """The sum of the entities' noisy counts [node, ...], each between 0 and the entity's number of rows."""
        total = np.zeros(counts[0].shape)
        for exact, n_rows in zip(counts, self.n_rows, strict=True):
            flat = exact.reshape(len(exact), -1)
            n_deep = int((scale > HOPELESS * n_rows).sum())
            uniform = self.rng.random((len(flat) - n_deep, flat.shape[1]))
            coins = self.rng.integers(0, 2, (n_deep, flat.shape[1]), dtype=np.bool_)
            _add_noisy(flat, scale, float(n_rows), uniform, coins, total.reshape(flat.shape))
        return total


Chosen = tuple[IntArray, FloatArray]  # a split and its noisy gain, for each node
# Asked about nodes, each with its alpha and its noisy number of rows.
PrivateSplit = Callable[[Entities, IntArray, FloatArray, FloatArray], Chosen]


def single_machine(entities: Entities, nodes: IntArray, alpha: FloatArray, _: FloatArray) -> Chosen:
    """Report-noisy-max on the gains, and the winner's noisy gain with it."""
    [rows] = entities.tables
    return _report_noisy_max(entities, rows, nodes, alpha)


def noisy_counts(entities: Entities, nodes: IntArray, alpha: FloatArray, n_rows: FloatArray) -> Chosen:
    """Noisy counts of every split; the gains follow from them."""
    cells = [rows.all_cells(nodes) for rows in entities.tables]
    scale = counts_scale(cells[0].shape[1], alpha)
    return _best(_published_gains(entities, nodes, cells, scale, n_rows))


def local_rnm(entities: Entities, nodes: IntArray, alpha: FloatArray, n_rows: FloatArray) -> Chosen:
    """Each entity names its best split (half of alpha); NoisyCounts decides among those named (the other half)."""
    named = [_report_noisy_max(entities, rows, nodes, alpha / 2)[0] for rows in entities.tables]
    ballots = np.sort(np.stack(named, axis=1), axis=1)
    is_new = np.diff(ballots, axis=1, prepend=-1) > 0
    at = np.repeat(nodes, ballots.shape[1])
    cells = [
        rows.cells(at, ballots.ravel()).reshape(*ballots.shape, 2, rows.schema.n_classes)
        for rows in entities.tables
    ]
    scale = counts_scale(is_new.sum(axis=1), alpha / 2)
    gains = _published_gains(entities, nodes, cells, scale, n_rows)
    place, gain = _best(np.where(is_new, gains, -np.inf))
    return ballots[np.arange(len(nodes)), place], gain


def _published_gains(
    entities: Entities, nodes: IntArray, cells: Sequence[IntArray], scale: FloatArray, n_rows: FloatArray
) -> FloatArray:
    """J [node, split] from three noisy counts: of labels, of a split's sides, and of labels on its sides."""
    labels = entities.publish(entities.label_counts(nodes), scale)
    sides = entities.publish([_add_classes(mine) for mine in cells], scale)
    impurities = weighted_impurities(labels, Criterion.entropy) / np.maximum(labels.sum(axis=1), TINY)
    remaining: FloatArray = _conditional(entities.publish(cells, scale), sides) / n_rows[:, None]
    gains: FloatArray = impurities[:, None] - remaining
    return gains


PRIVATE_SPLITS: dict[str, PrivateSplit] = {
    "SingleMachine": single_machine,
    "NoisyCounts": noisy_counts,
    "LocalRNM": local_rnm,
}


def learn(entities: Entities, private_split: PrivateSplit, paper: Paper) -> Tree:
    """Algorithm 1; each leaf has one row of the class that it is labelled with."""
    study = _Study(entities, private_split, paper)
    top_down(study.growth, study.evaluate, study.open_children, paper.max_splits, lambda _: AT_ONCE)
    study.label()
    return assemble(study.growth, entities.schema)


class _Study:
    """The state of one tree's growth."""

    def __init__(self, entities: Entities, private_split: PrivateSplit, paper: Paper) -> None:
        self._entities = entities
        self._private_split = private_split
        self._paper = paper
        self._n_rows = sum(entities.n_rows)
        self.growth = Growth(entities.schema.n_classes, budget=0)

    def evaluate(self, nodes: IntArray) -> None:
        """Lines 9 to 14: a node's weight, its split, and whether it is pushed.

        The root needs no weight. A node that is too light is never pushed, so its split is not even sought.
        """
        paper, known = self._paper, self.growth.nodes
        is_root = nodes[0] == ROOT
        weights = np.ones(1) if is_root else self._weigh(nodes)
        heavy = weights >= paper.target_error / paper.max_splits
        if not heavy.any():
            return
        alpha = self._alpha(nodes[heavy])
        if not is_root:
            alpha /= 2  # the other half has paid for the weight
        splits, gains = self._private_split(
            self._entities, nodes[heavy], alpha, weights[heavy] * self._n_rows
        )
        known["split"][nodes[heavy]] = splits
        known["gain"][nodes[heavy]] = weights[heavy] * gains
        known["wanted"][nodes[heavy]] = gains > paper.min_gain + ROUNDING

    def _alpha(self, nodes: IntArray) -> FloatArray:
        return self._paper.for_nodes(self.growth.nodes["depth"][nodes])

    def _weigh(self, nodes: IntArray) -> FloatArray:
        """Noisy shares of all rows."""
        rows = [counts.sum(axis=1) for counts in self._entities.label_counts(nodes)]
        scale = self._n_rows * weight_scale(self._n_rows, self._alpha(nodes))
        return self._entities.publish(rows, scale) / self._n_rows

    def open_children(self, nodes: IntArray) -> IntArray:
        """Split nodes at every entity."""
        children = self.growth.open(nodes)
        for rows in self._entities.tables:
            rows.split(nodes, self.growth.nodes["split"][nodes])
        return children

    def label(self) -> None:
        """Line 16: the class with the largest noisy count."""
        leaves = self.growth.leaves()
        scale = np.full(len(leaves), label_scale(self._paper.for_leaves))
        exact = self._entities.label_counts(leaves)
        noisy = sum(counts + self._entities.laplace(scale, counts.shape[1]) for counts in exact)
        self.growth.nodes["counts"][leaves] = np.eye(exact[0].shape[1])[np.argmax(noisy, axis=1)]


def _report_noisy_max(entities: Entities, rows: GroupedRows, nodes: IntArray, alpha: FloatArray) -> Chosen:
    counts = rows.label_counts(nodes)
    m = counts.sum(axis=1)
    gains = np.empty((len(nodes), len(rows.schema.splits)))
    for here, store, where in rows.histograms(nodes):
        gains[here] = rows.scores(store, where, Criterion.entropy)
    impurities = weighted_impurities(counts, Criterion.entropy)
    gains = (gains + impurities[:, None]) / np.maximum(m, 1)[:, None]
    splits, noisy = _best(gains + entities.laplace(selection_scale(m, alpha), gains.shape[1]))
    return splits, np.minimum(noisy, impurities / np.maximum(m, 1))


@compiled
def _add_noisy(
    counts: IntArray,
    scale: FloatArray,
    most: float,
    uniform: FloatArray,
    coins: NDArray[np.bool_],
    total: FloatArray,
) -> None:
    """Add counts [node, place] with Laplace noise, put between 0 and `most`, to `total`.

    Noise is the inverse of its distribution function at a uniform number. In its tails every count ends up at 0 or at
    `most`, whatever it was; deep in a tree nearly all of the noise is tails, and at last a coin says as much.
    """
    n_nodes, n_places = counts.shape
    shallow, deep = 0, 0
    for node in range(n_nodes):
        if scale[node] > HOPELESS * most:
            for i in range(n_places):
                total[node, i] += most * coins[deep, i]
            deep += 1
            continue
        tail = 0.5 * np.exp(-most / scale[node])
        for i in range(n_places):
            u = uniform[shallow, i]
            noisy = most if u > 0.5 else 0.0
            if tail <= u <= 1.0 - tail:
                noise = -np.log(2.0 - 2.0 * u) if u > 0.5 else np.log(2.0 * u)
                noisy = min(max(counts[node, i] + scale[node] * noise, 0.0), most)
            total[node, i] += noisy
        shallow += 1


@compiled
def _add_classes(cells: IntArray) -> IntArray:
    """Counts [node, split, side] of cells [node, split, side, class]."""
    n_nodes, n_splits, n_sides, n_classes = cells.shape
    sides = np.zeros((n_nodes, n_splits, n_sides), np.int64)
    for node in range(n_nodes):
        for s in range(n_splits):
            for side in range(n_sides):
                for a in range(n_classes):
                    sides[node, s, side] += cells[node, s, side, a]
    return sides


@compiled
def _conditional(cells: FloatArray, sides: FloatArray) -> FloatArray:
    """Rows on either side times the entropy there [node, split], from cells [node, split, side, class]."""
    n_nodes, n_splits, _, n_classes = cells.shape
    remaining = np.zeros((n_nodes, n_splits))
    of_side, rows, work = np.empty((n_classes, n_splits)), np.empty(n_splits), np.empty(n_splits)
    for node in range(n_nodes):
        for side in range(2):
            for s in range(n_splits):
                for a in range(n_classes):
                    of_side[a, s] = cells[node, s, side, a]
            impurity = np.zeros(n_splits)
            add_impurities(of_side, ENTROPY, rows, work, impurity)
            for s in range(n_splits):
                remaining[node, s] += sides[node, s, side] * impurity[s] / max(rows[s], TINY)
    return remaining


def _best(gains: FloatArray) -> Chosen:
    best = gains.argmax(axis=1)
    return best, gains[np.arange(len(gains)), best]
