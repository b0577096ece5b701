"""The class `Protocol`, which describes one protocol, and the values that a Protocol contains.

Each protocol is a folder under `gateway/protocols`, in which the registry finds `PROTOCOLS`: one Protocol for each
combination of transport and encoding. Code outside this folder never contains or compares a protocol's name. Instead,
this code uses the Traits and the transport binding (HttpBinding, GrpcBinding or StreamBinding).
"""

import typing
from collections.abc import Callable, Iterable, Mapping
from dataclasses import field
from enum import Enum
from typing import Annotated, Any, ClassVar, TypeAlias

from gateway.core.datatypes import Datatype
from gateway.core.errors import GatewayError, Reason, refusal
from gateway.core.frozen import frozen, replace
from gateway.core.messages import Buffer, Headers, Message
from gateway.core.models import ServerInfo, Signature
from gateway.core.operations import EXTENSION_OPERATIONS, Operation
from gateway.core.requests import Answer, Head, Request, Translate

if typing.TYPE_CHECKING:
    from gateway.core.json.openapi import DescribeOperation

PositiveSeconds: TypeAlias = Annotated[float, "more than 0"]


@frozen
class Limits:
    """Limits for client messages, server messages and client connections.

    The gateway checks message limits before it allocates memory.

    The fields are the keys under `limits` of listeners and backends. A field's docstring is its key's description.
    """

    message: int = 64 * 2**20
    """Maximum size of a message's body, before and after decompression, in bytes."""
    headers: int = 64 * 2**10
    """Maximum size of a message's headers, in bytes."""
    json_values: int = 10_000
    """Maximum number of JSON values in a message, excluding tensor data. For MIP, this is the maximum number of TLVs,
    in addition to one for each of 65535 rows. A server's model list or statistics can always contain up to 400,000
    values."""
    config: int = 2**20
    """Maximum size of UM-Bridge's `config`, in bytes."""
    inflation: int = 1100
    """Maximum ratio of a message's decompressed size to its compressed size. Messages of up to 1 MiB can have any
    ratio. Tensors of equal numbers have a ratio of about 1000, so the default is higher than the maximum ratio of gzip.
    `message` and the process-wide `limits.memory` still limit the memory for decompression."""
    connections: int | None = None
    """Maximum number of concurrent connections. The gateway rejects connections above this limit with an error in the
    listener's first protocol. Default: only the process-wide limit applies."""
    connections_per_client: int | None = None
    """Maximum number of concurrent connections from one IPv4 address or one IPv6 /64 network. Behind a proxy, all
    clients have the proxy's address."""
    requests_per_connection: int | None = None
    """Maximum number of requests on one connection. The gateway then closes the connection gracefully, and the client
    reconnects, possibly to another replica. Has no effect on brpc, because brpc clients fail calls for 3 s after a
    connection closes."""
    connection_age: PositiveSeconds | None = None
    """Maximum age of a connection, in seconds. The gateway then closes the connection gracefully. A jitter of 10 %
    prevents connections from ending simultaneously. Has no effect on brpc."""
    connection_grace: float | None = None
    """Seconds for which gRPC calls can continue after `connection_age` or the last request. After that, they end with
    UNAVAILABLE. Default: no limit."""
    stream_first_message: PositiveSeconds = 300.0
    """Number of seconds to wait for the first message of a gRPC stream. The stream then ends with DEADLINE_EXCEEDED."""
    stream_idle: PositiveSeconds = 3600.0
    """Seconds for which a gRPC stream can be idle after the response to its last message; then the stream ends with
    DEADLINE_EXCEEDED."""
    # gRPC clients can ping every ten seconds to check the connection, with some jitter.
    ping_interval: float = 9.0
    """Minimum time between two keepalive pings of a gRPC client without a call in flight, in seconds. The gateway
    tolerates two pings that arrive earlier, and closes the connection with `too_many_pings` at the third. If this value
    is 0, or while a call is in flight, clients can ping at any time, up to 500 times a second."""

    @property
    def of_lists(self) -> "Limits":
        """The limits for model lists, which can contain more values than all other messages."""
        return replace(self, json_values=max(self.json_values, LISTED_VALUES))

    def check_config(self, size: int, where: str) -> None:
        """Raise GatewayError (RESOURCE_EXHAUSTED) if a `config` of `size` bytes is too large for `where`, such as
        `backend 'lab'`."""
        if size > self.config:
            text = f"config of {size} bytes; `limits: {{config: {self.config}}}` of {where} allows no more"
            raise refusal(Reason.TOO_LARGE, text)

    @property
    def ends_connections(self) -> bool:
        """True if connections end after a number of requests or at a maximum age."""
        return self.requests_per_connection is not None or self.connection_age is not None


