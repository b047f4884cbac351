"""The coordinator's end: learns a study in the server's job process, by FLARE's auxiliary messages.

Answers are kept outside the job's folder, so that a second job of the same study goes on where the first one stopped.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from nvflare.apis.fl_constant import ReturnCode
from nvflare.apis.fl_context import FLContext
from nvflare.apis.impl.controller import Controller
from nvflare.apis.shareable import Shareable
from nvflare.apis.signal import Signal

from hedgerow.transport.console_log import plain_error
from hedgerow.transport.flare import FRAME, STUDY_FILE, TOPIC
from hedgerow.transport.learning import describe_report, describe_round, learn
from hedgerow.transport.remote import Send, Stopped
from hedgerow.transport.study import Study

FOLDER = "hedgerow"  # in the server's workspace; has a folder for each study


class StudyController(Controller):  # type: ignore[misc]  # FLARE is untyped
    """Learns the study of the job. It has no arguments: the study is `study.json` beside the job's configuration."""

    def start_controller(self, fl_ctx: FLContext) -> None:
        """Do nothing: all happens in `control_flow`."""

    def stop_controller(self, fl_ctx: FLContext) -> None:
        """Do nothing: nothing is left open."""

    def control_flow(self, abort_signal: Signal, fl_ctx: FLContext) -> None:
        """Learn the tree and write it to the study's folder and to the job's result."""
        workspace, job = fl_ctx.get_engine().get_workspace(), fl_ctx.get_job_id()
        try:
            text = Path(workspace.get_app_config_dir(job), STUDY_FILE).read_text(encoding="utf-8")
            study = Study.from_dict(json.loads(text))
            folder = Path(workspace.get_root_dir(), FOLDER, study.name)
            outcome = learn(
                study,
                auxiliary_messages(fl_ctx),
                folder,
                tell=lambda one: self.log_info(fl_ctx, describe_round(one)),
                stopped=lambda: bool(abort_signal.triggered),
            )
            outcome.write(Path(workspace.get_result_root(job)))
        except Stopped as error:
            self.log_info(fl_ctx, str(error))
        except Exception as error:  # noqa: BLE001 - whatever it is, the job has failed
            self.system_panic(plain_error(error), fl_ctx)
        else:
            self.log_info(fl_ctx, f"{describe_report(outcome.report)}\nThe tree is in {folder}.")


def auxiliary_messages(fl_ctx: FLContext) -> Send:
    """Carry frames by FLARE's auxiliary messages, to all holders at once."""
    engine = fl_ctx.get_engine()

    def send_one(holder: str, frame: bytes, seconds: float) -> Any:
        request = Shareable()
        request[FRAME] = frame
        replies = engine.send_aux_request(
            targets=[holder], topic=TOPIC, request=request, timeout=seconds, fl_ctx=fl_ctx, optional=True
        )
        reply = (replies or {}).get(holder)
        return reply.get(FRAME) if reply is not None and reply.get_return_code() == ReturnCode.OK else None

    def send(frames: Mapping[str, bytes], seconds: float) -> dict[str, bytes]:
        reachable = {client.name for client in engine.get_clients()} & frames.keys()
        # FLARE's own way to send different requests at once (`multicast_aux_requests` of 2.9) raises inside.
        with ThreadPoolExecutor(len(frames)) as threads:
            sent = {holder: threads.submit(send_one, holder, frames[holder], seconds) for holder in reachable}
        replies = {holder: future.result() for holder, future in sent.items()}
        return {holder: reply for holder, reply in replies.items() if isinstance(reply, bytes)}

    return send
