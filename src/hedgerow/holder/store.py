"""The studies of one holder in one file: what was asked, what it cost, what was answered. SQLite.

A charge is on disk before noise is drawn, an answer before it leaves. So after a crash the file shows at
least every release, and whoever asks again gets the same answer. The file is the whole account. Keep it
as carefully as the rows: deleting it makes the holder forget what it has spent. That an older one was put in its place
is noticed by a counter that is kept elsewhere. The rows of a study are known by a hash, which is made with a key in a
file beside the store: a copy of the store alone does not tell whether the rows are those that somebody guesses.
"""

from __future__ import annotations

import hashlib
import json
import logging
import math
import os
import re
import secrets
import sqlite3
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict
from fractions import Fraction
from pathlib import Path
from typing import Any, Self

from hedgerow.errors import BudgetExceeded, HedgerowError, InvalidStore, Refused
from hedgerow.holder.counter import Counter, Total
from hedgerow.holder.counts import GroupedRows
from hedgerow.holder.desk import Desk, StudyGrant
from hedgerow.holder.holder import quote_of
from hedgerow.holder.own_files import OWN, check_own, make_key, open_own, read_key
from hedgerow.messages import VERSION as MESSAGES
from hedgerow.messages import Request, from_bytes
from hedgerow.privacy.ledger import Ledger
from hedgerow.privacy.noise import Noise
from hedgerow.repeated import Epsilon

LOG = logging.getLogger(__name__)

APPLICATION = 0x48656467  # "Hedg", where SQLite files name the program that they belong to
VERSION = 1000 * MESSAGES + 3  # of the messages in it, and of the tables
PATIENCE = 30.0  # seconds to wait for another process's transaction
SIDE_FILES = ("-journal", "-wal")  # SQLite's own: it gives them the store's mode, and believes what they say

TABLES = (
    """CREATE TABLE store (
        identifier TEXT NOT NULL  -- random: names the counter of what was spent
    )""",
    """CREATE TABLE studies (
        number INTEGER PRIMARY KEY,
        name TEXT NOT NULL UNIQUE,
        terms TEXT NOT NULL,  -- the grant, until the first question as it is today
        basis TEXT NOT NULL,  -- the rows that questions are about, by a hash with the key, and the kind of noise
        spent TEXT NOT NULL  -- an exact fraction
    )""",
    """CREATE TABLE requests (
        study INTEGER NOT NULL REFERENCES studies,
        place INTEGER NOT NULL,
        identifier TEXT NOT NULL,
        request BLOB NOT NULL,
        answer BLOB,
        PRIMARY KEY (study, place),
        UNIQUE (study, identifier)
    )""",
)


class StudyOpen(Refused):
    """A study is served already, here or by another process."""


