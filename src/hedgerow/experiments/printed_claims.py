"""`hedgerow audit --paper`: what the paper's mechanisms cost a row as they are printed, beside what they claim.

Each is written down as its statement has it and runs on two neighbours on which the mistake shows. Not one of
them is used anywhere: docs/privacy.md says what stands in their place.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hedgerow.criteria import Criterion, weighted_impurities
from hedgerow.privacy.audit import AuditResult, audit_outcomes, suite_confidence

FALSE_ALARM = 1e-6  # that any of the lower bounds is above what its mechanism costs
RUNS = 60_000

FloatArray = NDArray[np.float64]


@dataclass(frozen=True)
class Claim:
    """A mechanism as printed. `release(side, runs, rng)` is [run, number] on one of two neighbours."""

    name: str
    where: str
    epsilon: float
    private: bool  # whether it is what it claims, by our proofs
    release: Callable[[int, int, np.random.Generator], FloatArray]


@dataclass(frozen=True)
class Refuted:
    """A claim, and the epsilon that it was found to cost at least."""

    claim: Claim
    result: AuditResult

    @property
    def exceeds(self) -> bool:
        """Whether the mechanism costs more than it claims."""
        return self.result.lower_bound > self.claim.epsilon

    def to_dict(self) -> dict[str, Any]:
        """Plain values, for JSON."""
        return {
            "mechanism": self.claim.name,
            "where": self.claim.where,
            "epsilon": self.claim.epsilon,
            "lower_bound": self.result.lower_bound,
            "exceeds": self.exceeds,
            "event": str(self.result.event),
            "hits": list(self.result.hits),
            "trials": self.result.trials,
        }


def winner_and_estimate(side: int, runs: int, rng: np.random.Generator) -> FloatArray:
    """RNM, Section 2: Lap(2 Delta / alpha) on 100 counts that one more row raises together; winner and value."""
    noisy = side + rng.laplace(scale=2.0, size=(runs, 100))
    return np.column_stack([noisy.argmax(axis=1), noisy.max(axis=1)])


def noise_made_for_the_rows_there_are(side: int, runs: int, rng: np.random.Generator) -> FloatArray:
    """SingleMachine: Lap(20 lg(m) / (alpha m)) on gains, at a node of m = 1 or 2 rows of one class."""
    m = 1 + side
    noisy = rng.laplace(scale=20 * math.log2(m) / m, size=(runs, 2))  # numpy's noise of scale 0 is 0
    return np.column_stack([noisy.argmax(axis=1), noisy.max(axis=1)])


def weight_by_the_rows_there_are(side: int, runs: int, rng: np.random.Generator) -> FloatArray:
    """Algorithm 1, line 10: |S_l| / |S| + Lap(2 / (|S| alpha_l)), where all of S is at the leaf."""
    n_rows, alpha = 1 + side, 2.0  # half of alpha_l is the mechanism's
    return 1 + rng.laplace(scale=2 / (n_rows * alpha), size=(runs, 1))


def root_gini(side: int, runs: int, rng: np.random.Generator) -> FloatArray:
    """Appendix: root gini's sensitivity 10/m, so RNM with Lap(20 / (alpha m)); winner alone."""
    m = 4096
    gains = _gains_at_a_pure_node(side, m, Criterion.root_gini)
    return _winner(gains + rng.laplace(scale=20 / m, size=(runs, 4)))


def noisy_counts_of_the_text(side: int, runs: int, rng: np.random.Generator) -> FloatArray:
    """NoisyCounts, appendix: Lap(|H| / (3 alpha)) on cells, row sums and column sums of each of 4 splits."""
    with_the_row = side + rng.laplace(scale=4 / 3, size=(runs, 3 * 4))  # a cell, a row and a column of each
    evidence = np.abs(with_the_row) - np.abs(with_the_row - 1)  # for it being there, by Neyman and Pearson
    total: FloatArray = evidence.sum(axis=1, keepdims=True)
    return total


def entropy_winner(side: int, runs: int, rng: np.random.Generator) -> FloatArray:
    """SingleMachine on entropy at a public m: the scale holds, three to five times too large; winner alone."""
    m = 64
    gains = _gains_at_a_pure_node(side, m, Criterion.entropy)
    return _winner(gains + rng.laplace(scale=20 * math.log2(m) / m, size=(runs, 4)))


def exact_parent(side: int, runs: int, rng: np.random.Generator) -> FloatArray:
    """Published code: the exact impurity of the node less that of noisy cells, which are known as well."""
    exact = np.array([[0.0, 50.0], [side, 49.0]])
    noisy = np.maximum(exact + rng.laplace(scale=1.0, size=(runs, 2, 2)), 0)
    parts = weighted_impurities(noisy, Criterion.entropy).sum(axis=1)
    gain = weighted_impurities(exact.sum(axis=0), Criterion.entropy) - parts
    seen: FloatArray = np.round(gain + parts, 6)[:, None]  # whoever saw the cells takes them off again
    return seen


def empty_cells_left_out(side: int, runs: int, rng: np.random.Generator) -> FloatArray:
    """Published code: no noise on a cell without rows."""
    exact = np.array([float(side), 50.0])
    return np.where(exact > 0, exact + rng.laplace(scale=1.0, size=(runs, 2)), 0.0)


def _gains_at_a_pure_node(side: int, m: int, criterion: Criterion) -> FloatArray:
    """J of 4 splits where one of m rows of a class changes it: one split has it among the rest, three apart."""
    other, own = (1, 0) if side else (0, 1)
    among, apart = [[other, m - 1 + own], [0, 0]], [[0, m - 1], [other, own]]
    cells = np.array([among, apart, apart, apart], dtype=float)
    after = weighted_impurities(cells, criterion).sum(axis=1)
    gains: FloatArray = (weighted_impurities(cells.sum(axis=1), criterion) - after) / m
    return gains


def _winner(noisy: FloatArray) -> FloatArray:
    winner: FloatArray = noisy.argmax(axis=1)[:, None].astype(float)
    return winner


CLAIMS = (
    Claim("report-noisy-max with the estimate", "Section 2", 1.0, False, winner_and_estimate),
    Claim("gains with noise made for m rows", "SingleMachine", 1.0, False, noise_made_for_the_rows_there_are),
    Claim("weights with noise made for |S| rows", "Algorithm 1", 1.0, False, weight_by_the_rows_there_are),
    Claim("winner by root gini", "sensitivity of root gini", 1.0, False, root_gini),
    Claim("counts at scale |H| / (3 alpha)", "NoisyCounts, text", 1.0, False, noisy_counts_of_the_text),
    Claim("gain from the exact impurity of a node", "published code", 1.0, False, exact_parent),
    Claim("no noise on empty cells", "published code", 1.0, False, empty_cells_left_out),
    Claim("winner by entropy, m public", "SingleMachine", 1.0, True, entropy_winner),
)


def audit_claims(runs: int = RUNS, seed: int = 0) -> Iterator[Refuted]:
    """Audit every claim, one after another; `runs` on each neighbour."""
    confidence = suite_confidence(len(CLAIMS), FALSE_ALARM)
    for claim, sequence in zip(CLAIMS, np.random.SeedSequence(seed).spawn(len(CLAIMS)), strict=True):
        rng = np.random.default_rng(sequence)
        first, second = ([tuple(o) for o in claim.release(side, runs, rng).tolist()] for side in (0, 1))
        yield Refuted(claim, audit_outcomes((first, second), confidence))
