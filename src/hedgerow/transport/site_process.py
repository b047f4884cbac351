"""A site's process: one for each folder, locked for its life, with the policy that its owner has been shown.

`run` is the process itself; `start`, `stop` and `status` are for whoever has a terminal there.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from io import FileIO
from pathlib import Path

from hedgerow.errors import HedgerowError
from hedgerow.files import write_text
from hedgerow.holder.desk import QUERIES
from hedgerow.holder.own_files import check_own, open_own
from hedgerow.transport.console_log import log_to, plain_error, say
from hedgerow.transport.keys import SiteKeys
from hedgerow.transport.site import POLICY_FILE, InvalidPolicy, Policy, Site
from hedgerow.transport.study import Study

LOCK = "site.lock"
SHOWN = "policy.shown"  # the hash of the policy that `site check` has shown last
CONSOLE = "console.log"
KEYS = "keys"
PROPOSAL = "proposal"  # what the coordinator sent: the study and its schema, to be read and not obeyed
LOCK_SECONDS = 0.5  # whoever asks for the status holds the lock for a moment
START_SECONDS = 120.0  # for a process to lock its folder: it imports, and reads no rows before


class RunsAlready(HedgerowError):
    """Another process serves this folder."""


class CannotStart(HedgerowError):
    """A site's process ended before it was up."""


def show(folder: Path) -> str:
    """What the site would allow, in words; remembers that it was shown."""
    policy = _policy(folder)
    keys = SiteKeys.load(folder / KEYS)
    site = Site(folder / POLICY_FILE)
    lines = [
        policy.explain(),
        _proposal(folder, policy),
        f"The certificate of this site is good until {keys.good_until:%Y-%m-%d}; it calls {keys.host}.",
        site.outlook(),
    ]
    write_text(folder / SHOWN, _mark(policy))
    (folder / SHOWN).chmod(0o600)
    return "\n".join(lines)


def _policy(folder: Path) -> Policy:
    """The policy, with the same paths from wherever the folder is named."""
    path = folder.resolve() / POLICY_FILE
    if not path.exists():
        raise InvalidPolicy(
            f"there is no {path}; name the site's folder, or write the policy: hedgerow site init"
        )
    return Policy.load(path)


def proposal(folder: Path) -> Study:
    """The study that the coordinator has invited this site to."""
    path = folder / PROPOSAL / "study.toml"
    if not path.is_file():
        raise CannotStart(f"there is no {path}; name the site's folder, or make it: hedgerow site enroll")
    return Study.load(path)


def _proposal(folder: Path, policy: Policy) -> str:
    """What the study asks for, beside what is granted."""
    from hedgerow.transport.learning import planned_method

    study = proposal(folder)
    asked = (
        f"The coordinator proposes study {study.name!r}: epsilon {study.epsilon:g} from each of {len(study.holders)} "
        f"holders ({', '.join(study.holders)}), neighbours {study.neighbours}, method {study.method}, at most "
        f"{study.max_splits} splits."
    )
    if study.schema.hash != policy.schema.hash:
        return f"{asked} ITS SCHEMA IS ANOTHER THAN THIS SITE'S, so it would be declined."
    if (grant := policy.grants.get(study.name)) is None:
        return f"{asked} It is granted nothing."
    terms = grant.terms
    if terms.epsilon < study.exact_epsilon:
        return f"{asked} IT IS GRANTED LESS, so it would be declined."
    if terms.neighbours != study.neighbours or not QUERIES[planned_method(study)] <= terms.queries:
        return f"{asked} ITS NEIGHBOURS OR ITS METHOD ARE NOT GRANTED, so it would be declined."
    return f"{asked} It is granted that."


def _mark(policy: Policy) -> str:
    """A hash of all that the owner was shown of the policy."""
    return hashlib.sha256(f"{policy!r}{policy.schema.hash}".encode()).hexdigest()


def check_shown(folder: Path, *, seeded: bool) -> None:
    """Refuse a policy that its owner has not seen as it is, and seeded noise that nobody asked for at the start."""
    path, policy = folder / SHOWN, _policy(folder)
    check_own(folder / POLICY_FILE)
    check_own(path)
    if not path.is_file() or path.read_text(encoding="utf-8") != _mark(policy):
        raise InvalidPolicy(
            f"{POLICY_FILE} or its schema has changed since it was last shown; read what it allows: hedgerow site check"
        )
    unprotected = [name for name, grant in policy.grants.items() if not grant.noise.private]
    if unprotected and not seeded:
        raise InvalidPolicy(
            f"the noise for {', '.join(unprotected)} is seeded and protects nobody; take noise_seed out of "
            f"{POLICY_FILE}, or say --seeded if this is a test."
        )


