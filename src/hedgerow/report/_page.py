"""The page, put together from its template, its style, its script and the model's numbers."""

from __future__ import annotations

import base64
import hashlib
import json
import math
import re
from collections.abc import Iterable, Mapping, Sequence
from html import escape
from importlib import resources
from pathlib import Path
from typing import Any

import numpy as np

from hedgerow.classifier import PrivateTreeClassifier
from hedgerow.files import write_text
from hedgerow.record import Account, Record
from hedgerow.report._bounds import REACH, share_bounds
from hedgerow.report._words import in_words, promise, protected_not, warnings_of
from hedgerow.schema import Numeric
from hedgerow.tree import LEAF, Tree

SHOWN_CATEGORIES = 12  # of a column, before the rest is folded away


def write_report(
    model: PrivateTreeClassifier, path: str | Path, evaluation: Mapping[str, Any] | None = None
) -> None:
    """Write the page; the file is replaced as a whole or not at all."""
    write_text(path, report_html(model, evaluation))


def report_html(model: PrivateTreeClassifier, evaluation: Mapping[str, Any] | None = None) -> str:
    """The page as text. `evaluation` maps names to numbers or tables, as `hedgerow evaluate --json` prints them.

    Examples:
        >>> from hedgerow.datasets import synthetic_hospitals
        >>> hospital = synthetic_hospitals(1, rows=1_000)
        >>> model = PrivateTreeClassifier(schema=hospital.schema, noise_seed=0).fit(*hospital.holders[0])
        >>> re.search("<title>(.*)</title>", report_html(model))[1]
        'NOT PRIVATE: Decision tree for malaria'
    """
    record, tree = model.record_, model.tree_  # in this order: the first says that a model is not fitted
    style, script = _file("page.css"), _file("page.js")
    private = record is not None and not record.leaks
    sections = [
        _privacy(record, evaluated=evaluation is not None),
        _spending(record),
        _plan(record),
        _schema(tree),
    ]
    if evaluation is not None:
        sections.append(_evaluation(evaluation))
    title = f"Decision tree for {tree.schema.label}"
    parts = {
        "policy": (
            f"default-src 'none'; script-src {_digest(script)}; style-src {_digest(style)}; img-src data:; "
            "base-uri 'none'; form-action 'none'"
        ),
        "style": style,
        "script": script,
        "data": _json(_data(tree)),
        "page-title": escape(title if private or record is None else f"NOT PRIVATE: {title}"),
        "title": escape(title),
        "summary": escape(_summary(tree, record)),
        "banner": _banner(record),
        "figures": _figures(tree, record),
        "reading": _reading(tree, record),
        "sections": "\n".join(sections),
        "contents": _contents(evaluation is not None),
        "text": escape(tree.export_text()),
        "hash": tree.schema.hash,
    }
    return re.sub(r"\{\{([a-z-]+)\}\}", lambda match: parts[match[1]], _file("page.html"))


def _data(tree: Tree) -> dict[str, Any]:
    """What the script draws and routes by: everything that `predict` uses, to the last digit."""
    schema, bounds = tree.schema, share_bounds(tree)
    rows = tree.counts.sum(axis=1)
    reach = None if tree.noise is None else REACH * tree.noise * math.sqrt(schema.n_classes)
    best = tree.counts.argmax(axis=1)
    nodes: list[dict[str, Any]] = []
    for i in range(tree.n_nodes):
        node: dict[str, Any] = {"best": int(best[i]), "shares": tree.probabilities[i].tolist()}
        node["rows"] = float(rows[i])
        if reach is not None and bounds is not None:
            node |= {"reach": float(reach[i]), "low": bounds[0][i].tolist(), "high": bounds[1][i].tolist()}
        if tree.split[i] != LEAF:
            split = schema.splits[tree.split[i]]
            node |= vars(in_words(split, schema))
            node |= {"column": split.column, "first": split.first, "last": split.last, "also": split.also}
            node |= {"left": int(tree.left[i]), "right": int(tree.right[i])}
        nodes.append(node)
    columns: list[dict[str, Any]] = []
    for column in schema.columns:
        plain = {"name": column.name, "missingBin": column.missing_bin, "declaresMissing": column.missing}
        if isinstance(column, Numeric):
            plain |= {"cuts": column.cuts.tolist(), "low": column.low, "high": column.high}
        else:
            plain |= {"categories": list(map(str, column.categories)), "otherBin": column.other_bin}
        columns.append(plain)
    classes = list(map(str, schema.classes))
    return {"label": schema.label, "classes": classes, "columns": columns, "nodes": nodes}


