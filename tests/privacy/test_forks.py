"""Forks: the code draws them from the exponential mechanism, and one row moves all their scores within the claim.

Tests with `SecureNoise` are random, with a false-alarm probability of 1e-7 each and fewer than ten of them; the
others have fixed seeds.
"""

from __future__ import annotations

import itertools
import math
from decimal import Context, Decimal, localcontext
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from scipy import stats  # type: ignore[import-untyped, unused-ignore]
from tapes import tape_of

from hedgerow import Categorical, Numeric, Schema
from hedgerow.criteria import Criterion, score_sensitivity, to_fixed_point
from hedgerow.encoding import encode, encode_labels
from hedgerow.holder.counts import GroupedRows
from hedgerow.privacy.exact import _EXCESS_DIGITS, _WEIGHTS, choose_forks
from hedgerow.privacy.noise import Noise, NoNoise, SecureNoise, SeededNoise, Tape
from hedgerow.privacy.selectors import select_forks

FALSE_ALARM = 1e-7
Fork = tuple[int, int, int]


class Table:
    """Scores of a few forks, and who is among them."""

    def __init__(
        self, scores: list[list[list[int]]], ruled_out: tuple[tuple[int, int, int], ...] = ()
    ) -> None:
        self.scores = np.array([scores], np.int64)
        self.options = np.ones(self.scores.shape, np.bool_)
        for place in ruled_out:
            self.options[0][place] = False
        self.candidates = self.options.any(axis=3).all(axis=1)

    def forks(self) -> dict[Fork, int]:
        """Every fork and its score, listed."""
        _, n_candidates, n_options = self.scores[0].shape
        return {
            (h, i, j): int(self.scores[0, 0, h, i] + self.scores[0, 1, h, j])
            for h, i, j in itertools.product(range(n_candidates), range(n_options), range(n_options))
            if self.candidates[0, h] and self.options[0, 0, h, i] and self.options[0, 1, h, j]
        }

    def probabilities(self, scale: float) -> dict[Fork, float]:
        """Of the exponential mechanism over all of them."""
        forks = self.forks()
        weights = {fork: math.exp((score - max(forks.values())) / scale) for fork, score in forks.items()}
        return {fork: weight / sum(weights.values()) for fork, weight in weights.items()}

    def choose(
        self, n: int, noise: Noise, sensitivity: int = 1, epsilon: Fraction = Fraction(1), first: int = 0
    ) -> NDArray[np.int64]:
        keys = np.arange(first, first + n, dtype=np.uint64)
        which = np.zeros(n, np.int64)
        return select_forks(
            self.scores, self.options, self.candidates, which, sensitivity, epsilon, noise, keys
        )


TABLES = {
    "alike": Table([[[0, 0], [0, 0]], [[0, 0], [0, 0]]]),
    "one best": Table([[[0, -3, -9], [-1, -2, -3], [-4, -4, -4]], [[0, -1, -30], [-3, 0, 0], [0, -2, -1]]]),
    "far apart": Table([[[0, -40], [-70, -12]], [[-14, -3], [0, -1]]]),
    "some ruled out": Table(
        [[[0, -3, -9], [-1, -2, -3], [0, 0, 0]], [[0, -1, -30], [-3, 0, 0], [0, 0, 0]]],
        ruled_out=((0, 0, 0), (1, 1, 0), (1, 1, 1), (0, 2, 0), (0, 2, 1), (0, 2, 2)),
    ),
    "one alone": Table([[[-5]], [[7]]]),
    "large numbers": Table(
        [[[2**60, 2**60 - 2], [2**60 - 1, 0]], [[-(2**60), -(2**60) - 3], [-(2**60), 5 - 2**60]]]
    ),
}


def p_value(table: Table, chosen: NDArray[np.int64], scale: float) -> float:
    """Of a chi-square test; forks that are expected less than five times are counted together."""
    probabilities = table.probabilities(scale)
    drawn = [tuple(fork) for fork in chosen.tolist()]
    assert set(drawn) <= probabilities.keys()
    often = {fork: p for fork, p in probabilities.items() if p * len(drawn) >= 5}
    expected = [p * len(drawn) for p in often.values()]
    observed = [drawn.count(fork) for fork in often]
    rest = len(drawn) - sum(expected)
    if rest >= 5:
        expected, observed = [*expected, rest], [*observed, len(drawn) - sum(observed)]
    if len(expected) == 1:
        return 1.0
    return float(stats.chisquare(observed, expected, sum_check=False).pvalue)


