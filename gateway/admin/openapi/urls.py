"""The URLs at which clients reach listeners."""

from gateway.config.listeners import ListenerConfig
from gateway.core.address import ALL_ADDRESSES


def listener_url(config: ListenerConfig, address: str, host: str) -> str:
    """Return the URL of a listener that is bound to `address` (`host:port`). A wildcard address is replaced by `host`,
    the host name in the caller's own request."""
    bound, _, port = address.rpartition("://")[2].rpartition(":")
    if bound.strip("[]") in ALL_ADDRESSES:
        bound = f"[{host}]" if ":" in host else host or "localhost"
    return f"{'http' if config.tls is None else 'https'}://{bound}:{port}"
