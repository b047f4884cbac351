"""How a tree was trained, in a form that is kept with the model: plan, accounts, what was not private.

All of it is public or follows from released numbers. Imports `privacy.ledger`; nothing is built from a file
before all of it has been checked.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

from hedgerow.errors import InvalidModel
from hedgerow.privacy.ledger import NEIGHBOURS, Entry, Ledger
from hedgerow.repeated import Epsilon

RECORD_VERSION = 1


@dataclass(frozen=True)
class Line:
    """All releases of one kind at one depth (the root's is 1).

    One of them cost `least` to `most`; rows that paid the most in all paid `paid` for this.
    """

    depth: int
    what: str
    mechanism: str
    releases: int
    least: Epsilon
    most: Epsilon
    paid: Epsilon


@dataclass(frozen=True)
class Account:
    """What one holder granted and spent, and on what; what the lines say was `paid` adds up to `spent`."""

    granted: Epsilon
    spent: Epsilon
    lines: tuple[Line, ...]

    @classmethod
    def of(cls, ledger: Ledger) -> Account:
        """The account of a ledger, with its entries summed up."""
        groups: dict[tuple[int, str, str], list[Epsilon]] = {}
        for entry in ledger.entries:
            groups.setdefault(_kind(entry), []).append(entry.epsilon)
        paid: dict[tuple[int, str, str], Epsilon] = dict.fromkeys(groups, Fraction(0))
        for entry in ledger.dearest:
            paid[_kind(entry)] += entry.epsilon
        lines = tuple(
            Line(*kind, len(prices), min(prices), max(prices), paid[kind])
            for kind, prices in sorted(groups.items())
        )
        return cls(ledger.grant, ledger.spent, lines)

    @property
    def left(self) -> Epsilon:
        """What rows that paid the most could still be charged."""
        return self.granted - self.spent if math.isfinite(self.granted) else self.granted


@dataclass(frozen=True)
class Record:
    """One training: `plan` in sentences, the account of each holder, `leaks` outside all accounts."""

    neighbours: str
    leaks: tuple[str, ...]
    plan: tuple[str, ...]
    traffic: str
    accounts: tuple[Account, ...]

    @classmethod
    def of(cls, ledgers: Sequence[Ledger], plan: str, traffic: str) -> Record:
        """The record of a training that has just ended."""
        neighbours, leaks = ledgers[0].neighbours, ledgers[0].leaks
        return cls(neighbours, leaks, tuple(plan.splitlines()), traffic, tuple(map(Account.of, ledgers)))

    @property
    def epsilon(self) -> Epsilon:
        """The most that any holder granted."""
        return max(account.granted for account in self.accounts)

    def to_dict(self) -> dict[str, Any]:
        """Plain values for JSON; every epsilon is an exact fraction, as text."""
        return {
            "version": RECORD_VERSION,
            "neighbours": self.neighbours,
            "leaks": list(self.leaks),
            "plan": list(self.plan),
            "traffic": self.traffic,
            "holders": [
                {
                    "granted": str(account.granted),
                    "spent": str(account.spent),
                    "lines": [_texts(vars(line)) for line in account.lines],
                }
                for account in self.accounts
            ],
        }

    @classmethod
    def from_dict(cls, plain: Any) -> Record:
        """The inverse of `to_dict`; raises `InvalidModel` with the reason."""
        if _field(plain, "version", int) != RECORD_VERSION:
            raise InvalidModel(f"the training record has a version that is not {RECORD_VERSION}.")
        if (neighbours := _field(plain, "neighbours", str)) not in NEIGHBOURS:
            raise InvalidModel(f"the training record has neighbours={neighbours!r}.")
        accounts = tuple(_account(holder) for holder in _field(plain, "holders", list))
        if not accounts:
            raise InvalidModel("the training record names no holder.")
        leaks, plan = _sentences(plain, "leaks"), _sentences(plain, "plan")
        return cls(neighbours, leaks, plan, _field(plain, "traffic", str), accounts)


def _kind(entry: Entry) -> tuple[int, str, str]:
    return entry.depth, entry.what, entry.mechanism


def _texts(line: Mapping[str, Any]) -> dict[str, Any]:
    return {key: str(value) if isinstance(value, Fraction | float) else value for key, value in line.items()}


def _account(plain: Any) -> Account:
    lines = tuple(
        Line(
            _field(line, "depth", int),
            _field(line, "what", str),
            _field(line, "mechanism", str),
            _field(line, "releases", int),
            _epsilon(line, "least"),
            _epsilon(line, "most"),
            _epsilon(line, "paid"),
        )
        for line in _field(plain, "lines", list)
    )
    account = Account(_epsilon(plain, "granted"), _epsilon(plain, "spent"), lines)
    if account.spent > account.granted or sum(line.paid for line in lines) != account.spent:
        raise InvalidModel("the training record's sums are wrong; the file was changed.")
    return account


def _field(plain: Any, key: str, kind: type[Any]) -> Any:
    value = plain.get(key) if isinstance(plain, Mapping) else None
    if type(value) is not kind:
        raise InvalidModel(f"the training record has {key}={value!r}; the file is damaged.")
    return value


def _sentences(plain: Any, key: str) -> tuple[str, ...]:
    sentences = _field(plain, key, list)
    if not all(isinstance(sentence, str) for sentence in sentences):
        raise InvalidModel(f"the training record's {key} are not sentences; the file is damaged.")
    return tuple(sentences)


def _epsilon(plain: Any, key: str) -> Epsilon:
    text = _field(plain, key, str)
    if text == "inf":
        return math.inf
    try:  # without an exponent: that of 1e999999999 would be worked out for years
        epsilon = Fraction(text) if re.fullmatch(r"[0-9]+(/[1-9][0-9]*)?", text, re.ASCII) else None
        float(epsilon or 0)
    except (ValueError, OverflowError):
        epsilon = None
    if epsilon is None:
        raise InvalidModel(f"the training record has {key}={text[:40]!r}; the file is damaged.")
    return epsilon
