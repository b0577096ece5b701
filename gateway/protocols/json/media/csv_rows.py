"""Cuts CSV (RFC 4180) into cells: in bulk, and row by row where something is wrong or a piece ends within a cell."""

import re
from collections.abc import Iterator, Sequence
from itertools import accumulate
from typing import TypeAlias

from gateway.core.errors import DecodeError, GatewayError, Reason, refusal
from gateway.core.frozen import frozen
from gateway.protocols.json.media.pieces import in_pieces

Cell: TypeAlias = bytes
"""A cell as it stands in the body, with its quotes."""

_MOST_CELLS = 2**20
"""Cells of a row: each becomes an object of its own, for a while."""
_PIECE = 2**17
"""Bytes of lines that are cut at once, for the same reason."""
_NOT_STRUCTURE = bytes(set(range(256)) - set(b",\n"))
# possessive: no input makes the matching backtrack
_CELL, _CELL_END = rb'"(?:[^"]++|"")*+"|[^",\r\n]*+', rb",|\r?+\n"
_CELLS = re.compile(rb"(%b)(%b)" % (_CELL, _CELL_END))
_are_cells = re.compile(rb"(?:(?:%b)(?:%b))*+" % (_CELL, _CELL_END)).fullmatch
_BARE = re.compile(rb'[^",\r\n]*+')
_INSIDE = re.compile(rb'(?:[^"]++|"")*+')


@frozen
class CsvBatch:
    """Some rows, of `width` cells each, and the line in which each begins."""

    cells: list[Cell]
    width: int
    lines: Sequence[int]

    def column(self, at: int) -> list[Cell]:
        """The cells of one column."""
        return self.cells[at :: self.width]


@frozen
class CsvRows:
    """The rows of `text` from `start` on, which is in `line`; each has `width` cells. The text ends with a line end."""

    text: bytes
    start: int
    line: int
    width: int

    def pieces(self) -> Iterator[bytes]:
        """The text of the rows in pieces of whole lines."""
        return in_pieces(self.text, self.start)

    def batches(self) -> Iterator[CsvBatch]:
        """All rows. Raises DecodeError for rows of another width, empty lines, and quotes out of place."""
        text, at, line = self.text, self.start, self.line
        while at < len(text):
            end = text.rfind(b"\n", at, at + _PIECE) + 1 or text.find(b"\n", at) + 1
            piece = text[at:end]
            batch = self._quoted(piece, line) if b'"' in piece else self._bare(piece, line)
            if batch is None:
                batch, end = self._row_by_row(at, end, line)
            yield batch
            line += text.count(b"\n", at, end)
            at = end

    def _bare(self, piece: bytes, line: int) -> CsvBatch | None:
        """The rows of a piece of whole lines without quotes; None if it has a row of another width, or a fault."""
        piece = piece.replace(b"\r\n", b"\n")
        count = self._rows_in(piece.translate(None, _NOT_STRUCTURE))
        if count is None or b"\r" in piece:
            return None
        return self._batch(piece[:-1].replace(b"\n", b",").split(b","), range(line, line + count))

    def _quoted(self, piece: bytes, line: int) -> CsvBatch | None:
        """The same for a piece with quotes; None also if it ends within a cell."""
        if not _are_cells(piece):
            return None
        found = _CELLS.findall(piece)
        count = self._rows_in(b"".join([end for _, end in found]).replace(b"\r\n", b"\n"))
        if count is None:
            return None
        cells = [cell for cell, _ in found]
        if piece.count(b"\n") == count:
            return self._batch(cells, range(line, line + count))
        counts = [1 + b"".join(cells[at : at + self.width]).count(b"\n") for at in range(0, len(cells), self.width)]
        return self._batch(cells, list(accumulate(counts[:-1], initial=line)))

    def _rows_in(self, ends: bytes) -> int | None:
        """The number of rows whose cells end with `ends`, commas and line feeds; None if their width is another."""
        count = len(ends) // self.width
        return count if ends == (b"," * (self.width - 1) + b"\n") * count else None

    def _batch(self, cells: list[Cell], lines: Sequence[int]) -> CsvBatch | None:
        return None if self.width == 1 and b"" in cells else CsvBatch(cells, self.width, lines)

    def _row_by_row(self, at: int, end: int, line: int) -> tuple[CsvBatch, int]:
        """The rows that begin at `at` or behind it, before `end`, and where the last one ends."""
        cells: list[Cell] = []
        lines: list[int] = []
        while at < end:
            row, following = next_row(self.text, at, line)
            if len(row) != self.width:
                raise DecodeError(f"line {line} has {counted(len(row))}, but the first row {counted(self.width)}")
            cells += row
            lines.append(line)
            line += self.text.count(b"\n", at, following)
            at = following
        return CsvBatch(cells, self.width, lines), at


