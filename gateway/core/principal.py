"""`Principal`: who sent a request."""

from gateway.core.frozen import frozen


@frozen
class Principal:
    """Who sent a request, as its key or certificate says. `name` is the one in the configuration."""

    name: str
