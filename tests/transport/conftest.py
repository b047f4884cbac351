"""What tests of the transport share: a clock that nobody waits for, a study, and a holder's site."""

from __future__ import annotations

from pathlib import Path

import pytest
from study_files import Clock, admit, provisioned, write_csv, write_policy

from hedgerow.datasets import HOSPITALS_SCHEMA, synthetic_hospitals


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    """The time of the coordinator."""
    made = Clock()
    for module in ("remote", "learning"):
        monkeypatch.setattr(f"hedgerow.transport.{module}.time", made)
    return made


@pytest.fixture(scope="session")
def study_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A study `malaria` of lake, city and hill for epsilon 1, by the method local."""
    for package in ("cryptography", "grpc"):
        pytest.importorskip(package, reason="keys need hedgerow[network]")
    return provisioned(tmp_path_factory.mktemp("coordinator"))


@pytest.fixture
def policy(tmp_path: Path) -> Path:
    """The policy of a holder of 300 rows, which grants the study epsilon 1."""
    folder = tmp_path / "site"
    folder.mkdir(mode=0o700)
    [(table, labels)] = synthetic_hospitals(1, rows=300).holders
    write_csv(folder / "rows.csv", HOSPITALS_SCHEMA.names, HOSPITALS_SCHEMA.label, table, labels)
    HOSPITALS_SCHEMA.save(folder / "schema.toml")
    grant = {"epsilon": 1.0, "methods": ["local"], "quantum": 0}
    write_policy(folder / "hedgerow.toml", {"malaria": grant}, lifetime_epsilon=2.0)
    return folder / "hedgerow.toml"


@pytest.fixture
def site(policy: Path, study_file: Path) -> Path:
    """The folder of a site that has all it needs to start, but for its owner's look at the policy."""
    admit(policy.parent, study_file)
    return policy.parent
