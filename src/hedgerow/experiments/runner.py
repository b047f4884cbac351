"""Learn every cell that a CSV does not have yet, on all cores, and write each one down as soon as it is done.

Codes are written once, as .npy files in a temporary folder; every process maps the same files into memory.
Only this process writes to the CSV. A study that was stopped, even in the middle of a line, goes on from there.
"""

from __future__ import annotations

import csv
import gzip
import json
import os
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import fields
from functools import lru_cache
from pathlib import Path
from typing import Any

import joblib
import numpy as np
from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    TaskID,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)

from hedgerow.datasets import check_files, load
from hedgerow.encoding import Codes
from hedgerow.errors import InvalidTable
from hedgerow.experiments.accuracy import Encoded
from hedgerow.experiments.cells import Cell
from hedgerow.experiments.versions import Result, run
from hedgerow.files import write_text
from hedgerow.schema import Schema

CSV = "cells.csv"
PACKED = "cells.csv.gz"  # the same, as it is kept with the docs
NOTES = "notes.json"
TIMES = "times.csv"
HEADER = [*(f.name for f in fields(Cell)), "guarantee", *(f.name for f in fields(Result))]


def reproduce(
    cells: Sequence[Cell],
    out: Path,
    *,
    jobs: int = -1,
    source: Callable[[str], tuple[Encoded, str]] | None = None,
) -> None:
    """Learn the cells that are not in `out` yet; afterwards the CSV is sorted.

    `source` gives a data set's rows and what to note about them; by default the published files do.
    """
    started = time.monotonic()
    out.mkdir(parents=True, exist_ok=True)
    if (out / PACKED).exists() and not (out / CSV).exists():
        (out / CSV).write_bytes(gzip.decompress((out / PACKED).read_bytes()))
    done = finished_cells(out / CSV)
    missing = [cell for cell in cells if cell not in done]
    if source is None:
        check_files(dict.fromkeys(cell.dataset for cell in missing))
    try:
        _learn(missing, out, jobs, source or _published)
        sort(out / CSV)
    finally:  # an interrupted study took its time too
        learned = finished_cells(out / CSV) - done
        if learned:
            _log_time(out / TIMES, [c for c in missing if c in learned], time.monotonic() - started, jobs)


def _learn(
    missing: Sequence[Cell], out: Path, jobs: int, source: Callable[[str], tuple[Encoded, str]]
) -> None:
    with tempfile.TemporaryDirectory(prefix="hedgerow-codes-") as folder, progress_bars() as progress:
        for dataset in dict.fromkeys(cell.dataset for cell in missing):
            mine = [cell for cell in missing if cell.dataset == dataset]
            bar = progress.add_task(f"{dataset}: reading", total=len(mine))
            data, note = source(dataset)
            _note(out / NOTES, dataset, note)
            share(data, Path(folder) / dataset)
            progress.update(bar, description=dataset)
            results = joblib.Parallel(n_jobs=jobs, return_as="generator_unordered")(
                joblib.delayed(_run)(cell, os.fspath(Path(folder) / dataset)) for cell in mine
            )
            append(out / CSV, _counted(results, progress, bar))


def finished_cells(path: Path) -> set[Cell]:
    """The cells in the CSV."""
    n_fields, found = len(fields(Cell)), set()
    for number, row in enumerate(csv.reader(whole_lines(path)[1:]), start=2):
        try:
            found.add(Cell.from_row(row[:n_fields]))
        except ValueError:
            raise InvalidTable(f"line {number} of {path} is not a tree's; remove it.") from None
    return found


def whole_lines(path: Path) -> list[str]:
    """The lines of a CSV, if there is one; a line that a kill cut short is removed from it."""
    if not path.exists():
        return []
    content = path.read_bytes()
    whole = content[: content.rfind(b"\n") + 1]
    if whole != content:
        with path.open("r+b") as file:
            file.truncate(len(whole))
    return whole.decode().splitlines()


def append(path: Path, results: Iterable[tuple[Cell, Result]]) -> None:
    """Write each result as it comes; a line is flushed before the next result is waited for."""
    with path.open("a", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        if file.tell() == 0:
            writer.writerow(HEADER)
        for cell, result in results:
            writer.writerow([*cell.to_row(), cell.guarantee, *result.to_row()])
            file.flush()


def sort(path: Path) -> None:
    """Put the lines in the order of the cells: cells finish in any order."""
    if not path.exists():  # nothing was asked for
        return
    header, *lines = path.read_text().splitlines()
    n_fields = len(fields(Cell))
    in_order = sorted(lines, key=lambda line: Cell.from_row(line.split(",")[:n_fields]))
    if in_order != lines:
        write_text(path, "\n".join([header, *in_order]) + "\n")


def share(data: Encoded, folder: Path) -> None:
    """Write the codes where other processes can map them."""
    folder.mkdir()
    (folder / "schema.json").write_text(json.dumps(data.schema.to_dict()))
    for part, (codes, labels) in (("train", data.train), ("test", data.test)):
        for name, array in (("narrow", codes.narrow), ("wide", codes.wide), ("places", codes.places)):
            np.save(folder / f"{part}-{name}.npy", array)
        np.save(folder / f"{part}-labels.npy", labels)


@lru_cache(maxsize=1)
def shared(folder: str) -> Encoded:
    """Codes that `share` wrote, mapped into this process and shared with all others that do so."""
    schema = Schema.from_dict(json.loads((Path(folder) / "schema.json").read_text()))
    parts = []
    for part in ("train", "test"):
        narrow, wide, places, labels = (
            _mapped(Path(folder) / f"{part}-{name}.npy") for name in ("narrow", "wide", "places", "labels")
        )
        parts.append((Codes(narrow, wide, places), labels))
    return Encoded(schema, parts[0], parts[1])


def _mapped(path: Path) -> Any:
    # Copy on write: nobody writes, but to compiled code a read-only array is another type, compiled again.
    return np.asarray(np.load(path, mmap_mode="c"))


def _counted(
    results: Iterable[tuple[Cell, Result]], progress: Progress, bar: TaskID
) -> Iterator[tuple[Cell, Result]]:
    for pair in results:
        yield pair
        progress.advance(bar)


def _run(cell: Cell, folder: str) -> tuple[Cell, Result]:
    return cell, run(cell, shared(folder))


def _published(name: str) -> tuple[Encoded, str]:
    dataset = load(name)
    return Encoded.of(dataset), dataset.note


def _note(path: Path, dataset: str, note: str) -> None:
    notes = json.loads(path.read_text()) if path.exists() else {}
    path.write_text(json.dumps({**notes, dataset: note}, indent=1) + "\n")


def _log_time(path: Path, cells: Sequence[Cell], seconds: float, jobs: int) -> None:
    """What a study cost, for the record; not part of its results."""
    is_new = not path.exists()
    with path.open("a", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        if is_new:
            writer.writerow(["datasets", "versions", "cells", "jobs", "seconds"])
        names = [
            " ".join(dict.fromkeys(getattr(cell, key) for cell in cells)) for key in ("dataset", "version")
        ]
        writer.writerow([*names, len(cells), jobs, round(seconds, 1)])


def progress_bars() -> Progress:
    """What is done, and how long the rest will take, on standard error."""
    columns = (
        TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn(),
        TextColumn("left:"), TimeRemainingColumn(),
    )  # fmt: skip
    return Progress(*columns, console=Console(stderr=True))
