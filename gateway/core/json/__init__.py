"""JSON with tensors. Arrays of numbers and strings become tensor data directly, without Python objects.

- Typed reading (`typed`): messages that are declared as types (msgspec Structs) keep the JSON text of their arrays.
  `contents` converts this text to raw data, and raw data to text.
- General reading (`read`), for all other documents, and for documents that do not match a type: for documents up to 8
  KiB, orjson reads the whole document (`reading`). In larger documents, `document` cuts out the texts of the arrays.
  simdjson or orjson then read these texts a piece at a time (`bulk_numbers`, `bulk_strings`); the rest is small and
  plain. Both methods give the same values. Every error message comes from the method for larger documents.

The package refuses the following content, because real servers disagree about its meaning or crash:

- Keys that occur twice in one object.
- Nesting beyond 64 levels.
- Ragged arrays, and arrays that mix numbers, booleans and strings.
- Bytes after the document.
- More values outside tensor data than `limits.json_values`.

In arrays, integers of up to 64 bits stay exact; elsewhere, integers of any size do. `1` and `1.0` stay different.

orjson and numpy alone are not sufficient: orjson keeps the last of two equal keys and turns integers that do not fit in
64 bits into floats, numpy mixes booleans with numbers, and every number becomes a Python object. They read a request
with 100,000 doubles in 4,142 us; this package needs 2,280 us and a limited amount of memory. For up to 200 numbers
orjson and numpy are faster (1.1 us for 10 doubles, this package 4.4 us). The difference is the cost of the checks. See
docs/dependencies.md and docs/decisions/json.md for the figures.
"""

from gateway.core.json import missing
from gateway.core.json.arrays import Array, ArrayForm
from gateway.core.json.bulk_numbers import BLANKS, INT64_MAX, INT64_MIN, MAX_DEPTH, UINT64_MAX, Numbers, Text
from gateway.core.json.contents import array, packed, written
from gateway.core.json.document import Json, cut_out
from gateway.core.json.reading import read, read_bare, read_members
from gateway.core.json.typed import CUT_FROM, TypedReader
from gateway.core.json.writing import (
    PIECE,
    Pieces,
    kept,
    nested_string_pieces,
    number_pieces,
    number_rows,
    numbers,
    placed,
    string_pieces,
    string_rows,
    write,
    write_message,
    write_numbers,
)

__all__ = [
    "BLANKS",
    "CUT_FROM",
    "INT64_MAX",
    "INT64_MIN",
    "MAX_DEPTH",
    "PIECE",
    "UINT64_MAX",
    "Array",
    "ArrayForm",
    "Json",
    "Numbers",
    "Pieces",
    "Text",
    "TypedReader",
    "array",
    "cut_out",
    "kept",
    "missing",
    "nested_string_pieces",
    "number_pieces",
    "number_rows",
    "numbers",
    "packed",
    "placed",
    "read",
    "read_bare",
    "read_members",
    "string_pieces",
    "string_rows",
    "write",
    "write_message",
    "write_numbers",
    "written",
]
