"""How a study and its sites are set up, command by command, and what the commands say to likely mistakes."""

from __future__ import annotations

import shutil
import stat
import sys
from fractions import Fraction
from pathlib import Path

import pytest
from study_files import admit, invitation_of, provisioned, write_csv
from typer.testing import CliRunner, Result

from hedgerow.cli import app
from hedgerow.datasets import HOSPITALS_SCHEMA, synthetic_hospitals
from hedgerow.errors import HedgerowError

pytest.importorskip("cryptography", reason="keys need hedgerow[network]")
pytest.importorskip("grpc", reason="a coordinator needs hedgerow[network]")

from hedgerow.transport import coordinator, site_setup
from hedgerow.transport.keys import SiteKeys
from hedgerow.transport.learning import planned_method
from hedgerow.transport.site import InvalidPolicy, Policy
from hedgerow.transport.site_process import check_shown
from hedgerow.transport.study import Study, write_study


def hedgerow(*words: object, stdin: str | None = None) -> Result:
    """A command; an exception that is no sentence fails the test."""
    return CliRunner().invoke(app, [str(word) for word in words], input=stdin, catch_exceptions=False)


def done(*words: object, stdin: str | None = None) -> str:
    result = hedgerow(*words, stdin=stdin)
    assert result.exit_code == 0, result.stderr
    return result.stdout


def sentence(*words: object) -> str:
    """What a command says that was a mistake."""
    result = hedgerow(*words)
    assert result.exit_code == 1
    assert "Traceback" not in result.output
    [line] = result.stderr.splitlines()
    return line


@pytest.fixture
def rows(tmp_path: Path) -> Path:
    [(table, labels)] = synthetic_hospitals(1, rows=300).holders
    path = tmp_path / "rows.csv"
    write_csv(path, HOSPITALS_SCHEMA.names, HOSPITALS_SCHEMA.label, table, labels)
    return path


@pytest.fixture
def enrolled(tmp_path: Path, study_file: Path) -> Path:
    """The folder of a site with keys and a proposal, and without a policy."""
    admit(tmp_path / "site", study_file)
    return tmp_path / "site"


# ---- From nothing to a site that may start ---------------------------------------------------------------------------


def test_a_site_is_set_up_by_four_commands(tmp_path: Path, rows: Path, monkeypatch: pytest.MonkeyPatch):
    study = Study("malaria", HOSPITALS_SCHEMA, 1.0, ("lake", "city"), "example.org")
    (tmp_path / "coordinator-s").mkdir()
    study_file = tmp_path / "coordinator-s" / "study.toml"
    write_study(study, study_file)
    said = done("network", "provision", study_file)
    [fingerprint] = [line.rpartition(": ")[2] for line in said.splitlines() if "fingerprint" in line]
    # What is sent to the holders holds nothing secret.
    sent = sorted(path.name for path in invitation_of(study_file).iterdir())
    assert sent == ["coordinator.crt", "schema.toml", "study.toml"]
    assert not any(b"PRIVATE" in path.read_bytes() for path in invitation_of(study_file).iterdir())

    site = tmp_path / "holder-s"
    site.mkdir(mode=0o700)
    monkeypatch.chdir(site)
    said = done("site", "enroll", invitation_of(study_file), "--name", "lake")
    assert f"and nobody else: {fingerprint}\n" in said
    assert "Send the coordinator keys/site.csr;" in said
    said = done("network", "sign", study_file, site / "keys" / "site.csr")
    assert f"lake is admitted; send it {site / 'keys' / 'lake.crt'}." in said
    assert "The certificate is good until 20" in done("site", "install", "keys/lake.crt")
    done("site", "init", "--data", rows, "--lifetime", 2, "--epsilon", 1)
    said = done("site", "check")
    assert "Study 'malaria' may spend epsilon 1 (neighbours: add-remove), asking by the methods turns" in said
    assert "It is granted that." in said
    assert "it calls example.org." in said
    assert "WOULD BE DECLINED" not in said
    check_shown(site, seeded=False)
    assert SiteKeys.load(site / "keys").holder == "lake"


