"""`hedgerow train`.

What it prints on standard output and writes may be shown to anyone: it holds numbers that were released, and none of
the rows' own (how many there are, how long they took). Standard error is for the owner of the rows.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from hedgerow.cli.console import (
    AsJson,
    Force,
    LineBreaks,
    check_out,
    file_status,
    print_json,
    progress,
    say,
)
from hedgerow.cli.model import account_sentence, warn_if_not_private
from hedgerow.cli.schema import tell_owner
from hedgerow.errors import InvalidTable

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from hedgerow import PrivateTreeClassifier
    from hedgerow.schema import Schema
    from hedgerow.tables import EncodedRows, TableFile


def train(
    data: Annotated[
        list[str],
        typer.Argument(
            help="A table: .csv, .parquet, or - for CSV on standard input. Several are the tables of several "
            "holders, who each spend epsilon of their own.",
        ),
    ],
    schema: Annotated[Path, typer.Option(help="What is public about the tables; see `hedgerow schema`.")],
    out: Annotated[Path, typer.Option(help="Where to write the model.")] = Path("tree.json"),
    epsilon: Annotated[
        float, typer.Option(help="What training may cost any one row; inf for no privacy.")
    ] = 1.0,
    method: Annotated[
        str, typer.Option(help="auto, select, paper, turns, local, noisy_columns or noisy_counts.")
    ] = "auto",
    selector: Annotated[
        str, typer.Option(help="auto, permute_and_flip, exponential or report_noisy_max.")
    ] = "auto",
    criterion: Annotated[str, typer.Option(help="auto, gini, entropy, root_gini or error.")] = "auto",
    budget: Annotated[str, typer.Option(help="auto, uniform, decay or harmonic.")] = "auto",
    leaf_fraction: Annotated[
        float | None, typer.Option(help="The share of epsilon that labels the leaves.")
    ] = None,
    max_splits: Annotated[int, typer.Option(help="The most inner nodes.")] = 512,
    max_depth: Annotated[int | None, typer.Option(help="The most splits on a path.")] = None,
    target_error: Annotated[
        float | None, typer.Option(help="Split no node of less than this / max-splits of the rows.")
    ] = None,
    min_gain: Annotated[float | None, typer.Option(help="Split only where impurity falls by more.")] = None,
    max_rows: Annotated[
        int | None, typer.Option(help="A public bound on any holder's rows, for entropy and root_gini.")
    ] = None,
    neighbours: Annotated[
        str, typer.Option(help="Privacy hides that a row is there (add-remove) or what is in it (replace).")
    ] = "add-remove",
    noise: Annotated[str, typer.Option(help="exact (our own) or opendp (slower).")] = "exact",
    noise_seed: Annotated[
        int | None, typer.Option(help="Reproducible noise, which is NOT PRIVATE, for experiments.")
    ] = None,
    owner_warnings: Annotated[
        bool, typer.Option(help="Tell the owner, on standard error, how the rows fit the schema.")
    ] = True,
    line_breaks: LineBreaks = False,
    force: Force = False,
    as_json: AsJson = False,
) -> None:
    """Learn a tree with differential privacy, and write it with the account of what it has cost."""
    from hedgerow import PrivateTreeClassifier
    from hedgerow.files import replacing
    from hedgerow.schema import Schema
    from hedgerow.tables import TableFile

    agreed = Schema.load(schema)
    model = PrivateTreeClassifier(
        schema=agreed,
        epsilon=epsilon,
        method=method,
        selector=selector,
        criterion=criterion,
        budget=budget,
        leaf_fraction=leaf_fraction,
        max_splits=max_splits,
        max_depth=max_depth,
        target_error=target_error,
        min_gain=min_gain,
        max_rows=max_rows,
        neighbours=neighbours,
        noise=noise,
        noise_seed=noise_seed,
    )
    model.plan(len(data))  # refuses now what would be refused when all rows are read
    files = [TableFile(path, line_breaks=line_breaks) for path in _all_different(data)]
    check_out(out, [*data, schema], force=force)
    with replacing(out) as file:
        rows, holders = _read(files, agreed, owner_warnings=owner_warnings)
        with progress("learning"):
            model.fit_codes(rows.codes, rows.labels, holders)
        file.write(model.to_json().encode())
    _print(model, out, as_json=as_json)


def _all_different(paths: Sequence[str]) -> Sequence[str]:
    """Holders have disjoint rows: a file that counts twice would pay twice."""
    known: list[os.stat_result] = []
    for path in paths:
        status = file_status(path)
        if any(os.path.samestat(found, other) for found in status for other in known):
            raise InvalidTable(f"{path} is given twice; each table belongs to one holder, once.")
        known += status
    return paths


def _read(
    files: Sequence[TableFile], schema: Schema, *, owner_warnings: bool
) -> tuple[EncodedRows, list[NDArray[np.int32]] | None]:
    """The rows of all files, and which rows are whose if there are several."""
    import numpy as np

    from hedgerow.tables import EncodedRows

    sizes = [file.n_rows for file in files]
    rows = EncodedRows(schema, None if None in sizes else sum(size or 0 for size in sizes))
    holders = []
    for file in files:
        start, review = len(rows), file.review(schema) if owner_warnings else None
        with progress(f"reading {file.name}") as done:
            for block in file.blocks(schema, labels=True, review=review):
                rows.append(block)
                done(block.done)
        if review is not None:  # an error would tell whoever waits for the model
            tell_owner(file.name, review)
        holders.append(np.arange(start, len(rows), dtype=np.int32))
    return rows, holders if len(files) > 1 else None


def _print(model: PrivateTreeClassifier, out: Path, *, as_json: bool) -> None:
    record, tree = model.record_, model.tree_
    assert record is not None
    if as_json:
        size = {"splits": tree.n_splits, "leaves": tree.n_leaves, "depth": tree.depth}
        private = {"private": not record.leaks, "schema": tree.schema.hash}
        print_json({"model": str(out)} | private | size | {"training": record.to_dict()})
        return
    warn_if_not_private(record)
    for sentence in record.plan:
        say(sentence)
    for number, account in enumerate(record.accounts, start=1):
        say(account_sentence(number, account))
    say(f"The tree has {tree.n_splits} splits and is {tree.depth} deep. It is in {out}.")
    if not record.leaks:
        say("Training on the same rows again costs them epsilon again.")