DEFAULT_LIMITS = Limits()

LISTED_VALUES = 400_000
"""Maximum number of JSON values in a model list or in statistics. A list entry contains five values, and a repository
can contain thousands of models. A model's statistics contain about 70 values."""


ANY_ORIGIN = "*"
"""The value in `CrossOrigin.origins` that stands for pages from any origin."""


@frozen
class CrossOrigin:
    """The permissions of web pages in browsers. Pages from `origins` can read a listener's HTTP responses. These pages
    can send `headers` (lowercase) and, if `credentials` is True, certificates and cookies. Browsers cache these
    permissions for `max_age` seconds."""

    origins: tuple[str, ...]
    headers: tuple[str, ...]
    max_age: int
    credentials: bool


@frozen
class ListenerSettings:
    """The settings of a listener that `decode_request` needs.

    `model` is the model for clients that send no model name."""

    name: str = ""
    limits: Limits = DEFAULT_LIMITS
    model: str = ""
    tls: Callable[[], Any] | None = None
    """Returns the `ssl.SSLContext` for the handshake of the next connection.

    If this function is None or returns None, the listener does not use TLS."""
    shares_http1: bool = False
    """True if another listener serves HTTP/1.1 at the same address."""
    relays: frozenset[str] = frozenset()
    """The names of the protocols whose messages at least one route relays unread."""
    cross_origin: CrossOrigin | None = None
    """The CORS permissions over HTTP. If this is None, responses have no CORS headers."""


@frozen
class Target:
    """The settings of an endpoint that `encode_request` and `decode_response` need."""

    backend: str = ""
    address: str = ""
    flavor: str = ""
    batch: str = ""
    limits: Limits = DEFAULT_LIMITS
    forward_headers: tuple[str, ...] = ()
    """The lowercase names of the client headers that the gateway forwards to the endpoint."""
    extensions: frozenset[str] | None = None
    """The extensions that the server's metadata lists; None if unknown."""
    own_headers: tuple[tuple[bytes, bytes], ...] = ()
    """Headers that the gateway adds to each request to the endpoint."""


class Rows(Enum):
    """The layout of a batch in the tensors of one call. Each row is one input for the model."""

    FREE = "in the batch dimension, if the model's signature has one"
    FIRST = "in the first dimension of every tensor, whatever the model"
    ONE = "a call is one row; tensors are without a batch dimension, or clients send size 1"


@frozen
class ServerTypes:
    """The server types of a protocol, each of which deviates from the protocol's specification in its own way.

    `detect` takes a server's metadata (None if the server has no metadata), and returns the server type."""

    names: tuple[str, ...]
    detect: Callable[[ServerInfo | None], str]


