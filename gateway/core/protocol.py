"""The value that describes one wire form: everything the gateway knows of a protocol.

A protocol is a folder under `gateway/protocols` whose `PROTOCOLS` holds one of these per wire form. The registry finds
it; nothing else names it, and nothing compares its name: what others need to know stands in its Traits.
"""

import typing
from collections.abc import Callable, Iterable, Mapping
from dataclasses import field
from enum import Enum
from typing import ClassVar, TypeAlias

from gateway.core.datatypes import Datatype
from gateway.core.errors import GatewayError
from gateway.core.frozen import frozen, replace
from gateway.core.operations import Operation
from gateway.core.types import Answer, Buffer, Message, Request, ServerInfo, Signature, Translate


@frozen
class Limits:
    """`limits:` of listeners and backends. Bytes, except `json_values`, JSON values outside tensor data, and
    `inflation`, how many times its compressed size a message may inflate to."""

    message: int = 64 * 2**20
    headers: int = 64 * 2**10
    json_values: int = 10_000
    config: int = 2**20
    inflation: int = 100
    connections: int | None = None
    """Of a listener, at once; None is any number."""


DEFAULT_LIMITS = Limits()


@frozen
class ListenerSettings:
    """What decode_request may know of the listener: its name, limits, and the model of clients that name none."""

    name: str = ""
    limits: Limits = DEFAULT_LIMITS
    model: str = ""


@frozen
class Target:
    """What encode_request and decode_response may know of the endpoint they write to."""

    backend: str = ""
    address: str = ""
    flavor: str = ""
    batch: str = ""
    limits: Limits = DEFAULT_LIMITS
    forward_headers: tuple[str, ...] = ()
    """Headers of clients, in lower case, that the endpoint gets; it gets no other."""
    extensions: frozenset[str] | None = None
    """What its server metadata lists; None: it was not asked."""


class Rows(Enum):
    """Where the rows of a batch are in what one call carries."""

    FREE = "where the model's signature has a batch dimension"
    FIRST = "the first dimension of every tensor counts rows, whatever the model is"
    ONE = "a call is one row, and no tensor has a batch dimension"


@frozen
class Flavors:
    """The sorts of servers that speak a protocol each in its own way. `detect` gives the flavor of a server that tells
    this of itself, None being nothing."""

    names: tuple[str, ...]
    detect: Callable[[ServerInfo | None], str]


@frozen
class Wire:
    """What a message of a protocol can carry."""

    datatypes: frozenset[Datatype] = frozenset(Datatype)
    """Those that its tensors can have."""
    untyped: bool = False
    """Numbers travel without a datatype."""
    numbers: Datatype | None = None
    """What numbers without a datatype are where nobody says; None: what their literals are."""
    unnamed: bool = False
    """Tensors travel without names, or may: they are told apart by their position."""
    selects: bool = True
    """A request can say which of the outputs it wants."""
    parameters: bool = True
    """A request can carry parameters."""
    rows: Rows = Rows.FREE
    points: bool = False
    """One call is one point: every tensor is a vector. Its `rows` are ONE."""
    derivatives: bool = False
    """Gradient and its like are operations of their own; elsewhere they are companion models."""
    streams: bool = False
    """A backend can be asked for a stream of responses to one request."""
    nan: str = "error"
    """How NaN and infinities are written where the route does not say: error, literal, null or string."""


@frozen
class Models:
    """How a protocol names models, and what its servers tell of them."""

    named: bool = True
    """A backend needs a model's name, and every client gives one."""
    may_be_named: bool = False
    """A call may name a model or leave it to the server."""
    versions: Callable[[str], bool] | None = None
    """Whether a text can be a version; None: models have no versions."""
    joined_versions: bool = False
    """Clients write a model and its version as one name, `M-1.0.0`."""
    companions: bool = True
    """A request can name another model of the same server, such as the companion `M.gradient` of `M`."""
    one_at: Callable[[str], bool] | None = None
    """Whether the server at such an endpoint has one model, whatever a request names: it has no `companions` then."""
    ready_as_a_whole: bool = False
    """A server says whether it is ready, not whether one of its models is. That it has the model, its metadata says."""
    metadata_parts: tuple[str, ...] = ("",)
    """What a backend must be asked, one question each, for a whole Signature; empty: it has no metadata."""
    operations_part: str = ""
    """The one of them that asks for a model's operations and for nothing else; empty: they come with the tensors."""
    trusted_metadata: bool = True
    """A backend's metadata is what it really takes and gives."""
    tells_names: bool = True
    """Its metadata names the inputs and outputs. It may, whether or not the tensors of a call are `unnamed`."""
    platform: str = ""
    """`platform` in the metadata of its models where the server tells none."""


