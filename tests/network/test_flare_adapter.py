"""The adapter in a federation that FLARE itself provisions and starts: one server and two clients on loopback."""

from __future__ import annotations

import csv
import importlib.util
import json
import os
import shutil
import signal
import socket
import sqlite3
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from dataclasses import dataclass, replace
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from hedgerow import Categorical, PrivateTreeClassifier, Schema
from hedgerow.datasets import synthetic_hospitals
from hedgerow.transport.flare import CONTROLLER, EXECUTOR
from hedgerow.transport.flare.job import write_job
from hedgerow.transport.study import Study

pytestmark = [
    pytest.mark.network,
    pytest.mark.skipif(importlib.util.find_spec("nvflare") is None, reason="needs NVIDIA FLARE"),
]

HOLDERS = ("lake", "city")
SEED = 7
ADMIN = "admin@example.org"
JOB_SECONDS = 90.0
# Planted where only rows are: a region that the schema does not name, and an age that no threshold has.
SENTINELS = (b"Zanzibarrow", b"33.31337")
# FLARE would replace it by a variable of the server's environment if it stood in a job's configuration.
LIKE_A_VARIABLE = "{$PATH}"

# A coordinator that tells holders that it will spend less than it goes on to ask for.
GREEDY = """
from hedgerow.transport.flare import controller

class GreedyStudy(controller.Study):
    def greeting(self, method):
        return super().greeting(method) | {"epsilon": "1/2"}

controller.Study = GreedyStudy
GreedyController = controller.StudyController
"""


@dataclass
class FlareFederation:
    """The workspaces of a FLARE project, and the study that their sites know."""

    folder: Path
    workspaces: Path
    study: Study
    tables: list[tuple[Any, Any]]
    session: Any = None

    def grant(self, small: dict[str, float]) -> None:
        """Write the holders' policies: both grant `study` its epsilon, and the city the studies in `small` less."""
        for index, holder in enumerate(HOLDERS):
            grants = {self.study.name: self.study.epsilon} | dict.fromkeys(small, self.study.epsilon)
            text = f'data = "{self.folder}/{holder}.csv"\nschema = "{self.folder}/schema.toml"\n'
            text += (
                f'journal = "{self.folder}/{holder}-journal"\ncounter = "{self.folder}/{holder}-counter"\n'
            )
            text += "lifetime_epsilon = 100\n"
            for study, epsilon in (grants | (small if holder == "city" else {})).items():
                text += f'[[grants]]\nstudy = "{study}"\nepsilon = {epsilon}\n'
                text += f"quantum = 0.01\nnoise_seed = {seed_of(index)}\n"
            self.policy(holder).write_text(text, encoding="utf-8")

    def policy(self, holder: str) -> Path:
        """The city's stands elsewhere, as HEDGEROW_POLICY says."""
        return (
            self.folder / "city.toml"
            if holder == "city"
            else self.workspaces / holder / "local" / "hedgerow.toml"
        )

    def submit(self, job: Path) -> str:
        identifier: str = self.session.submit_job(str(job))
        return identifier

    def end_of(self, job: str) -> str:
        """How a job has ended."""
        status: str = self.session.wait_for_job(job, timeout=JOB_SECONDS, poll_interval=0.5)["status"]
        return status

    def server_log(self) -> str:
        return (self.folder / "localhost.out").read_text(encoding="utf-8")

    def journal(self, holder: str, study: str) -> tuple[list[str], float]:
        """The requests that a holder has booked, and what they have cost together."""
        path = self.folder / f"{holder}-journal" / "studies.db"
        with sqlite3.connect(f"file:{path}?mode=ro", uri=True, timeout=10) as database:
            booked = database.execute(
                "SELECT identifier FROM requests JOIN studies ON number = study WHERE name = ? ORDER BY place",
                (study,),
            ).fetchall()
            spent = database.execute("SELECT spent FROM studies WHERE name = ?", (study,)).fetchall()
        return [name for (name,) in booked], sum(float(Fraction(value)) for (value,) in spent)


