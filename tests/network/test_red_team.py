"""Peers that lie, flood, keep silent or pretend to be others: real ones, with real keys."""

from __future__ import annotations

import re
import socket
import ssl
import threading
import time
from contextlib import suppress
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest

from hedgerow.messages import (
    Answer,
    CountLabels,
    CountRows,
    CountSplits,
    Grow,
    Refusal,
    Request,
    from_bytes,
    to_bytes,
)

from .conftest import HOLDERS, Federation, learned, until

pytestmark = pytest.mark.network

MB = 2**20


def memory(process: int, what: str = "VmHWM") -> int:
    """The most that a process has held, in bytes."""
    [line] = [
        line for line in Path(f"/proc/{process}/status").read_text().splitlines() if line.startswith(what)
    ]
    return 1024 * int(line.split()[1])


def n(*numbers: int) -> np.ndarray:
    return np.array(numbers, dtype=np.int64)


# ---- A site that does not keep to the rules ----


def requests_back(number: int, frame: bytes):
    from hedgerow.transport.grpc_tls import numbered

    yield numbered(number, b"ready" if frame[:1] == b"G" else frame[1:])


def answers_another(number: int, frame: bytes):
    from hedgerow.transport.grpc_tls import numbered

    if frame[:1] == b"G":
        yield numbered(number, b"ready")
        return
    request = from_bytes(frame[1:])
    yield numbered(number, to_bytes(Answer(request.study, "round-77", n(1, 2))))


def another_study(number: int, frame: bytes):
    from hedgerow.transport.grpc_tls import numbered

    yield numbered(number, b"ready" if frame[:1] == b"G" else to_bytes(Answer("other", "round-0", n(1, 2))))


def wrong_number(number: int, frame: bytes):
    from hedgerow.transport.grpc_tls import numbered

    yield numbered(number if frame[:1] == b"G" else number + 1, b"ready")


def huge(number: int, frame: bytes):
    from hedgerow.transport.grpc_tls import numbered

    yield numbered(number, b"ready" if frame[:1] == b"G" else bytes(64 * MB))


def many(number: int, frame: bytes):
    from hedgerow.transport.grpc_tls import numbered

    if frame[:1] == b"G":
        yield numbered(number, b"ready")
        return
    for _ in range(2_000):
        yield numbered(number + 5, bytes(10_000))


def silent(number: int, frame: bytes):
    from hedgerow.transport.grpc_tls import numbered

    if frame[:1] == b"G":
        yield numbered(number, b"ready")


@pytest.mark.parametrize(
    "behave", [requests_back, answers_another, another_study, wrong_number, huge, many, silent]
)
def test_a_site_that_lies_floods_or_keeps_silent_is_lost_and_the_others_go_on(federation, behave):
    from .rogue import RogueSite

    one = federation(
        start=False, when_a_holder_is_lost="continue", answer_seconds=2.0, method="local", max_splits=8
    )
    one.start("lake", "city")
    rogue = RogueSite(one.site("hill"), one.study.port, behave)
    try:
        process = one.learn_beside()
        process.join(60)
    finally:
        rogue.close()
    assert process.exitcode == 0, one.said_beside()
    assert list(one.written("report")["holders_lost"]) == ["hill"]
    assert one.spent("lake") > 0
    assert one.journal("hill") == []


def test_memory_of_a_coordinator_does_not_grow_with_what_a_site_sends(federation):
    """Beside a study in which the third site is silent."""
    from .rogue import RogueSite

    most = {}
    for behave, first in ((silent, b""), (huge, bytes(300 * MB))):
        one = federation(
            start=False, when_a_holder_is_lost="continue", answer_seconds=4.0, method="local", max_splits=8
        )
        one.start("lake", "city")
        process = one.learn_beside()
        rogue = RogueSite(one.site("hill"), one.study.port, behave, first)
        most[behave] = 0
        while process.is_alive():
            with suppress(OSError, ValueError):  # it has just ended
                most[behave] = max(most[behave], memory(process.pid))
            time.sleep(0.02)
        rogue.close()
        assert process.exitcode == 0, one.said_beside()
    assert most[huge] < most[silent] + 50 * MB


