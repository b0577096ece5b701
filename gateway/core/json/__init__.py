"""JSON with tensors: converts arrays of numbers and strings directly to tensor data, without Python objects.

Messages declared as types (msgspec Structs) contain the texts of their arrays; `contents` converts a text to raw data,
and raw data to text. The general reader, `read`, handles all other documents, and documents that do not match a type.
For documents up to 8 KiB orjson reads the whole document (`small`). In larger documents the texts of the wanted arrays
are cut out (`document`), simdjson or orjson read them a piece at a time (`bulk_numbers`, `bulk_strings`), and the rest
is small and plain. Both methods give the same values; every error text comes from the second.

Refused, because real servers disagree on their meaning, or crash on them:

- keys that occur twice in one object,
- nesting beyond 64 levels,
- ragged arrays, and arrays that mix numbers, booleans and strings,
- bytes after the document,
- more values outside tensor data than `limits.json_values`.

Integers stay exact up to 64 bits in arrays and at any size elsewhere; `1` and `1.0` are distinguished.

Why not orjson and numpy alone: orjson keeps the last of two equal keys and turns integers beyond 64 bits into floats,
numpy mixes booleans with numbers, and every number becomes a Python object. Reading a request with 100,000 doubles
takes them 4,142 us, this package 2,280 us in bounded memory. For 200 numbers and fewer they are faster (10 doubles: 1.1
us, here 4.4 us); the difference pays for these checks. docs/dependencies.md and docs/decisions/json.md have the
figures.
"""

from gateway.core.json import missing
from gateway.core.json.arrays import Array, ArrayForm
from gateway.core.json.bulk_numbers import INT64_MAX, INT64_MIN, MAX_DEPTH, UINT64_MAX, Numbers, Text
from gateway.core.json.contents import array, packed, written
from gateway.core.json.document import Json, cut_out
from gateway.core.json.reading import read, read_bare, read_members
from gateway.core.json.writing import (
    PIECE,
    Pieces,
    kept,
    nested_string_pieces,
    number_pieces,
    numbers,
    placed,
    string_pieces,
    string_rows,
    write,
    write_message,
    write_numbers,
)

__all__ = [
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
    "array",
    "cut_out",
    "kept",
    "missing",
    "nested_string_pieces",
    "number_pieces",
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