def run(folder: Path, *, seeded: bool = False) -> None:
    """Serve until a signal comes."""
    from hedgerow.transport.grpc_site import Caller

    folder = folder.resolve()
    try:
        with _locked(folder):
            check_shown(folder, seeded=seeded)
            keys = SiteKeys.load(folder / KEYS)
            port = proposal(folder).port
            began = time.monotonic()
            site = Site(folder / POLICY_FILE)
            site.hold_back(began)
            caller = Caller(keys, port, site.reply)
            for kind in (signal.SIGTERM, signal.SIGINT):
                signal.signal(kind, lambda *_: caller.stop())
            say(f"the site of {keys.holder} has read its rows and calls {keys.host}:{port}.")
            caller.run()
            site.close()
            say("stopped.")
    except Exception as error:  # noqa: BLE001 - whatever it is, it stays on this console
        say(f"this site does not run: {plain_error(error)}")
        raise CannotStart(plain_error(error)) from None


def start(folder: Path, *, seeded: bool = False) -> int:
    """Start the site's process in the background; what it says goes to console.log in its folder."""
    folder = folder.resolve()
    check_shown(folder, seeded=seeded)
    SiteKeys.load(folder / KEYS)
    check_own(folder / CONSOLE)
    if (running := status(folder)) is not None:
        raise RunsAlready(f"{folder.name} runs already, as process {running}.")
    command = [sys.executable, "-m", "hedgerow.transport.site_process", str(folder)]
    process = subprocess.Popen(  # noqa: S603 - this program
        [*command, *(["--seeded"] if seeded else [])],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    deadline = time.monotonic() + START_SECONDS
    while status(folder) != process.pid:
        if process.poll() is not None or time.monotonic() > deadline:
            process.kill()
            if (other := status(folder)) is not None:
                raise RunsAlready(f"{folder.name} runs already, as process {other}.")
            raise CannotStart(f"the site did not start; {folder / CONSOLE} says why.")
        time.sleep(0.02)
    return process.pid


def status(folder: Path) -> int | None:
    """The number of the process that serves a folder, if there is one."""
    path = folder / LOCK
    if not path.is_file():
        return None
    with path.open("rb") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except OSError:
            return int(file.read() or 0) or None
        return None


def stop(folder: Path, seconds: float = 10.0) -> bool:
    """Stop the process that serves a folder, and wait until it is gone; a study can be resumed."""
    if (process := status(folder)) is None:
        return False
    for kind in (signal.SIGTERM, signal.SIGKILL):
        try:
            os.kill(process, kind)
        except ProcessLookupError:
            break
        deadline = time.monotonic() + seconds
        while (running := status(folder)) == process and time.monotonic() < deadline:
            time.sleep(0.05)
        if running != process:
            break
    return True


@contextmanager
def _locked(folder: Path) -> Iterator[None]:
    """Hold the folder for this process alone."""
    check_own(folder)
    check_own(folder / LOCK)
    try:
        number = open_own(folder / LOCK, os.O_RDWR)
    except OSError as error:
        raise CannotStart(f"{folder} cannot be a site's folder: {error.strerror}.") from error
    with os.fdopen(number, "r+b", buffering=0) as lock:
        deadline = time.monotonic() + LOCK_SECONDS
        while not _try_lock(lock):
            if time.monotonic() > deadline:
                raise RunsAlready(f"{folder.name} runs already.")
            time.sleep(0.01)
        lock.truncate()
        lock.write(str(os.getpid()).encode())
        yield


def _try_lock(lock: FileIO) -> bool:
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return False
    return True


def main() -> None:
    """The process that `start` starts."""
    folder = Path(sys.argv[1])
    log_to(folder / CONSOLE)
    try:
        run(folder, seeded="--seeded" in sys.argv)
    except HedgerowError:
        sys.exit(1)  # said already


if __name__ == "__main__":
    main()
