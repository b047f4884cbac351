"""Hedgerow beside other libraries: the same rows for training and test, the same epsilons.

Other private libraries run in an environment of their own (`_other_libraries.py`) and get what Hedgerow gets: the
public bounds and categories. Where a library has settings to choose, the best on the test rows counts, which
favours it; Hedgerow runs with its defaults.
"""

from __future__ import annotations

import csv
import json
import shutil
import subprocess
import tempfile
import time
from collections.abc import Collection, Iterator, Sequence
from dataclasses import asdict, dataclass
from itertools import chain, product
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.figure import Figure
from numpy.typing import NDArray
from rich.console import Console

from hedgerow.classifier import SimulatedTree
from hedgerow.datasets import Dataset, load
from hedgerow.encoding import encode, encode_labels
from hedgerow.experiments import _other_libraries
from hedgerow.experiments.accuracy import Encoded, scores
from hedgerow.experiments.plots import COLOURS, save
from hedgerow.experiments.runner import progress_bars, whole_lines
from hedgerow.experiments.statements import page_of, put_between_markers
from hedgerow.schema import Numeric

DATASETS = ("adult", "bank", "creditcard", "skin", "mnist")
EPSILONS = (0.1, 0.5, 1.0, 2.0, 8.0)
NO_PRIVACY = np.inf
CSV = "comparison.csv"

SETTINGS: dict[str, list[dict[str, float]]] = {
    "diffprivlib tree": [{"max_depth": depth, "one_hot": hot} for depth in (3, 5, 8) for hot in (0, 1)],
    "diffprivlib forest": [
        {"n_estimators": 10, "max_depth": depth, "one_hot": hot} for depth in (5, 8) for hot in (0, 1)
    ],
    "interpret DP-EBM": [
        {"learning_rate": rate, "max_rounds": rounds, "delta": 1e-6}
        for rate, rounds in ((0.01, 300), (0.1, 100), (0.1, 300), (0.2, 50), (0.2, 200), (0.5, 20))
    ],
}


Key = tuple[str, str, str, float, int]  # data set, library, setting, epsilon, run


@dataclass(frozen=True)
class Outcome:
    """One model; `epsilon` infinite: no privacy."""

    dataset: str
    library: str
    setting: str
    epsilon: float
    run: int
    accuracy: float
    auc: float
    seconds: float


@dataclass(frozen=True)
class Plain:
    """The rows as numbers [row, column]: clipped to the public bounds, categories by number."""

    columns: list[dict[str, float]]
    train: NDArray[np.float64]
    train_labels: NDArray[Any]
    test: NDArray[np.float64]
    test_labels: NDArray[Any]

    @classmethod
    def of(cls, dataset: Dataset) -> Plain:
        """What every library is given."""
        parts: list[Any] = []
        for rows in (dataset.train, dataset.test):
            table, labels = dataset.rows(rows)
            codes = encode(table, dataset.schema)
            columns = [
                np.clip(table[column.name].to_numpy(float), column.low, column.high)
                if isinstance(column, Numeric)
                else codes.column(i).astype(float)
                for i, column in enumerate(dataset.schema.columns)
            ]
            parts += [np.column_stack(columns), encode_labels(labels, dataset.schema)]
        facts: list[dict[str, float]] = [
            {"low": column.low, "high": column.high, "categories": 0}
            if isinstance(column, Numeric)
            else {"low": 0, "high": 1, "categories": column.n_bins}
            for column in dataset.schema.columns
        ]
        return cls(facts, *parts)

    @property
    def categorical(self) -> list[int]:
        """The places of the categorical columns."""
        return [i for i, column in enumerate(self.columns) if column["categories"]]


def compare(names: Sequence[str], runs: int, python: str | None, out: Path, console: Console) -> Path:
    """Fit everything that the CSV does not have yet, then write the plot and the page beside `out`."""
    out.mkdir(parents=True, exist_ok=True)
    done = finished(out / CSV)
    with progress_bars() as progress:
        for name in names:
            bar = progress.add_task(name, total=None)
            dataset = load(name)
            plain = Plain.of(dataset)
            models = chain(
                hedgerow(name, Encoded.of(dataset), runs, done), without_privacy(name, plain, done)
            )
            if python is not None:
                models = chain(models, other_libraries(name, plain, runs, python, console, done))
            for outcome in models:
                append(out / CSV, outcome)
                progress.advance(bar)
            progress.update(bar, total=progress.tasks[bar].completed)
    if python is None:
        console.print("No environment was named with --python: diffprivlib and interpret are left out.")
    best = best_settings(pd.read_csv(out / CSV))
    plot(best, out)
    return put_between_markers(page_of(out), table(best, out), "Comparison with other libraries")


