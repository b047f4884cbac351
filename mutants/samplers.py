"""Mistakes in what is drawn: samplers, sources of noise, selectors."""

from __future__ import annotations

from mutant import Mutant

NOISE = "tests/privacy/test_noise.py"
SELECTORS = "tests/privacy/test_selectors.py"
FORKS = "tests/privacy/test_forks.py"
PRICES = "tests/holder/test_several_prices.py"
SUITE = "tests/privacy/test_audit_suite.py"

# The quickest of each kind first: compiling all samplers anew takes longer than any test.
UNIFORM = (
    f"{SELECTORS}::test_words_that_would_bias_a_uniform_integer_are_refused",
    f"{SELECTORS}::test_integers_below_a_bound_are_uniform",
)
COIN = (f"{SELECTORS}::test_bernoulli_exp_succeeds_with_its_exact_probability",)
WHOLE = (
    f"{SELECTORS}::test_powers_of_e_are_known_to_the_last_of_288_bits",
    f"{SELECTORS}::test_a_number_is_compared_as_far_as_it_takes_to_tell_it_from_a_power_of_e",
    f"{SELECTORS}::test_an_exponent_beyond_the_table_is_drawn_in_steps",
    f"{SELECTORS}::test_a_whole_exponent_succeeds_with_its_exact_probability",
)
GAP = (
    f"{SELECTORS}::test_the_first_gap_of_a_whole_exponent_is_found",
    f"{SELECTORS}::test_no_rate_has_no_gap_at_all",
)
FLIP = (
    f"{SELECTORS}::test_half_words_that_would_bias_a_pick_are_refused",
    f"{SELECTORS}::test_the_coin_of_a_candidate_is_the_other_half_of_its_word",
    f"{SELECTORS}::test_a_seeded_selector_has_its_exact_distribution",
    f"{SELECTORS}::test_each_node_has_candidates_of_its_own",
)
LAPLACE = (f"{NOISE}::test_laplace_noise_has_the_discrete_laplace_distribution",)
RUNNING_OUT = f"{NOISE}::test_running_out_of_tape_does_not_change_the_noise"
SOURCES = (  # of noise and of words
    f"{NOISE}::test_noise_of_neighbouring_cells_and_nodes_is_independent",
    f"{NOISE}::test_noise_is_added_to_the_values_and_the_answer_is_integers",
    f"{NOISE}::test_no_node_and_no_cell_are_fine",
    f"{NOISE}::test_what_does_not_fit_is_refused",
    f"{NOISE}::test_a_scale_is_rounded_up_and_by_less_than_one_float",
    f"{NOISE}::test_opendp_confirms_the_epsilon_of_laplace_noise",
    f"{NOISE}::test_a_scale_is_never_rounded_down_and_its_products_fit",
    f"{NOISE}::test_counts_get_noise_whatever_their_layout_in_memory",
    f"{NOISE}::test_nodes_with_scales_of_their_own_get_noise_of_those_scales",
    f"{NOISE}::test_secure_noise_never_repeats",
    f"{NOISE}::test_no_seed_of_another_library_repeats_secure_words",
    f"{NOISE}::test_the_secure_tape_goes_on_where_the_last_reader_stopped",
    f"{NOISE}::test_threads_do_not_share_secure_words",
    f"{NOISE}::test_a_forked_child_does_not_use_its_parents_words",
    f"{NOISE}::test_a_pickle_of_secure_noise_carries_no_random_words",
    f"{NOISE}::test_philox_gives_the_published_blocks",
    f"{NOISE}::test_seeded_noise_depends_on_seed_key_and_cell_alone",
    f"{NOISE}::test_the_seeded_tape_of_a_key_starts_anew_and_differs_by_key_and_seed",
    f"{NOISE}::test_noise_and_tape_of_a_key_use_different_words",
    f"{NOISE}::test_a_seed_that_is_not_64_bits_is_refused",
    f"{NOISE}::test_words_of_a_tape_are_uniform",
    f"{NOISE}::test_a_short_tape_reads_like_a_long_one",
    f"{NOISE}::test_a_sampler_that_runs_out_starts_again_at_the_same_word",
    f"{NOISE}::test_running_out_of_tape_does_not_change_the_noise",
    f"{NOISE}::test_a_tape_forgets_what_was_read",
    f"{NOISE}::test_no_noise_returns_the_values_as_they_are",
    f"{NOISE}::test_only_secure_noise_calls_itself_private",
    f"{NOISE}::test_opendp_is_never_asked_for_a_smaller_scale",
)
RATES = (
    f"{SELECTORS}::test_a_rate_is_never_rounded_up_and_its_products_fit",
    f"{SELECTORS}::test_the_largest_scores_and_ratios_do_not_overflow",
)
SENSE = (
    f"{SELECTORS}::test_what_makes_no_sense_is_refused",
    f"{SELECTORS}::test_an_epsilon_that_is_not_exact_is_refused",
)
NODES = (
    f"{SELECTORS}::test_nodes_with_epsilons_and_sensitivities_of_their_own_are_chosen_for_as_if_alone",
    f"{SELECTORS}::test_a_seeded_choice_does_not_depend_on_order_or_batches",
)
ENDS = (f"{SELECTORS}::test_running_out_of_tape_does_not_change_the_choice",)


