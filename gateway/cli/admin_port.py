"""Send requests to the admin port of a running gateway, for commands that change or show it."""

import socket
import ssl
from collections.abc import Mapping
from dataclasses import dataclass, field
from http.client import HTTPException
from typing import Annotated, Any
from urllib.error import HTTPError, URLError
from urllib.parse import urlsplit
from urllib.request import HTTPSHandler, OpenerDirector, ProxyHandler, Request, build_opener

import orjson
import typer

from gateway.cli import call_inputs, server_options
from gateway.cli.exit_codes import FAILED, TIMED_OUT, UNREACHABLE, USAGE, end
from gateway.client.credentials import raw_headers
from gateway.core.certificates import CertificateError, TlsFiles
from gateway.core.frozen import frozen
from gateway.transports.certificates import client_context

MAX_REPLY = 256 * 2**20
"""Maximum size of a reply, in bytes: `/status` of many thousand endpoints is large."""

ASKED = "is this the admin port of a gateway?"
"""The end of an error about a reply that no gateway sends."""

AdminUrl = Annotated[
    str, typer.Option("--admin", metavar="URL", help="Admin port of a running gateway: http://HOST:PORT.")
]


@dataclass(frozen=True, kw_only=True)
class AdminAccess:
    """Connection options for an admin port."""

    headers: server_options.Headers = field(default_factory=list)
    key: server_options.Key = None
    ca: server_options.Ca = None
    insecure: server_options.Insecure = False


class AdminPortError(Exception):
    """The admin port does not answer, or answers with an error: `reason`, for a request to the URL `where`. `code` is
    the exit code, one of the codes in `exit_codes`."""

    def __init__(self, code: int, where: str, reason: str) -> None:
        super().__init__(f"{where}: {reason}")
        self.code = code
        self.reason = reason


@frozen
class AdminReply:
    """The JSON of a reply, and its headers, with case-insensitive names."""

    value: Any
    headers: Mapping[str, str]


class AdminPort:
    """The admin port at `url`. `seconds` is the timeout for each reply. If the URL or an option is wrong, the command
    ends."""

    def __init__(self, url: str, access: AdminAccess, seconds: float = 30.0) -> None:
        parts = urlsplit(url)
        if parts.scheme not in ("http", "https") or not parts.netloc:
            end(USAGE, f"--admin: expected a URL such as http://127.0.0.1:9090, got {url!r}")
        self.url = url.rstrip("/")
        self._seconds = seconds
        try:
            raw = raw_headers(call_inputs.headers(access.headers), access.key)
            self._opener = _opener(access)
        except (call_inputs.BadArgument, CertificateError, ValueError) as error:
            end(USAGE, error)
        self._headers = {name.decode(): text.decode() for name, text in raw}

    def get(self, path: str) -> Any:
        """Return the JSON at `path`. Raises AdminPortError."""
        return self.reply(path).value

    def reply(self, path: str) -> AdminReply:
        """Return the reply to a GET of `path`. Raises AdminPortError."""
        return self._ask(Request(self.url + path, headers=self._headers))

    def post(self, path: str, body: object) -> Any:
        """Return the JSON of the reply to a POST of JSON. Raises AdminPortError."""
        headers = {**self._headers, "content-type": "application/json"}
        return self._ask(Request(self.url + path, orjson.dumps(body), headers)).value

    def _ask(self, request: Request) -> AdminReply:
        where = request.full_url.partition("?")[0]
        try:
            with self._opener.open(request, timeout=self._seconds) as reply:
                body = reply.read(MAX_REPLY + 1)
            if len(body) > MAX_REPLY:
                raise AdminPortError(FAILED, where, f"the reply has more than {MAX_REPLY} bytes")
            return AdminReply(orjson.loads(body), reply.headers)
        except HTTPError as error:
            with error:
                raise AdminPortError(FAILED, where, _told(error.read(2**16), error)) from error
        except (OSError, HTTPException) as error:  # includes URLError
            reason = error.reason if isinstance(error, URLError) else error
            if isinstance(reason, TimeoutError):
                raise AdminPortError(TIMED_OUT, where, f"no answer within {self._seconds:g} s") from error
            raise AdminPortError(UNREACHABLE, where, _reason(reason)) from error
        except orjson.JSONDecodeError as error:
            raise AdminPortError(FAILED, where, f"the reply is not JSON; {ASKED}") from error


def _opener(access: AdminAccess) -> OpenerDirector:
    """Return an opener without the environment's proxies: they are for the web, not for an operator's port."""
    context = client_context(TlsFiles(authorities=access.ca or ""), verify=not access.insecure)
    return build_opener(ProxyHandler({}), HTTPSHandler(context=context))


def _reason(error: str | BaseException) -> str:
    if isinstance(error, ssl.SSLCertVerificationError):
        return f"its certificate is invalid: {error.verify_message}; use --ca for a private CA"
    if isinstance(error, socket.gaierror):
        return "cannot resolve its host name; check the URL"
    return error.strerror if isinstance(error, OSError) and error.strerror else str(error)


def _told(body: bytes, error: HTTPError) -> str:
    """Return the text of an error: `detail` of FastAPI's JSON, or plain text."""
    try:
        detail = orjson.loads(body)["detail"]
    except (orjson.JSONDecodeError, KeyError, TypeError):
        detail = body.decode("utf-8", "replace").strip()
    return str(detail) if detail else f"status {error.code}"