def finished(path: Path) -> set[Key]:
    """The models in the CSV."""
    return {
        (row["dataset"], row["library"], row["setting"], float(row["epsilon"]), int(row["run"]))
        for row in csv.DictReader(whole_lines(path))
    }


def append(path: Path, outcome: Outcome) -> None:
    """Write an outcome down, so that a comparison that is stopped goes on from there."""
    with path.open("a", newline="") as file:
        writer = csv.DictWriter(file, list(asdict(outcome)), lineterminator="\n")
        if file.tell() == 0:
            writer.writeheader()
        writer.writerow(asdict(outcome))


def hedgerow(name: str, data: Encoded, runs: int, done: Collection[Key] = ()) -> Iterator[Outcome]:
    """One holder, the defaults. The first fit loads compiled code and is not timed."""
    SimulatedTree(schema=data.schema, noise_seed=0).fit_codes(*data.train)
    for epsilon, run in product(EPSILONS, range(runs)):
        key: Key = (name, "Hedgerow", "defaults", epsilon, run)
        if key in done:
            continue
        model = SimulatedTree(schema=data.schema, epsilon=epsilon, noise_seed=run)
        started = time.perf_counter()
        model.fit_codes(*data.train)
        seconds = time.perf_counter() - started
        probabilities = model.tree_.probabilities[model.tree_.apply(data.test[0])]
        yield Outcome(*key, *scores(probabilities, data.test[1]), seconds)


def without_privacy(name: str, plain: Plain, done: Collection[Key] = ()) -> Iterator[Outcome]:
    """What the data would allow: a tree of scikit-learn's, and LightGBM."""
    from lightgbm import LGBMClassifier
    from sklearn.tree import DecisionTreeClassifier

    hot, _ = _other_libraries.expand(plain.train, plain.columns, one_hot=True)
    hot_test, _ = _other_libraries.expand(plain.test, plain.columns, one_hot=True)
    for leaves in (32, 128, 513):
        key: Key = (name, "scikit-learn tree", f"max_leaf_nodes={leaves}", NO_PRIVACY, 0)
        if key not in done:
            tree = DecisionTreeClassifier(max_leaf_nodes=leaves, random_state=0)
            yield _timed(key, tree, hot, hot_test, plain)
    key = (name, "LightGBM", "defaults", NO_PRIVACY, 0)
    if key not in done:
        boosted = LGBMClassifier(random_state=0, n_jobs=1, verbose=-1)
        yield _timed(key, boosted, plain.train, plain.test, plain, categorical_feature=plain.categorical)


def _timed(key: Key, model: Any, train: Any, test: Any, plain: Plain, **fit: Any) -> Outcome:
    started = time.perf_counter()
    model.fit(train, plain.train_labels, **fit)
    seconds = time.perf_counter() - started
    return Outcome(*key, *scores(model.predict_proba(test), plain.test_labels), seconds)


def other_libraries(
    name: str, plain: Plain, runs: int, python: str, console: Console, done: Collection[Key] = ()
) -> Iterator[Outcome]:
    """DP-EBM and diffprivlib in the environment of another Python."""
    if shutil.which(python) is None:
        console.print(f"There is no {python}: diffprivlib and interpret are left out.", markup=False)
        return
    tasks = [
        {"library": library, "options": options, "epsilon": epsilon, "seed": seed}
        for library, settings in SETTINGS.items()
        for options in settings
        for epsilon in EPSILONS
        for seed in range(runs)
        if (name, library, _in_words(options), epsilon, seed) not in done
    ]
    with tempfile.TemporaryDirectory(prefix="hedgerow-compare-") as folder:
        hand_over(plain, tasks, Path(folder))
        command = [python, _other_libraries.__file__, folder]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:  # noqa: S603 - the user's
            assert process.stdout is not None
            for line in process.stdout:
                answer = json.loads(line)
                if "skipped" in answer:
                    console.print(
                        f"{name}: {answer['skipped']} is left out: {answer['reason']}.", markup=False
                    )
                    continue
                task: dict[str, Any] = tasks[answer["task"]]
                yield Outcome(
                    name, task["library"], _in_words(task["options"]), task["epsilon"], task["seed"],
                    answer["accuracy"], answer["auc"], answer["seconds"],
                )  # fmt: skip
    if process.returncode:
        console.print(f"{name}: {python} stopped with an error; what it had finished is kept.", markup=False)


