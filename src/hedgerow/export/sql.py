"""The tree as an SQL expression that gives every row the class, or a class's probability, that `predict` gives.

A test that is NULL sends a row to ELSE, that is right, as an unknown category goes. Both databases hold NaN to be
equal to itself and larger than every number, so NaN would go right of every threshold; where missing numbers go
left, the test says so. Text is compared byte by byte, whatever the column's collation.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from hedgerow.errors import InvalidParameter, InvalidSchema
from hedgerow.schema import Categorical, Schema, Value
from hedgerow.tree import LEAF, Tree


@dataclass(frozen=True)
class Dialect:
    """Where databases differ: the name of a double, how to ask for NaN, whether E'' must escape backslashes."""

    double: str
    is_nan: str
    escapes: bool

    def literal(self, value: Value) -> str:
        """A value of the schema, or a number."""
        match value:
            case bool():
                return str(value).upper()
            case int():
                return str(value)
            case float():
                # With an exponent it is read as a double; without, DuckDB would read a decimal and convert it.
                return repr(value) if "e" in repr(value) else f"{value!r}e0"
        text = quoted(value, "'")
        # Plain strings take backslashes as they are, unless an old setting of Postgres says otherwise.
        return "E" + text.replace("\\", "\\\\") if self.escapes and "\\" in text else text

    def number(self, name: str) -> str:
        """A column as double, which is what thresholds are."""
        return f"CAST({quoted(name, chr(34))} AS {self.double})"

    def type_of(self, value: Value) -> str:
        """The type of the expression's result."""
        return {bool: "boolean", int: "bigint", float: self.double, str: "text"}[type(value)]


DIALECTS = {
    "postgres": Dialect(double="double precision", is_nan="{} = 'NaN'", escapes=True),
    "duckdb": Dialect(double="double", is_nan="isnan({})", escapes=False),
}


def tree_to_sql(tree: Tree, dialect: str, *, probability_of: Any = None) -> str:
    """The predicted class of a row, or the probability of one class, as an expression over the schema's columns.

    Columns have the schema's kind: numbers, text (or an enumeration), integers, booleans.
    """
    if dialect not in DIALECTS:
        raise InvalidParameter(f"dialect={dialect!r}; choose one of {', '.join(map(repr, DIALECTS))}.")
    speech, schema = DIALECTS[dialect], tree.schema
    values: list[Value]
    if probability_of is None:
        values = [schema.classes[best] for best in tree.counts.argmax(axis=1).tolist()]
    else:
        # By type, too: Python holds 1 and True to be equal.
        known = [(type(c), c) for c in schema.classes]
        wanted = probability_of.item() if hasattr(probability_of, "item") else probability_of
        if (type(wanted), wanted) not in known:
            raise InvalidParameter(
                f"probability_of={wanted!r} is not among the classes {list(schema.classes)}; name one of them."
            )
        values = tree.probabilities[:, known.index((type(wanted), wanted))].tolist()
    return f"CAST(\n{_case(tree, speech, values)}\nAS {speech.type_of(values[0])})"


def quoted(text: str, mark: str) -> str:
    """A string or an identifier in quotes, its own quotes doubled."""
    if "\0" in text:
        raise InvalidSchema(
            f"{text!r} holds a NUL character, which SQL cannot write; rename it in the schema."
        )
    return mark + text.replace(mark, mark + mark) + mark


def _case(tree: Tree, dialect: Dialect, values: list[Value]) -> str:
    """One CASE a split, indented by depth. A stack, not recursion: trees may be deep."""
    lines: list[str] = []
    stack: list[int | str] = [0]
    while stack:
        item = stack.pop()
        if isinstance(item, str):
            lines.append(item)
            continue
        indent = "  " * int(tree.depths[item])
        if tree.split[item] == LEAF:
            lines.append(indent + dialect.literal(values[item]))
            continue
        test = _test(tree.schema, int(tree.split[item]), dialect)
        lines.append(f"{indent}CASE WHEN {test} THEN")
        stack += [f"{indent}END", int(tree.right[item]), f"{indent}ELSE", int(tree.left[item])]
    return "\n".join(lines)


def _test(schema: Schema, number: int, dialect: Dialect) -> str:
    """What is true of the rows that go left, and false or NULL of all others."""
    split = schema.splits[number]
    column = schema.columns[split.column]
    name = quoted(column.name, '"')
    if isinstance(column, Categorical):
        is_text = isinstance(column.categories[0], str)
        if split.first < column.other_bin:
            category = dialect.literal(column.categories[split.first])
            return f'CAST({name} AS text) COLLATE "C" = {category}' if is_text else f"{name} = {category}"
        if type(column.categories[0]) is not int:
            return f"{name} IS NULL"
        return f"({name} IS NULL OR {dialect.is_nan.format(dialect.number(column.name))})"
    number_ = dialect.number(column.name)
    test = f"{number_} <= {dialect.literal(float(column.cuts[split.last]))}"
    if column.missing and split.also != column.missing_bin:
        return test
    return f"({test} OR {name} IS NULL OR {dialect.is_nan.format(number_)})"
