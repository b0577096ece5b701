"""The values that the parts of the gateway pass to each other.

A Message contains encoded bytes. Request, Response and Tensor are independent of the protocol.
"""

import dataclasses
import typing
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from enum import Enum
from math import prod
from typing import Any, ClassVar, Literal, TypeAlias

import numpy as np
from msgspec import Struct

from gateway.core import bytes_elements
from gateway.core.datatypes import BYTES, DATATYPES, Datatype
from gateway.core.frozen import equal_without, field, frozen
from gateway.core.html_tables import html_table
from gateway.core.operations import Operation
from gateway.core.principal import Principal
from gateway.core.record import UNRECORDED, Record
from gateway.core.spans import Span

Buffer: TypeAlias = bytes | bytearray | memoryview
Shape: TypeAlias = tuple[int, ...]
ParameterValue: TypeAlias = bool | int | float | str
Parameters: TypeAlias = Mapping[str, ParameterValue]

MAX_RANK = 32
_MAX_SPAN = 2**63 - 1


def can_exist(shape: Shape, datatype: Datatype) -> bool:
    """Return whether numpy can represent an array of this shape: without dimensions of 0, it must have fewer than 2^63
    bytes. Only tensors without elements can exceed this limit, because the data of all other tensors exists in memory.
    """
    return prod(size or 1 for size in shape) * (datatype.size or 1) <= _MAX_SPAN


class Headers:
    """HTTP headers or gRPC metadata, in order, with lower-case names. Values are decoded (as Latin-1) when they are
    read."""

    __slots__ = ("_first", "raw")

    def __init__(self, raw: Sequence[tuple[bytes, bytes]] = ()) -> None:
        self.raw = raw
        self._first: Mapping[bytes, bytes] | None = None

    @property
    def first(self) -> Mapping[bytes, bytes]:
        """The first value of each name, not decoded."""
        if self._first is None:  # many Headers are never looked up
            self._first = dict(reversed(self.raw))
        return self._first

    def get(self, name: str, default: str = "") -> str:
        """Return the first value of `name` (lower case)."""
        text = self.first.get(name.encode("latin-1"))
        return default if text is None else text.decode("latin-1")

    def all(self, name: str) -> list[str]:
        """Return all values of `name`, in order."""
        wanted = name.encode("latin-1")
        return [text.decode("latin-1") for key, text in self.raw if key == wanted]

    def __iter__(self) -> Iterator[tuple[str, str]]:
        return ((key.decode("latin-1"), text.decode("latin-1")) for key, text in self.raw)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Headers) and list(self.raw) == list(other.raw)

    def __hash__(self) -> int:
        return hash(tuple(self.raw))

    def __repr__(self) -> str:
        return f"Headers({list(self)})"


NO_HEADERS = Headers()
JSON_HEADERS = Headers(((b"content-type", b"application/json"),))


class Metadata(Headers):
    """gRPC metadata. If a name ends in `-bin`, its values are raw bytes, already decoded from base64."""

    __slots__ = ()


_OBSERVING = frozenset({"record", "span", "further", "calls_left"})


