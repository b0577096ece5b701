"""Splits CSV (RFC 4180) into cells. The module splits blocks with numpy. It splits single rows only to explain an
error."""

import re
from collections.abc import Iterator
from typing import Any, NoReturn, TypeAlias

import numpy as np

from gateway.core.errors import DecodeError, Reason, refusal
from gateway.core.frozen import frozen
from gateway.protocols.json.media.lines import in_pieces

Cell: TypeAlias = bytes
"""A cell as it is in the body, including its quotes."""

_MOST_CELLS = 2**20
"""Maximum number of cells in a row. The limit exists because each cell temporarily becomes an object."""
BLOCK = 2**17
"""Number of bytes to split in one step, which is limited for the same reason."""
_QUOTE, _COMMA, _LINE_FEED, _RETURN = b'",\n\r'
NOT_STRUCTURE = bytes(set(range(256)) - set(b",\n"))
_SEPARATOR = 0xFF
"""Separates cells while a block is split. No UTF-8 text contains this byte. `surrogateescape` converts it to
_SEPARATED."""
_SEPARATED = "\udcff"
_TO_SEPARATORS = bytes.maketrans(b",\n", bytes([_SEPARATOR, _SEPARATOR]))
# possessive, so no input causes backtracking
_BARE = re.compile(rb'[^",\r\n]*+')
_INSIDE = re.compile(rb'(?:[^"]++|"")*+')

_Bytes: TypeAlias = "np.ndarray[Any, np.dtype[np.uint8]]"
_Flags: TypeAlias = "np.ndarray[Any, np.dtype[np.bool_]]"


@frozen
class CsvBatch:
    """Some rows of `width` cells: the cells without their quotes, and a flag for each cell that has quotes."""

    cells: list[str]
    quoted: _Flags
    width: int
    start: int
    """The position of the first row in the text."""

    def column(self, at: int) -> list[str]:
        """Return the cells of one column."""
        return self.cells[at :: self.width]

    def has_quotes(self, at: int) -> bool:
        """Return True if a cell of a column has quotes."""
        return bool(self.quoted[at :: self.width].any())


