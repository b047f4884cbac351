"""What one holder allows: `hedgerow.toml` in the site's own folder, and the service behind it.

Nothing here comes from the coordinator. What goes wrong is said on the holder's own console; the coordinator
learns that the holder does not take part, never why. Knows no transport.
"""

from __future__ import annotations

import math
import tempfile
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np

from hedgerow.encoding import MAX_ROWS, Codes
from hedgerow.errors import HedgerowError, InvalidMessage, InvalidStore, InvalidTable, Refused
from hedgerow.holder.clock import AnswerClock
from hedgerow.holder.counter import state_folder
from hedgerow.holder.counts import GroupedRows
from hedgerow.holder.desk import LEAST_PRICE, MOST_RELEASES, QUANTUM, QUERIES, Desk, StudyGrant
from hedgerow.holder.store import Store, StoredStudy, StudyOpen
from hedgerow.messages import Refusal, Request, from_bytes, parse_epsilon, to_bytes
from hedgerow.owner import MUST_NOT_BE_PUBLISHED
from hedgerow.privacy.noise import Noise, SecureNoise, SeededNoise
from hedgerow.repeated import Epsilon, as_written
from hedgerow.schema import Schema
from hedgerow.tables import read_codes
from hedgerow.transport import NAME
from hedgerow.transport.console_log import plain_error, say
from hedgerow.transport.frames import DECLINED, LATER, READY, SEEDED, read_frame
from hedgerow.transport.study import InvalidStudy, read_toml

POLICY_FILE = "hedgerow.toml"
STORE = "studies.db"  # in the journal's folder
PLACES = {
    "data": "the file of the rows",
    "schema": "the file of the schema",
    "journal": "the folder in which everything that was spent is kept",
}
COUNTER = "counter"  # may be left out
OPENING = 10  # quanta that opening a study takes at least
NOT_HERE = "this holder does not take part in the study as asked; its own console says why."


class InvalidPolicy(InvalidStudy):
    """A holder's policy file contradicts itself or leaves something out."""


class NoGrant(Refused):
    """This site has granted the study nothing."""


@dataclass(frozen=True)
class Grant:
    """What one study may spend here, and how it may ask."""

    terms: StudyGrant
    noise_seed: int | None = None  # for tests: reproducible noise protects nobody

    @classmethod
    def from_dict(cls, plain: Any, schema: Schema, max_rows: int) -> Grant:
        """Checked values from TOML."""
        if not isinstance(plain, dict) or "study" not in plain:
            raise InvalidPolicy("a grant does not say its study.")
        if not isinstance(study := plain["study"], str) or not NAME.fullmatch(study):
            raise InvalidPolicy(f"study = {study!r} is not the name of a study.")
        entries = {"study", "epsilon", "methods", "neighbours", "least_price", "most_releases", "quantum"}
        if unknown := sorted(plain.keys() - entries - {"noise_seed"}):
            raise InvalidPolicy(f"grant of {study}: {_unknown(unknown, entries)}")
        if "epsilon" not in plain:
            raise InvalidPolicy(f"grant of {study}: say epsilon.")
        methods = plain.get("methods", list(QUERIES))
        if not isinstance(methods, list) or not methods or not all(isinstance(m, str) for m in methods):
            raise InvalidPolicy(f"grant of {study}: methods is a list of some of {', '.join(QUERIES)}.")
        epsilon = _epsilon(f"epsilon of {study}", plain["epsilon"])
        if not isinstance(epsilon, Fraction):
            raise InvalidPolicy(f"epsilon of {study} is infinite: over a network there is always noise.")
        seed = plain.get("noise_seed")
        if seed is not None and (type(seed) is not int or not 0 <= seed < 2**64):
            raise InvalidPolicy(
                f"noise_seed of {study}: a whole number below 2^64; leave it out for privacy."
            )
        neighbours = plain.get("neighbours", "add-remove")
        try:
            terms = StudyGrant(
                study,
                schema.hash,
                epsilon,
                max_rows,
                neighbours,
                tuple(methods),
                least_price=_share(f"least_price of {study}", plain.get("least_price", LEAST_PRICE)),
                most_releases=plain.get("most_releases", MOST_RELEASES),
                quantum=_number(f"quantum of {study}", plain.get("quantum", QUANTUM)),
            )
        except ValueError as error:
            raise InvalidPolicy(f"grant of {study}: {error}") from error
        return cls(terms, seed)

    @property
    def noise(self) -> Noise:
        """Cryptographic, unless a test asks for reproducible noise."""
        return SecureNoise() if self.noise_seed is None else SeededNoise(self.noise_seed)