def seed_of(holder: int) -> int:
    """The seed that `PrivateTreeClassifier(noise_seed=SEED)` gives a holder."""
    return int(np.random.SeedSequence([SEED, holder]).generate_state(1, np.uint64)[0])


def learned(model_file: dict[str, Any]) -> tuple[dict[str, Any], Any]:
    """The tree, and every holder's account; not how many bytes went over which network."""
    tree = dict(model_file)
    return tree, tree.pop("training")["holders"]


def make_tables(folder: Path) -> tuple[Schema, list[tuple[Any, Any]]]:
    hospitals = synthetic_hospitals(len(HOLDERS), rows=1_000, seed=3)
    schema = hospitals.schema
    columns = [
        replace(column, categories=[*column.categories, LIKE_A_VARIABLE])
        if isinstance(column, Categorical) and column.name == "region"
        else column
        for column in schema.columns
    ]
    schema = Schema(columns, label=schema.label, classes=schema.classes)
    schema.save(folder / "schema.toml")
    for holder, (table, labels) in zip(HOLDERS, hospitals.holders, strict=True):
        table[5, schema.names.index("region")] = SENTINELS[0].decode()
        table[6, schema.names.index("age")] = float(SENTINELS[1])
        with (folder / f"{holder}.csv").open("w", newline="", encoding="utf-8") as file:
            out = csv.writer(file)
            out.writerow([*schema.names, schema.label])
            for row, label in zip(table, labels, strict=True):
                out.writerow(["" if isinstance(v, float) and np.isnan(v) else v for v in row] + [label])
    return schema, list(hospitals.holders)


def provision(folder: Path) -> Path:
    """Workspaces as FLARE makes them, with the settings that docs/flare.md tells an administrator to change."""
    from nvflare.lighter.provision import prepare_builders, prepare_project
    from nvflare.lighter.provisioner import Provisioner

    sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(2)]
    port, admin_port = (s.getsockname()[1] for s in sockets)
    for s in sockets:
        s.close()
    builders = "nvflare.lighter.impl"
    project = {
        "api_version": 3,
        "name": "federation",
        "participants": [
            {
                "name": "localhost",
                "type": "server",
                "org": "a",
                "fed_learn_port": port,
                "admin_port": admin_port,
            },
            {"name": ADMIN, "type": "admin", "org": "a", "role": "lead"},
            *({"name": holder, "type": "client", "org": "b"} for holder in HOLDERS),
        ],
        "builders": [
            {
                "path": f"{builders}.workspace.WorkspaceBuilder",
                "args": {"template_file": ["master_template.yml"]},
            },
            {"path": f"{builders}.static_file.StaticFileBuilder", "args": {"config_folder": "config"}},
            {"path": f"{builders}.cert.CertBuilder"},
        ],
    }
    made = Provisioner(str(folder / "project"), prepare_builders(project)).provision(prepare_project(project))
    workspaces = Path(made["current_prod_dir"])
    for name in ("localhost", *HOLDERS):
        local = workspaces / name / "local"
        resources = json.loads((local / "resources.json.default").read_text(encoding="utf-8"))
        if name == "localhost":
            resources["class_allow_list"] += [CONTROLLER, "greedy.GreedyController"]
            # By default in /tmp/nvflare, which two federations on one machine would share.
            storage = resources["snapshot_persistor"]["args"]["storage"]["args"]
            storage["root_dir"] = str(folder / "snapshots")
            [jobs] = [c for c in resources["components"] if c["id"] == "job_manager"]
            jobs["args"]["uri_root"] = str(folder / "jobs")
        else:
            resources["class_allow_list"] += [EXECUTOR]
        (local / "resources.json").write_text(json.dumps(resources), encoding="utf-8")
    return workspaces


def start(federation: FlareFederation, name: str) -> None:
    """Start a participant by the script that FLARE has made for it."""
    folder = federation.folder
    settings = {
        "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",  # the script calls python3
        "PYTHONPATH": str(folder / "server-only") if name == "localhost" else "",
        "HEDGEROW_FLARE_TEST": str(folder),
        "TMPDIR": str(folder),
    }
    if name == "city":
        settings["HEDGEROW_POLICY"] = str(federation.policy(name))
    with (folder / f"{name}.out").open("wb") as out:
        subprocess.Popen(
            [federation.workspaces / name / "startup" / "sub_start.sh", "--once"],
            env=os.environ | settings,
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=subprocess.STDOUT,
        )


