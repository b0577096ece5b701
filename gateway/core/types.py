"""The values that are passed around: Message holds bytes of the wire; Request, Response and Tensor are canonical."""

import dataclasses
import typing
from collections.abc import Callable, Iterator, Mapping, Sequence
from enum import Enum
from math import prod
from typing import Any, ClassVar, Literal, TypeAlias

import numpy as np
from msgspec import Struct

from gateway.core import bytes_elements
from gateway.core.datatypes import BYTES, DATATYPES, Datatype
from gateway.core.frozen import equal_without, field, frozen
from gateway.core.html_tables import html_table
from gateway.core.operations import INFER, Operation
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
    """Whether numpy has arrays of this shape: its sizes, zeros left out, span fewer than 2^63 bytes. Only tensors
    without elements can be beyond that: all others have the data."""
    return prod(size or 1 for size in shape) * (datatype.size or 1) <= _MAX_SPAN


class Headers:
    """HTTP headers or gRPC metadata, in order, with lower-case names. Values are decoded (as Latin-1) when read."""

    __slots__ = ("_first", "raw")

    def __init__(self, raw: Sequence[tuple[bytes, bytes]] = ()) -> None:
        self.raw = raw
        self._first: Mapping[bytes, bytes] | None = None

    @property
    def first(self) -> Mapping[bytes, bytes]:
        """The first value of each name, not decoded."""
        if self._first is None:  # those of replies are never looked up
            self._first = dict(reversed(self.raw))
        return self._first

    def get(self, name: str, default: str = "") -> str:
        """The first value of `name` (lower case)."""
        text = self.first.get(name.encode("latin-1"))
        return default if text is None else text.decode("latin-1")

    def all(self, name: str) -> list[str]:
        """Every value of `name`, in order."""
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


class Metadata(Headers):
    """gRPC metadata: the values of names that end in `-bin` are raw bytes, already decoded from base64."""

    __slots__ = ()


_OBSERVING = frozenset({"record", "span", "further", "calls_left"})


class Message(Struct, frozen=True):
    """Bytes and their addressing: one HTTP or gRPC message, or one packet of a byte stream.

    - `parts`: the body, in buffers that are written one after the other and never joined.
    - `path`: the raw path, without the `query`.
    - `pattern`, `captures`: the Protocol's pattern that the path matched, and the decoded values of its `{captures}`.
    - `status`: the status code of a reply.
    - `peer`: `host:port` of the client; empty over unix sockets.
    - `received`, `deadline`: seconds on the event loop's clock; no deadline if None.
    - `identity`: whom the client's verified TLS certificate names, as `core.certificates.identity`; empty without one.
    - `record`: where it is noted what becomes of a request; UNRECORDED if nobody observes.
    - `principal`: who the client is; None where the listener asks for no credentials, and before it has checked them.
    - `joinable`: whether a request that was read from such a message can be one of several in a batch. False where the
      message says how the model is called, which the batch would not say.
    - `further`: headers of a request to a backend, beside `headers`, that differ from request to request: its id and
      its place in a trace. Connectors keep the bytes of `headers`, which many requests share.
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
        """All parts as one buffer; copied only if there are several."""
        return self.parts[0] if len(self.parts) == 1 else b"".join(self.parts)


# Python takes twice as long for a constructor that is called with keywords: it makes a dict of them.


def reply(headers: Headers, parts: tuple[Buffer, ...], status: int = 0) -> Message:
    """The message of a reply."""
    return Message("", "", headers, parts, status)


def post(path: str, headers: Headers, parts: tuple[Buffer, ...], deadline: float | None) -> Message:
    """The message of an HTTP request with a body."""
    return Message("POST", path, headers, parts, 0, "", "", {}, "", 0.0, deadline)


def call(method: str, parts: tuple[Buffer, ...]) -> Message:
    """The message of a call of a gRPC method."""
    return Message("", method, NO_HEADERS, parts, 0, "", method)


def bytes_of(message: Message) -> int:
    """The bytes of its body."""
    parts = message.parts
    if len(parts) == 1 and type(parts[0]) is bytes:  # as most messages have it
        return len(parts[0])
    return sum([len(part) if type(part) is bytes else memoryview(part).nbytes for part in parts])


class ReplyMessage(Message, frozen=True):
    """A reply of an endpoint. `close` closes the connection that it came over; None if the connection is not kept, or
    is shared with other exchanges."""

    close: Callable[[], None] | None = None


class Tensor(Struct, frozen=True):
    """A named array: datatype, shape and data.

    - `name`: empty if the wire had none.
    - `shape`: has no negative dimension and matches `data`; whoever creates a Tensor has checked it.
    - `data`: in V2's raw form: little-endian, row-major; BYTES as a u32 length and the bytes of each element.
    - `content_type`: the tensor's form on wires that have several, or empty: BYTES elements as `text`, `json`, `image`,
      `strings` (of JSON) or `base64`, numbers as `json` or `npy`; also V2's marks without a form (`np`, `str`).
    - `untyped`: it came from JSON without a datatype. Its numbers are INT64 or UINT64 if every literal was an integer,
      else FP64.
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
        """A numpy view of `data` in `shape`; BYTES as an object array of bytes (never numpy `S`, which drops NULs)."""
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


