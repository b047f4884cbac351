"""Startup kits: one folder for the server, one for the coordinator's console, one for each holder.

FLARE makes the certificates, offline. What may happen at the server is written here, as narrow as a study needs: no
code from jobs, only our controller, no shell, no logs, nothing in shared folders. A holder's kit has nothing that
is run: what its site may do is the holder's own to say (`workspace`).
"""

from __future__ import annotations

import contextlib
import io
import json
import shutil
from pathlib import Path
from typing import Any

from hedgerow.errors import HedgerowError
from hedgerow.transport.flare import CONTROLLER
from hedgerow.transport.flare.workspace import permissions, write_json
from hedgerow.transport.site import POLICY_FILE
from hedgerow.transport.study import Study

AUTHORITY = "authority"
SERVER = "server"
CONSOLE = "console"
CONSOLE_USER = "coordinator@hedgerow.invalid"


def provision(study: Study, folder: Path, *, renew: bool = False) -> list[Path]:
    """Make a kit for everybody who has none yet; with `renew`, new keys for all of them.

    Renewing replaces the authority and every `startup/`; what a party wrote into `local/` stays.
    """
    authority = folder / AUTHORITY
    if renew and authority.exists():
        shutil.rmtree(authority)
    made = _provision_with_flare(study, authority)
    kits = []
    for name, new in made.items():
        kit = folder / name
        if kit.exists() and not renew:
            shutil.rmtree(new)
            continue
        kit.mkdir(parents=True, exist_ok=True)
        shutil.rmtree(kit / "startup", ignore_errors=True)
        shutil.move(new / "startup", kit / "startup")
        if name not in {SERVER, CONSOLE}:
            for script in (kit / "startup").glob("*.sh"):
                script.unlink()  # a holder runs nothing of a kit
        if not (kit / "local").exists():
            shutil.move(new / "local", kit / "local")
            _write_policies(study, name, kit)
        kit.chmod(0o700)
        shutil.rmtree(new)
        kits.append(kit)
    _text(authority / "README.txt", _ABOUT_AUTHORITY)
    authority.chmod(0o700)
    return kits


def _provision_with_flare(study: Study, authority: Path) -> dict[str, Path]:
    """What FLARE generates, by the names of our kits."""
    from nvflare.lighter.provision import prepare_builders, prepare_project
    from nvflare.lighter.provisioner import Provisioner

    authority.mkdir(parents=True, exist_ok=True)
    project = _project(study)
    said = io.StringIO()
    with contextlib.redirect_stdout(said):
        context = Provisioner(str(authority), prepare_builders(project)).provision(prepare_project(project))
    if not isinstance(context, dict) or context.get("__build_error__"):
        raise HedgerowError(f"FLARE could not make the kits:\n{said.getvalue()}")
    made = Path(context["current_prod_dir"])
    names = {study.server: SERVER, CONSOLE_USER: CONSOLE} | {holder: holder for holder in study.holders}
    return {ours: made / theirs for theirs, ours in names.items()}


def _project(study: Study) -> dict[str, Any]:
    template = {"template_file": ["master_template.yml"]}
    return {
        "api_version": 3,
        "name": "hedgerow",  # of the network, which may carry many studies
        "description": "made by hedgerow network provision",
        "participants": [
            {
                "name": study.server,
                "type": "server",
                "org": "coordinator",
                "fed_learn_port": study.port,
                "admin_port": study.admin_port,
            },
            {"name": CONSOLE_USER, "type": "admin", "org": "coordinator", "role": "lead"},
            *({"name": holder, "type": "client", "org": "holder"} for holder in study.holders),
        ],
        "builders": [
            {"path": "nvflare.lighter.impl.workspace.WorkspaceBuilder", "args": template},
            {
                "path": "nvflare.lighter.impl.static_file.StaticFileBuilder",
                "args": {"config_folder": "config"},
            },
            {"path": "nvflare.lighter.impl.cert.CertBuilder"},
        ],
    }


def _write_policies(study: Study, name: str, kit: Path) -> None:
    local = kit / "local"
    if name == CONSOLE:
        _text(kit / "README.txt", _ABOUT_CONSOLE)
        return
    if name == SERVER:
        resources = json.loads((local / "resources.json.default").read_text(encoding="utf-8"))
        write_json(local / "resources.json", _server_resources(resources))
        write_json(local / "authorization.json", permissions(view="any"))
        settle(kit)
        _text(kit / "README.txt", _ABOUT_SERVER.format(study=study, logs=_ABOUT_LOGS))
    else:
        (local / "log_config.json.default").unlink()
        study.schema.save(local / "schema.toml")
        _text(local / POLICY_FILE, _POLICY.format(study=study))
        _text(
            kit / "README.txt",
            _ABOUT_SITE.format(study=study, name=name, policy=POLICY_FILE),
        )
    for sample in ("privacy.json.sample", "resources.json.default", "authorization.json.default"):
        (local / sample).unlink(missing_ok=True)