@dataclass(frozen=True)
class Policy:
    """All that a site allows."""

    data: Path
    schema: Schema
    journal: Path
    lifetime: Epsilon
    grants: Mapping[str, Grant]
    max_rows: int = MAX_ROWS
    owner_warnings: bool = True  # on this site's own console
    line_breaks: bool = False  # in values of a CSV file, between quotes
    counter: Path | None = None  # the folder in which spending is counted a second time, if not the usual one

    @classmethod
    def load(cls, path: Path) -> Policy:
        """Read `hedgerow.toml`; names of files are relative to it."""
        plain = read_toml(path)
        try:
            return cls.from_dict(plain, path.parent)
        except InvalidPolicy as error:
            raise InvalidPolicy(f"{path}: {error}") from error

    @classmethod
    def from_dict(cls, plain: dict[str, Any], folder: Path) -> Policy:
        """Checked values from TOML; names of files are relative to `folder`."""
        entries = {
            *PLACES,
            COUNTER,
            "lifetime_epsilon",
            "max_rows",
            "line_breaks",
            "owner_warnings",
            "grants",
        }
        if unknown := sorted(plain.keys() - entries):
            raise InvalidPolicy(_unknown(unknown, entries))
        places = {name: _place(plain, name, folder) for name in PLACES}
        if "lifetime_epsilon" not in plain:
            raise InvalidPolicy("say lifetime_epsilon, what all studies together may ever spend.")
        max_rows = plain.get("max_rows", MAX_ROWS)
        if type(max_rows) is not int or not 0 < max_rows <= MAX_ROWS:
            raise InvalidPolicy(f"max_rows is a whole number of at most {MAX_ROWS}.")
        owner_warnings = plain.get("owner_warnings", True)
        if type(owner_warnings) is not bool:
            raise InvalidPolicy(
                "owner_warnings is true or false: whether this console says how the rows fit the schema."
            )
        if type(line_breaks := plain.get("line_breaks", False)) is not bool:
            raise InvalidPolicy(
                "line_breaks is true or false: whether values of the file may have line breaks."
            )
        if not places["schema"].is_file():
            raise InvalidPolicy(f"there is no schema file {places['schema']}.")
        grants = plain.get("grants", [])
        if not isinstance(grants, list):
            raise InvalidPolicy("begin each grant with [[grants]].")
        schema = Schema.load(places["schema"])
        checked = [Grant.from_dict(grant, schema, max_rows) for grant in grants]
        by_study = {grant.terms.study: grant for grant in checked}
        if len(by_study) < len(checked):
            raise InvalidPolicy("a study has two grants; keep one.")
        return cls(
            data=places["data"],
            schema=schema,
            journal=places["journal"],
            lifetime=_epsilon("lifetime_epsilon", plain["lifetime_epsilon"]),
            grants=by_study,
            max_rows=max_rows,
            owner_warnings=owner_warnings,
            line_breaks=line_breaks,
            counter=_place(plain, COUNTER, folder) if COUNTER in plain else None,
        )

    def explain(self) -> str:
        """What this site is about to allow, in plain words."""
        lines = [
            f"Data: {self.data}"
            + (
                " (values may have line breaks: one stray quote can change many rows)"
                if self.line_breaks
                else ""
            ),
            f"Schema: {len(self.schema.columns)} columns, label {self.schema.label!r} "
            f"({self.schema.n_classes} classes), {len(self.schema.splits)} candidate splits",
            f"  its hash: {self.schema.hash}",
            f"Journal: {self.journal}",
            f"Counter of what was spent: {self.counter or state_folder()}",
            f"All studies together may ever spend epsilon {_words(self.lifetime)}."
            if math.isfinite(self.lifetime)
            else "There is no limit to what all studies together may ever spend (lifetime_epsilon = inf).",
        ]
        if not self.grants:
            lines.append("No study is granted anything: every question will be refused.")
        for grant in self.grants.values():
            terms = grant.terms
            how = (
                "any method"
                if set(terms.methods) == set(QUERIES)
                else f"the methods {', '.join(terms.methods)}"
            )
            lines.append(
                f"Study {terms.study!r} may spend epsilon {_words(terms.epsilon)} (neighbours: {terms.neighbours}), "
                f"asking by {how}: at most {terms.most_releases} releases, none for less than epsilon "
                f"{_words(terms.least_price * terms.epsilon)}; answers leave at multiples of {terms.quantum:g} s."
            )
            if not grant.noise.private:
                lines.append("  NOT PRIVATE: the noise is seeded and can be taken off again; for tests only.")
        lines.append(
            "What leaves this site: noisy counts and chosen splits, charged before they are drawn. "
            "Rows, exact counts and labels stay."
        )
        return "\n".join(lines)


