"""The paper's algorithms with the noise that the paper prints. NOT PRIVATE, whatever epsilon they are given.

Only for redrawing the published curves: the noise is scaled by exact numbers of rows, and the noisy gain of a
winner is used as if it were free (docs/privacy.md says what either costs). Exact counts and NumPy's noise meet
here, as nowhere else outside `holder`; only experiments may import this module.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from hedgerow.budget import SCHEDULES
from hedgerow.compiled import compiled
from hedgerow.criteria import Criterion, add_impurities, weighted_impurities
from hedgerow.holder.counts import GroupedRows
from hedgerow.learner.coordinator import assemble
from hedgerow.learner.topdown import ROUNDING, Growth, top_down
from hedgerow.schema import Schema
from hedgerow.tree import Tree

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.int64]

ROOT = 0
ENTROPY = int(Criterion.entropy)
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
    """The paper's k entities. Where only sums over entities count, their rows are kept as one table."""

    tables: Sequence[GroupedRows]
    k: int
    rng: np.random.Generator

    @property
    def schema(self) -> Schema:
        """What is public about the rows."""
        return self.tables[0].schema

    def laplace(self, scale: FloatArray, n: int) -> FloatArray:
        """One entity's noise: n Laplace variables of each scale."""
        noise: FloatArray = scale[:, None] * self.rng.laplace(size=(len(scale), n))
        return noise

    def noise(self, scale: FloatArray) -> FloatArray:
        """What k entities' Laplace noise of this scale adds up to: the difference of two Gamma(k) variables."""
        up, down = (self.rng.standard_gamma(self.k, scale.shape) for _ in range(2))
        total: FloatArray = scale * (up - down)
        return total

    def class_counts(self, nodes: IntArray) -> FloatArray:
        """Exact class counts [node, class] over all entities."""
        counts: FloatArray = np.sum([rows.label_counts(nodes) for rows in self.tables], axis=0).astype(
            np.float64
        )
        return counts


Chosen = tuple[IntArray, FloatArray]  # a split and its noisy gain, for each node
PrivateSplit = Callable[[Entities, IntArray, FloatArray], Chosen]


def single_machine(entities: Entities, nodes: IntArray, alpha: FloatArray) -> Chosen:
    """Report-noisy-max on the gains, and the winner's noisy gain with it."""
    [rows] = entities.tables
    return _report_noisy_max(entities, rows, nodes, alpha)


def noisy_counts(entities: Entities, nodes: IntArray, alpha: FloatArray) -> Chosen:
    """Noisy cells of every split; the gains follow from them.

    The paper counts cells, rows and columns of each split's table, with a third of the budget each. Here only
    the cells are used, at the scale printed: rows and columns are sums of them.
    """
    [rows] = entities.tables
    cells = rows.all_cells(nodes)
    scale = counts_scale(cells.shape[1], alpha)
    return _best(_gains(cells + entities.noise(_spread(scale, cells))))


def local_rnm(entities: Entities, nodes: IntArray, alpha: FloatArray) -> Chosen:
    """Each entity names its best split (half of alpha); NoisyCounts decides among those named (the other half)."""
    named = [_report_noisy_max(entities, rows, nodes, alpha / 2)[0] for rows in entities.tables]
    ballots = np.sort(np.stack(named, axis=1), axis=1)
    is_new = np.diff(ballots, axis=1, prepend=-1) > 0
    at = np.repeat(nodes, ballots.shape[1])
    exact = np.sum([rows.cells(at, ballots.ravel()) for rows in entities.tables], axis=0)
    cells = exact.reshape(*ballots.shape, 2, -1)
    scale = counts_scale(is_new.sum(axis=1), alpha / 2)
    gains = _gains(cells + entities.noise(_spread(scale, cells)))
    place, gain = _best(np.where(is_new, gains, -np.inf))
    return ballots[np.arange(len(nodes)), place], gain


PRIVATE_SPLITS: dict[str, PrivateSplit] = {
    "SingleMachine": single_machine,
    "NoisyCounts": noisy_counts,
    "LocalRNM": local_rnm,
}