def _in_words(options: dict[str, float]) -> str:
    return ", ".join(f"{key}={value:g}" for key, value in options.items())


def hand_over(plain: Plain, tasks: Sequence[dict[str, Any]], folder: Path) -> None:
    """Write rows and tasks where `_other_libraries` reads them."""
    (folder / "columns.json").write_text(json.dumps(plain.columns))
    (folder / "tasks.json").write_text(json.dumps(tasks))
    for part in ("train", "train_labels", "test", "test_labels"):
        np.save(folder / f"{part.replace('_', '-')}.npy", getattr(plain, part))


def best_settings(outcomes: pd.DataFrame) -> pd.DataFrame:
    """Means over runs, for the setting with the best accuracy of each (data set, library, epsilon)."""
    keys = ["dataset", "library", "epsilon", "setting"]
    grouped = outcomes.groupby(keys)[["accuracy", "auc", "seconds"]]
    mean = grouped.mean().join(grouped.size().rename("runs"))
    mean["error"] = outcomes.groupby(keys).accuracy.sem().fillna(0.0)
    mean = mean.reset_index()
    best = mean.loc[mean.groupby(keys[:3]).accuracy.idxmax()]
    return best.sort_values(["dataset", "epsilon", "accuracy"], ascending=[True, True, False])


def table(best: pd.DataFrame, out: Path) -> str:
    """The plot and one table, in Markdown."""
    lines = [
        f"![accuracy against epsilon]({out.name}/comparison.png)",
        "",
        f"From `{out.name}/{CSV}`; {best.runs.max()} runs of every private model. The setting is the best of those "
        "tried, on the test rows; Hedgerow has none to choose.",
        "",
        "| data set | epsilon | library | accuracy | AUC | fit, seconds | setting |",
        "|---|---|---|---|---|---|---|",
    ]
    for row in best.itertuples():
        epsilon = "no privacy" if row.epsilon == NO_PRIVACY else f"{row.epsilon:g}"
        lines.append(
            f"| {row.dataset} | {epsilon} | {row.library} | {row.accuracy:.4f} ± {row.error:.4f} | {row.auc:.3f} | "
            f"{row.seconds:.2f} | {row.setting} |"
        )
    return "\n".join(lines)


def plot(best: pd.DataFrame, out: Path) -> list[Path]:
    """Accuracy against epsilon, one panel a data set; grey lines are models without privacy."""
    names = list(dict.fromkeys(best.dataset))
    libraries = [library for library in ("Hedgerow", *SETTINGS) if library in set(best.library)]
    figure = Figure(figsize=(2.8 * len(names) + 1.2, 3.4), layout="constrained")
    panels = figure.subplots(1, len(names), squeeze=False)[0]
    for panel, name in zip(panels, names, strict=True):
        mine = best[best.dataset == name]
        for library, colour in zip(libraries, COLOURS, strict=False):
            line = mine[mine.library == library].sort_values("epsilon")
            panel.errorbar(
                line.epsilon,
                line.accuracy,
                2 * line.error,
                marker=".",
                linewidth=1.3,
                color=colour,
                label=library,
            )
        for row, style in zip(
            mine[np.isinf(mine.epsilon)].sort_values("library").itertuples(), ("-", "--"), strict=False
        ):
            panel.axhline(
                row.accuracy, color="grey", linewidth=1, linestyle=style, label=f"{row.library}, no privacy"
            )
        panel.set_xscale("log")
        panel.set_title(name, fontsize=9)
        panel.set_xlabel("epsilon", fontsize=8)
        panel.tick_params(labelsize=7)
        panel.grid(alpha=0.25)
    panels[0].set_ylabel("test accuracy", fontsize=9)
    handles, labels = panels[0].get_legend_handles_labels()
    columns = min(len(labels), max(2, len(names)))
    figure.legend(handles, labels, loc="outside lower center", ncols=columns, fontsize=8, frameon=False)
    written = [out / f"comparison.{kind}" for kind in ("png", "svg")]
    save(figure, written)
    return written
