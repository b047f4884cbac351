"""A holder's site behind its policy file, and what the holder sees of it."""

from __future__ import annotations

import os
import re
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest
import study_files
from typer.testing import CliRunner, Result

from hedgerow import Categorical, Schema
from hedgerow.cli import app
from hedgerow.datasets import HOSPITALS_SCHEMA
from hedgerow.errors import HedgerowError, InvalidTable
from hedgerow.holder.clock import AnswerClock
from hedgerow.holder.store import StudyOpen
from hedgerow.messages import Answer, CountRows, CountSplits, Grow, Refusal, Request, from_bytes, to_bytes
from hedgerow.transport.console_log import plain_error
from hedgerow.transport.frames import request_frame
from hedgerow.transport.site import NOT_HERE, OPENING, InvalidPolicy, NoGrant, Site, account


def write_policy(path: Path, grants: dict[str, float], lifetime: float = 2.0) -> None:
    terms = {"methods": ["local"], "quantum": 0}
    granted = {study: {"epsilon": epsilon} | terms for study, epsilon in grants.items()}
    study_files.write_policy(path, granted, lifetime_epsilon=lifetime)
    path.write_text(path.read_text().replace("Infinity", "inf"))  # as TOML has it


def greeting(**others: object) -> dict[str, object]:
    terms = {"schema": HOSPITALS_SCHEMA.hash, "epsilon": "1", "neighbours": "add-remove", "method": "local"}
    terms["least_price"] = "1/10"
    return {"study": "malaria"} | terms | others


def ask(
    site: Site,
    name: str,
    epsilon: Fraction = Fraction(1, 4),
    study: str = "malaria",
    kind=CountRows,
    growth=None,
):
    return from_bytes(site.handle(to_bytes(Request(study, name, growth, kind(np.array([0]), [epsilon])))))


def test_a_site_answers_what_it_has_granted_and_no_more(policy: Path):
    site = Site(policy)
    site.greet(greeting())
    assert all(isinstance(ask(site, f"q{i}"), Answer) for i in range(4))
    assert isinstance(ask(site, "q4"), Refusal)
    assert isinstance(ask(site, "q5", kind=CountSplits), Refusal)
    assert "spent 1." in account(policy, "malaria")


@pytest.mark.parametrize(
    ("others", "why"),
    [
        ({"schema": "0" * 64}, "another schema"),
        ({"neighbours": "replace"}, "neighbours 'replace', granted is 'add-remove'"),
        ({"method": "noisy_counts"}, "'noisy_counts', which is not granted"),
        ({"method": "guessing"}, "'guessing', which is not granted"),
        ({"method": None}, "which is not granted"),
        ({"method": ["local"]}, "which is not granted"),
        ({"epsilon": "11/10"}, "means to spend epsilon 1.1; it is granted 1"),
        ({"epsilon": "inf"}, "means to spend epsilon inf"),
        ({"epsilon": "1e9"}, "positive fraction"),
        ({"epsilon": None}, "positive fraction"),
    ],
)
def test_a_study_that_would_be_refused_later_is_refused_before_it_spends(policy: Path, others, why):
    site = Site(policy)
    with pytest.raises(HedgerowError, match=why):
        site.greet(greeting(**others))
    assert site.greet(greeting(epsilon="1/2"))  # less than is granted will do


def test_a_greeting_counts_what_other_studies_have_left(policy: Path):
    write_policy(policy, {"malaria": 1.5, "dengue": 1.5})
    site = Site(policy)
    assert isinstance(ask(site, "q0", Fraction(3, 2)), Answer)
    assert site.greet(greeting(epsilon="3/2"))  # of that it has spent all itself
    with pytest.raises(HedgerowError, match=r"other studies have left it 0\.5"):
        site.greet(greeting(study="dengue"))
    assert site.greet(greeting(study="dengue", epsilon="1/2"))


