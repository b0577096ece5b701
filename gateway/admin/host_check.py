"""Refuse requests that web pages of other origins make a browser send to the status API.

A page whose host name resolves to 127.0.0.1 (DNS rebinding) could read responses. Therefore, a port on loopback accepts
only a loopback address in the Host header. A page of another origin, including another port of this machine, could make
a browser send a POST without reading the response. Therefore, the Origin that a browser sends must match the request's
own Host.
"""

import re
from collections.abc import Awaitable, Callable, Sequence
from ipaddress import ip_address
from typing import Any, TypeAlias

_WRONG_HOST = "this port only answers requests to localhost, 127.0.0.1 and [::1]"
_HOST = re.compile(r"(?:\[([^\[\]]*)\]|([^:\[\]]*))(?::[0-9]*)?")
"""RFC 3986, section 3.2: an IPv6 address in brackets, or another host; and a port."""
_OWN_SITES = frozenset({b"same-origin", b"none"})

ASGI: TypeAlias = Callable[..., Awaitable[None]]
"""An application."""
RawHeaders: TypeAlias = Sequence[tuple[bytes, bytes]]
"""Headers as in ASGI, with names in lower case."""


class HostCheck:
    """Passes requests to `application` if their Host is a loopback address and they do not come from a page of another
    origin. Other requests get a 421 or 403 response."""

    def __init__(self, application: ASGI) -> None:
        self._application = application

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        """Handle one ASGI connection."""
        if scope["type"] != "http":
            await self._application(scope, receive, send)
            return
        headers: RawHeaders = scope["headers"]
        hosts = [text.decode("latin-1") for name, text in headers if name == b"host"]
        if len(hosts) != 1 or not is_loopback(hosts[0]):
            # RFC 9110 section 15.5.20: "not able to produce an authoritative response for the target URI"
            await _refuse(send, 421, _WRONG_HOST)
        elif why := why_of_another_page(str(scope["method"]), headers, str(scope["scheme"])):
            await _refuse(send, 403, why)
        else:
            await self._application(scope, receive, send)


async def _refuse(send: Any, status: int, why: str) -> None:
    body = why.encode() + b"\n"
    headers = [(b"content-type", b"text/plain"), (b"content-length", b"%d" % len(body))]
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": body})


def why_of_another_page(method: str, headers: RawHeaders, scheme: str = "") -> str:
    """Return a message that explains why a request seems to come from a web page of another origin; empty if it does
    not. Clients other than browsers send no origin. `scheme` is the scheme of the request, which must match the scheme
    of the page's origin; empty if a proxy might have changed it.

    An Origin must be the request's own Host (RFC 6454, section 7). For methods other than GET and HEAD, Fetch Metadata
    (Sec-Fetch-Site), which browsers send even without an Origin, must not name another site. A GET changes nothing, and
    can come from a link."""
    found = dict(headers)
    origin = found.get(b"origin")
    of, mark, host = (b"", b"://", b"") if origin is None else origin.lower().partition(b"://")
    is_own = mark and host == found.get(b"host", b"").lower() and scheme in ("", of.decode("latin-1"))
    if origin is not None and not is_own:
        return "the request's Origin is another host; use the gateway's own pages"
    if method not in ("GET", "HEAD") and found.get(b"sec-fetch-site", b"none").lower() not in _OWN_SITES:
        return "the request's Sec-Fetch-Site is another web page; use the gateway's own pages"
    return ""


def is_loopback(host: str) -> bool:
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
