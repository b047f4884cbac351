"""When answers leave a holder's process: a clock is an output too.

How long an answer takes to compute depends on the rows, and is not paid for. So an answer leaves a whole number of
quanta after its question came, and two random parts of a quantum are added before that is rounded up. A row that makes
an answer take d seconds longer then changes when it leaves with probability d / quantum, and by one quantum, whatever a
coordinator asks and whenever. With f the part of a quantum that an answer has begun, it leaves after one, two or three
more with probabilities (1 - f)^2 / 2, 1/2 + f (1 - f) and f^2 / 2: the Fisher information of d lies between 4 and 6 / quantum^2
for every f, so n answers show d with at most sqrt(6 n) d / quantum standard deviations. (With one random part, or none,
questions could be made that end just before or after a quantum, and show much more.)
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

    def hold_back(self, came: float, times: int = 1) -> None:
        """Wait until an answer may leave to a question that came at this time.

        A question for which one row is looked at many times, in releases or when nodes are split, may show so many
        times as much of it: its quantum is so many times as long.
        """
        if self.quantum == 0:
            return
        quantum = self.quantum * max(1, times)
        blurred = (self.now() - came) / quantum + sum(secrets.randbelow(DIGITS) for _ in "ab") / DIGITS
        leaves = came + quantum * (math.floor(blurred) + 1)
        while (rest := leaves - self.now()) > 0:
            self.sleep(rest)