def test_a_sites_files_are_its_owners_alone(enrolled: Path, rows: Path):
    done("site", "init", enrolled, "--data", rows, "--lifetime", 2, "--epsilon", 1)
    done("site", "check", enrolled)
    for folder in (enrolled, enrolled / "keys", enrolled / "proposal"):
        assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    for name in ("hedgerow.toml", "policy.shown", "keys/site.key"):
        assert stat.S_IMODE((enrolled / name).stat().st_mode) == 0o600


def test_the_policy_is_asked_for_where_no_flag_says_it(enrolled: Path, rows: Path):
    said = done("site", "init", enrolled, stdin=f"{rows}\n2\n0.5\n")
    assert "The file of the rows: " in said
    assert "What may all studies together ever spend on these rows (epsilon): " in said
    assert "What may the proposed study spend of it (0: nothing yet): " in said
    policy = Policy.load(enrolled / "hedgerow.toml")
    assert policy.data == rows
    assert (policy.lifetime, policy.grants["malaria"].terms.epsilon) == (2, Fraction(1, 2))


@pytest.mark.parametrize("how", ["flags", "prompts"])
def test_a_policy_may_grant_nothing_yet(enrolled: Path, rows: Path, how: str):
    if how == "flags":
        done("site", "init", enrolled, "--data", rows, "--lifetime", 2, "--epsilon", 0)
    else:
        done("site", "init", enrolled, stdin=f"{rows}\n2\n0\n")
    assert Policy.load(enrolled / "hedgerow.toml").grants == {}
    assert "No study is granted anything" in done("site", "check", enrolled)


def test_a_prompt_is_asked_again_until_it_is_answered_with_a_number(enrolled: Path, rows: Path):
    said = done("site", "init", enrolled, stdin=f"{rows}\nmuch\n2\n1\n")
    assert said.count("What may all studies together") == 2
    result = hedgerow("site", "init", enrolled, "--overwrite", "--data", rows, stdin="2\n")
    assert result.exit_code == 1  # the other party hung up
    assert Policy.load(enrolled / "hedgerow.toml").lifetime == 2


@pytest.mark.parametrize(
    ("wishes", "method"),
    [
        ({"method": "auto"}, "turns"),
        ({"method": "auto", "budget": "decay"}, "local"),
        ({"method": "auto", "holders": ("lake",)}, "select"),
        ({"method": "paper", "holders": ("lake",)}, "select"),
        ({"method": "noisy_columns"}, "noisy_columns"),
    ],
)
def test_the_grant_is_for_the_method_that_the_study_will_ask_by(
    tmp_path: Path, rows: Path, wishes: dict, method: str
):
    study_file = provisioned(tmp_path / "coordinator", neighbours="replace", max_rows=1000, **wishes)
    assert planned_method(Study.load(study_file)) == method
    admit(tmp_path / "site", study_file)
    path = site_setup.init(tmp_path / "site", rows, 2.0, 1.0, counter=tmp_path / "counter")
    policy = Policy.load(path)
    assert policy.grants["malaria"].terms.methods == (method,)
    assert policy.grants["malaria"].terms.neighbours == "replace"
    assert (policy.max_rows, policy.counter) == (1000, tmp_path / "counter")
    assert "It is granted that." in done("site", "check", tmp_path / "site")


@pytest.mark.parametrize("name", ["città 😀.csv", 'a "quoted" \\ name.csv', "tab\tname.csv"])
def test_rows_may_be_in_a_file_of_any_name(enrolled: Path, rows: Path, name: str):
    rows.rename(rows.with_name(name))
    done("site", "init", enrolled, "--data", rows.with_name(name), "--lifetime", 2, "--epsilon", 1)
    assert Policy.load(enrolled / "hedgerow.toml").data == rows.with_name(name)
    done("site", "check", enrolled)


