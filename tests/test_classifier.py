"""The scikit-learn estimator without noise: conventions, parameters, tables of every library, files."""

from __future__ import annotations

import json
import math
import warnings
from fractions import Fraction

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from sklearn.base import clone
from sklearn.calibration import CalibratedClassifierCV
from sklearn.compose import ColumnTransformer
from sklearn.exceptions import NotFittedError
from sklearn.metrics import get_scorer
from sklearn.model_selection import GridSearchCV, cross_val_predict, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer, StandardScaler
from sklearn.utils.estimator_checks import parametrize_with_checks

from hedgerow import (
    Categorical,
    InvalidModel,
    InvalidTable,
    Numeric,
    PrivateTreeClassifier,
    Schema,
    SchemaMismatch,
)
from hedgerow.encoding import MAX_ROWS, encode, encode_labels
from hedgerow.errors import HedgerowError, InvalidType, Refused
from hedgerow.holder.counts import GroupedRows
from hedgerow.holder.holder import Holder
from hedgerow.network.local import LocalNetwork
from hedgerow.privacy.noise import NoNoise, OpenDPNoise, SecureNoise, SeededNoise

SCHEMA = Schema(
    [
        Numeric("age", 0, 100, 20, missing=True),
        Categorical("town", ["Bern", "Brno", "Bonn"], missing=True),
        Numeric("dose", 0, 1, 8),
    ],
    label="outcome",
    classes=["ill", "well"],
)
PARAMETERS = {
    "schema": None,
    "epsilon": 1.0,
    "method": "auto",
    "selector": "auto",
    "criterion": "auto",
    "budget": "auto",
    "leaf_fraction": None,
    "max_splits": 512,
    "max_depth": None,
    "target_error": None,
    "min_gain": None,
    "max_rows": None,
    "neighbours": "add-remove",
    "noise": "exact",
    "noise_seed": None,
}


def patients(n=400, seed=0):
    rng = np.random.default_rng(seed)
    frame = pd.DataFrame(
        {
            "age": rng.uniform(-5, 105, n),
            "town": pd.Series(rng.choice(["Bern", "Brno", "Bonn", "Bath"], n), dtype=object),
            "dose": rng.random(n).round(2),
        }
    )
    well = (frame["age"] < 60) ^ (frame["town"] == "Bonn") ^ (rng.random(n) < 0.1)
    frame.loc[rng.random(n) < 0.1, "age"] = np.nan
    frame.loc[rng.random(n) < 0.1, "town"] = None
    return frame, np.where(well, "well", "ill")


def exact(**parameters):
    return PrivateTreeClassifier(**({"schema": SCHEMA, "epsilon": math.inf} | parameters))


# scikit-learn's own checks, without exclusions


@parametrize_with_checks([PrivateTreeClassifier(schema="from_data", epsilon=math.inf)])
def test_scikit_learns_checks(estimator, check):
    check(estimator)


# Parameters


def test_parameters_and_their_defaults_are_as_documented():
    assert PrivateTreeClassifier().get_params() == PARAMETERS
    with pytest.raises(TypeError):
        PrivateTreeClassifier(SCHEMA)


def test_parameters_are_stored_untouched_and_fit_does_not_change_them():
    strange = {name: object() for name in PARAMETERS}
    model = PrivateTreeClassifier(**strange)
    assert all(getattr(model, name) is value for name, value in strange.items())
    model = exact(max_splits=np.int64(3), min_gain=np.float32(0.0))
    before = model.get_params()
    model.fit(*patients())
    after = model.get_params()
    assert all(after[name] is before[name] for name in PARAMETERS)


