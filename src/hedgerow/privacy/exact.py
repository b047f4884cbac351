"""Exact samplers: integer arithmetic on a tape of uniformly random 64-bit words, nothing else.

Each takes (words, position, ...) and returns (value, new position), or RAN_OUT for a position when the tape is
not long enough. Unsigned and signed numbers never meet in one expression: numba would make them floats.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from hedgerow.compiled import compiled

Draw = tuple[int | np.int64, int]  # a value, and where on the tape the next one starts

RAN_OUT = -1
_LAST_WORD = np.uint64(2**64 - 1)


@compiled
def below(words: NDArray[np.uint64], position: int, bound: int) -> Draw:
    """A uniform integer from 0 to bound - 1, for 1 <= bound < 2**63."""
    size = np.uint64(bound)
    if size & (size - np.uint64(1)) == 0 and position < len(words):  # a power of two, and no division
        return np.int64(words[position] & (size - np.uint64(1))), position + 1
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
    words: NDArray[np.uint64], position: int, gap: int, numerator: int, denominator: int, whole_from: int
) -> Draw:
    """1 with probability exp(-gap * numerator / denominator), else 0; numerator * denominator <= 2**62.

    With gap = rounds * denominator + rest the exponent is rounds * numerator + rest * numerator / denominator.
    Its whole part is that many successes of Bernoulli(exp(-1)) in a row: no exponent is too large, no
    probability is cut off, and the only product is smaller than numerator * denominator. From the gap `whole_from` on
    the whole part is not 0: then the first of them is drawn before anything is divided, and most often it is the last.
    """
    if numerator == 0:
        return 1, position  # and no empty round is counted, of which there may be 2**63
    is_first_drawn = gap >= whole_from
    if is_first_drawn:
        accepted, position = bernoulli_exp_fraction(words, position, 1, 1)
        if position < 0 or not accepted:
            return 0, position
    rounds, product = gap // denominator, gap % denominator * numerator
    for _ in range(product // denominator):
        if is_first_drawn:
            is_first_drawn = False
            continue
        accepted, position = bernoulli_exp_fraction(words, position, 1, 1)
        if position < 0 or not accepted:
            return 0, position
    for _ in range(rounds):
        for _ in range(numerator):
            if is_first_drawn:
                is_first_drawn = False
                continue
            accepted, position = bernoulli_exp_fraction(words, position, 1, 1)
            if position < 0 or not accepted:
                return 0, position
    part = product % denominator
    if part == 0:
        return 1, position
    accepted, position = bernoulli_exp_fraction(words, position, part, denominator)
    return accepted, position


@compiled
def laplace(words: NDArray[np.uint64], position: int, t: int, s: int) -> Draw:
    """A discrete Laplace variable, Pr[z] ~ exp(-|z| s / t), for t at most 2**53.

    Algorithm 2 of Canonne, Kamath, Steinke (2020). X = U + t V has Pr[x] ~ exp(-x / t): U from 0 to t - 1
    with probability ~ exp(-U / t), V the number of successes of Bernoulli(exp(-1)) in a row. The floor of
    X / s is geometric with ratio exp(-s / t); a random sign, with -0 refused, makes it two-sided.
    """
    while True:
        low, position = below(words, position, t)
        if position < 0:
            return 0, RAN_OUT
        accepted, position = bernoulli_exp_fraction(words, position, low, t)
        if position < 0:
            return 0, RAN_OUT
        if not accepted:
            continue
        high, more = 0, 1
        while more:
            more, position = bernoulli_exp_fraction(words, position, 1, 1)
            if position < 0:
                return 0, RAN_OUT
            high += more
        size = (np.int64(low) + t * high) // s
        negative, position = below(words, position, 2)
        if position < 0:
            return 0, RAN_OUT
        if negative and size == 0:
            continue
        return -size if negative else size, position


@compiled
def add_laplace(
    words: NDArray[np.uint64],
    position: int,
    first: int,
    values: NDArray[np.int64],
    t: NDArray[np.int64],
    s: NDArray[np.int64],
    which: NDArray[np.int64],
) -> tuple[int, int]:
    """Add to value i, from the first one on, a discrete Laplace variable of scale t / s of number which[i]."""
    for i in range(first, len(values)):
        noise, after = laplace(words, position, t[which[i]], s[which[i]])
        if after < 0:
            return i, position
        values[i] += noise
        position = after
    return len(values), position


@compiled
def flip(
    words: NDArray[np.uint64],
    position: int,
    scores: NDArray[np.int64],
    candidates: NDArray[np.bool_],
    numerator: int,
    denominator: int,
    with_replacement: bool,
    waiting: NDArray[np.int64],
) -> Draw:
    """Visit candidates at random; take i with probability exp((score_i - best) numerator / denominator).

    Without replacement that is permute-and-flip, with it the exponential mechanism. `waiting` is scratch.
    """
    left = 0
    for i in range(len(candidates)):
        waiting[left] = i
        left += candidates[i]
    best = scores[waiting[0]]
    for i in range(1, left):
        best = max(best, scores[waiting[i]])
    whole_from = denominator // max(numerator, 1) + 1
    while True:
        # A best candidate is accepted for certain, so somebody is chosen before nobody is left.
        pick, position = below(words, position, left)
        if position < 0:
            return 0, RAN_OUT
        candidate = waiting[pick]
        gap = best - scores[candidate]
        accepted, position = bernoulli_exp(words, position, gap, numerator, denominator, whole_from)
        if position < 0:
            return 0, RAN_OUT
        if accepted:
            return candidate, position
        if not with_replacement:
            left -= 1
            waiting[pick] = waiting[left]


@compiled
def flip_candidates(
    words: NDArray[np.uint64],
    position: int,
    first: int,
    scores: NDArray[np.int64],
    candidates: NDArray[np.bool_],
    rates: NDArray[np.int64],
    with_replacement: bool,
    chosen: NDArray[np.int64],
) -> tuple[int, int]:
    """`flip` for node i, from the first one on, at the rate rates[i] = (numerator, denominator)."""
    waiting = np.empty(scores.shape[1], np.int64)
    for i in range(first, len(scores)):
        candidate, after = flip(
            words, position, scores[i], candidates[i], rates[i, 0], rates[i, 1], with_replacement, waiting
        )
        if after < 0:
            return i, position
        chosen[i] = candidate
        position = after
    return len(scores), position