def counted(cells: int) -> str:
    """Such as `2 cells`."""
    return f"{cells} cell{'s' * (cells != 1)}"


def next_row(text: bytes, at: int, line: int) -> tuple[list[Cell], int]:
    """The cells of the row that begins at `at`, in `line`, and the end of the row.

    Raises:
        DecodeError: the line is empty, or has a quote or a carriage return out of place.
        GatewayError: TOO_LARGE, more than 2**20 cells.
    """
    end = text.find(b"\n", at) + 1
    if text.find(b'"', at, end) < 0:
        cells = _bare_row(text[at:end], line)
    else:
        cells, end = _quoted_row(text, at, line)
    if cells == [b""]:
        raise DecodeError(f'line {line} is empty; a cell that is empty and alone in its row is written ""')
    return cells, end


def _bare_row(text: bytes, line: int) -> list[Cell]:
    """The cells of a line without quotes, which ends with a line feed that a carriage return may precede."""
    bare = text[:-2] if text.endswith(b"\r\n") else text[:-1]
    if b"\r" in bare:
        raise DecodeError(f"line {line}: a carriage return without a line feed in a cell that is not quoted")
    if bare.count(b",") >= _MOST_CELLS:
        raise _too_many(line)
    return bare.split(b",")


def _quoted_row(text: bytes, at: int, line: int) -> tuple[list[Cell], int]:
    """The cells of a row that begins at `at`, some of which are quoted, and the end of the row."""
    cells: list[Cell] = []
    while True:
        end = _end_of_quoted(text, at, line) if text.startswith(b'"', at) else _end_of_bare(text, at)
        cells.append(text[at:end])
        if len(cells) > _MOST_CELLS:
            raise _too_many(line)
        if text.startswith(b",", end):
            at = end + 1
        elif text.startswith((b"\n", b"\r\n"), end):
            return cells, text.index(b"\n", end) + 1
        else:
            near = text[max(at, end - 20) : end + 10].rstrip().decode("utf-8", "replace")
            raise DecodeError(f"line {line}: {near!r}; a cell with a quote is quoted, and its own quotes are doubled")


def _end_of_bare(text: bytes, at: int) -> int:
    """The end of the cell at `at`, which is not quoted."""
    while (end := _end_of(_BARE, text, at)) == at + _PIECE:
        at = end
    return end


def _end_of_quoted(text: bytes, at: int, line: int) -> int:
    """The end of the quoted cell at `at`, after its closing quote."""
    at = _end_of(_INSIDE, text, at + 1)
    while not text.startswith(b'"', at) or text.startswith(b'""', at):  # a piece has ended
        if at == len(text):
            raise DecodeError(f"line {line}: the closing quote of a cell is missing")
        at = _end_of(_INSIDE, text, at + 2 * text.startswith(b'""', at))
    return at + 1


def _end_of(pattern: "re.Pattern[bytes]", text: bytes, at: int) -> int:
    """The end of what matches at `at`, or of a piece of it: all other threads wait while a pattern is matched."""
    found = pattern.match(text, at, at + _PIECE)
    assert found is not None  # the patterns match nothing at all, too
    return found.end()


def _too_many(line: int) -> GatewayError:
    return refusal(Reason.TOO_LARGE, f"line {line} has more than {_MOST_CELLS} cells")
