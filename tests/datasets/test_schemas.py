"""The schemas are public constants with exactly the paper's numbers of candidate splits."""

from __future__ import annotations

import numpy as np
import pytest

from hedgerow import datasets
from hedgerow.schema import Categorical, Numeric

PAPER = {
    "adult": 159,
    "bank": 115,
    "kddcup99": 427,
    "mnist": 147,
    "creditcard": 210,
    "avazu": 263,
    "skin": 96,
}


@pytest.mark.parametrize(("name", "n_splits"), PAPER.items())
def test_the_number_of_candidate_splits_is_the_papers(name: str, n_splits: int) -> None:
    assert len(datasets.schema(name).splits) == n_splits


def test_every_data_set_of_the_paper_is_there() -> None:
    assert set(datasets.NAMES) == set(PAPER)


def test_adult_has_ten_thresholds_a_number_and_one_split_a_category() -> None:
    columns = datasets.schema("adult").columns
    assert [c.name for c in columns if isinstance(c, Numeric)] == [
        "age",
        "fnlwgt",
        "education-num",
        "capital-gain",
        "capital-loss",
        "hours-per-week",
    ]
    assert sum(len(c.categories) for c in columns if isinstance(c, Categorical)) == 99
    assert all("?" not in c.categories for c in columns if isinstance(c, Categorical))


def test_bank_tells_never_contacted_from_contacted_today() -> None:
    pdays = next(c for c in datasets.schema("bank").columns if c.name == "pdays")
    assert isinstance(pdays, Numeric)
    assert pdays.cuts[0] == -0.5
    np.testing.assert_allclose(pdays.cuts[1:], 0 + (np.arange(10) + 0.5) * 871 / 10)


def test_mnist_has_the_thresholds_that_the_appendix_names() -> None:
    columns = datasets.schema("mnist").columns
    assert len(columns) == 49
    assert all(isinstance(c, Numeric) and c.cuts.tolist() == [42.5, 127.5, 212.5] for c in columns)


def test_creditcard_has_a_threshold_between_every_two_codes() -> None:
    cuts = {c.name: c.cuts.tolist() for c in datasets.schema("creditcard").columns if isinstance(c, Numeric)}
    assert len(cuts) == 23
    assert cuts["SEX"] == [1.5]
    assert cuts["EDUCATION"] == [0.5, 1.5, 2.5, 3.5, 4.5, 5.5]
    assert cuts["MARRIAGE"] == [0.5, 1.5, 2.5]
    assert cuts["PAY_0"] == [-1.5, -0.5, 0.5, 1.5, 2.5, 3.5, 4.5, 5.5, 6.5, 7.5]


def test_avazu_has_the_thresholds_that_the_appendix_names() -> None:
    columns = {c.name: len(list(c.splits(0))) for c in datasets.schema("avazu").columns}
    appendix = {"C1": 7, "C14": 100, "C15": 4, "C16": 4, "C17": 40, "C19": 10, "C20": 15, "C21": 10}
    others = {"hour": 10, "banner_pos": 7, "C18": 3}
    categories = {"site_category": 20, "app_category": 25, "device_type": 4, "device_conn_type": 4}
    assert columns == appendix | others | categories


def test_kddcup99_has_two_label_sets_over_the_same_splits() -> None:
    binary = datasets.schema("kddcup99")
    kinds = datasets.schema("kddcup99", labels="kinds")
    assert binary.classes == ("normal", "attack")
    assert len(kinds.classes) == 23
    assert kinds.splits == binary.splits
    assert binary == datasets.schema("kddcup99", labels="binary")


def test_an_unknown_name_is_answered_with_the_known_ones() -> None:
    with pytest.raises(datasets.UnknownDataset, match=r"'iris'.*adult, bank, kddcup99"):
        datasets.schema("iris")
    with pytest.raises(datasets.UnknownDataset, match=r"'kinds'.*income"):
        datasets.load("adult", labels="kinds")
