"""Checks whether a server accepts connections at an address, and whether it uses TLS."""

import asyncio
import ssl
from contextlib import suppress

from gateway.assembly import registry
from gateway.tools.probing.candidates import FormCandidate
from gateway.transports.certificates import client_context
from gateway.transports.errors import not_connected

_ALPN = ("h2", "http/1.1")


async def _open(candidate: FormCandidate, seconds: float, context: ssl.SSLContext | None) -> None:
    """Connect, with a TLS handshake if `context` is given, and close the connection."""
    place = registry.transport(candidate.transport).parse_address(candidate.address)
    async with asyncio.timeout(seconds):
        if getattr(place, "path", ""):
            _, writer = await asyncio.open_unix_connection(place.path)
        else:
            host = place.host if context is not None else None
            _, writer = await asyncio.open_connection(place.host, place.port, ssl=context, server_hostname=host)
    writer.close()
    with suppress(OSError):
        await writer.wait_closed()


async def connect(candidate: FormCandidate, seconds: float) -> None:
    """Connect, and close the connection.

    Raises:
        TransportError: no server accepts connections at the address.
        ValueError: the address is invalid.
    """
    try:
        await _open(candidate, seconds, None)
    except OSError as error:
        place = registry.transport(candidate.transport).parse_address(candidate.address)
        raise not_connected(error, getattr(place, "path", "") or place.host, seconds) from error


async def speaks_tls(candidate: FormCandidate, seconds: float) -> bool:
    """Return whether a TLS handshake succeeds. Any certificate is accepted."""
    try:
        await _open(candidate, seconds, client_context(verify=False, alpn=_ALPN))
    except OSError:
        return False
    return True
