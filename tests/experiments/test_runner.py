"""The runner: a study that is stopped at any point and started again ends like one that was left alone."""

from __future__ import annotations

import gzip
import os
import signal
import subprocess
import sys
import time

import joblib
import numpy as np
import pytest
import tiny_study
from tiny_study import tiny

from hedgerow.experiments import runner
from hedgerow.experiments.runner import CSV, PACKED, finished_cells, reproduce, share, shared, sort
from hedgerow.experiments.versions import Result

CELLS = tiny_study.cells([2])


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory):
    out = tmp_path_factory.mktemp("undisturbed")
    reproduce(CELLS, out, jobs=1, source=tiny)
    return out


def test_every_cell_is_written_once(undisturbed):
    lines = (undisturbed / CSV).read_text().splitlines()
    assert len(lines) == 1 + len(CELLS)
    assert finished_cells(undisturbed / CSV) == set(CELLS)


def test_killing_the_runner_and_starting_again_gives_the_same_csv(undisturbed, tmp_path):
    command = [sys.executable, tiny_study.__file__, os.fspath(tmp_path)]
    path = tmp_path / CSV
    for upto in (1, len(CELLS) // 2):
        process = subprocess.Popen(command, stderr=subprocess.DEVNULL)
        while process.poll() is None and (not path.exists() or path.read_bytes().count(b"\n") <= upto):
            time.sleep(0.002)
        process.send_signal(signal.SIGKILL)
        process.wait()
        assert len(finished_cells(path)) < len(CELLS)
    reproduce(CELLS, tmp_path, jobs=1, source=tiny)
    assert path.read_bytes() == (undisturbed / CSV).read_bytes()


@pytest.mark.parametrize("kept", [0, 5, 2_000, -1])
def test_a_csv_cut_anywhere_is_completed(undisturbed, tmp_path, kept):
    whole = (undisturbed / CSV).read_bytes()
    (tmp_path / CSV).write_bytes(whole[:kept])
    reproduce(CELLS, tmp_path, jobs=1, source=tiny)
    assert (tmp_path / CSV).read_bytes() == whole


def test_a_study_killed_before_its_lines_were_in_order_is_put_in_order(undisturbed, tmp_path):
    header, *lines = (undisturbed / CSV).read_bytes().splitlines(keepends=True)
    (tmp_path / CSV).write_bytes(b"".join([header, *reversed(lines)]))
    reproduce(CELLS, tmp_path, jobs=1, source=tiny)
    assert (tmp_path / CSV).read_bytes() == (undisturbed / CSV).read_bytes()


def test_an_interrupted_study_writes_down_what_it_took(tmp_path, monkeypatch):
    learned = []

    def run(cell, data):
        if len(learned) == 3:
            raise KeyboardInterrupt
        learned.append(cell)
        return Result(0.5, 0.5, 1, 1)

    monkeypatch.setattr(runner, "run", run)
    with pytest.raises(KeyboardInterrupt):
        reproduce(CELLS, tmp_path, jobs=1, source=tiny)
    assert finished_cells(tmp_path / CSV) == set(learned)
    [_, line] = (tmp_path / runner.TIMES).read_text().splitlines()
    assert line.split(",")[2] == "3"


def test_a_packed_study_is_gone_on_with(undisturbed, tmp_path):
    half = b"".join((undisturbed / CSV).read_bytes().splitlines(keepends=True)[: len(CELLS) // 2])
    (tmp_path / PACKED).write_bytes(gzip.compress(half))
    reproduce(CELLS, tmp_path, jobs=1, source=tiny)
    assert (tmp_path / CSV).read_bytes() == (undisturbed / CSV).read_bytes()
    assert f",{len(CELLS) - len(CELLS) // 2 + 1},1," in (tmp_path / "times.csv").read_text()


def test_a_finished_study_is_left_as_it_is(undisturbed):
    before = (undisturbed / CSV).stat().st_mtime_ns
    reproduce(CELLS, undisturbed, jobs=1, source=tiny)
    assert (undisturbed / CSV).stat().st_mtime_ns == before


def test_the_order_in_which_cells_finish_does_not_show(undisturbed, tmp_path):
    header, *lines = (undisturbed / CSV).read_text().splitlines()
    (tmp_path / CSV).write_text("\n".join([header, *reversed(lines)]) + "\n")
    sort(tmp_path / CSV)
    assert (tmp_path / CSV).read_bytes() == (undisturbed / CSV).read_bytes()


def test_two_processes_give_the_same_csv(undisturbed, tmp_path):
    reproduce(CELLS[::2], tmp_path, jobs=2, source=tiny)
    lines = (tmp_path / CSV).read_text().splitlines()
    assert set(lines) <= set((undisturbed / CSV).read_text().splitlines())
    assert len(lines) == 1 + len(CELLS[::2])


def test_dask_gives_the_same_csv(undisturbed, tmp_path):
    distributed = pytest.importorskip("distributed")
    cluster = distributed.LocalCluster(
        n_workers=1, threads_per_worker=2, processes=False, dashboard_address=None
    )
    with cluster, distributed.Client(cluster), joblib.parallel_config(backend="dask"):
        reproduce(CELLS[::2], tmp_path, jobs=-1, source=tiny)
    lines = (tmp_path / CSV).read_text().splitlines()
    assert set(lines) <= set((undisturbed / CSV).read_text().splitlines())
    assert len(lines) == 1 + len(CELLS[::2])


def test_shared_codes_are_the_same_and_mapped(tiny_data, tmp_path):
    share(tiny_data, tmp_path / "codes")
    again = shared(os.fspath(tmp_path / "codes"))
    assert again.schema == tiny_data.schema
    for mine, theirs in zip((*tiny_data.train, *tiny_data.test), (*again.train, *again.test), strict=True):
        if isinstance(mine, np.ndarray):
            np.testing.assert_array_equal(mine, theirs)
        else:
            np.testing.assert_array_equal(mine.narrow, theirs.narrow)
            assert isinstance(theirs.narrow.base, np.memmap)
