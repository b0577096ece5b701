"""How several gateways in front of one fleet agree where a model is loaded.

Without any store they do so by rendezvous hashing (Thaler and Ravishankar, "Using name-based mappings to increase hit
rates"): each gateway orders the servers for a model by a hash of both names, so that all of them come to the same
order, and a server that joins or leaves changes it for a small share of the models only.
"""

from hashlib import blake2b
from typing import Protocol


def rendezvous(model: str, address: str) -> int:
    """The weight of a server for a model. Among equally good servers the one with the largest has the model."""
    joined = f"{model}\0{address}".encode("utf-8", "surrogatepass")
    return int.from_bytes(blake2b(joined, digest_size=8).digest(), "big")


class LoadCoordinator(Protocol):
    """Coordinates the gateways of one fleet: decides which gateway loads a model."""

    @property
    def is_shared(self) -> bool:
        """Whether others claim, too: one of them may have loaded a model just before it was claimed here."""

    async def claim(self, model: str, address: str) -> bool:
        """Whether this gateway may load the model on the server at `address` now. No other gateway loads it anywhere
        until `release`."""

    async def release(self, model: str, address: str) -> None:
        """The load has ended."""

    async def close(self) -> None:
        """Nothing is claimed any more."""


class LocalCoordinator:
    """A LoadCoordinator without a store: a gateway loads what its clients ask for. Two gateways that load a model at
    the same time choose the same server by `rendezvous`, as far as they know the same of the fleet."""

    is_shared = False

    async def claim(self, model: str, address: str) -> bool:
        """As LoadCoordinator's: always."""
        return True

    async def release(self, model: str, address: str) -> None:
        """As LoadCoordinator's."""

    async def close(self) -> None:
        """As LoadCoordinator's."""
