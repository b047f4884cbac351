"""A network of real processes on loopback, made once and shared: a server and three hospitals."""

from __future__ import annotations

import csv
import errno
import json
import os
import shutil
import socket
import sqlite3
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from hedgerow import PrivateTreeClassifier
from hedgerow.datasets import Hospitals, synthetic_hospitals

HOLDERS = ("lake", "city", "hill")
SEED = 7
collect_ignore = ["malicious.py"]  # imports FLARE, which may not be here
ROWS = 3_000
HERE = Path(__file__).parent
# Planted where only rows are: a region that no schema names, and an age that no threshold has.
SENTINELS = ("Zanzibarrow", "33.31337")


def learned(model_file: dict[str, Any]) -> tuple[dict[str, Any], Any]:
    """The tree, and every holder's account; not how many bytes went over which network."""
    tree = dict(model_file)
    return tree, tree.pop("training")["holders"]


@dataclass
class Federation:
    """The kits of one network, their processes, and what the test knows of the holders' rows."""

    folder: Path
    hospitals: Hospitals
    study: Any
    grants: dict[str, dict[str, Any]] = field(default_factory=dict)  # study -> what is granted, at everybody

    @property
    def kits(self) -> Path:
        return self.folder / "kits"

    def new_study(self, name: str, grant: dict[str, Any] | None = None, **wishes: Any) -> Any:
        """A study of this name that every holder has granted its epsilon (or `grant`), with seeded noise."""
        study = replace(self.study, name=name, **wishes)
        self.grants[name] = grant or {"epsilon": study.epsilon}
        for holder in HOLDERS:
            self.write_policy(holder)
        return study

    def write_policy(self, holder: str, **changes: Any) -> None:
        index = HOLDERS.index(holder)
        lines = {
            "data": str(self.folder / f"{holder}.csv"),
            "schema": "schema.toml",
            "journal": "../journal",
            "lifetime_epsilon": 1e6,
        } | changes
        grants = lines.pop("grants", self.grants)
        text = "".join(f"{key} = {json.dumps(value)}\n" for key, value in lines.items())
        for study, grant in grants.items():
            text += f'[[grants]]\nstudy = "{study}"\nquantum = 0.01\nnoise_seed = {seed_of(index)}\n'
            text += "".join(f"{key} = {json.dumps(value)}\n" for key, value in grant.items())
        (self.kits / holder / "local" / "hedgerow.toml").write_text(text, encoding="utf-8")

    def start(self, name: str) -> int:
        from hedgerow.transport.flare import processes

        return processes.start(self.kits / name)

    def stop(self, name: str) -> None:
        from hedgerow.transport.flare import processes

        processes.stop(self.kits / name)

    def job_of(self, name: str) -> int | None:
        """The number of the job process, once there is one."""
        from hedgerow.transport.flare import processes

        jobs = processes.status(self.kits / name).jobs
        return jobs[0] if jobs else None

    def process_of(self, name: str) -> int | None:
        from hedgerow.transport.flare import processes

        return processes.status(self.kits / name).process

    def learn(self, study: Any) -> Any:
        from hedgerow.transport.flare import console

        return console.learn(study, self.kits, said.append, rounds.append)

    def learn_beside(self, study: Any, command: str = "learn") -> subprocess.Popen[str]:
        """The command itself, in a process of its own."""
        path = self.folder / f"{study.name}.toml"
        path.write_text(as_toml(study), encoding="utf-8")
        out = self.folder / f"out-{study.name}"
        # Whoever runs the tests in the background has Ctrl-C ignored, and so would have this process.
        hears = "import signal; signal.signal(signal.SIGINT, signal.default_int_handler)"
        return subprocess.Popen(
            [
                sys.executable,
                "-c",
                f"{hears}; from hedgerow.cli import app; app()",
                "network",
                command,
                str(path),
                "--out",
                str(out),
            ],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        )

    def learned_tree(self, study: Any) -> dict[str, Any]:
        return json.loads((self.folder / f"out-{study.name}" / "tree.json").read_text(encoding="utf-8"))

    def learned_report(self, study: Any) -> dict[str, Any]:
        return json.loads((self.folder / f"out-{study.name}" / "report.json").read_text(encoding="utf-8"))

    def reference(self, study: Any) -> dict[str, Any]:
        """The model file of the same study in one process."""
        model = PrivateTreeClassifier(
            schema=study.schema,
            epsilon=study.epsilon,
            method=study.method,
            max_splits=study.max_splits,
            max_depth=study.max_depth,
            budget=study.budget,
            noise_seed=SEED,
        )
        holders = [self.hospitals.holders[HOLDERS.index(holder)] for holder in study.holders]
        plain: dict[str, Any] = json.loads(model.fit_holders(holders).to_json())
        return plain

    def journal(self, holder: str, study: str) -> list[tuple[str, bytes, bytes | None]]:
        """What a holder has on disk about a study."""
        path = self.kits / holder / "journal" / "studies.db"
        if not path.exists():
            return []
        with sqlite3.connect(f"file:{path}?mode=ro", uri=True, timeout=10) as database:
            return database.execute(
                "SELECT identifier, request, answer FROM requests JOIN studies ON number = study "
                "WHERE name = ? ORDER BY place",
                (study,),
            ).fetchall()

    def spent(self, holder: str, study: str) -> float:
        from fractions import Fraction

        path = self.kits / holder / "journal" / "studies.db"
        with sqlite3.connect(f"file:{path}?mode=ro", uri=True, timeout=10) as database:
            [[spent]] = database.execute("SELECT spent FROM studies WHERE name = ?", (study,)).fetchall()
        return float(Fraction(spent))

    def console_text(self, name: str) -> str:
        return (self.kits / name / "console.log").read_text(encoding="utf-8", errors="replace")