@pytest.mark.parametrize("kind", [np.int8, np.int32, np.int64, np.uint8, np.float32])
def test_numbers_of_numpy_are_numbers(kind):
    table, labels = patients()
    of_numpy = {
        "epsilon": kind(1),
        "max_splits": np.int16(4),
        "max_depth": np.int32(3),
        "noise_seed": np.uint8(3),
    }
    model = PrivateTreeClassifier(schema=SCHEMA, budget="uniform", **of_numpy).fit(table, labels)
    plain = PrivateTreeClassifier(
        schema=SCHEMA, budget="uniform", epsilon=1, max_splits=4, max_depth=3, noise_seed=3
    )
    assert model.to_json() == plain.fit(table, labels).to_json()
    assert type(model.ledger_.spent.numerator) is int


def test_a_holder_may_have_no_rows():
    table, labels = patients()
    codes, numbers = encode(table, SCHEMA), encode_labels(labels, SCHEMA)
    model = exact().fit_codes(codes, numbers, [list(range(len(labels))), []])
    assert model.tree_ == exact().fit_codes(codes, numbers).tree_
    with pytest.raises(InvalidTable, match="from 0 to one less than there are rows"):
        exact().fit_codes(codes, numbers, [[0.5], []])


def test_clone_and_set_params_give_an_unfitted_model_with_the_same_parameters():
    model = exact(max_splits=3).fit(*patients())
    copy = clone(model)
    assert copy.get_params() == model.get_params()
    assert not hasattr(copy, "tree_")
    assert copy.set_params(max_splits=5) is copy
    assert copy.fit(*patients()).tree_.n_splits == 5
    assert model.tree_.n_splits == 3
    with pytest.raises(ValueError, match="Invalid parameter 'splits'"):
        copy.set_params(splits=2)


@pytest.mark.parametrize(
    ("name", "value", "expected"),
    [
        ("epsilon", 0, "a positive number"),
        ("epsilon", -1.0, "a positive number"),
        ("epsilon", math.nan, "a positive number"),
        ("epsilon", "1", "a positive number"),
        ("epsilon", None, "inf for no privacy"),
        ("epsilon", True, "a positive number"),
        ("method", "best", "'auto', 'select'"),
        ("method", None, "'auto', 'select'"),
        ("selector", "max", "'permute_and_flip'"),
        ("criterion", "log_loss", "'gini', 'entropy', 'root_gini', 'error'"),
        ("criterion", 0, "'gini', 'entropy'"),
        ("budget", "all", "'uniform'"),
        ("leaf_fraction", 0, "between 0 and 1"),
        ("leaf_fraction", 1.0, "between 0 and 1"),
        ("leaf_fraction", "half", "between 0 and 1"),
        ("max_splits", 0, "an integer of at least 1"),
        ("max_splits", 2.0, "an integer of at least 1"),
        ("max_splits", None, "an integer of at least 1"),
        ("max_splits", True, "an integer of at least 1"),
        ("max_depth", 0, "an integer of at least 1, or left out"),
        ("max_depth", 1.5, "an integer of at least 1, or left out"),
        ("target_error", -0.1, "between 0 and 1"),
        ("target_error", 1.1, "between 0 and 1"),
        ("target_error", math.nan, "between 0 and 1"),
        ("min_gain", 2, "between 0 and 1"),
        ("min_gain", "0", "between 0 and 1"),
        ("max_rows", 0, "an integer of at least 1"),
        ("max_rows", 1e6, "an integer of at least 1"),
        ("neighbours", "swap", "'add-remove', 'replace'"),
        ("noise", "loud", "'exact', 'opendp'"),
        ("noise_seed", -1, "an integer of at least 0, or left out"),
        ("noise_seed", "seed", "an integer of at least 0, or left out"),
        ("schema", "data", "pass a Schema"),
        ("schema", 3, "pass a Schema"),
        ("schema", [Numeric("age", 0, 1)], "pass a Schema"),
    ],
)
def test_an_invalid_parameter_is_named_with_its_value_and_what_is_expected(name, value, expected):
    model = exact(**{name: value})
    with pytest.raises((TypeError, ValueError)) as caught:
        model.fit(*patients())
    message = str(caught.value)
    assert f"{name}={value!r}" in message
    assert expected in message
    assert not hasattr(model, "tree_")


