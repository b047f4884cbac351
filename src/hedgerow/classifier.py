"""`PrivateTreeClassifier`: the scikit-learn estimator."""

from __future__ import annotations

import json
import math
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from fractions import Fraction
from numbers import Integral, Real
from pathlib import Path
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import issparse

from hedgerow.budget import SCHEDULES
from hedgerow.criteria import Criterion
from hedgerow.encoding import (
    MAX_ROWS,
    Codes,
    as_matrix,
    check_names,
    encode,
    encode_labels,
    is_frame,
    schema_from_data,
)
from hedgerow.errors import (
    InvalidModel,
    InvalidParameter,
    InvalidTable,
    NotPrivateWarning,
    OwnerWarning,
    SchemaMismatch,
)
from hedgerow.files import write_text
from hedgerow.holder.counts import GroupedRows, check_rows
from hedgerow.holder.desk import QUERIES
from hedgerow.holder.holder import Holder
from hedgerow.later import imported_later
from hedgerow.learner.coordinator import Coordinator, Plan
from hedgerow.learner.planning import Wishes, make_plan
from hedgerow.network.local import LocalNetwork
from hedgerow.owner import MUST_NOT_BE_PUBLISHED, SPENT_IN_PROCESS, RowReview, Sample
from hedgerow.privacy.ledger import NEIGHBOURS, Ledger
from hedgerow.privacy.noise import SECURE_NOISE, Noise, NoNoise, SeededNoise
from hedgerow.privacy.selectors import SELECTORS
from hedgerow.record import Record
from hedgerow.repeated import as_written
from hedgerow.schema import Schema
from hedgerow.tree import Tree, parse_json

# Three fifths of the time of importing it, for two functions that nothing here calls.
with imported_later("scipy.stats", "pandas"):
    from sklearn.base import BaseEstimator, ClassifierMixin
    from sklearn.exceptions import NotFittedError
    from sklearn.utils.validation import check_array, check_is_fitted, validate_data

FROM_DATA = "from_data"
OF_A_FIT = frozenset({"ledger_", "ledgers_", "plan_", "traffic_"})  # and not of a model from a file
FROM_ROWS = "the schema was read from the rows"
METHODS = ("auto", *QUERIES)
CRITERIA = ("auto", *(criterion.name for criterion in Criterion))
BUDGETS = ("auto", *SCHEDULES)

HOW_TO_WRITE_A_SCHEMA = """no schema: say what is publicly known of the table before it is read, for example

    from hedgerow import Categorical, Numeric, Schema
    schema = Schema(
        [Numeric("age", low=17, high=90, thresholds=10), Categorical("sex", ["Female", "Male"])],
        label="income", classes=["<=50K", ">50K"],
    )

and pass schema=schema. Bounds and categories must not come from the rows: they would give rows away.
(schema="from_data" reads them all the same, for experiments on data that are public already.)"""