def test_another_process_repeats_the_answers_of_the_first(policy: Path):
    first = Site(policy)
    said = ask(first, "q0").values.tolist()
    with pytest.raises(StudyOpen):  # while it is there
        Site(policy).greet(greeting())
    first.close()
    second = Site(policy)
    assert ask(second, "q0").values.tolist() == said
    assert "spent 0.25." in account(policy, "malaria")


def test_a_study_without_a_grant_is_not_told_why(policy: Path, capsys: pytest.CaptureFixture[str]):
    site = Site(policy)
    with pytest.raises(NoGrant):
        site.greet(greeting(study="other"))
    assert ask(site, "q0", study="other").reason == NOT_HERE
    assert "refused 'q0' of study 'other': study 'other' has no grant" in capsys.readouterr().out


def test_a_withdrawn_grant_counts_from_the_next_question_on(policy: Path):
    site = Site(policy)
    assert isinstance(ask(site, "q0"), Answer)
    write_policy(policy, {})
    assert ask(site, "q0").reason == NOT_HERE
    write_policy(policy, {"malaria": 1.0})
    assert isinstance(ask(site, "q1"), Answer)
    assert "spent 0.5." in account(policy, "malaria")


def test_a_changed_grant_of_a_begun_study_is_refused_by_name(policy: Path, capsys):
    site = Site(policy)
    assert isinstance(ask(site, "q0"), Answer)
    write_policy(policy, {"malaria": 1.5})
    refused = ask(site, "q1")
    assert (refused.study, refused.identifier, refused.reason) == ("malaria", "q1", NOT_HERE)
    assert "study 'malaria' was begun with epsilon 1, not 3/2" in capsys.readouterr().out


def test_a_broken_or_deleted_policy_grants_nothing(policy: Path):
    site = Site(policy)
    assert isinstance(ask(site, "q0"), Answer)
    policy.write_text("nonsense")
    assert ask(site, "q1").reason == NOT_HERE
    policy.unlink()
    assert ask(site, "q1").reason == NOT_HERE
    write_policy(policy, {"malaria": 1.0}, lifetime=100.0)  # more than a grant has changed
    assert ask(site, "q1").reason == NOT_HERE


def test_a_data_file_that_is_not_there_is_named(policy: Path):
    (policy.parent / "rows.csv").unlink()
    with pytest.raises(InvalidTable, match=r"rows\.csv cannot be read: No such file"):
        Site(policy)


def test_a_site_without_rows_takes_part_like_any_other(policy: Path):
    """Whoever sees it decline would know that there are none."""
    header = (policy.parent / "rows.csv").read_text().splitlines()[0]
    (policy.parent / "rows.csv").write_text(header + "\n")
    site = Site(policy)
    site.greet(greeting())
    assert ask(site, "q0").values.shape == (1, 1)
    assert "spent 0.25." in account(policy, "malaria")


def test_how_the_rows_fit_the_schema_is_said_on_the_holders_console_only(policy: Path, capsys):
    rows = policy.parent / "rows.csv"
    lines = rows.read_text().splitlines()
    rows.write_text("\n".join([*lines, *lines[1:100] * 4]) + "\n")
    site = Site(policy)
    site.greet(greeting())
    answers = [ask(site, "q0"), ask(site, "q1", kind=CountSplits)]
    site.close()
    console = capsys.readouterr().out
    assert "exact copies of others" in console
    assert "do not publish" in console
    assert not any("copies" in str(vars(answer)) for answer in answers)
    policy.write_text("owner_warnings = false\n" + policy.read_text())
    Site(policy).close()
    assert "copies" not in capsys.readouterr().out


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        ("least_price = 2", "from 0 to 1"),
        ("least_price = 'x'", "must be a number"),
        ("most_releases = 0", "at least 1"),
        ("quantum = -1", "from 0 to 60"),
        ("quantum = true", "must be a number"),
    ],
)
def test_a_wrong_limit_of_a_grant_is_named(policy: Path, line: str, reason: str):
    policy.write_text(policy.read_text().replace("quantum = 0\n", "") + line + "\n")
    with pytest.raises(InvalidPolicy, match=reason):
        Site(policy)