def exact(old: str, new: str, harm: str, *tests: str, survives: str | None = None) -> Mutant:
    return Mutant("privacy/exact.py", old, new, harm, tests, survives)


def noise(old: str, new: str, harm: str, *tests: str, survives: str | None = None) -> Mutant:
    return Mutant("privacy/noise.py", old, new, harm, tests or (*SOURCES, *LAPLACE), survives)


def selectors(old: str, new: str, harm: str, *tests: str, survives: str | None = None) -> Mutant:
    return Mutant("privacy/selectors.py", old, new, harm, tests or (*FLIP, *NODES), survives)


SAMPLERS = [
    # ---- Uniform integers and coins
    exact(
        "(size - np.uint64(1))), position + 1",
        "(size - np.uint64(1))), position",
        "the word of a power of two is read again by the next draw",
        *UNIFORM,
        *FLIP,
    ),
    exact(
        "if word - value <= _LAST_WORD - (size - np.uint64(1)):",
        "if word - value <= _LAST_WORD:",
        "uniform integers have a modulo bias",
        *UNIFORM,
    ),
    exact("if draw >= numerator:", "if draw > numerator:", "a coin exp(-x) falls too often", *COIN),
    exact(
        "if draw >= numerator:\n                return k & 1",
        "if draw >= numerator:\n                return (k + 1) & 1",
        "a coin exp(-x) is its opposite",
        *COIN,
    ),
    exact("if k > 1:", "if k > 2:", "a term of the series of exp(-x) is left out", *COIN),
    exact("if draw != 0:", "if draw == 0:", "Bernoulli(1 / k) is its opposite", *COIN),
    # ---- Whole exponents
    exact("for _ in range(k):", "for _ in range(k + 1):", "exp(-k) is exp(-k - 1)", *WHOLE),
    exact(
        "for i in (3, 2, 1, 0)]",
        "for i in (0, 1, 2, 3)]",
        "the digits of exp(-k) are in the wrong order",
        *WHOLE,
    ),
    exact("precision = bits + 64", "precision = bits + 1", "the last digits of exp(-k) are wrong", *WHOLE),
    exact(
        "for i in range(1, len(digits)):",
        "for i in range(1, 2):",
        "a power of e is compared to 96 of its 288 bits",
        *WHOLE,
    ),
    exact(
        "if first != digits[0]:",
        "if first < digits[0]:",
        "a number above a power of e is compared on",
        *WHOLE,
    ),
    exact("    while k > 0:\n", "    if k > 0:\n", "a probability below exp(-16) is exp(-16)", *WHOLE),
    exact("_EXP_DIGITS[step])", "_EXP_DIGITS[1])", "exp(-k) is exp(-1)", *WHOLE),
    exact(
        "for _ in range(rounds + 1):",
        "for _ in range(rounds):",
        "a whole part of the exponent is lost",
        *COIN,
    ),
    exact(
        "paid = numerator, paid - spared",
        "paid = numerator, paid",
        "what is paid is spared in each round",
        *COIN,
        *FLIP,
    ),
    exact("spared = min(whole, paid)", "spared = 0", "what is paid already is paid again", *COIN, *FLIP),
    exact("if part == 0:", "if part <= 1:", "a small part of the exponent is lost", *COIN, *FLIP),
    exact(
        "(k * rest + numerator - 1) // numerator",
        "k * rest // numerator",
        "more is paid for than the exponent has",
        *GAP,
    ),
    exact(
        "if rounds >= LAST // (2 * MOST_WHOLE):", "if rounds >= LAST:", "a gap overflows at tiny rates", *GAP
    ),
    # ---- Laplace
    exact(
        "if negative and size == 0:", "if negative and size < 0:", "zero noise is twice as likely", *LAPLACE
    ),
    exact("return -size if negative else size", "return size", "noise is never negative", *LAPLACE),
    exact(
        "(np.int64(low) + t * high) // s",
        "np.int64(low) // s + t * high",
        "the high part of the noise is not divided",
        *LAPLACE,
    ),
    exact(
        "below(words, position, t)",
        "below(words, position, s)",
        "the low part of the noise is of another scale",
        *LAPLACE,
    ),
    exact(
        "if not accepted:\n            continue\n",
        "if not accepted and low < 0:\n            continue\n",
        "the low part of the noise is uniform",
        *LAPLACE,
    ),
    exact(
        "bernoulli_exp_whole(words, position, 1)",
        "bernoulli_exp_whole(words, position, 2)",
        "noise has thin tails",
        *LAPLACE,
    ),
    exact(
        "t[which[i]], s[which[i]])",
        "t[0], s[0])",
        "all counts get noise of the first scale",
        f"{NOISE}::test_nodes_with_scales_of_their_own_get_noise_of_those_scales",
        PRICES,
    ),
    exact(
        "values[i] += noise\n        position = after",
        "values[i] += noise",
        "all counts get the same noise",
        f"{NOISE}::test_secure_noise_never_repeats",
        *LAPLACE,
    ),
    exact(
        "t[which[i]], s[which[i]])\n        if after < 0:\n            return i, position",
        "t[which[i]], s[which[i]])\n        if after < 0:\n            return i + 1, position",
        "a count at the end of the tape gets no noise",
        RUNNING_OUT,
    ),
    exact(
        "for i in range(first, len(values)):",
        "for i in range(max(first - 1, 0), len(values)):",
        "a count before the end of the tape gets noise twice",
        RUNNING_OUT,
    ),
    # ---- Permute-and-flip, exponential
    exact(
        "for i in range(1, np.int64(left)):",
        "for i in range(1, np.int64(left) - 1):",
        "the last candidate is never the best",
        *FLIP,
    ),
    exact("left += np.uint64(candidates[i])", "left += np.uint64(1)", "who is no candidate is chosen", *FLIP),
    exact(
        "if rest < left and rest < (_LOW + np.uint64(1)) % left:",
        "if rest < np.uint64(0):",
        "some candidates are visited more often",
        *FLIP,
    ),
    exact(
        "word & _LOW, _EXP_DIGITS[paid]",
        "word >> _HALF, _EXP_DIGITS[paid]",
        "the coin depends on who is visited",
        *FLIP,
    ),
    exact(
        "paid = 8 if gap >= eight_from",
        "paid = 8 if gap >= one_from",
        "near candidates pay for far ones",
        *FLIP,
    ),
    exact(
        "denominator, paid)\n        if position",
        "denominator, 0)\n        if position",
        "candidates pay twice",
        *FLIP,
    ),
    exact("if not with_replacement:", "if with_replacement:", "each of two mechanisms is the other", *FLIP),
    exact(
        "waiting[pick] = waiting[left]",
        "waiting[pick] = waiting[0]",
        "refused candidates are visited again",
        *FLIP,
    ),
    exact(
        "rates[i, 0], rates[i, 1], with_replacement",
        "rates[0, 0], rates[0, 1], with_replacement",
        "all nodes are chosen for at the price of the first",
        f"{PRICES}::test_a_choice_at_a_high_price_is_the_best_and_at_a_low_one_any",
    ),
    exact(
        "chosen[i] = candidate\n        position = after",
        "chosen[i] = candidate",
        "all nodes choose by the same words",
        f"{SELECTORS}::test_secure_choices_are_random_whatever_the_layout_of_the_scores",
        f"{SELECTORS}::test_a_secure_selector_has_its_exact_distribution",
    ),
    exact(
        "with_replacement, waiting\n        )\n        if after < 0:\n            return i, position",
        "with_replacement, waiting\n        )\n        if after < 0:\n            return i, len(words)",
        "a choice at the end of the tape starts again on fresh words",
        *ENDS,
    ),
    # ---- Forks
    exact(
        "-(-scaled_exp(e, 256) >> (256 - _WEIGHT_BITS))",
        "scaled_exp(e, 256) >> (256 - _WEIGHT_BITS)",
        "far forks are proposed too rarely",
        f"{FORKS}::test_weights_are_rounded_up_and_what_that_is_too_much_is_refused",
    ),
    exact(
        "_EXCESS_DIGITS[e])",
        "_EXP_DIGITS[e])",
        "forks pay their exponent twice",
        f"{FORKS}::test_forks_are_drawn_from_the_exponential_mechanism",
    ),
    exact(
        "numerator, denominator, e)\n    return",
        "numerator, denominator, 0)\n    return",
        "forks pay their exponent again",
        f"{FORKS}::test_forks_are_drawn_from_the_exponential_mechanism",
    ),
    exact(
        "highest = max(highest, best[0, h] + best[1, h])",
        "highest = best[0, h] + best[1, h]",
        "the last split is taken for the best of all forks",
        f"{FORKS}::test_forks_are_drawn_from_the_exponential_mechanism",
    ),
    exact(
        "* ((sums[0, h] * sums[1, h] >> 32) + 1)",
        "* (sums[0, h] * sums[1, h] >> 32)",
        "shares of forks are rounded down",
        f"{FORKS}::test_a_split_is_proposed_by_its_share_and_never_without_one",
    ),
    exact(
        "if draw >= product:",
        "if draw < 0:",
        "what was rounded up is not refused",
        f"{FORKS}::test_what_was_rounded_up_is_refused",
    ),
    exact(
        "if options[side, h, i]:\n                    gap",
        "if options[side, h, i] or i == 0:\n                    gap",
        "a split that is no option is chosen",
        f"{FORKS}::test_an_option_is_proposed_by_its_weight_and_never_without_one",
        f"{FORKS}::test_forks_are_drawn_from_the_exponential_mechanism",
    ),
    exact(
        "if draw < 0:\n                        break",
        "if draw <= 0:\n                        break",
        "the first options are more likely",
        f"{FORKS}::test_an_option_is_proposed_by_its_weight_and_never_without_one",
    ),
    exact(
        "while draw >= shares[i]:",
        "while draw > shares[i]:",
        "a split that is no candidate is chosen",
        f"{FORKS}::test_a_split_is_proposed_by_its_share_and_never_without_one",
    ),
    exact(
        "if candidates[h]:\n            of_h",
        "if shares[h] == 0:\n            of_h",
        "every split is a candidate of a fork",
        f"{FORKS}::test_a_split_is_proposed_by_its_share_and_never_without_one",
        f"{FORKS}::test_forks_are_drawn_from_the_exponential_mechanism",
    ),
    exact(
        "rates[i, 0],\n            rates[i, 1],",
        "rates[0, 0],\n            rates[0, 1],",
        "all forks are chosen at the price of the first",
        f"{PRICES}::test_a_choice_at_a_high_price_is_the_best_and_at_a_low_one_any",
    ),
    exact(
        "table = which[i]",
        "table = which[first]",
        "forks are chosen by the scores of another node",
        f"{PRICES}::test_a_choice_at_a_high_price_is_the_best_and_at_a_low_one_any",
    ),
    exact(
        "        position = after\n    return len(which)",
        "    return len(which)",
        "all forks are chosen by the same words",
        f"{FORKS}::test_the_tape_of_a_fork_is_read_in_order",
    ),
    # ---- Tapes
    noise(
        "unread = self.words[self.position :]",
        "unread = self.words[:0]",
        "a draw starts again on fresh words",
        RUNNING_OUT,
    ),
    noise(
        "self._source(self._written, words[",
        "self._source(0, words[",
        "a longer tape repeats its words",
        f"{NOISE}::test_a_sampler_that_runs_out_starts_again_at_the_same_word",
        RUNNING_OUT,
        f"{NOISE}::test_a_short_tape_reads_like_a_long_one",
    ),
    noise(
        "self._written += count",
        "self._written += 0",
        "a tape repeats its second part",
        f"{NOISE}::test_a_sampler_that_runs_out_starts_again_at_the_same_word",
        RUNNING_OUT,
        f"{NOISE}::test_a_short_tape_reads_like_a_long_one",
    ),
    noise(
        "sampler(self.words, begin, done,",
        "sampler(self.words, begin, max(done - 1, 0),",
        "the last draw before the end of a tape is made twice",
        f"{NOISE}::test_a_sampler_that_runs_out_starts_again_at_the_same_word",
        RUNNING_OUT,
        f"{NOISE}::test_a_short_tape_reads_like_a_long_one",
    ),
    noise(
        "class _SecureTapes(threading.local):",
        "class _SecureTapes:",
        "threads share their random words",
        f"{NOISE}::test_threads_do_not_share_secure_words",
    ),
    noise(
        "if self.tape is None or self.process != os.getpid():",
        "if self.tape is None:",
        "a forked child may draw its parent's words",
        f"{NOISE}::test_a_forked_child_does_not_use_its_parents_words",
    ),
    noise(
        "register_at_fork(after_in_child=_secure",
        "register_at_fork(after_in_parent=_secure",
        "a forked child of its parent's number draws its words",
        f"{NOISE}::test_a_forked_child_does_not_use_its_parents_words",
    ),
    noise(
        "ssl.RAND_bytes(into.nbytes)",
        "np.random.bytes(into.nbytes)",
        "who knows a seed of NumPy knows the noise",
        f"{NOISE}::test_no_seed_of_another_library_repeats_secure_words",
    ),
    noise(
        "ssl.RAND_bytes(into.nbytes)",
        "__import__('random').randbytes(into.nbytes)",
        "who knows a seed of Python knows the noise",
        f"{NOISE}::test_no_seed_of_another_library_repeats_secure_words",
    ),
    noise(
        "ssl.RAND_bytes(into.nbytes)",
        "bytes(bytearray(into.nbytes))",
        "there is no randomness at all",
        f"{NOISE}::test_no_seed_of_another_library_repeats_secure_words",
    ),
    # ---- Noise
    noise(
        'noisy = np.array(values, order="C")  #',
        "noisy = np.array(values)  #",
        "noise is added to a copy of transposed counts",
        f"{NOISE}::test_counts_get_noise_whatever_their_layout_in_memory",
    ),
    noise(
        "np.repeat(scales.which, values.shape[1])",
        "np.tile(scales.which, values.shape[1])",
        "scales go to other nodes",
        f"{NOISE}::test_nodes_with_scales_of_their_own_get_noise_of_those_scales",
        PRICES,
    ),
    noise(
        "                noisy.size,",
        "                len(noisy),",
        "only as many counts as there are nodes get noise",
    ),
    noise(
        "ratios = scales.map(ratio_at_least)",
        "ratios = scales.map(lambda scale: ratio_at_least(1 / scale))",
        "noise of scale epsilon, not 1 / epsilon",
    ),
    noise(
        "mine = scales.which == i",
        "mine = scales.which >= i",
        "OpenDP's noise is added more than once",
        f"{NOISE}::test_nodes_with_scales_of_their_own_get_noise_of_those_scales",
    ),
    noise(
        "_opendp_laplace(float_at_least(scales.items[i]))",
        "_opendp_laplace(float_at_least(scales.items[0]))",
        "OpenDP's noise has the first scale everywhere",
        f"{NOISE}::test_nodes_with_scales_of_their_own_get_noise_of_those_scales",
    ),
    noise(
        "_opendp_laplace(float_at_least(scales",
        "_opendp_laplace(float(scales",
        "OpenDP is asked for a smaller scale",
        f"{NOISE}::test_opendp_is_never_asked_for_a_smaller_scale",
    ),
    noise(
        "return nearest if Fraction(nearest) >= scale else math.nextafter(nearest, math.inf)",
        "return nearest",
        "a scale is rounded down to a float",
        f"{NOISE}::test_a_scale_is_rounded_up_and_by_less_than_one_float",
    ),
    noise(
        "-(-numerator * s // denominator)",
        "numerator * s // denominator",
        "a scale is rounded down to a ratio",
        f"{NOISE}::test_a_scale_is_never_rounded_down_and_its_products_fit",
    ),
    noise(
        "if not 0 < item <= LARGEST_SCALE:",
        "if not 0 < item:",
        "noise overflows",
        f"{NOISE}::test_what_does_not_fit_is_refused",
    ),
    noise(
        "values.min() > -LARGEST_VALUE and values",
        "values.min() > -LARGEST_VALUE or values",
        "counts are so large that noise overflows",
        f"{NOISE}::test_what_does_not_fit_is_refused",
    ),
    noise(
        "self._tape(key)",
        "self._tape(keys[0])",
        "seeded choices of all nodes are one",
        *NODES,
        f"{FORKS}::test_a_seeded_choice_depends_on_its_key_alone",
    ),
    noise(
        "_TAPE_STREAM = np.uint64(1 << 63)",
        "_TAPE_STREAM = np.uint64(0)",
        "seeded noise and choices share their words",
        f"{NOISE}::test_noise_and_tape_of_a_key_use_different_words",
    ),
    noise(
        "_LAPLACE_STREAM | np.uint64(cell))",
        "_LAPLACE_STREAM)",
        "all cells of a node get the same seeded noise",
    ),
    noise(
        "philox(seed, keys[node], _LAPLACE",
        "philox(seed, keys[0], _LAPLACE",
        "all nodes get the same seeded noise",
    ),
    noise(
        "scales[node] * _exponential(down)",
        "scales[0] * _exponential(down)",
        "seeded noise has the first scale everywhere",
        f"{NOISE}::test_nodes_with_scales_of_their_own_get_noise_of_those_scales",
        *SOURCES,
    ),
    noise(
        "seed: int\n    private: ClassVar[bool] = False",
        "seed: int\n    private: ClassVar[bool] = True",
        "seeded noise says that it is private",
        f"{NOISE}::test_only_secure_noise_calls_itself_private",
    ),
    noise(
        "tape: Tape\n    private: ClassVar[bool] = False",
        "tape: Tape\n    private: ClassVar[bool] = True",
        "repeatable noise says that it is private",
        f"{NOISE}::test_only_secure_noise_calls_itself_private",
        *SOURCES,
    ),
    # ---- Selectors
    selectors(
        "candidates, with_replacement=False)",
        "candidates, with_replacement=True)",
        "permute-and-flip is the exponential mechanism",
    ),
    selectors(
        "candidates, with_replacement=True)",
        "candidates, with_replacement=False)",
        "the exponential mechanism is permute-and-flip",
    ),
    selectors("lambda rate: 1 / rate", "lambda rate: 1 / (2 * rate)", "report-noisy-max has half its noise"),
    selectors(
        "= best_of(noisy, among)", "= best_of(scores, among)", "report-noisy-max reports the exact maximum"
    ),
    selectors(
        "= best_of(noisy, among)",
        "= best_of(noisy, among | True)",
        "report-noisy-max reports who is no candidate",
        f"{SELECTORS}::test_each_node_has_candidates_of_its_own",
        *FLIP,
    ),
    selectors("epsilon.denominator * sensitivity)", "epsilon.denominator)", "the sensitivity is ignored"),
    selectors(
        "epsilon.denominator * sensitivity)",
        "epsilon.denominator * max(sensitivity // 2, 1))",
        "half the sensitivity",
    ),
    selectors("range_ <= 0:", "range_ < 0:", "a sensitivity of 0 is taken", *SENSE),
    selectors(
        "if not (each > 0 and (", "if not (each > 0 or (", "an epsilon that is not exact is taken", *SENSE
    ),
    selectors(
        "_rates(len(which), sensitivity, epsilon, noise, keys)",
        "_rates(len(which), 1, epsilon, noise, keys)",
        "the sensitivity of forks is ignored",
        f"{FORKS}::test_forks_are_drawn_from_the_exponential_mechanism",
    ),
    selectors(
        "[rates.which]\n    tables",
        "[rates.which * 0]\n    tables",
        "forks are chosen at the first price",
        f"{PRICES}::test_a_choice_at_a_high_price_is_the_best_and_at_a_low_one_any",
    ),
    selectors(
        "[rates.which]\n    chosen",
        "[rates.which * 0]\n    chosen",
        "splits are chosen at the first price",
        f"{PRICES}::test_a_choice_at_a_high_price_is_the_best_and_at_a_low_one_any",
    ),
    selectors(
        "which[here], ratios[here], chosen[here]",
        "which[here], ratios, chosen[here]",
        "forks are chosen at the prices of earlier nodes",
        f"{PRICES}::test_a_choice_at_a_high_price_is_the_best_and_at_a_low_one_any",
        FORKS,
    ),
    selectors(
        "among[here], ratios[here],",
        "among[here], ratios,",
        "splits are chosen at the prices of earlier nodes",
        f"{PRICES}::test_a_choice_at_a_high_price_is_the_best_and_at_a_low_one_any",
        *NODES,
    ),
    selectors(
        "(scores[here], among[here],",
        "(scores[here], among,",
        "splits are chosen among the candidates of earlier nodes",
    ),
    selectors(
        "LARGEST_VALUE // 2):",
        "LARGEST_VALUE * 2):",
        "scores of forks overflow",
        f"{FORKS}::test_what_makes_no_sense_is_refused",
    ),
    selectors(
        "if max(n_candidates, n_options) > MOST_OPTIONS:",
        "if n_candidates > MOST_OPTIONS:",
        "weights of forks overflow",
        f"{FORKS}::test_what_makes_no_sense_is_refused",
    ),
    selectors(
        "if not _are_small(scores, LARGEST_VALUE):",
        "if not _are_small(scores, 2 * LARGEST_VALUE - 1):",
        "differences of scores overflow",
        *SENSE,
        *RATES,
    ),
    selectors(
        "if candidates[i, j] & (scores[i, j] > highest):",
        "if scores[i, j] > highest:",
        "who is no candidate is the best",
        f"{SELECTORS}::test_each_node_has_candidates_of_its_own",
        f"{SELECTORS}::test_without_noise_the_first_of_the_best_is_chosen",
        *FLIP,
    ),
    selectors(
        "[(0, len(keys))] if is_one_tape else even_parts",
        "even_parts",
        "two threads read one tape",
        f"{SUITE}::test_an_audit_can_be_repeated",
    ),
    selectors(
        "noise.tapes(keys[start:stop])",
        "noise.tapes(keys[: stop - start])",
        "two threads draw by the same keys",
    ),
    selectors(
        "numerator = n * denominator // d",
        "numerator = -(-n * denominator // d)",
        "a rate is rounded up",
        *RATES,
    ),
    selectors("if n * d <= 2**62:", "if n * d <= 2**70:", "products of a rate overflow", *RATES),
    selectors(
        "    if n >= 2**62 * d:\n        return 2**62, 1\n",
        "    if n >= 2**62 * d:\n        return 2**63 - 1, 1\n",
        "products of a large rate overflow",
        *RATES,
    ),
]