class PrivateTreeClassifier(ClassifierMixin, BaseEstimator):  # type: ignore[misc]  # scikit-learn is untyped
    """A decision tree whose training is epsilon-differentially private.

    Parameters
    ----------
    schema : Schema or "from_data"
        What is public about the table. "from_data" reads bounds, categories and classes from the rows: a
        leak, for experiments on public data only.
    epsilon : float, default=1.0
        The privacy that training may cost any one row, in all. `math.inf` trains without noise.
    method : {"auto", "select", "paper", "turns", "local", "noisy_counts", "noisy_columns"}
        How the holders are asked for splits. One holder: "select" chooses a split and counts its cells, "paper"
        is the paper's flow, repaired (report-noisy-max whatever `selector` says, entropy, decaying budget with half
        of it for the leaves, target_error 0.1, min_gain 0.01). Several: "turns" lets one holder choose at each
        node and all count, which is what "auto" does; "local" lets each nominate a split, "noisy_counts" has every split counted and "noisy_columns" every column; these two do not select.
    selector : {"auto", "permute_and_flip", "exponential", "report_noisy_max"}
        How a split is selected privately. "auto": a holder that is alone selects a node's split together with those of
        its children where that is worth it, by the exponential mechanism, and one split by permute-and-flip elsewhere.
        Whoever names a selector gets it, for one split at a time.
    criterion : {"auto", "gini", "entropy", "root_gini", "error"}
        The splitting criterion; "root_gini" for two classes. "auto" is gini, and error for the last level.
    budget : {"auto", "uniform", "decay", "harmonic"}
        How epsilon is spread over the depths of the tree.
    leaf_fraction : float, optional
        The share of epsilon that labels the leaves, for a budget with a schedule; by default 0.15, or 0.5 for "paper".
    max_splits : int, default=512
        The most inner nodes.
    max_depth : int, optional
        The most splits on a path; by default planned (without noise: no limit).
    target_error : float, optional
        A node is split only if it holds at least target_error / max_splits of the rows.
    min_gain : float, optional
        A node is split only if the impurity of its rows falls by more than this, between 0 and 1.
    max_rows : int, optional
        A public bound on the number of rows of any holder; the noise of entropy and root gini grows with it.
    neighbours : {"add-remove", "replace"}
        Whether privacy hides that a row is there at all, or (at twice the noise) what is in it.
    noise : {"exact", "opendp"}
        Whose discrete Laplace noise: our own exact sampler, or OpenDP's, which is slower.
    noise_seed : int, optional
        None draws cryptographic noise. An integer draws reproducible noise, which protects nobody. It is not called
        `random_state`, because scikit-learn's meta-estimators set every parameter of that name.

    Attributes
    ----------
    tree_ : Tree
    schema_ : Schema
    classes_ : array
        Sorted, as scikit-learn has them.
    ledger_, ledgers_ : Ledger, list of Ledger
        The account of the first holder, and of each. Of a model that was trained here; what a file says is in `record_`.
    plan_ : Plan
        What was planned, and why: `plan_.explain()`. Of a model that was trained here.
    traffic_ : Traffic
        Rounds and bytes between the holders and the coordinator.
    record_ : Record or None
        How the tree was trained; kept in the model's file.
    n_features_in_ : int

    Examples
    --------
    >>> from hedgerow import Numeric, PrivateTreeClassifier, Schema
    >>> schema = Schema([Numeric("age", low=0, high=90, thresholds=9)], label="ill", classes=["no", "yes"])
    >>> ages = np.arange(9_000) % 90
    >>> ill = np.where(ages > 45, "yes", "no")
    >>> model = PrivateTreeClassifier(schema=schema, epsilon=1.0).fit(ages[:, None], ill)
    >>> model.predict([[20], [70]]).tolist()
    ['no', 'yes']
    >>> 0.9 < model.ledger_.spent <= 1
    True
    >>> model.ledger_.private
    True
    """  # noqa: D416 - as scikit-learn reads it for notebooks

    def __init__(
        self,
        *,
        schema: Schema | str | None = None,
        epsilon: float = 1.0,
        method: str = "auto",
        selector: str = "auto",
        criterion: str = "auto",
        budget: str = "auto",
        leaf_fraction: float | None = None,
        max_splits: int = 512,
        max_depth: int | None = None,
        target_error: float | None = None,
        min_gain: float | None = None,
        max_rows: int | None = None,
        neighbours: str = "add-remove",
        noise: str = "exact",
        noise_seed: int | None = None,
    ) -> None:
        self.schema = schema
        self.epsilon = epsilon
        self.method = method
        self.selector = selector
        self.criterion = criterion
        self.budget = budget
        self.leaf_fraction = leaf_fraction
        self.max_splits = max_splits
        self.max_depth = max_depth
        self.target_error = target_error
        self.min_gain = min_gain
        self.max_rows = max_rows
        self.neighbours = neighbours
        self.noise = noise
        self.noise_seed = noise_seed

    _tells_owner = True

    # ---- Learning ----

    def fit(self, X: Any, y: Any) -> Self:
        """Learn a tree from one holder's table and labels."""
        with self._unchanged_if_refused():
            self._check_parameters()
            if y is None:
                raise InvalidTable(
                    "fit requires y to be passed, but the target y is None: give one label a row."
                )
            X = self._checked_table(X, reset=True)
            self._settle_schema(X, y)
            plan = make_plan(self.schema_, self._wishes(1))
            holders = self._holders([self._grouped(X, y)])
            return self._learn(holders, plan)

    def fit_holders(self, tables: Sequence[tuple[Any, Any]]) -> Self:
        """Learn one tree from the tables and labels of several holders; each spends epsilon of its own.

        Examples:
            >>> from hedgerow.datasets import synthetic_hospitals
            >>> hospitals = synthetic_hospitals(3, rows=3_000)
            >>> model = PrivateTreeClassifier(schema=hospitals.schema).fit_holders(hospitals.holders)
            >>> all(0 < ledger.spent <= 1 for ledger in model.ledgers_)
            True
        """
        with self._unchanged_if_refused():
            self._check_parameters()
            self._need_schema()
            tables = list(tables)
            if not tables or not all(isinstance(table, Sequence) and len(table) == 2 for table in tables):
                raise InvalidTable("give a list of (table, labels), one pair for each data holder.")
            tables = [(self._checked_table(X, reset=True), y) for X, y in tables]
            self._forget_names()  # holders need not agree on an order of the columns
            self._settle_schema(None, None)
            plan = make_plan(self.schema_, self._wishes(len(tables)))
            names = [f"holder {i}: " for i in range(1, len(tables) + 1)]
            holders = self._holders(
                [self._grouped(X, y, name) for (X, y), name in zip(tables, names, strict=True)]
            )
            return self._learn(holders, plan)

    def fit_codes(
        self, codes: Codes, labels: NDArray[Any], holders: Sequence[NDArray[np.integer[Any]]] | None = None
    ) -> Self:
        """Learn from rows that are encoded already, with `encode` and `encode_labels`, by this schema.

        `holders` deals the rows out: the numbers of each holder's rows. No row is copied for a holder; codes of up to 32 MB
        are kept a second time, ordered by columns, and cannot be changed from then on.
        """
        self._check_parameters()
        schema = self._need_schema()
        _check_lengths(codes, labels)
        if holders is None:
            tables = [GroupedRows(codes, labels, schema)]
        else:
            # An empty list has no type of its own.
            dealt = [np.asarray(rows, dtype=None if len(rows) else np.int64) for rows in holders]
            if dealt:
                check_rows(np.concatenate(dealt), codes.n_rows)
            tables = [GroupedRows(codes, labels, schema, rows) for rows in dealt]
        if tables and self._tells_owner and math.isfinite(self.epsilon):
            sample = Sample.of(codes, labels)
            SPENT_IN_PROCESS.add(sample, codes.n_rows, self.epsilon, self._tell_owner)
        return self._fit_grouped(tables)

    def _fit_grouped(self, tables: Sequence[GroupedRows]) -> Self:
        """Learn from each holder's rows as exact counts are made of them; that no row is there twice is up to the caller."""
        with self._unchanged_if_refused():
            self._check_parameters()
            schema = self._need_schema()
            if any(rows.schema != schema for rows in tables):
                raise SchemaMismatch("the tree needs the schema that the rows were encoded by.")
            if not tables:
                raise InvalidTable("there are no holders; give the rows of one at least.")
            self.n_features_in_ = len(schema.columns)
            self._forget_names()
            self._settle_schema(None, None)
            plan = make_plan(self.schema_, self._wishes(len(tables)))
            holders = self._holders(tables)
            return self._learn(holders, plan)

    def plan(self, n_holders: int = 1) -> Plan:
        """What training would do, from public facts alone: nothing is read, nothing is spent."""
        self._check_parameters()
        check_number(
            "n_holders", n_holders, lambda v: v >= 1, "a number of data holders, at least 1", Integral
        )
        return make_plan(self._need_schema(), self._wishes(n_holders))

    # ---- Predicting ----

    def predict(self, X: Any) -> NDArray[Any]:
        """The most likely class of each row; of equally likely ones the first of the schema."""
        leaves = self.apply(X)
        best = self.tree_.counts.argmax(axis=1)
        predicted: NDArray[Any] = np.array(self.schema_.classes)[best][leaves]
        return predicted

    def predict_proba(self, X: Any) -> NDArray[np.float64]:
        """Class probabilities of each row, in the order of `classes_`."""
        leaves = self.apply(X)
        probabilities: NDArray[np.float64] = self.tree_.probabilities[:, self.schema_.class_order][leaves]
        return probabilities

    def score(self, X: Any, y: Any, sample_weight: Any = None) -> float:
        """The share of rows whose class is predicted: an exact number about these rows, so it is not private."""
        from sklearn.metrics import accuracy_score  # seconds, for those who evaluate

        predicted = self.predict(X)
        try:
            return float(accuracy_score(y, predicted, sample_weight=sample_weight))
        except MemoryError:
            raise
        except Exception:  # noqa: BLE001 - whatever it is, it may quote labels
            raise InvalidTable(
                "the labels cannot be compared with predictions: give one a row, of the kind of the schema's classes."
            ) from None

    def apply(self, X: Any) -> NDArray[np.int32]:
        """The number of the leaf that each row reaches."""
        check_is_fitted(self)
        return self.tree_.apply(encode(self._checked_table(X, reset=False), self.schema_))

    # ---- The record, and files ----

    @property
    def record_(self) -> Record | None:
        """How the tree was trained; None if it was loaded from a file that does not say."""
        check_is_fitted(self)
        if hasattr(self, "ledgers_"):
            return Record.of(self.ledgers_, self.plan_.explain(), str(self.traffic_))
        loaded: Record | None = self._record
        return loaded

    def to_dict(self) -> dict[str, Any]:
        """The tree, and how it was trained, as plain values."""
        check_is_fitted(self)
        plain = self.tree_.to_dict()
        if record := self.record_:
            plain["training"] = record.to_dict()
        return plain

    def to_json(self) -> str:
        """The same as JSON text."""
        return json.dumps(self.to_dict(), indent=1, allow_nan=False)

    def save(self, path: str | Path) -> None:
        """Write the model as JSON; the file appears as a whole or not at all."""
        write_text(path, self.to_json())

    @classmethod
    def load(cls, path: str | Path, schema: Schema | None = None) -> Self:
        """Read a model; `schema`, if given, must be the one that it was trained with.

        Of its parameters, the file has the schema, a finite epsilon and the neighbours; the rest are the defaults.
        """
        try:
            text = Path(path).read_text(encoding="utf-8")
        except UnicodeDecodeError as error:
            raise InvalidModel(f"{Path(path).name!r} is not a text file.") from error
        plain = parse_json(text)
        tree = Tree.from_dict(plain)
        record = Record.from_dict(plain["training"]) if "training" in plain else None
        if schema is not None and not isinstance(schema, Schema):
            raise SchemaMismatch(f"schema={schema!r}; give a Schema, such as Schema.load(path).")
        if schema is not None and schema != tree.schema:
            raise SchemaMismatch("the model was trained with another schema than the one given.")
        model = cls(schema=tree.schema)
        if record is not None:
            model.neighbours = record.neighbours
            if FROM_ROWS in record.leaks:
                model.schema = FROM_DATA
            if 0 < record.epsilon < math.inf:  # nobody trains without noise who has not asked for it
                model.epsilon = float(record.epsilon)
        model.schema_, model.tree_, model._record = tree.schema, tree, record
        model.classes_ = np.array(tree.schema.classes)[tree.schema.class_order]
        model.n_features_in_ = len(tree.schema.columns)
        return model

    # ---- Pictures ----

    def plot(self, *, max_depth: int | None = None, ax: Any = None) -> Any:
        """Draw the tree with matplotlib, from left to right; the upper branch is the one that passes the test.

        What lies below `max_depth` is counted, not drawn; by default a picture has at most 64 ends of branches.
        """
        check_is_fitted(self)
        from hedgerow.pictures import plot_tree

        if max_depth is not None:
            check_number("max_depth", max_depth, lambda v: v >= 0, "a number of levels, at least 0", Integral)
        return plot_tree(self.tree_, self.record_, max_depth, ax)

    def plot_spending(self) -> list[Any]:
        """Draw what each holder spent, at which depth and on what, and what is left: one panel a holder."""
        from hedgerow.pictures import plot_spending

        if (record := self.record_) is None:
            raise InvalidModel(
                "the model's file does not say how it was trained, so there is no spending to draw."
            )
        return plot_spending(record)

    @property
    def _repr_html_(self) -> Any:
        # A property, as scikit-learn's is: where diagrams are switched off there is no such attribute.
        diagram = super()._repr_html_
        return lambda: diagram() + self._summary_html()

    def _repr_mimebundle_(self, **options: Any) -> dict[str, str]:
        bundle: dict[str, str] = super()._repr_mimebundle_(**options)
        if "text/html" in bundle:
            bundle["text/html"] += self._summary_html()
        return bundle

    def _summary_html(self) -> str:
        if not hasattr(self, "tree_"):
            return ""
        from hedgerow.pictures import summary_html

        return summary_html(self.tree_, self.record_)

    # ---- Other forms ----

    def to_onnx(self, *, float32: bool = False) -> Any:
        """The model for ONNX runtimes, which predict exactly what it does; see `docs/model-format.md`.

        One input a column, named as in the schema; numbers are read as float64, or as float32 if asked.
        """
        check_is_fitted(self)
        from hedgerow.export.onnx import tree_to_onnx

        return tree_to_onnx(self.tree_, float32=float32)

    def to_sql(self, dialect: str, *, probability_of: Any = None) -> str:
        """An SQL expression that is the predicted class of a row, for "postgres" or "duckdb".

        With `probability_of` it is the probability of that class. Columns are named as in the schema.

        Examples:
            >>> from hedgerow import Categorical, Schema
            >>> schema = Schema([Categorical("ward", ["heart"])], label="stay", classes=["no", "yes"])
            >>> rows = [["heart"], ["skin"]] * 500
            >>> model = PrivateTreeClassifier(schema=schema, max_splits=1).fit(rows, ["yes", "no"] * 500)
            >>> print(model.to_sql("duckdb"))
            CAST(
            CASE WHEN CAST("ward" AS text) COLLATE "C" = 'heart' THEN
              'yes'
            ELSE
              'no'
            END
            AS text)
        """
        check_is_fitted(self)
        from hedgerow.export.sql import tree_to_sql

        return tree_to_sql(self.tree_, dialect, probability_of=probability_of)

    # ---- How training is set up ----

    def __getattr__(self, name: str) -> Any:
        # Asked only for what is not there.
        if name in OF_A_FIT and "tree_" in self.__dict__:
            raise AttributeError(
                f"this model was not trained here but loaded from a file, so there is no {name}: what the file says "
                "about how it was trained is in `record_`."
            )
        if name in OF_A_FIT:
            raise NotFittedError(f"there is no {name} before the model is trained: call fit first.")
        return super().__getattribute__(name)  # with its own error

    def __sklearn_is_fitted__(self) -> bool:
        return hasattr(self, "tree_")

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.allow_nan = True
        tags.input_tags.string = True
        tags.input_tags.categorical = True
        return tags

    def _grouped(self, table: Any, labels: Any, holder: str = "") -> GroupedRows:
        codes, numbers = encode(table, self.schema_), encode_labels(labels, self.schema_)
        _check_lengths(codes, numbers)
        if self._tells_owner:
            pays = math.isfinite(self.epsilon)
            review = RowReview(self.schema_, copies=pays)
            sample = review.see(table, codes, numbers)
            # A schema that was read from the rows fits them, and is named by them.
            for sentence in review.sentences() if isinstance(self.schema, Schema) else ():
                self._tell_owner(holder + sentence)
            if pays:
                SPENT_IN_PROCESS.add(
                    sample, codes.n_rows, self.epsilon, lambda sentence: self._tell_owner(holder + sentence)
                )
        return GroupedRows(codes, numbers, self.schema_)

    def _tell_owner(self, sentence: str) -> None:
        """Warn of what the rows say; nothing has been spent yet, so nothing is lost where warnings are errors."""
        warnings.warn(f"{sentence} {MUST_NOT_BE_PUBLISHED}", OwnerWarning, stacklevel=4)

    @contextmanager
    def _unchanged_if_refused(self) -> Iterator[None]:
        """What is refused before anything is spent costs nobody the tree that is there."""
        before = dict(self.__dict__)
        try:
            yield
        except BaseException:
            ledgers = self.__dict__.get("ledgers_", [])
            if ledgers is before.get("ledgers_") or not any(ledger.spent for ledger in ledgers):
                self.__dict__.clear()
                self.__dict__.update(before)
            raise

    def _forget_names(self) -> None:
        self.__dict__.pop("feature_names_in_", None)

    def _holders(self, tables: Sequence[GroupedRows]) -> list[Holder]:
        return [
            Holder(
                rows,
                self._noise(i),
                Ledger(self._grant(), neighbours=self.neighbours, leaks=self._leaks()),
                self._most_rows(),
            )
            for i, rows in enumerate(tables)
        ]

    def _learn(self, holders: Sequence[Holder], plan: Plan) -> Self:
        self.__dict__.pop("tree_", None)  # an interrupted fit leaves no tree, but shows what it has spent
        self.ledgers_ = [holder.ledger for holder in holders]
        self.ledger_ = self.ledgers_[0]
        network = LocalNetwork(holders)
        self.traffic_ = network.traffic
        self.tree_, self.plan_ = Coordinator(network).learn(self.schema_, plan)
        return self

    def _grant(self) -> Fraction | float:
        """What each holder grants: the decimal number that was written, exactly."""
        return as_written(self.epsilon) if math.isfinite(self.epsilon) else math.inf

    def _wishes(self, n_holders: int) -> Wishes:
        return Wishes(
            epsilon=self._grant(),
            neighbours=self.neighbours,
            n_holders=n_holders,
            method=self.method,
            selector=self.selector,
            criterion=self.criterion,
            budget=self.budget,
            leaf_fraction=self.leaf_fraction,
            max_splits=int(self.max_splits),
            max_depth=None if self.max_depth is None else int(self.max_depth),
            target_error=self.target_error,
            min_gain=self.min_gain,
            max_rows=self._most_rows(),
        )

    def _most_rows(self) -> int:
        return int(self.max_rows or MAX_ROWS)

    def _noise(self, holder: int) -> Noise:
        """Noise of one holder; seeded holders have seeds of their own."""
        if not math.isfinite(self.epsilon):
            return NoNoise()
        if self.noise_seed is None:
            return SECURE_NOISE[self.noise]
        seed = np.random.SeedSequence([int(self.noise_seed), holder]).generate_state(1, np.uint64)[0]
        return SeededNoise(int(seed))

    def _leaks(self) -> list[str]:
        """What is shown of the rows outside the account."""
        leaks = []
        if not math.isfinite(self.epsilon):
            leaks.append("epsilon is infinite, there is no noise")
        elif self.noise_seed is not None:
            leaks.append("the noise is seeded by noise_seed and can be taken off again")
        if not isinstance(self.schema, Schema):
            leaks.append(FROM_ROWS)
        return leaks

    def _checked_table(self, X: Any, *, reset: bool) -> Any:
        """The table with scikit-learn's usual checks; nothing is copied or converted."""
        named = is_frame(X)
        if not named:
            if not issparse(X):  # which check_array refuses
                X = as_matrix(X, len(self.schema.columns) if isinstance(self.schema, Schema) else None)
            if X.dtype.kind == "c":  # scikit-learn would quote them
                raise InvalidTable("Complex data not supported: a column holds numbers or categories.")
            X = check_array(X, dtype=None, ensure_all_finite=False, ensure_min_samples=0, estimator=self)
        elif not reset:
            check_names(
                X, self.schema_
            )  # by number: scikit-learn would quote names, which may be a row's values
        # Names are matched with the schema's in any case; where fit saw none there is nothing more to compare.
        if reset or not named or hasattr(self, "feature_names_in_"):
            validate_data(self, X, reset=reset, skip_check_array=True)
        return X

    def _need_schema(self) -> Schema:
        if self.schema is None:
            raise SchemaMismatch(HOW_TO_WRITE_A_SCHEMA)
        if not isinstance(self.schema, Schema):
            raise SchemaMismatch(
                f"schema={self.schema!r} is for `fit` alone, which has the rows; write a Schema."
            )
        return self.schema

    def _settle_schema(self, X: Any, y: Any) -> None:
        if self._tells_owner and self.noise_seed is not None and math.isfinite(self.epsilon):
            warnings.warn(
                f"noise_seed={self.noise_seed!r}: whoever knows or guesses the seed can compute the noise and take it "
                "off, so what this model shows of the rows is NOT private. Leave noise_seed out for data that are not "
                "public already.",
                NotPrivateWarning,
                stacklevel=3,
            )
        if self.schema != FROM_DATA:
            self.schema_ = self._need_schema()
        else:
            if math.isfinite(self.epsilon):
                warnings.warn(
                    'schema="from_data" reads bounds, categories and classes from the rows: what this model '
                    "shows of them is NOT private. Write a Schema for data that are not public already.",
                    NotPrivateWarning,
                    stacklevel=3,
                )
            self.schema_ = schema_from_data(X, y)
        self.classes_ = np.array(self.schema_.classes)[self.schema_.class_order]

    def _check_parameters(self) -> None:
        """Every parameter is of the right kind and in range; errors name it, its value and what would do."""
        is_known = self.schema is None or (isinstance(self.schema, str) and self.schema == FROM_DATA)
        if not is_known and not isinstance(self.schema, Schema):
            raise TypeError(f'schema={self.schema!r}; pass a Schema, or "{FROM_DATA}" for public data.')
        check_number("epsilon", self.epsilon, lambda v: v > 0, "a positive number, or inf for no privacy")
        for name, allowed in (
            ("method", METHODS),
            ("selector", ("auto", *SELECTORS)),
            ("criterion", CRITERIA),
            ("budget", BUDGETS),
            ("neighbours", NEIGHBOURS),
            ("noise", tuple(SECURE_NOISE)),
        ):
            value = getattr(self, name)
            if not isinstance(value, str) or value not in allowed:
                raise InvalidParameter(f"{name}={value!r}; choose one of {', '.join(map(repr, allowed))}.")
        if self.leaf_fraction is not None:
            check_number(
                "leaf_fraction", self.leaf_fraction, lambda v: 0 < v < 1, "between 0 and 1, or left out"
            )
        check_number("max_splits", self.max_splits, lambda v: v >= 1, "an integer of at least 1", Integral)
        for name, least in (("max_depth", 1), ("max_rows", 1), ("noise_seed", 0)):
            if (value := getattr(self, name)) is not None:
                expected = f"an integer of at least {least}, or left out"
                check_number(name, value, least.__le__, expected, Integral)
        for name in ("target_error", "min_gain"):
            if (value := getattr(self, name)) is not None:
                check_number(name, value, lambda v: 0 <= v <= 1, "between 0 and 1, or left out")


class SimulatedTree(PrivateTreeClassifier):
    """The same estimator for experiments on public or made-up rows: it warns of nothing."""

    _tells_owner = False


def check_number(
    name: str, value: Any, is_valid: Callable[[Any], bool], expected: str, kind: type = Real
) -> None:
    """Refuse a parameter that is no number, or none that would do; the error says what would."""
    if not isinstance(value, kind) or isinstance(value, bool):
        raise TypeError(f"{name}={value!r}; it must be {expected}.")
    # NumPy's numbers cannot be compared with larger ones than theirs.
    if not is_valid(value.item() if isinstance(value, np.generic) else value):
        raise InvalidParameter(f"{name}={value!r}; it must be {expected}.")


def _check_lengths(codes: Codes, labels: NDArray[Any]) -> None:
    if codes.n_rows != len(labels):
        raise InvalidTable(f"the table has {codes.n_rows} rows, but there are {len(labels)} labels.")
