"""What holders gain by learning together: how rows are dealt out, what is computed from scores, and going on."""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pytest
from tiny_study import made_up

from hedgerow.classifier import SimulatedTree
from hedgerow.encoding import Codes
from hedgerow.errors import InvalidTable
from hedgerow.experiments import accuracy_holders
from hedgerow.experiments.accuracy_holders import (
    DEALINGS,
    Cell,
    Comparison,
    fits_of,
    gap_closed,
    gaps_closed,
    learn,
    main,
)

CELL = Cell("tiny", "equally", 4, 8.0, "auto")
SAME = Comparison(CELL, 0.8, 0.8, 0.8, 0.001, 0.9, 0.9, 0.9, 0.001)


@pytest.fixture(autouse=True)
def made_up_data(monkeypatch):
    monkeypatch.setattr(accuracy_holders, "load", made_up)
    monkeypatch.setattr(accuracy_holders, "check_files", lambda names: None)


@pytest.fixture
def learned(monkeypatch):
    """The fits that were learned since; their scores are made up."""
    fits = []

    def run(fit, data):
        fits.append(fit)
        return fit.seed / 10, fit.epsilon / 10

    monkeypatch.setattr(accuracy_holders.Fit, "run", run)
    return fits


def deal(dealt, codes, holders, seed=0):
    return DEALINGS[dealt](codes, holders, np.random.default_rng(seed))


def codes_of(*columns):
    narrow = np.array(columns, dtype=np.uint8).T
    places = np.array([(0, i) for i in range(len(columns))], dtype=np.int32)
    return Codes(narrow, np.empty((len(narrow), 0), dtype=np.uint16), places)


# ---- Dealing ----


@pytest.mark.parametrize("dealt", DEALINGS)
@pytest.mark.parametrize("holders", [4, 16, 64])
def test_every_row_is_at_exactly_one_holder_and_every_seed_deals_anew(tiny_data, dealt, holders):
    codes = tiny_data.train[0]
    first, again, other = (deal(dealt, codes, holders, seed) for seed in (0, 0, 1))
    assert len(first) == holders
    assert sorted(np.concatenate(first)) == list(range(codes.n_rows))
    assert all((a == b).all() for a, b in zip(first, again, strict=True))
    assert [part.tolist() for part in first] != [part.tolist() for part in other]


@pytest.mark.parametrize("dealt", ["equally", "by_column"])
def test_equal_parts_differ_by_one_row_at_most(tiny_data, dealt):
    sizes = [len(part) for part in deal(dealt, tiny_data.train[0], 7)]
    assert sorted(sizes) == [68] * 3 + [69] * 4


def test_unequal_parts_follow_the_drawn_shares_and_may_be_empty(tiny_data):
    codes = tiny_data.train[0]
    sizes = np.array([[len(part) for part in deal("unequally", codes, 64, seed)] for seed in range(40)])
    assert (sizes == 0).any()
    # The variance of a share of Dirichlet(0.4, ..., 0.4); 2,560 draws of it, with fixed seeds.
    expected = (1 / 64) * (63 / 64) / (1 + 64 * 0.4)
    assert (sizes / codes.n_rows).var() == pytest.approx(expected, rel=0.15)


