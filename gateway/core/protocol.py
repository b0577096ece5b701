"""`Protocol`, the value that describes one wire form, and the values that it is made of.

A protocol is a folder under `gateway/protocols` whose `PROTOCOLS` holds one Protocol for each wire form, found by the
registry. No other code names a protocol or compares its name: what others need to know about it is in its Traits and in
its carrier (HttpForm, GrpcForm or StreamForm).
"""

import typing
from collections.abc import Callable, Iterable, Mapping
from dataclasses import field
from enum import Enum
from typing import Annotated, Any, ClassVar, TypeAlias

from gateway.core.datatypes import Datatype
from gateway.core.errors import GatewayError
from gateway.core.frozen import frozen, replace
from gateway.core.operations import EXTENSION_OPERATIONS, Operation
from gateway.core.types import Answer, Buffer, Head, Headers, Message, Request, ServerInfo, Signature, Translate

if typing.TYPE_CHECKING:
    from gateway.core.json.openapi import DescribeOperation

PositiveSeconds: TypeAlias = Annotated[float, "more than 0"]


@frozen
class Limits:
    """Bounds on what clients send and servers answer, checked before memory is allocated, and on clients' connections.

    They are the keys `limits` of listeners and backends: a field's docstring is the description of its key.
    """

    message: int = 64 * 2**20
    """Bytes of a message's body, before and after decompression."""
    headers: int = 64 * 2**10
    """Bytes of a message's headers."""
    json_values: int = 10_000
    """JSON values in a message outside tensor data; for MIP, TLVs beyond one for each of 65535 rows. A server's list of
    its models, or of their statistics, may have 400,000 in any case."""
    config: int = 2**20
    """Bytes of UM-Bridge's `config`."""
    inflation: int = 1100
    """The largest ratio of a message's size to its compressed size; up to 1 MiB any ratio is accepted. The default is
    more than gzip can reach, since a tensor of equal numbers has a ratio of about 1000: `message` and the process'
    `limits.memory` bound what is inflated."""
    connections: int | None = None
    """Connections at once; further ones are refused with an error of the listener's first protocol. Without it only
    the process' limit holds."""
    connections_per_client: int | None = None
    """Connections at once from one IPv4 address or one /64 network of IPv6. Behind a proxy all clients have the
    proxy's address."""
    requests_per_connection: int | None = None
    """After so many requests a connection ends politely, so that its client connects anew, maybe to another replica.
    Not for brpc, whose clients fail calls for 3 s after a connection is closed."""
    connection_age: PositiveSeconds | None = None
    """The same, after so many seconds, with a jitter of 10 % for each connection, so that not all end at once."""
    connection_grace: float | None = None
    """Seconds after `connection_age` or the last request in which calls over gRPC may go on; then they are ended with
    UNAVAILABLE. Without it they may take any time."""
    stream_first_message: PositiveSeconds = 300.0
    """Seconds that a client may leave a gRPC stream without its first message; then the stream ends with
    DEADLINE_EXCEEDED."""
    stream_idle: PositiveSeconds = 3600.0
    """The same for a stream in which neither side sends anything, once all of its messages are answered."""
    # gRPC's clients may ping every ten seconds to ask whether the server is there, and are not always on time.
    ping_interval: float = 9.0
    """The least seconds between two keepalive pings of a gRPC client that has no call in flight; two may come sooner,
    then the connection ends with `too_many_pings`. With 0 they may come at any time, and while a call is in flight they
    always may, up to 500 a second."""

    @property
    def of_lists(self) -> "Limits":
        """The limits of lists of models, which are longer than all other messages outside tensor data."""
        return replace(self, json_values=max(self.json_values, LISTED_VALUES))

    @property
    def ends_connections(self) -> bool:
        """Whether connections end after a number of requests or a time."""
        return self.requests_per_connection is not None or self.connection_age is not None


DEFAULT_LIMITS = Limits()

LISTED_VALUES = 400_000
"""JSON values of a list of models: an entry has five, and a repository thousands of models; the statistics of a model
have some seventy."""


