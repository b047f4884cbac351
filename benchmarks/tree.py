"""Hedgerow against LightGBM and scikit-learn, one tree each, as ratios of alternating runs in one process.

    python benchmarks/tree.py [--rows 100000 1000000 5000000] [--runs 5] [--sklearn-rows 100000]

Not a test: machines differ and are shared, so only ratios are worth comparing.
"""

from __future__ import annotations

import argparse
import gc
import json
import math
import platform
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any
from unittest.mock import patch

import lightgbm
import numpy as np
from sklearn.tree import DecisionTreeClassifier

from hedgerow import Numeric, PrivateTreeClassifier, Schema
from hedgerow.encoding import encode, encode_labels
from hedgerow.learner.topdown import all_of
from hedgerow.threads import n_threads

COLUMNS, BINS, SPLITS = 20, 32, 512


def make_table(rows: int) -> tuple[np.ndarray, np.ndarray]:
    """20 numbers in [0, 1]; two classes that depend on five of them and on chance."""
    rng = np.random.default_rng(7)
    table = rng.random((rows, COLUMNS), dtype=np.float32)
    signal = np.sin(6 * table[:, 0]) + 3 * table[:, 1] * table[:, 2] + np.cos(9 * table[:, 3]) - table[:, 4]
    signal += rng.normal(0, 0.5, rows)
    return table, (signal > 1.0).astype(np.uint8)


SCHEMA = Schema(
    [Numeric(f"x{i:02}", low=0, high=1, thresholds=BINS - 1) for i in range(COLUMNS)],
    label="y", classes=[0, 1],
)  # fmt: skip
LIGHTGBM = {
    "objective": "binary", "num_leaves": SPLITS + 1, "max_bin": BINS, "min_data_in_leaf": 1,
    "min_sum_hessian_in_leaf": 0.0, "learning_rate": 1.0, "verbose": -1, "num_threads": n_threads(),
}  # fmt: skip


def hedgerow() -> PrivateTreeClassifier:
    return PrivateTreeClassifier(schema=SCHEMA, epsilon=math.inf, max_splits=SPLITS)


def seconds(task: Callable[[], object]) -> float:
    gc.collect()
    start = time.perf_counter()
    task()
    return time.perf_counter() - start


def peak_memory(rows: int) -> float:
    """Megabytes that a fit needs at its peak above the table itself, in a process of its own (Linux)."""
    return in_new_process(f"""
from tree import *
hedgerow().fit(*make_table(1000))
table, labels = make_table({rows}); gc.collect()
Path("/proc/self/clear_refs").write_text("5")
before = status("VmRSS")
hedgerow().fit(table, labels)
print((status("VmHWM") - before) / 1024)
""")


def status(key: str) -> int:
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith(key):
            return int(line.split()[1])
    raise LookupError(key)


def compare(rows: int, runs: int, with_sklearn: bool) -> dict[str, float]:
    """Medians of alternating runs, in seconds, and the ratios that matter."""
    table, labels = make_table(rows)
    codes, encoded = encode(table, SCHEMA), encode_labels(labels, SCHEMA)
    fitted = hedgerow().fit(table, labels)
    dataset = lightgbm.Dataset(table, labels, params=LIGHTGBM, free_raw_data=False).construct()
    booster = lightgbm.train(LIGHTGBM, dataset, num_boost_round=1)
    tasks: dict[str, Callable[[], object]] = {
        "hedgerow fit": lambda: hedgerow().fit(table, labels),
        "lightgbm construct + train": lambda: lightgbm.train(
            LIGHTGBM, lightgbm.Dataset(table, labels, params=LIGHTGBM).construct(), num_boost_round=1
        ),
        "hedgerow fit_codes": lambda: hedgerow().fit_codes(codes, encoded),
        "lightgbm train": lambda: lightgbm.train(LIGHTGBM, dataset, num_boost_round=1),
        "hedgerow predict": lambda: fitted.predict(table),
        "lightgbm predict": lambda: booster.predict(table),
    }
    if with_sklearn:
        tasks["scikit-learn fit"] = lambda: DecisionTreeClassifier(max_leaf_nodes=SPLITS + 1).fit(
            table, labels
        )
    times: dict[str, list[float]] = {name: [] for name in tasks}
    for _ in range(runs):
        for name, task in tasks.items():
            times[name].append(seconds(task))
    result = {name: statistics.median(values) for name, values in times.items()}
    result["fit ratio"] = result["hedgerow fit"] / result["lightgbm construct + train"]
    result["train ratio"] = result["hedgerow fit_codes"] / result["lightgbm train"]
    result["predict ratio"] = result["hedgerow predict"] / result["lightgbm predict"]
    result["training accuracy"] = fitted.score(table, labels)
    result["lightgbm training accuracy"] = float(((booster.predict(table) > 0.5) == labels).mean())
    result["peak MB"] = peak_memory(rows)
    result["allowed MB"] = 2 * table.size / 2**20 + 64
    return result


