"""The dispatch of a request according to its head, before the body arrives.

The dispatch determines the protocol that serves the request, or the reason to reject the request. `whole_heads` and
`connection` create these objects.
"""

from collections.abc import Sequence

from gateway.core.errors import DecodeError, GatewayError, Reason, invalid_input, refusal
from gateway.core.messages import Buffer, Message
from gateway.core.patterns import Match, PathTable
from gateway.core.protocol import HttpBinding, Protocol
from gateway.transports.http.server.cross_origin import CrossOriginReplies, is_preflight
from gateway.transports.http.server.request_head import RequestHead

# Up to this size in bytes, the gateway receives the body of a rejected request, so the connection can stay open.
_RECEIVED_WHEN_REFUSED = 64 * 2**10


class Dispatch:
    """The `protocol` to which a head belongs, the `pattern` that the path matches, and its `captures`. If `refused` is
    set, it is the reason to reject the request.

    A rejected request also has a protocol, which determines the format of the error. `preflight` is the reply to an
    allowed preflight request; other preflights are rejected. `allow` contains the supported methods if the path was
    requested with another method. `coding` is the body's content coding. `timeout` is the client's timeout, in seconds.
    `admits_first` is True if the gateway checks the client's credentials before it receives the body. Otherwise, it
    checks them after the body has arrived. `streams` is True if the response is a stream. If `asks_body` is True, the
    body can also request a stream."""

    __slots__ = (
        "admits_first",
        "allow",
        "asks_body",
        "captures",
        "coding",
        "pattern",
        "preflight",
        "protocol",
        "refused",
        "streams",
        "timeout",
    )

    def __init__(self, head: RequestHead, table: PathTable, cross_origin: CrossOriginReplies | None = None) -> None:
        self.allow: tuple[str, ...] = ()
        self.pattern = ""
        self.protocol: Protocol
        self.captures: dict[str, str] = {}
        self.refused: GatewayError | None = None
        self.coding = ""
        self.timeout: float | None = None
        self.preflight: Message | None = None
        try:
            self._find(head, table)
        except DecodeError as error:
            self.refused = refusal(Reason.INVALID_INPUT, str(error))
        except GatewayError as error:
            self.refused = error
        if cross_origin is not None and is_preflight(head):
            self.refused = cross_origin.refused(head)
            if self.refused is None:
                self.refused = refusal(Reason.METHOD_NOT_ALLOWED, "a preflight is not a request")
                self.preflight = cross_origin.preflight
        if not self.pattern:
            self.protocol = table.protocol_for_error(head.path)
        self.admits_first = bool(self.coding) or not worth_receiving(head)
        self.streams = self.refused is None and self._streams(head)
        self.asks_body = self.protocol.http.body_wants_stream is not None

    def message(self, head: RequestHead, body: Buffer, peer: str, received: float, identity: str = "") -> Message:
        """Return the Message for a request from the client at `peer`, whose certificate contains the name `identity`.

        `received` is the time of the request's arrival, on the loop's clock."""
        timeout = self.timeout
        return Message(
            head.method,
            head.path,
            head.headers,
            (body,),
            query=head.query,
            pattern=self.pattern,
            captures=self.captures,
            peer=peer,
            received=received,
            deadline=None if timeout is None else received + timeout,
            identity=identity,
        )

    def body_wants_stream(self, message: Message) -> bool:
        """Return whether the request's body, which has arrived, requests a stream.

        Raises:
            GatewayError: the body is compressed, so this cannot be determined.
        """
        wants_stream = self.protocol.http.body_wants_stream
        if wants_stream is None:
            return False
        if self.coding:
            raise invalid_input(
                f"a body with Content-Encoding {self.coding} is not supported on this path: its content "
                "selects a stream; send it uncompressed"
            )
        return wants_stream(message)

    def _streams(self, head: RequestHead) -> bool:
        form = self.protocol.binding
        assert isinstance(form, HttpBinding)
        return form.wants_stream is not None and form.wants_stream(self.message(head, b"", "", 0.0))

    def _find(self, head: RequestHead, table: PathTable) -> None:
        found = table.match(head.method, head.path)
        if not isinstance(found, Match):
            self.allow = found
            raise _no_match(head, found)
        self.protocol, self.pattern, self.captures = found.protocol, found.pattern, found.captures
        self.coding = head.coding
        self.timeout = head.timeout


def check_length(head: RequestHead, limit: int) -> None:
    """Reject a body that is too large before any memory is allocated for it.

    Raises:
        GatewayError: RESOURCE_EXHAUSTED if the Content-Length exceeds `limit`.
    """
    if head.length is not None and head.length > limit:
        text = f"the body of {head.length} bytes is larger than limits.message, {limit} bytes"
        raise refusal(Reason.TOO_LARGE, f"{text}; send less, or raise the limit")


def worth_receiving(head: RequestHead) -> bool:
    """Return whether the body of a rejected request is so small that receiving it costs less than a new connection."""
    return not head.expects_continue and head.length is not None and head.length <= _RECEIVED_WHEN_REFUSED


def allow_header(methods: Sequence[str]) -> tuple[bytes, bytes]:
    """Return the Allow header, which a reply with status 405 MUST contain (RFC 9110, section 15.5.6)."""
    return b"Allow", ", ".join(methods).encode()


def _no_match(head: RequestHead, allowed: tuple[str, ...]) -> GatewayError:
    path = head.path[:200]
    if allowed:
        text = f"{head.method} is not allowed for {path!r}; allowed: {', '.join(allowed)}"
        return refusal(Reason.METHOD_NOT_ALLOWED, text)
    return refusal(Reason.PATH_NOT_FOUND, f"unknown path: {path!r}")