@frozen
class Wire:
    """The properties of a protocol's messages."""

    datatypes: frozenset[Datatype] = frozenset(Datatype)
    """The supported datatypes of tensors."""
    untyped: bool = False
    """True if numbers in messages have no datatype."""
    numbers: Datatype | None = None
    """The datatype for numbers without a datatype, if metadata and configuration define none.

    If this is None, the literals determine the datatype."""
    unnamed: bool = False
    """True if tensors always or sometimes have no names, so their positions identify them."""
    selects: bool = True
    """True if a request can select outputs."""
    parameters: bool = True
    """True if a request can contain parameters."""
    nested_parameters: bool = False
    """True if a parameter can be any JSON value (`core.requests.NestedJson`)."""
    own_parameters: frozenset[str] = frozenset()
    """Parameters of requests, responses and tensors for message content that other protocols cannot represent, such as
    `core.requests.ATTACHMENT`. If only one of a call's two protocols supports a parameter of this kind, the gateway
    rejects the message."""
    rows: Rows = Rows.FREE
    points: bool = False
    """True if each call evaluates one point, so every tensor is a vector. In this case, `rows` is ONE."""
    scalars_in_rows: bool = False
    """True if `[-1]` in a server's signature means one element per row, instead of a vector of any length.

    In this case, `rows` is ONE."""
    derivatives: bool = False
    """True if derivatives are operations of the protocol. In other protocols, derivatives are separate models."""
    streams: bool = False
    """True if a backend can return a stream of responses to one request."""
    nan: str = "error"
    """The default of a route's `translate.nan`: error, literal, null or string."""


@frozen
class Models:
    """The properties of a protocol that concern models: how requests identify a model, and what servers report about
    models."""

    named: bool = True
    """True if every request contains a model name."""
    may_be_named: bool = False
    """True if the model name in a request is optional."""
    versions: Callable[[str], bool] | None = None
    """Returns whether a string is a valid version. If this function is None, models have no versions."""
    joined_versions: bool = False
    """True if clients write a model and its version as one name, such as `M-1.0.0`."""
    companions: bool = True
    """True if a request can address other models of the same server, such as the derivative model `M.gradient` of `M`.
    The value is False for a protocol without INT64, because derivative models accept tensor positions as INT64."""
    one_at: Callable[[str], bool] | None = None
    """Returns whether the server at an endpoint (its address as configured) has a single model and ignores model names
    in requests. Backends with a server of this kind have no `companions`."""
    ready_as_a_whole: bool = False
    """True if a server reports readiness only for the entire server.

    In this case, the gateway requests metadata to check whether the server has a model."""
    unknown_are_not_found: bool = False
    """True if readiness responses distinguish an unknown model from a model that is not ready."""
    metadata_parts: tuple[str, ...] = ("",)
    """The parts of metadata (`Request.part`) to request. Together, the responses contain a complete Signature.

    If the tuple is empty, the protocol has no metadata, and `trusted_metadata` is False unless `signature` is set."""
    operations_part: str = ""
    """The part that requests only a model's operations. If this is empty, the responses about tensors include the
    operations."""
    trusted_metadata: bool = True
    """True if a backend's metadata is reliable."""
    signature: Signature | None = None
    """The Signature of every model, if the protocol itself declares it.

    In this case, the gateway does not request the Signature from servers. If this is None, the servers report the
    Signature, provided that the protocol has `metadata_parts`."""
    fixed_sizes: bool = False
    """True if a model's inputs and outputs have the same sizes for every `config`."""
    ordered: bool = True
    """True if metadata lists inputs and outputs in a defined order.

    If this is False, the metadata contains maps, and the gateway sorts inputs and outputs by name."""
    platform: str = ""
    """The default of the member `platform` in model metadata."""


@frozen
class ConcurrencyQuery:
    """A query that determines whether a server accepts any number of concurrent calls."""

    question: Callable[[], Message]
    """Returns a new message, which the caller can change."""
    says_so: Callable[[Message], bool]
    """Returns whether a response confirms that the server accepts any number of concurrent calls. Servers that do not
    support the query return something else."""