@frozen
class CsvRows:
    """The rows in `text` from `start` on. Each row has `width` cells. The text is UTF-8 and ends with a line end."""

    text: bytes
    start: int
    width: int

    def pieces(self) -> Iterator[bytes]:
        """Yield the text of the rows, in pieces of complete lines."""
        return in_pieces(self.text, self.start)

    def have(self, ends: bytes, cell: int) -> bool:
        """Return True if `ends`, the commas and line feeds after consecutive cells, fit rows of `width` cells.

        `cell` is the number of the first of these cells."""
        expected = (b"," * (self.width - 1) + b"\n") * (2 + len(ends) // self.width)
        first = cell % self.width
        return ends == expected[first : first + len(ends)]

    def batches(self) -> Iterator[CsvBatch]:
        """Yield all rows. Raise DecodeError for rows of another width, empty lines, and misplaced quotes."""
        cells: list[str] = []
        quoted: _Flags = np.empty(0, np.bool_)
        start = self.start
        for block in _blocks(self.text, self.start):
            if block is None or not self.have(block.ends, len(cells)) or (self.width == 1 and block.has_empty_lines):
                self._explain(start)
            cells += block.cells
            quoted = np.concatenate((quoted, block.quoted))
            whole = len(cells) - len(cells) % self.width
            if whole:
                yield CsvBatch(cells[:whole], quoted[:whole], self.width, start)
                cells, quoted, start = cells[whole:], quoted[whole:], block.last_row_end
        if start < len(self.text):
            raise DecodeError(f"line {self.line_at(start)}: the closing quote of a cell is missing")

    def line_at(self, place: int) -> int:
        """Return the number of the line that contains the byte at the position `place`."""
        return self.text.count(b"\n", 0, place) + 1

    def line_of(self, batch: CsvBatch, row: int) -> int:
        """Return the number of the line in which a row of `batch` begins."""
        at = batch.start
        for _ in range(row):
            _, at = next_row(self.text, at, 0)
        return self.line_at(at)

    def _explain(self, at: int) -> NoReturn:
        """Raise DecodeError for the error in the row that begins at `at`, or in a later row."""
        line = self.line_at(at)
        while at < len(self.text):
            row, following = next_row(self.text, at, line)
            if len(row) != self.width:
                raise DecodeError(f"line {line} has {counted(len(row))}, but the first row {counted(self.width)}")
            line += self.text.count(b"\n", at, following)
            at = following
        raise AssertionError("the rows are right")


@frozen
class _Block:
    """The cells that end in a block of the text."""

    cells: list[str]
    ends: bytes
    """The comma or line feed after each cell."""
    quoted: _Flags
    has_empty_lines: bool
    last_row_end: int
    """The end of the last row that ends in the block, or 0."""


def _blocks(text: bytes, at: int) -> "Iterator[_Block | None]":
    """Yield the cells from `at` on, block by block. Yield None for a block with a misplaced quote or carriage return.

    The number of quotes before each byte determines the cells. Bytes in a quoted cell follow an odd number of quotes,
    because quotes within the cell are doubled."""
    octets, first, inside, parts = np.frombuffer(text, np.uint8), at, False, [b""]
    while at < len(text):
        end = min(at + BLOCK, len(text))
        end += text[end - 1] == _RETURN and end < len(text)
        piece = text[at:end]
        if inside and b'"' not in piece:
            parts.append(piece)
            at = end
            continue
        cut = _quoted(octets, at, end, inside) if b'"' in piece else _bare(piece)
        if cut is None:
            yield None
            return
        separated, ends, places, inside = cut
        if len(places):
            done, _, rest = separated.rpartition(b"\xff")
            starts = np.concatenate(([first], places[:-1] + (at + 1)))
            cells = b"".join((*parts, done)).decode("utf-8", "surrogateescape").split(_SEPARATED)
            feeds = places[np.frombuffer(ends, np.uint8) == _LINE_FEED]
            bare_ends = octets[starts]
            yield _Block(
                cells,
                ends,
                octets[starts] == _QUOTE,
                bool(((bare_ends == _LINE_FEED) | (bare_ends == _RETURN)).any()),
                int(feeds[-1]) + at + 1 if len(feeds) else 0,
            )
            first, parts = int(places[-1]) + at + 1, [rest]
        else:
            parts.append(separated)
        at = end


_Cut: TypeAlias = tuple[bytes, bytes, "np.ndarray[Any, np.dtype[np.intp]]", bool]
"""Cells separated by _SEPARATOR, the characters after the cells, and the positions of these characters.

The last item is True if the last cell, which has no end yet, continues within quotes."""


def _bare(piece: bytes) -> _Cut | None:
    """Split a piece without quotes, outside of a quoted cell."""
    octets = np.frombuffer(piece, np.uint8)
    places = np.flatnonzero((octets == _COMMA) | (octets == _LINE_FEED))
    if b"\r" in piece:
        plain = piece.replace(b"\r\n", b"\n")
        if b"\r" in plain:
            return None
        return plain.translate(_TO_SEPARATORS), plain.translate(None, NOT_STRUCTURE), places, False
    return piece.translate(_TO_SEPARATORS), piece.translate(None, NOT_STRUCTURE), places, False


def _quoted(octets: _Bytes, at: int, end: int, inside: bool) -> _Cut | None:
    """Split a piece with quotes. `inside` is True if the piece begins inside a quoted cell."""
    piece = octets[at:end]
    before, after = _beside(octets, at - 1, end - 1), _beside(octets, at + 1, end + 1)
    quotes = piece == _QUOTE
    is_inside = np.logical_xor.accumulate(quotes)  # one flag per quote, True for opening quotes
    if inside:
        is_inside = ~is_inside
    is_outside = ~is_inside
    opening, closing = quotes & is_inside, quotes & is_outside
    feeds = piece == _LINE_FEED
    structure = (feeds | (piece == _COMMA)) & is_outside
    returns = (piece == _RETURN) & is_outside
    begins = (before == _COMMA) | (before == _LINE_FEED)
    follows = (after == _COMMA) | (after == _LINE_FEED) | (after == _RETURN) | (after == _QUOTE)
    wrong = (opening & ~(begins | (before == _QUOTE))) | (closing & ~follows) | (returns & (after != _LINE_FEED))
    if wrong.any():
        return None
    places = np.flatnonzero(structure)
    separated = np.where(structure, np.uint8(_SEPARATOR), piece)[~(closing | (opening & begins) | returns)]
    return separated.tobytes(), piece[places].tobytes(), places, bool(is_inside[-1])


def _beside(octets: _Bytes, start: int, end: int) -> _Bytes:
    """Return the bytes from `start` to `end`, with line feeds before and after the text."""
    found = octets[max(start, 0) : end]
    return np.pad(found, (max(-start, 0), max(end - len(octets), 0)), constant_values=_LINE_FEED)


def counted(cells: int) -> str:
    """Return a phrase such as `2 cells`."""
    return f"{cells} cell{'s' * (cells != 1)}"


def next_row(text: bytes, at: int, line: int, columns: int = _MOST_CELLS) -> tuple[list[Cell], int]:
    """Return the cells of the row that begins at `at` in `line`, and the end of the row.

    If the row has quotes, reading stops shortly after `columns`, because the row cannot consist of numbers alone.

    Raises:
        DecodeError: the line is empty, or has a misplaced quote or carriage return.
        GatewayError: RESOURCE_EXHAUSTED if the row has more than 2**20 cells.
    """
    end = text.find(b"\n", at) + 1
    if text.find(b'"', at, end) < 0:
        cells = _bare_row(text[at:end], line)
    else:
        cells, end = _quoted_row(text, at, line, columns)
    if cells == [b""]:
        raise DecodeError(f'line {line} is empty; write "" for an empty cell that is alone in its row')
    return cells, end


def _bare_row(text: bytes, line: int) -> list[Cell]:
    """Return the cells of a line without quotes. The line ends with a line feed, optionally after a carriage return."""
    bare = text[:-2] if text.endswith(b"\r\n") else text[:-1]
    if b"\r" in bare:
        raise DecodeError(
            f"line {line}: a carriage return without a line feed in a cell without quotes; quote the cell"
        )
    if bare.count(b",") >= _MOST_CELLS:
        raise refusal(Reason.TOO_LARGE, f"line {line} has more than {_MOST_CELLS} cells; send fewer columns")
    return bare.split(b",")


def _quoted_row(text: bytes, at: int, line: int, columns: int) -> tuple[list[Cell], int]:
    """Return the cells of a row that begins at `at`, some of which are quoted, and the end of the row."""
    cells: list[Cell] = []
    while True:
        end = _end_of_quoted(text, at, line) if text.startswith(b'"', at) else _end_of_bare(text, at)
        cells.append(text[at:end])
        if len(cells) > columns:
            why = f"line {line} has more than {columns} cells (limits.json_values); send fewer, or raise the limit"
            raise refusal(Reason.TOO_LARGE, why)
        if text.startswith(b",", end):
            at = end + 1
        elif text.startswith((b"\n", b"\r\n"), end):
            return cells, text.index(b"\n", end) + 1
        else:
            near = text[max(at, end - 20) : end + 10].rstrip().decode("utf-8", "replace")
            raise DecodeError(f"line {line}: {near!r}; a cell with a quote is quoted, and its own quotes are doubled")


def _end_of_bare(text: bytes, at: int) -> int:
    """Return the end of the unquoted cell at `at`."""
    while (end := _end_of(_BARE, text, at)) == at + BLOCK:
        at = end
    return end


def _end_of_quoted(text: bytes, at: int, line: int) -> int:
    """Return the end of the quoted cell at `at`, after its closing quote."""
    at = _end_of(_INSIDE, text, at + 1)
    while not text.startswith(b'"', at) or text.startswith(b'""', at):  # the end of a piece
        if at == len(text):
            raise DecodeError(f"line {line}: the closing quote of a cell is missing")
        at = _end_of(_INSIDE, text, at + 2 * text.startswith(b'""', at))
    return at + 1


def _end_of(pattern: "re.Pattern[bytes]", text: bytes, at: int) -> int:
    """Return the end of the match at `at`, or of a part of a long match, because matching blocks all other threads."""
    found = pattern.match(text, at, at + BLOCK)
    assert found is not None  # the patterns also match an empty string
    return found.end()
