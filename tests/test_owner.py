"""What the owner of the rows is told about them, and nobody else."""

import re
import warnings

import numpy as np
import pandas as pd
import polars as pl
import pytest
from sklearn.compose import ColumnTransformer
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

import hedgerow.owner
from hedgerow import Categorical, Numeric, PrivateTreeClassifier, Schema
from hedgerow.classifier import SimulatedTree
from hedgerow.encoding import encode, encode_labels
from hedgerow.errors import OwnerWarning
from hedgerow.owner import RowReview, Sample, SpentInProcess
from hedgerow.tables import TableFile, read_codes

SCHEMA = Schema(
    [Numeric("age", 0, 90, 9), Numeric("pay", 0, 1e5, 9), Categorical("sex", ["F", "M"])],
    label="ill", classes=["no", "yes"],
)  # fmt: skip


@pytest.fixture(autouse=True)
def _nothing_is_known(monkeypatch):
    monkeypatch.setattr("hedgerow.classifier.SPENT_IN_PROCESS", SpentInProcess())


def people(n=1000, seed=0):
    rng = np.random.default_rng(seed)
    table = pd.DataFrame({
        "age": rng.integers(1, 90, n), "pay": rng.random(n) * 9e4 + 5e3, "sex": rng.choice(["F", "M"], n),
    })  # fmt: skip
    return table, np.where(table.age > 40, "yes", "no")


def told(table, labels, schema=SCHEMA, **parameters):
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        PrivateTreeClassifier(schema=schema, **parameters).fit(table, labels)
    return [str(each.message) for each in caught if each.category is OwnerWarning]


def test_of_rows_that_fit_their_schema_nothing_is_said():
    assert told(*people()) == []


STRANGE = {
    "no category occurs": (lambda t: t.assign(sex=" F"), "column 'sex': no row has one of the categories"),
    "a category is written differently": (lambda t: t.replace("M", "m"), "no row has the category 'M'; is it written"),
    "scaled": (lambda t: t.assign(age=(t.age - 60) / 20), "column 'age': most values lie at or outside"),
    "another unit": (lambda t: t.assign(pay=t.pay / 1e6), "column 'pay': all values fall into one bin"),
    "some outside": (lambda t: t.assign(pay=t.pay * 1.5), "column 'pay': more than a tenth of the values"),
    "at a bound": (lambda t: t.assign(pay=np.where(t.age > 30, 0, t.pay)), "column 'pay': most values lie at a bound"),
    "an identifier": (lambda t: t.assign(pay=np.arange(len(t)) * 90), "column 'pay': hardly two rows have the same value"),
    "names": (lambda t: t.assign(sex=[f"p{i}" for i in range(len(t))]), "column 'sex': hardly two rows have the same value"),
}  # fmt: skip


@pytest.mark.parametrize("library", [pd.DataFrame, pl.DataFrame])
@pytest.mark.parametrize(("change", "sentence"), STRANGE.values(), ids=STRANGE)
def test_the_owner_is_told_what_the_rows_say_about_the_schema(change, sentence, library):
    table, labels = people()
    found = told(library(change(table)), labels)
    assert any(sentence in each for each in found), found
    assert all("do not publish" in each for each in found)


def test_a_category_that_does_not_occur_is_no_mistake_by_itself():
    table, labels = people()
    assert told(table.assign(sex="F"), labels, epsilon=np.inf) == []
    assert told(table.assign(sex=["unknown", *table["sex"][1:]]), labels, epsilon=np.inf) == []


def test_a_class_that_no_row_has_is_named():
    table, labels = people()
    assert any(
        "no row has the class 'yes' of 'ill'" in each for each in told(table, np.full(len(labels), "no"))
    )


def test_bounds_that_are_far_too_wide_are_noticed():
    columns = [Numeric(c.name, -1e6, 1e6, 9) for c in SCHEMA.columns[:2]]
    schema = Schema(columns, label="ill", classes=["no", "yes"])
    table, labels = people()
    assert any("too wide" in each for each in told(table[["age", "pay"]], labels, schema))


def test_transformers_that_scale_or_reorder_columns_are_noticed():
    table, labels = people()
    schema = Schema(SCHEMA.columns[:2], label="ill", classes=["no", "yes"])
    reordered = ColumnTransformer([("first", "passthrough", [1]), ("then", "passthrough", [0])])
    for before in (StandardScaler(), reordered):
        with pytest.warns(OwnerWarning, match="scaling and the order of the columns"):
            make_pipeline(before, PrivateTreeClassifier(schema=schema)).fit(
                table[["age", "pay"]].to_numpy(), labels
            )


@pytest.mark.parametrize("times", [2, 10])
def test_rows_that_were_repeated_by_hand_are_noticed(times):
    table, labels = people()
    rare = np.flatnonzero(labels == "no")[:200]
    repeated = np.concatenate([np.arange(1000), np.repeat(rare, times - 1)])
    found = told(table.iloc[repeated], labels[repeated])
    assert any("exact copies" in each and f"{times} times epsilon" in each for each in found), found
    assert told(table.iloc[repeated], labels[repeated], epsilon=np.inf) == []  # nobody pays


def test_copies_far_apart_in_a_large_file_are_noticed(tmp_path):
    table, labels = people(60_000)
    table["ill"] = labels
    pd.concat([table, table.iloc[:30_000]]).to_csv(tmp_path / "rows.csv", index=False)
    found = []
    read_codes(tmp_path / "rows.csv", SCHEMA, found.append)
    assert any(re.search("about (2[5-9]|3.|40) % of the rows are exact copies", each) for each in found), (
        found
    )


