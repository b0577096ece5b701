"""An issuer of tokens for tests: real RSA, EC and Ed25519 keys, rotated at will, and the documents that it serves."""

from __future__ import annotations

import asyncio
import json
import ssl
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import jwt
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa
from jwt.algorithms import ECAlgorithm, OKPAlgorithm, RSAAlgorithm

AUDIENCE = "models"

_MAKERS: dict[str, Any] = {
    "RS256": lambda: rsa.generate_private_key(65537, 2048),
    "ES256": lambda: ec.generate_private_key(ec.SECP256R1()),
    "EdDSA": ed25519.Ed25519PrivateKey.generate,
}
_WRITERS: dict[str, Any] = {"RS256": RSAAlgorithm, "ES256": ECAlgorithm, "EdDSA": OKPAlgorithm}


class Issuer:
    """Signs tokens with the key that it made last; its JWKS has all keys that it has not dropped."""

    def __init__(self) -> None:
        self.url = "https://issuer.test"
        self.private: dict[str, tuple[str, Any]] = {}
        self.asked = 0
        """How often its JWKS was fetched."""
        self.silent = False
        """Whether it accepts requests and answers none."""
        self.unanswered = 0
        """Requests that it left without an answer."""
        self.content: bytes | None = None
        """What it serves in place of its JWKS."""
        self.was_asked = asyncio.Event()
        self.answers = asyncio.Event()
        """Clear while every request waits."""
        self.answers.set()

    def rotate(self, algorithm: str = "RS256", kid: str = "") -> str:
        """Make another key. Returns its `kid`."""
        kid = kid or f"key-{len(self.private)}"
        self.private[kid] = algorithm, _MAKERS[algorithm]()
        return kid

    def drop(self, kid: str) -> None:
        del self.private[kid]

    def public(self, kid: str) -> Any:
        return self.private[kid][1].public_key()

    @property
    def jwks(self) -> bytes:
        rows = []
        for kid, (algorithm, key) in self.private.items():
            row = json.loads(_WRITERS[algorithm].to_jwk(key.public_key()))
            rows.append(row | {"kid": kid, "alg": algorithm, "use": "sig"})
        return json.dumps({"keys": rows}).encode()

    def token(self, subject: str = "alice", *, kid: str = "", head: dict[str, Any] | None = None, **claims: Any) -> str:
        """A token that ends in 5 minutes, unless `claims` says otherwise; a claim of None is left out."""
        kid = kid or next(reversed(self.private))
        algorithm, key = self.private[kid]
        said = {"iss": self.url, "aud": AUDIENCE, "sub": subject, "exp": int(time.time()) + 300, **claims}
        said = {name: each for name, each in said.items() if each is not None}
        return jwt.encode(said, key, algorithm=algorithm, headers={"kid": kid, **(head or {})})


@asynccontextmanager
async def served(issuer: Issuer, tls: ssl.SSLContext | None = None) -> AsyncIterator[Issuer]:
    """`issuer` on loopback, with OpenID Connect Discovery; over TLS as `localhost`."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            head = await reader.readuntil(b"\r\n\r\n")
            path = head.split(b" ")[1]
            if path == b"/jwks":
                issuer.asked += 1
            issuer.was_asked.set()
            await issuer.answers.wait()
            if issuer.silent:
                issuer.unanswered += 1
                await reader.read()
                return
            found = {
                b"/jwks": issuer.jwks if issuer.content is None else issuer.content,
                b"/.well-known/openid-configuration": json.dumps(
                    {"issuer": issuer.url, "jwks_uri": f"{issuer.url}/jwks"}
                ).encode(),
            }.get(path)
            body = found or b""
            status = b"200 OK" if found is not None else b"404 Not Found"
            writer.write(
                b"HTTP/1.1 %b\r\ncontent-length: %d\r\nconnection: close\r\n\r\n%b" % (status, len(body), body)
            )
            await writer.drain()
        finally:
            writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0, ssl=tls)
    origin = "http://127.0.0.1" if tls is None else "https://localhost"
    issuer.url = f"{origin}:{server.sockets[0].getsockname()[1]}"
    try:
        yield issuer
    finally:
        server.close()
