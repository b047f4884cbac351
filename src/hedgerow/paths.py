"""What the way to a node has decided already, and which splits can still divide it. Public, like the tree's shape.

Holders choose among these splits, and the coordinator counts on it; both ask here.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from hedgerow.compiled import compiled
from hedgerow.repeated import IntArray
from hedgerow.schema import Schema

NONE = -1


@dataclass(frozen=True, eq=False)
class Paths:
    """The ways from the root to all nodes: `parent` [node], and `split` [node], by which a node was divided.

    The root is node 0; the children of a node are an odd number, the left one, and the next. A bin is
    reachable at a node if its rows may get there. A split is undecided at a node if both of its sides have
    reachable bins: any other would divide it into all of its rows and none, whatever they are.

    Examples:
        >>> from hedgerow.schema import Numeric
        >>> schema = Schema([Numeric("age", 0, 90, [15, 30, 60])], label="ill", classes=[0, 1])
        >>> older_than_30 = Paths.root(schema).grown(np.array([0]), np.array([1]))
        >>> older_than_30.undecided(np.array([0, 1, 2])).tolist()
        [[True, True, True], [True, False, False], [False, False, True]]
    """

    schema: Schema
    parent: IntArray
    split: IntArray

    @classmethod
    def root(cls, schema: Schema) -> Paths:
        """A tree of one node."""
        return cls(schema, np.array([NONE]), np.array([NONE]))

    def grown(self, nodes: IntArray, splits: IntArray) -> Paths:
        """The tree in which these nodes are divided too; their children get the next numbers."""
        split = np.concatenate([self.split, np.full(2 * len(nodes), NONE)])
        split[nodes] = splits
        return Paths(self.schema, np.concatenate([self.parent, np.repeat(nodes, 2)]), split)

    def undecided(self, nodes: IntArray) -> NDArray[np.bool_]:
        """Which splits are undecided at each node: [node, split]."""
        schema = self.schema
        found = np.ones((len(nodes), len(schema.splits)), dtype=np.bool_)
        _rule_out(
            nodes, self.parent, self.split, schema.split_table, schema.split_range, schema.bin_start, found
        )
        return found

    def undecided_below(self, nodes: IntArray) -> NDArray[np.bool_]:
        """Which splits would be undecided on each side of each split of a node: [node, side, split, split and none].

        The last one stands for none: it is there where no split is undecided.

        Examples:
            >>> from hedgerow.schema import Numeric
            >>> schema = Schema([Numeric("age", 0, 90, [15, 30, 60])], label="ill", classes=[0, 1])
            >>> left, right = Paths.root(schema).undecided_below(np.array([0]))[0]
            >>> left[1].tolist(), right[2].tolist()
            ([True, False, False, False], [False, False, False, True])
        """
        schema, n_splits = self.schema, len(self.schema.splits)
        found = np.empty((len(nodes), 2, n_splits, n_splits + 1), dtype=np.bool_)
        _rule_out_below(
            nodes, self.parent, self.split, schema.split_table, schema.split_range, schema.bin_start,
            self.undecided(nodes), found,
        )  # fmt: skip
        return found

    def are_undecided(self, nodes: IntArray, splits: IntArray) -> NDArray[np.bool_]:
        """Whether one split of each node is undecided: [node]."""
        found: NDArray[np.bool_] = _are_undecided(
            nodes, splits, self.parent, self.split, self.schema.split_table, self.schema.bin_start
        )
        return found

    def divisible(self, nodes: IntArray) -> NDArray[np.bool_]:
        """Whether a node has any undecided split: [node]."""
        found: NDArray[np.bool_] = _divisible(
            nodes, self.parent, self.split, self.schema.split_table, self.schema.bin_start
        )
        return found


@compiled
def _rule_out(nodes, parent, split, rules, split_range, bin_start, undecided):  # type: ignore[no-untyped-def]
    """Clear in `undecided` [node, split] what is decided; only splits of columns on the path can be."""
    reachable = np.empty(bin_start[-1], dtype=np.bool_)
    on_path = np.empty(len(split_range), dtype=np.bool_)
    before = np.zeros(len(reachable) + 1, dtype=np.int32)
    for i in range(len(nodes)):
        _reach(nodes[i], parent, split, rules, bin_start, reachable, on_path)
        for column in range(len(on_path)):
            if on_path[column]:
                bins = reachable[bin_start[column] : bin_start[column + 1]]
                _rule_out_of(bins, rules, split_range[column], before, undecided[i])


@compiled
def _rule_out_below(  # type: ignore[no-untyped-def]
    nodes, parent, split, rules, split_range, bin_start, undecided, found
):
    """What is decided on a side of a split is what was before, and what the split itself decides."""
    reachable = np.empty(bin_start[-1], dtype=np.bool_)
    on_path = np.empty(len(split_range), dtype=np.bool_)
    before = np.zeros(len(reachable) + 1, dtype=np.int32)
    for i in range(len(nodes)):
        _reach(nodes[i], parent, split, rules, bin_start, reachable, on_path)
        for side in range(2):
            for s in range(len(rules)):
                column = rules[s, 0]
                bins = reachable[bin_start[column] : bin_start[column + 1]].copy()
                _narrow(bins, rules[s], side == 0)
                left = found[i, side, s]
                left[: len(rules)] = undecided[i]
                _rule_out_of(bins, rules, split_range[column], before, left)
                left[len(rules)] = not left[: len(rules)].any()


@compiled
def _rule_out_of(bins, rules, splits, before, undecided):  # type: ignore[no-untyped-def]
    """Say which splits of a column are undecided [split] where these of its bins are reachable; `before` is scratch."""
    total = 0
    for b in range(len(bins)):
        total += bins[b]
        before[b + 1] = total
    for s in range(splits[0], splits[1]):
        first, last, also = rules[s, 1], rules[s, 2], rules[s, 3]
        left = before[last + 1] - before[first]
        if also >= 0:
            left += bins[also]
        undecided[s] = (left > 0) & (left < total)


@compiled
def _are_undecided(nodes, splits, parent, split, rules, bin_start):  # type: ignore[no-untyped-def]
    found = np.empty(len(nodes), dtype=np.bool_)
    reachable = np.empty(bin_start[-1], dtype=np.bool_)
    for i in range(len(nodes)):
        column, first, last, also = rules[splits[i]]
        bins = reachable[bin_start[column] : bin_start[column + 1]]
        bins[:] = True
        node = nodes[i]
        while node > 0:
            rule = split[parent[node]]
            if rules[rule, 0] == column:
                _narrow(bins, rules[rule], node % 2 == 1)
            node = parent[node]
        left = bins[first : last + 1].sum()
        if also >= 0:
            left += bins[also]
        found[i] = (left > 0) & (left < bins.sum())
    return found


@compiled
def _divisible(nodes, parent, split, rules, bin_start):  # type: ignore[no-untyped-def]
    """Whether two bins of a column are reachable: any two are told apart by a split of the column."""
    found = np.zeros(len(nodes), dtype=np.bool_)
    reachable = np.empty(bin_start[-1], dtype=np.bool_)
    on_path = np.empty(len(bin_start) - 1, dtype=np.bool_)
    for i in range(len(nodes)):
        node, length = nodes[i], 0
        while node > 0 and length < len(on_path):
            node, length = parent[node], length + 1
        if length < len(on_path):  # some column is not on the path
            found[i] = True
            continue
        _reach(nodes[i], parent, split, rules, bin_start, reachable, on_path)
        for column in range(len(on_path)):
            if reachable[bin_start[column] : bin_start[column + 1]].sum() > 1:
                found[i] = True
                break
    return found


@compiled
def _reach(node, parent, split, rules, bin_start, reachable, on_path):  # type: ignore[no-untyped-def]
    """Which bins of all columns are reachable at a node, and which columns its path asks about."""
    reachable[:] = True
    on_path[:] = False
    while node > 0:
        rule = rules[split[parent[node]]]
        on_path[rule[0]] = True
        _narrow(reachable[bin_start[rule[0]] : bin_start[rule[0] + 1]], rule, node % 2 == 1)
        node = parent[node]


@compiled
def _narrow(bins, rule, goes_left):  # type: ignore[no-untyped-def]
    """Keep the bins of a column that are reachable on one side of a split of it."""
    first, last, also = rule[1], rule[2], rule[3]
    with_missing = also >= 0 and bins[also]
    if goes_left:
        bins[:first] = False
        bins[last + 1 :] = False
    else:
        bins[first : last + 1] = False
    if with_missing:
        bins[also] = goes_left
