"""`Protocol` is the value that describes one protocol. This module also has the values that a Protocol contains.

A protocol is a folder under `gateway/protocols` whose `PROTOCOLS` holds one Protocol for each combination of transport
and encoding; the registry finds it. No other code names a protocol or compares its name. Other code uses its Traits and
its transport binding (HttpBinding, GrpcBinding or StreamBinding).
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
    """Limits on client messages, server messages and client connections.

    The gateway checks message limits before it allocates memory.

    The fields are the keys under `limits` of listeners and backends. A field's docstring is the description of its key.
    """

    message: int = 64 * 2**20
    """Maximum size of a message's body, before and after decompression, in bytes."""
    headers: int = 64 * 2**10
    """Maximum size of a message's headers, in bytes."""
    json_values: int = 10_000
    """Maximum number of JSON values in a message, excluding tensor data; for MIP, TLVs in addition to one for each of
    65535 rows. A server's model list, or its statistics, can always have 400,000."""
    config: int = 2**20
    """Maximum size of UM-Bridge's `config`, in bytes."""
    inflation: int = 1100
    """Maximum ratio of a message's size to its compressed size. Messages of up to 1 MiB can have any ratio. The default
    is more than gzip can reach, because a tensor of equal numbers has a ratio of about 1000: `message` and the
    process-wide `limits.memory` limit the memory for decompression."""
    connections: int | None = None
    """Maximum number of concurrent connections. The gateway refuses connections above this limit with an error in the
    listener's first protocol. Default: only the process-wide limit applies."""
    connections_per_client: int | None = None
    """Maximum number of concurrent connections from one IPv4 address or one /64 network of IPv6. Behind a proxy all
    clients have the proxy's address."""
    requests_per_connection: int | None = None
    """Maximum number of requests on one connection. The gateway then closes the connection gracefully, so its client
    connects again, possibly to another replica. Has no effect on brpc, because brpc clients fail calls for 3 s after a
    connection closes."""
    connection_age: PositiveSeconds | None = None
    """Maximum age of a connection, in seconds, with a jitter of 10 % for each connection, so connections do not all end
    at the same time. The gateway then closes the connection gracefully. Has no effect on brpc."""
    connection_grace: float | None = None
    """Seconds after `connection_age` or the last request during which gRPC calls can continue; after that they end with
    UNAVAILABLE. Default: no limit."""
    stream_first_message: PositiveSeconds = 300.0
    """Seconds to wait for the first message of a gRPC stream; then the stream ends with DEADLINE_EXCEEDED."""
    stream_idle: PositiveSeconds = 3600.0
    """Maximum seconds that a gRPC stream can be idle after the response to its last message; then the stream ends with
    DEADLINE_EXCEEDED."""
    # gRPC clients can ping every ten seconds to check the connection, with some jitter.
    ping_interval: float = 9.0
    """Minimum time between two keepalive pings of a gRPC client without a call in flight, in seconds. The gateway
    tolerates two earlier pings, and ends the connection at the next one with `too_many_pings`. With 0, and while a call
    is in flight, clients can ping at any time, up to 500 times a second."""

    @property
    def of_lists(self) -> "Limits":
        """Return the limits of model lists, which have more values than all other messages, excluding tensor data."""
        return replace(self, json_values=max(self.json_values, LISTED_VALUES))

    @property
    def ends_connections(self) -> bool:
        """True if connections end after a number of requests or a time."""
        return self.requests_per_connection is not None or self.connection_age is not None


DEFAULT_LIMITS = Limits()

LISTED_VALUES = 400_000
"""Maximum number of JSON values in a model list or in statistics. A list entry has five, and a repository has thousands
of models; the statistics of a model have about seventy."""


ANY_ORIGIN = "*"
"""In `CrossOrigin.origins`: pages from any origin."""


@frozen
class CrossOrigin:
    """The web pages that can read a listener's HTTP responses in a browser: pages from `origins`, which can send
    `headers` (lower case) and, with `credentials`, certificates and cookies. Browsers cache this for `max_age`
    seconds."""

    origins: tuple[str, ...]
    headers: tuple[str, ...]
    max_age: int
    credentials: bool


@frozen
class ListenerSettings:
    """The listener's settings that `decode_request` needs.

    `model` is the model for clients that do not send a model name."""

    name: str = ""
    limits: Limits = DEFAULT_LIMITS
    model: str = ""
    tls: Callable[[], Any] | None = None
    """Returns the `ssl.SSLContext` for the handshake of the next connection.

    If it is None or returns None, the listener does not use TLS."""
    shares_http1: bool = False
    """True if another listener serves HTTP/1.1 at the same address."""
    relays: frozenset[str] = frozenset()
    """The names of the protocols that at least one route relays unread."""
    cross_origin: CrossOrigin | None = None
    """CORS permissions over HTTP; if it is None, responses have no CORS headers."""


