"""Mistakes in what is charged: sensitivities, the ledger, prices that many nodes share."""

from __future__ import annotations

from mutant import Mutant

LEDGER = "tests/privacy/test_ledger.py"
HOLDER = "tests/holder/test_holder.py"
PRICES = "tests/holder/test_several_prices.py"
SENSITIVITY = "tests/privacy/test_sensitivity.py"
# All but those of all small tables, which take a minute.
CLAIMS = (
    f"{SENSITIVITY}::test_the_claimed_range_has_room_for_the_bound_and_for_all_rounding",
    f"{SENSITIVITY}::test_one_more_row_raises_the_impurity_by_at_most_the_bound",
    f"{SENSITIVITY}::test_one_row_moves_all_scores_within_the_claimed_range",
    f"{SENSITIVITY}::test_the_rounding_error_is_less_than_half_of_what_is_allowed_for",
    f"{SENSITIVITY}::test_sixty_thousand_classes_in_two_thousand_million_rows_stay_within_the_claimed_range",
    f"{SENSITIVITY}::test_one_row_among_two_thousand_million_moves_all_scores_within_the_claimed_range",
)
CRITERIA = "tests/test_criteria.py"
STORE = "tests/holder/test_store.py"
CLASSIFIER = "tests/test_classifier.py"


CLOCK = "tests/holder/test_clock.py"


def ledger(old: str, new: str, harm: str, *tests: str, survives: str | None = None) -> Mutant:
    return Mutant("privacy/ledger.py", old, new, harm, tests or (LEDGER,), survives)


def criteria(old: str, new: str, harm: str, *tests: str, survives: str | None = None) -> Mutant:
    return Mutant("criteria.py", old, new, harm, tests or CLAIMS, survives)


def repeated(old: str, new: str, harm: str, *tests: str, survives: str | None = None) -> Mutant:
    return Mutant("repeated.py", old, new, harm, tests, survives)


