"""The command line. Each command is a thin layer over the library; a user's mistake ends in one sentence."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table as RichTable

app = typer.Typer(help="Differentially private decision trees.", no_args_is_help=True, add_completion=False)
console = Console()


@app.callback()
def main() -> None:
    """Differentially private decision trees, learned across data holders who keep their rows."""


@app.command()
def demo(
    epsilon: Annotated[float, typer.Option(help="What training may cost any one patient.")] = 1.0,
    folder: Annotated[Path, typer.Option(help="Where to write the tree.")] = Path("hedgerow-demo"),
) -> None:
    """Four hospitals learn to recognise early malaria, and show each other no patient."""
    from hedgerow import PrivateTreeClassifier
    from hedgerow.datasets import synthetic_hospitals

    hospitals = synthetic_hospitals()
    test = hospitals.test_table, hospitals.test_labels
    sizes = ", ".join(str(len(labels)) for _, labels in hospitals.holders)
    console.print(
        f"Four synthetic hospitals with {sizes} patients; {len(hospitals.schema.splits)} candidate splits.\n"
    )
    model = PrivateTreeClassifier(schema=hospitals.schema, epsilon=epsilon).fit_holders(hospitals.holders)
    console.print(model.tree_.export_text(), highlight=False, markup=False)

    results = RichTable("tree", "accuracy on other patients", "splits", title=f"epsilon {epsilon:g}")

    def add(name: str, tree: PrivateTreeClassifier) -> None:
        results.add_row(name, f"{tree.score(*test):.3f}", str(tree.tree_.n_splits))

    add("all hospitals together, private", model)
    exact = PrivateTreeClassifier(schema=hospitals.schema, epsilon=math.inf, max_splits=32)
    add("all hospitals together, without privacy", exact.fit_holders(hospitals.holders))
    for i, holder in enumerate(hospitals.holders):
        alone = PrivateTreeClassifier(schema=hospitals.schema, epsilon=epsilon).fit(*holder)
        add(f"hospital {i + 1} alone, private", alone)
    console.print(results)
    for i, ledger in enumerate(model.ledgers_):
        console.print(
            f"Hospital {i + 1} spent {float(ledger.spent):.3f} of the {float(ledger.grant):g} it granted."
        )
    console.print(f"{model.traffic_}.", highlight=False)
    folder.mkdir(parents=True, exist_ok=True)
    model.save(folder / "tree.json")
    console.print(f"The tree is in {folder / 'tree.json'}.")


@app.command()
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
