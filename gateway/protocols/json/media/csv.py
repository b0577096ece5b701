"""CSV (RFC 4180, `text/csv`) to the JSON text of the same table, and back.

A table without a header is a list of lists. One with a header (`text/csv; header=present`, RFC 4180 section 3) is a
list of objects, whose keys are the names in the header:

    1,2.50        [[1,2.50],            x,name         [{"x":1,"name":"a"},
    3,nan          [3,NaN]]             1,a             {"x":NaN,"name":"12"}]
                                        ,"12"

Numbers keep their digits. A column holds what the datatype of its tensor says. If there is none, the whole column
decides. It is a column

- of numbers if each cell is a JSON number, NaN, an infinity (also spelled `nan`, `inf`) or empty, and none is quoted;
- of booleans if each cell is `true` or `false` (or `True` and `False`, as Python writes them), and none is quoted;
- of texts otherwise.

Empty lines behind the last row are passed over. An empty cell is NaN among numbers and the empty text among texts.
Blanks may stand around a number; they are part of a text (RFC 4180, section 2, rule 4).
"""

import json
import re
from collections import Counter
from collections.abc import Callable, Iterator
from io import BytesIO
from itertools import chain, compress
from typing import Any, TypeAlias

import orjson

from gateway.core.datatypes import Kind
from gateway.core.errors import DecodeError, Reason, invalid_input, refusal
from gateway.core.types import Buffer
from gateway.protocols.json.media.csv_rows import BLOCK, NOT_STRUCTURE, Cell, CsvBatch, CsvRows, counted, next_row
from gateway.protocols.json.media.json_texts import elements
from gateway.protocols.json.media.pieces import in_pieces

KindOf: TypeAlias = Callable[[str], Kind | None]
"""The kind of a column's datatype by the column's name (`0`, `1`, ... without a header); None if it has none."""

_Convert: TypeAlias = Callable[[list[str]], list[str] | None]
"""Makes the JSON texts of some cells of a column; None if one of them cannot be of the column's datatype."""

_BOM = b"\xef\xbb\xbf"

# possessive: no input makes the matching backtrack
_DIGITS = r"-?+(?:(?:0|[1-9][0-9]*+)(?:\.[0-9]++)?+(?:[eE][+-]?+[0-9]++)?+|Infinity|inf)|NaN|nan"
_NUMBER = rf"[ \t]*+(?:{_DIGITS})[ \t]*+"
_is_number = re.compile(_NUMBER).fullmatch
_are_numbers_or_empty = re.compile(rf"(?:[ \t]*+(?:{_DIGITS})?+[ \t]*+\n)*+").fullmatch
_numbers_at = re.compile(rf"(?:{_NUMBER}(?:,|\r?+\n))*+".encode()).match

_PIECE = 2**20
"""Bytes that are looked at by one call into C, during which no other thread runs."""
_ROWS, _CELL_SIZE = 2**20, 16
"""Bytes of rows that are made at once, and what a cell takes beside its name."""
_MARKS = "\x7f", "\x80", "\x81"
"""Letters that JSON writes as they are and texts seldom have."""


def read(body: Buffer, *, header: bool, kind_of: KindOf, columns: int, limit: int, flat: bool = False) -> bytes:
    """The JSON text of the table in `body`. An empty body is an empty list.

    `flat` is for a tensor of one dimension: the table, without a header, has one column or one row, and becomes a list
    of its cells. `columns` (`limits.json_values`) is the largest number of columns of a table that has a header, or
    holds anything but numbers. `limit` (`limits.message`) is the largest size of the text in bytes, which repeats the
    names in each row.

    Raises:
        DecodeError: not CSV, not UTF-8, rows of several lengths, a header alone or one that has a name twice, or a cell
            that is not of its column's datatype. The text has the line.
        GatewayError: TOO_LARGE, more columns, a longer text, or a row of more than 2**20 numbers.
    """
    text = _checked(bytes(body).removeprefix(_BOM))
    if not text:
        return b"[]"
    first, start = next_row(text, 0, 1, columns)
    width = len(first)
    names = _names(first, columns) if header else None
    if header and start == len(text):  # a row without the header that belongs before it would look like this
        raise DecodeError("line 1 is the header, but no row follows it")
    rows = CsvRows(text, start if header else 0, width)
    if flat and width > 1 and start < len(text):
        raise DecodeError(f"line {rows.line_at(start)}: a second row of {width} cells, expected one column or one row")
    kinds = [kind_of(name) for name in names or map(str, range(width))]
    if all(kind is None or kind in _NUMBERS for kind in kinds) and _are_numbers(rows):
        return _joined(_number_pieces(rows, names, flat=flat), limit)
    _check_columns(width, columns)
    return _joined(_cell_pieces(rows, names, _converters(rows, kinds), flat=flat), limit)


