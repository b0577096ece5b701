"""What a configuration may name: handed in, so that loading imports no protocol, policy or transport."""

import typing
from collections.abc import Callable, Collection, Mapping

from pydantic import BaseModel

from gateway.core.frozen import frozen
from gateway.core.protocol import Protocol


class Policy(typing.Protocol):
    """What is needed of a policy's module here: `Settings`, which is what stands under its name in YAML."""

    @property
    def Settings(self) -> type[BaseModel]: ...  # noqa: N802 - a class in the module


@frozen
class Place:
    """Where an endpoint is, however it is written: host (lower case) and port, or the path of a unix socket. `prefix`
    is the path of a URL."""

    host: str = ""
    port: int = 0
    socket: str = ""
    prefix: str = ""
    tls: bool = False


def any_endpoint(transport: str, endpoint: str) -> Place:
    """Takes every endpoint."""
    return Place(endpoint)


@frozen
class Catalog:
    """Protocols and policies by name, the names of the bundled models, and how a transport's endpoints are read:
    `parse_endpoint(transport, endpoint)` gives the Place of one, and raises ValueError for what is none.
    `images`: Pillow is there."""

    protocols: Mapping[str, Protocol]
    policies: Mapping[str, Policy]
    reference_models: Collection[str] = ()
    parse_endpoint: Callable[[str, str], Place] = any_endpoint
    images: bool = True