def _summary(tree: Tree, record: Record | None) -> str:
    splits = f"{tree.n_splits} {_plural('split', tree.n_splits)}, {tree.depth} deep"
    if record is None:
        return f"{splits}."
    holders = len(record.accounts)
    return f"Learned from {holders} data {_plural('holder', holders)} with epsilon {_epsilon(record.epsilon)}: {splits}."


def _banner(record: Record | None) -> str:
    if record is None:
        return _loud(
            "Nothing is known of the training",
            ["The model's file does not say how the tree was learned. Do not take it to be private."],
        )
    if record.leaks:
        return _loud(
            "Not private",
            [*warnings_of(record), "Do not show this tree to anyone who may not see the rows."],
        )
    return ""


def _loud(heading: str, sentences: Iterable[str]) -> str:
    return (
        f'<section class="banner" role="alert"><h2>{escape(heading)}</h2>{_paragraphs(sentences)}</section>'
    )


def _figures(tree: Tree, record: Record | None) -> str:
    """The few numbers that everybody asks for first."""
    rows = f"{tree.counts[0].sum():,.0f}"
    if tree.noise is not None and (reach := REACH * tree.noise[0] * math.sqrt(tree.schema.n_classes)) >= 0.5:
        rows = f"{rows} ± {reach:,.0f}"
    shown = [("Leaves", f"{tree.n_leaves:,}"), ("Rows, about", rows)]
    if record is not None:
        spent = max(account.spent for account in record.accounts)
        shown = [("Epsilon granted", _epsilon(record.epsilon)), ("Epsilon spent", _epsilon(spent)), *shown]
    return "".join(f"<div><dt>{escape(name)}</dt><dd>{escape(value)}</dd></div>" for name, value in shown)


def _reading(tree: Tree, record: Record | None) -> str:
    if record is not None and math.isinf(record.epsilon):
        return "All counts and shares are exact: there was no noise."
    if tree.noise is None:
        return "The file does not say how noisy its counts are, so no bounds are shown."
    return (
        "All counts and shares are noisy, as released; ranges say where those of the training rows lie, 95 times in "
        "100. A dashed outline marks a leaf where the noise could have changed the most frequent class."
    )


def _privacy(record: Record | None, *, evaluated: bool) -> str:
    promises = (
        promise(record, evaluated=evaluated)
        if record is not None
        else ["Nothing is known of the training, so nothing is promised."]
    )
    if record is not None and record.leaks and math.isfinite(record.epsilon):
        promises = ["Were it not for what the warning above names, this would hold:", *promises]
    return _section(
        "privacy",
        "What is promised, and what is not",
        f'<div class="columns"><div>{_paragraphs(promises)}</div>'
        f"<div><h3>Not protected</h3>{_list(protected_not(record))}</div></div>",
    )


def _spending(record: Record | None) -> str:
    if record is None:
        body = "<p>The model's file has no account.</p>"
    elif math.isinf(record.epsilon):
        body = "<p>Without noise there is nothing to account for: epsilon is infinite.</p>"
    else:
        body = _holders(record.accounts) + "".join(
            _account(account, names) for account, names in _alike(record.accounts)
        )
    traffic = f"<p class='quiet'>{escape(record.traffic)}.</p>" if record is not None else ""
    return _section("spending", "What was spent, and on what", body + traffic)


def _holders(accounts: Sequence[Account]) -> str:
    rows = []
    most = float(max(account.granted for account in accounts))
    for i, account in enumerate(accounts):
        spent, left = float(account.spent) / most, float(account.left) / most
        text = f"spent {_epsilon(account.spent)} of {_epsilon(account.granted)}, {_little(account.left)} left"
        bar = _bar([(spent, "kind-spent"), (left, "kind-left")], text)
        rows.append(f"<tr><th scope='row'>Holder {i + 1}</th><td>{bar}</td><td>{text}</td></tr>")
    return f"<table class='bars'><caption>Each holder's grant</caption><tbody>{''.join(rows)}</tbody></table>"


