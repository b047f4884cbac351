"""What a coordinator does: make the keys of a study, admit its holders, and learn.

Beside `study.toml` it keeps two folders: `coordinator/`, its own (keys, answers, the tree), and `invitation/`, which
holds nothing secret and is sent to every holder.
"""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable
from pathlib import Path

from hedgerow.errors import HedgerowError
from hedgerow.files import replacing
from hedgerow.transport import keys, learning
from hedgerow.transport.grpc_coordinator import Listener
from hedgerow.transport.remote import Round
from hedgerow.transport.study import Study, write_study

COORDINATOR, INVITATION, KEYS = "coordinator", "invitation", "keys"
CERTIFICATE = "coordinator.crt"
Show = Callable[[str], None]


class StudyInterrupted(HedgerowError):
    """The study is not finished; `hedgerow network resume` goes on with it."""


def provision(study_file: Path) -> str:
    """Make the coordinator's keys, unless there are some, and the invitation; the fingerprint of its certificate."""
    study = Study.load(study_file)
    folder = study_file.resolve().parent
    own = folder / COORDINATOR / KEYS
    if not (own / CERTIFICATE).is_file():
        (folder / COORDINATOR).mkdir(mode=0o700, exist_ok=True)
        keys.make_authority(own, study.name, study.server)
    elif (named := keys.host_of((own / CERTIFICATE).read_bytes())) != study.server:
        raise HedgerowError(
            f"the coordinator's certificate is for {named}, and the study says server = {study.server!r}; make a new one "
            "with hedgerow network provision --renew, and send the invitation again."
        )
    return _invite(study_file, study)


def renew(study_file: Path) -> str:
    """A new key and certificate of the coordinator, in the invitation too; every site must pin it anew."""
    study = Study.load(study_file)
    keys.renew_coordinator(_keys(study_file), study.server)
    return _invite(study_file, study)


def _invite(study_file: Path, study: Study) -> str:
    folder = study_file.resolve().parent
    invitation = folder / INVITATION
    invitation.mkdir(exist_ok=True)
    write_study(study, invitation / "study.toml")
    shutil.copyfile(_keys(study_file) / CERTIFICATE, invitation / CERTIFICATE)
    return keys.fingerprint((invitation / CERTIFICATE).read_bytes())


def sign(study_file: Path, request: Path, *, renew: bool = False) -> tuple[str, Path]:
    """Admit a holder: sign the request that its site has made; the holder, and the file to send back."""
    study = Study.load(study_file)
    holder, certificate = keys.sign(_keys(study_file), request.read_bytes(), study.holders, renew=renew)
    path = request.with_name(f"{holder}.crt")
    with replacing(path) as file:
        file.write(certificate)
    return holder, path


def revoke(study_file: Path, holder: str) -> int:
    """Admit a holder no more, from now on; how many certificates it had."""
    return keys.revoke(_keys(study_file), holder)


def _keys(study_file: Path) -> Path:
    folder = study_file.resolve().parent / COORDINATOR / KEYS
    if not (folder / CERTIFICATE).is_file():
        raise HedgerowError(f"there are no keys in {folder}; make them with hedgerow network provision.")
    return folder


def learn(study_file: Path, show: Show, show_round: Callable[[Round], None]) -> learning.Outcome:
    """Learn the study's tree, or go on with it; nothing that was answered is asked or charged again."""
    study = Study.load(study_file)
    folder = study_file.resolve().parent / COORDINATOR
    with Listener(study, _keys(study_file), show) as listener:
        show(f"listening on port {study.port}; sites know this coordinator as {study.server}")
        wait_for_holders(listener, study, show)
        try:
            return learning.learn(study, listener.send, folder, show_round, connected=listener.connected)
        except learning.CAN_BE_RESUMED as error:
            raise StudyInterrupted(
                f"{error} Nothing answered so far is lost: hedgerow network resume."
            ) from error


def wait_for_holders(listener: Listener, study: Study, show: Show) -> None:
    """Until the sites that the study needs are connected, or so long as the study waits for one that was lost."""
    patience = 60 * (
        min(study.return_minutes, 1.0) if study.when_a_holder_is_lost == "abort" else study.return_minutes
    )
    began, told = time.monotonic(), tuple[str, ...]()
    while missing := tuple(holder for holder in study.holders if not listener.connected(holder)):
        waited = time.monotonic() - began
        goes_on = study.when_a_holder_is_lost == "continue" and len(missing) < len(study.holders)
        if goes_on and waited > study.answer_seconds:
            return
        if not goes_on and waited > patience:
            raise StudyInterrupted(
                f"{', '.join(missing)} did not connect within {patience / 60:g} minutes; "
                "hedgerow network resume when they do."
            )
        if missing != told and waited > 0.5:
            show(f"waiting for {', '.join(missing)} to connect")
            told = missing
        time.sleep(0.02)
