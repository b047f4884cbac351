"""Schemas of every kind, a random tree for each, and rows that try its edges. No training: any tree will do."""

from __future__ import annotations

import json
import tempfile

import numpy as np
import polars as pl

from hedgerow import Categorical, Numeric, PrivateTreeClassifier, Schema
from hedgerow.schema import Column
from hedgerow.tree import LEAF, Tree

N_ROWS = 100_000
AWKWARD = ["", "it's", 'say "no"', "back\\slash", "x'); DROP TABLE t; --", "größer 🦔", "NaN", "None", "a b"]
BIG = [2**53 + 1, -(2**63), 2**63 - 1, 0, -1]


def numbers(missing: bool) -> list[Column]:
    return [
        Numeric("evenly", -1.5, 7.3, 10, missing=missing),
        Numeric("listed", 0, 1, [0, 0.1, 0.3, 1 / 3, 0.7], missing=missing),
        Numeric("many", 0, 1, 1_000, missing=missing),
        Numeric("huge", -1e300, 1e300, 3, missing=missing),
        Numeric("tiny", 0, 1e-300, [0, 5e-324, 1e-310], missing=missing),
    ]


def texts(missing: bool) -> list[Column]:
    return [
        Categorical("sex", ["Female", "Male"], missing=missing),
        Categorical("awk\"ward's 列", AWKWARD, missing=missing),
        Categorical("label", [f"k{i}" for i in range(300)], missing=missing),
    ]


def integers(missing: bool) -> list[Column]:
    return [
        Categorical("code", [7, 3, 5], missing=missing),
        Categorical("big", BIG, missing=missing),
        Categorical("flag", [True, False], missing=missing),
        Categorical("always", [True], missing=missing),
    ]


KINDS = {
    "numbers": Schema(numbers(False), label="y", classes=["no", "yes"]),
    "numbers, missing": Schema(numbers(True), label="y", classes=[3, 1, 2]),
    "text": Schema(texts(False), label="y", classes=["it's", 'a "b"', "c\\d", "🦔"]),
    "text, missing": Schema(texts(True), label="y", classes=[True, False]),
    "integers": Schema(integers(False), label="y", classes=[-(2**63), 2**63 - 1]),
    "integers, missing": Schema(integers(True), label="y", classes=[0.1, 1 / 3, 1e-300]),
    "mixed": Schema(
        [*numbers(True)[:2], *texts(False)[:2], *integers(True)[:1]], label="y", classes=["a", "b", "c"]
    ),
    "one class": Schema(numbers(False)[:1], label="y", classes=["only"]),
}


def random_model(schema: Schema, n_splits: int, seed: int = 1) -> PrivateTreeClassifier:
    """A model whose tree asks random questions that divide the rows; counts have ties and empty leaves."""
    rng = np.random.default_rng(seed)
    questions = [
        [i for i, s in enumerate(schema.splits) if s.column == c] for c in range(len(schema.columns))
    ]
    bins = {0: [np.ones(n, dtype=bool) for n in schema.n_bins]}  # which bins a node's rows can have
    children: dict[int, tuple[int, int, int]] = {}
    for _ in range(20 * n_splits):
        node = int(rng.choice([*bins]))
        column = int(rng.integers(len(questions)))
        question = int(rng.choice(questions[column]))
        split, numbers = schema.splits[question], np.arange(schema.n_bins[column])
        goes_left = ((split.first <= numbers) & (numbers <= split.last)) | (numbers == split.also)
        here = bins[node]
        if (
            len(children) == n_splits
            or not (here[column] & goes_left).any()
            or (here[column] <= goes_left).all()
        ):
            continue
        left, right = 2 * len(children) + 1, 2 * len(children) + 2
        children[node] = (question, left, right)
        bins[left] = [b & goes_left if c == column else b for c, b in enumerate(here)]
        bins[right] = [b & ~goes_left if c == column else b for c, b in enumerate(here)]
        del bins[node]
    order, stack = [], [0]
    while stack:
        order.append(stack.pop())
        if order[-1] in children:
            _, left, right = children[order[-1]]
            stack += [right, left]
    place = {node: i for i, node in enumerate(order)} | {LEAF: LEAF}
    links = [children.get(node, (LEAF, LEAF, LEAF)) for node in order]
    split, left, right = (np.array(part, dtype=np.int32) for part in zip(*links, strict=True))
    left, right = (np.array([place[i] for i in side.tolist()], dtype=np.int32) for side in (left, right))
    counts = rng.integers(0, 4, (len(order), schema.n_classes)).astype(float)
    counts[rng.random(len(order)) < 0.5] += rng.random(schema.n_classes)
    return model_of(Tree(schema, split, left, right, counts))


def model_of(tree: Tree) -> PrivateTreeClassifier:
    with tempfile.NamedTemporaryFile("w", suffix=".json", encoding="utf-8") as file:
        json.dump(tree.to_dict(), file)
        file.flush()
        return PrivateTreeClassifier.load(file.name)


def random_rows(schema: Schema, n_rows: int = N_ROWS, seed: int = 2, float32: bool = False) -> pl.DataFrame:
    """Known, unknown and missing values, infinities, thresholds and the numbers next to them."""
    rng = np.random.default_rng(seed)
    series = [
        _numbers(rng, column, n_rows, float32)
        if isinstance(column, Numeric)
        else _categories(rng, column, n_rows)
        for column in schema.columns
    ]
    return pl.DataFrame(series)


def _numbers(rng: np.random.Generator, column: Numeric, n_rows: int, float32: bool) -> pl.Series:
    kind = np.float32 if float32 else np.float64
    with np.errstate(over="ignore"):
        cuts = column.cuts.astype(kind)
        edges = [cuts, np.nextafter(cuts, kind(np.inf)), np.nextafter(cuts, kind(-np.inf))]
        special = np.array([np.inf, -np.inf, np.nan, 0.0, -0.0, 5e-324, 1e308, column.low, column.high], kind)
        drawn = rng.uniform(column.low, column.high, n_rows).astype(kind)
    for values, share in ((np.concatenate(edges), 0.4), (special, 0.2)):
        chosen = rng.random(n_rows) < share
        drawn[chosen] = rng.choice(values, int(chosen.sum()))
    gone = rng.random(n_rows) < 0.1
    return pl.select(pl.when(~pl.Series(gone)).then(pl.Series(drawn)).alias(column.name)).to_series()


def _categories(rng: np.random.Generator, column: Categorical, n_rows: int) -> pl.Series:
    known = list(column.categories)
    strangers = {str: ["unknown", "female", "Male ", "it''s"], int: [1, 2**53, 8, -7], bool: [True, False]}
    values = [*known, *strangers[type(known[0])], None]
    dtype = {str: pl.String, int: pl.Int64, bool: pl.Boolean}[type(known[0])]
    return pl.Series(column.name, values, dtype=dtype).gather(rng.integers(0, len(values), n_rows))