ANY_ORIGIN = "*"
"""In `CrossOrigin.origins`: pages from anywhere."""


@frozen
class CrossOrigin:
    """Which pages in browsers may read the replies of a listener over HTTP: those from `origins`, which may send
    `headers` (lower case) and, with `credentials`, certificates and cookies. Browsers remember it for `max_age`
    seconds."""

    origins: tuple[str, ...]
    headers: tuple[str, ...]
    max_age: int
    credentials: bool


@frozen
class ListenerSettings:
    """The listener's settings that `decode_request` needs. `model` is the one asked for by clients that name none."""

    name: str = ""
    limits: Limits = DEFAULT_LIMITS
    model: str = ""
    tls: Callable[[], Any] | None = None
    """Makes the `ssl.SSLContext` for the handshake of the next connection. None, or a result of None: without TLS."""
    shares_http1: bool = False
    """Whether HTTP/1.1 is served at the same address by another listener."""
    relays: frozenset[str] = frozenset()
    """The names of the protocols of which some route passes calls unread."""
    cross_origin: CrossOrigin | None = None
    """What pages of other origins may do, over HTTP; None: nothing is said about them."""


@frozen
class Target:
    """The endpoint's settings that `encode_request` and `decode_response` need."""

    backend: str = ""
    address: str = ""
    flavor: str = ""
    batch: str = ""
    limits: Limits = DEFAULT_LIMITS
    forward_headers: tuple[str, ...] = ()
    """Names, in lower case, of the client headers that are passed on to the endpoint."""
    extensions: frozenset[str] | None = None
    """The extensions in its server metadata; None if it was not asked."""
    own_headers: tuple[tuple[bytes, bytes], ...] = ()
    """Headers of the gateway's own that each request to the endpoint has."""


class Rows(Enum):
    """The layout of a batch in the tensors of one call. Each row is one example for the model."""

    FREE = "in the batch dimension, if the model's signature has one"
    FIRST = "in the first dimension of every tensor, whatever the model"
    ONE = "a call is one row; no tensor has a batch dimension"


@frozen
class ServerTypes:
    """The server types of a protocol, each with its own deviations from the specification.

    `detect` returns the flavor of a server by its metadata, or by None if it has no metadata.
    """

    names: tuple[str, ...]
    detect: Callable[[ServerInfo | None], str]


@frozen
class Wire:
    """The capabilities of a protocol's messages."""

    datatypes: frozenset[Datatype] = frozenset(Datatype)
    """The datatypes that its tensors can have."""
    untyped: bool = False
    """Numbers are sent without a datatype."""
    numbers: Datatype | None = None
    """The datatype of numbers sent without one, if neither metadata nor configuration gives it; None: that of their
    literals."""
    unnamed: bool = False
    """Tensors are sent without names, always or optionally: their position identifies them."""
    selects: bool = True
    """A request can select outputs."""
    parameters: bool = True
    """A request can carry parameters."""
    own_parameters: frozenset[str] = frozenset()
    """Parameters of requests, responses and tensors that stand for a part of its messages that other protocols do not
    have, such as `core.types.ATTACHMENT`. Between protocols of which only one has them they are refused."""
    rows: Rows = Rows.FREE
    points: bool = False
    """One call is one point: every tensor is a vector. `rows` is ONE."""
    derivatives: bool = False
    """Derivatives are operations of the protocol; in others they are companion models."""
    streams: bool = False
    """A backend can be asked for a stream of responses to one request."""
    nan: str = "error"
    """The default of a route's `translate.nan`: error, literal, null or string."""


