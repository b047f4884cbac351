"""What holders gain by learning together: `python -m hedgerow.experiments.accuracy_holders`.

Three trees by the defaults are compared on the same test rows: of the largest holder alone, of all holders together,
and of all rows pooled at one holder. The training rows are dealt out equally at random, unequally, or by a column, so
that holders differ. Each seed deals the rows out anew and draws the noise; differences are paired by seed.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass, fields
from itertools import product
from pathlib import Path
from typing import Any

import joblib
import numpy as np
from numpy.typing import NDArray
from rich.console import Console
from rich.table import Table

from hedgerow.classifier import METHODS, SimulatedTree
from hedgerow.datasets import check_files, load
from hedgerow.encoding import Codes
from hedgerow.errors import InvalidTable
from hedgerow.experiments.accuracy import Encoded, deal_equally, option_parser, score
from hedgerow.experiments.runner import progress_bars, whole_lines

EPSILONS = (0.5, 1.0, 2.0)
HOLDERS = (4, 16, 64)
CONCENTRATION = 0.4  # of the Dirichlet distribution of the holders' shares
MIN_LOSS = 0.003  # of accuracy: a smaller one is not listed, however certain

ALONE, TOGETHER, POOLED = LEARNERS = ("alone", "together", "pooled")
NOT_DEALT = "not dealt"
DEFAULT_METHOD = "auto"


# ---- Dealing the rows out: each function returns each holder's row numbers ----


def deal_unequally(codes: Codes, holders: int, rng: np.random.Generator) -> list[NDArray[np.int64]]:
    """At random, in shares of a Dirichlet distribution; a holder may have no row."""
    shares = rng.dirichlet(np.full(holders, CONCENTRATION))
    ends = np.rint(np.cumsum(shares) * codes.n_rows).astype(np.int64)
    return np.split(rng.permutation(codes.n_rows), ends[:-1])


def deal_by_column(codes: Codes, holders: int, rng: np.random.Generator) -> list[NDArray[np.int64]]:
    """Equally many, in the order of one column's codes, ties at random; the column is drawn from those that vary.

    Neither the order of the holders nor who has one row more depends on the codes: the largest holder is any of them.
    """
    in_turn = rng.permutation(len(codes.places))
    column = next((codes.column(c) for c in in_turn if np.ptp(codes.column(c))), codes.column(0))
    rows = rng.permutation(codes.n_rows)
    in_order = rows[np.argsort(column[rows], kind="stable")]
    sizes = rng.permutation([len(part) for part in np.array_split(rows, holders)])
    parts = np.split(in_order, np.cumsum(sizes)[:-1])
    return [parts[holder] for holder in rng.permutation(holders)]


DEALINGS: dict[str, Callable[[Codes, int, np.random.Generator], list[NDArray[np.int64]]]] = {
    "equally": deal_equally,
    "unequally": deal_unequally,
    "by_column": deal_by_column,
}


# ---- Learning ----

Score = tuple[float, float]  # accuracy, ROC-AUC


@dataclass(frozen=True)
class Fit:
    """One tree to be learned."""

    dataset: str
    dealt: str
    holders: int
    epsilon: float
    learner: str
    method: str
    seed: int

    def run(self, data: Encoded) -> Score:
        """Learn it, and score it on the test rows."""
        model = SimulatedTree(
            schema=data.schema, epsilon=self.epsilon, method=self.method, noise_seed=self.seed
        )
        codes, labels = data.train
        if self.learner == POOLED:
            model.fit_codes(codes, labels)
        else:
            dealt = DEALINGS[self.dealt](codes, self.holders, np.random.default_rng(self.seed))
            if self.learner == ALONE:
                rows = max(dealt, key=len)
                model.fit_codes(codes.take(rows), labels[rows])
            else:
                model.fit_codes(codes, labels, dealt)
        accuracy, auc, _ = score(model, data.test)
        return accuracy, auc


@dataclass(frozen=True)
class Cell:
    """Where the three learners are compared. `method` is how the holders learn together."""

    dataset: str
    dealt: str
    holders: int
    epsilon: float
    method: str

    def fit(self, learner: str, seed: int) -> Fit:
        """One of its trees; cells share the pooled ones, which do not depend on the dealing."""
        if learner == POOLED:
            return Fit(self.dataset, NOT_DEALT, 1, self.epsilon, POOLED, DEFAULT_METHOD, seed)
        method = self.method if learner == TOGETHER else DEFAULT_METHOD
        return Fit(self.dataset, self.dealt, self.holders, self.epsilon, learner, method, seed)


def fits_of(cells: Sequence[Cell], seeds: int) -> list[Fit]:
    """The trees of the cells, each once; all of a seed before those of the next."""
    return list(
        dict.fromkeys(
            cell.fit(learner, seed) for seed, cell, learner in product(range(seeds), cells, LEARNERS)
        )
    )


def learn(fits: Sequence[Fit], keep: Path | None, jobs: int) -> dict[Fit, Score]:
    """Learn the trees whose scores are not in the file `keep` yet; each score is added to it at once."""
    known = {} if keep is None else read_scores(keep)
    missing = [fit for fit in fits if fit not in known]
    with progress_bars() as progress:
        for dataset in dict.fromkeys(fit.dataset for fit in missing):
            mine = [fit for fit in missing if fit.dataset == dataset]
            bar = progress.add_task(f"{dataset}: reading", total=len(mine))
            data = Encoded.of(load(dataset))
            progress.update(bar, description=dataset)
            results = joblib.Parallel(n_jobs=jobs, prefer="threads", return_as="generator_unordered")(
                joblib.delayed(_run)(fit, data) for fit in mine
            )
            for fit, found in results:
                known[fit] = found
                if keep is not None:
                    _append(keep, fit, found)
                progress.advance(bar)
    return {fit: known[fit] for fit in fits}


def _run(fit: Fit, data: Encoded) -> tuple[Fit, Score]:
    return fit, fit.run(data)


def read_scores(path: Path) -> dict[Fit, Score]:
    """The scores in a file of JSON lines, if there is one."""
    found = {}
    for number, line in enumerate(whole_lines(path), start=1):
        try:
            plain = json.loads(line)
            fit = Fit(**{field.name: plain[field.name] for field in fields(Fit)})
            found[fit] = plain["accuracy"], plain["auc"]
        except (ValueError, KeyError, TypeError):
            raise InvalidTable(f"line {number} of {path} is not the score of a fit; remove it.") from None
    return found


def _append(path: Path, fit: Fit, found: Score) -> None:
    with path.open("a") as file:
        file.write(json.dumps({**asdict(fit), "accuracy": found[0], "auc": found[1]}) + "\n")


# ---- Comparing ----


@dataclass(frozen=True)
class Comparison:
    """Means over seeds of one cell; the errors are standard errors of together - alone."""

    cell: Cell
    alone: float
    together: float
    pooled: float
    gain_error: float
    alone_auc: float
    together_auc: float
    pooled_auc: float
    auc_gain_error: float

    @classmethod
    def of(cls, cell: Cell, scores: dict[Fit, Score], seeds: int) -> Comparison:
        """Of a cell whose trees were all learned."""
        alone, together, pooled = (
            np.array([scores[cell.fit(learner, seed)] for seed in range(seeds)]) for learner in LEARNERS
        )  # [seed, (accuracy, AUC)]
        errors = (together - alone).std(axis=0, ddof=1) / math.sqrt(seeds)
        accuracies, aucs = np.stack(
            [alone.mean(axis=0), together.mean(axis=0), pooled.mean(axis=0), errors], 1
        )
        return cls(cell, *accuracies.tolist(), *aucs.tolist())

    @property
    def is_loss(self) -> bool:
        """Together is less accurate than alone: by more than chance, and by enough to matter."""
        return self.alone - self.together > max(2 * self.gain_error, MIN_LOSS)

    @property
    def ranks_worse(self) -> bool:
        """Together is more accurate than alone, but its AUC is lower by more than chance."""
        return self.together > self.alone and self.alone_auc - self.together_auc > 2 * self.auc_gain_error

    def to_dict(self) -> dict[str, Any]:
        """As plain values, the cell's beside its means."""
        plain = asdict(self)
        return {**plain.pop("cell"), **plain}

    def __str__(self) -> str:
        return (
            f"{self.cell.dataset}, epsilon {self.cell.epsilon:g}, {self.cell.holders} holders, dealt {self.cell.dealt}: "
            f"accuracy {self.alone:.4f} alone, {self.together:.4f} together ({self.gain_error:.4f}); "
            f"AUC {self.alone_auc:.4f}, {self.together_auc:.4f} ({self.auc_gain_error:.4f})"
        )


