"""The log lines about started servers. Their number is limited, because calls can cause them."""

import logging

from gateway.core.log_limit import LogLimit

log = logging.getLogger("gateway.servers.fleet")
_lines = LogLimit(log, lines=60)


def tell(backend: str, level: int, text: str, *values: object) -> None:
    """Log a line about the servers of `backend`. `text` is a format string for the backend's name, followed by
    `values`."""
    _lines.write(backend, level, text, backend, *values)
