"""What all studies of a store have spent, counted a second time, in a file far from the store.

Whoever puts an older store in the place of a newer one makes it forget what was spent since; the counter remembers.
Imports `errors` and `own_files`.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path

from hedgerow.errors import InvalidStore
from hedgerow.holder.own_files import check_own, open_own


@dataclass(frozen=True)
class Total:
    """How many bookings there ever were, and what all studies together have spent."""

    bookings: int
    spent: Fraction

    def __str__(self) -> str:
        return f"{self.bookings} bookings, epsilon {float(self.spent):g}"

    def is_older_than(self, other: Total) -> bool:
        """Both numbers only ever grow."""
        return self.bookings < other.bookings or self.spent < other.spent


class Counter:
    """The counter of one store, which its identifier names; by default in the user's folder for state.

    A number is written beside it first (`prepare`), so that what can go wrong does so before a charge counts, and takes
    its place when the charge is on disk (`settle`). So the counter may be behind its store, after a crash between the
    two, and is never ahead of it, unless the store is an older one. Whoever calls has the store's lock for writing.
    """

    def __init__(
        self, folder: Path | None, identifier: str, store: Path, tell: Callable[[str], None]
    ) -> None:
        self._folder = folder
        self._identifier = identifier
        self._store = store
        self.tell = tell

    @property
    def path(self) -> Path:
        """Its file."""
        return (self._folder or state_folder()) / f"{self._identifier}.json"

    def difference(self, total: Total) -> str:
        """In what the store, which has spent `total`, and its counter differ; empty if they agree. Refuses an older store."""
        counted = self._read()
        if counted is None:
            if not total.bookings:
                return ""
            return (
                f"There is no counter {self.path} of what {self._store} has spent ({total}), so nobody can tell whether "
                "this is the newest journal. So it is on a new machine, and for a new user. A counter is begun when a "
                "study is opened."
            )
        if total.is_older_than(counted):
            raise InvalidStore(
                f"the journal {self._store} ({total}) is older than its counter {self.path} ({counted}): it has "
                "forgotten what was spent since. Put the newest journal back. If there is none, take what is missing off "
                "lifetime_epsilon, and then remove the counter."
            )
        if total == counted:
            return ""
        return (
            f"The counter {self.path} ({counted}) is behind the journal {self._store} ({total}), as after a crash. It "
            "catches up when a study is opened."
        )

    def begin(self, total: Total, writer: int) -> None:
        """Refuse an older store; bring the counter up to date, and tell the owner if it was not."""
        if difference := self.difference(total):
            self.tell(difference)
        if self._read() != total:
            self._replace(self.prepare(total, writer))

    def _read(self) -> Total | None:
        """The number that was written last; None if there is none."""
        with self._sentences():
            check_own(self.path.parent)
            check_own(self.path)
            try:
                text = self.path.read_text(encoding="utf-8")
            except FileNotFoundError:
                return None
        try:
            plain = json.loads(text)
            return Total(int(plain["bookings"]), Fraction(plain["spent"]))
        except (ValueError, TypeError, LookupError, ZeroDivisionError):
            raise InvalidStore(
                f"the counter {self.path} cannot be read; if the journal is the newest there is, remove the counter."
            ) from None

    def prepare(self, total: Total, writer: int) -> Path:
        """A file with a new number, on disk; writers that differ do not write over one another's."""
        with self._sentences():
            self.path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            check_own(self.path.parent)
            new = self.path.with_name(f"{self._identifier}-{writer}.new")
            check_own(new)
            plain = {"bookings": total.bookings, "spent": str(total.spent)}
            with os.fdopen(open_own(new, os.O_WRONLY | os.O_TRUNC), "w", encoding="utf-8") as file:
                json.dump(plain, file)
                file.flush()
                os.fsync(file.fileno())
            return new

    def settle(self, new: Path, total: Total) -> None:
        """Let `total`, as it was prepared, take its place, unless another study has counted more since."""
        known = self._read()
        if known is None or known.is_older_than(total):
            self._replace(new)

    def _replace(self, new: Path) -> None:
        with self._sentences():
            new.replace(self.path)

    @contextmanager
    def _sentences(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            raise InvalidStore(
                f"what was spent cannot be counted a second time in {self.path.parent} ({error.strerror}); let "
                "XDG_STATE_HOME, or `counter` in a site's hedgerow.toml, name a folder that this user may write to."
            ) from error


def state_folder() -> Path:
    """Where programs of this user keep what must outlast them (XDG Base Directory Specification)."""
    named = Path(os.environ.get("XDG_STATE_HOME", ""))
    try:
        base = named if named.is_absolute() else Path.home() / ".local" / "state"
    except RuntimeError:
        raise InvalidStore(
            "this user has no home; let XDG_STATE_HOME name a folder that this user may write to."
        ) from None
    return base / "hedgerow"
