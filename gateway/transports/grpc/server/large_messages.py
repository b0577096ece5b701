"""The large messages that arrive on one connection. This module must admit a large message before the client may send
all of it.

Only a few large messages can arrive at the same time, so one client with many streams cannot fill the gateway's memory.
The code performs no I/O.
"""

import typing

from gateway.core.protocol import Limits

_LARGEST_AT_ONCE = 2
"""The number of messages of `limits.message` bytes that can arrive at the same time on one connection, in addition to
the window of each stream. More messages can arrive if their total size is the same."""


class Receiver(typing.Protocol):
    """A call whose message might be large."""

    def grant(self) -> None:
        """Allow the client to send more data."""


class LargeMessages:
    """Admits large messages in the order of their arrival. A message that must wait for space delays all later
    messages."""

    def __init__(self, limits: Limits) -> None:
        self.limits = limits
        self._arriving: dict[Receiver, int] = {}
        """The calls whose large messages may arrive now, with the sizes of these messages."""
        self._held_back: dict[Receiver, None] = {}
        """The calls whose large messages must wait."""

    def admits(self, call: Receiver, size: int) -> bool:
        """Return True if `size` more bytes of a message can arrive now.

        If the result is False, `call.grant` is called when the bytes can arrive."""
        if call in self._held_back:
            return False
        if self._arriving and sum(self._arriving.values()) + size > _LARGEST_AT_ONCE * self.limits.message:
            self._held_back[call] = None
            return False
        self._arriving[call] = size
        return True

    def release(self, call: Receiver) -> None:
        """Free the space of a large message that has arrived or is no longer needed, and admit the next messages."""
        self._held_back.pop(call, None)
        if self._arriving.pop(call, None) is None:
            return
        while self._held_back:
            first = next(iter(self._held_back))
            del self._held_back[first]
            first.grant()
            if first in self._held_back:
                return
