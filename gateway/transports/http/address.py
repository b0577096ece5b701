"""The addresses of HTTP endpoints: `host:port` or a URL."""

import re
from urllib.parse import SplitResult, urlsplit

from gateway.core.frozen import frozen
from gateway.transports.address import PORT_RANGE, BadAddressError, check_characters, host_name, ipv6, refuse

ALPN = "http/1.1"
"""The protocol that client and server announce over TLS."""

_DEFAULT_PORTS = {"http": 80, "https": 443}
# path characters (RFC 3986)
_PREFIX = re.compile(r"(/(?:[A-Za-z0-9._~!$&'()*+,;=:@-]|%[0-9A-Fa-f]{2})+)*")
_EXPECTED = "expected host:port or http[s]://host[:port][/prefix]"


@frozen
class HttpAddress:
    """A parsed address.

    `host` contains no brackets. `authority` is the value of the Host header. `prefix` precedes the path of every
    request, and is empty or starts with a slash."""

    host: str
    port: int
    authority: str
    prefix: str = ""
    tls: bool = False

    @property
    def has_usual_port(self) -> bool:
        """True if the port is the default: 80, or 443 with TLS."""
        return self.port == _DEFAULT_PORTS["https" if self.tls else "http"]


def parse_address(text: str) -> HttpAddress:
    """Return the HttpAddress in `text`. Its prefix has no trailing slash.

    Raises:
        ValueError: `text` is not an address. The message contains the fault and the expected format.
    """
    try:
        return _parsed(text)
    except BadAddressError as why:
        refuse(text, why, _EXPECTED)


def with_scheme(text: str, scheme: str) -> str:
    """Return the address `text`. If it has no scheme, add `scheme`."""
    return text if "://" in text else f"{scheme}://{text}"


def _parsed(text: str) -> HttpAddress:
    check_characters(text)  # because urlsplit would drop tabs and newlines
    has_scheme = "://" in text
    parsed = _split(text if has_scheme else f"http://{text}")
    if parsed.scheme not in _DEFAULT_PORTS:
        raise BadAddressError(f"the scheme {parsed.scheme!r} is not one of {', '.join(_DEFAULT_PORTS)}")
    if "@" in parsed.netloc:
        raise BadAddressError("it holds credentials")
    if parsed.query or parsed.fragment or text.endswith(("?", "#")):
        raise BadAddressError("it has a query or a fragment")
    if not has_scheme and parsed.path:
        raise BadAddressError("a path needs a scheme before the host")
    host, port, prefix = _host(parsed), _port(parsed), parsed.path.rstrip("/")
    if port is None and not has_scheme:
        raise BadAddressError("it has no port")
    if not _PREFIX.fullmatch(prefix):
        raise BadAddressError(f"its path {prefix!r} is not a percent-encoded path")
    return _address(parsed.scheme, host, port, prefix)


def _address(scheme: str, host: str, port: int | None, prefix: str) -> HttpAddress:
    default = _DEFAULT_PORTS[scheme]
    bracketed = f"[{host}]" if ":" in host else host
    authority = bracketed if port in (None, default) else f"{bracketed}:{port}"
    return HttpAddress(host, port or default, authority, prefix, scheme == "https")


def _split(url: str) -> SplitResult:
    try:
        return urlsplit(url)
    except ValueError as error:
        raise BadAddressError(str(error)) from error


def _host(parsed: SplitResult) -> str:
    if parsed.netloc.startswith("["):
        return ipv6(parsed.hostname or "")
    if parsed.netloc.count(":") > 1:
        raise BadAddressError("an IPv6 address needs brackets: [::1]:8000")
    return host_name(parsed.hostname or "")


def _port(parsed: SplitResult) -> int | None:
    try:
        port = parsed.port
    except ValueError as error:
        raise BadAddressError(str(error)) from error
    if port == 0 or parsed.netloc.endswith(":"):
        raise BadAddressError(PORT_RANGE)
    return port
