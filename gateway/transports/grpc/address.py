"""The address of a gRPC endpoint: `host:port`, `dns:///name:port`, `grpcs://host:port` (over TLS) or `unix:path`."""

from gateway.core.address import Address
from gateway.transports.address import BadAddressError, check_characters, host_and_port, refuse, socket_path

TLS = "grpcs"
"""The scheme of addresses with TLS. `https` is also accepted."""
ALPN = "h2"
"""The protocol that client and server announce over TLS (RFC 9113, section 3.2)."""

_EXPECTED = "expected host:port, dns:///name:port, grpcs://host:port or unix:/path"


def parse_address(text: str) -> Address:
    """Return the Address in `text`. If its host name has several IP addresses, connections use them in turn.

    Raises:
        ValueError: `text` is not a gRPC address. The message contains the fault and the expected format.
    """
    try:
        return _parsed(text)
    except BadAddressError as why:
        refuse(text, why, _EXPECTED)


def _parsed(text: str) -> Address:
    check_characters(text)
    scheme, separator, rest = text.partition("://")
    if separator and scheme.lower() in (TLS, "https"):
        return host_and_port(rest, TLS)
    if text.startswith("unix:"):
        return socket_path(text.removeprefix("unix:").removeprefix("//"))
    name = text.removeprefix("dns:///")
    if "://" in name:
        raise BadAddressError(f"the scheme {name.partition('://')[0]!r} is not one of dns, grpcs, unix")
    return host_and_port(name)
