"""A holder's process that is killed, hundreds of times, at any moment: nothing is lost and nothing is spent twice.

The holder is a real process with a real file. A warm process that never starts a thread forks it anew after each
kill, so a restart takes milliseconds. The coordinator asks again until it is answered, as one on a network would.
"""

from __future__ import annotations

import os
import signal
import socket
import struct
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest

from hedgerow import Categorical, Numeric, Schema
from hedgerow.encoding import encode, encode_labels
from hedgerow.errors import Refused
from hedgerow.holder.counts import GroupedRows
from hedgerow.holder.desk import Desk, StudyGrant
from hedgerow.holder.store import Store
from hedgerow.learner.coordinator import Coordinator
from hedgerow.learner.planning import Wishes, make_plan
from hedgerow.messages import Answer, Grow, IntArray, Query, Request, from_bytes, to_bytes
from hedgerow.network import Traffic, joined
from hedgerow.network.local import LocalNetwork
from hedgerow.privacy.noise import SeededNoise

SCHEMA = Schema([Numeric("x", 0, 1, 6), Categorical("c", ["a", "b"])], label="y", classes=["no", "yes"])
EPSILON = Fraction(8)
GRANT = StudyGrant("crash", SCHEMA.hash, EPSILON, max_rows=10_000, quantum=0)
KILLS_A_METHOD = 75
METHODS = ("select", "local", "noisy_columns")


def rows() -> GroupedRows:
    rng = np.random.default_rng(3)
    values = np.empty((1500, 2), dtype=object)
    values[:, 0], values[:, 1] = rng.random(1500), rng.choice(["a", "b"], 1500)
    is_yes = (values[:, 0].astype(float) > 0.4) ^ (values[:, 1] == "a") ^ (rng.random(1500) < 0.1)
    return GroupedRows(encode(values, SCHEMA), encode_labels(np.where(is_yes, "yes", "no"), SCHEMA), SCHEMA)


# ---- The holder's side: run as a script ----------------------------------------------------------------------------


def read(connection: socket.socket) -> bytes:
    """One frame; nothing if the other side is gone."""

    def exactly(n: int) -> bytes:
        data = b""
        while len(data) < n:
            more = connection.recv(n - len(data))
            if not more:
                raise EOFError
            data += more
        return data

    try:
        return exactly(struct.unpack("<I", exactly(4))[0])
    except (EOFError, ConnectionError):
        return b""


def write(connection: socket.socket, data: bytes) -> None:
    connection.sendall(struct.pack("<I", len(data)) + data)


def open_desk(path: str, grouped: GroupedRows) -> Desk:
    """The kernel may need a moment to take the lock off a process that was killed."""
    for _ in range(1000):
        try:
            return Store(path).open_study(GRANT).desk(grouped, SeededNoise(7))
        except Refused:
            time.sleep(0.002)
    raise TimeoutError("the lock of a killed process is still there")


def die_after(owner: object, method: str) -> None:
    """The moments between charge, noise, answer and reply are too short to be hit by chance."""
    real = getattr(owner, method)

    def deadly(*arguments: object) -> None:
        real(*arguments)
        os.kill(os.getpid(), signal.SIGKILL)

    setattr(owner, method, deadly)


def serve(connection: socket.socket, path: str, grouped: GroupedRows) -> None:
    write(connection, str(os.getpid()).encode())
    moment = read(connection).decode()
    desk = open_desk(path, grouped)
    if moment in {"charged", "answered"}:
        die_after(desk._journal, moment)
    elif moment == "release":
        die_after(desk.holder, moment)
    while request := read(connection):
        write(connection, desk.handle(request))


def be_warm(address: str, path: str) -> None:
    """Compile and load all that an answer needs, then fork a holder for every connection."""
    warm = LocalNetwork([GRANT.desk(rows(), SeededNoise(0)).holder])
    Coordinator(warm).learn(SCHEMA, make_plan(SCHEMA, Wishes(EPSILON, max_splits=8)))
    grouped = rows()
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # the kernel buries the dead
    assert threading.active_count() == 1
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(address)
        listening.listen()
        print("ready", flush=True)
        while True:
            connection, _ = listening.accept()
            if os.fork() == 0:
                listening.close()
                try:
                    serve(connection, path, grouped)
                finally:
                    os._exit(0)
            connection.close()


# ---- The coordinator's side -----------------------------------------------------------------------------------------


class Reckoning:
    """What has left the holder, by plain sums along paths: the least that its file must show."""

    def __init__(self) -> None:
        self._parent: dict[int, int | None] = {0: None}
        self._price: dict[int, Fraction] = {}

    def add(self, request: Request) -> None:
        if request.growth is not None:
            for node in request.growth.nodes.tolist():
                self._parent |= dict.fromkeys((len(self._parent), len(self._parent) + 1), node)
        for prices in (value for name, value in vars(request.query).items() if name.endswith("epsilons")):
            for node, epsilon in zip(request.query.nodes.tolist(), prices, strict=True):
                self._price[node] = self._price.get(node, Fraction(0)) + epsilon

    @property
    def spent(self) -> Fraction:
        total: dict[int | None, Fraction] = {None: Fraction(0)}
        for node, parent in self._parent.items():  # parents come before their children
            total[node] = total[parent] + self._price.get(node, 0)
        return max(total.values())