@frozen
class Target:
    """The endpoint's settings that `encode_request` and `decode_response` need."""

    backend: str = ""
    address: str = ""
    flavor: str = ""
    batch: str = ""
    limits: Limits = DEFAULT_LIMITS
    forward_headers: tuple[str, ...] = ()
    """Names, in lower case, of the client headers that the gateway forwards to the endpoint."""
    extensions: frozenset[str] | None = None
    """The extensions in the server metadata; None if unknown."""
    own_headers: tuple[tuple[bytes, bytes], ...] = ()
    """Headers that the gateway adds to each request to the endpoint."""


class Rows(Enum):
    """The layout of a batch in the tensors of one call. Each row is one example for the model."""

    FREE = "in the batch dimension, if the model's signature has one"
    FIRST = "in the first dimension of every tensor, whatever the model"
    ONE = "a call is one row; tensors are without a batch dimension, or clients send size 1"


@frozen
class ServerTypes:
    """The server types of a protocol, which differ in their deviations from the specification.

    `detect` returns the server type for a server's metadata, or for None if it has no metadata."""

    names: tuple[str, ...]
    detect: Callable[[ServerInfo | None], str]


@frozen
class Wire:
    """The capabilities of a protocol's messages."""

    datatypes: frozenset[Datatype] = frozenset(Datatype)
    """The datatypes of its tensors."""
    untyped: bool = False
    """True if numbers in messages have no datatype."""
    numbers: Datatype | None = None
    """The datatype for numbers without a datatype, if metadata and configuration do not define it.

    None means the datatype of their literals."""
    unnamed: bool = False
    """True if tensors have no names, always or optionally, so their position identifies them."""
    selects: bool = True
    """True if a request can select outputs."""
    parameters: bool = True
    """True if a request can carry parameters."""
    nested_parameters: bool = False
    """True if a parameter can be any JSON value (`core.types.NestedJson`)."""
    own_parameters: frozenset[str] = frozenset()
    """Parameters of requests, responses and tensors for content of its messages that other protocols lack, such as
    `core.types.ATTACHMENT`. If only the client's or only the backend's protocol has one of the parameters, the gateway
    refuses the message."""
    rows: Rows = Rows.FREE
    points: bool = False
    """One call is one point, so every tensor is a vector. In this case, `rows` is ONE."""
    scalars_in_rows: bool = False
    """True if `[-1]` in its servers' signatures means one element for each row, instead of a vector of any length.

    In this case, `rows` is ONE."""
    derivatives: bool = False
    """True if derivatives are operations of the protocol. In other protocols they are derivative models."""
    streams: bool = False
    """True if a backend can return a stream of responses to one request."""
    nan: str = "error"
    """The default of a route's `translate.nan`: error, literal, null or string."""


@frozen
class Models:
    """How a protocol names models, and the information that its servers report about them."""

    named: bool = True
    """True if every request names a model."""
    may_be_named: bool = False
    """True if a request can either name a model or leave the choice to the server."""
    versions: Callable[[str], bool] | None = None
    """Returns whether a text is a valid version. None means that models have no versions."""
    joined_versions: bool = False
    """True if clients write a model and its version as one name, `M-1.0.0`."""
    companions: bool = True
    """True if a request can name other models of the same server, such as the derivative model `M.gradient` of `M`;
    False for a protocol without INT64, because derivative models take tensor positions as INT64."""
    one_at: Callable[[str], bool] | None = None
    """Returns whether the server at an endpoint (its address as configured) has a single model and ignores the model
    names in requests. Backends with that server have no `companions`."""
    ready_as_a_whole: bool = False
    """True if a server reports readiness only for the server as a whole.

    To check whether the server has a model, the gateway then requests metadata."""
    unknown_are_not_found: bool = False
    """True if the response about a model's readiness distinguishes an unknown model from a model that is not ready."""
    metadata_parts: tuple[str, ...] = ("",)
    """The requests for metadata (`Request.part`) that together give a complete Signature.

    If it is empty, the protocol has no metadata, and `trusted_metadata` is False unless `signature` is set."""
    operations_part: str = ""
    """The part that requests only a model's operations. If it is empty, the operations come with the tensors."""
    trusted_metadata: bool = True
    """True if a backend's metadata is reliable."""
    signature: Signature | None = None
    """The Signature of every model, if the protocol itself declares it.

    The gateway then does not query servers for it. If it is None, the servers report the Signature, provided that the
    protocol has `metadata_parts`."""
    fixed_sizes: bool = False
    """True if a model's inputs and outputs have the same sizes for every `config`."""
    ordered: bool = True
    """True if its metadata lists inputs and outputs in a defined order.

    If it is False, the metadata has maps, and the gateway sorts inputs and outputs by name."""
    platform: str = ""
    """The default of its models' `platform` in metadata."""


