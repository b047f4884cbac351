"""A holder's file as codes: read in blocks, so that the table as text is never in memory as a whole.

CSV with the standard library; Parquet if pyarrow is installed. No error quotes a value.
"""

from __future__ import annotations

import csv
import math
from collections.abc import Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hedgerow.encoding import Codes, encode, encode_labels
from hedgerow.errors import InvalidTable
from hedgerow.schema import Categorical, Schema

BLOCK = 65_536

Columns = dict[str, list[Any]]


def read_codes(path: Path, schema: Schema) -> tuple[Codes, NDArray[Any]]:
    """The rows and labels of a `.csv` or `.parquet` file, encoded by the schema."""
    if not path.is_file():
        raise InvalidTable(f"there is no data file {path}.")
    if path.suffix.lower() == ".csv":
        blocks = _csv_blocks(path, schema)
    elif path.suffix.lower() == ".parquet":
        blocks = _parquet_blocks(path, schema)
    else:
        raise InvalidTable(f"{path.name} is neither .csv nor .parquet.")
    codes, labels = [], []
    for block in blocks:
        label = encode_labels(np.array(block.pop(schema.label), dtype=object), schema)
        table = np.empty((len(label), len(schema.names)), dtype=object)
        for i, name in enumerate(schema.names):
            table[:, i] = block[name]
        codes.append(encode(table, schema))
        labels.append(label)
    if not codes:
        raise InvalidTable(f"{path.name} has no rows.")
    narrow = np.concatenate([block.narrow for block in codes])
    wide = np.concatenate([block.wide for block in codes])
    return Codes(narrow, wide, codes[0].places), np.concatenate(labels)


def _csv_blocks(path: Path, schema: Schema) -> Iterator[Columns]:
    readers = {name: _reader(schema, name) for name in (*schema.names, schema.label)}
    with path.open(newline="", encoding="utf-8") as file:
        lines = csv.reader(file)
        header = next(lines, [])
        if missing := [name for name in readers if name not in header]:
            raise InvalidTable(f"{path.name} has no column {', '.join(map(repr, missing))}.")
        places = {name: header.index(name) for name in readers}
        number = 2
        while rows := list(islice(lines, BLOCK)):
            for i, row in enumerate(rows):
                if len(row) != len(header):
                    raise InvalidTable(
                        f"{path.name}, row {number + i}: {len(row)} fields, not {len(header)}."
                    )
            yield {name: _read(readers[name], rows, place, name) for name, place in places.items()}
            number += len(rows)


def _read(reader: Any, rows: Sequence[Sequence[str]], place: int, name: str) -> list[Any]:
    try:
        return [reader(row[place]) for row in rows]
    except ValueError as error:
        raise InvalidTable(f"column {name!r} has a value that is not a number.") from error.__cause__


def _reader(schema: Schema, name: str) -> Any:
    """From a field's text to the column's kind of value; an empty field is missing."""
    values: Sequence[Any] | None = schema.classes
    if name != schema.label:
        column = schema.columns[schema.names.index(name)]
        values = column.categories if isinstance(column, Categorical) else None
    if values is None:
        return lambda text: float(text) if text else math.nan
    known = {str(value): value for value in values}
    return lambda text: known.get(text, text or None)


def _parquet_blocks(path: Path, schema: Schema) -> Iterator[Columns]:
    try:
        from pyarrow import parquet
    except ImportError as error:
        raise InvalidTable("reading .parquet needs pyarrow: pip install pyarrow, or give a .csv.") from error
    wanted = [*schema.names, schema.label]
    file = parquet.ParquetFile(path)
    if missing := [name for name in wanted if name not in file.schema_arrow.names]:
        raise InvalidTable(f"{path.name} has no column {', '.join(map(repr, missing))}.")
    for batch in file.iter_batches(batch_size=BLOCK, columns=wanted):
        yield batch.to_pydict()
