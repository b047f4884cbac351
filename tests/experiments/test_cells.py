"""Cells: what the figures consist of, and where their random numbers come from."""

from __future__ import annotations

import random

import pytest

from hedgerow.experiments.cells import DATASETS, FIGURES, FULL, NO_NOISE, QUICK, VERSIONS, Cell, cells_of
from hedgerow.experiments.versions import run


def test_a_seed_depends_on_the_cell_alone():
    cell = Cell("adult", "as_printed", "LocalRNM", 0.125, "decay", 0.5, 1.0, 7)
    assert cell.seed == 6175867230648695409  # the same on every machine, today and later


def test_no_two_cells_share_a_seed():
    cells = cells_of(FIGURES, DATASETS, VERSIONS, 5, QUICK)
    assert len({cell.seed for cell in cells}) == len(set(cells)) == len(cells)


def test_the_order_of_work_does_not_matter(tiny_data):
    cells = cells_of([2], ["tiny"], VERSIONS, 2, QUICK)
    shuffled = random.Random(0).sample(cells, len(cells))
    assert {c: run(c, tiny_data) for c in cells} == {c: run(c, tiny_data) for c in shuffled}


def test_cells_survive_the_csv():
    for cell in cells_of(FIGURES, ["adult"], VERSIONS, 1, QUICK):
        assert Cell.from_row(cell.to_row()) == cell


@pytest.mark.parametrize(
    ("figure", "grid", "runs", "expected"),
    [
        (1, FULL, 100, 3 * 3 * 9 * 2 * 100),  # algorithms, alphas, leaf fractions, budgets, runs
        (2, FULL, 100, 3 * 13 * 100 + 100 + 2),  # two baselines are not random
        (3, FULL, 100, 3 * 5 * 13 * 100 + 3 * 4 * 100 + 100 + 2),
        (1, QUICK, 5, 3 * 2 * 3 * 2 * 5),
        (2, QUICK, 5, 3 * 4 * 5 + 5 + 2),
        (3, QUICK, 5, 3 * 3 * 4 * 5 + 3 * 2 * 5 + 5 + 2),
    ],
)
def test_figures_have_as_many_cells_as_points(figure, grid, runs, expected):
    assert len(cells_of([figure], ["adult"], ["as_printed"], runs, grid)) == expected


def test_figures_share_cells():
    together = cells_of([2, 3], ["adult"], VERSIONS, 5, QUICK)
    assert set(together) == set(cells_of([3], ["adult"], VERSIONS, 5, QUICK))


def test_what_is_not_private_says_so():
    for cell in cells_of([2], ["adult"], VERSIONS, 1, QUICK):
        if cell.alpha == NO_NOISE:
            assert cell.guarantee == "none: no noise"
        else:
            assert (cell.guarantee == "NOT PRIVATE") == (cell.version == "as_printed")