# ---- The distribution ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", TABLES)
@pytest.mark.parametrize(
    ("sensitivity", "epsilon"), [(1, Fraction(1)), (3, Fraction(4, 5)), (40, Fraction(1, 7))]
)
def test_forks_are_drawn_from_the_exponential_mechanism(
    name: str, sensitivity: int, epsilon: Fraction
) -> None:
    table = TABLES[name]
    chosen = table.choose(40_000, SeededNoise(5), sensitivity, epsilon)
    assert p_value(table, chosen, float(sensitivity / epsilon)) > FALSE_ALARM


@pytest.mark.parametrize("name", ["one best", "some ruled out"])
def test_secure_forks_are_drawn_from_it_too(name: str) -> None:
    table = TABLES[name]
    assert p_value(table, table.choose(100_000, SecureNoise(), 3, Fraction(1)), 3.0) > FALSE_ALARM


def test_a_wrong_scale_would_be_noticed() -> None:
    table = TABLES["one best"]
    assert p_value(table, table.choose(40_000, SeededNoise(5), 3, Fraction(1)), 3.3) < FALSE_ALARM


def test_many_forks_are_drawn_from_it_too() -> None:
    """Their weights are summed up with more than the smallest rounding: 40 splits, 64,000 forks, some far behind."""
    scores = np.random.default_rng(1).integers(-60, 1, (2, 40, 40))
    table = Table(scores.tolist())
    chosen = table.choose(60_000, SeededNoise(6), 3, Fraction(1))
    weights = np.exp((scores - scores.max()) / 3.0)
    by_split = np.prod(weights.sum(axis=2), axis=0)
    observed = np.bincount(chosen[:, 0], minlength=40)
    expected = by_split / by_split.sum() * len(chosen)
    assert stats.chisquare(observed, expected, sum_check=False).pvalue > FALSE_ALARM
    often = int(observed.argmax())
    for side in range(2):
        below = chosen[chosen[:, 0] == often, 1 + side]
        shares = weights[side, often] / weights[side, often].sum()
        large = shares * len(below) >= 5
        observed_below = np.bincount(below, minlength=40)
        pairs = [(observed_below[large], shares[large]), (observed_below[~large].sum(), shares[~large].sum())]
        counted, expected_shares = (np.hstack(each) for each in zip(*pairs, strict=True))
        p = stats.chisquare(counted, expected_shares * len(below), sum_check=False).pvalue
        assert p > FALSE_ALARM


@pytest.mark.parametrize("name", TABLES)
def test_neighbours_cost_at_most_epsilon(name: str) -> None:
    """By the exact probabilities, whatever changes of 0 to -1 a row makes to the scores of forks."""
    forks = TABLES[name].forks()
    rng = np.random.default_rng(2)
    for _ in range(50):
        after = {fork: score - int(rng.integers(0, 2)) for fork, score in forks.items()}
        total, changed = (
            sum(math.exp(s - max(forks.values())) for s in scores.values()) for scores in (forks, after)
        )
        losses = [abs(after[fork] - score - math.log(changed / total)) for fork, score in forks.items()]
        assert max(losses) <= 1 + 1e-12


# ---- Reading the tape --------------------------------------------------------------------------------------------


def test_running_out_of_tape_does_not_change_the_choice() -> None:
    table = TABLES["one best"]
    reads = []
    for first in (1, 7, 4096):
        [(endless, _)] = SeededNoise(9).tapes(np.array([3], np.uint64))
        tape, chosen = Tape(endless._source, first), np.empty((300, 3), np.int64)
        rates = np.tile([1, 4], (300, 1))
        which = np.zeros(300, np.int64)
        tape.fill(choose_forks, 300, table.scores, table.options, table.candidates, which, rates, chosen)
        reads.append(chosen.tolist())
    assert reads[0] == reads[1] == reads[2]


def test_what_was_rounded_up_is_refused() -> None:
    """The only fork of a table weighs 2**40 of 257 * 2**32: a draw between them counts for nothing."""
    table, rates, chosen = TABLES["one alone"], np.array([[1, 1]]), np.empty((1, 3), np.int64)
    for draw, n_words in ((2**40 - 1, 4), (2**40, 6), (257 * 2**32 - 1, 6)):
        words = np.array([0, draw, 0, 0, 0, 0], np.uint64)
        tables = table.scores, table.options, table.candidates, np.zeros(1, np.int64)
        assert choose_forks(words, 0, 0, *tables, rates, chosen) == (1, n_words)


