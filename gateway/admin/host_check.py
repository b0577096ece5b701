"""Refuses requests to a loopback port whose Host or Origin header names another host.

The first prevents DNS rebinding: a web page whose host name resolves to 127.0.0.1 could otherwise read the replies. The
second prevents that a web page of another host makes a browser here send a POST, whose reply it would not need to read.
"""

from ipaddress import ip_address
from typing import Any

from gateway.admin.server import ASGI

_REFUSAL = b"this port answers requests to localhost, 127.0.0.1 and [::1] only\n"


class HostCheck:
    """Passes requests to `application` if their Host, and their Origin if they have one, are loopback, and answers
    others 421."""

    def __init__(self, application: ASGI) -> None:
        self._application = application

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        """Handle one ASGI connection."""
        headers = [(name, text.decode("latin-1")) for name, text in scope.get("headers", ())]
        hosts = [text for name, text in headers if name == b"host"]
        origins = [text.partition("://")[2] for name, text in headers if name == b"origin"]
        if scope["type"] != "http" or (len(hosts) == 1 and all(map(is_loopback, (*hosts, *origins)))):
            await self._application(scope, receive, send)
            return
        reply_headers = [(b"content-type", b"text/plain"), (b"content-length", b"%d" % len(_REFUSAL))]
        # RFC 9110 section 15.5.20: "not able to produce an authoritative response for the target URI"
        await send({"type": "http.response.start", "status": 421, "headers": reply_headers})
        await send({"type": "http.response.body", "body": _REFUSAL})


def is_loopback(host: str) -> bool:
    """Whether `host`, with or without a port, is `localhost` or a loopback address."""
    name, bracket, _ = host.partition("]") if host.startswith("[") else (host.partition(":")[0], "", "")
    if bracket:
        name = name[1:]
    if name.lower() in ("localhost", "localhost."):
        return True
    try:
        return ip_address(name).is_loopback
    except ValueError:
        return False
