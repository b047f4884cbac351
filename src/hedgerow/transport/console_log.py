"""What a site says, on its own console and nowhere else.

A site's main process imports this module: it stays light.
"""

from __future__ import annotations

import time
from pathlib import Path

from hedgerow.errors import HedgerowError


def say(text: str) -> None:
    """Tell the holder, on its own console and nowhere else."""
    print(f"{time.strftime('%H:%M:%S')} hedgerow: {text}", flush=True)  # noqa: T201


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
