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
from typing import Any, ClassVar, Protocol

import numpy as np
from numpy.typing import NDArray

from hedgerow.compiled import compiled
from hedgerow.privacy.exact import MOST_OPTIONS, choose_forks, flip_candidates
from hedgerow.privacy.noise import LARGEST_VALUE, Noise, NoNoise, RepeatableNoise
from hedgerow.repeated import Repeated
from hedgerow.threads import even_parts, run_all

NODES_WORTH_A_THREAD = 32


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
        sensitivity: int | Repeated[int],
        epsilon: Fraction | Repeated[Fraction],
        noise: Noise,
        keys: NDArray[np.uint64],
        candidates: NDArray[np.bool_] | None = None,
    ) -> NDArray[np.int64]:
        """The chosen candidate's index of each node; `scores` are [node, candidate], `keys` [node].

        One sensitivity and one epsilon for all nodes, or one a node. `candidates` [node, candidate] says which of
        them a node has, all unless it is given; it must be public.
        Epsilon-private if one row moves all scores of a node in the same direction by at most `sensitivity`.
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
        sensitivity: int | Repeated[int],
        epsilon: Fraction | Repeated[Fraction],
        noise: Noise,
        keys: NDArray[np.uint64],
        candidates: NDArray[np.bool_] | None = None,
    ) -> NDArray[np.int64]:
        """See `Selector.select`."""
        return _flip(scores, sensitivity, epsilon, noise, keys, candidates, with_replacement=False)


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
        sensitivity: int | Repeated[int],
        epsilon: Fraction | Repeated[Fraction],
        noise: Noise,
        keys: NDArray[np.uint64],
        candidates: NDArray[np.bool_] | None = None,
    ) -> NDArray[np.int64]:
        """See `Selector.select`."""
        return _flip(scores, sensitivity, epsilon, noise, keys, candidates, with_replacement=True)


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
        sensitivity: int | Repeated[int],
        epsilon: Fraction | Repeated[Fraction],
        noise: Noise,
        keys: NDArray[np.uint64],
        candidates: NDArray[np.bool_] | None = None,
    ) -> NDArray[np.int64]:
        """See `Selector.select`."""
        rates, among = _checked(scores, sensitivity, epsilon, noise, keys, candidates)
        if isinstance(noise, NoNoise):
            noisy = scores
        else:
            noisy = noise.laplace(scores, rates.map(lambda rate: 1 / rate), keys)
        chosen: NDArray[np.int64] = best_of(noisy, among)
        return chosen


def select_forks(
    scores: NDArray[np.int64],
    options: NDArray[np.bool_],
    candidates: NDArray[np.bool_],
    which: NDArray[np.int64],
    sensitivity: int | Repeated[int],
    epsilon: Fraction | Repeated[Fraction],
    noise: Noise,
    keys: NDArray[np.uint64],
) -> NDArray[np.int64]:
    """The exponential mechanism over forks: a candidate h, an option i on its left side and one, j, on its right.

    `scores` are [table, side, candidate, option]; a node chooses from table which[node], where a fork scores
    scores[table, 0, h, i] + scores[table, 1, h, j]. The answer is (h, i, j): [node, 3]. `options` is like the scores,
    `candidates` [table, candidate]; both must be public, and every candidate has an option on either side.
    Epsilon-private as `Exponential` is, if one row moves the scores of all forks of a node in the same direction by at
    most `sensitivity`.
    """
    n_tables, n_sides, n_candidates, n_options = scores.shape
    if options.shape != scores.shape or candidates.shape != (n_tables, n_candidates) or n_sides != 2:
        raise ValueError(
            "scores and options must be [table, 2, candidate, option], candidates [table, candidate]"
        )
    if max(n_candidates, n_options) > MOST_OPTIONS:
        raise ValueError(f"at most {MOST_OPTIONS} candidates and options can be chosen among")
    if not candidates.any(axis=1).all() or not (np.all(options.any(axis=3), axis=1) | ~candidates).all():
        raise ValueError("a table must have a candidate, and a candidate an option on either side")
    if scores.dtype != np.int64 or not _are_small(scores.reshape(n_tables, -1), LARGEST_VALUE // 2):
        raise ValueError("scores must be int64, strictly between -2**61 and 2**61")
    rates = _rates(len(which), sensitivity, epsilon, noise, keys)
    if isinstance(noise, NoNoise):
        return _best_forks(scores, options, candidates)[which]
    ratios = np.array([bounded_ratio(rate) for rate in rates.items], dtype=np.int64)[rates.which]
    tables = [np.ascontiguousarray(each) for each in (scores, options, candidates)]
    chosen = np.empty((len(which), 3), np.int64)
    _fill(noise, keys, 1, choose_forks, lambda here: (*tables, which[here], ratios[here], chosen[here]))
    return chosen


def _best_forks(
    scores: NDArray[np.int64], options: NDArray[np.bool_], candidates: NDArray[np.bool_]
) -> NDArray[np.int64]:
    """The forks of the highest scores, the first of equals: [table, 3]. Not private."""
    possible = np.where(options, scores, -LARGEST_VALUE // 2)
    below = possible.argmax(axis=3)  # [table, side, candidate]
    best = np.take_along_axis(possible, below[..., None], axis=3)[..., 0].sum(axis=1)
    first = np.where(candidates, best, -2 * LARGEST_VALUE).argmax(axis=1)
    tables = np.arange(len(scores))
    return np.stack([first, below[tables, 0, first], below[tables, 1, first]], axis=1)


SELECTORS: dict[str, Selector] = {
    selector.name: selector for selector in (PermuteAndFlip(), Exponential(), ReportNoisyMax())
}


def _checked(
    scores: NDArray[np.int64],
    sensitivity: int | Repeated[int],
    epsilon: Fraction | Repeated[Fraction],
    noise: Noise,
    keys: NDArray[np.uint64],
    candidates: NDArray[np.bool_] | None,
) -> tuple[Repeated[Fraction], NDArray[np.bool_]]:
    """The rate epsilon / sensitivity of each node, and its candidates."""
    if scores.ndim != 2 or scores.dtype != np.int64 or scores.shape[1] == 0:
        raise ValueError(
            "scores must be int64 [node, candidate] with at least one candidate, "
            f"got {scores.dtype} of shape {scores.shape}"
        )
    rates = _rates(len(scores), sensitivity, epsilon, noise, keys)
    if candidates is None:
        candidates = np.ones(scores.shape, dtype=np.bool_)
    are_alike = candidates.shape == scores.shape and candidates.dtype == np.bool_
    if not are_alike or not candidates.any(axis=1).all():
        raise ValueError("candidates must be bool [node, candidate] like the scores, at least one a node")
    if not _are_small(scores, LARGEST_VALUE):  # if they are, a difference of two scores fits an int64
        raise ValueError("scores must lie strictly between -2**62 and 2**62")
    return rates, candidates


def _rates(
    n_nodes: int,
    sensitivity: int | Repeated[int],
    epsilon: Fraction | Repeated[Fraction],
    noise: Noise,
    keys: NDArray[np.uint64],
) -> Repeated[Fraction]:
    """The rate epsilon / sensitivity of each node."""
    if keys.shape != (n_nodes,):
        raise ValueError(f"keys must have one entry a node ({n_nodes}), got shape {keys.shape}")
    epsilons, sensitivities = Repeated.one(epsilon, n_nodes), Repeated.one(sensitivity, n_nodes)
    for range_ in sensitivities.items:
        if isinstance(range_, bool) or not isinstance(range_, int) or range_ <= 0:
            raise ValueError(f"sensitivity must be a positive integer, got {range_!r}")
    for each in epsilons.items:
        if not (each > 0 and (isinstance(each, Rational) or isinstance(noise, NoNoise))):
            raise ValueError(f"epsilon must be a positive Fraction, got {each!r}")
    return epsilons.times(sensitivities, _rate)


def _rate(epsilon: Fraction, sensitivity: int) -> Fraction:
    if isinstance(epsilon, Rational):
        return Fraction(epsilon.numerator, epsilon.denominator * sensitivity)
    return epsilon  # infinite


@compiled
def _are_small(scores: NDArray[np.int64], bound: int) -> bool:
    lowest = highest = 0
    for i in range(len(scores)):
        for j in range(scores.shape[1]):
            lowest, highest = min(lowest, scores[i, j]), max(highest, scores[i, j])
    return lowest > -bound and highest < bound


@compiled
def best_of(scores: NDArray[Any], candidates: NDArray[np.bool_]) -> NDArray[np.int64]:
    """The candidate of the highest score, the first of equals: [node], which has one. Not private."""
    best = np.empty(len(scores), np.int64)
    for i in range(len(scores)):
        place = 0
        while place + 1 < scores.shape[1] and not candidates[i, place]:
            place += 1
        highest = scores[i, place]
        for j in range(place + 1, scores.shape[1]):
            if candidates[i, j] & (scores[i, j] > highest):
                place, highest = j, scores[i, j]
        best[i] = place
    return best


def _flip(
    scores: NDArray[np.int64],
    sensitivity: int | Repeated[int],
    epsilon: Fraction | Repeated[Fraction],
    noise: Noise,
    keys: NDArray[np.uint64],
    candidates: NDArray[np.bool_] | None,
    *,
    with_replacement: bool,
) -> NDArray[np.int64]:
    rates, among = _checked(scores, sensitivity, epsilon, noise, keys, candidates)
    chosen: NDArray[np.int64]
    if isinstance(noise, NoNoise):
        chosen = best_of(scores, among)
        return chosen
    scores, among = np.ascontiguousarray(scores), np.ascontiguousarray(among)
    ratios = np.array([bounded_ratio(rate) for rate in rates.items], dtype=np.int64)[rates.which]
    chosen = np.empty(len(scores), np.int64)
    _fill(
        noise, keys, NODES_WORTH_A_THREAD, flip_candidates,
        lambda here: (scores[here], among[here], ratios[here], with_replacement, chosen[here]),
    )  # fmt: skip
    return chosen


def _fill(
    noise: Noise,
    keys: NDArray[np.uint64],
    worth_a_thread: int,
    sampler: Callable[..., tuple[int, int]],
    arguments: Callable[[slice], tuple[Any, ...]],
) -> None:
    """Have `sampler` make the draws of all nodes on the tapes that belong to them; its arguments are of some nodes."""

    def draw(part: tuple[int, int]) -> None:
        start, stop = part
        for tape, nodes in noise.tapes(keys[start:stop]):
            here = slice(start + nodes.start, start + nodes.stop)
            tape.fill(sampler, here.stop - here.start, *arguments(here))

    is_one_tape = isinstance(noise, RepeatableNoise)
    run_all(draw, [(0, len(keys))] if is_one_tape else even_parts(len(keys), at_least=worth_a_thread))


def bounded_ratio(rate: Fraction) -> tuple[int, int]:
    """`rate` as numerator / denominator whose product is at most 2**62.

    A rate that has no such form is rounded down (as if epsilon were smaller, so privacy is not overstated)
    to a denominator that is a power of two. The loss is below one part in 2**30 for rates about 1 and below
    one part in 2**15 down to rates of 2**-30. A rate too small for any denominator becomes 0: the choice is
    then uniform. One too large becomes 2**62.
    """
    n, d = rate.numerator, rate.denominator
    if n * d <= 2**62:
        return n, d
    if n >= 2**62 * d:
        return 2**62, 1
    # Small enough: the product will be at most rate * denominator**2, and that at most 2**62.
    denominator = 1 << (math.isqrt(2**62 * d // n).bit_length() - 1)
    numerator = n * denominator // d
    return (numerator, denominator) if numerator else (0, 1)