def test_root_gini_needs_two_classes():
    schema = Schema(SCHEMA.columns, label="y", classes=["a", "b", "c"])
    with pytest.raises(ValueError, match="criterion='root_gini' needs two classes"):
        exact(schema=schema, criterion="root_gini").fit(*patients())


def test_what_is_refused_leaves_the_model_as_it_was():
    table, labels = patients()
    model = exact().fit(table, labels)
    before, known = model.predict(table).tolist(), dict(model.__dict__)
    other = Schema(
        [Numeric("age", 0, 10, 2), Categorical("town", ["Bern"])], label="outcome", classes=["p", "q"]
    )
    for schema, parameters, fit in (
        (other, {}, lambda: model.fit(table, labels)),  # no such column
        (other, {}, lambda: model.fit(table[["age", "town"]], labels)),  # no such labels
        (other, {"max_rows": 3}, lambda: model.fit(table[["age", "town"]], ["p"] * 400)),
        (other, {}, lambda: model.fit_holders([(table, labels)] * 2)),
        (other, {"criterion": "paper"}, lambda: model.fit(table, labels)),
        (SCHEMA, {"method": "select"}, lambda: model.fit_holders([(table, labels)] * 2)),
    ):
        model.set_params(schema=schema, **parameters)
        with pytest.raises((HedgerowError, ValueError)):
            fit()
        model.set_params(**{name: getattr(exact(), name) for name in ("schema", *parameters)})
        assert model.__dict__.keys() == known.keys()
        assert model.predict(table).tolist() == before


def test_a_model_whose_first_fit_was_refused_is_not_fitted():
    table, labels = patients()
    model = exact()
    with pytest.raises(InvalidTable):
        model.fit(table, ["unheard of"] * len(labels))
    for use in (lambda: model.predict(table), lambda: model.record_, model.to_json, model.plot):
        with pytest.raises(NotFittedError):
            use()


def test_codes_have_no_names_of_columns_to_remember():
    table, labels = patients()
    model = exact().fit(table, labels)
    model.fit_codes(encode(table, SCHEMA), encode_labels(labels, SCHEMA))
    assert not hasattr(model, "feature_names_in_")
    assert (model.predict(table[["dose", "town", "age"]]) == model.predict(table)).all()


def test_codes_dealt_out_to_nobody_are_refused():
    table, labels = patients()
    with pytest.raises(InvalidTable, match="no holders"):
        exact().fit_codes(encode(table, SCHEMA), encode_labels(labels, SCHEMA), [])
    with pytest.raises(InvalidTable, match="no holders"):
        exact()._fit_grouped([])


@pytest.mark.parametrize(
    "holders", [[[0, 1, 2], [2, 3]], [[0, 1], [0, 1]], [[0, 0], [1]], [[0], [-1]], [[0], [50]]]
)
def test_a_row_is_dealt_out_to_one_holder_once(holders):
    """Of two holders that have it, each would grant epsilon for it."""
    table, labels = patients(50)
    codes, numbers = encode(table, SCHEMA), encode_labels(labels, SCHEMA)
    with pytest.raises(InvalidTable, match=r"row number"):
        exact(epsilon=1.0).fit_codes(codes, numbers, holders)


def test_without_a_schema_the_error_shows_how_to_write_one():
    with pytest.raises(SchemaMismatch) as caught:
        exact(schema=None).fit(*patients())
    message = str(caught.value)
    assert 'Numeric("age", low=17, high=90, thresholds=10)' in message
    assert 'classes=["<=50K", ">50K"]' in message
    assert 'schema="from_data"' in message
    example = message.split("for example")[1].split("and pass")[0]
    scope = {}
    exec("\n".join(line.removeprefix("    ") for line in example.splitlines()), scope)
    assert scope["schema"].names == ("age", "sex")