def _checked(text: bytes) -> bytes:
    """`text` with one line end after the last row: empty lines at the end are no rows. Raises DecodeError if it is not
    UTF-8."""
    at = len(text) if text.isascii() else 0
    while at < len(text):
        end = min(at + _PIECE, len(text))
        while end < len(text) and text[end] & 0xC0 == 0x80 and end > at + _PIECE - 4:  # within a letter
            end -= 1
        try:
            text[at:end].decode()
        except UnicodeDecodeError as error:
            place = at + error.start
            line = text.count(b"\n", 0, place) + 1
            raise DecodeError(f"line {line}: byte {text[place]:#04x} is not UTF-8") from error
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
        raise DecodeError(f"line 1: column {repeated[:50]!r} occurs twice")
    return names


def _check_columns(width: int, columns: int) -> None:
    if width > columns:
        raise refusal(Reason.TOO_LARGE, f"{width} columns, more than {columns} (limits.json_values)")


def _joined(pieces: Iterator[bytes], limit: int) -> bytes:
    """The JSON list of the rows in `pieces`."""
    found, before = BytesIO(), b"["  # its value is no copy, as the result of a join would be
    for piece in pieces:
        found.write(before)
        found.write(piece)
        before = b","
        if found.tell() >= limit:
            raise refusal(Reason.TOO_LARGE, f"as JSON the table has more than {limit} bytes (limits.message)")
    found.write(b"]" if before == b"," else b"[]")
    return found.getvalue()


