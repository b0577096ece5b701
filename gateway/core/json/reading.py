"""Read JSON documents. Arrays of numbers and strings become tensor data, everything else becomes plain Python
values."""

from codecs import BOM_UTF8
from collections.abc import Container, Mapping

from gateway.core.errors import DecodeError
from gateway.core.json.arrays import Array, ArrayForm, read_array
from gateway.core.json.bulk_numbers import BLANKS, Text
from gateway.core.json.document import AllBut, Json, Wanted, read_document
from gateway.core.json.small import read_small
from gateway.core.messages import Buffer

_SMALL = 8192
"""Maximum size of a document that `small` reads, in bytes.

`small` creates Python numbers, which for larger documents costs more than cutting the arrays out."""


def read(
    body: Buffer, arrays: Mapping[str, ArrayForm], *, values: int, literals: bool, level: int | None = None
) -> dict[str, Json]:
    """Return the JSON object in `body`.

    The function reads the value of each key in `arrays` as an Array (ArrayForm.ARRAY) or as a list of Arrays
    (ArrayForm.VECTORS). If `level` is set, only keys at this level count: the document's own keys are at level 1, the
    keys of objects in a list of the document at level 3. By default, keys at every level count.

    `values` (`limits.json_values`) is the maximum number of values outside these arrays. An array can nest at most
    `values` more arrays than it has elements.

    If `literals` is True, the function accepts NaN, Infinity and -Infinity as numbers, and also `nan`, `inf` and
    `-inf`, which old UM-Bridge servers write. A finite number beyond the range of a double, such as 1e400, is always an
    error.

    Raises:
        DecodeError: the body is not JSON or not an object, or it has content that the package refuses. The message
            contains the position.
    """
    text = (body if isinstance(body, bytes) else bytes(body)).removeprefix(BOM_UTF8)
    if not text or text.isspace():
        raise DecodeError("empty body, expected a JSON object")
    wanted = Wanted(arrays, level)
    if len(text) <= _SMALL and b"\\" not in text:
        try:
            return read_small(text, wanted, values)
        except DecodeError:
            pass  # read_document accepts the document or reports the error
    return read_document(text, wanted, values, literals)


def read_members(body: Buffer, plain: Container[str], *, values: int, literals: bool) -> dict[str, Json]:
    """Return the JSON object in `body`.

    Every member except the members in `plain` becomes an Array; a scalar becomes an Array of shape ().

    `values` and `literals` have the same meaning as in `read`.

    Raises:
        DecodeError: same as `read`, or if a member is null, an object, or ragged.
    """
    return read(body, AllBut(plain), values=values, literals=literals, level=1)


def read_bare(text: bytes, *, values: int, literals: bool) -> Array:
    """Return the array or scalar that `text` consists of: numbers, booleans or strings.

    `values` and `literals` have the same meaning as in `read`.

    Raises:
        DecodeError: the text is not JSON, is ragged or mixed, or is an object.
    """
    text = text.strip(BLANKS)
    if text.startswith(b"{"):
        raise DecodeError("an object, expected an array")
    return read_array(Text(text, 0, len(text)), values, literals)
