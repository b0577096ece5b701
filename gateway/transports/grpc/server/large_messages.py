"""The large messages that arrive on one connection.

Only some large messages can arrive at the same time, so the gateway does not need to hold many of them for the streams
of one client. The code is pure.
"""

import typing

from gateway.core.protocol import Limits

_LARGEST_AT_ONCE = 2
"""The number of messages of `limits.message` bytes, or of smaller messages with the same total size, that can arrive at
the same time on one connection, in addition to the window that each stream has."""


class Receiver(typing.Protocol):
    """A call whose message might be large."""

    def grant(self) -> None:
        """Allow the client to send more."""


class LargeMessages:
    """Admits calls in the order of their arrival. A message that must wait for space delays the messages behind it."""

    def __init__(self, limits: Limits) -> None:
        self.limits = limits
        self._arriving: dict[Receiver, int] = {}
        """Calls whose large message is allowed to arrive now, with its size."""
        self._held_back: dict[Receiver, None] = {}
        """Calls whose large message must wait."""

    def admits(self, call: Receiver, size: int) -> bool:
        """Return True if `size` more bytes of a message can arrive now.

        If it returns False, it calls `call.grant` when they can."""
        if call in self._held_back:
            return False
        if self._arriving and sum(self._arriving.values()) + size > _LARGEST_AT_ONCE * self.limits.message:
            self._held_back[call] = None
            return False
        self._arriving[call] = size
        return True

    def release(self, call: Receiver) -> None:
        """Free the space of a large message that has arrived or is no longer needed, for the next one."""
        self._held_back.pop(call, None)
        if self._arriving.pop(call, None) is None:
            return
        while self._held_back:
            first = next(iter(self._held_back))
            del self._held_back[first]
            first.grant()
            if first in self._held_back:
                return