@frozen
class ConcurrencyQuery:
    """The query whether a server accepts any number of concurrent calls."""

    question: Callable[[], Message]
    """Returns a new message, which the caller can change."""
    says_so: Callable[[Message], bool]
    """Returns whether the response confirms it. Servers that do not know the query return something else."""


@frozen
class Servers:
    """Behavior and extensions of the servers of a protocol."""

    flavors: ServerTypes | None = None
    """The values of a backend's `flavor`, and the detection of the server type if the key is absent."""
    extensions: Mapping[Operation, str] = field(default_factory=dict)
    """The operations that only some servers support, with the extension that the metadata of these servers lists."""
    further_extensions: frozenset[str] = frozenset()
    """Extensions without a separate operation, which only change inferences."""
    own_extensions: tuple[str, ...] = ()
    """Extensions that all servers have because the protocol implies them."""
    max_in_flight: int = 0
    """The default of a backend's `max_in_flight`, the maximum number of concurrent calls for each endpoint; 0: no
    limit."""
    connection_per_call: bool = False
    """True if every call gets a new connection (`Connection: close`)."""
    unannounced_ends: frozenset[int] = frozenset()
    """Status codes of responses after which servers close the connection without announcing it."""
    one_connection: bool = False
    """True if a server serves only one connection at a time.

    Every exchange then takes a slot, including exchanges that do not run a model."""
    takes_many: ConcurrencyQuery | None = None
    """The query whether a server accepts any number of concurrent calls, as a gateway does; used if `max_in_flight`
    limits the calls to the protocol's other servers. If it is None, all servers accept any number."""
    runs_to_the_end: bool = False
    """True if the server finishes a call even after the client cancels it.

    The call's slot then stays taken until the response arrives."""
    probe: Operation = Operation.READY
    """The default operation of active probes: LIVE or READY."""
    states_when_loaded: frozenset[str] = frozenset()
    """The server types whose servers list the models of their repository, with a state for each loaded model. A model
    without a state is unloaded. With other server types, a listed model counts as loaded unless its state says
    otherwise."""
    lacks_model: Callable[[Message, str], bool] | None = None
    """Returns whether the response to MODEL_READY says, in words that no other server type uses, that the server does
    not have a model of this name. It recognizes servers without metadata. If it is None, the servers have metadata."""


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
    and receives the rest into it. A Message then has two parts: the header and the rest. `size` raises DecodeError for
    invalid headers.

    For multiplexed streams, `tag` reads a message's correlation number, and raises DecodeError if the number is
    missing. `retag` replaces the correlation number in a request and, if the protocol has a field for it, sets the
    seconds until the deadline (None: no deadline)."""

    header_size: int
    size: Callable[[Buffer], int]
    tag: Callable[[Message], int] | None = None
    retag: Callable[[Message, int, float | None], Message] | None = None
    head: Callable[[Buffer], int] | None = None
    """Returns the number of bytes after the header that are the message's own head, limited by `limits.headers`.

    For a message larger than `limits.message`, the transport passes on only the head and drops the rest on arrival. The
    codec refuses the message, and the stream continues. If this function is None, the message ends the stream."""
    stopping: Callable[[Message], GatewayError | None] | None = None
    """Returns the error in a reply which says that the server is stopping and did not run the request; None for other
    replies. The gateway then sends the request to another endpoint, and does not use the connection again."""
    is_compressed: Callable[[Message], bool] | None = None
    """Returns whether a message's content is compressed."""
    inflate: Callable[[Message, Limits, Callable[[int], None]], Message] | None = None
    """Returns the message with its content decompressed, within the limits.

    Before it allocates memory, it calls its last argument with the number of bytes. That function refuses the size by
    raising an error. Transports call it, in a thread if the content is large. Codecs accept both compressed and
    decompressed messages. It raises the errors of `decode_request`."""
    magic: bytes = b""
    """The first bytes of every message.

    They distinguish the protocol from other protocols at the same address. A protocol without them needs a separate
    address."""


