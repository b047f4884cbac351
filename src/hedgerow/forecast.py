"""Will the tree be any good? What the theorems ask for, and what a simulation says, from public facts only.

The simulation makes up tables of the schema's shape with a stated signal and trains on them with the code that
would train on real rows. No real row is ever read here.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, replace
from numbers import Integral
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hedgerow.classifier import METHODS, SimulatedTree, check_number
from hedgerow.criteria import Criterion
from hedgerow.encoding import MAX_ROWS, Codes, column_places
from hedgerow.errors import InvalidParameter
from hedgerow.files import replacing
from hedgerow.schema import Categorical, Schema
from hedgerow.theory import log_splits_for_error, rows_for_our_tree, rows_for_tree

FACTORS = (1 / 8, 1 / 4, 1 / 2, 1, 2, 4, 8)  # of epsilon and of rows that are tried
EXACT_SIZES = (16, 64)  # splits of trees without noise, of which the better is shown: more would learn noise
TEST_ROWS = 10_000
MOST_CELLS = 2**27  # rows times columns of one table: more does not fit a small machine
USUAL_CELLS = 2**23  # of a table with more rows than were asked about: more does not fit a minute
MISSING = 0.05  # share of missing values where a column declares them
THEOREMS_SPLITS = 32
THEOREMS_ADVANTAGE = 0.1
THEOREMS_FAILURE = 0.05


# ---- Made-up tables --------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Signal:
    """What made-up tables hide: some columns vote, the first with most weight, and their vote names the class.

    The vote is the label of a share `ceiling` of the rows; the others have another class, at random. So no
    tree can be right about more rows than that. All other columns have nothing to do with the label.
    """

    ceiling: float = 0.9
    informative: int = 4
    weight: float = 0.7  # of a voter, compared with the one before it

    def __post_init__(self) -> None:
        share = "a share of the rows, above 0 and at most 1"
        check_number("ceiling", self.ceiling, lambda v: 0 < v <= 1, share)
        check_number(
            "informative", self.informative, lambda v: v >= 1, "a number of columns, at least 1", Integral
        )

    def __str__(self) -> str:
        deciders = "1 column decides" if self.informative == 1 else f"{self.informative} columns decide"
        return f"{deciders} the class of {100 * self.ceiling:g} % of the rows"


class Population:
    """Where the rows of one made-up study come from: a distribution for each column, and who votes how."""

    def __init__(self, schema: Schema, signal: Signal, rng: np.random.Generator) -> None:
        k = schema.n_classes
        is_possible = k == 1 or signal.ceiling >= 1 / k
        check_number(
            "ceiling", signal.ceiling, lambda _: is_possible, f"at least 1/{k}, which guessing reaches"
        )
        self.schema = schema
        self._signal = signal
        self._rng = rng
        self._shares = [_shares(schema, i) for i in range(len(schema.columns))]
        voters = rng.permutation(len(schema.columns))[: signal.informative]
        self._voters = [(int(column), self._leftists(int(column))) for column in voters]
        self._borders = np.zeros(0)  # of the classes, on the scale of votes
        votes = self._votes(self._bins(20_000))
        self._borders = np.quantile(votes, np.arange(1, schema.n_classes) / schema.n_classes)

    def draw(self, n_rows: int) -> tuple[Codes, NDArray[Any]]:
        """Rows and labels, encoded."""
        bins, places = self._bins(n_rows), column_places(self.schema)
        wide = places[:, 0].astype(bool)
        codes = Codes(
            np.ascontiguousarray(bins[:, ~wide], dtype=np.uint8),
            np.ascontiguousarray(bins[:, wide], dtype=np.uint16),
            places,
        )
        n_classes = self.schema.n_classes
        labels = np.searchsorted(self._borders, self._votes(bins))
        wrong = self._rng.random(n_rows) > self._signal.ceiling
        labels[wrong] += self._rng.integers(1, max(n_classes, 2), int(wrong.sum()))
        return codes, (labels % n_classes).astype(np.uint8 if n_classes <= 256 else np.uint16)

    def _bins(self, n_rows: int) -> NDArray[np.uint16]:
        bins = np.empty((n_rows, len(self._shares)), dtype=np.uint16)
        for column, shares in enumerate(self._shares):
            bins[:, column] = np.searchsorted(np.cumsum(shares)[:-1], self._rng.random(n_rows))
        return bins

    def _leftists(self, column: int) -> NDArray[np.bool_]:
        """Which bins of a voting column vote for the low classes: those of the split nearest to one half."""
        splits = self.schema.split_table[self.schema.split_table[:, 0] == column]
        bins = np.arange(len(self._shares[column]))
        left = (splits[:, 1:2] <= bins) & (bins <= splits[:, 2:3]) | (bins == splits[:, 3:])
        chosen: NDArray[np.bool_] = left[np.abs(left @ self._shares[column] - 0.5).argmin()]
        return chosen if self._rng.random() < 0.5 else ~chosen

    def _votes(self, bins: NDArray[np.uint16]) -> NDArray[np.float64]:
        votes = np.zeros(len(bins))
        for rank, (column, leftists) in enumerate(self._voters):
            votes += self._signal.weight**rank * np.where(leftists[bins[:, column]], -1.0, 1.0)
        return votes


def _shares(schema: Schema, index: int) -> NDArray[np.float64]:
    """How often each bin of a column comes up: a bell over thresholds, the first categories most often."""
    column = schema.columns[index]
    shares = np.zeros(column.n_bins)
    named = column.n_bins - column.missing - isinstance(column, Categorical)  # no made-up value is unknown
    place = (np.arange(named) + 0.5) / named
    shares[:named] = 1 / (np.arange(named) + 2) if isinstance(column, Categorical) else place * (1 - place)
    shares *= (1 - MISSING * column.missing) / shares.sum()
    if column.missing:
        shares[column.missing_bin] = MISSING
    return shares


# ---- The forecast ----------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Point:
    """What trees with one epsilon and one number of rows a holder may be expected to reach on new rows.

    `accuracy` and `exact` (without noise) are means over the runs, `error` the standard error of the first.
    """

    epsilon: float
    rows: int
    accuracy: float
    error: float
    exact: float


@dataclass(frozen=True)
class Asked:
    """What the theorems ask for, in rows of all holders together, and how many splits (as powers of ten)."""

    error: float
    advantage: float
    failure_probability: float
    max_splits: int
    paper: float
    ours: float
    log10_splits: float


@dataclass(frozen=True)
class Forecast:
    """Two answers to one question, for people and for machines."""

    epsilon: float
    rows: int
    holders: int
    method: str
    signal: Signal
    target: float
    runs: int
    guess: float  # accuracy of naming the largest class
    by_epsilon: tuple[Point, ...]
    by_rows: tuple[Point, ...]
    asked: Asked | None  # None: the theorems are about two classes
    alone: float | None = (
        None  # accuracy of one holder by itself, and of all rows at one holder; None for one
    )
    pooled: float | None = None

    @property
    def here(self) -> Point:
        """The setting that was asked about."""
        return next(point for point in self.by_epsilon if point.epsilon == self.epsilon)

    @property
    def least_epsilon(self) -> float | None:
        """The smallest epsilon tried that reaches the target with these rows."""
        return min((p.epsilon for p in self.by_epsilon if p.accuracy >= self.target), default=None)

    @property
    def fewest_rows(self) -> int | None:
        """The fewest rows a holder, of those tried, that reach the target with this epsilon."""
        return min((p.rows for p in self.by_rows if p.accuracy >= self.target), default=None)

    def to_dict(self) -> dict[str, Any]:
        """Plain values; an infinite number is None, as JSON has none."""
        plain = asdict(self) | {"least_epsilon": self.least_epsilon, "fewest_rows": self.fewest_rows}
        asked = plain["asked"] or {}
        return plain | {"asked": {key: v if math.isfinite(v) else None for key, v in asked.items()} or None}

    def explain(self) -> list[str]:
        """Both answers in sentences."""
        return [*self._theorem(), *self._simulation()]

    def _theorem(self) -> Iterator[str]:
        asked, total = self.asked, self.rows * self.holders
        if asked is None:
            yield "The theorem is about two classes and says nothing here."
            return
        unproven = "the paper's flow, repaired" if self.method == "paper" else "local selection"
        ours = f"; nothing at all is promised about {unproven}"
        if math.isfinite(asked.ours):
            ours = f" and for {_rows(asked.ours)} with these"
        yield (
            f"The theorem: for an error of at most {asked.error:g} with probability "
            f"{1 - asked.failure_probability:g}, from splits with an advantage of {asked.advantage:g}, a tree of "
            f"{asked.max_splits} splits asks for {_rows(asked.paper)} with the paper's mechanisms{ours}. "
            f"You have {total:,}."
        )
        yield (
            f"Its proof also needs about 10^{asked.log10_splits:.0f} splits. These are worst cases and say "
            "nothing about what usually happens; the simulation does."
        )

    def _simulation(self) -> Iterator[str]:
        here = self.here
        yield (
            f"The simulation: where {self.signal}, a tree of epsilon {here.epsilon:g} from {self.holders} x "
            f"{here.rows:,} rows is right about {100 * here.accuracy:.1f} % of new rows (standard error "
            f"{100 * here.error:.1f}); without noise {100 * here.exact:.1f} %, by guessing {100 * self.guess:.1f} %."
        )
        if self.alone is not None and self.pooled is not None:
            gain = self.here.accuracy - self.alone
            worth = "so joining is worth it" if gain > 2 * here.error else "so joining is worth little here"
            yield (
                f"One of the holders alone would be right about {100 * self.alone:.1f} %, all rows at one holder about "
                f"{100 * self.pooled:.1f} %: {worth}."
            )
        reached = [
            f"epsilon {self.least_epsilon:g} with these rows" if self.least_epsilon is not None else "",
            f"{self.fewest_rows:,} rows a holder with this epsilon" if self.fewest_rows is not None else "",
        ]
        none = "none of them does"
        if self.target > self.signal.ceiling:
            none = f"none can, where the best rule is right about {100 * self.signal.ceiling:g} %"
        ways = ", or ".join(way for way in reached if way)
        yield f"Cheapest setting tried that reaches {100 * self.target:g} %: {ways or none}."

    def plot(self, path: str | Path) -> None:
        """Draw accuracy against epsilon and against rows; the suffix names the format."""
        from matplotlib.figure import Figure

        figure = Figure(figsize=(9, 3.6), layout="constrained")
        panels = figure.subplots(1, 2, sharey=True)
        for axes, points, across in zip(
            panels, (self.by_epsilon, self.by_rows), ("epsilon", "rows"), strict=True
        ):
            x = [getattr(point, across) for point in points]
            private, exact = ([getattr(p, name) for p in points] for name in ("accuracy", "exact"))
            axes.errorbar(
                x, private, [2 * p.error for p in points], fmt="o:", color="#0072b2", label="private"
            )
            axes.plot(x, exact, "-", color="#d55e00", label="without noise")
            axes.axhline(self.target, color="0.4", linestyle="--", linewidth=1, label="target")
            axes.axhline(self.guess, color="0.7", linestyle=":", linewidth=1, label="guessing")
            axes.set_xscale("log")
            axes.set_xticks(x, [f"{value:g}" if across == "epsilon" else f"{value:,}" for value in x])
            axes.minorticks_off()
        panels[0].set(
            xlabel=f"epsilon, {self.holders} x {self.rows:,} rows", ylabel="accuracy on new made-up rows"
        )
        panels[1].set(xlabel=f"rows a holder, epsilon {self.epsilon:g}")
        panels[1].tick_params(axis="x", rotation=30)
        panels[0].legend(frameon=False)
        with replacing(path) as file:
            figure.savefig(file, format=Path(path).suffix[1:] or None, dpi=160)


def plan(
    schema: Schema,
    *,
    rows: int,
    epsilon: float = 1.0,
    holders: int = 1,
    method: str = "auto",
    target: float = 0.8,
    signal: Signal | None = None,
    runs: int = 8,
    seed: int = 0,
    progress: Callable[[int, int], None] | None = None,
) -> Forecast:
    """What to expect of `holders` with `rows` each and this epsilon: by theorem, and by simulation.

    Every run makes up a population, draws a table from it, and learns a tree for each epsilon and each number
    of rows around those asked about. `progress` is told how many trees are done, and of how many.

    Examples:
        >>> from hedgerow import Categorical, Numeric
        >>> wards = Categorical("ward", ["a", "b", "c"])
        >>> schema = Schema([Numeric("age", 0, 90), wards], label="ill", classes=["no", "yes"])
        >>> simple = Signal(ceiling=0.8, informative=1)
        >>> forecast = plan(schema, rows=2_000, target=0.75, signal=simple, runs=2)
        >>> round(forecast.here.accuracy, 1), forecast.fewest_rows <= 2_000
        (0.8, True)
    """
    signal = Signal() if signal is None else signal
    if not isinstance(signal, Signal):
        raise TypeError(f"signal={signal!r}; pass a Signal.")
    signal = replace(signal, informative=min(signal.informative, len(schema.columns)))
    check_number("rows", rows, lambda v: v >= 1, "the number of rows of one holder, at least 1", Integral)
    check_number("holders", holders, lambda v: v >= 1, "a number of data holders, at least 1", Integral)
    check_number("epsilon", epsilon, lambda v: 0 < v < math.inf, "a positive number")
    check_number("target", target, lambda v: 0 < v <= 1, "an accuracy, above 0 and at most 1")
    check_number("runs", runs, lambda v: v >= 2, "at least 2, or there is no standard error", Integral)
    if method not in METHODS:
        raise InvalidParameter(f"method={method!r}; choose one of {', '.join(METHODS)}.")
    rows, holders, runs = int(rows), int(holders), int(runs)  # NumPy's may be too small for what follows
    most = min(MOST_CELLS // len(schema.columns), MAX_ROWS) // holders
    check_number(
        "rows",
        rows,
        lambda v: v <= most,
        f"at most {most:,} for so many columns and holders, to be simulated",
    )
    usual = USUAL_CELLS // len(schema.columns) // holders
    sizes = sorted({max(1, round(rows * factor)) for factor in FACTORS if rows * factor <= max(usual, rows)})
    settings = [(epsilon * factor, rows) for factor in FACTORS]
    settings += [(epsilon, size) for size in sizes if size != rows]
    model = SimulatedTree(schema=schema, method=method)
    model.plan(holders)  # refuses a method that does not fit so many holders
    trees = settings + [(math.inf, size) for size in sizes for _ in EXACT_SIZES]
    done, right, guesses = 0, np.empty((runs, len(trees))), np.empty(runs)
    others = np.empty((runs, 2))  # one holder alone, and all rows at one holder
    for run, sequence in enumerate(np.random.SeedSequence(seed).spawn(runs)):
        rng = np.random.default_rng(sequence)
        population = Population(schema, signal, rng)
        table, test = population.draw(max(sizes) * holders), population.draw(TEST_ROWS)
        guesses[run] = np.bincount(test[1]).max() / TEST_ROWS
        for i, (budget, size) in enumerate(trees):
            splits = 512 if math.isfinite(budget) else EXACT_SIZES[(i - len(settings)) % len(EXACT_SIZES)]
            model.set_params(epsilon=budget, max_splits=splits, noise_seed=int(rng.integers(2**31)))
            model.method = method if math.isfinite(budget) else "auto"
            dealt = np.arange(size * holders).reshape(holders, size)
            right[run, i] = _accuracy(model.fit_codes(*table, list(dealt)), *test)
            done += 1
            if progress is not None:
                progress(done, runs * len(trees))
        for i, size in enumerate((rows, rows * holders) if holders > 1 else ()):
            model.set_params(
                epsilon=epsilon, max_splits=512, noise_seed=int(rng.integers(2**31)), method="auto"
            )
            others[run, i] = _accuracy(model.fit_codes(*table, [np.arange(size)]), *test)
    exact = right[:, len(settings) :].mean(axis=0).reshape(len(sizes), -1).max(axis=1)
    means, errors = right.mean(axis=0), right.std(axis=0, ddof=1) / math.sqrt(runs)
    points = [
        Point(float(budget), size, float(mean), float(error), float(exact[sizes.index(size)]))
        for (budget, size), mean, error in zip(settings, means[: len(settings)], errors, strict=False)
    ]
    by_rows = [point for point in points if point.epsilon == epsilon]
    alone, pooled = others.mean(axis=0).tolist() if holders > 1 else (None, None)
    return Forecast(
        epsilon=float(epsilon),
        rows=rows,
        holders=holders,
        method=method,
        signal=signal,
        target=float(target),
        runs=runs,
        guess=float(guesses.mean()),
        by_epsilon=tuple(points[: len(FACTORS)]),
        by_rows=tuple(sorted(by_rows, key=lambda point: point.rows)),
        asked=_asked(schema, epsilon, holders, method, target),
        alone=alone,
        pooled=pooled,
    )


def _accuracy(model: SimulatedTree, codes: Codes, labels: NDArray[Any]) -> float:
    tree = model.tree_
    return float((tree.counts.argmax(axis=1)[tree.apply(codes)] == labels).mean())


def _asked(schema: Schema, epsilon: float, holders: int, method: str, target: float) -> Asked | None:
    """The theorems' answer for the error that the target leaves (or one in a hundred)."""
    if schema.n_classes != 2:
        return None
    error = max(1 - target, 0.01)
    facts = THEOREMS_ADVANTAGE, error, epsilon, THEOREMS_FAILURE, THEOREMS_SPLITS
    of_entropy = {"holders": holders, "criterion": Criterion.entropy}
    return Asked(
        error=round(error, 12),
        advantage=THEOREMS_ADVANTAGE,
        failure_probability=THEOREMS_FAILURE,
        max_splits=THEOREMS_SPLITS,
        paper=rows_for_tree(*facts, len(schema.splits), holders=holders, corrected=True).rows,
        ours=rows_for_our_tree(schema, *facts, method=method, **of_entropy).rows,  # type: ignore[arg-type]
        log10_splits=log_splits_for_error(THEOREMS_ADVANTAGE, error) / math.log(10),
    )


def _rows(number: float) -> str:
    return f"{number:,.0f} rows" if number < 1e6 else f"{number:.0e} rows"