class Message(Struct, frozen=True):
    """One HTTP or gRPC message, or one packet of a byte stream, with its addressing.

    - `parts`: The body, as buffers to write one after the other, without joining them.
    - `path`: The raw path, without the `query`.
    - `pattern`, `captures`: The pattern of the Protocol that matches the path, and the decoded values of its
      `{captures}`.
    - `status`: The status code of a reply.
    - `peer`: `host:port` of the client; empty over unix sockets.
    - `received`, `deadline`: Seconds on the event loop's clock. `deadline` is None without a deadline.
    - `identity`: The name in the client's verified TLS certificate (`core.certificates.identity`); empty without a
      certificate.
    - `record`: Records the progress of the request; UNRECORDED if nothing observes the request.
    - `principal`: The authenticated client; None if the listener has no authentication, and before authentication.
    - `joinable`: True if the request in this message can be part of a batch; False if the message contains call options
      that the batch would lose.
    - `further`: Additional headers for a backend that differ in each request: the request id and the trace context.
      These headers are separate because connectors cache the encoded `headers`, which many requests share.
    """

    method: str = ""
    path: str = ""
    headers: Headers = NO_HEADERS
    parts: tuple[Buffer, ...] = ()
    status: int = 0
    query: str = ""
    pattern: str = ""
    captures: Mapping[str, str] = field(default_factory=dict)
    peer: str = ""
    received: float = 0.0
    deadline: float | None = None
    identity: str = ""
    record: Record = UNRECORDED
    principal: Principal | None = None
    further: Sequence[tuple[bytes, bytes]] = ()
    joinable: ClassVar[bool] = True

    def __eq__(self, other: object) -> bool:
        return equal_without(_OBSERVING, self, other)

    @property
    def body(self) -> Buffer:
        """All parts as one buffer, copied only if there are several parts."""
        return self.parts[0] if len(self.parts) == 1 else b"".join(self.parts)


def reply(headers: Headers, parts: tuple[Buffer, ...], status: int = 0) -> Message:
    """Return the message of a reply."""
    return Message("", "", headers, parts, status)


def post(path: str, headers: Headers, parts: tuple[Buffer, ...], deadline: float | None) -> Message:
    """Return the message of an HTTP request with a body."""
    return Message("POST", path, headers, parts, deadline=deadline)


def call(method: str, parts: tuple[Buffer, ...]) -> Message:
    """Return the message of a call to a gRPC method."""
    return Message(path=method, parts=parts, pattern=method)


def bytes_of(message: Message) -> int:
    """Return the size of the message's body, in bytes."""
    parts = message.parts
    if len(parts) == 1 and type(parts[0]) is bytes:  # true for most messages
        return len(parts[0])
    return sum([len(part) if type(part) is bytes else memoryview(part).nbytes for part in parts])


class ReplyMessage(Message, frozen=True):
    """A reply from an endpoint. `close` closes the connection of the reply, or is None if the connection closes anyway,
    or is shared with other exchanges."""

    close: Callable[[], None] | None = None


class Tensor(Struct, frozen=True):
    """A named array: datatype, shape and data.

    - `name`: The tensor's name; empty if the message contained no name.
    - `shape`: Contains no negative dimension and matches `data`; the code that creates a Tensor checks this.
    - `data`: The elements in the raw format of V2: little-endian, row-major; BYTES elements as a u32 length and the
      bytes.
    - `content_type`: The tensor's encoding in protocols with several encodings, or empty. BYTES elements can be `text`,
      `json`, `image`, `strings` (of JSON) or `base64`; numbers can be `json` or `npy`. The V2 content types without a
      special encoding (`np`, `str`) are also possible.
    - `untyped`: True if the tensor came from JSON without a datatype. The datatype is INT64 or UINT64 if every literal
      was an integer, otherwise FP64.
    """

    name: str
    datatype: Datatype
    shape: Shape
    data: Buffer
    content_type: str = ""
    parameters: Parameters = field(default_factory=dict)
    untyped: bool = False

    @property
    def array(self) -> "np.ndarray[Any, Any]":
        """Return a numpy view of `data` in `shape`; BYTES as an object array of bytes (never numpy `S`, which drops
        NULs)."""
        if self.datatype is BYTES:
            elements = bytes_elements.unpack(self.data)
            flat = np.empty(len(elements), object)
            flat[:] = elements
            return flat.reshape(self.shape)
        return np.frombuffer(self.data, self.datatype.dtype).reshape(self.shape)

    @property
    def elements(self) -> int:
        """The number of elements."""
        return prod(self.shape)


def tensor_bytes(tensors: Iterable[Tensor]) -> int:
    """Return the total size of the tensors' data, in bytes."""
    return sum([len(each.data) for each in tensors])