@frozen
class Servers:
    """What the servers that speak a protocol have beside it, and what they bear."""

    flavors: Flavors | None = None
    """What `flavor` on a backend can be, and how it is found where it is absent."""
    extensions: Mapping[Operation, str] = field(default_factory=dict)
    """The operations that only those servers have whose metadata lists the extension of this name."""
    further_extensions: frozenset[str] = frozenset()
    """Extensions that need no operation of their own: what they are about passes with inferences."""
    own_extensions: tuple[str, ...] = ()
    """The extensions that the wire form itself stands for, whatever the servers have."""
    max_in_flight: int = 0
    """Calls at once per endpoint; 0: any number."""
    connection_per_call: bool = False
    """A new connection for every call (`Connection: close`)."""
    unannounced_ends: frozenset[int] = frozenset()
    """The statuses after which its servers close a connection without saying so in the reply."""
    one_connection: bool = False
    """A server accepts the next connection only when it is done with the one before: every exchange takes a slot, not
    only those that make a model work."""
    runs_to_the_end: bool = False
    """A call that its client gave up goes on in the server: its slot stays taken until the answer comes."""


@frozen
class Traits:
    """What the bridge and the endpoints need to know of a protocol."""

    wire: Wire = Wire()
    models: Models = Models()
    servers: Servers = field(default_factory=Servers)


@frozen
class Framing:
    """Where messages begin and end on a byte stream. The transport reads `header_size` bytes, checks `size(header)`
    against the limit, allocates one buffer and receives into it; a Message has the header and the rest as its two
    parts. `size` raises DecodeError for what is no header.

    On multiplexed streams `tag` reads the correlation number of a message; it raises DecodeError where none can be
    read. `retag` writes into a request the connector's own and, where the wire has a word for it, the seconds until
    its deadline; None is no deadline."""

    header_size: int
    size: Callable[[Buffer], int]
    tag: Callable[[Message], int] | None = None
    retag: Callable[[Message, int, float | None], Message] | None = None
    head: Callable[[Buffer], int] | None = None
    """How many of the bytes that follow a header are a head: the message's own headers, within `limits.headers`. Of a
    message beyond `limits.message` only they are handed over, and what follows is dropped as it comes: the codec
    refuses it, and the others on the stream live on. Without heads such a message ends the stream."""
    stopping: Callable[[Message], GatewayError | None] | None = None
    """The error of a reply which says that the server is stopping and has not run the request. Another endpoint gets
    it then, and the connection no further ones."""
    is_compressed: Callable[[Message], bool] | None = None
    """Whether content must be inflated."""
    inflate: Callable[[Message, Limits], Message] | None = None
    """A compressed message as it would be if it were not, its content inflated within the limits. What the codec
    would do by itself, for transports to do away from the loop. Raises as `decode_request` does."""


class Cutter(typing.Protocol):
    """Cuts one streamed body into its messages, as it arrives."""

    def feed(self, data: Buffer) -> list[Buffer]:
        """The messages that `data` completes. Raises DecodeError for what is none, GatewayError beyond the limit."""

    def boundary(self) -> list[Buffer]:
        """The same at the end of a chunk of HTTP's: some servers write one for each message."""

    def end(self) -> list[Buffer]:
        """The same at the end of the body. Raises DecodeError where that is inside a message."""


@frozen
class StreamFraming:
    """Where messages begin and end in a streamed HTTP body. `wrap` gives a message's parts as they stand in it;
    `cutter` makes a Cutter whose messages have at most so many bytes."""

    wrap: Callable[[tuple[Buffer, ...]], tuple[Buffer, ...]]
    cutter: Callable[[int], Cutter]
    keeps_coding: bool = False
    """A body is left in its Content-Encoding, since nobody looks into it."""


@frozen
class HttpForm:
    """What HTTP alone needs to know of a wire form."""

    transport: ClassVar[str] = "http"
    any_path: tuple[str, ...] = ()
    """The methods that it also serves at paths that are not its own: those that routes match, and `/` where the
    listener has a `model` and clients do not name one in their messages (`Models.may_be_named`)."""
    wants_stream: Callable[[Message], bool] | None = None
    """Whether a request is answered with any number of messages, by its path, query and headers: its body may still be
    compressed. None: no request is."""
    stream_framing: StreamFraming | None = None
    """Where messages begin and end in a streamed body; None where bodies are never streamed."""
    passthrough: "Protocol | None" = None
    """The wire form of the paths of `passthrough` routes, which looks into nothing; its requests are all streams."""
    is_passthrough: bool = False
    """It is another one's `passthrough`, at the paths of such routes."""
    pages: tuple[str, ...] = ()
    """The patterns of its page of metrics, served where the listener has `metrics_page`."""


