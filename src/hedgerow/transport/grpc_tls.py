"""What both ends of the gRPC transport share: TLS 1.3, limits, keep-alives, and how a frame is numbered.

Import this module before gRPC is used: gRPC reads its environment once.
"""

from __future__ import annotations

import os
import struct

# gRPC's Python interface cannot set the least version of TLS. Without a suite of TLS 1.2 that two parties with
# certificates could agree on, TLS 1.3 alone is left (whose suites this does not name).
os.environ["GRPC_SSL_CIPHER_SUITES"] = "ECDHE-PSK-AES128-CBC-SHA"
os.environ["GRPC_VERBOSITY"] = "NONE"  # what goes wrong is said in our own sentences

import grpc

METHOD = "/hedgerow.Transport/Attach"
TLS_VERSION = b"TLSv1.3"
NUMBER = struct.Struct("<Q")  # of an exchange, before each frame and each reply
MOST_REQUEST = 2**26  # bytes of a frame that a site takes
SECOND = 1000  # gRPC counts milliseconds

OPTIONS = (
    ("grpc.keepalive_time_ms", 20 * SECOND),
    ("grpc.keepalive_timeout_ms", 10 * SECOND),
    ("grpc.keepalive_permit_without_calls", 1),
    ("grpc.http2.max_pings_without_data", 0),
    ("grpc.max_metadata_size", 2**13),
    ("grpc.enable_retries", 0),
)
SERVER_OPTIONS = (
    *OPTIONS,
    ("grpc.so_reuseport", 0),
    ("grpc.http2.min_ping_interval_without_data_ms", 10 * SECOND),
    ("grpc.server_handshake_timeout_ms", 10 * SECOND),
    ("grpc.http2.bdp_probe", 0),  # windows do not grow with what a peer sends
    ("grpc.max_concurrent_streams", 2),  # of one connection: an old stream and its successor
)


def numbered(number: int, frame: bytes) -> bytes:
    """A frame or a reply with the number of its exchange."""
    return NUMBER.pack(number) + frame


def read_number(data: bytes) -> tuple[int | None, bytes]:
    """The number and what follows; no number if there is none."""
    if len(data) < NUMBER.size:
        return None, b""
    return NUMBER.unpack_from(data)[0], data[NUMBER.size :]


__all__ = [
    "METHOD",
    "MOST_REQUEST",
    "NUMBER",
    "OPTIONS",
    "SERVER_OPTIONS",
    "TLS_VERSION",
    "grpc",
    "numbered",
    "read_number",
]