def tensor(name: str, array: "np.ndarray[Any, Any]", datatype: Datatype | None = None) -> Tensor:
    """Return a Tensor with the elements of `array`. By default, the array's dtype determines the datatype; strings and
    objects become BYTES.

    Raises:
        TypeError: the dtype has no V2 datatype (complex, datetime, ...), or an object is not text or bytes.
    """
    datatype = datatype or datatype_of(array.dtype)
    if datatype is BYTES:
        elements = map(_to_bytes, array.reshape(-1).tolist())
        return Tensor(name, datatype, array.shape, bytes_elements.pack(elements))
    raw = np.ascontiguousarray(array, datatype.dtype)
    return Tensor(name, datatype, array.shape, raw.reshape(-1).view(np.uint8).data)


def _to_bytes(element: object) -> bytes:
    if isinstance(element, str):
        return element.encode()
    if isinstance(element, bytes | bytearray | memoryview):
        return bytes(element)
    raise TypeError(f"an element of BYTES is {type(element).__name__}, expected text or bytes")


def datatype_of(dtype: "np.dtype[Any]") -> Datatype:
    """Return the V2 datatype for a numpy dtype of either byte order. Raises TypeError if there is none."""
    if dtype.kind in "SUO":
        return BYTES
    name = _NUMPY_NAMES.get(dtype.name)
    if name is None:
        raise TypeError(f"numpy dtype {dtype} has no datatype; expected one of {', '.join(_NUMPY_NAMES)} or strings")
    return name


_NUMPY_NAMES = {datatype.dtype.name: datatype for datatype in DATATYPES.values() if datatype is not BYTES}


@frozen
class TensorSpec:
    """The name, datatype and shape of an input or output. -1 means a dimension of any size.

    `content_type` has the same values as `Tensor.content_type`. If it is empty, each tensor keeps its own content type.
    `description` is the server's text for users. Requests can omit an `optional` input. An `image` is an input of
    numbers for which the server also accepts image files, one BYTES element per row."""

    name: str
    datatype: Datatype
    shape: Shape
    content_type: str = ""
    description: str = ""
    optional: bool = False
    image: bool = False

    def __str__(self) -> str:
        """Return a text like `x FP64[-1,3]`."""
        return f"{self.name} {self.datatype.value}[{','.join(map(str, self.shape))}]".strip()

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self}>"


@frozen
class Signature:
    """A model's inputs, outputs and other metadata: the response to `metadata`.

    Fields that were not requested, or that the server does not report, are empty. `operations` are the operations that
    the model supports."""

    inputs: tuple[TensorSpec, ...] = ()
    outputs: tuple[TensorSpec, ...] = ()
    operations: frozenset[Operation] = frozenset({Operation.INFER})
    name: str = ""
    versions: tuple[str, ...] = ()
    platform: str = ""
    description: str = ""
    server_version: str = ""
    """The version of the server software."""
    further: Mapping[str, object] = dataclasses.field(default_factory=dict)
    """Additional members in the metadata of a grps server (YAML)."""

    def with_images(self) -> "Signature":
        """Return the same signature for a server that decodes image files itself.

        Each input whose rows have three dimensions (height, width and channels in some order) becomes an `image`."""
        inputs = (
            dataclasses.replace(each, image=len(each.shape) == 4 and each.datatype is not BYTES) for each in self.inputs
        )
        return dataclasses.replace(self, inputs=tuple(inputs))

    def __str__(self) -> str:
        """Return a text like `x FP64[-1,3] -> y FP64[-1,1]`, followed by the operations other than plain inference."""
        inputs, outputs = (", ".join(map(str, each)) or "(unknown)" for each in (self.inputs, self.outputs))
        further = ", ".join(sorted(each.value for each in self.operations - {Operation.INFER}))
        return f"{inputs} -> {outputs}  ({further})" if further else f"{inputs} -> {outputs}"

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self}>"

    def _repr_html_(self) -> str:
        """Return an HTML table for notebooks, with a row for each input and output."""
        rows = [
            [kind, each.name, each.datatype.value, ", ".join(map(str, each.shape)), each.description]
            for kind, specs in (("input", self.inputs), ("output", self.outputs))
            for each in specs
        ]
        told = [self.name, *(f"version {each}" for each in self.versions), self.platform]
        told.append(", ".join(sorted(each.value for each in self.operations)))
        return html_table(["", "name", "datatype", "shape", "description"], rows, "; ".join(filter(None, told)))