class MessageSplitter(typing.Protocol):
    """Splits a streamed body into messages when data arrives."""

    def feed(self, data: Buffer) -> list[Buffer]:
        """Return the messages that `data` completes. Raises DecodeError if they are malformed, GatewayError if they
        exceed the limit."""

    def boundary(self) -> list[Buffer]:
        """Return the messages that the end of an HTTP chunk completes, because some servers write one chunk for each
        message."""

    def end(self) -> list[Buffer]:
        """Return the messages that the end of the body completes. Raises DecodeError if the body ends inside a
        message."""


@frozen
class StreamFraming:
    """Finds where messages begin and end in a streamed HTTP body.

    `wrap` turns a message's parts into the parts to write to the body. `cutter` creates a MessageSplitter; its argument
    is the maximum size of a message in bytes."""

    wrap: Callable[[tuple[Buffer, ...]], tuple[Buffer, ...]]
    cutter: Callable[[int], MessageSplitter]
    keeps_coding: bool = False
    """True if the transport does not decompress a body, because no code reads it."""


@frozen
class HttpBinding:
    """The HTTP binding of a protocol."""

    transport: ClassVar[str] = "http"
    any_path: tuple[str, ...] = ()
    """The methods that it also serves at paths outside its patterns: the paths that routes match, and `/`. It serves
    `/` if the listener has a `model` and clients cannot name a model in their messages (`Models.may_be_named` is
    False)."""
    wants_stream: Callable[[Message], bool] | None = None
    """Returns whether the response to a request is a stream, based on the request's path, query and headers.

    The transport calls it once for equal heads, with a Message without a body. If it is None, responses are never
    streams."""
    body_wants_stream: Callable[[Message], bool] | None = None
    """Returns whether a request's body asks for a stream, for requests whose heads do not. The transport calls it
    before decompression, and refuses compressed bodies. If it is None, bodies never do."""
    stream_framing: StreamFraming | None = None
    """Finds the start and the end of messages in a streamed body; None if the protocol does not stream bodies."""
    passthrough: "Protocol | None" = None
    """The protocol variant for `passthrough` routes, which does not decode content and treats requests as streams."""
    is_passthrough: bool = False
    """True if this is the `passthrough` of another protocol."""
    pages: tuple[str, ...] = ()
    """The patterns of its metrics page, served if the listener has `metrics_page`."""


@frozen
class GrpcBinding:
    """The gRPC binding of a protocol."""

    transport: ClassVar[str] = "grpc"
    streams: frozenset[str] = frozenset()
    """The patterns of streaming methods, which accept and return any number of messages."""
    descriptors: bytes = b""
    """The serialized FileDescriptorSet of its services, for gRPC reflection."""
    health_names: frozenset[str] = frozenset()
    """Additional names of its services for gRPC's health service, for clients that use names other than
    `package.Service`."""


@frozen
class StreamBinding:
    """The binding of a protocol to byte streams (TCP and unix sockets), which have no headers."""

    transport: ClassVar[str] = "tcp"
    framing: Framing
    credential: Callable[[Message], Headers] | None = None
    """Returns the credential in a message, as the header that other transports use; None if messages have no field for
    it."""
    context: Callable[[Message], Headers] | None = None
    """Returns the request id and the trace context in a message, as the headers that other transports use; None if
    messages have no fields for them."""
    with_credential: Callable[[Message, bytes], Message] | None = None
    """Returns a message to a server with this value of the header Authorization as its credential, or without a
    credential if the value is empty; None if messages have no field for it. Raises DecodeError if the message is
    malformed."""