def _are_numbers(rows: CsvRows) -> bool:
    """Whether each cell is a number, neither quoted nor empty, and no row is too short or too long."""
    text, at, cells = rows.text, rows.start, 0
    while at < len(text):
        found = _numbers_at(text, at, at + _PIECE // 4)
        if found is None or found.end() == at:
            return False  # not a number, or one of more digits than any has
        ends = found[0].translate(None, NOT_STRUCTURE)
        if not rows.have(ends, cells):
            return False
        cells = (cells + len(ends)) % rows.width
        at = found.end()
    return True


def _number_pieces(rows: CsvRows, names: tuple[str, ...] | None, *, flat: bool) -> Iterator[bytes]:
    """The rows as JSON, where every cell is a number: the cells go on as they are."""
    for piece in rows.pieces():
        lines = piece.replace(b"\r\n", b"\n")[:-1]
        if b"n" in lines:  # NaN and infinities as JSON's readers know them
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
    """The rows as JSON, column by column."""
    for batch in rows.batches():
        columns = [_values(rows, batch, at, convert, names) for at, convert in enumerate(converters)]
        if flat:  # one column, or one row
            yield ",".join(chain.from_iterable(columns)).encode()
        else:
            yield from _rows(columns, names)


def _rows(columns: list[list[str]], names: tuple[str, ...] | None) -> Iterator[bytes]:
    """The rows of these columns as JSON lists, or with `names` as objects, with commas between."""
    if names is None:
        before, end = ["],[", *[","] * (len(columns) - 1)], "]"
    else:
        keys = [f"{orjson.dumps(name).decode()}:" for name in names]
        before, end = [f"}},{{{keys[0]}", *(f",{key}" for key in keys[1:])], "}"
    # what is made at once is bounded before it is counted
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
    """The JSON texts of one column. Raises DecodeError for a cell that is not of the column's datatype."""
    cells = batch.column(at)
    values = convert(cells)
    if values is None:
        row, cell = next((row, cell) for row, cell in enumerate(cells) if convert([cell]) is None)
        column = repr(names[at][:50]) if names else str(at)
        line = rows.line_of(batch, row)
        raise DecodeError(f"line {line}, column {column}: {cell[:50]!r} is no {_SORTS[convert]}")
    return values


def _text(cell: Cell) -> str:
    return cell[1:-1].replace(b'""', b'"').decode() if cell.startswith(b'"') else cell.decode()


def _texts(cells: list[str]) -> list[str]:
    joined = "\n".join(cells)
    mark = next((mark for mark in _MARKS if mark not in joined), None)
    if mark is None or len(joined) > 2 * BLOCK:
        return list(map(_json_text, cells))
    # one call for all of them: orjson takes less time for a letter than Python for a cell
    return orjson.dumps(mark.join(cells)).decode().replace(mark, f'"{mark}"').split(mark)


def _json_text(text: str) -> str:
    pieces = (orjson.dumps(text[at : at + BLOCK])[1:-1].decode() for at in range(0, len(text), BLOCK))
    return f'"{"".join(pieces)}"'


def _numbers(cells: list[str]) -> list[str] | None:
    joined = "\n".join(cells)
    if len(joined) > BLOCK and max(map(len, cells)) > BLOCK:  # other threads would wait while it is matched
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
"""The spellings by which a column of booleans is known."""
_BOOLEANS = {
    **dict.fromkeys(("true", "True", "TRUE", "1"), "true"),
    **dict.fromkeys(("false", "False", "FALSE", "0"), "false"),
}
"""The spellings in a column that holds booleans."""

_NUMBERS = frozenset({Kind.FLOAT, Kind.SIGNED, Kind.UNSIGNED})
_CONVERTERS: dict[Kind, _Convert] = {Kind.BYTES: _texts, Kind.BOOL: _booleans, **dict.fromkeys(_NUMBERS, _numbers)}
_SORTS: dict[_Convert, str] = {_numbers: "number", _booleans: "boolean (true or false)"}


def _converters(rows: CsvRows, kinds: list[Kind | None]) -> list[_Convert]:
    """The function that makes the values of each column: by its kind, or as all of its cells look."""
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
    """The function for cells that look like these of a column; None if they may be anything."""
    cells = batch.column(at)
    if batch.has_quotes(at):
        if batch.width > 1 or any(compress(cells, batch.quoted)):
            return _texts
        # an empty cell that is alone in its row cannot be written otherwise
        cells = [cell for cell in cells if cell]
        if not cells:
            return None
    if max(map(len, cells)) <= BLOCK and _are_numbers_or_empty("\n".join(cells) + "\n"):
        return _numbers
    return _booleans if set(cells) <= _LIKE_BOOLEANS else _texts


def write(text: bytes, *, header: bool) -> bytes:
    """The CSV of the table in the compact JSON `text`: a list of lists, a list of single values, each of them a row, or
    with a header a list of objects that have the same keys in the same order. Without any row it is empty.

    Numbers keep their digits, null is an empty cell. A text that would be read as something else is quoted.

    Raises:
        GatewayError: INVALID_ARGUMENT, the document is no table: a cell is a list or an object, or rows differ.
    """
    if not text.startswith(b"["):
        raise invalid_input("the document is no list, but CSV has rows")
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
    """Raises GatewayError if a row is too short or too long. `first` is the number of the first row."""
    if widths.count(expected) < len(widths):
        at = next(at for at, width in enumerate(widths) if width != expected)
        raise invalid_input(f"row {first + at} has {counted(widths[at])}, but row 0 {counted(expected)}")


def _written(text: bytes, *, header: bool) -> Iterator[bytes]:
    """The lines of any table, some rows at a time: as Python's values they are fifty times larger than as text."""
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
    """The lines of a list of numbers, or of a list of such lists; None if it holds anything else."""
    if any(mark in text for mark in (b'"', b"{", b"u", b"[]", b"[[[")):  # `u` is in null and in booleans
        return b"" if text == b"[]" else None
    lines = text[2:-2].replace(b"],[", b"\n") if text.startswith(b"[[") else text[1:-1].replace(b",", b"\n")
    return None if b"[" in lines else lines + b"\n"


class _Digits(str):
    """A number of JSON as it is spelled."""

    __slots__ = ()


_DECODER = json.JSONDecoder(parse_float=_Digits, parse_int=_Digits, parse_constant=_Digits)


def _object_cells(rows: list[dict[str, Any]], names: list[str], first: int) -> list[list[str]]:
    """The cells of `rows`, whose members are `names`. `first` is the number of the first row."""
    for at, row in enumerate(rows, first):
        if list(row) != names:
            raise invalid_input(f"row {at} has the members {list(row)}, but row 0 has {names}; a CSV table has columns")
    return [_cells(list(row.values())) for row in rows]


def _cells(row: list[Any]) -> list[str]:
    if not row:
        raise invalid_input("a row is empty, which no line of CSV says")
    cells = list(map(_cell, row))
    return cells if cells != [""] else ['""']  # most readers take a line without a character for no row


def _cell(value: Any) -> str:
    if isinstance(value, _Digits):
        return value
    if isinstance(value, str):
        return _quoted(value)
    if isinstance(value, list | dict):
        raise invalid_input("a row holds a list or an object, but a cell of CSV is a single value")
    return "" if value is None else "true" if value else "false"


def _quoted(text: str) -> str:
    if _PLAIN(text) and not _is_number(text) and text not in _LIKE_BOOLEANS:
        return text
    return '"' + text.replace('"', '""') + '"'


_PLAIN = re.compile(r'[^",\s][^",\r\n]*').fullmatch
