"""The coordinator's whole job, over a wire that is a function call: sites answer in this process."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from study_files import HOLDERS, SEED, Clock, seed_of, write_csv, write_policy

from hedgerow import PrivateTreeClassifier
from hedgerow.datasets import synthetic_hospitals
from hedgerow.errors import InvalidMessage, Refused
from hedgerow.messages import Refusal, from_bytes, to_bytes
from hedgerow.transport import learning
from hedgerow.transport.frames import GREETING, LATER, READY, SEEDED, read_frame
from hedgerow.transport.learning import describe_report, describe_round, learn
from hedgerow.transport.remote import HolderLost, Stopped
from hedgerow.transport.site import NOT_HERE, Site, account
from hedgerow.transport.study import Study

HOSPITALS = synthetic_hospitals(3, rows=900, seed=2)
Intercept = Callable[
    [str, bytes], bytes | None
]  # (holder, frame) -> nothing, or a reply in the place of the site's


def make_study(**changes: Any) -> Study:
    wishes: dict[str, Any] = {"max_splits": 8, "epsilon": 3.0}
    return Study("malaria", HOSPITALS.schema, holders=HOLDERS, server="localhost", **(wishes | changes))


class Wire:
    """Carries frames to the sites that are on it. Whoever waits for another waits as long as it said."""

    def __init__(self, folder: Path, clock: Clock) -> None:
        self.folders = {holder: folder / holder for holder in HOLDERS}
        for i, (holder, (table, labels)) in enumerate(zip(HOLDERS, HOSPITALS.holders, strict=True)):
            self.folders[holder].mkdir(mode=0o700)
            schema = HOSPITALS.schema
            write_csv(self.folders[holder] / "rows.csv", schema.names, schema.label, table, labels)
            schema.save(self.folders[holder] / "schema.toml")
            self.grant(holder, noise_seed=seed_of(i))
        self.sites = {holder: Site(self.policy(holder)) for holder in HOLDERS}
        self.clock = clock
        self.intercept: Intercept = lambda *_: None
        self.silent: set[str] = set()
        self.greetings = 0
        self.questions = 0

    def policy(self, holder: str) -> Path:
        return self.folders[holder] / "hedgerow.toml"

    def grant(self, holder: str, study: str = "malaria", **changes: Any) -> None:
        terms: dict[str, Any] = {"epsilon": 3.0, "quantum": 0}
        write_policy(self.policy(holder), {study: terms | changes}, lifetime_epsilon=10.0)

    def account(self, holder: str) -> str:
        return account(self.policy(holder), "malaria")

    def send(self, frames: Mapping[str, bytes], seconds: float) -> dict[str, bytes]:
        replies = {}
        for holder, frame in frames.items():
            is_greeting = frame[:1] == GREETING
            self.greetings += is_greeting
            self.questions += not is_greeting
            if holder not in self.silent:
                lie = self.intercept(holder, frame)
                replies[holder] = self.sites[holder].reply(frame) if lie is None else lie
        if len(replies) < len(frames):
            self.clock.sleep(seconds)
        return replies


@pytest.fixture
def wire(tmp_path: Path, clock: Clock) -> Iterator[Wire]:
    made = Wire(tmp_path, clock)
    yield made
    for site in made.sites.values():
        site.close()


def learned(model_file: dict[str, Any]) -> tuple[dict[str, Any], Any]:
    """The tree, and every holder's account; not how many bytes went over which network."""
    tree = dict(model_file)
    return tree, tree.pop("training")["holders"]


def reference(study: Study) -> tuple[dict[str, Any], Any]:
    model = PrivateTreeClassifier(
        schema=study.schema,
        epsilon=study.epsilon,
        method=study.method,
        max_splits=study.max_splits,
        noise_seed=SEED,
    )
    return learned(json.loads(model.fit_holders(HOSPITALS.holders).to_json()))


@pytest.mark.parametrize("method", ["auto", "turns", "local", "noisy_columns", "noisy_counts"])
def test_the_tree_is_that_of_the_same_study_in_one_process(tmp_path: Path, wire: Wire, method: str):
    study, rounds = make_study(method=method), []
    outcome = learn(study, wire.send, tmp_path / "coordinator", rounds.append)
    assert learned(outcome.tree) == reference(study)
    for holder in HOLDERS:
        spent = outcome.report["spent"][holder]
        assert f"Granted epsilon 3, spent {spent}." in wire.account(holder)
    assert [one.number for one in rounds] == list(range(len(rounds)))