def gap_closed(comparisons: Iterable[Comparison]) -> float | None:
    """The share of the gap between alone and pooled that learning together closes; None where there is no gap."""
    gained = gap = 0.0
    for comparison in comparisons:
        gained += comparison.together - comparison.alone
        gap += comparison.pooled - comparison.alone
    return gained / gap if gap > 0 else None


def gaps_closed(comparisons: Sequence[Comparison]) -> dict[tuple[str, int], float | None]:
    """By way of dealing and number of holders, over all data sets and epsilons."""
    keys = dict.fromkeys((c.cell.dealt, c.cell.holders) for c in comparisons)
    return {key: gap_closed(c for c in comparisons if (c.cell.dealt, c.cell.holders) == key) for key in keys}


# ---- Showing ----


def show(comparisons: Sequence[Comparison], console: Console) -> None:
    """A table for each way of dealing and number of holders, the shares of the gap closed, and what got worse."""
    shares = gaps_closed(comparisons)
    for dealt, holders in shares:
        mine = [c for c in comparisons if (c.cell.dealt, c.cell.holders) == (dealt, holders)]
        show_dealing(mine, f"dealt {dealt}, {holders} holders", console)
    columns = sorted({holders for _, holders in shares})
    table = Table("dealt", *(f"{holders} holders" for holders in columns), title="share of the gap closed")
    for dealt in dict.fromkeys(dealt for dealt, _ in shares):
        found = [shares[dealt, holders] for holders in columns]
        table.add_row(dealt, *("no gap" if share is None else f"{share:.3f}" for share in found))
    console.print(table)
    show_list(f"less accurate than alone by over two standard errors and {MIN_LOSS}",
              [c for c in comparisons if c.is_loss], console)  # fmt: skip
    show_list("more accurate than alone, but of an AUC lower by over two standard errors",
              [c for c in comparisons if c.ranks_worse], console)  # fmt: skip


