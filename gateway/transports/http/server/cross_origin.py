"""Cross-origin requests from web pages in browsers (CORS), according to section 3.2 of the WHATWG Fetch standard.

A browser passes a reply from another origin to a page only if the reply allows this. Before a request with a JSON body
or credentials, the browser sends a *preflight*. This is an OPTIONS request with the header
Access-Control-Request-Method, and never contains credentials.
"""

from gateway.core.errors import GatewayError, Reason, refusal
from gateway.core.messages import Headers, Message
from gateway.core.protocol import ANY_ORIGIN, CrossOrigin
from gateway.transports.http.server.request_head import RequestHead

_METHODS = b"GET, HEAD, POST, PUT, PATCH, DELETE"
"""All methods that a path can support. The gateway allows all of these methods for every path, because a page can read
the error of a request more easily than the error of a preflight."""
_SHOWN = (
    "x-request-id", "gateway-reason", "retry-after", "gateway-route", "gateway-backend", "gateway-tries",
    "gateway-cache", "gateway-explanation", "gateway-derivative", "inference-header-content-length", "ce-specversion",
    "ce-id", "ce-source", "ce-type", "allow",
)  # fmt: skip
"""The reply headers that a page can read, in addition to headers that are always readable (such as `content-type`)."""
_NO_CONTENT = 204


class CrossOriginReplies:
    """The CORS headers for the replies of one listener."""

    names = frozenset(
        (
            b"access-control-allow-origin", b"access-control-allow-credentials", b"access-control-expose-headers",
            b"access-control-allow-methods", b"access-control-allow-headers", b"access-control-max-age",
        )
    )  # fmt: skip
    """The names of the CORS headers. Browsers reject a reply that contains the same CORS header twice."""

    def __init__(self, settings: CrossOrigin) -> None:
        self._origins = frozenset(each.encode() for each in settings.origins)
        self._any = ANY_ORIGIN.encode() in self._origins
        credentials = b"Access-Control-Allow-Credentials: true\r\n" if settings.credentials else b""
        self._others = b"%bAccess-Control-Expose-Headers: %b\r\n" % (credentials, ", ".join(_SHOWN).encode())
        self.preflight = Message(
            headers=Headers(
                (
                    (b"Access-Control-Allow-Methods", _METHODS),
                    (b"Access-Control-Allow-Headers", ", ".join(settings.headers).encode()),
                    (b"Access-Control-Max-Age", b"%d" % settings.max_age),
                )
            ),
            status=_NO_CONTENT,
        )
        """The reply to all preflights that are not `refused`."""

    def lines(self, head: RequestHead | None) -> bytes:
        """Return the CORS header lines for all replies to a request with this head."""
        origin = None if head is None else head.headers.first.get(b"origin")
        if self._any:
            return b"" if origin is None else b"Access-Control-Allow-Origin: *\r\n" + self._others
        # `Vary` is sent even if the request has no origin, so no cache passes the reply to a page.
        allowed = b"Access-Control-Allow-Origin: %b\r\n%b" % (origin, self._others) if origin in self._origins else b""
        return b"Vary: Origin\r\n" + allowed

    def refused(self, head: RequestHead) -> GatewayError | None:
        """Return the error with which to reject a preflight; None if the preflight is allowed."""
        origin = head.headers.first[b"origin"]
        if self._any or origin in self._origins:
            return None
        shown = origin.decode("latin-1")[:200]
        text = f"requests of pages from {shown!r} are not allowed here (`cors` of the listener)"
        return refusal(Reason.PERMISSION_DENIED, text)


def is_preflight(head: RequestHead) -> bool:
    """Return whether the request is a preflight."""
    fields = head.headers.first
    return head.method == "OPTIONS" and b"origin" in fields and b"access-control-request-method" in fields
