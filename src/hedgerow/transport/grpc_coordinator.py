"""The coordinator's end of the gRPC transport: one port, and for each holder one stream that its site opens.

A site is whoever its certificate says, whatever it sends. Nothing goes from site to site. Of each holder one exchange is
under way at a time, and a reply is read only when a frame was sent: what a peer sends besides waits in a window of
fixed size until its stream ends.
"""

from __future__ import annotations

import asyncio
import ipaddress
import itertools
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from hedgerow.errors import HedgerowError
from hedgerow.messages import MOST_BYTES
from hedgerow.transport.grpc_tls import (
    METHOD,
    NUMBER,
    SERVER_OPTIONS,
    TLS_VERSION,
    grpc,
    numbered,
    read_number,
)
from hedgerow.transport.keys import CertificateVerifier, InvalidKeys
from hedgerow.transport.learning import planned_method
from hedgerow.transport.study import Study

NOT_ADMITTED = "not admitted"  # all that a stranger hears
OUT_OF_ORDER = "out of order"


class CannotListen(HedgerowError):
    """The coordinator's port is taken, or its name is not this machine's."""


@dataclass
class _Exchange:
    """A frame for one holder, and the reply once it is there."""

    number: int
    frame: bytes
    reply: asyncio.Future[bytes]


@dataclass
class _Line:
    """The stream of one holder, if it is connected, and the exchange that is under way."""

    wanted: asyncio.Event = field(default_factory=asyncio.Event)  # there is an exchange to begin
    exchange: _Exchange | None = None
    stream: asyncio.Task[None] | None = None
    certificate: bytes = b""