def stop(folder: Path) -> None:
    """Kill what was started for this folder, job processes included: FLARE starts those in sessions of their own."""
    mark = f"HEDGEROW_FLARE_TEST={folder}".encode()
    deadline = time.monotonic() + 10
    while found := [pid for pid in Path("/proc").glob("[0-9]*") if mark in environment_of(pid)]:
        for pid in found:
            with suppress(ProcessLookupError):
                os.kill(int(pid.name), signal.SIGKILL)
        assert time.monotonic() < deadline, "processes of FLARE do not end"
        time.sleep(0.1)


def environment_of(process: Path) -> list[bytes]:
    try:
        return (process / "environ").read_bytes().split(b"\0")
    except OSError:
        return []


@pytest.fixture(scope="module")
def federation() -> Iterator[FlareFederation]:
    folder = Path(tempfile.mkdtemp(prefix="hedgerow-flare-"))
    with ExitStack() as at_the_end:
        at_the_end.callback(shutil.rmtree, folder, ignore_errors=True)
        at_the_end.callback(stop, folder)
        schema, tables = make_tables(folder)
        study = Study("equal", schema, 3.0, HOLDERS, "localhost", max_splits=5, answer_seconds=30.0)
        made = FlareFederation(folder, provision(folder), study, tables)
        made.grant(small={"declined": 0.5, "greedy": 0.5})
        (folder / "server-only").mkdir()
        (folder / "server-only" / "greedy.py").write_text(GREEDY, encoding="utf-8")
        for name in ("localhost", *HOLDERS):
            start(made, name)
        log_in(made, at_the_end)
        yield made


def log_in(federation: FlareFederation, at_the_end: ExitStack) -> None:
    """Open a session of FLARE's administrator, and wait until both clients are connected."""
    from nvflare.fuel.flare_api.flare_api import NoConnection, new_secure_session

    deadline = time.monotonic() + 60
    while federation.session is None:
        try:
            federation.session = new_secure_session(ADMIN, str(federation.workspaces / ADMIN), timeout=10)
        except NoConnection:
            assert time.monotonic() < deadline, federation.server_log()
    at_the_end.callback(federation.session.close)
    while {client.name for client in federation.session.get_connected_client_list()} < set(HOLDERS):
        assert time.monotonic() < deadline, federation.server_log()
        time.sleep(0.5)


def test_the_tree_over_flare_is_the_tree_in_process(federation: FlareFederation):
    study = federation.study
    job = federation.submit(write_job(study, federation.folder))
    model = PrivateTreeClassifier(
        schema=study.schema, epsilon=study.epsilon, max_splits=study.max_splits, noise_seed=SEED
    )
    expected = json.loads(model.fit_holders(federation.tables).to_json())
    assert federation.end_of(job) == "FINISHED:COMPLETED", federation.server_log()

    folder = federation.workspaces / "localhost" / "hedgerow" / study.name
    assert learned(json.loads((folder / "tree.json").read_text())) == learned(expected)
    downloaded = Path(federation.session.download_job_result(job))
    assert (downloaded / "workspace" / "tree.json").read_bytes() == (folder / "tree.json").read_bytes()

    report = json.loads((folder / "report.json").read_text())
    for holder in HOLDERS:
        booked, spent = federation.journal(holder, study.name)
        assert set(booked) <= {f"round-{i}" for i in range(len(report["rounds"]))}
        assert spent == pytest.approx(float(report["spent"][holder]), rel=1e-5)
        assert 0 < spent <= study.epsilon
    assert "round   0" in federation.server_log()