@frozen
class Models:
    """How a protocol names models, and what its servers say about them."""

    named: bool = True
    """Every request names a model."""
    may_be_named: bool = False
    """A request may name a model or leave the choice to the server."""
    versions: Callable[[str], bool] | None = None
    """Whether a text is a valid version; None: models have no versions."""
    joined_versions: bool = False
    """Clients write a model and its version as one name, `M-1.0.0`."""
    companions: bool = True
    """A request can name other models of the same server, such as `M.gradient`, the companion of `M`. False for a wire
    without INT64, which companions take their tensors' positions as."""
    one_at: Callable[[str], bool] | None = None
    """Whether the server at an endpoint (its address as configured) has a single model, whatever a request names. Such
    a backend has no `companions`."""
    ready_as_a_whole: bool = False
    """A server reports whether it is ready as a whole. Whether it has a model is found out by its metadata."""
    unknown_are_not_found: bool = False
    """The reply about a model's readiness tells an unknown model from one that is not ready."""
    metadata_parts: tuple[str, ...] = ("",)
    """The requests for metadata (`Request.part`) that together give a whole Signature; empty: there is no metadata, and
    `trusted_metadata` is False unless there is a `signature`."""
    operations_part: str = ""
    """The part that asks for a model's operations only; empty: they come with the tensors."""
    trusted_metadata: bool = True
    """A backend's metadata can be relied on."""
    signature: Signature | None = None
    """The Signature of every model, if the wire form itself declares one: no server is asked for it. None: the servers
    tell, as far as there are `metadata_parts`."""
    fixed_sizes: bool = False
    """The inputs and outputs of a model are known to be the same for every `config`."""
    ordered: bool = True
    """Its metadata has the inputs and outputs in an order of their own; False: in a map, and they are put in the order
    of their names."""
    tells_names: bool = True
    """Its metadata names the inputs and outputs, also if the tensors of calls are `unnamed`."""
    platform: str = ""
    """The `platform` of its models if their metadata has none."""


@frozen
class ConcurrencyQuery:
    """The question whether a server takes any number of calls at once."""

    question: Callable[[], Message]
    """A new message, which may be changed."""
    says_so: Callable[[Message], bool]
    """Whether the reply says that it does. Servers that do not know the question say nothing."""


@frozen
class Servers:
    """How the servers of a protocol behave, and which extensions they have."""

    flavors: ServerTypes | None = None
    """The values of a backend's `flavor`, and how it is detected if it is not configured."""
    extensions: Mapping[Operation, str] = field(default_factory=dict)
    """For operations that not every server has, the extension that the server's metadata lists if it does."""
    further_extensions: frozenset[str] = frozenset()
    """Extensions without an operation of their own: they only change inferences."""
    own_extensions: tuple[str, ...] = ()
    """Extensions that the wire form itself implies, whatever the servers have."""
    max_in_flight: int = 0
    """The default of a backend's `max_in_flight`, calls at once for each endpoint; 0: any number."""
    connection_per_call: bool = False
    """Every call gets a new connection (`Connection: close`)."""
    unannounced_ends: frozenset[int] = frozenset()
    """Statuses of replies after which servers close the connection without announcing it."""
    one_connection: bool = False
    """A server serves one connection at a time. Every exchange takes a slot, not only those that run a model."""
    takes_many: ConcurrencyQuery | None = None
    """How a server is asked whether it takes any number of calls at once, as a gateway does, where `max_in_flight` is
    what other servers of the protocol take. None: all take any number."""
    runs_to_the_end: bool = False
    """The server finishes a call even if it was given up. Its slot stays taken until the answer comes."""
    probe: Operation = Operation.READY
    """What active probes ask for by default: LIVE or READY."""
    states_when_loaded: frozenset[str] = frozenset()
    """The flavors whose servers list the models of their repository, and a state with each that they have loaded: one
    without a state is not loaded. Other servers have the models that they list, unless the state says something
    else."""
    lacks_model: Callable[[Message, str], bool] | None = None
    """Whether the reply to MODEL_READY says, in words that no other server has, that there is no model of this name. It
    recognises servers that tell nothing about themselves. None: servers do tell."""


@frozen
class Traits:
    """The properties of a protocol that the bridge and the backends depend on."""

    wire: Wire = Wire()
    models: Models = Models()
    servers: Servers = field(default_factory=Servers)


