"""Whatever scikit-learn does to our estimators, their noise stays cryptographic."""

import pickle
import warnings

import numpy as np
import pytest
from sklearn.calibration import CalibratedClassifierCV
from sklearn.ensemble import AdaBoostClassifier, BaggingClassifier, StackingClassifier, VotingClassifier
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import GridSearchCV, RandomizedSearchCV, cross_validate
from sklearn.multiclass import OneVsRestClassifier
from sklearn.pipeline import Pipeline, make_pipeline
from sklearn.preprocessing import FunctionTransformer

from hedgerow import Numeric, PrivateTreeClassifier, Schema
from hedgerow.errors import NotPrivateWarning, OwnerWarning
from hedgerow.privacy.noise import SecureNoise

SCHEMA = Schema([Numeric("a", 0, 1, 4), Numeric("b", 0, 1, 4)], label="y", classes=[0, 1])
ESTIMATORS = [PrivateTreeClassifier]


def rows(n=300, seed=0):
    rng = np.random.default_rng(seed)
    table = rng.random((n, 2))
    return table, (table[:, 0] + rng.normal(0, 0.2, n) > 0.5).astype(int)


WRAPPERS = {
    "bagging": lambda tree: BaggingClassifier(tree, n_estimators=3),
    "bagging with a seed": lambda tree: BaggingClassifier(tree, n_estimators=3, random_state=1),
    "voting": lambda tree: VotingClassifier([("one", tree), ("other", tree)], voting="soft"),
    "stacking": lambda tree: StackingClassifier([("tree", tree)], LogisticRegression(), cv=2),
    "calibration": lambda tree: CalibratedClassifierCV(tree, cv=2),
    "one against the rest": OneVsRestClassifier,
    "grid search": lambda tree: GridSearchCV(tree, {"epsilon": [0.5, 1.0]}, cv=2),
    "random search": lambda tree: RandomizedSearchCV(tree, {"epsilon": [0.5, 1.0]}, n_iter=2, cv=2, random_state=1),
    "pipeline": lambda tree: make_pipeline(FunctionTransformer(), tree),
    "search in a pipeline in bagging": lambda tree: BaggingClassifier(
        Pipeline([("search", GridSearchCV(tree, {"epsilon": [1.0]}, cv=2))]), n_estimators=2, random_state=2
    ),
}  # fmt: skip


def trees_in(found, seen):
    """All fitted estimators of ours within an object."""
    if id(found) in seen:
        return
    seen.add(id(found))
    if isinstance(found, tuple(ESTIMATORS)):
        yield found
    elif isinstance(found, dict):
        for value in found.values():
            yield from trees_in(value, seen)
    elif isinstance(found, (list, tuple, np.ndarray)):
        for value in found:
            yield from trees_in(value, seen)
    elif hasattr(found, "__dict__"):
        yield from trees_in(vars(found), seen)


@pytest.mark.parametrize("kind", ESTIMATORS)
@pytest.mark.parametrize("wrapper", WRAPPERS.values(), ids=WRAPPERS)
def test_no_meta_estimator_seeds_the_noise(kind, wrapper, monkeypatch):
    drawn = []
    real = SecureNoise.laplace
    monkeypatch.setattr(SecureNoise, "laplace", lambda self, *args: drawn.append(1) or real(self, *args))
    with warnings.catch_warnings():
        warnings.simplefilter("error", NotPrivateWarning)
        model = wrapper(kind(schema=SCHEMA)).fit(*rows())
    trees = [tree for tree in trees_in(model, set()) if hasattr(tree, "tree_")]
    assert trees
    assert drawn
    for tree in trees:
        assert tree.noise_seed is None
        assert tree.ledger_.private
        assert pickle.loads(pickle.dumps(tree)).record_.leaks == ()


@pytest.mark.parametrize("kind", ESTIMATORS)
def test_boosting_is_refused_because_it_weighs_rows(kind):
    # A weight would multiply what a row costs.
    with pytest.raises((TypeError, ValueError), match="sample_weight"):
        AdaBoostClassifier(kind(schema=SCHEMA), random_state=3).fit(*rows())


@pytest.mark.parametrize("kind", ESTIMATORS)
def test_no_parameter_is_one_that_libraries_set_by_themselves(kind):
    assert not {"random_state", "seed", "random_seed"} & kind().get_params().keys()


@pytest.mark.parametrize("kind", ESTIMATORS)
def test_a_seed_with_a_finite_epsilon_warns_loudly(kind):
    for fit in ("fit", "fit_holders"):
        table = rows() if fit == "fit" else ([rows()],)
        with pytest.warns(NotPrivateWarning, match="NOT private"):
            getattr(kind(schema=SCHEMA, noise_seed=1), fit)(*table)
    with warnings.catch_warnings():
        warnings.simplefilter("error", NotPrivateWarning)
        kind(schema=SCHEMA, noise_seed=1, epsilon=np.inf).fit(*rows())
        kind(schema=SCHEMA).fit(*rows())


@pytest.mark.parametrize("kind", ESTIMATORS)
def test_two_trees_of_a_bag_differ_from_one_bag_to_the_next(kind):
    """Equal noise in 3 trees of 2 bags, with secure noise, has probability far below 1e-6."""
    bags = [BaggingClassifier(kind(schema=SCHEMA), n_estimators=3, random_state=4).fit(*rows()) for _ in "ab"]
    counts = [[tree.tree_.counts.tolist() for tree in bag.estimators_] for bag in bags]
    assert all(first != second for first, second in zip(*counts, strict=True))


def test_cross_validation_says_that_rows_pay_again():
    table, labels = rows(500, seed=1)
    with pytest.warns(OwnerWarning, match="trained on before"):
        cross_validate(PrivateTreeClassifier(schema=SCHEMA), table, labels, cv=5)
