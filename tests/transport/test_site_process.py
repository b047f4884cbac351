"""What a site's process starts with: a policy that its owner has seen, and a folder of its own."""

from __future__ import annotations

import os
import signal
import threading
import time
from pathlib import Path

import pytest
from study_files import admit, provisioned, write_policy
from typer.testing import CliRunner

from hedgerow import Categorical, Schema
from hedgerow.cli import app
from hedgerow.errors import HedgerowError, InvalidStore
from hedgerow.holder.clock import AnswerClock

pytest.importorskip("cryptography", reason="sites need hedgerow[network]")

from hedgerow.transport import site_process
from hedgerow.transport.site import InvalidPolicy, Site
from hedgerow.transport.site_process import (
    CannotStart,
    RunsAlready,
    check_shown,
    run,
    show,
    start,
    status,
    stop,
)

CHANGED = "hedgerow.toml or its schema has changed since it was last shown; read what it allows: hedgerow site check"
GRANT = {"epsilon": 1.0, "methods": ["local"], "quantum": 0}


def grant(site: Path, study: str = "malaria", **changes: object) -> None:
    write_policy(site / "hedgerow.toml", {study: GRANT | changes}, lifetime_epsilon=2.0)


# ---- A policy that its owner has seen --------------------------------------------------------------------------------


def test_a_policy_is_refused_until_it_was_shown(site: Path):
    for begin in (check_shown, start):
        with pytest.raises(InvalidPolicy) as error:
            begin(site, seeded=False)
        assert str(error.value) == CHANGED
    show(site)
    check_shown(site, seeded=False)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("epsilon = 1.0", "epsilon = 1.5"),
        ("lifetime_epsilon = 2.0", "lifetime_epsilon = 3.0"),
        ('"journal"', '"elsewhere"'),
        ('data = "rows.csv"', 'data = "others.csv"'),
        ("quantum = 0", "quantum = 1"),
        ('["local"]', '["local", "turns"]'),
        ("quantum = 0", "quantum = 0\nnoise_seed = 5"),
        ("quantum = 0", 'quantum = 0\n[[grants]]\nstudy = "dengue"\nepsilon = 0.1'),
        ("lifetime_epsilon", 'counter = "here"\nlifetime_epsilon'),
    ],
)
def test_a_policy_that_has_changed_since_it_was_shown_is_refused(site: Path, old: str, new: str):
    show(site)
    policy = site / "hedgerow.toml"
    shown = policy.read_text()
    assert old in shown
    policy.write_text(shown.replace(old, new, 1))
    with pytest.raises(InvalidPolicy) as error:
        check_shown(site, seeded=True)
    assert str(error.value) == CHANGED
    policy.write_text("# a remark allows nothing\n" + shown)
    check_shown(site, seeded=False)


def test_a_schema_that_has_changed_since_it_was_shown_is_refused(site: Path):
    show(site)
    Schema([Categorical("sex", ["f", "m"])], label="malaria", classes=["no", "yes"]).save(
        site / "schema.toml"
    )
    with pytest.raises(InvalidPolicy) as error:
        check_shown(site, seeded=False)
    assert str(error.value) == CHANGED


