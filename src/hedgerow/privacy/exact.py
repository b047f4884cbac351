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
LAST = 2**63 - 1
_LAST_WORD = np.uint64(2**64 - 1)
_HALF = np.uint64(32)
_LOW = np.uint64(2**32 - 1)


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


# ---- Whole exponents ---------------------------------------------------------------------------------------

MOST_WHOLE = 16
_DIGITS_BITS = 32 + 4 * 64


def scaled_exp(k: int, bits: int) -> int:
    """floor(2**bits exp(-k)), by the alternating series of 1/e with 64 bits to spare for what is rounded off."""
    precision = bits + 64
    term = power = 1 << precision
    inverse, n = 0, 0
    while term:
        inverse += term if n % 2 == 0 else -term
        n += 1
        term //= n
    for _ in range(k):
        power = power * inverse >> precision
    return power >> 64


def _digits(number: int) -> list[int]:
    """The first 32 bits of a number below 2**_DIGITS_BITS, then words of 64."""
    words = [number >> (64 * i) & (2**64 - 1) for i in (3, 2, 1, 0)]
    return [number >> 256, *words]


# [k]: the binary digits of exp(-k); of nearly 1 for k = 0, which nobody draws.
_EXP_DIGITS = np.array(
    [_digits(min(scaled_exp(k, _DIGITS_BITS), 2**_DIGITS_BITS - 1)) for k in range(MOST_WHOLE + 1)],
    dtype=np.uint64,
)


@compiled
def _is_below(words: NDArray[np.uint64], position: int, first: np.uint64, digits: NDArray[np.uint64]) -> Draw:
    """1 if a uniform number is below the one with these binary digits, else 0. `first` are its own first 32 bits.

    It is read only as far as it takes to tell them apart. After 288 equal bits it counts as above: that happens
    less often than somebody guesses the state of the generator.
    """
    if first != digits[0]:
        return np.int64(first < digits[0]), position
    for i in range(1, len(digits)):
        if position >= len(words):
            return 0, RAN_OUT
        word = words[position]
        position += 1
        if word != digits[i]:
            return np.int64(word < digits[i]), position
    return 0, position


@compiled
def _bernoulli_digits(words: NDArray[np.uint64], position: int, digits: NDArray[np.uint64]) -> Draw:
    """1 with the probability that has these binary digits, else 0."""
    if position >= len(words):
        return 0, RAN_OUT
    accepted, position = _is_below(words, position + 1, words[position] >> _HALF, digits)
    return accepted, position


@compiled
def bernoulli_exp_whole(words: NDArray[np.uint64], position: int, k: int) -> Draw:
    """1 with probability exp(-k), else 0: no exponent is too large, no probability is cut off."""
    while k > 0:
        step = min(k, MOST_WHOLE)
        accepted, position = _bernoulli_digits(words, position, _EXP_DIGITS[step])
        if position < 0 or not accepted:
            return 0, position
        k -= step
    return 1, position


@compiled
def bernoulli_exp(
    words: NDArray[np.uint64], position: int, gap: int, numerator: int, denominator: int, paid: int
) -> Draw:
    """1 with probability exp(paid - gap * numerator / denominator), else 0; numerator * denominator <= 2**62.

    `paid` is at most the whole part of gap * numerator / denominator. With gap = rounds * denominator + rest the
    exponent is rounds * numerator + rest * numerator / denominator: the only product is smaller than
    numerator * denominator.
    """
    if numerator == 0:
        return 1, position  # and no empty round is counted, of which there may be 2**63
    rounds, product = gap // denominator, gap % denominator * numerator
    whole = product // denominator
    for _ in range(rounds + 1):
        spared = min(whole, paid)
        accepted, position = bernoulli_exp_whole(words, position, whole - spared)
        if position < 0 or not accepted:
            return 0, position
        whole, paid = numerator, paid - spared
    part = product % denominator
    if part == 0:
        return 1, position
    accepted, position = bernoulli_exp_fraction(words, position, part, denominator)
    return accepted, position


