"""Whether a request is taken, by its head alone."""

from collections.abc import Sequence

from gateway.core.errors import DecodeError, GatewayError, Reason, refusal
from gateway.core.patterns import Match, PathTable
from gateway.core.protocol import Protocol
from gateway.core.types import Buffer, Message
from gateway.transports.http.server.request_head import Head

# Up to this size the body of a request that is refused anyway is received, so that the connection can be kept.
_RECEIVED_ANYWAY = 64 * 2**10


class Admission:
    """What a listener has for a head: whose it is and what it matched, or why it is `refused`.

    `allow` holds the methods of a path that is asked for with another one.
    """

    __slots__ = ("allow", "coding", "match", "protocol", "refused", "timeout")

    def __init__(self, head: Head, table: PathTable) -> None:
        self.allow: tuple[str, ...] = ()
        self.match: Match | None = None
        self.refused: GatewayError | None = None
        self.coding = ""
        self.timeout: float | None = None
        try:
            self._find(head, table)
        except DecodeError as error:
            self.refused = refusal(Reason.INVALID_INPUT, str(error))
        except GatewayError as error:
            self.refused = error
        self.protocol: Protocol = table.protocol_for_error(head.path) if self.match is None else self.match.protocol

    def message(self, head: Head, body: Buffer, peer: str, received: float) -> Message:
        """What the exchange is given, `received` at that time on the loop's clock."""
        assert self.match is not None
        deadline = None if self.timeout is None else received + self.timeout
        pattern, captures = self.match.pattern, self.match.captures
        # By position: the names of its fields would cost as much again.
        return Message(
            head.method, head.path, head.headers, (body,), 0, head.query, pattern, captures, peer, received, deadline
        )

    def _find(self, head: Head, table: PathTable) -> None:
        found = table.match(head.method, head.path)
        if not isinstance(found, Match):
            self.allow = found
            raise _no_match(head, found)
        self.match = found
        self.coding = head.coding
        self.timeout = head.timeout


def check_length(head: Head, limit: int) -> None:
    """Refuse a body before a byte of memory is taken for it.

    Raises:
        GatewayError: RESOURCE_EXHAUSTED, its Content-Length is beyond `limit`.
    """
    if head.length is not None and head.length > limit:
        text = f"the body of {head.length} bytes is larger than limits.message, {limit} bytes"
        raise refusal(Reason.TOO_LARGE, text)


def worth_receiving(head: Head) -> bool:
    """Whether the body of a refused request is small, so that receiving it costs less than a new connection."""
    return not head.expects_continue and head.length is not None and head.length <= _RECEIVED_ANYWAY


def allow_header(methods: Sequence[str]) -> tuple[bytes, bytes]:
    """RFC 9110 section 15.5.6: a 405 MUST say what is allowed."""
    return b"Allow", ", ".join(methods).encode()


def _no_match(head: Head, allowed: tuple[str, ...]) -> GatewayError:
    path = head.path[:200]
    if allowed:
        text = f"{head.method} is not allowed for {path!r}; {', '.join(allowed)} is"
        return refusal(Reason.METHOD_NOT_ALLOWED, text)
    return refusal(Reason.PATH_NOT_FOUND, f"no such path here: {path!r}")
