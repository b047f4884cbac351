"""`hedgerow demo`."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Annotated

import typer
from rich.table import Table as RichTable

from hedgerow.cli.console import console


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
