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
from collections.abc import Callable, Iterator, Sequence
from itertools import chain, islice
from typing import Any, TypeAlias

import orjson
from orjson import Fragment

from gateway.core.datatypes import Kind
from gateway.core.errors import DecodeError, Reason, invalid_input, refusal
from gateway.core.types import Buffer
from gateway.protocols.json.media.csv_rows import Cell, CsvBatch, CsvRows, counted, next_row

KindOf: TypeAlias = Callable[[str], Kind | None]
"""The kind of a column's datatype by the column's name (`0`, `1`, ... without a header); None if it has none."""

_Value: TypeAlias = str | Fragment
"""A cell's value: a text, or the JSON text of a number or a boolean."""
_Convert: TypeAlias = Callable[[list[Cell]], Sequence[_Value] | None]
"""Makes the values of some cells of a column; None if one of them cannot be of the column's datatype."""

_BOM = b"\xef\xbb\xbf"

# possessive: no input makes the matching backtrack
_DIGITS = rb"-?+(?:(?:0|[1-9][0-9]*+)(?:\.[0-9]++)?+(?:[eE][+-]?+[0-9]++)?+|Infinity|inf)|NaN|nan"
_NUMBER = rb"[ \t]*+(?:%b)[ \t]*+" % _DIGITS
_is_number = re.compile(_NUMBER).fullmatch
_are_numbers_or_empty = re.compile(rb"(?:[ \t]*+(?:%b)?+[ \t]*+\n)*+" % _DIGITS).fullmatch

_OBJECTS, _CELL_SIZE = 2**20, 64
"""Bytes of objects that are made JSON at once, and what a cell takes beside its name."""


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
    first, start = next_row(text, 0, 1)
    width = len(first)
    names = _names(first, columns) if header else None
    if header and start == len(text):  # a row without the header that belongs before it would look like this
        raise DecodeError("line 1 is the header, but no row follows it")
    rows = CsvRows(text, start, 1 + text.count(b"\n", 0, start), width) if header else CsvRows(text, 0, 1, width)
    if flat and width > 1 and start < len(text):
        raise DecodeError(f"line {rows.line + 1}: a second row of {width} cells, expected one column or one row")
    kinds = [kind_of(name) for name in names or map(str, range(width))]
    if all(kind is None or kind in _NUMBERS for kind in kinds) and _are_numbers(rows):
        return _joined(_number_pieces(rows, names, flat=flat), limit)
    _check_columns(width, columns)
    return _joined(_cell_pieces(rows, names, _converters(rows, kinds), flat=flat), limit)


def _checked(text: bytes) -> bytes:
    """`text` with one line end after the last row: empty lines at the end are no rows. Raises DecodeError if it is not
    UTF-8."""
    try:
        if not text.isascii():
            text.decode()
    except UnicodeDecodeError as error:
        line = text.count(b"\n", 0, error.start) + 1
        raise DecodeError(f"line {line}: byte {text[error.start]:#04x} is not UTF-8") from error
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
    found, size = [], 2
    for piece in pieces:
        found.append(piece)
        size += len(piece) + 1
        if size > limit:
            raise refusal(Reason.TOO_LARGE, f"as JSON the table has more than {limit} bytes (limits.message)")
    return b"[%b]" % b",".join(found)


def _are_numbers(rows: CsvRows) -> bool:
    """Whether each cell is a number, neither quoted nor empty, and no row is too short or too long."""
    is_number_lines = re.compile(rb"(?:(?:%b,){%d}%b\r?+\n)*+" % (_NUMBER, rows.width - 1, _NUMBER)).fullmatch
    return all(map(is_number_lines, rows.pieces()))


def _number_pieces(rows: CsvRows, names: tuple[str, ...] | None, *, flat: bool) -> Iterator[bytes]:
    """The rows as JSON, where every cell is a number: the cells go on as they are."""
    for piece in rows.pieces():
        lines = _spelled(piece).replace(b"\r\n", b"\n")[:-1]
        if flat:
            yield lines.replace(b"\n", b",")
        elif names is None:
            yield b"[%b]" % lines.replace(b"\n", b"],[")
        else:
            yield from _objects(lines.split(b"\n"), names)


def _spelled(numbers: bytes) -> bytes:
    """`numbers` with NaN and infinities as JSON's readers know them."""
    return numbers.replace(b"nan", b"NaN").replace(b"inf", b"Infinity") if b"n" in numbers else numbers


def _objects(lines: list[bytes], names: tuple[str, ...]) -> Iterator[bytes]:
    """A JSON object for each of `lines`, whose cells are numbers."""
    template = b"{%b}" % b",".join([orjson.dumps(name).replace(b"%", b"%%") + b":%b" for name in names])
    step = _rows_at_once(names)
    for at in range(0, len(lines), step):
        yield b",".join([template % tuple(line.split(b",")) for line in lines[at : at + step]])