@frozen
class ServerInfo:
    """The response to `server-metadata`."""

    name: str
    version: str
    extensions: tuple[str, ...] = ()


@frozen
class ModelEntry:
    """One model in the response to `models`."""

    name: str
    version: str = ""
    state: str = ""
    reason: str = ""


@frozen
class ModelStatistics:
    """The counters of one model version, with the names in V2 JSON: `inference_count`, `inference_stats`, ..."""

    name: str
    version: str
    counters: Mapping[str, object] = dataclasses.field(default_factory=dict)


@frozen
class Statistics:
    """The response to `model-statistics` and `all-statistics`."""

    models: tuple[ModelStatistics, ...]


class Metric(Enum):
    """A quantity that a Series measures.

    Latencies are in milliseconds. Fractions and usage are in percent; 100% CPU usage is one core."""

    REQUESTS = "requests that ended in the second"
    FAILED = "the share of these requests that failed"
    MEAN_LATENCY = "the mean latency of these requests"
    MAX_LATENCY = "the longest latency of these requests"
    LATENCY_PERCENTILES = "percentiles 1 to 100 of the latencies"
    CPU_USAGE = "CPU time of the process"
    MEMORY_USAGE = "the process's share of the machine's memory"


@frozen
class Series:
    """The values of one Metric: one value per second, the oldest first, or one value per percentile."""

    metric: Metric
    values: tuple[float, ...]


@frozen
class Measurements:
    """The response to `statistics`: figures about the requests of one listener."""

    series: tuple[Series, ...] = ()


CLASSIFICATION = "classification"
"""The parameter of a RequestedOutput that asks for only the n largest values, as BYTES elements `value:index[:label]`
(the V2 classification extension)."""