class Site:
    """A holder's desks, one a granted study, over one table that is read once. Until a study asks, it only looks.

    A grant that is withdrawn or changed in the policy's file counts from the next question on; other changes
    (data, schema, journal) stop the site until its next start.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._stamp = _stamp(path)
        self.policy = policy = Policy.load(path)
        self._codes, self._labels = load_table(policy)
        _check_takes_files(policy.journal, _no_journal)
        _check_takes_files(policy.counter or state_folder(), _no_counter)
        self._kept: Store | None = None
        self._open: dict[str, tuple[StoredStudy, Desk]] = {}
        self._lock = threading.Lock()  # a transport may deliver frames on several threads
        self._waits = False  # for another process to close the study

    def hold_back(self, began: float) -> None:
        """Wait, so that when this site first calls does not tell how long its rows took to read."""
        quanta = [grant.terms.quantum for grant in self.policy.grants.values()]
        AnswerClock(max(quanta, default=QUANTUM)).hold_back(began, OPENING)

    def close(self) -> None:
        """Let another process serve the studies."""
        with self._lock:
            for study, _ in self._open.values():
                study.close()
            self._open.clear()

    def greet(self, greeting: Mapping[str, Any]) -> bool:
        """Open a study's desk, and say whether its noise protects anybody.

        Raises `Refused` with the reason, for this site's console, if there is no such desk, or if the study would
        be refused later, when it has spent something already. The ledger decides in any case.
        """
        with self._lock:
            self._reread()
            terms = self._grant(greeting.get("study")).terms
            if (found := greeting.get("schema")) != terms.schema:
                raise Refused(
                    f"study {terms.study!r} means another schema than this site's (hash {str(found)[:64]!r}, "
                    f"here {terms.schema!r}); agree on one file."
                )
            if (found := greeting.get("neighbours")) != terms.neighbours:
                raise Refused(
                    f"study {terms.study!r} means neighbours {str(found)[:20]!r}, granted is {terms.neighbours!r}."
                )
            method = str(greeting.get("method"))
            if method not in QUERIES or not QUERIES[method] <= terms.queries:
                raise Refused(
                    f"study {terms.study!r} asks by the method {method[:20]!r}, which is not granted."
                )
            self._check_epsilon(terms, parse_epsilon(greeting.get("epsilon")))
            least = terms.least_price * terms.epsilon
            if (planned := parse_epsilon(greeting.get("least_price"))) < least:
                raise Refused(
                    f"study {terms.study!r} plans releases of epsilon {_words(planned)}, and here none costs less than "
                    f"{_words(least)}; raise least_price in the study, or lower it in the grant."
                )
            return self._desk(terms.study).holder.ledger.private

    def reply(self, frame: bytes) -> bytes:
        """What goes back to whoever sent a frame; never raises, and says nothing that depends on rows."""
        try:
            message = read_frame(frame)
            return self.handle(message) if isinstance(message, bytes) else self._reply_to_greeting(message)
        except Exception as error:  # noqa: BLE001 - whatever it is, it stays on this console
            say(f"a request failed: {plain_error(error)}")
            return refusal("unknown", "unknown", NOT_HERE)

    def _reply_to_greeting(self, greeting: Mapping[str, str]) -> bytes:
        try:
            private = self.greet(greeting)
        except StudyOpen as error:  # asked again every moment
            if not self._waits:
                say(f"not yet: {error}")
            self._waits = True
            return LATER
        except Exception as error:  # noqa: BLE001
            say(f"this site does not take part: {plain_error(error)}")
            return DECLINED
        say(f"takes part in study {greeting.get('study')!r}, as {POLICY_FILE} allows.")
        return READY if private else SEEDED

    def _grant(self, study: object) -> Grant:
        if not isinstance(study, str) or study not in self.policy.grants:
            raise NoGrant(f"study {str(study)[:80]!r} has no grant in {POLICY_FILE}.")
        return self.policy.grants[study]

    def _check_epsilon(self, terms: StudyGrant, epsilon: Epsilon) -> None:
        """Refuse a study that means to spend more than it is granted, or than others have left of the lifetime."""
        left = self._left_for(terms.study)
        if epsilon > min(terms.epsilon, left):
            raise Refused(
                f"study {terms.study!r} means to spend epsilon {_words(epsilon)}; it is granted "
                f"{_words(terms.epsilon)}, and other studies have left it {_words(left)}."
            )

    @property
    def _store(self) -> Store | None:
        """The studies that there have been; kept, so that a file that vanishes is missed and not begun anew."""
        path = self.policy.journal / STORE
        if self._kept is None and path.exists():
            self._kept = _open_store(self.policy)
        return self._kept

    def _left_for(self, study: str | None) -> Epsilon:
        """What all studies, or all others, have left of the lifetime's epsilon."""
        spent = self._store.spent() if self._store else {}
        paid = sum(epsilon for other, epsilon in spent.items() if other != study)
        return max(self.policy.lifetime - paid, Fraction(0))

    def outlook(self) -> str:
        """What is left here, and which grants would be of no use today, in plain words; nothing is made or changed.

        A study is taken to mean what it is granted: of what it means indeed, a site hears when it is greeted.
        """
        policy, store = self.policy, self._store
        lines = [f"The data can be read: {self._codes.n_rows} rows (this number stays here)."]
        lines.append("The journal can be written.")  # or there would be no site
        if store is None:
            lines.append(_no_store(policy.journal))
        else:
            spent = store.spent()
            lines += [f"Study {s!r} has spent epsilon {_words(spent[s])} so far." for s in spent]
            try:
                lines += filter(None, [store.difference()])
            except InvalidStore as error:
                return "\n".join([*lines, f"EVERY STUDY WOULD BE DECLINED: {error}"])
        if math.isfinite(policy.lifetime):
            left = _words(self._left_for(None))
            lines.append(f"Of epsilon {_words(policy.lifetime)} for all studies together, {left} is left.")
        rows = GroupedRows(self._codes, self._labels, policy.schema)
        for grant in policy.grants.values():
            try:
                self._check_epsilon(grant.terms, grant.terms.epsilon)
                if store is not None:
                    store.check(grant.terms, rows, grant.noise)
            except HedgerowError as error:
                lines.append(f"WOULD BE DECLINED: {error}")
        return "\n".join(lines)

    def handle(self, data: bytes) -> bytes:
        """One request at a time; never raises for what a stranger sent."""
        with self._lock:
            try:
                request = from_bytes(data)
            except InvalidMessage as error:
                return refusal("unknown", "unknown", str(error))
            if not isinstance(request, Request):
                return refusal("unknown", "unknown", "only requests are answered.")
            name = f"{request.identifier!r} of study {request.study[:80]!r}"
            try:
                self._reread()
                self._grant(request.study)
                desk = self._desk(request.study)
            except HedgerowError as error:
                say(f"refused {name}: {error}")
                return refusal(request.study, request.identifier, NOT_HERE)
            began = time.perf_counter()
            try:
                answer = desk.handle(data)
            except BaseException:  # out of memory, say: a new desk goes on from the journal
                self._open.pop(request.study)[0].close()
                raise
            message = from_bytes(answer)
            if isinstance(message, Refusal):
                say(f"refused {name}: {message.reason}")
            else:  # for the holder, and for whoever measures: how long it takes may depend on the rows
                query = request.query
                say(
                    f"answered {name}: {type(query).__name__}, {len(query.nodes)} nodes, "
                    f"{time.perf_counter() - began:.4f} s"
                )
            return answer

    def _reread(self) -> None:
        """Obey what the holder has changed meanwhile."""
        if (stamp := _stamp(self._path)) == self._stamp:
            return
        fresh, old = Policy.load(self._path), self.policy
        if replace(fresh, grants=old.grants) != old:
            raise InvalidPolicy(
                f"{POLICY_FILE} has changed in more than its grants; that counts from the next start on."
            )
        for study in [study for study in self._open if fresh.grants.get(study) != old.grants[study]]:
            self._open.pop(study)[0].close()
        self.policy, self._stamp = fresh, stamp

    def _desk(self, study: str) -> Desk:
        """The desk of a study; opening it follows the journal, which takes as long as the rows make it take."""
        if study not in self._open:
            grant = self.policy.grants[study]
            clock = AnswerClock(grant.terms.quantum)
            came = clock.now()
            try:
                self._open_desk(study, grant)
            finally:
                clock.hold_back(came, OPENING)
        return self._open[study][1]

    def _open_desk(self, study: str, grant: Grant) -> None:
        store = self._kept = self._store or _make_store(self.policy)
        stored = store.open_study(grant.terms)
        try:
            rows = GroupedRows(self._codes, self._labels, self.policy.schema)
            desk = stored.desk(rows, grant.noise)
            _warm_up(grant.noise)
            self._open[study] = stored, desk
        except BaseException:
            stored.close()
            raise


