"""The wire: what is written is read back, and anything else is refused with a reason, whatever it is."""

from __future__ import annotations

import dataclasses
import itertools
import math
from fractions import Fraction
from typing import Any

import msgpack
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hedgerow import Categorical, Numeric, Schema
from hedgerow.criteria import Criterion
from hedgerow.encoding import encode, encode_labels
from hedgerow.errors import InvalidMessage
from hedgerow.holder.counts import GroupedRows
from hedgerow.holder.desk import Desk
from hedgerow.holder.holder import Holder
from hedgerow.messages import (
    MOST_DIGITS,
    MOST_NODES,
    MOST_NUMBER,
    VERSION,
    Answer,
    CountCells,
    CountColumns,
    CountForks,
    CountLabels,
    CountRows,
    CountSplits,
    Grow,
    Message,
    Nominate,
    NominateAndCount,
    NominateForks,
    Query,
    Refusal,
    Request,
    from_bytes,
    to_bytes,
)
from hedgerow.privacy.ledger import Ledger
from hedgerow.privacy.noise import SeededNoise
from hedgerow.repeated import Repeated

# ---- Every message, at random -----------------------------------------------------------------------------------

text = st.text(st.characters(codec="utf-8"), max_size=200)
names = st.from_regex(r"[A-Za-z0-9_.:-]{1,200}", fullmatch=True)
epsilons = st.one_of(
    st.just(math.inf),
    st.fractions(Fraction(1, 10**40), 10**9, max_denominator=10**40),
    st.builds(Fraction, st.integers(1, 10**MOST_DIGITS - 1), st.integers(1, 10**MOST_DIGITS - 1)),
)


def numbers(n: int, low: int = 0) -> st.SearchStrategy[np.ndarray]:
    return st.lists(st.integers(low, MOST_NUMBER), min_size=n, max_size=n).map(
        lambda values: np.array(values, dtype=np.int64)
    )


@st.composite
def growths(draw: st.DrawFn) -> Grow:
    n = draw(st.integers(1, 6))
    return Grow(draw(numbers(n)), draw(numbers(n)), draw(st.integers(1, MOST_NUMBER)))


@st.composite
def queries(draw: st.DrawFn, kinds: tuple[type[Query], ...] = Query.__args__) -> Query:
    kind = draw(st.sampled_from(kinds))
    n = draw(st.integers(1, 6))
    few = draw(st.lists(epsilons, min_size=1, max_size=3))
    prices = [draw(st.sampled_from(few)) for _ in range(n)]
    if issubclass(kind, Nominate):
        criteria = [draw(st.sampled_from(Criterion)) for _ in range(n)]
        selector = draw(st.from_regex(r"[a-z_]{1,40}", fullmatch=True))
        too = [[draw(st.sampled_from(few)) for _ in range(n)]] if issubclass(kind, NominateAndCount) else []
        return kind(draw(numbers(n)), criteria, selector, prices, *too)
    if kind is CountCells:
        return CountCells(draw(numbers(n)), draw(numbers(n)), prices)
    if kind is CountForks:
        below = draw(numbers(n, -1)), draw(numbers(n, -1))
        return CountForks(draw(numbers(n)), draw(numbers(n)), *below, prices)
    return kind(draw(numbers(n)), prices)


@st.composite
def answers(draw: st.DrawFn) -> Answer:
    shape = draw(st.lists(st.integers(1, 4), min_size=1, max_size=4))
    return Answer(draw(text), draw(names), draw(numbers(math.prod(shape), -MOST_NUMBER)).reshape(shape))


requests = st.builds(Request, text, names, st.none() | growths(), queries())


def same(one: Any, other: Any) -> bool:
    """Equal in kind and in every field; arrays in shape and type too; values of nodes, however they are kept."""
    if isinstance(one, Repeated) or isinstance(other, Repeated):
        return list(one) == list(other)
    if type(one) is not type(other):
        return False
    if isinstance(one, np.ndarray):
        return one.dtype == other.dtype and one.shape == other.shape and bool((one == other).all())
    if dataclasses.is_dataclass(one):
        return all(same(getattr(one, f.name), getattr(other, f.name)) for f in dataclasses.fields(one))
    return bool(one == other)