def test_a_schema_from_the_data_warns_where_privacy_is_asked_for():
    table, labels = patients()
    with pytest.warns(UserWarning, match="reads bounds, categories and classes from the rows.*NOT private"):
        PrivateTreeClassifier(schema="from_data", epsilon=1.0, noise_seed=0).fit(table, labels)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        model = exact(schema="from_data").fit(table, labels)
    assert model.schema_.names == ("age", "town", "dose")
    assert model.schema_.columns[1] == Categorical("town", ["Bath", "Bern", "Bonn", "Brno"], missing=True)
    assert model.schema == "from_data"


# Learning


def test_the_tree_finds_what_the_table_hides():
    schema = Schema([Numeric("x", 0, 10, 10), Categorical("k", ["a", "b"])], label="y", classes=["no", "yes"])
    table = pd.DataFrame({"x": [1, 2, 3, 7, 8, 9] * 2, "k": ["a"] * 6 + ["b"] * 6})
    labels = ["no", "no", "no", "yes", "yes", "yes", "yes", "yes", "yes", "no", "no", "no"]
    model = exact(schema=schema).fit(table, labels)
    assert model.tree_.n_nodes == 1  # a chessboard: no single split gains anything
    labels[0] = "yes"
    model.fit(table, labels)
    assert model.score(table, labels) == 1.0
    assert model.tree_.counts[0].tolist() == [5, 7]


def test_probabilities_are_the_shares_of_the_leaf():
    schema = Schema([Numeric("x", 0, 1, 1)], label="y", classes=["b", "a"])
    model = exact(schema=schema).fit([[0.1]] * 4 + [[0.9]] * 4, list("aaab" + "bbbb"))
    assert model.classes_.tolist() == ["a", "b"]  # sorted, as scikit-learn expects
    assert model.predict_proba([[0.0], [1.0]]).tolist() == [[0.75, 0.25], [0.0, 1.0]]
    assert model.predict([[0.0], [1.0]]).tolist() == ["a", "b"]
    assert model.apply([[0.0], [1.0], [0.2]]).tolist() == [1, 2, 1]
    assert model.score([[0.0], [1.0]], ["a", "a"]) == 0.5


def test_predictions_have_the_type_of_the_classes():
    for classes, kind in (([3, 1], "i"), ([2.0, 0.5], "f"), ([True, False], "b"), (["p", "q"], "U")):
        schema = Schema([Numeric("x", 0, 1, 1)], label="y", classes=classes)
        model = exact(schema=schema).fit([[0.1], [0.9]], classes)
        assert model.predict([[0.1], [0.9]]).tolist() == classes
        assert model.predict([[0.1]]).dtype.kind == kind


def test_auto_is_gini_without_noise():
    assert exact().fit(*patients()).tree_ == exact(criterion="gini").fit(*patients()).tree_


def test_rows_encoded_beforehand_give_the_same_tree():
    table, labels = patients()
    codes, numbers = encode(table, SCHEMA), encode_labels(labels, SCHEMA)
    assert exact().fit_codes(codes, numbers).tree_ == exact().fit(table, labels).tree_
    with pytest.raises(SchemaMismatch, match="is for `fit` alone"):
        exact(schema="from_data").fit_codes(codes, numbers)


def tables():
    frame, labels = patients()
    plain = {name: [None if v != v else v for v in frame[name].tolist()] for name in frame}  # noqa: PLR0124
    return {
        "pandas": (frame, pd.Series(labels)),
        "pandas nullable": (frame.convert_dtypes(), pd.Series(labels, dtype="string")),
        "pandas categories": (frame.astype({"town": "category"}), pd.Series(labels, dtype="category")),
        "pandas with another order": (frame[["dose", "age", "town"]], labels),
        "pandas with an odd index": (frame.set_index(frame.index[::-1] * 2), pd.Series(labels)),
        "Polars": (pl.DataFrame(plain), pl.Series(labels)),
        "Arrow": (pa.table(plain), pa.chunked_array([labels.tolist()])),
        "NumPy": (frame.to_numpy(), labels),
        "lists": (frame.to_numpy().tolist(), labels.tolist()),
    }


