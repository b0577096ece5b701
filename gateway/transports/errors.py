"""The errors for endpoints that are unreachable or do not respond in time, with the same messages for all
transports."""

import os
import re
import socket
import ssl

from gateway.core.errors import Reason, Status, TransportError
from gateway.transports.certificates import refusal_text


def unreachable(text: str, *, sent: bool = False) -> TransportError:
    """Return the error for a connection that failed to open or has ended."""
    return TransportError(Status.UNAVAILABLE, Reason.UNREACHABLE, text, sent=sent)


def connector_closed(*, sent: bool = False) -> TransportError:
    """Return the error for a call after the gateway has closed the connector."""
    return unreachable("the gateway has closed the connector", sent=sent)


def beyond_limit(text: str) -> TransportError:
    """Return the error for a reply that exceeds a limit."""
    return TransportError(Status.INTERNAL, Reason.INVALID_OUTPUT, text, sent=True, answered=True)


def deadline_passed(*, sent: bool = False) -> TransportError:
    """Return the error for a deadline that passed before the reply arrived or before the request was sent."""
    text = "no reply before the deadline" if sent else "the deadline passed before the gateway sent the request"
    return TransportError(Status.DEADLINE_EXCEEDED, Reason.TIMEOUT, text, sent=sent)


def seconds_left(deadline: float | None, now: float) -> float | None:
    """Return the seconds until `deadline`; None without a deadline. Both arguments are on the event loop's clock.

    Raises:
        TransportError: DEADLINE_EXCEEDED if the deadline has passed.
    """
    if deadline is None:
        return None
    if deadline <= now:
        raise deadline_passed()
    return deadline - now


def not_connected(
    error: OSError, host: str, seconds: float, limit: float | None = None, server_name: str = ""
) -> TransportError:
    """Return the error for a failed connection attempt to `host`, which ended in `error` and had a limit of `seconds`.

    `server_name` is the expected name in the host's TLS certificate, if it differs from `host`.

    If `seconds` is less than the connect timeout `limit`, the call's deadline has shortened the time. In this case, a
    timeout is DEADLINE_EXCEEDED instead of UNAVAILABLE, because a short deadline does not mean that the endpoint is
    unreachable."""
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
    """Return the word for the way in which a connection ended, for messages such as "the connection was reset without a
    reply".

    A server that requires a different client certificate often reports this only with an alert after the handshake."""
    if isinstance(error, ssl.SSLError):
        return f"ended by TLS ({refusal_text(error)})"
    return "closed" if error is None else "reset"


def not_resolved(host: str, error: socket.gaierror) -> TransportError:
    """Return the error for a host name that has no address."""
    return unreachable(f"host name {host!r} not resolved: {error.strerror}; check the name and DNS")


def _system_text(error: OSError) -> str:
    """Return the operating system's error message without the event loop's prefix, such as `connection refused`."""
    # If a name has several addresses (localhost), asyncio joins their errors into one message without an errno.
    numbers = [error.errno] if error.errno else re.findall(r"\[Errno (\d+)\]", str(error))
    return os.strerror(int(numbers[0])).lower() if numbers else str(error)
