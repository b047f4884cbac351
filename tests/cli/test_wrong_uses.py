"""Wrong uses: each ends with a sentence that names the culprit, a code that is not 0, and nothing half-written."""

from __future__ import annotations

import json
import resource
import signal
import sqlite3
import subprocess
import sys
import time
from pathlib import Path

import pytest

from hedgerow import Numeric, Schema

from .conftest import hedgerow, patients

TRAIN = ("train", "rows.csv", "--schema", "schema.toml", "--out", "new.json")
PREDICT = ("predict", "tree.json", "other.csv", "--out", "new.csv")

WRONG: dict[str, tuple[tuple[object, ...], str]] = {
    "a missing table": (("train", "none.csv", *TRAIN[2:]), "there is no none.csv"),
    "a missing schema": ((*TRAIN[:3], "none.toml"), "there is no none.toml"),
    "a missing model": (("show", "none.json"), "there is no none.json"),
    "no schema": (("train", "rows.csv"), "Missing option '--schema'"),
    "no table": (TRAIN[:1], "Missing argument"),
    "an unknown command": (("trian", "rows.csv"), "No such command 'trian'"),
    "an unknown option": ((*TRAIN, "--epsilom", 1), "No such option: --epsilom"),
    "epsilon -1": ((*TRAIN, "--epsilon=-1"), "epsilon=-1.0; it must be a positive number"),
    "epsilon 0": ((*TRAIN, "--epsilon=0"), "epsilon=0.0; it must be a positive number"),
    "epsilon NaN": ((*TRAIN, "--epsilon=nan"), "epsilon=nan; it must be a positive number"),
    "epsilon in words": ((*TRAIN, "--epsilon=much"), "Invalid value for '--epsilon'"),
    "an unknown method": ((*TRAIN, "--method=best"), "method='best'; choose one of 'auto'"),
    "an unknown criterion": ((*TRAIN, "--criterion=best"), "criterion='best'; choose one of 'auto'"),
    "an unknown budget": ((*TRAIN, "--budget=rich"), "budget='rich'; choose one of 'auto'"),
    "an unknown noise": ((*TRAIN, "--noise=pink"), "noise='pink'; choose one of 'exact'"),
    "a share above 1": ((*TRAIN, "--leaf-fraction=2"), "leaf_fraction=2.0; it must be between 0 and 1"),
    "no splits": ((*TRAIN, "--max-splits=0"), "max_splits=0; it must be an integer of at least 1"),
    "half a split": ((*TRAIN, "--max-splits=1.5"), "Invalid value for '--max-splits'"),
    "a negative seed": ((*TRAIN, "--noise-seed=-1"), "noise_seed=-1; it must be"),
    "one holder's method for two": (
        ("train", "rows.csv", "other.csv", *TRAIN[2:], "--method=select"),
        "method='select' selects at one holder, but there are 2",
    ),
    "a comparison on no data set": (("compare", "--dataset", "foo"), "there is no 'foo'; choose from adult"),
    "a table given twice": (("train", "rows.csv", "./rows.csv", *TRAIN[2:]), "rows.csv is given twice"),
    "a folder for a table": (("train", "folder.csv", *TRAIN[2:]), "folder.csv is a folder"),
    "a folder for a Parquet file": (("train", "folder.parquet", *TRAIN[2:]), "folder.parquet is a folder"),
    "a folder for a schema": ((*TRAIN[:3], "folder.toml"), "folder.toml is a folder"),
    "a folder for the model": ((*TRAIN[:5], "folder.json"), "folder.json is a folder"),
    "a model in no folder": ((*TRAIN[:5], "none/new.json"), "/none; check how it is written"),
    "a model below a file": ((*TRAIN[:5], "rows.csv/new.json"), "rows.csv"),
    "a full disk for the model": ((*TRAIN[:5], "/dev/full"), "there is no room on the disk for /dev/full"),
    "a full disk for predictions": ((*PREDICT[:4], "full.csv"), "there is no room on the disk for full.csv"),
    "predictions in no folder": ((*PREDICT[:4], "none/new.csv"), "/none; check how it is written"),
    "predictions of no kind": ((*PREDICT[:4], "new.xlsx"), "new.xlsx ends in neither .csv nor .parquet"),
    "a table of no kind": (("train", "schema.toml", *TRAIN[2:]), "schema.toml is neither .csv nor .parquet"),
    "an empty table": (("train", "empty.csv", *TRAIN[2:]), "empty.csv: there is nothing in it"),
    "an empty Parquet file": (("train", "empty.parquet", *TRAIN[2:]), "empty.parquet is damaged"),
    "CSV for Parquet": (("train", "text.parquet", *TRAIN[2:]), "text.parquet is damaged, or not what its name"),
    "ragged lines": (("train", "ragged.csv", *TRAIN[2:]), "ragged.csv: row 3 below the first line has 2 fields"),
    "two columns of one name": (("train", "twice.csv", *TRAIN[2:]), "twice.csv: columns 2 and 5 have the same name"),
    "a column that is not there": (("train", "few.csv", *TRAIN[2:]), "few.csv lacks the column 'ward'"),
    "text for numbers": (("train", "words.csv", *TRAIN[2:]), "words.csv: column 'age' is numeric"),
    "text for numbers in Parquet": (("train", "words.parquet", *TRAIN[2:]), "words.parquet: column 'age' is num"),
    "a label outside the classes": (("train", "labels.csv", *TRAIN[2:]), "labels.csv: the label 'ill' has values"),
    "no label at all": (("train", "unlabelled.csv", *TRAIN[2:]), "unlabelled.csv lacks the column 'ill'"),
    "another alphabet's bytes": (("train", "latin.csv", *TRAIN[2:]), "latin.csv is not text in UTF-8"),
    "a schema of another study": ((*TRAIN[:3], "foreign.toml", *TRAIN[4:]), "lacks the column 'income'"),
    "a schema with gaps": ((*TRAIN[:3], "draft.toml", *TRAIN[4:]), "the schema lacks"),
    "a schema that is no TOML": (("schema", "check", "broken.toml"), "the schema is not TOML"),
    "a schema of no kind": (("schema", "check", "rows.csv"), "a schema file ends in .toml or .json"),
    "a label that is no column": (("schema", "draft", "rows.csv", "--label", "sick"), "has no column 'sick'"),
    "a corrupt model": (("predict", "corrupt.json", "other.csv"), "corrupt.json: the model is not JSON"),
    "a table for a model": (("show", "rows.csv"), "rows.csv: the model is not JSON"),
    "a model of a newer format": (("show", "newer.json"), "newer.json: the model has format version 99"),
    "a model with a changed schema": (("show", "changed.json"), "changed.json: the model's schema hash"),
    "a changed account": (("ledger", "richer.json"), "richer.json: the training record's sums are wrong"),
    "a model without an account": (("ledger", "bare.json"), "bare.json does not say how it was trained"),
    "a database of another program": (("ledger", "foreign.db"), "foreign.db is no store of studies"),
    "rows of another study to predict": (("predict", "tree.json", "few.csv"), "few.csv lacks the column 'ward'"),
    "a kept column that is not there": ((*PREDICT, "--keep", "name"), "other.csv lacks the column 'name'"),
    "a kept column like the prediction": ((*PREDICT, "--keep", "ill"), "the column 'ill' cannot be kept"),
    "nothing on standard input": (("predict", "tree.json", "-"), "standard input: there is nothing in it"),
    "an evaluation without labels": (("evaluate", "tree.json", "unlabelled.csv"), "lacks the column 'ill'"),
    "an evaluation of no rows": (("evaluate", "tree.json", "header.csv"), "header.csv has no rows"),
    "a report of a missing model": (("report", "none.json", "--out", "new.html"), "there is no none.json"),
    "a full disk for the report": (("report", "tree.json", "--out", "/dev/full"), "no room on the disk for /dev/full"),
    "a report in no folder": (("report", "tree.json", "--out", "none/new.html"), "/none"),
    "another file for an evaluation": (
        ("report", "tree.json", "--evaluation", "rows.csv", "--out", "new.html"),
        "rows.csv is not what `hedgerow evaluate --json` prints",
    ),
    "an evaluation of another tree": (
        ("report", "tree.json", "--evaluation", "evaluation.json", "--out", "new.html"),
        "evaluation.json is about another tree",
    ),
    "the table for the model": ((*TRAIN[:5], "rows.csv"), "rows.csv is what this command reads"),
    "the table for the model, by force": ((*TRAIN[:5], "./rows.csv", "--force"), "rows.csv is what this command"),
    "the schema for the model": ((*TRAIN[:5], "schema.toml"), "schema.toml is what this command reads"),
    "a model where one is": ((*TRAIN[:5], "tree.json"), "tree.json is there already"),
    "predictions for the table": ((*PREDICT[:4], "other.csv"), "other.csv is what this command reads"),
    "the page for the model": (("report", "tree.json", "--out", "tree.json"), "tree.json is what this command reads"),
    "a draft where a schema is": (("schema", "draft", "rows.csv", "--out", "schema.toml"), "schema.toml is there"),
    "a draft of ragged lines": (("schema", "draft", "ragged.csv"), "ragged.csv: row 3 below the first line has 2 fields"),
    "a draft of another alphabet": (("schema", "draft", "latin.csv"), "latin.csv: it is not text in UTF-8"),
    "lines that end as on old Macs": (("train", "mac.csv", *TRAIN[2:]), "mac.csv has a first line that cannot be"),
    "a ceiling below guessing": (("plan", "schema.toml", "--rows=9", "--ceiling=0.3"), "ceiling=0.3; it must be at least 1/2"),
    "no processes": (("reproduce", "--jobs=0", "--out", "new"), "0 processes do nothing"),
    "no auditors": (("audit", "--quick", "--jobs=0"), "0 processes do nothing"),
    "a damaged CSV of trees": (("reproduce", "--out", "damaged", "--runs=1", "--dataset=skin"), "line 2 of damaged/cells.csv"),
    "an empty CSV of trees": (("reproduce", "--out", "nothing", "--report"), "there is no cells.csv in nothing"),
    "a model on standard output": ((*TRAIN[:5], "-"), "--out - is no file"),
    "a report on standard output": (("report", "tree.json", "--out", "-"), "--out - is no file"),
    "a draft that is no TOML": (("schema", "draft", "rows.csv", "--out", "d.json"), "must end in .toml"),
    "a schema of another alphabet": (("schema", "check", "latin.toml"), "'latin.toml' is not a text file in UTF-8"),
    "a folder that has no name": (("train", ".", *TRAIN[2:]), ". is neither .csv nor .parquet"),
    "somebody else's page": (("reproduce", "--out", "notes", "--report"), "notes.md is where the report would go"),
}  # fmt: skip