def test_a_thousand_connections_do_not_keep_a_holder_out(federation):
    one = federation(start=False, method="local", max_splits=8)
    process = one.learn_beside()
    until(lambda: (one.folder / "said.txt").exists() and "listening" in one.said_beside(), 60)
    idle = []
    for _ in range(1_000):
        try:
            idle.append(socket.create_connection(("localhost", one.study.port), timeout=5))
        except OSError:  # this process may not have more
            break
    try:
        assert len(idle) > 500
        one.start()
        process.join(90)
        assert process.exitcode == 0, one.said_beside()
    finally:
        for each in idle:
            each.close()
    assert learned(one.written("tree")) == learned(one.reference())


def test_a_holders_newest_stream_counts_and_the_others_end(federation):
    from .rogue import RogueSite

    one = federation(start=False, method="local", max_splits=8, holders=HOLDERS[:2])
    rogues = [RogueSite(one.site("city"), one.study.port, silent) for _ in range(20)]
    process = one.learn_beside()
    until(lambda: (one.folder / "said.txt").exists() and "city is connected" in one.said_beside(), 60)
    for rogue in rogues:
        rogue.close()
    one.start()
    process.join(90)
    assert process.exitcode == 0, one.said_beside()
    assert learned(one.written("tree")) == learned(one.reference())


# ---- Who is let in ----


@pytest.fixture
def listening(federation):
    """A coordinator that waits for a site which never comes, and its federation."""
    one: Federation = federation(start=False)
    process = one.learn_beside()
    until(lambda: (one.folder / "said.txt").exists() and "listening" in one.said_beside(), 60)
    yield one
    assert process.is_alive()


def test_tls_below_1_3_and_no_tls_are_refused(listening):
    context = ssl.create_default_context(cafile=listening.site("lake") / "keys" / "coordinator.crt")
    context.verify_flags |= ssl.VerifyFlags.VERIFY_X509_PARTIAL_CHAIN
    context.load_cert_chain(*(listening.site("lake") / "keys" / name for name in ("site.crt", "site.key")))
    context.set_alpn_protocols(["h2"])
    for version, fine in ((ssl.TLSVersion.TLSv1_2, False), (ssl.TLSVersion.TLSv1_3, True)):
        context.minimum_version = context.maximum_version = version
        plain = socket.create_connection(("localhost", listening.study.port), timeout=10)
        try:
            with context.wrap_socket(plain, server_hostname="localhost") as secure:
                assert fine
                assert secure.version() == "TLSv1.3"
        except (ssl.SSLError, ConnectionResetError):
            assert not fine
    with socket.create_connection(("localhost", listening.study.port), timeout=10) as plain:
        plain.sendall(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + bytes(64))
        assert plain.recv(1000)[:3] != b"\x00\x00\x12"  # no HTTP/2 settings in the clear


def attach(folder: Path, port: int) -> str:
    """The status that a site with these keys gets."""
    from hedgerow.transport.grpc_tls import METHOD, grpc
    from hedgerow.transport.keys import SiteKeys

    keys = SiteKeys.load(folder / "keys")
    credentials = grpc.ssl_channel_credentials(keys.coordinator, keys.key, keys.certificate)
    with grpc.secure_channel(f"localhost:{port}", credentials) as channel:
        hold = threading.Event()
        call = channel.stream_stream(METHOD)(iter(lambda: hold.wait(3) and None, None), timeout=3)
        try:
            call.initial_metadata()
            if call.is_active():
                return "attached"
            for _ in call:
                pass
        except grpc.RpcError as error:
            return error.code().name
        finally:
            hold.set()
            call.cancel()
    return "attached"


