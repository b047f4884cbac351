"""Selectors: the code has the distribution of the theorem, and the theorem's distribution is private.

Exact probabilities are computed here from the definitions, by other means than the code's. Tests with
`SecureNoise` and OpenDP are random, each with a false-alarm probability of 1e-7 and fewer than ten of them;
the others have fixed seeds.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence
from decimal import Context, Decimal, localcontext
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from scipy import stats  # type: ignore[import-untyped, unused-ignore]
from tapes import read, tape_of

from hedgerow.privacy.exact import (
    MOST_WHOLE,
    RAN_OUT,
    below,
    bernoulli_exp,
    bernoulli_exp_whole,
    flip,
    gap_of,
    scaled_exp,
)
from hedgerow.privacy.noise import Noise, NoNoise, SecureNoise, SeededNoise, Tape
from hedgerow.privacy.selectors import (
    SELECTORS,
    Exponential,
    PermuteAndFlip,
    ReportNoisyMax,
    Selector,
    bounded_ratio,
)
from hedgerow.repeated import Repeated

FALSE_ALARM = 1e-7
Scores = Sequence[int]


# ---- Exact probabilities -------------------------------------------------------------------------------------


def permute_and_flip_probabilities(scores: Scores, scale: float) -> list[float]:
    """Sum over the set of candidates that are visited, and refused, before the chosen one."""
    accept = [math.exp((score - max(scores)) / scale) for score in scores]
    n = len(scores)
    probabilities = []
    for i in range(n):
        others = [j for j in range(n) if j != i]
        visited_first = 0.0
        for size in range(n):
            orders = math.factorial(size) * math.factorial(n - 1 - size) / math.factorial(n)
            for refused in itertools.combinations(others, size):
                visited_first += orders * math.prod(1 - accept[j] for j in refused)
        probabilities.append(accept[i] * visited_first)
    return probabilities


def exponential_probabilities(scores: Scores, scale: float) -> list[float]:
    weights = [math.exp((score - max(scores)) / scale) for score in scores]
    return [weight / sum(weights) for weight in weights]


def report_noisy_max_probabilities(scores: Scores, scale: float) -> list[float]:
    """Sum over the winner's noise; everybody else must stay below it (earlier ones strictly)."""
    reach = math.ceil(40 * scale) + max(scores) - min(scores)
    noise = np.arange(-reach, reach + 1)
    ratio = math.exp(-1 / scale)
    mass = (1 - ratio) / (1 + ratio) * ratio ** np.abs(noise)

    def at_most(z: NDArray[np.int64]) -> NDArray[np.float64]:
        tail = ratio ** (np.abs(z) + (z >= 0)) / (1 + ratio)
        return np.where(z >= 0, 1 - tail, tail)

    return [
        float(
            np.sum(
                mass
                * math.prod(
                    (at_most(noise + scores[i] - scores[j] - (j < i)) for j in range(len(scores)) if j != i),
                    start=np.ones(1),
                )
            )
        )
        for i in range(len(scores))
    ]


EXACT: dict[str, Callable[[Scores, float], list[float]]] = {
    "permute_and_flip": permute_and_flip_probabilities,
    "exponential": exponential_probabilities,
    "report_noisy_max": report_noisy_max_probabilities,
}


def test_every_selector_is_registered_under_its_name_and_has_exact_probabilities() -> None:
    kinds = {name: type(selector) for name, selector in SELECTORS.items()}
    assert kinds == {
        "permute_and_flip": PermuteAndFlip,
        "exponential": Exponential,
        "report_noisy_max": ReportNoisyMax,
    }
    assert set(EXACT) == set(SELECTORS)


@pytest.mark.parametrize("exact", EXACT.values())
def test_exact_probabilities_add_up_to_one(exact: Callable[[Scores, float], list[float]]) -> None:
    assert sum(exact([3, 0, 2, 2, -5, 1], 1.7)) == pytest.approx(1, abs=1e-12)


# ---- The code has the theorem's distribution -----------------------------------------------------------------

CASES = [
    ([0, 0, 0], 1, Fraction(1)),
    ([7, 3, 7, 0, -2], 3, Fraction(1, 2)),
    ([100, 140, 90, 135, 0, 120], 16, Fraction(4, 5)),
    ([2**40, 2**40 - 2**18], 2**18 + 1, Fraction(0.1)),
    ([0, 4, 9], 3, Fraction(1)),  # the best comes last
]


