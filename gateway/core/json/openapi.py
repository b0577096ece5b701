"""Descriptions of a protocol's HTTP paths for an OpenAPI document, and JSON schemas of tensors. The protocols'
`openapi` modules use this module.

Schemas follow JSON Schema 2020-12, which OpenAPI 3.1 uses. The code in this module has no side effects.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import field
from math import prod
from typing import Any, TypeAlias

from gateway.core.datatypes import Datatype, Kind
from gateway.core.frozen import frozen
from gateway.core.models import Signature, TensorSpec
from gateway.core.operations import Operation
from gateway.core.requests import DEFAULT_TRANSLATE, Nan, Translate
from gateway.core.tensors import Shape

Schema: TypeAlias = Mapping[str, Any]

JSON, OCTETS, EVENTS, TEXT, HTML = (
    "application/json", "application/octet-stream", "text/event-stream", "text/plain", "text/html",
)  # fmt: skip

MOST_EXAMPLE_ELEMENTS = 256
"""Maximum number of elements of a tensor in an example."""


@frozen
class Media:
    """A body of one media type. If `schema` is None, the body is not JSON.

    - `example`: A valid JSON value; None without an example.
    - `binary_example`, `example_headers`: The bytes of a valid body, and the headers that this body needs.
    """

    schema: Schema | None = None
    example: Any = None
    binary_example: bytes = b""
    example_headers: Mapping[str, str] = field(default_factory=dict)


Content: TypeAlias = Mapping[str, Media]
"""Bodies by media type."""


@frozen
class Parameter:
    """A query parameter (`place` is `query`) or a header (`place` is `header`).

    `example` is a valid value of the parameter, or None without an example."""

    place: str
    name: str
    description: str
    schema: Schema
    example: Any = None


@frozen
class HttpOperation:
    """One method and path of a protocol.

    - `body`: The bodies that the operation accepts; empty if it does not accept a body.
    - `replies`: The descriptions and bodies of replies by status, excluding errors; empty if every request fails
      (documents then omit the operation).
    - `error`: The bodies of error replies.
    - `operation`: The Operation of the requests, if the error statuses depend on it.
    """

    summary: str
    replies: Mapping[int, tuple[str, Content]]
    error: Content
    description: str = ""
    body: Content = field(default_factory=dict)
    body_is_required: bool = True
    parameters: tuple[Parameter, ...] = ()
    operation: Operation | None = None


@frozen
class DescribedModel:
    """The model that a document describes, with the names that clients of the protocol see. If the inputs and outputs
    are unknown, `signature` is empty. `translate` contains the settings of the model's route."""

    name: str
    version: str = ""
    signature: Signature = Signature()
    translate: Translate = DEFAULT_TRANSLATE


DescribeOperation: TypeAlias = Callable[[str, DescribedModel | None, str], HttpOperation | None]
"""Describes a path pattern of a protocol (such as `POST /v2/models/{model}/infer`), for any model or for one model, on
a listener with the given server type. If the result is None, the document contains only the path."""


# --- Schemas ---

STRING: Schema = {"type": "string"}


def in_json(schema: Schema, example: Any = None) -> Content:
    """Return the Content for a JSON body."""
    return {JSON: Media(schema, example)}


def answered(schema: Schema) -> dict[int, tuple[str, Content]]:
    """Return the description of a reply with status 200 and a JSON body."""
    return {200: ("", in_json(schema))}


def object_of(properties: Mapping[str, Any], required: Sequence[str] = (), **more: Any) -> Schema:
    """Return the schema of an object. Members other than `properties` are allowed."""
    needed = {"required": list(required)} if required else {}
    return {"type": "object", "properties": dict(properties), **needed, **more}


def list_of(items: Schema, **more: Any) -> Schema:
    """Return the schema of an array of any length."""
    return {"type": "array", "items": items, **more}


