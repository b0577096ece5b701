"""Which part of a gateway a process is. With one worker the process is the whole gateway. With several, one process
owns the backends' state and serves the ports beside the listeners, and each worker serves the listeners."""

from collections.abc import Callable
from typing import Any

from gateway.core.frozen import frozen
from gateway.routing.backend import Backend
from gateway.routing.endpoint import Endpoint


def _always() -> bool:
    return True


@frozen
class Part:
    """What a process does of a gateway's work. `backend` and `endpoint` make its Backends and Endpoints, with the
    arguments of these classes."""

    serves: bool = True
    """It binds the listeners."""
    has_references: bool = True
    """It runs the reference servers of the configuration."""
    has_ports: bool = True
    """It binds the health port and the status API."""
    probes: bool = True
    """It probes the endpoints of backends."""
    backend: Callable[..., Backend] = Backend
    endpoint: Callable[..., Endpoint] = Endpoint
    is_ready: Callable[[], bool] = _always
    """Whether the other parts are ready."""
    gather: Callable[[], Any] | None = None
    """Awaited before metrics are rendered: it fetches what the other parts have counted."""


WHOLE = Part()
"""The only process of a gateway."""
