"""The address of a byte stream endpoint: `host:port`, `tcp://host:port`, `tcps://host:port` (over TLS) or
`unix:///path`."""

from gateway.core.address import Address
from gateway.transports.address import BadAddressError, host_and_port, refuse, socket_path

ALPN = ""
"""The protocol to announce over TLS. This is empty, because client and server announce none."""
TLS = "tcps"
"""The scheme of addresses with TLS."""

_EXPECTED = "expected host:port, tcp://host:port, tcps://host:port or unix:///path"


def parse_address(text: str) -> Address:
    """Return the Address in `text`.

    Raises:
        ValueError: `text` is not an address. The message contains the fault and the expected format.
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
