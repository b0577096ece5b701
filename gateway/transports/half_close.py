"""A client that half-closes the connection (FIN) while the gateway serves its request.

The client might have disconnected, or might be waiting for the reply. The packet is the same in both cases, but a
disconnected client responds to any byte with a reset. Therefore, the gateway sends the first byte of the reply, which
is the same for all replies of a protocol (HTTP/1.1: `H`). When it writes the reply, it omits this byte. A waiting
client sees no difference.

    client            gateway
    request, FIN  ─→
                  ←─  H
    RST           ─→  it has left: the call is cancelled
    nothing           it waits
                  ←─  TTP/1.1 200 OK ...

Event loops stop reading after a FIN and do not detect the reset, so a separate epoll detects it. Detection does not
work on systems without epoll, or over TLS, whose connections cannot be half-closed. In these cases, the client counts
as disconnected.
"""

import asyncio
import select

from gateway.core.messages import Buffer


class HalfClose:
    """Monitors a half-closed client until the reply is written. If the client has disconnected, or if too many open
    files prevent the monitoring, this class aborts the connection."""

    def __init__(self, loop: asyncio.AbstractEventLoop, transport: asyncio.Transport, first: bytes) -> None:
        """`first` is the first byte of every reply."""
        self._loop = loop
        self._transport = transport
        self._first = first
        self._is_begun = False
        self._epoll: select.epoll | None = None

    def watch(self) -> None:
        """Send the first byte of the next reply, unless it is sent, and wait for a reset."""
        if self._is_begun:
            return
        try:
            self._epoll = select.epoll()
        except OSError:
            self._transport.abort()
            return
        # No events are requested, because epoll always reports resets and errors.
        self._epoll.register(self._transport.get_extra_info("socket").fileno(), 0)
        self._loop.add_reader(self._epoll.fileno(), self._noticed)
        self._is_begun = True
        self._transport.write(self._first)

    def rest_of(self, begin: Buffer) -> Buffer:
        """Return the part of the reply's first buffer that is not written yet."""
        self.stop()
        if not self._is_begun:
            return begin
        self._is_begun = False
        return memoryview(begin)[len(self._first) :]

    def stop(self) -> None:
        """Stop monitoring. From now on, writes detect a reset."""
        if self._epoll is not None:
            self._loop.remove_reader(self._epoll.fileno())
            self._epoll.close()
            self._epoll = None

    def _noticed(self) -> None:
        self.stop()
        self._transport.abort()


def can_wait(transport: asyncio.Transport) -> bool:
    """Return whether the gateway can detect that a client waits for its reply after a FIN."""
    return hasattr(select, "epoll") and transport.can_write_eof()
