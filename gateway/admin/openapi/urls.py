"""The URLs at which clients reach listeners."""

from gateway.config.keys import ListenerConfig

_ALL_ADDRESSES = ("0.0.0.0", "[::]")


def listener_url(config: ListenerConfig, address: str, host: str) -> str:
    """Return the URL of a listener that is bound to `address` (`host:port`). `host`, the host in the caller's own
    request, replaces a wildcard address."""
    bound, _, port = address.rpartition("://")[2].rpartition(":")
    if bound in _ALL_ADDRESSES:
        bound = f"[{host}]" if ":" in host else host or "localhost"
    return f"{'http' if config.tls is None else 'https'}://{bound}:{port}"