ATTACHMENT = "brpc attachment"
"""The parameter of a request or response for the bytes that baidu_std sends next to a message, as a string with one
character per byte (Latin-1). The name contains a space, so clients are unlikely to use it."""


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
    `null`, or a `string`. With `null`, v2-rest, v1-rest, grps-rest and forms also accept null among numbers and read it
    as NaN. umbridge does the same, but only in requests. Default: the default of the target protocol (see the
    protocol's page)."""
    bytes: BytesForm = "text"
    """Encoding of BYTES elements in JSON: as `text`, which must be UTF-8, or in `base64`."""
    payload: str = ""
    """Encoding of the tensors in messages to the backend, if its protocol has several. For grps: `gtensors`,
    `str_data`, `bin_data`, `gmap` or `ndarray`. For v1: `rows`, `named_rows`, `columns` or `named_columns`. For
    tfs-grpc, the method: `predict`, `classify` or `regress`. Default: the encoding that a client of the same protocol
    sent, otherwise the first in this list."""


DEFAULT_TRANSLATE = Translate()


@frozen
class Tries:
    """The rules for a call's attempts. An attempt sends the call to one endpoint.

    Policies set the rules; the Backend follows them."""

    seconds: float | None = None
    """Maximum time of one attempt at its endpoint, in seconds. It includes connecting, but not waiting in a queue."""
    avoided: frozenset[str] = frozenset()
    """The addresses of endpoints at which earlier attempts of the call failed or still run. The backend prefers other
    endpoints."""
    elsewhere: bool = False
    """Never use an `avoided` endpoint and never wait in a queue. Refuse the call instead."""
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
    call.

    All steps share it."""

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

    - `message`: the client's message.
    - `found`: the `found` of its Head.
    - `read`: decodes the message after all, for a server that cannot accept the message unchanged. It raises the errors
      of `decode_request`.
    - `write`: encodes the response to a decoded message for the client's listener (`encode_response`).
    """

    message: Message
    found: Any
    read: Callable[[], "Request"]
    write: "Callable[[Answer, Request, Translate], Message]"


class _NotRead:
    """Stands for the content of a message that was not decoded. Any use is an error in the gateway's code."""

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
    write such values."""

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
    single tensor, or one tensor per row with a first dimension of 1."""

    __slots__ = ("columns",)

    def __new__(cls, text: str, columns: "tuple[tuple[Tensor, ...], ...]") -> "UnequalRows":
        flaw = super().__new__(cls, text)
        flaw.columns = columns
        return flaw

    columns: "tuple[tuple[Tensor, ...], ...]"


class Request(Struct, frozen=True):
    """One client request, independent of its protocol.

    There are three groups of fields. The codec reads the fields up to `flaw` from the message. `exchange.decoded` sets
    the fields from `listener` to `peer`, which describe the request's origin, for all protocols. The route and its
    policies set the fields from `translate` on."""

    operation: Operation
    model: str = ""
    """The model's name; empty if the client sent no model name. `version` works in the same way."""
    version: str = ""
    id: str | None = None
    inputs: tuple[Tensor, ...] = ()
    outputs: tuple[RequestedOutput, ...] = ()
    parameters: Parameters = field(default_factory=dict)
    part: str = ""
    """The requested part of the metadata, in protocols that request metadata in parts (UM-Bridge)."""
    deadline: float | None = None
    """The earlier of the deadline in the body and the transport's deadline, in seconds on the event loop's clock."""
    origin: Message | None = None
    """The data that the codec needs to encode the response: the message, a subclass with more fields, a part of the
    message, or None. Only the protocol that set `origin` reads it."""
    schemaless: bool = False
    """True if inputs and parameters are members of the same JSON object, so only the model's signature can tell which
    is which. Until the signature is known, `parameters` contains all scalars, and `inputs` contains all lists, as flat
    tensors."""
    flaw: str = ""
    """An error in the message (a string, MissingNumbers or NestedParameters) that the gateway reports later, in
    protocols whose servers check the model's name first (UM-Bridge). So if the model is also unknown, the client gets
    the error about the model. The gateway never sends a request with a flaw to a backend."""
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
    """The shortest of the `timeout` policies around the call, in seconds; None if no policy sets one."""
    tries: Tries | None = None
    """The rules for attempts; None for the defaults."""
    record: Record = UNRECORDED
    """Records the progress of the request; UNRECORDED if nothing observes it. All attempts share it."""
    span: Span | None = None
    """The span that the request belongs to, if the record has spans: the attempt or, before the first attempt, the
    graph step."""
    principal: Principal | None = None
    """The authenticated client; None if its listener has no authentication."""
    calls_left: CallsLeft | None = None
    """Set for graph steps; None for the client's own request."""
    unread: Unread | None = None
    """The client's message, if the gateway sends it to the server without decoding.

    In this case, `inputs`, `outputs` and `parameters` are NOT_READ."""

    def __eq__(self, other: object) -> bool:
        return equal_without(_OBSERVING, self, other)

    @property
    def client(self) -> str:
        """Return the key that identifies the client for fair sharing: the principal or, without one, the host (not the
        port, because UM-Bridge clients use a new port for every call).
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

    `unread` is the whole reply to the client of an `unread` Request. In this case, all other fields are unknown.
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


@frozen
class NotReady:
    """A negative response to `ready`, with the reason."""

    text: str


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
