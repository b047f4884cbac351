"""`hedgerow demo`."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.table import Table as RichTable

from hedgerow.cli.console import console, progress, say

PATIENTS = 60_000


def demo(
    epsilon: Annotated[float, typer.Option(help="What training may cost any one patient.")] = 1.0,
    folder: Annotated[Path, typer.Option(help="Where to write the tree and its report.")] = Path(
        "hedgerow-demo"
    ),
) -> None:
    """Four hospitals learn to recognise early malaria, and show each other no patient."""
    from hedgerow.classifier import SimulatedTree
    from hedgerow.datasets import synthetic_hospitals
    from hedgerow.datasets._hospitals import MISLABELLED
    from hedgerow.report import write_report

    folder.mkdir(parents=True, exist_ok=True)
    hospitals = synthetic_hospitals(rows=PATIENTS)
    schema, holders = hospitals.schema, hospitals.holders
    sizes = [len(labels) for _, labels in holders]
    say(f"Four synthetic hospitals have {', '.join(f'{size:,}' for size in sizes)} patients.")
    say(f"They agree on a schema with {len(schema.splits)} possible splits, and on epsilon {epsilon:g}.\n")

    test = hospitals.test_table, hospitals.test_labels
    compared: list[dict[str, Any]] = []

    def compare(tree: SimulatedTree, name: str, patients: int) -> None:
        compared.append(
            {"tree": name, "patients": patients, "splits": tree.tree_.n_splits, "accuracy": tree.score(*test)}
        )
        done(len(compared) / (len(holders) + 2))

    with progress("learning six trees") as done:
        model = SimulatedTree(schema=schema, epsilon=epsilon).fit_holders(holders)
        compare(model, "all hospitals, private", sum(sizes))
        exact = SimulatedTree(schema=schema, epsilon=math.inf, max_splits=64).fit_holders(holders)
        compare(exact, "all hospitals, NOT private", sum(sizes))
        for number, holder in enumerate(holders, start=1):
            alone = SimulatedTree(schema=schema, epsilon=epsilon).fit(*holder)
            compare(alone, f"hospital {number} alone, private", sizes[number - 1])

    say(model.tree_.export_text())
    results = RichTable("tree", "patients", "splits", "accuracy", title="\nOn other patients")
    for row in compared:
        results.add_row(row["tree"], f"{row['patients']:,}", str(row["splits"]), f"{row['accuracy']:.3f}")
    console.print(results)
    usual = max((test[1] == label).mean() for label in schema.classes)
    say(
        f"Always giving the more frequent answer is right {usual:.3f} of the time, the true rule {1 - MISLABELLED:.3f}.\n"
    )
    for number, ledger in enumerate(model.ledgers_, start=1):
        say(
            f"Hospital {number} spent {float(ledger.spent):.4f} of the epsilon {float(ledger.grant):g} it granted."
        )
    say(f"{model.plan_.reasons[-1]} {model.traffic_}.\n")

    model.save(folder / "tree.json")
    evaluation = {"patients": len(test[1]), "accuracy": compared[0]["accuracy"], "compared": compared}
    write_report(model, folder / "report.html", evaluation)
    say(f"The tree is in {folder / 'tree.json'}; open {folder / 'report.html'} in a browser.")
