"""What all commands share: where they print, and how a mistake ends."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import typer
from rich.console import Console

from hedgerow.errors import HedgerowError

console = Console()


@contextmanager
def one_sentence() -> Iterator[None]:
    """End in one sentence where a user's mistake, or a library that only some commands need, is the reason."""
    try:
        yield
    except HedgerowError as error:
        console.print(str(error), markup=False, highlight=False, soft_wrap=True)
        raise typer.Exit(code=1) from None
    except ModuleNotFoundError as error:
        console.print(f"{error}; install hedgerow[experiments].", markup=False)
        raise typer.Exit(code=1) from None
