"""The errors of an endpoint that cannot be reached, or not in time: the same words in every transport."""

import os
import re
import socket
import ssl

from gateway.core.errors import Reason, Status, TransportError


def unreachable(text: str, *, sent: bool = False) -> TransportError:
    """There is no connection to the endpoint, or no more."""
    return TransportError(Status.UNAVAILABLE, Reason.UNREACHABLE, text, sent=sent)


def connector_closed(*, sent: bool = False) -> TransportError:
    """The gateway itself closed the connector."""
    return unreachable("the connector is closed", sent=sent)


def deadline_passed(*, sent: bool = False) -> TransportError:
    """There was no reply before the deadline, or not even time to send the request."""
    text = "no reply before the deadline" if sent else "the deadline passed before the request was sent"
    return TransportError(Status.DEADLINE_EXCEEDED, Reason.TIMEOUT, text, sent=sent)


def seconds_left(deadline: float | None, now: float) -> float | None:
    """Seconds until `deadline`; None if there is none. Both are times of the event loop's clock.

    Raises:
        TransportError: DEADLINE_EXCEEDED, it has passed.
    """
    if deadline is None:
        return None
    if deadline <= now:
        raise deadline_passed()
    return deadline - now


def not_connected(error: OSError, host: str, seconds: float, limit: float | None = None) -> TransportError:
    """`error` ended an attempt to connect to `host` within `seconds`.

    Where `seconds` are fewer than the `limit` that connecting has, the call's deadline made them so. That is
    DEADLINE_EXCEEDED: an endpoint is not unreachable because a client is in a hurry.
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
    return unreachable(_system_words(error))


def not_resolved(host: str, error: socket.gaierror) -> TransportError:
    """The host's name has no address."""
    return unreachable(f"host name {host!r} not resolved: {error.strerror}")


def _system_words(error: OSError) -> str:
    """The system's words, without the loop's: `connection refused`."""
    if isinstance(error, ssl.SSLCertVerificationError):
        return f"TLS certificate not accepted: {error.verify_message}"
    if isinstance(error, ssl.SSLError):
        return f"no TLS: {(error.reason or str(error)).replace('_', ' ').lower()}"
    # A name with several addresses (localhost) may fail with all their texts in one, and no number.
    numbers = [error.errno] if error.errno else re.findall(r"\[Errno (\d+)\]", str(error))
    return os.strerror(int(numbers[0])).lower() if numbers else str(error)
