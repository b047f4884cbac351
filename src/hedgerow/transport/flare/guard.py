"""A site's processes: FLARE's client, less the doors that only an honest server leaves shut.

FLARE 2.9 asks a site's authorization.json about a message only if the message says that it should, and among
the messages are reading files (cat, grep) and setting up logging, which builds any class. A holder does not trust
the server that far. So a site takes the few kinds of message that a study needs, and of jobs Hedgerow's own only,
whatever they are called. Started as `python -m hedgerow.transport.flare.guard site ...` by `processes`.
"""

from __future__ import annotations

import io
import json
import os
import re
import sys
import threading
import time
import zipfile
from pathlib import Path
from typing import Any

from nvflare.apis.fl_context import FLContext
from nvflare.app_common.job_launcher.client_process_launcher import ClientProcessJobLauncher
from nvflare.fuel.f3.mpm import MainProcessMonitor
from nvflare.private.admin_defs import Message, error_reply
from nvflare.private.defs import RequestHeader
from nvflare.private.fed.client.admin import RequestProcessor

from hedgerow.transport.console_log import say
from hedgerow.transport.flare import CLIENT_CONFIG, GUARD
from hedgerow.transport.flare.certificates import InvalidKit, check_certificate, knock

FLARES_JOB_MODULE = "nvflare.private.fed.app.client.worker_process"

SITE_TAKES = (
    "DeployProcessor",
    "StartJobProcessor",
    "AbortAppProcessor",
    "CheckResourceProcessor",
    "CancelResourceProcessor",
    "NotifyJobStatusProcessor",
)
JOB_TAKES = ("CheckStatusCommand", "AbortCommand", "ByeCommand")

JOB_ID = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")
JOB_FILES = re.compile(r"(config/)?(config_fed_(server|client)\.json|\.__nvfl_(sig\.json|submitter\.crt))")
MOST_BYTES = 2**24  # of a job, unpacked
REFUSED = "this site takes Hedgerow's own jobs only."


class Guarded(RequestProcessor):  # type: ignore[misc]  # FLARE is untyped
    """Looks at a message before FLARE does."""

    def __init__(self, inner: RequestProcessor) -> None:
        self._inner = inner

    def get_topics(self) -> list[str]:
        """See FLARE's `RequestProcessor`."""
        topics: list[str] = self._inner.get_topics()
        return topics

    def process(self, req: Message, app_ctx: Any) -> Message:
        """See FLARE's `RequestProcessor`."""
        job = req.get_header(RequestHeader.JOB_ID)
        why = None
        if job is not None and (not isinstance(job, str) or not JOB_ID.fullmatch(job)):
            why = "its number is not a job's number"  # it would end up on a command line
        elif type(self._inner).__name__ == "DeployProcessor":
            why = foreign(req.body)
        if why is not None:
            say(f"refused a job: {why}.")
            return error_reply(REFUSED)
        return self._inner.process(req, app_ctx)


def foreign(data: object) -> str | None:
    """What makes a job another than Hedgerow's; None if nothing does."""
    if not isinstance(data, bytes):
        return "it is not an archive"
    try:
        with zipfile.ZipFile(io.BytesIO(data)) as archive:
            files = [entry for entry in archive.infolist() if not entry.is_dir()]
            if strange := [entry.filename for entry in files if not JOB_FILES.fullmatch(entry.filename)]:
                return f"it brings a file that is none of a study's ({strange[0][:80]!r})"
            if sum(entry.file_size for entry in files) > MOST_BYTES:
                return "it is too large"
            config = json.loads(archive.read("config/config_fed_client.json"))
    except (zipfile.BadZipFile, KeyError, ValueError, RuntimeError, NotImplementedError):
        return "it cannot be read"
    return None if config == CLIENT_CONFIG else "it asks for other components than Hedgerow's executor"


class GuardedLauncher(ClientProcessJobLauncher):  # type: ignore[misc]
    """Starts the site's job process behind this guard too."""

    def get_command(self, job_meta: dict[str, Any], fl_ctx: FLContext) -> str:
        """See FLARE's `ProcessJobLauncher`."""
        command: str = super().get_command(job_meta, fl_ctx)
        guarded = command.replace(f"-m {FLARES_JOB_MODULE}", f"-m {GUARD} job", 1)
        if guarded == command:
            raise RuntimeError(
                "this version of FLARE starts jobs in another way; Hedgerow cannot guard them."
            )
        return guarded


class Silent:
    """Stands where FLARE's `NetAgent` does, which tells a server that asks how much memory a process takes.

    With it come the times of messages and commands to stop; what a process takes depends on its rows.
    """

    def __init__(self, cell: Any) -> None:
        pass

    def close(self) -> None:
        """See FLARE's `NetAgent`."""


def _silence() -> None:
    from nvflare.private.fed.client import fed_client_base

    if not hasattr(fed_client_base, "NetAgent"):
        raise RuntimeError(
            "this version of FLARE reports on processes in another way; Hedgerow cannot guard them."
        )
    fed_client_base.NetAgent = Silent


def run_site() -> int:
    """FLARE's client, with the messages of a study only."""
    from nvflare.private.fed.app.client import client_train
    from nvflare.private.fed.app.utils import version_check
    from nvflare.private.fed.client.client_req_processors import ClientRequestProcessors

    ClientRequestProcessors.request_processors = [
        Guarded(one) for one in _named(ClientRequestProcessors.request_processors, SITE_TAKES)
    ]
    _silence()
    version_check()
    arguments = client_train.parse_arguments()
    kit = Path(arguments.workspace)
    try:
        check_certificate(kit)
    except InvalidKit as error:
        say(f"this site does not start: {error}")
        return 1
    threading.Thread(target=say_who_is_kept_out, args=(kit,), daemon=True).start()
    return int(
        MainProcessMonitor.run(main_func=client_train.main, run_dir=arguments.workspace, args=arguments) or 0
    )


def say_who_is_kept_out(kit: Path, pause: float = 10.0) -> None:
    """Tell the holder, until the server has let the site in, what is in the way."""
    told = ""
    while True:
        try:
            knock(kit)
        except InvalidKit as error:
            said = f"not connected: {error}"
        except OSError as error:
            said = f"not connected: the server cannot be reached ({type(error).__name__})."
        else:
            return say("the server and this site accept each other's certificates.")
        if said != told:
            say(said)
            told = said
        time.sleep(pause)


def run_job() -> int:
    """FLARE's job process, with the commands of a study only."""
    from nvflare.private.fed.app.client import worker_process
    from nvflare.private.fed.client.admin_commands import AdminCommands

    AdminCommands.commands = _named(AdminCommands.commands, JOB_TAKES)
    _silence()
    arguments = worker_process.parse_arguments()
    folder = os.path.join(arguments.workspace, arguments.job_id)  # noqa: PTH118 - FLARE's own words
    return int(MainProcessMonitor.run(main_func=worker_process.main, run_dir=folder, args=arguments) or 0)


def _named(found: list[Any], names: tuple[str, ...]) -> list[Any]:
    kept = [one for one in found if type(one).__name__ in names]
    if len(kept) != len(names):
        raise RuntimeError("this version of FLARE takes other messages; Hedgerow cannot guard them.")
    return kept


if __name__ == "__main__":
    sys.exit({"site": run_site, "job": run_job}[sys.argv.pop(1)]())
