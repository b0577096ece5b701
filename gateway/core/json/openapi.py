"""Descriptions of a wire form's HTTP paths for an OpenAPI document, and JSON schemas of tensors.

Schemas are those of JSON Schema 2020-12, which OpenAPI 3.1 uses. Everything here is pure: a document is made of values.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import field
from math import prod
from typing import Any, TypeAlias

from gateway.core.datatypes import Datatype, Kind
from gateway.core.frozen import frozen
from gateway.core.operations import Operation
from gateway.core.types import DEFAULT_TRANSLATE, Nan, Shape, Signature, TensorSpec, Translate

Schema: TypeAlias = Mapping[str, Any]

JSON, OCTETS, EVENTS, TEXT, HTML = (
    "application/json", "application/octet-stream", "text/event-stream", "text/plain", "text/html",
)  # fmt: skip

MOST_EXAMPLE_ELEMENTS = 256
"""The most elements of a tensor for which an example is written."""


@frozen
class Media:
    """A body of one media type. Without `schema` it is not JSON.

    - `example`: a JSON value that is right; None for none.
    - `binary_example`, `example_headers`: the bytes of a body that is right, and the headers that it needs.
    """

    schema: Schema | None = None
    example: Any = None
    binary_example: bytes = b""
    example_headers: Mapping[str, str] = field(default_factory=dict)


Content: TypeAlias = Mapping[str, Media]
"""Bodies by media type."""


@frozen
class Parameter:
    """A query parameter (`place` is `query`) or a header (`header`). `example`: a value of it; None for none."""

    place: str
    name: str
    description: str
    schema: Schema
    example: Any = None


@frozen
class HttpOperation:
    """One method and path of a wire form.

    - `body`: the bodies that it takes; empty if it takes none.
    - `replies`: the descriptions and bodies of replies by status, without those of errors; empty if it is always
      refused, so that no document needs it.
    - `error`: the bodies of errors.
    - `operation`: that of its requests, if the statuses of errors depend on it.
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
    """The model that a document is about, as clients of the wire form see it. `signature` has no inputs and outputs if
    they are not known. `translate` are the settings of its route."""

    name: str
    version: str = ""
    signature: Signature = Signature()
    translate: Translate = DEFAULT_TRANSLATE


DescribeOperation: TypeAlias = Callable[[str, DescribedModel | None, str], HttpOperation | None]
"""Describes the pattern of a wire form (`POST /v2/models/{model}/infer`), for any model or for one, on a listener with
this flavor. None: no more is known than that the path is served."""


# --- Schemas ---

STRING: Schema = {"type": "string"}


def in_json(schema: Schema, example: Any = None) -> Content:
    """A body in JSON."""
    return {JSON: Media(schema, example)}


def answered(schema: Schema) -> dict[int, tuple[str, Content]]:
    """The reply 200 with a body in JSON."""
    return {200: ("", in_json(schema))}


def object_of(properties: Mapping[str, Any], required: Sequence[str] = (), **more: Any) -> Schema:
    """The schema of an object; other members than `properties` are allowed."""
    needed = {"required": list(required)} if required else {}
    return {"type": "object", "properties": dict(properties), **needed, **more}


def list_of(items: Schema, **more: Any) -> Schema:
    """The schema of an array of any length."""
    return {"type": "array", "items": items, **more}


def tuple_of(items: Sequence[Schema]) -> Schema:
    """The schema of an array with exactly these elements."""
    if not items:
        return {"type": "array", "maxItems": 0}
    return {"type": "array", "prefixItems": list(items), "minItems": len(items), "maxItems": len(items)}


def element(datatype: Datatype, nan: Nan = "error") -> Schema:
    """The schema of one element in JSON. `nan` says how NaN and infinities of floats are written: with `literal` they
    are no JSON, and the schema does not allow them."""
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
    """Arrays nested as `shape`, with the lengths of its fixed dimensions; `item` itself for a scalar."""
    for size in reversed(shape):
        item = list_of(item, **({"minItems": size, "maxItems": size} if size >= 0 else {}))
    return item


def flat(item: Schema, shape: Shape) -> Schema:
    """One array with all elements of `shape`, of a fixed length if no dimension is free."""
    return nested(item, (-1 if min(shape, default=0) < 0 else prod(shape),))


def dimensions(shape: Shape) -> Schema:
    """The shape of a tensor as an array of integers."""
    return tuple_of([{"const": size} if size >= 0 else {"type": "integer", "minimum": 0} for size in shape])


def named(model: DescribedModel | None) -> Schema:
    """A member or parameter with the model's name."""
    return {"type": "string"} if model is None else {"type": "string", "const": model.name}


# --- Examples ---


def example_shape(shape: Shape) -> Shape:
    """`shape` with 1 for free dimensions."""
    return tuple(1 if size < 0 else size for size in shape)


def has_example(specs: Sequence[TensorSpec]) -> bool:
    """Whether examples of all these tensors are small enough and can be made up. Files, such as images, cannot."""
    sizes = [prod(example_shape(spec.shape)) for spec in specs]
    return max(sizes, default=0) <= MOST_EXAMPLE_ELEMENTS and not any(spec.content_type for spec in specs)


def example_elements(spec: TensorSpec) -> list[Any]:
    """Values for all elements of a tensor of `example_shape`, row by row: small whole numbers,
    which most models can take."""
    count = prod(example_shape(spec.shape))
    if spec.datatype is Datatype.BYTES:
        return ["text"] * count
    if spec.datatype is Datatype.BOOL:
        return [True] * count
    if spec.datatype.kind is Kind.FLOAT:
        return [float(1 + at % 4) for at in range(count)]
    return [1 + at % 4 for at in range(count)]


def example_nested(spec: TensorSpec) -> Any:
    """The same nested as the shape."""
    return _nest(example_elements(spec), example_shape(spec.shape))


def _nest(elements: list[Any], shape: Shape) -> Any:
    if not shape:
        return elements[0]
    step = prod(shape[1:])
    return [_nest(elements[at * step : (at + 1) * step], shape[1:]) for at in range(shape[0])]
