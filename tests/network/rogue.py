"""Peers that do not keep to the rules, with real keys: a site and a coordinator."""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable, Iterator
from concurrent import futures
from pathlib import Path
from typing import Any

from hedgerow.transport.grpc_tls import METHOD, SERVER_OPTIONS, grpc, numbered, read_number
from hedgerow.transport.keys import SiteKeys

LARGE = (("grpc.max_receive_message_length", -1), ("grpc.max_send_message_length", -1))


class RogueSite:
    """Attaches with a site's own certificate, and answers each frame with whatever `behave` makes of it."""

    def __init__(
        self, folder: Path, port: int, behave: Callable[[int, bytes], Iterator[bytes]], first: bytes = b""
    ) -> None:
        keys = SiteKeys.load(folder / "keys")
        credentials = grpc.ssl_channel_credentials(keys.coordinator, keys.key, keys.certificate)
        self._channel = grpc.secure_channel(f"localhost:{port}", credentials, options=LARGE)
        self._behave, self._first = behave, first
        self._done = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        while not self._done.wait(0.05):
            outgoing: queue.SimpleQueue[bytes | None] = queue.SimpleQueue()
            if self._first:
                outgoing.put(self._first)
            call = self._channel.stream_stream(METHOD)(iter(outgoing.get, None))
            try:
                for data in call:
                    for reply in self._behave(*read_number(data)):
                        outgoing.put(reply)
            except grpc.RpcError:
                pass
            finally:
                outgoing.put(None)

    def close(self) -> None:
        self._done.set()
        self._channel.close()
        self._thread.join(10)


class RogueCoordinator:
    """Listens with the coordinator's own key; `talk` is called with every stream: send a frame, get the reply."""

    def __init__(
        self, keys: Path, port: int, talk: Callable[[Callable[[bytes], bytes | None]], None]
    ) -> None:
        key, chain, authority = (
            (keys / name).read_bytes() for name in ("coordinator.key", "coordinator.crt", "authority.crt")
        )
        credentials = grpc.ssl_server_credentials([(key, chain)], authority, require_client_auth=True)
        self._server = grpc.server(futures.ThreadPoolExecutor(4), options=(*SERVER_OPTIONS, *LARGE))
        self.error: BaseException | None = None
        self.done = threading.Event()

        def attach(replies: Iterator[bytes], _: Any) -> Iterator[bytes]:
            questions: queue.SimpleQueue[bytes | None] = queue.SimpleQueue()
            numbers = iter(range(10**9))

            def exchange(frame: bytes) -> bytes | None:
                questions.put(numbered(next(numbers), frame))
                reply = next(replies, None)
                return None if reply is None else read_number(reply)[1]

            def run() -> None:
                try:
                    talk(exchange)
                except BaseException as error:  # noqa: BLE001 - the test raises it
                    self.error = error
                self.done.set()
                questions.put(None)

            threading.Thread(target=run, daemon=True).start()
            return iter(questions.get, None)

        handler = grpc.stream_stream_rpc_method_handler(attach)
        _, service, method = METHOD.split("/")
        self._server.add_generic_rpc_handlers(
            (grpc.method_handlers_generic_handler(service, {method: handler}),)
        )
        self._server.add_secure_port(f"127.0.0.1:{port}", credentials)
        self._server.start()

    def close(self) -> None:
        self._server.stop(0).wait()
