"""The coordinator's end of FLARE: grows the tree in the server's job process.

The only module below the learner that calls it. Keeps its answers in the server's own folder, so that a
second job of the same study goes on where the first was cut off.
"""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

from nvflare.apis.event_type import EventType
from nvflare.apis.fl_constant import FLContextKey, ReturnCode
from nvflare.apis.fl_context import FLContext
from nvflare.apis.impl.controller import Controller
from nvflare.apis.shareable import Shareable
from nvflare.apis.signal import Signal

from hedgerow.errors import Refused
from hedgerow.files import write_text
from hedgerow.learner.coordinator import Coordinator, Plan
from hedgerow.learner.planning import Wishes, make_plan
from hedgerow.record import Record
from hedgerow.transport.answers import AnswerFile, StudyBusy
from hedgerow.transport.console_log import plain_error
from hedgerow.transport.flare import ASK, HELLO, WATCH
from hedgerow.transport.remote import HolderLost, RemoteNetwork, Round, Stopped
from hedgerow.transport.site import NOT_HERE
from hedgerow.transport.study import Study
from hedgerow.tree import Tree

STUDIES = "studies"  # in the server's folder
HELLO_SECONDS = 5.0  # of one try
LINGER_SECONDS = 20.0  # for the console to fetch the outcome


class StudyController(Controller):  # type: ignore[misc]  # FLARE is untyped
    """Learns one tree, and tells whoever watches."""

    def __init__(self, study: Mapping[str, Any]) -> None:
        super().__init__()
        self._study = Study.from_dict(study)
        self._rounds: list[Round] = []
        self._outcome: dict[str, Any] | None = None
        self._fetched = threading.Event()
        self._gone: set[str] = set()  # holders whose job process has ended

    def handle_event(self, event_type: str, fl_ctx: FLContext) -> None:
        """Hear of a holder that is lost before its silence tells."""
        super().handle_event(event_type, fl_ctx)
        if event_type == EventType.CLIENT_DISCONNECTED:
            self._gone.add(fl_ctx.get_prop(FLContextKey.DISCONNECTED_CLIENT_NAME))

    def start_controller(self, fl_ctx: FLContext) -> None:
        """Let the console watch."""
        fl_ctx.get_engine().register_app_command(WATCH, self._watch)

    def stop_controller(self, fl_ctx: FLContext) -> None:
        """Nothing to stop."""

    def control_flow(self, abort_signal: Signal, fl_ctx: FLContext) -> None:
        """Greet every holder, learn, write the tree, wait until it was fetched."""
        folder = study_folder(Path(fl_ctx.get_engine().get_workspace().get_root_dir()), self._study.name)
        try:
            with AnswerFile(folder / "answers.log") as answers:
                post = _Post(self._study, fl_ctx, abort_signal)
                network = RemoteNetwork(
                    self._study,
                    post.send,
                    answers,
                    self._rounds.append,
                    post.stopped,
                    self._gone.__contains__,
                )
                plan = make_plan(self._study.schema, _wishes(self._study))
                greeting = self._study.greeting(plan.private_split.method)
                ready = post.greet([h for h in self._study.holders if h not in answers.lost], greeting)
                for holder, noise in ready.items():
                    answers.keep(HELLO, holder, b"", noise.encode())
                tree, plan = Coordinator(network).learn(self._study.schema, plan)
                unprotected = [
                    holder
                    for holder, ledger in network.ledgers.items()
                    if ledger.spent and answers.find(HELLO, holder, b"") != b""
                ]
                self._outcome = _finished(self._study, network, tree, plan, self._rounds, unprotected)
            for name in ("tree", "report"):
                text = json.dumps(self._outcome[name], indent=1, allow_nan=False)
                write_text(folder / f"{name}.json", text)
        except Exception as error:  # noqa: BLE001 - the console is told, whatever it is
            self._outcome = _stopped(error)
        if not abort_signal.triggered:
            self._fetched.wait(LINGER_SECONDS)
        if self._outcome["state"] != "finished":
            self.system_panic(self._outcome["reason"], fl_ctx)

    def _watch(self, topic: str, data: Any, fl_ctx: FLContext, *_: Any, **__: Any) -> dict[str, Any]:  # noqa: ARG002
        """The rounds since the one that the console has seen last, and the outcome once there is one."""
        since = data.get("since") if isinstance(data, dict) else None
        since = since if isinstance(since, int) and since >= 0 else 0
        outcome = self._outcome
        rounds = [r.to_dict() for r in self._rounds[since:]]
        if outcome is not None:
            self._fetched.set()
        return {"rounds": rounds, "outcome": outcome}