class Listener:
    """Carries frames to holders and their replies back; see `remote.Send`."""

    def __init__(
        self,
        study: Study,
        keys: Path,
        tell: Callable[[str], None] = lambda _: None,
    ) -> None:
        self._study = study
        self._keys = keys
        self._tell = tell
        self._verifier = CertificateVerifier(keys, study.name, study.holders)
        self._lines = {holder: _Line() for holder in study.holders}
        self._numbers = itertools.count(
            time.time_ns()
        )  # those of an earlier coordinator are not taken for ours
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._server: Any = None
        self._told: set[str] = set()

    def __enter__(self) -> Self:
        self._thread.start()
        self._call(self._start())
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._call(self._server.stop(grace=None))
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    def send(self, frames: Mapping[str, bytes], seconds: float) -> dict[str, bytes]:
        """See `remote.Send`."""
        replies: dict[str, bytes] = self._call(self._exchange(frames, seconds))
        return replies

    def connected(self, holder: str) -> bool:
        """Whether a holder's site has a stream open."""
        return self._lines[holder].stream is not None

    def _call(self, coroutine: Any) -> Any:
        return asyncio.run_coroutine_threadsafe(coroutine, self._loop).result()

    # ---- In the event loop ----

    async def _start(self) -> None:
        key, chain, authority = (
            (self._keys / name).read_bytes()
            for name in ("coordinator.key", "coordinator.crt", "authority.crt")
        )
        credentials = grpc.ssl_server_credentials([(key, chain)], authority, require_client_auth=True)
        limit = ("grpc.max_receive_message_length", most_reply(self._study))
        self._server = grpc.aio.server(options=(*SERVER_OPTIONS, limit))
        handler = grpc.stream_stream_rpc_method_handler(self._attach)
        _, service, method = METHOD.split("/")
        self._server.add_generic_rpc_handlers(
            (grpc.method_handlers_generic_handler(service, {method: handler}),)
        )
        address = f"{_address(self._study.server)}:{self._study.port}"
        try:
            self._server.add_secure_port(address, credentials)
        except RuntimeError as error:
            raise CannotListen(
                f"port {self._study.port} of this machine cannot be listened on; is another coordinator at work?"
            ) from error
        await self._server.start()

    async def _exchange(self, frames: Mapping[str, bytes], seconds: float) -> dict[str, bytes]:
        under_way = {holder: self._begin(holder, frame) for holder, frame in frames.items()}
        await asyncio.wait([exchange.reply for exchange in under_way.values()], timeout=seconds)
        replies = {h: exchange.reply.result() for h, exchange in under_way.items() if exchange.reply.done()}
        for holder in replies:
            self._lines[holder].exchange = None
        return replies

    def _begin(self, holder: str, frame: bytes) -> _Exchange:
        """The exchange of a frame; one that is under way goes on."""
        line = self._lines[holder]
        if line.exchange is None or line.exchange.frame != frame:
            line.exchange = _Exchange(next(self._numbers), frame, self._loop.create_future())
            line.wanted.set()
        return line.exchange

    async def _attach(self, _: Any, context: Any) -> None:
        """Serve one stream until it ends. The newest of a holder's streams counts."""
        try:
            holder, certificate = self._identify(context)
        except InvalidKeys as error:
            self._tell_once(f"a site was not admitted: {error}")
            await context.abort(grpc.StatusCode.UNAUTHENTICATED, NOT_ADMITTED)
        line = self._lines[holder]
        if line.stream is not None:
            line.stream.cancel()
        line.stream = stream = asyncio.current_task()
        line.certificate = certificate
        line.wanted.set()
        self._tell(f"{holder} is connected")
        try:
            await context.send_initial_metadata(())
            await self._serve(holder, line, context)
        finally:
            if line.stream is stream:
                line.stream = None
                self._tell(f"{holder} is not connected")

    async def _serve(self, holder: str, line: _Line, context: Any) -> None:
        while True:
            await line.wanted.wait()
            line.wanted.clear()
            if (exchange := line.exchange) is None or exchange.reply.done():
                continue
            if self._is_revoked(line.certificate):
                self._tell_once(f"{holder} was not asked: its certificate has been revoked or is over")
                await context.abort(grpc.StatusCode.UNAUTHENTICATED, NOT_ADMITTED)
            await context.write(numbered(exchange.number, exchange.frame))
            data = await context.read()
            if data is grpc.aio.EOF:
                return
            number, reply = read_number(data)
            if number != exchange.number:
                self._tell_once(f"{holder} sent something that it was not asked for")
                await context.abort(grpc.StatusCode.INVALID_ARGUMENT, OUT_OF_ORDER)
            if not exchange.reply.done():
                exchange.reply.set_result(reply)

    def _identify(self, context: Any) -> tuple[str, bytes]:
        """The holder whose certificate the peer has shown."""
        shown = context.auth_context()
        if shown.get("ssl_tls_version", [TLS_VERSION]) != [TLS_VERSION]:
            raise InvalidKeys("it does not speak TLS 1.3.")
        [certificate] = shown.get("x509_pem_cert", [b""])
        return self._verifier.holder_of(certificate), certificate

    def _is_revoked(self, certificate: bytes) -> bool:
        try:
            self._verifier.holder_of(certificate)
        except InvalidKeys:
            return True
        return False

    def _tell_once(self, sentence: str) -> None:
        """Strangers may knock as often as they like; each kind of refusal is said once."""
        if sentence not in self._told and len(self._told) < 100:
            self._told.add(sentence)
            self._tell(sentence)


def most_reply(study: Study) -> int:
    """Bytes that an answer of this study can have; longer ones are refused before they are read."""
    schema = study.schema
    of_a_node = {
        "noisy_counts": 2 * len(schema.splits) * schema.n_classes,
        "noisy_columns": int(schema.bin_start[-1]) * schema.n_classes,
    }.get(planned_method(study), 3 + 4 * schema.n_classes)
    n_nodes = 2 * study.max_splits + 1
    return min(2**16 + 16 * n_nodes * of_a_node, MOST_BYTES) + NUMBER.size


def _address(host: str) -> str:
    """What to listen on: the loopback for studies on one machine, else every address."""
    if host == "localhost":
        return "127.0.0.1"
    try:
        loopback = ipaddress.ip_address(host).is_loopback
    except ValueError:
        loopback = False
    return host if loopback else "[::]"