def tuple_of(items: Sequence[Schema]) -> Schema:
    """Return the schema of an array with exactly these elements."""
    if not items:
        return {"type": "array", "maxItems": 0}
    return {"type": "array", "prefixItems": list(items), "minItems": len(items), "maxItems": len(items)}


def element(datatype: Datatype, nan: Nan = "error") -> Schema:
    """Return the schema of one element in JSON.

    `nan` is the representation of NaN and infinities for floats. The schema does not allow the representation
    `literal`, because it is not JSON."""
    if datatype is Datatype.BYTES:
        return {"type": "string"}
    if datatype is Datatype.BOOL:
        return {"type": "boolean"}
    if datatype.kind is Kind.FLOAT:
        return _float(datatype, nan)
    bits = 8 * datatype.size
    low, high = (0, 2**bits - 1) if datatype.kind is Kind.UNSIGNED else (-(2 ** (bits - 1)), 2 ** (bits - 1) - 1)
    return {"type": "integer", "format": datatype.value.lower(), "minimum": low, "maximum": high}


def _float(datatype: Datatype, nan: Nan) -> Schema:
    number = {"type": "number", "format": "double" if datatype is Datatype.FP64 else "float"}
    if nan == "null":
        return {**number, "type": ["number", "null"]}
    return {"anyOf": [number, {"enum": ["NaN", "Infinity", "-Infinity"]}]} if nan == "string" else number


def nested(item: Schema, shape: Shape) -> Schema:
    """Return the schema of arrays that are nested according to `shape`, with the lengths of the fixed dimensions. For a
    scalar, return `item` itself."""
    for size in reversed(shape):
        item = list_of(item, **({"minItems": size, "maxItems": size} if size >= 0 else {}))
    return item


def flat(item: Schema, shape: Shape) -> Schema:
    """Return the schema of one flat array with all elements of `shape`. The length is fixed if all dimensions are
    fixed."""
    return nested(item, (-1 if min(shape, default=0) < 0 else prod(shape),))


def dimensions(shape: Shape) -> Schema:
    """Return the schema of a tensor's shape as an array of integers."""
    return tuple_of([{"const": size} if size >= 0 else {"type": "integer", "minimum": 0} for size in shape])


def named(model: DescribedModel | None) -> Schema:
    """Return the schema of a member or parameter that contains the model's name."""
    return {"type": "string"} if model is None else {"type": "string", "const": model.name}


# --- Examples ---


def example_shape(shape: Shape) -> Shape:
    """Return `shape` with free dimensions set to 1."""
    return tuple(1 if size < 0 else size for size in shape)


def has_example(specs: Sequence[TensorSpec]) -> bool:
    """Return whether a sufficiently small example can be made for each of these tensors.

    No examples exist for files, such as images."""
    sizes = [prod(example_shape(spec.shape)) for spec in specs]
    return max(sizes, default=0) <= MOST_EXAMPLE_ELEMENTS and not any(spec.content_type for spec in specs)


def example_elements(spec: TensorSpec) -> list[Any]:
    """Return values for all elements of a tensor of `example_shape`, row by row. The values are small whole numbers,
    which most models accept."""
    count = prod(example_shape(spec.shape))
    if spec.datatype is Datatype.BYTES:
        return ["text"] * count
    if spec.datatype is Datatype.BOOL:
        return [True] * count
    if spec.datatype.kind is Kind.FLOAT:
        return [float(1 + at % 4) for at in range(count)]
    return [1 + at % 4 for at in range(count)]


def example_nested(spec: TensorSpec) -> Any:
    """Return the values of `example_elements`, nested according to the shape."""
    return _nest(example_elements(spec), example_shape(spec.shape))


def _nest(elements: list[Any], shape: Shape) -> Any:
    if not shape:
        return elements[0]
    step = prod(shape[1:])
    return [_nest(elements[at * step : (at + 1) * step], shape[1:]) for at in range(shape[0])]
