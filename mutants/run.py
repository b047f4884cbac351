"""Plants the mistakes of the catalogue, one at a time, and demands that a test notices each.

    python mutants/run.py [--jobs 2] [--only exact.py --only "twice"] [--list]

The working tree is never touched: every job has a copy of src/ and tests/, in which one mistake is planted, its tests
are run by a process of their own, and the file is put back. Ends with 1 if less than 97 % of the mistakes are noticed,
if one is not and nobody says why, or if one cannot be planted any more because the source has changed.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import re
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from queue import SimpleQueue

from account import ACCOUNT
from mutant import Mutant
from samplers import SAMPLERS
from sites import SITES
from tables import TABLES

ROOT = Path(__file__).parents[1]
CATALOGUE = [*SAMPLERS, *ACCOUNT, *SITES, *TABLES]
LEAST = 0.97
TIMEOUT = 150.0  # seconds of one mutant's tests; a mistake that never ends is noticed too
# Numbers that were once written down notice any change; what is asked for here is a test of behaviour.
NO_BEHAVIOUR = ("tests/privacy/test_noise.py::test_seeded_noise_stays_what_it_was",)
# Code that cannot run at all is no mistake that anybody would ship.
BROKEN = re.compile(r"numba\.core\.errors\.\w+|SyntaxError|NameError|UnboundLocalError")
CAUGHT, SURVIVED, HANGS, STALE, NO_CODE = "caught", "survived", "hangs", "cannot be planted", "does not run"


@dataclass(frozen=True)
class Outcome:
    """What became of a mutant: which test noticed it, after how many seconds."""

    mutant: Mutant
    name: str
    verdict: str
    noticed_by: str
    seconds: float

    def __str__(self) -> str:
        by = f" [{self.noticed_by}]" if self.noticed_by else ""
        return f"{self.verdict:9} {self.name:14} {self.mutant.harm}{by} ({self.seconds:.0f} s)"


class Tree:
    """A copy of the project in which mistakes are planted."""

    def __init__(self, path: Path, template: Path) -> None:
        self.path = path
        for folder in (
            "src",
            "tests",
        ):  # with what is compiled, and the times of files, by which that is known
            shutil.copytree(template / folder, path / folder)
        shutil.copy2(template / "pyproject.toml", path)

    @contextmanager
    def planted(self, mutant: Mutant) -> Iterator[bool]:
        """Within, the mistake is there, and nothing compiled that could be without it; afterwards all is as before."""
        file = self.path / "src" / "hedgerow" / mutant.file
        source = file.read_text(encoding="utf-8")
        changed = mutant.applied(source)
        if changed is None:
            yield False
            return
        with tempfile.TemporaryDirectory(dir=self.path) as aside:
            kept = Path(aside)
            shutil.copy2(file, kept / "source")
            stale = {each: kept / str(i) for i, each in enumerate(self._compiled_from(file))}
            for each, place in stale.items():
                each.rename(place)
            try:
                file.write_text(changed, encoding="utf-8")
                yield True
            finally:
                for each in self._compiled_from(file):
                    each.unlink()
                for each, place in stale.items():
                    place.rename(each)
                shutil.copy2(kept / "source", file)

    def _compiled_from(self, file: Path) -> list[Path]:
        """What is compiled from a file and from all that import it: kernels are compiled into those that call them."""
        package = self.path / "src" / "hedgerow"
        importers: dict[Path, set[Path]] = {}
        for each in package.rglob("*.py"):
            for name in re.findall(
                r"^\s*(?:from|import) hedgerow\.([\w.]+)", each.read_text(encoding="utf-8"), re.MULTILINE
            ):
                importers.setdefault(package / f"{name.replace('.', '/')}.py", set()).add(each)
        found = [file]
        for each in found:  # which grows meanwhile
            found += sorted(importers.get(each, set()) - set(found))
        return [
            compiled
            for each in found
            for compiled in (each.parent / "__pycache__").glob(f"{each.stem}.*")
            if compiled.suffix in {".nbi", ".nbc"} or (compiled.suffix == ".pyc" and each == file)
        ]

    def test(self, tests: Sequence[str], timeout: float | None = TIMEOUT) -> tuple[str, str, float]:
        """A verdict, the test that failed, and the seconds that it took."""
        log, began = self.path / "log.txt", time.monotonic()
        process = multiprocessing.get_context("forkserver").Process(
            target=run_tests, args=(self.path, list(tests), log)
        )
        process.start()
        process.join(timeout)
        if process.is_alive():
            os.killpg(process.pid, signal.SIGKILL)  # type: ignore[arg-type]
            process.join()
            return HANGS, "", time.monotonic() - began
        seconds, said = time.monotonic() - began, log.read_text(encoding="utf-8", errors="replace")
        if process.exitcode == 0:
            return SURVIVED, "", seconds
        failed = re.findall(r"^FAILED tests/(\S+)", said, re.MULTILINE)
        if process.exitcode != 1 or not failed or BROKEN.search(said):
            return NO_CODE, said[-1500:], seconds
        return CAUGHT, failed[0], seconds


def run_tests(tree: Path, tests: list[str], log: Path) -> None:
    """The main function of a process: pytest in a copy of the project, until the first failure."""
    os.setsid()  # so that it ends with all that it has started
    out = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    os.dup2(out, 1)
    os.dup2(out, 2)
    os.chdir(tree)
    sys.dont_write_bytecode = True
    sys.path.insert(0, str(tree / "src"))
    os.environ |= {"PYTHONPATH": str(tree / "src"), "PYTHONDONTWRITEBYTECODE": "1"}
    import pytest

    options = [
        "-o",
        "addopts=",
        "-m",
        "not network",
        "-x",
        "-q",
        "-p",
        "no:cacheprovider",
        *(f"--deselect={test}" for test in NO_BEHAVIOUR),
    ]
    code = pytest.main([*tests, *options])
    import hedgerow

    is_copy = Path(hedgerow.__file__).is_relative_to(tree)
    sys.stdout.flush()
    os._exit(int(code) if is_copy else 9)


def named() -> dict[str, Mutant]:
    """The catalogue: each mutant by its file's name and its number among those of files of this name."""
    names: dict[str, Mutant] = {}
    numbers: dict[str, int] = {}
    for mutant in CATALOGUE:
        file = Path(mutant.file).name
        numbers[file] = numbers.get(file, 0) + 1
        names[f"{file}:{numbers[file]}"] = mutant
    return names


