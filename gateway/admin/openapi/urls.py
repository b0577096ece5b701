"""The URLs at which clients reach listeners."""

from gateway.config.keys import ListenerConfig

_ALL_ADDRESSES = ("0.0.0.0", "[::]")


def listener_url(config: ListenerConfig, address: str, host: str) -> str:
    """The URL of a listener that is bound to `address` (`host:port`). `host` takes the place of an address that stands
    for all of the machine's: the one by which the asker reached it."""
    bound, _, port = address.rpartition("://")[2].rpartition(":")
    if bound in _ALL_ADDRESSES:
        bound = f"[{host}]" if ":" in host else host or "localhost"
    return f"{'http' if config.tls is None else 'https'}://{bound}:{port}"
