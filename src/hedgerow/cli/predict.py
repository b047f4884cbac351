"""`hedgerow predict` and `hedgerow evaluate`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import numpy as np
import typer
from numpy.typing import NDArray
from rich.markup import escape
from rich.table import Table as RichTable

from hedgerow.cli.console import AsJson, LineBreaks, check_out, hint, print_json, progress, say, show_table
from hedgerow.cli.model import Model, load_model, warn_if_not_private
from hedgerow.errors import InvalidTable

if TYPE_CHECKING:
    import pyarrow as pa

    from hedgerow.tree import Tree

Data = Annotated[str, typer.Argument(help="A table: .csv, .parquet, or - for CSV on standard input.")]


def predict(
    model: Model,
    data: Data,
    out: Annotated[str, typer.Option(help="A .csv or .parquet file, or - for CSV on standard output.")] = "-",
    proba: Annotated[bool, typer.Option("--proba", help="Add the probability of each class.")] = False,
    keep: Annotated[
        list[str] | None, typer.Option(help="Copy this column of the table, such as a row's number.")
    ] = None,
    line_breaks: LineBreaks = False,
) -> None:
    """Predict the class of each row of a table, in its order."""
    from hedgerow.tables import TableFile, table_writer

    check_out(Path(out), [data, model], prints=True)
    loaded = load_model(model)
    warn_if_not_private(loaded.record_, hint)
    tree = loaded.tree_
    file, kept = TableFile(data, line_breaks=line_breaks), list(dict.fromkeys(keep or ()))
    header = _predictions(tree, np.zeros(0, dtype=np.int32), proba=proba)
    if clash := {*kept} & {*header.column_names}:
        raise InvalidTable(f"the column {min(clash)!r} cannot be kept: the prediction has that name.")
    with table_writer(out) as write, progress(f"reading {file.name}") as done:
        for block in file.blocks(tree.schema, keep=kept):
            predicted = _predictions(tree, tree.apply(block.codes), proba=proba)
            for i, name in enumerate(kept):
                predicted = predicted.add_column(i, name, block.kept[name])
            write(predicted)
            done(block.done)


def evaluate(model: Model, data: Data, line_breaks: LineBreaks = False, as_json: AsJson = False) -> None:
    """Compare predictions with the labels of a table: accuracy, log-loss, AUC, confusion. Not private."""
    from hedgerow.tables import TableFile

    loaded = load_model(model)
    tree, file = loaded.tree_, TableFile(data, line_breaks=line_breaks)
    counts = np.zeros((tree.n_nodes, tree.schema.n_classes), dtype=np.int64)
    with progress(f"reading {file.name}") as done:
        for block in file.blocks(tree.schema, labels=True):
            place = tree.apply(block.codes) * tree.schema.n_classes + block.labels
            counts += np.bincount(place, minlength=counts.size).reshape(counts.shape)
            done(block.done)
    if not counts.any():
        raise InvalidTable(f"{file.name} has no rows to compare with.")
    found = compare(tree, counts)
    if as_json:
        about = {
            "private": False,
            "tree": tree.hash,
            "leaks": list(loaded.record_.leaks if loaded.record_ else ()),
        }
        print_json(about | found)
        return
    warn_if_not_private(loaded.record_)
    for name, value in found.items():
        if isinstance(value, float):
            say(f"{name:8} {value:.4f}")
    head, *classes = map(escape, map(str, (tree.schema.label, *tree.schema.classes)))
    table = RichTable(f"{head}: true, below; predicted, right", *classes)
    for true, row in zip(classes, found["confusion"], strict=True):
        table.add_row(true, *map(str, row))
    show_table(table)
    say("These numbers are computed from the rows given and are not private: they are for the rows' owner.")


def compare(tree: Tree, counts: NDArray[np.int64]) -> dict[str, Any]:
    """How well the tree predicts rows of which `counts` [node, class] reach its leaves.

    Rows of one leaf are predicted alike, so these counts say all that there is to say. AUC is the mean over
    the classes, each against the rest; None where the rows are all of one class.
    """
    n_rows, classes = counts.sum(), range(counts.shape[1])
    best = tree.counts.argmax(axis=1)
    confusion = np.array([[counts[best == p, t].sum() for p in classes] for t in classes])
    likely = np.log(np.maximum(tree.probabilities, np.finfo(np.float64).eps))
    areas = [_auc(tree.probabilities[:, c], counts[:, c], counts.sum(axis=1)) for c in classes]
    defined = [area for area in areas if area is not None]
    return {
        "accuracy": float(np.trace(confusion) / n_rows),
        "log-loss": float(-(counts * likely).sum() / n_rows),
        "AUC": float(np.mean(defined)) if defined else None,
        "rows": int(n_rows),
        "classes": list(tree.schema.classes),
        "confusion": confusion.tolist(),
    }


def _auc(scores: NDArray[np.float64], positive: NDArray[np.int64], rows: NDArray[np.int64]) -> float | None:
    """The share of (positive, negative) pairs in the right order, ties counting half."""
    _, place = np.unique(scores, return_inverse=True)
    hits = np.bincount(place, weights=positive)
    misses = np.bincount(place, weights=rows - positive)
    pairs = hits.sum() * misses.sum()
    below = np.cumsum(misses) - misses / 2
    return float((hits * below).sum() / pairs) if pairs else None


def _predictions(tree: Tree, leaves: NDArray[np.int32], *, proba: bool) -> pa.Table:
    """A column with the label's name, and one a class if probabilities are wanted."""
    import pyarrow as pa

    best = tree.counts.argmax(axis=1)[leaves]
    columns = {tree.schema.label: pa.array(tree.schema.classes).take(pa.array(best))}
    if proba:
        shares = tree.probabilities[leaves].T
        columns |= {f"proba_{name}": share for name, share in zip(tree.schema.classes, shares, strict=True)}
    return pa.table(columns)
