"""What people write, and what is made of it: studies and policies."""

from __future__ import annotations

import json
import math
from fractions import Fraction
from pathlib import Path

import pytest
from typer.testing import CliRunner

from hedgerow import Categorical, Numeric, Schema
from hedgerow.cli import app
from hedgerow.transport.site import InvalidPolicy, Policy
from hedgerow.transport.study import InvalidStudy, Study, write_study

SCHEMA = Schema(
    [
        Numeric("age", 0, 90, thresholds=9),
        Categorical("region", ["lake", "city"], missing=True),
        Categorical("ward", [1, 2, 3]),
    ],
    label="ill",
    classes=["no", "yes"],
)
STUDY = {
    "name": "malaria",
    "schema": SCHEMA.to_dict(),
    "epsilon": 0.1,
    "holders": ["lake", "city"],
    "server": "localhost",
}


def test_a_study_survives_its_job():
    study = Study.from_dict(STUDY | {"max_depth": 5, "when_a_holder_is_lost": "continue"})
    assert Study.from_dict(json.loads(json.dumps(study.to_dict()))) == study
    assert study.exact_epsilon == Fraction(1, 10)


@pytest.mark.parametrize(
    "wishes",
    [
        {},
        {"epsilon": 1e-7, "least_price": 1e-05, "max_depth": 5, "target_error": 0.5, "min_gain": 0},
        {"leaf_fraction": 0.25, "budget": "decay", "answer_seconds": 1.5, "when_a_holder_is_lost": "abort"},
        {"server": "10.0.0.1", "port": 1, "holders": [f"h{i}" for i in range(64)], "neighbours": "replace"},
    ],
)
def test_a_study_survives_its_file(tmp_path: Path, wishes: dict):
    study = Study.from_dict(STUDY | wishes)
    write_study(study, tmp_path / "study.toml")
    assert Study.load(tmp_path / "study.toml") == study
    assert Study.load(tmp_path / "study.toml").schema.hash == SCHEMA.hash
    assert sorted(path.name for path in tmp_path.iterdir()) == ["schema.toml", "study.toml"]
    write_study(study, tmp_path / "study.toml")  # over itself
    assert Study.load(tmp_path / "study.toml") == study


def test_a_study_is_found_from_wherever_it_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    write_study(Study.from_dict(STUDY), tmp_path / "study.toml")
    monkeypatch.chdir(tmp_path)
    assert Study.load(Path("study.toml")) == Study.load(tmp_path / "study.toml")


@pytest.mark.parametrize(
    ("text", "told"),
    [
        (None, "there is no file "),
        ("name = ", "cannot be read as TOML: "),
        ("\udcff", "cannot be read as TOML: "),
        (
            'name = "x"\nschema = "none.toml"\nepsilon = 1\nholders = ["a"]\nserver = "b"',
            "there is no schema file",
        ),
    ],
)
def test_a_study_file_that_cannot_be_read_is_named(tmp_path: Path, text: str | None, told: str):
    if text is not None:
        (tmp_path / "study.toml").write_bytes(text.encode(errors="surrogateescape"))
    with pytest.raises(InvalidStudy, match=told):
        Study.load(tmp_path / "study.toml")


@pytest.mark.parametrize(
    ("wrong", "told"),
    [
        ({"admin_port": 8003}, "a study has no admin_port"),
        ({"name": "../../etc"}, "name"),
        ({"epsilon": 0}, "epsilon"),
        ({"epsilon": math.nan}, "epsilon"),
        ({"epsilon": True}, "epsilon"),
        ({"holders": []}, "holders"),
        ({"holders": ["lake", "lake"]}, "all different"),
        ({"holders": ["localhost"]}, "cannot be used"),
        ({"holders": ["a b"]}, "cannot be used"),
        ({"holders": ["lake", "Coordinator"]}, "cannot be used"),
        ({"holders": ["lake", "Example"], "server": "example"}, "cannot be used"),
        ({"holders": ["authority", "lake"]}, "cannot be used"),
        ({"epsilon": math.inf}, "there is always noise"),
        ({"leaf_fraction": 0.0}, "between 0 and 1"),
        ({"leaf_fraction": 1}, "between 0 and 1"),
        ({"min_gain": -0.1}, "from 0 to 1"),
        ({"target_error": True}, "from 0 to 1"),
        ({"max_depth": 65}, "from 1 to 64"),
        ({"answer_seconds": 0}, "above 0"),
        ({"method": "magic"}, "choose one of"),
        ({"when_a_holder_is_lost": "panic"}, "choose one of"),
        ({"port": 0}, "port"),
        ({"max_splits": 2.5}, "max_splits"),
        ({"nonsense": 1}, "has no nonsense"),
        ({"epsilon": 0}, "^epsilon = 0; it must be a positive finite number: there is always noise.$"),
        ({"answer_seconds": -1}, "^answer_seconds = -1; it must be a number above 0 and at most 86400.$"),
        ({"port": 0}, "^port = 0; it must be a whole number from 1 to 65535.$"),
        (
            {"method": "select"},
            "method = 'select' selects at one holder, but there are 2; choose auto, turns, local",
        ),
        ({"method": "paper"}, "method = 'paper' selects at one holder, but there are 2"),
    ],
)
def test_a_study_that_contradicts_itself_is_refused_by_name(wrong: dict, told: str):
    with pytest.raises(InvalidStudy, match=told):
        Study.from_dict(STUDY | wrong)


