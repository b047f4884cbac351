"""Tables in files, read and written block by block: a table is never in memory as a whole.

Parquet, CSV, and CSV on standard input. No error quotes a value. Imports `encoding`, `owner` and `schema`.
"""

from __future__ import annotations

import csv
import os
import re
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray
from pyarrow import csv as arrow_csv
from pyarrow import parquet

from hedgerow.csv_rows import RowBlock, row_blocks
from hedgerow.encoding import MAX_ROWS, Codes, column_places, encode, encode_labels, first_repeated
from hedgerow.errors import InvalidTable
from hedgerow.files import STANDARD, replacing
from hedgerow.owner import RowReview
from hedgerow.schema import Categorical, Numeric, Schema, Value

KINDS = (".csv", ".parquet")
BLOCK_ROWS = 32_768
BLOCK_BYTES = 2**20  # of CSV; a longer row is refused
READ_AHEAD = 2**16  # bytes of each column of a Parquet file; without, whole row groups would be in memory
# What stands for a missing value in CSV, unless the schema names it as a category.
NOTHING = ("", "NA", "N/A", "NaN", "nan", "NULL", "null", "None")
# Arrow goes on to quote the row. Its handler of such rows would have to be Python, called in Arrow's own thread.
RAGGED = re.compile(r"Row #(\d+): Expected (\d+) columns, got (\d+)")


@dataclass(frozen=True)
class Block:
    """Some rows of a file: codes, labels (none if they were not asked for), columns kept as they are.

    `done` is the share of the file that has been read, None where nobody knows.
    """

    codes: Codes
    labels: NDArray[Any]
    kept: pa.Table
    done: float | None


class TableFile:
    """A file with named columns; `-` is CSV on standard input.

    Each line of CSV below the first is a row; a file with a line that ends inside a quote is refused. With
    `line_breaks`, values between quotes may have line breaks: then one row with a stray quote can change others.
    """

    def __init__(self, path: str | Path, *, line_breaks: bool = False) -> None:
        self.name = "standard input" if str(path) == STANDARD else Path(path).name or str(path)
        suffix = ".csv" if str(path) == STANDARD else Path(path).suffix.lower()
        if suffix not in KINDS:
            raise InvalidTable(f"{self.name} is neither .csv nor .parquet.")
        with self._sentences():
            self._source: _Csv | _Parquet = (
                _Csv(path, line_breaks=line_breaks) if suffix == ".csv" else _Parquet(path)
            )
        self.names: Sequence[str] = self._source.names
        if repeated := first_repeated(self.names):
            first, second = repeated
            raise InvalidTable(f"{self.name}: columns {first} and {second} have the same name; rename one.")

    @property
    def n_rows(self) -> int | None:
        """Number of rows, where the file says it; private."""
        return self._source.n_rows

    @property
    def declares_types(self) -> bool:
        """Whether the file itself says what its columns hold."""
        return isinstance(self._source, _Parquet)

    def types(self) -> dict[str, pa.DataType]:
        """The type of each column: of Parquet as declared, of CSV as the first rows look."""
        with self._sentences():
            return self._source.types()

    def review(self, schema: Schema) -> RowReview:
        """What `blocks` can show the rows to, for their owner: how they fit the schema."""
        return RowReview(self._source.as_stored(schema))

    def blocks(
        self,
        schema: Schema,
        *,
        labels: bool = False,
        keep: Sequence[str] = (),
        review: RowReview | None = None,
    ) -> Iterator[Block]:
        """All rows, encoded by the schema; columns that it does not name are left aside."""
        wanted = [*schema.names, *([schema.label] if labels else []), *keep]
        if missing := [name for name in wanted if name not in self.names]:
            how = "" if self.declares_types else ", which its first line should name, between commas"
            raise InvalidTable(f"{self.name} lacks the column {missing[0]!r}{how}.")
        known = self._source.as_stored(schema)
        with self._sentences():
            for table, done in self._source.read(list(dict.fromkeys(wanted))):
                parsed = self._source.parse(table, schema)
                classes = encode_labels(parsed[schema.label] if labels else [], known)
                rows = parsed.select(schema.names)
                codes = encode(rows, known)
                if review is not None:
                    review.see(rows, codes, classes)
                yield Block(codes, classes, table.select(keep), done)
        pa.default_memory_pool().release_unused()  # Arrow would keep it, and what follows needs it

    @contextmanager
    def _sentences(self) -> Iterator[None]:
        """Errors name the file; what Arrow says is not passed on, for it quotes values."""
        try:
            yield
        except InvalidTable as error:
            raise type(error)(f"{self.name}: {error}") from None
        except csv.Error:
            raise InvalidTable(
                f"{self.name} has a first line that cannot be read; do its lines end as usual?"
            ) from None
        except UnicodeDecodeError:
            raise InvalidTable(f"{self.name} is not text in UTF-8; convert it.") from None
        except pa.ArrowCancelled:
            raise KeyboardInterrupt from None
        except (pa.ArrowException, OSError) as error:
            if isinstance(error, OSError) and error.errno is not None:
                raise OSError(error.errno, error.strerror, error.filename or self.name) from None
            utf8 = "UTF8" in str(error)
            reason = "is not text in UTF-8; convert it" if utf8 else "is damaged, or not what its name says"
            raise InvalidTable(f"{self.name} {reason}.") from None


