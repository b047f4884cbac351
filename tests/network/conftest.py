"""Studies between real processes on loopback: a coordinator and three hospitals, forked from one that has the kernels."""

from __future__ import annotations

import csv
import json
import multiprocessing
import os
import resource
import signal
import socket
import sqlite3
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from fractions import Fraction
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from hedgerow import PrivateTreeClassifier
from hedgerow.datasets import Hospitals, synthetic_hospitals

HOLDERS = ("lake", "city", "hill")
SEED = 7
ROWS = 3_000
# Planted where only rows are: a region that no schema names, and an age that no threshold has.
SENTINELS = ("Zanzibarrow", "33.31337")


def learned(model_file: dict[str, Any]) -> tuple[dict[str, Any], Any]:
    """The tree, and every holder's account; not how many bytes went over which network."""
    tree = dict(model_file)
    return tree, tree.pop("training")["holders"]


@dataclass
class Federation:
    """One study: the coordinator's folder, the sites' folders, and their processes."""

    folder: Path
    study: Any
    hospitals: Hospitals
    fork: Any  # the context that processes are started from
    processes: dict[str, BaseProcess] = field(default_factory=dict)
    said: list[str] = field(default_factory=list)

    @property
    def study_file(self) -> Path:
        return self.folder / "study.toml"

    def site(self, holder: str) -> Path:
        return self.folder / "sites" / holder

    def set_up(self, grant: dict[str, Any] | None = None) -> None:
        """Keys, certificates and policies for everybody, as the commands make them."""
        from hedgerow.transport import coordinator
        from hedgerow.transport.study import write_study

        write_study(self.study, self.study_file)
        coordinator.provision(self.study_file)
        for holder in self.study.holders:
            self.admit(holder)
            table, labels = self.hospitals.holders[HOLDERS.index(holder)]
            schema = self.study.schema
            write_csv(self.site(holder) / "rows.csv", schema.names, schema.label, table, labels)
            self.study.schema.save(self.site(holder) / "schema.toml")
            self.write_policy(holder, grant)

    def admit(self, holder: str) -> None:
        from hedgerow.transport import coordinator, site_setup

        request, _ = site_setup.enroll(self.site(holder), self.folder / coordinator.INVITATION, holder)
        _, certificate = coordinator.sign(self.study_file, request)
        site_setup.install(self.site(holder), certificate)

    def write_policy(self, holder: str, grant: dict[str, Any] | None = None, **changes: Any) -> None:
        """A policy with seeded noise, which its owner has been shown."""
        from hedgerow.transport import site_process
        from hedgerow.transport.site import Policy

        lines = {
            "data": "rows.csv",
            "schema": "schema.toml",
            "journal": "journal",
            "counter": "counter",
            "lifetime_epsilon": 1e6,
        } | changes
        granted = {
            "study": self.study.name,
            "epsilon": self.study.epsilon,
            "quantum": 0.01,
            "noise_seed": seed_of(HOLDERS.index(holder)),
        } | (grant or {})
        path = self.site(holder) / "hedgerow.toml"
        path.write_text(f"{toml(lines)}[[grants]]\n{toml(granted)}", encoding="utf-8")
        (path.parent / site_process.SHOWN).write_text(site_process._mark(Policy.load(path)))

    def start(self, *holders: str, environment: dict[str, str] | None = None) -> None:
        for holder in holders or self.study.holders:
            process = self.fork.Process(target=serve, args=(self.site(holder), environment or {}))
            process.start()
            self.processes[holder] = process

    def kill(self, name: str) -> None:
        process = self.processes.pop(name)
        process.kill()
        process.join()

    def close(self) -> None:
        for process in self.processes.values():
            process.kill()
            process.join()

    def learn(self) -> Any:
        from hedgerow.transport import coordinator

        return coordinator.learn(self.study_file, self.said.append, lambda _: None)

    def learn_beside(self) -> BaseProcess:
        """The command itself, in a process of its own; what it says is in said.txt."""
        process = self.fork.Process(target=command, args=(self.folder, "learn"))
        process.start()
        self.processes["coordinator"] = process
        return process

    def said_beside(self) -> str:
        return (self.folder / "said.txt").read_text(encoding="utf-8")

    def written(self, name: str) -> dict[str, Any]:
        plain: dict[str, Any] = json.loads((self.folder / "out" / f"{name}.json").read_text(encoding="utf-8"))
        return plain

    def reference(self) -> dict[str, Any]:
        """The model file of the same study in one process."""
        study = self.study
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

    def journal(self, holder: str) -> list[tuple[str, bytes, bytes | None]]:
        """What a holder has on disk about the study."""
        path = self.site(holder) / "journal" / "studies.db"
        if not path.exists():
            return []
        with sqlite3.connect(f"file:{path}?mode=ro", uri=True, timeout=10) as database:
            return database.execute(
                "SELECT identifier, request, answer FROM requests JOIN studies ON number = study "
                "WHERE name = ? ORDER BY place",
                (self.study.name,),
            ).fetchall()

    def spent(self, holder: str) -> float:
        path = self.site(holder) / "journal" / "studies.db"
        if not path.exists():
            return 0.0
        with sqlite3.connect(f"file:{path}?mode=ro", uri=True, timeout=10) as database:
            found = database.execute(
                "SELECT spent FROM studies WHERE name = ?", (self.study.name,)
            ).fetchall()
        return float(sum(Fraction(spent) for [spent] in found))

    def console_text(self, holder: str) -> str:
        path = self.site(holder) / "console.log"
        return path.read_text(encoding="utf-8", errors="replace") if path.exists() else ""


