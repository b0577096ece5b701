"""Check requests to the status API and to the metrics page: each must come from this machine or have credentials, and
must not come from a web page of another origin.

A page whose host name resolves to 127.0.0.1 (DNS rebinding) could read responses. Therefore, a port on loopback accepts
only a loopback address in the Host header. A page of another origin, including another port of this machine, could make
a browser send a POST, although the page could not read the response. Therefore, the Origin that a browser sends must
match the request's own Host.

Two kinds of requests are exempt from the check of credentials. Servers that register (`/register`) send their own token
in the same header. Browsers load the console's page without a key, because the page contains no gateway data, and
prompts the user for the key."""

import logging
import re
from collections.abc import Awaitable, Callable, Sequence
from ipaddress import ip_address
from typing import Any, TypeAlias

from gateway.admin.console.page import is_page
from gateway.assembly.authentication import Asked
from gateway.auth.authenticator import CHALLENGE, UnknownKeyError
from gateway.core.errors import GatewayError, Reason
from gateway.core.log_limit import LogLimit
from gateway.core.messages import Headers
from gateway.core.principal import Permission

log = logging.getLogger(__name__)
_lines = LogLimit(log)

_WRONG_HOST = "this port only answers requests to localhost, 127.0.0.1 and [::1]; use one of these names in the URL"
_HOST = re.compile(r"(?:\[([^\[\]]*)\]|([^:\[\]]*))(?::[0-9]*)?")
"""A Host header (RFC 3986, section 3.2): an IPv6 address in brackets, or another host, and a port."""
_OWN_SITES = frozenset({b"same-origin", b"none"})

ASGI: TypeAlias = Callable[..., Awaitable[None]]
"""An ASGI application."""
RawHeaders: TypeAlias = Sequence[tuple[bytes, bytes]]
"""Headers as in ASGI, with lowercase names."""


class HostCheck:
    """Passes a request to `application` if its Host is a loopback address and it does not come from a page of another
    origin. Other requests get a 421 or 403 response."""

    def __init__(self, application: ASGI) -> None:
        self._application = application

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        """Handle one ASGI connection."""
        if scope["type"] != "http":  # the application has no WebSocket routes, and refuses these connections itself
            await self._application(scope, receive, send)
            return
        headers: RawHeaders = scope["headers"]
        hosts = [text.decode("latin-1") for name, text in headers if name == b"host"]
        if len(hosts) != 1 or not _is_loopback(hosts[0]):
            # RFC 9110 section 15.5.20: "not able to produce an authoritative response for the target URI"
            await _refuse(send, 421, _WRONG_HOST)
        elif why := _why_of_another_page(str(scope["method"]), headers, str(scope["scheme"])):
            await _refuse(send, 403, why)
        else:
            await self._application(scope, receive, send)


async def _refuse(send: Any, status: int, why: str) -> None:
    body = why.encode() + b"\n"
    headers = [(b"content-type", b"text/plain"), (b"content-length", b"%d" % len(body))]
    headers += [(CHALLENGE[0].lower(), CHALLENGE[1])] if status == 401 else []
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": body})


def _why_of_another_page(method: str, headers: RawHeaders, scheme: str = "") -> str:
    """Return the reason why a request seems to come from a web page of another origin, or an empty string. Clients
    other than browsers send no origin. `scheme` is the scheme of the request, which must match the scheme of the page's
    origin. The scheme is empty if a proxy might have changed it.

    An Origin must be the request's own Host (RFC 6454, section 7). For methods other than GET and HEAD, Fetch Metadata
    (Sec-Fetch-Site), which browsers send even without an Origin, must not name another site. A GET is allowed because
    it changes nothing, and can come from a link."""
    found = dict(headers)
    origin = found.get(b"origin")
    if origin is not None:
        origin_scheme, separator, origin_host = origin.lower().partition(b"://")
        is_own_host = bool(separator) and origin_host == found.get(b"host", b"").lower()
        if not is_own_host or scheme not in ("", origin_scheme.decode("latin-1")):
            return "the request's Origin is another host; use the gateway's own pages"
    if method not in ("GET", "HEAD") and found.get(b"sec-fetch-site", b"none").lower() not in _OWN_SITES:
        return "the request's Sec-Fetch-Site is another web page; use the gateway's own pages"
    return ""


def _is_loopback(host: str) -> bool:
    """Return True if `host`, with or without a port, is `localhost` or a loopback address."""
    found = _HOST.fullmatch(host)
    if found is None:
        return False
    name = found[1] or found[2]
    if name.lower() in ("localhost", "localhost."):
        return True
    try:
        return ip_address(name).is_loopback
    except ValueError:
        return False


_STATUSES = {Reason.UNAUTHENTICATED: 401, Reason.NOT_READY: 503}


class AccessCheck:
    """Passes requests from principals with the permission `admin` to `application`.

    It rejects requests from web pages of other origins, because browsers send Basic credentials with requests from any
    web page. `asked` authenticates clients and waits for issuer keys. If `asked` is None, authentication is off, and
    requests get only the checks of HostCheck. A reload can change `asked`."""

    def __init__(self, application: ASGI, asked: Asked | None) -> None:
        self.asked = asked
        self._application = application
        self._unasked = HostCheck(application)

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        """Handle one ASGI connection."""
        asked = self.asked
        if asked is None:
            await self._unasked(scope, receive, send)
            return
        refused = await _refused(scope, asked)
        if refused is None:
            await self._application(scope, receive, send)
            return
        status, text = refused
        if status in (401, 403):
            peer = (scope.get("client") or ("-",))[0]
            _lines.write("refused", logging.WARNING, "the status API refuses client %s: %s", peer, text)
        await _refuse(send, status, text)


async def _refused(scope: Any, asked: Asked) -> tuple[int, str] | None:
    if scope["type"] != "http":
        return 400, "this port accepts only HTTP requests; send no WebSocket"
    headers = Headers([(bytes(name).lower(), bytes(text)) for name, text in scope["headers"]])
    path, method = str(scope["path"]), str(scope["method"])
    if why := _why_of_another_page(method, headers.raw):
        return 403, why
    if path == "/register" or path.startswith("/register/") or is_page(method, path):
        return None
    return await why_refused(asked, headers, "", "admin", "admin")


async def why_refused(
    asked: Asked, headers: Headers, identity: str, permission: Permission, port: str
) -> tuple[int, str] | None:
    """Return the status and the error message for a client without `permission` on a port; None if the client has the
    permission. `port` is the port's name in permissions. `identity` is the identity in the client's certificate."""
    authenticator, wait_for_keys = asked
    try:
        try:
            principal = authenticator(headers, identity)
        except UnknownKeyError as unknown:
            await wait_for_keys(unknown.issuer)
            principal = authenticator(headers, identity)
    except GatewayError as error:
        return _STATUSES[error.reason], error.message
    except UnknownKeyError:
        return 401, "the token is not accepted, because its issuer does not have its key; get a new token"
    if not principal.has(permission, "", port):
        return 403, f"{principal.name!r} does not have the permission `{permission}`"
    return None
