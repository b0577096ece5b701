"""The errors for endpoints that are unreachable or do not respond in time. The messages are the same for all
transports."""

import os
import re
import socket
import ssl

from gateway.core.errors import Reason, Status, TransportError
from gateway.transports.certificates import refusal_text


def unreachable(text: str, *, sent: bool = False) -> TransportError:
    """Return the error for a connection that could not be opened or has ended."""
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
    """Return the number of seconds until `deadline`; None without a deadline. Both arguments are on the event loop's
    clock.

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
    """Return the error for a connection attempt to `host` that failed with `error` and had a limit of `seconds`.

    `server_name` is the expected name in the host's TLS certificate, if it differs from `host`.

    If `seconds` is less than the connect timeout `limit`, the call's deadline has shortened the attempt. In this case,
    a timeout results in DEADLINE_EXCEEDED instead of UNAVAILABLE, because a short deadline does not mean that the
    endpoint is unreachable."""
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
        return unreachable(f"TLS: {refusal_text(error, server_name or host)}{_tls_advice(error)}")
    return unreachable(_system_text(error))


def _tls_advice(error: ssl.SSLError) -> str:
    """Return advice about a server certificate that the gateway or the client does not accept. Without advice, the
    result is empty.

    The settings in the advice have the same names in the configuration and in the Python client."""
    code = error.verify_code if isinstance(error, ssl.SSLCertVerificationError) else 0
    if code in (_SELF_SIGNED, *_UNKNOWN_CA):
        return "; check `ca`"
    return "; check the address, or set `server_name`" if code in _OTHER_NAME else ""


_SELF_SIGNED, _UNKNOWN_CA, _OTHER_NAME = 18, (19, 20, 21), (62, 64)
"""OpenSSL's X509_V_ERR_* codes for certificates that the settings can make acceptable."""


def how_lost(error: Exception | None) -> str:
    """Return words that describe how a connection ended, for messages such as "the connection was reset without a
    reply".

    A server that requires a different client certificate often reports the problem only with an alert after the
    handshake."""
    if isinstance(error, ssl.SSLError):
        return f"ended by TLS ({refusal_text(error)})"
    return "closed" if error is None else "reset"


def not_resolved(host: str, error: socket.gaierror) -> TransportError:
    """Return the error for a host name that has no address."""
    return unreachable(f"host name {host!r} not resolved: {error.strerror}; check the name and DNS")


def _system_text(error: OSError) -> str:
    """Return the operating system's error message, such as `connection refused`, without the event loop's prefix."""
    # If a name has several addresses (localhost), asyncio joins their errors into one message without an errno.
    numbers = [error.errno] if error.errno else re.findall(r"\[Errno (\d+)\]", str(error))
    return os.strerror(int(numbers[0])).lower() if numbers else str(error)