@frozen
class GrpcForm:
    """What gRPC alone needs to know of a wire form."""

    transport: ClassVar[str] = "grpc"
    streams: frozenset[str] = frozenset()
    """Those of the patterns that take and answer any number of messages."""
    descriptors: bytes = b""
    """The FileDescriptorSet of the services, for reflection."""


@frozen
class StreamForm:
    """What byte streams alone, TCP and unix sockets, need to know of a wire form. They have no place for headers."""

    transport: ClassVar[str] = "tcp"
    framing: Framing


Carrier: TypeAlias = HttpForm | GrpcForm | StreamForm
NO_HTTP = HttpForm()


DecodeRequest: TypeAlias = Callable[[Message, ListenerSettings], Request]
EncodeResponse: TypeAlias = Callable[[Answer, Request, Translate], Message]
Example: TypeAlias = Callable[[str, str, str], str]
EncodeError: TypeAlias = Callable[[GatewayError, Request | None, Message], Message]
EncodeRequest: TypeAlias = Callable[[Request, Target], Message]
DecodeResponse: TypeAlias = Callable[[Message, Request, Target], Answer]


@frozen
class Protocol:
    """One wire form. The five functions are pure.

    `decode_request` and `decode_response` raise DecodeError for bytes that are not what the protocol says, and
    GatewayError for a request it has no words for, or for the error that a backend's reply tells.
    `encode_response` and `encode_request` raise GatewayError where a value has no form on the wire.
    `encode_error` raises nothing.
    """

    name: str
    carrier: Carrier
    patterns: tuple[str, ...]
    """What it serves: `POST /v2/models/{model}/infer`; on gRPC `/package.Service/Method`; empty on byte streams."""
    decode_request: DecodeRequest
    encode_response: EncodeResponse
    encode_error: EncodeError
    encode_request: EncodeRequest
    decode_response: DecodeResponse
    traits: Traits = field(default_factory=Traits)
    batches: Mapping[str, Traits] = field(default_factory=dict)
    """What a backend's `batch` may be, the default first, and the Traits that the protocol has by each; empty where a
    batch travels in one way only."""
    payloads: tuple[str, ...] = ()
    """The forms that a request's tensors can travel in, the usual one first, where the wire has several of a whole
    message: what a route's `payload` can be towards it."""
    example: Example | None = None
    """The command that shows it to people, made of address, model and version: it asks for a model's metadata. The
    version is empty, unless the traits have `versions` and no `joined_versions`. Raises GatewayError for a name without
    a form on the wire."""
    encode_end: Callable[[Request], Message | None] | None = None
    """What ends the stream of one request's responses, where the wire has such a message and the client wants it."""
    parsed_size: Callable[[Message], int] | None = None
    """How many bytes of a message are looked at one by one when it is decoded, where those of raw tensors are not: it
    is decoded in a thread only if these are many. None: all."""
    faces: Mapping[str, "Protocol"] = field(default_factory=dict)
    """What a listener's `flavor` may be, and the wire form as it then faces clients: the server that they take the
    gateway for. A listener without `flavor` has the wire form itself."""

    @property
    def transport(self) -> str:
        """The folder under `gateway/transports` that carries it."""
        return self.carrier.transport

    @property
    def http(self) -> HttpForm:
        """Its carrier where that is HTTP; elsewhere an empty one, for those who set listeners up."""
        return self.carrier if isinstance(self.carrier, HttpForm) else NO_HTTP

    @property
    def names_models(self) -> bool:
        """Whether a client can say which model it means."""
        models = self.traits.models
        return models.named or models.may_be_named or any("{model}" in pattern for pattern in self.patterns)


def resolve_batch(protocol: Protocol, word: str) -> tuple[str, Traits]:
    """A backend's `batch`, the default if `word` is empty, and the Traits that go with it."""
    word = word or next(iter(protocol.batches), "")
    return word, protocol.batches.get(word, protocol.traits)


def traits_at_endpoints(traits: Traits, endpoints: Iterable[str]) -> Traits:
    """The Traits of a backend with these endpoints."""
    models = traits.models
    alone = models.one_at is not None and any(map(models.one_at, endpoints))
    return replace(traits, models=replace(models, companions=False)) if alone else traits


def merge(parts: tuple[Signature, ...]) -> Signature:
    """One Signature of the answers to a protocol's `metadata_parts`: each part gives what it knows."""
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
