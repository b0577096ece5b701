"""Example commands for users. Each command sends one request with curl or grpcurl, and is quoted for a shell."""

import json
from shlex import quote
from typing import Any


def curl(url: str, body: Any = None) -> str:
    """Return the command for a GET request or, if `body` is set, for a POST request with this JSON body."""
    return f"curl {quote(url)}" if body is None else f"curl {quote(url)} -d {_json(body)}"


def grpcurl(address: str, method: str, body: Any) -> str:
    """Return the command for a call to the unary `method` (`package.Service/Method`) with `body` in protobuf JSON
    format."""
    return f"grpcurl -plaintext -d {_json(body)} {quote(address)} {method}"


def with_tls(command: str) -> str:
    """Return `command` (made by `curl` or `grpcurl`) for a TLS port. The resulting command accepts any certificate,
    because it uses an address of this machine, which the certificate might not contain."""
    return command.replace("curl http://", "curl --insecure https://", 1).replace(" -plaintext ", " -insecure ", 1)


def with_key(command: str) -> str:
    """Return `command` (made by `curl` or `grpcurl`), extended to send the credential in the shell variable KEY."""
    return command.replace("curl ", 'curl -H "Authorization: Bearer $KEY" ', 1)


def _json(body: Any) -> str:
    return quote(json.dumps(body, ensure_ascii=False))
