"""One address of a backend, and what the gateway knows of it."""

from collections.abc import Callable

from gateway.core.transport import Connector


class Endpoint:
    """The calls in flight at one address. Backends that name the same address share it, and its slots with it."""

    __slots__ = ("_on_free", "_on_recovery", "address", "connector", "in_flight", "reachable")

    def __init__(self, address: str, connector: Connector) -> None:
        self.address = address
        self.connector = connector
        self.in_flight = 0
        self.reachable = True
        self._on_free: list[Callable[[Endpoint], bool]] = []
        self._on_recovery: list[Callable[[], None]] = []

    def watch(self, on_free: Callable[["Endpoint"], bool], on_recovery: Callable[[], None]) -> None:
        """`on_free` is called when a slot is given back, and tells whether it took it; `on_recovery` when the address
        answers again after it could not be reached."""
        self._on_free.append(on_free)
        self._on_recovery.append(on_recovery)

    def take(self) -> None:
        """Count one more call in flight."""
        self.in_flight += 1

    def give_back(self) -> None:
        """A call is over: its slot goes to a backend that has somebody waiting, each in its turn."""
        self.in_flight -= 1
        for _ in range(len(self._on_free)):
            watcher = self._on_free.pop(0)
            self._on_free.append(watcher)
            if watcher(self):
                return

    def answered(self) -> None:
        """The address is there."""
        if not self.reachable:
            self.reachable = True
            for watcher in self._on_recovery:
                watcher()

    def failed(self) -> None:
        """The address could not be reached, or broke off."""
        self.reachable = False