class DeadlyNetwork:
    """Asks a holder that is killed again and again; checks its file after every kill."""

    n_holders = 1

    def __init__(self, address: str, path: Path, kills: int, seed: int) -> None:
        self._address, self._path, self._left = address, path, kills
        self._rng = np.random.default_rng(seed)
        self._growth: Grow | None = None
        self._connection: socket.socket | None = None
        self._killer: threading.Timer | None = None
        self._answered: list[tuple[bytes, bytes]] = []
        self._told = Reckoning()
        self._moments = ["charged", "release", "answered", *["any"] * 6]
        self.killed = 0
        self.traffic = Traffic(holders=1)

    def announce(self, growth: Grow) -> None:
        self._growth = joined(self._growth, growth)

    def ask(self, query: Query) -> list[IntArray]:
        request = Request(GRANT.study, f"round-{self.traffic.rounds}", self._growth, query)
        self._growth = None
        self.traffic.rounds += 1
        data = to_bytes(request)
        while not (reply := self._exchange(data)):
            self._bury()
        answer = from_bytes(reply)
        assert isinstance(answer, Answer), answer
        self._answered.append((data, reply))
        self._told.add(request)
        self._repeat()
        return [answer.values]

    def _exchange(self, data: bytes) -> bytes:
        """A reply, or nothing if the holder dies first."""
        try:
            if self._connection is None:
                self._start()
            assert self._connection is not None
            write(self._connection, data)
            return read(self._connection)
        except ConnectionError:
            return b""

    def _start(self) -> None:
        self._connection = socket.socket(socket.AF_UNIX)
        self._connection.connect(self._address)
        pid = int(read(self._connection))
        moment = ""
        if self.killed < self._left:
            moment = str(self._rng.choice(self._moments))
        write(self._connection, moment.encode())
        if moment == "any":  # from before the file is opened until some requests later
            delay = float(self._rng.choice([0.005, 0.02, 0.05, 0.1])) * float(self._rng.random())
            self._killer = threading.Timer(delay, os.kill, (pid, signal.SIGKILL))
            self._killer.start()

    def _bury(self) -> None:
        self._leave()
        if self._killer is not None:
            self._killer.join()
            self._killer = None
        self.killed += 1
        self.check()

    def _leave(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def _repeat(self) -> None:
        """Something that was answered before, perhaps by a process that is dead by now."""
        data, reply = self._answered[int(self._rng.integers(len(self._answered)))]
        while not (again := self._exchange(data)):
            self._bury()
        assert again == reply

    def check(self) -> None:
        """The file shows all that has left, and no more than was granted."""
        if self._path.exists():
            spent = Store(self._path).spent().get(GRANT.study, Fraction(0))
            assert self._told.spent <= spent <= EPSILON
        else:
            assert self._told.spent == 0

    def finish(self) -> None:
        """Kill what is left of the kills while old answers are repeated; the rest goes undisturbed."""
        self._moments = ["any"]
        while self.killed < self._left:
            if self._killer is None:  # this one waits for a new request to die by
                self._leave()
            self._repeat()
        self._leave()
        assert Store(self._path).spent() == {GRANT.study: self._told.spent}


@pytest.fixture
def holder(tmp_path: Path) -> Iterator[tuple[str, Path]]:
    address, path = str(tmp_path / "s"), tmp_path / "holder.db"
    environment = os.environ | {"NUMBA_NUM_THREADS": "1", "PYTHONWARNINGS": "ignore"}
    command = [sys.executable, __file__, address, str(path)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        yield address, path
        process.kill()


@pytest.mark.parametrize("method", METHODS)
def test_a_holder_that_is_killed_at_any_moment_goes_on_where_it_stopped(
    holder: tuple[str, Path], method: str
) -> None:
    plan = make_plan(SCHEMA, Wishes(EPSILON, method=method, max_splits=40))
    undisturbed = LocalNetwork([GRANT.desk(rows(), SeededNoise(7)).holder])
    expected, _ = Coordinator(undisturbed).learn(SCHEMA, plan)
    assert expected.n_splits >= 4

    network = DeadlyNetwork(*holder, kills=KILLS_A_METHOD, seed=METHODS.index(method))
    tree, _ = Coordinator(network).learn(SCHEMA, plan)
    network.finish()
    assert network.killed == KILLS_A_METHOD
    assert tree == expected
    assert network.traffic.rounds == undisturbed.traffic.rounds


if __name__ == "__main__":
    be_warm(*sys.argv[1:])
