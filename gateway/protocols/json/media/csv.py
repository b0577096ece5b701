"""Converts CSV (RFC 4180, `text/csv`) to the JSON text of the same table, and back.

A table without a header is a list of lists. A table with a header (`text/csv; header=present`, RFC 4180 section 3) is a
list of objects, whose keys are the names in the header:

    1,2.50        [[1,2.50],            x,name         [{"x":1,"name":"a"},
    3,nan          [3,NaN]]             1,a             {"x":NaN,"name":"12"}]
                                        ,"12"

Numbers keep their digits. The tensor's datatype determines how the values of a column are read. Without a datatype, all
cells of the column together determine how they are read:

- The values are numbers if each cell is a JSON number, NaN, an infinity (also written as `nan` or `inf`) or empty, and
  no cell is quoted.
- The values are booleans if each cell is `true` or `false` (or `True` or `False`, as Python writes them), and no cell
  is quoted.
- Otherwise, the values are strings.

Empty lines after the last row are ignored. An empty cell is NaN in a column of numbers, and the empty string in a
column of strings. Blanks around a number are allowed. In a string, blanks are part of the value (RFC 4180, section 2,
rule 4).
"""

import json
import re
from codecs import BOM_UTF8
from collections import Counter
from collections.abc import Callable, Iterator
from io import BytesIO
from itertools import chain, compress
from typing import Any, TypeAlias

import orjson

from gateway.core.datatypes import Kind
from gateway.core.errors import DecodeError, Reason, invalid_input, refusal
from gateway.core.messages import Buffer
from gateway.protocols.json.media.csv_rows import BLOCK, NOT_STRUCTURE, Cell, CsvBatch, CsvRows, counted, next_row
from gateway.protocols.json.media.json_texts import elements
from gateway.protocols.json.media.lines import in_pieces

KindOf: TypeAlias = Callable[[str], Kind | None]
"""A function that returns the kind of a column's datatype.

The argument is the column's name, or `0`, `1`, ... without a header. The result is None if the column has no
datatype."""

_Convert: TypeAlias = Callable[[list[str]], list[str] | None]
"""A function that converts cells of a column to JSON texts. It returns None if a cell does not fit the column's
datatype."""


# possessive, so no input causes backtracking
_DIGITS = r"-?+(?:(?:0|[1-9][0-9]*+)(?:\.[0-9]++)?+(?:[eE][+-]?+[0-9]++)?+|Infinity|inf)|NaN|nan"
_NUMBER = rf"[ \t]*+(?:{_DIGITS})[ \t]*+"
_is_number = re.compile(_NUMBER).fullmatch
_are_numbers_or_empty = re.compile(rf"(?:[ \t]*+(?:{_DIGITS})?+[ \t]*+\n)*+").fullmatch
_numbers_at = re.compile(rf"(?:{_NUMBER}(?:,|\r?+\n))*+".encode()).match

_PIECE = 2**20
"""Number of bytes that one call into C processes. No other thread runs during the call."""
_ROWS, _CELL_SIZE = 2**20, 16
"""Number of bytes of rows that one step creates, and the assumed size of a cell without its name, in bytes."""
_MARKS = "\x7f", "\x80", "\x81"
"""Characters that JSON does not escape and that strings seldom contain."""


def read(body: Buffer, *, header: bool, kind_of: KindOf, columns: int, limit: int, flat: bool = False) -> bytes:
    """Return the JSON text of the table in `body`. An empty body is an empty list.

    - `flat`: True for a tensor of one dimension. The table has no header and only one column or one row, and becomes a
    list of its cells.
    - `columns` (`limits.json_values`): Maximum number of columns of a table that has a header, or that contains cells
      other than numbers.
    - `limit` (`limits.message`): Maximum size of the text, in bytes. The JSON text repeats the column names in each
      row.

    Raises:
        DecodeError: the body is not CSV, is not UTF-8, has rows of several lengths, has a header without rows or with a
            duplicate name, or has a cell that does not fit its column's datatype. The message contains the line number.
        GatewayError: RESOURCE_EXHAUSTED if the table has more columns, the text is longer, or a row has more than 2**20
        numbers.
    """
    text = _checked(bytes(body).removeprefix(BOM_UTF8))
    if not text:
        return b"[]"
    first, start = next_row(text, 0, 1, columns)
    width = len(first)
    names = _names(first, columns) if header else None
    if header and start == len(text):  # a single row without its header would look the same
        raise DecodeError("line 1 is the header, but no row follows it; add a row")
    rows = CsvRows(text, start if header else 0, width)
    if flat and width > 1 and start < len(text):
        raise DecodeError(f"line {rows.line_at(start)}: a second row of {width} cells, expected one column or one row")
    kinds = [kind_of(name) for name in names or map(str, range(width))]
    if all(kind is None or kind in _NUMBERS for kind in kinds) and _are_numbers(rows):
        return _joined(_number_pieces(rows, names, flat=flat), limit)
    _check_columns(width, columns)
    return _joined(_cell_pieces(rows, names, _converters(rows, kinds), flat=flat), limit)