def _warm_up(noise: Noise) -> None:
    """Load the noise's libraries while the coordinator greets, not while it waits for the first answer."""
    noise.laplace(np.zeros((1, 1), dtype=np.int64), Fraction(1), np.zeros(1, dtype=np.uint64))


def _stamp(path: Path) -> tuple[int, int, int]:
    """Differs when a file was changed or replaced."""
    try:
        found = path.stat()
    except FileNotFoundError:
        return 0, 0, 0
    return found.st_mtime_ns, found.st_size, found.st_ino


def load_table(policy: Policy) -> tuple[Codes, Any]:
    """The holder's rows, encoded; how they fit the schema is said on this console only."""
    try:
        tell = _tell_owner if policy.owner_warnings else None
        codes, labels = read_codes(policy.data, policy.schema, tell, line_breaks=policy.line_breaks)
    except OSError as error:
        raise InvalidTable(f"{policy.data} cannot be read: {error.strerror}.") from error
    if codes.n_rows > policy.max_rows:
        raise InvalidTable(
            f"the table has more rows than max_rows = {policy.max_rows}, the public bound that the noise is made "
            "for; raise it, or give fewer rows."
        )
    return codes, labels


def _tell_owner(sentence: str) -> None:
    say(f"about the rows here: {sentence} {MUST_NOT_BE_PUBLISHED}")


