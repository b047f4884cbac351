"""Single draws from a tape."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from hedgerow.privacy.noise import Noise, Tape


def tape_of(noise: Noise, key: int) -> Tape:
    [(tape, _)] = noise.tapes(np.array([key], dtype=np.uint64))
    return tape


def read(tape: Tape, sampler: Callable[..., tuple[Any, int]], *arguments: Any) -> int:
    """What a sampler of one value makes of the unread words."""
    values: list[int] = []

    def once(words: Any, position: int, first: int) -> tuple[int, int]:
        value, after = sampler(words, position, *arguments)
        if after < 0:
            return first, position
        values.append(int(value))
        return first + 1, after

    tape.fill(once, 1)
    return values[0]
