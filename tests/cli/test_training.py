"""`hedgerow train`: what it learns, what it says, what it keeps to itself."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from pyarrow import parquet

from hedgerow import Numeric, PrivateTreeClassifier, Schema

from .conftest import SCHEMA, hedgerow, patients


@pytest.mark.parametrize("data", ["rows.csv", "rows.parquet", "-"])
def test_the_command_learns_what_the_classifier_learns(study, data):
    stdin = (study / "rows.csv").read_bytes() if data == "-" else None
    result = hedgerow(
        "train", data, "--schema", "schema.toml", "--out", "new.json", "--noise-seed", 3, stdin=stdin
    )
    assert result.exit_code == 0, result.output
    table = patients(2_000)
    model = PrivateTreeClassifier(schema=SCHEMA, noise_seed=3).fit(table[list(SCHEMA.names)], table["ill"])
    assert PrivateTreeClassifier.load("new.json").tree_ == model.tree_


def test_several_tables_are_several_holders(study):
    args = (
        "train",
        "rows.csv",
        "other.csv",
        "--schema",
        "schema.toml",
        "--out",
        "two.json",
        "--noise-seed",
        3,
    )
    assert hedgerow(*args).exit_code == 0
    tables = [patients(2_000), patients(500, seed=1)]
    model = PrivateTreeClassifier(schema=SCHEMA, noise_seed=3)
    model.fit_holders([(table[list(SCHEMA.names)], table["ill"]) for table in tables])
    assert PrivateTreeClassifier.load("two.json").tree_ == model.tree_
    assert hedgerow("ledger", "two.json").output.count("granted epsilon 1, spent 0.9") == 2


@pytest.mark.parametrize("data", ["header.csv", "header.parquet"])
def test_that_a_table_has_no_rows_is_told_to_its_owner_alone(study, data):
    rows = parquet.read_table("rows.parquet").slice(0, 0)
    parquet.write_table(rows, "header.parquet")
    Path("header.csv").write_text(",".join(rows.column_names) + "\n")
    result = hedgerow("train", data, "--schema", "schema.toml", "--out", "new.json", "--json")
    assert result.exit_code == 0, result.output
    assert f"{data}: there are no rows" in result.stderr
    assert "no rows" not in result.stdout
    assert json.loads(result.stdout)["private"] is True
    assert PrivateTreeClassifier.load("new.json").record_.accounts[0].spent > 0


def test_that_no_row_has_a_category_is_told_to_the_owner_alone(study):
    patients(500).assign(sex="Y").to_csv("strange.csv", index=False)
    result = hedgerow("train", "strange.csv", "--schema", "schema.toml", "--out", "new.json")
    assert result.exit_code == 0, result.output
    assert "'sex': no row has one of the categories" in result.stderr
    assert "categories" not in result.stdout
    quiet = hedgerow(
        "train", "strange.csv", "--schema", "schema.toml", "--out", "n.json", "--no-owner-warnings"
    )
    assert "categories" not in quiet.output


def test_every_parameter_of_the_classifier_is_an_option(study):
    wanted = {
        "epsilon": 2.0, "method": "select", "selector": "exponential", "criterion": "entropy", "budget": "decay",
        "leaf_fraction": 0.3, "max_splits": 7, "max_depth": 3, "target_error": 0.2, "min_gain": 0.01,
        "max_rows": 4000, "neighbours": "replace", "noise": "opendp", "noise_seed": 5,
    }  # fmt: skip
    assert wanted.keys() == PrivateTreeClassifier().get_params().keys() - {"schema"}
    options = [f"--{name.replace('_', '-')}={value}" for name, value in wanted.items()]
    result = hedgerow("train", "rows.csv", "--schema", "schema.toml", "--out", "new.json", *options)
    assert result.exit_code == 0, result.output
    table = patients(2_000)
    model = PrivateTreeClassifier(schema=SCHEMA, **wanted).fit(table[list(SCHEMA.names)], table["ill"])
    assert PrivateTreeClassifier.load("new.json").to_json() == model.to_json()


def test_noise_is_cryptographic_unless_a_seed_is_given(study):
    trees = []
    for _ in range(2):
        result = hedgerow("train", "rows.csv", "--schema", "schema.toml", "--json", "--force")
        assert json.loads(result.stdout)["private"] is True
        trees.append(PrivateTreeClassifier.load("tree.json").tree_)
    assert trees[0] != trees[1]  # equal by chance with probability far below 1e-6: every count would be
    for option, leak in (("--noise-seed=1", "seeded"), ("--epsilon=inf", "infinite")):
        args = ("train", "rows.csv", "--schema", "schema.toml", option, "--force")
        assert "NOT PRIVATE" in hedgerow(*args).stdout
        told = json.loads(hedgerow(*args, "--json").stdout)
        assert told["private"] is False
        assert leak in told["training"]["leaks"][0]
        assert "NOT PRIVATE" in hedgerow("show", "tree.json").stdout
        assert "NOT PRIVATE" in hedgerow("ledger", "tree.json").stdout


def test_training_tells_nothing_that_is_not_in_the_model(study):
    """The model's file holds released numbers only; whatever else were printed would have to come from the rows."""
    result = hedgerow("train", "rows.csv", "--schema", "schema.toml", "--json", "--force")
    model = PrivateTreeClassifier.load("tree.json")
    tree = model.tree_
    assert json.loads(result.stdout) == {
        "model": "tree.json",
        "private": True,
        "schema": SCHEMA.hash,
        "splits": tree.n_splits,
        "leaves": tree.n_leaves,
        "depth": tree.depth,
        "training": model.record_.to_dict(),
    }
    assert not result.stderr
    in_words = hedgerow("train", "rows.csv", "--schema", "schema.toml", "--force")
    model = PrivateTreeClassifier.load("tree.json")
    for line in model.record_.plan:
        assert line in in_words.stdout
    assert len(in_words.stdout.splitlines()) == len(model.record_.plan) + 3
    assert not in_words.stderr
    # The file itself: the tree and the record, nothing of the table but what the schema says of it.
    kept = json.loads(Path("tree.json").read_text())
    assert kept.keys() == {"format", "version", "schema_hash", "schema", "nodes", "training"}
    assert kept["training"].keys() == {"version", "neighbours", "leaks", "plan", "traffic", "holders"}
    assert "rows.csv" not in Path("tree.json").read_text()