@pytest.mark.parametrize(
    ("nodes", "first", "parts"),
    [
        ([0], 1, [(0, 1)]),
        ([0, 1], 1, [(0, 1), (1, 2)]),
        ([3, 4, 1, 2], 7, [(0, 4)]),
        ([3, 4, 7, 10], 7, [(0, 2), (2, 4)]),
        ([3, 7, 4, 9, 2], 7, [(0, 1), (1, 3), (3, 5)]),
    ],
)
def test_no_part_of_an_announcement_splits_a_child_of_its_own(
    nodes: list[int], first: int, parts: list[tuple[int, int]]
) -> None:
    growth = Grow(np.array(nodes), np.zeros(len(nodes), np.int64), first)
    assert [(part.start, part.stop) for part in growth.generations()] == parts


KINDS = {
    kind.__name__: st.builds(Request, text, names, st.none(), queries((kind,))) for kind in Query.__args__
} | {
    "Grow": st.builds(Request, text, names, growths(), queries()),
    "Answer": answers(),
    "Refusal": st.builds(Refusal, text, names, text),
}


@pytest.mark.parametrize("kind", KINDS)
def test_what_is_written_is_read_back(kind: str) -> None:
    @settings(max_examples=60)
    @given(KINDS[kind])
    def check(message: Message) -> None:
        data = to_bytes(message)
        assert same(from_bytes(data), message)
        assert to_bytes(from_bytes(data)) == data

    check()


# ---- A strict parser --------------------------------------------------------------------------------------------


def array(values: list[Any]) -> bytes:
    return np.array(values, dtype="<i8").tobytes()


def shaped(values: list[Any], shape: Any) -> dict[str, Any]:
    return {"shape": shape, "int64": array(values)}


def listed(*items: Any, which: list[int] | None = None) -> dict[str, Any]:
    if which is None and len(items) == 1:
        return {"distinct": list(items), "which": 1}
    return {"distinct": list(items), "which": array(list(range(len(items))) if which is None else which)}


def query(**changes: Any) -> dict[str, Any]:
    return {"kind": "CountCells", "nodes": array([0, 1]), "splits": array([3, 0])} | {
        "epsilons": listed("1/3", "2") | changes.pop("epsilons", {}),
        **changes,
    }


def fork(**changes: Any) -> dict[str, Any]:
    """The cells of two forks, of which one has no split on its left side."""
    splits = {"splits": array([3, 0]), "left_splits": array([-1, 4]), "right_splits": array([0, 2])}
    return (
        {"kind": "CountForks", "nodes": array([0, 1])} | splits | {"epsilons": listed("1/3", "2")} | changes
    )


def growth(**changes: Any) -> dict[str, Any]:
    return {"kind": "Grow", "nodes": array([0]), "splits": array([1]), "first": 1} | changes


def request(**changes: Any) -> dict[str, Any]:
    return {
        "version": VERSION,
        "kind": "Request",
        "study": "s",
        "identifier": "round-1",
        "growth": growth(),
        "query": query(),
    } | changes


def answer(**changes: Any) -> dict[str, Any]:
    return {
        "version": VERSION,
        "kind": "Answer",
        "study": "s",
        "identifier": "a",
        "values": array([1]),
    } | changes


def nomination(**changes: Any) -> dict[str, Any]:
    plain = {"kind": "Nominate", "nodes": array([0]), "criteria": listed("gini"), "selector": "exponential"}
    return plain | {"epsilons": listed("1")} | changes


def without(plain: dict[str, Any], field: str) -> dict[str, Any]:
    return {name: value for name, value in plain.items() if name != field}


def only(plain: dict[str, Any]) -> dict[str, Any]:
    return request(growth=None, query=plain)


