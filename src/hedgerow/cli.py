"""The command line. Each command is a thin layer over the library; a user's mistake ends in one sentence."""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table as RichTable

from hedgerow.errors import HedgerowError
from hedgerow.network.commands import app as network_app

app = typer.Typer(help="Differentially private decision trees.", no_args_is_help=True, add_completion=False)
app.add_typer(network_app, name="network")
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


@contextmanager
def _experiment() -> Iterator[None]:
    """End in one sentence where data, or a library that only experiments need, is missing."""
    try:
        yield
    except HedgerowError as error:
        console.print(str(error), markup=False)
        raise typer.Exit(code=1) from None
    except ModuleNotFoundError as error:
        console.print(f"{error}; install hedgerow[experiments].", markup=False)
        raise typer.Exit(code=1) from None


@app.command()
@_experiment()
def reproduce(
    figure: Annotated[list[int] | None, typer.Option(min=1, max=3, help="1, 2 or 3; all by default.")] = None,
    dataset: Annotated[list[str] | None, typer.Option(help="A data set; all seven by default.")] = None,
    version: Annotated[
        list[str] | None,
        typer.Option(help="as_printed (NOT PRIVATE), corrected or hedgerow; all by default."),
    ] = None,
    runs: Annotated[
        int | None, typer.Option(min=1, help="Trees of each setting: 100, or 5 with --quick.")
    ] = None,
    quick: Annotated[bool, typer.Option("--quick", help="5 runs and fewer points.")] = False,
    jobs: Annotated[int, typer.Option(help="Processes; -1 for one a core.")] = -1,
    out: Annotated[Path, typer.Option(help="Where the CSV and the figures go.")] = Path("reproduction"),
    report: Annotated[
        bool, typer.Option("--report", help="Learn nothing; draw and report what is there.")
    ] = False,
) -> None:
    """Learn the trees of the paper's figures, draw them, and check what the paper says about them."""
    from hedgerow.experiments import cells, plots, runner, statements

    for chosen, known in ((dataset, cells.DATASETS), (version, cells.VERSIONS)):
        if unknown := set(chosen or ()) - set(known):
            raise typer.BadParameter(f"there is no {min(unknown)!r}; choose from {', '.join(known)}.")
    if not report:
        wanted = cells.cells_of(
            figure or cells.FIGURES,
            dataset or cells.DATASETS,
            version or cells.VERSIONS,
            runs or (cells.QUICK_RUNS if quick else cells.RUNS),
            cells.QUICK if quick else cells.FULL,
        )
        runner.reproduce(wanted, out, jobs=jobs)
    if not (out / runner.CSV).exists():
        raise typer.BadParameter(f"there is no {runner.CSV} in {out} to report.")
    figures = plots.draw_all(out)
    console.print(
        f"{len(figures)} figures are in {out}, the report in {statements.write_report(out, figures)}."
    )


@app.command()
@_experiment()
def compare(
    dataset: Annotated[list[str] | None, typer.Option(help="A data set; five by default.")] = None,
    runs: Annotated[int, typer.Option(min=1, help="Seeds of each private model.")] = 10,
    python: Annotated[
        str | None, typer.Option(help="The Python of an environment with diffprivlib or interpret.")
    ] = None,
    out: Annotated[Path, typer.Option(help="Where the CSV and the plot go.")] = Path("comparison"),
) -> None:
    """Compare with other libraries: same rows, same epsilons; accuracy, AUC and time."""
    from hedgerow.experiments import comparison

    page = comparison.compare(tuple(dataset or comparison.DATASETS), runs, python, out, console)
    console.print(f"The table and the plot are in {page}.")
