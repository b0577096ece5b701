"""Conversion between bytes of any protocol and canonical values, without a server, for tests and tools.

    request = decode_request("v2-rest", body, path="/v2/models/double/infer")
    message = encode_request("grps-brpc", request)

For each protocol, four functions convert messages:

| function | from | to | same as |
|---|---|---|---|
| `decode_request` | a client's message | Request | a listener |
| `encode_request` | Request | message to a server | a backend |
| `decode_response` | a server's message, and the Request | Answer | a backend |
| `encode_response` | Answer, and the Request | message to a client | a listener |

`encode_error` writes an error for the client. A message is the body alone, without the HTTP headers and without the
five bytes before a gRPC message. For byte streams (grps-brpc, mip), a message is the entire packet. The functions do
not adapt values to a model: names, datatypes and shapes stay unchanged. If a protocol cannot carry a value, the
functions raise an error, even if the gateway's bridge could convert the value. Tensors decoded from a protocol without
tensor names have no names; add names before you encode the tensors in another protocol.

The values have these types (`gateway.core.requests`, `gateway.core.tensors`, `gateway.core.messages`):

- Request: `operation`, `model`, `version`, `id`, `inputs` (Tensor), `outputs` (RequestedOutput), `parameters`.
- Answer: for an inference, a Response (`outputs`, `model`, `version`, `id`, `parameters`); for the other operations,
  see the docstring of Answer.
- Tensor: `name`, `datatype`, `shape`, `data` (V2's raw form), and `array`, the elements as a numpy array. `tensor(name,
  array)` creates a tensor.
- Message: `method`, `path`, `query`, `headers`, `body`, and, for a response, `status`.

All functions raise DecodeError for malformed bytes. They raise GatewayError for an error that a server reported, for
values that the protocol cannot represent, and for operations that it does not support.
"""

from collections.abc import Mapping
from typing import TypeAlias

from gateway.assembly.forms import known
from gateway.core.errors import DecodeError, GatewayError, Reason, Status, refusal, unsupported
from gateway.core.exchange import decoded
from gateway.core.frozen import replace
from gateway.core.messages import Buffer, Headers, Message, Metadata
from gateway.core.models import Signature, TensorSpec
from gateway.core.operations import CALLS, DERIVATIVES, Operation
from gateway.core.patterns import Match, PathTable, rows
from gateway.core.protocol import GrpcBinding, HttpBinding, ListenerSettings, Protocol, StreamBinding, Target
from gateway.core.requests import Answer, Request, RequestedOutput, Response, Translate
from gateway.core.tensors import Tensor, tensor

__all__ = [
    "Answer",
    "DecodeError",
    "GatewayError",
    "Headers",
    "Message",
    "Operation",
    "Reason",
    "Request",
    "RequestedOutput",
    "Response",
    "Signature",
    "Status",
    "Tensor",
    "TensorSpec",
    "Translate",
    "decode_request",
    "decode_response",
    "encode_error",
    "encode_request",
    "encode_response",
    "tensor",
]

GivenHeaders: TypeAlias = Mapping[str, str] | Headers | None

HTTP_OK = 200


def decode_request(
    protocol: str,
    body: Buffer = b"",
    *,
    path: str = "",
    method: str = "POST",
    query: str = "",
    headers: GivenHeaders = None,
    model: str = "",
) -> Request:
    """Return the request in a client's message.

    `path` is the HTTP path without the query, or the gRPC method (`/inference.GRPCInferenceService/ModelInfer`).
    `model` is the default model for clients that send no model name (MIP, GraphPipe at `/`), like a listener's `model`.

    Raises:
        DecodeError: the bytes are malformed.
        GatewayError: NOT_FOUND if the protocol does not define the path; UNIMPLEMENTED if it does not support the
            operation.
        ValueError: the protocol is unknown.
        TypeError: `body` is text.
    """
    spoken = _protocol(protocol)
    message = Message(method, path, _headers(spoken, headers), _parts(spoken, body), query=query)
    return decoded(_arrived(message, spoken, model), spoken, ListenerSettings("translate", model=model))


def encode_request(
    protocol: str, request: Request, *, address: str = "server", flavor: str = "", batch: str = ""
) -> Message:
    """Return the message that sends `request` to a server.

    `flavor` and `batch` have the same meaning as the backend keys. `address` is the server's address, which determines
    GraphPipe's path.

    Raises:
        GatewayError: the protocol cannot carry the request.
        ValueError: the protocol is unknown.
    """
    return _protocol(protocol).encode_request(request, Target("server", address, flavor, batch))


def decode_response(
    protocol: str,
    body: Buffer,
    request: Request,
    *,
    status: int | None = None,
    headers: GivenHeaders = None,
    flavor: str = "",
    batch: str = "",
) -> Answer:
    """Return the answer in a server's response to `request`.

    `status` is the HTTP status (default: 200) or the gRPC code (default: 0, OK). For a gRPC response with another code,
    `body` is the status message.

    Raises:
        DecodeError: the bytes are malformed.
        GatewayError: the error that the server reported.
        ValueError: the protocol is unknown.
    """
    spoken = _protocol(protocol)
    code = (HTTP_OK if isinstance(spoken.binding, HttpBinding) else 0) if status is None else status
    message = Message(headers=_headers(spoken, headers), parts=_parts(spoken, body), status=code)
    return spoken.decode_response(message, request, Target("server", "server", flavor, batch))


