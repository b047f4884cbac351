"""What the commands say about a model: `hedgerow show`, `hedgerow ledger`, `hedgerow report`."""

from __future__ import annotations

import json
from collections.abc import Callable
from fractions import Fraction
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.table import Table as RichTable

from hedgerow.cli.console import AsJson, check_out, print_json, say, show_table
from hedgerow.errors import HedgerowError, InvalidModel

if TYPE_CHECKING:
    from hedgerow import PrivateTreeClassifier
    from hedgerow.record import Account, Record
    from hedgerow.tree import Tree

SQLITE = b"SQLite format 3\0"

Model = Annotated[Path, typer.Argument(help="A model, as `hedgerow train` wrote it.")]


def show(model: Model, as_json: AsJson = False) -> None:
    """Print the tree: a row that passes a test goes to the first branch."""
    loaded = load_model(model)
    if as_json:
        print_json(loaded.to_dict())
        return
    warn_if_not_private(loaded.record_)
    say(loaded.tree_.export_text())


def ledger(
    account: Annotated[Path, typer.Argument(help="A model, or a holder's store of studies (.db).")],
    as_json: AsJson = False,
) -> None:
    """What was granted and spent, on what, and what is left: of a model, or of all studies of a holder."""
    with account.open("rb") as file:
        is_store = file.read(len(SQLITE)) == SQLITE
    if is_store:
        _print_studies(account, as_json=as_json)
        return
    record = load_model(account).record_
    if record is None:
        raise HedgerowError(
            f"{account} does not say how it was trained; ask its holders for their accounts of the study."
        )
    if as_json:
        print_json(record.to_dict())
        return
    warn_if_not_private(record)
    for number, holder in enumerate(record.accounts, start=1):
        say(account_sentence(number, holder))
        table = RichTable(
            "depth", "what", "by", "releases", "epsilon of one", "paid by the rows that paid most"
        )
        for line in holder.lines:
            prices = dict.fromkeys((number_text(line.least), number_text(line.most)))
            cells = (line.what, line.mechanism, str(line.releases), " to ".join(prices))
            table.add_row(str(line.depth), *cells, number_text(line.paid))
        show_table(table)


def report(
    model: Model,
    out: Annotated[Path, typer.Option(help="Where to write the page.")] = Path("report.html"),
    evaluation: Annotated[
        Path | None, typer.Option(help="What `hedgerow evaluate --json` printed, to be shown on the page.")
    ] = None,
) -> None:
    """Write a page that shows the tree, what it cost, and what that means; it needs no network."""
    from hedgerow.report import write_report

    check_out(out, [model, *([evaluation] if evaluation else [])])
    loaded = load_model(model)
    write_report(loaded, out, None if evaluation is None else _read_evaluation(evaluation, loaded.tree_))
    say(f"The report is in {out}.")
    warn_if_not_private(loaded.record_)


def _print_studies(path: Path, *, as_json: bool) -> None:
    from hedgerow.holder.store import Store

    store = Store(path)
    granted, spent = store.granted(), store.spent()
    if as_json:
        print_json([{"study": s, "granted": str(granted[s]), "spent": str(spent[s])} for s in granted])
        return
    for study, epsilon in granted.items():
        granted_to, paid, left = map(number_text, (epsilon, spent[study], epsilon - spent[study]))
        say(f"{study} was granted epsilon {granted_to}, spent {paid}, has {left} left.")
    say(f"All studies together have spent epsilon {number_text(sum(spent.values(), Fraction(0)))}.")


def _read_evaluation(path: Path, tree: Tree) -> dict[str, Any]:
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except ValueError:
        found = None
    if not isinstance(found, dict) or not isinstance(found.get("accuracy"), float) or "tree" not in found:
        raise HedgerowError(f"{path} is not what `hedgerow evaluate --json` prints.")
    if found["tree"] != tree.hash:
        raise HedgerowError(f"{path} is about another tree; evaluate this one.")
    return found


def load_model(path: Path) -> PrivateTreeClassifier:
    """The model; errors name its file."""
    from hedgerow import PrivateTreeClassifier

    try:
        return PrivateTreeClassifier.load(path)
    except InvalidModel as error:
        raise InvalidModel(f"{path}: {error}") from None


def warn_if_not_private(record: Record | None, tell: Callable[[str], None] = say) -> None:
    """Say loudly what protects nobody."""
    for leak in record.leaks if record else ():
        tell(f"NOT PRIVATE: {leak}.")


def account_sentence(number: int, account: Account) -> str:
    """One holder's account."""
    granted, spent, left = map(number_text, (account.granted, account.spent, account.left))
    return f"Holder {number} granted epsilon {granted}, spent {spent}, has {left} left."


def number_text(epsilon: Fraction | float) -> str:
    """An exact epsilon, short enough to read."""
    return f"{float(epsilon):.6g}"
