"""The README and the guide do what they say: every block of a page is run, in an empty folder, in its order.

A Python block knows the names of those before it, a block with a title is a file, a line of `sh` is a command; one that
is to fail says so: `# ends with 1`. A block of `text` is what the block before it prints: its lines must be among the
printed ones, numbers aside (they are noisy; not after `<!-- seeded -->`) and trees aside. `<!-- not run: reason -->`
leaves a block out.
"""

from __future__ import annotations

import contextlib
import io
import re
import shlex
import subprocess
from dataclasses import dataclass
from pathlib import Path

import pytest
import typer
from typer.testing import CliRunner

from hedgerow.cli import app

ROOT = Path(__file__).parents[1]
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", ROOT / "docs" / "index.md"]
PAGES += sorted((ROOT / "docs" / "guide").glob("*.md"))
ALL_PAGES = [
    *PAGES,
    *sorted((ROOT / "docs").glob("*.md")),
    *sorted((ROOT / "docs" / "reference").glob("*.md")),
]
NEEDS = {"network.md": "grpc"}  # an extra that not every installation has

BLOCK = re.compile(
    r"(?:^<!-- not run: (?P<reason>[^\n]+) -->\n)?(?:^<!-- (?P<seeded>seeded) -->\n)?"
    r'^```(?P<language>\w+)(?: title="(?P<title>[^"\n]+)")?\n(?P<text>.*?)^```$',
    re.DOTALL | re.MULTILINE,
)
NUMBER = re.compile(r"\d[\d.,]*(?:e[+-]?\d+)?")
FEW = 6
COMMAND = typer.main.get_command(app)


@dataclass(frozen=True)
class Block:
    language: str
    text: str
    title: str | None
    reason: str | None  # why it is not run
    seeded: bool
    line: int


def blocks(page: Path) -> list[Block]:
    whole = page.read_text(encoding="utf-8")
    return [
        Block(
            b["language"],
            b["text"],
            b["title"],
            b["reason"],
            bool(b["seeded"]),
            whole.count("\n", 0, b.start("text")) + 1,
        )
        for b in BLOCK.finditer(whole)
    ]


def commands(text: str) -> list[str]:
    lines = text.replace("\\\n", " ").splitlines()
    return [line for line in lines if line.strip() and not line.lstrip().startswith("#")]


class Reader:
    """Somebody who does what a page says, to the letter."""

    def __init__(self) -> None:
        self.names: dict[str, object] = {"__name__": "__main__"}

    def follow(self, page: Path, block: Block) -> str:
        """Run a block; what it printed."""
        if block.title is not None:
            Path(block.title).parent.mkdir(parents=True, exist_ok=True)
            Path(block.title).write_text(block.text, encoding="utf-8")
            return ""
        if block.language == "python":
            code = compile("\n" * (block.line - 1) + block.text, page, "exec")
            with contextlib.redirect_stdout(io.StringIO()) as printed:
                exec(code, self.names)
            return printed.getvalue()
        return "".join(self._type(command) for command in commands(block.text))

    def _type(self, command: str) -> str:
        told = re.search(r"# ends with (\d)", command)
        words = shlex.split(command, comments=True)
        files = {sign: words[words.index(sign) + 1] for sign in "<>" if sign in words}
        for sign, file in files.items():
            del words[words.index(sign) : words.index(sign) + 2]
            assert file not in words
        program, *args = words
        if program == "make":  # what it would do: that is in a test of its own, or is all tests
            found = subprocess.run(
                ["make", "-n", *args], cwd=ROOT, capture_output=True, text=True, check=False
            )
            assert found.returncode == 0, found.stderr
            return ""
        assert program == "hedgerow", f"{command}: say in a comment before the block why it is not run"
        given = Path(files["<"]).read_bytes() if "<" in files else None
        result = CliRunner().invoke(app, args, input=given, catch_exceptions=False)
        assert result.exit_code == (int(told[1]) if told else 0), f"{command}\n{result.output}"
        if ">" in files:
            Path(files[">"]).write_bytes(result.stdout_bytes)
            return result.stderr
        return result.output


def shape(line: str, *, numbers: bool = False) -> str:
    words = re.sub(r"[│┃┏┓┡┩└┘├┤━─┳╇┴┼]", " ", line)
    return " ".join((words if numbers else NUMBER.sub("#", words)).split())


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_a_reader_who_does_what_the_page_says_sees_what_it_shows(page, tmp_path, monkeypatch):
    if page.parent.name == "guide" and page.name in NEEDS:
        pytest.importorskip(NEEDS[page.name])
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("MPLBACKEND", "agg")
    monkeypatch.setenv("COLUMNS", "120")
    reader, printed = Reader(), ""
    for block in blocks(page):
        if block.reason is not None:
            printed = ""
        elif block.language == "text":
            shapes = {shape(line, numbers=block.seeded) for line in printed.splitlines()}
            for line in block.text.splitlines():
                if line.strip() not in {"", "..."} and not line.startswith("|"):
                    found = shape(line, numbers=block.seeded) in shapes
                    assert found, f"{page.name}:{block.line}: {line}\nis not in\n{printed}"
        elif block.language in {"python", "sh"} or block.title is not None:
            printed = reader.follow(page, block)


def test_few_blocks_are_not_run_and_all_of_them_say_why():
    left_out = [(page.name, block) for page in PAGES for block in blocks(page) if block.reason is not None]
    assert len(left_out) <= FEW, [name for name, _ in left_out]
    assert all(len(block.reason.split()) >= 4 for _, block in left_out)


def test_every_block_is_of_a_known_kind():
    for page in PAGES:
        fences = re.findall(r"^ *```", page.read_text(encoding="utf-8"), re.MULTILINE)
        assert len(fences) == 2 * len(blocks(page)), f"{page.name} has a block that the pattern does not see"
        known = {"python", "sh", "text", "toml", "sql"}
        assert {block.language for block in blocks(page)} <= known, page.name


def test_every_command_of_every_page_is_one_that_there_is():
    # Also those that are not run: their words and options exist.
    seen = 0
    for page in ALL_PAGES:
        for line in page.read_text(encoding="utf-8").replace("\\\n", " ").splitlines():
            command = re.match(r"(?: {4})?(hedgerow [^>|<…]+)", line)
            if command is None or "..." in line:
                continue
            parse(shlex.split(command[1], comments=True)[1:])
            seen += 1
    assert seen >= 40


def parse(words: list[str]) -> None:
    """Parse a command as if it were run; a word or an option that is not there raises."""
    command, context = COMMAND, None
    while hasattr(command, "get_command"):
        context = command.make_context("hedgerow", list(words), parent=context)
        name, command, words = command.resolve_command(context, words)
    command.make_context(name, list(words), parent=context)


def test_a_command_that_is_not_there_would_be_found():
    with pytest.raises(Exception, match="No such option"):
        parse(["train", "rows.csv", "--schema", "schema.toml", "--privacy", "1"])
    with pytest.raises(Exception, match="No such command"):
        parse(["schema", "guess", "rows.csv"])


def test_the_reference_names_every_command():
    page = (ROOT / "docs" / "reference" / "commands.md").read_text(encoding="utf-8")

    def leaves(command, path):
        if not hasattr(command, "commands"):
            return [path]
        return [leaf for name, below in command.commands.items() for leaf in leaves(below, f"{path} {name}")]

    missing = [name for name in leaves(COMMAND, "hedgerow") if f"`{name}`" not in page]
    assert missing == []