@pytest.mark.filterwarnings("error", "ignore::hedgerow.errors.OwnerWarning")
@pytest.mark.parametrize("kind", tables())
def test_every_library_gives_the_same_model_and_predictions(kind):
    table, labels = tables()[kind]
    model, expected = exact().fit(table, labels), exact().fit(*patients())
    assert model.tree_ == expected.tree_
    assert model.tree_.n_splits > 30
    assert model.predict(table).tolist() == expected.predict(patients()[0]).tolist()
    assert model.predict_proba(table).tolist() == expected.predict_proba(patients()[0]).tolist()
    assert model.n_features_in_ == 3


def test_feature_names_are_those_of_the_frame():
    table, labels = patients()
    for frame in (table, pl.from_pandas(table)):
        assert exact().fit(frame, labels).feature_names_in_.tolist() == ["age", "town", "dose"]
    assert not hasattr(exact().fit(table.to_numpy(), labels), "feature_names_in_")


@pytest.mark.parametrize("table", [np.array([36.125]), np.array(36.125), [36.125], [{"age": 36.125}], 36.125])
def test_a_table_of_the_wrong_shape_is_refused_without_quoting_it(table):
    model = exact().fit(*patients())
    for learn in (lambda: exact().fit(table, ["ill"]), lambda: model.predict(table)):
        with pytest.raises(InvalidTable) as refused:
            learn()
        assert "36" not in str(refused.value)


def test_a_schema_from_data_is_for_fit_alone():
    model = PrivateTreeClassifier(schema="from_data")
    for use in (model.plan, lambda: model.fit_holders([patients()])):
        with pytest.raises(SchemaMismatch, match="is for `fit` alone"):
            use()


def test_a_misspelt_column_is_told_by_its_number():
    """Where a table has no names of its own, a name may be somebody's value."""
    table, labels = patients()
    number = list(table).index("age") + 1
    words = rf"lacks the column 'age' of the schema\. Its column {number} has a name that the schema does not have"
    model = exact().fit(table, labels)
    for work in (lambda t: exact().fit(t, labels), model.predict):
        with pytest.raises(InvalidTable, match=words):
            work(table.rename(columns={"age": "Age"}))


def test_an_epsilon_that_no_noise_can_be_made_for_costs_nobody_the_tree():
    table, labels = patients()
    model = PrivateTreeClassifier(schema=SCHEMA).fit(table, labels)
    tree, ledger = model.tree_, model.ledger_
    with pytest.raises(Refused, match="raise epsilon"):
        model.set_params(epsilon=1e-12).fit(table, labels)
    assert model.tree_ is tree
    assert model.ledger_ is ledger


def test_a_fraction_is_granted_as_it_is():
    table, labels = patients()
    seventh = Fraction(5, 7)  # its nearest float is above it
    model = PrivateTreeClassifier(schema=SCHEMA, epsilon=seventh).fit(table, labels)
    assert model.ledger_.grant == seventh


def test_a_decimal_is_granted_as_it_is_written():
    model = PrivateTreeClassifier(schema=SCHEMA, epsilon=0.1).fit(*patients())
    assert model.ledger_.grant == Fraction(1, 10) < Fraction(0.1)


