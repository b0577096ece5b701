"""Where an HTTP endpoint is: `host:port` or a URL."""

import re
from ipaddress import IPv6Address
from typing import NoReturn
from urllib.parse import SplitResult, urlsplit

from gateway.core.frozen import frozen

_DEFAULT_PORTS = {"http": 80, "https": 443}
# RFC 1123 labels, with the underscore that container names use; RFC 3986 path characters
_LABEL = re.compile(r"[A-Za-z0-9_]([A-Za-z0-9_-]{0,61}[A-Za-z0-9_])?")
_PREFIX = re.compile(r"(/(?:[A-Za-z0-9._~!$&'()*+,;=:@-]|%[0-9A-Fa-f]{2})+)*")
_EXPECTED = "expected host:port or http[s]://host[:port][/prefix]"


@frozen
class Address:
    """`host` has no brackets; `authority` is what the Host header says; `prefix` is empty or starts with a slash."""

    host: str
    port: int
    authority: str
    prefix: str = ""
    tls: bool = False


def parse_address(text: str) -> Address:
    """The Address that `text` names; a trailing slash is dropped.

    Raises:
        ValueError: saying what is wrong with `text` and what is right.
    """
    url, has_scheme = (text, True) if "://" in text else (f"http://{text}", False)
    parsed = _split(url, text)
    _check_parts(parsed, text, has_scheme)
    host, port = _host(parsed, text), _port(parsed, text)
    if port is None and not has_scheme:
        _refuse(text, "it has no port")
    prefix = parsed.path.rstrip("/")
    if not _PREFIX.fullmatch(prefix):
        _refuse(text, f"its path {prefix!r} is not a percent-encoded path")
    return _address(parsed.scheme, host, port, prefix)


def _address(scheme: str, host: str, port: int | None, prefix: str) -> Address:
    default = _DEFAULT_PORTS[scheme]
    bracketed = f"[{host}]" if ":" in host else host
    authority = bracketed if port in (None, default) else f"{bracketed}:{port}"
    return Address(host, port or default, authority, prefix, scheme == "https")


def _split(url: str, text: str) -> SplitResult:
    if not url.isascii() or not url.isprintable() or " " in url:  # urlsplit would drop tabs and newlines
        _refuse(text, "it holds a blank or a character outside ASCII")
    try:
        return urlsplit(url)
    except ValueError as error:
        raise ValueError(f"bad address {text!r}: {error}; {_EXPECTED}") from error


def _check_parts(parsed: SplitResult, text: str, has_scheme: bool) -> None:
    if parsed.scheme not in _DEFAULT_PORTS:
        _refuse(text, f"the scheme {parsed.scheme!r} is not one of {', '.join(_DEFAULT_PORTS)}")
    if "@" in parsed.netloc:
        _refuse(text, "it holds credentials")
    if parsed.query or parsed.fragment or text.endswith(("?", "#")):
        _refuse(text, "it has a query or a fragment")
    if not has_scheme and parsed.path:
        _refuse(text, "a path needs a scheme before the host")


def _host(parsed: SplitResult, text: str) -> str:
    host = parsed.hostname or ""
    is_bracketed = parsed.netloc.startswith("[")
    if not is_bracketed and parsed.netloc.count(":") > 1:
        _refuse(text, "an IPv6 address stands in brackets: [::1]:8000")
    if not host:
        _refuse(text, "it has no host")
    if not (_is_ipv6(host) if is_bracketed else _is_name(host)):
        _refuse(text, f"{host!r} is not a host name")
    return str(IPv6Address(host)) if is_bracketed else host


def _is_name(host: str) -> bool:
    return len(host) <= 253 and all(_LABEL.fullmatch(label) for label in host.removesuffix(".").split("."))


def _is_ipv6(host: str) -> bool:
    try:
        return IPv6Address(host).scope_id is None
    except ValueError:
        return False


def _port(parsed: SplitResult, text: str) -> int | None:
    try:
        port = parsed.port
    except ValueError as error:
        raise ValueError(f"bad address {text!r}: {error}; {_EXPECTED}") from error
    if port == 0 or parsed.netloc.endswith(":"):
        _refuse(text, "its port is not between 1 and 65535")
    return port


def _refuse(text: str, why: str) -> NoReturn:
    raise ValueError(f"bad address {text!r}: {why}; {_EXPECTED}")