@frozen
class Servers:
    """The behavior and the extensions of a protocol's servers."""

    flavors: ServerTypes | None = None
    """The possible values of a backend's key `flavor`, and the detection of the server type if the key is absent."""
    extensions: Mapping[Operation, str] = field(default_factory=dict)
    """The operations that only some servers support, and for each operation, the name of the extension that these
    servers list in their metadata."""
    further_extensions: frozenset[str] = frozenset()
    """Extensions that affect only inferences, and have no separate operation."""
    own_extensions: tuple[str, ...] = ()
    """Extensions that all servers have because the protocol implies them."""
    max_in_flight: int = 0
    """The default of a backend's `max_in_flight`, which is the maximum number of concurrent calls per endpoint. 0 means
    no limit."""
    connection_per_call: bool = False
    """True if every call uses a new connection (`Connection: close`)."""
    unannounced_ends: frozenset[int] = frozenset()
    """Status codes of responses after which servers close the connection without announcing it."""
    one_connection: bool = False
    """True if a server serves only one connection at a time.

    In this case, every exchange occupies a slot, including exchanges that do not run a model."""
    takes_many: ConcurrencyQuery | None = None
    """The query that identifies servers, such as gateways, that accept any number of concurrent calls. The query is
    necessary if `max_in_flight` limits the calls to the protocol's other servers. If this is None, all servers accept
    any number of calls."""
    runs_to_the_end: bool = False
    """True if the server completes a call even if the client cancels it.

    In this case, the call's slot stays occupied until the response arrives."""
    probe: Operation = Operation.READY
    """The default operation of active probes: LIVE or READY."""
    states_when_loaded: frozenset[str] = frozenset()
    """The server types that list the models in their repository, with a state for each loaded model. On these servers,
    a model without a state is not loaded. On other servers, a listed model counts as loaded unless its state indicates
    otherwise."""
    lacks_model: Callable[[Message, str], bool] | None = None
    """Returns whether the response to MODEL_READY states, in words that only this server type uses, that the server has
    no model with this name. The gateway uses this function to recognize servers without metadata. If this is None, the
    servers have metadata."""


@frozen
class Traits:
    """The properties of a protocol on which the bridge and the backends depend."""

    wire: Wire = Wire()
    models: Models = Models()
    servers: Servers = field(default_factory=Servers)


@frozen
class Framing:
    """Finds where messages start and end on a byte stream.

    The transport reads `header_size` bytes, checks `size(header)` against the limit, allocates one buffer of this size,
    and receives the rest of the message into it. The Message consists of two parts: the header and the rest. `size`
    raises DecodeError for an invalid header.

    For multiplexed streams, `tag` reads a message's correlation number, and raises DecodeError if the number is
    missing. `retag` replaces the correlation number in a request. If the protocol has a field for the deadline, `retag`
    also sets the number of seconds until the deadline (None for no deadline)."""

    header_size: int
    size: Callable[[Buffer], int]
    tag: Callable[[Message], int] | None = None
    retag: Callable[[Message, int, float | None], Message] | None = None
    head: Callable[[Buffer], int] | None = None
    """Returns the size of the message's own head, which follows the header and is limited by `limits.headers`.

    If a message is larger than `limits.message`, the transport passes only the head to the codec, and drops the rest as
    it arrives. The codec rejects the message, and the stream continues. If this function is None, a message above the
    limit ends the stream."""
    stopping: Callable[[Message], GatewayError | None] | None = None
    """Returns an error if a reply states that the server is stopping and did not run the request; None for other
    replies. After this error, the gateway sends the request to another endpoint, and does not use the connection
    again."""
    is_compressed: Callable[[Message], bool] | None = None
    """Returns whether a message's content is compressed."""
    inflate: Callable[[Message, Limits, Callable[[int], None]], Message] | None = None
    """Returns the message with its content decompressed, within the limits.

    Before the function allocates memory, it calls its last argument with the number of bytes. This callback can raise
    an error to reject the size. Transports call `inflate`, in a thread if the content is large. Codecs accept both
    compressed and decompressed messages. Raises the same errors as `decode_request`."""
    magic: bytes = b""
    """The first bytes of every message.

    These bytes distinguish the protocol from other protocols at the same address. A protocol without `magic` needs a
    separate address."""