@frozen
class Framing:
    """Finds the start and the end of messages on a byte stream.

    The transport reads `header_size` bytes, checks `size(header)` against the limit, allocates one buffer of that size
    and receives the rest into it. A Message has two parts: the header and the rest. `size` raises DecodeError for
    invalid headers.

    On multiplexed streams `tag` reads a message's correlation number; it raises DecodeError if there is none. `retag`
    replaces the correlation number in a request and, if the wire has a field for it, sets the seconds until the
    deadline (None: no deadline).
    """

    header_size: int
    size: Callable[[Buffer], int]
    tag: Callable[[Message], int] | None = None
    retag: Callable[[Message, int, float | None], Message] | None = None
    head: Callable[[Buffer], int] | None = None
    """The number of bytes after the header that are the message's own head, bounded by `limits.headers`. For a message
    beyond `limits.message` only the head is handed over and the rest is dropped as it arrives: the codec refuses it and
    the stream goes on. Without this function such a message ends the stream."""
    stopping: Callable[[Message], GatewayError | None] | None = None
    """The error in a reply that says the server is stopping and did not run the request; None for other replies. The
    request then goes to another endpoint, and the connection is not used again."""
    is_compressed: Callable[[Message], bool] | None = None
    """Whether a message's content is compressed."""
    inflate: Callable[[Message, Limits, Callable[[int], None]], Message] | None = None
    """The message with its content decompressed, within the limits. Before it takes memory, it calls its last argument
    with the number of bytes, which refuses them by raising. Transports call it, in a thread if the content is large;
    codecs accept both forms. Raises as `decode_request` does."""
    magic: bytes = b""
    """The bytes that every message begins with. They tell the protocol from others at the same address; without them
    the protocol needs an address of its own."""


class MessageSplitter(typing.Protocol):
    """Splits a streamed body into messages as it arrives."""

    def feed(self, data: Buffer) -> list[Buffer]:
        """The messages that `data` completes. Raises DecodeError if malformed, GatewayError beyond the limit."""

    def boundary(self) -> list[Buffer]:
        """The messages that the end of an HTTP chunk completes: some servers write one chunk for each message."""

    def end(self) -> list[Buffer]:
        """The messages that the end of the body completes. Raises DecodeError if it ends inside a message."""


@frozen
class StreamFraming:
    """Where messages begin and end in a streamed HTTP body.

    `wrap` turns a message's parts into those written to the body. `cutter` creates a MessageSplitter; its argument is
    the largest size of a message in bytes.
    """

    wrap: Callable[[tuple[Buffer, ...]], tuple[Buffer, ...]]
    cutter: Callable[[int], MessageSplitter]
    keeps_coding: bool = False
    """A body is not decompressed, because nothing reads it."""


@frozen
class HttpForm:
    """The properties of a wire form over HTTP."""

    transport: ClassVar[str] = "http"
    any_path: tuple[str, ...] = ()
    """The methods that it also serves at paths outside its patterns: those that routes match, and `/` if the listener
    has a `model` and clients cannot name one in their messages (`Models.may_be_named` is False)."""
    wants_stream: Callable[[Message], bool] | None = None
    """Whether a request is answered by a stream. Decided by its path, query and headers: it is asked once for equal
    heads, with a Message without a body. None: no request is."""
    body_wants_stream: Callable[[Message], bool] | None = None
    """Whether the body of a request asks for a stream, of requests whose heads do not. Compressed bodies are refused,
    since this is asked before they are inflated. None: no body does."""
    stream_framing: StreamFraming | None = None
    """Where messages begin and end in a streamed body; None if bodies are never streamed."""
    passthrough: "Protocol | None" = None
    """The protocol variant for the paths of `passthrough` routes: it does not read content, and treats every request as
    a stream."""
    is_passthrough: bool = False
    """This is the `passthrough` of another wire form."""
    pages: tuple[str, ...] = ()
    """The patterns of its page of metrics, served if the listener has `metrics_page`."""


@frozen
class GrpcForm:
    """The properties of a wire form over gRPC."""

    transport: ClassVar[str] = "grpc"
    streams: frozenset[str] = frozenset()
    """The patterns of streaming methods, which take and return any number of messages."""
    descriptors: bytes = b""
    """The serialized FileDescriptorSet of its services, for reflection."""
    health_names: frozenset[str] = frozenset()
    """Further names of its services for gRPC's health service, where clients ask for others than `package.Service`."""