def choose(
    selector: Selector, scores: Scores, sensitivity: int, epsilon: Fraction, noise: Noise, nodes: int
) -> NDArray[np.int64]:
    table = np.tile(np.array(scores, np.int64), (nodes, 1))
    return selector.select(table, sensitivity, epsilon, noise, np.arange(nodes, dtype=np.uint64))


def p_value(chosen: NDArray[np.int64], probabilities: Sequence[float] | NDArray[np.float64]) -> float:
    observed = np.bincount(chosen, minlength=len(probabilities))
    return float(stats.chisquare(observed, np.array(probabilities) * len(chosen), sum_check=False).pvalue)


@pytest.mark.parametrize(("scores", "sensitivity", "epsilon"), CASES)
@pytest.mark.parametrize("name", SELECTORS)
def test_a_seeded_selector_has_its_exact_distribution(
    name: str, scores: Scores, sensitivity: int, epsilon: Fraction
) -> None:
    if name == "report_noisy_max" and max(scores) > 1000:
        scores, sensitivity = [2**10, 2**10 - 2**8], 2**8 + 1  # the sum over all noise has to end
    chosen = choose(SELECTORS[name], scores, sensitivity, epsilon, SeededNoise(20), 40_000)
    assert p_value(chosen, EXACT[name](scores, float(sensitivity / epsilon))) > FALSE_ALARM


@pytest.mark.parametrize(("scores", "sensitivity", "epsilon"), CASES[1:3])
@pytest.mark.parametrize(
    ("name", "nodes"), [(name, 10_000 if "max" in name else 40_000) for name in SELECTORS]
)
def test_a_secure_selector_has_its_exact_distribution(
    name: str, nodes: int, scores: Scores, sensitivity: int, epsilon: Fraction
) -> None:
    chosen = choose(SELECTORS[name], scores, sensitivity, epsilon, SecureNoise(), nodes)
    assert p_value(chosen, EXACT[name](scores, float(sensitivity / epsilon))) > FALSE_ALARM


def test_a_wrong_scale_would_be_noticed() -> None:
    scores, sensitivity, epsilon = CASES[2]
    for name, selector in SELECTORS.items():
        chosen = choose(selector, scores, sensitivity, epsilon, SeededNoise(20), 40_000)
        assert p_value(chosen, EXACT[name](scores, 1.1 * float(sensitivity / epsilon))) < FALSE_ALARM


def test_opendps_noisy_max_is_the_same_permute_and_flip() -> None:
    """OpenDP's draws have our exact probabilities, at the scale its monotone metric calls epsilon-private."""
    import opendp.prelude as dp

    dp.enable_features("contrib")
    scores, sensitivity, epsilon = CASES[1]
    metric = dp.linf_distance(T=dp.i64, monotonic=True)
    noisy_max = dp.m.make_noisy_max(
        dp.vector_domain(dp.atom_domain(T=dp.i64)),
        metric,
        dp.max_divergence(),
        scale=float(sensitivity / epsilon),
    )
    their_epsilon = noisy_max.map(sensitivity)  # type: ignore[no-untyped-call, unused-ignore]
    assert their_epsilon == pytest.approx(float(epsilon), rel=1e-12)
    theirs = np.array([noisy_max(np.array(scores, np.int64)) for _ in range(20_000)])
    assert p_value(theirs, permute_and_flip_probabilities(scores, float(sensitivity / epsilon))) > FALSE_ALARM


# ---- The theorem's distribution is private -------------------------------------------------------------------


def privacy_loss(name: str, scores: Scores, changed: Scores, scale: float) -> float:
    before, after = EXACT[name](scores, scale), EXACT[name](changed, scale)
    return max(abs(math.log(p / q)) for p, q in zip(before, after, strict=True))


@pytest.mark.parametrize("name", SELECTORS)
def test_monotone_neighbours_cost_at_most_epsilon_for_all_small_scores(name: str) -> None:
    sensitivity, epsilon = 2, 1.3
    worst = max(
        privacy_loss(name, (*scores, 0), [a + b for a, b in zip((*scores, 0), change, strict=True)], 2 / 1.3)
        for scores in itertools.product(range(-4, 5, 2), repeat=2)
        for change in itertools.product(range(sensitivity + 1), repeat=3)
    )
    assert epsilon * 0.7 < worst <= epsilon + 1e-9