class MessageSplitter(typing.Protocol):
    """Splits a streamed body into messages as data arrives."""

    def feed(self, data: Buffer) -> list[Buffer]:
        """Return the messages that `data` completes. Raises DecodeError if a message is malformed, and GatewayError if
        a message exceeds the limit."""

    def boundary(self) -> list[Buffer]:
        """Return the messages that the end of an HTTP chunk completes. Some servers write one chunk per message."""

    def end(self) -> list[Buffer]:
        """Return the messages that the end of the body completes. Raises DecodeError if the body ends inside a
        message."""


@frozen
class StreamFraming:
    """Finds where messages start and end in a streamed HTTP body.

    `wrap` converts a message's parts to the parts to write to the body. `cutter` creates a MessageSplitter for messages
    of at most the given number of bytes."""

    wrap: Callable[[tuple[Buffer, ...]], tuple[Buffer, ...]]
    cutter: Callable[[int], MessageSplitter]
    keeps_coding: bool = False
    """True if the transport must not decompress a body, because no code reads the body."""


@frozen
class HttpBinding:
    """The HTTP binding of a protocol."""

    transport: ClassVar[str] = "http"
    any_path: tuple[str, ...] = ()
    """The methods that the protocol also serves at paths outside its patterns. These are the paths that routes match,
    and `/` if `model` is set on the listener and client messages cannot contain a model name (`Models.may_be_named` is
    False)."""
    wants_stream: Callable[[Message], bool] | None = None
    """Returns whether the response to a request is a stream, according to the request's path, query and headers.

    The transport calls this function once for equal heads, with a Message without a body. If this function is None,
    responses are never streams."""
    body_wants_stream: Callable[[Message], bool] | None = None
    """Returns whether a request's body requests a stream. The transport calls this function before decompression for
    requests whose heads do not request a stream, and rejects compressed bodies. If this function is None, bodies never
    request a stream."""
    stream_framing: StreamFraming | None = None
    """The framing of messages in a streamed body; None if the protocol does not stream bodies."""
    passthrough: "Protocol | None" = None
    """The variant of the protocol for `passthrough` routes, which does not decode content, and treats requests as
    streams."""
    is_passthrough: bool = False
    """True if this is the `passthrough` of another protocol."""
    pages: tuple[str, ...] = ()
    """The patterns for the metrics page, which a listener with `metrics_page` serves."""


@frozen
class GrpcBinding:
    """The gRPC binding of a protocol."""

    transport: ClassVar[str] = "grpc"
    streams: frozenset[str] = frozenset()
    """The patterns of streaming methods, which accept and return any number of messages."""
    descriptors: bytes = b""
    """The serialized FileDescriptorSet of the protocol's services, for gRPC reflection."""
    health_names: frozenset[str] = frozenset()
    """Additional service names for the gRPC health service, for clients that use names other than `package.Service`."""


@frozen
class StreamBinding:
    """The binding of a protocol to byte streams (TCP and unix sockets), on which messages have no headers."""

    transport: ClassVar[str] = "tcp"
    framing: Framing
    credential: Callable[[Message], Headers] | None = None
    """Returns the credential in a message, as the header that other transports use. If this function is None, messages
    have no field for a credential."""
    context: Callable[[Message], Headers] | None = None
    """Returns the request id and the trace context in a message, as the headers that other transports use. If this
    function is None, messages have no fields for them."""
    with_credential: Callable[[Message, bytes], Message] | None = None
    """Returns a message to a server whose credential is the given value of the header Authorization. If the value is
    empty, the message has no credential. Raises DecodeError if the message is malformed. If this function is None,
    messages have no field for a credential."""


TransportBinding: TypeAlias = HttpBinding | GrpcBinding | StreamBinding
"""The transport binding of a protocol: its transport, and the details that only this transport needs."""
NO_HTTP = HttpBinding()


