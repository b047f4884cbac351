"""Requests with some bytes changed, as many as HEDGEROW_MUTATED says (`make soak`: a million)."""

from __future__ import annotations

import os
from fractions import Fraction
from pathlib import Path

import numpy as np

from hedgerow.criteria import Criterion
from hedgerow.messages import (
    Answer,
    CountCells,
    CountLabels,
    CountRows,
    Grow,
    Nominate,
    Request,
    from_bytes,
    to_bytes,
)
from hedgerow.transport.frames import request_frame
from hedgerow.transport.site import Site, account

N = int(os.environ.get("HEDGEROW_MUTATED", "3000"))


def test_mutated_requests_are_refused_or_are_other_requests_within_the_grant(policy: Path, capsys):
    site = Site(policy)
    rng = np.random.default_rng(0)
    price, node = [Fraction(1, 4000)], np.array([0])
    frames = [
        request_frame(to_bytes(Request("malaria", "name", growth, query)))
        for growth in (None, Grow(node, np.array([2]), 1))
        for query in (
            CountRows(node, price),
            CountLabels(node, price),
            CountCells(node, np.array([3]), price),
            Nominate(node, [Criterion.gini], "exponential", price),
        )
    ]
    answered = 0
    for i in range(N):
        frame = bytearray(frames[i % len(frames)])
        kind = rng.integers(4)
        if kind == 0:
            del frame[int(rng.integers(1, len(frame))) :]
        elif kind == 1:
            at = int(rng.integers(1, len(frame)))
            frame[at:at] = rng.bytes(int(rng.integers(1, 9)))
        else:
            for at in rng.integers(1, len(frame), int(rng.integers(1, 5))):
                frame[at] = rng.integers(256)
        if bytes(frame) in frames:
            continue
        answered += isinstance(from_bytes(site.reply(bytes(frame))), Answer)
        if i % 1000 == 0:
            capsys.readouterr()  # what the site says is not kept
    site.close()
    assert answered < N / 20  # another name, say, is a request in order
    spent = account(policy, "malaria")
    assert "Granted epsilon 1" in spent or "Nothing was asked" in spent
