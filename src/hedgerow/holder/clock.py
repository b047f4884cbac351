"""When answers leave a holder's process: a clock is an output too.

How long an answer takes to compute depends on the rows, and is not paid for. So an answer leaves a whole number of
quanta after its question came, and a random part of a quantum is added before that is rounded up: whatever a coordinator
asks, and whenever, that a row makes an answer take d seconds longer changes when it leaves with probability d / quantum,
and by one quantum. Without the random part, questions could be made that end just before or just after a quantum.
"""

from __future__ import annotations

import math
import secrets
import time
from collections.abc import Callable
from dataclasses import dataclass

DIGITS = 2**53


@dataclass(frozen=True)
class AnswerClock:
    """Holds answers back. `quantum` is in seconds; 0 lets them leave at once, which tells how long they took."""

    quantum: float
    now: Callable[[], float] = time.monotonic
    sleep: Callable[[float], None] = time.sleep

    def hold_back(self, came: float, releases_of_a_row: int = 1) -> None:
        """Wait until an answer may leave to a question that came at this time.

        A question that asks about one row in many releases may show so many times as much of it: its quantum is so
        many times as long.
        """
        if self.quantum == 0:
            return
        quantum = self.quantum * max(1, releases_of_a_row)
        blurred = (self.now() - came) / quantum + secrets.randbelow(DIGITS) / DIGITS
        leaves = came + quantum * (math.floor(blurred) + 1)
        while (rest := leaves - self.now()) > 0:
            self.sleep(rest)