def _server_resources(resources: dict[str, Any]) -> dict[str, Any]:
    """FLARE's defaults, without its log receiver and with our controller as the only class of a job."""
    components = [c for c in resources["components"] if c["id"] != "log_receiver"]
    [server] = resources["servers"]
    return resources | {
        "class_list_enforcement_mode": "enforce",
        "class_allow_list": [CONTROLLER],
        "servers": [server | {"heart_beat_timeout": 30}],
        "components": components,
    }


def settle(kit: Path) -> None:
    """Keep a server's jobs and snapshots in its own folder, wherever that is now; FLARE wants full paths.

    By default they would be in the shared temporary folder.
    """
    path = kit / "local" / "resources.json"
    resources = json.loads(path.read_text(encoding="utf-8"))
    storage = resources["snapshot_persistor"]["args"]["storage"]["args"]
    storage["root_dir"] = str(kit.resolve() / "snapshots")
    for component in resources["components"]:
        if component["id"] == "job_manager":
            component["args"]["uri_root"] = str(kit.resolve() / "jobs")
    write_json(path, resources)


def _text(path: Path, content: str) -> None:
    path.write_text(content, encoding="utf-8")


_POLICY = """\
# What this holder allows. Read here, by `hedgerow network site check` and when a study starts; never sent.
# Change it, run the check, and the next start of a study obeys it. A study without a grant gets nothing.

data = "CHANGE-ME.csv"      # the rows: .csv or .parquet, relative to this file; never leaves this machine
schema = "schema.toml"      # what is public about them, the same file at every holder
journal = "../journal"      # where every charge and answer is kept; back it up, never edit or delete it
# counter = "/far/away"     # the folder in which spending is counted a second time; never in the journal's backup
lifetime_epsilon = {study.epsilon}      # what all studies together may ever spend on these rows
max_rows = {study.max_rows}   # a public bound on the number of rows

# [[grants]]                # take the # away to let the study ask
# study = "{study.name}"
# epsilon = {study.epsilon}             # what it may spend, at most
# neighbours = "{study.neighbours}"
# methods = ["select", "paper", "local", "noisy_counts", "noisy_columns"]   # how it may ask
"""

_ABOUT_AUTHORITY = """\
The certificate authority of this network: whoever has this folder can admit parties to it. Keep it offline.
hedgerow/ is FLARE's; hedgerow/state/cert.json holds the authority's private key.
`hedgerow network provision` uses it to make kits for new holders; `--renew` replaces it and all keys.
"""

_ABOUT_CONSOLE = """\
The coordinator's console. `hedgerow network learn` and `resume` log in with it.
startup/  client.crt, client.key: who you are (keep the key to yourself); rootCA.pem: whom you trust;
          fed_admin.json: where the server is; fl_admin.sh, readme.txt, system_info.ipynb: FLARE's own console.
local/, transfer/: FLARE's own settings (resources.json.default) and working folder.
"""

_ABOUT_LOGS = """\
console.log, hedgerow.pid: what the running process says, and its number.
log.txt, log.json, log_fl.txt, error_log.txt, audit.log and folders named by job numbers: FLARE's own logs. They
          may be deleted while nothing runs.
"""

_ABOUT_SERVER = """\
The server of study {study.name}: relays questions and answers, and runs the coordinator while a study is learned.
Start it with `hedgerow network start` in this folder. It listens on ports {study.port} and {study.admin_port}.
startup/  server.crt, server.key, rootCA.pem: mutual TLS (keep the key to yourself); fed_server.json: ports;
          start.sh, sub_start.sh, stop_fl.sh: FLARE's own way to start and stop.
local/    resources.json: only Hedgerow's controller may run; authorization.json: no code from jobs, no shell;
          log_config.json.default: FLARE's logging.
studies/  (once there is one) of each study answers.log, which a resumed study goes on from, tree.json and
          report.json: noisy numbers only.
jobs/, snapshots/, transfer/: FLARE's own working folders.
{logs}"""

_ABOUT_SITE = """\
The site of holder {name}. Its rows stay here; it answers questions with noise, as far as it has granted.
1. Put the name of your data file into local/{policy} and grant the study its epsilon there.
2. `hedgerow network site check` in this folder says what you are about to allow.
3. `hedgerow network start` in this folder. The site calls the server {study.server}; nobody calls the site.
startup/  client.crt, client.key, rootCA.pem: mutual TLS (keep the key to yourself); fed_client.json: the server.
          Nothing in a kit is run: whoever made it need not be trusted with the rows.
local/    {policy}: what you allow; schema.toml: what is public about the rows.
journal/  (once there is one) studies.db: every charge and every answer that has left this site; studies.key: the key
          of the hashes of rows in it, never to be handed out; and files that end in .lock, one for each study.
run/      (once it has been started) FLARE's working folder and logs, written anew at each start: only Hedgerow's
          executor may run, no code from jobs, no shell, no logs to the server.
console.log, hedgerow.pid: what the running process says, and its number.
"""
