"""gRPC for the checks, based on grpcio, which shares no code with the gateway's own HTTP/2 implementation."""

from collections.abc import Sequence
from typing import Any

import grpc

from gateway.core.frozen import frozen
from gateway.tools.conformance.check import Options, Transcript, deviate, fail, not_applicable, require
from gateway.tools.conformance.transports import GRPC, connect, message, target

CHANNEL = (
    ("grpc.enable_http_proxy", 0),
    ("grpc.use_local_subchannel_pool", 1),
    ("grpc.max_receive_message_length", 64 << 20),
    ("grpc.max_send_message_length", -1),
    ("grpc.max_metadata_size", 64 << 10),
)


@frozen
class RpcReply:
    """The result of a call. `code` is a status name such as NOT_FOUND. `messages` contains the replies, as bytes."""

    code: str
    details: str
    messages: tuple[bytes, ...] = ()


class RpcServer:
    """A client for the server under test, over gRPC."""

    def __init__(self, address: str, options: Options, transcript: Transcript) -> None:
        self._place = target(address, "grpc", "http")
        self.options = options
        self._transcript = transcript
        self._channel = grpc.insecure_channel(self._place, CHANNEL)

    def reach(self) -> None:
        """Connect once, and close the connection. Raise OSError if the server is unreachable."""
        connect(self._place, self.options.timeout).close()

    def close(self) -> None:
        self._channel.close()

    def send(self, method: str, request: Any) -> RpcReply:
        """Return the reply to one message, or to bytes that are not a valid message. `method` is
        `/package.Service/Method`."""
        raw = request if isinstance(request, bytes) else request.SerializeToString()
        self._transcript.send(method, repr(raw[:200]) if isinstance(request, bytes) else str(request))
        try:
            reply = self._channel.unary_unary(method)(raw, timeout=self.options.timeout)
        except grpc.RpcError as error:
            return self._failed(error)
        return RpcReply("OK", "", (reply,))

    def stream(self, method: str, requests: Sequence[Any]) -> RpcReply:
        """Return the replies to messages on one bidirectional stream."""
        for each in requests:
            self._transcript.send(method, str(each))
        messages = []
        try:
            raw = iter([each.SerializeToString() for each in requests])
            for reply in self._channel.stream_stream(method)(raw, timeout=self.options.timeout):
                messages.append(reply)
        except grpc.RpcError as error:
            failed = self._failed(error)
            return RpcReply(failed.code, failed.details, tuple(messages))
        return RpcReply("OK", "", tuple(messages))

    def note(self, message: Any) -> None:
        """Record a decoded reply."""
        self._transcript.receive("OK", str(message))

    def parsed(self, method: str, reply: RpcReply, response: Any) -> Any:
        """Return the message of a reply, whose status must be OK. `response` is an empty message of the reply's type,
        into which this method decodes the reply."""
        if reply.code != "OK":
            fail(f"{method}: {reply.code}, {reply.details[:120]!r}; expected OK")
        try:
            response.ParseFromString(reply.messages[0])
        except Exception as error:  # protobuf's DecodeError, whose base class depends on the implementation
            fail(f"{method}: the response is not a {response.DESCRIPTOR.name}: {error}")
        self.note(response)
        return response

    def refused(self, reply: RpcReply, what: str, *codes: str, lenient: bool = False) -> None:
        """Check that the reply is an error, with INVALID_ARGUMENT or one of `codes`. If `lenient` is True, servers can
        accept this request."""
        codes = codes or ("INVALID_ARGUMENT", "NOT_FOUND") if lenient else codes or ("INVALID_ARGUMENT",)
        if reply.code == "OK":
            (deviate if lenient else fail)(f"{what}: accepted with OK")
        if reply.code in ("DEADLINE_EXCEEDED", "UNAVAILABLE", "CANCELLED"):
            fail(f"{what}: {reply.code}, {reply.details[:120]!r}; expected {' or '.join(codes)}")
        if reply.code not in codes:
            deviate(f"{what}: {reply.code}; expected {' or '.join(codes)}")

    def check_health(self) -> None:
        """Check that grpc.health.v1 reports SERVING, if the server has this service."""
        reply = self.send("/grpc.health.v1.Health/Check", message(GRPC, "grpc.health.v1.HealthCheckRequest")())
        if reply.code == "UNIMPLEMENTED":
            not_applicable("the server does not have grpc.health.v1")
        require(reply.code == "OK", f"{reply.code}; expected OK")
        found = message(GRPC, "grpc.health.v1.HealthCheckResponse").FromString(reply.messages[0]).status
        require(found == 1, f"`status` is {found}; expected SERVING (1)")

    def _failed(self, error: Any) -> RpcReply:
        reply = RpcReply(error.code().name, error.details() or "")
        self._transcript.receive(reply.code, reply.details)
        return reply
