"""The model: a tree of public splits with class counts, how it predicts, and its file format.

Nothing is built from a file before all of it has been checked. Imports `schema` and `encoding`.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hedgerow.compiled import compiled
from hedgerow.encoding import Codes, column_places
from hedgerow.errors import InvalidModel, InvalidSchema, InvalidType
from hedgerow.schema import Schema
from hedgerow.threads import even_parts, run_all

FORMAT = "hedgerow-tree"
FORMAT_VERSION = 1
LEAF = -1
MAX_COUNT = 1e18  # more rows than there can be; sums of such counts stay far from overflow


@dataclass(frozen=True, eq=False)
class Tree:
    """Nodes in depth-first order, the root first; a leaf has split, left and right -1.

    `counts` [node, class] are the estimated class counts of the training rows at each node, `noise` [node] the
    standard deviation that privacy leaves in each of them, if it is known. Trees that predict alike are equal.
    """

    schema: Schema
    split: NDArray[np.int32]
    left: NDArray[np.int32]
    right: NDArray[np.int32]
    counts: NDArray[np.float64]
    noise: NDArray[np.float64] | None = None

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Tree):
            return NotImplemented
        mine, others = (
            (t.schema.hash, t.split.tolist(), t.left.tolist(), t.right.tolist(), t.counts.tolist())
            for t in (self, other)
        )
        return mine == others

    __hash__ = None  # type: ignore[assignment]  # holds arrays

    @property
    def n_nodes(self) -> int:
        """Inner nodes and leaves."""
        return len(self.split)

    @property
    def n_splits(self) -> int:
        """Inner nodes."""
        return int((self.split != LEAF).sum())

    @property
    def n_leaves(self) -> int:
        """Leaves."""
        return int((self.split == LEAF).sum())

    @cached_property
    def depths(self) -> NDArray[np.int64]:
        """How many splits lead to each node."""
        out = np.zeros(self.n_nodes, dtype=np.int64)
        for node in np.flatnonzero(self.split != LEAF).tolist():
            out[self.left[node]] = out[self.right[node]] = out[node] + 1
        return out

    @property
    def depth(self) -> int:
        """The most splits on any path."""
        return int(self.depths.max())

    @cached_property
    def probabilities(self) -> NDArray[np.float64]:
        """Class probabilities of each node, [node, class]; uniform where nothing is known."""
        totals = self.counts.sum(axis=1, keepdims=True)
        uniform = np.full_like(self.counts, 1 / self.schema.n_classes)
        out: NDArray[np.float64] = np.divide(self.counts, totals, out=uniform, where=totals > 0)
        return out

    def apply(self, codes: Codes) -> NDArray[np.int32]:
        """The leaf that each row reaches."""
        if not isinstance(codes, Codes):
            raise InvalidType(
                "a tree reads rows that are encoded: give encode(table, tree.schema), or the table to the model's own "
                "apply, predict or predict_proba."
            )
        out = np.empty(codes.n_rows, dtype=np.int32)
        rules, depth = self._rules, self.depth
        run_all(
            lambda part: _route(codes.narrow, codes.wide, *part, rules, depth, out),
            even_parts(codes.n_rows, at_least=4_096),
        )
        return out

    @cached_property
    def _rules(self) -> NDArray[np.int32]:
        """What compiled code needs of each node: [node, (is wide, position, first, last, also, left, right)].

        A leaf asks about the root's column, and leads to itself either way.
        """
        is_leaf, itself = self.split == LEAF, np.arange(self.n_nodes)
        table = self.schema.split_table[np.where(is_leaf, max(int(self.split[0]), 0), self.split)]
        places = column_places(self.schema)[table[:, 0]]
        left, right = np.where(is_leaf, itself, self.left), np.where(is_leaf, itself, self.right)
        return np.column_stack([places, table[:, 1:], left, right]).astype(np.int32)

    def export_text(self) -> str:
        """The tree for people to read; a row that passes a node's test goes to the first branch."""
        lines: list[str] = []
        stack = [(0, "", "")]
        while stack:
            node, indent, test = stack.pop()
            lead = f"{indent}|--- {test}" if test else ""
            if self.split[node] == LEAF:
                best = int(self.counts[node].argmax())
                share = self.probabilities[node, best]
                lines.append(f"{lead}{': ' if lead else ''}{self.schema.classes[best]} ({share:.1%})")
                continue
            if lead:
                lines.append(lead)
            deeper = f"{indent}|   " if test else indent
            question = str(self.schema.splits[self.split[node]])
            stack.append((int(self.right[node]), deeper, f"not ({question})"))
            stack.append((int(self.left[node]), deeper, question))
        return "\n".join(lines)

    def to_dict(self) -> dict[str, Any]:
        """Plain values for JSON. The tests in words are for readers; loading ignores them."""
        nodes = []
        for split, left, right, counts in zip(
            self.split.tolist(), self.left.tolist(), self.right.tolist(), self.counts.tolist(), strict=True
        ):
            node: dict[str, Any] = {"counts": counts}
            if split != LEAF:
                node |= {"split": split, "test": str(self.schema.splits[split]), "left": left, "right": right}
            nodes.append(node)
        for node, noise in zip(nodes, [] if self.noise is None else self.noise.tolist(), strict=False):
            node["noise"] = noise
        return {
            "format": FORMAT,
            "version": FORMAT_VERSION,
            "schema_hash": self.schema.hash,
            "schema": self.schema.to_dict(),
            "nodes": nodes,
        }

    @property
    def hash(self) -> str:
        """Of all that its file says of the tree, its noise too."""
        return hashlib.sha256(json.dumps(self.to_dict(), sort_keys=True).encode()).hexdigest()

    @classmethod
    def from_dict(cls, plain: Mapping[str, Any]) -> Tree:
        """The inverse of `to_dict`; raises `InvalidModel` with the reason, before anything is built."""
        if not isinstance(plain, Mapping) or plain.get("format") != FORMAT:
            raise InvalidModel(f"this is not a {FORMAT} file.")
        version = plain.get("version")
        if type(version) is not int or version != FORMAT_VERSION:
            newer = type(version) is int and version > FORMAT_VERSION
            advice = " A newer Hedgerow wrote it: pip install --upgrade hedgerow." if newer else ""
            raise InvalidModel(
                f"the model has format version {version!r}; this Hedgerow reads {FORMAT_VERSION}.{advice}"
            )
        try:
            schema = Schema.from_dict(plain.get("schema", {}))
        except InvalidSchema as error:
            raise InvalidModel(f"the model's schema is invalid: {error}") from error
        if plain.get("schema_hash") != schema.hash:
            raise InvalidModel("the model's schema hash is not that of its schema; the file was changed.")
        nodes = plain.get("nodes")
        if not isinstance(nodes, list) or not nodes:
            raise InvalidModel("the model has no list of nodes.")
        checked = [_checked_node(i, node, len(nodes), schema) for i, node in enumerate(nodes)]
        _check_depth_first(checked)
        split, left, right = (np.array([n[j] for n in checked], dtype=np.int32) for j in range(3))
        counts = np.array([n[3] for n in checked], dtype=np.float64)
        return cls(schema, split, left, right, counts, _checked_noise(nodes))


