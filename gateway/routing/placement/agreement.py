"""The coordination of several gateways in front of the same servers, which decides which server loads a model.

If they have no store, they use rendezvous hashing (Thaler and Ravishankar, "Using name-based mappings to increase hit
rates"). Each gateway orders the servers for a model by a hash of both names, so all gateways get the same order. A
server that joins or leaves changes the order only for a small share of the models.
"""

from hashlib import blake2b
from typing import Protocol


def rendezvous(model: str, address: str) -> int:
    """Return the weight of a server for a model.

    Among equally good servers, the one with the largest weight gets the model."""
    joined = f"{model}\0{address}".encode("utf-8", "surrogatepass")
    return int.from_bytes(blake2b(joined, digest_size=8).digest(), "big")


class LoadCoordinator(Protocol):
    """Coordinates the gateways in front of the same servers, by deciding which gateway loads a model."""

    @property
    def is_shared(self) -> bool:
        """True if other gateways also claim models, so another gateway might have loaded a model just before this
        gateway claimed it."""

    async def claim(self, model: str, address: str) -> bool:
        """Return whether this gateway is allowed to load the model on the server at `address` now. If so, no other
        gateway loads it anywhere until `release`."""

    async def release(self, model: str, address: str) -> None:
        """Release the claim after the load has ended."""

    async def close(self) -> None:
        """Close the LoadCoordinator. It makes no more claims."""


class LocalCoordinator:
    """A LoadCoordinator without a store.

    Each gateway loads the models that its clients request. Two gateways that load a model at the same time choose the
    same server by `rendezvous`, if they have the same information about the servers."""

    is_shared = False

    async def claim(self, model: str, address: str) -> bool:
        """See `LoadCoordinator.claim`. The result is always True."""
        return True

    async def release(self, model: str, address: str) -> None:
        """See `LoadCoordinator.release`."""

    async def close(self) -> None:
        """See `LoadCoordinator.close`."""
