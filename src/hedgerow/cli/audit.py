"""`hedgerow audit`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated

import typer
from rich.table import Table as RichTable

from hedgerow.cli.console import AsJson, Jobs, console, print_json, progress, say

if TYPE_CHECKING:
    from hedgerow.audit.suite import Finding


def audit(
    quick: Annotated[bool, typer.Option("--quick", help="Two minutes instead of hours.")] = False,
    runs: Annotated[int | None, typer.Option(min=8, help="Selections on each neighbour.")] = None,
    jobs: Jobs = -1,
    paper: Annotated[
        bool, typer.Option("--paper", help="Attack the paper's mechanisms, as printed, instead.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Attack this installation: how much does it cost a row in fact, and is that ever more than claimed?"""
    if paper:
        _audit_paper(runs, as_json)
        return
    from hedgerow.audit.suite import run_suite

    found = run_suite("quick" if quick else "full", runs, jobs, progress=True)
    if as_json:
        print_json([finding.to_dict() for finding in found])
    else:
        _print_findings(found)
    raise typer.Exit(code=1 if any(finding.exceeds for finding in found) else 0)


def _print_findings(found: Sequence[Finding]) -> None:
    """Every audit with its bound and its twin's, then what costs too much and what could not have been found."""
    from hedgerow.audit.suite import FALSE_ALARM

    table = RichTable(
        "mechanism", "neighbours", "epsilon claimed", "at least", "verdict", "its twin, at least"
    )
    for finding in found:
        bound, twin = finding.result.lower_bound, finding.twin
        verdict = "[red]COSTS MORE[/red]" if finding.exceeds else "within"
        power = f"{twin.result.lower_bound:.3f}, {'found' if twin.found else '[yellow]not found[/yellow]'}"
        audited = finding.audit
        table.add_row(
            audited.mechanism.name, audited.neighbours.name, f"{float(audited.epsilon):g}", f"{bound:.3f}",
            verdict, power,
        )  # fmt: skip
    console.print(table)
    alarms = [finding for finding in found if finding.exceeds]
    for finding in alarms:
        say(f"{finding.audit.mechanism.name}: {finding.result}")
    blind = [finding for finding in found if not finding.twin.found]
    say(f"{len(found)} audits, {len(alarms)} above the claim (by chance with probability {FALSE_ALARM:g}).")
    say(
        f"A twin is the same mechanism at twice its price. {len(found) - len(blind)} twins were found; "
        f"these {len(blind)} audits would not notice a doubled price:"
    )
    for finding in blind:
        say(f"- {finding.audit.mechanism.name}, {finding.audit.neighbours.name}: {finding.twin.why_not}.")


def _audit_paper(runs: int | None, as_json: bool) -> None:
    """Nothing of this runs in Hedgerow, so a claim that does not hold is no failure."""
    from hedgerow.experiments.printed_claims import CLAIMS, FALSE_ALARM, RUNS, audit_claims

    found = []
    with progress("attacking the paper's mechanisms") as report:
        for refuted in audit_claims(RUNS if runs is None else runs):
            found.append(refuted)
            report(len(found) / len(CLAIMS))
    if as_json:
        print_json([refuted.to_dict() for refuted in found])
        return
    table = RichTable("as printed", "where", "epsilon claimed", "at least", "verdict")
    for refuted in found:
        claim, least = refuted.claim, f"{refuted.result.lower_bound:.2f}"
        verdict = "[red]COSTS MORE[/red]" if refuted.exceeds else "within"
        table.add_row(claim.name, claim.where, f"{claim.epsilon:g}", least, verdict)
    console.print(table)
    say(
        "Nothing of this runs in Hedgerow; docs/privacy.md says what does. "
        f"(A bound is wrong by chance with probability {FALSE_ALARM:g}.)"
    )
