"""`discovery: {srv: NAME}`: DNS SRV records (RFC 2782), which contain hosts and ports. Requires the package
dnspython."""

import logging
from typing import TYPE_CHECKING

from gateway.core.log_limit import LogLimit
from gateway.servers.discovery.source import MOST_ADDRESSES, CheckAddress, Found, LookupFailedError

if TYPE_CHECKING:
    from dns.asyncresolver import Resolver

log = logging.getLogger(__name__)
_lines = LogLimit(log)


class SrvRecords:
    """The targets in the SRV records of `name` that have the lowest priority number. Weights have no effect.

    The gateway looks up the records when their TTL ends, but at most once in `interval` seconds. `resolver` replaces
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
