"""How long a coordinator waits for sites to connect, and what it says of those that do not."""

from __future__ import annotations

from pathlib import Path
from typing import Self

import pytest
from study_files import HOLDERS, Clock, provisioned

pytest.importorskip("grpc", reason="a coordinator needs hedgerow[network]")

from hedgerow.datasets import HOSPITALS_SCHEMA
from hedgerow.errors import InvalidMessage, Refused
from hedgerow.transport import coordinator
from hedgerow.transport.answers import StudyChanged
from hedgerow.transport.coordinator import StudyInterrupted, wait_for_holders
from hedgerow.transport.remote import HolderLost, Stopped
from hedgerow.transport.study import Study


class Streams:
    """In the place of a listener: who connects when."""

    def __init__(self, clock: Clock, **since: float) -> None:
        self._clock = clock
        self._since = since

    def connected(self, holder: str) -> bool:
        return holder in self._since and self._since[holder] <= self._clock.now


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    made = Clock()
    monkeypatch.setattr(coordinator, "time", made)
    return made


def make_study(policy: str, **changes: float) -> Study:
    return Study(
        "malaria", HOSPITALS_SCHEMA, 1.0, HOLDERS, "localhost", when_a_holder_is_lost=policy, **changes
    )


@pytest.mark.parametrize("policy", ["wait", "abort", "continue"])
def test_nobody_is_waited_for_who_is_there(clock: Clock, policy: str):
    said: list[str] = []
    wait_for_holders(Streams(clock, lake=0, city=0, hill=0), make_study(policy), said.append)
    assert (said, clock.now) == ([], 0.0)


@pytest.mark.parametrize(
    ("policy", "minutes", "patience"), [("wait", 60.0, 60), ("abort", 60.0, 1), ("abort", 0.5, 0.5)]
)
def test_a_site_that_never_connects_is_given_up_on(
    clock: Clock, policy: str, minutes: float, patience: float
):
    said: list[str] = []
    with pytest.raises(StudyInterrupted) as error:
        wait_for_holders(
            Streams(clock, lake=0, hill=10), make_study(policy, return_minutes=minutes), said.append
        )
    assert str(error.value) == (
        f"city did not connect within {patience:g} minutes; hedgerow network resume when they do."
    )
    assert said == ["waiting for city, hill to connect", "waiting for city to connect"]
    assert 60 * patience < clock.now < 60 * patience + 1


def test_a_study_that_goes_on_without_somebody_gives_it_time_to_connect(clock: Clock):
    study = make_study("continue", answer_seconds=30.0, return_minutes=0.1)
    wait_for_holders(Streams(clock, lake=0, hill=0), study, lambda _: None)
    assert 30 < clock.now < 31
    wait_for_holders(Streams(clock, lake=0, hill=0, city=clock.now + 10), study, lambda _: None)
    assert 40 < clock.now < 42


def test_a_study_does_not_begin_with_nobody(clock: Clock):
    study = make_study("continue", answer_seconds=30.0, return_minutes=5.0)
    with pytest.raises(StudyInterrupted, match="lake, city, hill did not connect within 5 minutes"):
        wait_for_holders(Streams(clock), study, lambda _: None)


@pytest.mark.parametrize(
    "error", [HolderLost(["city"]), Stopped(), Refused("city refuses: no."), InvalidMessage("city lies.")]
)
def test_what_can_be_resumed_is_said_to_be(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: Exception):
    def fail(*_: object, **__: object) -> None:
        raise error

    class NoListener(Streams):
        send = None

        def __init__(self, *_: object) -> None:
            super().__init__(Clock(), lake=0, city=0, hill=0)

        def __enter__(self) -> Self:
            return self

        def __exit__(self, *_: object) -> None:
            pass

    monkeypatch.setattr(coordinator, "Listener", NoListener)
    monkeypatch.setattr(coordinator.learning, "learn", fail)
    study_file = provisioned(tmp_path)
    with pytest.raises(StudyInterrupted) as interrupted:
        coordinator.learn(study_file, lambda _: None, lambda _: None)
    assert str(interrupted.value) == f"{error} Nothing answered so far is lost: hedgerow network resume."
    error = StudyChanged("begun with others.")
    with pytest.raises(StudyChanged, match="begun with others"):  # which resuming would not help
        coordinator.learn(study_file, lambda _: None, lambda _: None)