class Store:
    """The file. All its studies together may spend `lifetime_epsilon`, each the largest sum along a path.

    `counter` is the folder in which the spending is counted a second time; by default it is the user's own for such
    things. What the owner should know but need not obey is given to `tell`.

    >>> store = Store("holder.db", lifetime_epsilon=Fraction(3))        # doctest: +SKIP
    >>> with store.open_study(grant) as study:                          # doctest: +SKIP
    ...     desk = study.desk(rows, SecureNoise())
    ...     answer = desk.handle(request)
    """

    def __init__(
        self,
        path: str | Path,
        *,
        lifetime_epsilon: Epsilon = math.inf,
        counter: Path | None = None,
        tell: Callable[[str], None] = LOG.warning,
    ) -> None:
        if not lifetime_epsilon > 0:
            raise ValueError(f"lifetime_epsilon={lifetime_epsilon!r}; it must be positive.")
        self.path = Path(path)
        self.lifetime_epsilon = lifetime_epsilon
        self._key_path = self.path.with_suffix(".key")
        is_begun = self._key_path.exists()  # a key is made when there is a store already
        try:
            for ours in (self.path.parent, self.path, *(Path(f"{self.path}{side}") for side in SIDE_FILES)):
                check_own(ours)
            if not self.path.exists():
                if is_begun:
                    raise InvalidStore(_LOST.format(store=self.path, key=self._key_path))
                _create(self.path)
        except OSError as error:
            raise InvalidStore(f"there can be no store of studies at {self.path}: {error}.") from error
        with _Connection(self.path) as database:
            _check(database)
            # No write-ahead log: whoever copies the file alone, at any moment, copies every charge.
            database.all("PRAGMA journal_mode = DELETE")
            self.counter = Counter(counter, _identifier(database), self.path, tell)

    def key(self) -> bytes:
        """What the hash of the rows is made with; made when the first study begins."""
        try:
            if not self._key_path.exists():
                with _Connection(self.path) as database:
                    if _total(database).bookings:
                        raise InvalidStore(_NO_KEY.format(key=self._key_path, store=self.path))
                make_key(self._key_path)
            return read_key(self._key_path)
        except OSError as error:
            raise InvalidStore(f"the key {self._key_path} cannot be used: {error.strerror}.") from error

    def difference(self) -> str:
        """In what the store and its counter differ, in words; empty if they agree. Refuses an older store.

        Nothing is made or changed.
        """
        with _Connection(self.path) as database, database.transaction():  # no charge comes between the two
            return self.counter.difference(_total(database))

    def spent(self) -> dict[str, Fraction]:
        """What each study has spent."""
        with _Connection(self.path) as database:
            return {name: _exact(spent) for name, spent in database.all("SELECT name, spent FROM studies")}

    def granted(self) -> dict[str, Fraction]:
        """What each study may spend."""
        with _Connection(self.path) as database:
            terms = database.all("SELECT name, terms FROM studies")
        return {name: _exact(_read(text).get("epsilon", 0)) for name, text in terms}

    def account(self, study: str) -> Ledger | None:
        """What a study has spent and on what, by its requests alone; None if it has asked nothing.

        Neither its rows nor its grant need to be there any more, and it may be open meanwhile.
        """
        with _Connection(self.path) as database:  # one statement: all of it is of one moment
            found = database.all(
                "SELECT terms, basis, spent, request FROM studies LEFT JOIN requests ON study = number "
                "WHERE name = ? ORDER BY place",
                study,
            )
        requests = [request for *_, request in found if request is not None]
        if not found or (not requests and found[0][2] == "0"):
            return None
        terms, basis, spent, _ = found[0]
        ledger = _follow(study, requests, _read(terms), _read(basis))
        _check_spent(study, ledger, _exact(spent))
        return ledger

    def check(self, grant: StudyGrant, rows: GroupedRows, noise: Noise) -> None:
        """Refuse what a study that goes on would be refused for, and leave everything as it is."""
        self.difference()
        if self.account(grant.study) is None:
            return
        with _Connection(self.path) as database:
            [[terms, basis]] = database.all("SELECT terms, basis FROM studies WHERE name = ?", grant.study)
        _check_unchanged(grant.study, "terms", terms, _terms(grant))
        _check_unchanged(grant.study, "basis", basis, _basis(rows, noise, self.key()))

    def open_study(self, grant: StudyGrant) -> StoredStudy:
        """The journal of a study, begun or continued; refused while anybody else has it open."""
        return StoredStudy(self, grant)


