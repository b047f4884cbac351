"""A study in files: what its coordinator keeps, and the folders of its holders' sites.

Keys need packages that are not everywhere; policies, rows and studies do not.
"""

from __future__ import annotations

import csv
import json
from pathlib import Path
from typing import Any

import numpy as np

from hedgerow.datasets import HOSPITALS_SCHEMA
from hedgerow.transport.study import Study, write_study

HOLDERS = ("lake", "city", "hill")
SEED = 7


class Clock:
    """In the place of the module `time`: nobody waits, and `now` tells how long somebody would have waited."""

    def __init__(self) -> None:
        self.now = 0.0

    def monotonic(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.now += seconds


def seed_of(holder: int) -> int:
    """The seed that `PrivateTreeClassifier(noise_seed=SEED)` gives a holder."""
    return int(np.random.SeedSequence([SEED, holder]).generate_state(1, np.uint64)[0])


def write_csv(path: Path, names: tuple[str, ...], label: str, table: Any, labels: Any) -> None:
    with path.open("w", newline="", encoding="utf-8") as file:
        out = csv.writer(file)
        out.writerow([*names, label])
        for row, y in zip(table, labels, strict=True):
            out.writerow(["" if isinstance(v, float) and np.isnan(v) else v for v in row] + [y])


def write_policy(path: Path, grants: dict[str, dict[str, Any]], **entries: Any) -> None:
    """A policy about rows.csv and schema.toml beside it."""
    places = {"data": "rows.csv", "schema": "schema.toml", "journal": "journal"}
    lines = [f"{key} = {json.dumps(value)}" for key, value in (places | entries).items()]
    for study, grant in grants.items():
        lines += ["[[grants]]", f'study = "{study}"']
        lines += [f"{key} = {json.dumps(value)}" for key, value in grant.items()]
    path.write_text("\n".join(lines) + "\n")


def provisioned(folder: Path, **changes: Any) -> Path:
    """The file of a study whose coordinator has made its keys and the invitation."""
    from hedgerow.transport import coordinator

    wishes: dict[str, Any] = {
        "name": "malaria",
        "schema": HOSPITALS_SCHEMA,
        "epsilon": 1.0,
        "holders": HOLDERS,
        "server": "localhost",
        "method": "local",
    }
    folder.mkdir(parents=True, exist_ok=True)
    write_study(Study(**(wishes | changes)), folder / "study.toml")
    coordinator.provision(folder / "study.toml")
    return folder / "study.toml"


def invitation_of(study_file: Path) -> Path:
    return study_file.parent / "invitation"


def admit(site: Path, study_file: Path, holder: str = "lake") -> None:
    """Give a site's folder its keys and the coordinator's proposal."""
    from hedgerow.transport import coordinator, site_setup

    request, _ = site_setup.enroll(site, invitation_of(study_file), holder)
    _, certificate = coordinator.sign(study_file, request, renew=True)
    site_setup.install(site, certificate)
