"""A small study in files, and the command line as a function."""

from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from typer.testing import CliRunner, Result

from hedgerow import Categorical, Numeric, Schema
from hedgerow.cli import app

SCHEMA = Schema(
    [
        Numeric("age", low=0, high=100, thresholds=10),
        Categorical("sex", ["female", "male"]),
        Categorical("ward", [1, 2, 3], missing=True),
    ],
    label="ill",
    classes=["no", "yes"],
)


def patients(n: int, seed: int = 0) -> pd.DataFrame:
    rng = np.random.default_rng(seed)
    age = rng.uniform(0, 100, n).round(1)
    ill = (age > 45) ^ (rng.random(n) < 0.1)
    columns = {"age": age, "sex": rng.choice(["female", "male"], n), "ward": rng.integers(1, 4, n)}
    return pd.DataFrame({"number": np.arange(n), **columns, "ill": np.where(ill, "yes", "no")})


def hedgerow(*args: object, stdin: str | bytes | None = None) -> Result:
    """Run a command; an exception that is no sentence fails the test."""
    return CliRunner().invoke(app, [str(arg) for arg in args], input=stdin, catch_exceptions=False)


@pytest.fixture(scope="session")
def _finished(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("study")
    SCHEMA.save(folder / "schema.toml")
    patients(2_000).to_csv(folder / "rows.csv", index=False)
    patients(2_000).to_parquet(folder / "rows.parquet")
    patients(500, seed=1).to_csv(folder / "other.csv", index=False)
    trained = hedgerow(
        "train", folder / "rows.csv", "--schema", folder / "schema.toml", "--out", folder / "tree.json"
    )
    assert trained.exit_code == 0, trained.output
    return folder


@pytest.fixture
def study(_finished, tmp_path, monkeypatch) -> Path:
    """A working directory with schema.toml, rows.csv, rows.parquet, other.csv and a tree.json learned from rows."""
    folder = tmp_path / "study"
    shutil.copytree(_finished, folder)
    monkeypatch.chdir(folder)
    return folder