# ---- What is there already -------------------------------------------------------------------------------------------


def test_a_policy_that_is_there_is_not_written_over_unasked(enrolled: Path, rows: Path):
    flags = ("--data", rows, "--lifetime", 2, "--epsilon")
    done("site", "init", enrolled, *flags, 1)
    before = (enrolled / "hedgerow.toml").read_bytes()
    assert sentence("site", "init", enrolled, *flags, 2) == (
        f"there is a policy already: {enrolled / 'hedgerow.toml'}; edit it, or say --overwrite."
    )
    assert (enrolled / "hedgerow.toml").read_bytes() == before
    done("site", "init", enrolled, *flags, 2, "--overwrite")
    assert Policy.load(enrolled / "hedgerow.toml").grants["malaria"].terms.epsilon == 2


@pytest.mark.parametrize(
    ("lifetime", "epsilon", "told"),
    [
        (2, -1, "epsilon of malaria = -1.0; it must be a positive number."),
        (2, "inf", "epsilon of malaria is infinite: over a network there is always noise."),
        (2, "nan", "epsilon of malaria = nan; it must be a positive number."),
        (0, 1, "lifetime_epsilon = 0.0; it must be a positive number."),
        ("nan", 1, "lifetime_epsilon = nan; it must be a positive number."),
    ],
)
def test_a_policy_that_cannot_be_meant_is_not_written(
    enrolled: Path, rows: Path, lifetime: object, epsilon: object, told: str
):
    flags = ("--data", rows, "--lifetime", lifetime, "--epsilon", epsilon)
    assert sentence("site", "init", enrolled, *flags) == told
    assert not (enrolled / "hedgerow.toml").exists()
    assert not (enrolled / "schema.toml").exists()
    (enrolled / "hedgerow.toml").write_text("# mine\n")
    assert sentence("site", "init", enrolled, *flags, "--overwrite") == told
    assert (enrolled / "hedgerow.toml").read_text() == "# mine\n"


def test_provisioning_again_keeps_the_keys_and_renews_the_invitation(tmp_path: Path):
    study_file = provisioned(tmp_path)
    keys = {path: path.read_bytes() for path in (tmp_path / "coordinator").rglob("*") if path.is_file()}
    shutil.rmtree(invitation_of(study_file))
    said = done("network", "provision", study_file)
    assert {path: path.read_bytes() for path in keys} == keys
    assert (invitation_of(study_file) / "coordinator.crt").is_file()
    assert done("network", "provision", study_file) == said
    assert done("network", "provision", study_file, "--renew") != said


def test_a_new_certificate_of_the_coordinator_is_pinned_only_when_the_holder_says_so(tmp_path: Path):
    study_file, site = provisioned(tmp_path / "coordinator"), tmp_path / "site"
    admit(site, study_file)
    pinned = (site / "keys" / "coordinator.crt").read_bytes()
    coordinator.renew(study_file)
    words = ("site", "enroll", invitation_of(study_file), "--name", "lake", "--site", site)
    assert sentence(*words).startswith("another certificate is pinned: ")
    assert (site / "keys" / "coordinator.crt").read_bytes() == pinned
    done(*words, "--replace")
    assert (site / "keys" / "coordinator.crt").read_bytes() != pinned
    assert SiteKeys.load(site / "keys").holder == "lake"  # its own certificate is as good as before


# ---- Likely mistakes -------------------------------------------------------------------------------------------------


def test_a_folder_that_is_no_invitation_is_named_and_nothing_is_made(tmp_path: Path, study_file: Path):
    site = tmp_path / "site"
    enroll = ("--name", "lake", "--site", site)
    told = "is no invitation: there is no {} in it; name the folder that the coordinator has sent."
    for wrong, missing in (
        (tmp_path / "none", "study.toml"),
        (tmp_path, "study.toml"),
        (study_file, "study.toml"),
        (study_file.parent, "coordinator.crt"),
    ):
        assert sentence("site", "enroll", wrong, *enroll) == f"{wrong} {told.format(missing)}"
    assert not site.exists()