class Gate:
    """Stands in a holder's way: it answers as often as the test lets it, however fast or slow anybody is.

    A site looks at its policy before every answer. Here it finds a pipe in the policy's place, a new one each
    time, and stands still until the policy has been written into it.
    """

    def __init__(self, federation: Federation, holder: str) -> None:
        self._federation = federation
        self._holder = holder
        self._path = federation.kits / holder / "local" / "hedgerow.toml"
        self._policy = self._path.read_bytes()
        self._pipe: int | None = None  # of a site that stands still

    def shut(self) -> None:
        self._policy = self._path.read_bytes()
        self._replace(os.mkfifo)

    def hold(self, study: str, after: int) -> int:
        """Let the holder answer `after` times; the number of its job process, which stands still from then on."""
        while True:
            until(self._is_there, 240, pause=0.02)  # sites look for a restarted server at their own pace
            if len(self._federation.journal(self._holder, study)) >= after:
                job = self._federation.job_of(self._holder)
                assert job is not None
                return job
            self.let_pass()

    def let_pass(self) -> None:
        """Let the holder answer once, if it is still there."""
        self._let_go(os.mkfifo)

    def open(self) -> None:
        """Let the holder answer from now on."""
        self._let_go(lambda path: path.write_bytes(self._policy))

    def see_off(self, job: int) -> None:
        """Let a job process answer until it has ended."""

        def ended() -> bool:
            if self._is_there():
                self.let_pass()
            return self._federation.job_of(self._holder) != job

        until(ended, 60)

    def _is_there(self) -> bool:
        if self._pipe is None:
            try:
                self._pipe = os.open(self._path, os.O_WRONLY | os.O_NONBLOCK)
            except OSError as error:
                if error.errno != errno.ENXIO:  # nobody reads
                    raise
        return self._pipe is not None

    def _let_go(self, make: Callable[[Path], object]) -> None:
        self._replace(make)
        if self._pipe is not None:
            with suppress(BrokenPipeError):  # it was killed
                os.write(self._pipe, self._policy)
            os.close(self._pipe)
            self._pipe = None

    def _replace(self, make: Callable[[Path], object]) -> None:
        new = self._path.with_suffix(".new")
        make(new)
        new.replace(self._path)


said: list[str] = []
rounds: list[dict[str, Any]] = []