PRICE = "an epsilon is"
AT_FRONT = b"\xa7version" + bytes([VERSION])
INVALID: dict[str, tuple[Any, str]] = {
    "more prices of cells than nodes": (
        only(nomination(kind="NominateAndCount", cell_epsilons=listed("1", "2"))),
        "one entry a node",
    ),
    "no version": (without(request(), "version"), "version"),
    "an older version": (request(version=0), "version"),
    "a newer version": (request(version=VERSION + 1), "version"),
    "a version that is true": (request(version=True), "version"),
    "a version that is a float": (request(version=float(VERSION)), "one form only"),
    "a version that is text": (request(version=str(VERSION)), "version"),
    "a list": ([1, 2], "version"),
    "nothing": (None, "version"),
    "an unknown kind": (request(kind="Delete"), "kind of a message is"),
    "a part of a message": (growth() | {"version": VERSION}, "kind of a message is"),
    "a query alone": ({"version": VERSION} | query(), "kind of a message is"),
    "no kind": (without(request(), "kind"), "kind of a message is"),
    "a kind that is a list": (request(kind=["Request"]), "kind of a message is"),
    "an unknown field": (request(extra=1), "exactly the fields"),
    "an unknown field of a query": (only(query(extra=1)), "exactly the fields"),
    "an unknown field of an array": (answer(values=shaped([0, 1], [1, 2]) | {"more": 1}), "shape"),
    "an unknown field of a list": (only(query(epsilons={"more": 1})), "a list has"),
    "a field that is missing": (without(request(), "growth"), "exactly the fields"),
    "no price": (only(without(query(), "epsilons")), "exactly the fields"),
    "another query's field": (only(query(selector="exponential")), "exactly the fields"),
    "fields in another order": (dict(reversed(list(request().items()))), "one form only"),
    "a study that is bytes": (request(study=b"s"), "expected text"),
    "a study that is a number": (request(study=1), "expected text"),
    "a study that is too long": (request(study="s" * 201), "expected text"),
    "an identifier that is empty": (request(identifier=""), "expected text"),
    "an identifier with a newline": (request(identifier="a\n"), "expected text"),
    "an identifier with other digits": (request(identifier="\u0663"), "expected text"),
    "an identifier that is too long": (request(identifier="a" * 201), "expected text"),
    "no query": (request(query=None), "map of named fields"),
    "a growth that is false": (request(growth=False), "map of named fields"),
    "a growth that is a query": (request(growth=query()), "kind of a message is"),
    "a query that is a growth": (request(query=growth()), "kind of a message is"),
    "no nodes": (only(query(nodes=array([]), splits=array([]))), "1 to"),
    "too many nodes": (only(query(nodes=array([0] * (MOST_NODES + 1)))), "1 to"),
    "a negative node": (only(query(nodes=array([0, -1]))), "outside"),
    "a node beyond all numbers": (only(query(nodes=array([0, MOST_NUMBER + 1]))), "outside"),
    "nodes in two dimensions": (only(query(nodes=shaped([0, 1], [1, 2]))), "as bytes"),
    "nodes that are a plain list": (only(query(nodes=[0, 1])), "as bytes"),
    "nodes that are text": (only(query(nodes="abcdefgh")), "as bytes"),
    "nodes that are cut short": (only(query(nodes=bytes(15))), "as bytes"),
    "nodes that are floats": (only(query(nodes=[math.nan])), "as bytes"),
    "a shape that is a float": (answer(values=shaped([0, 1], [1, 2.0])), "shape"),
    "a shape that is true": (answer(values=shaped([0], [1, True])), "shape"),
    "a shape that is negative": (answer(values=shaped([0, 1], [-1, -2])), "shape"),
    "a shape that promises more": (answer(values=shaped([0, 1], [1, 3])), "shape"),
    "a shape that promises a lot": (answer(values=shaped([1], [2**28, 2**28])), "shape"),
    "a shape with nothing in it": (answer(values=shaped([], [0, 2**28, 2**28, 2**28])), "shape"),
    "a shape of no dimension": (answer(values=shaped([1], [])), "shape"),
    "a shape of one dimension": (answer(values=shaped([1], [1])), "shape"),
    "a shape of five dimensions": (answer(values=shaped([1], [1, 1, 1, 1, 1])), "shape"),
    "a shape that is a number": (answer(values=shaped([1], 1)), "shape"),
    "integers that are text": (answer(values={"shape": [1, 1], "int64": "abcdefgh"}), "as bytes"),
    "integers that are cut short": (answer(values={"shape": [1, 2], "int64": bytes(15)}), "as bytes"),
    "a NaN among the values": (answer(values=math.nan), "as bytes"),
    "a negative split": (only(query(splits=array([0, -3]))), "outside"),
    "a fork without a first split": (only(fork(splits=array([-1, 0]))), "outside"),
    "a left split below none": (only(fork(left_splits=array([0, -2]))), "outside -1"),
    "a right split below none": (only(fork(right_splits=array([-2, 0]))), "outside -1"),
    "a left split beyond all numbers": (only(fork(left_splits=array([0, MOST_NUMBER + 1]))), "outside"),
    "fewer first splits of forks than nodes": (only(fork(splits=array([0]))), "one entry a node"),
    "fewer left splits than nodes": (only(fork(left_splits=array([0]))), "one entry a node"),
    "more left splits than nodes": (only(fork(left_splits=array([0, 1, 2]))), "one entry a node"),
    "fewer right splits than nodes": (only(fork(right_splits=array([-1]))), "one entry a node"),
    "more right splits than nodes": (only(fork(right_splits=array([-1, 0, 2]))), "one entry a node"),
    "fewer prices than forks": (only(fork(epsilons=listed("1"))), "one entry a node"),
    "a fork without right splits": (only(without(fork(), "right_splits")), "exactly the fields"),
    "forks in two dimensions": (only(fork(left_splits=shaped([0, 1], [1, 2]))), "as bytes"),
    "the left splits of a fork for cells": (only(query(left_splits=array([0, 1]))), "exactly the fields"),
    "fewer splits than nodes": (only(query(splits=array([0]))), "one entry a node"),
    "more prices than nodes": (only(query(epsilons=listed("1", "2", "3"))), "one entry a node"),
    "fewer splits than nodes that are split": (
        request(growth=growth(nodes=array([0, 5]))),
        "one entry a node",
    ),
    "the root for a child": (request(growth=growth(first=0)), "expected a number"),
    "a child that is true": (request(growth=growth(first=True)), "expected a number"),
    "a child that is half": (request(growth=growth(first=1.5)), "expected a number"),
    "a child beyond all numbers": (request(growth=growth(first=MOST_NUMBER + 1)), "expected a number"),
    "more criteria than nodes": (only(nomination(criteria=listed("gini", "error"))), "one entry a node"),
    "an unknown criterion": (only(nomination(criteria=listed("luck"))), "criterion is one of"),
    "a criterion that is a number": (only(nomination(criteria=listed(0))), "criterion is one of"),
    "a selector with a capital": (only(nomination(selector="Exponential")), "expected text"),
    "a list that names what it lacks": (only(query(epsilons=listed("1", "2", which=[0, 2]))), "does not have"),
    "a list of one item with its places": (only(query(epsilons=listed("1", which=[0, 0]))), "expected a number"),
    "a list of one item that stands nowhere": (
        only(query(epsilons={"distinct": ["1"], "which": 0})),
        "expected a number",
    ),
    "a list that would fill the memory": (
        only(query(epsilons={"distinct": ["1"], "which": MOST_NODES + 1})),
        "expected a number",
    ),
    "a list of two items with a number of places": (
        only(query(epsilons={"distinct": ["1", "2"], "which": 2})),
        "as bytes",
    ),
    "a list with an item too many": (only(query(epsilons=listed("1", "2", which=[0, 0]))), "does not name"),
    "a list with an item twice": (only(query(epsilons=listed("1", "1"))), "once each"),
    "a list of more items than places": (only(query(epsilons=listed("x", "y", "z", which=[0, 2]))), "once each"),
    "a list in another order": (only(query(epsilons=listed("1", "2", which=[1, 0]))), "once each"),
    "a value beyond all numbers": (answer(values=array([-MOST_NUMBER - 1])), "outside"),
    **{
        f"a price of {price!r:.30}": (only(query(epsilons=listed(price, "1"))), PRICE)
        for price in (
            "0", "-1", "0/5", "-0", "1/0", "1/-2", "+1", "1.5", "1e3", "nan", "-inf", "Infinity", "INF", "",
            " 1", "1 ", "1\n", "1_0", "\u0661", "01", "2/4", "4/2", "1/1", "1/3/5", "0x1", b"1", 1, 1.0, math.nan,
            math.inf, None, True, ["1"], "9" * (MOST_DIGITS + 1), "1/" + "9" * (MOST_DIGITS + 1),
        )
    },
}  # fmt: skip