DecodeRequest: TypeAlias = Callable[[Message, ListenerSettings], Request]
EncodeResponse: TypeAlias = Callable[[Answer, Request, Translate], Message]
Example: TypeAlias = Callable[[str, str, str], str]
EncodeError: TypeAlias = Callable[[GatewayError, Request | None, Message], Message]
EncodeRequest: TypeAlias = Callable[[Request, Target], Message]
DecodeResponse: TypeAlias = Callable[[Message, Request, Target], Answer]


@frozen
class Relay:
    """Relays a protocol's calls without decoding them, from a client to a server that uses the same protocol.

    The functions have no side effects:

    | function | from | to |
    |---|---|---|
    | head | client's Message | Head; None if decoding is needed |
    | request | the same Message and its Request | a new Message to a backend; None if this server needs decoding |
    | reply | backend's Message to this Request | Message to the client; None if an error, or if decoding is needed |

    - `head` finds the operation, the model and the version in the same way as every server that uses the protocol. It
      raises the same errors as `decode_request`. If the gateway itself must process part of the content, it decodes the
      message instead.
    - `request` raises GatewayError for content that the server type does not support.
    """

    head: "Callable[[Message, ListenerSettings], Head | None]"
    request: "Callable[[Message, Request, Target], Message | None]"
    reply: "Callable[[Message, Request, Target], Message | None]"


@frozen
class ProtocolSetting:
    """A key under `settings` of listeners and backends that only one protocol supports. Values are strings."""

    name: str
    description: str
    default: str = ""


class SettingError(ValueError):
    """The value of the ProtocolSetting `key` is invalid. The message gives the reason."""

    def __init__(self, key: str, text: str) -> None:
        super().__init__(text)
        self.key = key


@frozen
class ProtocolSettings:
    """The settings of a protocol.

    `apply` returns the protocol with the given values, and the same object for equal values. Raises SettingError."""

    keys: tuple[ProtocolSetting, ...]
    apply: Callable[[Mapping[str, str]], "Protocol"]