def seed_of(holder: int) -> int:
    """The seed that `PrivateTreeClassifier(noise_seed=SEED)` gives a holder."""
    return int(np.random.SeedSequence([SEED, holder]).generate_state(1, np.uint64)[0])


def until(true: Callable[[], bool], seconds: float, pause: float = 0.2) -> None:
    deadline = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < deadline, "waited in vain"
        time.sleep(pause)


def free_ports(n: int) -> list[int]:
    sockets = [socket.socket() for _ in range(n)]
    for s in sockets:
        s.bind(("127.0.0.1", 0))
    ports = [s.getsockname()[1] for s in sockets]
    for s in sockets:
        s.close()
    return ports


def as_toml(study: Any) -> str:
    plain = study.to_dict() | {"schema": "schema.toml"}
    return "".join(f"{key} = {json.dumps(value)}\n" for key, value in plain.items() if value is not None)


def write_csv(path: Path, names: tuple[str, ...], label: str, table: Any, labels: Any) -> None:
    with path.open("w", newline="", encoding="utf-8") as file:
        out = csv.writer(file)
        out.writerow([*names, label])
        for row, y in zip(table, labels, strict=True):
            out.writerow(["" if isinstance(v, float) and np.isnan(v) else v for v in row] + [y])


def plant(hospitals: Hospitals) -> Hospitals:
    """The same patients, a few of them with values that must never show up anywhere else."""
    for table, _ in hospitals.holders:
        table[5, hospitals.schema.names.index("region")] = SENTINELS[0]
        table[6, hospitals.schema.names.index("age")] = float(SENTINELS[1])
    return hospitals


def make_federation(folder: Path) -> Federation:
    from hedgerow.transport.flare import kits
    from hedgerow.transport.study import Study

    hospitals = plant(synthetic_hospitals(len(HOLDERS), rows=ROWS, seed=3))
    hospitals.schema.save(folder / "schema.toml")
    port, admin_port = free_ports(2)
    study = Study(
        name="net",
        schema=hospitals.schema,
        epsilon=3.0,
        holders=HOLDERS,
        server="localhost",
        port=port,
        admin_port=admin_port,
        max_splits=16,
        answer_seconds=60.0,
        return_minutes=2.0,
    )
    kits.provision(study, folder / "kits")
    for holder, (table, labels) in zip(HOLDERS, hospitals.holders, strict=True):
        write_csv(folder / f"{holder}.csv", hospitals.schema.names, hospitals.schema.label, table, labels)
    federation = Federation(folder, hospitals, study)
    # The holders do not trust the coordinator: its server may run any controller and pass on any code.
    local = federation.kits / "server" / "local"
    plain = json.loads((local / "resources.json").read_text())
    plain["class_allow_list"].append("malicious.MaliciousController")
    (local / "resources.json").write_text(json.dumps(plain))
    plain = json.loads((local / "authorization.json").read_text())
    plain["permissions"]["lead"] |= {"byoc": "any"}
    (local / "authorization.json").write_text(json.dumps(plain))
    for holder in HOLDERS:
        federation.write_policy(holder)
    return federation


@pytest.fixture(scope="session")
def federation() -> Iterator[Federation]:
    pytest.importorskip("nvflare", reason="the network needs NVIDIA FLARE: pip install 'hedgerow[network]'")
    folder = Path(tempfile.mkdtemp(prefix="hedgerow-network-"))
    made = make_federation(folder)
    # For malicious.py, at the server.
    os.environ["PYTHONPATH"] = os.pathsep.join(
        [str(HERE), *os.environ.get("PYTHONPATH", "").split(os.pathsep)]
    )
    try:
        for name in ("server", *HOLDERS):
            made.start(name)
        yield made
    finally:
        for name in (*HOLDERS, "server"):
            made.stop(name)
        if os.environ.get("HEDGEROW_KEEP") is None:
            shutil.rmtree(folder, ignore_errors=True)
        else:
            print(f"kept {folder}")


@pytest.fixture
def gate(federation: Federation) -> Iterator[Gate]:
    """The gate of one holder, open again when the test ends."""
    made = Gate(federation, "city")
    yield made
    made.open()