def tensor(name: str, array: "np.ndarray[Any, Any]", datatype: Datatype | None = None) -> Tensor:
    """A Tensor with the elements of `array`. Without `datatype` it is that of the array's dtype; strings and objects
    become BYTES.

    Raises:
        TypeError: numpy's dtype has no V2 datatype (complex, datetime, ...), or an object is neither text nor bytes.
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
    """The V2 datatype of a numpy dtype of either byte order. Raises TypeError if there is none."""
    if dtype.kind in "SUO":
        return BYTES
    name = _NUMPY_NAMES.get(dtype.name)
    if name is None:
        raise TypeError(f"numpy dtype {dtype} has no datatype; expected one of {', '.join(_NUMPY_NAMES)} or strings")
    return name


_NUMPY_NAMES = {datatype.dtype.name: datatype for datatype in DATATYPES.values() if datatype is not BYTES}


@frozen
class TensorSpec:
    """The name, datatype and shape of an input or output; -1 is a dimension of any size. `content_type` is as in
    Tensor; empty leaves a tensor's own. `description` is what its server tells people about it. An `optional` input
    may be missing in a request. An `image` is an input of numbers for which the server also takes image files, one
    element of BYTES for each row."""

    name: str
    datatype: Datatype
    shape: Shape
    content_type: str = ""
    description: str = ""
    optional: bool = False
    image: bool = False

    def __str__(self) -> str:
        """Such as `x FP64[-1,3]`."""
        return f"{self.name} {self.datatype.value}[{','.join(map(str, self.shape))}]".strip()

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self}>"


@frozen
class Signature:
    """A model's inputs, outputs and other metadata: the response to `metadata`. Fields that were not requested, or that
    the server does not report, are empty. `operations`: the operations that the model supports."""

    inputs: tuple[TensorSpec, ...] = ()
    outputs: tuple[TensorSpec, ...] = ()
    operations: frozenset[Operation] = frozenset({Operation.INFER})
    name: str = ""
    versions: tuple[str, ...] = ()
    platform: str = ""
    description: str = ""
    server_version: str = ""
    """The version of the software that serves the model."""
    further: Mapping[str, object] = dataclasses.field(default_factory=dict)
    """Members of a grps server's metadata (YAML) for which there is no field here."""

    def with_images(self) -> "Signature":
        """The signature of a model whose server decodes image files itself: each input with rows of three dimensions,
        height, width and channels in some order, may be an `image`."""
        inputs = (
            dataclasses.replace(each, image=len(each.shape) == 4 and each.datatype is not BYTES) for each in self.inputs
        )
        return dataclasses.replace(self, inputs=tuple(inputs))

    def __str__(self) -> str:
        """Such as `x FP64[-1,3] -> y FP64[-1,1]`, with the operations that are not plain inference."""
        inputs, outputs = (", ".join(map(str, each)) or "(unknown)" for each in (self.inputs, self.outputs))
        further = ", ".join(sorted(each.value for each in self.operations - {Operation.INFER}))
        return f"{inputs} -> {outputs}  ({further})" if further else f"{inputs} -> {outputs}"

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self}>"

    def _repr_html_(self) -> str:
        """As notebooks show it: a row for each input and output."""
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
    """The answer to `server-metadata`."""

    name: str
    version: str
    extensions: tuple[str, ...] = ()


@frozen
class ModelEntry:
    """One model in the answer to `models`."""

    name: str
    version: str = ""
    state: str = ""
    reason: str = ""


@frozen
class ModelStatistics:
    """The counters of one version of a model, as V2's JSON has them: `inference_count`, `inference_stats`, ..."""

    name: str
    version: str
    counters: Mapping[str, object] = dataclasses.field(default_factory=dict)


@frozen
class Statistics:
    """The answer to `model-statistics` and `all-statistics`."""

    models: tuple[ModelStatistics, ...]


class Metric(Enum):
    """The quantity that a Series measures. Latencies are in milliseconds, shares and usage in percent; 100% CPU usage
    is one core."""

    REQUESTS = "requests that ended in the second"
    FAILED = "the share of these requests that failed"
    MEAN_LATENCY = "the mean latency of these requests"
    MAX_LATENCY = "the longest latency of these requests"
    LATENCY_PERCENTILES = "percentiles 1 to 100 of the latencies"
    CPU_USAGE = "CPU time of the process"
    MEMORY_USAGE = "the process's share of the machine's memory"