def test_weights_are_rounded_up_and_what_that_is_too_much_is_refused() -> None:
    """Of every whole exponent e: weight * excess is 2**20 exp(-e), to the last of 280 bits."""
    with localcontext(Context(prec=120)):
        for e, (weight, digits) in enumerate(zip(_WEIGHTS.tolist(), _EXCESS_DIGITS.tolist(), strict=True)):
            exact = Decimal(-e).exp() * 2**20
            assert exact <= weight < exact + 1
            excess = sum(Decimal(word) / Decimal(2) ** (32 + 64 * i) for i, word in enumerate(digits))
            assert 0 <= exact - weight * excess < Decimal(2) ** -260


@pytest.mark.parametrize(
    ("first", "chosen"),
    [(0, 1), (257 * 2**20 - 1, 1), (257 * 2**20, 3), (2 * 257 * 2**20 - 1, 3)],
)
def test_a_split_is_proposed_by_its_share_and_never_without_one(first: int, chosen: int) -> None:
    """Of four splits the second and the fourth are candidates, each with one fork of weight 2**20 * 257 / 2**32."""
    table = Table([[[0]] * 4] * 2, ruled_out=((0, 0, 0), (0, 2, 0)))
    words, found = np.array([first, *[0] * 8], np.uint64), np.empty((1, 3), np.int64)
    tables = table.scores, table.options, table.candidates, np.zeros(1, np.int64)
    choose_forks(words, 0, 0, *tables, np.array([[1, 1]]), found)
    assert found.tolist() == [[chosen, 0, 0]]


@pytest.mark.parametrize(("word", "chosen"), [(0, 1), (2**20 - 1, 1), (2**20, 3), (2**21 - 1, 3), (2**21, 1)])
def test_an_option_is_proposed_by_its_weight_and_never_without_one(word: int, chosen: int) -> None:
    """Of four options of either side the second and the fourth are there, each with a weight of 2**20."""
    ruled_out = tuple((side, 0, option) for side in (0, 1) for option in (0, 2))
    table, found = Table([[[0] * 4]] * 2, ruled_out), np.empty((1, 3), np.int64)
    words = np.array([0, 0, word, word, *[0] * 8], np.uint64)
    tables = table.scores, table.options, table.candidates, np.zeros(1, np.int64)
    choose_forks(words, 0, 0, *tables, np.array([[1, 1]]), found)
    assert found.tolist() == [[0, chosen, chosen]]


def test_a_seeded_choice_depends_on_its_key_alone() -> None:
    table = TABLES["one best"]
    together = table.choose(50, SeededNoise(3), 9)
    assert np.array_equal(together[20:30], table.choose(10, SeededNoise(3), 9, first=20))
    assert not np.array_equal(together, table.choose(50, SeededNoise(4), 9))


def test_secure_choices_are_not_reproducible() -> None:
    table = TABLES["alike"]
    assert not np.array_equal(table.choose(200, SecureNoise()), table.choose(200, SecureNoise()))


def test_a_constant_added_to_all_scores_changes_nothing() -> None:
    table, higher = TABLES["one best"], Table((TABLES["one best"].scores[0] + 12_345).tolist())
    assert np.array_equal(table.choose(500, SeededNoise(1), 5), higher.choose(500, SeededNoise(1), 5))


def test_tables_are_chosen_from_by_number() -> None:
    first, second = TABLES["one best"], TABLES["some ruled out"]
    scores, options, candidates = (
        np.concatenate([getattr(first, name), getattr(second, name)])
        for name in ("scores", "options", "candidates")
    )
    which, keys = np.arange(40) % 2, np.arange(40, dtype=np.uint64)
    chosen = select_forks(scores, options, candidates, which, 9, Fraction(1), SeededNoise(3), keys)
    for number, table in enumerate((first, second)):
        assert np.array_equal(chosen[which == number], table.choose(40, SeededNoise(3), 9)[which == number])


@pytest.mark.parametrize("name", TABLES)
def test_without_noise_the_best_fork_is_chosen(name: str) -> None:
    forks = TABLES[name].forks()
    [chosen] = TABLES[name].choose(1, NoNoise()).tolist()
    assert forks[tuple(chosen)] == max(forks.values())


