"""Starts listeners, and reports the reason if an address cannot be bound."""

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from gateway.assembly import registry
from gateway.core.address import Address
from gateway.core.exchange import answer
from gateway.core.protocol import ListenerSettings, Protocol
from gateway.core.streaming import answer_stream
from gateway.core.transport import Exchanges, Listener, Select
from gateway.transports.listener_connections import ListenerConnections
from gateway.transports.shared_listener import SharedListener, parts, settings_of_parts
from gateway.transports.timeouts import DEFAULT_TIMEOUTS, Timeouts


class BindError(Exception):
    """A configured address cannot be bound."""


async def listen(
    settings: ListenerSettings, rows: Sequence[tuple[Protocol, str]], exchanges: Exchanges, address: Address
) -> Listener:
    """Start a Listener and return it.

    `rows` lists each protocol with its path prefix. Protocols with different transports can share the address."""
    listener: Listener
    if len(parts(rows)) == 1:
        listener = registry.transport(rows[0][0].transport).Listener(settings, rows, exchanges)
    else:
        listener = shared(settings, rows, exchanges)
    await listener.start(address)
    return listener


def shared(
    settings: ListenerSettings,
    rows: Sequence[tuple[Protocol, str]],
    exchanges: Exchanges,
    timeouts: Timeouts = DEFAULT_TIMEOUTS,
) -> SharedListener:
    """Return an unstarted Listener for protocols with several transports."""
    connections, by_transport = ListenerConnections.of(settings), parts(rows)
    inner = settings_of_parts(settings, by_transport)
    options = {"timeouts": timeouts, "connections": connections}
    listeners = {
        name: registry.transport(each[0][0].transport).Listener(inner, each, exchanges, **options)
        for name, each in by_transport.items()
    }
    return SharedListener(settings, rows, listeners, connections, timeouts=timeouts)


def exchanges(settings: ListenerSettings, select: Select) -> Exchanges:
    """Return the Exchanges of a sample server's Listener. `select` finds the Destination of each request.
    `runtime.app.listeners` creates the Exchanges of the gateway's own listeners."""
    return Exchanges(
        lambda message, protocol: answer(message, protocol, settings, select),
        lambda messages, protocol: answer_stream(messages, protocol, settings, select),
        lambda error, protocol, message: protocol.encode_error(error, None, message),
    )


@contextmanager
def binding(what: str, address: Address) -> Iterator[None]:
    """Convert an OSError to a BindError whose message contains `address` and its location in the configuration,
    `what`."""
    try:
        yield
    except OSError as error:
        # The event loop's message repeats the address. getaddrinfo uses negative error numbers, which strerror does not
        # know.
        number = error.errno or 0
        reason = os.strerror(number) if number > 0 else error.strerror
        raise BindError(f"{what}: cannot bind {address}: {reason or error}") from error
