"""Files that appear as a whole or not at all. Anything may import this module; it imports nothing."""

from __future__ import annotations

import errno
import os
import secrets
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

STANDARD = "-"  # input or output, in place of a file
FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


@contextmanager
def replacing(path: str | Path) -> Iterator[BinaryIO]:
    """A file to write to that takes the place of `path` when all of it is written, and vanishes otherwise.

    Begun before the work whose result it will hold, it fails before the work does. Errors name `path`.
    """
    target = Path(path).resolve()  # behind a link, the file is replaced and the link stays
    beside = target.parent / f".{target.name}.{secrets.token_hex(4)}"
    try:
        if target.exists() and not target.is_file():
            with target.open("wb") as device:  # a pipe or a device keeps its place; a folder is refused here
                yield device
            return
        try:
            with beside.open("xb") as file:
                yield file
                file.flush()
                os.fsync(file.fileno())
            if target.exists():
                beside.chmod(stat.S_IMODE(target.stat().st_mode))
            beside.replace(target)
        finally:
            beside.unlink(missing_ok=True)
    except OSError as error:
        named = error.filename is not None and Path(error.filename) in {target, beside}
        if not named and (error.filename is not None or error.errno not in FULL):
            raise  # of a file that was read meanwhile
        culprit = target.parent if isinstance(error, FileNotFoundError) else path
        raise OSError(error.errno, error.strerror, str(culprit)) from error


def write_text(path: str | Path, text: str) -> None:
    """Write a file of UTF-8 text, as a whole or not at all."""
    with replacing(path) as file:
        file.write(text.encode("utf-8"))