def read_codes(
    path: str | Path,
    schema: Schema,
    tell_owner: Callable[[str], None] | None = None,
    *,
    line_breaks: bool = False,
) -> tuple[Codes, NDArray[Any]]:
    """The rows and labels of a file, encoded by the schema. No rows are rows too: nobody must see the difference.

    `tell_owner` is called with each sentence about how the rows fit the schema; nobody else may hear it.
    """
    file = TableFile(path, line_breaks=line_breaks)
    rows, review = EncodedRows(schema, file.n_rows), None if tell_owner is None else file.review(schema)
    for block in file.blocks(schema, labels=True, review=review):
        rows.append(block)
    if tell_owner is not None and review is not None:
        for sentence in review.sentences():
            tell_owner(sentence)
    return rows.codes, rows.labels


@contextmanager
def table_writer(path: str | Path) -> Iterator[Callable[[pa.Table], None]]:
    """A function that adds a table to a new file, which appears as a whole; `-` is CSV on standard output."""
    suffix = ".csv" if str(path) == STANDARD else Path(path).suffix.lower()
    if suffix not in KINDS:
        raise InvalidTable(f"{path} ends in neither .csv nor .parquet; name the output so.")
    with nullcontext(sys.stdout.buffer) if str(path) == STANDARD else replacing(path) as file:
        writers: list[arrow_csv.CSVWriter | parquet.ParquetWriter] = []
        make = arrow_csv.CSVWriter if suffix == ".csv" else parquet.ParquetWriter

        def write(table: pa.Table) -> None:
            if not writers:  # the first table says what all are like
                writers.append(make(file, table.schema))
            writers[0].write_table(table)

        yield write
        for writer in writers:
            writer.close()
        file.flush()