@frozen
class StreamForm:
    """The properties of a wire form over byte streams (TCP and unix sockets), which have no headers."""

    transport: ClassVar[str] = "tcp"
    framing: Framing
    credential: Callable[[Message], Headers] | None = None
    """The credential in a message, as the header that it is on other wires; None if messages have no place for one."""
    context: Callable[[Message], Headers] | None = None
    """The request id and the trace in a message, as the headers that they are on other wires; None if messages have no
    place for them."""
    with_credential: Callable[[Message, bytes], Message] | None = None
    """A message to a server with this value of the header Authorization as its credential, or with none if it is empty;
    None if messages have no place for one. Raises DecodeError if malformed."""


TransportBinding: TypeAlias = HttpForm | GrpcForm | StreamForm
"""The transport binding of a protocol: its transport, and the details that only this transport needs."""
NO_HTTP = HttpForm()


DecodeRequest: TypeAlias = Callable[[Message, ListenerSettings], Request]
EncodeResponse: TypeAlias = Callable[[Answer, Request, Translate], Message]
Example: TypeAlias = Callable[[str, str, str], str]
EncodeError: TypeAlias = Callable[[GatewayError, Request | None, Message], Message]
EncodeRequest: TypeAlias = Callable[[Request, Target], Message]
DecodeResponse: TypeAlias = Callable[[Message, Request, Target], Answer]


@frozen
class Relay:
    """How calls of a wire form pass unread from a client to a server that speaks it too. Pure functions:

    | function | from | to |
    |---|---|---|
    | head | client's Message | Head; None: the message must be read |
    | request | the same Message and its Request | a new Message to a backend; None: it must be read for this server |
    | reply | backend's Message to such a Request | Message to the client; None: it is an error, or must be read |

    - `head` finds the operation, the model and the version, just as every server of the wire form finds them. It raises
      as `decode_request`. A message in which the gateway itself has to act upon something must be read.
    - `request` raises GatewayError for what the server's flavor cannot have.
    """

    head: "Callable[[Message, ListenerSettings], Head | None]"
    request: "Callable[[Message, Request, Target], Message | None]"
    reply: "Callable[[Message, Request, Target], Message | None]"


@frozen
class ProtocolSetting:
    """A key that a protocol alone has, in `settings` of its listeners and backends. Values are texts."""

    name: str
    description: str
    default: str = ""


class SettingError(ValueError):
    """The value of the ProtocolSetting `key` cannot be used; the text says why."""

    def __init__(self, key: str, text: str) -> None:
        super().__init__(text)
        self.key = key


@frozen
class ProtocolSettings:
    """The settings of a protocol. `apply` returns the protocol with such values, the same object for the same values;
    it raises SettingError."""

    keys: tuple[ProtocolSetting, ...]
    apply: Callable[[Mapping[str, str]], "Protocol"]


