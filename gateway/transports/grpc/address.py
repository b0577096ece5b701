"""Where a gRPC endpoint is: `host:port`, `dns:///name:port` or `unix:path`."""

from gateway.core.address import Address
from gateway.transports.address import BadAddressError, check_characters, host_and_port, refuse, socket_path

_TLS = ("https://", "grpcs://")
_EXPECTED = "expected host:port, dns:///name:port or unix:/path"


def parse_address(text: str) -> Address:
    """The Address that `text` names. All addresses that a name resolves to are used, in turn.

    Raises:
        ValueError: saying what is wrong with `text` and what is right.
    """
    try:
        return _parsed(text)
    except BadAddressError as why:
        refuse(text, why, _EXPECTED)


def _parsed(text: str) -> Address:
    check_characters(text)
    if text.lower().startswith(_TLS):
        raise BadAddressError("TLS towards gRPC backends is not supported")
    if text.startswith("unix:"):
        return socket_path(text.removeprefix("unix:").removeprefix("//"))
    name = text.removeprefix("dns:///")
    if "://" in name:
        raise BadAddressError(f"the scheme {name.partition('://')[0]!r} is not one of dns, unix")
    return host_and_port(name)
