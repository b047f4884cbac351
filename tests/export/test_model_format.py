"""The published form of model files: real files of every kind keep to it, damaged ones do not, the page tells all."""

from __future__ import annotations

import copy
import json
import math
import re
from pathlib import Path

import jsonschema
import numpy as np
import pytest
from kinds import KINDS, random_model, random_rows

from hedgerow import InvalidModel, PrivateTreeClassifier
from hedgerow.datasets import synthetic_hospitals
from hedgerow.tree import FORMAT_VERSION, Tree

DOCS = Path(__file__).parents[2] / "docs"
FORM = jsonschema.Draft202012Validator(json.loads((DOCS / "model.schema.json").read_text(encoding="utf-8")))
PAGE = (DOCS / "model-format.md").read_text(encoding="utf-8")


def saved(model: PrivateTreeClassifier, folder: Path) -> dict:
    model.save(folder / "tree.json")
    return json.loads((folder / "tree.json").read_text(encoding="utf-8"))


def test_the_form_is_itself_well_formed():
    FORM.check_schema(FORM.schema)


@pytest.mark.parametrize("n_splits", [0, 1, 200])
@pytest.mark.parametrize("kind", KINDS)
def test_files_of_every_kind_of_schema_keep_to_the_form(kind, n_splits, tmp_path):
    FORM.validate(saved(random_model(KINDS[kind], n_splits), tmp_path))


@pytest.mark.parametrize("n_holders", [1, 3])
@pytest.mark.parametrize(
    "parameters",
    [
        {"epsilon": 1.0},
        {"epsilon": 0.1, "neighbours": "replace"},
        {"epsilon": math.inf},
        {"epsilon": 1.0, "noise_seed": 1},
        {"epsilon": 1.0, "budget": "decay", "max_depth": 4},
        {"epsilon": 1.0, "method": "noisy_columns", "criterion": "error"},
    ],
)
def test_files_of_trained_models_keep_to_the_form(parameters, n_holders, tmp_path):
    hospitals = synthetic_hospitals(n_holders, rows=2_000)
    model = PrivateTreeClassifier(schema=hospitals.schema, **parameters).fit_holders(hospitals.holders)
    plain = saved(model, tmp_path)
    assert plain["training"]
    assert "noise" in plain["nodes"][0]
    FORM.validate(plain)


def changes(plain: dict):
    """Every way to take out an entry or to put a value of another type in its place."""
    for path in _paths(plain):
        for change in ("remove", None, "text", -1, [], {"a": 1}):
            damaged = copy.deepcopy(plain)
            *above, last = path
            place = damaged
            for key in above:
                place = place[key]
            if change == "remove":
                del place[last]
            else:
                place[last] = change
            if damaged != plain:
                yield path, change, damaged


def _paths(plain, path=()):
    entries = (
        plain.items() if isinstance(plain, dict) else enumerate(plain) if isinstance(plain, list) else ()
    )
    for key, value in entries:
        yield (*path, key)
        yield from _paths(value, (*path, key))


def test_what_the_form_refuses_loading_refuses(tmp_path):
    """Loading also checks what a form cannot: the hash, the order of nodes, sums. It is never more lenient,

    but for `null`, which it takes for an entry that is not there, and for the test in words, which it ignores.
    """
    plain = saved(random_model(KINDS["mixed"], n_splits=2), tmp_path)
    refused = 0
    for path, change, damaged in changes(plain):
        if FORM.is_valid(damaged) or change is None or path[-1] == "test":
            continue
        refused += 1
        with pytest.raises(InvalidModel):
            Tree.from_dict(damaged)
    assert refused > 200


@pytest.mark.parametrize("version", [FORMAT_VERSION + 1, 99])
def test_a_newer_file_says_to_upgrade(version, tmp_path):
    plain = saved(random_model(KINDS["text"], n_splits=2), tmp_path) | {"version": version}
    assert not FORM.is_valid(plain)
    (tmp_path / "newer.json").write_text(json.dumps(plain))
    with pytest.raises(InvalidModel, match=f"format version {version}.* pip install --upgrade hedgerow"):
        PrivateTreeClassifier.load(tmp_path / "newer.json")
    with pytest.raises(InvalidModel, match=r"version 0; this Hedgerow reads 1\.$"):
        Tree.from_dict(plain | {"version": 0})


@pytest.fixture(scope="module")
def page(tmp_path_factory) -> dict:
    """What the page's own code leaves behind; its assertions have held."""
    names: dict = {}
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(tmp_path_factory.mktemp("page"))
        for block in re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL):
            exec(compile(block, "model-format.md", "exec"), names)
    return names


@pytest.mark.parametrize("kind", KINDS)
def test_the_page_says_all_that_predicting_needs(kind, page, tmp_path):
    model = random_model(KINDS[kind], n_splits=100)
    plain = saved(model, tmp_path)
    table = random_rows(model.schema_, n_rows=500)
    rows = table.fill_nan(None).to_dicts()
    assert [page["predict"](plain, row) for row in rows] == model.predict(table).tolist()


def test_the_pages_example_is_a_real_tree(page):
    assert page["model"].tree_.n_splits > 3
    assert len(np.unique(page["classes"])) == 2
