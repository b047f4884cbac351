"""What a coordinator may ask of a data holder, what comes back, and how both look on a wire.

Values only, no behaviour. Nodes are numbered as they are made; the root is 0. Every query says what it
costs at each of its nodes: `epsilons`, exact rationals, or infinity for the non-private baseline. Bytes are
msgpack; the parser accepts what `to_bytes` writes and refuses everything else with a reason.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache
from itertools import count
from typing import Any, TypeVar

import msgpack
import numpy as np

from hedgerow.criteria import Criterion
from hedgerow.errors import InvalidMessage
from hedgerow.repeated import Epsilon, IntArray, Repeated

T = TypeVar("T")

ROOT = 0
VERSION = 5
MOST_NODES = 2**20  # of one message
MOST_FORKS = 2**12  # of one query: each may take a holder some 30 ms
MOST_PARTS = 32  # maps and lists: each takes many times the memory of its bytes
MOST_BYTES = 2**28
MOST_NUMBER = 2**53
NO_EPSILON = 'an epsilon is a positive fraction such as "3/40", or "inf".'
MOST_DIGITS = 1000  # of an epsilon; a price has some 13 more than the epsilon that it is a share of


@dataclass(frozen=True, eq=False)
class Grow:
    """An announcement: `nodes` are split by `splits`, one after another. Costs nothing.

    Their children get the next numbers, each left one before its right one, of which `first` is the first: so a
    holder and a coordinator who have not heard the same notice it. A node may be a child of one that is named earlier.
    """

    nodes: IntArray
    splits: IntArray
    first: int

    def generations(self) -> Iterator[slice]:
        """Consecutive parts, of which none splits a child of its own."""
        start = 0
        while start < len(self.nodes):
            born = np.flatnonzero(self.nodes[start:] >= self.first + 2 * start)
            stop = start + max(int(born[0]), 1) if len(born) else len(self.nodes)
            yield slice(start, stop)
            start = stop


@dataclass(frozen=True, eq=False)
class CountRows:
    """How many rows are at a node? Answer: [node, 1]."""

    nodes: IntArray
    epsilons: Sequence[Epsilon]


@dataclass(frozen=True, eq=False)
class CountLabels:
    """How many rows of each class are at a node? Answer: [node, class]."""

    nodes: IntArray
    epsilons: Sequence[Epsilon]


@dataclass(frozen=True, eq=False)
class Nominate:
    """Which candidate split is (nearly) the best at each node? Answer: its index, [node]."""

    nodes: IntArray
    criteria: Sequence[Criterion]
    selector: str
    epsilons: Sequence[Epsilon]


@dataclass(frozen=True, eq=False)
class NominateAndCount(Nominate):
    """A nomination, and the nominee's cells at the price of `cell_epsilons`.

    Answer: the nominee's index, then its cells [side, class] in a row: [node, 1 + 2 x classes]. A holder that
    is alone has nobody to agree with on the nominee, and is spared a round.
    """

    cell_epsilons: Sequence[Epsilon]


@dataclass(frozen=True, eq=False)
class NominateForks(NominateAndCount):
    """Which fork is (nearly) the best at each node: a split, and a split of each of its sides? And how many are where?

    The selector is "exponential": any other would have to list all forks. Answer: the three splits' indices, -1 for
    a side that no split can divide, then the cells [side, side, class] in a row: [node, 3 + 4 x classes].
    """


@dataclass(frozen=True, eq=False)
class CountCells:
    """How many rows of each class go left and right under a split? Answer: [node, side, class].

    A node may stand in several places, with several splits; it pays for each.
    """

    nodes: IntArray
    splits: IntArray
    epsilons: Sequence[Epsilon]


@dataclass(frozen=True, eq=False)
class CountForks:
    """How many rows of each class are in each cell of a fork? Answer: [node, side, side, class].

    A fork is a split, and a split of each of its sides; where that is -1, all rows of the side are in its left cell.
    """

    nodes: IntArray
    splits: IntArray
    left_splits: IntArray
    right_splits: IntArray
    epsilons: Sequence[Epsilon]

    @property
    def forks(self) -> IntArray:
        """The three splits of each fork: [node, 3]."""
        return np.column_stack([self.splits, self.left_splits, self.right_splits])


@dataclass(frozen=True, eq=False)
class CountSplits:
    """The cells of every candidate split. Answer: [node, split, side, class]."""

    nodes: IntArray
    epsilons: Sequence[Epsilon]


@dataclass(frozen=True, eq=False)
class CountColumns:
    """A histogram of every column. Answer: [node, bin, class], the columns' bins one after another."""

    nodes: IntArray
    epsilons: Sequence[Epsilon]


