"""The playground's form, and its conversion to a Request."""

import json
import re
from collections.abc import Iterator, Sequence
from math import isfinite, prod
from typing import Any, TypeVar

import numpy as np
from pydantic import BaseModel, ConfigDict, Field

from gateway.client.credentials import RawHeaders, raw_headers
from gateway.client.outputs import as_parameters
from gateway.core.datatypes import DATATYPES, Datatype
from gateway.core.errors import GatewayError
from gateway.core.models import Signature, TensorSpec
from gateway.core.operations import CALLS, Operation
from gateway.core.requests import Request
from gateway.core.tensors import MAX_RANK, Parameters, Shape, Tensor, tensor
from gateway.routing.router import LONGEST_NAME

MOST_ELEMENTS = 250_000
"""Maximum total number of elements in all inputs."""
MOST_PARAMETERS = 10_000
"""Maximum number of JSON values in the parameters. A message has the same limit (`limits.json_values`)."""
MOST_TENSORS = 64
SECONDS = 10.0
MOST_SECONDS = 25.0
"""Maximum wait for a response, in seconds. The wait is shorter than the 30 s for which a connection to the admin port
can stay open."""

FRAMING_HEADERS = frozenset(
    {"host", "content-length", "content-encoding", "transfer-encoding", "connection", "keep-alive", "te", "trailer"}
    | {"upgrade", "proxy-connection", "expect"}
)
"""Headers that only the transport can set, because they determine where a message ends."""

T = TypeVar("T")

LONGEST_NUMBER = 1000
"""Maximum number of characters in a number."""
_NO_MORE = "enter fewer, or use a client for larger requests"
_BOOLEANS = {"true": True, "false": False, "1": True, "0": False}


class _Typed(BaseModel):
    model_config = ConfigDict(extra="forbid")


class TypedInput(_Typed):
    """One input. `shape` can contain one dimension of any size (`-1` or `?`). An empty `shape` means that the values
    determine the shape. `declared` is the shape in the model's metadata, or empty if unknown."""

    name: str = Field(default="", max_length=LONGEST_NAME)
    datatype: str = Field(default="FP64", max_length=16)
    shape: str = Field(default="", max_length=400)
    values: str = ""
    declared: list[int] = Field(default=[], max_length=MAX_RANK)


class DeclaredOutput(_Typed):
    """An output in the model's metadata."""

    name: str = Field(default="", max_length=LONGEST_NAME)
    datatype: str = Field(default="FP64", max_length=16)
    shape: list[int] = Field(default=[], max_length=MAX_RANK)


class PlaygroundForm(_Typed):
    """The complete form. `parameters` is a JSON object, `headers` contains one line `name: value` per header, and `key`
    is the API key or token for the listener. The playground uses the key only for this request and does not store
    it."""

    listener: str = Field(max_length=LONGEST_NAME)
    protocol: str = Field(max_length=LONGEST_NAME)
    model: str = Field(default="", max_length=LONGEST_NAME)
    version: str = Field(default="", max_length=LONGEST_NAME)
    operation: str = Field(default="infer", max_length=64)
    inputs: list[TypedInput] = Field(default=[], max_length=MOST_TENSORS)
    outputs: list[DeclaredOutput] = Field(default=[], max_length=MOST_TENSORS)
    parameters: str = ""
    headers: str = Field(default="", max_length=16_384)
    key: str = Field(default="", max_length=16_384, repr=False)
    seconds: float = Field(default=SECONDS, gt=0, le=MOST_SECONDS, allow_inf_nan=False)


class PlaygroundFormError(Exception):
    """The content of the form is not a valid request. `errors` contains a message for each invalid field, such as
    `model` or `inputs.0.values`."""

    def __init__(self, errors: dict[str, str]) -> None:
        super().__init__("; ".join(errors.values()))
        self.errors = errors


def read_request(form: PlaygroundForm) -> Request:
    """Return the Request for the form. Raises PlaygroundFormError."""
    errors: dict[str, str] = {}
    operation = next((each for each in CALLS if each.value == form.operation), None)
    if operation is None or operation is Operation.EXPLAIN:
        errors["operation"] = f"unknown operation {form.operation!r}"
    if not form.model:
        errors["model"] = "the model name is missing; enter the name of a model"
    inputs: list[Tensor] = []
    for at, each in enumerate(form.inputs):
        try:
            inputs.append(read_tensor(each))
        except _FieldError as error:
            errors[f"inputs.{at}.{error.field}"] = str(error)
        if sum(read.elements for read in inputs) > MOST_ELEMENTS:
            errors[f"inputs.{at}.values"] = f"more than {MOST_ELEMENTS} values in all inputs; {_NO_MORE}"
            break
    parameters: Parameters = {}
    try:
        parameters = _parameters(form.parameters)
    except ValueError as error:
        errors["parameters"] = str(error)
    if errors or operation is None:
        raise PlaygroundFormError(errors)
    return Request(operation, form.model, form.version, inputs=tuple(inputs), parameters=parameters)


