"""Estimates from noisy counts: unbiased where they should be, better than any one measurement."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from hedgerow.learner.estimates import combine, laplace_variance, least_squares, on_simplex, reconcile, smooth
from hedgerow.learner.topdown import Growth

counts = arrays(np.float64, st.tuples(st.integers(1, 5), st.integers(1, 6)), elements=st.floats(-1e6, 1e6))


@given(counts)
def test_projected_counts_are_non_negative_and_keep_their_sum(noisy):
    projected = on_simplex(noisy)
    assert (projected >= 0).all()
    assert np.allclose(projected.sum(axis=-1), np.maximum(noisy.sum(axis=-1), 0), atol=1e-6)


@given(counts)
def test_the_projection_is_the_nearest_point(noisy):
    """Its optimality condition: every positive entry was moved by the same amount, every zero by no more."""
    projected = on_simplex(noisy)
    for before, after in zip(noisy, projected, strict=True):
        if before.sum() > 1e-3:
            shift = (before - after)[after > 1e-9]
            assert np.ptp(shift) < 1e-6
            assert (before[after <= 1e-9] <= shift.mean() + 1e-6).all()


def test_the_variance_is_that_of_the_discrete_laplace_distribution():
    epsilon = 0.7
    z = np.arange(-200, 201)
    weights = np.exp(-epsilon * np.abs(z))
    assert laplace_variance(Fraction(7, 10)) == pytest.approx((weights * z**2).sum() / weights.sum())


def test_measurements_are_weighted_by_inverse_variance():
    value, variance = combine(
        np.array([[0.0], [3.0]]), np.array([1.0, math.inf]), np.array([[10.0], [10.0]]), np.array([4.0, 4.0])
    )
    assert value.ravel() == pytest.approx([2.0, 10.0])
    assert variance == pytest.approx([0.8, 4.0])


def test_cells_are_reconciled_with_a_better_known_parent():
    cells = np.array([[[60.0], [60.0]]])
    exact, variance = reconcile(np.array([[100.0]]), np.array([1e-12]), cells, np.array([8.0]))
    assert exact.ravel() == pytest.approx([50.0, 50.0])
    assert variance == pytest.approx([4.0])
    unknown, variance = reconcile(np.array([[100.0]]), np.array([math.inf]), cells, np.array([8.0]))
    assert unknown.ravel() == pytest.approx([60.0, 60.0])
    assert variance == pytest.approx([8.0])


def family(counts: list[list[float]], noise: list[float]) -> Growth:
    """A root with two leaves, each measured once."""
    growth = Growth(len(counts[0]), budget=0)
    growth.open(np.array([0]))
    nodes = growth.nodes
    nodes["counts"] = nodes["measured"] = counts
    nodes["variance"] = nodes["noise"] = noise
    nodes["is_split"][0] = True
    return growth


def test_least_squares_is_the_solution_of_the_normal_equations():
    tree = family([[100.0], [60.0], [50.0]], [1.0, 4.0, 4.0])
    least_squares(tree)
    design = np.array([[1.0, 1.0], [1.0, 0.0], [0.0, 1.0]])
    weights = np.diag([1.0, 1 / 4, 1 / 4])
    best = np.linalg.solve(design.T @ weights @ design, design.T @ weights @ np.array([100.0, 60.0, 50.0]))
    assert tree.nodes["counts"].ravel() == pytest.approx([best.sum(), *best])


def test_cells_that_were_counted_ahead_of_need_are_used_too():
    tree = family([[100.0], [60.0], [50.0]], [1.0, 4.0, 4.0])
    nodes = tree.nodes
    nodes["split"][1], nodes["cells"][1], nodes["cell_noise"][1] = 7, [[20.0], [30.0]], 2.0
    least_squares(tree)
    design = np.array([[1.0, 1.0], [1.0, 0.0], [1.0, 0.0], [0.0, 1.0]])
    weights = np.diag([1.0, 1 / 4, 1 / 4, 1 / 4])
    measured = np.array([100.0, 60.0, 50.0, 50.0])
    best = np.linalg.solve(design.T @ weights @ design, design.T @ weights @ measured)
    assert nodes["counts"].ravel() == pytest.approx([best.sum(), *best])


def test_a_leaf_drowned_in_noise_borrows_its_parents_shares():
    """As many rows as its standard deviation; one that is well known keeps its own."""
    tree = family([[900.0, 100.0], [30.0, 40.0], [0.0, 500.0]], [1.0, 1e4, 1.0])
    smooth(tree)
    _, left, right = tree.nodes["counts"]
    above = np.array([900.5, 100.5]) / 1001
    assert left == pytest.approx(70 * (np.array([30, 40]) + 100 * above) / 170)
    assert right == pytest.approx(500 * (np.array([0, 500]) + above) / 501)