def refusal(study: str, identifier: str, reason: str) -> bytes:
    """A refusal as bytes."""
    return to_bytes(Refusal(study, identifier, reason))


def _number(name: str, value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise InvalidPolicy(f"{name} = {value!r}; it must be a number.")
    return float(value)


def _share(name: str, value: Any) -> Fraction:
    return value if isinstance(value, Fraction) else as_written(_number(name, value))


def _epsilon(name: str, value: Any) -> Epsilon:
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not value > 0:
        raise InvalidPolicy(f"{name} = {value!r}; it must be a positive number.")
    return as_written(value) if math.isfinite(value) else math.inf


def _words(epsilon: Epsilon) -> str:
    return f"{float(epsilon):g}"


def _unknown(names: list[str], entries: set[str]) -> str:
    return f"there is no {', '.join(names)}; there is {', '.join(sorted(entries))}."


def _place(plain: Mapping[str, Any], name: str, folder: Path) -> Path:
    """Where a policy says that something is."""
    if not isinstance(plain.get(name), str):
        raise InvalidPolicy(f"say {name}, {PLACES.get(name, 'the folder of the counter, or leave it out')}.")
    place: Path = folder / plain[name]
    return place


def account(path: Path, study: str) -> str:
    """What a study has spent and on what, in words, for the person who answers for the data.

    Read from the journal; nothing else needs to be as it was, and nothing is made or changed by asking.
    """
    journal = _place(read_toml(path), "journal", path.parent)
    if not (journal / STORE).exists():
        return _no_store(journal)
    store = Store(journal / STORE)
    if (ledger := store.account(study)) is None:
        others = [name for name, spent in store.spent().items() if spent]
        return f"Nothing was asked in study {study!r} yet; in others it was: {', '.join(others) or 'none'}."
    return ledger.explain()


def _no_store(journal: Path) -> str:
    return f"There is no journal in {journal} yet: nothing counts as spent."


def _make_store(policy: Policy) -> Store:
    try:
        policy.journal.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError as error:
        raise _no_journal(policy.journal, error) from error
    return _open_store(policy)


def _open_store(policy: Policy) -> Store:
    path = policy.journal / STORE
    return Store(path, lifetime_epsilon=policy.lifetime, counter=policy.counter, tell=say)


def _check_takes_files(folder: Path, sorry: Callable[[Path, OSError], InvalidPolicy]) -> None:
    """Refuse a folder that does not take a file, or cannot be made; leaves nothing behind."""
    try:
        there = next(path for path in (folder, *folder.absolute().parents) if path.exists())
        with tempfile.TemporaryFile(dir=there):
            pass
    except OSError as error:
        raise sorry(folder, error) from error


def _no_journal(folder: Path, error: OSError) -> InvalidPolicy:
    return InvalidPolicy(
        f"no journal can be kept in {folder} ({error.strerror}); let `journal` in {POLICY_FILE} name a folder that "
        "this user may write to."
    )


def _no_counter(folder: Path, error: OSError) -> InvalidPolicy:
    return InvalidPolicy(
        f"what was spent cannot be counted a second time in {folder} ({error.strerror}); let `{COUNTER}` in "
        f"{POLICY_FILE} name a folder that this user may write to, far from the journal."
    )
