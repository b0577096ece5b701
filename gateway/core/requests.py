"""Canonical requests and responses. Codecs decode messages to these objects, and routes and policies act on them."""

import dataclasses
import typing
from collections.abc import Callable, Mapping
from typing import Any, ClassVar, Literal, TypeAlias

from msgspec import Struct

from gateway.core.datatypes import GATEWAY_DATATYPE
from gateway.core.errors import invalid_input
from gateway.core.frozen import equal_without, field, frozen
from gateway.core.messages import NO_HEADERS, Headers, Message
from gateway.core.models import ModelEntry, NotReady, ServerInfo, Signature
from gateway.core.operations import Operation
from gateway.core.principal import Principal
from gateway.core.record import UNRECORDED, Record
from gateway.core.spans import Span
from gateway.core.statistics import Measurements, Statistics
from gateway.core.tensors import Parameters, Tensor

_OBSERVING = frozenset({"record", "span", "calls_left"})
"""The fields of a Request that comparisons ignore."""

CLASSIFICATION = "classification"
"""The parameter of a RequestedOutput that requests only the n largest values, as BYTES elements `value:index[:label]`
(the V2 classification extension)."""


ATTACHMENT = "brpc attachment"
"""The parameter of a request or response for the bytes that baidu_std sends next to a message. The value is a string
with one character per byte (Latin-1). Because of the space in the name, clients are unlikely to use the parameter."""


@frozen
class RequestedOutput:
    """An output that the client selects by name."""

    name: str
    parameters: Parameters = dataclasses.field(default_factory=dict)


Nan: TypeAlias = Literal["error", "literal", "null", "string"]


BytesForm: TypeAlias = Literal["text", "base64"]


@frozen
class Translate:
    """The keys in a route's `translate` section that codecs read.

    The YAML keys have the same names, types, defaults and docstrings."""

    nan: Nan | None = None
    """Representation of NaN and infinities in JSON: an error (`error`), the literals NaN and Infinity (`literal`),
    `null`, or a `string`. With `null`, v2-rest, v1-rest, grps-rest, umbridge and forms also accept null among numbers
    and read it as NaN. Default: the target protocol's default (see the protocol's page)."""
    bytes: BytesForm = "text"
    """Encoding of BYTES elements in JSON: as `text`, which must be UTF-8, or in `base64`."""
    payload: str = ""
    """Encoding of the tensors in messages to the backend, if its protocol has several encodings. For grps: `gtensors`,
    `str_data`, `bin_data`, `gmap` or `ndarray`. For v1: `rows`, `named_rows`, `columns` or `named_columns`. For
    tfs-grpc, the method: `predict`, `classify` or `regress`. Default: the encoding that a client of the same protocol
    sent, otherwise the first encoding in this list."""


DEFAULT_TRANSLATE = Translate()


@frozen
class Tries:
    """The rules for a call's attempts. An attempt sends the call to one endpoint.

    Policies set the rules, and the Backend follows them."""

    seconds: float | None = None
    """Maximum time of one attempt at its endpoint, in seconds. The time includes connecting, but not waiting in a
    queue."""
    avoided: frozenset[str] = frozenset()
    """The addresses of endpoints at which earlier attempts of the call failed or are still running. The backend prefers
    other endpoints."""
    elsewhere: bool = False
    """True if the backend must reject the call rather than use an `avoided` endpoint or wait in a queue."""
    places: list[str] | None = None
    """The addresses of endpoints with a running or failed attempt."""

    def began(self, address: str) -> None:
        """Record the start of an attempt at an endpoint."""
        if self.places is not None:
            self.places.append(address)

    def answered(self, address: str) -> None:
        """Record that the endpoint responded without an error."""
        if self.places is not None:
            self.places.remove(address)


class CallsLeft:
    """The remaining number of calls that graph steps can make for one client request. `has_run` is True after the first
    of these calls.

    All steps of the request share this object."""

    __slots__ = ("has_run", "number")

    def __init__(self, number: int) -> None:
        self.number = number
        self.has_run = False


class Head(Struct, frozen=True):
    """The fields that a Relay finds in a client's message that the gateway relays without decoding.

    The fields have the same meaning as in Request.

    `found` contains additional results for the Relay's own use."""

    operation: Operation
    model: str
    version: str = ""
    found: Any = None
    deadline: float | None = None
    origin: Message | None = None
    schemaless: bool = False


