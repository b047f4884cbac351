"""What the network leaves behind and lets out: TLS on two ports, and no trace of a row."""

from __future__ import annotations

import re
import socket
import threading
from collections import defaultdict
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import pytest

from .conftest import HOLDERS, SENTINELS, Federation, learned

pytestmark = pytest.mark.network

SYN = 0x02
TLS_HANDSHAKE = b"\x16\x03"


@dataclass
class Capture:
    """Payloads by (source, destination)."""

    streams: dict[tuple[int, int], list[bytes]] = field(default_factory=lambda: defaultdict(list))
    begun: set[tuple[int, int]] = field(default_factory=set)


@pytest.fixture
def capture(federation: Federation):
    """Everything that goes over the server's ports meanwhile, and which streams begin meanwhile."""
    try:
        raw = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(0x0800))
        raw.bind(("lo", 0))
    except (PermissionError, OSError) as error:
        pytest.skip(f"looking at packets is not allowed here: {error}")
    raw.settimeout(0.5)
    ports = {federation.study.port, federation.study.admin_port}
    seen = Capture()
    done = threading.Event()

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
            if {source, destination} & ports:
                length = int.from_bytes(packet[2:4])
                if packet[head + 13] & SYN:
                    seen.begun.add((source, destination))
                payload = packet[head + 4 * (packet[head + 12] >> 4) : length]
                seen.streams[source, destination].append(payload)

    thread = threading.Thread(target=listen)
    thread.start()
    yield seen
    done.set()
    thread.join()
    raw.close()


def test_the_ports_carry_tls_only_and_nobody_else_listens(federation: Federation, capture: Capture):
    study = federation.new_study("captured")
    watcher = Watcher(federation)
    assert learned(federation.learn(study).tree) == learned(federation.reference(study))
    watcher.stop()
    assert sum(map(len, capture.streams.values())) > 50
    whole = b"".join(b"".join(payloads) for payloads in capture.streams.values())
    assert len(whole) > 10_000
    for clear in (b"hedgerow", b"captured", b"round-", b"malaria", b"HTTP/1.1", b"POST "):
        assert clear not in whole
    begun = [b"".join(capture.streams[stream]) for stream in capture.begun]
    assert len(begun) >= 4  # both ways, of the console and of job processes
    assert all(not data or data[:2] == TLS_HANDSHAKE for data in begun)

    loopback = "0100007F"
    assert watcher.listening, "nothing was seen to listen"
    assert {address for address, _ in watcher.listening} == {loopback}
    servers = {port for name, port in watcher.listening_of["server"]}
    assert {federation.study.port, federation.study.admin_port} <= servers
    assert len(servers) <= 3  # and one for its own job processes
    for holder in HOLDERS:
        assert len(watcher.listening_of[holder]) <= 1  # for its own job processes
    # FLARE asks for its own address by "connecting" a UDP socket to 10.255.255.255; no packet is sent.
    assert watcher.peers <= {loopback, "FFFFFF0A"}


def test_no_log_has_a_row_an_exact_count_or_a_label(federation: Federation):
    logs = [
        path
        for path in federation.kits.rglob("*")
        if path.is_file()
        and path.suffix in {".log", ".txt", ".json", ".jsonl"}
        and "startup" not in path.parts
    ]
    assert len(logs) > 10
    counts = exact_counts(federation)
    assert len(counts) > 3
    for path in logs:
        text = path.read_text(encoding="utf-8", errors="replace")
        text = re.sub(r"ID: \d+", "ID", text)  # a process may have any number
        for sentinel in SENTINELS:
            assert sentinel not in text, path
        assert not re.search(r"\b(malaria|label)\W{0,4}(yes|no)\b", text), path
        if "studies" in path.parts:
            continue  # the coordinator's noisy numbers may be any number
        for count in counts:
            assert not re.search(rf"(?<![\w.:,-]){count}(?![\w.:,-])", text), (path, count)


def test_every_file_of_a_kit_says_what_it_is_for(federation: Federation):
    for kit in ("server", "console", "lake", "authority"):
        folder = federation.kits / kit
        about = (folder / "README.txt").read_text()
        files = {path for part in (".", "startup", "local") for path in folder.glob(f"{part}/*")}
        for path in files - {folder / "README.txt"}:
            assert path.name in about or re.fullmatch(r"[0-9a-f]{8}(-[0-9a-f]{4,12}){4}", path.name), path
    for study in (federation.kits / "server" / "studies").iterdir():
        assert {path.name for path in study.iterdir()} <= {"answers.log", "tree.json", "report.json"}
        assert (study / "answers.log").read_bytes().startswith(b"Hedgerow: ")
    journal = federation.kits / "lake" / "journal"
    assert all(path.name.startswith(("studies.db", "studies.key")) for path in journal.iterdir())


def exact_counts(federation: Federation) -> set[int]:
    """Of rows and classes at each holder; small and round numbers mean other things too."""
    counts: set[int] = set()
    for _, labels in federation.hospitals.holders:
        counts |= {len(labels), *np.unique(labels, return_counts=True)[1].tolist()}
    return {count for count in counts if count > 150 and count % 100}


class Watcher:
    """Looks every 50 ms at the sockets of the network's processes."""

    def __init__(self, federation: Federation) -> None:
        self._federation = federation
        self.listening: set[tuple[str, int]] = set()
        self.listening_of: dict[str, set[tuple[str, int]]] = defaultdict(set)
        self.peers: set[str] = set()
        self._done = threading.Event()
        self._thread = threading.Thread(target=self._watch)
        self._thread.start()

    def stop(self) -> None:
        self._done.set()
        self._thread.join()

    def _watch(self) -> None:
        while not self._done.wait(0.05):
            table = [line.split() for file in ("tcp", "tcp6", "udp", "udp6") for line in sockets(file)]
            by_inode = {row[9]: row for row in table if len(row) > 9}
            for name in ("server", *HOLDERS):
                for pid in (self._federation.process_of(name), self._federation.job_of(name)):
                    for row in (by_inode[i] for i in inodes(pid) if i in by_inode):
                        address, port = row[1].split(":")
                        if row[3] == "0A":
                            self.listening.add((address, int(port, 16)))
                            self.listening_of[name].add((address, int(port, 16)))
                        elif row[3] in {"01", "02"}:
                            self.peers.add(row[2].split(":")[0])


def sockets(file: str) -> list[str]:
    return Path(f"/proc/net/{file}").read_text().splitlines()


def inodes(pid: int | None) -> set[str]:
    found = set()
    try:
        for link in Path(f"/proc/{pid}/fd").iterdir():
            target = str(link.readlink())
            if target.startswith("socket:["):
                found.add(target[8:-1])
    except OSError:
        pass
    return found
