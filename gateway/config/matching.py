"""`routes[].match`: the conditions of a route."""

from collections.abc import Mapping
from typing import Annotated, Literal

from pydantic import AfterValidator, Field

from gateway.config.fields import VALUE, HeaderName, Keys, Name, Written, refusal
from gateway.config.tensors import FreeDimension
from gateway.core.datatypes import Datatype
from gateway.core.operations import SERVER_OPERATIONS, Operation
from gateway.core.tensors import MAX_RANK

_OF_A_MODEL = tuple(operation.value for operation in Operation if operation not in SERVER_OPERATIONS)
ModelOperation = Annotated[Operation, Written(Literal[_OF_A_MODEL], Operation)]


def _path(path: str) -> str:
    if not path.startswith("/") or "*" in path[:-1]:
        raise refusal("expected a path such as /v2/models/m/infer or, with one * at its end, /v2/*, got {value}")
    return path


ANY_VALUE = "*"
"""The value that matches any header value in `match.header`."""


def _text_header(name: str) -> str:
    if name.endswith("-bin"):
        raise refusal(f"headers that end in -bin are bytes over gRPC; choose another name, got {VALUE}")
    return name


TextHeaderName = Annotated[HeaderName, AfterValidator(_text_header)]


class InputMatchConfig(Keys):
    """Conditions that must all hold for the same input of the request."""

    name: Name | None = None
    """Name of the input in the client's request. Inputs without a name (UM-Bridge, MIP) do not match."""
    datatype: Datatype | None = None
    """V2 datatype of the input. JSON numbers without a datatype are FP64, or INT64 if all of them are integers."""
    shape: Annotated[tuple[FreeDimension, ...], Field(max_length=MAX_RANK)] | None = None
    """Dimensions of the input. The number of dimensions must match. -1 matches any size."""


class MatchConfig(Keys):
    """Conditions that a request must meet. Every request meets `{}`."""

    listener: Name | None = None
    """Listener that received the request."""
    protocol: Name | None = None
    """Protocol of the client."""
    path: Annotated[Name, AfterValidator(_path)] | None = None
    """Path of the request. If the value ends with `*`, the path must begin with the text before the `*`."""
    model: Name | None = None
    """Name of the model, or a glob with `*`, `?` and `[...]`. Routes with this key do not match requests without a
    model name."""
    version: Name | None = None
    """Version of the model, as text: `"1"`."""
    operation: ModelOperation | None = None
    """Operation that the client requests."""
    header: Mapping[TextHeaderName, str] = {}
    """`{NAME: VALUE}`: headers or gRPC metadata that the request must have, with exactly these values. `"*"` means any
    value. MIP and brpc have no headers."""
    input: InputMatchConfig | None = None
    """An input that the request must have. The condition applies to inference, explanation and derivatives; all other
    operations on the model, such as metadata, always match."""