class Unread(Struct, frozen=True):
    """A client's message that the gateway sends to a server without decoding, because both use the same protocol.

    - `message`: The client's message.
    - `found`: The field `found` of the message's Head.
    - `read`: Decodes the message for a server that cannot accept it unchanged. Raises the same errors as
      `decode_request`.
    - `write`: Encodes the response to a decoded message for the client's listener (`encode_response`).
    """

    message: Message
    found: Any
    read: Callable[[], "Request"]
    write: "Callable[[Answer, Request, Translate], Message]"


class _NotRead:
    """A placeholder for the content of a message that was not decoded. Any use of this content is an error in the
    gateway's code."""

    def _refuse(self, *_: object) -> typing.NoReturn:
        raise AssertionError(
            "the content of this message is still encoded: its route must decode it (config/relaying.py)"
        )

    __iter__ = __len__ = __bool__ = __contains__ = __getitem__ = __getattr__ = __eq__ = __hash__ = _refuse


NOT_READ: Any = _NotRead()
"""The value of `inputs`, `outputs` and `parameters` in an `unread` Request, and in its Response."""


class MissingNumbers(str):
    """The `flaw` of a request with null among its numbers.

    The decoded request contains NaN instead. A route with `translate: {nan: null}` accepts the request."""

    __slots__ = ()


class NestedJson(str):
    """The JSON text of a parameter whose value is an object or a list. Only protocols with `Wire.nested_parameters`
    write these values."""

    __slots__ = ()

    def __repr__(self) -> str:
        return f"NestedJson({super().__repr__()})"  # so cache keys differ from those for a string


class NestedParameters(str):
    """The `flaw` of a request with a NestedJson among its parameters, or among the parameters of its tensors. Backends
    with `Wire.nested_parameters` accept the request."""

    __slots__ = ()


class UnequalRows(str):
    """The `flaw` of a request without `inputs`, in which the rows of an input differ in length.

    A backend with one row per call (`Rows.ONE`) can accept these rows. For each input, `columns` contains either a
    single tensor or one tensor per row. The first dimension of each row's tensor is 1."""

    __slots__ = ("columns",)

    REMEDY: ClassVar[str] = (
        "send one request for each row, or add `batch: each` to the backend's form: the gateway then calls the server"
        " once for each row"
    )

    def __new__(cls, text: str, columns: "tuple[tuple[Tensor, ...], ...]") -> "UnequalRows":
        flaw = super().__new__(cls, text)
        flaw.columns = columns
        return flaw

    columns: "tuple[tuple[Tensor, ...], ...]"


class Request(Struct, frozen=True):
    """One client request, independent of its protocol.

    The fields form three groups. The codec reads the fields up to `flaw` from the message. For all protocols,
    `exchange.decoded` sets the fields from `listener` to `peer`, which describe the request's origin. The route and its
    policies set the remaining fields, from `translate` on."""

    operation: Operation
    model: str = ""
    """The model's name; empty if the client sent no model name. In the same way, `version` is empty if the client sent
    no version."""
    version: str = ""
    id: str | None = None
    inputs: tuple[Tensor, ...] = ()
    outputs: tuple[RequestedOutput, ...] = ()
    parameters: Parameters = field(default_factory=dict)
    part: str = ""
    """The requested part of the metadata, in protocols that request metadata in parts (UM-Bridge)."""
    deadline: float | None = None
    """The earlier of the body's and the transport's deadline, in seconds on the event loop's clock."""
    origin: Message | None = None
    """The data that the codec needs to encode the response: the message, a subclass with more fields, a part of the
    message, or None. Only the protocol that set `origin` reads it."""
    schemaless: bool = False
    """True if inputs and parameters are members of the same JSON object, so only the model's signature distinguishes
    them. Until the signature is known, `parameters` contains all scalars, and `inputs` contains all lists as flat
    tensors."""
    flaw: str = ""
    """An error in the message (a string, MissingNumbers or NestedParameters) that the gateway reports only after
    routing. In protocols whose servers check the model's name first (UM-Bridge), this means that the client receives
    the error about an unknown model instead of the flaw. The bridge removes a flaw or rejects the request, so a request
    with a flaw never reaches a backend."""
    listener: str = ""
    """The name of the listener that received the request."""
    protocol: str = ""
    """The name of the client protocol."""
    path: str = ""
    """The raw path of the request, without the query; empty on byte streams. Routes can match the path."""
    headers: Headers = NO_HEADERS
    """All of the client's headers or metadata."""
    peer: str = ""
    """The client's address, `host:port`; empty over unix sockets."""
    translate: Translate = DEFAULT_TRANSLATE
    time_limit: float | None = None
    """The shortest limit of the `timeout` policies around the call, in seconds; None if no policy sets a limit."""
    tries: Tries | None = None
    """The rules for the call's attempts; None for the default rules."""
    record: Record = UNRECORDED
    """The Record of the request's progress; UNRECORDED if nothing observes the request. All attempts share this
    Record."""
    span: Span | None = None
    """The span to which the request belongs, if the record has spans. This is the attempt or, before the first attempt,
    the graph step."""
    principal: Principal | None = None
    """The authenticated client; None if its listener has no authentication."""
    calls_left: CallsLeft | None = None
    """The remaining number of calls for a graph step; None for the client's own request."""
    unread: Unread | None = None
    """The client's message, if the gateway sends it to the server without decoding.

    In this case, `inputs`, `outputs` and `parameters` are NOT_READ."""

    def __eq__(self, other: object) -> bool:
        return equal_without(_OBSERVING, self, other)

    @property
    def client(self) -> str:
        """The key that identifies the client for fair sharing: the principal or, without a principal, the host. The key
        does not contain the port, because UM-Bridge clients use a new port for every call.
        """
        return self.peer.rpartition(":")[0] if self.principal is None else self.principal.name


