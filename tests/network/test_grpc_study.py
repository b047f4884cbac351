"""Trees over the network: the same as in one process, whatever is killed on the way."""

from __future__ import annotations

import os
import re
import signal
import socket
import threading
import time
from contextlib import suppress
from typing import Self

import pytest

from .conftest import HOLDERS, SENTINELS, Gate, learned, until

pytestmark = pytest.mark.network


@pytest.mark.parametrize("method", ["turns", "local", "noisy_columns", "noisy_counts"])
def test_the_tree_over_the_network_is_the_tree_in_process(federation, method: str):
    one = federation(method=method)
    outcome = one.learn()
    assert learned(outcome.tree) == learned(one.reference())
    # The tests' noise is seeded, and that is said.
    assert len(outcome.tree["training"]["leaks"]) == len(HOLDERS)
    for holder in HOLDERS:
        spent = one.spent(holder)
        assert spent == pytest.approx(float(outcome.report["spent"][holder]), rel=1e-5)
        assert 0 < spent <= one.study.epsilon
        said = one.console_text(holder)
        assert not [sentinel for sentinel in SENTINELS if sentinel in said]
        assert all(
            re.match(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d [+-]\d{4} hedgerow: ", line)
            for line in said.splitlines()
        )


@pytest.mark.parametrize("method", ["select", "paper"])
def test_one_holder_over_the_network_learns_the_tree_of_one_process(federation, method: str):
    one = federation(method=method, holders=HOLDERS[:1])
    assert learned(one.learn().tree) == learned(one.reference())


@pytest.mark.parametrize("method", ["local", "turns"])
def test_whatever_is_killed_costs_nothing_and_changes_nothing(federation, method: str):
    """One study, whose every part is killed in turn, each time in the middle of a wave."""
    one = federation(method=method)
    gate = Gate(one, "city")
    until(lambda: "has read its rows" in one.console_text("city"), 60)
    gate.shut()
    one.learn_beside()

    gate.hold(after=1)
    one.kill("city")  # the site
    gate.open()
    one.start("city")
    until(lambda: one.console_text("city").count("has read its rows") == 2, 60)
    gate.shut()

    gate.hold(after=2)
    one.kill("coordinator")
    gate.let_pass()  # the site answers all the same, and nobody hears it
    one.learn_beside()

    gate.hold(after=3)
    os.kill(one.processes["coordinator"].pid, signal.SIGINT)  # Ctrl-C
    one.processes["coordinator"].join(30)
    assert one.processes["coordinator"].exitcode == 130, one.said_beside()
    assert "hedgerow network resume" in one.said_beside()

    gate.open()
    process = one.learn_beside()
    process.join(60)
    assert process.exitcode == 0, one.said_beside()
    assert re.search(r"wave +\d+ +round +\d+ .* spent: lake \d\S*, city \d\S*, hill \d", one.said_beside())
    assert learned(one.written("tree")) == learned(one.reference())
    for holder in HOLDERS:
        names = [identifier for identifier, _, _ in one.journal(holder)]
        assert len(names) == len(set(names))  # each question is charged once
        assert all(answer is not None for _, _, answer in one.journal(holder))
        assert one.spent(holder) <= one.study.epsilon


def test_a_study_may_end_when_a_holder_is_lost(federation):
    one = federation(method="local", when_a_holder_is_lost="abort")
    gate = Gate(one, "city")
    until(lambda: "has read its rows" in one.console_text("city"), 60)
    gate.shut()
    process = one.learn_beside()
    gate.hold(after=2)
    one.kill("city")
    process.join(60)
    assert process.exitcode == 1
    assert "no answer from city" in one.said_beside()
    assert "hedgerow network resume" in one.said_beside()
    assert not (one.folder / "out").exists()


@pytest.mark.parametrize("method", ["local", "turns"])
def test_a_study_may_go_on_without_a_lost_holder(federation, method: str):
    one = federation(method=method, when_a_holder_is_lost="continue", answer_seconds=3.0)
    gate = Gate(one, "city")
    until(lambda: "has read its rows" in one.console_text("city"), 60)
    gate.shut()
    process = one.learn_beside()
    gate.hold(after=2)
    one.kill("city")
    process.join(60)
    assert process.exitcode == 0, one.said_beside()
    report = one.written("report")
    [first] = report["holders_lost"].values()
    assert f"city was lost: from {first} on" in one.said_beside()
    assert not any(
        "seconds" in round_ for round_ in report["rounds"]
    )  # a clock sees the rows of whoever is slow
    assert len(one.written("tree")["training"]["leaks"]) == len(HOLDERS)
    assert len(one.journal("city")) == 2
    assert len(one.journal("lake")) > 3


def test_a_site_that_never_comes_is_given_up_on_in_a_sentence(federation):
    from hedgerow.transport.coordinator import StudyInterrupted

    one = federation(start=False, return_minutes=0.02)
    with pytest.raises(StudyInterrupted, match=r"lake, city, hill did not connect within 0\.02 minutes"):
        one.learn()
    assert "waiting for lake, city, hill to connect" in one.said


def test_a_stopped_site_process_goes_on_where_it_was(federation):
    """SIGSTOP in the middle of a study, for longer than a keep-alive's answer may take."""
    one = federation(method="local")
    gate = Gate(one, "city")
    until(lambda: "has read its rows" in one.console_text("city"), 60)
    gate.shut()
    process = one.learn_beside()
    gate.hold(after=1)
    city = one.processes["city"].pid
    os.kill(city, signal.SIGSTOP)
    gate.open()
    process.join(4)
    assert process.is_alive()
    os.kill(city, signal.SIGCONT)
    process.join(60)
    assert process.exitcode == 0, one.said_beside()
    assert learned(one.written("tree")) == learned(one.reference())


def test_a_site_behind_an_http_proxy(federation):
    """The proxy is asked for the coordinator by name, and sees TLS."""
    one = federation(start=False, method="local", max_splits=4)
    with Proxy() as proxy:
        one.start("lake", environment={"https_proxy": f"http://127.0.0.1:{proxy.port}"})
        one.start("city", "hill")
        assert learned(one.learn().tree) == learned(one.reference())
    assert proxy.asked == [f"CONNECT localhost:{one.study.port} HTTP/1.1"]
    assert proxy.first[:2] == b"\x16\x03"


class Proxy:
    """Carries one connection after CONNECT."""

    def __init__(self) -> None:
        self._listening = socket.create_server(("127.0.0.1", 0))
        self.port = self._listening.getsockname()[1]
        self.asked: list[str] = []
        self.first = b""

    def __enter__(self) -> Self:
        threading.Thread(target=self._serve, daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self._listening.close()

    def _serve(self) -> None:
        inner, _ = self._listening.accept()
        head = b""
        while b"\r\n\r\n" not in head:
            head += inner.recv(1000)
        self.asked.append(head.split(b"\r\n")[0].decode())
        host, port = self.asked[0].split()[1].split(":")
        while True:
            try:
                outer = socket.create_connection((host, int(port)))
                break
            except OSError:  # the coordinator is not up yet
                time.sleep(0.05)
        inner.sendall(b"HTTP/1.1 200 OK\r\n\r\n")
        threading.Thread(target=carry, args=(outer, inner), daemon=True).start()
        self.first = inner.recv(1000)
        outer.sendall(self.first)
        carry(inner, outer)


def carry(source: socket.socket, target: socket.socket) -> None:
    with suppress(OSError):  # either end may be gone
        while data := source.recv(65536):
            target.sendall(data)
    target.close()


@pytest.mark.parametrize("room", [6_000, 20_000, 30_000])
def test_a_holder_whose_disk_is_full_gives_no_answer_and_goes_on_when_there_is_room(federation, room: int):
    """What cannot be written down is not released; the study waits, and nothing is charged twice."""
    one = federation(start=False, method="local", max_splits=8, when_a_holder_is_lost="abort")
    one.start("lake", "hill")
    one.start("city", environment={"LARGEST_FILE": str(room)})
    process = one.learn_beside()
    process.join(60)
    assert process.exitcode == 1, one.said_beside()
    assert "city" in one.said_beside()
    one.kill("city")
    one.start("city")
    process = one.learn_beside()
    process.join(60)
    assert process.exitcode == 0, one.said_beside()
    assert learned(one.written("tree")) == learned(one.reference())
    names = [identifier for identifier, _, _ in one.journal("city")]
    assert len(names) == len(set(names))