def test_rows_of_the_same_codes_are_no_copies():
    table, labels = people(2000)
    schema = Schema([Numeric("pay", 0, 1e5, 2)], label="ill", classes=["no", "yes"])
    assert told(table[["pay"]], labels, schema) == []


@pytest.mark.parametrize("suffix", ["csv", "parquet"])
def test_files_are_reviewed_as_tables_are(tmp_path, suffix):
    table, labels = people()
    table = STRANGE["scaled"][0](table).assign(ill=labels)
    path = tmp_path / f"rows.{suffix}"
    table.to_csv(path, index=False) if suffix == "csv" else table.to_parquet(path)
    file = TableFile(path)
    review = file.review(SCHEMA)
    list(file.blocks(SCHEMA, labels=True, review=review))
    assert any("column 'age': most values" in each for each in review.sentences())


def test_an_empty_table_is_said_to_its_owner_and_trains_a_tree():
    table, labels = people(0)
    review = RowReview(SCHEMA)
    review.see(table, encode(table, SCHEMA), encode_labels(labels, SCHEMA))
    assert review.sentences() == ["there are no rows; the tree is trained as if there were some."]
    assert told(table, labels)


def test_one_switch_turns_all_of_it_off():
    table, labels = people()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        warnings.simplefilter("ignore", OwnerWarning)
        for _ in range(2):
            PrivateTreeClassifier(schema=SCHEMA).fit(STRANGE["scaled"][0](table), labels)


def test_a_warning_that_is_an_error_comes_before_anything_is_spent(monkeypatch):
    table, labels = people()
    monkeypatch.setattr(
        "hedgerow.privacy.noise.SecureNoise.laplace", lambda *_: pytest.fail("noise was drawn")
    )
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with pytest.raises(OwnerWarning):
            PrivateTreeClassifier(schema=SCHEMA).fit(STRANGE["scaled"][0](table), labels)


def test_a_warning_is_no_part_of_the_model():
    table, labels = people()
    model = PrivateTreeClassifier(schema=SCHEMA, noise_seed=1)
    with pytest.warns(OwnerWarning, match="no row has the category"):
        text = model.fit(table.replace("M", "m"), labels).to_json()
    assert "no row has" not in text
    assert "no row has" not in repr(vars(model))
    assert text == SimulatedTree(schema=SCHEMA, noise_seed=1).fit(table.replace("M", "m"), labels).to_json()


# ---- Rows that were trained on before ----


def test_a_second_fit_of_the_same_rows_warns_once_with_the_sum():
    table, labels = people()
    assert told(table, labels, epsilon=0.5) == []
    [sentence] = told(table, labels, epsilon=2.0)
    assert "trained on before" in sentence
    assert "epsilon 2.5 so far" in sentence
    assert told(table, labels) == []  # once


def test_a_fit_of_codes_is_recognised_too():
    table, labels = people()
    codes, numbers = encode(table, SCHEMA), encode_labels(labels, SCHEMA)
    PrivateTreeClassifier(schema=SCHEMA).fit_codes(codes, numbers)
    with pytest.warns(OwnerWarning, match="epsilon 2 so far"):
        PrivateTreeClassifier(schema=SCHEMA).fit_codes(codes, numbers)


@pytest.mark.parametrize("n_rows", [40, 1000, 30_000])
def test_folds_of_the_same_rows_are_recognised_and_other_people_are_not(n_rows):
    table, labels = people(n_rows)
    order = np.random.default_rng(1).permutation(n_rows)
    folds = [np.setdiff1d(order, part) for part in np.array_split(order, 3)]
    assert told(table.iloc[folds[0]], labels[folds[0]]) == []
    assert told(*people(n_rows, seed=1)) == []
    assert any("trained on before" in each for each in told(table.iloc[folds[1]], labels[folds[1]]))


def test_a_small_part_of_a_large_table_is_recognised():
    table, labels = people(50_000)
    assert told(table, labels) == []
    assert any("trained on before" in each for each in told(table[:2000], labels[:2000]))


def test_a_table_in_which_everybody_is_like_somebody_is_recognised_as_a_whole():
    schema = Schema([Categorical("sex", ["F", "M"])], label="ill", classes=["no", "yes"])
    table, labels = people()
    other, other_labels = people(seed=1)
    options = {"schema": schema, "epsilon": 1.0}
    assert not any("trained on" in each for each in told(table[["sex"]], labels, **options))
    assert not any("trained on" in each for each in told(other[["sex"]], other_labels, **options))
    assert any("trained on" in each for each in told(table[["sex"]], labels, **options))


def test_a_search_warns_once():
    table, labels = people()
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        GridSearchCV(PrivateTreeClassifier(schema=SCHEMA), {"epsilon": [0.5, 1]}, cv=3).fit(table, labels)
    assert len([each for each in caught if "trained on before" in str(each.message)]) == 1


def test_what_is_remembered_is_bounded(monkeypatch):
    monkeypatch.setattr(SpentInProcess, "MOST_REMEMBERED", 100)
    spent = SpentInProcess()
    for seed in range(3):
        table, labels = people(90, seed)
        spent.add(Sample.of(encode(table, SCHEMA), encode_labels(labels, SCHEMA)), len(labels), 1.0, print)
    assert len(spent._known) <= 100


def test_hashes_of_rows_are_keyed_by_a_secret_of_the_process():
    assert len(set(hedgerow.owner._MULTIPLIERS.tolist())) == len(hedgerow.owner._MULTIPLIERS)
