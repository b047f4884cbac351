"""Files of a holder that no other user may change: checks of who owns them, and the key of a store.

Imports `errors` alone.
"""

from __future__ import annotations

import os
import secrets
import stat
from contextlib import suppress
from pathlib import Path

from hedgerow.errors import InvalidStore

OWN = 0o600  # a file that its user alone may read and write
OTHERS_WRITE = stat.S_IWGRP | stat.S_IWOTH
OTHERS_READ = stat.S_IRGRP | stat.S_IROTH
KEY_BYTES = 32


def check_own(path: Path, *, secret: bool = False) -> None:
    """Refuse a file or folder, if it is there, that is a link, another user's, or open to others.

    Others may write to a folder if it is sticky, as /tmp is: there they cannot touch files that are not theirs. What is
    `secret` they may not read either. Systems other than POSIX have other rights, and are not asked.
    """
    if os.name != "posix":
        return
    try:
        found = path.lstat()
    except FileNotFoundError:
        return
    if stat.S_ISLNK(found.st_mode):
        raise InvalidStore(f"{path} is a link; put what it points to in its place, or name that instead.")
    if found.st_uid != os.geteuid():
        raise InvalidStore(
            f"{path} belongs to another user, who could change it; "
            "let the user that runs this own it (chown)."
        )
    is_sticky = stat.S_ISDIR(found.st_mode) and found.st_mode & stat.S_ISVTX
    if found.st_mode & OTHERS_WRITE and not is_sticky:
        raise InvalidStore(
            f"{path} may be written by other users, who could change it; "
            f"take that right away: chmod go-w {path}"
        )
    if secret and found.st_mode & OTHERS_READ:
        raise InvalidStore(f"{path} may be read by other users; take that right away: chmod 600 {path}")


def open_own(path: Path, flags: int) -> int:
    """A descriptor of a file that nobody else may read or write if it is new, and never of what a link points to."""
    return os.open(path, flags | os.O_CREAT | getattr(os, "O_NOFOLLOW", 0), OWN)


def make_key(path: Path) -> None:
    """A file of random bytes, which appears as a whole; one that is there already stays."""
    new = path.with_name(f".{path.name}.{secrets.token_hex(4)}")
    try:
        with os.fdopen(open_own(new, os.O_WRONLY | os.O_EXCL), "wb") as file:
            file.write(secrets.token_bytes(KEY_BYTES))
            file.flush()
            os.fsync(file.fileno())
        with suppress(FileExistsError):  # another process was quicker
            os.link(new, path)
    finally:
        new.unlink(missing_ok=True)


def read_key(path: Path) -> bytes:
    """The bytes of a key, if nobody else may read or change them."""
    check_own(path, secret=True)
    key = path.read_bytes()
    if len(key) != KEY_BYTES:
        raise InvalidStore(
            f"{path} is no key: it does not have {KEY_BYTES} bytes. Restore it from the backup."
        )
    return key