@pytest.mark.parametrize(
    "plain",
    [
        request(),
        only(query()),
        only(fork()),
        only(nomination()),
        answer(),
        answer(values=shaped([1, 2], [1, 2])),
    ],
)
def test_the_examples_are_valid_before_they_are_changed(plain: dict[str, Any]) -> None:
    data = msgpack.packb(plain)
    assert to_bytes(from_bytes(data)) == data


@pytest.mark.parametrize("what", INVALID)
def test_anything_else_is_refused_with_a_reason(what: str) -> None:
    plain, reason = INVALID[what]
    with pytest.raises(InvalidMessage, match=reason):
        from_bytes(msgpack.packb(plain))


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (b"", "not a message"),
        (b"\xc1", "not a message"),
        (to_bytes(Refusal("s", "a", "r"))[:-1], "not a message"),
        (to_bytes(Refusal("s", "a", "r")) + b"\x00", "not a message"),
        (msgpack.packb(request())[:40] + b"\xff" * 40, "not a message"),
        (b"\x91" * 100_000 + b"\x00", "not a message"),  # nested without end
        (b"\xdd\xff\xff\xff\xff", "not a message"),  # a list of four billion
        (b"\xc7\x00\x05" * 3, "not a message"),  # an extension
        (msgpack.packb(request()).replace(AT_FRONT, b"\xa7version\xcc" + bytes([VERSION])), "one form only"),
        (msgpack.packb(request()).replace(b"\x86" + AT_FRONT, b"\x87" + 2 * AT_FRONT), "one form"),
        (msgpack.packb({"kind": "Request"} | request()), "one form only"),
        (msgpack.packb(without(request(), "version") | {"version": VERSION}), "one form only"),
        (msgpack.packb(answer(values=dict(reversed(shaped([0, 1], [1, 2]).items())))), "one form only"),
        (msgpack.packb(only(query() | {"epsilons": dict(reversed(listed("1", "2").items()))})), "one form only"),
        (msgpack.packb([{}] * 1000), "not a message: "),  # sixty-four bytes of memory for one of the message's
        (msgpack.packb([[]] * 1000), "not a message: "),
        (msgpack.packb([1] * (MOST_NODES + 1)), "not a message: "),
        (msgpack.packb(dict.fromkeys(map(str, range(33)))), "not a message: "),
    ],
)  # fmt: skip
def test_bytes_that_are_no_message_are_refused(data: bytes, reason: str) -> None:
    with pytest.raises(InvalidMessage, match=reason):
        from_bytes(data)