def serve(folder: Path, environment: dict[str, str]) -> None:
    """What `hedgerow site start --seeded` starts."""
    from hedgerow.transport import site_process

    os.environ |= environment
    if (limit := environment.get("LARGEST_FILE")) is not None:  # as on a full disk
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (int(limit), int(limit)))
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the coordinator
    sys.argv = ["site", str(folder), "--seeded"]
    site_process.main()


def command(folder: Path, name: str) -> None:
    """`hedgerow network learn`, with its output in a file."""
    from hedgerow.cli import app

    os.setsid()
    signal.signal(signal.SIGINT, signal.default_int_handler)
    number = os.open(folder / "said.txt", os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    for standard in (1, 2):
        os.dup2(number, standard)
    app(["network", name, str(folder / "study.toml"), "--out", str(folder / "out")])


class Gate:
    """Stands in a holder's way: it answers as often as the test lets it, however fast or slow anybody is.

    A site looks at its policy before every answer. Here it finds a pipe in the policy's place, a new one each
    time, and stands still until the policy has been written into it.
    """

    def __init__(self, federation: Federation, holder: str) -> None:
        self._federation = federation
        self._holder = holder
        self._path = federation.site(holder) / "hedgerow.toml"
        self._policy = self._path.read_bytes()
        self._pipe: int | None = None  # of a site that stands still

    def shut(self) -> None:
        self._replace(os.mkfifo)

    def hold(self, after: int) -> None:
        """Let the holder answer `after` times; it stands still from then on."""
        while True:
            until(self._is_there, 60, pause=0.01)
            if len(self._federation.journal(self._holder)) >= after:
                return
            self.let_pass()

    def let_pass(self) -> None:
        """Let the holder answer once, if it is still there."""
        self._let_go(os.mkfifo)

    def open(self) -> None:
        """Let the holder answer from now on."""
        self._let_go(lambda path: path.write_bytes(self._policy))

    def _is_there(self) -> bool:
        if self._pipe is None:
            with suppress(OSError):  # nobody reads
                self._pipe = os.open(self._path, os.O_WRONLY | os.O_NONBLOCK)
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
        new.chmod(0o600)
        new.replace(self._path)


def seed_of(holder: int) -> int:
    """The seed that `PrivateTreeClassifier(noise_seed=SEED)` gives a holder."""
    return int(np.random.SeedSequence([SEED, holder]).generate_state(1, np.uint64)[0])


def until(true: Callable[[], bool], seconds: float, pause: float = 0.05) -> None:
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


def toml(plain: dict[str, Any]) -> str:
    return "".join(f"{key} = {json.dumps(value)}\n" for key, value in plain.items())


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


@pytest.fixture(scope="session")
def fork() -> Any:
    """Starts processes that have everything imported and compiled; made once."""
    pytest.importorskip("grpc", reason="the network needs gRPC: pip install 'hedgerow[network]'")
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["tests.network.warm"])
    return context


@pytest.fixture(scope="session")
def patients() -> Hospitals:
    return plant(synthetic_hospitals(len(HOLDERS), rows=ROWS, seed=3))


@pytest.fixture
def federation(tmp_path: Path, fork: Any, patients: Hospitals) -> Iterator[Callable[..., Federation]]:
    """Makes studies, set up and started, and stops whatever is left of them."""
    from hedgerow.transport.study import Study

    made: list[Federation] = []

    def make(*, start: bool = True, grant: dict[str, Any] | None = None, **options: Any) -> Federation:
        folder = tmp_path / f"study-{len(made)}"
        folder.mkdir()
        [port] = free_ports(1)
        options = {
            "name": "net",
            "schema": patients.schema,
            "epsilon": 3.0,
            "holders": HOLDERS,
            "server": "localhost",
            "port": port,
            "max_splits": 16,
            "answer_seconds": 30.0,
            "return_minutes": 1.0,
        } | options
        one = Federation(folder, Study(**options), patients, fork)
        one.set_up(grant)
        made.append(one)
        if start:
            one.start()
        return one

    yield make
    for one in made:
        one.close()
