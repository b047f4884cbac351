"""The two things that a coordinator says to a site, as bytes, and what a site says back.

A transport carries these bytes and knows nothing of them.
"""

from __future__ import annotations

import json
from collections.abc import Mapping

from hedgerow.errors import InvalidMessage
from hedgerow.messages import MOST_BYTES

GREETING, REQUEST = b"G", b"R"  # a frame's first byte
MOST_GREETING = 4096  # bytes
MOST_FRAME = MOST_BYTES + 1

# What a site says to a greeting. Each is a constant: why a site declines is said on its own console only.
READY, SEEDED, LATER, DECLINED = b"ready", b"seeded", b"later", b"declined"
GREETED = (READY, SEEDED, LATER, DECLINED)


def greeting_frame(greeting: Mapping[str, str]) -> bytes:
    """Asks whether a site takes part in a study on these terms."""
    return GREETING + json.dumps(dict(greeting)).encode()


def request_frame(request: bytes) -> bytes:
    """Carries a request of a study."""
    return REQUEST + request


def read_frame(frame: bytes) -> dict[str, str] | bytes:
    """A greeting, or the bytes of a request."""
    kind, body = frame[:1], frame[1:]
    if kind == REQUEST:
        return body
    if kind != GREETING or len(body) > MOST_GREETING:
        raise InvalidMessage("a site is greeted or asked, and nothing else.")
    try:
        plain = json.loads(body)
    except (ValueError, RecursionError) as error:
        raise InvalidMessage("a greeting is JSON.") from error
    if not isinstance(plain, dict) or not all(isinstance(value, str) for value in plain.values()):
        raise InvalidMessage("a greeting has names and texts.")
    return plain
