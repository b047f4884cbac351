"""The pages name tests; they exist. And every theorem of ours names at least one."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PAGES = sorted((ROOT / "docs").glob("*.md"))
NAMED = re.compile(r"`(tests/[\w/]+\.py)(?:::(\w+))?`")


def names(path: Path) -> set[str]:
    """What a module defines: functions, classes, and names that are given to things (state machines' tests)."""
    nodes = list(ast.walk(ast.parse(path.read_text(encoding="utf-8"))))
    defined = {node.name for node in nodes if isinstance(node, ast.FunctionDef | ast.ClassDef)}
    return defined | {
        node.id for node in nodes if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)
    }


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_every_test_that_a_page_names_exists(page):
    for file, test in NAMED.findall(page.read_text(encoding="utf-8")):
        assert (ROOT / file).is_file(), file
        assert not test or test in names(ROOT / file), f"{file}::{test}"


@pytest.mark.parametrize(("name", "at_least"), [("privacy.md", 10), ("theory.md", 6)])
def test_every_theorem_names_a_test(name, at_least):
    page = (ROOT / "docs" / name).read_text(encoding="utf-8")
    theorems = re.split(r"\n\*\*(?=Theorem|Lemma)", page)[1:]
    assert len(theorems) >= at_least
    for theorem in theorems:
        here = theorem.split("\n## ")[0]
        assert any(test for _, test in NAMED.findall(here)), here[:60]