@pytest.mark.parametrize("method", ["select", "paper"])
def test_one_holder_may_select_alone(method: str):
    assert Study.from_dict(STUDY | {"method": method, "holders": ["lake"]}).method == method


@pytest.mark.parametrize("missing", list(STUDY))
def test_a_study_says_all_that_is_needed(missing: str):
    with pytest.raises(InvalidStudy, match=missing):
        Study.from_dict({key: value for key, value in STUDY.items() if key != missing})


POLICY = """
data = "rows.csv"
schema = "schema.toml"
journal = "journal"
lifetime_epsilon = 2.0
[[grants]]
study = "malaria"
epsilon = 0.1
methods = ["local"]
"""


@pytest.fixture
def site(tmp_path: Path) -> Path:
    SCHEMA.save(tmp_path / "schema.toml")
    (tmp_path / "hedgerow.toml").write_text(POLICY)
    rows = "ill,age,ward,region,doctor\nyes,33.5,2,lake,A\nno,,3,,B\nno,95,9,moon,C\n"
    (tmp_path / "rows.csv").write_text(rows)
    return tmp_path


def test_a_policy_says_in_plain_words_what_it_allows(site: Path):
    policy = Policy.load(site / "hedgerow.toml")
    assert policy.grants["malaria"].terms.epsilon == Fraction(1, 10)
    words = policy.explain()
    assert (
        "Study 'malaria' may spend epsilon 0.1 (neighbours: add-remove), asking by the methods local: at most"
        in words
    )
    assert "All studies together may ever spend epsilon 2." in words
    assert SCHEMA.hash in words
    assert "NOT PRIVATE" not in words


def test_seeded_noise_is_shouted_about(site: Path):
    with (site / "hedgerow.toml").open("a") as file:
        file.write("noise_seed = 5\n")
    assert "NOT PRIVATE" in Policy.load(site / "hedgerow.toml").explain()


@pytest.mark.parametrize(
    ("old", "new", "told"),
    [
        ('data = "rows.csv"', "", "say data, the file of the rows"),
        ('journal = "journal"', "", "say journal, the folder "),
        ("lifetime_epsilon = 2.0", "", "lifetime_epsilon"),
        ("lifetime_epsilon = 2.0", "lifetime_epsilon = -1", "positive"),
        ("epsilon = 0.1", 'epsilon = "much"', "positive"),
        ("epsilon = 0.1", "epsilon = inf", "there is always noise"),
        ('["local"]', '["magic"]', "magic"),
        ('schema = "schema.toml"', 'schema = "other.toml"', "no schema file"),
        ("[[grants]]", "colour = 1\n[[grants]]", "there is no colour"),
        ('study = "malaria"', 'study = "a/b"', "not the name"),
        ("[[grants]]", '[[grants]]\nstudy = "malaria"\nepsilon = 1.0\n[[grants]]', "two grants"),
    ],
)
def test_a_policy_that_cannot_be_meant_is_refused(site: Path, old: str, new: str, told: str):
    text = (site / "hedgerow.toml").read_text()
    assert old in text
    (site / "hedgerow.toml").write_text(text.replace(old, new, 1))
    with pytest.raises(InvalidPolicy, match=told):
        Policy.load(site / "hedgerow.toml")


@pytest.mark.parametrize(
    ("old", "new", "told"),
    [
        (
            'methods = ["local"]',
            'neighbors = "replace"',
            "grant of malaria: there is no neighbors; there is epsilon, least_price, methods, most_releases, neighbours, quantum, study.",
        ),
        ("epsilon = 0.1\n", "", "grant of malaria: say epsilon."),
        ('study = "malaria"\n', "", "a grant does not say its study."),
        ("epsilon = 0.1", "epsilon = 0", "epsilon of malaria = 0; it must be a positive number."),
        ('["local"]', '["local", 1]', "grant of malaria: methods is a list of some of "),
        ('["local"]', "[]\nneighbours = 1", "grant of malaria: methods is a list of some of "),
        ('["local"]', '["local"]\nneighbours = "near"', "grant of malaria: neighbours='near'; choose one of"),
        (
            "lifetime_epsilon = 2.0",
            "lifetime_epsilon = 0",
            "lifetime_epsilon = 0; it must be a positive number.",
        ),
    ],
)
def test_a_wrong_entry_of_a_policy_is_named_with_its_file_and_study(
    site: Path, old: str, new: str, told: str
):
    path = site / "hedgerow.toml"
    text = path.read_text()
    assert old in text
    path.write_text(text.replace(old, new, 1))
    with pytest.raises(InvalidPolicy) as error:
        Policy.load(path)
    assert str(error.value).startswith(f"{path}: {told}")
    assert "noise_seed" not in str(error.value)  # for tests, and not private


def test_what_is_wrong_with_a_policy_is_told_on_standard_error_letter_by_letter(site: Path):
    pytest.importorskip("cryptography", reason="sites need hedgerow[network]")
    policy = site / "hedgerow.toml"
    policy.write_text(policy.read_text().replace("[[grants]]", "[grants]"))
    said = CliRunner().invoke(app, ["site", "check", str(site)])
    assert said.exit_code == 1
    assert said.stderr == f"{policy}: begin each grant with [[grants]].\n"
    assert said.stdout == ""
