"""`hedgerow audit`."""

from __future__ import annotations

from typing import Annotated

import typer
from rich.table import Table as RichTable

from hedgerow.cli.console import console


def audit(
    quick: Annotated[bool, typer.Option("--quick", help="A minute instead of half an hour.")] = False,
    runs: Annotated[int | None, typer.Option(min=8, help="Selections on each neighbour.")] = None,
    jobs: Annotated[int, typer.Option(help="Processes; -1 for one a core.")] = -1,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON instead of a table.")] = False,
) -> None:
    """Attack this installation: how much does it cost a row in fact, and is that ever more than claimed?"""
    import json

    from hedgerow.audits import FALSE_ALARM, run_suite

    found = run_suite("quick" if quick else "full", runs, jobs, progress=True)
    alarms = [finding for finding in found if finding.exceeds]
    if as_json:
        typer.echo(json.dumps([finding.to_dict() for finding in found], indent=1))
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
            console.print(f"{finding.audit.mechanism.name}: {finding.result}", markup=False)
        console.print(
            f"{len(found)} audits, {len(alarms)} above the claim (by chance with probability {FALSE_ALARM:g})."
        )
    raise typer.Exit(code=1 if alarms else 0)
