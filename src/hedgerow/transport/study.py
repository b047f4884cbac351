"""A study: what the coordinator and the holders agree on before anything is asked. All of it is public.

People write it as `study.toml`; the coordinator's job carries it as JSON. Both are checked here.
"""

from __future__ import annotations

import json
import math
import tomllib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from fractions import Fraction
from pathlib import Path
from typing import Any

from hedgerow.budget import SCHEDULES
from hedgerow.criteria import Criterion
from hedgerow.encoding import MAX_ROWS
from hedgerow.errors import HedgerowError
from hedgerow.files import write_text
from hedgerow.holder.desk import LEAST_PRICE, OF_ONE_HOLDER, QUERIES
from hedgerow.privacy.ledger import NEIGHBOURS
from hedgerow.privacy.selectors import SELECTORS
from hedgerow.repeated import as_written
from hedgerow.schema import Schema
from hedgerow.transport import HOST, NAME

LOST = ("wait", "abort", "continue")
RESERVED = ("authority", "coordinator", "localhost")  # names of other parties

CHOICES: dict[str, tuple[str, ...]] = {
    "method": ("auto", *QUERIES),
    "selector": ("auto", *SELECTORS),
    "criterion": ("auto", *(criterion.name for criterion in Criterion)),
    "budget": ("auto", *SCHEDULES),
    "neighbours": NEIGHBOURS,
    "when_a_holder_is_lost": LOST,
}


class InvalidStudy(HedgerowError, ValueError):
    """The description of a study contradicts itself or leaves something out."""