@compiled
def gap_of(k: int, numerator: int, denominator: int) -> int:
    """The smallest gap with gap * numerator / denominator >= k, for k up to 16; the largest int64 for rates below 2**-57."""
    if numerator == 0:
        return LAST
    # denominator % numerator is below 2**31, because the product of both is at most 2**62.
    rounds, rest = denominator // numerator, denominator % numerator
    if rounds >= LAST // (2 * MOST_WHOLE):
        return LAST
    return k * rounds + (k * rest + numerator - 1) // numerator


# ---- Counts ------------------------------------------------------------------------------------------------


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
            more, position = bernoulli_exp_whole(words, position, 1)
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


# ---- Choices -----------------------------------------------------------------------------------------------


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

    Without replacement that is permute-and-flip, with it the exponential mechanism. `waiting` is scratch. One half
    of a word says who is visited, the other begins a trial with 8, or 1, of the exponent's whole part: most often
    that is all.
    """
    left = np.uint64(0)
    for i in range(len(candidates)):
        waiting[left] = i
        left += np.uint64(candidates[i])
    best = scores[waiting[0]]
    for i in range(1, np.int64(left)):
        best = max(best, scores[waiting[i]])
    one_from, eight_from = gap_of(1, numerator, denominator), gap_of(8, numerator, denominator)
    while True:
        # A best candidate is accepted for certain, so somebody is chosen before nobody is left.
        if position >= len(words):
            return 0, RAN_OUT
        word = words[position]
        position += 1
        # The pick is product / 2**32, rounded down; refusing 2**32 mod left of the rests makes all as likely (Lemire).
        product = (word >> _HALF) * left
        rest = product & _LOW
        if rest < left and rest < (_LOW + np.uint64(1)) % left:
            continue
        pick = product >> _HALF
        candidate = waiting[pick]
        gap = best - scores[candidate]
        paid = 8 if gap >= eight_from else (1 if gap >= one_from else 0)
        accepted = 1
        if paid:
            accepted, position = _is_below(words, position, word & _LOW, _EXP_DIGITS[paid])
        if accepted and position >= 0:
            accepted, position = bernoulli_exp(words, position, gap, numerator, denominator, paid)
        if position < 0:
            return 0, RAN_OUT
        if accepted:
            return candidate, position
        if not with_replacement:
            left -= np.uint64(1)
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


# A fork is drawn by rejection. It is proposed with weights that are whole numbers, at least 2**20 exp(-e) for the
# whole part e of each of its three exponents (13 for all from there on), and accepted with what that is too much.
_WEIGHT_BITS = 20
_MOST_CLASS = 13
_WEIGHTS = np.array(
    [-(-scaled_exp(e, 256) >> (256 - _WEIGHT_BITS)) for e in range(_MOST_CLASS + 1)], dtype=np.int64
)
MOST_OPTIONS = 2**11  # so that weights and their sums fit 62 bits
# [e]: the binary digits of 2**20 exp(-e) / weight.
_EXCESS_DIGITS = np.array(
    [
        _digits(
            min(
                (scaled_exp(e, _DIGITS_BITS + 64) << _WEIGHT_BITS) // int(_WEIGHTS[e]) >> 64,
                2**_DIGITS_BITS - 1,
            )
        )
        for e in range(_MOST_CLASS + 1)
    ],
    dtype=np.uint64,
)


@compiled
def fork(
    words: NDArray[np.uint64],
    position: int,
    scores: NDArray[np.int64],
    options: NDArray[np.bool_],
    candidates: NDArray[np.bool_],
    numerator: int,
    denominator: int,
    chosen: NDArray[np.int64],
) -> int:
    """Choose (h, i, j) with probability ~ exp((scores[0, h, i] + scores[1, h, j]) numerator / denominator).

    h is one of the `candidates`, i one of options[0, h], j one of options[1, h]; each has one. The exponential mechanism
    over all such forks: the sum over i and j of a product is a product of sums, so they need not be listed.
    Returns the new position.
    """
    n_splits = len(candidates)
    classes_from = np.array([gap_of(e, numerator, denominator) for e in range(1, _MOST_CLASS + 1)])
    best, sums = np.empty((2, n_splits), np.int64), np.empty((2, n_splits), np.int64)
    highest = -LAST
    for h in range(n_splits):
        if not candidates[h]:
            continue
        for side in range(2):
            best[side, h] = -LAST
            for i in range(scores.shape[2]):
                if options[side, h, i]:
                    best[side, h] = max(best[side, h], scores[side, h, i])
            sums[side, h] = 0
            for i in range(scores.shape[2]):
                if options[side, h, i]:
                    sums[side, h] += _WEIGHTS[_class_of(best[side, h] - scores[side, h, i], classes_from)]
        highest = max(highest, best[0, h] + best[1, h])
    shares = np.zeros(n_splits, np.int64)  # the weight of h, with all that may follow it, rounded up
    total = 0
    for h in range(n_splits):
        if candidates[h]:
            of_h = _class_of(highest - best[0, h] - best[1, h], classes_from)
            shares[h] = _WEIGHTS[of_h] * ((sums[0, h] * sums[1, h] >> 32) + 1)
            total += shares[h]
    while True:
        draw, position = below(words, position, total)
        if position < 0:
            return RAN_OUT
        h = _at(shares, draw)
        product = sums[0, h] * sums[1, h]
        draw, position = below(words, position, ((product >> 32) + 1) << 32)
        if position < 0:
            return RAN_OUT
        if draw >= product:
            continue
        chosen[0] = h
        gap = highest - best[0, h] - best[1, h]
        accepted, position = _is_not_in_excess(words, position, gap, numerator, denominator, classes_from)
        for side in range(2):
            if position < 0:
                return RAN_OUT
            if not accepted:
                break
            draw, position = below(words, position, sums[side, h])
            if position < 0:
                return RAN_OUT
            i = 0
            while True:
                if options[side, h, i]:
                    gap = best[side, h] - scores[side, h, i]
                    draw -= _WEIGHTS[_class_of(gap, classes_from)]
                    if draw < 0:
                        break
                i += 1
            chosen[1 + side] = i
            accepted, position = _is_not_in_excess(words, position, gap, numerator, denominator, classes_from)
        if position < 0:
            return RAN_OUT
        if accepted:
            return position


@compiled
def _class_of(gap: int, classes_from: NDArray[np.int64]) -> int:
    """The whole part of a gap's exponent, or the last class."""
    if gap >= classes_from[len(classes_from) - 1]:
        return len(classes_from)
    e = 0
    while gap >= classes_from[e]:
        e += 1
    return e


