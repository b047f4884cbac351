"""Adult's training rows over sites on this machine: rounds, seconds, bytes, memory. As a table for docs/network.md.

    HEDGEROW_DATA=... python benchmarks/network.py [--study 0 1 2 3 4 5 6 7]

A coordinator and 4, 16 or 64 sites, as real processes with mutual TLS and cryptographic noise. Each study takes about a minute.
"""

from __future__ import annotations

import argparse

import numpy as np

from hedgerow.datasets import load
from hedgerow.transport.demo import demo

DEEP = {"budget": "uniform", "max_depth": 15}
STUDIES = (
    ("TakeTurns, automatic budget", 4, {}),
    ("LocalSelection, automatic budget", 4, {"method": "local"}),
    ("NoisyCounts per column, automatic budget", 4, {"method": "noisy_columns"}),
    ("LocalSelection, uniform budget, depth 15", 4, {"method": "local"} | DEEP),
    ("NoisyCounts per column, uniform budget, depth 15", 4, {"method": "noisy_columns"} | DEEP),
    ("NoisyCounts per split, uniform budget, depth 15", 4, {"method": "noisy_counts"} | DEEP),
    ("TakeTurns, automatic budget", 16, {}),
    ("TakeTurns, automatic budget", 64, {}),
)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--study", type=int, nargs="*", default=range(len(STUDIES)), help="which of them")
    adult = load("adult")
    shuffled = np.random.default_rng(0).permutation(adult.train)
    for study in parser.parse_args().study:
        name, sites, wishes = STUDIES[study]
        parts = [adult.rows(np.sort(part)) for part in np.array_split(shuffled, sites)]
        tables = [(table.to_numpy(dtype=object), labels) for table, labels in parts]
        figures = demo(adult.schema, tables, lambda _: None, epsilon=8.0, max_splits=512, **wishes)
        if study == 0:
            print("| study |", " | ".join(figures), "|")
        print(f"| {name} |", " | ".join(map(str, figures.values())), "|", flush=True)


if __name__ == "__main__":
    main()