def test_a_model_keeps_what_show_and_ledger_say(study):
    record = PrivateTreeClassifier.load("tree.json").record_
    told = hedgerow("ledger", "tree.json").stdout
    account = record.accounts[0]
    assert f"Holder 1 granted epsilon 1, spent {float(account.spent):.6g}" in told
    assert json.loads(hedgerow("ledger", "tree.json", "--json").stdout) == record.to_dict()
    shown = hedgerow("show", "tree.json").stdout
    assert shown.strip() == PrivateTreeClassifier.load("tree.json").tree_.export_text()
    assert len(json.loads(hedgerow("show", "tree.json", "--json").stdout)["nodes"]) >= 3


TRAIN_AND_TELL = """
import re, sys
from pathlib import Path
from hedgerow.cli import app
app(sys.argv[1:], standalone_mode=False)
print(re.search(r"VmHWM:\\s*(\\d+) kB", Path("/proc/self/status").read_text())[1])
"""
COLUMNS = 20


def write_rows(path: Path, n: int) -> None:
    """A table in row groups, made and written piece by piece."""
    rng = np.random.default_rng(0)
    names = [f"x{i}" for i in range(COLUMNS)]
    schema = pa.schema([*((name, pa.float64()) for name in names), ("y", pa.int64())])
    with parquet.ParquetWriter(path, schema) as writer:
        for start in range(0, n, 100_000):
            size = min(100_000, n - start)
            x = {name: rng.normal(size=size) for name in names}
            writer.write_table(pa.table(x | {"y": (x["x0"] > 0).astype(np.int64)}, schema=schema))


def peak(args: list[object]) -> int:
    """The most memory, in bytes, that a training process has ever had."""
    command = [sys.executable, "-c", TRAIN_AND_TELL, *map(str, args)]
    told = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    return int(told.splitlines()[-1]) * 1024


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="the system does not tell the peak")
def test_training_never_has_the_table_in_memory(tmp_path):
    """At 5 million rows the codes are 100 MB, and the whole process stays within twice that above its start.

    Here they are 20 MB, and the few pages of each column that Arrow has open count for more.
    """
    n, pages = 1_000_000, 64 * 2**20
    Schema([Numeric(f"x{i}", -3, 3) for i in range(COLUMNS)], label="y", classes=[0, 1]).save(
        tmp_path / "schema.toml"
    )
    write_rows(tmp_path / "few.parquet", 1_000)
    write_rows(tmp_path / "many.parquet", n)
    args = ["--schema", tmp_path / "schema.toml", "--out", tmp_path / "tree.json"]
    peak(["train", tmp_path / "few.parquet", *args])  # compiles
    start = peak(["train", tmp_path / "few.parquet", *args])
    codes, table = n * COLUMNS, 8 * n * COLUMNS
    assert 2 * codes + pages < 0.7 * table  # or the test could not fail
    assert peak(["train", tmp_path / "many.parquet", *args]) - start < 2 * codes + pages


@pytest.mark.parametrize("absolute", [True, False])
def test_a_table_given_twice_by_another_name_is_refused(study, absolute):
    (study / "link.csv").symlink_to("rows.csv")
    again = study / "rows.csv" if absolute else "link.csv"
    result = hedgerow("train", "rows.csv", again, "--schema", "schema.toml", "--out", "new.json")
    assert result.exit_code == 1
    assert f"{again} is given twice" in result.stderr


def test_a_table_given_twice_by_a_hard_link_is_refused(study):
    (study / "again.csv").hardlink_to(study / "rows.csv")
    result = hedgerow("train", "rows.csv", "again.csv", "--schema", "schema.toml", "--out", "new.json")
    assert result.exit_code == 1
    assert "again.csv is given twice" in result.stderr