def declared(form: PlaygroundForm, inputs: Sequence[Tensor]) -> Signature:
    """Return the model's signature as the form declares it. If an input has no declared shape, its first dimension can
    have any size. Raises PlaygroundFormError."""
    known = [each.declared or [-1, *tensor.shape[1:]] for each, tensor in zip(form.inputs, inputs, strict=True)]
    return Signature(
        tuple(
            TensorSpec(each.name, each.datatype, tuple(shape) if each.shape else ())
            for each, shape in zip(inputs, known, strict=True)
        ),
        tuple(_specs(form.outputs)),
    )


def read_headers(form: PlaygroundForm) -> RawHeaders:
    """Return the headers to send, including the key. Raises PlaygroundFormError."""
    found: dict[str, str] = {}
    for line in form.headers.splitlines():
        if not line.strip():
            continue
        name, colon, value = line.partition(":")
        name = name.strip().lower()
        if not colon or not re.fullmatch(r"[!#$%&'*+.^_`|~0-9a-z-]+", name):
            raise PlaygroundFormError({"headers": "expected a line `name: value` for each header"})
        if name in FRAMING_HEADERS:
            raise PlaygroundFormError({"headers": f"{name} is set by the transport"})
        found[name] = value.strip()
    try:
        return raw_headers(found, form.key or None)
    except ValueError as error:
        raise PlaygroundFormError({"key" if form.key and not found else "headers": str(error)}) from error


class _FieldError(ValueError):
    def __init__(self, field: str, text: str) -> None:
        super().__init__(text)
        self.field = field


def read_tensor(typed: TypedInput) -> Tensor:
    """Return the Tensor of one input. Raises ValueError with the attribute `field`."""
    datatype = DATATYPES.get(typed.datatype)
    if datatype is None:
        raise _FieldError("datatype", f"unknown datatype {typed.datatype!r}; expected one of {', '.join(DATATYPES)}")
    try:
        elements, nested = _elements(typed.values, datatype)
    except RecursionError:
        raise _FieldError("values", f"the lists are nested too deeply; use at most {MAX_RANK} dimensions") from None
    except ValueError as error:
        raise _FieldError("values", str(error)) from error
    shape = _shape(typed.shape, len(elements), nested)
    try:
        return tensor(typed.name, _array(elements, datatype).reshape(shape), datatype)
    except (ValueError, OverflowError, TypeError) as error:
        raise _FieldError("values", str(error)) from error


def _elements(text: str, datatype: Datatype) -> tuple[list[Any], Shape | None]:
    """Return the elements. If the elements are JSON, also return the shape of the nested lists."""
    stripped = text.strip()
    if stripped.startswith("["):
        if has_more_values(stripped, 2 * MOST_ELEMENTS + MAX_RANK):
            raise ValueError(f"more than {MOST_ELEMENTS} values and nested lists; {_NO_MORE}")
        try:
            value = json.loads(stripped)
        except json.JSONDecodeError as error:
            raise ValueError(f"invalid JSON: {error.msg} at character {error.pos + 1}") from error
        shape = _nesting(value)
        return _not_too_many(list(_flat(value, shape))), shape
    if datatype is Datatype.BYTES:
        return _not_too_many(text.split("\n", MOST_ELEMENTS)), None
    words = stripped.replace(",", " ").split(maxsplit=MOST_ELEMENTS)
    return [_word(each, datatype) for each in _not_too_many(words)], None


def _not_too_many(elements: list[T]) -> list[T]:
    if len(elements) > MOST_ELEMENTS:
        raise ValueError(f"more than {MOST_ELEMENTS} values; {_NO_MORE}")
    return elements


def _word(text: str, datatype: Datatype) -> bool | int | float:
    if datatype is Datatype.BOOL:
        if text.lower() not in _BOOLEANS:
            raise ValueError(f"{text[:40]!r} is neither true nor false")
        return _BOOLEANS[text.lower()]
    for read in (int, float) if len(text) <= LONGEST_NUMBER else ():
        try:
            return read(text)
        except ValueError:
            continue
    raise ValueError(f"{text[:40]!r} is not a number")


def _nesting(value: object) -> Shape:
    shape: list[int] = []
    while isinstance(value, list):
        shape.append(len(value))
        if len(shape) > MAX_RANK:
            raise ValueError(f"more than {MAX_RANK} dimensions")
        if not value:
            break
        value = value[0]
    return tuple(shape)


def _flat(value: object, shape: Shape) -> Iterator[object]:
    if not shape:
        if isinstance(value, list | dict) or value is None:
            raise ValueError("lists of one dimension must have the same length, and contain numbers or text")
        yield value
        return
    if not isinstance(value, list) or len(value) != shape[0]:
        raise ValueError("lists of one dimension must have the same length, and contain numbers or text")
    for each in value:
        yield from _flat(each, shape[1:])