@settings(deadline=None, max_examples=150)
@given(st.data())
@pytest.mark.parametrize("name", SELECTORS)
def test_monotone_neighbours_cost_at_most_epsilon(name: str, data: st.DataObject) -> None:
    sensitivity = data.draw(st.integers(1, 4))
    epsilon = data.draw(st.sampled_from([0.1, 0.5, 1.0, 2.5]))
    scores = data.draw(st.lists(st.integers(-6, 6), min_size=1, max_size=6))
    changed = [score + data.draw(st.integers(0, sensitivity)) for score in scores]
    assert privacy_loss(name, scores, changed, sensitivity / epsilon) <= epsilon + 1e-9


@pytest.mark.parametrize("name", SELECTORS)
def test_changes_in_both_directions_would_cost_more_than_epsilon(name: str) -> None:
    """So the scale needs scores that move together, and the tests above have something to find."""
    assert privacy_loss(name, [0, 8], [1, 7], 1.0) > 1.7


# ---- Exact building blocks -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("gap", "ratio"),
    [
        (0, Fraction(1)),
        (1, Fraction(1, 3)),
        (1, Fraction(1)),
        (7, Fraction(1, 2)),
        (10, Fraction(1, 7)),
        (1, Fraction(5, 2)),
        (2, Fraction(3, 2)),
        (3, Fraction(2**30 - 1, 2**31)),
        (2**61, Fraction(1, 2**60)),
        (5, Fraction(1, 2**62)),
    ],
)
def test_bernoulli_exp_succeeds_with_its_exact_probability(gap: int, ratio: Fraction) -> None:
    """Also of what is left of an exponent, when a part of its whole part is accounted for elsewhere."""
    trials, whole = 50_000, math.floor(gap * ratio)
    for paid in {0, min(whole, 1), whole}:
        tape = tape_of(SeededNoise(30), gap)
        arguments = gap, ratio.numerator, ratio.denominator, paid
        drawn = [read(tape, bernoulli_exp, *arguments) for _ in range(trials)]
        assert stats.binomtest(sum(drawn), trials, math.exp(paid - gap * ratio)).pvalue > FALSE_ALARM


@pytest.mark.parametrize("k", [1, 2, 3, 8])
def test_a_whole_exponent_succeeds_with_its_exact_probability(k: int) -> None:
    tape, trials = tape_of(SeededNoise(32), k), 100_000
    drawn = sum(read(tape, bernoulli_exp_whole, k) for _ in range(trials))
    assert stats.binomtest(drawn, trials, math.exp(-k)).pvalue > FALSE_ALARM


def test_powers_of_e_are_known_to_the_last_of_288_bits() -> None:
    with localcontext(Context(prec=120)):
        for k in range(MOST_WHOLE + 1):
            exact = Decimal(-k).exp() * Decimal(2) ** 288
            assert scaled_exp(k, 288) == int(exact)


def test_a_number_is_compared_as_far_as_it_takes_to_tell_it_from_a_power_of_e() -> None:
    """A word gives 32 bits at first, all of 64 from then on."""
    digits = scaled_exp(2, 288)
    first, second, third = digits >> 256, (digits >> 192) % 2**64, (digits >> 128) % 2**64
    for words, expected in (
        ([(first - 1) << 32], (1, 1)),
        ([(first + 1) << 32], (0, 1)),
        ([first << 32, second - 1], (1, 2)),
        ([first << 32, second + 1], (0, 2)),
        ([first << 32, second, third - 1], (1, 3)),
        ([first << 32], (0, RAN_OUT)),
        ([first << 32, second, third, (digits >> 64) % 2**64, digits % 2**64], (0, 5)),
    ):
        assert bernoulli_exp_whole(np.array(words, np.uint64), 0, 2) == expected


def test_an_exponent_beyond_the_table_is_drawn_in_steps() -> None:
    """Exp(-17) is exp(-16) and then exp(-1), each from words of its own."""
    sixteen, one = (scaled_exp(k, 32) for k in (16, 1))
    below, above = [(sixteen - 1) << 32, (one - 1) << 32], [(sixteen - 1) << 32, (one + 1) << 32]
    assert bernoulli_exp_whole(np.array(below, np.uint64), 0, 17) == (1, 2)
    assert bernoulli_exp_whole(np.array(above, np.uint64), 0, 17) == (0, 2)


