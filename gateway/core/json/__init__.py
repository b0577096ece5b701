"""Reading and writing JSON that contains tensors. Arrays of numbers and strings are converted directly to tensor data,
without Python objects.

- Typed reading (`typed`): messages that are declared as types (msgspec Structs) keep the JSON text of their arrays.
  `contents` converts between this text and raw data.
- General reading (`read`), for all other documents, and for documents that do not match a type. orjson reads documents
  of up to 8 KiB in one step (`reading`). In larger documents, `document` cuts out the texts of the arrays, and simdjson
  or orjson reads these texts piece by piece (`bulk_numbers`, `bulk_strings`). The rest of the document is small and
  plain. Both methods return the same values. Every error message comes from the method for larger documents.

The package rejects the following content, because servers disagree about its meaning or crash:

- Keys that occur twice in one object.
- Nesting beyond 64 levels.
- Ragged arrays, and arrays that mix numbers, booleans and strings.
- Bytes after the document.
- More values outside tensor data than `limits.json_values`.

In arrays, integers of up to 64 bits stay exact. Elsewhere, integers of any size stay exact. `1` and `1.0` stay
different.

orjson and numpy alone are not sufficient. orjson keeps the last of two equal keys, and turns integers that do not fit
in 64 bits into floats. numpy mixes booleans with numbers. In addition, every number becomes a Python object. orjson and
numpy read a request with 100,000 doubles in 4,142 us, while this package takes 2,280 us and a limited amount of memory.
For up to 200 numbers, orjson and numpy are faster: 10 doubles take 1.1 us, compared with 4.4 us in this package. The
difference is the cost of the checks. For the figures, see docs/dependencies.md and docs/decisions/json.md.
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
    utf8_pieces,
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
    "utf8_pieces",
    "write",
    "write_message",
    "write_numbers",
    "written",
]
