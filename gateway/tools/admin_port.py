"""Sends requests to a running gateway's admin port, for commands that show or change the gateway's state."""

import socket
import ssl
from collections.abc import Mapping
from http.client import HTTPException
from typing import Any
from urllib.error import HTTPError, URLError
from urllib.parse import urlsplit
from urllib.request import HTTPSHandler, OpenerDirector, ProxyHandler, Request, build_opener

import orjson

from gateway.client.credentials import RawHeaders
from gateway.core.certificates import TlsFiles
from gateway.core.frozen import frozen
from gateway.transports.certificates import client_context

MAX_REPLY = 256 * 2**20
"""Maximum size of a response, in bytes. The maximum is large because `/status` can list thousands of endpoints."""

ASKED = "is this the admin port of a gateway?"
"""The last part of the error message for a response that cannot come from a gateway."""


class AdminPortError(Exception):
    """The admin port did not respond, or responded with an error. `where` is the URL of the request, and `reason`
    describes the error."""

    def __init__(self, where: str, reason: str) -> None:
        super().__init__(f"{where}: {reason}")
        self.reason = reason


class AdminUnreachableError(AdminPortError):
    """Connecting to the admin port failed."""


class AdminTimeoutError(AdminPortError):
    """The admin port did not respond in time."""


@frozen
class AdminReply:
    """The JSON of a response, and the response headers, whose names are case-insensitive."""

    value: Any
    headers: Mapping[str, str]


class AdminPort:
    """The admin port at `url`. `seconds` is the timeout for each response. `is_verified` enables the check of the
    port's certificate.

    Raises:
        ValueError: the URL is invalid.
        CertificateError: the CA file of `tls` cannot be read.
    """

    def __init__(
        self, url: str, headers: RawHeaders, tls: TlsFiles, *, is_verified: bool = True, seconds: float = 30.0
    ) -> None:
        parts = urlsplit(url)
        if parts.scheme not in ("http", "https") or not parts.netloc:
            raise ValueError(f"--admin: expected a URL such as http://127.0.0.1:9090, got {url!r}")
        self.url = url.rstrip("/")
        self._seconds = seconds
        self._opener = _opener(tls, is_verified=is_verified)
        self._headers = {name.decode(): text.decode() for name, text in headers}

    def get(self, path: str) -> Any:
        """Return the JSON at `path`. Raise AdminPortError if the request fails."""
        return self.reply(path).value

    def reply(self, path: str) -> AdminReply:
        """Return the response to a GET request for `path`. Raise AdminPortError if the request fails."""
        return self._ask(Request(self.url + path, headers=self._headers))

    def post(self, path: str, body: object) -> Any:
        """Return the JSON of the response to a POST request with a JSON body. Raise AdminPortError if the request
        fails."""
        headers = {**self._headers, "content-type": "application/json"}
        return self._ask(Request(self.url + path, orjson.dumps(body), headers)).value

    def _ask(self, request: Request) -> AdminReply:
        where = request.full_url.partition("?")[0]
        try:
            with self._opener.open(request, timeout=self._seconds) as reply:
                body = reply.read(MAX_REPLY + 1)
            if len(body) > MAX_REPLY:
                raise AdminPortError(where, f"the response has more than {MAX_REPLY} bytes; {ASKED}")
            return AdminReply(orjson.loads(body), reply.headers)
        except HTTPError as error:
            with error:
                raise AdminPortError(where, _error_text(error.read(2**16), error)) from error
        except (OSError, HTTPException) as error:  # includes URLError
            reason = error.reason if isinstance(error, URLError) else error
            if isinstance(reason, TimeoutError):
                raise AdminTimeoutError(
                    where, f"no answer within {self._seconds:g} s; try again, or see the gateway's log"
                ) from error
            raise AdminUnreachableError(where, _reason(reason)) from error
        except orjson.JSONDecodeError as error:
            raise AdminPortError(where, f"the response is not JSON; {ASKED}") from error


def _opener(tls: TlsFiles, *, is_verified: bool) -> OpenerDirector:
    """Return an opener that ignores the proxies in the environment, because they are for the web, not for the admin
    port."""
    context = client_context(tls, verify=is_verified)
    return build_opener(ProxyHandler({}), HTTPSHandler(context=context))


def _reason(error: str | BaseException) -> str:
    if isinstance(error, ssl.SSLCertVerificationError):
        return f"its certificate is invalid: {error.verify_message}; use --ca for a private CA"
    if isinstance(error, socket.gaierror):
        return "cannot resolve its host name; check the URL"
    return error.strerror if isinstance(error, OSError) and error.strerror else str(error)


def _error_text(body: bytes, error: HTTPError) -> str:
    """Return an error's message: `detail` in FastAPI's JSON, or plain text."""
    try:
        detail = orjson.loads(body)["detail"]
    except (orjson.JSONDecodeError, KeyError, TypeError):
        detail = body.decode("utf-8", "replace").strip()
    return str(detail) if detail else f"status {error.code}"
