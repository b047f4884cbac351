"""A coordinator that tries everything, against a holder with a journal in memory and one on disk.

A model of its own, a few lines of plain sums, says of each request whether it must be answered and what has been
spent. A twin of the holder with other rows hears the same requests: what is refused, and why, must not differ.
"""

from __future__ import annotations

import shutil
import tempfile
from dataclasses import dataclass, field
from fractions import Fraction
from pathlib import Path
from typing import Any

import msgpack
import numpy as np
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from hedgerow import Categorical, Numeric, Schema
from hedgerow.criteria import Criterion
from hedgerow.encoding import encode, encode_labels
from hedgerow.holder.counts import GroupedRows
from hedgerow.holder.desk import Desk, Memory, StudyGrant
from hedgerow.holder.store import Store, StoredStudy
from hedgerow.messages import (
    Answer,
    CountCells,
    CountForks,
    CountLabels,
    CountRows,
    Grow,
    Nominate,
    NominateAndCount,
    NominateForks,
    Query,
    Refusal,
    Request,
    from_bytes,
    to_bytes,
)
from hedgerow.privacy.noise import SeededNoise
from hedgerow.privacy.selectors import SELECTORS

SCHEMA = Schema([Numeric("x", 0, 1, 3), Categorical("c", ["a", "b"])], label="y", classes=["no", "yes"])
N_SPLITS = len(SCHEMA.splits)
METHODS = {"alpha": ("select", "turns", "local", "noisy_columns", "noisy_counts"), "beta": ("turns",)}
GRANTS = {
    name: StudyGrant(name, SCHEMA.hash, epsilon, max_rows=1000, methods=METHODS[name], quantum=0)
    for name, epsilon in (("alpha", Fraction(1)), ("beta", Fraction(3, 4)))
}
GRANTED = {
    "alpha": set(Query.__args__),
    "beta": {CountLabels, NominateAndCount, NominateForks, CountForks},
}
LIFETIME = Fraction(5, 4)


def table(n_rows: int, seed: int) -> tuple[Any, Any]:
    rng = np.random.default_rng(seed)
    values = np.empty((n_rows, 2), dtype=object)
    values[:, 0], values[:, 1] = rng.random(n_rows), rng.choice(["a", "b"], n_rows)
    return encode(values, SCHEMA), encode_labels(rng.choice(["no", "yes"], n_rows), SCHEMA)


TABLES = [table(50, 1), table(0, 2)]


# ---- What must be true ----------------------------------------------------------------------------------------------


SELECTORS_OF = dict.fromkeys((Nominate, NominateAndCount), tuple(SELECTORS)) | {
    NominateForks: ("exponential",)
}