def test_a_finished_study_is_in_the_coordinators_folder_and_costs_nothing_to_repeat(
    tmp_path: Path, wire: Wire
):
    study, folder = make_study(), tmp_path / "coordinator"
    outcome = learn(study, wire.send, folder)
    assert json.loads((folder / "tree.json").read_text()) == outcome.tree
    assert json.loads((folder / "report.json").read_text()) == outcome.report
    assert Study.from_dict(outcome.report["study"]) == study
    assert all("seconds" not in one for one in outcome.report["rounds"])  # they depend on rows
    questions = wire.questions
    again = learn(study, wire.send, folder)
    assert wire.questions == questions
    assert again.tree == outcome.tree
    assert {one["stored"] for one in again.report["rounds"]} <= {1, 2, 3}


def test_rounds_and_the_end_are_told_in_lines(tmp_path: Path, wire: Wire):
    rounds = []
    outcome = learn(make_study(), wire.send, tmp_path / "coordinator", rounds.append)
    first, last = describe_round(rounds[0]), describe_round(rounds[-1])
    assert first.startswith("wave  ")
    assert "round   0" in first
    assert "answers from disk" not in first
    assert f"spent: lake {outcome.report['spent']['lake']}, city " in last
    assert f"hill has spent epsilon {outcome.report['spent']['hill']}." in describe_report(outcome.report)
    assert "was lost" not in describe_report(outcome.report)


# ---- Greetings -------------------------------------------------------------------------------------------------------


def test_a_site_that_another_process_still_serves_is_greeted_again_until_it_is_free(
    tmp_path: Path, wire: Wire, capsys: pytest.CaptureFixture[str]
):
    earlier, study = Site(wire.policy("city")), make_study()
    with closing(earlier):
        earlier.greet(study.greeting("turns"))
        said: list[bytes] = []

        def intercept(holder: str, frame: bytes) -> None:
            if holder == "city" and frame[:1] == GREETING:
                if len(said) == 3:
                    earlier.close()
                said.append(wire.sites["city"].reply(frame))

        wire.intercept = intercept
        outcome = learn(study, wire.send, tmp_path / "coordinator")
    assert said == [LATER, LATER, LATER, SEEDED]
    assert learned(outcome.tree) == reference(study)
    assert capsys.readouterr().out.count("not yet: ") == 1


def test_a_study_that_a_holder_declines_asks_nobody_anything(tmp_path: Path, wire: Wire, capsys):
    wire.grant("city", epsilon=2.0)
    with pytest.raises(Refused) as error:
        learn(make_study(), wire.send, tmp_path / "coordinator")
    assert str(error.value) == f"city: {NOT_HERE}"
    assert "this site does not take part: study 'malaria' means to spend epsilon 3" in capsys.readouterr().out
    assert wire.questions == 0
    assert all("Nothing was asked" in wire.account(h) or "no journal" in wire.account(h) for h in HOLDERS)
    wire.grant("city", noise_seed=seed_of(1))  # and it can go on when the holder has thought better of it
    assert learned(learn(make_study(), wire.send, tmp_path / "coordinator").tree) == reference(make_study())


@pytest.mark.parametrize("seeded", [True, False])
def test_seeded_noise_is_said_in_the_tree(tmp_path: Path, wire: Wire, seeded: bool):
    for i, holder in enumerate(HOLDERS):
        wire.grant(holder, **({"noise_seed": seed_of(i)} if seeded and holder != "hill" else {}))
    replies = []
    wire.intercept = lambda holder, frame: (
        replies.append(wire.sites[holder].reply(frame)) if frame[:1] == GREETING else None
    )
    outcome = learn(make_study(), wire.send, tmp_path / "coordinator")
    assert replies == ([SEEDED, SEEDED, READY] if seeded else [READY] * 3)
    leaks = [f"{holder}'s noise is seeded, or it never said" for holder in ("lake", "city")]
    assert list(outcome.tree["training"]["leaks"]) == (leaks if seeded else [])


