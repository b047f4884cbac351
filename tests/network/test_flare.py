"""Trees over FLARE: the same as in one process, whatever is killed on the way."""

from __future__ import annotations

import os
import signal

import pytest

from .conftest import HOLDERS, Federation, until

pytestmark = pytest.mark.network


@pytest.mark.parametrize("method", ["local", "noisy_columns", "noisy_counts", "auto"])
def test_the_tree_over_flare_is_the_tree_in_process(federation: Federation, method: str):
    study = federation.new_study(f"equal-{method}", method=method)
    outcome = federation.learn(study)
    assert outcome.tree == federation.reference(study)
    assert set(outcome.report["spent"]) == set(HOLDERS)
    for holder in HOLDERS:
        assert federation.spent(holder, study.name) == pytest.approx(
            float(outcome.report["spent"][holder]), rel=1e-5
        )
        assert federation.spent(holder, study.name) <= study.epsilon


@pytest.mark.parametrize("method", ["select", "paper"])
def test_one_holder_over_flare_learns_the_tree_of_one_process(federation: Federation, method: str):
    study = federation.new_study(f"equal-{method}", method=method, holders=HOLDERS[:1])
    assert federation.learn(study).tree == federation.reference(study)


def test_a_killed_job_process_of_a_site_costs_nothing_and_changes_nothing(federation: Federation):
    study = federation.new_study("kill-job")
    command = federation.learn_beside(study)
    job = federation.freeze("city", study.name, after=4)
    os.kill(job, signal.SIGKILL)
    finish(federation, study, command)


def test_a_killed_site_costs_nothing_and_changes_nothing(federation: Federation):
    study = federation.new_study("kill-site")
    command = federation.learn_beside(study)
    job = federation.freeze("city", study.name, after=4)
    os.kill(federation.process_of("city"), signal.SIGKILL)
    os.kill(job, signal.SIGKILL)
    until(lambda: federation.process_of("city") is None, 10)
    federation.start("city")
    finish(federation, study, command)


def test_a_killed_coordinator_costs_nothing_and_changes_nothing(federation: Federation):
    study = federation.new_study("kill-coordinator")
    command = federation.learn_beside(study)
    frozen = federation.freeze("city", study.name, after=4)
    os.kill(federation.job_of("server"), signal.SIGKILL)
    os.kill(frozen, signal.SIGCONT)
    finish(federation, study, command)


def test_a_killed_server_costs_nothing_and_changes_nothing(federation: Federation):
    study = federation.new_study("kill-server")
    command = federation.learn_beside(study)
    frozen = federation.freeze("city", study.name, after=4)
    job = federation.job_of("server")
    os.kill(federation.process_of("server"), signal.SIGKILL)
    os.kill(job, signal.SIGKILL)
    os.kill(frozen, signal.SIGCONT)
    until(lambda: federation.process_of("server") is None, 10)
    federation.start("server")
    finish(federation, study, command)


def test_a_killed_console_costs_nothing_and_changes_nothing(federation: Federation):
    study = federation.new_study("kill-console")
    command = federation.learn_beside(study)
    frozen = federation.freeze("city", study.name, after=4)
    os.kill(command.pid, signal.SIGKILL)
    command.communicate()
    os.kill(frozen, signal.SIGCONT)  # the job goes on without anybody who watches
    finish(federation, study, federation.learn_beside(study, "resume"))


def test_ctrl_c_leaves_a_study_that_can_be_resumed(federation: Federation):
    study = federation.new_study("interrupted")
    command = federation.learn_beside(study)
    frozen = federation.freeze("city", study.name, after=4)
    os.kill(command.pid, signal.SIGINT)
    os.kill(frozen, signal.SIGCONT)
    said, _ = command.communicate(timeout=60)
    assert command.returncode == 130, said
    assert "hedgerow network resume" in said
    finish(federation, study, federation.learn_beside(study, "resume"))


def finish(federation: Federation, study, command) -> None:
    """The study ends with the tree of an undisturbed run, and nobody has paid for anything twice."""
    said, _ = command.communicate(timeout=150)
    assert command.returncode == 0, said
    assert federation.learned_tree(study) == federation.reference(study)
    for holder in HOLDERS:
        journal = federation.journal(holder, study.name)
        names = [identifier for identifier, _, _ in journal]
        assert names == [f"round-{i}" for i in range(len(names))]  # each question is charged once
        assert all(answer is not None for _, _, answer in journal)
        assert federation.spent(holder, study.name) <= study.epsilon


def test_a_study_may_go_on_without_a_lost_holder(federation: Federation):
    study = federation.new_study("continued", when_a_holder_is_lost="continue", answer_seconds=15.0)
    command = federation.learn_beside(study)
    job = federation.freeze("city", study.name, after=4)
    os.kill(federation.process_of("city"), signal.SIGKILL)
    os.kill(job, signal.SIGKILL)
    said, _ = command.communicate(timeout=150)
    federation.start("city")
    assert command.returncode == 0, said
    report = federation.learned_report(study)
    [(lost, since)] = report["holders_lost"].items()
    assert lost == "city"
    assert "city was lost" in said
    asked = len(federation.journal("city", study.name))
    assert since in {f"round-{asked - 1}", f"round-{asked}"}
    assert len(federation.journal("lake", study.name)) == len(report["rounds"]) > asked