def test_a_table_that_does_not_fit_is_refused():
    table, labels = patients()
    model = exact().fit(table, labels)
    with pytest.raises(InvalidTable, match="lacks the column 'dose'"):
        exact().fit(table[["age", "town"]], labels)
    with pytest.raises(
        InvalidTable,
        match=f"column {table.shape[1] + 1} of the table has a name that the schema does not have",
    ):
        exact().fit(table.assign(extra=1), labels)
    with pytest.raises(InvalidTable, match=r"still has the label 'outcome' among its columns; drop it"):
        exact().fit(table.assign(outcome=labels), labels)
    with pytest.raises(InvalidTable, match="400 rows, but there are 399 labels"):
        exact().fit(table, labels[1:])
    with pytest.raises(InvalidTable, match="not among its classes"):
        exact().fit(table, np.where(labels == "ill", "sick", labels))
    with pytest.raises(InvalidTable, match="lacks the column 'dose'"):
        model.predict(table[["age", "town"]])
    with pytest.raises(ValueError, match="same order as they were in fit"):
        model.predict(table[table.columns[::-1]])
    with pytest.raises(ValueError, match="2 features"):
        exact().fit(table.to_numpy(), labels).predict(table.to_numpy()[:, :2])
    with pytest.raises(ValueError, match=r"two dimensions, .* this has 1"):
        model.predict(table["age"])
    with pytest.raises(ValueError, match="y to be passed"):
        exact().fit(table, None)


def test_an_unfitted_model_predicts_nothing(tmp_path):
    table, _ = patients()
    for action in (exact().predict, exact().predict_proba, exact().apply):
        with pytest.raises(NotFittedError):
            action(table)
    with pytest.raises(NotFittedError):
        exact().save(tmp_path / "tree.json")


@pytest.mark.parametrize("max_rows", [None, 5_000])
def test_noise_is_made_for_max_rows_and_not_for_the_rows(monkeypatch, max_rows):
    told = []
    monkeypatch.setattr("hedgerow.classifier.Holder", lambda *a: told.append(a[-1]) or Holder(*a))
    for n in (10, 400):
        exact(epsilon=1.0, criterion="entropy", max_rows=max_rows, noise_seed=0).fit(*patients(n))
    assert told == [max_rows or MAX_ROWS] * 2


@pytest.mark.parametrize(
    ("parameters", "kind"),
    [
        ({}, SecureNoise),
        ({"noise": "opendp"}, OpenDPNoise),
        ({"noise_seed": 0}, SeededNoise),
        ({"noise_seed": 7, "noise": "opendp"}, SeededNoise),
        ({"epsilon": math.inf}, NoNoise),
    ],
)
@pytest.mark.filterwarnings("ignore::hedgerow.errors.NotPrivateWarning")
def test_a_fit_draws_the_noise_that_was_asked_for_and_says_whether_it_is_private(
    monkeypatch, parameters, kind
):
    told = []
    monkeypatch.setattr("hedgerow.classifier.Holder", lambda *a: told.append(a[1]) or Holder(*a))
    model = exact(**{"epsilon": 1.0} | parameters).fit(*patients())
    assert [type(noise) for noise in told] == [kind]
    assert model.ledger_.private == kind.private


def test_more_rows_than_max_rows_are_refused():
    with pytest.raises(InvalidTable, match="max_rows=99"):
        exact(epsilon=1.0, max_rows=99).fit(*patients(100))


def test_rows_grouped_by_another_schema_are_refused():
    table, labels = patients()
    other = Schema([*SCHEMA.columns[:2], Numeric("dose", 0, 2, 8)], label="outcome", classes=["ill", "well"])
    rows = GroupedRows(encode(table, other), encode_labels(labels, other), other)
    with pytest.raises(SchemaMismatch, match="the tree needs the schema"):
        exact()._fit_grouped([rows])


def test_holders_with_equal_rows_draw_noise_of_their_own(monkeypatch):
    answers = []
    ask = LocalNetwork.ask_each
    monkeypatch.setattr(LocalNetwork, "ask_each", lambda *a: answers.append(ask(*a)) or answers[-1])
    exact(epsilon=1.0, noise_seed=0).fit_holders([patients(), patients()])
    assert not np.array_equal(*answers[0].values())


