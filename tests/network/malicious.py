"""A coordinator that does not keep to the rules, for a server that lets it run. It writes down what comes back."""

from __future__ import annotations

import json
import math
import threading
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
from nvflare.apis.impl.controller import Controller
from nvflare.apis.shareable import Shareable
from nvflare.fuel.f3.cellnet.defs import MessageHeaderKey
from nvflare.fuel.f3.cellnet.utils import new_cell_message
from nvflare.private.admin_defs import Message as AdminMessage
from nvflare.private.defs import CellChannel, SysCommandTopic, TrainingTopic

from hedgerow.messages import (
    CountLabels,
    CountRows,
    CountSplits,
    Grow,
    Refusal,
    Request,
    from_bytes,
    to_bytes,
)
from hedgerow.transport.flare import ASK, HELLO

ABOUT = ("process_info", "config_vars", "list_pools", "show_pool", "msg_stats", "conns", "stop_cell")


class MaliciousController(Controller):
    def __init__(self, study: str, schema: str, holder: str, out: str) -> None:
        super().__init__()
        self.study, self.schema, self.holder, self.out = study, schema, holder, out

    def start_controller(self, fl_ctx: Any) -> None:
        pass

    def stop_controller(self, fl_ctx: Any) -> None:
        pass

    def control_flow(self, abort_signal: Any, fl_ctx: Any) -> None:
        self.fl_ctx = fl_ctx
        fine = {"epsilon": "1/100", "neighbours": "add-remove", "method": "local", "least_price": "1/10"}
        greeting = {"study": self.study, "schema": self.schema} | fine
        while self.exchange(HELLO, greeting).get("ready") is None:
            abort_signal.triggered or threading.Event().wait(0.3)
        results = {name: self.attack(data) for name, data in self.attacks().items()}
        results["many at once"] = self.many_at_once()
        results["no bytes"] = self.told(self.exchange(ASK, {"request": {"a": [1, 2]}}))
        results["nothing"] = self.told(self.exchange(ASK, {}))
        results["hello nobody"] = self.told(self.exchange(HELLO, {"study": ["x"], "schema": 5}))
        results["hello with too much"] = self.told(self.exchange(HELLO, greeting | {"epsilon": "1000"}))
        results["at last an honest question"] = self.attack(
            self.request("honest", CountRows(n(0), [Fraction(1, 100)]))
        )
        results |= {name: self.command(*words) for name, words in self.commands().items()}
        job = f"{self.holder}.{fl_ctx.get_job_id()}"
        results["about processes"] = [self.about(topic, at) for topic in ABOUT for at in (self.holder, job)]
        Path(self.out).write_text(json.dumps(results))

    def commands(self) -> dict[str, tuple[str, Any]]:
        """What a server may tell FLARE's client, without asking the site's authorization.json."""
        return {
            "read a file": (SysCommandTopic.SHELL, "cat local/hedgerow.toml"),
            "configure logs": (TrainingTopic.CONFIGURE_JOB_LOG, "{}"),
            "environment": (SysCommandTopic.REPORT_ENV, ""),
        }

    def command(self, topic: str, body: Any) -> str:
        message = AdminMessage(topic=topic, body=body)
        reply = (
            self.fl_ctx.get_engine()
            .get_cell()
            .send_request(
                channel=CellChannel.CLIENT_MAIN,
                topic=topic,
                target=self.holder,
                request=new_cell_message({}, message),
                timeout=10.0,
            )
        )
        return str(getattr(reply.payload, "body", reply.payload))

    def about(self, topic: str, target: str) -> str:
        """What FLARE's agent tells about a process: a return code, if there is no agent."""
        cell = self.fl_ctx.get_engine().get_cell().core_cell
        message = new_cell_message({}, {"mode": "count", "pool": "request_processing"})
        reply = cell.send_request(
            channel="_net_manager", topic=topic, target=target, request=message, timeout=10.0
        )
        return f"{reply.get_header(MessageHeaderKey.RETURN_CODE)}: {reply.payload}"

    def attacks(self) -> dict[str, bytes]:
        one = Fraction(1, 1000)
        fine = self.request("a", CountRows(n(0), [one]))
        return {
            "fine": fine,
            "fine again": fine,
            "its name for another": self.request("a", CountRows(n(0), [2 * one])),
            "no message": b"\xff\xfe garbage",
            "empty": b"",
            "cut short": fine[:-3],
            "deep": b"\x91" * 100_000,
            "an answer": to_bytes(Refusal(self.study, "x", "I refuse")),
            "no noise": self.request("b", CountRows(n(0), [math.inf])),
            "too dear": self.request("c", CountRows(n(0), [Fraction(1000)])),
            "too dear in sum": self.request("d", CountRows(n(*[0] * 5000), [one] * 5000)),
            "not granted": self.request("d", CountSplits(n(0), [one])),
            "no such node": self.request("e", CountRows(n(77), [one])),
            "another study": to_bytes(Request("not-granted", "a", None, CountRows(n(0), [one]))),
            "two partitions": self.request("f", CountRows(n(1), [one]), Grow(n(0, 0), n(0, 1), 1)),
            "no such split": self.request("g", CountLabels(n(1), [one]), Grow(n(0), n(10**6), 1)),
            "out of turn": self.request("h", CountLabels(n(0), [one]), Grow(n(0), n(0), 5)),
        }

    def request(self, name: str, query: Any, growth: Grow | None = None) -> bytes:
        return to_bytes(Request(self.study, name, growth, query))

    def many_at_once(self) -> list[str]:
        """Twenty questions on twenty threads, of which the grant pays for ten."""
        data = [self.request(f"many-{i}", CountRows(n(0), [Fraction(1, 100)])) for i in range(20)]
        out: list[str] = []
        threads = [threading.Thread(target=lambda d=d: out.append(self.attack(d))) for d in data]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        return out

    def attack(self, data: bytes) -> str:
        return self.told(self.exchange(ASK, {"request": data}))

    def told(self, reply: dict[str, Any]) -> str:
        answer = reply.get("answer")
        if not isinstance(answer, bytes):
            return str({key: value for key, value in reply.items() if isinstance(value, str)})
        message = from_bytes(answer)
        return (
            f"refused: {message.reason}"
            if isinstance(message, Refusal)
            else f"answered {message.values.tolist()}"
        )

    def exchange(self, topic: str, content: dict[str, Any]) -> dict[str, Any]:
        request = Shareable()
        request.update(content)
        replies = self.fl_ctx.get_engine().send_aux_request(
            targets=[self.holder],
            topic=topic,
            request=request,
            timeout=20.0,
            fl_ctx=self.fl_ctx,
            optional=True,
        )
        return dict(replies.get(self.holder) or {})


def n(*numbers: int) -> Any:
    return np.array(numbers, dtype=np.int64)
