"""The large messages that arrive on one connection: only some may arrive at once, so that their clients' other streams
do not make the gateway hold many of them. Pure."""

import typing

from gateway.core.protocol import Limits

_LARGEST_AT_ONCE = 2
"""How many messages of `limits.message` bytes, or smaller ones of as many bytes, may arrive at once on one connection,
beyond the window that each stream has."""


class Receiver(typing.Protocol):
    """A call whose message may be large."""

    def grant(self) -> None:
        """Let the client send more: the message may arrive now."""


class LargeMessages:
    """Calls are admitted first come, first served: a message that does not fit holds up those behind it."""

    def __init__(self, limits: Limits) -> None:
        self.limits = limits
        self._arriving: dict[Receiver, int] = {}
        """Calls whose large message may arrive now, and its size."""
        self._held_back: dict[Receiver, None] = {}
        """Calls whose large message may not arrive yet."""

    def admits(self, call: Receiver, size: int) -> bool:
        """Whether so many more bytes of a message may arrive now. If not, `call.grant` is called when they may."""
        if call in self._held_back:
            return False
        if self._arriving and sum(self._arriving.values()) + size > _LARGEST_AT_ONCE * self.limits.message:
            self._held_back[call] = None
            return False
        self._arriving[call] = size
        return True

    def release(self, call: Receiver) -> None:
        """The large message has arrived, or is not wanted any more: the next may arrive."""
        self._held_back.pop(call, None)
        if self._arriving.pop(call, None) is None:
            return
        while self._held_back:
            first = next(iter(self._held_back))
            del self._held_back[first]
            first.grant()
            if first in self._held_back:
                return
