"""How much of epsilon each release may cost.

A node at depth d (the root has depth 1) pays for choosing its split and for counting the split's cells; a
leaf pays for its class counts. Along any path the sum is at most epsilon.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction

Epsilon = Fraction | float  # a float only for infinity


@dataclass(frozen=True, slots=True)
class NodeBudget:
    """What one node may cost: choosing a split, counting its cells."""

    select: Epsilon
    count: Epsilon


UNLIMITED = NodeBudget(math.inf, math.inf)