def _account(account: Account, names: str) -> str:
    """What the rows that paid the most paid at each depth, by kind; and every kind of release as a table."""
    kinds = sorted({line.what for line in account.lines})
    paid: dict[tuple[int, str], float] = {}
    for line in account.lines:
        key = line.depth, line.what
        paid[key] = paid.get(key, 0.0) + float(line.paid)
    depths = sorted({depth for (depth, _), epsilon in paid.items() if epsilon > 0})
    most = max((sum(paid.get((d, kind), 0.0) for kind in kinds) for d in depths), default=1.0)
    rows = []
    for depth in depths:
        here = [(kind, paid.get((depth, kind), 0.0)) for kind in kinds]
        text = ", ".join(f"{kind} {epsilon:.3g}" for kind, epsilon in here if epsilon > 0)
        bar = _bar([(epsilon / most, f"kind-{kinds.index(kind)}") for kind, epsilon in here], text)
        total = sum(epsilon for _, epsilon in here)
        rows.append(
            f"<tr><th scope='row'>Depth {depth}</th><td>{bar}</td><td>{total:.3g}</td></tr>",
        )
    legend = "".join(
        f"<li><svg class='key' aria-hidden='true'><rect width='100%' height='100%' class='kind-{i}'/></svg>"
        f"{escape(kind)} <b>{sum(paid.get((d, kind), 0.0) for d in depths):.3g}</b></li>"
        for i, kind in enumerate(kinds)
    )
    details = _table(
        ["Depth", "What", "How", "Releases", "Epsilon of each"],
        [
            [
                line.depth,
                line.what,
                line.mechanism,
                line.releases,
                _range(float(line.least), float(line.most)),
            ]
            for line in account.lines
        ],
    )
    return (
        f"<h3>{names}: what a row paid, depth by depth</h3>"
        "<p>A row takes part in one node of each depth, and pays for what was asked about those nodes only. "
        "Shown are the rows that paid the most; depth 1 is the root.</p>"
        f"<ul class='legend'>{legend}</ul><table class='bars'><tbody>{''.join(rows)}</tbody></table>"
        f"<details><summary>Every kind of release</summary>{details}</details>"
    )


def _alike(accounts: Sequence[Account]) -> list[tuple[Account, str]]:
    """The different accounts, each with the names of the holders who have it."""
    groups: list[tuple[Account, list[int]]] = []
    for number, account in enumerate(accounts, start=1):
        for known, numbers in groups:
            if known == account:
                numbers.append(number)
                break
        else:
            groups.append((account, [number]))
    if len(groups) == 1:
        return [(accounts[0], "The holder" if len(accounts) == 1 else "Every holder")]
    return [(account, f"Holder {', '.join(map(str, numbers))}") for account, numbers in groups]


def _plan(record: Record | None) -> str:
    body = "<p>The model's file has no plan.</p>" if record is None else _paragraphs(record.plan)
    return _section("plan", "The plan, and its reasons", body)


def _schema(tree: Tree) -> str:
    schema = tree.schema
    asked = np.bincount(
        [schema.splits[s].column for s in tree.split if s != LEAF], minlength=len(schema.columns)
    )
    rows = []
    for column, times in zip(schema.columns, asked.tolist(), strict=True):
        if isinstance(column, Numeric):
            cuts = len(column.cuts)
            kind, values = "number", f"{column.low:g} to {column.high:g}, {cuts} {_plural('threshold', cuts)}"
        else:
            kind, values = "category", _listed(column.categories)
        missing = "expected" if column.missing else "not expected"
        rows.append([column.name, kind, values, missing, f"{times:,}"])
    classes = f"<p>The label <b>{escape(schema.label)}</b> is one of: {escape(_listed(schema.classes))}.</p>"
    table = _table(["Column", "Kind", "Values", "Missing", "Splits by it"], rows)
    return _section("schema", "The schema", classes + table)


NOT_MEASURED = {"private", "tree", "leaks", "classes"}