def test_a_second_job_goes_on_where_the_first_one_stopped(federation: FlareFederation):
    study = federation.study
    folder = federation.workspaces / "localhost" / "hedgerow" / study.name
    tree, before = (folder / "tree.json").read_bytes(), [federation.journal(h, study.name) for h in HOLDERS]
    (folder / "tree.json").unlink()
    answers = folder / "answers.log"
    os.truncate(answers, answers.stat().st_size // 2)  # the holders' journals have the rest

    job = federation.submit(write_job(study, federation.folder))
    assert federation.end_of(job) == "FINISHED:COMPLETED", federation.server_log()
    assert learned(json.loads((folder / "tree.json").read_text())) == learned(json.loads(tree))
    assert [federation.journal(holder, study.name) for holder in HOLDERS] == before
    assert "answers from disk" in federation.server_log()


@pytest.fixture(scope="module")
def refused(federation: FlareFederation) -> dict[str, str]:
    """How two jobs have ended, both of which would spend more than the city grants; they run side by side."""
    declined, greedy = (
        write_job(replace(federation.study, name=name), federation.folder) for name in ("declined", "greedy")
    )
    config = greedy / "app" / "config" / "config_fed_server.json"
    config.write_text(config.read_text(encoding="utf-8").replace(CONTROLLER, "greedy.GreedyController"))
    jobs = {job.name: federation.submit(job) for job in (declined, greedy)}
    return {name: federation.end_of(job) for name, job in jobs.items()}


def test_a_holder_declines_a_study_that_means_to_spend_more_than_it_granted(
    federation: FlareFederation, refused: dict[str, str]
):
    assert refused["declined"] == "FINISHED:EXECUTION_EXCEPTION"
    assert "city: this holder does not take part in the study as asked" in federation.server_log()
    reason = "it is granted 0.5"
    assert reason in (federation.folder / "city.out").read_text(encoding="utf-8")
    assert reason not in federation.server_log()
    assert all(federation.journal(holder, "declined") == ([], 0) for holder in HOLDERS)


def test_a_holder_enforces_its_grant_against_a_coordinator_that_lies(
    federation: FlareFederation, refused: dict[str, str]
):
    assert refused["greedy"] == "FINISHED:EXECUTION_EXCEPTION"
    assert "city refuses" in federation.server_log()
    booked, spent = federation.journal("city", "greedy")
    assert booked
    assert 0 < spent <= 0.5


@pytest.mark.usefixtures("refused")
def test_no_file_of_flare_has_a_value_of_a_row(federation: FlareFederation):
    # `os.walk`, unlike `rglob`, passes over folders that FLARE clears up meanwhile.
    paths = [Path(folder, name) for folder, _, names in os.walk(federation.folder) for name in names]
    files = [path for path in paths if path.is_file() and path.suffix != ".csv"]
    assert len([p for p in files if p.suffix in {".log", ".txt", ".out"}]) > 10
    for path in files:
        with suppress(FileNotFoundError):
            content = path.read_bytes()
            assert not any(sentinel in content for sentinel in SENTINELS), path


@pytest.mark.parametrize("frame", [None, "Gtext", ["G"], b"Gtoo long"])
def test_what_is_no_frame_gets_a_constant_refusal(frame: object, monkeypatch: pytest.MonkeyPatch):
    from nvflare.apis.shareable import Shareable

    from hedgerow.transport.flare import FRAME, executor

    monkeypatch.setattr(executor, "MOST_FRAME", 4)
    request = Shareable()
    request[FRAME] = frame
    reply = executor.HolderExecutor()._reply("topic", request, None)
    assert reply[FRAME] == executor.NOT_A_FRAME


def test_a_site_that_cannot_be_opened_declines(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys):
    from unittest.mock import Mock

    from nvflare.apis.event_type import EventType

    from hedgerow.transport.flare import FRAME, TOPIC
    from hedgerow.transport.flare.executor import HolderExecutor

    monkeypatch.setenv("HEDGEROW_POLICY", str(tmp_path / "missing.toml"))
    engine = Mock()
    HolderExecutor().handle_event(EventType.START_RUN, Mock(get_engine=lambda: engine))
    handler = engine.register_aux_message_handler.call_args.kwargs
    assert handler["topic"] == TOPIC
    assert handler["message_handle_func"](TOPIC, {FRAME: b"G{}"}, None)[FRAME] == b"declined"
    assert "there is no file" in capsys.readouterr().out