def test_what_makes_no_sense_is_refused() -> None:
    table = TABLES["one best"]
    good = [table.scores, table.options, table.candidates, np.zeros(1, np.int64), 1, Fraction(1)]
    nobody, no_option = np.zeros_like(table.candidates), table.options.copy()
    no_option[0, 1, 2] = False
    for place, value, reason in (
        (0, table.scores[:, :1], "must be"),
        (0, table.scores.astype(np.int32), "int64"),
        (0, table.scores + 2**61, "strictly between"),
        (1, table.options[:, :, :1], "must be"),
        (1, no_option, "an option on either side"),
        (2, nobody, "a candidate"),
        (4, 0, "positive integer"),
        (5, Fraction(0), "positive Fraction"),
        (5, 0.5, "positive Fraction"),
    ):
        wrong = [*good[:place], value, *good[place + 1 :]]
        with pytest.raises(ValueError, match=reason):
            select_forks(*wrong, SeededNoise(1), np.zeros(1, np.uint64))  # type: ignore[arg-type]
    many = np.zeros((1, 2, 1, 2**11 + 1), np.int64)
    with pytest.raises(ValueError, match="at most"):
        select_forks(
            many, many == 0, np.ones((1, 1), bool), *good[3:], SeededNoise(1), np.zeros(1, np.uint64)
        )  # type: ignore[arg-type]


# ---- Sensitivity, by brute force -----------------------------------------------------------------------------------


def small_schema(n_classes: int) -> Schema:
    columns = [
        Numeric("a", 0, 1, [0.3, 0.6], missing=True),
        Categorical("b", ["u", "v"]),
        Numeric("c", 0, 1, [0.5]),
    ]
    return Schema(columns, label="y", classes=list(range(n_classes)))


VALUES = (0.1, 0.5, 0.9, None), ("u", "v", "w"), (0.2, 0.8)


def fork_scores(
    schema: Schema, rows: list[tuple[object, ...]], labels: list[int], criterion: Criterion
) -> NDArray[np.int64]:
    """[split, split and none, split and none]: in fixed point, as a holder adds them up."""
    table = np.empty((len(rows), 3), dtype=object)
    table[:] = rows or np.empty((0, 3), dtype=object)
    grouped = GroupedRows(encode(table, schema), encode_labels(np.array(labels, np.int64), schema), schema)
    [(_, scores)] = grouped.fork_scores(np.array([0]), np.array([int(criterion)]))
    left, right = to_fixed_point(scores)[0]
    return left[:, :, None] + right[:, None, :]


@pytest.mark.parametrize("criterion", Criterion)
@pytest.mark.parametrize("n_classes", [2, 3])
@settings(max_examples=60, deadline=None)
@given(data=st.data())
def test_one_row_moves_the_scores_of_all_forks_within_the_claimed_range(
    criterion: Criterion, n_classes: int, data: st.DataObject
) -> None:
    if criterion is Criterion.root_gini and n_classes != 2:
        return
    schema = small_schema(n_classes)
    row = st.tuples(*map(st.sampled_from, VALUES))
    kinds = data.draw(st.lists(st.tuples(row, st.integers(0, n_classes - 1), st.integers(1, 40)), max_size=6))
    rows = [values for values, _, times in kinds for _ in range(times)]
    labels = [label for _, label, times in kinds for _ in range(times)]
    before = fork_scores(schema, rows, labels, criterion)
    more, label = data.draw(row), data.draw(st.integers(0, n_classes - 1))
    changes = fork_scores(schema, [*rows, more], [*labels, label], criterion) - before
    assert np.ptp(changes) <= score_sensitivity(criterion, n_classes, len(rows) + 1)
    assert changes.max() <= 1


def test_the_claimed_range_is_reached_to_a_tenth() -> None:
    """A row of another class joins a large pure quarter of one fork, and is alone in that of another."""
    schema = small_schema(2)
    rows: list[tuple[object, ...]] = [(0.1, "u", 0.2)] * 99
    before = fork_scores(schema, rows, [1] * 99, Criterion.gini)
    changes = fork_scores(schema, [*rows, (0.1, "u", 0.8)], [1] * 99 + [0], Criterion.gini) - before
    assert np.ptp(changes) >= 0.9 * score_sensitivity(Criterion.gini, 2, 100)


def test_the_tape_of_a_fork_is_read_in_order() -> None:
    """Two forks in a row read other words than the first one twice."""
    table, chosen = TABLES["alike"], np.empty((64, 3), np.int64)
    rates, which = np.tile([1, 4], (64, 1)), np.zeros(64, np.int64)
    tape_of(SeededNoise(1), 0).fill(
        choose_forks, 64, table.scores, table.options, table.candidates, which, rates, chosen
    )
    assert len({tuple(fork) for fork in chosen.tolist()}) == 8