def test_a_policy_was_shown_from_wherever_its_folder_is_named(site: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.chdir(site)
    show(Path())
    (site.parent / "link").symlink_to(site)
    for name in (Path(), site, Path("../site"), site.parent / "link"):
        check_shown(name, seeded=False)


def test_the_note_that_a_policy_was_shown_is_its_owners_alone(site: Path):
    usual = os.umask(0)
    try:
        show(site)
    finally:
        os.umask(usual)
    note = site / "policy.shown"
    assert note.stat().st_mode & 0o777 == 0o600
    check_shown(site, seeded=False)
    note.chmod(0o666)
    with pytest.raises(InvalidStore, match="may be written by other users"):
        check_shown(site, seeded=False)
    note.rename(site / "elsewhere")
    note.symlink_to("elsewhere")
    with pytest.raises(InvalidStore, match="is a link"):
        check_shown(site, seeded=False)


def test_a_policy_that_others_may_write_is_refused(site: Path):
    show(site)
    (site / "hedgerow.toml").chmod(0o666)
    with pytest.raises(InvalidStore, match=r"hedgerow\.toml may be written by other users"):
        check_shown(site, seeded=False)


def test_what_cannot_be_read_counts_as_not_shown(site: Path):
    (site / "rows.csv").unlink()
    with pytest.raises(HedgerowError, match=r"rows\.csv cannot be read"):
        show(site)
    assert not (site / "policy.shown").exists()


def test_seeded_noise_must_be_asked_for_at_the_start(site: Path):
    grant(site, noise_seed=5)
    assert "NOT PRIVATE" in show(site)
    for begin in (check_shown, start):
        with pytest.raises(InvalidPolicy) as error:
            begin(site, seeded=False)
        assert str(error.value) == (
            "the noise for malaria is seeded and protects nobody; take noise_seed out of hedgerow.toml, "
            "or say --seeded if this is a test."
        )
    check_shown(site, seeded=True)


# ---- What the coordinator proposes -----------------------------------------------------------------------------------


def proposal_in(text: str) -> str:
    [line] = [line for line in text.splitlines() if line.startswith("The coordinator proposes")]
    return line


def test_the_proposal_is_shown_beside_what_is_granted(site: Path):
    asked = (
        "The coordinator proposes study 'malaria': epsilon 1 from each of 3 holders (lake, city, hill), neighbours "
        "add-remove, method local, at most 512 splits. "
    )
    assert proposal_in(show(site)) == asked + "It is granted that."
    grant(site, epsilon=1.5)
    assert proposal_in(show(site)) == asked + "It is granted that."
    grant(site, epsilon=0.5)
    assert proposal_in(show(site)) == asked + "IT IS GRANTED LESS, so it would be declined."
    not_so = asked + "ITS NEIGHBOURS OR ITS METHOD ARE NOT GRANTED, so it would be declined."
    grant(site, methods=["turns"])
    assert proposal_in(show(site)) == not_so
    grant(site, neighbours="replace")
    assert proposal_in(show(site)) == not_so
    grant(site, study="dengue")
    assert proposal_in(show(site)) == asked + "It is granted nothing."


def test_a_proposal_with_another_schema_is_shown_as_one(policy: Path, tmp_path: Path):
    schema = Schema([Categorical("sex", ["f", "m"])], label="malaria", classes=["no", "yes"])
    admit(policy.parent, provisioned(tmp_path / "coordinator", schema=schema))
    assert proposal_in(show(policy.parent)).endswith(
        "ITS SCHEMA IS ANOTHER THAN THIS SITE'S, so it would be declined."
    )


@pytest.mark.parametrize(("budget", "method"), [("auto", "turns"), ("decay", "local")])
def test_a_proposal_that_leaves_its_method_open_is_taken_for_what_it_will_ask(
    policy: Path, tmp_path: Path, budget: str, method: str
):
    admit(policy.parent, provisioned(tmp_path / "coordinator", method="auto", budget=budget))
    for granted in ("turns", "local"):
        grant(policy.parent, methods=[granted])
        assert proposal_in(show(policy.parent)).endswith("It is granted that.") == (granted == method)


# ---- One process a folder --------------------------------------------------------------------------------------------


def test_a_folder_is_served_by_one_process_at_a_time(tmp_path: Path):
    assert status(tmp_path) is None
    with site_process._locked(tmp_path):
        assert status(tmp_path) == os.getpid()
        with (
            pytest.raises(RunsAlready, match=f"{tmp_path.name} runs already"),
            site_process._locked(tmp_path),
        ):
            pytest.fail("two at once")
        assert status(tmp_path) == os.getpid()
    assert status(tmp_path) is None
    with site_process._locked(tmp_path):  # and the next one afterwards
        assert status(tmp_path) == os.getpid()
    assert (tmp_path / "site.lock").stat().st_mode & 0o777 == 0o600


def test_a_shorter_number_takes_the_place_of_a_longer_one(tmp_path: Path):
    (tmp_path / "site.lock").write_text("1" * 30)
    with site_process._locked(tmp_path):
        assert status(tmp_path) == os.getpid()


def test_whoever_asks_for_the_status_is_in_nobodys_way(tmp_path: Path):
    with site_process._locked(tmp_path):
        pass
    ended = threading.Event()

    def ask() -> None:
        while not ended.is_set():
            status(tmp_path)

    asking = [threading.Thread(target=ask) for _ in range(2)]
    for thread in asking:
        thread.start()
    try:
        for _ in range(50):
            with site_process._locked(tmp_path):
                pass
    finally:
        ended.set()
        for thread in asking:
            thread.join()


def test_a_site_that_runs_is_not_started_again(site: Path, capsys: pytest.CaptureFixture[str]):
    show(site)
    with site_process._locked(site):
        with pytest.raises(RunsAlready, match=f"site runs already, as process {os.getpid()}"):
            start(site)
        with pytest.raises(CannotStart, match="site runs already"):
            run(site)
    assert "this site does not run: site runs already." in capsys.readouterr().out


def test_where_no_process_is_there_is_none_to_stop(tmp_path: Path):
    assert status(tmp_path) is None
    assert not stop(tmp_path)
    (tmp_path / "site.lock").write_text("1")  # of one that was killed
    assert status(tmp_path) is None
    assert not stop(tmp_path)
    assert status(tmp_path / "none") is None


def test_a_process_that_has_stopped_is_not_killed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """Its number may be another's by then."""
    running, sent = [4711, 4711, None], []
    monkeypatch.setattr(site_process, "status", lambda _: running.pop(0) if len(running) > 1 else running[0])
    monkeypatch.setattr(os, "kill", lambda process, kind: sent.append((process, kind)))
    assert stop(tmp_path)
    assert sent == [(4711, signal.SIGTERM)]


def test_a_process_that_does_not_stop_is_killed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    sent: list[int] = []
    monkeypatch.setattr(site_process, "status", lambda _: None if signal.SIGKILL in sent else 4711)
    monkeypatch.setattr(os, "kill", lambda _, kind: sent.append(kind))
    began = time.monotonic()
    assert stop(tmp_path, seconds=0.1)
    assert sent == [signal.SIGTERM, signal.SIGKILL]
    assert time.monotonic() - began < 5


@pytest.mark.parametrize("name", ["site.lock", "console.log"])
def test_a_link_in_a_sites_folder_is_not_written_through(site: Path, name: str):
    show(site)
    (site / "patients.csv").write_text("age\n80\n")
    (site / name).symlink_to("patients.csv")
    with pytest.raises(HedgerowError, match=f"{name} is a link"):
        run(site) if name == "site.lock" else start(site)
    assert (site / "patients.csv").read_text() == "age\n80\n"


def test_a_folder_that_others_may_write_is_no_site(site: Path, capsys: pytest.CaptureFixture[str]):
    show(site)
    site.chmod(0o777)
    with pytest.raises(HedgerowError, match="may be written by other users"):
        run(site)
    assert "this site does not run: " in capsys.readouterr().out


# ---- The commands ----------------------------------------------------------------------------------------------------


def test_stop_and_status_say_that_nothing_runs(site: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.chdir(site)  # the folder need not be named
    for word, said, code in (("status", "not running\n", 1), ("stop", "it was not running\n", 0)):
        result = CliRunner().invoke(app, ["site", word], catch_exceptions=False)
        assert (result.stdout, result.exit_code) == (said, code)
    with site_process._locked(site):
        result = CliRunner().invoke(app, ["site", "status"], catch_exceptions=False)
        assert (result.stdout, result.exit_code) == (f"running as process {os.getpid()}\n", 0)
        CliRunner().invoke(app, ["site", "check"], catch_exceptions=False)
        result = CliRunner().invoke(app, ["site", "start"], catch_exceptions=False)
        assert (result.stderr, result.exit_code) == (
            f"site runs already, as process {os.getpid()}.\n",
            1,
        )


def test_the_first_call_is_held_back_because_reading_takes_as_long_as_there_are_rows(
    site: Path, monkeypatch: pytest.MonkeyPatch
):
    from hedgerow.transport import site as module

    held: list[tuple[float, float, int]] = []

    class Clock(AnswerClock):
        def hold_back(self, came: float, times: int = 1) -> None:
            held.append((self.quantum, came, times))

    monkeypatch.setattr(module, "AnswerClock", Clock)
    path = site / "hedgerow.toml"
    path.write_text(path.read_text().replace("quantum = 0", "quantum = 0.25"))
    Site(path).hold_back(17.0)
    assert held == [(0.25, 17.0, module.OPENING)]


def test_a_site_is_held_back_before_it_calls(site: Path, monkeypatch: pytest.MonkeyPatch):
    done: list[str] = []

    class Caller:
        def __init__(self, *_: object) -> None:
            pass

        def run(self) -> None:
            done.append("called")

        def stop(self) -> None:
            pass

    monkeypatch.setattr("hedgerow.transport.grpc_site.Caller", Caller)
    monkeypatch.setattr(Site, "hold_back", lambda *_: done.append("held back"))
    site_process.show(site)
    before = {kind: signal.getsignal(kind) for kind in (signal.SIGTERM, signal.SIGINT)}
    try:
        site_process.run(site)
    finally:
        for kind, handler in before.items():
            signal.signal(kind, handler)
    assert done == ["held back", "called"]