def test_opening_a_study_is_held_back_because_its_rows_are_divided_anew(policy: Path, monkeypatch):
    seen: list[int] = []
    monkeypatch.setattr(AnswerClock, "hold_back", lambda _self, _came, times: seen.append(times))
    site = Site(policy)
    site.greet(greeting())
    site.greet(greeting())  # open already
    ask(site, "a")
    site.close()
    ask(site, "b")  # opened again
    site.close()
    assert seen == [OPENING, 1, OPENING, 1]


def test_a_study_that_plans_cheaper_releases_than_granted_is_declined(policy: Path):
    policy.write_text(policy.read_text() + "least_price = 0.01\n")
    site = Site(policy)
    with pytest.raises(HedgerowError, match=r"none costs less than 0\.01"):
        site.greet(greeting(least_price="1/101"))
    site.greet(greeting(least_price="1/100"))
    assert isinstance(ask(site, "a", epsilon=Fraction(1, 101)), Refusal)
    assert isinstance(ask(site, "b", epsilon=Fraction(1, 100)), Answer)
    site.close()


def test_a_file_with_a_stray_quote_is_refused_and_only_the_holders_console_says_so(site: Path, capsys):
    from hedgerow.transport.site_process import CannotStart, run, show

    show(site)
    (site / "rows.csv").write_text((site / "rows.csv").read_text() + '"Ada Lovelace\n')
    capsys.readouterr()
    with pytest.raises(CannotStart) as error:  # before it has called the coordinator
        run(site)
    why = "row 301 below the first line begins a value with a quote and does not end it"
    assert why in str(error.value)
    console = capsys.readouterr().out
    assert f"this site does not run: {error.value}" in console
    assert "Lovelace" not in console


def test_values_with_line_breaks_are_read_where_the_policy_says_so(policy: Path):
    rows = policy.parent / "rows.csv"
    header, *lines = rows.read_text().splitlines()
    text = [f"{header},note", *(f'{line},"a\nb"' for line in lines)]
    rows.write_text("\n".join(text) + "\n")
    with pytest.raises(InvalidTable, match="row 1 below the first line begins a value with a quote"):
        Site(policy)
    policy.write_text("line_breaks = true\n" + policy.read_text())
    site = Site(policy)
    assert "300 rows" in site.outlook()
    assert "values may have line breaks" in site.policy.explain()
    policy.write_text(policy.read_text().replace("line_breaks = true", 'line_breaks = "yes"'))
    with pytest.raises(InvalidPolicy, match="line_breaks is true or false"):
        Site(policy)


def test_all_studies_together_stay_within_the_lifetime(policy: Path):
    write_policy(policy, {"malaria": 1.5, "dengue": 1.5})
    site = Site(policy)
    assert isinstance(ask(site, "q0", Fraction(3, 2)), Answer)
    assert isinstance(ask(site, "q0", Fraction(3, 4), study="dengue"), Refusal)
    assert isinstance(ask(site, "q1", Fraction(1, 2), study="dengue"), Answer)


def test_a_site_that_ran_out_of_memory_goes_on_from_its_journal(policy: Path, monkeypatch):
    site, growth = Site(policy), Grow(np.array([0]), np.array([0]), 1)

    def full(*_: object) -> None:
        raise MemoryError

    with monkeypatch.context() as patched:
        patched.setattr("hedgerow.holder.counts.GroupedRows.split", full)
        with pytest.raises(MemoryError):
            ask(site, "q0", growth=growth)
        asked = Request("malaria", "q0", growth, CountRows(np.array([0]), [Fraction(1, 4)]))
        assert from_bytes(site.reply(request_frame(to_bytes(asked)))).reason == NOT_HERE
    assert isinstance(ask(site, "q0", growth=growth), Answer)
    assert "spent 0.25." in account(policy, "malaria")


