"""The paper's mechanisms as printed: most are found to cost more than they claim, and the sound one is not."""

from __future__ import annotations

import json
from pathlib import Path

from typer.testing import CliRunner

from hedgerow.cli import app
from hedgerow.experiments.printed_claims import CLAIMS, audit_claims


def test_what_the_paper_prints_is_found_to_cost_more_than_it_claims() -> None:
    """False alarms add up to 1e-6, and the seed is fixed."""
    for refuted in audit_claims(runs=20_000, seed=1):
        assert refuted.exceeds != refuted.claim.private, refuted.claim.name


def test_every_correction_stands_in_the_privacy_page() -> None:
    page = (Path(__file__).parents[2] / "docs" / "privacy.md").read_text(encoding="utf-8").replace("\\|", "|")
    for claim in CLAIMS:
        assert claim.name in page, claim.name


def test_the_command_prints_claims_and_bounds_and_does_not_fail() -> None:
    result = CliRunner().invoke(app, ["audit", "--paper", "--runs", "4000", "--json"])
    assert result.exit_code == 0, result.output
    found = json.loads(result.stdout)
    assert [entry["mechanism"] for entry in found] == [claim.name for claim in CLAIMS]
    assert sum(entry["exceeds"] for entry in found) >= 4