def learn(entities: Entities, private_split: PrivateSplit, paper: Paper) -> Tree:
    """Algorithm 1; each leaf has one row of the class that it is labelled with."""
    study = _Study(entities, private_split, paper)
    top_down(study.growth, study.evaluate, study.open_children, paper.max_splits)
    study.label()
    return assemble(study.growth, entities.schema)


class _Study:
    """The state of one tree's growth."""

    def __init__(self, entities: Entities, private_split: PrivateSplit, paper: Paper) -> None:
        self._entities = entities
        self._private_split = private_split
        self._paper = paper
        self._n_rows = int(entities.class_counts(np.array([ROOT])).sum())
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
        splits, gains = self._private_split(self._entities, nodes[heavy], alpha)
        gains = np.minimum(gains, 1.0)  # the theorem's proof needs an estimated gain to be "bounded by 1"
        known["split"][nodes[heavy]] = splits
        known["gain"][nodes[heavy]] = weights[heavy] * gains
        known["wanted"][nodes[heavy]] = gains > paper.min_gain + ROUNDING

    def _alpha(self, nodes: IntArray) -> FloatArray:
        return self._paper.for_nodes(self.growth.nodes["depth"][nodes])

    def _weigh(self, nodes: IntArray) -> FloatArray:
        """Noisy shares of all rows."""
        exact = self._entities.class_counts(nodes).sum(axis=1)
        noise = self._entities.noise(weight_scale(self._n_rows, self._alpha(nodes)))
        weights: FloatArray = exact / self._n_rows + noise
        return weights

    def open_children(self, nodes: IntArray) -> IntArray:
        """Split nodes at every entity."""
        children = self.growth.open(nodes)
        for rows in self._entities.tables:
            rows.split(nodes, self.growth.nodes["split"][nodes], children)
        return children

    def label(self) -> None:
        """Line 16: the class with the largest noisy count."""
        leaves = self.growth.leaves()
        exact = self._entities.class_counts(leaves)
        noisy = exact + self._entities.noise(np.full(exact.shape, label_scale(self._paper.for_leaves)))
        self.growth.nodes["counts"][leaves] = np.eye(exact.shape[1])[noisy.argmax(axis=1)]


def _report_noisy_max(entities: Entities, rows: GroupedRows, nodes: IntArray, alpha: FloatArray) -> Chosen:
    counts = rows.label_counts(nodes)
    m = counts.sum(axis=1)
    gains = np.empty((len(nodes), len(rows.schema.splits)))
    for here, histograms in rows.histograms(nodes):
        gains[here] = rows.scores(histograms, Criterion.entropy)
    gains += weighted_impurities(counts, Criterion.entropy)[:, None]
    gains /= np.maximum(m, 1)[:, None]
    gains += entities.laplace(selection_scale(m, alpha), gains.shape[1])
    return _best(gains)


@compiled
def _gains(cells: FloatArray) -> FloatArray:
    """J [node, split] of noisy cells [node, split, side, class]; what noise made negative counts as zero."""
    n_nodes, n_splits, _, n_classes = cells.shape
    gains = np.empty((n_nodes, n_splits))
    left, right = np.empty((n_classes, n_splits)), np.empty((n_classes, n_splits))
    rows, work = np.empty(n_splits), np.empty(n_splits)
    for node in range(n_nodes):
        for s in range(n_splits):
            for a in range(n_classes):
                left[a, s] = max(cells[node, s, 0, a], 0.0)
                right[a, s] = max(cells[node, s, 1, a], 0.0)
        impurity = np.zeros((3, n_splits))
        add_impurities(left, ENTROPY, rows, work, impurity[0])
        add_impurities(right, ENTROPY, rows, work, impurity[1])
        add_impurities(left + right, ENTROPY, rows, work, impurity[2])
        gains[node] = (impurity[2] - impurity[0] - impurity[1]) / np.maximum(rows, TINY)
    return gains


def _best(gains: FloatArray) -> Chosen:
    best = gains.argmax(axis=1)
    return best, gains[np.arange(len(gains)), best]


def _spread(scale: FloatArray, cells: NDArray[np.integer]) -> FloatArray:
    """A node's scale for each of its cells."""
    return np.broadcast_to(scale.reshape(-1, *[1] * (cells.ndim - 1)), cells.shape)