@dataclass
class Account:
    """One study, as the coordinator could reckon it: the tree that it announced, the prices that it was told."""

    grant: Fraction
    queries: set[type[Query]]
    split: dict[int, tuple[int, int]] = field(default_factory=dict)  # by which split, into which first child
    parent: dict[int, int | None] = field(default_factory=lambda: {0: None})
    price: dict[int, Fraction] = field(default_factory=dict)
    charged: dict[str, bytes] = field(default_factory=dict)
    replies: dict[bytes, bytes] = field(default_factory=dict)
    releases: int = 0

    def spent(self, extra: Query | None = None, parent: dict[int, int | None] | None = None) -> Fraction:
        """The largest sum of prices on the way from any node up to the root."""
        parent = self.parent if parent is None else parent
        price = dict(self.price)
        for node, epsilon in paying(extra) if extra else ():
            price[node] = price.get(node, Fraction(0)) + epsilon
        sums = []
        for node in parent:
            total, at = Fraction(0), node
            while at is not None:
                total += price.get(at, 0)
                at = parent[at]
            sums.append(total)
        return max(sums)

    def grown(self, growth: Grow | None) -> tuple[dict[int, Any], dict[int, int | None]] | None:
        """The tree with an announcement; None if the announcement must be refused."""
        split, parent = dict(self.split), dict(self.parent)
        if growth is None:
            return split, parent
        if growth.first != len(parent):
            return None
        for node, by in zip(growth.nodes.tolist(), growth.splits.tolist(), strict=True):
            if by >= N_SPLITS or node not in parent or node in split:
                return None
            split[node] = (by, len(parent))
            parent |= dict.fromkeys((len(parent), len(parent) + 1), node)
        return split, parent

    def must_answer(self, request: Request, lifetime_left: Fraction | None) -> bool:
        query, tree = request.query, self.grown(request.growth)
        if tree is None or type(query) not in self.queries or not set(query.nodes.tolist()) <= tree[1].keys():
            return False
        if not splits_are_known(query):
            return False
        if isinstance(query, Nominate) and query.selector not in SELECTORS_OF[type(query)]:
            return False
        if isinstance(query, Nominate) and not all(divisible(node, *tree) for node in query.nodes.tolist()):
            return False
        if min(epsilon for _, epsilon in paying(query)) < Fraction(1, 2**40):
            return False
        spent = self.spent(query, tree[1])
        return spent <= self.grant and (lifetime_left is None or spent <= lifetime_left)

    def charge(self, request: Request, data: bytes) -> None:
        tree = self.grown(request.growth)
        assert tree is not None
        self.split, self.parent = tree
        for node, epsilon in paying(request.query):
            assert isinstance(epsilon, Fraction)
            self.price[node] = self.price.get(node, Fraction(0)) + epsilon
            self.releases += 1
        self.charged[request.identifier] = data


def paying(query: Query) -> list[tuple[int, Any]]:
    """Each release of a query: the node that it is about, and its price."""
    prices = [query.epsilons, *([query.cell_epsilons] if isinstance(query, NominateAndCount) else [])]
    return [pair for epsilons in prices for pair in zip(query.nodes.tolist(), epsilons, strict=True)]


def splits_are_known(query: Query) -> bool:
    """Whether all are in the schema; a fork's side may have none (-1). What a path decides makes no difference."""
    named = [query.splits] if isinstance(query, CountCells | CountForks) else []
    named += [query.left_splits, query.right_splits] if isinstance(query, CountForks) else []
    return all(split < N_SPLITS for splits in named for split in splits.tolist())


def divisible(node: int, split: dict[int, tuple[int, int]], parent: dict[int, int | None]) -> bool:
    """Whether two values of a column may still be there, by the announced splits alone."""
    bins = {(i, b) for i, column in enumerate(SCHEMA.columns) for b in range(column.n_bins)}
    while (above := parent[node]) is not None:
        number, left = split[above]
        rule = SCHEMA.splits[number]
        bins = {
            (i, b)
            for i, b in bins
            if i != rule.column or (rule.first <= b <= rule.last or b == rule.also) == (node == left)
        }
        node = above
    return len(bins) > len({i for i, _ in bins})


# ---- Everything that may be sent ------------------------------------------------------------------------------------

studies = st.sampled_from(["alpha", "alpha", "beta"])
names = st.sampled_from([f"name-{i}" for i in range(30)])
numbers = st.sampled_from([0, 0, 0, 1, 1, 2, 2, 3, 4, 5, 9])
prices = st.sampled_from(
    [Fraction(1, n) for n in (64, 40, 32, 32, 16, 16, 10, 8, 8, 3)]
    + [Fraction(1), Fraction(10**50), float("inf"), Fraction(1, 10**50)]
)


@st.composite
def growths(draw: st.DrawFn) -> Grow:
    n = draw(st.sampled_from([1, 1, 1, 2, 3]))
    nodes = np.array([draw(st.integers(0, 4)) for _ in range(n)])
    splits = np.array([draw(st.integers(0, N_SPLITS)) for _ in range(n)])  # the last is not in the schema
    return Grow(nodes, splits, draw(st.sampled_from([1, 1, 3, 5, 2])))


