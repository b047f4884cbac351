"""The holder's end: passes frames from FLARE's auxiliary messages to the site, and its replies back.

The executor has no arguments, because arguments come from the job: what a study may ask stands in the holder's own
policy file. Errors stay on the holder's console; FLARE would send their text to the server.
"""

from __future__ import annotations

import os
from pathlib import Path

from nvflare.apis.event_type import EventType
from nvflare.apis.executor import Executor
from nvflare.apis.fl_constant import ReturnCode
from nvflare.apis.fl_context import FLContext
from nvflare.apis.shareable import Shareable, make_reply
from nvflare.apis.signal import Signal
from nvflare.apis.workspace import Workspace

from hedgerow.transport.console_log import plain_error, say
from hedgerow.transport.flare import FRAME, TOPIC
from hedgerow.transport.frames import DECLINED, LATER, MOST_FRAME
from hedgerow.transport.site import NOT_HERE, POLICY_FILE, Site, refusal

POLICY_VARIABLE = "HEDGEROW_POLICY"
NOT_A_FRAME = refusal("unknown", "unknown", NOT_HERE)


class HolderExecutor(Executor):  # type: ignore[misc]  # FLARE is untyped
    """Answers for one holder while a job runs."""

    def __init__(self) -> None:
        super().__init__()
        self._site: Site | None = None
        self._without_site = LATER  # what is replied while the rows are read, or if they cannot be

    def handle_event(self, event_type: str, fl_ctx: FLContext) -> None:
        """Open the site when a job starts, and close it when the job ends."""
        if event_type == EventType.START_RUN:
            engine = fl_ctx.get_engine()
            engine.register_aux_message_handler(topic=TOPIC, message_handle_func=self._reply)
            try:
                self._site = Site(policy_file(engine.get_workspace()))
            except Exception as error:  # noqa: BLE001 - whatever it is, it stays on this console
                say(f"this site does not take part: {plain_error(error)}")
                self._without_site = DECLINED
        elif event_type == EventType.END_RUN and self._site is not None:
            self._site.close()

    def execute(
        self,
        task_name: str,  # noqa: ARG002 - FLARE's interface
        shareable: Shareable,  # noqa: ARG002
        fl_ctx: FLContext,  # noqa: ARG002
        abort_signal: Signal,  # noqa: ARG002
    ) -> Shareable:
        """Refuse tasks: everything is asked by auxiliary messages."""
        return make_reply(ReturnCode.TASK_UNKNOWN)

    def _reply(self, topic: str, request: Shareable, fl_ctx: FLContext) -> Shareable:  # noqa: ARG002
        reply = make_reply(ReturnCode.OK)
        reply[FRAME] = self._answer(request.get(FRAME))
        return reply

    def _answer(self, frame: object) -> bytes:
        if not isinstance(frame, bytes) or len(frame) > MOST_FRAME:
            return NOT_A_FRAME
        return self._without_site if self._site is None else self._site.reply(frame)


def policy_file(workspace: Workspace) -> Path:
    """The holder's policy: what HEDGEROW_POLICY names, or `local/hedgerow.toml` in FLARE's workspace."""
    named = os.environ.get(POLICY_VARIABLE)
    return Path(named) if named else Path(workspace.get_site_config_dir()) / POLICY_FILE
