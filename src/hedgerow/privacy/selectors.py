"""Private selection: which candidate is (nearly) the best, and nothing else about the scores.

Scores are integers, and every random decision is made by exact integer arithmetic on a tape of random words,
so the proofs below hold for the code as it runs. docs/privacy.md has them at length.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from numbers import Rational
from typing import ClassVar, Protocol

import numpy as np
from numpy.typing import NDArray

from hedgerow.compiled import compiled
from hedgerow.privacy.noise import LARGEST_VALUE, Draw, Noise, NoNoise


class Selector(Protocol):
    """Chooses one candidate a node.

    What the proofs of all selectors share: adding a row moves every score of a node in one direction by at
    most `sensitivity`. A selector depends on differences of scores only (adding a constant to all of them
    changes nothing), so what counts is the range r = max d - min d of the changes d = scores' - scores, and
    r <= sensitivity. With scale = sensitivity / epsilon each proof shows, in either direction between the
    neighbours, Pr'[i] >= exp(-r / scale) Pr[i] for every candidate i.
    """

    name: ClassVar[str]

    def select(
        self,
        scores: NDArray[np.int64],
        sensitivity: int,
        epsilon: Fraction,
        noise: Noise,
        keys: NDArray[np.uint64],
    ) -> NDArray[np.int64]:
        """The chosen candidate's index of each node; `scores` are [node, candidate], `keys` [node].

        epsilon-private if one row moves all scores of a node in the same direction by at most `sensitivity`.
        """


@dataclass(frozen=True)
class PermuteAndFlip:
    """Visit the candidates in random order; take i with probability p_i = exp((score_i - best) / scale).

    Theorem (McKenna and Sheldon 2020; monotone case): epsilon-private, and never worse in expectation than
    the exponential mechanism. Proof: let candidate j arrive at a uniform time and be acceptable with
    probability p_j. Then i is chosen if no acceptable candidate arrives before it,

        Pr[i] = p_i int_0^1 prod_{j != i} (1 - t p_j) dt = int_0^{min_j 1/q_j} prod_{j != i} (1 - x q_j) dx

    with x = t p_i and q_j = p_j / p_i = exp((score_j - score_i) / scale), because p_i = min_j 1/q_j. On the
    neighbour q'_j <= exp(r / scale) q_j. Both the limit and the integrand fall when a q_j grows, so putting
    exp(r / scale) q_j there and substituting y = x exp(r / scale) gives Pr'[i] >= exp(-r / scale) Pr[i].
    """

    name: ClassVar[str] = "permute_and_flip"

    def select(
        self,
        scores: NDArray[np.int64],
        sensitivity: int,
        epsilon: Fraction,
        noise: Noise,
        keys: NDArray[np.uint64],
    ) -> NDArray[np.int64]:
        """See `Selector.select`."""
        return _read_from_tapes(permute_and_flip, scores, sensitivity, epsilon, noise, keys)


@dataclass(frozen=True)
class Exponential:
    """Take candidate i with probability proportional to exp(score_i / scale).

    Theorem (McSherry and Talwar 2007; monotone case): epsilon-private. Proof: candidate i's weight changes by
    the factor exp(d_i / scale), the sum of the weights by a factor of at most exp(max d / scale), so
    Pr'[i] / Pr[i] >= exp((d_i - max d) / scale) >= exp(-r / scale).

    Drawn by rejection: propose uniformly, accept with probability exp((score_i - best) / scale). It is
    permute-and-flip with replacement.
    """

    name: ClassVar[str] = "exponential"

    def select(
        self,
        scores: NDArray[np.int64],
        sensitivity: int,
        epsilon: Fraction,
        noise: Noise,
        keys: NDArray[np.uint64],
    ) -> NDArray[np.int64]:
        """See `Selector.select`."""
        return _read_from_tapes(exponential, scores, sensitivity, epsilon, noise, keys)


@dataclass(frozen=True)
class ReportNoisyMax:
    """Add discrete Laplace noise of the scale to every score; report where the largest is, never how large.

    Theorem (Dwork and Roth 2014, claim 3.9; monotone case): epsilon-private. Proof: fix the noise of all the
    others. Candidate i wins exactly if its own noise Z is at least the integer
    t = max_j (score_j + z_j + [j < i]) - score_i, where [j < i] is 1 or 0: with integers, "strictly more
    than an earlier candidate" is "at least one more", so breaking ties towards the lowest index moves the
    threshold by a constant that is the same on both inputs, and costs nothing. On the neighbour
    t' <= t + r, and Pr[Z >= t + r] = sum_{z >= t} Pr[Z = z + r] >= exp(-r / scale) Pr[Z >= t].
    """

    name: ClassVar[str] = "report_noisy_max"

    def select(
        self,
        scores: NDArray[np.int64],
        sensitivity: int,
        epsilon: Fraction,
        noise: Noise,
        keys: NDArray[np.uint64],
    ) -> NDArray[np.int64]:
        """See `Selector.select`."""
        _check(scores, sensitivity, epsilon, noise, keys)
        if isinstance(noise, NoNoise):
            return _best(scores)
        return _best(noise.laplace(scores, sensitivity / epsilon, keys))


SELECTORS: dict[str, Selector] = {
    selector.name: selector for selector in (PermuteAndFlip(), Exponential(), ReportNoisyMax())
}


def _check(
    scores: NDArray[np.int64], sensitivity: int, epsilon: Fraction, noise: Noise, keys: NDArray[np.uint64]
) -> None:
    if scores.ndim != 2 or scores.dtype != np.int64 or scores.shape[1] == 0:
        raise ValueError(
            "scores must be int64 [node, candidate] with at least one candidate, "
            f"got {scores.dtype} of shape {scores.shape}"
        )
    if keys.shape != scores.shape[:1]:
        raise ValueError(f"keys must have one entry a node ({len(scores)}), got shape {keys.shape}")
    if isinstance(sensitivity, bool) or not isinstance(sensitivity, int) or sensitivity <= 0:
        raise ValueError(f"sensitivity must be a positive integer, got {sensitivity!r}")
    if not (epsilon > 0 and (isinstance(epsilon, Rational) or isinstance(noise, NoNoise))):
        raise ValueError(f"epsilon must be a positive Fraction, got {epsilon!r}")
    if scores.size and not (scores.min() > -LARGEST_VALUE and scores.max() < LARGEST_VALUE):
        # Then a difference of two scores fits an int64.
        raise ValueError("scores must lie strictly between -2**62 and 2**62")


def _best(scores: NDArray[np.int64]) -> NDArray[np.int64]:
    best: NDArray[np.int64] = np.argmax(scores, axis=1).astype(np.int64)  # the first of equals
    return best


def _read_from_tapes(
    sampler: Callable[..., Draw],
    scores: NDArray[np.int64],
    sensitivity: int,
    epsilon: Fraction,
    noise: Noise,
    keys: NDArray[np.uint64],
) -> NDArray[np.int64]:
    _check(scores, sensitivity, epsilon, noise, keys)
    if isinstance(noise, NoNoise):
        return _best(scores)
    scores = np.ascontiguousarray(scores)
    numerator, denominator = bounded_ratio(epsilon / sensitivity)
    chosen = np.empty(len(scores), np.int64)
    for node, key in enumerate(keys.tolist()):
        chosen[node] = noise.tape(key).read(sampler, scores[node], numerator, denominator)
    return chosen


def bounded_ratio(rate: Fraction) -> tuple[int, int]:
    """`rate` as numerator / denominator whose product is at most 2**62.

    A rate that has no such form is rounded down (as if epsilon were smaller, so privacy is not overstated)
    to a denominator that is a power of two. The loss is below one part in 2**30 for rates about 1 and below
    one part in 2**15 down to rates of 2**-30. A rate too small for any denominator becomes 0: the choice is
    then uniform. One too large becomes 2**62.
    """
    if rate.numerator * rate.denominator <= 2**62:
        return rate.numerator, rate.denominator
    if rate >= 2**62:
        return 2**62, 1
    # Small enough: the product will be at most rate * denominator**2, and that at most 2**62.
    denominator = 1 << (math.isqrt(math.floor(2**62 / rate)).bit_length() - 1)
    numerator = math.floor(rate * denominator)
    return (numerator, denominator) if numerator else (0, 1)


# ---- Exact samplers on a tape ----------------------------------------------------------------------------------
#
# Each takes (words, position, ...) and returns (value, new position), or RAN_OUT for a position when the tape
# is not long enough. Unsigned and signed numbers never meet in one expression: numba would make them floats.

RAN_OUT = -1
_LAST_WORD = np.uint64(2**64 - 1)


@compiled
def below(words: NDArray[np.uint64], position: int, bound: int) -> Draw:
    """A uniform integer from 0 to bound - 1, for 1 <= bound < 2**63."""
    size = np.uint64(bound)
    while position < len(words):
        word = words[position]
        position += 1
        value = word % size
        # Words of the last, incomplete run of `size` values are refused: no modulo bias.
        if word - value <= _LAST_WORD - (size - np.uint64(1)):
            return np.int64(value), position
    return 0, RAN_OUT


@compiled
def bernoulli_exp_fraction(
    words: NDArray[np.uint64], position: int, numerator: int, denominator: int
) -> Draw:
    """1 with probability exp(-x), else 0, for x = numerator / denominator from 0 to 1.

    Algorithm 1 of Canonne, Kamath, Steinke (2020): the first k at which Bernoulli(x / k) fails is odd with
    probability 1 - x + x^2/2! - ... = exp(-x). Bernoulli(x / k) is Bernoulli(x) and Bernoulli(1 / k), so that
    no product can overflow however large k becomes.
    """
    k = 1
    while True:
        if numerator < denominator:
            draw, position = below(words, position, denominator)
            if position < 0:
                return 0, RAN_OUT
            if draw >= numerator:
                return k & 1, position
        if k > 1:
            draw, position = below(words, position, k)
            if position < 0:
                return 0, RAN_OUT
            if draw != 0:
                return k & 1, position
        k += 1


@compiled
def bernoulli_exp(
    words: NDArray[np.uint64], position: int, gap: int, numerator: int, denominator: int
) -> Draw:
    """1 with probability exp(-gap * numerator / denominator), else 0; numerator * denominator <= 2**62.

    With gap = rounds * denominator + rest the exponent is rounds * numerator + rest * numerator / denominator.
    Its whole part is that many successes of Bernoulli(exp(-1)) in a row: no exponent is too large, no
    probability is cut off, and the only product is smaller than numerator * denominator.
    """
    if numerator == 0:
        return 1, position  # and no empty round is counted, of which there may be 2**63
    rounds, product = gap // denominator, gap % denominator * numerator
    for _ in range(product // denominator):
        accepted, position = bernoulli_exp_fraction(words, position, 1, 1)
        if position < 0 or not accepted:
            return 0, position
    for _ in range(rounds):
        for _ in range(numerator):
            accepted, position = bernoulli_exp_fraction(words, position, 1, 1)
            if position < 0 or not accepted:
                return 0, position
    part = product % denominator
    if part == 0:
        return 1, position
    accepted, position = bernoulli_exp_fraction(words, position, part, denominator)
    return accepted, position


@compiled
def permute_and_flip(
    words: NDArray[np.uint64], position: int, scores: NDArray[np.int64], numerator: int, denominator: int
) -> Draw:
    """The index permute-and-flip chooses at scale denominator / numerator."""
    best = scores.max()
    waiting = np.arange(len(scores))
    left = len(scores)
    while True:
        # A best candidate is accepted for certain, so somebody is chosen before nobody is left.
        pick, position = below(words, position, left)
        if position < 0:
            return 0, RAN_OUT
        candidate = waiting[pick]
        accepted, position = bernoulli_exp(words, position, best - scores[candidate], numerator, denominator)
        if position < 0:
            return 0, RAN_OUT
        if accepted:
            return candidate, position
        left -= 1
        waiting[pick] = waiting[left]


@compiled
def exponential(
    words: NDArray[np.uint64], position: int, scores: NDArray[np.int64], numerator: int, denominator: int
) -> Draw:
    """The index the exponential mechanism chooses at scale denominator / numerator."""
    best = scores.max()
    while True:
        candidate, position = below(words, position, len(scores))
        if position < 0:
            return 0, RAN_OUT
        accepted, position = bernoulli_exp(words, position, best - scores[candidate], numerator, denominator)
        if position < 0:
            return 0, RAN_OUT
        if accepted:
            return candidate, position