def run(mutants: dict[str, Mutant], jobs: int, folder: Path, *, check: bool) -> list[Outcome]:
    """Test all mutants; what is tested first is that their tests pass without them."""
    first = Tree(folder / "0", ROOT)
    stale = [name for name, mutant in mutants.items() if _source(mutant) is None]
    print(f"{len(mutants)} mutants.", flush=True)
    if check:
        tests = sorted({test for mutant in mutants.values() for test in mutant.tests})
        verdict, said, seconds = first.test(tests, timeout=None)
        if verdict != SURVIVED:
            sys.exit(f"The tests fail without a mutant ({verdict}): {said}")
        print(f"Without any of them their tests pass ({seconds:.0f} s).", flush=True)
    trees: SimpleQueue[Tree] = SimpleQueue()
    for tree in (first, *(Tree(folder / str(i), first.path) for i in range(1, jobs))):
        trees.put(tree)

    def outcome(name: str) -> Outcome:
        tree, mutant = trees.get(), mutants[name]
        try:
            with tree.planted(mutant) as is_planted:
                found = tree.test(mutant.tests) if is_planted else (STALE, "", 0.0)
        finally:
            trees.put(tree)
        result = Outcome(mutant, name, *found)
        print(result, flush=True)
        return result

    with ThreadPoolExecutor(jobs) as pool:
        return list(pool.map(outcome, [*stale, *(name for name in mutants if name not in stale)]))


def _source(mutant: Mutant) -> str | None:
    return mutant.applied((ROOT / "src" / "hedgerow" / mutant.file).read_text(encoding="utf-8"))


def summary(outcomes: list[Outcome]) -> bool:
    """Print what matters; True if all is well."""
    noticed = [each for each in outcomes if each.verdict in {CAUGHT, HANGS}]
    survivors = [each for each in outcomes if each.verdict == SURVIVED]
    useless = [each for each in outcomes if each.verdict in {STALE, NO_CODE}]
    share = len(noticed) / max(len(noticed) + len(survivors), 1)
    print(f"\n{len(noticed)} of {len(noticed) + len(survivors)} mutants are caught ({100 * share:.1f} %).")
    for each in survivors:
        print(
            f"survived: {each.name} ({each.mutant.file}): {each.mutant.harm}\n    {each.mutant.survives or 'NOT EXPLAINED'}"
        )
    for each in noticed:
        if each.mutant.survives:
            print(f"caught after all, so take its explanation away: {each.name}")
    for each in useless:
        print(f"{each.verdict}: {each.name} ({each.mutant.file}): {each.mutant.old!r}")
    return share >= LEAST and not useless and all(each.mutant.survives for each in survivors)


def main() -> int:
    """The command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--jobs", type=int, default=2, help="mutants tested at a time")
    parser.add_argument("--only", action="append", help="those with this in their name, file or harm")
    parser.add_argument("--list", action="store_true", help="list them and test nothing")
    parser.add_argument("--unchecked", action="store_true", help="trust that the tests pass without a mutant")
    parser.add_argument("--report", type=Path, help="write the outcomes to this file, as JSON")
    options = parser.parse_args()
    mutants = {
        name: mutant
        for name, mutant in named().items()
        if not options.only
        or any(part in {name, mutant.file} or part in mutant.harm for part in options.only)
    }
    if options.list or not mutants:
        for name, mutant in mutants.items():
            print(f"{name:16} {'STALE ' if _source(mutant) is None else ''}{mutant.harm}")
        return 0 if mutants else 1
    began = time.monotonic()
    os.environ |= {"PYTHONPATH": str(Path(__file__).parent), "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
    multiprocessing.set_forkserver_preload(["shared"])
    with tempfile.TemporaryDirectory(prefix="mutants-", ignore_cleanup_errors=True) as folder:
        outcomes = run(mutants, options.jobs, Path(folder), check=not options.unchecked)
    if options.report:
        plain = {each.name: [each.verdict, each.noticed_by, round(each.seconds, 1)] for each in outcomes}
        options.report.write_text(json.dumps(plain, indent=1))
    is_well = summary(outcomes)
    print(f"{time.monotonic() - began:.0f} s, {options.jobs} at a time.")
    return 0 if is_well else 1


if __name__ == "__main__":
    sys.exit(main())
