"""The address of an endpoint of a byte stream: `host:port`, `tcp://host:port`, `tcps://host:port` (over TLS) or
`unix:///path`."""

from gateway.core.address import Address
from gateway.transports.address import BadAddressError, host_and_port, refuse, socket_path

ALPN = ""
"""Nothing is announced over TLS."""
TLS = "tcps"
"""The scheme of addresses with TLS."""

_EXPECTED = "expected host:port, tcp://host:port, tcps://host:port or unix:///path"


def parse_address(text: str) -> Address:
    """Return the Address in `text`.

    Raises:
        ValueError: `text` is not an address. The error has the fault and the expected form.
    """
    scheme, rest = text.split("://", 1) if "://" in text else ("tcp", text)
    try:
        if scheme == "unix":
            return socket_path(rest, scheme)
        if scheme in ("tcp", TLS):
            return host_and_port(rest, scheme)
        raise BadAddressError(f"the scheme {scheme!r} is not one of tcp, tcps, unix")
    except BadAddressError as why:
        refuse(text, why, _EXPECTED)
