"""A site's end of the gRPC transport: it calls the coordinator, keeps one stream, and answers what comes in its order.

There is no listening socket, and nothing that could run anything: bytes go to `Site.reply`, and bytes come back. What
the peer says about errors is never shown: a sentence of ours stands for each kind.
"""

from __future__ import annotations

import queue
import random
import threading
import time
from collections.abc import Callable
from typing import Any

from hedgerow.transport.console_log import say
from hedgerow.transport.frames import MOST_FRAME
from hedgerow.transport.grpc_tls import METHOD, MOST_REQUEST, NUMBER, OPTIONS, grpc, numbered, read_number
from hedgerow.transport.keys import SiteKeys

FIRST_PAUSE, LONGEST_PAUSE = 0.5, 60.0  # seconds between two calls
STEADY = 30.0  # a stream that lasted so long was no failure


class Caller:
    """Calls the coordinator until it is stopped."""

    def __init__(self, keys: SiteKeys, port: int, reply: Callable[[bytes], bytes]) -> None:
        self._target = f"{keys.host}:{port}"
        self._credentials = grpc.ssl_channel_credentials(keys.coordinator, keys.key, keys.certificate)
        self._reply = reply
        self._stopped = threading.Event()
        self._call: Any = None
        self._connected = False
        self._said = ""

    def stop(self) -> None:
        """Hang up, and call no more. May be called from a signal's handler."""
        self._stopped.set()
        if (call := self._call) is not None:
            call.cancel()

    def run(self) -> None:
        """Keep a stream open; after each that ends, wait a little longer than before."""
        pause = FIRST_PAUSE
        while not self._stopped.is_set():
            began = time.monotonic()
            self._say(self._attend())
            pause = FIRST_PAUSE if time.monotonic() - began > STEADY else min(2 * pause, LONGEST_PAUSE)
            self._stopped.wait(pause * random.uniform(0.5, 1.0))  # noqa: S311 - sites do not all call at once

    def _attend(self) -> str:
        """One stream, from its beginning to its end; why it ended."""
        options = (
            *OPTIONS,
            ("grpc.max_receive_message_length", MOST_REQUEST + NUMBER.size),
            ("grpc.max_send_message_length", MOST_FRAME + NUMBER.size),
        )
        outgoing: queue.SimpleQueue[bytes | None] = queue.SimpleQueue()
        self._connected = False
        with grpc.secure_channel(self._target, self._credentials, options=options) as channel:
            self._call = channel.stream_stream(METHOD)(iter(outgoing.get, None))
            try:
                self._call.initial_metadata()
                self._connected = self._call.is_active()
                if self._connected:
                    self._say(f"connected to the coordinator at {self._target}.")
                for data in self._call:
                    number, frame = read_number(data)
                    if number is None:
                        return "the coordinator sent something that is no question; hanging up."
                    outgoing.put(numbered(number, self._reply(frame)))
            except grpc.RpcError as error:
                return self._reason(error)
            finally:
                outgoing.put(None)
                self._call.cancel()
                self._call = None
        return f"the coordinator at {self._target} has hung up; calling again."

    def _reason(self, error: Any) -> str:
        """Why a stream ended, in a sentence of ours."""
        at = f"the coordinator at {self._target}"
        if self._stopped.is_set():
            return "hanging up."
        match error.code():
            case grpc.StatusCode.UNAUTHENTICATED:
                return (
                    f"{at} does not admit this site's certificate: it is revoked, over, or of another study; ask it to "
                    "sign a new request. Calling again."
                )
            case grpc.StatusCode.RESOURCE_EXHAUSTED:
                return f"{at} sent more than {MOST_REQUEST} bytes at once, which is no question of a study; hanging up."
            case grpc.StatusCode.UNAVAILABLE if "CERTIFICATE_VERIFY_FAILED" in str(error.details()):
                return (
                    f"whoever answers at {self._target} does not show the coordinator's certificate that this site has "
                    "pinned; calling again. If the coordinator has a new one, compare its fingerprint by telephone, then "
                    "hedgerow site enroll --replace."
                )
            case grpc.StatusCode.UNAVAILABLE if not self._connected:
                return f"{at} cannot be reached; calling again."
        return f"the connection to {at} was lost; calling again."

    def _say(self, sentence: str) -> None:
        """On this console, and not again while nothing else happens."""
        if sentence != self._said:
            self._said = sentence
            say(sentence)
