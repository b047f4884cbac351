"""Where the rows of a CSV file begin and end: decided here, before Arrow parses them.

A row is a line. A line ends with a line feed, or a carriage return and a line feed; empty lines are no rows. A line
that ends inside a quote is refused, so no line can change where another begins. Only `tables` imports this module.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import BinaryIO

import numpy as np
from numpy.typing import NDArray

from hedgerow.compiled import compiled
from hedgerow.errors import InvalidTable

LINE_FEED, CARRIAGE_RETURN, QUOTE, COMMA = b'\n\r",'
FINE, OPEN_QUOTE, STRAY_RETURN = range(3)


@dataclass(frozen=True)
class RowBlock:
    """Some whole rows of a file: an empty line, then their bytes; how many they are and how many came before.

    The empty line keeps Arrow from taking a byte order mark off the first row, as it does at the beginning of
    whatever it reads: a row would then be read by its place. `text` is overwritten when the next block is read.
    """

    text: memoryview
    n_rows: int
    n_before: int

    @property
    def n_bytes(self) -> int:
        """How much of the file this is."""
        return len(self.text) - 1


def row_blocks(stream: BinaryIO, max_bytes: int, *, line_breaks: bool) -> Iterator[RowBlock]:
    """The rows that a stream still has, at most `max_bytes` at a time; no block is empty, but it may have no rows.

    With `line_breaks`, line ends between quotes belong to a value, so that a row is what the quotes say.
    """
    buffer = bytearray(1 + max_bytes + 1)  # an empty line, the rows, and a line end that the last may lack
    buffer[0] = LINE_FEED
    view, codes = memoryview(buffer), np.frombuffer(buffer, dtype=np.uint8)
    n_held = n_before = 0
    is_last = False
    while not is_last:
        n_held += _fill(stream, view[1 + n_held : -1])
        if is_last := n_held < max_bytes:
            if n_held == 0:
                return
            buffer[1 + n_held] = LINE_FEED
            n_held += 1
        problem, n_rows, n_bytes = _find_rows(codes[1 : 1 + n_held], line_breaks)
        row = f"row {n_before + n_rows + 1} below the first line"
        if problem == OPEN_QUOTE:
            raise InvalidTable(
                f"{row} begins a value with a quote and does not end it: correct that line. (If values of this file "
                "have line breaks, ask for them: --line-breaks, or line_breaks = true.)"
            )
        if problem == STRAY_RETURN:
            raise InvalidTable(f"{row} has a carriage return that ends no line; remove it.")
        if is_last and n_bytes < n_held:
            raise InvalidTable(
                f"it ends inside a quote, which {row} begins; correct that row, or copy the file anew."
            )
        if n_bytes == 0:
            why = "; is there a quote that nothing ends?" if line_breaks else ", which is too long for a row."
            raise InvalidTable(f"{row} has more than {max_bytes} bytes{why}")
        yield RowBlock(view[: 1 + n_bytes], n_rows, n_before)
        n_before += n_rows
        n_held -= n_bytes
        view[1 : 1 + n_held] = bytes(view[1 + n_bytes : 1 + n_bytes + n_held])


def _fill(stream: BinaryIO, room: memoryview) -> int:
    """Read until there is no room, or nothing more to read; how many bytes that were."""
    n_read = 0
    while (
        n_read < len(room) and (more := stream.read(len(room) - n_read)) != b""
    ):  # None would not be the end
        room[n_read : n_read + len(more)] = more
        n_read += len(more)
    return n_read


@compiled
def _find_rows(text: NDArray[np.uint8], line_breaks: bool) -> tuple[int, int, int]:
    """What is wrong with `text` [byte], how many whole rows come before that or before its end, and where they end.

    A quote begins a quoted part only where a value begins. There, two quotes are a character and one ends the
    quoted part; from then on to the next comma quotes are characters. So does Arrow read it.
    """
    n_rows = start = 0
    in_quotes, closed_at = False, -2
    for i in range(len(text)):
        byte = text[i]
        if byte > QUOTE:
            continue
        if byte == LINE_FEED:
            if not in_quotes:
                n_rows += i > start and (i > start + 1 or text[start] != CARRIAGE_RETURN)
                start = i + 1
            elif not line_breaks:
                return OPEN_QUOTE, n_rows, start
        elif byte == QUOTE:
            if in_quotes:
                in_quotes, closed_at = False, i
            else:
                in_quotes = i == start or text[i - 1] == COMMA or closed_at == i - 1
        elif byte == CARRIAGE_RETURN and not in_quotes and i + 1 < len(text) and text[i + 1] != LINE_FEED:
            return STRAY_RETURN, n_rows, start
    return FINE, n_rows, start
