"""`hedgerow predict` and `hedgerow evaluate`."""

from __future__ import annotations

import io
import json

import numpy as np
import pandas as pd
import pytest
from sklearn.metrics import accuracy_score, confusion_matrix, log_loss, roc_auc_score

from hedgerow import Numeric, PrivateTreeClassifier, Schema

from .conftest import SCHEMA, hedgerow, patients


def predictions(text: str) -> pd.DataFrame:
    return pd.read_csv(io.StringIO(text))


@pytest.mark.parametrize("data", ["rows.csv", "rows.parquet", "-"])
def test_predictions_are_those_of_the_model(study, data):
    stdin = (study / "rows.csv").read_bytes() if data == "-" else None
    result = hedgerow("predict", "tree.json", data, "--proba", "--keep", "number", stdin=stdin)
    assert result.exit_code == 0, result.output
    told, model, table = predictions(result.stdout), PrivateTreeClassifier.load("tree.json"), patients(2_000)
    X = table[list(SCHEMA.names)]
    assert told.columns.tolist() == ["number", "ill", "proba_no", "proba_yes"]
    assert told["number"].tolist() == table["number"].tolist()
    assert told["ill"].tolist() == model.predict(X).tolist()
    assert told[["proba_no", "proba_yes"]].to_numpy().tolist() == model.predict_proba(X).tolist()


def test_values_with_line_breaks_are_read_where_the_option_says_so(study):
    """By each command that reads a table; without the option each refuses the file."""
    table = patients(200).assign(note="first\nsecond")
    table.to_csv("notes.csv", index=False)
    commands = [
        ("train", "notes.csv", "--schema", "schema.toml", "--out", "new.json"),
        ("predict", "tree.json", "notes.csv", "--keep", "number"),
        ("evaluate", "tree.json", "notes.csv"),
        ("schema", "draft", "notes.csv"),
        ("schema", "check", "schema.toml", "--data", "notes.csv"),
    ]
    for command in commands:
        refused = hedgerow(*command)
        assert refused.exit_code == 1, command
        assert "notes.csv: row 1 below the first line begins a value with a quote" in refused.stderr
        assert "second" not in refused.output
        result = hedgerow(*command, "--line-breaks")
        assert result.exit_code == 0, result.output
    told = predictions(hedgerow(*commands[1], "--line-breaks").stdout)
    assert told["number"].tolist() == list(range(200))


def test_predictions_are_written_as_parquet(study):
    assert hedgerow("predict", "tree.json", "rows.csv", "--out", "new.parquet").exit_code == 0
    told = pd.read_parquet("new.parquet")
    assert told.columns.tolist() == ["ill"]
    assert (
        told["ill"].tolist()
        == predictions(hedgerow("predict", "tree.json", "rows.parquet").stdout)["ill"].tolist()
    )


def test_a_tree_that_protects_nobody_says_so_whoever_reads_it(study):
    assert (
        hedgerow(
            "train", "rows.csv", "--schema", "schema.toml", "--noise-seed", 1, "--out", "seeded.json"
        ).exit_code
        == 0
    )
    predicted = hedgerow("predict", "seeded.json", "other.csv")
    assert "NOT PRIVATE" in predicted.stderr
    assert "NOT PRIVATE" not in predicted.stdout
    assert "seeded" in json.loads(hedgerow("show", "seeded.json", "--json").stdout)["training"]["leaks"][0]
    assert (
        "seeded" in json.loads(hedgerow("evaluate", "seeded.json", "other.csv", "--json").stdout)["leaks"][0]
    )
    assert not hedgerow("predict", "tree.json", "other.csv").stderr


@pytest.mark.parametrize("classes", [["[low]", "[/i]"], [f"class {i}" for i in range(30)]])
def test_no_class_is_lost_from_the_table_of_an_evaluation(tmp_path, monkeypatch, classes):
    monkeypatch.chdir(tmp_path)
    schema = Schema([Numeric("x", 0, 1)], label="[/i]label", classes=classes)
    table = pd.DataFrame(
        {"x": np.linspace(0, 1, 3_000), "[/i]label": [classes[i % len(classes)] for i in range(3_000)]}
    )
    table.to_csv("rows.csv", index=False)
    PrivateTreeClassifier(schema=schema).fit(table[["x"]], table["[/i]label"]).save("tree.json")
    told = hedgerow("evaluate", "tree.json", "rows.csv").stdout
    assert all(name in told for name in ("[/i]label", *classes))
    assert "…" not in told


def test_a_column_is_kept_once(study):
    once = hedgerow("predict", "tree.json", "other.csv", "--keep", "number")
    assert (
        hedgerow("predict", "tree.json", "other.csv", "--keep", "number", "--keep", "number").stdout
        == once.stdout
    )


def test_no_rows_give_no_predictions(study):
    (study / "none.csv").write_text("age,sex,ward\n")
    result = hedgerow("predict", "tree.json", "none.csv")
    assert result.exit_code == 0
    assert result.stdout.strip() == '"ill"'


def test_an_evaluation_agrees_with_scikit_learn_and_says_that_it_is_not_private(study):
    table = patients(500, seed=1)
    model, X = PrivateTreeClassifier.load("tree.json"), table[list(SCHEMA.names)]
    told = json.loads(hedgerow("evaluate", "tree.json", "other.csv", "--json").stdout)
    assert told["private"] is False
    assert told["rows"] == 500
    assert told["accuracy"] == accuracy_score(table["ill"], model.predict(X))
    assert told["log-loss"] == pytest.approx(log_loss(table["ill"], model.predict_proba(X)), rel=1e-9)
    assert told["AUC"] == pytest.approx(roc_auc_score(table["ill"] == "yes", model.predict_proba(X)[:, 1]))
    assert told["confusion"] == confusion_matrix(table["ill"], model.predict(X)).tolist()
    in_words = hedgerow("evaluate", "tree.json", "other.csv").stdout
    assert f"accuracy {told['accuracy']:.4f}" in in_words
    assert "not private" in in_words


def test_an_evaluation_of_many_classes_agrees_with_scikit_learn(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    rng = np.random.default_rng(0)
    table = pd.DataFrame({"x": rng.uniform(0, 10, 3_000)})
    table["y"] = np.where(
        rng.random(3_000) < 0.8, np.minimum(table["x"] // 3, 2), rng.integers(0, 3, 3_000)
    ).astype(int)
    table.to_csv("rows.csv", index=False)
    schema = Schema([Numeric("x", 0, 10, thresholds=4)], label="y", classes=[0, 1, 2])
    model = PrivateTreeClassifier(schema=schema, epsilon=1.0, noise_seed=0).fit(table[["x"]], table["y"])
    model.save("tree.json")
    told = json.loads(hedgerow("evaluate", "tree.json", "rows.csv", "--json").stdout)
    shares = model.predict_proba(table[["x"]])
    assert told["AUC"] == pytest.approx(roc_auc_score(table["y"], shares, multi_class="ovr"))
    assert told["log-loss"] == pytest.approx(log_loss(table["y"], shares), rel=1e-9)
    assert told["accuracy"] == model.score(table[["x"]], table["y"])


def test_auc_is_not_defined_where_all_rows_are_of_one_class(study):
    table = patients(500, seed=1)
    table[table["ill"] == "yes"].to_csv("ill.csv", index=False)
    told = json.loads(hedgerow("evaluate", "tree.json", "ill.csv", "--json").stdout)
    assert told["AUC"] is None
    assert "AUC" not in hedgerow("evaluate", "tree.json", "ill.csv").stdout
