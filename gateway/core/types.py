"""The values that everything speaks in: Message on the wire side, Request, Response and Tensor on the other."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import field
from enum import Enum
from math import prod
from typing import Any, Literal, TypeAlias

import numpy as np

from gateway.core import bytes_elements
from gateway.core.datatypes import DATATYPES, Datatype
from gateway.core.frozen import frozen
from gateway.core.operations import Operation

Buffer: TypeAlias = bytes | bytearray | memoryview
Shape: TypeAlias = tuple[int, ...]
ParameterValue: TypeAlias = bool | int | float | str
Parameters: TypeAlias = Mapping[str, ParameterValue]

MAX_RANK = 32


class Headers:
    """HTTP headers or gRPC metadata: lower-case names, in order, decoded (Latin-1) only when asked for."""

    __slots__ = ("raw",)

    def __init__(self, raw: Sequence[tuple[bytes, bytes]] = ()) -> None:
        self.raw = raw

    def get(self, name: str, default: str = "") -> str:
        """The first value of `name` (lower case)."""
        wanted = name.encode("latin-1")
        for key, text in self.raw:
            if key == wanted:
                return text.decode("latin-1")
        return default

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
    """Headers in which the values of names that end in `-bin` are any bytes, as gRPC has them, and not base64."""

    __slots__ = ()


@frozen
class Message:
    """Bytes and a little addressing: one HTTP or gRPC message, or one packet of a stream.

    `parts` are written one after the other and never joined. `path` is the raw path without its `query`; `pattern` is
    the Protocol's pattern that the path matched and `captures` its decoded `{segments}`. `status` is the number of a
    reply. `received` and `deadline` are on the loop's clock, in seconds.
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

    @property
    def body(self) -> Buffer:
        """All parts as one buffer; copied only if there are several."""
        return self.parts[0] if len(self.parts) == 1 else b"".join(self.parts)


def with_headers(message: Message, headers: Headers) -> Message:
    """A request to a backend with other headers: `replace` at 0.6 of its cost, since each one needs it."""
    return Message(
        message.method, message.path, headers, message.parts, message.status, message.query, message.pattern,
        message.captures, message.peer, message.received, message.deadline,
    )  # fmt: skip


@frozen
class ReplyMessage(Message):
    """A reply of an endpoint. `close` closes the connection that it came over, where that carries one exchange after
    the other and is kept for the next."""

    close: Callable[[], None] | None = None