class EncodedRows:
    """Codes and labels that blocks are appended to.

    Where the number of rows is known in advance there is never more than one copy of them. Where it is not,
    the arrays double; the half that is not written yet takes no memory.
    """

    def __init__(self, schema: Schema, n_rows: int | None = None) -> None:
        self._places = column_places(schema)
        n_wide = int(self._places[:, 0].sum())
        room = BLOCK_ROWS if n_rows is None else n_rows
        self._arrays: list[NDArray[Any]] = [
            np.empty((room, len(self._places) - n_wide), dtype=np.uint8),
            np.empty((room, n_wide), dtype=np.uint16),
            np.empty(room, dtype=encode_labels([], schema).dtype),
        ]
        self._n_rows = 0

    def __len__(self) -> int:
        return self._n_rows

    def append(self, block: Block) -> None:
        """Add rows with their labels."""
        start, stop = self._n_rows, self._n_rows + block.codes.n_rows
        if stop > MAX_ROWS:
            raise InvalidTable(f"a table may have at most {MAX_ROWS} rows.")
        if stop > len(self._arrays[0]):
            self._make_room(max(stop, 2 * start))
        for array, rows in zip(
            self._arrays, (block.codes.narrow, block.codes.wide, block.labels), strict=True
        ):
            array[start:stop] = rows
        self._n_rows = stop

    def _make_room(self, n_rows: int) -> None:
        for array in self._arrays:  # in place: nobody has a view of them yet
            array.resize((n_rows, *array.shape[1:]), refcheck=False)

    @property
    def codes(self) -> Codes:
        """All rows so far; a view."""
        return Codes(self._arrays[0][: self._n_rows], self._arrays[1][: self._n_rows], self._places)

    @property
    def labels(self) -> NDArray[Any]:
        """Their labels; a view."""
        return self._arrays[2][: self._n_rows]


class _Parquet:
    """Values of the columns' own types."""

    def __init__(self, path: str | Path) -> None:
        with Path(path).open("rb"):  # Python's errors say which file and why
            self._file = parquet.ParquetFile(path, buffer_size=READ_AHEAD, pre_buffer=False)
        self.names: list[str] = self._file.schema_arrow.names
        self.n_rows: int = self._file.metadata.num_rows

    def types(self) -> dict[str, pa.DataType]:
        return {field.name: field.type for field in self._file.schema_arrow}

    def read(self, columns: Sequence[str]) -> Iterator[tuple[pa.Table, float | None]]:
        """Blocks of the columns as they are stored, at least one, and how much of the file has been read."""
        if not self.n_rows:
            yield self._file.schema_arrow.empty_table().select(columns), 1.0
            return
        seen = 0
        for batch in self._file.iter_batches(BLOCK_ROWS, columns=columns, use_threads=False):
            seen += batch.num_rows
            yield pa.Table.from_batches([batch]), seen / self.n_rows

    def as_stored(self, schema: Schema) -> Schema:
        """The schema that gives what `parse` makes of the stored values the codes of `schema`."""
        return schema

    def parse(self, table: pa.Table, schema: Schema) -> pa.Table:
        """The columns of the schema, with values of the kinds that `as_stored` has."""
        del schema
        return table