def _checked(text: bytes) -> bytes:
    """Return `text` with one line end after the last row, and without empty lines at the end. Raise DecodeError if
    `text` is not UTF-8."""
    at = len(text) if text.isascii() else 0
    while at < len(text):
        end = min(at + _PIECE, len(text))
        while end < len(text) and text[end] & 0xC0 == 0x80 and end > at + _PIECE - 4:  # within a character
            end -= 1
        try:
            text[at:end].decode()
        except UnicodeDecodeError as error:
            place = at + error.start
            line = text.count(b"\n", 0, place) + 1
            raise DecodeError(f"line {line}: byte {text[place]:#04x} is not UTF-8; save the table as UTF-8") from error
        at = end
    if text.endswith(_EMPTY_LINES) and (rows := text.rstrip(b"\r\n")):
        return rows + b"\n"
    return text if text.endswith(b"\n") or not text else text + b"\n"


_EMPTY_LINES = (b"\n\n", b"\n\r\n")


def _names(cells: list[Cell], columns: int) -> tuple[str, ...]:
    _check_columns(len(cells), columns)
    names = tuple(map(_text, cells))
    if len(set(names)) < len(names):
        [(repeated, _)] = Counter(names).most_common(1)
        raise DecodeError(f"line 1: column {repeated[:50]!r} occurs twice; rename one")
    return names


def _check_columns(width: int, columns: int) -> None:
    if width > columns:
        raise refusal(Reason.TOO_LARGE, f"{width} columns, more than {columns} (limits.json_values)")


def _joined(pieces: Iterator[bytes], limit: int) -> bytes:
    """Return the JSON text of a list with the rows in `pieces`."""
    found, before = BytesIO(), b"["  # unlike a join, BytesIO returns its value without a copy
    for piece in pieces:
        found.write(before)
        found.write(piece)
        before = b","
        if found.tell() >= limit:
            raise refusal(
                Reason.TOO_LARGE,
                f"as JSON the table has more than {limit} bytes (limits.message); send less, or raise the limit",
            )
    found.write(b"]" if before == b"," else b"[]")
    return found.getvalue()


