"""A whole network on this machine: made, started, used once, stopped. For a look, and for measuring."""

from __future__ import annotations

import csv
import re
import shutil
import socket
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from statistics import median
from tempfile import mkdtemp
from typing import Any, Self

from hedgerow.schema import Schema
from hedgerow.transport.flare import console, kits, processes
from hedgerow.transport.site import POLICY_FILE, account
from hedgerow.transport.study import Study

Table = tuple[Any, Any]  # rows, labels


@contextmanager
def network(schema: Schema, tables: Sequence[Table], **wishes: Any) -> Iterator[tuple[Study, Path]]:
    """A server and one site a table, as real processes with mutual TLS on loopback, in a temporary folder."""
    folder = Path(mkdtemp(prefix="hedgerow-demo-"))
    port, admin_port = _free_ports()
    holders = tuple(f"hospital-{i + 1}" for i in range(len(tables)))
    study = Study(
        name="demo",
        schema=schema,
        holders=holders,
        server="localhost",
        port=port,
        admin_port=admin_port,
        **wishes,
    )
    try:
        kits.provision(study, folder)
        for holder, table in zip(holders, tables, strict=True):
            _furnish(study, folder / holder, table)
        for name in (kits.SERVER, *holders):
            processes.start(folder / name)
        yield study, folder
    finally:
        for name in (*holders, kits.SERVER):
            processes.stop(folder / name)
        shutil.rmtree(folder, ignore_errors=True)


def _furnish(study: Study, kit: Path, table: Table) -> None:
    """What a holder does before it starts: its data file, and a grant."""
    rows, labels = table
    with (kit / "local" / "data.csv").open("w", newline="", encoding="utf-8") as file:
        out = csv.writer(file)
        out.writerow([*study.schema.names, study.schema.label])
        for row, label in zip(rows, labels, strict=True):
            out.writerow(["" if value is None or value != value else value for value in row] + [label])  # noqa: PLR0124 - NaN
    (kit / "local" / POLICY_FILE).write_text(
        'data = "data.csv"\nschema = "schema.toml"\njournal = "../journal"\ncounter = "../counter"\n'
        f"lifetime_epsilon = {study.epsilon}\nmax_rows = {study.max_rows}\n"
        f'[[grants]]\nstudy = "{study.name}"\nepsilon = {study.epsilon}\nneighbours = "{study.neighbours}"\n',
        encoding="utf-8",
    )


def demo(schema: Schema, tables: Sequence[Table], show: console.Show, **wishes: Any) -> dict[str, Any]:
    """Learn once over a network of our own and say what it took; returns the figures."""
    began = time.monotonic()
    with network(schema, tables, **wishes) as (study, folder):
        started = time.monotonic()
        show(
            f"{len(tables)} sites and a server, provisioned and started in {started - began:.1f} s ({folder})"
        )
        with _Memory([folder / name for name in (kits.SERVER, *study.holders)]) as memory:
            rounds: list[dict[str, Any]] = []

            def follow(one: dict[str, Any]) -> None:
                rounds.append(one)
                show(console.describe_round(one))

            outcome = console.learn(study, folder, show, follow)
        learned = time.monotonic()
        show(console.describe_report(outcome.report))
        for holder in study.holders:
            processes.stop(folder / holder)
            ledger = account(folder / holder / "local" / POLICY_FILE, study.name)
            show(f"\nThe ledger of {holder}:\n{ledger}")
        computing = [_computing_seconds(folder / holder) for holder in study.holders]
        beyond = [
            one["seconds"] - max(times.get(one["number"], 0.0) for times in computing) for one in rounds
        ]
        figures = {
            "sites": len(tables),
            "splits": sum("split" in node for node in outcome.tree["nodes"]),
            "rounds": len(rounds),
            "bytes": sum(one["bytes_sent"] + one["bytes_received"] for one in rounds),
            "seconds in rounds": round(sum(one["seconds"] for one in rounds), 2),
            "seconds of a round beyond the slowest holder's computing, median": round(median(beyond), 3),
            "the same, most": round(max(beyond), 3),
            "seconds from start to tree": round(learned - started, 1),
            "most memory of a site, MB": max(memory.most[folder / h] for h in study.holders) // 1024,
        }
    show("\n" + "\n".join(f"{name}: {value}" for name, value in figures.items()))
    return figures


def _computing_seconds(kit: Path) -> dict[int, float]:
    """How long a site worked on each round, as it says on its own console."""
    said = (kit / processes.CONSOLE_FILE).read_text(encoding="utf-8", errors="replace")
    found = re.findall(r"answered 'round-(\d+)' .* ([\d.]+) s$", said, re.MULTILINE)
    return {int(number): float(seconds) for number, seconds in found}


class _Memory:
    """The most that each kit's processes together have held at once, in kB; looked at twice a second."""

    def __init__(self, folders: Sequence[Path]) -> None:
        self.most = dict.fromkeys(folders, 0)
        self._done = threading.Event()
        self._thread = threading.Thread(target=self._watch)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._done.set()
        self._thread.join()

    def _watch(self) -> None:
        while not self._done.wait(0.5):
            for kit in self.most:
                now = processes.status(kit)
                held = sum(_resident(pid) for pid in (now.process, *now.jobs) if pid is not None)
                self.most[kit] = max(self.most[kit], held)


def _resident(pid: int) -> int:
    """Private and proportionally shared memory of a process, in kB."""
    try:
        lines = Path(f"/proc/{pid}/smaps_rollup").read_text(encoding="utf-8").splitlines()
    except OSError:
        return 0
    return sum(int(line.split()[1]) for line in lines if line.startswith("Pss:"))


def _free_ports() -> list[int]:
    sockets = [socket.socket() for _ in range(2)]
    for one in sockets:
        one.bind(("127.0.0.1", 0))
    ports = [int(one.getsockname()[1]) for one in sockets]
    for one in sockets:
        one.close()
    return ports