@pytest.mark.parametrize(
    "ratio", [Fraction(1), Fraction(1, 3), Fraction(7, 3), Fraction(3, 2**60), Fraction(1, 2**62)]
)
@pytest.mark.parametrize("k", [1, 8, 13])
def test_the_first_gap_of_a_whole_exponent_is_found(k: int, ratio: Fraction) -> None:
    found, exact = gap_of(k, ratio.numerator, ratio.denominator), math.ceil(k / ratio)
    assert found == (exact if 1 / ratio < 2**58 else 2**63 - 1)


def test_half_words_that_would_bias_a_pick_are_refused() -> None:
    """2**32 = 1 modulo 3: of the halves that say who of three is visited, the first is one too many."""
    waiting, alike, three = np.empty(3, np.int64), np.zeros(3, np.int64), np.ones(3, np.bool_)
    for halves, expected in (
        ([0, 1], (0, 2)),
        ([1], (0, 1)),
        ([2**31], (1, 1)),
        ([2**32 - 1], (2, 1)),
        ([0], (0, RAN_OUT)),
    ):
        words = np.array(halves, np.uint64) << np.uint64(32)
        assert flip(words, 0, alike, three, 1, 1, False, waiting) == expected


def test_the_coin_of_a_candidate_is_the_other_half_of_its_word() -> None:
    """Of two candidates the second, eight behind, is visited first, and is taken below exp(-8) only."""
    waiting, scores, both = np.empty(2, np.int64), np.array([0, -8]), np.ones(2, np.bool_)
    digits = scaled_exp(8, 32)
    for coin, expected in ((digits - 1, 1), (digits + 1, 0), (2**32 - 1, 0)):
        words = np.array([(2**32 - 1) << 32 | coin, 0, 0], np.uint64)
        assert flip(words, 0, scores, both, 1, 1, False, waiting)[0] == expected


def test_no_rate_has_no_gap_at_all() -> None:
    assert gap_of(1, 0, 1) == 2**63 - 1


