"""The errors of endpoints that cannot be reached, or do not answer in time, with the same texts in every transport."""

import os
import re
import socket
import ssl

from gateway.core.errors import Reason, Status, TransportError
from gateway.transports.certificates import refusal_text


def unreachable(text: str, *, sent: bool = False) -> TransportError:
    """There is no connection to the endpoint, or it has ended."""
    return TransportError(Status.UNAVAILABLE, Reason.UNREACHABLE, text, sent=sent)


def connector_closed(*, sent: bool = False) -> TransportError:
    """The gateway has closed the connector."""
    return unreachable("the connector is closed", sent=sent)


def deadline_passed(*, sent: bool = False) -> TransportError:
    """The deadline passed before the reply came, or before the request was sent."""
    text = "no reply before the deadline" if sent else "the deadline passed before the request was sent"
    return TransportError(Status.DEADLINE_EXCEEDED, Reason.TIMEOUT, text, sent=sent)


def seconds_left(deadline: float | None, now: float) -> float | None:
    """Seconds until `deadline`, None without one. Both arguments are times of the event loop's clock.

    Raises:
        TransportError: DEADLINE_EXCEEDED, the deadline has passed.
    """
    if deadline is None:
        return None
    if deadline <= now:
        raise deadline_passed()
    return deadline - now


def not_connected(
    error: OSError, host: str, seconds: float, limit: float | None = None, server_name: str = ""
) -> TransportError:
    """Connecting to `host` failed with `error`; it was allowed to take `seconds`. `server_name` is the name that its
    TLS certificate should have had, if that is not `host`.

    Where `seconds` is less than the connect timeout `limit`, the call's deadline shortened it. A timeout is
    DEADLINE_EXCEEDED then, not UNAVAILABLE: a short deadline does not mean that the endpoint is unreachable.
    """
    if isinstance(error, TimeoutError):
        text = f"no connection within {seconds:.3g} s"
        if limit is None or seconds >= limit:
            return unreachable(text)
        if seconds <= 0:
            return deadline_passed()
        text = f"{text}, half of the time until the deadline"
        return TransportError(Status.DEADLINE_EXCEEDED, Reason.TIMEOUT, text, sent=False)
    if isinstance(error, socket.gaierror):
        return not_resolved(host, error)
    if isinstance(error, ssl.SSLError):
        return unreachable(f"TLS: {refusal_text(error, server_name or host)}")
    return unreachable(_system_text(error))


def how_lost(error: Exception | None) -> str:
    """How a connection ended, for texts such as "the connection was reset without a reply". A server that wants another
    client certificate often says so by an alert after the handshake only."""
    if isinstance(error, ssl.SSLError):
        return f"ended by TLS ({refusal_text(error)})"
    return "closed" if error is None else "reset"


def not_resolved(host: str, error: socket.gaierror) -> TransportError:
    """The host name has no address."""
    return unreachable(f"host name {host!r} not resolved: {error.strerror}")


def _system_text(error: OSError) -> str:
    """The system's text without the event loop's: `connection refused`."""
    # Where a name has several addresses (localhost), asyncio joins their errors into one text without an errno.
    numbers = [error.errno] if error.errno else re.findall(r"\[Errno (\d+)\]", str(error))
    return os.strerror(int(numbers[0])).lower() if numbers else str(error)