@frozen
class Series:
    """The values of one Metric: one for each second, the oldest first, or one for each percentile."""

    metric: Metric
    values: tuple[float, ...]


@frozen
class Measurements:
    """The answer to `statistics`: figures about the requests of one listener."""

    series: tuple[Series, ...] = ()


CLASSIFICATION = "classification"
"""The parameter of a RequestedOutput that asks for the n largest values instead of all, as BYTES elements
`value:index[:label]` (V2's classification extension)."""


ATTACHMENT = "brpc attachment"
"""The parameter, of a request or a response, with the bytes that baidu_std carries beside a message: a text of one
character for each byte (Latin-1). It is no name that clients would choose."""


@frozen
class RequestedOutput:
    """An output that the client selected by name."""

    name: str
    parameters: Parameters = dataclasses.field(default_factory=dict)


Nan: TypeAlias = Literal["error", "literal", "null", "string"]
BytesForm: TypeAlias = Literal["text", "base64"]


@frozen
class Translate:
    """The keys of a route's `translate` that codecs read. Names, types, defaults and docstrings are those of the YAML
    keys."""

    nan: Nan | None = None
    """How NaN and infinities are written in JSON: refused (`error`), as NaN and Infinity (`literal`), as `null`, or as
    a `string`. With `null` v2-rest, v1-rest, grps-rest and forms also read it among numbers, as NaN; so does umbridge
    in requests. The default is that of the protocol written, which its page tells."""
    bytes: BytesForm = "text"
    """How BYTES elements are written in JSON: as `text`, which must be UTF-8, or in `base64`."""
    payload: str = ""
    """The form of the tensors in messages to the backend, if its protocol has several: for grps `gtensors`, `str_data`,
    `bin_data`, `gmap` or `ndarray`; for v1 `rows`, `named_rows`, `columns` or `named_columns`; for tfs-grpc the method
    `predict`, `classify` or `regress`. Without it the form that a client of the same protocol sent, else the first of
    these."""


DEFAULT_TRANSLATE = Translate()


@frozen
class Tries:
    """The rules for the attempts of a call; an attempt sends the call to one endpoint. Policies set the rules, the
    Backend follows them."""

    seconds: float | None = None
    """The longest that one try may take at its endpoint: connecting included, waiting in a queue not."""
    avoided: frozenset[str] = frozenset()
    """The addresses of endpoints where earlier tries of the call failed or still run. Others are preferred."""
    elsewhere: bool = False
    """Never use an `avoided` endpoint and never wait in a queue; the call is refused instead."""
    places: list[str] | None = None
    """Where the addresses of endpoints are noted while a try there runs, and if it has failed."""

    def began(self, address: str) -> None:
        """Note that a try begins at an endpoint."""
        if self.places is not None:
            self.places.append(address)

    def answered(self, address: str) -> None:
        """Note that the endpoint answered without an error."""
        if self.places is not None:
            self.places.remove(address)


class CallsLeft:
    """How many calls the steps of graphs may still make for one request of a client, and whether one `has_run`. All its
    steps share it."""

    __slots__ = ("has_run", "number")

    def __init__(self, number: int) -> None:
        self.number = number
        self.has_run = False


class Head(Struct, frozen=True):
    """The result of a Relay's search in a client's message that passes unread. The fields are the same as in Request.

    `found`: further results, for the Relay's own use.
    """

    operation: Operation
    model: str
    version: str = ""
    found: Any = None
    deadline: float | None = None
    origin: Message | None = None
    schemaless: bool = False


class Unread(Struct, frozen=True):
    """A client's message that passes to a server without being read, because both speak the same wire form.

    - `message`: the client's message.
    - `found`: as in its Head.
    - `read`: reads it after all, for a server that does not take it as it is. Raises as `decode_request`.
    - `write`: writes the reply to one that was read, in the form of the client's listener (`encode_response`).
    """

    message: Message
    found: Any
    read: Callable[[], "Request"]
    write: "Callable[[Answer, Request, Translate], Message]"


class _NotRead:
    """The content of a message that nobody has read: every use of it is a mistake in the gateway."""

    def _refuse(self, *_: object) -> typing.NoReturn:
        raise AssertionError("the content of this message was not read: its route must read it (config/relaying.py)")

    __iter__ = __len__ = __bool__ = __contains__ = __getitem__ = __getattr__ = __eq__ = __hash__ = _refuse


NOT_READ: Any = _NotRead()
"""The `inputs`, `outputs` and `parameters` of a Request that is `unread`, and of its Response."""


class MissingNumbers(str):
    """The `flaw` of a request that has null among its numbers, for which it has NaN: `translate: {nan: null}` of the
    route takes it."""

    __slots__ = ()


