"""The coordinator's console: submits a study as a job, watches it, and goes on after a crash.

A job is configuration only: two files that name our two classes, and the study.
"""

from __future__ import annotations

import contextlib
import io
import json
import logging
import socket
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from hedgerow.errors import HedgerowError
from hedgerow.transport.flare import CLIENT_CONFIG, CONTROLLER, WATCH
from hedgerow.transport.flare.kits import CONSOLE, CONSOLE_USER
from hedgerow.transport.study import Study

POLL_SECONDS = 0.4
MOST_FRUITLESS = 5
TRY_AGAIN = ("lost", "died", "stopped", "busy")  # a new job may go on
NOTHING_NEW: dict[str, Any] = {"rounds": [], "outcome": None}
Show = Callable[[str], None]

# Its internals are for nobody at this terminal; what they mean is said here.
logging.getLogger("nvflare").addHandler(logging.NullHandler())


class StudyInterrupted(HedgerowError):
    """The study is not finished; `hedgerow network resume` goes on with it."""


@dataclass
class Outcome:
    """How a job ended."""

    state: str  # finished, lost, refused, stopped, busy, failed, or died
    reason: str = ""
    tree: dict[str, Any] = field(default_factory=dict)
    report: dict[str, Any] = field(default_factory=dict)


def learn(study: Study, kits: Path, show: Show, show_round: Callable[[dict[str, Any]], None]) -> Outcome:
    """Run the study to its end, in as many jobs as that takes."""
    heard = time.monotonic()  # when something new was answered
    fruitless = 0  # jobs that died before they asked anything new

    def count(one: dict[str, Any]) -> None:
        nonlocal fruitless, heard
        if one["stored"] < len(study.holders):
            fruitless, heard = 0, time.monotonic()
        show_round(one)

    while True:
        fruitless += 1
        try:
            wait_for_server(kits, study, show)
            with session(kits) as flare:
                wait_for_holders(flare, study, show)
                outcome = _run_once(flare, study, show, count)
        except ConnectionError as error:
            outcome = Outcome("died", str(error))
        if outcome.state == "finished":
            return outcome
        may_wait = study.when_a_holder_is_lost != "abort" and outcome.state in TRY_AGAIN
        is_late = time.monotonic() - heard > 60 * study.return_minutes
        if not may_wait or is_late or fruitless >= MOST_FRUITLESS:
            raise StudyInterrupted(
                f"{outcome.reason} Nothing answered so far is lost: hedgerow network resume."
            )
        show(f"{outcome.reason} Trying again.")
        time.sleep(2.0)


@contextlib.contextmanager
def session(kits: Path, seconds: float = 15.0) -> Iterator[Any]:
    """A connection to the server as the coordinator; raises ConnectionError if there is none."""
    from nvflare.fuel.flare_api.flare_api import new_secure_session

    kit = _kit(kits)
    try:
        with contextlib.redirect_stdout(io.StringIO()):  # FLARE says that it is connecting
            flare = new_secure_session(CONSOLE_USER, str(kit.resolve()), timeout=seconds)
    except Exception as error:  # FLARE raises half a dozen kinds
        raise ConnectionError(f"the server did not let the console in ({type(error).__name__}).") from error
    try:
        yield flare
    finally:
        with contextlib.suppress(Exception):  # the server may be gone
            flare.close()


def _kit(kits: Path) -> Path:
    kit = kits / CONSOLE
    if not (kit / "startup").is_dir():
        raise HedgerowError(f"there is no console's kit in {kits}; make it with hedgerow network provision.")
    return kit


def wait_for_server(kits: Path, study: Study, show: Show) -> None:
    """Until something listens where the console's kit expects the server; FLARE itself would not say where."""
    host, port = _server_of(_kit(kits))
    began = time.monotonic()
    told = False
    while True:
        try:
            socket.create_connection((host, port), timeout=10).close()
        except OSError as error:
            away = (
                f"the server {host}:{port} cannot be reached ({error.strerror or error}); "
                "run `hedgerow network start` in the server's kit"
            )
        else:
            return
        if time.monotonic() - began > _patience(study):
            raise StudyInterrupted(f"{away}, then hedgerow network resume.")
        if not told:
            show(f"waiting: {away}")
            told = True
        time.sleep(1.0)


def _server_of(kit: Path) -> tuple[str, int]:
    path = kit / "startup" / "fed_admin.json"
    try:
        admin = json.loads(path.read_text(encoding="utf-8"))["admin"]
        return str(admin["host"]), int(admin["port"])
    except (OSError, ValueError, LookupError, TypeError) as error:
        raise HedgerowError(
            f"{path} does not say where the server is; make the kits anew with hedgerow network provision --renew."
        ) from error


def _patience(study: Study) -> float:
    """Seconds to wait for a party that is not there yet."""
    minutes = study.return_minutes
    return 60.0 * (min(minutes, 1.0) if study.when_a_holder_is_lost == "abort" else minutes)


