"""`hedgerow reproduce` and `hedgerow compare`."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer

from hedgerow.cli.console import Jobs, console, hint, say


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
    jobs: Jobs = -1,
    out: Annotated[
        Path, typer.Option(help="The folder of the CSV and the figures; the report goes beside it.")
    ] = Path("reproduction"),
    report: Annotated[
        bool, typer.Option("--report", help="Learn nothing; draw and report what is there.")
    ] = False,
) -> None:
    """Learn the trees of the paper's figures, draw them, and check what the paper says about them."""
    from hedgerow.experiments import cells, plots, runner, statements

    _check_names(dataset, cells.DATASETS)
    _check_names(version, cells.VERSIONS)
    statements.page_of(out)  # refuses now what would be refused at the end
    if not report:
        wanted = cells.cells_of(
            figure or cells.FIGURES,
            dataset or cells.DATASETS,
            version or cells.VERSIONS,
            runs or (cells.QUICK_RUNS if quick else cells.RUNS),
            cells.QUICK if quick else cells.FULL,
        )
        try:
            runner.reproduce(wanted, out, jobs=jobs)
        except KeyboardInterrupt:
            hint("Stopped. The same command goes on from here.")
            raise
    if not any(path.is_file() and path.stat().st_size for path in (out / runner.CSV, out / runner.PACKED)):
        raise typer.BadParameter(f"there is no {runner.CSV} in {out} to report.")
    figures = plots.draw_all(out)
    page = statements.write_report(out, figures)
    say(f"{len({figure.stem for figure in figures})} figures are in {out}, the report in {page}.")


def compare(
    dataset: Annotated[list[str] | None, typer.Option(help="A data set; five by default.")] = None,
    runs: Annotated[int, typer.Option(min=1, help="Seeds of each private model.")] = 10,
    python: Annotated[
        str | None, typer.Option(help="The Python of an environment with diffprivlib or interpret.")
    ] = None,
    out: Annotated[
        Path, typer.Option(help="The folder of the CSV and the plot; the table goes beside it.")
    ] = Path("comparison"),
) -> None:
    """Compare with other libraries: same rows, same epsilons; accuracy, AUC and time."""
    from hedgerow.datasets import NAMES, check_files
    from hedgerow.experiments import comparison, statements

    _check_names(dataset, NAMES)
    statements.page_of(out)
    check_files(dataset or comparison.DATASETS)
    page = comparison.compare(tuple(dataset or comparison.DATASETS), runs, python, out, console)
    say(f"The table and the plot are in {page}.")


def _check_names(chosen: Sequence[str] | None, known: Sequence[str]) -> None:
    if unknown := set(chosen or ()) - set(known):
        raise typer.BadParameter(f"there is no {min(unknown)!r}; choose from {', '.join(known)}.")