def show_dealing(comparisons: Sequence[Comparison], title: str, console: Console) -> None:
    """One row a data set, one column an epsilon."""
    epsilons = sorted({c.cell.epsilon for c in comparisons})
    title += ": alone, together, pooled (standard error of together - alone); AUC of each"
    table = Table("", *(f"epsilon {e:g}" for e in epsilons), title=title)
    for name in dict.fromkeys(c.cell.dataset for c in comparisons):
        texts = []
        for epsilon in epsilons:
            [c] = [c for c in comparisons if (c.cell.dataset, c.cell.epsilon) == (name, epsilon)]
            texts.append(
                f"{c.alone:.4f} {c.together:.4f} {c.pooled:.4f} ({c.gain_error:.4f})\n"
                f"{c.alone_auc:.4f} {c.together_auc:.4f} {c.pooled_auc:.4f} ({c.auc_gain_error:.4f})"
            )
        table.add_row(name, *texts)
    console.print(table)


def show_list(title: str, comparisons: Sequence[Comparison], console: Console) -> None:
    """A line each."""
    console.print(f"\nTogether {title}: {len(comparisons) or 'none'}")
    for comparison in comparisons:
        console.print(f"  {comparison}", highlight=False, soft_wrap=True)


def main(arguments: Sequence[str] | None = None) -> None:
    """Command line."""
    parser = option_parser(__doc__, HOLDERS, EPSILONS)
    parser.add_argument("--dealt", nargs="+", choices=DEALINGS, default=tuple(DEALINGS))
    parser.add_argument("--method", choices=METHODS, default=DEFAULT_METHOD, help="of learning together")
    parser.add_argument(
        "--keep",
        type=Path,
        metavar="FILE",
        help="keep each fit's scores here; a fit found here is not repeated, so remove the file when the learner changes",
    )
    options = parser.parse_args(arguments)
    if options.seeds < 2:
        parser.error("--seeds: give at least 2; one has no standard error.")
    check_files(options.datasets)
    places = product(options.datasets, options.dealt, options.holders, options.epsilons)
    cells = [Cell(*place, options.method) for place in places]
    scores = learn(fits_of(cells, options.seeds), options.keep, options.jobs)
    comparisons = [Comparison.of(cell, scores, options.seeds) for cell in cells]
    if options.json:
        shares = [
            {"dealt": dealt, "holders": holders, "gap_closed": share}
            for (dealt, holders), share in gaps_closed(comparisons).items()
        ]
        found = {
            "cells": [c.to_dict() for c in comparisons],
            "gaps_closed": shares,
            "less_accurate_than_alone": [c.to_dict() for c in comparisons if c.is_loss],
            "more_accurate_but_lower_auc": [c.to_dict() for c in comparisons if c.ranks_worse],
        }
        print(json.dumps(found, indent=1))  # noqa: T201 - for machines
    else:
        show(comparisons, Console(width=150))


if __name__ == "__main__":
    main()
