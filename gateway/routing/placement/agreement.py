"""Coordinates several gateways in front of the same servers when they load models.

Without a shared store, the gateways use rendezvous hashing (Thaler and Ravishankar, "Using name-based mappings to
increase hit rates"). Each gateway sorts the servers for a model by a hash of both names, so all gateways get the same
order. A server that joins or leaves changes the order for only a small fraction of the models.
"""

from hashlib import blake2b
from typing import Protocol


def rendezvous(model: str, address: str) -> int:
    """Return the weight of a server for a model.

    If several servers are equally suitable, the one with the largest weight gets the model."""
    joined = f"{model}\0{address}".encode("utf-8", "surrogatepass")
    return int.from_bytes(blake2b(joined, digest_size=8).digest(), "big")


class LoadCoordinator(Protocol):
    """Decides which of the gateways in front of the same servers loads a model."""

    @property
    def is_shared(self) -> bool:
        """True if other gateways also claim models. Another gateway might then have loaded a model just before this
        gateway claimed it."""

    async def claim(self, model: str, address: str) -> bool:
        """Return whether this gateway can load the model on the server at `address` now. If so, no other gateway loads
        it on any server until `release`."""

    async def release(self, model: str, address: str) -> None:
        """Release the claim after the load has ended."""

    async def close(self) -> None:
        """Close the LoadCoordinator. It must make no more claims."""


class LocalCoordinator:
    """A LoadCoordinator without a shared store.

    Each gateway loads the models that its clients request. If two gateways with the same information about the servers
    load a model at the same time, `rendezvous` makes them choose the same server."""

    is_shared = False

    async def claim(self, model: str, address: str) -> bool:
        """See `LoadCoordinator.claim`. The result is always True."""
        return True

    async def release(self, model: str, address: str) -> None:
        """See `LoadCoordinator.release`."""

    async def close(self) -> None:
        """See `LoadCoordinator.close`."""
