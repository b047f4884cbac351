"""`hedgerow audit`."""

from __future__ import annotations

from typing import Annotated

import typer
from rich.table import Table as RichTable

from hedgerow.cli.console import AsJson, Jobs, console, print_json, progress, say


def audit(
    quick: Annotated[bool, typer.Option("--quick", help="A minute instead of an hour.")] = False,
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
    from hedgerow.audits import FALSE_ALARM, run_suite

    found = run_suite("quick" if quick else "full", runs, jobs, progress=True)
    alarms = [finding for finding in found if finding.exceeds]
    if as_json:
        print_json([finding.to_dict() for finding in found])
    else:
        table = RichTable("mechanism", "neighbours", "epsilon claimed", "at least", "verdict")
        for finding in found:
            claimed, least = f"{float(finding.audit.epsilon):g}", f"{finding.result.lower_bound:.3f}"
            verdict = "[red]COSTS MORE[/red]" if finding.exceeds else "within"
            table.add_row(
                finding.audit.mechanism.name, finding.audit.neighbours.name, claimed, least, verdict
            )
        console.print(table)
        for finding in alarms:
            say(f"{finding.audit.mechanism.name}: {finding.result}")
        say(
            f"{len(found)} audits, {len(alarms)} above the claim (by chance with probability {FALSE_ALARM:g})."
        )
    raise typer.Exit(code=1 if alarms else 0)


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
