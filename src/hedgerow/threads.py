"""Compiled kernels on all cores: they release the GIL, so ordinary threads do.

Numba's own thread pools are not used: two of them abort when two Python threads, or a forked child, enter at
once, which a holder that serves a network does. Anything may import this module.
"""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import lru_cache
from itertools import pairwise
from queue import Empty, SimpleQueue
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


# A child in a process namespace of its own may have its parent's number.
os.register_at_fork(after_in_child=_helpers.cache_clear)


def run_all(task: Callable[[T], object], parts: Sequence[T]) -> None:
    """Run `task` on every part and wait; threads, of which the caller's is one, take the next part in turn."""
    if len(parts) == 1:
        task(parts[0])
        return
    # Keyed by process: a forked child inherits the queue but none of the threads.
    _Job(task, parts).run(_helpers(os.getpid()), min(n_threads(), len(parts)) - 1)


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
        self._task: Callable[[T], object] | None = task
        self._waiting = deque(parts)
        self._taking = Lock()
        # By helpers: how many parts were begun, how those ended, and a word each time that one did.
        self._begun = 0
        self._outcomes: list[BaseException | None] = []
        self._ended: SimpleQueue[None] = SimpleQueue()

    def run(self, helpers: SimpleQueue[Callable[[], None]], n_helpers: int) -> None:
        """Do the parts, and wait for helpers that have begun one; who has not woken up yet is not missed."""
        try:
            for _ in range(n_helpers):
                helpers.put(self._help_out)
            while found := self._take():
                found[0](found[1])
        finally:
            interrupts: list[BaseException | None] = []
            while True:  # whatever comes: a helper that was left alone would write to arrays in use
                try:
                    with self._taking:
                        self._waiting.clear()
                        self._task = None  # nor keep them alive, should it wake up much later
                    while len(self._outcomes) < self._begun:
                        with suppress(Empty):
                            self._ended.get(timeout=0.1)
                    break
                except KeyboardInterrupt as interrupt:
                    interrupts.append(interrupt)
        for failure in (*interrupts, *self._outcomes):
            if failure is not None:
                raise failure

    def _take(self, begun: int = 0) -> tuple[Callable[[T], object], T] | None:
        with self._taking:
            if not self._waiting or self._task is None:
                return None
            self._begun += begun
            return self._task, self._waiting.popleft()

    def _help_out(self) -> None:
        while found := self._take(begun=1):
            try:
                found[0](found[1])
            except BaseException as error:  # noqa: BLE001 - the caller raises it
                self._outcomes.append(error)
            else:
                self._outcomes.append(None)
            self._ended.put(None)


def even_parts(n: int, at_least: int = 1) -> list[tuple[int, int]]:
    """0..n cut into at most one part a thread, none but the last shorter than `at_least`."""
    parts = max(1, min(n_threads(), n // max(at_least, 1)))
    edges = [n * i // parts for i in range(parts + 1)]
    return list(pairwise(edges))
