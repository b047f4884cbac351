"""What the paper says about its figures, each statement checked against the CSV.

A statement is tried on every data set (and algorithm, and alpha) that it speaks of; its verdict is how often it
holds. What is said to rise may fall by chance: by less than two standard deviations of the difference on the way.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

import pandas as pd

from hedgerow.errors import HedgerowError
from hedgerow.experiments.cells import ALGORITHMS, NO_NOISE, VERSIONS
from hedgerow.experiments.plots import TITLES, figure_1, figure_2, figure_3, how_many_runs, means, read
from hedgerow.experiments.runner import NOTES, TIMES
from hedgerow.files import write_text

BEGIN, END = "<!-- results: begin -->", "<!-- results: end -->"


@dataclass(frozen=True)
class Finding:
    """One trial of a statement: where, whether it holds, and the numbers."""

    where: str
    holds: bool
    numbers: str


Check = Callable[[pd.DataFrame, str], Iterator[Finding]]  # of the means, for one version


@dataclass(frozen=True)
class Statement:
    """A sentence of the paper and how it is tried."""

    source: str
    text: str
    check: Check


def verdict(found: Sequence[Finding]) -> str:
    """How often a statement holds, in a word or two."""
    if not found:
        return "no data"
    held = sum(finding.holds for finding in found)
    word = "agrees" if held == len(found) else "mostly" if held * 2 > len(found) else "not seen"
    return f"**{word}** ({held} of {len(found)})"


def _lines(shown: pd.DataFrame, *keys: str) -> Iterator[tuple[str, pd.DataFrame]]:
    for name, part in shown.groupby(list(keys)):
        yield ", ".join(str(n) if isinstance(n, str) else f"{n:g}" for n in name), part


def _of(shown: pd.DataFrame, algorithm: str) -> pd.DataFrame:
    return shown[shown.algorithm == algorithm]


def _noisy(shown: pd.DataFrame) -> pd.DataFrame:
    return shown[shown.alpha != NO_NOISE]


def _error(first: pd.Series, second: pd.Series, y: str) -> float:
    """Two standard deviations of the difference of two means."""
    return 2 * math.hypot(first[f"{y}_sem"], second[f"{y}_sem"])


def leaf_share_inside(mean: pd.DataFrame, version: str) -> Iterator[Finding]:
    """The smallest and the largest leaf fraction are no better than the middle one.

    The best of many inside would nearly always be above both by chance.
    """
    for where, line in _lines(figure_1(mean, version), "dataset", "algorithm", "alpha", "budget"):
        accuracy = line.sort_values("leaf_fraction").test_accuracy
        if len(accuracy) > 2:
            middle, ends = accuracy.iloc[len(accuracy) // 2], accuracy.iloc[[0, -1]]
            yield Finding(
                where, middle >= ends.max(), f"{ends.iloc[0]:.3f} / {middle:.3f} / {ends.iloc[1]:.3f}"
            )


def decay_degrades_more(mean: pd.DataFrame, version: str) -> Iterator[Finding]:
    """From the middle to the smallest leaf fraction, decay loses more accuracy than uniform."""
    for where, part in _lines(figure_1(mean, version), "dataset", "algorithm", "alpha"):
        loss = {}
        for budget, line in part.groupby("budget"):
            accuracy = line.set_index("leaf_fraction").test_accuracy
            if len(accuracy) > 1 and 0.5 in accuracy:
                loss[budget] = accuracy[0.5] - accuracy[accuracy.index.min()]
        if len(loss) == 2:
            numbers = f"decay {-loss['decay']:+.4f}, uniform {-loss['uniform']:+.4f}"
            yield Finding(where, loss["decay"] > loss["uniform"], numbers)


def decay_above_uniform(mean: pd.DataFrame, version: str) -> Iterator[Finding]:
    """Over all leaf fractions, the mean accuracy with decay is not below that with uniform."""
    for where, part in _lines(figure_1(mean, version), "dataset", "algorithm", "alpha"):
        accuracy = part.groupby("budget").test_accuracy.mean()
        if len(accuracy) == 2:
            numbers = f"decay {accuracy['decay']:.4f}, uniform {accuracy['uniform']:.4f}"
            yield Finding(where, accuracy["decay"] >= accuracy["uniform"], numbers)


def _rises(shown: pd.DataFrame, x: str, y: str, *keys: str) -> Iterator[Finding]:
    """From the smallest to the largest x, y rises, and never falls beyond its error on the way."""
    for where, line in _lines(shown, *keys):
        steps = [row for _, row in line.sort_values(x).iterrows()]
        if len(steps) > 1:
            falls = any(b[y] < a[y] - _error(a, b, y) for a, b in pairwise(steps))
            first, last = steps[0][y], steps[-1][y]
            yield Finding(where, last > first and not falls, f"{first:.4g} to {last:.4g}")


def rises_with_alpha(mean: pd.DataFrame, version: str) -> Iterator[Finding]:
    """Test accuracy over alpha."""
    yield from _rises(_noisy(figure_2(mean, version)), "alpha", "test_accuracy", "dataset", "algorithm")


def converges(mean: pd.DataFrame, version: str) -> Iterator[Finding]:
    """At the largest alpha, test accuracy is within one point of the baseline, or above it."""
    for where, part in _lines(figure_2(mean, version), "dataset", "algorithm"):
        baseline, noisy = part[part.alpha == NO_NOISE], _noisy(part)
        if not baseline.empty and not noisy.empty:
            last = noisy.sort_values("alpha").iloc[-1]
            numbers = f"{last.test_accuracy:.3f} at alpha {last.alpha:g}, {baseline.test_accuracy.iloc[0]:.3f} without"
            yield Finding(where, last.test_accuracy >= baseline.test_accuracy.iloc[0] - 0.01, numbers)


def _compare(mean: pd.DataFrame, version: str, y: str, better: str, worse: str) -> Iterator[Finding]:
    """Over all alphas, the mean of y is higher for one algorithm than for another."""
    for name, part in _noisy(figure_2(mean, version)).groupby("dataset"):
        average = part.groupby("algorithm")[y].mean()
        if {better, worse} <= set(average.index):
            numbers = f"{better} {average[better]:.4g}, {worse} {average[worse]:.4g}"
            yield Finding(str(name), average[better] > average[worse], numbers)


def single_machine_best(mean: pd.DataFrame, version: str) -> Iterator[Finding]:
    """SingleMachine above both others."""
    for other in ALGORITHMS[1:]:
        yield from _compare(mean, version, "test_accuracy", "SingleMachine", other)


def local_above_counts(mean: pd.DataFrame, version: str) -> Iterator[Finding]:
    """LocalRNM above NoisyCounts on the four data sets named."""
    for finding in _compare(mean, version, "test_accuracy", "LocalRNM", "NoisyCounts"):
        if finding.where in {"adult", "bank", "creditcard", "skin"}:
            yield finding


def noise_helps_clicks(mean: pd.DataFrame, version: str) -> Iterator[Finding]:
    """On Avazu, some alpha does better than no noise."""
    shown = figure_2(mean, version)
    for where, part in _lines(shown[shown.dataset == "avazu"], "dataset", "algorithm"):
        baseline, noisy = part[part.alpha == NO_NOISE], _noisy(part)
        if not baseline.empty and not noisy.empty:
            best = noisy.sort_values("test_accuracy").iloc[-1]
            without = baseline.iloc[0]
            holds = best.test_accuracy > without.test_accuracy + _error(best, without, "test_accuracy")
            numbers = f"{best.test_accuracy:.4f} at alpha {best.alpha:g}, {without.test_accuracy:.4f} without"
            yield Finding(where, bool(holds), numbers)


def rises_with_rows(mean: pd.DataFrame, version: str) -> Iterator[Finding]:
    """Test accuracy over the training fraction."""
    shown = _noisy(figure_3(mean, version))
    yield from _rises(shown, "train_fraction", "test_accuracy", "dataset", "algorithm", "alpha")


def training_rises_with_rows(mean: pd.DataFrame, version: str) -> Iterator[Finding]:
    """Training accuracy over the training fraction."""
    shown = _noisy(figure_3(mean, version))
    yield from _rises(shown, "train_fraction", "train_accuracy", "dataset", "algorithm", "alpha")


def baselines_overfit(mean: pd.DataFrame, version: str) -> Iterator[Finding]:
    """Without noise, the smallest training set has the higher training accuracy."""
    shown = figure_3(mean, version)
    for where, line in _lines(shown[shown.alpha == NO_NOISE], "dataset", "algorithm"):
        accuracy = line.sort_values("train_fraction").train_accuracy
        if len(accuracy) > 1:
            numbers = f"{accuracy.iloc[0]:.3f} to {accuracy.iloc[-1]:.3f}"
            yield Finding(where, accuracy.iloc[0] > accuracy.iloc[-1], numbers)


def fewer_rows_vary_more(mean: pd.DataFrame, version: str) -> Iterator[Finding]:
    """The standard deviation of the mean, averaged over alpha, falls from the smallest set to the largest."""
    for where, part in _lines(_noisy(figure_3(mean, version)), "dataset", "algorithm"):
        spread = part.groupby("train_fraction").test_accuracy_sem.mean()
        if len(spread) > 1:
            numbers = f"{spread.iloc[0]:.4f} to {spread.iloc[-1]:.4f}"
            yield Finding(where, spread.iloc[0] > spread.iloc[-1], numbers)


def noise_helps_small_bank(mean: pd.DataFrame, version: str) -> Iterator[Finding]:
    """NoisyCounts on bank, small training sets: every alpha is above the baseline."""
    shown = _of(figure_3(mean, version), "NoisyCounts")
    small = shown[(shown.dataset == "bank") & (shown.train_fraction <= 0.05)]
    for where, part in _lines(small, "dataset", "train_fraction"):
        baseline, noisy = part[part.alpha == NO_NOISE], _noisy(part)
        if not baseline.empty and not noisy.empty:
            without = baseline.test_accuracy.iloc[0]
            numbers = (
                f"{noisy.test_accuracy.min():.3f} to {noisy.test_accuracy.max():.3f}, {without:.3f} without"
            )
            yield Finding(where, bool((noisy.test_accuracy > without).all()), numbers)


def trees_shrink(mean: pd.DataFrame, version: str) -> Iterator[Finding]:
    """Depth and number of nodes rise with alpha."""
    for y in ("depth", "nodes"):
        for finding in _rises(_noisy(figure_2(mean, version)), "alpha", y, "dataset", "algorithm"):
            yield Finding(f"{finding.where}, {y}", finding.holds, finding.numbers)


def counts_deepest(mean: pd.DataFrame, version: str) -> Iterator[Finding]:
    """NoisyCounts deeper than both others."""
    for other in ("SingleMachine", "LocalRNM"):
        yield from _compare(mean, version, "depth", "NoisyCounts", other)


def local_shallowest(mean: pd.DataFrame, version: str) -> Iterator[Finding]:
    """LocalRNM shallower than both others."""
    for other in ("SingleMachine", "NoisyCounts"):
        yield from _compare(mean, version, "depth", other, "LocalRNM")


def local_kddcup(mean: pd.DataFrame, version: str) -> Iterator[Finding]:
    """LocalRNM on kddcup99: with decay and alpha 1 or 8, half for the leaves beats the largest share by far."""
    shown = _of(figure_1(mean, version), "LocalRNM")
    for where, line in _lines(shown[shown.dataset == "kddcup99"], "alpha", "budget"):
        accuracy = line.set_index("leaf_fraction").test_accuracy
        if len(accuracy) > 1 and 0.5 in accuracy:
            gain = accuracy[0.5] - accuracy[accuracy.index.max()]
            expected = "decay" in where and not where.startswith("0.125")
            numbers = f"{accuracy[accuracy.index.max()]:.3f} to {accuracy[0.5]:.3f}"
            yield Finding(where, bool((gain > 0.02) == expected), numbers)


STATEMENTS = (
    Statement("figure 1", "accuracy suffers as the leaves' share nears 0 or 1", leaf_share_inside),
    Statement("figure 1", "as it nears 0, accuracy degrades more with decay than with uniform", decay_degrades_more),
    Statement("figure 1", "decay tends to give higher accuracy than uniform", decay_above_uniform),
    Statement("figure 1, appendix", "LocalRNM on KDDCup: alpha 1 and 8 with decay improve much at share 0.5, "
              "the other lines stay as they are", local_kddcup),
    Statement("figure 2", "accuracy rises with alpha", rises_with_alpha),
    Statement("figure 2", "and converges to the baseline without noise", converges),
    Statement("figure 2", "overall, SingleMachine performs best", single_machine_best),
    Statement("figure 2", "LocalRNM is above NoisyCounts on Adult, Bank, Creditcard and Skin", local_above_counts),
    Statement("figure 2", "on CTR, some alpha is better than no noise", noise_helps_clicks),
    Statement("figure 2, appendix", "depth and size of the trees fall as the budget falls", trees_shrink),
    Statement("figure 2, appendix", "NoisyCounts learns the deepest trees", counts_deepest),
    Statement("figure 2, appendix", "LocalRNM learns the shallowest trees", local_shallowest),
    Statement("figure 3", "more training rows give better test accuracy", rises_with_rows),
    Statement("figure 3", "fewer training rows give larger error bars", fewer_rows_vary_more),
    Statement("figure 3", "NoisyCounts on Bank with 0.01 and 0.05 of the rows: noise beats no noise",
              noise_helps_small_bank),
    Statement("figure 3, appendix", "more training rows give better training accuracy", training_rises_with_rows),
    Statement("figure 3, appendix", "without noise, fewer training rows give higher training accuracy",
              baselines_overfit),
)  # fmt: skip


def report(out: Path, figures: Sequence[Path]) -> str:
    """The results in Markdown; `figures` are shown with paths relative to the folder that holds `out`."""
    cells = read(out)
    mean = means(cells)
    found = {(s, v): list(s.check(mean, v)) for s in STATEMENTS for v in VERSIONS}
    lines = [
        f"From the cells in `{out.name}`: {len(cells):,} trees, data sets {', '.join(sorted(set(cells.dataset)))}.",
        "",
        *_runs(mean),
        *_times(out),
        *(f"- {name}: {note}." for name, note in json.loads((out / NOTES).read_text()).items() if note),
        "",
        "A verdict counts the places (data sets, algorithms, alphas) where a statement holds.",
        "",
        "| figure | statement | " + " | ".join(f"`{v}`" for v in VERSIONS) + " |",
        "|---|---|" + "---|" * len(VERSIONS),
    ]
    for s in STATEMENTS:
        verdicts = " | ".join(verdict(found[s, v]) for v in VERSIONS)
        lines.append(f"| {s.source} | {s.text} | {verdicts} |")
    for path in figures:
        if path.suffix == ".png":
            lines += ["", f"![{path.stem}]({out.name}/{path.name})"]
    lines += ["", "## The numbers", ""]
    for version in VERSIONS:
        if not any(found[s, version] for s in STATEMENTS):
            continue  # it was not run
        lines += [f"### `{version}`: {TITLES[version]}", ""]
        lines += ["| statement | where | numbers | |", "|---|---|---|---|"]
        for s in STATEMENTS:
            lines += _summary(s, found[s, version])
        lines.append("")
    return "\n".join(lines)


MOST_LINES = 14


def _summary(statement: Statement, found: Sequence[Finding]) -> Iterator[str]:
    """A line for each finding; of long lists the exceptions first, and how many more there are."""
    shown = (
        sorted(found, key=lambda finding: finding.holds)[:MOST_LINES] if len(found) > MOST_LINES else found
    )
    for finding in shown:
        mark = "agrees" if finding.holds else "not seen"
        yield f"| {statement.text} | {finding.where} | {finding.numbers} | {mark} |"
    if len(found) > MOST_LINES:
        rest = [finding for finding in found if finding not in shown]
        held = sum(finding.holds for finding in rest)
        yield f"| {statement.text} | {len(rest)} more places | | {held} agree, {len(rest) - held} not |"


def _runs(mean: pd.DataFrame) -> Iterator[str]:
    """How often each setting that is random was run."""
    for version in VERSIONS:
        figures = {"1": figure_1, "2": figure_2, "3": figure_3}
        shown = {name: figure(mean, version) for name, figure in figures.items()}
        if shown["3"].train_fraction.eq(1).all():  # nothing but figure 2
            del shown["3"]
        told = [f"figure {name} {how_many_runs(part)}" for name, part in shown.items() if not part.empty]
        if told:
            yield f"- `{version}`: {', '.join(told)} of a setting."


def _times(out: Path) -> Iterator[str]:
    """What it took, one line for each time that the study was run."""
    if (out / TIMES).exists():
        for took in pd.read_csv(out / TIMES).to_dict("records"):
            seconds = took["seconds"]
            time = f"{seconds / 60:.0f} minutes" if seconds >= 90 else f"{seconds:.0f} seconds"
            yield f"- {took['cells']:,} trees of {took['versions']} took {time} (--jobs {took['jobs']})."


def write_report(out: Path, figures: Sequence[Path]) -> Path:
    """Put the results into the page beside `out`, between its markers; a page is begun where there is none."""
    return put_between_markers(page_of(out), report(out, figures), "Reproduction of the paper's evaluation")


def page_of(out: Path) -> Path:
    """The page beside a folder of results; refused if somebody else has written it."""
    page = out.resolve().parent / f"{out.resolve().name or 'report'}.md"
    text = page.read_text(encoding="utf-8", errors="replace") if page.exists() else BEGIN + END
    if END not in text.partition(BEGIN)[2]:
        raise HedgerowError(
            f"{page} is where the report would go, but is another page; choose another --out."
        )
    return page


def put_between_markers(page: Path, text: str, title: str) -> Path:
    """Replace what a page has between the markers."""
    old = page.read_text(encoding="utf-8") if page.exists() else f"# {title}\n\n{BEGIN}\n{END}\n"
    head, _, rest = old.partition(BEGIN)
    _, _, tail = rest.partition(END)
    write_text(page, f"{head}{BEGIN}\n{text}\n{END}{tail or chr(10)}")
    return page