def compare_private(rows: int, runs: int) -> dict[str, float]:
    """Medians of alternating runs with cryptographic noise and without, where both evaluate as many nodes.

    Epsilon 400, so that 512 splits are worth making. Without noise a wave holds most splits back; here it does not.
    """
    table, labels = make_table(rows)
    codes, encoded = encode(table, SCHEMA), encode_labels(labels, SCHEMA)
    private = PrivateTreeClassifier(schema=SCHEMA, epsilon=400, max_splits=SPLITS)
    tasks: dict[str, Callable[[], object]] = {
        "private fit": lambda: private.fit(table, labels),
        "fit without noise": lambda: hedgerow().fit(table, labels),
        "private fit_codes": lambda: private.fit_codes(codes, encoded),
        "fit_codes without noise": lambda: hedgerow().fit_codes(codes, encoded),
    }
    with patch("hedgerow.learner.coordinator.third_of", all_of):
        times: dict[str, list[float]] = {name: [] for name in tasks}
        for _ in range(runs + 1):
            for name, task in tasks.items():
                times[name].append(seconds(task))
    result = {name: statistics.median(values[1:]) for name, values in times.items()}
    result["fit ratio"] = result["private fit"] / result["fit without noise"]
    result["train ratio"] = result["private fit_codes"] / result["fit_codes without noise"]
    return result


def start_up() -> dict[str, float]:
    """Seconds of `import hedgerow` and of a first small fit, in a new process."""
    return in_new_process("""
import time; start = time.perf_counter()
import hedgerow; from hedgerow import PrivateTreeClassifier; imported = time.perf_counter()
from tree import *
table, labels = make_table(1000); ready = time.perf_counter()
hedgerow().fit(table, labels)
print(json.dumps({"import": imported - start, "first fit": time.perf_counter() - ready}))
""")


def in_new_process(script: str) -> Any:
    """What a Python script prints, as JSON."""
    done = subprocess.run(
        [sys.executable, "-c", script], cwd=Path(__file__).parent, capture_output=True, text=True, check=True
    )
    return json.loads(done.stdout)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, nargs="+", default=[100_000, 1_000_000, 5_000_000])
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument(
        "--sklearn-rows", type=int, default=100_000, help="the most rows given to scikit-learn"
    )
    parser.add_argument("--private-rows", type=int, default=1_000_000)
    parser.add_argument("--private-runs", type=int, default=15)
    options = parser.parse_args()
    print(
        f"{platform.machine()}, {n_threads()} threads, Python {platform.python_version()}, "
        f"NumPy {np.__version__}, LightGBM {lightgbm.__version__}"
    )
    print("start-up, warm cache:", {k: round(v, 2) for k, v in start_up().items()})
    results = {}
    for rows in options.rows:
        results[rows] = compare(rows, options.runs, rows <= options.sklearn_rows)
        print(f"\n{rows} rows x {COLUMNS} columns, medians of {options.runs} alternating runs")
        for name, value in results[rows].items():
            print(f"  {name:30s} {value:10.4f}")
    print(
        f"\nwith noise and without, {options.private_rows} rows, medians of {options.private_runs} alternating runs"
    )
    for name, value in compare_private(options.private_rows, options.private_runs).items():
        print(f"  {name:30s} {value:10.4f}")
    if {1_000_000, 5_000_000} <= results.keys():
        growth = results[5_000_000]["hedgerow fit"] / results[1_000_000]["hedgerow fit"]
        print(f"\nfit, 1e6 to 5e6 rows: x {growth:.2f}")


if __name__ == "__main__":
    main()