@compiled
def _at(shares: NDArray[np.int64], draw: int) -> int:
    """Whose share a number below their sum falls into."""
    i = 0
    while draw >= shares[i]:
        draw -= shares[i]
        i += 1
    return i


@compiled
def _is_not_in_excess(
    words: NDArray[np.uint64],
    position: int,
    gap: int,
    numerator: int,
    denominator: int,
    classes_from: NDArray[np.int64],
) -> Draw:
    """1 with probability exp(-exponent) over the weight with which it was proposed, else 0."""
    e = _class_of(gap, classes_from)
    if e > 0:
        accepted, position = _bernoulli_digits(words, position, _EXCESS_DIGITS[e])
        if position < 0 or not accepted:
            return 0, position
    accepted, position = bernoulli_exp(words, position, gap, numerator, denominator, e)
    return accepted, position


@compiled
def choose_forks(
    words: NDArray[np.uint64],
    position: int,
    first: int,
    scores: NDArray[np.int64],
    options: NDArray[np.bool_],
    candidates: NDArray[np.bool_],
    which: NDArray[np.int64],
    rates: NDArray[np.int64],
    chosen: NDArray[np.int64],
) -> tuple[int, int]:
    """`fork` for node i, from the first one on, from table which[i] at the rate rates[i] = (numerator, denominator)."""
    for i in range(first, len(which)):
        table = which[i]
        after = fork(
            words,
            position,
            scores[table],
            options[table],
            candidates[table],
            rates[i, 0],
            rates[i, 1],
            chosen[i],
        )
        if after < 0:
            return i, position
        position = after
    return len(which), position