def test_a_holder_that_the_study_does_not_have_is_not_enrolled(tmp_path: Path, study_file: Path):
    words = ("site", "enroll", invitation_of(study_file), "--name", "Lake", "--site", tmp_path / "site")
    assert sentence(*words) == "study 'malaria' has no holder 'Lake'; it has lake, city, hill."
    assert not (tmp_path / "site").exists()


def test_a_request_of_another_study_is_not_signed(tmp_path: Path, study_file: Path):
    other = provisioned(tmp_path / "other", name="dengue")
    request, _ = site_setup.enroll(tmp_path / "site", invitation_of(other), "lake")
    assert sentence("network", "sign", study_file, request).startswith(
        "the request is for the study 'dengue'"
    )
    assert not request.with_name("lake.crt").exists()


def test_a_request_of_a_holder_that_the_study_does_not_have_is_not_signed(tmp_path: Path, study_file: Path):
    other = provisioned(tmp_path / "other", holders=("lake", "moon"))
    request, _ = site_setup.enroll(tmp_path / "site", invitation_of(other), "moon")
    assert sentence("network", "sign", study_file, request).startswith("the request is from 'moon'")


def test_a_second_key_of_a_holder_is_signed_only_when_asked_for(tmp_path: Path):
    study_file = provisioned(tmp_path / "coordinator")
    for name in ("first", "second"):
        site_setup.enroll(tmp_path / name, invitation_of(study_file), "lake")
    done("network", "sign", study_file, tmp_path / "first" / "keys" / "site.csr")
    words = ("network", "sign", study_file, tmp_path / "second" / "keys" / "site.csr")
    assert sentence(*words).startswith("lake has a certificate that is still good, for another key.")
    done(*words, "--renew")
    assert "lake is not admitted any more (1 certificates)." in done("network", "revoke", study_file, "lake")


@pytest.mark.parametrize("word", ["sign", "revoke", "learn", "resume", "provision"])
def test_a_coordinator_without_keys_is_told_how_to_make_them(tmp_path: Path, word: str):
    write_study(
        Study("malaria", HOSPITALS_SCHEMA, 1.0, ("lake", "city"), "localhost"), tmp_path / "study.toml"
    )
    (tmp_path / "site.csr").write_text("x")
    more = {"sign": [tmp_path / "site.csr"], "revoke": ["lake"], "provision": ["--renew"]}.get(word, [])
    assert sentence("network", word, tmp_path / "study.toml", *more) == (
        f"there are no keys in {tmp_path / 'coordinator' / 'keys'}; make them with hedgerow network provision."
    )


@pytest.mark.parametrize("word", ["provision", "learn", "resume"])
def test_a_study_that_is_not_there_is_named(tmp_path: Path, word: str):
    assert sentence("network", word, tmp_path / "none.toml") == f"there is no file {tmp_path / 'none.toml'}."
    assert sentence("network", word, tmp_path) == f"{tmp_path} cannot be read: Is a directory."


def test_a_request_or_certificate_that_is_not_there_is_named(
    tmp_path: Path, study_file: Path, enrolled: Path
):
    none = tmp_path / "none.pem"
    told = f"there is no {none}; check how it is written, or make it first."
    assert sentence("network", "sign", study_file, none) == told
    assert sentence("site", "install", none, "--site", enrolled) == told