def _are_numbers(rows: CsvRows) -> bool:
    """Return True if each cell is an unquoted number, no cell is empty, and no row is too short or too long."""
    text, at, cells = rows.text, rows.start, 0
    while at < len(text):
        found = _numbers_at(text, at, at + _PIECE // 4)
        if found is None or found.end() == at:
            return False  # not a number, or a number with too many digits
        ends = found[0].translate(None, NOT_STRUCTURE)
        if not rows.have(ends, cells):
            return False
        cells = (cells + len(ends)) % rows.width
        at = found.end()
    return True


def _number_pieces(rows: CsvRows, names: tuple[str, ...] | None, *, flat: bool) -> Iterator[bytes]:
    """Yield the rows as JSON if every cell is a number. The cells stay unchanged."""
    for piece in rows.pieces():
        lines = piece.replace(b"\r\n", b"\n")[:-1]
        if b"n" in lines:  # spell NaN and infinities as JSON readers do
            lines = lines.replace(b"nan", b"NaN").replace(b"inf", b"Infinity")
        if flat:
            yield lines.replace(b"\n", b",")
        elif names is None:
            yield b"[%b]" % lines.replace(b"\n", b"],[")
        else:
            cells = lines.replace(b"\n", b",").decode().split(",")
            yield from _rows([cells[at :: rows.width] for at in range(rows.width)], names)


def _cell_pieces(
    rows: CsvRows, names: tuple[str, ...] | None, converters: list[_Convert], *, flat: bool
) -> Iterator[bytes]:
    """Yield the rows as JSON, column by column."""
    for batch in rows.batches():
        columns = [_values(rows, batch, at, convert, names) for at, convert in enumerate(converters)]
        if flat:  # one column, or one row
            yield ",".join(chain.from_iterable(columns)).encode()
        else:
            yield from _rows(columns, names)


def _rows(columns: list[list[str]], names: tuple[str, ...] | None) -> Iterator[bytes]:
    """Yield the rows of these columns, separated by commas, as JSON lists, or as objects if `names` is set."""
    if names is None:
        before, end = ["],[", *[","] * (len(columns) - 1)], "]"
    else:
        keys = [f"{orjson.dumps(name).decode()}:" for name in names]
        before, end = [f"}},{{{keys[0]}", *(f",{key}" for key in keys[1:])], "}"
    # limits the rows of one step before their size is known
    count, step = len(columns[0]), max(1, _ROWS // sum(_CELL_SIZE + len(each) for each in before))
    for at in range(0, count, step):
        size = min(step, count - at)
        texts = [""] * (2 * len(columns) * size)
        for column, (cells, each) in enumerate(zip(columns, before, strict=True)):
            texts[2 * column :: 2 * len(columns)] = [each] * size
            texts[2 * column + 1 :: 2 * len(columns)] = cells[at : at + size]
        texts[0] = texts[0][2:]
        yield "".join((*texts, end)).encode()


def _values(rows: CsvRows, batch: CsvBatch, at: int, convert: _Convert, names: tuple[str, ...] | None) -> list[str]:
    """Return the JSON texts of one column. Raise DecodeError if a cell does not fit the column's datatype."""
    cells = batch.column(at)
    values = convert(cells)
    if values is None:
        row, cell = next((row, cell) for row, cell in enumerate(cells) if convert([cell]) is None)
        column = repr(names[at][:50]) if names else str(at)
        line = rows.line_of(batch, row)
        raise DecodeError(f"line {line}, column {column}: {cell[:50]!r} is not a {_SORTS[convert]}")
    return values


def _text(cell: Cell) -> str:
    return cell[1:-1].replace(b'""', b'"').decode() if cell.startswith(b'"') else cell.decode()


def _texts(cells: list[str]) -> list[str]:
    joined = "\n".join(cells)
    mark = next((mark for mark in _MARKS if mark not in joined), None)
    if mark is None or len(joined) > 2 * BLOCK:
        return list(map(_json_text, cells))
    # one call for all cells, because orjson takes less time for a character than Python takes for a cell
    return orjson.dumps(mark.join(cells)).decode().replace(mark, f'"{mark}"').split(mark)


def _json_text(text: str) -> str:
    pieces = (orjson.dumps(text[at : at + BLOCK])[1:-1].decode() for at in range(0, len(text), BLOCK))
    return f'"{"".join(pieces)}"'


def _numbers(cells: list[str]) -> list[str] | None:
    joined = "\n".join(cells)
    if len(joined) > BLOCK and max(map(len, cells)) > BLOCK:  # a match would block other threads
        return None
    if joined.count("\n") >= len(cells) or not _are_numbers_or_empty(joined + "\n"):
        return None
    if "n" in joined:
        cells = joined.replace("nan", "NaN").replace("inf", "Infinity").split("\n")
    if "" in cells or " " in joined or "\t" in joined:
        return ["NaN" if not cell or cell.isspace() else cell for cell in cells]
    return cells


def _booleans(cells: list[str]) -> list[str] | None:
    values = [_BOOLEANS.get(cell.strip(" "), "") for cell in cells]
    return None if "" in values else values


_LIKE_BOOLEANS = frozenset({"true", "false", "True", "False"})
"""The cell contents that make a column without a datatype boolean."""
_BOOLEANS = {
    **dict.fromkeys(("true", "True", "TRUE", "1"), "true"),
    **dict.fromkeys(("false", "False", "FALSE", "0"), "false"),
}
"""The cell contents that a column of booleans accepts."""

_NUMBERS = frozenset({Kind.FLOAT, Kind.SIGNED, Kind.UNSIGNED})
_CONVERTERS: dict[Kind, _Convert] = {Kind.BYTES: _texts, Kind.BOOL: _booleans, **dict.fromkeys(_NUMBERS, _numbers)}
_SORTS: dict[_Convert, str] = {_numbers: "number", _booleans: "boolean (true or false)"}


def _converters(rows: CsvRows, kinds: list[Kind | None]) -> list[_Convert]:
    """Return the functions that convert the cells of each column. The column's kind determines the function. If the
    kind is None, the format of all cells of the column determines it."""
    unknown = {at for at, kind in enumerate(kinds) if kind is None}
    looks: dict[int, _Convert] = {}
    for batch in rows.batches() if unknown else ():
        for at in tuple(unknown):
            like = _looks(batch, at)
            if like is None:
                continue
            looks[at] = like if looks.get(at, like) is like else _texts
            if looks[at] is _texts:
                unknown.discard(at)
        if not unknown:
            break
    return [looks.get(at, _texts) if kind is None else _CONVERTERS[kind] for at, kind in enumerate(kinds)]


def _looks(batch: CsvBatch, at: int) -> _Convert | None:
    """Return the function for these cells of a column, chosen by their format, or None if any function could apply."""
    cells = batch.column(at)
    if batch.has_quotes(at):
        if batch.width > 1 or any(compress(cells, batch.quoted)):
            return _texts
        # an empty cell that is alone in its row must be quoted
        cells = [cell for cell in cells if cell]
        if not cells:
            return None
    if max(map(len, cells)) <= BLOCK and _are_numbers_or_empty("\n".join(cells) + "\n"):
        return _numbers
    return _booleans if set(cells) <= _LIKE_BOOLEANS else _texts


def write(text: bytes, *, header: bool) -> bytes:
    """Return the table in the compact JSON `text` as CSV. Without rows, the CSV is empty.

    The table is a list of lists, or a list of single values, in which each value is a row. A table with a header is a
    list of objects with the same keys in the same order. Numbers keep their digits, and null becomes an empty cell. A
    string is quoted if it would otherwise be read as another type.

    Raises:
        GatewayError: INVALID_ARGUMENT if the document is not a table because a cell is a list or an object, or because
            the rows differ.
    """
    if not text.startswith(b"["):
        raise invalid_input("expected a list of rows for CSV")
    lines = None if header else _number_lines(text)
    if lines is None:
        return b"".join(_written(text, header=header))
    expected, at = lines.partition(b"\n")[0].count(b",") + 1, 0
    for piece in in_pieces(lines):
        rows = piece[:-1].split(b"\n")
        _check_widths([row.count(b",") + 1 for row in rows], at, expected)
        at += len(rows)
    return lines.replace(b"\n", b"\r\n")


def _check_widths(widths: list[int], first: int, expected: int) -> None:
    """Raise GatewayError if a row is too short or too long. `first` is the number of the first row."""
    if widths.count(expected) < len(widths):
        at = next(at for at, width in enumerate(widths) if width != expected)
        text = f"row {first + at} has {counted(widths[at])}, but row 0 {counted(expected)}"
        raise invalid_input(f"{text}; send rows of equal length")


def _written(text: bytes, *, header: bool) -> Iterator[bytes]:
    """Yield the lines of any table, some rows at a time, because Python values take fifty times as much memory as
    text."""
    names, width, at = [""], 0, 0
    for texts in elements(text):
        rows = _DECODER.decode(f"[{b','.join(texts).decode()}]")
        if header and at == 0:
            names = list(rows[0])
            yield _lines([list(map(_quoted, names))])
        cells = (
            _object_cells(rows, names, at)
            if header
            else [_cells(row if isinstance(row, list) else [row]) for row in rows]
        )
        width = width or len(cells[0])
        _check_widths(list(map(len, cells)), at, width)
        at += len(rows)
        yield _lines(cells)


def _lines(rows: list[list[str]]) -> bytes:
    return "".join([",".join(row) + "\r\n" for row in rows]).encode()


def _number_lines(text: bytes) -> bytes | None:
    """Return the lines of a list of numbers, or of a list of such lists. Return None for any other text."""
    if any(mark in text for mark in (b'"', b"{", b"u", b"[]", b"[[[")):  # `u` is in null and in booleans
        return b"" if text == b"[]" else None
    lines = text[2:-2].replace(b"],[", b"\n") if text.startswith(b"[[") else text[1:-1].replace(b",", b"\n")
    return None if b"[" in lines else lines + b"\n"


class _Digits(str):
    """A JSON number with its original digits."""

    __slots__ = ()


_DECODER = json.JSONDecoder(parse_float=_Digits, parse_int=_Digits, parse_constant=_Digits)


def _object_cells(rows: list[dict[str, Any]], names: list[str], first: int) -> list[list[str]]:
    """Return the cells of `rows`, whose members are `names`. `first` is the number of the first row."""
    for at, row in enumerate(rows, first):
        if list(row) != names:
            raise invalid_input(f"row {at} has the members {list(row)}, but row 0 has {names}; a CSV table has columns")
    return [_cells(list(row.values())) for row in rows]


def _cells(row: list[Any]) -> list[str]:
    if not row:
        raise invalid_input("a row is empty, which CSV cannot express; send rows with values")
    cells = list(map(_cell, row))
    return cells if cells != [""] else ['""']  # most readers ignore empty lines


def _cell(value: Any) -> str:
    if isinstance(value, _Digits):
        return value
    if isinstance(value, str):
        return _quoted(value)
    if isinstance(value, list | dict):
        raise invalid_input("a row holds a list or an object, but a cell of CSV is a single value; send single values")
    return "" if value is None else "true" if value else "false"


def _quoted(text: str) -> str:
    if _PLAIN(text) and not _is_number(text) and text not in _LIKE_BOOLEANS:
        return text
    return '"' + text.replace('"', '""') + '"'


_PLAIN = re.compile(r'[^",\s][^",\r\n]*').fullmatch
