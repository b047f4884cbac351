"""The store: spending survives everything, is shared by all studies of a data set, and is never forgotten."""

from __future__ import annotations

import errno
import json
import logging
import multiprocessing
import os
import sqlite3
import stat
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from hedgerow import Categorical, HedgerowError, Numeric, Schema
from hedgerow.encoding import Codes, encode, encode_labels
from hedgerow.errors import InvalidStore, Refused
from hedgerow.holder import store as store_module
from hedgerow.holder.counter import Counter, Total
from hedgerow.holder.counts import GroupedRows
from hedgerow.holder.desk import Desk, StudyGrant
from hedgerow.holder.store import VERSION, Store, StoredStudy
from hedgerow.messages import (
    Answer,
    CountLabels,
    CountRows,
    Grow,
    Query,
    Refusal,
    Request,
    from_bytes,
    to_bytes,
)
from hedgerow.privacy.ledger import Epsilon
from hedgerow.privacy.noise import SecureNoise, SeededNoise

SCHEMA = Schema([Numeric("x", 0, 1, 3), Categorical("c", ["a", "b"])], label="y", classes=["no", "yes"])
GRANT = StudyGrant("first", SCHEMA.hash, Fraction(1), max_rows=1000, quantum=0)
SECOND = replace(GRANT, study="second")
EIGHTH = Fraction(1, 8)


def encoded() -> tuple[Codes, NDArray[Any]]:
    rng = np.random.default_rng(0)
    values = np.empty((60, 2), dtype=object)
    values[:, 0], values[:, 1] = rng.random(60), rng.choice(["a", "b"], 60)
    return encode(values, SCHEMA), encode_labels(rng.choice(["no", "yes"], 60), SCHEMA)


def rows() -> GroupedRows:
    return GroupedRows(*encoded(), SCHEMA)


def growth(node: int = 0, split: int = 1, first: int = 1) -> Grow:
    return Grow(np.array([node]), np.array([split]), first)


def rows_at(*nodes: int, price: Epsilon = EIGHTH) -> CountRows:
    return CountRows(np.array(nodes), [price] * len(nodes))


def ask(at: Desk, name: str, query: Query, grow: Grow | None = None) -> bytes:
    return at.handle(to_bytes(Request(at.study, name, grow, query)))


def reason(reply: bytes) -> str:
    message = from_bytes(reply)
    assert isinstance(message, Refusal)
    return message.reason


def is_answer(reply: bytes) -> bool:
    return isinstance(from_bytes(reply), Answer)


def state(at: Desk) -> tuple[Any, ...]:
    holder = at.holder
    account = (holder.ledger.to_json(), holder.ledger._sums.tolist(), holder.ledger._children.tolist())
    return (
        *account,
        holder._paths.parent.tolist(),
        holder._paths.split.tolist(),
        *map(str, vars(holder._keys).values()),
        holder._rows._ranges.tolist(),
    )


@pytest.fixture(autouse=True)
def usual_rights() -> Iterator[None]:
    """What tests write is readable by others, and writable by nobody else."""
    before = os.umask(0o022)
    yield
    os.umask(before)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "holder.db"


# ---- Restarts -------------------------------------------------------------------------------------------------------


def test_a_study_goes_on_where_it_stopped(path: Path) -> None:
    """Closed and opened again before every request, it answers like a study in memory, byte for byte."""
    undisturbed = GRANT.desk(rows(), SeededNoise(5))
    asked: list[tuple[str, Query, Grow | None]] = [
        ("a", rows_at(0), None),
        ("b", CountLabels(np.array([1, 2]), [EIGHTH, EIGHTH]), growth()),
        ("c", rows_at(1, 0), None),
        ("d", rows_at(3, 2, 4), growth(1, 0, 3)),
        ("e", rows_at(3), None),
    ]
    replies = []
    for name, query, grow in asked:
        with Store(path).open_study(GRANT) as study:
            at = study.desk(rows(), SeededNoise(5))
            assert state(at) == state(undisturbed)
            replies.append(ask(at, name, query, grow))
            assert replies[-1] == ask(undisturbed, name, query, grow)
            assert is_answer(replies[-1])
    assert Store(path).spent() == {"first": undisturbed.holder.ledger.spent}
    with Store(path).open_study(GRANT) as study:
        at = study.desk(rows(), SeededNoise(6))  # stored answers need no noise
        before = state(at)
        assert [ask(at, *request) for request in asked] == replies
        assert state(at) == before
        assert "was used for another request" in reason(ask(at, "a", rows_at(0, 0)))


def test_a_charge_without_an_answer_is_answered_later_and_not_charged_again(path: Path) -> None:
    undisturbed = GRANT.desk(rows(), SeededNoise(5))
    expected = [ask(undisturbed, "a", rows_at(1), growth()), ask(undisturbed, "b", rows_at(1))]

    class Crash(BaseException):
        pass

    with Store(path).open_study(GRANT) as study:
        at = study.desk(rows(), SeededNoise(5))

        def crash(*_: object) -> None:
            raise Crash

        study.answered = crash  # type: ignore[method-assign]
        with pytest.raises(Crash):
            ask(at, "a", rows_at(1), growth())
    assert Store(path).spent() == {"first": EIGHTH}
    with Store(path).open_study(GRANT) as study:
        at = study.desk(rows(), SeededNoise(5))
        assert at.holder.ledger.spent == EIGHTH
        second = ask(at, "b", rows_at(1))
        assert [ask(at, "a", rows_at(1), growth()), second] == expected
    assert Store(path).spent() == {"first": 2 * EIGHTH}


