"""The coordinator's whole job over a network: greet the holders, grow the tree, write down what came of it."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from hedgerow.errors import InvalidMessage, Refused
from hedgerow.files import write_text
from hedgerow.learner.coordinator import Coordinator, Plan
from hedgerow.learner.planning import Wishes, make_plan
from hedgerow.record import Record
from hedgerow.transport.answers import AnswerFile
from hedgerow.transport.frames import DECLINED, GREETED, LATER, SEEDED, greeting_frame
from hedgerow.transport.remote import HolderLost, RemoteNetwork, Round, Send, Stopped
from hedgerow.transport.site import NOT_HERE
from hedgerow.transport.study import Study
from hedgerow.tree import Tree

GREETED_AS = "greeting"  # the name under which answers to greetings are kept
GREETING_SECONDS = 5.0  # of one try
PAUSE_SECONDS = 0.2
CAN_BE_RESUMED = (HolderLost, Stopped, Refused, InvalidMessage)


@dataclass(frozen=True)
class Outcome:
    """A finished study: the model's file and the report, as plain values."""

    tree: dict[str, Any]
    report: dict[str, Any]

    def write(self, folder: Path) -> None:
        """Write tree.json and report.json."""
        folder.mkdir(parents=True, exist_ok=True)
        for name in ("tree", "report"):
            write_text(folder / f"{name}.json", json.dumps(getattr(self, name), indent=1, allow_nan=False))


def learn(
    study: Study,
    send: Send,
    folder: Path,
    tell: Callable[[Round], None] = lambda _: None,
    stopped: Callable[[], bool] = lambda: False,
    connected: Callable[[str], bool] = lambda _: True,
) -> Outcome:
    """Learn a study's tree; goes on where answers.log in `folder` ends.

    `send` carries frames to holders and back; `connected` says whether a holder could be reached at all.
    """
    rounds: list[Round] = []

    def note(one: Round) -> None:
        rounds.append(one)
        tell(one)

    with AnswerFile(folder / "answers.log") as answers:
        network = RemoteNetwork(study, send, answers, note, stopped, connected)
        plan = make_plan(study.schema, _wishes(study))
        expected = [holder for holder in study.holders if holder not in answers.lost]
        greeting = greeting_frame(study.greeting(plan.private_split.method))
        for holder, reply in _greet(study, send, expected, greeting, stopped).items():
            answers.keep(GREETED_AS, holder, b"", reply)
        tree, plan = Coordinator(network).learn(study.schema, plan)
        unprotected = [
            holder
            for holder, ledger in network.ledgers.items()
            if ledger.spent and answers.find(GREETED_AS, holder, b"") in {None, SEEDED}
        ]
        outcome = _outcome(study, network, tree, plan, rounds, unprotected)
    outcome.write(folder)
    return outcome


def _greet(
    study: Study, send: Send, holders: Sequence[str], greeting: bytes, stopped: Callable[[], bool]
) -> dict[str, bytes]:
    """Wait until every holder is ready for the study; one that is still reading its rows says "later"."""
    waiting, greeted = list(holders), dict[str, bytes]()
    deadline = time.monotonic() + study.answer_seconds
    while waiting:
        if stopped():
            raise Stopped
        replies = send(dict.fromkeys(waiting, greeting), GREETING_SECONDS)
        for holder, reply in replies.items():
            if reply in GREETED and reply != LATER:
                waiting.remove(holder)
                greeted[holder] = reply
        if waiting and time.monotonic() > deadline:
            if study.when_a_holder_is_lost == "continue" and len(waiting) < len(holders):
                break  # the first request that the others do not answer settles it
            raise HolderLost(waiting)
        if waiting:
            time.sleep(PAUSE_SECONDS)
    declining = [holder for holder, reply in greeted.items() if reply == DECLINED]
    goes_on = study.when_a_holder_is_lost == "continue" and len(declining) < len(holders)
    if declining and not goes_on:
        raise Refused(f"{', '.join(declining)}: {NOT_HERE}")
    return greeted


def planned_method(study: Study) -> str:
    """The method by which a study's coordinator will ask."""
    return make_plan(study.schema, _wishes(study)).private_split.method


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


def _outcome(
    study: Study,
    network: RemoteNetwork,
    tree: Tree,
    plan: Plan,
    rounds: Sequence[Round],
    unprotected: Sequence[str],
) -> Outcome:
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
    return Outcome(tree.to_dict() | {"training": training.to_dict()}, report)


def describe_round(one: Round) -> str:
    """One round in one line."""
    from_disk = f", {one.stored} answers from disk" if one.stored else ""
    spent = ", ".join(f"{holder} {epsilon}" for holder, epsilon in one.spent.items())
    return (
        f"wave {one.wave:2d}  round {one.number:3d}  {one.query:12} {one.nodes:4d} nodes  {one.seconds:6.3f} s  "
        f"{one.bytes_sent + one.bytes_received:9,d} bytes{from_disk}  spent: {spent}"
    )


def describe_report(report: dict[str, Any]) -> str:
    """The end of a study, for people."""
    lines = [report["plan"], f"{report['traffic']}."]
    lines += [f"{holder} has spent epsilon {spent}." for holder, spent in report["spent"].items()]
    lines += [
        f"{holder} was lost: from {since} on the tree was grown without it; its earlier answers are in it."
        for holder, since in report["holders_lost"].items()
    ]
    return "\n".join(lines)
