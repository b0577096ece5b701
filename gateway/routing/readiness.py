"""Whether a listener calls itself ready: while the gateway is, and as long as no client has taken it offline."""

from collections.abc import Callable, Container

from gateway.core.errors import Reason, refusal
from gateway.core.types import Request


class Readiness:
    """One flag for each listener, which all its protocols share. `switchable` are the listeners whose clients may
    change it; all begin online. Offline ones answer all the same, as a real grps server does."""

    def __init__(self, ready: Callable[[], bool], switchable: Container[str] = ()) -> None:
        self._ready = ready
        self._switchable = switchable
        self._offline: set[str] = set()

    def of(self, request: Request) -> bool:
        """Whether the listener where `request` arrived is ready."""
        return self._ready() and request.listener not in self._offline

    def online(self, request: Request) -> bool:
        """Take the listener online. Raises GatewayError, PERMISSION_DENIED, where that is not allowed."""
        self._check(request)
        self._offline.discard(request.listener)
        return True

    def offline(self, request: Request) -> bool:
        """Take the listener offline. Raises GatewayError, PERMISSION_DENIED, where that is not allowed."""
        self._check(request)
        self._offline.add(request.listener)
        return True

    def _check(self, request: Request) -> None:
        if request.listener not in self._switchable:
            text = f"clients of listener {request.listener!r} may not take it {request.operation.value}"
            raise refusal(Reason.PERMISSION_DENIED, f"{text}; `allow_offline: true` on the listener would let them")
