"""Compiled kernels on all cores: they release the GIL, so ordinary threads do.

Numba's own thread pools are not used: two of them abort when two Python threads, or a forked child, enter at
once, which a holder that serves a network does. Anything may import this module.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import lru_cache
from itertools import pairwise
from threading import Barrier
from typing import TypeVar

import numba

T = TypeVar("T")


def n_threads() -> int:
    """The cores this process may use; NUMBA_NUM_THREADS lowers it, and joblib sets that in its workers."""
    return int(numba.config.NUMBA_NUM_THREADS)  # type: ignore[attr-defined]


@lru_cache(maxsize=1)
def _pool(process: int) -> ThreadPoolExecutor:  # noqa: ARG001 - the key of the cache
    """Its threads are all started here: a `submit` that fails for want of one would leave its work to be done later."""
    pool = ThreadPoolExecutor(n_threads(), thread_name_prefix="hedgerow")
    everyone = Barrier(n_threads())
    try:
        for _ in range(n_threads()):
            pool.submit(everyone.wait)
    except RuntimeError:
        everyone.abort()
        raise
    return pool


def run_all(task: Callable[[T], object], parts: Sequence[T]) -> None:
    """Run `task` on every part and wait; threads, of which the caller's is one, take the next part in turn."""
    if len(parts) == 1:
        task(parts[0])
        return
    waiting = iter(parts)  # the interpreter's lock makes taking one atomic

    def work() -> None:
        for part in waiting:
            task(part)

    # Keyed by process: a forked child inherits the pool object but none of its threads.
    helpers = min(n_threads(), len(parts)) - 1
    futures = [_pool(os.getpid()).submit(work) for _ in range(helpers)]
    try:
        work()
    finally:
        for future in futures:
            future.exception()
    for future in futures:
        future.result()


def even_parts(n: int, at_least: int = 1) -> list[tuple[int, int]]:
    """0..n cut into at most one part a thread, none but the last shorter than `at_least`."""
    parts = max(1, min(n_threads(), n // max(at_least, 1)))
    edges = [n * i // parts for i in range(parts + 1)]
    return list(pairwise(edges))