def encode_response(protocol: str, answer: Answer, request: Request, translate: Translate | None = None) -> Message:
    """Return the message to a client with the answer to `request`.

    The format of a response can depend on the request. If `decode_request` read the request in the same protocol, the
    message has the format that the client expects; otherwise it has the simplest format. `translate` contains the
    settings that control NaN and BYTES in JSON.

    Raises:
        GatewayError: the protocol cannot carry the answer.
        ValueError: the protocol is unknown.
    """
    spoken = _protocol(protocol)
    return spoken.encode_response(answer, _asked_in(spoken, request), translate or Translate())


def encode_error(protocol: str, error: GatewayError, request: Request | None = None, body: Buffer = b"") -> Message:
    """Return the message that reports `error` to a client.

    `request` is None if it was malformed. `body` is the client's packet, whose identifying numbers the error response
    repeats. If `body` is empty, the response repeats the numbers of an example packet.

    Raises:
        ValueError: the protocol is unknown.
    """
    spoken = _protocol(protocol)
    asked = None if request is None else _asked_in(spoken, request)
    if isinstance(spoken.binding, StreamBinding):
        packet = body or encode_request(protocol, Request(Operation.READY)).body
        return spoken.encode_error(error, asked, Message(parts=_parts(spoken, packet)))
    return spoken.encode_error(error, asked, Message() if asked is None or asked.origin is None else asked.origin)


def _protocol(name: str) -> Protocol:
    protocols = known()
    if name not in protocols:
        raise ValueError(f"no protocol {name!r}; expected {', '.join(protocols)}")
    return protocols[name]


def _headers(protocol: Protocol, headers: GivenHeaders) -> Headers:
    if isinstance(headers, Headers):
        return headers
    kind = Metadata if isinstance(protocol.binding, GrpcBinding) else Headers
    return kind([(name.lower().encode(), text.encode()) for name, text in (headers or {}).items()])


def _asked_in(protocol: Protocol, request: Request) -> Request:
    """Return `request` as a client of `protocol` would send it.

    If the request came from another protocol, its response is encoded as the response to a single inference, to a
    derivative (if the protocol supports derivatives), or to the request that a server would receive. Responses in
    packet protocols repeat the identifying numbers of the request's packet."""
    if request.protocol == protocol.name:
        return request
    request = replace(request, origin=None)
    if request.operation not in CALLS:
        return _reread(protocol, request)
    if not (protocol.traits.wire.derivatives and request.operation in DERIVATIVES):
        request = replace(request, operation=Operation.INFER)
    if isinstance(protocol.binding, StreamBinding):
        return replace(request, origin=_reread(protocol, request).origin)
    return request


def _reread(protocol: Protocol, request: Request) -> Request:
    message = encode_request(protocol.name, request)
    method = message.method or "POST"
    asked = decode_request(
        protocol.name, message.body, path=message.path, method=method, headers=message.headers, model=request.model
    )
    if asked.operation is not request.operation:
        raise unsupported(f"{protocol.name} clients have no request for {request.operation.value!r}")
    return asked


def _parts(protocol: Protocol, body: Buffer) -> tuple[Buffer, ...]:
    """Return the body split into the parts that transports use: for byte streams, the header and the rest. Raise
    DecodeError if a packet is incomplete, or TypeError if the body is text."""
    _refuse_text(body)
    if not isinstance(protocol.binding, StreamBinding):
        return (body,)
    framing = protocol.binding.framing
    header, rest = body[: framing.header_size], body[framing.header_size :]
    if len(header) < framing.header_size:
        raise DecodeError(f"the packet has {len(header)} bytes, and its header {framing.header_size}")
    if framing.size(header) != len(rest):
        raise DecodeError(f"after its header the packet has {len(rest)} bytes, expected {framing.size(header)}")
    return header, rest


def _refuse_text(body: object) -> None:
    if isinstance(body, str):
        raise TypeError("the body is text, expected bytes: `body.encode()`")


def _arrived(message: Message, protocol: Protocol, model: str) -> Message:
    """Return the message with its path pattern and the captured values, as a listener adds them."""
    if isinstance(protocol.binding, StreamBinding):
        return replace(message, method="", path="")
    if isinstance(protocol.binding, GrpcBinding):
        if message.path not in protocol.patterns:
            raise _no_path(message.path, protocol)
        return replace(message, method="", pattern=message.path)
    match = PathTable(rows([(protocol, "")], model, ())).match(message.method, message.path)
    if not isinstance(match, Match):
        raise _no_path(f"{message.method} {message.path}", protocol)
    return replace(message, pattern=match.pattern, captures=match.captures)


def _no_path(path: str, protocol: Protocol) -> GatewayError:
    return refusal(Reason.PATH_NOT_FOUND, f"{protocol.name} has no {path}; it has {', '.join(protocol.patterns)}")