def _rows_at_once(names: tuple[str, ...]) -> int:
    """The number of rows that are made objects at once: what they take is bounded before it is counted."""
    return max(1, _OBJECTS // sum(_CELL_SIZE + len(name) for name in names))


def _cell_pieces(
    rows: CsvRows, names: tuple[str, ...] | None, converters: list[_Convert], *, flat: bool
) -> Iterator[bytes]:
    """The rows as JSON, column by column."""
    for batch in rows.batches():
        columns = [_values(batch, at, convert, names) for at, convert in enumerate(converters)]
        if flat:  # one column, or one row
            yield orjson.dumps([*chain.from_iterable(columns)])[1:-1]
            continue
        each_row = zip(*columns, strict=True)
        if names is None:
            yield orjson.dumps(list(each_row))[1:-1]
            continue
        while some := list(islice(each_row, _rows_at_once(names))):
            yield orjson.dumps([dict(zip(names, row, strict=True)) for row in some])[1:-1]


def _values(batch: CsvBatch, at: int, convert: _Convert, names: tuple[str, ...] | None) -> Sequence[_Value]:
    """The values of one column. Raises DecodeError for a cell that is not of the column's datatype."""
    cells = batch.column(at)
    values = convert(cells)
    if values is None:
        line, cell = next(
            (line, cell) for line, cell in zip(batch.lines, cells, strict=True) if convert([cell]) is None
        )
        column = repr(names[at][:50]) if names else str(at)
        raise DecodeError(f"line {line}, column {column}: {_text(cell)[:50]!r} is no {_SORTS[convert]}")
    return values


def _text(cell: Cell) -> str:
    return cell[1:-1].replace(b'""', b'"').decode() if cell.startswith(b'"') else cell.decode()


def _texts(cells: list[Cell]) -> Sequence[_Value]:
    joined = b"\n".join(cells)  # a cell that holds a line feed is quoted
    return [_text(cell) for cell in cells] if b'"' in joined else joined.decode().split("\n")


def _numbers(cells: list[Cell]) -> Sequence[_Value] | None:
    joined = b"\n".join(cells)
    if b'"' in joined:
        joined = b"\n".join([cell.removeprefix(b'"').removesuffix(b'"') for cell in cells])
    if joined.count(b"\n") >= len(cells) or not _are_numbers_or_empty(joined + b"\n"):
        return None
    return [Fragment(cell) if cell and not cell.isspace() else _NAN for cell in _spelled(joined).split(b"\n")]


_NAN = Fragment(b"NaN")


def _booleans(cells: list[Cell]) -> Sequence[_Value] | None:
    values = [_BOOLEANS.get(cell.strip(b'" ')) for cell in cells]
    return [value for value in values if value is not None] if None not in values else None


_TRUE, _FALSE = Fragment(b"true"), Fragment(b"false")
_LIKE_BOOLEANS = frozenset({b"true", b"false", b"True", b"False"})
"""The spellings by which a column of booleans is known."""
_BOOLEANS = {
    **dict.fromkeys((b"true", b"True", b"TRUE", b"1"), _TRUE),
    **dict.fromkeys((b"false", b"False", b"FALSE", b"0"), _FALSE),
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
            like = _looks(batch.column(at), is_alone=rows.width == 1)
            if like is None:
                continue
            looks[at] = like if looks.get(at, like) is like else _texts
            if looks[at] is _texts:
                unknown.discard(at)
        if not unknown:
            break
    return [looks.get(at, _texts) if kind is None else _CONVERTERS[kind] for at, kind in enumerate(kinds)]


def _looks(cells: list[Cell], *, is_alone: bool) -> _Convert | None:
    """The function for cells that look like these of a column; None if they may be anything."""
    if is_alone:  # an empty cell that is alone in its row cannot be written otherwise
        cells = [cell for cell in cells if cell != b'""']
        if not cells:
            return None
    joined = b"\n".join(cells)
    if b'"' in joined:
        return _texts
    if _are_numbers_or_empty(joined + b"\n"):
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
        rows = _DECODER.decode(text.decode())
        cells = _object_cells(rows) if header else [_cells(row if isinstance(row, list) else [row]) for row in rows]
        lines = [",".join(row).encode() for row in cells]
        widths = list(map(len, cells))
    else:
        widths = [line.count(b",") + 1 for line in lines]
    for at, width in enumerate(widths):
        if width != widths[0]:
            raise invalid_input(f"row {at} has {counted(width)}, but row 0 {counted(widths[0])}")
    return b"".join([line + b"\r\n" for line in lines])


def _number_lines(text: bytes) -> list[bytes] | None:
    """The lines of a list of numbers, or of a list of such lists; None if it holds anything else."""
    if any(mark in text for mark in (b'"', b"{", b"u", b"[]", b"[[[")):  # `u` is in null and in booleans
        return [] if text == b"[]" else None
    lines = text[2:-2].split(b"],[") if text.startswith(b"[[") else text[1:-1].split(b",")
    return None if any(b"[" in line for line in lines) else lines


class _Digits(str):
    """A number of JSON as it is spelled."""

    __slots__ = ()


_DECODER = json.JSONDecoder(parse_float=_Digits, parse_int=_Digits, parse_constant=_Digits)


def _object_cells(rows: list[dict[str, Any]]) -> list[list[str]]:
    """The cells of the header and of `rows`."""
    if not rows:
        return []
    names = list(rows[0])
    for at, row in enumerate(rows):
        if list(row) != names:
            raise invalid_input(f"row {at} has the members {list(row)}, but row 0 has {names}; a CSV table has columns")
    return [list(map(_quoted, names)), *(_cells(list(row.values())) for row in rows)]


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
    if _PLAIN(text) and not _is_number(cell := text.encode()) and cell not in _LIKE_BOOLEANS:
        return text
    return '"' + text.replace('"', '""') + '"'


_PLAIN = re.compile(r'[^",\s][^",\r\n]*').fullmatch
