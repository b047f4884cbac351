"""How accurate the defaults are: `python -m hedgerow.experiments.accuracy`.

Test accuracy and ROC-AUC of trees that were given a schema and an epsilon and nothing else, mean and standard
deviation over seeds, beside the best tree without privacy. The 90/10 split of the rows has a fixed seed.
With several holders, each seed deals the training rows out anew, at random and equally.
"""

from __future__ import annotations

import argparse
import json
import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from functools import cached_property
from typing import Any

import joblib
import numpy as np
from numpy.typing import NDArray
from rich.console import Console
from rich.progress import track
from rich.table import Table
from sklearn.metrics import roc_auc_score

from hedgerow.classifier import PrivateTreeClassifier, SimulatedTree
from hedgerow.datasets import Dataset, check_files, load
from hedgerow.encoding import Codes, encode, encode_labels
from hedgerow.experiments.distinct import Distinct, Histograms
from hedgerow.schema import Schema

DATASETS = ("adult", "bank", "creditcard", "skin", "mnist", "kddcup99")
EPSILONS = (0.1, 0.5, 1.0, 2.0, 8.0)
HOLDERS = (1, 4, 16)
SEEDS = 20


@dataclass(frozen=True)
class Encoded:
    """A data set's training and test rows as codes."""

    schema: Schema
    train: tuple[Codes, NDArray[Any]]
    test: tuple[Codes, NDArray[Any]]

    @classmethod
    def of(cls, dataset: Dataset) -> Encoded:
        """Encode both parts once; every fit shares them."""
        parts = []
        for rows in (dataset.train, dataset.test):
            table, labels = dataset.rows(rows)
            parts.append((encode(table, dataset.schema), encode_labels(labels, dataset.schema)))
        return cls(dataset.schema, parts[0], parts[1])

    @cached_property
    def histograms(self) -> Histograms:
        """Of the training rows, for all trees that are learned from all of them."""
        return Histograms()

    @cached_property
    def distinct(self) -> tuple[Distinct, Distinct]:
        """Of the training rows and of the test rows."""
        return Distinct.of(*self.train), Distinct.of(*self.test)


@dataclass(frozen=True)
class Result:
    """One line of the table."""

    dataset: str
    holders: int
    epsilon: float
    accuracy: float
    accuracy_sd: float
    auc: float
    splits: float


def scores(probabilities: NDArray[np.float64], labels: NDArray[Any]) -> tuple[float, float]:
    """Accuracy, and ROC-AUC (one against the rest for more than two classes)."""
    accuracy = float((probabilities.argmax(axis=1) == labels).mean())
    ranked = probabilities[:, 1] if probabilities.shape[1] == 2 else probabilities
    return accuracy, float(roc_auc_score(labels, ranked, multi_class="ovr"))


def score(model: PrivateTreeClassifier, test: tuple[Codes, NDArray[Any]]) -> tuple[float, float, int]:
    """Accuracy, ROC-AUC, number of splits."""
    codes, labels = test
    tree = model.tree_
    return *scores(tree.probabilities[tree.apply(codes)], labels), tree.n_splits


def deal_equally(codes: Codes, holders: int, rng: np.random.Generator) -> list[NDArray[np.int64]]:
    """Each holder's row numbers: at random, equally many."""
    return np.array_split(rng.permutation(codes.n_rows), holders)


def measure(name: str, data: Encoded, holders: int, epsilon: float, seeds: int, jobs: int) -> Result:
    """The defaults at one epsilon."""

    def run(seed: int) -> tuple[float, float, int]:
        model = SimulatedTree(schema=data.schema, epsilon=epsilon, noise_seed=seed)
        rng = np.random.default_rng(seed)
        dealt = None if holders == 1 else deal_equally(data.train[0], holders, rng)
        return score(model.fit_codes(*data.train, dealt), data.test)

    runs = joblib.Parallel(n_jobs=jobs, prefer="threads")(joblib.delayed(run)(seed) for seed in range(seeds))
    accuracy, auc, splits = np.array(runs).T
    return Result(name, holders, epsilon, accuracy.mean(), accuracy.std(), auc.mean(), splits.mean())


def measure_without_privacy(name: str, data: Encoded) -> Result:
    """The best of a few sizes, chosen on the test rows: a generous reference."""
    best = Result(name, 1, math.inf, 0.0, 0.0, 0.0, 0.0)
    for max_splits in (8, 16, 32, 64, 128, 256, 512):
        model = SimulatedTree(schema=data.schema, epsilon=math.inf, max_splits=max_splits)
        accuracy, auc, splits = score(model.fit_codes(*data.train), data.test)
        if accuracy > best.accuracy:
            best = Result(name, 1, math.inf, accuracy, 0.0, auc, splits)
    return best


def show(results: Sequence[Result], console: Console) -> None:
    """A table for each number of holders: one row a data set, one column an epsilon."""
    for holders in sorted({result.holders for result in results}):
        show_holders([result for result in results if result.holders == holders], holders, console)


def show_holders(results: Sequence[Result], holders: int, console: Console) -> None:
    """Accuracy, its standard deviation, AUC and number of splits."""
    epsilons = sorted({result.epsilon for result in results})
    title = f"{holders} holder{'s' if holders > 1 else ''}: test accuracy (sd), AUC, splits"
    table = Table("", *(f"epsilon {e:g}" for e in epsilons), title=title)
    for name in dict.fromkeys(result.dataset for result in results):
        cells = []
        for epsilon in epsilons:
            [r] = [r for r in results if (r.dataset, r.epsilon) == (name, epsilon)]
            cells.append(f"{r.accuracy:.4f} ({r.accuracy_sd:.4f})\n{r.auc:.3f}, {r.splits:.0f}")
        table.add_row(name, *cells)
    console.print(table)


def option_parser(
    description: str | None, holders: Sequence[int], epsilons: Sequence[float]
) -> argparse.ArgumentParser:
    """The options of all measurements of accuracy, with these defaults."""
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("--datasets", nargs="+", default=DATASETS)
    parser.add_argument("--holders", nargs="+", type=int, default=holders)
    parser.add_argument("--epsilons", nargs="+", type=float, default=epsilons)
    parser.add_argument("--seeds", type=int, default=SEEDS)
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--json", action="store_true")
    return parser


def main() -> None:
    """Command line."""
    options = option_parser(__doc__, HOLDERS, EPSILONS).parse_args()
    console = Console(width=150)
    results = []
    check_files(options.datasets)
    for name in track(options.datasets, "data sets", console=Console(stderr=True)):
        data = Encoded.of(load(name))
        results += [
            measure(name, data, holders, epsilon, options.seeds, options.jobs)
            for holders in options.holders
            for epsilon in options.epsilons
        ]
        results.append(measure_without_privacy(name, data))
    if options.json:
        print(json.dumps([asdict(result) for result in results], indent=1))  # noqa: T201 - for machines
    else:
        show(results, console)


if __name__ == "__main__":
    main()