@dataclass(frozen=True)
class Study:
    """One tree, learned from several holders. The name is the account under which every holder books it."""

    name: str
    schema: Schema
    epsilon: float
    holders: tuple[str, ...]
    server: str
    port: int = 8002
    method: str = "auto"
    selector: str = "auto"
    criterion: str = "auto"
    budget: str = "auto"
    neighbours: str = "add-remove"
    leaf_fraction: float | None = None
    max_splits: int = 512
    max_depth: int | None = None
    target_error: float | None = None
    min_gain: float | None = None
    max_rows: int = MAX_ROWS
    least_price: float = float(LEAST_PRICE)  # of epsilon: no release is planned that costs less
    when_a_holder_is_lost: str = "wait"
    answer_seconds: float = 600.0  # without an answer for so long, a holder counts as lost
    return_minutes: float = 60.0  # how long a lost holder is waited for, if the study waits

    def __post_init__(self) -> None:
        if not NAME.fullmatch(self.name):
            raise InvalidStudy(f"name = {self.name!r}; use letters, digits, - and _, at most 63 of them.")
        if not HOST.fullmatch(self.server):
            raise InvalidStudy(f"server = {self.server!r}; give the name by which holders reach the server.")
        if not self.holders or len(set(self.holders)) < len(self.holders):
            raise InvalidStudy("holders must be a list of at least one name, all different.")
        for holder in self.holders:
            if not NAME.fullmatch(holder) or holder.lower() in (*RESERVED, self.server.lower()):
                raise InvalidStudy(
                    f"the holder's name {holder!r} cannot be used; use letters, digits, - and _, and none of "
                    f"{', '.join(RESERVED)}."
                )
        for name, allowed in CHOICES.items():
            if (value := getattr(self, name)) not in allowed:
                raise InvalidStudy(f"{name} = {value!r}; choose one of {', '.join(allowed)}.")
        if len(self.holders) > 1 and self.method in OF_ONE_HOLDER:
            others = [name for name in CHOICES["method"] if name not in OF_ONE_HOLDER]
            raise InvalidStudy(
                f"method = {self.method!r} selects at one holder, but there are {len(self.holders)}; "
                f"choose {', '.join(others)}."
            )
        a_cost = "a positive finite number: there is always noise"
        _check_number("epsilon", self.epsilon, lambda v: 0 < v < math.inf, a_cost)
        for name, most in (("answer_seconds", 86_400), ("return_minutes", 100_000)):
            _check_number(name, getattr(self, name), _up_to(most), f"a number above 0 and at most {most}")
        whole = {"port": 65_535, "max_splits": 2**19, "max_rows": MAX_ROWS}
        for name, most in (whole | ({} if self.max_depth is None else {"max_depth": 64})).items():
            _check_number(name, getattr(self, name), _up_to(most), f"a whole number from 1 to {most}", (int,))
        _check_number(
            "least_price", self.least_price, lambda v: 0 < v < 1, "a share of epsilon, between 0 and 1"
        )
        for name in ("target_error", "min_gain"):
            if (value := getattr(self, name)) is not None:
                _check_number(name, value, lambda v: 0 <= v <= 1, "a number from 0 to 1")
        if self.leaf_fraction is not None:
            _check_number(
                "leaf_fraction", self.leaf_fraction, lambda v: 0 < v < 1, "a number between 0 and 1"
            )

    @property
    def exact_least_price(self) -> Fraction:
        """The share of epsilon below which no release is planned, exactly as it was written."""
        return as_written(self.least_price)

    @property
    def exact_epsilon(self) -> Fraction:
        """What each holder is asked to grant: the decimal number as it was written, exactly."""
        return as_written(self.epsilon)

    def greeting(self, method: str) -> dict[str, str]:
        """What a holder is asked before anything else: whether it takes part on these terms."""
        return {
            "study": self.name,
            "schema": self.schema.hash,
            "epsilon": str(self.exact_epsilon),
            "neighbours": self.neighbours,
            "method": method,
            "least_price": str(self.exact_least_price * self.exact_epsilon),
        }

    def to_dict(self) -> dict[str, Any]:
        """Plain values for a job's configuration."""
        plain = {f.name: getattr(self, f.name) for f in fields(self)}
        return plain | {"schema": self.schema.to_dict(), "holders": list(self.holders)}

    @classmethod
    def from_dict(cls, plain: Mapping[str, Any], folder: Path = Path()) -> Study:
        """The inverse of `to_dict`; `schema` may be a file's name, relative to `folder`."""
        known = {f.name: f for f in fields(cls)}
        if unknown := sorted(plain.keys() - known.keys()):
            raise InvalidStudy(f"a study has no {', '.join(unknown)}; it has {', '.join(known)}.")
        values = dict(plain)
        for name in ("name", "schema", "epsilon", "holders", "server"):
            if name not in values:
                raise InvalidStudy(f"the study does not say its {name}.")
        for name in ("name", "server"):
            if not isinstance(values[name], str):
                raise InvalidStudy(f"{name} must be text.")
        if not isinstance(values["holders"], list) or not all(isinstance(h, str) for h in values["holders"]):
            raise InvalidStudy("holders must be a list of names.")
        values["holders"] = tuple(values["holders"])
        if isinstance(values["schema"], str):
            path = folder / values["schema"]
            if not path.is_file():
                raise InvalidStudy(f"there is no schema file {path}.")
            values["schema"] = Schema.load(path)
        else:
            values["schema"] = Schema.from_dict(values["schema"])
        return cls(**values)

    @classmethod
    def load(cls, path: Path) -> Study:
        """Read `study.toml`."""
        return cls.from_dict(read_toml(path), path.resolve().parent)


def write_study(study: Study, path: Path) -> None:
    """Write `study.toml`, and its schema beside it."""
    study.schema.save(path.with_name("schema.toml"))
    plain = study.to_dict() | {"schema": "schema.toml"}
    # A TOML value of these kinds is written as JSON writes one.
    lines = [f"{name} = {json.dumps(value)}" for name, value in plain.items() if value is not None]
    write_text(path, "\n".join(lines) + "\n")


def read_toml(path: Path) -> dict[str, Any]:
    """A TOML file as plain values, or a sentence about what is wrong with it."""
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError as error:
        raise InvalidStudy(f"there is no file {path}.") from error
    except OSError as error:
        raise InvalidStudy(f"{path} cannot be read: {error.strerror}.") from error
    except ValueError as error:
        raise InvalidStudy(f"{path} cannot be read as TOML: {error}.") from error


def _up_to(most: int) -> Callable[[Any], bool]:
    return lambda value: 0 < value <= most


def _check_number(
    name: str,
    value: Any,
    is_valid: Callable[[Any], bool],
    expected: str,
    kinds: tuple[type, ...] = (int, float),
) -> None:
    if not isinstance(value, kinds) or isinstance(value, bool) or not is_valid(value):
        raise InvalidStudy(f"{name} = {value!r}; it must be {expected}.")