def test_bytes_that_are_no_message_are_refused(policy: Path):
    site = Site(policy)
    for data in (b"", b"\x00", b"\x91" * 1000, to_bytes(Refusal("malaria", "x", "y"))):
        assert isinstance(from_bytes(site.handle(data)), Refusal)


def test_a_foreign_error_is_told_without_its_text():
    try:
        int("a patient's name")
    except ValueError as error:
        said = plain_error(error)
    assert "patient" not in said
    assert said.startswith("ValueError in test_site.py, line ")


# ---- What the holder sees of it -------------------------------------------------------------------------------------


def command(*words: object) -> Result:
    return CliRunner().invoke(app, ["site", *(str(word) for word in words)], catch_exceptions=False)


def written(site: Path) -> dict[Path, bytes]:
    """All that is in a site's folder, but for the note that its policy was shown."""
    paths = [path for path in site.rglob("*") if path.name != "policy.shown"]
    return {path: path.read_bytes() if path.is_file() else b"" for path in paths}


def lose_the_rows(folder: Path) -> None:
    (folder / "rows.csv").unlink()


def change_the_rows(folder: Path) -> None:
    text = (folder / "rows.csv").read_text()
    (folder / "rows.csv").write_text(text + text.splitlines()[-1] + "\n")


def edit_the_grant(folder: Path) -> None:
    write_policy(folder / "hedgerow.toml", {"malaria": 0.5})


def withdraw_the_grant(folder: Path) -> None:
    write_policy(folder / "hedgerow.toml", {})


def misspell_a_grant(folder: Path) -> None:
    with (folder / "hedgerow.toml").open("a") as file:
        file.write('neighbors = "replace"\n')


def change_the_schema(folder: Path) -> None:
    Schema([Categorical("sex", ["f", "m"])], label="malaria", classes=["no", "yes"]).save(
        folder / "schema.toml"
    )


def lose_the_schema(folder: Path) -> None:
    (folder / "schema.toml").unlink()


@pytest.mark.parametrize(
    "change",
    [
        lambda _: None,
        lose_the_rows,
        change_the_rows,
        edit_the_grant,
        withdraw_the_grant,
        misspell_a_grant,
        change_the_schema,
        lose_the_schema,
    ],
)
def test_the_account_is_read_from_the_journal_whatever_has_changed_since(site: Path, change):
    desk = Site(site / "hedgerow.toml")
    for i in range(2):
        assert isinstance(ask(desk, f"q{i}"), Answer)
    change(site)
    before = written(site)
    said = command("ledger", "malaria", site)  # the study is open all the while
    assert said.exit_code == 0, said.stderr
    assert said.stdout.splitlines()[0] == "Granted epsilon 1, spent 0.5."
    assert "number of rows (discrete Laplace), 2 releases, epsilon 0.25" in said.stdout
    assert written(site) == before


def test_looking_at_the_account_makes_nothing(site: Path):
    before = written(site)
    said = command("ledger", "malaria", site)
    assert said.exit_code == 0
    assert f"There is no journal in {site / 'journal'} yet: nothing counts as spent." in said.stdout
    assert written(site) == before
    desk = Site(site / "hedgerow.toml")
    assert isinstance(ask(desk, "q0"), Answer)
    before = written(site)
    said = command("ledger", "dengue", site)
    assert said.exit_code == 0
    assert "Nothing was asked in study 'dengue' yet; in others it was: malaria." in said.stdout
    assert written(site) == before