ACCOUNT = [
    ledger("< self.least_price:", "< 0:", "a release may cost next to nothing", CLOCK),
    ledger(
        "self._n_releases + len(parts) * len(prices) > self.most_releases",
        "self._n_releases + len(parts) > self.most_releases",
        "the releases of a question count once",
        CLOCK,
    ),
    ledger(
        "        self._n_releases += sum(len(release.parts) for release in quote.releases)\n",
        "",
        "every question has as many releases as the study",
        CLOCK,
    ),
    ledger(
        "int(np.bincount(reached, minlength=1).max()) * len(prices)",
        "len(prices)",
        "a node named often has one quantum",
        CLOCK,
    ),
    ledger(
        "if (least := min(booked.items,",
        "if (least := max(booked.items,",
        "one price that is high enough is enough",
        CLOCK,
    ),
    # ---- The ledger
    ledger(
        'self._factor = 2 if neighbours == "replace" else 1', "self._factor = 1", "replacing a row costs once"
    ),
    ledger("if total > self.grant:", "if total >= self.grant:", "the last of a grant is refused"),
    ledger("if total > self.grant:", "if spent > self.grant:", "a charge is refused after it is too late"),
    ledger(
        "if total > self.grant:",
        "if total > self.grant + Fraction(1, 1000):",
        "a little more than the grant is spent",
        LEDGER,
        PRICES,
    ),
    ledger("spent = max(spent, total)", "spent = total", "a cheap path makes a dear one forgotten"),
    ledger("int(sums[reached].max())", "int(sums[reached].min())", "the cheapest path is what is spent"),
    ledger("= origin[divided[i]], all_depths", "= 0, all_depths", "parts forget what their parents paid"),
    ledger(
        "np.add.at(sums, reached, np.array(in_units, dtype=kind)[cost.which[payer]])",
        "sums[reached] += np.array(in_units, dtype=kind)[cost.which[payer]]",
        "a part that is named twice pays once",
    ),
    ledger("[cost.which[payer]])", "[cost.which[payer * 0]])", "all parts pay the first price"),
    ledger(
        "in zip(costs, units, strict=True):",
        "in zip(costs[:1], units[:1], strict=True):",
        "the second price is not charged",
        PRICES,
    ),
    ledger("if len(finite) == len(each):", "if finite:", "an infinite price beside another costs nothing"),
    ledger(
        "np.int64 if max(most, finer) < 2**63 else object",
        "np.int64 if finer < 2**63 else object",
        "large sums overflow",
    ),
    ledger(
        "sum(max(u, default=0) for u in units) * len(reached)",
        "sum(max(u, default=0) for u in units)",
        "sums of a part named often overflow",
    ),
    ledger(
        "if unit.bit_length() > MOST_BITS:",
        "if len(finite) > MOST_BITS:",
        "sums of endless digits keep the holder busy",
    ),
    ledger(
        "again = children[divided] != NONE",
        "again = children[divided] < NONE",
        "a part is divided a second time",
    ),
    ledger(
        "again |= children[divided] != first",
        "again |= children[divided] < NONE",
        "a part is divided twice at once",
    ),
    ledger("(parts < 0) | (parts >= n)", "parts >= n", "parts of negative numbers are taken"),
    ledger(
        "_check_known(divided, first)",
        "_check_known(divided, first + 2)",
        "a part is divided before it is there",
    ),
    ledger("if not epsilon > 0:", "if epsilon < 0:", "a release costs nothing"),
    ledger(
        "else Fraction(epsilon)\n", "else Fraction(epsilon).limit_denominator(10**6)\n", "a price is rounded"
    ),
    ledger(
        "found += (first[reached], first[reached] + 1)",
        "found += (first[reached],)",
        "right children do not pay for their parents",
    ),
    ledger(
        "if (children[parts] == NONE).all():",
        "if (children[parts] == NONE).any():",
        "children do not pay if another part has none",
    ),
    ledger("n_payers += len(below[part])", "n_payers = len(below[part])", "payers fill the memory"),
    ledger(
        "if quote.before is not self._sums:",
        "if quote.before is None:",
        "an old quote undoes what was booked",
    ),
    ledger("copy=False) * finer", "copy=False)", "what was spent shrinks with finer prices"),
    ledger("return not self.leaks", "return True", "an account with leaks says that it is private"),
    ledger('"spent": str(self.spent)', '"spent": str(float(self.spent))', "the written account is rounded"),
    # ---- Sensitivities
    criteria("return Fraction(2 * k, k - 1)", "return Fraction(k, k - 1)", "half the sensitivity of gini"),
    criteria(
        "math.log(n) + (n - 1) * math.log1p(1 / (n - 1))",
        "math.log(n)",
        "the sensitivity of entropy is a little too small",
    ),
    criteria(
        "math.isqrt((n - 1) * 2**82 - 1)",
        "math.isqrt((n - 1) * 2**80 - 1)",
        "half the sensitivity of root gini",
    ),
    criteria(
        "math.isqrt((n - 1) * 2**82 - 1)",
        "math.isqrt((n - 2) * 2**82)",
        "the sensitivity of root gini is that of one row less",
    ),
    criteria("return Fraction(k, k - 1)", "return Fraction(1)", "the sensitivity of error is too small"),
    criteria("n <= 1:", "n <= 2:", "the second row has no sensitivity"),
    criteria("math.ceil(impurity_bound(", "math.floor(impurity_bound(", "a sensitivity is rounded down"),
    criteria("= 1 + math.ceil(4", "= math.ceil(4", "the rounding of scores to units is free"),
    criteria(
        "math.ceil(4 * rounding_error(",
        "math.ceil(2 * rounding_error(",
        "half of the rounding of floats is free",
    ),
    criteria(
        "math.ceil(4 * rounding_error(",
        "math.floor(4 * rounding_error(",
        "a little rounding of floats is free",
    ),
    criteria(
        "64 * (n_classes + 4)",
        "8 * (n_classes + 4)",
        "the rounding of floats is an eighth",
        survives="the proof bounds every order of operations; in the tests' tables the error is below a hundredth of it",
    ),
    criteria(
        "64 * (n_classes + 4) * max_rows,",
        "64 * (n_classes + 4),",
        "the rounding of floats does not grow with the rows",
    ),
    criteria("(n_classes + 4) *", "4 *", "the rounding of floats does not grow with the classes"),
    criteria(
        "scores.flat[i] * 2.0**FRACTION_BITS",
        "scores.flat[i] * 2.0 * 2.0**FRACTION_BITS",
        "scores are in half units",
    ),
    criteria(
        "scale = n_classes / (n_classes - 1.0)", "scale = 2.0", "impurities of three classes are too large"
    ),
    criteria(
        "out[i] += work[i] / np.log(n_classes)",
        "out[i] += work[i] / np.log(2.0)",
        "entropy of three classes is too large",
    ),
    criteria("out[i] += 2.0 * np.sqrt", "out[i] += 4.0 * np.sqrt", "root gini is twice as large"),
    criteria(
        "squares / rows) if rows > 0.0 else 0.0",
        "squares / rows)",
        "the score of an empty side is no number",
        CRITERIA,
        *CLAIMS,
    ),
    # ---- Prices that nodes share
    repeated(
        "Repeated(self.items, self.which[places])",
        "Repeated(self.items, self.which[: len(places)])",
        "nodes have the prices of others",
        PRICES,
        HOLDER,
    ),
    repeated(
        "self.which * n_others + other.which",
        "self.which + other.which",
        "nodes have the sensitivities of others",
        "tests/privacy/test_selectors.py::test_nodes_with_epsilons_and_sensitivities_of_their_own_are_chosen_for_as_if_alone",
        PRICES,
    ),
    repeated(
        "return Fraction(repr(float(number)))",
        "return Fraction(float(number))",
        "0.1 is granted as a float above it",
        "tests/test_repeated.py",
    ),
    repeated(
        "distinct[order].tolist()], place[which])",
        "distinct[order].tolist()], which)",
        "many prices are mixed up",
        "tests/test_repeated.py",
    ),
]
