"""FLARE's workspace at a site: all that its client reads, written anew at each start by the holder's own installation.

A kit comes from the coordinator, whom a holder does not trust with rows. FLARE runs the script that it finds in a
kit, builds the classes that the JSON files there name, and imports what lies beside them. So nothing of a kit is run,
and FLARE is shown nothing of it but the certificates, the holder's name and where the server is, each checked.
"""

from __future__ import annotations

import json
import shutil
import sys
from pathlib import Path
from typing import Any

from hedgerow.transport.flare import EXECUTOR, GUARD
from hedgerow.transport.flare.certificates import name_of, server_of

RUN = "run"
LAUNCHER = f"{GUARD}.GuardedLauncher"
# Of the site's process and its jobs: nothing that lies in their folder is taken for a module.
SETTINGS = {"PYTHONSAFEPATH": "1", "MALLOC_ARENA_MAX": "4"}


def lay_out(kit: Path) -> list[str]:
    """Write the workspace of a holder's kit; the command that starts the site in it."""
    from nvflare.fuel.utils.log_utils import default_log_dict

    name, (host, port) = name_of(kit), server_of(kit)
    run = kit.resolve() / RUN
    if run.is_symlink():
        run.unlink()
    elif run.exists():
        shutil.rmtree(run)
    for folder in (run, run / "startup", run / "local", run / "transfer"):
        folder.mkdir(mode=0o700)
    for certificate in ("client.crt", "client.key", "rootCA.pem"):
        shutil.copyfile(kit / "startup" / certificate, run / "startup" / certificate)
    write_json(run / "startup" / "fed_client.json", _client(name, host, port))
    write_json(run / "local" / "resources.json", RESOURCES)
    write_json(run / "local" / "authorization.json", permissions(view="none"))
    write_json(run / "local" / "log_config.json", default_log_dict)
    # A site says every 3 seconds, not 10, that it is there.
    command = [sys.executable, "-u", "-m", GUARD, "site", "-m", str(run), "-s", "fed_client.json"]
    settings = ["secure_train=true", f"uid={name}", "org=holder", "config_folder=config"]
    return [*command, "--set", *settings, "heart_beat_interval=3"]


# No log streamer, and our executor as the only class of a job.
RESOURCES = {
    "format_version": 2,
    "class_list_enforcement_mode": "enforce",
    "class_allow_list": [EXECUTOR],
    "allow_log_streaming": False,
    "client": {"retry_timeout": 30, "compression": "Gzip"},
    "components": [
        {
            "id": "resource_manager",
            "path": "nvflare.app_common.resource_managers.gpu_resource_manager.GPUResourceManager",
            "args": {"num_of_gpus": 0, "mem_per_gpu_in_GiB": 0, "expiration_period": 300},
        },
        {
            "id": "resource_consumer",
            "path": "nvflare.app_common.resource_consumers.gpu_resource_consumer.GPUResourceConsumer",
            "args": {},
        },
        {"id": "process_launcher", "path": LAUNCHER, "args": {}},
    ],
}


def _client(name: str, host: str, port: int) -> dict[str, Any]:
    """Who the site is, and the one server that it calls."""
    service = {"target": f"{host}:{port}", "scheme": "http"}
    return {
        "format_version": 2,
        "servers": [{"name": "hedgerow", "service": service, "identity": host}],
        "client": {
            "ssl_private_key": "client.key",
            "ssl_cert": "client.crt",
            "ssl_root_cert": "rootCA.pem",
            "fqsn": name,
            "is_leaf": True,
            "connection_security": "mtls",
        },
    }


def permissions(view: str) -> dict[str, Any]:
    """The coordinator may submit and stop its own jobs. Nobody may send code, use a shell or see errors."""
    return {
        "format_version": "1.0",
        "permissions": {
            "lead": {
                "submit_job": "any",
                "clone_job": "none",
                "manage_job": "n:submitter",
                "download_job": "none",
                "app_command": "n:submitter",
                "view": view,
                "operate": "none",
                "shell_commands": "none",
                "byoc": "none",
                "server-predeployed-flwr": "none",
            }
        },
    }


def write_json(path: Path, content: dict[str, Any]) -> None:
    """One of FLARE's files."""
    path.write_text(json.dumps(content, indent=2) + "\n", encoding="utf-8")