class _Post:
    """Carries bytes to holders by FLARE's auxiliary messages."""

    def __init__(self, study: Study, fl_ctx: FLContext, abort: Signal) -> None:
        self._study = study
        self._fl_ctx = fl_ctx
        self._abort = abort

    def stopped(self) -> bool:
        return bool(self._abort.triggered)

    def greet(self, holders: Sequence[str], hello: Mapping[str, str]) -> dict[str, str]:
        """Wait until every holder is ready for this study; a holder that has not loaded its rows is not.

        What each of them says of its noise: nothing, or that it is seeded.
        """
        waiting, refusing, ready = list(holders), list[str](), dict[str, str]()
        deadline = time.monotonic() + self._study.answer_seconds
        while waiting:
            if self.stopped():
                raise Stopped("the study was stopped; resume it when you like.")
            for holder, reply in self._exchange(HELLO, dict.fromkeys(waiting, hello), HELLO_SECONDS).items():
                if "refusal" in reply or "ready" in reply:
                    waiting.remove(holder)
                if "refusal" in reply:
                    refusing.append(holder)
                if "ready" in reply:
                    ready[holder] = str(reply["ready"])
            if waiting and time.monotonic() > deadline:
                if self._study.when_a_holder_is_lost == "continue":
                    return ready  # the first question that the others do not answer settles it
                raise HolderLost(waiting)
            if waiting:
                time.sleep(0.2)
        if refusing:
            raise Refused(f"{', '.join(refusing)}: {NOT_HERE}")
        return ready

    def send(self, requests: Mapping[str, bytes], seconds: float) -> dict[str, bytes]:
        """See `carrier.Send`."""
        contents = {holder: {"request": data} for holder, data in requests.items()}
        return {
            holder: reply["answer"]
            for holder, reply in self._exchange(ASK, contents, seconds).items()
            if isinstance(reply.get("answer"), bytes)
        }

    def _exchange(
        self, topic: str, contents: Mapping[str, Mapping[str, Any]], seconds: float
    ) -> dict[str, Shareable]:
        """Tell each holder something, all at once; the replies of those who replied in time."""
        same: dict[tuple[Any, ...], list[str]] = {}
        for holder, content in contents.items():
            same.setdefault(tuple(content.items()), []).append(holder)

        def send(content: tuple[Any, ...]) -> dict[str, Shareable]:
            request = Shareable()
            request.update(content)
            replies: dict[str, Shareable] = self._fl_ctx.get_engine().send_aux_request(
                targets=same[content],
                topic=topic,
                request=request,
                timeout=seconds,
                fl_ctx=self._fl_ctx,
                optional=True,
            )
            return replies

        # FLARE's own way to send different requests at once (`multicast_aux_requests` of 2.9) raises inside.
        with ThreadPoolExecutor(len(same)) as at_once:
            found = [reply for replies in at_once.map(send, same) for reply in replies.items()]
        return {
            holder: reply
            for holder, reply in found
            if holder in contents and reply is not None and reply.get_return_code() == ReturnCode.OK
        }


def study_folder(server: Path, study: str) -> Path:
    """Where the server keeps a study."""
    return server / STUDIES / study


def _wishes(study: Study) -> Wishes:
    return Wishes(
        epsilon=study.exact_epsilon,
        neighbours=study.neighbours,
        n_holders=len(study.holders),
        method=study.method,
        selector=study.selector,
        criterion=study.criterion,
        budget=study.budget,
        leaf_fraction=study.leaf_fraction,
        max_splits=study.max_splits,
        max_depth=study.max_depth,
        target_error=study.target_error,
        min_gain=study.min_gain,
        max_rows=study.max_rows,
        least_price=study.exact_least_price,
    )


def _finished(
    study: Study,
    network: RemoteNetwork,
    tree: Tree,
    plan: Plan,
    rounds: Sequence[Round],
    unprotected: Sequence[str],
) -> dict[str, Any]:
    report = {
        "about": "How a study was learned, from noisy answers only; its tree is in tree.json.",
        "study": study.to_dict(),
        "plan": plan.explain(),
        # A clock's time depends on the rows of whoever was slowest: it is shown to who waits, and not kept.
        "rounds": [{k: v for k, v in r.to_dict().items() if k != "seconds"} for r in rounds],
        "spent": network.spent,
        "holders_lost": network.lost,
        "traffic": str(network.traffic),
    }
    record = Record.of(list(network.ledgers.values()), plan.explain(), str(network.traffic))
    training = replace(record, leaks=tuple(f"{h}'s noise is seeded, or it never said" for h in unprotected))
    tree_file = tree.to_dict() | {"training": training.to_dict()}
    return {"state": "finished", "tree": tree_file, "report": report}


def _stopped(error: Exception) -> dict[str, Any]:
    state = {HolderLost: "lost", Stopped: "stopped", Refused: "refused", StudyBusy: "busy"}.get(
        type(error), "failed"
    )
    return {"state": state, "reason": plain_error(error)}