@pytest.mark.parametrize("bound", [2, 3, 10, 12 * 53, 3 * 2**61])
def test_integers_below_a_bound_are_uniform(bound: int) -> None:
    """Taking 64-bit words modulo 3 * 2**61 would favour the lowest quarter visibly."""
    tape, parts = tape_of(SeededNoise(31), bound), min(bound, 12)
    draws = np.array([read(tape, below, bound) * parts // bound for _ in range(30_000)], np.int64)
    assert p_value(draws, np.full(parts, 1 / parts)) > FALSE_ALARM


def test_words_that_would_bias_a_uniform_integer_are_refused() -> None:
    last = np.array([2**64 - 1, 5], np.uint64)
    assert below(last, 0, 3) == (2, 2)  # 2**64 = 1 modulo 3: the last word is one too many
    assert below(last, 0, 4) == (3, 1)
    assert below(last[:1], 0, 3)[1] < 0
    assert below(last, 0, 1) == (0, 1)


@given(st.fractions(min_value=Fraction(1, 2**64), max_value=2**64))
def test_a_rate_is_never_rounded_up_and_its_products_fit(rate: Fraction) -> None:
    numerator, denominator = bounded_ratio(rate)
    assert numerator * denominator <= 2**62
    assert denominator <= 2**62
    assert Fraction(numerator, denominator) <= rate
    if rate >= 2**-30:
        assert Fraction(numerator, denominator) >= min(rate, Fraction(2**62)) * (1 - Fraction(1, 2**15))


def test_ordinary_rates_are_not_rounded() -> None:
    for epsilon in (Fraction(1), Fraction(1, 10), Fraction(7, 640), Fraction(0.125)):
        assert Fraction(*bounded_ratio(epsilon / (2**18 + 1))) == epsilon / (2**18 + 1)


# ---- Tapes, batches, extremes --------------------------------------------------------------------------------


class ShortTapes(SeededNoise):
    """The same words, but tapes that have to be extended again and again."""

    def _tape(self, node: np.uint64) -> Tape:
        return Tape(super()._tape(node)._source, first=1)


@pytest.mark.parametrize("selector", [PermuteAndFlip(), Exponential()])
def test_running_out_of_tape_does_not_change_the_choice(selector: Selector) -> None:
    scores = np.random.default_rng(3).integers(-50, 50, (300, 40))
    keys = np.arange(300, dtype=np.uint64)
    choices = [
        selector.select(scores, 9, Fraction(1, 2), noise(4), keys) for noise in (SeededNoise, ShortTapes)
    ]
    assert choices[0].tolist() == choices[1].tolist()


@pytest.mark.parametrize("selector", SELECTORS.values())
def test_a_seeded_choice_does_not_depend_on_order_or_batches(selector: Selector) -> None:
    scores = np.random.default_rng(3).integers(-50, 50, (60, 7))
    keys = np.random.default_rng(4).integers(0, 2**64, 60, dtype=np.uint64)
    noise, epsilon = SeededNoise(9), Fraction(1, 3)
    together = selector.select(scores, 10, epsilon, noise, keys)
    backwards = selector.select(scores[::-1], 10, epsilon, noise, keys[::-1])[::-1]
    by_column = selector.select(np.asfortranarray(scores), 10, epsilon, noise, keys)
    alone = [selector.select(scores[[i]], 10, epsilon, noise, keys[[i]])[0] for i in range(60)]
    assert together.tolist() == backwards.tolist() == by_column.tolist() == alone


@pytest.mark.parametrize("selector", SELECTORS.values())
def test_secure_choices_are_random_whatever_the_layout_of_the_scores(selector: Selector) -> None:
    scores = np.asfortranarray(np.tile(np.arange(10), (40, 1)))
    chosen = selector.select(scores, 1, Fraction(1, 10**6), SecureNoise(), np.zeros(40, np.uint64))
    assert len(set(chosen.tolist())) > 1  # all 40 equal: one chance in 10**39


@pytest.mark.parametrize(("scores", "sensitivity", "epsilon"), CASES)
@pytest.mark.parametrize("noise", [SeededNoise(21), SecureNoise()])
@pytest.mark.parametrize("name", SELECTORS)
def test_who_is_no_candidate_changes_nothing(
    name: str, noise: Noise, scores: Scores, sensitivity: int, epsilon: Fraction
) -> None:
    """Far better scores that are no candidates' are never chosen, and the others' chances are as without them."""
    nodes, better = 5_000, max(scores) + 100 * sensitivity
    table = np.tile(np.array([better, *scores, better], np.int64), (nodes, 1))
    candidates = np.tile([False, *(True for _ in scores), False], (nodes, 1))
    keys = np.arange(nodes, dtype=np.uint64)
    chosen = SELECTORS[name].select(table, sensitivity, epsilon, noise, keys, candidates) - 1
    assert set(chosen.tolist()) <= set(range(len(scores)))
    assert p_value(chosen, EXACT[name](scores, float(sensitivity / epsilon))) > FALSE_ALARM


@pytest.mark.parametrize("selector", SELECTORS.values())
def test_each_node_has_candidates_of_its_own(selector: Selector) -> None:
    scores, only = np.zeros((400, 9), np.int64), np.arange(400) % 9
    candidates = np.arange(9) == only[:, None]
    for noise in (SeededNoise(1), SecureNoise(), NoNoise()):
        chosen = selector.select(scores, 1, Fraction(1), noise, np.arange(400, dtype=np.uint64), candidates)
        assert chosen.tolist() == only.tolist()


@pytest.mark.parametrize("selector", SELECTORS.values())
@pytest.mark.parametrize("candidates", [[[True, True], [False, False]], [[True, True]], [[1, 1], [1, 1]]])
def test_a_node_without_candidates_is_refused(selector: Selector, candidates: list[list[bool]]) -> None:
    with pytest.raises(ValueError, match="at least one a node"):
        selector.select(
            np.zeros((2, 2), np.int64),
            1,
            Fraction(1),
            SeededNoise(1),
            np.zeros(2, np.uint64),
            np.array(candidates),
        )


@pytest.mark.parametrize("selector", SELECTORS.values())
def test_a_constant_added_to_all_scores_changes_nothing(selector: Selector) -> None:
    scores = np.random.default_rng(5).integers(-50, 50, (200, 7))
    keys = np.arange(200, dtype=np.uint64)
    choices = [
        selector.select(scores + shift, 10, Fraction(1), SeededNoise(9), keys).tolist()
        for shift in (0, -(2**50))
    ]
    assert choices[0] == choices[1]


@pytest.mark.parametrize("selector", SELECTORS.values())
def test_a_secure_choice_is_not_reproducible(selector: Selector) -> None:
    """False alarm: 8**-100, that 100 uniform choices among eight repeat."""
    first, second = (choose(selector, [0] * 8, 1, Fraction(1), SecureNoise(), 100) for _ in range(2))
    assert first.tolist() != second.tolist()


@pytest.mark.parametrize("selector", SELECTORS.values())
@pytest.mark.parametrize("epsilon", [Fraction(1), math.inf])
def test_without_noise_the_first_of_the_best_is_chosen(selector: Selector, epsilon: Fraction) -> None:
    chosen = selector.select(
        np.array([[1, 5, 5], [9, 0, 9], [0, 0, 0]]), 1, epsilon, NoNoise(), np.zeros(3, np.uint64)
    )
    assert chosen.dtype == np.int64
    assert chosen.tolist() == [1, 0, 0]


@pytest.mark.parametrize("selector", [PermuteAndFlip(), Exponential()])
def test_the_largest_scores_and_ratios_do_not_overflow(selector: Selector) -> None:
    far = [-(2**62) + 1, 2**62 - 1]
    for epsilon in (Fraction(1), Fraction(10**30), Fraction(10**9, 7**40) + 1):
        assert set(choose(selector, far, 1, epsilon, SeededNoise(1), 50)) == {1}
    # An epsilon this small is rounded down to none at all: both are equally likely.
    hits = int(choose(selector, far, 10**6, Fraction(1, 10**80), SeededNoise(1), 2_000).sum())
    assert stats.binomtest(hits, 2_000).pvalue > FALSE_ALARM


@pytest.mark.parametrize("selector", SELECTORS.values())
@pytest.mark.parametrize("noise", [SecureNoise(), SeededNoise(1), NoNoise()])
def test_a_single_candidate_is_chosen_and_no_node_is_fine(selector: Selector, noise: Noise) -> None:
    assert choose(selector, [5], 1, Fraction(1), noise, 3).tolist() == [0, 0, 0]
    assert choose(selector, [5, 6], 1, Fraction(1), noise, 0).shape == (0,)


@pytest.mark.parametrize("selector", SELECTORS.values())
@pytest.mark.parametrize("noise", [SeededNoise(1), NoNoise()])
@pytest.mark.parametrize(
    ("scores", "sensitivity", "epsilon", "keys", "message"),
    [
        ([[1, 2]], 0, Fraction(1), 1, "sensitivity must be a positive integer, got 0"),
        ([[1, 2]], 1.5, Fraction(1), 1, "sensitivity must be a positive integer, got 1.5"),
        ([[1, 2]], True, Fraction(1), 1, "sensitivity must be a positive integer, got True"),
        ([[1, 2]], 1, Fraction(0), 1, "epsilon must be a positive Fraction"),
        ([[1, 2]], 1, Fraction(-1), 1, "epsilon must be a positive Fraction"),
        ([[1, 2]], 1, Fraction(1), 2, "keys must have one entry a node"),
        ([[]], 1, Fraction(1), 1, "at least one candidate"),
        ([1, 2], 1, Fraction(1), 2, "scores must be int64"),
        ([[2**62, 0]], 1, Fraction(1), 1, "scores must lie strictly between"),
    ],
)
def test_what_makes_no_sense_is_refused(
    selector: Selector,
    noise: Noise,
    scores: list[int],
    sensitivity: int,
    epsilon: Fraction,
    keys: int,
    message: str,
) -> None:
    with pytest.raises(ValueError, match=message):
        selector.select(np.array(scores, np.int64), sensitivity, epsilon, noise, np.zeros(keys, np.uint64))


@pytest.mark.parametrize("selector", SELECTORS.values())
@pytest.mark.parametrize("epsilon", [0.5, math.inf, math.nan])
def test_an_epsilon_that_is_not_exact_is_refused(selector: Selector, epsilon: Fraction) -> None:
    with pytest.raises(ValueError, match="epsilon must be a positive Fraction"):
        choose(selector, [0, 1], 1, epsilon, SeededNoise(1), 1)


@pytest.mark.parametrize("name", SELECTORS)
def test_nodes_with_epsilons_and_sensitivities_of_their_own_are_chosen_for_as_if_alone(name: str) -> None:
    scores, keys = np.random.default_rng(5).integers(-50, 50, (200, 7)), np.arange(200, dtype=np.uint64)
    epsilons = Repeated([Fraction(3), Fraction(1, 100)], np.arange(200) % 2)
    sensitivities = Repeated([10, 1], np.arange(200) // 2 % 2)
    together = SELECTORS[name].select(scores, sensitivities, epsilons, SeededNoise(9), keys)
    for i in range(4):
        args = sensitivities[i], epsilons[i], SeededNoise(9), keys[i::4]
        assert together[i::4].tolist() == SELECTORS[name].select(scores[i::4], *args).tolist()
