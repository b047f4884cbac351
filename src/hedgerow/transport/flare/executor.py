"""The holder's end of FLARE: takes requests from auxiliary messages to the site's desk, and answers back.

A job names this class and nothing else; it has no arguments, because arguments come from the job.
"""

from __future__ import annotations

from pathlib import Path

from nvflare.apis.event_type import EventType
from nvflare.apis.executor import Executor
from nvflare.apis.fl_constant import ReturnCode
from nvflare.apis.fl_context import FLContext
from nvflare.apis.shareable import Shareable, make_reply
from nvflare.apis.signal import Signal

from hedgerow.errors import Refused
from hedgerow.holder.store import StudyOpen
from hedgerow.transport.console_log import plain_error, say
from hedgerow.transport.flare import ASK, HELLO, SEEDED
from hedgerow.transport.site import NOT_HERE, POLICY_FILE, Site, refusal


class HolderExecutor(Executor):  # type: ignore[misc]  # FLARE is untyped
    """Answers for one site while a job runs."""

    def __init__(self) -> None:
        super().__init__()
        self._site: Site | None = None
        self._waits = False  # for another process to close the study

    def handle_event(self, event_type: str, fl_ctx: FLContext) -> None:
        """Open the site when a job starts: from the site's own folder, whatever the job says."""
        if event_type == EventType.END_RUN and self._site is not None:
            self._site.close()
        if event_type != EventType.START_RUN:
            return
        engine = fl_ctx.get_engine()
        path = Path(engine.get_workspace().get_root_dir()).parent / "local" / POLICY_FILE
        try:
            self._site = Site(path)
        except Exception as error:  # noqa: BLE001 - whatever it is, it stays on this console
            say(f"this site does not take part: {plain_error(error)}")
        engine.register_aux_message_handler(topic=HELLO, message_handle_func=self._hello)
        engine.register_aux_message_handler(topic=ASK, message_handle_func=self._ask)

    def execute(
        self,
        task_name: str,  # noqa: ARG002 - FLARE's interface
        shareable: Shareable,  # noqa: ARG002
        fl_ctx: FLContext,  # noqa: ARG002
        abort_signal: Signal,  # noqa: ARG002
    ) -> Shareable:
        """There are no tasks: everything is asked by auxiliary messages."""
        return make_reply(ReturnCode.TASK_UNKNOWN)

    def _hello(self, topic: str, request: Shareable, fl_ctx: FLContext) -> Shareable:  # noqa: ARG002
        """Ready for this study?"""
        try:
            private = self._opened().greet(request)
        except StudyOpen as error:
            if not self._waits:  # asked again every moment
                say(f"not yet: {error}")
            self._waits = True
            return _reply("later", "")
        except Exception as error:  # noqa: BLE001 - whatever it is, it stays on this console
            say(f"this site does not take part: {plain_error(error)}")
            return _reply("refusal", NOT_HERE)
        say(f"takes part in study {request.get('study')!r}, as {POLICY_FILE} allows.")
        return _reply("ready", "" if private else SEEDED)

    def _opened(self) -> Site:
        if self._site is None:
            raise Refused("its policy or data could not be read.")
        return self._site

    def _ask(self, topic: str, request: Shareable, fl_ctx: FLContext) -> Shareable:  # noqa: ARG002
        """One request, one answer or refusal."""
        data = request.get("request")
        if self._site is None or not isinstance(data, bytes):
            return _reply("answer", refusal("unknown", "unknown", NOT_HERE))
        try:
            return _reply("answer", self._site.handle(data))
        except Exception as error:  # noqa: BLE001 - whatever it is, it stays on this console
            say(f"a request failed: {plain_error(error)}")
            return _reply("answer", refusal("unknown", "unknown", NOT_HERE))


def _reply(key: str, value: str | bytes) -> Shareable:
    reply = make_reply(ReturnCode.OK)
    reply[key] = value
    return reply
