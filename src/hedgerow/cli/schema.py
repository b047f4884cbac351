"""`hedgerow schema draft` and `hedgerow schema check`."""

from __future__ import annotations

import math
import tomllib
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from hedgerow.cli.console import AsJson, Force, LineBreaks, check_out, hint, print_json, progress, say
from hedgerow.errors import InvalidSchema, InvalidTable
from hedgerow.files import write_text
from hedgerow.schema import Numeric, Schema, toml_value

if TYPE_CHECKING:
    import pyarrow as pa

    from hedgerow.owner import RowReview

schema_app = typer.Typer(help="What is public about a table.", no_args_is_help=True)

HEAD = """\
# What everybody may know about the table before a row of it is read. This draft has the names of the columns of
# {file!r}, and of each the kind that {kinds}.
# Correct what is wrong; bounds, categories and classes are yours to fill in.
#
# They must not be read from the rows: the highest age in a table is somebody's age, and a category that occurs
# once is somebody. Take them from a form, a code book, a law or common sense, as if the table were still empty.
# Values outside the bounds count as the bound; categories that are not named count together as one.
#
# Remove columns that should play no part. `hedgerow schema check` says what is still missing.

version = 1
"""


@schema_app.command()
def draft(
    data: Annotated[str, typer.Argument(help="A .csv or .parquet file; - for CSV on standard input.")],
    label: Annotated[str | None, typer.Option(help="The column that is to be predicted.")] = None,
    out: Annotated[Path | None, typer.Option(help="Where to write it; else it is printed.")] = None,
    line_breaks: LineBreaks = False,
    force: Force = False,
) -> None:
    """Write a schema with a table's columns, a guess at their kinds, and gaps for a person to fill in."""
    from hedgerow.tables import TableFile

    if out is not None and out.suffix != ".toml":
        raise InvalidSchema(f"{out}: a draft has gaps and comments, so its name must end in .toml.")
    check_out(out, [data], force=force)
    file = TableFile(data, line_breaks=line_breaks)
    types = file.types()
    if label is not None and label not in types:
        raise InvalidTable(f"{file.name} has no column {label!r}.")
    if not file.declares_types and any(map(_is_number, types)):
        hint(
            f"Some names are numbers. If {file.name} begins with a row, put a line with the names before it."
        )
    kinds = "its type suggests" if file.declares_types else "the first rows suggest"
    text = HEAD.format(file=file.name, kinds=kinds) + _label(label)
    text += "".join(_column(name, kind) for name, kind in types.items() if name != label)
    if out is None:
        typer.echo(text, nl=False)
    else:
        write_text(out, text)
        say(f"The draft is in {out}; fill in the gaps, then: hedgerow schema check {out}")


@schema_app.command()
def check(
    schema: Annotated[Path, typer.Argument(help="The schema, .toml or .json.")],
    data: Annotated[
        list[str] | None, typer.Option(help="Also try to read this table by it: .csv or .parquet.")
    ] = None,
    line_breaks: LineBreaks = False,
    as_json: AsJson = False,
) -> None:
    """Say what a schema still lacks, or what it offers; and whether tables can be read by it."""
    found = _load(schema)
    for path in data or ():
        _try_to_read(path, found, line_breaks=line_breaks)
    if as_json:
        facts = {"columns": list(found.names), "classes": list(found.classes), "splits": len(found.splits)}
        print_json({"hash": found.hash, "label": found.label} | facts)
        return
    say(
        f"{schema} is complete: {len(found.columns)} columns, {len(found.splits)} candidate splits, "
        f"{found.n_classes} classes of {found.label!r}.\nIts hash is {found.hash}."
    )
    if found.n_classes == 1:
        hint(f"There is one class of {found.label!r}, so there is nothing to predict.")
    for path in data or ():
        say(f"{path} can be read by it.")


def _load(path: Path) -> Schema:
    """The schema, or all that is wrong with it, a sentence each."""
    try:
        return Schema.load(path)
    except InvalidSchema:
        if path.suffix != ".toml" or len(gaps := _gaps(path)) < 2:
            raise
    raise InvalidSchema("\n".join(gaps))


def _gaps(path: Path) -> list[str]:
    """What is wrong with each column alone, and with the rest."""
    try:
        plain = tomllib.loads(path.read_text(encoding="utf-8"))
    except ValueError:  # not TOML, or not text
        return []
    columns = plain.get("columns")
    fine = Schema([Numeric("\0", 0, 1)], label="label", classes=[0]).to_dict()
    rest = plain | {"columns": fine["columns"]}
    alone = [fine | {"columns": [column]} for column in (columns if isinstance(columns, list) else ())]
    sentences = []
    for part in (rest, *alone):
        try:
            Schema.from_dict(part)
        except InvalidSchema as error:
            sentences.append(str(error))
    return sentences


def _try_to_read(path: str, schema: Schema, *, line_breaks: bool) -> None:
    """Read a table, and tell its owner how it fits the schema."""
    from hedgerow.tables import TableFile

    file = TableFile(path, line_breaks=line_breaks)
    review = file.review(schema)
    with progress(f"reading {file.name}") as done:
        for block in file.blocks(schema, labels=True, review=review):
            done(block.done)
    tell_owner(file.name, review)


def tell_owner(file: str, review: RowReview) -> None:
    """Hint at what the owner of the rows should know of them."""
    from hedgerow.owner import MUST_NOT_BE_PUBLISHED

    if sentences := review.sentences():
        hint("\n".join(f"{file}: {sentence}" for sentence in sentences))
        hint(MUST_NOT_BE_PUBLISHED)


def _is_number(name: str) -> bool:
    try:
        return math.isfinite(float(name))
    except ValueError:
        return False


def _label(label: str | None) -> str:
    if label is None:
        return "# label =     # the column to predict; take it out of the columns below\n# classes = []  # all that it can be\n"
    return f"label = {toml_value(label)}\n# classes = []  # all that it can be, whether it occurs or not\n"


def _column(name: str, kind: pa.DataType) -> str:
    import pyarrow as pa

    lines = ["", "[[columns]]", f"name = {toml_value(name)}"]
    if pa.types.is_dictionary(kind):
        kind = kind.value_type
    if pa.types.is_boolean(kind):
        lines += ['kind = "categorical"', "categories = [true, false]"]
    elif pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_decimal(kind):
        lines += ['kind = "numeric"  # or "categorical" with `categories`, if the numbers are mere names']
        lines += ["# low =   # the smallest value that is possible, not the smallest that is there"]
        lines += ["# high =  # the largest that is possible", "thresholds = 10"]
    elif pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_string_view(kind):
        lines += [
            'kind = "categorical"',
            "# categories = []  # all that are possible, whether they occur or not",
        ]
    else:
        # The type is not named: it may have names and values in it.
        return f"\n# {name!r} is left out: what it holds has to be made a number or a category first.\n"
    return (
        "\n".join([*lines, "missing = false  # true if values may be missing, whether any are or not"]) + "\n"
    )
