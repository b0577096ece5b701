"""The interface of a backend to the code that manages the backend's servers."""

from typing import Protocol


class Use(Protocol):
    """How the backend uses a server."""

    @property
    def in_flight(self) -> int:
        """The number of calls in flight, including abandoned calls that are still computed."""

    @property
    def is_idle(self) -> bool:
        """True if no request is in flight, including metadata requests."""

    @property
    def calls(self) -> int:
        """The number of calls to the server."""

    @property
    def last_used(self) -> float:
        """When the last call ended, on the fleet's clock; before the first call, when the server was added."""


class Consumer(Protocol):
    """The backend that uses the started servers."""

    @property
    def waiting(self) -> int:
        """The number of waiting calls."""

    @property
    def is_closed(self) -> bool:
        """True if no more requests will come."""

    @property
    def slots(self) -> int:
        """The maximum number of parallel calls on one server; 0: no limit."""

    @property
    def call_seconds(self) -> float | None:
        """The mean duration of a call, in seconds; None if unknown."""

    def why_not(self, address: str) -> str:
        """Return why this address (HOST:PORT) cannot be an endpoint of the backend; empty if it can."""

    async def is_ready(self, address: str) -> bool:
        """Return whether the server at this address reports that it is ready."""

    def add(self, address: str, use: Use | None = None) -> Use:
        """Send calls to the server at this address. `use` is the server's previous use, if it is not a new server."""

    def remove(self, address: str) -> None:
        """Send no more calls to the server at this address. Calls in flight continue."""

    def fail_waiting(self, text: str, detail: str) -> None:
        """Fail all waiting calls. `detail` is only for clients that are allowed to see the output of servers."""