def test_a_message_that_is_too_long_is_not_even_read() -> None:
    with pytest.raises(InvalidMessage, match="at most"):
        from_bytes(bytes(2**28 + 1))


# ---- Noise on the wire ------------------------------------------------------------------------------------------

SCHEMA = Schema([Numeric("x", 0, 1, 3), Categorical("c", ["a", "b"])], label="y", classes=["no", "yes"])


CODES = encode(np.array([[0.1, "a"], [0.6, "b"], [0.9, "a"], [0.2, "b"]], dtype=object), SCHEMA)
LABELS = encode_labels(["no", "yes", "yes", "no"], SCHEMA)


def desk() -> Desk:
    rows = GroupedRows(CODES, LABELS, SCHEMA)
    return Desk("study", Holder(rows, SeededNoise(1), Ledger(Fraction(100)), max_rows=1000))


ROOT_NODE = np.array([0])
VALID = [
    to_bytes(Request("study", "a", grow, ask))
    for grow in (None, Grow(ROOT_NODE, np.array([2]), 1))
    for ask in (
        CountRows(ROOT_NODE, [Fraction(1, 3)]),
        CountLabels(ROOT_NODE, [Fraction(1, 3)]),
        Nominate(ROOT_NODE, [Criterion.gini], "permute_and_flip", [Fraction(1, 3)]),
        NominateAndCount(ROOT_NODE, [Criterion.gini], "permute_and_flip", [Fraction(1, 3)], [Fraction(1, 2)]),
        NominateForks(ROOT_NODE, [Criterion.gini], "exponential", [Fraction(1, 3)], [Fraction(1, 2)]),
        CountCells(ROOT_NODE, np.array([1]), [Fraction(1, 3)]),
        CountForks(ROOT_NODE, np.array([1]), np.array([-1]), np.array([4]), [Fraction(1, 3)]),
        CountSplits(ROOT_NODE, [Fraction(1, 3)]),
        CountColumns(ROOT_NODE, [Fraction(1, 3)]),
    )
]