def wait_for_holders(flare: Any, study: Study, show: Show) -> None:
    """Until the holders that the study needs are connected."""
    needed = 1 if study.when_a_holder_is_lost == "continue" else len(study.holders)
    began = time.monotonic()
    told: tuple[str, ...] = ()
    while True:
        here = connected(flare)
        missing = tuple(holder for holder in study.holders if holder not in here)
        waited = time.monotonic() - began
        if not missing or (len(study.holders) - len(missing) >= needed and waited > study.answer_seconds):
            return
        if waited > _patience(study):
            raise StudyInterrupted(
                f"{', '.join(missing)} did not connect; hedgerow network resume when they do."
            )
        if missing != told:
            show(f"waiting for {', '.join(missing)} to connect")
            told = missing
        time.sleep(1.0)


def connected(flare: Any) -> set[str]:
    """The holders that the server has heard of lately."""
    try:
        return {client.name for client in flare.get_connected_client_list()}
    except Exception as error:
        raise ConnectionError(f"the server was lost ({type(error).__name__}).") from error


def _run_once(flare: Any, study: Study, show: Show, show_round: Callable[[dict[str, Any]], None]) -> Outcome:
    with tempfile.TemporaryDirectory() as folder:
        job = _submit(flare, write_job(study, Path(folder)))
    show(f"job {job[:8]} submitted")
    try:
        return _watch(flare, job, show_round)
    except KeyboardInterrupt:
        with contextlib.suppress(Exception):
            flare.abort_job(job)
        raise


def _submit(flare: Any, folder: Path) -> str:
    try:
        job: str = flare.submit_job(str(folder.resolve()))
    except Exception as error:
        raise ConnectionError(f"the server did not take the job: {type(error).__name__}: {error}.") from error
    return job


def _watch(flare: Any, job: str, show_round: Callable[[dict[str, Any]], None]) -> Outcome:
    """Show rounds as they happen, until there is an outcome."""
    seen, pause = 0, 1.0
    while True:
        try:
            status = str(flare.get_job_meta(job).get("status", ""))
        except Exception as error:
            raise ConnectionError(f"the server was lost ({type(error).__name__}).") from error
        if status.startswith("FINISHED"):
            return Outcome("died", f"the job ended early ({status.partition(':')[2].lower()}).")
        # A command to a job that is about to begin or to end fails in many ways; its status tells which.
        with contextlib.suppress(Exception):
            news = flare.do_app_command(job, WATCH, {"since": seen}) if status == "RUNNING" else NOTHING_NEW
            for one in news["rounds"]:
                show_round(one)
                seen, pause = seen + 1, POLL_SECONDS
            if (outcome := news["outcome"]) is not None:
                kept = {key: outcome[key] for key in ("state", "reason", "tree", "report") if key in outcome}
                return Outcome(**kept)
        time.sleep(pause)


def write_job(study: Study, folder: Path) -> Path:
    """The job's two files."""
    job = folder / study.name
    config = job / "app" / "config"
    config.mkdir(parents=True)
    everybody = len(study.holders) if study.when_a_holder_is_lost != "continue" else 1
    _json(
        job / "meta.json",
        {
            "name": study.name,
            "resource_spec": {},
            "deploy_map": {"app": ["server", *study.holders]},
            "min_clients": everybody,
            "mandatory_clients": list(study.holders) if everybody > 1 else [],
        },
    )
    _json(
        config / "config_fed_server.json",
        {
            "format_version": 2,
            "dead_client_grace_period": 2.0,
            "workflows": [{"id": "study", "path": CONTROLLER, "args": {"study": study.to_dict()}}],
        },
    )
    _json(config / "config_fed_client.json", CLIENT_CONFIG)
    return job


def _json(path: Path, content: dict[str, Any]) -> None:
    path.write_text(json.dumps(content, indent=1, allow_nan=False), encoding="utf-8")


def describe_round(one: dict[str, Any]) -> str:
    """One round in one line."""
    from_disk = f", {one['stored']} answers from disk" if one["stored"] else ""
    spent = ", ".join(f"{holder} {epsilon}" for holder, epsilon in one["spent"].items())
    return (
        f"wave {one['wave']:2d}  round {one['number']:3d}  {one['query']:12} {one['nodes']:4d} nodes  {one['seconds']:6.3f} s  "
        f"{one['bytes_sent'] + one['bytes_received']:9,d} bytes{from_disk}  spent: {spent}"
    )


def describe_report(report: dict[str, Any]) -> str:
    """The end of a study, for people."""
    lines = [report["plan"], f"{report['traffic']}."]
    lines += [f"{holder} has spent epsilon {spent}." for holder, spent in report["spent"].items()]
    lines += [
        f"{holder} was lost: from {since} on the tree was grown without it; its earlier answers are in it."
        for holder, since in report["holders_lost"].items()
    ]
    return "\n".join(lines)
