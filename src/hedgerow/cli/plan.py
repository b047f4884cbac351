"""`hedgerow plan`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.table import Table as RichTable

from hedgerow.cli.console import AsJson, print_json, progress, say, show_table

if TYPE_CHECKING:
    from hedgerow.forecast import Forecast


def plan(
    schema: Annotated[
        Path, typer.Argument(help="The schema that would be agreed on: a .toml or .json file.")
    ],
    rows: Annotated[int, typer.Option(help="About how many rows each holder has.")],
    holders: Annotated[int, typer.Option(help="How many data holders.")] = 1,
    epsilon: Annotated[float, typer.Option(help="What training may cost any one row.")] = 1.0,
    method: Annotated[str, typer.Option(help="How the holders are asked for splits.")] = "auto",
    target: Annotated[float, typer.Option(help="The accuracy to be reached.")] = 0.8,
    ceiling: Annotated[
        float, typer.Option(help="The signal: the share of rows that the best rule is right about.")
    ] = 0.9,
    informative: Annotated[int, typer.Option(help="The signal: how many columns that rule looks at.")] = 4,
    runs: Annotated[int, typer.Option(help="Made-up studies to average over.")] = 8,
    seed: Annotated[int, typer.Option(min=0, help="Of the made-up rows and their noise.")] = 0,
    plot: Annotated[Path | None, typer.Option(help="Draw a picture: a .png, .pdf or .svg file.")] = None,
    as_json: AsJson = False,
) -> None:
    """Will the tree be any good? What the theorems ask for, and what a simulation says. Reads no row."""
    from hedgerow import forecast
    from hedgerow.errors import InvalidParameter
    from hedgerow.privacy.picture import pyplot
    from hedgerow.schema import Schema

    if plot is not None and plot.suffix not in {".png", ".pdf", ".svg"}:
        raise InvalidParameter(f"{plot}: a picture's name ends in .png, .pdf or .svg.")
    if plot is not None and not plot.parent.is_dir():
        raise InvalidParameter(f"{plot}: there is no such folder to draw into.")
    if plot is not None:
        pyplot()  # if it is missing, that is said before the work and not after
    agreed, signal = Schema.load(schema), forecast.Signal(ceiling, informative)
    with progress("learning trees from made-up rows") as report:
        found = forecast.plan(
            agreed, rows=rows, epsilon=epsilon, holders=holders, method=method, target=target, signal=signal,
            runs=runs, seed=seed, progress=lambda done, of: report(done / of),
        )  # fmt: skip
    if plot is not None:
        found.plot(plot)
    if as_json:
        print_json(found.to_dict())
        return
    for sentence in found.explain():
        say(sentence)
    show_table(_table(found))


def _table(found: Forecast) -> RichTable:
    """Accuracy by epsilon, then by rows; what reaches the target is bold, the setting asked about is marked."""
    names = ("epsilon", "rows a holder", "accuracy", "±", "without noise", "")
    table = RichTable(*names, title=f"Expected accuracy on new rows, {found.runs} made-up studies")
    for points in (found.by_epsilon, found.by_rows):
        for point in points:
            style = "bold" if point.accuracy >= found.target else ""
            mark = "<- asked about" if point == found.here else ""
            numbers = f"{point.accuracy:.3f}", f"{2 * point.error:.3f}", f"{point.exact:.3f}"
            table.add_row(f"{point.epsilon:g}", f"{point.rows:,}", *numbers, mark, style=style)
        table.add_section()
    return table