class _Csv:
    """Text, which the schema says how to read: what looks like a number may be a category."""

    n_rows = None

    def __init__(self, path: str | Path, *, line_breaks: bool) -> None:
        self._path, self._line_breaks = str(path), line_breaks
        if self._path == STANDARD:
            self._size, header = None, sys.stdin.buffer.readline()
        else:
            with Path(path).open("rb") as file:
                self._size, header = os.fstat(file.fileno()).st_size, file.readline()
        self._start = len(header)
        if not header.strip():
            raise InvalidTable("there is nothing in it; its first line must name the columns.")
        self.names: list[str] = next(csv.reader([header.decode("utf-8-sig")]))

    def types(self) -> dict[str, pa.DataType]:
        blocks = (block for block in self._blocks() if block.n_rows)
        first = next(blocks, None)
        if first is None:
            return dict.fromkeys(self.names, pa.null())
        types = self._parse_block(first, arrow_csv.ConvertOptions()).schema.types
        if any(map(pa.types.is_binary, types)):
            raise InvalidTable("it is not text in UTF-8; convert it.")
        return dict(zip(self.names, types, strict=True))

    def read(self, columns: Sequence[str]) -> Iterator[tuple[pa.Table, float | None]]:
        as_text = dict.fromkeys(self.names, pa.string())
        options = arrow_csv.ConvertOptions(column_types=as_text, include_columns=columns)
        n_rows, seen = 0, self._start
        for block in self._blocks():
            n_rows, seen = n_rows + block.n_rows, seen + block.n_bytes
            if block.n_rows:
                yield self._parse_block(block, options), min(seen / self._size, 1.0) if self._size else None
        if not n_rows:
            yield pa.table({name: pa.array([], pa.string()) for name in columns}), 1.0

    def _blocks(self) -> Iterator[RowBlock]:
        """The lines below the first.

        Arrow is given them in memory. A stream it would read in a thread of its own, and call Python there when Python
        may be about to end.
        """
        with self._open() as stream:
            yield from row_blocks(stream, BLOCK_BYTES, line_breaks=self._line_breaks)

    @contextmanager
    def _open(self) -> Iterator[BinaryIO]:
        """What follows the first line."""
        if self._path == STANDARD:
            yield sys.stdin.buffer
            return
        with Path(self._path).open("rb") as file:
            file.seek(self._start)
            yield file

    def _parse_block(self, block: RowBlock, options: arrow_csv.ConvertOptions) -> pa.Table:
        """Its rows, each of which is a row for Arrow too."""
        try:
            table = arrow_csv.read_csv(
                pa.BufferReader(block.text),
                # One thread, or the number of a wrong row would not be known; and one block.
                arrow_csv.ReadOptions(column_names=self.names, block_size=len(block.text), use_threads=False),
                arrow_csv.ParseOptions(newlines_in_values=True),
                options,
            )
        except pa.ArrowInvalid as error:
            if not (ragged := RAGGED.search(str(error))):
                raise
            row, names, fields = map(int, ragged.groups())
            raise InvalidTable(
                f"row {block.n_before + row} below the first line has {fields} fields, but that names {names} columns."
            ) from None
        # Arrow ends a row at a line end or not at all, and makes no row of an empty line. So if it has as many rows as
        # there are lines with something in them, each of its rows is one of them.
        if table.num_rows != block.n_rows:
            raise InvalidTable("its quotes can be read in two ways; write a quote within a value twice.")
        return table

    def as_stored(self, schema: Schema) -> Schema:
        columns = [
            Categorical(c.name, [_text(v) for v in c.categories], c.missing)
            if isinstance(c, Categorical)
            else c
            for c in schema.columns
        ]
        return Schema(columns, label=schema.label, classes=[_text(v) for v in schema.classes])

    def parse(self, table: pa.Table, schema: Schema) -> pa.Table:
        values: dict[str, Any] = {schema.label: schema.classes}
        values |= {c.name: None if isinstance(c, Numeric) else c.categories for c in schema.columns}
        parsed = {
            name: _numbers(table[name], name) if known is None else _categories(table[name], known)
            for name, known in values.items()
            if name in table.column_names
        }
        return pa.table(parsed)


def _numbers(texts: pa.ChunkedArray, name: str) -> pa.ChunkedArray:
    texts = pc.utf8_trim_whitespace(texts)
    gone = pc.is_in(texts, pa.array(NOTHING))
    try:
        return pc.cast(pc.if_else(gone, None, texts), pa.float64())
    except pa.ArrowInvalid:
        raise InvalidTable(
            f"column {name!r} is numeric in the schema, but has text that is no number."
        ) from None


def _categories(texts: pa.ChunkedArray, known: Sequence[Value]) -> pa.ChunkedArray:
    """Texts as `_text` writes the schema's values."""
    nothing = pa.array([text for text in NOTHING if text not in known])
    texts = pc.if_else(pc.is_in(texts, nothing), None, texts)
    if isinstance(known[0], bool):
        return pc.utf8_lower(pc.utf8_trim_whitespace(texts))
    if isinstance(known[0], str):
        return texts
    # 3.0 is the integer 3, which a table with gaps may have written so.
    return pc.replace_substring_regex(texts, r"^\s*\+?(-?\d+)(\.0*)?\s*$", r"\1")


def _text(value: Value) -> str:
    """A category as CSV has it."""
    if isinstance(value, bool):
        return str(value).lower()
    return str(value).removesuffix(".0") if isinstance(value, float) else str(value)