def test_a_foreign_a_revoked_and_an_unknown_certificate_are_refused_and_only_the_coordinator_says_why(
    listening, federation
):
    from hedgerow.transport import coordinator

    one = listening
    assert attach(one.site("lake"), one.study.port) == "attached"
    coordinator.revoke(one.study_file, "lake")
    assert attach(one.site("lake"), one.study.port) == "UNAUTHENTICATED"
    until(lambda: "a site was not admitted" in one.said_beside(), 10)
    foreign = federation(start=False)
    keys = one.site("city") / "keys"
    for name in ("site.key", "site.crt", "site.csr"):
        (keys / name).write_bytes((foreign.site("city") / "keys" / name).read_bytes())
    assert attach(one.site("city"), one.study.port) in {"UNAVAILABLE", "DEADLINE_EXCEEDED"}


def test_a_site_calls_nobody_but_the_pinned_coordinator(federation):
    """Another coordinator of the same authority and name, at the same port."""
    from hedgerow.transport import coordinator

    one = federation(start=False, holders=HOLDERS[:1], return_minutes=0.2)
    coordinator.renew(one.study_file)
    one.start()
    with pytest.raises(coordinator.StudyInterrupted, match="lake did not connect"):
        one.learn()
    until(lambda: "does not show the coordinator's certificate" in one.console_text("lake"), 60)


def test_a_site_listens_on_nothing_and_calls_the_coordinator_only(federation):
    one = federation(start=False, holders=HOLDERS[:2])
    process = one.learn_beside()  # waits for the second holder
    one.start("lake")
    until(lambda: (one.folder / "said.txt").exists() and "lake is connected" in one.said_beside(), 60)
    site = one.processes["lake"].pid
    tables = [
        Path(f"/proc/net/{name}").read_text().splitlines()[1:] for name in ("tcp", "tcp6", "udp", "udp6")
    ]
    rows = {row.split()[9]: row.split() for table in tables for row in table}
    opened = [str(link.readlink()) for link in Path(f"/proc/{site}/fd").iterdir()]
    mine = [rows[name[8:-1]] for name in opened if name.startswith("socket:") and name[8:-1] in rows]
    assert mine
    assert all(row[3] != "0A" for row in mine)  # listening
    assert {int(row[2].split(":")[1], 16) for row in mine} == {one.study.port}
    assert process.is_alive()


def test_two_starts_at_once_leave_one_process(federation):
    one = federation(start=False, holders=HOLDERS[:1])
    for _ in range(4):
        one.start("lake")
        one.processes[f"lake-{len(one.processes)}"] = one.processes["lake"]
    until(lambda: "calls localhost" in one.console_text("lake"), 60)
    processes = {p.pid: p for p in one.processes.values()}.values()
    until(lambda: sum(process.is_alive() for process in processes) == 1, 60)


# ---- A coordinator that does not keep to the rules ----