SettingValue: TypeAlias = bool | int | str | bytes | tuple[str, ...] | None


class ControlRequest(Request, frozen=True):
    """A request for one of CONTROL_OPERATIONS.

    `settings` contains the parameters of `load` and `unload` (`config` as JSON text, `file:PATH` as bytes, and
    `unload_dependents`), or the trace or log settings to change. The value None resets a trace setting. A request
    without settings queries the current settings."""

    settings: Mapping[str, SettingValue] = field(default_factory=dict)


class Response(Struct, frozen=True):
    """The response to `infer` and to the derivatives.

    `origin` and `schemaless` have the same meaning as in Request, with outputs instead of inputs.

    For an `unread` Request, `unread` is the complete reply to the client. In this case, all other fields are unknown.
    """

    outputs: tuple[Tensor, ...] = ()
    model: str = ""
    version: str = ""
    id: str | None = None
    parameters: Parameters = field(default_factory=dict)
    origin: Message | None = None
    schemaless: bool = False
    unread: Message | None = None


def unread_response(reply: Message) -> Response:
    """Return the Response for a `reply` that goes to the client unread."""
    return Response(NOT_READ, parameters=NOT_READ, unread=reply)


Answer: TypeAlias = (
    Response
    | Signature
    | ServerInfo
    | tuple[ModelEntry, ...]
    | Measurements
    | Statistics
    | Mapping[str, object]
    | NotReady
    | bool
)
"""The result of an operation, which a Handler returns:

- `infer`, `explain` and the derivatives: Response
- `metadata`: Signature
- `server-metadata`: ServerInfo
- `models`: ModelEntry values
- `statistics`: Measurements
- `model-statistics` and `all-statistics`: Statistics
- `config`, `trace-settings` and `log-settings`: a mapping
- `live`, `ready`, `model-ready`, `online`, `offline`, `load` and `unload`: a bool, or NotReady, which counts as False
  and contains a reason
"""


def refuse_parameters(parameters: Parameters, owner: str, why: str, *allowed: str) -> None:
    """Check that a server's protocol can represent all parameters.

    `owner` is empty for the parameters of a request, or a text such as ` of input 'x'`. `why` continues the error's
    message.

    Raises:
        GatewayError: INVALID_ARGUMENT for the first parameter that is not in `allowed`.
    """
    for name in parameters:
        if name not in allowed:
            raise invalid_input(f"parameter {name!r}{owner} is not supported{why}; remove the parameter")


def refuse_parameters_of_inputs(request: Request, why: str) -> None:
    """Reject all parameters of inputs, except the parameter that the gateway adds. See `refuse_parameters`."""
    for tensor in request.inputs:
        if tensor.parameters:
            refuse_parameters(tensor.parameters, f" of input {tensor.name!r}", why, GATEWAY_DATATYPE)