@frozen
class Tensor:
    """`data` is in V2's raw form: little-endian, row-major, BYTES as u32 length + bytes per element.

    `shape` has no negative dimension and matches `data`: whoever makes a Tensor has checked it. `content_type` is
    empty, or the form in which the tensor travels where a wire has several: BYTES elements as `text`, `json`,
    `image` or `strings` (of JSON), numbers as `json` or `npy`. `untyped`: it came from JSON without a datatype, and
    numbers are INT64 or UINT64 if every literal was an integer, else FP64. An empty `name` means the wire had none.
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
        if self.datatype is Datatype.BYTES:
            elements = bytes_elements.unpack(self.data)
            flat = np.empty(len(elements), object)
            flat[:] = elements
            return flat.reshape(self.shape)
        return np.frombuffer(self.data, self.datatype.dtype).reshape(self.shape)

    @property
    def elements(self) -> int:
        """How many elements the shape holds."""
        return prod(self.shape)


def tensor(name: str, array: "np.ndarray[Any, Any]", datatype: Datatype | None = None) -> Tensor:
    """A Tensor of `array`; without `datatype` that of the array's dtype. Strings and objects become BYTES.

    Raises:
        TypeError: numpy's dtype has no V2 datatype (complex, datetime, ...), or an object is neither text nor bytes.
    """
    datatype = datatype or datatype_of(array.dtype)
    if datatype is Datatype.BYTES:
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
    """The V2 datatype of a numpy dtype of either byte order. Raises TypeError where there is none."""
    if dtype.kind in "SUO":
        return Datatype.BYTES
    name = _NUMPY_NAMES.get(dtype.name)
    if name is None:
        raise TypeError(f"numpy dtype {dtype} has no datatype; expected one of {', '.join(_NUMPY_NAMES)} or strings")
    return name


_NUMPY_NAMES = {datatype.dtype.name: datatype for datatype in DATATYPES.values() if datatype is not Datatype.BYTES}


@frozen
class TensorSpec:
    """A tensor's name, datatype and shape, where -1 is a free dimension. `content_type` as a Tensor's; empty leaves it
    as it is."""

    name: str
    datatype: Datatype
    shape: Shape
    content_type: str = ""


@frozen
class Signature:
    """What a model takes and gives: the answer to `metadata`. A part that nobody asked for, or that the server does not
    tell, is empty; `operations` are those the model claims."""

    inputs: tuple[TensorSpec, ...] = ()
    outputs: tuple[TensorSpec, ...] = ()
    operations: frozenset[Operation] = frozenset({Operation.INFER})
    name: str = ""
    versions: tuple[str, ...] = ()
    platform: str = ""


@frozen
class ServerInfo:
    """The answer to `server-metadata`."""

    name: str
    version: str
    extensions: tuple[str, ...] = ()


@frozen
class ModelEntry:
    """One model of the answer to `models`."""

    name: str
    version: str = ""
    state: str = ""
    reason: str = ""


@frozen
class ModelStatistics:
    """One version of one model in Statistics. `counters` are V2's, as JSON has them: `inference_count`,
    `inference_stats`, ..."""

    name: str
    version: str
    counters: Mapping[str, object] = field(default_factory=dict)


@frozen
class Statistics:
    """The answer to `model-statistics` and `all-statistics`."""

    models: tuple[ModelStatistics, ...]


class Metric(Enum):
    """What a Series measures. Latencies are in milliseconds; shares and usage in percent, CPU usage of one core."""

    REQUESTS = "requests that ended in a second"
    FAILED = "the share of them that failed"
    MEAN_LATENCY = "their mean latency"
    MAX_LATENCY = "their longest latency"
    LATENCY_PERCENTILES = "percentiles 1 to 100 of the latencies"
    CPU_USAGE = "CPU time of the process"
    MEMORY_USAGE = "memory of the process, of all that the machine has"


@frozen
class Series:
    """Numbers of one Metric: a number for each second, the oldest first, or one for each percentile."""

    metric: Metric
    values: tuple[float, ...]


@frozen
class Measurements:
    """The answer to `statistics`: how the requests of one listener went."""

    series: tuple[Series, ...] = ()


CLASSIFICATION = "classification"
"""The parameter of a RequestedOutput (V2's extension of this name) that asks for its n largest values in place of all:
BYTES elements `value:index[:label]`."""


@frozen
class RequestedOutput:
    """An output that the client asks for, by name."""

    name: str
    parameters: Parameters = field(default_factory=dict)


Nan: TypeAlias = Literal["error", "literal", "null", "string"]
BytesForm: TypeAlias = Literal["text", "base64"]


@frozen
class Translate:
    """The keys of a route's `translate` that codecs read. Names, types, defaults and docstrings are those of the YAML
    keys."""

    nan: Nan | None = None
    """How NaN and infinities are written in JSON: refused (`error`), as NaN and Infinity (`literal`), as `null`, or as
    a `string`. The default is that of the protocol written, which its page tells."""
    bytes: BytesForm = "text"
    """How BYTES elements are written in JSON: as `text`, which must be UTF-8, or in `base64`."""
    payload: str = ""
    """The form of the tensors in messages to the backend, if its protocol has several: for grps `gtensors`, `str_data`,
    `bin_data`, `gmap` or `ndarray`; for v1 `rows`, `named_rows`, `columns` or `named_columns`. Without it the form that
    a client of the same protocol sent, else the first of these."""


DEFAULT_TRANSLATE = Translate()


@frozen
class Request:
    """One question of a client, in the same form whatever protocol it came in.

    A codec reads the fields up to `flaw` from the message. How the message came, `listener` to `peer`, is added in one
    place for all protocols (`exchange.decoded`); `translate` and `time_limit` come from the route.
    """

    operation: Operation
    model: str = ""
    """Empty where the client named none; so is `version`."""
    version: str = ""
    id: str | None = None
    inputs: tuple[Tensor, ...] = ()
    outputs: tuple[RequestedOutput, ...] = ()
    parameters: Parameters = field(default_factory=dict)
    part: str = ""
    """What of the metadata is asked, on wires that ask for it in parts (UM-Bridge)."""
    deadline: float | None = None
    """On the loop's clock, in seconds: the earlier of the one in the message's body and that of its transport."""
    origin: Message | None = None
    """What the codec keeps of the message to write the reply: the message, one with further fields, or less."""
    schemaless: bool = False
    """Inputs and parameters are members of one JSON object, which only the model's signature tells apart: a scalar
    stands among `parameters` also if it is an input, and a list among `inputs`, flat, whatever the model's shape."""
    flaw: str = ""
    """What is wrong with the message beyond the model's name, on wires where the name is looked at first (UM-Bridge):
    an unknown model is told before it. Such a request is never sent to be computed."""
    listener: str = ""
    """The name of the listener that it came to."""
    protocol: str = ""
    """The name of the wire form that it came in."""
    path: str = ""
    """The raw path that it was sent to, without the query; empty on byte streams."""
    headers: Headers = NO_HEADERS
    """The client's, all of them."""
    peer: str = ""
    """The client's address, `host:port`; empty over unix sockets."""
    translate: Translate = DEFAULT_TRANSLATE
    time_limit: float | None = None
    """How many seconds the operator lets a call take: the shortest of the policies `timeout` around it; None without
    one."""


SettingValue: TypeAlias = bool | int | str | bytes | tuple[str, ...] | None


@frozen
class ControlRequest(Request):
    """One of CONTROL_OPERATIONS. `settings` are the parameters of `load` and `unload` (`config`, a JSON text;
    `file:PATH`, bytes; `unload_dependents`) or the trace or log settings to change; None resets a trace setting.
    Without settings the question is what they are."""

    settings: Mapping[str, SettingValue] = field(default_factory=dict)


@frozen
class Response:
    """The answer to `infer` and to the derivatives. `schemaless` as a Request is, with outputs for inputs."""

    outputs: tuple[Tensor, ...] = ()
    model: str = ""
    version: str = ""
    id: str | None = None
    parameters: Parameters = field(default_factory=dict)
    origin: Message | None = None
    schemaless: bool = False


@frozen
class NotReady:
    """The answer to `ready` where it is no, and why."""

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
"""What a Handler returns: Response for `infer` and the derivatives, Signature for `metadata`, ServerInfo for
`server-metadata`, ModelEntry's for `models`, Measurements for `statistics`, Statistics for `model-statistics` and
`all-statistics`, a mapping for `config`, `trace-settings` and `log-settings`, a bool for `live`, `ready`,
`model-ready`, `online`, `offline`, `load` and `unload`; NotReady in place of False where there is something to
say."""
