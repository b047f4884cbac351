"""Work on all cores is done as a whole, or not at all."""

from __future__ import annotations

import os
import sys
import threading
import time
import weakref
from queue import SimpleQueue

import numpy as np
import pytest

from hedgerow import threads
from hedgerow.threads import run_all


@pytest.fixture(autouse=True)
def three_threads(monkeypatch):
    threads._helpers.cache_clear()
    monkeypatch.setattr(threads, "n_threads", lambda: 3)
    yield
    threads._helpers.cache_clear()


def test_every_part_is_done_once():
    done = []
    run_all(done.append, range(100))
    assert sorted(done) == list(range(100))


def test_without_threads_nothing_is_done_not_even_later(monkeypatch):
    done, start = [], threading.Thread.start
    started = []

    def only_one(thread):
        if started:
            raise RuntimeError("can't start new thread")
        started.append(thread)
        start(thread)

    monkeypatch.setattr(threading.Thread, "start", only_one)
    with pytest.raises(RuntimeError, match="can't start"):
        run_all(done.append, range(100))
    assert done == []
    monkeypatch.undo()
    run_all(done.append, range(100))
    assert sorted(done) == list(range(100))


def test_no_part_is_lost_and_no_helper_either_when_they_race(monkeypatch):
    interval = sys.getswitchinterval()
    deaths = []
    monkeypatch.setattr(threading, "excepthook", deaths.append)
    sys.setswitchinterval(1e-6)
    try:
        for _ in range(20_000):
            done = []
            run_all(done.append, range(3))
            assert sorted(done) == [0, 1, 2]
    finally:
        sys.setswitchinterval(interval)
    assert not deaths


def test_a_helper_that_does_not_wake_up_is_not_waited_for(monkeypatch):
    done = []
    with monkeypatch.context() as asleep:
        asleep.setattr(threads, "_helpers", lambda _: SimpleQueue())  # where nobody serves
        run_all(done.append, range(100))
    assert sorted(done) == list(range(100))


def test_an_interrupted_wait_goes_on_until_the_helpers_have_stopped(monkeypatch):
    """Or they would write to arrays that their caller has long given to others."""
    threads._helpers(os.getpid())
    interrupts, running, helped = [1, 2, 3], set(), threading.Event()

    class Interrupting(SimpleQueue):
        def get(self, *args, **options):
            if interrupts:
                interrupts.pop()
                raise KeyboardInterrupt
            return super().get(*args, **options)

    def work(part):
        if threading.current_thread() is threading.main_thread():
            assert helped.wait(10)
            return
        running.add(part)
        helped.set()
        time.sleep(0.2)
        running.remove(part)

    monkeypatch.setattr(threads, "SimpleQueue", Interrupting)
    with pytest.raises(KeyboardInterrupt):
        run_all(work, range(2))
    assert not running
    assert not interrupts


def test_a_job_that_nobody_fetches_keeps_nothing_alive(monkeypatch):
    queue, table = SimpleQueue(), np.zeros(10)
    known = weakref.ref(table)
    with monkeypatch.context() as asleep:
        asleep.setattr(threads, "_helpers", lambda _: queue)
        run_all(lambda part, table=table: table.sum() + part, range(2))
    del table
    assert queue.qsize() == 2 - 1
    assert known() is None
    queue.get()()  # and finds nothing to do


def test_the_failure_of_a_helper_is_told():
    failing = threading.Event()

    def work(part):
        if threading.current_thread() is threading.main_thread():
            assert failing.wait(10)
        else:
            failing.set()
            raise IndexError("a helper's")

    for _ in range(3):  # and the helpers go on serving
        failing.clear()
        with pytest.raises(IndexError, match="a helper's"):
            run_all(work, range(3))


def test_a_part_that_fails_is_told_when_all_have_stopped():
    running, one_runs = set(), threading.Event()

    def work(part):
        if threading.current_thread() is threading.main_thread():
            assert one_runs.wait(10)
            raise ValueError("mine")
        running.add(part)
        one_runs.set()
        time.sleep(0.1)
        running.remove(part)

    with pytest.raises(ValueError, match="mine"):
        run_all(work, range(3))
    assert not running
