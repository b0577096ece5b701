"""`routes[].match`: the conditions by which a route takes requests."""

from collections.abc import Mapping
from typing import Annotated, Literal

from pydantic import AfterValidator, Field

from gateway.config.fields import VALUE, HeaderName, Keys, Name, Written, refusal
from gateway.config.tensors import FreeDimension
from gateway.core.datatypes import Datatype
from gateway.core.operations import SERVER_OPERATIONS, Operation
from gateway.core.types import MAX_RANK

_OF_A_MODEL = tuple(operation.value for operation in Operation if operation not in SERVER_OPERATIONS)
ModelOperation = Annotated[Operation, Written(Literal[_OF_A_MODEL], Operation)]


def _path(path: str) -> str:
    if not path.startswith("/") or "*" in path[:-1]:
        raise refusal("expected a path such as /v2/models/m/infer or, with one * at its end, /v2/*, got {value}")
    return path


ANY_VALUE = "*"
"""In `match.header`: any value."""


def _text_header(name: str) -> str:
    if name.endswith("-bin"):
        raise refusal(f"headers that end in -bin are bytes over gRPC; expected another one, got {VALUE}")
    return name


TextHeaderName = Annotated[HeaderName, AfterValidator(_text_header)]


class InputMatchConfig(Keys):
    """Conditions that one of the request's inputs must all meet."""

    name: Name | None = None
    """The clients' name of the input. Inputs without a name (UM-Bridge, MIP) do not meet it."""
    datatype: Datatype | None = None
    """The datatype of the input: that of V2. Numbers in JSON without a datatype are FP64, or INT64 if all of them are
    written as integers."""
    shape: Annotated[tuple[FreeDimension, ...], Field(max_length=MAX_RANK)] | None = None
    """The dimensions of the input, as many as it has. -1 is any size."""


class MatchConfig(Keys):
    """Conditions that a request must all meet; {} is met by every request."""

    listener: Name | None = None
    """The listener that received the request."""
    protocol: Name | None = None
    """The client's protocol."""
    path: Annotated[Name, AfterValidator(_path)] | None = None
    """The request's path; with `*` at the end every path that begins so."""
    model: Name | None = None
    """The model's name, or a glob with `*`, `?` and `[...]`. Requests that do not name a model match only routes
    without this key."""
    version: Name | None = None
    """The model's version as text: `"1"`."""
    operation: ModelOperation | None = None
    """The operation on the model."""
    header: Mapping[TextHeaderName, str] = {}
    """`{NAME: VALUE}`: headers or gRPC metadata that the request must have, with exactly these values; `"*"` is any
    value. MIP and brpc have none."""
    input: InputMatchConfig | None = None
    """An input that the request must have. It is judged for inference, explanation and derivatives; for all other
    operations on the model, such as metadata, it is met."""