# Inside scikit-learn


def test_a_pipeline_learns_from_what_its_steps_hand_on():
    rng = np.random.default_rng(0)
    X = rng.normal(100, 20, (300, 2))
    y = (X[:, 0] > 100).astype(int)
    schema = Schema([Numeric("a", -3, 3, 30), Numeric("b", -3, 3, 30)], label="y", classes=[0, 1])
    pipeline = make_pipeline(StandardScaler(), exact(schema=schema)).fit(X, y)
    assert pipeline.score(X, y) > 0.97
    framed = make_pipeline(
        ColumnTransformer([("log", FunctionTransformer(np.log), ["a"]), ("b", "passthrough", ["b"])]),
        exact(schema=Schema([Numeric("x", 3, 6, 60), Numeric("b", 0, 200)], label="y", classes=[0, 1])),
    ).fit(pd.DataFrame(X, columns=["a", "b"]), y)
    assert framed.score(pd.DataFrame(X, columns=["a", "b"]), y) > 0.9


def test_cross_validation_and_grid_search_find_the_size_of_the_tree():
    table, labels = patients(800)
    scores = cross_val_score(exact(max_splits=3), table, labels, cv=4)
    assert scores.min() > 0.75
    search = GridSearchCV(exact(), {"max_splits": [1, 3], "criterion": ["gini", "entropy"]}, cv=3)
    search.fit(table, labels)
    assert search.best_params_["max_splits"] == 3
    assert search.best_score_ > search.cv_results_["mean_test_score"].min() + 0.05
    assert search.predict(table).shape == (800,)


def test_scikit_learns_scores_do_not_depend_on_the_order_of_the_schemas_classes():
    table, labels = patients()
    scores = []
    for classes in (SCHEMA.classes, SCHEMA.classes[::-1]):
        schema = Schema(SCHEMA.columns, label=SCHEMA.label, classes=classes)
        model = exact(schema=schema, max_splits=3).fit(table, labels)
        scores.append(
            [get_scorer(name)(model, table, labels) for name in ("roc_auc", "neg_log_loss", "accuracy")]
        )
        assert CalibratedClassifierCV(model, cv=2).fit(table, labels).score(table, labels) > 0.75
    assert scores[0] == pytest.approx(scores[1])
    assert scores[0][0] > 0.75


def test_tools_that_number_the_classes_are_told_what_to_do():
    table, labels = patients()
    with pytest.raises(InvalidType, match="let labels and the schema's classes be numbers"):
        cross_val_predict(exact(), table, labels, method="predict_proba", cv=2)
    schema = Schema(SCHEMA.columns, label=SCHEMA.label, classes=[0, 1])
    numbers = np.array([SCHEMA.classes.index(label) for label in labels])
    shares = cross_val_predict(exact(schema=schema), table, numbers, method="predict_proba", cv=2)
    assert shares.shape == (len(labels), 2)


def test_holders_need_not_agree_on_the_order_of_columns():
    table, labels = patients()
    backwards = table[table.columns[::-1]]
    model = exact().fit_holders([(table, labels), (backwards, labels)])
    assert model.predict(table).tolist() == model.predict(backwards).tolist()
    with pytest.raises(InvalidTable, match="one pair for each data holder"):
        exact().fit_holders([table, backwards])


# Files


def test_a_loaded_model_trains_again_at_the_same_price(tmp_path):
    table, labels = patients()
    model = PrivateTreeClassifier(schema=SCHEMA, epsilon=0.1, neighbours="replace").fit(table, labels)
    model.save(tmp_path / "tree.json")
    again = clone(PrivateTreeClassifier.load(tmp_path / "tree.json")).fit(table, labels)
    assert (again.epsilon, again.neighbours) == (0.1, "replace")
    assert again.ledger_.grant == model.ledger_.grant