@st.composite
def mutated(draw: st.DrawFn) -> bytes:
    """A valid request with some bytes changed, cut out, doubled, or taken from another request."""
    data = bytearray(draw(st.sampled_from(VALID)))
    for _ in range(draw(st.integers(1, 4))):
        place = draw(st.integers(0, len(data)))
        match draw(st.integers(0, 3)):
            case 0:
                data[place : place + 1] = bytes([draw(st.integers(0, 255))])
            case 1:
                del data[place : place + draw(st.integers(1, 9))]
            case 2:
                data[place:place] = data[place : place + draw(st.integers(1, 9))]
            case 3:
                other = draw(st.sampled_from(VALID))
                data[place:] = other[place:]
    return bytes(data)


def parsed(data: bytes) -> Message | None:
    try:
        return from_bytes(data)
    except InvalidMessage:
        return None


@settings(max_examples=1500)
@given(st.one_of(st.binary(max_size=300), mutated()))
def test_a_desk_refuses_noise_and_books_nothing(data: bytes) -> None:
    """Never an exception, never an answer to what is no request, never a change by what is refused."""
    asked = desk()
    message, reply = parsed(data), from_bytes(asked.handle(data))
    if isinstance(reply, Refusal):
        assert reply.reason
        assert (asked.holder.ledger.entries, len(asked.holder._paths.parent)) == ([], 1)
    else:
        assert isinstance(reply, Answer)
        assert isinstance(message, Request)
        assert message.study == "study"
        assert to_bytes(message) == data
        prices = [value for name, value in vars(message.query).items() if name.endswith("epsilons")]
        assert [entry.epsilon for entry in asked.holder.ledger.entries] == [*itertools.chain(*prices)]


@settings(max_examples=300)
@given(requests)
def test_a_desk_never_raises_whatever_a_request_says(message: Request) -> None:
    asked = desk()
    for study in (message.study, "study"):
        reply = from_bytes(asked.handle(to_bytes(dataclasses.replace(message, study=study))))
        assert isinstance(reply, Answer | Refusal)
        if isinstance(reply, Refusal):
            assert asked.holder.ledger.entries == []
            assert len(asked.holder._paths.parent) == 1