def _shape(text: str, count: int, nested: Shape | None) -> Shape:
    words = [each for each in re.split(r"[,\s]+", text.strip().strip("[]")) if each]
    if not words and not text.strip():
        return (count,) if nested is None else nested
    try:
        shape = [-1 if each == "?" else int(each) for each in words]
    except ValueError:
        raise _FieldError("shape", f"{text[:60]!r} is not a shape; expected sizes such as 1, 3") from None
    free = [at for at, size in enumerate(shape) if size == -1]
    if len(shape) > MAX_RANK or len(free) > 1 or any(size < -1 for size in shape):
        raise _FieldError("shape", f"expected at most {MAX_RANK} sizes, at most one of them -1")
    known = prod(size for size in shape if size != -1)
    if free:
        if not known or count % known:
            raise _FieldError("shape", f"{count} values cannot be divided into rows of {known}")
        shape[free[0]] = count // known
    elif known != count:
        raise _FieldError("values", f"{count} values, but shape {shape} has {known}")
    return tuple(shape)


def _array(elements: list[Any], datatype: Datatype) -> "np.ndarray[Any, Any]":
    if datatype is Datatype.BYTES:
        wrong = next((each for each in elements if not isinstance(each, str)), None)
        if wrong is not None:
            raise ValueError(f"{str(wrong)[:40]} is not text; write it in quotes")
        found = np.empty(len(elements), object)
        found[:] = [each.encode("utf-8", "surrogatepass") for each in elements]
        return found
    wrong = next((each for each in elements if not isinstance(each, int | float)), None)
    if wrong is not None:
        raise ValueError(f"{str(wrong)[:40]!r} is not a number")
    if datatype is Datatype.BOOL:
        wrong = next((each for each in elements if each not in (0, 1)), None)
        if wrong is not None:
            raise ValueError(f"{wrong} is neither true nor false")
        return np.array(elements, bool)
    dtype = np.dtype(datatype.dtype)
    if dtype.kind in "iu":
        return _integers(elements, dtype)
    with np.errstate(over="ignore"):
        found = np.array([float(each) for each in elements], np.float64).astype(dtype)
    for before, after in zip(elements, found.astype(np.float64).tolist(), strict=True):
        if isfinite(before) and not isfinite(after):
            raise ValueError(f"{before} is out of range for {datatype.value}")
    return found


def _integers(elements: list[Any], dtype: "np.dtype[Any]") -> "np.ndarray[Any, Any]":
    limits = np.iinfo(dtype)
    for each in elements:
        if isinstance(each, float) and not each.is_integer():
            raise ValueError(f"{each} is not an integer")
        if not limits.min <= each <= limits.max:
            raise ValueError(f"{each} is outside the range {limits.min} to {limits.max}")
    return np.array([int(each) for each in elements], dtype)


def _parameters(text: str) -> Parameters:
    if not text.strip():
        return {}
    expected = 'expected a JSON object, such as {"name": 1}'
    if has_more_values(text, MOST_PARAMETERS):
        raise ValueError(f"more than {MOST_PARAMETERS} JSON values; enter fewer parameters")
    try:
        value = json.loads(text)
    except (json.JSONDecodeError, RecursionError) as error:
        raise ValueError(expected) from error
    if not isinstance(value, dict):
        raise ValueError(expected)
    try:
        return as_parameters(value)
    except GatewayError as error:
        raise ValueError(error.message) from error


def _specs(outputs: Sequence[DeclaredOutput]) -> Iterator[TensorSpec]:
    for each in outputs:
        if each.datatype not in DATATYPES:
            text = f"output {each.name!r} has the unknown datatype {each.datatype!r}"
            raise PlaygroundFormError({"": f"{text}; expected one of {', '.join(DATATYPES)}"})
        yield TensorSpec(each.name, DATATYPES[each.datatype], tuple(each.shape))


_TEXTS = re.compile(r'"[^"\\]*+(?:\\.[^"\\]*+)*+(?:"|\\?\Z)', re.DOTALL)
"""Matches each JSON string. An unterminated string extends to the end of the document."""


def has_more_values(text: str, most: int) -> bool:
    """Return True if a JSON document, valid or not, contains more than `most` values. An empty list counts as two
    values. This function does not parse the document, because parsing would create an object for each value, and block
    the event loop even in another thread."""
    if _marks(text) < most:
        return False
    found = at = 0
    for each in _TEXTS.finditer(text):  # one at a time, so other threads can run in between
        found += _marks(text[at : each.start()])
        if found >= most:
            return True
        at = each.end()
    return found + _marks(text[at:]) >= most


def _marks(text: str) -> int:
    """Return the number of characters that precede values. Every value except the document itself follows one of these
    characters."""
    return text.count(",") + text.count("[") + text.count("{")
