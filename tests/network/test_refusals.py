"""What a site does not do: take code, unlisted classes, foreign studies or dishonest questions."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from pathlib import Path

import pytest
from typer.testing import CliRunner

from hedgerow import Categorical, Schema
from hedgerow.cli import app

from .conftest import HOLDERS, Federation, free_ports, until

pytestmark = pytest.mark.network

NOT_HERE = "does not take part"


def submit(federation: Federation, folder: Path, seconds: float = 60) -> str:
    """Run a job to its end and return its status."""
    from hedgerow.transport.flare import console

    with console.session(federation.kits) as flare:
        console.wait_for_holders(flare, federation.study, lambda _: None)
        job = flare.submit_job(str(folder))
        status = ""

        def ended() -> bool:
            nonlocal status
            status = str(flare.get_job_meta(job)["status"])
            return status.startswith("FINISHED")

        until(ended, seconds)
        return status


def test_a_study_without_a_grant_or_of_another_schema_is_refused_and_only_the_site_says_why(
    federation: Federation,
):
    from hedgerow.transport.flare.console import StudyInterrupted

    study = federation.new_study("unwelcome")
    federation.write_policy("lake", grants={})
    other = Schema([Categorical("sex", ["female", "male"])], label="malaria", classes=["no", "yes"])
    other.save(federation.folder / "other.toml")
    federation.write_policy("city", schema=str(federation.folder / "other.toml"))
    reasons = {"lake": "study 'unwelcome' has no grant", "city": "means another schema than this site's"}
    with pytest.raises(StudyInterrupted, match=NOT_HERE) as error:
        federation.learn(study)
    assert "hill" not in str(error.value)
    for holder, why in reasons.items():
        assert why in federation.console_text(holder)
        assert why not in str(error.value) + federation.console_text("server")
    assert all(federation.journal(holder, study.name) == [] for holder in HOLDERS)
    for holder in HOLDERS:
        federation.write_policy(holder)


def test_a_site_does_not_take_a_job_with_code(federation: Federation, tmp_path: Path):
    from hedgerow.transport.flare.console import write_job

    study = federation.new_study("with-code")
    job = write_job(study, tmp_path)
    (job / "app" / "custom").mkdir()
    (job / "app" / "custom" / "evil.py").write_text(f"open({str(tmp_path / 'ran')!r}, 'w')\n")
    name_executor(job, "evil.Executor")
    assert "COMPLETED" not in submit(federation, job)
    for holder in HOLDERS:  # by the sites: this server would have let it pass
        assert f"{holder}: this site takes Hedgerow's own jobs only" in federation.console_text("server")
        assert "it brings a file that is none of a study's ('custom/" in federation.console_text(holder)
    assert not (tmp_path / "ran").exists()


def name_executor(job: Path, path: str) -> None:
    client = job / "app" / "config" / "config_fed_client.json"
    plain = json.loads(client.read_text())
    plain["executors"][0]["executor"] = {"path": path, "args": {}}
    client.write_text(json.dumps(plain))


def test_a_site_does_not_build_a_class_that_it_has_not_listed(federation: Federation, tmp_path: Path):
    from hedgerow.transport.flare.console import write_job

    study = federation.new_study("unlisted")
    job = write_job(study, tmp_path)
    name_executor(job, "nvflare.app_common.np.np_trainer.NPTrainer")
    before = len(federation.console_text("lake"))
    assert "COMPLETED" not in submit(federation, job, 90)
    assert "it asks for other components than Hedgerow's executor" in federation.console_text("lake")[before:]


def test_a_malicious_coordinator_gets_refusals_and_the_site_stays_up(federation: Federation, tmp_path: Path):
    from hedgerow.transport.flare.console import write_job

    study = federation.new_study("malicious", grant={"epsilon": 0.2, "methods": ["local"]}, holders=("hill",))
    job = write_job(study, tmp_path)
    out = tmp_path / "replies.json"
    server = job / "app" / "config" / "config_fed_server.json"
    server.write_text(
        json.dumps(
            {
                "format_version": 2,
                "workflows": [
                    {
                        "id": "study",
                        "path": "malicious.MaliciousController",
                        "args": {
                            "study": study.name,
                            "schema": study.schema.hash,
                            "holder": "hill",
                            "out": str(out),
                        },
                    }
                ],
            }
        )
    )
    process = federation.process_of("hill")
    assert "COMPLETED" in submit(federation, job, 120)
    told = json.loads(out.read_text())
    many = told.pop("many at once")
    for name in ("read a file", "configure logs", "environment"):
        assert told.pop(name) == "invalid_request"
    about = told.pop("about processes")
    assert set(about) == {"process_exception: None"}  # nobody is there to answer
    assert told["fine"].startswith("answered")
    assert told["fine again"] == told["fine"]
    last = told.pop("at last an honest question")
    for name in told.keys() - {"fine", "fine again", "hello nobody", "hello with too much"}:
        assert told[name].startswith("refused"), (name, told[name])
    assert "refusal" in told["hello nobody"]
    assert "refusal" in told["hello with too much"]
    # 0.2 was granted, 1/1000 spent: nineteen of the twenty questions of 1/100 fit.
    assert sum(reply.startswith("answered") for reply in many) == 19
    assert last.startswith("refused")
    assert federation.spent("hill", study.name) == pytest.approx(0.191)
    assert federation.process_of("hill") == process


def test_nothing_that_a_kit_brings_is_run(federation: Federation, tmp_path: Path):
    from hedgerow.transport.flare import kits, processes
    from hedgerow.transport.flare.workspace import RESOURCES

    [port] = free_ports(1)
    kits.provision(replace(federation.study, holders=("lake",), port=port), tmp_path / "kits")
    kit = tmp_path / "kits" / "lake"
    assert not list(kit.rglob("*.sh"))
    done = tmp_path / "done"
    done.mkdir()

    def plant(where: str) -> None:
        """A script, a module, or a component, which leaves a trace if it is used."""
        path, trace = kit / where, done / where.replace("/", "-")
        path.parent.mkdir(parents=True, exist_ok=True)
        component = {"id": "metrics", "path": "subprocess.Popen", "args": {"args": ["touch", str(trace)]}}
        texts = {
            ".sh": f"#!/bin/sh\ntouch '{trace}'\n",
            ".py": f"open({str(trace)!r}, 'w')\n",
            ".json": json.dumps(RESOURCES | {"components": [*RESOURCES["components"], component]}),
        }
        path.write_text(texts[path.suffix])
        path.chmod(0o755)

    folders = ("", "startup/", "local/", "run/", "run/startup/", "run/local/", "run/local/custom/")
    for folder in folders:
        for name in ("sub_start.sh", "json.py", "sitecustomize.py", "resources.json", "evil__resources.json"):
            plant(folder + name)
    processes.start(kit)
    try:
        # The client has been configured when it writes its log; nobody listens, so it goes no further.
        until((kit / "run" / "log.txt").is_file, 60)
        until(lambda: "the server cannot be reached" in (kit / "console.log").read_text(), 60)
    finally:
        processes.stop(kit)
    assert not list(done.iterdir())


def test_a_certificate_of_another_network_is_refused(federation: Federation, tmp_path: Path):
    from hedgerow.transport.flare import certificates, kits

    kits.provision(replace(federation.study, holders=("mallory",)), tmp_path / "kits")
    kit = tmp_path / "kits" / "mallory"
    assert_kept_out(federation, kit, "is not the server of this kit's network")
    # Even if it knew whom to trust.
    shutil.copy(federation.kits / "lake" / "startup" / "rootCA.pem", kit / "startup")
    with pytest.raises(certificates.InvalidKit, match="does not accept this kit's certificate"):
        certificates.knock(kit)


def test_an_expired_certificate_is_refused(federation: Federation):
    from hedgerow.transport.flare import certificates, kits

    # A kit of this very network, made anew from its authority, whose certificate ended yesterday.
    kits.provision(replace(federation.study, holders=(*HOLDERS, "late")), federation.kits)
    kit = federation.kits / "late"
    certificates.knock(kit)  # it would have been let in
    expire(kit / "startup", next(federation.kits.glob("authority/*/state/cert.json")))
    with pytest.raises(certificates.InvalidKit, match="does not accept this kit's certificate"):
        certificates.knock(kit)
    assert_kept_out(federation, kit, "this site does not start: the certificate is good from")
    for command in (["site", "check"], ["start"]):
        said = CliRunner().invoke(app, ["network", *command, str(kit)])
        assert said.exit_code == 1
        assert "the certificate is good from" in said.output
        assert "not today" in said.output


def expire(startup: Path, state: Path) -> None:
    """Sign the kit's public key again, for a time that is over."""
    from datetime import UTC, datetime, timedelta

    from cryptography import x509
    from cryptography.hazmat.primitives import hashes, serialization

    root = json.loads(state.read_text())
    key = serialization.load_pem_private_key(root["root_pri_key"].encode(), password=None)
    old = x509.load_pem_x509_certificate((startup / "client.crt").read_bytes())
    builder = x509.CertificateBuilder(
        issuer_name=old.issuer,
        subject_name=old.subject,
        public_key=old.public_key(),
        serial_number=x509.random_serial_number(),
        not_valid_before=datetime.now(UTC) - timedelta(days=9),
        not_valid_after=datetime.now(UTC) - timedelta(days=1),
        extensions=list(old.extensions),
    )
    new = builder.sign(key, hashes.SHA256())
    (startup / "client.crt").write_bytes(new.public_bytes(serialization.Encoding.PEM))


def assert_kept_out(federation: Federation, kit: Path, why: str) -> None:
    """The site is not let in, and says why, on its own console only."""
    from hedgerow.transport.flare import console, processes

    processes.start(kit)
    try:
        until(lambda: why in (kit / "console.log").read_text(errors="replace"), 60)
    finally:
        processes.stop(kit)
    assert why not in federation.console_text("server")
    with console.session(federation.kits) as flare:
        assert kit.name not in console.connected(flare)