Query = (
    CountRows
    | CountLabels
    | Nominate
    | NominateAndCount
    | NominateForks
    | CountCells
    | CountForks
    | CountSplits
    | CountColumns
)


@dataclass(frozen=True, eq=False)
class Request:
    """One question to a holder: follow this growth of the tree, then answer this query.

    A holder answers an `identifier` once; asked again, it repeats the stored answer.
    """

    study: str
    identifier: str
    growth: Grow | None
    query: Query


@dataclass(frozen=True, eq=False)
class Answer:
    """Noisy integers, in the shape that the query asks for."""

    study: str
    identifier: str
    values: IntArray


@dataclass(frozen=True, eq=False)
class Refusal:
    """Why a holder does not answer. Nothing was released, nothing charged."""

    study: str
    identifier: str
    reason: str


Message = Request | Answer | Refusal

MESSAGES, QUERIES, GROWTHS = (
    {kind.__name__: kind for kind in kinds} for kinds in (Message.__args__, Query.__args__, (Grow,))
)
ONE_A_NODE = frozenset({"splits", "left_splits", "right_splits", "epsilons", "cell_epsilons", "criteria"})


# ---- To bytes ----------------------------------------------------------------------------------------------


def to_bytes(message: Message) -> bytes:
    """A message as msgpack."""
    packed: bytes = msgpack.packb({"version": VERSION} | _fields(message), default=_plain)
    return packed


def _fields(value: Any) -> dict[str, Any]:
    """The kind of a message, or of a part of one, and its fields."""
    fields: dict[str, Any] = vars(value)
    lists = {name: Repeated.of(field) for name, field in fields.items() if type(field) in (list, tuple)}
    return {"kind": type(value).__name__} | fields | lists


def _plain(value: Any) -> Any:
    """Maps, lists, strings and bytes for what msgpack does not know."""
    if isinstance(value, np.ndarray):
        data = value.astype("<i8", casting="equiv", copy=False).tobytes()
        return data if value.ndim == 1 else {"shape": list(value.shape), "int64": data}
    if isinstance(value, Repeated):
        texts = [item.name if isinstance(item, Criterion) else str(item) for item in value.items]
        return {"distinct": texts, "which": len(value) if len(texts) == 1 else value.which}
    return _fields(value)


# ---- From bytes --------------------------------------------------------------------------------------------


def from_bytes(data: bytes) -> Message:
    """Parse a message; raises `InvalidMessage` with the reason, and builds nothing, if it is not one."""
    if len(data) > MOST_BYTES:
        raise InvalidMessage(f"a message has at most {MOST_BYTES} bytes.")
    met = count(1)

    def check(part: Any) -> Any:
        if next(met) > MOST_PARTS:
            raise InvalidMessage(f"a message has at most {MOST_PARTS} maps and lists.")
        return part

    limits = {"max_ext_len": 0, "max_array_len": MOST_NODES, "max_map_len": MOST_PARTS}
    hooks = {"object_hook": check, "list_hook": check}
    try:
        plain = msgpack.unpackb(data, raw=False, strict_map_key=True, **limits, **hooks)
    except Exception as error:  # msgpack raises half a dozen kinds
        raise InvalidMessage(f"not a message: {type(error).__name__}.") from error
    if not isinstance(plain, dict) or plain.pop("version", None) != VERSION:
        raise InvalidMessage(f"not a message of version {VERSION}.")
    message: Message = _built(plain, MESSAGES)
    # A field twice, fields in another order, a number in more bytes than it needs.
    if to_bytes(message) != data:
        raise InvalidMessage("a message has one form only, and this is another.")
    return message


def _built(plain: Any, kinds: Mapping[str, type[Any]]) -> Any:
    if not isinstance(plain, dict):
        raise InvalidMessage("a message is a map of named fields.")
    name = plain.pop("kind", None)
    if not isinstance(name, str) or name not in kinds:
        raise InvalidMessage(f"the kind of a message is one of {', '.join(kinds)}.")
    kind = kinds[name]
    if plain.keys() != kind.__dataclass_fields__.keys():
        raise InvalidMessage(f"{name} has exactly the fields {', '.join(kind.__dataclass_fields__)}.")
    values = {field: _PARSERS[field](value) for field, value in plain.items()}
    for field, value in values.items():
        if field in ONE_A_NODE and len(value) != len(values["nodes"]):
            raise InvalidMessage(f"{name}: {field} must have one entry a node.")
    return kind(**values)


def _text(most: int, pattern: str = r".*") -> Callable[[Any], str]:
    def parse(value: Any) -> str:
        if not isinstance(value, str) or len(value) > most or not re.fullmatch(pattern, value, re.DOTALL):
            raise InvalidMessage(f"expected text of at most {most} characters, of the form {pattern}.")
        return value

    return parse


