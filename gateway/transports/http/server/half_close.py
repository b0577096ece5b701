"""A client that ends its side of the connection (FIN) while its request is answered.

It may have left, or wait for the reply: the same packet says both. A client that has left answers any byte with a
reset, so it is sent one: the first byte of the reply, which is the same for all replies (`HTTP/1.1 ...`) and is left
out when the reply is written. To a client that waits nothing is different.

    client            gateway
    request, FIN  ─→
                  ←─  H
    RST           ─→  it has left: the call is cancelled
    nothing           it waits
                  ←─  TTP/1.1 200 OK ...

The event loops read no more after a FIN, and so do not notice the reset; the system is asked by an epoll of its own.
Systems without epoll, and TLS, which ends in both directions at once, have none of this: there the client has left.
"""

import asyncio
import select

from gateway.core.types import Buffer

_FIRST = b"H"
"""The first byte of every reply."""


class HalfClose:
    """Watches such a client, from when a reply is waited for until it is written. If the client has left, or too many
    files are open to watch it, its connection is aborted."""

    def __init__(self, loop: asyncio.AbstractEventLoop, transport: asyncio.Transport) -> None:
        self._loop = loop
        self._transport = transport
        self._is_begun = False
        self._epoll: select.epoll | None = None

    def watch(self) -> None:
        """Begin the next reply, and watch for a reset."""
        try:
            self._epoll = select.epoll()
        except OSError:
            self._transport.abort()
            return
        # No event is asked for: resets and errors are always told.
        self._epoll.register(self._transport.get_extra_info("socket").fileno(), 0)
        self._loop.add_reader(self._epoll.fileno(), self._noticed)
        self._is_begun = True
        self._transport.write(_FIRST)

    def rest_of(self, begin: Buffer) -> Buffer:
        """The part of the reply's first buffer that is still to be written."""
        self.stop()
        if not self._is_begun:
            return begin
        self._is_begun = False
        return memoryview(begin)[len(_FIRST) :]

    def stop(self) -> None:
        """Watch no longer: what is written from now on tells the same."""
        if self._epoll is not None:
            self._loop.remove_reader(self._epoll.fileno())
            self._epoll.close()
            self._epoll = None

    def _noticed(self) -> None:
        self.stop()
        self._transport.abort()


def can_wait(transport: asyncio.Transport) -> bool:
    """Whether it can be found out which clients wait for their reply after their FIN."""
    return hasattr(select, "epoll") and transport.can_write_eof()
