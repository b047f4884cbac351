"""The tree as an ONNX graph that routes every row exactly as `Tree.apply` does.

Numbers are compared as doubles with the schema's own thresholds; categories are looked up and compared as bin
numbers. The tree operator answers with a leaf's number only, since its scores are single precision: class and
probabilities are then rows of two tables. Operators of 2021 only, so that old runtimes run it too.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from hedgerow.errors import MissingPackage
from hedgerow.schema import Categorical, Column, Numeric, Schema, Value
from hedgerow.tree import LEAF, Tree

if TYPE_CHECKING:
    import onnx

ML = "ai.onnx.ml"
OPSETS = {"": 15, ML: 3}
IR_VERSION = 8
FLOAT, INT64, STRING, DOUBLE = 1, 7, 8, 11  # onnx.TensorProto, which is there only if onnx is
LEAF_TEST = (0, "LEAF", 0.0, 0)


def tree_to_onnx(tree: Tree, *, float32: bool = False) -> onnx.ModelProto:
    """One input [row, 1] a column, named as in the schema; outputs the class and the class probabilities.

    Numeric columns are inputs of float64, or float32 if asked; a missing number is NaN. Columns of text are
    inputs of strings, those of integers or booleans of int64; `missing_value` says how to write a missing one,
    and so does the description of each input.
    """
    try:
        from onnx import checker, helper, numpy_helper
    except ImportError as error:
        raise MissingPackage("to_onnx needs the package onnx: pip install 'hedgerow[onnx]'.") from error

    schema, graph = tree.schema, _Graph(tree.schema)
    row = graph.add("Concat", *(_feature(graph, column) for column in schema.columns), axis=1)
    score = graph.add("TreeEnsembleRegressor", row, domain=ML, **_tree_attributes(tree))
    leaf = graph.add("Cast", graph.add("Reshape", score, graph.table("flat", np.array([-1]))), to=INT64)
    best = np.array(schema.classes, dtype=_dtype(schema.classes[0]))[tree.counts.argmax(axis=1)]
    label = graph.add("Gather", graph.table("classes", best), leaf, name="label")
    shares = graph.add(
        "Gather", graph.table("shares", tree.probabilities[:, schema.class_order]), leaf, name="probabilities"
    )

    classes = ", ".join(str(schema.classes[i]) for i in schema.class_order)

    value_info = helper.make_tensor_value_info
    model = helper.make_model(
        helper.make_graph(
            graph.nodes,
            "hedgerow",
            [value_info(c.name, _input_type(c, float32), [None, 1], _how_to_fill(c)) for c in schema.columns],
            [
                value_info(label, helper.np_dtype_to_tensor_dtype(best.dtype), [None]),
                value_info(shares, DOUBLE, [None, schema.n_classes]),
            ],
            [numpy_helper.from_array(array, name) for name, array in graph.tables.items()],
            doc_string=f"{schema.label} by a decision tree; probabilities of {classes}.",
        ),
        opset_imports=[helper.make_opsetid(domain, version) for domain, version in OPSETS.items()],
        ir_version=IR_VERSION,
        producer_name="hedgerow",
    )
    helper.set_model_props(model, {"schema_hash": schema.hash})
    checker.check_model(model)
    return model


def missing_value(column: Categorical) -> str | int:
    """What stands for a missing category, for ONNX has no null: "" or the smallest integer, if they are free."""
    if isinstance(column.categories[0], str):
        text = ""
        while text in column.categories:
            text += "?"
        return text
    number = -(2**63)
    while number in column.categories:
        number += 1
    return number


class _Graph:
    """Operators and constant tables, under names that no column has."""

    def __init__(self, schema: Schema) -> None:
        self.nodes: list[onnx.NodeProto] = []
        self.tables: dict[str, NDArray[Any]] = {}
        self._taken = {*schema.names}

    def add(self, operator: str, *inputs: str, name: str = "", **attributes: Any) -> str:
        """The name of the operator's output."""
        from onnx import helper

        output = self._free(name or operator.lower())
        self.nodes.append(helper.make_node(operator, inputs, [output], **attributes))
        return output

    def table(self, name: str, array: NDArray[Any]) -> str:
        """The name of the table."""
        name = self._free(name)
        self.tables[name] = array
        return name

    def _free(self, name: str) -> str:
        while name in self._taken:
            name += "_"
        self._taken.add(name)
        return name


def _feature(graph: _Graph, column: Column) -> str:
    """A column as doubles: the numbers themselves, or the bins of categories."""
    value = column.name
    if isinstance(column, Categorical):
        value = graph.add("LabelEncoder", value, domain=ML, **_bins_by_value(column))
    return graph.add("Cast", value, to=DOUBLE)


def _input_type(column: Column, float32: bool) -> int:
    if isinstance(column, Numeric):
        return FLOAT if float32 else DOUBLE
    return STRING if isinstance(column.categories[0], str) else INT64


def _dtype(value: Value) -> type:
    return object if isinstance(value, str) else type(value)


def _how_to_fill(column: Column) -> str:
    missing = "NaN" if isinstance(column, Numeric) else repr(missing_value(column))
    return f"{missing} where the value is missing"


def _bins_by_value(column: Categorical) -> dict[str, Any]:
    """The bin of every category; all else, missing values included, are `other` unless they have their bin."""
    bins: dict[Any, float] = {category: float(i) for i, category in enumerate(column.categories)}
    if column.missing:
        bins[missing_value(column)] = float(column.missing_bin)
    values = {"values_floats": [*bins.values()], "default_float": float(column.other_bin)}
    if isinstance(column.categories[0], str):
        return values | {"keys_strings": [*bins]}
    return values | {"keys_int64s": [int(category) for category in bins]}


def _tree_attributes(tree: Tree) -> dict[str, Any]:
    """The attributes of a TreeEnsembleRegressor whose answer is the number of the leaf."""
    from onnx.numpy_helper import from_array

    assert tree.n_nodes <= 2**24, "the answer is a float32"
    numbers = np.arange(tree.n_nodes)
    leaves = numbers[tree.split == LEAF]
    tests = [LEAF_TEST if split == LEAF else _test(tree.schema, split) for split in tree.split.tolist()]
    columns, modes, values, nan_goes_left = map(list, zip(*tests, strict=True))
    return {
        "n_targets": 1,
        "nodes_treeids": [0] * tree.n_nodes,
        "nodes_nodeids": numbers.tolist(),
        "nodes_featureids": columns,
        "nodes_modes": modes,
        "nodes_values_as_tensor": from_array(np.array(values, dtype=np.float64)),
        "nodes_missing_value_tracks_true": nan_goes_left,
        "nodes_truenodeids": np.maximum(tree.left, 0).tolist(),
        "nodes_falsenodeids": np.maximum(tree.right, 0).tolist(),
        "target_treeids": [0] * len(leaves),
        "target_nodeids": leaves.tolist(),
        "target_ids": [0] * len(leaves),
        "target_weights_as_tensor": from_array(leaves.astype(np.float64)),
    }


def _test(schema: Schema, number: int) -> tuple[int, str, float, int]:
    """(column, mode, value, whether NaN goes left) of a split; bins of categories are never NaN."""
    split = schema.splits[number]
    column = schema.columns[split.column]
    if isinstance(column, Categorical):
        return split.column, "BRANCH_EQ", float(split.first), 0
    # A missing number is in the first bin, left of every threshold, unless it has a bin of its own.
    nan_goes_left = not column.missing or split.also == column.missing_bin
    return split.column, "BRANCH_LEQ", float(column.cuts[split.last]), int(nan_goes_left)