def _array(data: Any, low: int) -> IntArray:
    if not isinstance(data, bytes) or len(data) % 8:
        raise InvalidMessage("numbers are 64-bit integers, as bytes.")
    array = np.frombuffer(data, dtype="<i8").astype(np.int64)
    if len(array) and (array.min() < low or array.max() > MOST_NUMBER):
        raise InvalidMessage(f"a number is outside {low} to {MOST_NUMBER}.")
    return array


def _numbers(value: Any, low: int = 0) -> IntArray:
    array = _array(value, low)
    if not 0 < len(array) <= MOST_NODES:
        raise InvalidMessage(f"a message is about 1 to {MOST_NODES} nodes.")
    return array


def _number(value: Any, most: int = MOST_NUMBER) -> int:
    if type(value) is not int or not 0 < value <= most:
        raise InvalidMessage(f"expected a number from 1 to {most}.")
    return value


def _values(value: Any) -> IntArray:
    if not isinstance(value, dict):
        return _array(value, -MOST_NUMBER)
    if value.keys() != {"shape", "int64"}:
        raise InvalidMessage("an array has a shape and 64-bit integers.")
    shape, array = value["shape"], _array(value["int64"], -MOST_NUMBER)
    if (
        not isinstance(shape, list)
        or len(shape) not in (2, 3, 4)
        or not all(type(size) is int and 0 < size <= MOST_BYTES for size in shape)
        or len(array) != math.prod(shape)
    ):
        raise InvalidMessage("an array's shape does not fit its data.")
    return array.reshape(shape)


def _listed(value: Any, parse: Callable[[Any], T]) -> Repeated[T]:
    if not isinstance(value, dict) or value.keys() != {"distinct", "which"}:
        raise InvalidMessage("a list has distinct items, and which of them stands where.")
    distinct = value["distinct"]
    if isinstance(distinct, list) and len(distinct) == 1:  # and of one item, how often it does
        return Repeated.one(parse(distinct[0]), _number(value["which"], MOST_NODES))
    which = _numbers(value["which"])
    if not isinstance(distinct, list) or which.max() != len(distinct) - 1:
        raise InvalidMessage("a list names an item that it does not have, or has one that it does not name.")
    newest = np.maximum.accumulate(which)
    in_order = (
        which[0] == 0 and (newest[1:] - newest[:-1] <= 1).all()
    )  # so there are no more items than places
    items = [parse(item) for item in distinct] if in_order else []
    if len(set(items)) < len(distinct):
        raise InvalidMessage("a list has its items once each, in the order in which they are named.")
    return Repeated(items, which)


def _epsilons(value: Any) -> Repeated[Epsilon]:
    return _listed(value, parse_epsilon)


def parse_epsilon(text: Any) -> Epsilon:
    """An epsilon from the one form in which messages have it."""
    if not isinstance(text, str):
        raise InvalidMessage(NO_EPSILON)
    return _epsilon(text)


@lru_cache(maxsize=1024)  # requests repeat a few prices
def _epsilon(text: str) -> Epsilon:
    if text == "inf":
        return math.inf
    number = rf"[1-9][0-9]{{0,{MOST_DIGITS - 1}}}"
    if not re.fullmatch(f"{number}(/{number})?", text, re.ASCII):
        raise InvalidMessage(NO_EPSILON)
    epsilon = Fraction(text)
    if str(epsilon) != text:
        raise InvalidMessage("an epsilon is a fraction in lowest terms.")
    return epsilon


def _criteria(value: Any) -> Repeated[Criterion]:
    return _listed(value, _criterion)


def _criterion(value: Any) -> Criterion:
    if not isinstance(value, str) or value not in Criterion.__members__:
        raise InvalidMessage(f"a criterion is one of {', '.join(Criterion.__members__)}.")
    return Criterion[value]


def _growth(value: Any) -> Grow | None:
    if value is None:
        return None
    growth: Grow = _built(value, GROWTHS)
    return growth


def _query(value: Any) -> Query:
    query: Query = _built(value, QUERIES)
    return query


_PARSERS: dict[str, Callable[[Any], Any]] = {
    "study": _text(200),
    "identifier": _text(200, r"[A-Za-z0-9_.:-]+"),
    "reason": _text(2000),
    "selector": _text(40, r"[a-z_]+"),
    "criteria": _criteria,
    "nodes": _numbers,
    "splits": _numbers,
    "left_splits": lambda value: _numbers(value, -1),
    "right_splits": lambda value: _numbers(value, -1),
    "first": _number,
    "epsilons": _epsilons,
    "cell_epsilons": _epsilons,
    "growth": _growth,
    "query": _query,
    "values": _values,
}
