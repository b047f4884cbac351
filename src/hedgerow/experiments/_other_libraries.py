"""Fit other libraries' private models in an environment of their own. Knows nothing of Hedgerow.

`python _other_libraries.py FOLDER` reads the rows that `comparison.hand_over` wrote and prints a line of JSON for
each task of tasks.json as it is done; a library that is not installed gets one line that says so.
"""

from __future__ import annotations

import json
import sys
import time
import warnings
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.metrics import roc_auc_score


def expand(matrix: Any, columns: Sequence[dict[str, Any]], one_hot: bool) -> tuple[Any, tuple[Any, Any]]:
    """The columns with their public bounds; categories by number, or as a column of 0 and 1 each."""
    parts: list[Any] = []
    low: list[float] = []
    high: list[float] = []
    for values, column in zip(matrix.T, columns, strict=True):
        if column["categories"] and one_hot:
            parts.append(values[:, None] == np.arange(column["categories"]))
            low += [0.0] * column["categories"]
            high += [1.0] * column["categories"]
        else:
            parts.append(values[:, None])
            low.append(column["low"])
            high.append(column["categories"] - 1 if column["categories"] else column["high"])
    return np.concatenate(parts, axis=1, dtype=np.float64), (np.array(low), np.array(high))


Make = Callable[..., tuple[Any, Any, Any]]  # a model, and the rows to fit and to test it on


def diffprivlib_model(kind: str) -> Make:
    """A function that makes a diffprivlib model."""

    def make(
        columns: Any,
        train: Any,
        test: Any,
        n_classes: int,
        epsilon: float,
        seed: int,
        options: dict[str, Any],
    ) -> tuple[Any, Any, Any]:
        from diffprivlib.models import (  # type: ignore[import-not-found,unused-ignore]
            DecisionTreeClassifier,
            RandomForestClassifier,
        )

        options = dict(options)
        one_hot = options.pop("one_hot")
        train, bounds = expand(train, columns, one_hot)
        test, _ = expand(test, columns, one_hot)
        model = {"tree": DecisionTreeClassifier, "forest": RandomForestClassifier}[kind]
        fixed = {"epsilon": epsilon, "bounds": bounds, "classes": np.arange(n_classes), "random_state": seed}
        return model(**fixed, **options), train, test

    return make


def dp_ebm(
    columns: Any, train: Any, test: Any, n_classes: int, epsilon: float, seed: int, options: dict[str, Any]
) -> tuple[Any, Any, Any]:
    """DP-EBM of interpret, with everything public told to it."""
    from interpret.privacy import (  # type: ignore[import-not-found,unused-ignore]
        DPExplainableBoostingClassifier,
    )

    assert n_classes == 2, "DP-EBM takes two classes"
    kinds = ["nominal" if column["categories"] else "continuous" for column in columns]
    bounds = {i: (c["low"], c["high"]) for i, c in enumerate(columns) if not c["categories"]}
    model = DPExplainableBoostingClassifier(
        feature_types=kinds, privacy_bounds=bounds, epsilon=epsilon, random_state=seed, n_jobs=1, **options
    )
    return model, train, test


LIBRARIES: dict[str, Make] = {
    "diffprivlib tree": diffprivlib_model("tree"),
    "diffprivlib forest": diffprivlib_model("forest"),
    "interpret DP-EBM": dp_ebm,
}


def say(answer: dict[str, Any]) -> None:
    """One line, at once."""
    sys.stdout.write(json.dumps(answer) + "\n")
    sys.stdout.flush()


def main(folder: Path) -> None:
    """Work through the tasks."""
    warnings.simplefilter("ignore")
    columns = json.loads((folder / "columns.json").read_text())
    train, train_labels, test, test_labels = (
        np.load(folder / f"{name}.npy") for name in ("train", "train-labels", "test", "test-labels")
    )
    n_classes = int(max(train_labels.max(), test_labels.max())) + 1
    missing: set[str] = set()
    for number, task in enumerate(json.loads((folder / "tasks.json").read_text())):
        library = task["library"]
        if library in missing:
            continue
        try:
            model, fit_on, test_on = LIBRARIES[library](
                columns, train, test, n_classes, task["epsilon"], task["seed"], task["options"]
            )
            started = time.perf_counter()
            model.fit(fit_on, train_labels)
            seconds = time.perf_counter() - started
            probabilities = np.asarray(model.predict_proba(test_on))
            predicted = np.asarray(model.predict(test_on))
        except (ImportError, AssertionError) as error:
            missing.add(library)
            say({"skipped": library, "reason": str(error)})
            continue
        scores = probabilities[:, 1] if n_classes == 2 else probabilities
        result = {
            "task": number,
            "accuracy": float((predicted == test_labels).mean()),
            "auc": float(roc_auc_score(test_labels, scores, multi_class="ovr")),
            "seconds": seconds,
        }
        say(result)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
