"""Implements `discovery: {dns: all}`, which makes every IP address of a host name a separate endpoint. Also implements
`discovery: {srv: NAME}`, which uses DNS SRV records (RFC 2782) with hosts and ports, and requires the package
dnspython."""

import asyncio
import logging
import socket
from typing import TYPE_CHECKING

from gateway.core.log_limit import LogLimit
from gateway.servers.discovery.source import MOST_ADDRESSES, CheckAddress, Found, LookupFailedError

if TYPE_CHECKING:
    from dns.asyncresolver import Resolver

log = logging.getLogger(__name__)
_lines = LogLimit(log)

_NO_ADDRESS = (socket.EAI_NONAME, getattr(socket, "EAI_NODATA", socket.EAI_NONAME))
"""The resolver's errors for a name that does not exist or has no address. An unreachable DNS server causes a different
error."""


class DnsName:
    """The IP addresses that the system's resolver returns for `host`, the host in `address`.

    If the name has no address, the lookup fails, and the last addresses stay in use. If `may_be_empty` is True, the
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


class SrvRecords:
    """The targets in the SRV records of `name` that have the lowest priority number. Weights have no effect.

    The gateway looks up the records when their TTL expires, but at most once in `interval` seconds. `resolver` replaces
    the default resolver, which uses /etc/resolv.conf."""

    def __init__(self, name: str, interval: float, check: CheckAddress, resolver: "Resolver | None" = None) -> None:
        # Imported here because only backends with `srv` need the package.
        from dns.asyncresolver import Resolver

        self._name = name
        self._interval = interval
        self._check = check
        self._resolver = resolver or Resolver()
        self.pause = interval
        self.description = f"SRV name {name}"

    async def look(self) -> frozenset[Found]:
        """See `Source.look`."""
        from dns.exception import DNSException

        self.pause = self._interval
        try:
            answer = await self._resolver.resolve(self._name, "SRV", search=True)
        except (DNSException, OSError) as error:
            raise LookupFailedError(str(error)) from error
        assert answer.rrset is not None
        self.pause = max(float(answer.rrset.ttl), self._interval)
        first = min(record.priority for record in answer)
        # RFC 2782: "A Target of "." means that the service is decidedly not available at this domain."
        targets = {
            f"{record.target.to_text(omit_final_dot=True)}:{record.port}"
            for record in answer
            if record.priority == first and record.target.to_text() != "."
        }
        return frozenset(Found(target) for target in sorted(targets)[: MOST_ADDRESSES + 1] if self._is_valid(target))

    def _is_valid(self, target: str) -> bool:
        try:
            self._check(target)
        except ValueError as error:
            _lines.write(self._name, logging.WARNING, "SRV record of %s is skipped: %s", self._name, error)
            return False
        return True
