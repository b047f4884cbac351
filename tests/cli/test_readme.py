"""The README's commands do what it says, in the order it says."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pandas as pd

from hedgerow.datasets import synthetic_hospitals

from .conftest import hedgerow

README = Path(__file__).parents[2] / "README.md"


def commands() -> list[list[str]]:
    section = README.read_text(encoding="utf-8").partition("## From the command line")[2]
    block = re.search(r"```sh\n(.*?)```", section, re.DOTALL)
    assert block is not None
    return [shlex.split(line, comments=True) for line in block[1].splitlines()]


def test_the_commands_of_the_readme_work(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    hospitals = synthetic_hospitals(1, rows=4_000)
    names, label = list(hospitals.schema.names), hospitals.schema.label
    tables = {"rows.csv": hospitals.holders[0], "test.csv": (hospitals.test_table, hospitals.test_labels)}
    for path, (table, labels) in tables.items():
        pd.DataFrame(table, columns=names).assign(**{label: labels}).to_csv(path, index=False)
    lines = commands()
    assert len(lines) >= 8
    for program, *words in lines:
        assert program == "hedgerow"
        args, to = (words[:-2], words[-1]) if ">" in words else (words, None)
        result = hedgerow(*args)
        if args[:2] == ["schema", "check"]:
            assert result.exit_code == 1
            assert "column 'age' lacks high, low." in result.stderr
            hospitals.schema.save("schema.toml")  # a person fills it in
            result = hedgerow(*args)
        assert result.exit_code == 0, result.output
        if to is not None:
            Path(to).write_text(result.stdout)
    written = {"schema.toml", "tree.json", "predictions.csv", "evaluation.json", "report.html"}
    assert {path.name for path in tmp_path.iterdir()} == {*tables, *written}
    assert len(pd.read_csv("predictions.csv")) == len(hospitals.test_labels)