@pytest.fixture
def mistakes(study: Path) -> Path:
    """The study, and files that are wrong in one way each."""
    for name in ("folder.csv", "folder.parquet", "folder.toml", "folder.json"):
        (study / name).mkdir()
    (study / "full.csv").symlink_to("/dev/full")
    rows = patients(20)
    header = ",".join(rows.columns)
    texts = {
        "empty.csv": "",
        "empty.parquet": "",
        "header.csv": f"{header}\n",
        "text.parquet": rows.to_csv(index=False),
        "ragged.csv": f"{header}\n0,1,male,1,no\n1,1,male,1,no\n2,50\n",
        "twice.csv": "number,age,sex,ward,age,ill\n0,1,male,1,2,no\n",
        "few.csv": rows.drop(columns="ward").to_csv(index=False),
        "words.csv": rows.assign(age="old").to_csv(index=False),
        "labels.csv": rows.assign(ill="maybe").to_csv(index=False),
        "unlabelled.csv": rows.drop(columns="ill").to_csv(index=False),
        "mac.csv": f"{header}\r0,1,male,1,no\r",
        "notes.md": "Mine.\n",
        "evaluation.json": json.dumps({"accuracy": 0.5, "tree": "another"}),
        "broken.toml": "label = ",
        "draft.toml": 'version = 1\nlabel = "ill"\n[[columns]]\nname = "age"\nkind = "numeric"\n',
        "foreign.toml": Schema([Numeric("income", 0, 1)], label="rich", classes=[0, 1]).to_toml(),
    }
    for name, text in texts.items():
        (study / name).write_text(text)
    for name, text in (("damaged", "dataset\nskin,hedgerow\n"), ("nothing", "")):
        (study / name).mkdir()
        (study / name / "cells.csv").write_text(text)
    (study / "latin.toml").write_bytes('label = "krank für"'.encode("latin-1"))
    (study / "latin.csv").write_bytes(f"{header}\n0,1,män,1,no\n".encode("latin-1"))
    rows.assign(age="old").to_parquet(study / "words.parquet")
    model = (study / "tree.json").read_text()
    plain = json.loads(model)
    (study / "corrupt.json").write_text(model[: len(model) // 2])
    models = {
        "newer": plain | {"version": 99},
        "changed": plain | {"schema": plain["schema"] | {"classes": ["yes", "no"]}},
        "bare": {key: value for key, value in plain.items() if key != "training"},
    }
    plain["training"]["holders"][0]["spent"] = "1/7"
    for name, changed in (models | {"richer": plain}).items():
        (study / f"{name}.json").write_text(json.dumps(changed))
    with sqlite3.connect(study / "foreign.db") as database:
        database.execute("CREATE TABLE studies (name TEXT)")
    return study


def contents(folder: Path) -> dict[str, bytes | None]:
    return {str(path): path.read_bytes() if path.is_file() else None for path in sorted(folder.rglob("*"))}


@pytest.mark.parametrize(("args", "culprit"), WRONG.values(), ids=WRONG)
def test_a_mistake_ends_in_a_sentence(mistakes, args, culprit):
    before = contents(mistakes)
    result = hedgerow(*args)
    assert result.exit_code in {1, 2}
    assert culprit in result.stderr
    assert "Traceback" not in result.output
    assert not result.stdout
    assert len(result.stderr.splitlines()) == 1
    assert contents(mistakes) == before


@pytest.mark.parametrize("name", ["epsilon -1", "ragged lines", "epsilon in words", "a corrupt model"])
def test_a_mistake_is_json_too_where_that_was_asked_for(mistakes, name):
    args, culprit = WRONG[name]
    command = ("evaluate", *args[1:]) if args[0] == "predict" else args
    result = hedgerow(*command, "--json")
    assert result.exit_code in {1, 2}
    assert not result.stdout  # which may be shown to anyone
    assert json.loads(result.stderr).keys() == {"error"}
    assert culprit in json.loads(result.stderr)["error"]


def test_no_error_quotes_a_row(mistakes):
    secret = "Zanzibarrow"
    (mistakes / "a.csv").write_text(f"number,age,sex,ward,ill\n0,{secret},male,1,no\n")
    (mistakes / "b.csv").write_text(f"number,age,sex,ward,ill\n0,1,male,1,{secret}\n")
    (mistakes / "c.csv").write_text(f"number,age,sex,ward,ill\n0,1,{secret}\n")
    (mistakes / "d.csv").write_text(f"0,2,{secret},1,no\n")  # without names, the first line is a row
    (mistakes / "e.csv").write_text(f"0,{secret},{secret},1,no\n")
    commands = [("train", name, *TRAIN[2:]) for name in ("a.csv", "b.csv", "c.csv", "d.csv", "e.csv")]
    for command in (*commands, ("schema", "draft", "d.csv", "--label", "ill")):
        result = hedgerow(*command)
        assert result.exit_code == 1
        assert secret not in result.output


def test_a_file_that_may_not_be_read_is_named(study, monkeypatch):
    may = Path.open

    def may_not(path: Path, *args, **more):
        if path.name == "rows.csv":
            raise PermissionError(13, "Permission denied", str(path))
        return may(path, *args, **more)

    monkeypatch.setattr(Path, "open", may_not)
    result = hedgerow(*TRAIN)
    assert result.exit_code == 1
    assert "rows.csv may not be opened by this user" in result.stderr
    assert not Path("new.json").exists()


@pytest.mark.usefixtures("study")
@pytest.mark.parametrize(
    ("command", "extra"),
    [
        (["reproduce", "--report"], "experiments"),
        (
            ["plan", "schema.toml", "--rows", "1000000000000000", "--plot", "plan.png"],
            "plot",
        ),  # before any work
    ],
)
def test_a_package_that_is_not_installed_is_named(command, extra):
    program = "import sys; sys.modules['matplotlib'] = None; from hedgerow.cli import app; app(sys.argv[1:])"
    result = subprocess.run(
        [sys.executable, "-c", program, *command], capture_output=True, text=True, check=False
    )
    assert result.returncode == 1
    assert f"the package matplotlib: pip install 'hedgerow[{extra}]'" in result.stderr
    assert result.stderr.count("\n") == 1


PROGRAM = (sys.executable, "-c", "import sys; from hedgerow.cli import app; app(sys.argv[1:])")


@pytest.mark.parametrize("args", [(*TRAIN, "--json"), PREDICT[:3], ("show", "none.json", "--json")])
def test_a_full_disk_behind_standard_output_ends_in_a_sentence(study, args):
    with Path("/dev/full").open("wb") as full:
        result = subprocess.run(
            [*PROGRAM, *args], stdout=full, stderr=subprocess.PIPE, text=True, check=False
        )
    assert result.returncode == 1
    assert len(result.stderr.splitlines()) == 1
    assert "standard output" in result.stderr or "none.json" in result.stderr


@pytest.mark.parametrize(
    "args", [("predict", "tree.json", "-"), ("train", "-", "--schema", "schema.toml", "--force")]
)
def test_what_comes_by_standard_input_is_not_written_over(study, args):
    before = contents(study)
    with Path("rows.csv").open("rb") as rows:
        command = [*PROGRAM, *args, "--out", "rows.csv"]
        result = subprocess.run(command, stdin=rows, capture_output=True, text=True, check=False)
    assert result.returncode == 1
    assert "rows.csv is what this command reads" in result.stderr
    assert contents(study) == before


def test_an_interrupted_training_leaves_nothing(study):
    patients(300_000).to_csv("rows.csv", index=False)
    before = contents(study)
    process = subprocess.Popen([*PROGRAM, *TRAIN], stderr=subprocess.PIPE, text=True)
    while process.poll() is None and not list(study.glob(".new.json.*")):
        time.sleep(0.01)
    process.send_signal(signal.SIGINT)
    _, told = process.communicate()
    assert process.returncode == 130
    assert "Traceback" not in told
    assert contents(study) == before


@pytest.mark.parametrize("out", ["tree.json", "new.json"])
def test_a_disk_that_fills_up_half_way_leaves_what_was_there(study, out):
    """The system stops the write after 1,000 bytes, as a full disk would."""
    before = contents(study)

    def limit() -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (1_000, 1_000))

    command = [*PROGRAM, *TRAIN[:5], out, "--force"]
    result = subprocess.run(command, preexec_fn=limit, capture_output=True, text=True, check=False)
    assert result.returncode == 1
    assert f"{out} cannot be used: File too large" in result.stderr
    assert "Traceback" not in result.stderr
    assert contents(study) == before