class StoredStudy:
    """The `Journal` of one study in a store."""

    def __init__(self, store: Store, grant: StudyGrant) -> None:
        self.grant = grant
        self._store = store
        self._database = _Connection(store.path)
        self._number = self._begin()
        self._lock = _lock(store.path, self._number, grant.study)
        try:
            with self._database.transaction() as database:
                store.counter.begin(_total(database), self._number)
            self._agree("terms", _terms(grant))
        except BaseException:
            self.close()
            raise
        # Another process that writes here all the same takes a place that this one believes to be free.
        [[self._place]] = self._database.all("SELECT count(*) FROM requests WHERE study = ?", self._number)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Let another process open the study."""
        self._database.close()
        self._lock.close()

    def desk(self, rows: GroupedRows, noise: Noise) -> Desk:
        """The desk that serves the study, and knows everything that was asked before.

        The rows must be the same as then: prices are added up along paths, and a row that has changed its side of
        a split would have paid on both.
        """
        self._agree("basis", _basis(rows, noise, self._store.key()))
        desk = self.grant.desk(rows, noise, self)
        _check_spent(self.grant.study, desk.holder.ledger, self._store.spent()[self.grant.study])
        return desk

    def _begin(self) -> int:
        name = self.grant.study
        with self._database.transaction() as database:
            database.all(
                "INSERT OR IGNORE INTO studies (name, terms, basis, spent) VALUES (?, '{}', '{}', '0')", name
            )
        [[number]] = self._database.all("SELECT number FROM studies WHERE name = ?", name)
        return int(number)

    def _agree(self, column: str, now: dict[str, Any]) -> None:
        """Write down what a study stands on; once it has asked something, nothing of that may change."""
        with self._database.transaction() as database:
            [[asked]] = database.all("SELECT count(*) FROM requests WHERE study = ?", self._number)
            if not asked:
                statement = f"UPDATE studies SET {column} = ? WHERE number = ?"  # noqa: S608 - ours
                database.all(statement, json.dumps(now), self._number)
            [[text]] = database.all(f"SELECT {column} FROM studies WHERE number = ?", self._number)  # noqa: S608
        _check_unchanged(self.grant.study, column, text, now)

    def past(self) -> Iterator[tuple[str, bytes, bool]]:
        """See `Journal.past`."""
        statement = (
            "SELECT identifier, request, answer IS NOT NULL FROM requests WHERE study = ? ORDER BY place"
        )
        return iter(self._database.all(statement, self._number))

    def find(self, identifier: str) -> tuple[bytes, bytes | None] | None:
        """See `Journal.find`."""
        statement = "SELECT request, answer FROM requests WHERE study = ? AND identifier = ?"
        return next(iter(self._database.all(statement, self._number, identifier)), None)

    def charged(self, identifier: str, request: bytes, spent: Epsilon) -> None:
        """See `Journal.charged`; refuses what would bring all studies together above their epsilon."""
        counter = self._store.counter
        with self._database.transaction() as database:
            others = database.all("SELECT spent FROM studies WHERE number != ?", self._number)
            if sum((_exact(other) for [other] in others), spent) > self._store.lifetime_epsilon:
                raise BudgetExceeded("the epsilon that these data have for all studies together is spent.")
            counter.difference(_total(database))  # refuses an older store
            row = (self._number, self._place, identifier, request)
            database.all("INSERT INTO requests (study, place, identifier, request) VALUES (?, ?, ?, ?)", *row)
            database.all("UPDATE studies SET spent = ? WHERE number = ?", str(spent), self._number)
            total = _total(database)
            prepared = counter.prepare(total, self._number)
        try:
            with self._database.transaction():  # or one study would write over what another has counted since
                counter.settle(prepared, total)
        except InvalidStore as error:  # the charge is on disk, and a counter may be behind
            counter.tell(f"a charge was not counted a second time: {error}")
        # At last: after an interruption the next charge finds its place taken, and is refused.
        self._place += 1

    def answered(self, identifier: str, answer: bytes) -> None:
        """See `Journal.answered`; an answer is written once and for all."""
        statement = "UPDATE requests SET answer = ? WHERE study = ? AND identifier = ? AND answer IS NULL"
        with self._database.transaction() as database:
            database.all(statement, answer, self._number, identifier)
            if database.all("SELECT changes()") != [(1,)]:
                raise InvalidStore("another process serves this study too; stop one of them.")


class _Connection:
    """A connection to the file, whose errors are sentences."""

    def __init__(self, path: Path) -> None:
        self.path = path
        with self._sentences():
            # A desk lets one thread in at a time, but not always the same.
            self._sqlite = sqlite3.connect(path, PATIENCE, isolation_level=None, check_same_thread=False)
            self._sqlite.execute(
                "PRAGMA synchronous = EXTRA"
            )  # the folder is written through to the disk too

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        self._sqlite.close()

    def all(self, statement: str, *values: object) -> list[Any]:
        with self._sentences():
            return self._sqlite.execute(statement, values).fetchall()

    @contextmanager
    def transaction(self) -> Iterator[Self]:
        """All of it or nothing; nobody else writes meanwhile."""
        self.all("BEGIN IMMEDIATE")
        try:
            yield self
            self.all("COMMIT")
        except BaseException:
            with suppress(InvalidStore):
                self.all("ROLLBACK")
            raise

    @contextmanager
    def _sentences(self) -> Iterator[None]:
        try:
            yield
        except sqlite3.IntegrityError as error:
            raise InvalidStore("another process serves this study too; stop one of them.") from error
        except (sqlite3.Error, UnicodeDecodeError) as error:  # SQLite quotes what it cannot read
            raise InvalidStore(f"{self.path} cannot be used as a store of studies: {error}.") from error


def _create(path: Path) -> None:
    """A new, empty store, which appears as a whole: a file that is there but empty is a store that was lost."""
    with tempfile.TemporaryDirectory(dir=path.parent, prefix=f"{path.name}-") as folder:
        new = Path(folder) / "new"
        with _Connection(new) as database:
            for statement in (
                *TABLES,
                f"PRAGMA application_id = {APPLICATION}",
                f"PRAGMA user_version = {VERSION}",
            ):
                database.all(statement)
            database.all("INSERT INTO store VALUES (?)", secrets.token_hex(16))
        new.chmod(OWN)
        with suppress(FileExistsError):  # another process was quicker
            os.link(new, path)


def _check(database: _Connection) -> None:
    """Refuse a file that is foreign or damaged, and leave it as it was."""
    [[application]], [[version]] = database.all("PRAGMA application_id"), database.all("PRAGMA user_version")
    if (application, version) != (APPLICATION, VERSION):
        raise InvalidStore(f"{database.path} is no store of studies of version {VERSION}.")
    if database.all("PRAGMA quick_check") != [("ok",)]:
        raise InvalidStore(f"{database.path} is damaged; what was spent cannot be told from it.")


def _identifier(database: _Connection) -> str:
    found = database.all("SELECT identifier FROM store")
    if len(found) != 1 or not isinstance(found[0][0], str) or not re.fullmatch("[0-9a-f]{32}", found[0][0]):
        raise InvalidStore(f"{database.path} is damaged: it does not say which store it is.")
    return found[0][0]


def _total(database: _Connection) -> Total:
    """What was ever booked, in one statement: all of it is of one moment."""
    found = database.all("SELECT spent, (SELECT count(*) FROM requests) FROM studies")
    return Total(found[0][1] if found else 0, sum((_exact(spent) for spent, _ in found), Fraction(0)))


_LOST = (
    "there is no store of studies at {store}, but its key, {key}, is there. Restore the store: without it nobody knows "
    "what was spent. (If all of that may be forgotten, remove the key.)"
)
_NO_KEY = (
    "the key {key} is missing, and without it no study can go on: whether the rows are still those that it began with "
    "cannot be told. Restore it from the backup of the journal. What was spent can be read all the same: hedgerow ledger "
    "{store}. (If the key is lost for good, a file of 32 random bytes in its place lets new studies begin; those that "
    "have begun are over.)"
)


def _terms(grant: StudyGrant) -> dict[str, Any]:
    exact = {name: str(getattr(grant, name)) for name in ("epsilon", "least_price")}
    return asdict(grant) | exact | {"methods": list(grant.methods)}


def _basis(rows: GroupedRows, noise: Noise, key: bytes) -> dict[str, Any]:
    """What no later request of a study may change: its rows, and whether its noise protects anybody.

    `key` is known by a hash, too: another one is not taken for other rows.
    """
    known_by = hashlib.blake2b(b"the key of a store", key=key, digest_size=16).hexdigest()
    return {"key": known_by, "rows": rows.fingerprint(key), "private noise": noise.private}


def _check_unchanged(study: str, column: str, text: str, now: dict[str, Any]) -> None:
    """Refuse to go on with anything else than what a study was begun with."""
    for name, value in now.items():
        if (begun := _read(text).get(name)) != value:
            what = f"{name} {begun}, not {value}" if column == "terms" else f"other {name} than now"
            raise Refused(
                f"study {study!r} was begun with {what}; restore that, or grant a study of another name."
            )


def _check_spent(study: str, ledger: Ledger, spent: Fraction) -> None:
    if ledger.spent != spent:
        raise InvalidStore(f"what study {study!r} has spent does not follow from its requests.")


def _follow(study: str, requests: list[bytes], terms: dict[str, Any], basis: dict[str, Any]) -> Ledger:
    """The ledger as the holder's was after these requests: what they cost follows from them, and not from rows."""
    leaks = () if basis.get("private noise") is True else ("the noise was seeded and can be taken off again",)
    try:
        ledger = Ledger(_exact(terms["epsilon"]), neighbours=terms["neighbours"], leaks=leaks)
        for asked in requests:
            request = from_bytes(asked)
            assert isinstance(request, Request)
            ledger.book(quote_of(ledger, request.growth, request.query))
    except (HedgerowError, AssertionError, LookupError, TypeError) as error:
        raise InvalidStore(f"the journal of study {study!r} cannot be followed: {error}") from error
    return ledger


