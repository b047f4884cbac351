"""What a site says, on its own console and nowhere else.

Every line is ours: with date and zone, without control characters. In a file, the last two million bytes are kept.
"""

from __future__ import annotations

import os
import sys
import time
from contextlib import suppress
from pathlib import Path

from hedgerow.errors import HedgerowError

MOST_BYTES = 2**20  # of a log; the one before it is kept too
_log: Path | None = None


def log_to(path: Path) -> None:
    """Send all that this process says, or prints by accident, to a file of the owner's alone."""
    global _log  # noqa: PLW0603 - a process has one console
    _log = path
    _reopen()


def say(text: str) -> None:
    """Tell the holder. A full disk loses the line, and nothing else."""
    line = f"{time.strftime('%Y-%m-%d %H:%M:%S %z')} hedgerow: {printable(text)}"
    with suppress(OSError):
        if _log is not None and os.fstat(sys.stdout.fileno()).st_size > MOST_BYTES:
            with suppress(FileNotFoundError):  # its owner has removed it
                _log.replace(_log.with_name(f"{_log.name}.1"))
            _reopen()
        print(line, flush=True)  # noqa: T201


def printable(text: str) -> str:
    """A text in which nothing moves the cursor, begins a line or changes a colour."""
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)


def plain_error(error: BaseException) -> str:
    """An error for the console: our own sentences as they are, of any other its kind and place only.

    The text of a foreign exception may quote what it tripped over, which may be a row.
    """
    if isinstance(error, HedgerowError):
        return str(error)
    trace = error.__traceback__
    place = "unknown"
    while trace is not None:
        place = f"{Path(trace.tb_frame.f_code.co_filename).name}, line {trace.tb_lineno}"
        trace = trace.tb_next
    return f"{type(error).__name__} in {place}."


def _reopen() -> None:
    assert _log is not None
    flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | getattr(os, "O_NOFOLLOW", 0)
    number = os.open(_log, flags, 0o600)
    for standard in (1, 2):
        os.dup2(number, standard)
    os.close(number)
