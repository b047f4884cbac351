"""Modules that are imported when something of them is used."""

import importlib
import subprocess
import sys

import pytest

from hedgerow.later import imported_later


@pytest.fixture
def slow(tmp_path, monkeypatch):
    """A package that says when it is loaded, with a module in it."""
    package = tmp_path / "slow_package"
    package.mkdir()
    (package / "__init__.py").write_text("loaded = True\n")
    (package / "inner.py").write_text("answer = 42\n")
    monkeypatch.syspath_prepend(tmp_path)
    yield "slow_package"
    for name in [name for name in sys.modules if name.startswith("slow_package")]:
        del sys.modules[name]


def test_an_import_waits_until_something_is_used(slow):
    with imported_later(slow):
        stand_in = importlib.import_module(slow)
    assert slow not in sys.modules
    assert stand_in.loaded
    assert stand_in.loaded is sys.modules[slow].loaded
    assert importlib.import_module(slow) is sys.modules[slow] is not stand_in


def test_use_within_the_block_loads_the_module(slow):
    with imported_later(slow):
        from slow_package.inner import answer

        assert answer == 42
        assert sys.modules[slow].loaded
    assert slow in sys.modules


def test_names_that_a_module_lacks_are_said_to_be_missing(slow):
    with imported_later(slow):
        stand_in = importlib.import_module(slow)
    with pytest.raises(AttributeError, match="slow_package"):
        _ = stand_in.nothing


def test_what_is_loaded_or_not_installed_is_left_alone(slow):
    real = importlib.import_module(slow)
    with imported_later(slow, "no_such_package"):
        assert importlib.import_module(slow) is real
        with pytest.raises(ModuleNotFoundError):
            importlib.import_module("no_such_package")
    assert sys.modules[slow] is real


def test_an_error_leaves_no_trace(slow):
    with pytest.raises(ZeroDivisionError), imported_later(slow):
        _ = 1 / 0
    assert slow not in sys.modules


def test_the_classifier_is_imported_and_fitted_without_scipy_stats_and_pandas():
    program = """
import sys
import numpy as np
from hedgerow import Numeric, PrivateTreeClassifier, Schema

schema = Schema([Numeric("age", 0, 1, [0.25, 0.5])], label="ill", classes=[0, 1])
age = np.linspace(0, 1, 100)
model = PrivateTreeClassifier(schema=schema, epsilon=float("inf")).fit(age[:, None], age > 0.5)
assert not {"pandas", "scipy.stats"} & sys.modules.keys()

import pandas as pd
from scipy import stats

assert pd.DataFrame is sys.modules["pandas"].DataFrame
assert stats.mode([1, 1, 2]).mode == 1
assert (model.predict(pd.DataFrame({"age": age})) == (age > 0.5)).all()
"""
    subprocess.run([sys.executable, "-c", program], check=True, timeout=120)
