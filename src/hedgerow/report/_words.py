"""What the page says in words: tests, the privacy statement. Plain text; the page escapes it."""

from __future__ import annotations

import math
from dataclasses import dataclass
from decimal import ROUND_CEILING, ROUND_FLOOR, Context, Decimal

from hedgerow.record import Record
from hedgerow.schema import Numeric, Schema, Split


@dataclass(frozen=True)
class Question:
    """A split in words: as a short question, and what is true of the rows on either side."""

    question: str
    yes: str
    no: str


def in_words(split: Split, schema: Schema) -> Question:
    """A split's question and answers."""
    column = schema.columns[split.column]
    name = column.name
    if isinstance(column, Numeric):
        cut = float(column.cuts[split.last])
        exactly = repr(cut).removesuffix(".0")
        missing_left, missing_right = split.also >= 0, column.missing and split.also < 0
        return Question(
            f"{name} ≤ {cut:.6g}" + (" or missing" if missing_left else ""),
            f"{name} is at most {exactly}" + (", or missing" if missing_left else ""),
            f"{name} is above {exactly}" + (", or missing" if missing_right else ""),
        )
    if split.first == len(column.categories) + 1:
        return Question(f"{name} is missing", f"{name} is missing", f"{name} is not missing")
    category = column.categories[split.first]
    return Question(f"{name} = {category}", f"{name} is {category}", f"{name} is not {category}")


def warnings_of(record: Record | None) -> list[str]:
    """What takes the promise away, a sentence each."""
    if record is None:
        return []
    return [f"{leak[:1].upper()}{leak[1:]}." for leak in record.leaks]


WORTHLESS = 500.0  # an epsilon whose odds no one could write down


def promise(record: Record, *, evaluated: bool) -> list[str]:
    """What epsilon means for this tree, in paragraphs; an evaluation is shown outside the promise."""
    epsilon = float(record.epsilon)
    if math.isinf(epsilon):
        return ["This tree was learned without noise. It keeps no promise about any row."]
    if epsilon > WORTHLESS:
        return [f"This is differential privacy with epsilon {epsilon:g}: so weak a promise protects nobody."]
    odds = Decimal(epsilon).exp()
    if record.neighbours == "replace":
        change, guess = "any one row held other values", "which of two versions of a row is the true one"
    else:
        change = "any one row been left out, or one more been in"
        guess = "whether a particular row was used"
    several = (
        " Each data holder spends an epsilon of its own on its own rows; the others know nothing of them."
        if len(record.accounts) > 1
        else ""
    )
    weak = " An epsilon above 3 promises little." if epsilon > 3 else ""
    return [
        f"Had {change}, no outcome would be more than {_factor(odds)} times as likely, or less than "
        f"1/{_factor(odds)} times. The outcome is the tree and everything else on this page"
        f"{', but for the evaluation' if evaluated else ''}. This is differential privacy with epsilon "
        f"{epsilon:g}.{several}",
        f"Put as a wager: someone who knows everything but one row, and thinks it a toss of a coin {guess}, can "
        f"be at most {_chance(odds)} sure after seeing all that was released. Before, it was "
        f"50%.{weak}",
        "The promise holds against anybody, with any other knowledge and any computer, and nothing computed "
        "from this page can weaken it. It rests on each holder having drawn its noise as its account says; a page "
        "can only repeat that.",
    ]


def protected_not(record: Record | None) -> list[str]:
    """What epsilon does not cover, a sentence each."""
    copies = "A person with several rows, at one holder or at several, pays once for each of them"
    if record is not None and math.isfinite(record.epsilon):
        copies += f": with two rows their epsilon is {2 * float(record.epsilon):g}"
    return [
        f"{copies}.",
        "What is true of people in general. If a tree finds that smoking goes with illness, that can be said of "
        "any smoker, whether or not they were in the data.",
        "Other studies of the same rows. Their epsilons add to this one.",
        "The schema: names, bounds, categories and classes are taken to be public and must not come from the "
        "rows. Nor that the study took place, who took part, and how long it took.",
        "Rows typed into this page stay in it. But measuring a model on somebody's rows, as an evaluation does, "
        "shows something of those rows, and epsilon does not count it.",
    ]


_UP, _DOWN = Context(prec=3, rounding=ROUND_CEILING), Context(prec=3, rounding=ROUND_FLOOR)


def _factor(odds: Decimal) -> str:
    """A bound on a factor: rounded up."""
    bound = _UP.plus(odds)
    return f"{bound:f}" if bound < 1000 else f"{bound:.2e}"


def _chance(odds: Decimal) -> str:
    """A bound on the chance that odds make, in percent: what is left of doubt is rounded down."""
    bound = 100 - _DOWN.plus(100 / (1 + odds))
    return f"{bound.normalize():f}%" if odds < 10**12 else "100%"
