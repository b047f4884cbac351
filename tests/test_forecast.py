"""Planning: made-up tables have the schema's shape and the stated signal, and the answers follow from them."""

from __future__ import annotations

import json
import math

import numpy as np
import pytest
from typer.testing import CliRunner

import hedgerow
from hedgerow import Categorical, HedgerowError, Numeric, PrivateTreeClassifier, Schema
from hedgerow.cli import app
from hedgerow.forecast import FACTORS, Forecast, Population, Signal

SCHEMA = Schema(
    [
        Numeric("age", 0, 100, 8),
        Numeric("dose", 0, 1, 4, missing=True),
        Categorical("ward", ["a", "b", "c"]),
        Categorical("code", list(range(300)), missing=True),
        Numeric("noise", 0, 1, 4),
    ],
    label="ill",
    classes=["no", "yes"],
)


@pytest.fixture(scope="module")
def forecast() -> Forecast:
    return hedgerow.plan(SCHEMA, rows=1_000, holders=2, epsilon=0.2, signal=Signal(0.9, 4), runs=3, seed=1)


def test_made_up_rows_have_the_shape_of_the_schema():
    codes, labels = Population(SCHEMA, Signal(), np.random.default_rng(0)).draw(5_000)
    for i, column in enumerate(SCHEMA.columns):
        bins = np.bincount(codes.column(i), minlength=column.n_bins)
        assert len(bins) == column.n_bins
        if column.missing:
            assert 0.03 < bins[column.missing_bin] / 5_000 < 0.07
        if isinstance(column, Categorical):
            assert bins[column.other_bin] == 0
    assert set(labels.tolist()) == {0, 1}


@pytest.mark.parametrize("ceiling", [0.75, 0.95, 1.0])
def test_the_best_tree_is_as_right_as_the_signal_says_and_no_better(ceiling):
    population = Population(SCHEMA, Signal(ceiling, 2), np.random.default_rng(3))
    table, test = population.draw(40_000), population.draw(40_000)
    model = PrivateTreeClassifier(schema=SCHEMA, epsilon=math.inf, max_splits=8).fit_codes(*table)
    right = (model.tree_.counts.argmax(axis=1)[model.tree_.apply(test[0])] == test[1]).mean()
    assert right == pytest.approx(ceiling, abs=0.01)  # five standard errors


def test_classes_of_any_number_come_up_about_equally_often():
    columns = [Numeric(f"x{i}", 0, 1, 9) for i in range(6)]
    schema = Schema(columns, label="y", classes=list(range(4)))
    _, labels = Population(schema, Signal(0.8, 6), np.random.default_rng(0)).draw(10_000)
    shares = np.bincount(labels, minlength=4) / 10_000
    assert shares.min() > 0.15
    assert shares.max() < 0.4


def test_accuracy_grows_with_epsilon_and_with_rows_up_to_the_exact_line(forecast):
    for points in (forecast.by_epsilon, forecast.by_rows):
        assert len(points) == len(FACTORS)
        first, last = points[0], points[-1]
        assert first.accuracy < last.accuracy - 0.03
        assert last.accuracy == pytest.approx(last.exact, abs=0.03)
    assert forecast.guess < forecast.here.accuracy < 0.92
    assert [p.rows for p in forecast.by_rows] == [125, 250, 500, 1_000, 2_000, 4_000, 8_000]
    assert [p.epsilon for p in forecast.by_epsilon] == [0.2 * f for f in FACTORS]


def test_the_cheapest_setting_is_the_first_that_reaches_the_target(forecast):
    reached = [p.epsilon for p in forecast.by_epsilon if p.accuracy >= forecast.target]
    assert forecast.least_epsilon == min(reached)
    assert forecast.fewest_rows == min(p.rows for p in forecast.by_rows if p.accuracy >= forecast.target)
    assert f"epsilon {forecast.least_epsilon:g} with these rows" in forecast.explain()[-1]


def test_a_target_that_no_tree_can_reach_is_said_to_be_one():
    found = hedgerow.plan(SCHEMA, rows=50, runs=2, target=0.95, signal=Signal(ceiling=0.9))
    assert "none can, where the best rule is right about 90 %" in found.explain()[-1]


def test_numbers_of_numpy_are_numbers():
    of_numpy = {"rows": np.int64(50), "runs": np.int32(2), "holders": np.int8(2), "epsilon": np.int32(1)}
    found = hedgerow.plan(SCHEMA, **of_numpy)
    assert json.loads(json.dumps(found.to_dict())) == json.loads(
        json.dumps(hedgerow.plan(SCHEMA, rows=50, runs=2, holders=2).to_dict())
    )


def test_the_theorem_asks_for_enormously_more(forecast):
    assert forecast.asked.paper > 1e12
    assert 1e9 < forecast.asked.ours < forecast.asked.paper
    assert "with the paper's mechanisms and for" in forecast.explain()[0]
    assert "worst cases" in forecast.explain()[1]


