"""Defines the interface between a backend and the code that manages the backend's servers (`fleet`). `assembly.servers`
implements Consumer, and endpoints implement Use."""

from typing import Protocol


class Use(Protocol):
    """The backend's use of a server."""

    @property
    def in_flight(self) -> int:
        """The number of calls in flight, including abandoned calls that the server still runs."""

    @property
    def is_idle(self) -> bool:
        """True if no request is in flight, including metadata requests."""

    @property
    def calls(self) -> int:
        """The number of calls to the server."""

    @property
    def last_used(self) -> float:
        """The time at which the last call ended, on the fleet's clock. Before the first call, the time at which the
        server was added."""


class Consumer(Protocol):
    """The backend that uses the started servers."""

    @property
    def waiting(self) -> int:
        """The number of waiting calls."""

    @property
    def is_closed(self) -> bool:
        """True if no more requests can arrive."""

    @property
    def slots(self) -> int:
        """The maximum number of parallel calls on one server; 0 means no limit."""

    @property
    def call_seconds(self) -> float | None:
        """The typical duration of a call, in seconds; None if unknown."""

    def why_not(self, address: str) -> str:
        """Return why this address (HOST:PORT) cannot be an endpoint of the backend, or an empty string if it can."""

    async def is_ready(self, address: str) -> bool:
        """Return whether the server at this address reports that it is ready."""

    def add(self, address: str, use: Use | None = None) -> Use:
        """Start sending calls to the server at this address. If the server is not new, `use` is its previous use."""

    def remove(self, address: str) -> None:
        """Stop sending calls to the server at this address. Calls in flight continue."""

    def fail_waiting(self, text: str, detail: str) -> None:
        """Fail all waiting calls with the error `text`. `detail` is only for clients that are allowed to see server
        output."""
