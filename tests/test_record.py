"""The record of a training: what a model's file says about how it came about."""

import json
import math
from fractions import Fraction

import pytest

from hedgerow import PrivateTreeClassifier
from hedgerow.datasets import synthetic_hospitals
from hedgerow.errors import InvalidModel
from hedgerow.record import Record

HOSPITALS = synthetic_hospitals(rows=4_000)


def trained(**parameters):
    model = PrivateTreeClassifier(schema=HOSPITALS.schema, **{"noise_seed": 1} | parameters)
    return model.fit_holders(HOSPITALS.holders)


@pytest.mark.parametrize(
    "parameters",
    [
        {"epsilon": 1.0},
        {"epsilon": 0.3, "neighbours": "replace"},
        {"epsilon": 3.0, "method": "noisy_columns", "budget": "uniform"},
        {"epsilon": math.inf, "max_splits": 5},
    ],
)
def test_a_loaded_model_has_the_record_of_the_trained_one(tmp_path, parameters):
    model = trained(**parameters)
    model.save(tmp_path / "tree.json")
    loaded = PrivateTreeClassifier.load(tmp_path / "tree.json")
    assert loaded.record_ == model.record_
    assert loaded.tree_.noise.tolist() == model.tree_.noise.tolist()
    assert loaded.record_.epsilon == (
        Fraction(repr(parameters["epsilon"])) if parameters["epsilon"] < math.inf else math.inf
    )


def test_what_the_dearest_rows_paid_adds_up_to_what_was_spent():
    model = trained(epsilon=1.0)
    for ledger, account in zip(model.ledgers_, model.record_.accounts, strict=True):
        assert sum(line.paid for line in account.lines) == ledger.spent == account.spent
        assert sum(line.releases for line in account.lines) == len(ledger.entries)
        assert account.left == 1 - ledger.spent
        assert len(account.lines) >= 4


def test_the_record_says_what_was_not_private():
    assert trained(noise_seed=None).record_.leaks == ()
    assert "seeded" in trained().record_.leaks[0]
    assert "infinite" in trained(epsilon=math.inf, max_splits=2).record_.leaks[0]


def test_a_file_without_a_record_is_a_model_all_the_same(tmp_path):
    path = tmp_path / "tree.json"
    model = trained()
    model.save(path)
    plain = json.loads(path.read_text())
    del plain["training"]
    for node in plain["nodes"]:
        del node["noise"]
    path.write_text(json.dumps(plain))
    loaded = PrivateTreeClassifier.load(path)
    assert loaded.record_ is None
    assert loaded.tree_.noise is None
    assert loaded.tree_ == model.tree_


@pytest.mark.parametrize(
    "change",
    [
        {"version": 2},
        {"neighbours": "none"},
        {"leaks": "none"},
        {"plan": [1]},
        {"traffic": None},
        {"holders": []},
        {"holders": [{"granted": "1", "spent": "1/0", "lines": []}]},
        {"holders": [{"granted": "1", "spent": "nan", "lines": []}]},
        {"holders": [{"granted": "1e1000000000", "spent": "0", "lines": []}]},  # would never be worked out
        {"holders": [{"granted": "0.5", "spent": "0", "lines": []}]},
        {"holders": [{"granted": 5000 * "1", "spent": "0", "lines": []}]},
        {"holders": [{"granted": "1" + 400 * "0", "spent": "0", "lines": []}]},
        {"holders": [{"granted": "1", "spent": "2", "lines": []}]},
        {"holders": [{"granted": "1", "spent": "1/2", "lines": []}]},
    ],
)
def test_a_damaged_record_is_refused(change):
    plain = trained().record_.to_dict()
    assert Record.from_dict(plain).to_dict() == plain
    with pytest.raises(InvalidModel):
        Record.from_dict(plain | change)


@pytest.mark.parametrize("noise", [-1, "1", None, True, 1e300])
def test_damaged_noise_is_refused(tmp_path, noise):
    path = tmp_path / "tree.json"
    trained().save(path)
    plain = json.loads(path.read_text())
    plain["nodes"][0]["noise"] = noise
    path.write_text(json.dumps(plain))
    with pytest.raises(InvalidModel, match="node 0: noise"):
        PrivateTreeClassifier.load(path)


def test_exact_trees_have_no_noise():
    assert not trained(epsilon=math.inf, max_splits=5).tree_.noise.any()