def test_a_model_without_noise_or_of_a_schema_from_the_rows_does_not_load_as_a_private_one(tmp_path):
    table, labels = patients()
    path = tmp_path / "tree.json"
    exact(schema="from_data").fit(table, labels).save(path)
    loaded = PrivateTreeClassifier.load(path)
    assert loaded.epsilon == 1.0
    with pytest.warns(UserWarning, match="NOT private"):
        loaded.fit(table, labels)
    assert not loaded.ledger_.private


def test_holders_may_come_from_an_iterator():
    table, labels = patients()
    assert exact().fit_holders(zip([table], [labels], strict=True)).tree_ == exact().fit(table, labels).tree_


def test_a_saved_model_is_the_same_model(tmp_path):
    table, labels = patients()
    model = exact().fit(table, labels)
    path = tmp_path / "tree.json"
    model.save(path)
    loaded = PrivateTreeClassifier.load(path)
    assert loaded.tree_ == model.tree_
    assert loaded.schema == loaded.schema_ == SCHEMA
    assert loaded.classes_.tolist() == model.classes_.tolist()
    values = table.to_numpy()
    assert loaded.predict_proba(values).tolist() == model.predict_proba(table).tolist()
    again = tmp_path / "again.json"
    loaded.save(again)
    assert again.read_bytes() == path.read_bytes()


def test_a_model_is_loaded_only_with_the_schema_it_was_trained_with(tmp_path):
    exact().fit(*patients()).save(tmp_path / "tree.json")
    assert PrivateTreeClassifier.load(tmp_path / "tree.json", SCHEMA).schema_ == SCHEMA
    other = Schema(SCHEMA.columns, label="outcome", classes=["well", "ill"])
    with pytest.raises(SchemaMismatch, match="another schema"):
        PrivateTreeClassifier.load(tmp_path / "tree.json", other)
    with pytest.raises(SchemaMismatch, match=r"give a Schema, such as Schema\.load"):
        PrivateTreeClassifier.load(tmp_path / "tree.json", "schema.toml")


def test_a_damaged_file_is_refused(tmp_path):
    path = tmp_path / "tree.json"
    model = exact().fit(*patients())
    model.save(path)
    text = path.read_text()
    path.write_text(text[: len(text) // 2])
    with pytest.raises(InvalidModel, match="not JSON"):
        PrivateTreeClassifier.load(path)
    path.write_text(text.replace('"counts": [', '"counts": [NaN, ', 1))
    with pytest.raises(InvalidModel, match="contains NaN"):
        PrivateTreeClassifier.load(path)
    path.write_bytes(b"\xff\xfe\x00")
    with pytest.raises(InvalidModel, match=r"'tree\.json' is not a text file"):
        PrivateTreeClassifier.load(path)
    path.write_text(json.dumps(json.loads(text) | {"version": 99}))
    with pytest.raises(InvalidModel, match="version 99"):
        PrivateTreeClassifier.load(path)


def test_what_a_model_from_a_file_does_not_have_is_said_in_a_sentence(tmp_path):
    model = exact().fit(*patients())
    model.save(tmp_path / "tree.json")
    loaded = PrivateTreeClassifier.load(tmp_path / "tree.json")
    for name in ("ledger_", "ledgers_", "plan_", "traffic_"):
        assert getattr(model, name) is not None
        with pytest.raises(AttributeError, match=r"loaded from a file.*record_"):
            getattr(loaded, name)
        with pytest.raises(NotFittedError, match="call fit first"):
            getattr(exact(), name)
    with pytest.raises(AttributeError, match="no attribute 'wrong_'"):
        _ = model.wrong_


def test_a_tree_that_is_given_a_table_says_what_to_give_it():
    table, labels = patients()
    model = exact().fit(table, labels)
    with pytest.raises(InvalidType, match="encode"):
        model.tree_.apply(table)
    assert model.tree_.apply(encode(table, model.schema_)).tolist() == model.apply(table).tolist()
