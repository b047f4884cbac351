"""What a study over the network leaves behind and lets out: TLS on one port, and no trace of a row."""

from __future__ import annotations

import re
import socket
import threading
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

import numpy as np
import pytest

from .conftest import HOLDERS, SENTINELS, Federation, learned

pytestmark = pytest.mark.network

SYN = 0x02
TLS_HANDSHAKE = b"\x16\x03"


@dataclass
class Capture:
    """Payloads by (source, destination), and which streams began meanwhile."""

    streams: dict[tuple[int, int], list[bytes]] = field(default_factory=lambda: defaultdict(list))
    begun: set[tuple[int, int]] = field(default_factory=set)


@contextmanager
def captured(port: int) -> Iterator[Capture]:
    """Everything that goes over a port of the loopback meanwhile."""
    try:
        raw = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(0x0800))
        raw.bind(("lo", 0))
    except OSError as error:
        pytest.skip(f"looking at packets is not allowed here: {error}")
    raw.settimeout(0.5)
    seen, done = Capture(), threading.Event()

    def listen() -> None:
        while not done.is_set():
            try:
                packet = raw.recv(70_000)[14:]
            except TimeoutError:
                continue
            head = 4 * (packet[0] & 15)
            if packet[9] != 6:
                continue
            source, destination = (int.from_bytes(packet[head + i : head + i + 2]) for i in (0, 2))
            if port in {source, destination}:
                length = int.from_bytes(packet[2:4])
                if packet[head + 13] & SYN:
                    seen.begun.add((source, destination))
                seen.streams[source, destination].append(packet[head + 4 * (packet[head + 12] >> 4) : length])

    thread = threading.Thread(target=listen)
    thread.start()
    yield seen
    done.set()
    thread.join()
    raw.close()


def test_the_port_carries_tls_only_and_no_log_has_a_row_an_exact_count_or_a_label(federation):
    one: Federation = federation(start=False)
    with captured(one.study.port) as capture:
        one.start()
        assert learned(one.learn().tree) == learned(one.reference())
    whole = b"".join(b"".join(payloads) for payloads in capture.streams.values())
    assert len(whole) > 10_000
    for clear in (b"hedgerow", b"round-", b"malaria", b"lake", b"HTTP", b"PRI *"):
        assert clear not in whole
    begun = [b"".join(capture.streams[stream]) for stream in capture.begun]
    assert len(begun) >= 2 * len(HOLDERS)  # both ways
    assert all(not data or data[:2] == TLS_HANDSHAKE for data in begun)

    secret = {"rows.csv", "studies.db", "studies.key", "site.key"}
    files = [path for path in one.folder.rglob("*") if path.is_file() and path.name not in secret]
    counts = exact_counts(one)
    assert len(files) > 20
    assert len(counts) > 3
    for path in files:
        text = path.read_text(encoding="utf-8", errors="replace")
        for sentinel in SENTINELS:
            assert sentinel not in text, path
        assert not re.search(r"\b(malaria|label)\W{0,4}(yes|no)\b", text) or path.suffix == ".toml", path
        if path.suffix == ".log" and path.name != "answers.log":  # noisy numbers may be any number
            for count in counts:
                assert not re.search(rf"(?<![\w.:,-]){count}(?![\w.:,-])", text), (path, count)
    for folder in (one.folder / "coordinator", *(one.site(holder) for holder in HOLDERS)):
        for path in folder.rglob("*.key"):
            assert path.stat().st_mode & 0o077 == 0, path


def exact_counts(one: Federation) -> set[int]:
    """Of rows and classes at each holder; small and round numbers mean other things too."""
    counts: set[int] = set()
    for _, labels in one.hospitals.holders:
        counts |= {len(labels), *np.unique(labels, return_counts=True)[1].tolist()}
    return {count for count in counts if count > 150 and count % 100}
