"""Compiled kernels on all cores: they release the GIL, so ordinary threads do.

Numba's own thread pools are not used: two of them abort when two Python threads, or a forked child, enter at
once, which a holder that serves a network does. Anything may import this module.
"""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable, Sequence
from functools import lru_cache
from itertools import pairwise
from queue import SimpleQueue
from threading import Lock, Thread
from typing import Generic, TypeVar

import numba
import numpy as np
from numpy.typing import NDArray

T = TypeVar("T")


def n_threads() -> int:
    """The cores this process may use; NUMBA_NUM_THREADS lowers it, and joblib sets that in its workers."""
    return int(numba.config.NUMBA_NUM_THREADS)  # type: ignore[attr-defined]


@lru_cache(maxsize=1)
def _helpers(process: int) -> SimpleQueue[Callable[[], None]]:  # noqa: ARG001 - the key of the cache
    """Where threads wait for work beside the caller's. A pool of futures would take longer than a small part."""
    jobs: SimpleQueue[Callable[[], None]] = SimpleQueue()

    def serve() -> None:
        while True:
            jobs.get()()

    for _ in range(n_threads() - 1):
        Thread(target=serve, name="hedgerow", daemon=True).start()
    return jobs


def run_all(task: Callable[[T], object], parts: Sequence[T]) -> None:
    """Run `task` on every part and wait; threads, of which the caller's is one, take the next part in turn."""
    if len(parts) == 1:
        task(parts[0])
        return
    job = _Job(task, parts)
    # Keyed by process: a forked child inherits the queue but none of the threads.
    helpers = _helpers(os.getpid())
    for _ in range(min(n_threads(), len(parts)) - 1):
        helpers.put(job.help_out)
    job.finish()


def share(kernel: Callable[[NDArray[np.int64]], object], n_parts: int) -> None:
    """Call `kernel` on as many threads as there are parts for; each takes parts in turn until there are none left.

    It takes the number of the next part from the array that it is given (`compiled.take`), without the interpreter:
    threads that had to wait for its lock between small parts would be slower than one alone.
    """
    tickets = np.zeros(1, dtype=np.int64)
    run_all(lambda _: kernel(tickets), range(max(1, min(n_threads(), n_parts))))


class _Job(Generic[T]):
    """Parts of which some are done by the caller, and some by whoever helps out."""

    def __init__(self, task: Callable[[T], object], parts: Sequence[T]) -> None:
        self._task = task
        self._waiting = deque(parts)
        self._begun = 0  # by helpers
        self._taking = Lock()
        self._ended: SimpleQueue[BaseException | None] = SimpleQueue()

    def help_out(self) -> None:
        while True:
            with self._taking:
                try:
                    part = self._waiting.popleft()
                except IndexError:
                    return
                self._begun += 1
            try:
                self._task(part)
            except BaseException as error:  # noqa: BLE001 - the caller raises it
                self._ended.put(error)
            else:
                self._ended.put(None)

    def finish(self) -> None:
        """Do what is left, and wait for the helpers that have begun; one that has not woken up yet is not missed."""
        try:
            while True:
                try:
                    part = self._waiting.popleft()
                except IndexError:
                    break
                self._task(part)
        finally:
            with self._taking:
                self._waiting.clear()
            failures = [failure for _ in range(self._begun) if (failure := self._ended.get()) is not None]
        for failure in failures:
            raise failure


def even_parts(n: int, at_least: int = 1) -> list[tuple[int, int]]:
    """0..n cut into at most one part a thread, none but the last shorter than `at_least`."""
    parts = max(1, min(n_threads(), n // max(at_least, 1)))
    edges = [n * i // parts for i in range(parts + 1)]
    return list(pairwise(edges))