OTHER_TERMS: dict[str, object] = {
    "epsilon": Fraction(2),
    "schema": "0" * 64,
    "neighbours": "replace",
    "max_rows": 10,
    "methods": ("local",),
}


def test_a_study_that_has_asked_something_keeps_its_terms(path: Path) -> None:
    with Store(path).open_study(GRANT) as study:
        ask(study.desk(rows(), SeededNoise(1)), "a", rows_at(0))
    for name, value in OTHER_TERMS.items():
        with pytest.raises(Refused, match=f"was begun with {name} .*, not"):
            Store(path).open_study(replace(GRANT, **{name: value}))  # type: ignore[arg-type]
    with Store(path).open_study(GRANT) as study:  # a refusal leaves no lock behind
        assert is_answer(ask(study.desk(rows(), SeededNoise(1)), "b", rows_at(0)))


def test_who_only_looks_fixes_no_terms(path: Path) -> None:
    for name, value in OTHER_TERMS.items():
        with Store(path).open_study(replace(GRANT, **{name: value})):  # type: ignore[arg-type]
            pass
    with Store(path).open_study(replace(GRANT, epsilon=Fraction(2))) as study:
        ask(study.desk(rows(), SeededNoise(1)), "a", rows_at(0))
    assert Store(path).granted() == {"first": 2}


def test_a_study_goes_on_with_the_rows_and_the_kind_of_noise_it_began_with(path: Path) -> None:
    """A row that changed its side of a split between two jobs would have paid on both, and been booked once."""
    codes, labels = encoded()
    moved = codes.take(np.arange(codes.n_rows))
    moved.narrow[0, 0] ^= 1
    others = [
        (GroupedRows(moved, labels, SCHEMA), SeededNoise(1), "other rows"),
        (GroupedRows(codes, labels[::-1].copy(), SCHEMA), SeededNoise(1), "other rows"),
        (GroupedRows(codes, labels, SCHEMA, np.arange(1, len(labels))), SeededNoise(1), "other rows"),
        (rows(), SecureNoise(), "other private noise"),
    ]
    with Store(path).open_study(GRANT) as study:
        study.desk(GroupedRows(moved, labels, SCHEMA), SeededNoise(1))  # nothing is asked
    with Store(path).open_study(GRANT) as study:
        ask(study.desk(rows(), SeededNoise(1)), "a", rows_at(1), growth())
    for table, noise, what in others:
        with Store(path).open_study(GRANT) as study, pytest.raises(Refused, match=f"begun with {what}"):
            study.desk(table, noise)  # type: ignore[arg-type]
    with Store(path).open_study(GRANT) as study:
        assert is_answer(ask(study.desk(rows(), SeededNoise(1)), "b", rows_at(2)))


def test_fractions_are_kept_exactly(path: Path) -> None:
    price = Fraction(10**40 + 1, 3 * 10**40 + 1)
    with Store(path).open_study(GRANT) as study:
        ask(study.desk(rows(), SeededNoise(1)), "a", rows_at(0, price=price))
    assert Store(path).spent() == {"first": price}
    with sqlite3.connect(path) as database:
        assert database.execute("SELECT spent FROM studies").fetchall() == [(str(price),)]
    database.close()


# ---- One lifetime ---------------------------------------------------------------------------------------------------


def test_studies_share_one_lifetime(path: Path) -> None:
    store = Store(path, lifetime_epsilon=Fraction(3, 2))
    with store.open_study(GRANT) as first, store.open_study(SECOND) as second:
        one, two = first.desk(rows(), SeededNoise(1)), second.desk(rows(), SeededNoise(2))
        assert is_answer(ask(one, "a", rows_at(0, price=Fraction(1))))
        assert is_answer(ask(two, "a", rows_at(0, price=Fraction(1, 4))))
        before = state(two)
        for price in (Fraction(1, 4) + Fraction(1, 10**30), Fraction(1, 2), Fraction(3, 4)):
            refusal = reason(ask(two, "b", rows_at(0, price=price), growth()))
            assert "for all studies together is spent" in refusal
            assert "first" not in refusal  # one coordinator does not hear of the other's study
        assert state(two) == before
        assert store.spent() == {"first": 1, "second": Fraction(1, 4)}
        assert is_answer(
            ask(two, "b", rows_at(0, price=Fraction(1, 4)), growth())
        )  # the refused name is free
        assert "above the granted" in reason(ask(one, "c", rows_at(0, price=EIGHTH)))
    assert sum(store.spent().values()) == Fraction(3, 2)


def test_parts_of_the_rows_share_what_a_row_can_have_paid(path: Path) -> None:
    """A study counts with its most expensive path, not with the sum of all that it asked."""
    store = Store(path, lifetime_epsilon=Fraction(1, 4))
    with store.open_study(GRANT) as study:
        at = study.desk(rows(), SeededNoise(1))
        assert is_answer(ask(at, "a", rows_at(1, 2, price=Fraction(1, 4)), growth()))
        assert "all studies" in reason(ask(at, "b", rows_at(1, price=Fraction(1, 100))))
    assert store.spent() == {"first": Fraction(1, 4)}


