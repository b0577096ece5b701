"""Resolves an endpoint's name."""

import asyncio
import socket

from gateway.core.address import Address
from gateway.transports.errors import not_resolved


async def resolved(address: Address) -> list[Address]:
    """Return all addresses of a name, each once. A unix socket needs no resolution.

    Raises:
        TransportError: the name has no address.
    """
    if address.path:
        return [address]
    try:
        found = await asyncio.get_running_loop().getaddrinfo(address.host, address.port, type=socket.SOCK_STREAM)
    except socket.gaierror as error:
        raise not_resolved(address.host, error) from error
    return list(dict.fromkeys(Address(str(place[0]), int(place[1])) for *_, place in found))
