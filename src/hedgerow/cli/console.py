"""What all commands share: where they print, how they show that they are at work, and how a mistake ends.

Results go to standard output, everything else to standard error.
"""

from __future__ import annotations

import errno
import json
import os
import sys
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from threading import Timer
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn
from rich.table import Table as RichTable
from typer.core import TyperGroup

from hedgerow.errors import HedgerowError, NotPrivateWarning, OwnerWarning
from hedgerow.files import STANDARD

console = Console()
to_owner = Console(stderr=True)


def _at_least_one(jobs: int) -> int:
    if jobs == 0:
        raise typer.BadParameter("0 processes do nothing; name a number, or -1 for one a core.")
    return jobs


AsJson = Annotated[bool, typer.Option("--json", help="Print JSON instead of text.")]
Jobs = Annotated[int, typer.Option(help="Processes; -1 for one a core.", callback=_at_least_one)]
LineBreaks = Annotated[
    bool,
    typer.Option(
        "--line-breaks",
        help="Values of a CSV file may have line breaks between quotes. For files that a program wrote: one stray "
        "quote can change many rows.",
    ),
]
Force = Annotated[bool, typer.Option("--force", help="Write over a file that is there already.")]

USAGE = 2  # the exit code of a command that was written wrongly; of everything else that fails it is 1
# Typer brings a Click of its own, or did not in older versions; this names the class in both.
UsageError: type[Exception] = typer.BadParameter.__mro__[1]
PATIENCE = 1.0  # seconds without a word
WIDE = 10_000  # characters
EXTRAS = dict.fromkeys(("matplotlib", "pandas", "lightgbm"), "'hedgerow[experiments]'") | {
    "grpc": "'hedgerow[network]'",
    "cryptography": "'hedgerow[network]'",
    "nvflare": "'hedgerow[flare]'",
}


class OneSentence(TyperGroup):
    """Commands in which a user's mistake ends in one sentence, as JSON too where that was asked for."""

    def invoke(self, ctx: Any) -> Any:
        """Run the command."""
        as_json = "--json" in ctx.args
        try:
            with _warnings_as_hints():
                return super().invoke(ctx)
        except (HedgerowError, OSError, MemoryError, ModuleNotFoundError, UsageError) as error:
            is_ours = isinstance(error, ModuleNotFoundError) and str(error.name).startswith("hedgerow")
            if is_ours or isinstance(error, BrokenPipeError):  # a bug; a reader that has seen enough
                raise
            reason = _sentence(error)
            # For the owner of the rows: what is wrong with a table is a fact about it.
            hint(json.dumps({"error": reason}) if as_json else reason)
            raise typer.Exit(USAGE if isinstance(error, UsageError) else 1) from None


@contextmanager
def _warnings_as_hints() -> Iterator[None]:
    """Warnings of ours are sentences for the owner of the rows; where in the code they arose is nothing to them."""
    show = warnings.showwarning

    def tell(message: Warning | str, category: type[Warning], *where: Any, **more: Any) -> None:
        if issubclass(category, (NotPrivateWarning, OwnerWarning)):
            hint(str(message))
        else:
            show(message, category, *where, **more)

    with warnings.catch_warnings():
        warnings.showwarning = tell
        yield


def _sentence(error: BaseException) -> str:
    match error:
        case ModuleNotFoundError(name=str(name)):
            package = name.partition(".")[0]
            return f"this needs the package {package}: pip install {EXTRAS.get(package, package)}"
        case MemoryError():
            return "there is not enough memory for these rows."
        case OSError(errno=int(number)):
            what = "standard output" if error.filename is None else error.filename
            return _WHY.get(number, "{} cannot be used: " + str(error.strerror) + ".").format(what)
        case _:
            format_message = getattr(error, "format_message", error.__str__)
            return str(format_message())


_WHY = {
    errno.ENOENT: "there is no {}; check how it is written, or make it first.",
    errno.EISDIR: "{} is a folder; name a file.",
    errno.ENOTDIR: "{} lies below a file; name a folder that is there.",
    errno.EACCES: "{} may not be opened by this user; ask for the right to, or name another.",
    errno.ENOSPC: "there is no room on the disk for {}; nothing was kept of it.",
}


def say(text: str) -> None:
    """Print for people, with nothing in the text taken for markup."""
    console.print(text, markup=False, highlight=False, soft_wrap=True)


def hint(text: str) -> None:
    """Tell the owner of the rows something that is no part of the result."""
    to_owner.print(text, markup=False, highlight=False, soft_wrap=True)


def show_table(table: RichTable) -> None:
    """Print a table; in a file nothing of it is cut off."""
    (console if console.is_terminal else Console(width=WIDE)).print(table)


def print_json(value: Any) -> None:
    """Print for machines."""
    sys.stdout.write(json.dumps(value, indent=1, allow_nan=False) + "\n")
    sys.stdout.flush()


def file_status(path: str | Path) -> list[os.stat_result]:
    """Of a file that is there, or of what stands behind standard input."""
    try:
        return [os.fstat(sys.stdin.fileno()) if str(path) == STANDARD else Path(path).stat()]
    except (OSError, ValueError):  # there is none
        return []


def check_out(
    out: Path | None, inputs: Sequence[str | Path], *, force: bool = True, prints: bool = False
) -> None:
    """Refuse to write over what the command reads, unless forced over any file, and to a file called -."""
    if str(out) == STANDARD and not prints:
        raise HedgerowError("--out - is no file, and this cannot be printed; name a file.")
    if out is None or not out.is_file():
        return
    if any(os.path.samestat(out.stat(), status) for path in inputs for status in file_status(path)):
        raise HedgerowError(f"{out} is what this command reads; write to another file.")
    if not force:
        raise HedgerowError(f"{out} is there already; write to another file, or over it with --force.")


@contextmanager
def progress(what: str) -> Iterator[Callable[[float | None], None]]:
    """A bar on the owner's terminal from the second second on; called with the share that is done."""
    columns = (TextColumn("{task.description}"), BarColumn(), TimeElapsedColumn(), TimeRemainingColumn())
    bar = Progress(*columns, console=to_owner, transient=True, disable=not to_owner.is_terminal)
    task = bar.add_task(what, total=None)
    late = Timer(PATIENCE, bar.start)
    late.start()
    try:
        yield lambda done: bar.update(task, completed=done or 0.0, total=None if done is None else 1.0)
    finally:
        late.cancel()
        late.join()
        bar.stop()