def _evaluation(evaluation: Mapping[str, Any]) -> str:
    """Numbers as one table; then lists of mappings and the confusion matrix, each as a table of its own."""
    shown = {name: value for name, value in evaluation.items() if name not in NOT_MEASURED}
    tables = {name: value for name, value in shown.items() if _is_table(value)}
    single = [[name, _shown(value)] for name, value in shown.items() if name not in tables]
    body = _table(["Measure", "Value"], single) if single else ""
    for name, rows in tables.items():
        if isinstance(rows[0], Mapping):
            heads = list(rows[0])
            table = _table(
                list(map(str, heads)), [[_shown(row.get(head, "")) for head in heads] for row in rows]
            )
        else:
            classes = list(map(str, evaluation.get("classes", range(len(rows)))))
            cells = [[true, *map(_shown, row)] for true, row in zip(classes, rows, strict=False)]
            table = _table(["true, below; predicted, right", *classes], cells)
        body += f"<h3>{escape(str(name).capitalize())}</h3>{table}"
    note = "<p>Measured without noise, on rows that this epsilon does not cover: for the owner of those rows.</p>"
    return _section("evaluation", "Evaluation", note + body)


def _is_table(value: Any) -> bool:
    return isinstance(value, list) and bool(value) and all(isinstance(row, Mapping | list) for row in value)


def _shown(value: Any) -> str:
    if value is None:
        return "not defined"
    if isinstance(value, float | np.floating):
        return f"{value:.4g}"
    if isinstance(value, int | np.integer) and not isinstance(value, bool):
        return f"{value:,}"
    return str(value)


def _contents(evaluated: bool) -> str:
    names = {
        "tree": "Tree",
        "row": "Follow a row",
        "privacy": "Privacy",
        "spending": "Spending",
        "plan": "Plan",
    }
    names |= {"schema": "Schema"} | ({"evaluation": "Evaluation"} if evaluated else {})
    return "".join(f'<a href="#{name}">{text}</a>' for name, text in names.items())


# Pieces of HTML; every text that comes from outside is escaped here.


def _section(name: str, heading: str, body: str) -> str:
    return f'<section id="{name}" aria-labelledby="{name}-h"><h2 id="{name}-h">{heading}</h2>{body}</section>'


def _paragraphs(sentences: Iterable[str]) -> str:
    return "".join(f"<p>{escape(sentence)}</p>" for sentence in sentences)


def _list(sentences: Iterable[str]) -> str:
    return "<ul>" + "".join(f"<li>{escape(sentence)}</li>" for sentence in sentences) + "</ul>"


def _table(heads: Sequence[str], rows: Sequence[Sequence[Any]]) -> str:
    head = "".join(f"<th scope='col'>{escape(text)}</th>" for text in heads)
    body = "".join(
        "<tr>" + "".join(f"<td>{escape(str(cell))}</td>" for cell in row) + "</tr>" for row in rows
    )
    return f"<div class='scroll'><table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table></div>"


def _bar(parts: Iterable[tuple[float, str]], text: str) -> str:
    """Shares of a whole, side by side."""
    rects, x = [], 0.0
    for share, kind in parts:
        if share > 0:
            rects.append(
                f"<rect x='{100 * x:.4f}%' width='{100 * share:.4f}%' height='100%' class='{kind}'/>"
            )
        x += share
    return f"<svg class='bar' role='img' aria-label='{escape(text)}'>{''.join(rects)}</svg>"


def _listed(values: Sequence[Any]) -> str:
    shown = ", ".join(map(str, values[:SHOWN_CATEGORIES]))
    more = len(values) - SHOWN_CATEGORIES
    return f"{shown} and {more:,} more" if more > 0 else shown


def _range(low: float, high: float) -> str:
    return f"{low:.3g}" if f"{low:.3g}" == f"{high:.3g}" else f"{low:.3g} to {high:.3g}"


def _epsilon(epsilon: Any) -> str:
    return "∞" if math.isinf(epsilon) else f"{float(epsilon):.4g}"


def _little(epsilon: Any) -> str:
    return "less than 0.001" if 0 < epsilon < 0.001 else f"{float(epsilon):.2g}"


def _plural(word: str, number: int) -> str:
    return word if number == 1 else f"{word}s"


def _json(plain: Any) -> str:
    """JSON that cannot end the script element it stands in."""
    text = json.dumps(plain, ensure_ascii=True, allow_nan=False, separators=(",", ":"))
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")


def _digest(text: str) -> str:
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"


def _file(name: str) -> str:
    return resources.files(__package__).joinpath(name).read_text(encoding="utf-8")
