"""Start, stop and look at the process of one kit on this machine."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from hedgerow.errors import HedgerowError
from hedgerow.transport.flare import GUARD
from hedgerow.transport.flare.kits import settle
from hedgerow.transport.flare.workspace import RUN, SETTINGS, lay_out
from hedgerow.transport.site import POLICY_FILE

PID_FILE = "hedgerow.pid"
CONSOLE_FILE = "console.log"


class NotAKit(HedgerowError):
    """A folder that was not made by `hedgerow network provision`."""


class RunsAlready(HedgerowError):
    """The kit's process is up."""


@dataclass(frozen=True)
class Status:
    """Is the kit's process up, with which number, and which job processes has it started?"""

    process: int | None
    jobs: tuple[int, ...] = ()


def start(kit: Path) -> int:
    """Start the kit's process in the background; what it says goes to `console.log` in the kit."""
    if (running := status(kit).process) is not None:
        raise RunsAlready(f"{kit.name} runs already, as process {running}.")
    script = kit / "startup" / "sub_start.sh"
    if (kit / "local" / POLICY_FILE).exists():  # a holder's, whatever else is in it
        stop(kit)  # jobs that have outlived their site: they would write into the workspace
        command, folder, settings = lay_out(kit), kit / RUN, SETTINGS
    elif script.is_file():
        settle(kit)
        # The script calls python3: ours, which has FLARE and Hedgerow.
        path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ.get('PATH', '')}"
        command, folder, settings = [str(script.resolve()), "--once"], kit, {"PATH": path}
    else:
        raise NotAKit(f"{kit} is not the kit of a server or of a holder.")
    with _open(kit / CONSOLE_FILE, "ab") as console, _open(kit / PID_FILE, "wb") as number:
        process = subprocess.Popen(  # noqa: S603 - the server's own script, or ours
            command,
            cwd=folder,
            env=os.environ | settings,
            stdin=subprocess.DEVNULL,
            stdout=console,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        number.write(f"{process.pid} {_started(process.pid)}\n".encode())
    return process.pid


def _open(path: Path, mode: str) -> IO[bytes]:
    """A file of ours in a kit that somebody else has made: never what a link there points to."""
    return open(path, mode, opener=lambda name, flags: os.open(name, flags | os.O_NOFOLLOW, 0o600))


def status(kit: Path) -> Status:
    """The kit's process and its jobs', if they are up."""
    try:
        number, began = (kit / PID_FILE).read_text(encoding="utf-8").split()
        pid = int(number)
    except (OSError, ValueError):
        return Status(None)
    if _started(pid) != began:  # gone, and the number may belong to a stranger by now
        return Status(None, _jobs_of(kit))
    return Status(pid, _jobs_of(kit))


def stop(kit: Path, seconds: float = 10.0) -> bool:
    """Stop the kit's process and its jobs; a study that was under way can be resumed."""
    now = status(kit)
    ours = [pid for pid in (now.process, *now.jobs) if pid is not None]
    _end(ours, signal.SIGTERM, seconds)
    _end([*ours, *_jobs_of(kit)], signal.SIGKILL, seconds)  # a process that is killed is not gone at once
    (kit / PID_FILE).unlink(missing_ok=True)
    return bool(ours)


def _jobs_of(kit: Path) -> tuple[int, ...]:
    """Job processes name their workspace on their command line; FLARE starts them in sessions of their own."""
    found, workspaces = [], {str(kit.resolve()), str(kit.resolve() / RUN)}
    for folder in Path("/proc").iterdir():
        if not folder.name.isdigit():
            continue
        try:
            words = (folder / "cmdline").read_bytes().decode(errors="replace").split("\0")
        except OSError:
            continue
        is_job = "job" in words if GUARD in words else any(word.endswith(".runner_process") for word in words)
        if is_job and not workspaces.isdisjoint(words):
            found.append(int(folder.name))
    return tuple(found)


def _started(pid: int) -> str:
    """When a process began, in clock ticks since the machine did; empty if there is none."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()
    except OSError:
        return ""
    state, n_threads, began = fields[0], int(fields[17]), fields[19]
    # A process whose first thread has ended keeps its files and their locks until the last one has.
    return "" if state in {"Z", "X"} and n_threads <= 1 else began


def _is_up(pid: int) -> bool:
    return _started(pid) != ""


def _end(pids: Sequence[int], kind: signal.Signals, seconds: float) -> None:
    """Send a signal, and wait until the processes are gone, or so long."""
    for pid in pids:
        _signal(pid, kind)
    deadline = time.monotonic() + seconds
    while any(_is_up(pid) for pid in pids) and time.monotonic() < deadline:
        time.sleep(0.1)


def _signal(pid: int, kind: signal.Signals) -> None:
    try:
        os.kill(pid, kind)
    except ProcessLookupError:
        return
