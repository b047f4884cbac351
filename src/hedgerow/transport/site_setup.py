"""How a holder sets up its site: a key of its own, the coordinator's certificate pinned, and a policy that it writes."""

from __future__ import annotations

import json
import tomllib
from datetime import datetime
from functools import partial
from pathlib import Path

from hedgerow.errors import HedgerowError
from hedgerow.files import write_text
from hedgerow.transport import keys
from hedgerow.transport.learning import planned_method
from hedgerow.transport.site import POLICY_FILE, Policy
from hedgerow.transport.site_process import KEYS, PROPOSAL, proposal
from hedgerow.transport.study import Study, write_study

CERTIFICATE, REQUEST = "coordinator.crt", "site.csr"

_POLICY = """\
# What this holder allows. Written by `hedgerow site init` on this machine, and yours to change; never sent.
# After a change, `hedgerow site check` shows what it means; a site starts with what was shown, and with nothing else.

data = {data}      # the rows: .csv or .parquet; they never leave this machine
schema = "schema.toml"      # what is public about them, the same at every holder
journal = "journal"      # every charge and every answer; back it up, never edit or delete it
{counter}lifetime_epsilon = {lifetime}      # what all studies together may ever spend on these rows
max_rows = {max_rows}      # a public bound on the number of rows
{grant}"""

_GRANT = """
[[grants]]
study = {study}
epsilon = {epsilon}      # what it may spend, at most
neighbours = {neighbours}
methods = {methods}
"""


def enroll(folder: Path, invitation: Path, holder: str, *, replace: bool = False) -> tuple[Path, str]:
    """Make a key, pin the coordinator and keep its proposal; the request to be signed, and the fingerprint to compare."""
    for name in ("study.toml", CERTIFICATE):
        if not (invitation / name).is_file():
            raise HedgerowError(
                f"{invitation} is no invitation: there is no {name} in it; name the folder that the coordinator has sent."
            )
    study = Study.load(invitation / "study.toml")
    if holder not in study.holders:
        raise HedgerowError(
            f"study {study.name!r} has no holder {holder!r}; it has {', '.join(study.holders)}."
        )
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    fingerprint = keys.pin(folder / KEYS, (invitation / CERTIFICATE).read_bytes(), replace=replace)
    (folder / PROPOSAL).mkdir(mode=0o700, exist_ok=True)
    write_study(study, folder / PROPOSAL / "study.toml")
    keys.enroll(folder / KEYS, holder, study.name)
    return folder / KEYS / REQUEST, fingerprint


def install(folder: Path, certificate: Path) -> datetime:
    """Keep the certificate that the coordinator has signed; until when it is good."""
    return keys.install(folder / KEYS, certificate.read_bytes())


def init(
    folder: Path,
    data: Path,
    lifetime: float,
    epsilon: float | None,
    *,
    counter: Path | None = None,
    overwrite: bool = False,
) -> Path:
    """Write the policy: the rows, what may ever be spent, and a grant for the proposed study, if there is to be one."""
    path = folder / POLICY_FILE
    if path.exists() and not overwrite:
        raise HedgerowError(f"there is a policy already: {path}; edit it, or say --overwrite.")
    study = proposal(folder)
    text = partial(json.dumps, ensure_ascii=False)  # a TOML text is written as JSON writes one
    grant = _GRANT.format(
        study=text(study.name),
        epsilon=epsilon,
        neighbours=text(study.neighbours),
        methods=text([planned_method(study)]),
    )
    policy = _POLICY.format(
        data=text(str(data.resolve())),
        lifetime=lifetime,
        max_rows=study.max_rows,
        counter="" if counter is None else f"counter = {text(str(counter.resolve()))}\n",
        grant="" if epsilon is None else grant,
    )
    # What cannot be meant is refused before anything is replaced.
    Policy.from_dict(tomllib.loads(policy) | {"schema": f"{PROPOSAL}/schema.toml"}, folder)
    study.schema.save(folder / "schema.toml")
    write_text(path, policy)
    path.chmod(0o600)
    return path