def test_a_file_that_is_no_request_or_certificate_is_refused(
    tmp_path: Path, study_file: Path, enrolled: Path, rows: Path
):
    (tmp_path / "short.csv").write_text("age\n80\n")
    for wrong in (rows, tmp_path / "short.csv", enrolled / "keys" / "site.key"):
        for words in (("network", "sign", study_file, wrong), ("site", "install", wrong, "--site", enrolled)):
            said = sentence(*words)
            assert "check which file it is" in said or "is not in PEM format" in said
            assert "80" not in said
    assert sentence("network", "revoke", study_file, "moon").startswith(
        "no certificate was ever issued to 'moon'"
    )


def test_the_certificate_of_another_site_is_not_installed(tmp_path: Path, study_file: Path, enrolled: Path):
    admit(tmp_path / "city", study_file, "city")
    said = sentence("site", "install", tmp_path / "city" / "keys" / "city.crt", "--site", enrolled)
    assert said.startswith("the certificate is for another key than site.key;")


def test_a_folder_that_is_no_site_is_told_what_makes_it_one(tmp_path: Path):
    none = tmp_path / "none"
    for folder in (none, tmp_path):
        for word in ("check", "start"):
            assert sentence("site", word, folder) == (
                f"there is no {folder / 'hedgerow.toml'}; name the site's folder, or write the policy: "
                "hedgerow site init"
            )
        assert sentence("site", "init", folder, "--data", "x", "--lifetime", 1, "--epsilon", 1) == (
            f"there is no {folder / 'proposal' / 'study.toml'}; name the site's folder, or make it: "
            "hedgerow site enroll"
        )
        assert (
            sentence("site", "ledger", "malaria", folder) == f"there is no file {folder / 'hedgerow.toml'}."
        )
    assert sentence("site", "run", none) == f"{none} cannot be a site's folder: No such file or directory."
    assert sentence("site", "run", tmp_path).startswith(f"there is no {tmp_path / 'hedgerow.toml'};")


def test_a_site_whose_certificate_has_not_come_back_says_so(tmp_path: Path, study_file: Path, rows: Path):
    site = tmp_path / "site"
    site_setup.enroll(site, invitation_of(study_file), "lake")
    site_setup.init(site, rows, 2.0, 1.0)
    assert sentence("site", "check", site) == (
        f"there is no {site / 'keys' / 'site.crt'}; install the certificate that the coordinator signed: "
        "hedgerow site install"
    )


def test_a_site_that_has_lost_its_key_says_so(enrolled: Path, rows: Path):
    site_setup.init(enrolled, rows, 2.0, 1.0)
    done("site", "check", enrolled)
    (enrolled / "keys" / "site.key").unlink()
    for word in ("check", "start", "run"):
        assert "site.key; make a key and a request first: hedgerow site enroll" in sentence(
            "site", word, enrolled
        )


def test_rows_that_are_not_there_are_named_by_the_check(enrolled: Path, rows: Path):
    done("site", "init", enrolled, "--data", rows.with_name("none.csv"), "--lifetime", 2, "--epsilon", 1)
    none = rows.with_name("none.csv")
    assert sentence("site", "check", enrolled) == f"{none} cannot be read: No such file or directory."


def test_a_command_without_its_packages_names_the_extra(
    tmp_path: Path, study_file: Path, monkeypatch: pytest.MonkeyPatch
):
    for name in [name for name in sys.modules if name.partition(".")[0] == "grpc" or "grpc_" in name]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.delitem(sys.modules, "hedgerow.transport.coordinator")
    monkeypatch.setitem(sys.modules, "grpc", None)
    monkeypatch.delattr("hedgerow.transport.coordinator")
    assert sentence("network", "learn", study_file) == (
        "this needs the package grpc: pip install 'hedgerow[network]'"
    )


def test_the_library_raises_what_the_commands_say(
    tmp_path: Path, study_file: Path, rows: Path, enrolled: Path
):
    with pytest.raises(HedgerowError, match="is no invitation"):
        site_setup.enroll(tmp_path / "other", tmp_path, "lake")
    with pytest.raises(InvalidPolicy, match="positive"):
        site_setup.init(enrolled, rows, 2.0, -1.0)