def test_the_check_says_what_is_left_and_makes_nothing(site: Path):
    before = written(site)
    said = command("check", site)
    assert said.exit_code == 0
    journal = site / "journal"
    assert f"There is no journal in {journal} yet: nothing counts as spent." in said.stdout
    assert "Of epsilon 2 for all studies together, 2 is left." in said.stdout
    assert "WOULD BE DECLINED" not in said.stdout
    assert written(site) == before
    desk = Site(site / "hedgerow.toml")
    assert isinstance(ask(desk, "q0"), Answer)
    said = command("check", site)
    assert said.exit_code == 0
    assert f"Journal: {journal}" in said.stdout
    assert "Study 'malaria' has spent epsilon 0.25 so far." in said.stdout
    assert "Of epsilon 2 for all studies together, 1.75 is left." in said.stdout
    assert "300 rows" in said.stdout
    assert "The journal can be written." in said.stdout
    assert re.search(
        r"The certificate of this site is good until 20\d\d-\d\d-\d\d; it calls localhost\.", said.stdout
    )
    assert "WOULD BE DECLINED" not in said.stdout


def test_the_check_names_the_studies_that_would_be_declined_as_a_greeting_would(site: Path):
    path = site / "hedgerow.toml"
    write_policy(path, {"malaria": 1.5})
    desk = Site(path)
    assert isinstance(ask(desk, "q0", Fraction(1)), Answer)
    desk.close()
    grants = {"malaria": 1.25, "dengue": 1.5, "measles": 1.0}
    write_policy(path, grants)
    said = command("check", site)
    assert said.exit_code == 0
    declined = [line for line in said.stdout.splitlines() if line.startswith("WOULD BE DECLINED: ")]
    assert [line.removeprefix("WOULD BE DECLINED: ") for line in declined] == [
        why_declined(path, "malaria", Fraction(5, 4)),
        why_declined(path, "dengue", Fraction(3, 2)),
    ]
    assert "was begun with epsilon 3/2, not 5/4" in declined[0]
    assert "means to spend epsilon 1.5; it is granted 1.5, and other studies have left it 1." in declined[1]
    assert Site(path).greet(greeting(study="measles", epsilon="1"))


def why_declined(path: Path, study: str, epsilon: Fraction) -> str:
    """What a greeting that asks for so much is told."""
    site = Site(path)
    with pytest.raises(HedgerowError) as error:
        site.greet(greeting(study=study, epsilon=str(epsilon)))
    site.close()
    return str(error.value)


def test_the_check_says_that_the_rows_have_changed(site: Path):
    desk = Site(site / "hedgerow.toml")
    assert isinstance(ask(desk, "q0"), Answer)
    desk.close()
    change_the_rows(site)
    said = command("check", site)
    assert said.exit_code == 0
    assert "WOULD BE DECLINED: study 'malaria' was begun with other rows than now" in said.stdout


def test_a_lifetime_that_was_lowered_has_nothing_left(site: Path):
    path = site / "hedgerow.toml"
    desk = Site(path)
    assert isinstance(ask(desk, "q0", Fraction(1)), Answer)
    desk.close()
    write_policy(path, {"malaria": 1.0}, lifetime=0.5)
    said = command("check", site)
    assert "Of epsilon 0.5 for all studies together, 0 is left." in said.stdout
    assert "WOULD BE DECLINED: study 'malaria' means to spend epsilon 1;" in said.stdout


def test_a_lifetime_without_end_is_said_to_be_one(site: Path):
    write_policy(site / "hedgerow.toml", {"malaria": 1.0}, lifetime=float("inf"))
    said = command("check", site)
    assert said.exit_code == 0
    assert (
        "There is no limit to what all studies together may ever spend (lifetime_epsilon = inf)."
        in said.stdout
    )
    assert "epsilon inf" not in said.stdout
    assert "is left" not in said.stdout


