"""Weighted impurities against their plain formulas."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hedgerow.criteria import Criterion, weighted_impurities


def plain_impurity(counts, criterion):
    """F(c) = m G(c / m), with G written as in a textbook and scaled to G(uniform) = 1."""
    m, k = sum(counts), len(counts)
    if m == 0 or k == 1:
        return 0.0
    shares = [c / m for c in counts]
    if criterion == Criterion.gini:
        return m * (1 - math.fsum(p * p for p in shares)) * k / (k - 1)
    if criterion == Criterion.entropy:
        return m * math.fsum(-p * math.log(p) for p in shares if p > 0) / math.log(k)
    if criterion == Criterion.root_gini:
        return m * 2 * math.sqrt(shares[0] * shares[1])
    return m * (1 - max(shares)) * k / (k - 1)


def criteria(n_classes):
    return [c for c in Criterion if c != Criterion.root_gini or n_classes == 2]


def impurity(counts, criterion):
    return float(weighted_impurities(np.array([counts]), criterion)[0])


CASES = [(k, criterion) for k in (2, 3, 10) for criterion in criteria(k)]


@st.composite
def cases(draw, n_vectors=1):
    k, criterion = draw(st.sampled_from(CASES))
    counts = st.lists(st.integers(0, 10**6), min_size=k, max_size=k)
    return criterion, [draw(counts) for _ in range(n_vectors)]


@given(cases())
def test_f_is_the_plain_formula(case):
    criterion, [counts] = case
    expected = plain_impurity(counts, criterion)
    assert impurity(counts, criterion) == pytest.approx(expected, rel=1e-9, abs=1e-6)


@pytest.mark.parametrize(
    ("criterion", "counts", "expected"),
    [
        (Criterion.gini, [30, 10], 30.0),
        (Criterion.gini, [2, 1, 1], 3.75),
        (Criterion.entropy, [3, 1], 3.2451124978365313),
        (Criterion.root_gini, [9, 4], 12.0),
        (Criterion.error, [30, 10], 20.0),
        (Criterion.error, [5, 3, 2], 7.5),
    ],
)
def test_f_of_counts_done_by_hand(criterion, counts, expected):
    assert impurity(counts, criterion) == pytest.approx(expected, rel=1e-14)


@pytest.mark.parametrize(("k", "criterion"), CASES)
def test_f_of_nothing_is_0_and_of_a_pure_node_too(k, criterion):
    assert impurity([0] * k, criterion) == 0.0
    for m in (1, 7, 10**9):
        assert impurity([m] + [0] * (k - 1), criterion) == 0.0


@pytest.mark.parametrize("criterion", [c for c in Criterion if c != Criterion.root_gini])
def test_one_class_has_no_impurity(criterion):
    assert impurity([5], criterion) == 0.0


@pytest.mark.parametrize(("k", "criterion"), CASES)
def test_a_uniform_node_has_impurity_1_a_row(k, criterion):
    for each in (1, 13, 10**6):
        assert impurity([each] * k, criterion) == pytest.approx(k * each, rel=1e-12)


@given(cases(n_vectors=2))
def test_a_split_never_raises_the_sum(case):
    criterion, [left, right] = case
    both = np.add(left, right).tolist()
    slack = 1e-9 * (1 + sum(both))
    assert impurity(both, criterion) >= impurity(left, criterion) + impurity(right, criterion) - slack


@given(cases(), st.integers(2, 1_000))
def test_f_is_homogeneous(case, factor):
    criterion, [counts] = case
    scaled = impurity([factor * c for c in counts], criterion)
    assert scaled == pytest.approx(factor * impurity(counts, criterion), rel=1e-9, abs=1e-6 * factor)


@given(cases())
def test_doubling_the_counts_doubles_f_to_the_last_bit(case):
    criterion, [counts] = case
    assert impurity([2 * c for c in counts], criterion) == 2 * impurity(counts, criterion)


def test_many_vectors_are_computed_in_one_call():
    counts = np.random.default_rng(0).integers(0, 50, (4, 5, 3))
    found = weighted_impurities(counts, Criterion.gini)
    assert found.shape == (4, 5)
    assert found[2, 3] == impurity(counts[2, 3].tolist(), Criterion.gini)
    assert weighted_impurities(np.asfortranarray(counts), Criterion.gini).tolist() == found.tolist()