TransportBinding: TypeAlias = HttpBinding | GrpcBinding | StreamBinding
"""The transport binding of a protocol names its transport, and has the details that only this transport needs."""
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

    The functions are pure:

    | function | from | to |
    |---|---|---|
    | head | client's Message | Head; None: the message must be read |
    | request | the same Message and its Request | a new Message to a backend; None: it must be read for this server |
    | reply | backend's Message to this Request | Message to the client; None: it is an error, or must be read |

    - `head` finds the operation, the model and the version, exactly as every server that uses the protocol does. It
      raises the errors of `decode_request`. If the gateway itself must process some of the content, it must decode the
      message.
    - `request` raises GatewayError for content that the server type does not support.
    """

    head: "Callable[[Message, ListenerSettings], Head | None]"
    request: "Callable[[Message, Request, Target], Message | None]"
    reply: "Callable[[Message, Request, Target], Message | None]"


@frozen
class ProtocolSetting:
    """A key that only one protocol has, in `settings` of its listeners and backends. Values are texts."""

    name: str
    description: str
    default: str = ""


class SettingError(ValueError):
    """The value of the ProtocolSetting `key` is invalid. The text gives the reason."""

    def __init__(self, key: str, text: str) -> None:
        super().__init__(text)
        self.key = key


@frozen
class ProtocolSettings:
    """The settings of a protocol.

    `apply` returns the protocol with these values. It returns the same object for the same values, and raises
    SettingError."""

    keys: tuple[ProtocolSetting, ...]
    apply: Callable[[Mapping[str, str]], "Protocol"]


@frozen
class Protocol:
    """One protocol over one transport with one encoding, such as `v2-rest`, with its codec and properties.

    The codec consists of five pure functions:

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
    """The paths that it serves: `POST /v2/models/{model}/infer`.

    Over gRPC, they are `/package.Service/Method`. The tuple is empty on byte streams."""
    decode_request: DecodeRequest
    encode_response: EncodeResponse
    encode_error: EncodeError
    encode_request: EncodeRequest
    decode_response: DecodeResponse
    traits: Traits = field(default_factory=Traits)
    batches: Mapping[str, Traits] = field(default_factory=dict)
    """The possible values for a backend's `batch`, with the protocol's Traits for each value.

    The first is the default; no values if the protocol has only one batch format."""
    payloads: tuple[str, ...] = ()
    """The possible values for a route's `payload`, which are encodings of a whole request.

    The first is the default; no values if the protocol has only one encoding."""
    example: Example | None = None
    """Returns an example command for users that requests a model's metadata, for an address, a model and a version.

    The version is empty unless the traits have `versions` and not `joined_versions`. Raises GatewayError if the
    protocol cannot represent the name."""
    encode_end: Callable[[Request], Message | None] | None = None
    """Returns the message that ends a stream of responses, if the protocol has one and the client requested it."""
    parsed_size: Callable[[Message], int] | None = None
    """Returns how many bytes of a message are parsed, excluding raw tensor data, which is only referenced.

    The gateway decodes a message in a thread only if this number is large. If it is None, all bytes are parsed."""
    emulated_servers: Mapping[str, "Protocol"] = field(default_factory=dict)
    """The possible values for a listener's `flavor`, with the protocol variant that emulates each server for clients.

    A listener without `flavor` uses this protocol itself."""

    describer: "Callable[[], DescribeOperation] | None" = None
    """Returns the function that describes the protocol's paths for OpenAPI documents.

    If it is None, the module `openapi` in the protocol's folder describes them, if it exists."""
    settings: ProtocolSettings | None = None
    """Protocol-specific settings for listeners and backends."""
    relay: Relay | None = None
    """Relays the protocol's calls without decoding them. If it is None, the gateway always decodes them."""
    errors_pass: bool = True
    """True if the client gets the error of an undecoded call unchanged.

    If it is False, the client gets only the error's text."""

    def with_settings(self, values: Mapping[str, str]) -> "Protocol":
        """Return the protocol with these values of its `settings`. Raises SettingError."""
        return self.settings.apply(values) if values and self.settings is not None else self

    @property
    def transport(self) -> str:
        """The name of the folder under `gateway/transports` with its transport."""
        return self.binding.transport

    @property
    def http(self) -> HttpBinding:
        """The protocol's transport binding if the transport is HTTP, otherwise an empty HttpBinding."""
        return self.binding if isinstance(self.binding, HttpBinding) else NO_HTTP

    def may_ask(self, operation: Operation) -> bool:
        """Return whether clients can request `operation`.

        The result is False only for extensions that the protocol lacks."""
        return operation not in EXTENSION_OPERATIONS or operation in self.traits.servers.extensions

    @property
    def names_models(self) -> bool:
        """True if a client can name a model."""
        models = self.traits.models
        return models.named or models.may_be_named or any("{model}" in pattern for pattern in self.patterns)


def without_codec(
    name: str, binding: TransportBinding = NO_HTTP, patterns: tuple[str, ...] = (), traits: Traits | None = None
) -> Protocol:
    """Return a Protocol whose five functions raise NotImplementedError, for the gateway's internal requests, which have
    no message, and for listeners that answer without a Request."""

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
    """Return a backend's `batch` (the default if empty) and the protocol's Traits for it."""
    batch = batch or next(iter(protocol.batches), "")
    return batch, protocol.batches.get(batch, protocol.traits)


def traits_at_endpoints(traits: Traits, endpoints: Iterable[str]) -> Traits:
    """Return `traits` for a backend with these endpoints.

    If one of its servers has a single model, the result has no `companions`."""
    models = traits.models
    has_one = models.one_at is not None and any(map(models.one_at, endpoints))
    return replace(traits, models=replace(models, companions=False)) if has_one else traits


def merge(parts: tuple[Signature, ...]) -> Signature:
    """Return the Signature that combines the responses to all `metadata_parts` of a protocol. For each field the first
    response that has it wins."""
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
