"""Require credentials from clients of the status API and of the metrics page.

There are two exceptions. Servers that register (`/register`) send their own token in the same header. Browsers load the
console's page without a key: the page contains no gateway data, and asks the user for the key.
"""

import logging
from collections.abc import Awaitable, Callable
from typing import Any, TypeAlias

from gateway.admin.console.page import is_page
from gateway.admin.host_check import ASGI, HostCheck, why_of_another_page
from gateway.auth.authenticator import Authenticator
from gateway.auth.credentials import CHALLENGE, UnknownKeyError
from gateway.core.errors import GatewayError, Reason
from gateway.core.log_limit import LogLimit
from gateway.core.messages import Headers
from gateway.core.principal import Permission

log = logging.getLogger(__name__)
_lines = LogLimit(log)

Asked: TypeAlias = tuple[Authenticator, Callable[[str], Awaitable[None]]]
"""A function that authenticates a client, and a function to call with the issuer of a token that is signed by an
unknown key."""

_STATUSES = {Reason.UNAUTHENTICATED: 401, Reason.NOT_READY: 503}


class AccessCheck:
    """Passes requests from principals with the permission `admin` to `application`.

    It refuses requests from web pages of other origins, because browsers send Basic credentials with requests of any
    web page. `asked` authenticates clients and waits for issuer keys. While `asked` is None, authentication is off, and
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
        body = text.encode() + b"\n"
        headers = [(b"content-type", b"text/plain"), (b"content-length", b"%d" % len(body))]
        headers += [(CHALLENGE[0].lower(), CHALLENGE[1])] if status == 401 else []
        await send({"type": "http.response.start", "status": status, "headers": headers})
        await send({"type": "http.response.body", "body": body})


async def _refused(scope: Any, asked: Asked) -> tuple[int, str] | None:
    if scope["type"] != "http":
        return 400, "this port accepts only HTTP requests"
    headers = Headers([(bytes(name).lower(), bytes(text)) for name, text in scope["headers"]])
    path, method = str(scope["path"]), str(scope["method"])
    if why := why_of_another_page(method, headers.raw):
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
