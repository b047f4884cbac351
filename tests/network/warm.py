"""Loads the compiled kernels once, in the process from which the tests' sites and coordinators are forked."""

import numpy as np

from hedgerow.classifier import SimulatedTree
from hedgerow.datasets import synthetic_hospitals
from hedgerow.transport import site_process, site_setup  # noqa: F401

hospitals = synthetic_hospitals(2, rows=400, seed=1)
for method in ("turns", "local", "noisy_columns", "noisy_counts"):
    SimulatedTree(
        schema=hospitals.schema, epsilon=3.0, noise_seed=1, method=method, max_splits=4
    ).fit_holders(hospitals.holders)
for method in ("select", "paper"):
    SimulatedTree(schema=hospitals.schema, epsilon=3.0, noise_seed=1, method=method, max_splits=4).fit(
        *hospitals.holders[0]
    )
assert np is not None
