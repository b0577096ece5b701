"""The inputs that checks send: generated from a signature, or taken from the option `--input`."""

import re
import struct
from collections.abc import Sequence
from math import prod
from typing import Any, TypeAlias

from gateway.core.frozen import frozen

Values: TypeAlias = list[Any]
"""Elements of a tensor in row-major order: numbers, booleans, or strings for BYTES."""

FORMATS = {
    "BOOL": "?", "UINT8": "B", "UINT16": "H", "UINT32": "I", "UINT64": "Q",
    "INT8": "b", "INT16": "h", "INT32": "i", "INT64": "q", "FP16": "e", "FP32": "f", "FP64": "d",
}  # fmt: skip
"""The V2 datatypes of fixed size, with the `struct` format characters of their elements."""
DATATYPES = (*FORMATS, "BYTES")
MAX_ELEMENTS = 1_000_000
"""Maximum number of elements of a generated input."""

_SYNTAX = re.compile(r"(?P<name>[^=]*)=(?P<datatype>[A-Z0-9]+)\[(?P<shape>[-0-9, ]*)\](?::(?P<values>.*))?", re.DOTALL)


@frozen
class InputSpec:
    """An input of a model. A dimension of -1 can have any size. `values` contains the values from `--input`; if it is
    empty, the values are generated."""

    name: str
    datatype: str
    shape: tuple[int, ...]
    values: tuple[Any, ...] = ()


@frozen
class Sample:
    """A tensor that the checks send."""

    name: str
    datatype: str
    shape: tuple[int, ...]
    values: Values

    @property
    def raw(self) -> bytes:
        """Return the raw bytes: little-endian, in row-major order. As in V2, a 4-byte length precedes each BYTES
        element."""
        return packed(self.datatype, self.values)

    @property
    def nested(self) -> Any:
        """Return the values as nested lists of this shape."""
        return nest(self.values, self.shape)


def sample(spec: InputSpec) -> Sample:
    """Return a tensor for an input. Each dimension of -1 becomes 2, except the first of several dimensions, which
    becomes 1 (one row).

    Raises:
        ValueError: the input is too large, or its datatype is unknown.
    """
    shape = tuple(_size(at, dimension, len(spec.shape)) for at, dimension in enumerate(spec.shape))
    count = prod(shape)
    if count > MAX_ELEMENTS:
        raise ValueError(f"input {spec.name!r} has {count} elements; expected at most {MAX_ELEMENTS}")
    if spec.datatype not in DATATYPES:
        raise ValueError(f"input {spec.name!r} has the datatype {spec.datatype!r}; expected {', '.join(DATATYPES)}")
    values = list(spec.values) or [_value(spec.datatype, at) for at in range(count)]
    if len(values) != count:
        raise ValueError(f"input {spec.name!r} has {len(values)} values; its shape {list(shape)} has {count} elements")
    return Sample(spec.name, spec.datatype, shape, values)


def parse_input(text: str) -> InputSpec:
    """Parse an input such as `x=FP64[-1,3]`, or with values, `x=FP64[1,3]:0.5,1,2`.

    Raises:
        ValueError: the text has a different format.
    """
    match = _SYNTAX.fullmatch(text)
    if match is None or match["datatype"] not in DATATYPES:
        wanted = (
            f"NAME=DATATYPE[SHAPE] or NAME=DATATYPE[SHAPE]:VALUE,VALUE,... with a datatype of {', '.join(DATATYPES)}"
        )
        raise ValueError(f"input {text!r} is not {wanted}")
    datatype = match["datatype"]
    try:
        shape = tuple(int(each) for each in match["shape"].split(",") if each.strip())
        values = tuple(_parsed(datatype, each) for each in match["values"].split(",")) if match["values"] else ()
    except ValueError as error:
        raise ValueError(f"input {text!r}: {error}") from None
    spec = InputSpec(match["name"], datatype, shape, values)
    sample(spec)
    return spec


def packed(datatype: str, values: Sequence[Any]) -> bytes:
    """Return the raw bytes: little-endian, in row-major order. A 4-byte length precedes each BYTES element."""
    if datatype == "BYTES":
        return b"".join(struct.pack("<I", len(raw)) + raw for raw in map(as_bytes, values))
    return struct.pack(f"<{len(values)}{FORMATS[datatype]}", *values)


def unpacked(datatype: str, raw: bytes) -> Values:
    """Return the elements in raw bytes, as the reverse of `packed`. BYTES elements stay bytes.

    Raises:
        ValueError: the bytes do not contain an integral number of elements.
    """
    if datatype == "BYTES":
        return list(_split(raw))
    size = struct.calcsize(f"<{FORMATS[datatype]}")
    if len(raw) % size:
        raise ValueError(f"{len(raw)} bytes are not a whole number of {datatype}")
    return list(struct.unpack(f"<{len(raw) // size}{FORMATS[datatype]}", raw))


def nest(values: Sequence[Any], shape: Sequence[int]) -> Any:
    """Return values as nested lists of this shape."""
    if not shape:
        return values[0]
    size = prod(shape[1:])
    return [nest(values[at * size : (at + 1) * size], shape[1:]) for at in range(shape[0])]


def flat(data: Any) -> Values:
    """Return the elements of nested lists."""
    return [element for each in data for element in flat(each)] if isinstance(data, list) else [data]


def same(datatype: str, ours: Sequence[Any], theirs: Sequence[Any]) -> bool:
    """Return whether two lists have the same elements, within the precision of the datatype."""
    if len(ours) != len(theirs):
        return False
    if datatype == "BYTES":
        return [as_bytes(each) for each in ours] == [as_bytes(each) for each in theirs]
    tolerance = {"FP16": 2e-3, "FP32": 1e-5, "FP64": 1e-12}.get(datatype, 0.0)
    return all(_is_close(a, b, tolerance) for a, b in zip(ours, theirs, strict=True))


def as_bytes(element: Any) -> bytes:
    """Return an element of a BYTES tensor."""
    return element if isinstance(element, bytes) else str(element).encode()


def _is_close(a: Any, b: Any, tolerance: float) -> bool:
    try:
        return bool(a == b or (a != a and b != b) or abs(a - b) <= tolerance * max(abs(a), abs(b)))
    except TypeError:
        return False


def _size(at: int, dimension: int, rank: int) -> int:
    if dimension >= 0:
        return dimension
    return 1 if at == 0 and rank > 1 else 2


def _value(datatype: str, at: int) -> Any:
    if datatype == "BYTES":
        return ("a", "b")[at % 2]
    if datatype == "BOOL":
        return at % 2 == 0
    return 0.5 + 0.25 * (at % 8) if datatype.startswith("FP") else 1 + at % 8


def _parsed(datatype: str, text: str) -> Any:
    if datatype == "BYTES":
        return text
    if datatype == "BOOL":
        if text.strip() not in ("true", "false"):
            raise ValueError(f"{text!r} is not true or false")
        return text.strip() == "true"
    number = float(text) if datatype.startswith("FP") else int(text)
    try:
        packed(datatype, [number])
    except (struct.error, OverflowError):
        raise ValueError(f"{text} is out of the range of {datatype}") from None
    return number


def _split(raw: bytes) -> Values:
    elements, at = [], 0
    while at < len(raw):
        if at + 4 > len(raw):
            raise ValueError("the bytes end within the length of an element")
        (size,) = struct.unpack_from("<I", raw, at)
        if at + 4 + size > len(raw):
            raise ValueError(f"an element of {size} bytes ends beyond the data")
        elements.append(raw[at + 4 : at + 4 + size])
        at += 4 + size
    return elements
