"""The consumer of a fleet's servers: a backend, as its fleet sees it."""

from typing import Protocol


class Use(Protocol):
    """How much a server that was given to the backend is used."""

    @property
    def in_flight(self) -> int:
        """Calls in flight, abandoned ones that are still computed included."""

    @property
    def is_idle(self) -> bool:
        """Whether nothing is in flight, questions for metadata included."""

    @property
    def calls(self) -> int:
        """Calls that it has been given."""

    @property
    def last_used(self) -> float:
        """When its last call ended, on the fleet's clock; when it was added, before the first one."""


class Consumer(Protocol):
    """The backend as its fleet sees it."""

    @property
    def waiting(self) -> int:
        """Calls that wait."""

    @property
    def is_closed(self) -> bool:
        """Whether no request will come any more."""

    @property
    def slots(self) -> int:
        """Calls that one server runs at once; 0: any number."""

    @property
    def call_seconds(self) -> float | None:
        """How long a call takes; None if that is unknown."""

    def why_not(self, address: str) -> str:
        """Why this address (HOST:PORT) cannot be one of the backend; empty if it can."""

    async def is_ready(self, address: str) -> bool:
        """Whether the server at this address answers that it is ready."""

    def add(self, address: str, use: Use | None = None) -> Use:
        """Send calls to the server at this address. `use`: how it was used so far, if it is not a new server."""

    def remove(self, address: str) -> None:
        """Send no more calls there. Calls in flight go on."""

    def fail_waiting(self, text: str, detail: str) -> None:
        """Fail all calls that wait. `detail` is for those only who may see what servers print."""