@st.composite
def queries(draw: st.DrawFn) -> Query:
    n = draw(st.sampled_from([1, 1, 2, 3]))
    nodes, epsilons = np.array([draw(numbers) for _ in range(n)]), [draw(prices) for _ in range(n)]
    kind = draw(st.sampled_from(Query.__args__))
    if issubclass(kind, Nominate):
        selector = draw(st.sampled_from(["permute_and_flip", "report_noisy_max", "exponential", "luck"]))
        criteria = [draw(st.sampled_from(Criterion)) for _ in range(n)]
        too = [[draw(prices) for _ in range(n)]] if issubclass(kind, NominateAndCount) else []
        return kind(nodes, criteria, selector, epsilons, *too)
    if kind is CountCells:
        return CountCells(nodes, np.array([draw(st.integers(0, N_SPLITS)) for _ in range(n)]), epsilons)
    if kind is CountForks:
        splits = np.array([[draw(st.integers(low, N_SPLITS)) for _ in range(n)] for low in (0, -1, -1)])
        return CountForks(nodes, *splits, epsilons)
    return kind(nodes, epsilons)


def simple(kind: type[Query], node: int, which: int, price: Fraction) -> Query:
    """A count of one node; of a fork that is in the schema, if it is one of those."""
    at = np.array([node])
    if kind is not CountForks:
        return kind(at, [price])  # type: ignore[call-arg]
    left, right = (which // n % (N_SPLITS + 1) - 1 for n in (1, 5))
    return CountForks(at, at * 0 + which % N_SPLITS, at * 0 + left, at * 0 + right, [price])


TWISTS = (
    "none",
    "none",
    "none",
    "fork",
    "no split",
    "again",
    "another split",
    "out of turn",
    "stolen",
    "twice",
)


def twisted(account: Account, twist: str, which: int) -> Grow | None:
    """The split of a leaf, or something that looks like it."""
    leaves = sorted(account.parent.keys() - account.split.keys())
    inner = sorted(account.split)
    leaf, by, first = leaves[which % len(leaves)], which % N_SPLITS, len(account.parent)
    if twist == "no split" or (twist in {"again", "another split"} and not inner):
        return None
    nodes, splits = [leaf], [by]
    if twist in {"again", "another split"}:
        nodes = [inner[which % len(inner)]]
        by, born = account.split[nodes[0]]
        splits, first = ([by], born) if twist == "again" else ([(by + 1) % N_SPLITS], first)
    elif twist == "out of turn":
        first += which % 3 - 1 or 2
    elif twist == "fork":  # a child as soon as it is born
        nodes, splits = [leaf, first + which % 2], [by, (by + 1) % N_SPLITS]
    elif twist == "stolen":  # a node that is only just born
        nodes = [first]
    elif twist == "twice":
        nodes, splits = [leaf] * 2, [by, (by + 1) % N_SPLITS]
    return Grow(np.array(nodes), np.array(splits), first)


class Interrupted(BaseException):
    """The holder's process has ended."""


# ---- The game -------------------------------------------------------------------------------------------------------


class InMemory(RuleBasedStateMachine):
    """Two studies and their twins with other rows. Journals are dictionaries that outlive their desks."""

    lifetime: Fraction | None = None

    @initialize()
    def open(self) -> None:
        self.accounts = {name: Account(grant.epsilon, GRANTED[name]) for name, grant in GRANTS.items()}
        self.journals: dict[tuple[str, int], Any] = {}
        self.desks: dict[tuple[str, int], Desk] = {}
        for name in GRANTS:
            self.start(name)

    def start(self, name: str) -> None:
        for twin, (codes, labels) in enumerate(TABLES):
            rows = GroupedRows(codes, labels, SCHEMA)
            journal = self.journals.setdefault((name, twin), Memory())
            self.desks[name, twin] = GRANTS[name].desk(rows, SeededNoise(twin), journal)

    def send(self, data: bytes, study: str) -> bytes:
        """The holder's reply; the twin's must be of the same kind, and a refusal the same."""
        first, second = (self.desks[study, twin].handle(data) for twin in range(2))
        kinds = [type(from_bytes(reply)) for reply in (first, second)]
        assert kinds[0] is kinds[1]
        if kinds[0] is Refusal:
            assert first == second
        return first

    def lifetime_left(self, study: str) -> Fraction | None:
        if self.lifetime is None:
            return None
        return self.lifetime - sum(
            account.spent() for name, account in self.accounts.items() if name != study
        )

    @rule(study=studies, name=names, growth=st.none() | growths(), query=queries())
    def ask(self, study: str, name: str, growth: Grow | None, query: Query) -> None:
        account, request = self.accounts[study], Request(study, name, growth, query)
        data = to_bytes(request)
        known, left = account.charged.get(name), self.lifetime_left(study)
        expected = known == data if known is not None else account.must_answer(request, left)
        reply = self.send(data, study)
        assert isinstance(from_bytes(reply), Answer if expected else Refusal)
        if expected and known is None:
            account.charge(request, data)
        if expected:
            assert account.replies.setdefault(data, reply) == reply

    @rule(
        study=studies,
        twist=st.sampled_from(TWISTS),
        node=st.integers(0, 30),
        about=st.integers(0, 30),
        price=st.sampled_from([Fraction(1, n) for n in (64, 32, 32, 16, 16, 8, 8, 4, 2)]),
        kind=st.sampled_from([CountRows, CountLabels, CountForks]),
    )
    def ask_sensibly(
        self, study: str, twist: str, node: int, about: int, price: Fraction, kind: type[Query]
    ) -> None:
        """About nodes that exist, with a split that is in order but for its twist: so that trees grow."""
        account = self.accounts[study]
        growth = twisted(account, twist, node)
        tree = account.grown(growth)
        known = sorted((tree or ({}, account.parent))[1])
        query = simple(kind, known[about % len(known)], about, price)
        self.ask(study, f"sensible-{len(account.charged)}", growth, query)

    @rule(study=studies, twist=st.sampled_from(TWISTS), seed=st.integers(0, 2**32))
    def ask_often(self, study: str, twist: str, seed: int) -> None:
        """A dozen requests that are nearly in order."""
        rng = np.random.default_rng(seed)
        for i in range(12):
            price, kind = (
                Fraction(1, int(rng.choice([64, 16, 8]))),
                [CountRows, CountLabels, CountForks][i % 3],
            )
            node, about = rng.integers(0, 30, 2).tolist()
            self.ask_sensibly(study, twist if i == 11 else "none", node, about, price, kind)
            self.the_account_is_what_the_coordinator_was_told()

    @precondition(lambda self: any(account.replies for account in self.accounts.values()))
    @rule(study=studies, which=st.integers(0, 1000), backwards=st.booleans())
    def repeat(self, study: str, which: int, backwards: bool) -> None:
        """Old requests again, one or all of them in the wrong order, also to the other study's desk."""
        replies = list(self.accounts[study].replies.items())
        chosen = replies[::-1] if backwards else replies[which % len(replies) :][:1] if replies else []
        for data, reply in chosen:
            assert self.send(data, study) == reply
            other = from_bytes(self.send(data, "beta" if study == "alpha" else "alpha"))
            assert isinstance(other, Refusal)
            assert "not been granted" in other.reason

    @rule(
        study=studies,
        addressed=st.sampled_from([None, None, "gamma", "", "ALPHA", "alpha ", "alpha\x00"]),
        price=st.sampled_from(
            ["0", "-1/8", "0/1", "nan", "-inf", "1e-9", "1/0", "2/16", -1, 0, 0.125, None, "1/8"]
        ),
        node=st.sampled_from([0, 0, 0, -1, 2**53 + 1]),
    )
    def forge(self, study: str, addressed: str | None, price: Any, node: int) -> None:
        """Bytes that no honest program writes, or that are meant for somebody else."""
        to = study if addressed is None else addressed
        plain = msgpack.unpackb(
            to_bytes(Request(to, "forged", None, CountRows(np.array([0]), [Fraction(1, 8)])))
        )
        if (to, price, node) == (study, "1/8", 0):
            price = "0"
        plain["query"]["epsilons"]["distinct"] = [price]
        plain["query"]["nodes"] = np.array([node], dtype="<i8").tobytes()
        assert isinstance(from_bytes(self.send(msgpack.packb(plain), study)), Refusal)

    @rule(study=studies)
    def restart(self, study: str) -> None:
        self.start(study)

    @rule(
        study=studies,
        name=names,
        node=st.integers(0, 9),
        price=st.sampled_from([Fraction(1, 64), Fraction(1, 8)]),
        kind=st.sampled_from([CountLabels, CountForks]),
    )
    def crash_before_the_answer_is_kept(
        self, study: str, name: str, node: int, price: Fraction, kind: type[Query]
    ) -> None:
        """The charge stays, nothing has left; the same request is answered after a restart."""
        account = self.accounts[study]
        known = sorted(account.parent)
        request = Request(study, name, None, simple(kind, known[node % len(known)], node, price))
        data = to_bytes(request)
        if name in account.charged or not account.must_answer(request, self.lifetime_left(study)):
            return

        def interrupt(*_: object) -> None:
            raise Interrupted

        for twin in range(2):
            self.journals[study, twin].answered = interrupt
            try:
                self.desks[study, twin].handle(data)
            except Interrupted:
                del self.journals[study, twin].answered
            else:
                raise AssertionError("the answer was not written down before it left")
        account.charge(request, data)
        self.start(study)

    @invariant()
    def the_account_is_what_the_coordinator_was_told(self) -> None:
        for (name, _), desk in getattr(self, "desks", {}).items():
            account, ledger = self.accounts[name], desk.holder.ledger
            assert ledger.spent == account.spent() <= GRANTS[name].epsilon
            assert len(ledger.entries) == account.releases
            paths = desk.holder._paths
            split = {node: by for node, (by, _) in account.split.items()}
            assert paths.split.tolist() == [split.get(node, -1) for node in account.parent]
            assert paths.parent.tolist() == [-1 if node is None else node for node in account.parent.values()]

    @invariant()
    def every_row_is_at_one_leaf(self) -> None:
        """The partition behind the account: children divide their parent's rows."""
        for desk in getattr(self, "desks", {}).values():
            ranges = desk.holder._rows._ranges.tolist()
            parents = desk.holder._paths.parent.tolist()
            for left in range(1, len(parents), 2):
                node, right = parents[left], left + 1
                assert ranges[node] == [ranges[left][0], ranges[right][1]]
                assert ranges[left][1] == ranges[right][0]


class OnDisk(InMemory):
    """The same with files; the studies of a holder share one lifetime."""

    lifetime = LIFETIME

    def __init__(self) -> None:
        super().__init__()
        self.folder = Path(tempfile.mkdtemp())
        self.stores = [Store(self.folder / f"{twin}.db", lifetime_epsilon=LIFETIME) for twin in range(2)]
        self.journals = {}

    def start(self, name: str) -> None:
        for twin, (codes, labels) in enumerate(TABLES):
            if (name, twin) in self.journals:
                self.journals[name, twin].close()
            study: StoredStudy = self.stores[twin].open_study(GRANTS[name])
            self.journals[name, twin] = study
            self.desks[name, twin] = study.desk(GroupedRows(codes, labels, SCHEMA), SeededNoise(twin))

    @invariant()
    def the_files_say_the_same(self) -> None:
        for store in self.stores if self.journals else []:
            spent = store.spent()
            assert spent == {name: account.spent() for name, account in self.accounts.items()}
            assert sum(spent.values()) <= LIFETIME

    def teardown(self) -> None:
        for journal in self.journals.values():
            journal.close()
        shutil.rmtree(self.folder)


TestInMemory = InMemory.TestCase
TestInMemory.settings = settings(max_examples=60, stateful_step_count=40, deadline=None)
TestOnDisk = OnDisk.TestCase
TestOnDisk.settings = settings(max_examples=30, stateful_step_count=40, deadline=None)
