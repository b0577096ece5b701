"""GrpsMessage as JSON, with the habits of either upstream server; independent of the gateway.

Read: unknown members are ignored, enums by name or number, 64-bit integers as numbers or strings, "NaN" and
"Infinity" as strings, a bare NaN refused, bytes as base64. Written: indented, defaults left out, 64-bit integers as
strings, floats in their shortest form, which Python ends in `.0` where C++ does not.
"""

from __future__ import annotations

import base64
import json
import math
import struct
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from tests.peers.grps_messages import MESSAGE
from tests.peers.protobuf import DEFAULTS, Document, Field, Schema

RANGES = {"uint32": (0, 2**32 - 1), "int32": (-(2**31), 2**31 - 1), "int64": (-(2**63), 2**63 - 1)}
TEXTS = {"NaN": math.nan, "Infinity": math.inf, "-Infinity": -math.inf}
FLOATS = ("float", "double")


# --- Reading ---


def load(body: bytes) -> Document:
    """The JSON object as it stands. Raises ValueError for what is none."""
    document = json.loads(body, parse_constant=_no_constant)
    if not isinstance(document, dict):
        raise ValueError("the JSON document is no object")
    return document


def _no_constant(text: str) -> float:
    raise ValueError(f"{text} is no JSON")


def read(document: Mapping[str, Any], *, camel: bool, schema: Schema = MESSAGE) -> Document:
    """A document of grps_messages. With `camel`, `flatFloat32` is `flat_float32`. Raises ValueError."""
    names = {field.name: field for field in schema.values()}
    if camel:
        names = {camel_case(name): field for name, field in names.items()} | names
    return {
        names[name].name: _member(names[name], value, camel)
        for name, value in document.items()
        if name in names and value is not None
    }


def camel_case(name: str) -> str:
    head, *rest = name.split("_")
    return head + "".join(word.capitalize() for word in rest)


def _member(field: Field, value: Any, camel: bool) -> Any:
    if field.is_map:
        return {key: _value(field, each, camel) for key, each in _expect(dict, field, value).items()}
    if field.repeated:
        return [_value(field, each, camel) for each in _expect(list, field, value)]
    return _value(field, value, camel)


def _value(field: Field, value: Any, camel: bool) -> Any:
    if field.schema is not None:
        return read(_expect(dict, field, value), camel=camel, schema=field.schema)
    if field.kind == "string":
        return _expect(str, field, value)
    if field.kind == "bytes":
        return base64.b64decode(_expect(str, field, value), validate=True)
    if field.kind == "enum":
        return _enum(field, value)
    return _float(field, value) if field.kind in FLOATS else _integer(field, value)


def _expect(kind: type[Any], field: Field, value: Any) -> Any:
    if not isinstance(value, kind):
        raise ValueError(f"Failed to parse {field.name} field: {value!r}")
    return value


def _enum(field: Field, value: Any) -> Any:
    if isinstance(value, str) and value not in field.values:
        raise ValueError(f"Failed to parse {field.name} field: no enum value {value!r}")
    return field.values[value] if isinstance(value, int) and 0 <= value < len(field.values) else value


def _integer(field: Field, value: Any) -> int:
    fraction = isinstance(value, float) and not value.is_integer()
    if isinstance(value, bool) or not isinstance(value, int | float | str) or fraction:
        raise ValueError(f"Failed to parse {field.name} field: {value!r}")
    least, most = RANGES[field.kind]
    if not least <= int(value) <= most:
        raise ValueError(f"Failed to parse {field.name} field: {value} is out of range")
    return int(value)


def _float(field: Field, value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        raise ValueError(f"Failed to parse {field.name} field: {value!r}")
    number = TEXTS[value] if isinstance(value, str) and value in TEXTS else float(value)
    if field.kind == "double":
        return number
    try:
        return float(struct.unpack("<f", struct.pack("<f", number))[0])
    except OverflowError as error:
        raise ValueError(f"Failed to parse {field.name} field: {value} is out of range") from error


# --- Writing ---


class Literal(str):
    """A number as it is to be printed."""


Float = Callable[[float, str], str]
"""The text of a finite number of kind `float` or `double`."""


def python_float(number: float, kind: str) -> str:
    return str(np.float32(number)) if kind == "float" else repr(float(number))


def cpp_float(number: float, kind: str) -> str:
    """`%g` with as few digits as give the number back."""
    narrow: type[Any] = np.float32 if kind == "float" else float
    texts = (f"{number:.{digits}g}" for digits in range(6, 18))
    return next(text for text in texts if narrow(text) == narrow(number))


def tree(document: Mapping[str, Any], number: Float, schema: Schema = MESSAGE) -> Document:
    """The JSON values of a document of grps_messages, in the order of the fields' numbers."""
    present = ((field, document[field.name]) for _, field in sorted(schema.items()) if field.name in document)
    return {
        field.name: _written(field, value, number)
        for field, value in present
        if field.oneof or (field.values[:1] != (value,) and value not in DEFAULTS)
    }


def _written(field: Field, value: Any, number: Float) -> Any:
    if field.is_map:
        return {key: _one(field, each, number) for key, each in value.items()}
    return [_one(field, each, number) for each in value] if field.repeated else _one(field, value, number)


def _one(field: Field, value: Any, number: Float) -> Any:
    if field.schema is not None:
        return tree(value, number, field.schema)
    if field.kind == "bytes":
        return base64.b64encode(value).decode()
    if field.kind in FLOATS:
        return float_value(value, field.kind, number)
    return str(value) if field.kind == "int64" else value


def float_value(value: float, kind: str, number: Float) -> str:
    """A Literal, or the text that stands for what JSON has no number for."""
    if math.isfinite(value):
        return Literal(number(value, kind))
    return next(text for text, each in TEXTS.items() if each == value or value != value)


def pretty(value: Any, indent: int, *, ascii_only: bool = True, depth: int = 0) -> str:
    """One member or element per line, as both JSON printers do it."""
    if isinstance(value, Literal):
        return value
    if not isinstance(value, dict | list) or not value:
        return json.dumps(value, ensure_ascii=ascii_only)
    inner, outer = "\n" + " " * indent * (depth + 1), "\n" + " " * indent * depth
    below = [pretty(each, indent, ascii_only=ascii_only, depth=depth + 1) for each in _values(value)]
    if isinstance(value, list):
        return f"[{inner}{f',{inner}'.join(below)}{outer}]"
    members = (f"{json.dumps(key, ensure_ascii=ascii_only)}: {each}" for key, each in zip(value, below, strict=True))
    return f"{{{inner}{f',{inner}'.join(members)}{outer}}}"


def _values(value: dict[str, Any] | list[Any]) -> list[Any]:
    return list(value.values()) if isinstance(value, dict) else value


# --- ndarray ---


def tensor_of(array: Any) -> Document:
    """The one unnamed DT_FLOAT32 tensor of a nested list. Raises ValueError for a ragged one."""
    values = np.array(array, np.float32)
    shape = {"shape": list(values.shape)} if values.ndim else {}
    return {"tensors": [{"dtype": "DT_FLOAT32", **shape, "flat_float32": values.reshape(-1).tolist()}]}


def nested(tensor: Mapping[str, Any], number: Float) -> Any:
    """A float32 tensor's elements, widened, in lists as its shape says."""

    def literals(value: Any) -> Any:
        return [literals(each) for each in value] if isinstance(value, list) else float_value(value, "double", number)

    return literals(np.array(tensor.get("flat_float32", []), np.float32).reshape(tensor.get("shape", [])).tolist())