def test_opening_a_study_again_spends_nothing_of_the_lifetime(path: Path) -> None:
    store = Store(path, lifetime_epsilon=Fraction(1))
    with store.open_study(GRANT) as study:
        answer = ask(study.desk(rows(), SeededNoise(1)), "a", rows_at(0, price=Fraction(1)))
    for _ in range(3):
        with store.open_study(GRANT) as study:
            assert ask(study.desk(rows(), SeededNoise(1)), "a", rows_at(0, price=Fraction(1))) == answer
    with Store(path, lifetime_epsilon=Fraction(1, 2)).open_study(
        GRANT
    ) as study:  # also when it has been lowered
        at = study.desk(rows(), SeededNoise(1))
        assert ask(at, "a", rows_at(0, price=Fraction(1))) == answer
    assert store.spent() == {"first": 1}


def serve(path: Path, study: str, replies: Any) -> None:
    """In a process of its own: ask for an eighth until it is refused."""
    with Store(path, lifetime_epsilon=Fraction(1)).open_study(replace(GRANT, study=study)) as opened:
        at = opened.desk(rows(), SeededNoise(1))
        accepted = 0
        while is_answer(ask(at, f"round-{accepted}", rows_at(0, price=Fraction(1, 40)))):
            accepted += 1
    replies.put((study, accepted))


def test_processes_that_race_for_the_lifetime_share_it(path: Path) -> None:
    """Four processes begin at once with no file there; together they spend what there is, and no more."""
    context = multiprocessing.get_context("spawn")
    replies = context.Queue()
    processes = [context.Process(target=serve, args=(path, f"study-{i}", replies)) for i in range(4)]
    for process in processes:
        process.start()
    accepted = dict(replies.get(timeout=120) for _ in processes)
    for process in processes:
        process.join(timeout=60)
        assert process.exitcode == 0
    spent = Store(path).spent()
    assert spent == {study: Fraction(n, 40) for study, n in accepted.items()}
    assert sum(spent.values()) == 1
    assert counted(Store(path)) == {"bookings": 40, "spent": "1"}


# ---- One process a study --------------------------------------------------------------------------------------------


def test_a_study_is_open_once(path: Path) -> None:
    store = Store(path)
    with store.open_study(GRANT):
        for other in (store, Store(path)):
            with pytest.raises(Refused, match="'first' is open already"):
                other.open_study(GRANT)
        with store.open_study(SECOND):
            pass
    with store.open_study(GRANT):
        pass


HOLD = """
import sys
from hedgerow.holder.desk import StudyGrant
from hedgerow.holder.store import Store
from fractions import Fraction
study = Store(sys.argv[1]).open_study(StudyGrant("first", sys.argv[2], Fraction(1), max_rows=1000, quantum=0))
print("open", flush=True)
sys.stdin.read()
"""


def test_who_tries_to_open_a_study_again_does_not_lose_its_lock(path: Path) -> None:
    """Closing any descriptor of a file ends all locks that a process has on it."""
    command = [sys.executable, "-c", HOLD, str(path), SCHEMA.hash]
    with Store(path).open_study(GRANT):
        with pytest.raises(Refused, match="open already"):
            Store(path).open_study(GRANT)
        other = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False)
        assert "StudyOpen" in other.stderr
        assert other.stdout == ""


def test_a_process_that_is_killed_leaves_no_lock(path: Path) -> None:
    command = [sys.executable, "-c", HOLD, str(path), SCHEMA.hash]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "open\n"
        with pytest.raises(Refused, match="in another process"):
            Store(path).open_study(GRANT)
        process.kill()
        process.wait()
    with Store(path).open_study(GRANT) as study:
        assert is_answer(ask(study.desk(rows(), SeededNoise(1)), "a", rows_at(0)))


