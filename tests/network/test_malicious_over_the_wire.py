"""The coordinator that tries everything, over gRPC and TLS: see tests/holder/test_malicious_coordinator.py."""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import ClassVar

import pytest
from hypothesis import settings

from .conftest import free_ports, until

sys.path.append(str(Path(__file__).parents[1] / "holder"))
from test_malicious_coordinator import SCHEMA, InMemory

pytestmark = pytest.mark.network
TWINS = ("first", "second")


class OverTheWire(InMemory):
    """Desks in this process, behind a real stream each; what the machine says goes through the transport."""

    listener: ClassVar = None
    asked: ClassVar[dict[str, tuple[str, InMemory]]] = {}  # whose desk is meant by the next frame

    def send(self, data: bytes, study: str) -> bytes:
        from hedgerow.messages import Refusal, from_bytes
        from hedgerow.transport.frames import request_frame

        type(self).asked = dict.fromkeys(TWINS, (study, self))
        replies = self.listener.send(dict.fromkeys(TWINS, request_frame(data)), 30.0)
        first, second = (replies[twin] for twin in TWINS)
        kinds = [type(from_bytes(reply)) for reply in (first, second)]
        assert kinds[0] is kinds[1]
        if kinds[0] is Refusal:
            assert first == second
        return first

    @classmethod
    def reply(cls, twin: str, frame: bytes) -> bytes:
        from hedgerow.transport.frames import read_frame

        study, machine = cls.asked[twin]
        return machine.desks[study, TWINS.index(twin)].handle(read_frame(frame))


@pytest.fixture(scope="module", autouse=True)
def wire(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """A coordinator's port, and two sites that are attached to it."""
    from hedgerow.transport import coordinator, site_setup
    from hedgerow.transport.grpc_coordinator import Listener
    from hedgerow.transport.grpc_site import Caller
    from hedgerow.transport.keys import SiteKeys
    from hedgerow.transport.study import Study, write_study

    folder = tmp_path_factory.mktemp("wire")
    [port] = free_ports(1)
    study = Study("wire", SCHEMA, 1.0, TWINS, "localhost", port)
    write_study(study, folder / "study.toml")
    coordinator.provision(folder / "study.toml")
    callers = []
    for twin in TWINS:
        request, _ = site_setup.enroll(folder / twin, folder / "invitation", twin)
        site_setup.install(folder / twin, coordinator.sign(folder / "study.toml", request)[1])
        keys = SiteKeys.load(folder / twin / "keys")
        callers.append(Caller(keys, port, lambda frame, twin=twin: OverTheWire.reply(twin, frame)))
    with Listener(study, folder / "coordinator" / "keys") as OverTheWire.listener:
        threads = [threading.Thread(target=caller.run) for caller in callers]
        for thread in threads:
            thread.start()
        until(lambda: all(map(OverTheWire.listener.connected, TWINS)), 30)
        yield
        for caller in callers:
            caller.stop()
        for thread in threads:
            thread.join()


TestOverTheWire = OverTheWire.TestCase
TestOverTheWire.settings = settings(max_examples=12, stateful_step_count=25, deadline=None)