def _read(text: str) -> dict[str, Any]:
    try:
        plain = json.loads(text)
    except (TypeError, ValueError):
        plain = None
    if not isinstance(plain, dict):
        raise InvalidStore("the store is damaged: what a study was begun with cannot be read.")
    return plain


def _exact(text: Any) -> Fraction:
    try:
        epsilon = Fraction(text)
    except (TypeError, ValueError, ZeroDivisionError) as error:
        raise InvalidStore("the store is damaged: an epsilon in it cannot be read.") from error
    if epsilon < 0:  # it would let others spend more
        raise InvalidStore("the store is damaged: an epsilon in it is below 0.")
    return epsilon


def _lock(path: Path, number: int, study: str) -> sqlite3.Connection:
    """A lock on a study that ends with the process, however that ends: a transaction on a file beside the store."""
    file = Path(f"{path}-study-{number}.lock")
    check_own(file)
    try:
        # Or SQLite would make it, for others to read. Only a new one is opened here: closing a descriptor of a file ends
        # all locks that this process has on it.
        with suppress(FileExistsError):
            os.close(open_own(file, os.O_RDWR | os.O_EXCL))
    except OSError as error:
        raise InvalidStore(f"the lock {file} cannot be used: {error.strerror}.") from error
    lock = sqlite3.connect(file, timeout=0, isolation_level=None, check_same_thread=False)
    try:
        lock.execute("BEGIN EXCLUSIVE")
    except sqlite3.Error as error:
        lock.close()
        raise StudyOpen(
            f"study {study!r} is open already, here or in another process; close it first."
        ) from error
    return lock