def test_two_writers_without_a_lock_cannot_spend_behind_each_others_back(
    path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Somebody may delete the lock's file; then the one who has not seen the last request is refused."""
    monkeypatch.setattr(store_module, "_lock", lambda *_: sqlite3.connect(":memory:"))
    caplog.set_level(logging.CRITICAL)
    first, second = (Store(path).open_study(GRANT) for _ in range(2))
    one, two = (study.desk(rows(), SeededNoise(seed)) for seed, study in enumerate((first, second)))
    answer = ask(one, "a", rows_at(0))
    assert is_answer(answer)
    assert "cannot write" in reason(ask(two, "b", rows_at(0)))
    assert Store(path).spent() == {"first": EIGHTH}
    assert two.holder.ledger.spent == 0
    assert ask(two, "a", rows_at(0)) == answer  # what is stored may be repeated by anybody
    for study in (first, second):
        study.close()


def test_an_answer_is_never_written_over(path: Path) -> None:
    with Store(path).open_study(GRANT) as study:
        ask(study.desk(rows(), SeededNoise(1)), "a", rows_at(0))
        for name in ("a", "unknown"):
            with pytest.raises(InvalidStore, match="another process"):
                study.answered(name, b"other")
        found = study.find("a")
        assert found is not None
        assert found[1] is not None
        assert is_answer(found[1])


# ---- Who only looks -------------------------------------------------------------------------------------------------


def files_of(path: Path) -> dict[str, bytes]:
    return {beside.name: beside.read_bytes() for beside in path.parent.iterdir()}


@pytest.mark.parametrize("neighbours", ["add-remove", "replace"])
def test_the_account_follows_from_the_journal_alone(path: Path, neighbours: str) -> None:
    """Neither rows nor grant nor schema are needed, and the study may be open meanwhile."""
    grant = replace(GRANT, neighbours=neighbours)
    with Store(path).open_study(grant) as study:
        at = study.desk(rows(), SecureNoise())
        for name, query, grow in (
            ("a", rows_at(0), None),
            ("b", CountLabels(np.array([1, 2]), [EIGHTH, EIGHTH]), growth()),
            ("c", rows_at(3, 2, 4, price=Fraction(1, 16)), growth(1, 0, 3)),
            ("d", rows_at(3, price=Fraction(1, 16)), None),
        ):
            assert is_answer(ask(at, name, query, grow))
        before = files_of(path)
        ledger = Store(path).account("first")
        assert ledger is not None
        assert ledger.to_json() == at.holder.ledger.to_json()
        assert ledger.private
        assert files_of(path) == before


def test_the_account_of_seeded_noise_is_not_private(path: Path) -> None:
    fill(path)
    ledger = Store(path).account("first")
    assert ledger is not None
    assert "NOT PRIVATE" in ledger.explain()


def test_who_has_asked_nothing_has_no_account(path: Path) -> None:
    with Store(path).open_study(GRANT) as study:
        study.desk(rows(), SecureNoise())
    before = files_of(path)
    assert Store(path).account("first") is None
    assert Store(path).account("second") is None
    assert files_of(path) == before


def test_whether_a_study_could_go_on_is_told_without_opening_it(path: Path) -> None:
    """The same sentences as when it is opened, also while it is open; nothing is written."""
    codes, labels = encoded()
    others = GroupedRows(codes, labels[::-1].copy(), SCHEMA)
    store = Store(path)
    with store.open_study(GRANT) as study:
        at = study.desk(rows(), SeededNoise(1))
        store.check(replace(GRANT, epsilon=Fraction(2)), others, SecureNoise())  # nothing is asked yet
        ask(at, "a", rows_at(0))
        before = files_of(path)
        store.check(GRANT, rows(), SeededNoise(2))
        store.check(SECOND, others, SecureNoise())
        for name, value in OTHER_TERMS.items():
            with pytest.raises(Refused, match=f"was begun with {name} .*, not"):
                store.check(replace(GRANT, **{name: value}), rows(), SeededNoise(1))  # type: ignore[arg-type]
        with pytest.raises(Refused, match="begun with other rows than now"):
            store.check(GRANT, others, SeededNoise(1))
        with pytest.raises(Refused, match="begun with other private noise"):
            store.check(GRANT, rows(), SecureNoise())
        assert files_of(path) == before


# ---- Disks and files ------------------------------------------------------------------------------------------------


def test_commits_wait_for_the_disk(path: Path) -> None:
    with Store(path).open_study(GRANT) as study:
        assert study._database.all("PRAGMA journal_mode") == [("delete",)]
        assert study._database.all("PRAGMA synchronous") == [(3,)]


@pytest.mark.parametrize("before", ["DELETE", "WAL"])
def test_the_file_alone_has_every_charge_while_a_study_is_open(
    path: Path, tmp_path: Path, before: str
) -> None:
    """A backup that is taken at any moment, of the file that the docs name and no other."""
    Store(path)
    with sqlite3.connect(path) as database:
        database.execute(f"PRAGMA journal_mode = {before}")
    database.close()
    with Store(path).open_study(GRANT) as study:
        at = study.desk(rows(), SeededNoise(1))
        for number in range(1, 5):
            assert is_answer(ask(at, f"round-{number}", rows_at(0)))
            copy = tmp_path / f"copy-{number}.db"
            copy.write_bytes(path.read_bytes())
            assert Store(copy).spent() == {"first": number * EIGHTH}


def test_nobody_else_may_read_the_files(path: Path) -> None:
    """The store has all answers; what SQLite puts beside it while it writes, some of its pages."""
    with Store(path).open_study(GRANT) as study:
        study.desk(rows(), SecureNoise())
        with study._database.transaction() as database:
            database.all("UPDATE studies SET basis = 'other'")
            modes = {file.name: stat.S_IMODE(file.stat().st_mode) for file in path.parent.iterdir()}
    names = {f"holder.db{side}" for side in ("", "-journal", "-study-1.lock", "-study-1.lock-journal")}
    assert modes == dict.fromkeys(names | {"holder.key"}, 0o600)
    counter = Store(path).counter.path
    assert stat.S_IMODE(counter.stat().st_mode) == 0o600
    assert stat.S_IMODE(counter.parent.stat().st_mode) == 0o700


def test_a_full_disk_refuses_and_charges_nothing(path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.CRITICAL)
    with Store(path).open_study(GRANT) as study:
        at = study.desk(rows(), SeededNoise(1))
        [[pages]] = study._database.all("PRAGMA page_count")
        study._database.all(f"PRAGMA max_page_count = {pages}")
        long = CountRows(np.zeros(1000, dtype=np.int64), [Fraction(1, 2**11)] * 1000)
        before = state(at)
        assert "cannot write" in reason(ask(at, "a", long, growth()))
        assert state(at) == before
        assert Store(path).spent() == {"first": 0}
        study._database.all("PRAGMA max_page_count = 100000")
        assert is_answer(ask(at, "a", long, growth()))


def foreign(path: Path) -> None:
    with sqlite3.connect(path) as database:
        database.execute("CREATE TABLE patients (name TEXT)")
    database.close()


def foreign_with_a_log(path: Path) -> None:
    foreign(path)
    with sqlite3.connect(path) as database:
        database.execute("PRAGMA journal_mode = WAL")
    database.close()


def newer(path: Path) -> None:
    Store(path)
    with sqlite3.connect(path) as database:
        database.execute(f"PRAGMA user_version = {VERSION + 1}")
    database.close()


@pytest.mark.parametrize(
    "make",
    [
        foreign,
        foreign_with_a_log,
        newer,
        lambda path: path.write_bytes(b"not a database, but long enough to be one" * 100),
        lambda path: path.write_text("x"),
        lambda path: path.touch(),
        lambda path: path.mkdir(),
    ],
    ids=[
        "another program's",
        "another's with a log",
        "a newer version's",
        "no database",
        "a letter",
        "empty",
        "a folder",
    ],
)
def test_a_foreign_file_is_refused_and_left_as_it_was(path: Path, make: Any) -> None:
    make(path)
    before = path.read_bytes() if path.is_file() else b""
    for _ in range(2):
        with pytest.raises(InvalidStore, match="store of"):
            Store(path)
    assert (path.read_bytes() if path.is_file() else b"") == before


def fill(path: Path) -> Fraction:
    """A store with a study of many requests, all in one file."""
    with Store(path).open_study(GRANT) as study:
        at = study.desk(rows(), SeededNoise(1))
        ask(at, "first", rows_at(1, 2), growth())
        for i in range(20):
            assert is_answer(ask(at, f"round-{i}", rows_at(0, 2, price=Fraction(1, 100))))
        return Fraction(at.holder.ledger.spent)


def open_damaged(path: Path) -> Fraction | None:
    """What the study has spent, as far as the file says; None if it is refused."""
    try:
        with Store(path).open_study(GRANT) as study:
            return Fraction(study.desk(rows(), SeededNoise(1)).holder.ledger.spent)
    except HedgerowError:
        return None


def looked_at(path: Path) -> Fraction | None:
    """What the account says that the study has spent; None if it is refused, or another study's."""
    try:
        ledger = Store(path).account(GRANT.study)
    except HedgerowError:
        return None
    return None if ledger is None else Fraction(ledger.spent)


def test_a_damaged_file_never_understates_what_was_spent(path: Path) -> None:
    """A changed byte is found, or it does not touch the account; never anything but our own error."""
    spent = fill(path)
    whole = path.read_bytes()
    assert open_damaged(path) == spent
    rng = np.random.default_rng(0)
    found = 0
    for _ in range(150):
        damaged = bytearray(whole)
        place = int(rng.integers(len(whole)))
        damaged[place] ^= int(rng.integers(1, 256))
        for beside in path.parent.glob("holder.db*"):
            beside.unlink()
        path.write_bytes(damaged)
        after = open_damaged(path)
        assert after is None or after == spent, place
        found += after is None
        assert looked_at(path) in (None, spent), place
    assert found > 12


def test_a_file_whose_pages_do_not_add_up_is_refused(path: Path) -> None:
    """Every row can be read, but the header counts a free page that is not there: who knows what else is wrong."""
    fill(path)
    data = bytearray(path.read_bytes())
    data[36:40] = (1).to_bytes(4, "big")
    path.write_bytes(data)
    with pytest.raises(InvalidStore, match="damaged"):
        Store(path)


def test_there_is_no_store_where_there_is_no_folder(path: Path) -> None:
    with pytest.raises(InvalidStore, match="can be no store"):
        Store(path / "deeper")


@pytest.mark.parametrize("kept", [0, 0.01, 0.1, 0.5, 0.9])
def test_a_file_that_was_cut_short_is_refused(path: Path, kept: float) -> None:
    fill(path)
    whole = path.read_bytes()
    path.write_bytes(whole[: int(kept * len(whole))])
    assert open_damaged(path) is None


@pytest.mark.parametrize(
    "change",
    [
        "UPDATE studies SET spent = '1/10'",
        "DELETE FROM requests WHERE place = 20",
        "DELETE FROM requests",
        "UPDATE requests SET request = x'00' WHERE place = 3",
        "UPDATE studies SET spent = 'much'",
        "UPDATE studies SET spent = x'00'",
    ],
)
def test_an_account_that_does_not_follow_from_its_requests_is_refused(
    path: Path, tmp_path: Path, change: str
) -> None:
    """Also where there is no counter that knows better."""
    fill(path)
    with sqlite3.connect(path) as database:
        database.execute(change)
    database.close()
    with pytest.raises(InvalidStore, match=r"does not follow|cannot be followed|cannot be read"):
        Store(path).account("first")
    with pytest.raises(InvalidStore, match=r"does not follow|cannot be followed|cannot be read"):
        Store(path, counter=tmp_path / "new").open_study(GRANT).desk(rows(), SeededNoise(1))


@pytest.mark.parametrize("spent", ["-100", "-1/1000"])
def test_no_study_lends_another_what_it_has_not_spent(
    path: Path, caplog: pytest.LogCaptureFixture, spent: str
) -> None:
    """A store may come with the kit that somebody else has made."""
    caplog.set_level(logging.CRITICAL)
    fill(path)
    store = Store(path, lifetime_epsilon=Fraction(1, 100))
    with store.open_study(SECOND) as study:
        with sqlite3.connect(path) as database:
            database.execute(
                "INSERT INTO studies (name, terms, basis, spent) VALUES ('lender', '{}', '{}', ?)", (spent,)
            )
        database.close()
        with pytest.raises(InvalidStore, match="below 0"):
            study.charged("a", b"", EIGHTH)
    with pytest.raises(InvalidStore, match="below 0"):
        store.open_study(SECOND)
    with pytest.raises(InvalidStore, match="below 0"):
        store.spent()


def test_a_lifetime_is_positive(path: Path) -> None:
    with pytest.raises(ValueError, match="lifetime_epsilon"):
        Store(path, lifetime_epsilon=Fraction(0))
    assert isinstance(Store(path).open_study(GRANT), StoredStudy)


# ---- The key --------------------------------------------------------------------------------------------------------


def basis_of(path: Path) -> dict[str, Any]:
    with sqlite3.connect(path) as database:
        [[text]] = database.execute("SELECT basis FROM studies").fetchall()
    database.close()
    return dict(json.loads(text))


def test_who_knows_the_rows_cannot_find_them_in_a_copy_of_the_store(path: Path, tmp_path: Path) -> None:
    """The same rows, known by nothing that anybody could compute without the file of the key."""
    second = tmp_path / "second.db"
    for store in (path, second):
        fill(store)
    assert basis_of(path)["rows"] != basis_of(second)["rows"]
    assert basis_of(path)["rows"] == rows().fingerprint((tmp_path / "holder.key").read_bytes())
    key = path.with_suffix(".key").read_bytes()
    assert len(set(key)) > 10  # false alarm: far below 1e-20
    assert key not in path.read_bytes()
    assert key.hex() not in path.read_bytes().decode(errors="replace")


def test_without_its_key_a_store_can_be_read_but_no_study_goes_on(path: Path) -> None:
    spent = fill(path)
    key = path.with_suffix(".key")
    kept = key.read_bytes()
    key.unlink()
    for grant in (GRANT, SECOND):
        with Store(path).open_study(grant) as study, pytest.raises(InvalidStore, match="Restore it"):
            study.desk(rows(), SeededNoise(1))
    with pytest.raises(InvalidStore, match="Restore it"):
        Store(path).check(GRANT, rows(), SeededNoise(1))
    assert not key.exists()
    assert Store(path).spent()["first"] == spent
    ledger = Store(path).account("first")
    assert ledger is not None
    assert ledger.spent == spent
    key.write_bytes(kept)
    key.chmod(0o600)
    with Store(path).open_study(GRANT) as study:
        assert is_answer(ask(study.desk(rows(), SeededNoise(1)), "again", rows_at(0, price=Fraction(1, 100))))


def test_another_key_is_not_taken_for_other_rows_and_lets_new_studies_begin(path: Path) -> None:
    fill(path)
    path.with_suffix(".key").write_bytes(os.urandom(32))
    with (
        Store(path).open_study(GRANT) as study,
        pytest.raises(Refused, match="begun with other key than now"),
    ):
        study.desk(rows(), SeededNoise(1))
    with Store(path).open_study(SECOND) as study:
        assert is_answer(ask(study.desk(rows(), SeededNoise(1)), "a", rows_at(0)))


@pytest.mark.parametrize("content", [b"", b"x" * 31, b"x" * 33])
def test_a_key_that_was_cut_short_is_refused(path: Path, content: bytes) -> None:
    fill(path)
    path.with_suffix(".key").write_bytes(content)
    with Store(path).open_study(GRANT) as study, pytest.raises(InvalidStore, match="is no key"):
        study.desk(rows(), SeededNoise(1))


def test_a_store_that_was_lost_is_not_begun_anew_beside_its_key(path: Path) -> None:
    fill(path)
    path.unlink()
    with pytest.raises(InvalidStore, match="Restore the store"):
        Store(path)
    path.with_suffix(".key").unlink()
    assert Store(path).spent() == {}


# ---- Whose files they are -------------------------------------------------------------------------------------------

POSIX = pytest.mark.skipif(os.name != "posix", reason="other systems have other rights")
FILES = [
    "folder",
    "holder.db",
    "holder.db-journal",
    "holder.key",
    "holder.db-study-1.lock",
    "counter",
    "counters",
]


def filled_store(folder: Path) -> dict[str, Path]:
    """A store in a folder of its own, with all that belongs to it."""
    journal, counters = folder / "journal", folder / "counters"
    journal.mkdir(mode=0o700)
    store = Store(journal / "holder.db", counter=counters)
    with store.open_study(GRANT) as study:
        ask(study.desk(rows(), SeededNoise(1)), "a", rows_at(0))
    places = {"folder": journal, "counter": store.counter.path, "counters": counters}
    return places | {name: journal / name for name in FILES if name.startswith("holder")}


def serve_on(folder: Path) -> bytes:
    store = Store(folder / "journal" / "holder.db", counter=folder / "counters")
    with store.open_study(GRANT) as study:
        return ask(study.desk(rows(), SeededNoise(1)), "b", rows_at(0))


@POSIX
@pytest.mark.parametrize("name", FILES)
def test_a_link_is_no_store(tmp_path: Path, name: str) -> None:
    """Somebody else may choose what it points to; SQLite would even follow one to a journal of changes to undo."""
    place = filled_store(tmp_path)[name]
    if name == "holder.db-journal":
        place.touch()
    elsewhere = place.rename(tmp_path / "elsewhere")
    place.symlink_to(elsewhere)
    with pytest.raises(InvalidStore, match=f"{place.name} is a link"):
        serve_on(tmp_path)
    place.unlink()
    elsewhere.rename(place)
    assert is_answer(serve_on(tmp_path))


@POSIX
@pytest.mark.parametrize("right", [0o020, 0o002])
@pytest.mark.parametrize("name", FILES)
def test_what_others_may_write_is_no_store(tmp_path: Path, name: str, right: int) -> None:
    place = filled_store(tmp_path)[name]
    if name == "holder.db-journal":
        place.touch(mode=0o600)
    mode = stat.S_IMODE(place.stat().st_mode)
    place.chmod(mode | right)
    with pytest.raises(InvalidStore, match=f"may be written by other users.*chmod go-w {place}"):
        serve_on(tmp_path)
    place.chmod(mode)
    assert is_answer(serve_on(tmp_path))


@POSIX
def test_a_folder_in_which_everybody_has_files_of_their_own_will_do(tmp_path: Path) -> None:
    filled_store(tmp_path)["folder"].chmod(0o1777)
    assert is_answer(serve_on(tmp_path))


@POSIX
@pytest.mark.parametrize("name", FILES)
def test_what_belongs_to_another_user_is_no_store(
    tmp_path: Path, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = filled_store(tmp_path)[name]
    if name == "holder.db-journal":
        place.touch(mode=0o600)
    true = Path.lstat

    def lstat(path: Path) -> os.stat_result:
        found = list(true(path))
        found[stat.ST_UID] += path == place
        return os.stat_result(found)

    monkeypatch.setattr(Path, "lstat", lstat)
    with pytest.raises(InvalidStore, match=f"{place.name} belongs to another user"):
        serve_on(tmp_path)


@POSIX
def test_a_key_that_others_may_read_is_refused(path: Path) -> None:
    fill(path)
    path.with_suffix(".key").chmod(0o640)
    with (
        Store(path).open_study(GRANT) as study,
        pytest.raises(InvalidStore, match="may be read by other users"),
    ):
        study.desk(rows(), SeededNoise(1))


# ---- The counter ----------------------------------------------------------------------------------------------------


def counted(store: Store) -> dict[str, Any]:
    return dict(json.loads(store.counter.path.read_text()))


def spend(store: Store, name: str, grant: StudyGrant = GRANT) -> bytes:
    with store.open_study(grant) as study:
        return ask(study.desk(rows(), SeededNoise(1)), name, rows_at(0))


def test_charges_are_counted_a_second_time_before_noise_is_drawn(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = Store(path)
    seen = []
    with store.open_study(GRANT) as study, store.open_study(SECOND) as other:
        for opened in (study, other):
            at = opened.desk(rows(), SeededNoise(1))
            release = at.holder.release
            monkeypatch.setattr(
                at.holder, "release", lambda charged, r=release: seen.append(counted(store)) or r(charged)
            )
            ask(at, "a", rows_at(0))
    assert seen == [{"bookings": 1, "spent": "1/8"}, {"bookings": 2, "spent": "1/4"}]
    assert store.difference() == ""


def test_an_older_store_that_was_put_back_is_refused(path: Path) -> None:
    told: list[str] = []
    spend(Store(path, tell=told.append), "a")
    older = path.read_bytes()
    spend(Store(path, tell=told.append), "b")
    newest = path.read_bytes()
    path.write_bytes(older)
    store = Store(path, tell=told.append)
    words = rf"1 bookings, epsilon 0.125\) is older than its counter .*{store.counter.path.name} \(2 bookings, epsilon 0.25"
    for grant in (GRANT, SECOND):
        with pytest.raises(InvalidStore, match=words):
            store.open_study(grant)
    for look in (store.difference, lambda: store.check(GRANT, rows(), SeededNoise(1))):
        with pytest.raises(InvalidStore, match="Put the newest journal back"):
            look()
    assert store.spent()["first"] == EIGHTH  # whoever only looks is let in
    path.write_bytes(newest)
    assert is_answer(spend(Store(path, tell=told.append), "c"))
    assert told == []
    path.write_bytes(older)
    store.counter.path.unlink()  # as the sentence says
    assert is_answer(spend(Store(path, tell=told.append), "b"))
    assert len(told) == 1


def test_an_older_store_that_is_put_back_while_a_study_is_open_is_refused(
    path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.CRITICAL)
    store = Store(path)
    with store.open_study(GRANT) as study:
        at = study.desk(rows(), SeededNoise(1))
        ask(at, "a", rows_at(0))
        older = path.read_bytes()
        with store.open_study(SECOND) as second:
            ask(second.desk(rows(), SeededNoise(1)), "a", rows_at(0))
        path.write_bytes(older)
        assert "cannot write its account down" in reason(ask(at, "b", rows_at(0)))


def test_a_crash_between_charge_and_counter_stops_nobody(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class Crash(BaseException):
        pass

    def crash(*_: object) -> None:
        raise Crash

    told: list[str] = []
    store = Store(path, tell=told.append)
    spend(store, "a")
    with monkeypatch.context() as patched:
        patched.setattr(Counter, "settle", crash)
        with pytest.raises(Crash):
            spend(store, "b")
    assert store.spent() == {"first": 2 * EIGHTH}
    assert counted(store)["bookings"] == 1
    assert "is behind the journal" in store.difference()
    assert is_answer(spend(store, "b"))
    assert counted(store) == {"bookings": 2, "spent": "1/4"}
    assert store.difference() == ""
    assert len(told) == 1
    assert "as after a crash" in told[0]


def test_a_desk_whose_charge_was_interrupted_books_nothing_more(
    path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Its ledger does not know of a charge that is on disk."""
    caplog.set_level(logging.CRITICAL)

    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    with Store(path).open_study(GRANT) as study:
        at = study.desk(rows(), SeededNoise(1))
        with monkeypatch.context() as patched:
            patched.setattr(Counter, "settle", interrupt)
            with pytest.raises(KeyboardInterrupt):
                ask(at, "a", rows_at(0))
        assert "cannot write its account down" in reason(ask(at, "b", rows_at(0)))
    assert Store(path).spent() == {"first": EIGHTH}


def test_a_counter_that_is_missing_is_told_once_and_begun(path: Path) -> None:
    """So it is when a journal moves to a new machine."""
    told: list[str] = []
    store = Store(path, tell=told.append)
    spend(store, "a")
    assert told == []
    store.counter.path.unlink()
    assert "There is no counter" in store.difference()
    assert not store.counter.path.exists()
    for name in ("b", "c"):
        assert is_answer(spend(Store(path, tell=told.append), name))
    assert len(told) == 1
    assert "There is no counter" in told[0]
    assert counted(store)["bookings"] == 3


def test_two_stores_do_not_share_a_counter(path: Path, tmp_path: Path) -> None:
    first, second = Store(path), Store(tmp_path / "second.db")
    spend(first, "a")
    spend(first, "b")
    spend(second, "a")
    assert first.counter.path != second.counter.path
    assert [counted(store)["bookings"] for store in (first, second)] == [2, 1]
    assert first.difference() == second.difference() == ""


def test_a_study_that_is_late_does_not_take_a_counter_back(path: Path) -> None:
    store = Store(path)
    spend(store, "a")
    late = store.counter.prepare(Total(1, EIGHTH), writer=7)
    spend(store, "b")
    store.counter.settle(late, Total(1, EIGHTH))
    assert counted(store)["bookings"] == 2


def test_what_cannot_be_counted_is_not_charged(
    path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.CRITICAL)

    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    with Store(path).open_study(GRANT) as study:
        at = study.desk(rows(), SeededNoise(1))
        with monkeypatch.context() as patched:
            patched.setattr(os, "fsync", full)
            assert "cannot write its account down" in reason(ask(at, "a", rows_at(0)))
        assert Store(path).spent() == {"first": 0}
        assert is_answer(ask(at, "a", rows_at(0)))


@pytest.mark.parametrize(
    "content", ["", "[]", "{}", '{"bookings": 1, "spent": "much"}', '{"bookings": null}']
)
def test_a_counter_that_cannot_be_read_is_refused_by_name(path: Path, content: str) -> None:
    store = Store(path)
    spend(store, "a")
    store.counter.path.write_text(content)
    with pytest.raises(InvalidStore, match=f"{store.counter.path.name} cannot be read"):
        store.open_study(GRANT)


def test_a_counter_is_where_the_user_keeps_such_things(
    path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    assert Store(path).counter.path.parent == tmp_path / "state" / "hedgerow"
    monkeypatch.setenv("HOME", str(tmp_path))
    for unusable in ("", "relative"):
        monkeypatch.setenv("XDG_STATE_HOME", unusable)
        assert Store(path).counter.path.parent == tmp_path / ".local" / "state" / "hedgerow"
    assert Store(path, counter=tmp_path / "named").counter.path.parent == tmp_path / "named"


def test_a_counter_that_cannot_be_kept_is_told_in_one_sentence(path: Path, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(InvalidStore, match=r"cannot be counted a second time in .* let XDG_STATE_HOME"):
        Store(path, counter=tmp_path / "file" / "below").open_study(GRANT)


@pytest.mark.parametrize(
    ("store", "counted", "is_older"),
    [((5, 1), (5, 2), True), ((4, 2), (5, 2), True), ((6, 1), (5, 2), True), ((5, 2), (5, 2), False), ((6, 3), (5, 2), False)],
)  # fmt: skip
def test_a_journal_that_lacks_bookings_or_spending_is_older(
    store: tuple[int, int], counted: tuple[int, int], is_older: bool
) -> None:
    """Also one that went on elsewhere: as many bookings, but cheaper ones."""
    ours, other = (Total(bookings, Fraction(spent)) for bookings, spent in (store, counted))
    assert ours.is_older_than(other) is is_older
