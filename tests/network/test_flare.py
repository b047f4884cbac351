"""Trees over FLARE: the same as in one process, whatever is killed on the way."""

from __future__ import annotations

import os
import re
import signal

import pytest

from .conftest import HOLDERS, Federation, Gate, learned, until

pytestmark = pytest.mark.network


@pytest.mark.parametrize("method", ["turns", "local", "noisy_columns", "noisy_counts"])
def test_the_tree_over_flare_is_the_tree_in_process(federation: Federation, method: str):
    study = federation.new_study(f"equal-{method}", method=method)
    outcome = federation.learn(study)
    assert learned(outcome.tree) == learned(federation.reference(study))
    assert len(outcome.tree["training"]["leaks"]) == len(
        HOLDERS
    )  # the tests' noise is seeded, and that is said
    assert set(outcome.report["spent"]) == set(HOLDERS)
    for holder in HOLDERS:
        assert federation.spent(holder, study.name) == pytest.approx(
            float(outcome.report["spent"][holder]), rel=1e-5
        )
        assert federation.spent(holder, study.name) <= study.epsilon


@pytest.mark.parametrize("method", ["select", "paper"])
def test_one_holder_over_flare_learns_the_tree_of_one_process(federation: Federation, method: str):
    study = federation.new_study(f"equal-{method}", method=method, holders=HOLDERS[:1])
    assert learned(federation.learn(study).tree) == learned(federation.reference(study))


def test_whatever_is_killed_costs_nothing_and_changes_nothing(federation: Federation, gate: Gate):
    """One study, whose every part is killed in turn, each time in the middle of a wave."""
    study = federation.new_study("killed", method="local", budget="uniform", max_depth=7)
    gate.shut()
    command = federation.learn_beside(study)

    os.kill(gate.hold(study.name, after=1), signal.SIGKILL)  # the site's job process

    gate.hold(study.name, after=2)
    os.kill(federation.job_of("server"), signal.SIGKILL)  # the coordinator
    gate.let_pass()  # the site answers all the same, and nobody hears it

    gate.hold(study.name, after=4)
    kill(federation, "server")
    gate.let_pass()
    federation.start("server")

    gate.hold(study.name, after=6)
    kill(federation, "city")
    federation.start("city")

    job = gate.hold(study.name, after=7)
    command.send_signal(signal.SIGINT)  # Ctrl-C
    said, _ = command.communicate(timeout=60)
    gate.see_off(job)
    assert command.returncode == 130, said
    assert "hedgerow network resume" in said
    command = federation.learn_beside(study, "resume")

    gate.hold(study.name, after=9)
    command.kill()  # the console; the coordinator goes on without anybody who watches
    command.communicate()
    gate.open()
    finish(federation, study, federation.learn_beside(study, "resume"))


def test_a_study_may_end_when_a_holder_is_lost(federation: Federation, gate: Gate):
    study = federation.new_study("aborted", method="local", when_a_holder_is_lost="abort")
    gate.shut()
    command = federation.learn_beside(study)
    os.kill(gate.hold(study.name, after=4), signal.SIGKILL)
    said, _ = command.communicate(timeout=90)
    assert command.returncode == 1, said
    assert "hedgerow network resume" in said
    assert "Trying again" not in said
    assert not (federation.folder / f"out-{study.name}").exists()
    assert [len(federation.journal(holder, study.name)) for holder in HOLDERS] == [5, 4, 5]


@pytest.mark.parametrize("method", ["local", "turns"])
def test_a_study_may_go_on_without_a_lost_holder(federation: Federation, gate: Gate, method: str):
    study = federation.new_study(f"continued-{method}", method=method, when_a_holder_is_lost="continue")
    gate.shut()
    command = federation.learn_beside(study)
    gate.hold(study.name, after=4)
    kill(federation, "city")
    said, _ = command.communicate(timeout=150)
    federation.start("city")
    assert command.returncode == 0, said
    report = federation.learned_report(study)
    [first] = report["holders_lost"].values()
    assert f"city was lost: from {first} on" in said
    if method == "local":  # where everybody is asked in every round
        assert first == "round-4"
        assert len(federation.journal("lake", study.name)) == len(report["rounds"])
    assert not any("seconds" in one for one in report["rounds"])  # a clock sees the rows of whoever is slow
    # City's noise was seeded too, and a study that finds its answers on disk still knows.
    assert len(federation.learned_tree(study)["training"]["leaks"]) == len(HOLDERS)
    assert len(federation.learn(study).tree["training"]["leaks"]) == len(HOLDERS)
    assert len(federation.journal("city", study.name)) == 4
    assert len(federation.journal("lake", study.name)) > 5


def kill(federation: Federation, name: str) -> None:
    """A whole machine: the process of a kit and that of its job."""
    job = federation.job_of(name)
    os.kill(federation.process_of(name), signal.SIGKILL)
    os.kill(job, signal.SIGKILL)
    until(lambda: federation.process_of(name) is None, 10)


def finish(federation: Federation, study, command) -> None:
    """The study ends with the tree of an undisturbed run, and nobody has paid for anything twice."""
    said, _ = command.communicate(timeout=150)
    assert command.returncode == 0, said
    assert re.search(r"^wave +\d+ +round +\d+ .* spent: lake \d\S*, city \d\S*, hill \d", said, re.MULTILINE)
    assert learned(federation.learned_tree(study)) == learned(federation.reference(study))
    rounds = len(federation.learned_report(study)["rounds"])
    for holder in HOLDERS:
        journal = federation.journal(holder, study.name)
        names = [identifier for identifier, _, _ in journal]
        assert names == [f"round-{i}" for i in range(rounds)]  # each question is charged once
        assert all(answer is not None for _, _, answer in journal)
        assert federation.spent(holder, study.name) <= study.epsilon