def test_seeded_noise_of_a_study_that_was_resumed_is_said_too(tmp_path: Path, wire: Wire):
    """What a holder said of its noise when the study began is kept, also of one that was lost since."""
    study = make_study(when_a_holder_is_lost="continue", answer_seconds=20.0)

    def stop() -> bool:
        return wire.questions >= 6

    with pytest.raises(Stopped):
        learn(study, wire.send, tmp_path / "coordinator", stopped=stop)
    wire.silent = {"city"}
    outcome = learn(study, wire.send, tmp_path / "coordinator")
    assert outcome.report["holders_lost"].keys() == {"city"}
    assert "city's noise is seeded, or it never said" in outcome.tree["training"]["leaks"]


@pytest.mark.parametrize("policy", ["wait", "abort"])
def test_a_holder_that_never_replies_to_the_greeting_stops_the_study(
    tmp_path: Path, wire: Wire, clock: Clock, policy: str
):
    study = make_study(when_a_holder_is_lost=policy, answer_seconds=30.0)
    wire.silent = {"city"}
    with pytest.raises(HolderLost, match="no answer from city; the study can be resumed"):
        learn(study, wire.send, tmp_path / "coordinator")
    assert 30 < clock.now <= 30 + learning.GREETING_SECONDS + 2 * learning.PAUSE_SECONDS
    assert wire.questions == 0


@pytest.mark.parametrize("reply", [None, b"", b"Ready", b"ready " * 1000, b"\xff" * 100])
def test_a_study_goes_on_without_a_holder_that_never_replies_to_the_greeting_or_babbles(
    tmp_path: Path, wire: Wire, reply: bytes | None
):
    study = make_study(when_a_holder_is_lost="continue", answer_seconds=30.0)
    if reply is None:
        wire.silent = {"city"}
    wire.intercept = lambda holder, _: reply if holder == "city" else None
    outcome = learn(study, wire.send, tmp_path / "coordinator")
    assert outcome.report["holders_lost"] == {"city": "round-0"}
    assert sum("split" in node for node in outcome.tree["nodes"]) > 1
    assert "city was lost: from round-0 on the tree was grown without it" in describe_report(outcome.report)
    assert "city's noise is seeded, or it never said" in outcome.tree["training"]["leaks"]


def test_a_study_that_nobody_replies_to_is_given_up(tmp_path: Path, wire: Wire):
    wire.silent = set(HOLDERS)
    with pytest.raises(HolderLost, match="no answer from lake, city, hill;"):
        learn(make_study(when_a_holder_is_lost="continue"), wire.send, tmp_path / "coordinator")


def test_a_study_that_is_stopped_while_it_greets_says_so(tmp_path: Path, wire: Wire):
    wire.silent = set(HOLDERS)
    with pytest.raises(Stopped, match="resume it when you like"):
        learn(make_study(), wire.send, tmp_path / "coordinator", stopped=lambda: wire.greetings > 3)


# ---- Later on --------------------------------------------------------------------------------------------------------


def test_a_study_goes_on_without_a_holder_that_fails_in_its_middle(tmp_path: Path, wire: Wire):
    study = make_study(when_a_holder_is_lost="continue")
    wire.intercept = lambda holder, frame: (
        to_bytes(Refusal("unknown", "unknown", NOT_HERE)) if holder == "city" and wire.questions > 6 else None
    )
    outcome = learn(study, wire.send, tmp_path / "coordinator")
    assert outcome.report["holders_lost"].keys() == {"city"}


def test_a_study_that_stopped_over_a_lie_goes_on_to_the_same_tree(tmp_path: Path, wire: Wire):
    def lie(holder: str, frame: bytes) -> bytes | None:
        if holder != "city" or wire.questions < 6 or frame[:1] == GREETING:
            return None
        asked = from_bytes(read_frame(frame))
        return to_bytes(Refusal(asked.study, asked.identifier, "no")) if wire.questions % 2 else b"\x00"

    wire.intercept = lie
    for _ in range(2):
        with pytest.raises((Refused, InvalidMessage), match=r"city (refuses: no|sent something else)"):
            learn(make_study(), wire.send, tmp_path / "coordinator")
        wire.questions += 1
    wire.intercept = lambda *_: None
    outcome = learn(make_study(), wire.send, tmp_path / "coordinator")
    assert learned(outcome.tree) == reference(make_study())