@pytest.mark.parametrize("where", ["rows.csv", "rows.csv/journal", "/proc/journal", "x" * 300])
def test_a_journal_that_cannot_be_kept_is_told_in_one_sentence(site: Path, where: str):
    path = site / "hedgerow.toml"
    path.write_text(path.read_text().replace('journal = "journal"', f'journal = "{where}"'))
    before = written(site)
    said = command("check", site)
    assert said.exit_code == 1
    [sentence] = said.stderr.splitlines()
    assert sentence.startswith(f"no journal can be kept in {path.parent / where} (")
    assert sentence.endswith("let `journal` in hedgerow.toml name a folder that this user may write to.")
    with pytest.raises(InvalidPolicy, match="no journal can be kept"):
        Site(path)
    assert written(site) == before


def test_a_link_to_nowhere_is_no_journal(site: Path):
    (site / "journal").symlink_to(site / "nowhere")
    with pytest.raises(InvalidPolicy, match="no journal can be kept"):
        Site(site / "hedgerow.toml").greet(greeting())


def test_the_journal_is_the_holders_own(site: Path):
    usual = os.umask(0o022)
    try:
        desk = Site(site / "hedgerow.toml")
        assert isinstance(ask(desk, "q0"), Answer)
    finally:
        os.umask(usual)
    journal = site / "journal"
    assert journal.stat().st_mode & 0o777 == 0o700
    assert {path.stat().st_mode & 0o777 for path in journal.iterdir()} == {0o600}


def test_a_journal_that_vanishes_while_the_site_is_up_is_not_begun_anew(policy: Path):
    write_policy(policy, {"malaria": 1.0, "other": 1.0})
    site = Site(policy)
    assert isinstance(ask(site, "q0"), Answer)
    (site.policy.journal / "studies.db").unlink()
    assert isinstance(ask(site, "q0", study="other"), Refusal)
    assert isinstance(ask(Site(policy), "q0", study="other"), Refusal)  # nor by the next process


def test_an_older_journal_that_was_put_back_is_declined_and_the_check_says_so(site: Path):
    path = site / "hedgerow.toml"
    store = site / "journal" / "studies.db"
    for name in ("q0", "q1"):
        desk = Site(path)
        assert isinstance(ask(desk, name), Answer)
        desk.close()
        if name == "q0":
            older = store.read_bytes()
    store.write_bytes(older)
    with pytest.raises(HedgerowError, match="is older than its counter"):
        Site(path).greet(greeting())
    before = written(site)
    said = command("check", site)
    assert said.exit_code == 0
    assert "EVERY STUDY WOULD BE DECLINED: the journal" in said.stdout
    assert "Put the newest journal back." in said.stdout
    assert "Granted epsilon 1, spent 0.25." in command("ledger", "malaria", site).stdout
    assert written(site) == before


def test_a_counter_that_is_missing_is_told_on_the_console_once(policy: Path, capsys):
    policy.write_text('counter = "counted"\n' + policy.read_text())
    for name in ("q0", "q1", "q2"):
        site = Site(policy)
        assert isinstance(ask(site, name), Answer)
        site.close()
        said = capsys.readouterr().out
        assert ("hedgerow: There is no counter" in said) == (name == "q1")
        assert f"Counter of what was spent: {policy.parent / 'counted'}" in site.policy.explain()
        [counter] = (policy.parent / "counted").glob("*.json")
        if name == "q0":
            counter.unlink()


def test_a_counter_that_cannot_be_kept_is_told_before_a_study_begins(site: Path):
    path = site / "hedgerow.toml"
    path.write_text('counter = "rows.csv"\n' + path.read_text())
    said = command("check", site)
    assert said.exit_code == 1
    [sentence] = said.stderr.splitlines()
    assert sentence.startswith("what was spent cannot be counted a second time in")
    path.write_text(path.read_text().replace('counter = "rows.csv"', "counter = 3"))
    assert "say counter, the folder of the counter, or leave it out." in command("check", site).stderr


def test_a_journal_that_others_may_write_is_declined(site: Path):
    path = site / "hedgerow.toml"
    (site / "journal").mkdir()
    (site / "journal").chmod(0o777)
    with pytest.raises(HedgerowError, match="may be written by other users"):
        Site(path).greet(greeting())