def test_dealt_by_a_column_holders_have_ranges_of_its_codes_and_ties_are_drawn():
    codes = codes_of(np.zeros(120), np.arange(120) // 2 % 6)  # the first does not vary, so it is never drawn
    ties = set()
    for seed in range(20):
        parts = deal("by_column", codes, 4, seed)
        ranges = sorted((codes.column(1)[part].min(), codes.column(1)[part].max()) for part in parts)
        assert ranges == [(0, 1), (1, 2), (3, 4), (4, 5)]
        ties |= {frozenset(part.tolist()) for part in parts}
    assert len(ties) > 4


def test_dealt_by_a_column_the_column_depends_on_the_seed():
    up = np.arange(100)
    codes = codes_of(up, (up * 37) % 100)
    parts = [frozenset(part.tolist()) for seed in range(20) for part in deal("by_column", codes, 4, seed)]
    assert len(set(parts)) == 8


def test_dealt_by_a_column_any_holder_may_be_the_largest():
    codes = codes_of(np.arange(101))
    largest = [max(deal("by_column", codes, 4, seed), key=len) for seed in range(60)]
    assert {len(rows) for rows in largest} == {26}
    assert {rows.min() // 25 for rows in largest} == {0, 1, 2, 3}  # false alarm: seeds are fixed
    even = codes_of(np.arange(100))
    assert {max(deal("by_column", even, 4, seed), key=len).min() for seed in range(60)} == {0, 25, 50, 75}


def test_dealing_by_a_column_that_does_not_vary_is_dealing_at_random():
    parts = deal("by_column", codes_of(np.ones(10)), 3)
    assert sorted(np.concatenate(parts)) == list(range(10))


# ---- Learning ----


def test_each_learner_gets_its_rows(tiny_data, monkeypatch):
    asked, fit_codes = [], SimulatedTree.fit_codes

    def record(model, codes, labels, holders=None):
        asked.append((model, codes, labels, holders))
        return fit_codes(model, codes, labels, holders)

    monkeypatch.setattr(SimulatedTree, "fit_codes", record)
    cell = Cell("tiny", "unequally", 4, 8.0, "local")
    for learner in ("alone", "together", "pooled"):
        accuracy, auc = cell.fit(learner, 3).run(tiny_data)
        assert 0.3 < accuracy <= 1
        assert 0.3 < auc <= 1
    alone, together, pooled = asked
    codes, labels = tiny_data.train
    parts = deal("unequally", codes, 4, 3)
    largest = parts[np.argmax([len(part) for part in parts])]
    assert len(largest) < codes.n_rows
    assert (alone[1].narrow == codes.narrow[largest]).all()
    assert (alone[2] == labels[largest]).all()
    assert alone[3] is pooled[3] is None
    assert [part.tolist() for part in together[3]] == [part.tolist() for part in parts]
    assert together[1] is pooled[1] is codes
    assert [model.method for model, *_ in asked] == ["auto", "local", "auto"]
    assert {(model.noise_seed, model.epsilon) for model, *_ in asked} == {(3, 8.0)}


def test_the_pooled_tree_is_learned_once_for_all_dealings():
    cells = [
        Cell("tiny", dealt, holders, e, "auto") for dealt in DEALINGS for holders in (4, 16) for e in (1, 2)
    ]
    fits = fits_of(cells, 5)
    assert len(fits) == len(set(fits)) == 5 * (2 * len(cells) + 2)


@pytest.mark.parametrize("jobs", [1, 2])
def test_a_finished_fit_is_not_repeated(learned, tmp_path, jobs):
    keep, fits = tmp_path / "fits.jsonl", fits_of([CELL], 3)
    scores = learn(fits[:4], keep, jobs)
    assert set(learned) == set(fits[:4])
    learned.clear()
    assert learn(fits[:4], keep, jobs) == scores
    assert not learned
    all_scores = learn(fits, keep, jobs)
    assert set(learned) == set(fits[4:])
    assert list(all_scores) == fits
    assert all_scores == {fit: (fit.seed / 10, 0.8) for fit in fits}
    assert len(keep.read_text().splitlines()) == len(fits)


def test_scores_are_written_before_the_next_fit(monkeypatch, tmp_path):
    keep, fits = tmp_path / "fits.jsonl", fits_of([CELL], 3)

    def run(fit, data):
        if fit == fits[2]:
            raise KeyboardInterrupt
        return 0.5, 0.5

    monkeypatch.setattr(accuracy_holders.Fit, "run", run)
    with pytest.raises(KeyboardInterrupt):
        learn(fits, keep, 1)
    assert len(keep.read_text().splitlines()) == 2


def test_a_line_cut_short_is_learned_again(learned, tmp_path):
    keep, fits = tmp_path / "fits.jsonl", fits_of([CELL], 2)
    scores = learn(fits, keep, 1)
    whole = keep.read_bytes()
    keep.write_bytes(whole[:-20])
    learned.clear()
    assert learn(fits, keep, 1) == scores
    assert learned == fits[-1:]
    assert keep.read_bytes() == whole


def test_a_file_of_something_else_is_refused(tmp_path):
    keep = tmp_path / "fits.jsonl"
    keep.write_text('{"dataset": "tiny"}\n')
    with pytest.raises(InvalidTable, match="line 1 "):
        learn(fits_of([CELL], 2), keep, 1)


# ---- Comparing ----


def test_means_and_standard_errors_are_paired_by_seed():
    values = {
        "alone": [(0.5, 0.6), (0.7, 0.6), (0.6, 0.9)],
        "together": [(0.6, 0.7), (0.8, 0.5), (0.7, 0.6)],
        "pooled": [(0.9, 0.9), (0.9, 0.8), (0.6, 0.7)],
    }
    scores = {
        CELL.fit(learner, seed): found for learner, of in values.items() for seed, found in enumerate(of)
    }
    found = Comparison.of(CELL, scores, 3)
    assert (found.alone, found.together, found.pooled) == pytest.approx((0.6, 0.7, 0.8))
    assert (found.alone_auc, found.together_auc, found.pooled_auc) == pytest.approx((0.7, 0.6, 0.8))
    assert found.gain_error == pytest.approx(0)  # the gain is 0.1 with every seed
    # Gains of 0.1, -0.1, -0.3 have the standard deviation 0.2.
    assert found.auc_gain_error == pytest.approx(0.2 / 3**0.5)


def test_the_gap_closed_is_a_ratio_of_sums():
    one = replace(SAME, alone=0.5, together=0.6, pooled=0.7)
    two = replace(SAME, alone=0.8, together=0.79, pooled=0.9)
    assert gap_closed([one, two]) == pytest.approx((0.1 - 0.01) / (0.2 + 0.1))
    assert gap_closed([SAME]) is None
    sixteen = replace(one, cell=replace(CELL, holders=16), together=0.65)
    by_column = replace(one, cell=replace(CELL, dealt="by_column"), together=0.45)
    assert gaps_closed([one, sixteen, two, by_column]) == {
        ("equally", 4): pytest.approx(0.3),
        ("equally", 16): pytest.approx(0.75),
        ("by_column", 4): pytest.approx(-0.25),
    }


@pytest.mark.parametrize(
    ("together", "error", "is_loss"),
    [
        (0.79, 0.004, True),
        (0.79, 0.006, False),
        (0.7975, 0.0001, False),
        (0.7965, 0.0001, True),
        (0.9, 0.001, False),
    ],
)
def test_a_loss_is_beyond_chance_and_large_enough_to_matter(together, error, is_loss):
    assert replace(SAME, together=together, gain_error=error).is_loss is is_loss


@pytest.mark.parametrize(
    ("together", "auc", "error", "ranks_worse"),
    [
        (0.81, 0.89, 0.004, True),
        (0.81, 0.89, 0.006, False),
        (0.79, 0.89, 0.004, False),
        (0.81, 0.91, 0.001, False),
    ],
)
def test_a_lower_auc_is_listed_where_accuracy_rises(together, auc, error, ranks_worse):
    assert replace(SAME, together=together, together_auc=auc, auc_gain_error=error).ranks_worse is ranks_worse


# ---- The command ----

ARGUMENTS = ["--datasets", "tiny", "--holders", "4", "16", "--epsilons", "8", "--seeds", "2"]


def test_the_command_shows_every_dealing_and_lists_what_got_worse(monkeypatch, capsys):
    scores = {"alone": (0.8, 0.9), "together": (0.7, 0.9), "pooled": (0.9, 0.9)}

    def run(fit, data):
        return (
            scores["pooled"] if (fit.learner, fit.dealt) == ("together", "by_column") else scores[fit.learner]
        )

    monkeypatch.setattr(accuracy_holders.Fit, "run", run)
    main(ARGUMENTS)
    shown = capsys.readouterr().out
    assert shown.count("0.8000 0.7000 0.9000") == 4
    assert shown.count("0.8000 0.9000 0.9000") == 2
    assert shown.count("-1.000") == 4
    losses, lower_auc = shown.split("Together less accurate")[1].split("Together more accurate")
    assert losses.count("tiny, epsilon 8, ") == 4
    assert "by_column" not in losses
    assert lower_auc.strip().endswith("none")


def test_json_has_the_cells_the_gaps_and_the_lists(capsys):
    main([*ARGUMENTS, "--dealt", "equally", "by_column", "--method", "noisy_counts", "--json"])
    found = json.loads(capsys.readouterr().out)
    assert [(c["dealt"], c["holders"], c["method"]) for c in found["cells"]] == [
        (dealt, holders, "noisy_counts") for dealt in ("equally", "by_column") for holders in (4, 16)
    ]
    assert len(found["gaps_closed"]) == 4
    assert all(
        c in found["cells"] for c in found["less_accurate_than_alone"] + found["more_accurate_but_lower_auc"]
    )


def test_one_seed_is_refused(capsys):
    with pytest.raises(SystemExit):
        main([*ARGUMENTS[:-1], "1"])
    assert "at least 2" in capsys.readouterr().err
