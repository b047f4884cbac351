"""A whole network on this machine: made, started, used once, stopped. For a look, and for measuring."""

from __future__ import annotations

import csv
import re
import shutil
import socket
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from statistics import median
from tempfile import mkdtemp
from typing import Any

from hedgerow.schema import Schema
from hedgerow.transport import coordinator, site_process, site_setup
from hedgerow.transport.learning import describe_report, describe_round
from hedgerow.transport.remote import Round
from hedgerow.transport.site import POLICY_FILE, account
from hedgerow.transport.study import Study, write_study

Table = tuple[Any, Any]  # rows, labels


@contextmanager
def network(schema: Schema, tables: Sequence[Table], **options: Any) -> Iterator[tuple[Path, list[Path]]]:
    """A study and one running site a table, in a temporary folder: the study's file, and the sites' folders."""
    folder = Path(mkdtemp(prefix="hedgerow-demo-"))
    holders = tuple(f"hospital-{i + 1}" for i in range(len(tables)))
    study = Study("demo", schema, holders=holders, server="localhost", port=free_port(), **options)
    sites = [folder / holder for holder in holders]
    try:
        write_study(study, folder / "study.toml")
        coordinator.provision(folder / "study.toml")
        for site, table in zip(sites, tables, strict=True):
            _set_up(folder / "study.toml", study, site, table)
        for site in sites:
            site_process.show(site)
        with ThreadPoolExecutor(len(sites)) as at_once:
            list(at_once.map(site_process.start, sites))
        yield folder / "study.toml", sites
    finally:
        for site in sites:
            site_process.stop(site)
        shutil.rmtree(folder, ignore_errors=True)


def _set_up(study_file: Path, study: Study, site: Path, table: Table) -> None:
    """What a holder and the coordinator do, once: a request, a signature, a policy."""
    request, _ = site_setup.enroll(site, study_file.parent / coordinator.INVITATION, site.name)
    _, certificate = coordinator.sign(study_file, request)
    site_setup.install(site, certificate)
    rows, labels = table
    with (site / "data.csv").open("w", newline="", encoding="utf-8") as file:
        out = csv.writer(file)
        out.writerow([*study.schema.names, study.schema.label])
        for row, label in zip(rows, labels, strict=True):
            out.writerow(["" if value is None or value != value else value for value in row] + [label])  # noqa: PLR0124 - NaN
    site_setup.init(site, site / "data.csv", study.epsilon, study.epsilon, counter=site / "counter")


def demo(
    schema: Schema, tables: Sequence[Table], show: Callable[[str], None], **options: Any
) -> dict[str, Any]:
    """Learn once over a network of our own and say what it took; returns the figures."""
    began = time.monotonic()
    with network(schema, tables, **options) as (study_file, sites):
        started = time.monotonic()
        show(f"{len(tables)} sites set up and started in {started - began:.1f} s ({study_file.parent})")
        rounds: list[Round] = []

        def follow(one: Round) -> None:
            rounds.append(one)
            show(describe_round(one))

        outcome = coordinator.learn(study_file, show, follow)
        learned = time.monotonic()
        show(describe_report(outcome.report))
        memory = max(_resident(site_process.status(site)) for site in sites)
        for site in sites:
            site_process.stop(site)
            show(f"\nThe ledger of {site.name}:\n{account(site / POLICY_FILE, 'demo')}")
        computing = [_computing_seconds(site) for site in sites]
        beyond = [one.seconds - max(times.get(one.number, 0.0) for times in computing) for one in rounds]
        figures = {
            "sites": len(tables),
            "splits": sum("split" in node for node in outcome.tree["nodes"]),
            "rounds": len(rounds),
            "bytes": sum(one.bytes_sent + one.bytes_received for one in rounds),
            "seconds in rounds": round(sum(one.seconds for one in rounds), 2),
            "seconds of a round beyond the slowest holder's computing, median": round(median(beyond), 3),
            "the same, most": round(max(beyond), 3),
            "seconds from start to tree": round(learned - started, 1),
            "most memory of a site, MB": memory // 1024,
        }
    show("\n" + "\n".join(f"{name}: {value}" for name, value in figures.items()))
    return figures


def _computing_seconds(site: Path) -> dict[int, float]:
    """How long a site worked on each round, as it says on its own console."""
    said = (site / site_process.CONSOLE).read_text(encoding="utf-8", errors="replace")
    found = re.findall(r"answered 'round-(\d+)' .* ([\d.]+) s$", said, re.MULTILINE)
    return {int(number): float(seconds) for number, seconds in found}


def _resident(process: int | None) -> int:
    """Private and proportionally shared memory of a process, in kB."""
    try:
        lines = Path(f"/proc/{process}/smaps_rollup").read_text(encoding="utf-8").splitlines()
    except OSError:
        return 0
    return sum(int(line.split()[1]) for line in lines if line.startswith("Pss:"))


def free_port() -> int:
    """A port of the loopback that nobody listens on."""
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return int(one.getsockname()[1])