@frozen
class Protocol:
    """One protocol over one transport with one encoding, such as `v2-rest`, with its codec and properties.

    The codec consists of five functions without side effects:

    | function | from | to | raises |
    |---|---|---|---|
    | decode_request | client's Message | Request | DecodeError: malformed; GatewayError: not supported |
    | encode_request | Request | a new Message to a backend | GatewayError: the protocol cannot represent a value |
    | decode_response | backend's Message | Answer | DecodeError: malformed; GatewayError: the error in the reply |
    | encode_response | Answer | Message to the client | GatewayError: the protocol cannot represent a value |
    | encode_error | GatewayError | Message to the client | nothing |
    """

    name: str
    binding: TransportBinding
    patterns: tuple[str, ...]
    """The paths that the protocol serves, such as `POST /v2/models/{model}/infer`.

    Over gRPC, paths have the form `/package.Service/Method`. On byte streams, the tuple is empty."""
    decode_request: DecodeRequest
    encode_response: EncodeResponse
    encode_error: EncodeError
    encode_request: EncodeRequest
    decode_response: DecodeResponse
    traits: Traits = field(default_factory=Traits)
    batches: Mapping[str, Traits] = field(default_factory=dict)
    """The possible values of a backend's key `batch`, with the protocol's Traits for each value.

    The first value is the default. The mapping is empty if the protocol has only one batch format."""
    payloads: tuple[str, ...] = ()
    """The possible values of a route's key `payload`, which are encodings of an entire request.

    The first value is the default. The tuple is empty if the protocol has only one encoding."""
    example: Example | None = None
    """Returns an example command with which users can request a model's metadata. The arguments are an address, a model
    and a version.

    The version is empty, unless the traits have `versions` but not `joined_versions`. Raises GatewayError if the
    protocol cannot represent the name."""
    encode_end: Callable[[Request], Message | None] | None = None
    """Returns the message that ends a stream of responses, if the protocol defines one and the client requested it."""
    parsed_size: Callable[[Message], int] | None = None
    """Returns the number of a message's bytes that the decoder parses, excluding raw tensor data, which it only
    references.

    The gateway decodes a message in a thread only if this number is large. If this function is None, all bytes are
    parsed."""
    emulated_servers: Mapping[str, "Protocol"] = field(default_factory=dict)
    """The possible values of a listener's key `flavor`, with the variant of the protocol that emulates this server for
    clients.

    A listener without `flavor` uses the protocol itself."""

    describer: "Callable[[], DescribeOperation] | None" = None
    """Returns the function that describes the protocol's paths for OpenAPI documents.

    If this is None, the module `openapi` in the protocol's folder describes the paths, provided that the module
    exists."""
    settings: ProtocolSettings | None = None
    """Protocol-specific settings for listeners and backends."""
    relay: Relay | None = None
    """Relays the protocol's calls without decoding them. If this is None, the gateway always decodes calls."""
    errors_pass: bool = True
    """True if the client receives the error of an undecoded call unchanged.

    If this is False, the client receives only the error's message."""

    def with_settings(self, values: Mapping[str, str]) -> "Protocol":
        """Return the protocol with these values of its `settings`. Raises SettingError if a value is invalid."""
        return self.settings.apply(values) if values and self.settings is not None else self

    @property
    def transport(self) -> str:
        """The name of the transport's folder under `gateway/transports`."""
        return self.binding.transport

    @property
    def http(self) -> HttpBinding:
        """The protocol's transport binding if the transport is HTTP, otherwise an empty HttpBinding."""
        return self.binding if isinstance(self.binding, HttpBinding) else NO_HTTP

    def may_ask(self, operation: Operation) -> bool:
        """Return whether clients can request `operation`.

        The result is False only for extensions that the protocol does not have."""
        return operation not in EXTENSION_OPERATIONS or operation in self.traits.servers.extensions

    @property
    def names_models(self) -> bool:
        """True if a client can name a model."""
        models = self.traits.models
        return models.named or models.may_be_named or any("{model}" in pattern for pattern in self.patterns)


def without_codec(
    name: str, binding: TransportBinding = NO_HTTP, patterns: tuple[str, ...] = (), traits: Traits | None = None
) -> Protocol:
    """Return a Protocol whose five functions raise NotImplementedError. It is for the gateway's internal requests,
    which have no message, and for listeners that respond without creating a Request."""

    def refuse(*_: object) -> Any:
        raise NotImplementedError(f"{name} has no codec")

    return Protocol(
        name=name,
        binding=binding,
        patterns=patterns,
        decode_request=refuse,
        encode_response=refuse,
        encode_error=refuse,
        encode_request=refuse,
        decode_response=refuse,
        traits=traits or Traits(),
    )


def resolve_batch(protocol: Protocol, batch: str) -> tuple[str, Traits]:
    """Return a backend's `batch` (the default if it is empty), and the protocol's Traits for this value."""
    batch = batch or next(iter(protocol.batches), "")
    return batch, protocol.batches.get(batch, protocol.traits)


def resolve_traits(
    protocol: Protocol, batch: str, endpoints: Iterable[str], *, trust_metadata: bool = False
) -> tuple[str, Traits]:
    """Return `batch` (or the default if `batch` is empty) and the Traits of a backend with these endpoints.

    If any of the servers has only one model, `companions` is False in the Traits. If `trust_metadata` is True, the
    Traits mark the servers' metadata as reliable."""
    batch, traits = resolve_batch(protocol, batch)
    models = traits.models
    if models.one_at is not None and any(map(models.one_at, endpoints)):
        models = replace(models, companions=False)
    if trust_metadata:
        models = replace(models, trusted_metadata=True)
    return batch, replace(traits, models=models)


def merge(parts: tuple[Signature, ...]) -> Signature:
    """Return a Signature that combines the responses to all `metadata_parts` of a protocol. Each field comes from the
    first response that contains it."""
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