@frozen
class Protocol:
    """One wire form, which is a protocol over one transport with one encoding, such as `v2-rest`: its codec (five pure
    functions) and its properties.

    | function | from | to | raises |
    |---|---|---|---|
    | decode_request | client's Message | Request | DecodeError: malformed; GatewayError: not supported |
    | encode_request | Request | a new Message to a backend | GatewayError: a value has no form on the wire |
    | decode_response | backend's Message | Answer | DecodeError: malformed; GatewayError: the error in the reply |
    | encode_response | Answer | Message to the client | GatewayError: a value has no form on the wire |
    | encode_error | GatewayError | Message to the client | nothing |
    """

    name: str
    carrier: TransportBinding
    patterns: tuple[str, ...]
    """The paths that it serves: `POST /v2/models/{model}/infer`; over gRPC `/package.Service/Method`; none on byte
    streams."""
    decode_request: DecodeRequest
    encode_response: EncodeResponse
    encode_error: EncodeError
    encode_request: EncodeRequest
    decode_response: DecodeResponse
    traits: Traits = field(default_factory=Traits)
    batches: Mapping[str, Traits] = field(default_factory=dict)
    """The values of a backend's `batch`, the default first, each with the protocol's Traits for it; empty if there is
    one way only to send a batch."""
    payloads: tuple[str, ...] = ()
    """The values of a route's `payload`: the forms of a whole request, the default first; empty if there is only
    one."""
    example: Example | None = None
    """Makes an example command for people from address, model and version; it asks for the model's metadata. The
    version is empty unless the traits have `versions` and not `joined_versions`. Raises GatewayError if the name has no
    form on the wire."""
    encode_end: Callable[[Request], Message | None] | None = None
    """The message that ends a stream of responses, if the wire has one and the client wants it."""
    parsed_size: Callable[[Message], int] | None = None
    """How many bytes of a message are parsed, as opposed to raw tensor data that is only referred to. A message is
    decoded in a thread only if these are many. None: all bytes are parsed."""
    emulated_servers: Mapping[str, "Protocol"] = field(default_factory=dict)
    """The values of a listener's `flavor`, each with the protocol variant that emulates this server for clients. A
    listener without `flavor` uses this protocol itself."""

    describer: "Callable[[], DescribeOperation] | None" = None
    """Makes what describes its paths for OpenAPI documents, if no module `openapi` in the protocol's folder does."""
    settings: ProtocolSettings | None = None
    """What a listener or a backend can set of this protocol alone."""
    relay: Relay | None = None
    """How its calls pass unread. None: they are always read."""
    errors_pass: bool = True
    """Whether the error of a call that passed unread goes to the client as the server wrote it. False: only its text
    does."""

    def with_settings(self, values: Mapping[str, str]) -> "Protocol":
        """The protocol with these values of its `settings`. Raises SettingError."""
        return self.settings.apply(values) if values and self.settings is not None else self

    @property
    def transport(self) -> str:
        """The folder under `gateway/transports` whose transport carries it."""
        return self.carrier.transport

    @property
    def http(self) -> HttpForm:
        """Its carrier if that is HTTP, else an empty HttpForm."""
        return self.carrier if isinstance(self.carrier, HttpForm) else NO_HTTP

    def may_ask(self, operation: Operation) -> bool:
        """Whether a client may be able to ask for `operation`. False only for extensions that the protocol lacks."""
        return operation not in EXTENSION_OPERATIONS or operation in self.traits.servers.extensions

    @property
    def names_models(self) -> bool:
        """Whether a client can name a model."""
        models = self.traits.models
        return models.named or models.may_be_named or any("{model}" in pattern for pattern in self.patterns)


def without_codec(
    name: str, carrier: TransportBinding = NO_HTTP, patterns: tuple[str, ...] = (), traits: Traits | None = None
) -> Protocol:
    """A Protocol whose five functions raise NotImplementedError: for requests of the gateway's own, which come in no
    message, and for listeners that answer without a Request."""

    def refuse(*_: object) -> Any:
        raise NotImplementedError(f"{name} has no codec")

    return Protocol(name, carrier, patterns, refuse, refuse, refuse, refuse, refuse, traits or Traits())


def resolve_batch(protocol: Protocol, batch: str) -> tuple[str, Traits]:
    """A backend's `batch` (the default if empty) and the protocol's Traits for it."""
    batch = batch or next(iter(protocol.batches), "")
    return batch, protocol.batches.get(batch, protocol.traits)


def traits_at_endpoints(traits: Traits, endpoints: Iterable[str]) -> Traits:
    """`traits` of a backend with these endpoints: without companions if one of its servers has a single model."""
    models = traits.models
    has_one = models.one_at is not None and any(map(models.one_at, endpoints))
    return replace(traits, models=replace(models, companions=False)) if has_one else traits


def merge(parts: tuple[Signature, ...]) -> Signature:
    """The Signature made of the answers to all `metadata_parts` of a protocol. For each field the first that has it
    wins."""
    whole = parts[0]
    for part in parts[1:]:
        whole = Signature(
            whole.inputs or part.inputs,
            whole.outputs or part.outputs,
            part.operations if whole.operations == frozenset() else whole.operations,
            whole.name or part.name,
            whole.versions or part.versions,
            whole.platform or part.platform,
        )
    return whole
