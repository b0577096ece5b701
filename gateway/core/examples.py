"""Example commands for people to try: one request with curl or grpcurl, quoted for a shell."""

import json
from shlex import quote
from typing import Any


def curl(url: str, body: Any = None) -> str:
    """A GET request; with `body` a POST of it as JSON."""
    return f"curl {quote(url)}" if body is None else f"curl {quote(url)} -d {_json(body)}"


def grpcurl(address: str, method: str, body: Any) -> str:
    """A call of the unary `method` (`package.Service/Method`) with `body` in protobuf's JSON."""
    return f"grpcurl -plaintext -d {_json(body)} {quote(address)} {method}"


def with_tls(command: str) -> str:
    """`command`, a text of `curl` or `grpcurl`, over TLS. It accepts any certificate: the address that it names is that
    of this machine, which the certificate need not have."""
    return command.replace("curl http://", "curl --insecure https://", 1).replace(" -plaintext ", " -insecure ", 1)


def with_key(command: str) -> str:
    """`command`, a text of `curl` or `grpcurl`, with the credential in the shell's variable KEY."""
    return command.replace("curl ", 'curl -H "Authorization: Bearer $KEY" ', 1)


def _json(body: Any) -> str:
    return quote(json.dumps(body, ensure_ascii=False))
