"""The protocols under test: all protocols in the registry, including the toy protocols of the tests."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import gateway.protocols
from gateway.assembly import registry

TOYS = Path(__file__).parent / "toy"


@contextmanager
def toys() -> Iterator[None]:
    """In this context, the folders of the toy protocols belong to `gateway.protocols`."""
    gateway.protocols.__path__.append(str(TOYS))
    registry.protocols.cache_clear()
    try:
        yield
    finally:
        gateway.protocols.__path__.remove(str(TOYS))
        registry.protocols.cache_clear()


INSTALLED = registry.protocols()
"""The gateway's own protocols."""

with toys():
    PROTOCOLS = registry.protocols()
