"""The protocols under test: all that the registry finds, with the toys among them."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import gateway.protocols
from gateway.assembly import registry

TOYS = Path(__file__).parent / "toy"


@contextmanager
def toys() -> Iterator[None]:
    """Within, the toys' folders are folders of `gateway.protocols`."""
    gateway.protocols.__path__.append(str(TOYS))
    registry.protocols.cache_clear()
    try:
        yield
    finally:
        gateway.protocols.__path__.remove(str(TOYS))
        registry.protocols.cache_clear()


INSTALLED = registry.protocols()
"""Those of the gateway alone."""

with toys():
    PROTOCOLS = registry.protocols()