def test_nothing_is_promised_where_every_holder_nominates():
    found = hedgerow.plan(SCHEMA, rows=50, holders=2, runs=2, method="local")
    assert found.asked.ours == math.inf
    assert "nothing at all is promised about local selection" in found.explain()[0]
    assert json.loads(json.dumps(found.to_dict(), allow_nan=False))["asked"]["ours"] is None


def test_several_holders_are_told_what_one_alone_would_reach(forecast):
    assert forecast.guess <= forecast.alone < forecast.here.accuracy < forecast.pooled + 0.02
    [told] = [sentence for sentence in forecast.explain() if "alone would be right about" in sentence]
    assert f"{100 * forecast.alone:.1f} %" in told
    assert f"{100 * forecast.pooled:.1f} %" in told
    single = hedgerow.plan(SCHEMA, rows=50, runs=2)
    assert single.alone is single.pooled is None
    assert not any("alone would" in sentence for sentence in single.explain())


def test_a_seed_gives_the_same_forecast():
    first, again, other = (hedgerow.plan(SCHEMA, rows=40, runs=2, seed=seed) for seed in (1, 1, 2))
    assert first == again
    assert first != other


def test_progress_counts_every_tree():
    seen = []
    hedgerow.plan(SCHEMA, rows=20, runs=2, progress=lambda done, of: seen.append((done, of)))
    assert [done for done, _ in seen] == list(range(1, len(seen) + 1))
    assert {of for _, of in seen} == {len(seen)}


@pytest.mark.parametrize(
    ("wrong", "named"),
    [
        ({"rows": 0}, "rows=0"),
        ({"rows": 10**10}, "rows=10000000000"),
        ({"epsilon": 0.0}, "epsilon=0.0"),
        ({"epsilon": math.inf}, "epsilon=inf"),
        ({"holders": 0}, "holders=0"),
        ({"target": 80}, "target=80"),
        ({"runs": 1}, "runs=1"),
        ({"method": "magic"}, "method='magic'"),
        ({"method": "select", "holders": 3}, "method='select'"),
    ],
)
def test_what_makes_no_sense_is_named_in_one_sentence(wrong, named):
    with pytest.raises(HedgerowError, match=named):
        hedgerow.plan(SCHEMA, **({"rows": 50} | wrong))


def test_the_command_prints_both_answers_and_draws_a_picture(tmp_path):
    SCHEMA.save(tmp_path / "schema.toml")
    picture = tmp_path / "plan.png"
    arguments = [
        "plan",
        str(tmp_path / "schema.toml"),
        "--rows",
        "40",
        "--runs",
        "2",
        "--plot",
        str(picture),
    ]
    result = CliRunner().invoke(app, arguments)
    assert result.exit_code == 0, result.output
    assert "The theorem:" in result.output
    assert "The simulation:" in result.output
    assert "asked about" in result.output
    assert picture.read_bytes().startswith(b"\x89PNG")
    as_json = CliRunner().invoke(app, [*arguments[:6], "--json"])
    assert json.loads(as_json.stdout)["rows"] == 40


@pytest.mark.parametrize("arguments", [["--rows", "0"], ["--rows", "9", "--plot", "plan.doc"]])
def test_a_mistake_ends_the_command_in_one_sentence(tmp_path, arguments):
    SCHEMA.save(tmp_path / "schema.toml")
    result = CliRunner().invoke(app, ["plan", str(tmp_path / "schema.toml"), *arguments])
    assert result.exit_code == 1
    assert "Traceback" not in result.output
    assert len(result.output.strip().splitlines()) == 1


def test_the_standard_error_is_that_of_a_mean():
    two, three = (hedgerow.plan(SCHEMA, rows=40, runs=runs, seed=1).here for runs in (2, 3))
    runs = [two.accuracy - two.error, two.accuracy + two.error, 3 * three.accuracy - 2 * two.accuracy]
    assert three.error == pytest.approx(np.std(runs, ddof=1) / math.sqrt(3))


def test_every_option_of_the_command_reaches_the_plan(tmp_path):
    SCHEMA.save(tmp_path / "schema.toml")
    wanted = {
        "rows": 40, "epsilon": 3.0, "holders": 2, "method": "noisy_columns", "target": 0.7, "runs": 2, "seed": 4
    }  # fmt: skip
    options = [f"--{name}={value}" for name, value in wanted.items()]
    told = CliRunner().invoke(
        app, ["plan", str(tmp_path / "schema.toml"), *options, "--ceiling=0.8", "--informative=1", "--json"]
    )
    expected = hedgerow.plan(SCHEMA, signal=Signal(0.8, 1), **wanted).to_dict()
    assert json.loads(told.stdout) == json.loads(json.dumps(expected))


@pytest.mark.parametrize(
    "wrong", [{"epsilon": "1"}, {"rows": 2.5}, {"signal": 0.5}, {"runs": True}, {"holders": None}]
)
def test_a_parameter_of_the_wrong_kind_is_named(wrong):
    [(name, value)] = wrong.items()
    with pytest.raises(TypeError, match=f"{name}={value!r}; "):
        hedgerow.plan(SCHEMA, **({"rows": 100} | wrong))