class Request(Struct, frozen=True):
    """One client request, independent of its protocol.

    Three groups of fields: up to `flaw` the codec reads them from the message; `listener` to `peer` say how the message
    came and are set for all protocols by `exchange.decoded`; `translate` and what follows are set by the route and its
    policies.
    """

    operation: Operation
    model: str = ""
    """Empty if the client named none; so is `version`."""
    version: str = ""
    id: str | None = None
    inputs: tuple[Tensor, ...] = ()
    outputs: tuple[RequestedOutput, ...] = ()
    parameters: Parameters = field(default_factory=dict)
    part: str = ""
    """The part of the metadata asked for, on wires that ask for it in parts (UM-Bridge)."""
    deadline: float | None = None
    """Seconds on the event loop's clock: the earlier of the deadline in the body and that of the transport."""
    origin: Message | None = None
    """What the codec itself needs to write the reply: the message, a subclass with more fields, a part of it, or None.
    Only the protocol that set it reads it."""
    schemaless: bool = False
    """Inputs and parameters came as members of one JSON object, and only the model's signature can tell which is which.
    Until it has, all scalars are in `parameters` and all lists in `inputs`, flat, whatever the model's shape."""
    flaw: str = ""
    """What is wrong with the message, on wires where servers check the model's name first (UM-Bridge): an unknown model
    is reported instead of this error; or MissingNumbers. A request with a flaw is never sent to a backend."""
    listener: str = ""
    """The name of the listener that received it."""
    protocol: str = ""
    """The name of the wire form that it came in."""
    path: str = ""
    """The raw path that it was sent to, without the query; empty on byte streams. Routes match it."""
    headers: Headers = NO_HEADERS
    """All headers or metadata of the client."""
    peer: str = ""
    """The client's address, `host:port`; empty over unix sockets."""
    translate: Translate = DEFAULT_TRANSLATE
    time_limit: float | None = None
    """The shortest of the `timeout` policies around the call, in seconds; None without one."""
    tries: Tries | None = None
    """None if the call is tried in the ordinary way."""
    record: Record = UNRECORDED
    """Where it is noted what becomes of the request; UNRECORDED if nobody observes. All tries share it."""
    span: Span | None = None
    """The try at an endpoint, or before it the step of a graph, that the request is part of, if the record notes
    spans."""
    principal: Principal | None = None
    """Who the client is; None if its listener asks for no credentials."""
    calls_left: CallsLeft | None = None
    """Set for the steps of graphs; None for the client's own request."""
    unread: Unread | None = None
    """The message itself, if it passes to the server unread: then `inputs`, `outputs` and `parameters` are NOT_READ."""

    def __eq__(self, other: object) -> bool:
        return equal_without(_OBSERVING, self, other)

    @property
    def client(self) -> str:
        """The client's key where clients share something fairly: its principal, else its host (UM-Bridge
        clients use a new port for every call)."""
        return self.peer.rpartition(":")[0] if self.principal is None else self.principal.name


SettingValue: TypeAlias = bool | int | str | bytes | tuple[str, ...] | None


class ControlRequest(Request, frozen=True):
    """A request for one of CONTROL_OPERATIONS.

    `settings` are the parameters of `load` and `unload` (`config`: JSON text; `file:PATH`: bytes; `unload_dependents`),
    or the trace or log settings to change; None resets a trace setting. Without settings the current ones are asked
    for.
    """

    settings: Mapping[str, SettingValue] = field(default_factory=dict)


class Response(Struct, frozen=True):
    """The response to `infer` and to the derivatives. `origin` and `schemaless` are as in Request, with outputs for
    inputs.

    `unread`: the whole reply to the client of an `unread` Request. Then nothing else of the Response is known.
    """

    outputs: tuple[Tensor, ...] = ()
    model: str = ""
    version: str = ""
    id: str | None = None
    parameters: Parameters = field(default_factory=dict)
    origin: Message | None = None
    schemaless: bool = False
    unread: Message | None = None


def inference(
    model: str,
    version: str,
    id: str | None,
    inputs: tuple[Tensor, ...],
    outputs: tuple[RequestedOutput, ...],
    parameters: Parameters,
    deadline: float | None,
    origin: Message | None,
) -> Request:
    """The request of an inference, made without keywords, as `reply`."""
    return Request(INFER, model, version, id, inputs, outputs, parameters, "", deadline, origin)


def unread_response(reply: Message) -> Response:
    """The response whose reply to the client is `reply`."""
    return Response(NOT_READ, "", "", None, NOT_READ, None, False, reply)


@frozen
class NotReady:
    """The answer no to `ready`, with the reason."""

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
- `live`, `ready`, `model-ready`, `online`, `offline`, `load` and `unload`: a bool, or NotReady, which
  is False with a reason
"""