def test_a_malicious_coordinator_gets_refusals_and_the_site_stays_up(federation):
    from hedgerow.transport.frames import greeting_frame, request_frame

    from .rogue import RogueCoordinator

    one = federation(
        start=False,
        holders=HOLDERS[:1],
        grant={"epsilon": 0.2, "methods": ["local"]},
        epsilon=0.2,
        method="local",
    )
    replies: dict[str, list[bytes | None]] = {}
    study, one_in_thousand = one.study.name, Fraction(1, 1000)

    def ask(name: str, query, growth=None, of: str = study) -> bytes:
        return request_frame(to_bytes(Request(of, name, growth, query)))

    def talk(exchange) -> None:
        def told(name: str, frame: bytes) -> bytes | None:
            replies.setdefault(name, []).append(exchange(frame))
            return replies[name][-1]

        fine = ask("a", CountRows(n(0), [one_in_thousand]))
        terms = one.study.greeting("local")
        told("greeting", greeting_frame(terms))
        told("greeting for too much", greeting_frame(terms | {"epsilon": "1000"}))
        told("greeting for nobody", greeting_frame(terms | {"study": "x"}))
        first = told("fine", fine)
        assert told("fine again", fine) == first  # a replay costs nothing and changes nothing
        told("its name for another", ask("a", CountRows(n(0), [2 * one_in_thousand])))
        told("another study", ask("a", CountRows(n(0), [one_in_thousand]), of="other"))
        told("not granted", ask("b", CountSplits(n(0), [one_in_thousand])))
        told("too dear", ask("c", CountRows(n(0), [Fraction(1000)])))
        told("no such node", ask("d", CountRows(n(77), [one_in_thousand])))
        told("out of order", ask("e", CountLabels(n(0), [one_in_thousand]), Grow(n(0), n(0), 5)))
        told("an answer", request_frame(first or b""))
        for junk in (b"", b"X", b"R", b"G", b"G{", b"R" + b"\x91" * 100_000, b"G" + b"[" * 4000, bytes(MB)):
            told("junk", junk)
        rng = np.random.default_rng(0)
        for i in range(3_000):  # mutated messages
            data = bytearray(ask(f"m{i}", CountRows(n(0), [one_in_thousand])))
            for place in rng.integers(1, len(data), 3):
                data[place] = rng.integers(256)
            if b"m%d" % i not in data:  # its name is another: it may be in order
                told("mutated", bytes(data))
        for i in range(300):
            told("many", ask(f"many-{i}", CountRows(n(0), [one_in_thousand])))

    server = RogueCoordinator(one.folder / "coordinator" / "keys", one.study.port, talk)
    one.start()
    try:
        assert server.done.wait(100)
    finally:
        server.close()
    assert server.error is None, server.error
    assert replies["greeting"] == [b"seeded"]
    assert replies["greeting for too much"] == replies["greeting for nobody"] == [b"declined"]
    refused = {
        "its name for another",
        "another study",
        "not granted",
        "too dear",
        "no such node",
        "out of order",
        "an answer",
        "junk",
    }
    for name in refused:
        assert all(reply is not None and isinstance(from_bytes(reply), Refusal) for reply in replies[name]), (
            name
        )
    answered = sum(
        isinstance(from_bytes(reply), Answer)
        for reply in [*replies["fine"], *replies["many"], *replies.get("mutated", [])]
    )
    assert one.spent("lake") <= 0.2
    assert one.spent("lake") == pytest.approx(answered / 1000, abs=0.05)
    assert one.processes["lake"].is_alive()


def test_a_frame_of_600_mb_is_not_taken(federation):
    from .rogue import RogueCoordinator

    one = federation(start=False, holders=HOLDERS[:1])
    server = RogueCoordinator(
        one.folder / "coordinator" / "keys",
        one.study.port,
        lambda exchange: exchange(bytes(600 * MB)) and None,
    )
    one.start()
    try:
        until(lambda: "no question of a study" in one.console_text("lake"), 60)
    finally:
        server.close()
    assert one.processes["lake"].is_alive()
    assert memory(one.processes["lake"].pid) < 500 * MB  # a forked process counts what it shares


def test_a_coordinator_that_hangs_up_again_and_again_is_called_more_and_more_rarely(federation):
    from .rogue import RogueCoordinator

    one = federation(start=False, holders=HOLDERS[:1])
    came: list[float] = []
    server = RogueCoordinator(
        one.folder / "coordinator" / "keys", one.study.port, lambda _: came.append(time.monotonic())
    )
    one.start()
    try:
        until(lambda: len(came) >= 4, 60)
    finally:
        server.close()
    pauses = np.diff(came)
    assert pauses[-1] > 1.5 * pauses[0]
    lines = [line for line in one.console_text("lake").splitlines() if "has hung up" in line]
    assert len(lines) <= len(came)
    assert not re.search("Traceback", one.console_text("lake"))
