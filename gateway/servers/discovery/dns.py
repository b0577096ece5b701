"""`discovery: {dns: all}`: every IP address of a host name is a separate endpoint."""

import asyncio
import socket

from gateway.servers.discovery.source import Found, LookupFailedError

_NO_ADDRESS = (socket.EAI_NONAME, getattr(socket, "EAI_NODATA", socket.EAI_NONAME))
"""The resolver's errors for a name that does not exist or has no address. An unreachable DNS server causes a different
error."""


class DnsName:
    """The IP addresses of `host`, the host in `address`, from the system's resolver.

    If the name has no address, the lookup fails, and the last addresses stay in use. If `may_be_empty` is set, the
    result is empty instead, because Kubernetes returns no address for a headless Service without ready pods.
    """

    def __init__(self, address: str, host: str, port: int, interval: float, *, may_be_empty: bool = False) -> None:
        self._address = address
        self._host = host
        self._port = port
        self._may_be_empty = may_be_empty
        self.pause = interval
        self.description = f"DNS name {host}"

    async def look(self) -> frozenset[Found]:
        """See `Source.look`."""
        loop = asyncio.get_running_loop()
        try:
            found = await loop.getaddrinfo(self._host, self._port, type=socket.SOCK_STREAM)
        except OSError as error:  # gaierror is a subclass of OSError
            if self._may_be_empty and isinstance(error, socket.gaierror) and error.errno in _NO_ADDRESS:
                return frozenset()
            raise LookupFailedError(error.strerror or str(error)) from error
        ips = {str(place[0]) for *_, place in found}
        if not ips:
            raise LookupFailedError("it has no address")
        return frozenset(Found(self._address, ip, at_ip(self._address, self._host, ip)) for ip in ips)


def at_ip(address: str, host: str, ip: str) -> str:
    """Return `address` with the IP address `ip` instead of its `host`."""
    scheme = address.find("://")
    begin = address.lower().index(host, scheme + 3 if scheme >= 0 else 0)
    return f"{address[:begin]}{f'[{ip}]' if ':' in ip else ip}{address[begin + len(host) :]}"