def parse_json(text: str) -> Any:
    """JSON without the extensions NaN and Infinity, which no model contains."""

    def refuse(constant: str) -> float:
        raise InvalidModel(f"the model contains {constant}; it is damaged.")

    try:
        return json.loads(text, parse_constant=refuse)
    except InvalidModel:
        raise
    except (ValueError, RecursionError) as error:  # ValueError: also an integer of thousands of digits
        raise InvalidModel(f"the model is not JSON: {error}.") from error


def _checked_node(index: int, node: Any, n_nodes: int, schema: Schema) -> tuple[int, int, int, list[float]]:
    """(split, left, right, counts) of one node, each of the right type and in range."""
    if not isinstance(node, Mapping):
        raise InvalidModel(f"node {index} is not a table.")
    counts = node.get("counts")
    if (
        not isinstance(counts, list)
        or len(counts) != schema.n_classes
        or not all(isinstance(c, int | float) and not isinstance(c, bool) for c in counts)
        or not all(0 <= c <= MAX_COUNT for c in counts)
    ):
        raise InvalidModel(
            f"node {index}: counts must be {schema.n_classes} numbers from 0 to {MAX_COUNT:g}."
        )
    links = [node.get(key) for key in ("split", "left", "right")]
    if links == [None, None, None]:
        return LEAF, LEAF, LEAF, counts
    limits = (len(schema.splits), n_nodes, n_nodes)
    for key, value, limit in zip(("split", "left", "right"), links, limits, strict=True):
        if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value < limit:
            raise InvalidModel(f"node {index}: {key}={value!r} is out of range.")
    split, left, right = (int(v) for v in links if v is not None)
    return split, left, right, counts


def _checked_noise(nodes: list[Mapping[str, Any]]) -> NDArray[np.float64] | None:
    """The noise of every node, or of none."""
    noise = [node.get("noise") for node in nodes]
    if all(n is None for n in noise):
        return None
    for index, n in enumerate(noise):
        if not isinstance(n, int | float) or isinstance(n, bool) or not 0 <= n <= MAX_COUNT:
            raise InvalidModel(f"node {index}: noise={n!r}; it must be a number from 0 to {MAX_COUNT:g}.")
    return np.array(noise, dtype=np.float64)


def _check_depth_first(nodes: list[tuple[int, int, int, list[float]]]) -> None:
    """Every node is reached once, in depth-first order: that rules out cycles, shared and stray nodes."""
    stack, reached = [0], 0
    while stack:
        node = stack.pop()
        if node != reached:
            raise InvalidModel(f"node {node} is reached out of depth-first order; the file is damaged.")
        reached += 1
        split, left, right, _ = nodes[node]
        if split != LEAF:
            stack += [right, left]
    if reached != len(nodes):
        raise InvalidModel(f"only {reached} of {len(nodes)} nodes can be reached; the file is damaged.")


@compiled
def _route(narrow, wide, start, stop, rules, depth, out):  # type: ignore[no-untyped-def]
    """Follow rows to their leaves, sixteen at a time and level by level: their steps do not wait for each other.

    Which way a row goes is an index, not a branch, for nobody could predict it; a leaf leads to itself, and when
    all sixteen have arrived they are done.
    """
    at = np.empty(16, dtype=np.int64)
    for block in range(start, stop, 16):
        n = min(16, stop - block)
        at[:] = 0
        for _ in range(depth):
            moved = 0
            for k in range(n):
                node = at[k]
                position = rules[node, 1]
                row = block + k
                code = np.int64(wide[row, position]) if rules[node, 0] else np.int64(narrow[row, position])
                width = np.uint64(rules[node, 3] - rules[node, 2])
                goes_left = (np.uint64(code - rules[node, 2]) <= width) | (code == rules[node, 4])
                at[k] = rules[node, 6 - np.int64(goes_left)]
                moved |= at[k] ^ node
            if not moved:
                break
        for k in range(n):
            out[block + k] = at[k]
