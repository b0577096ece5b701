"""Functions that recognize the protocol of an endpoint whose first bytes do not belong to the expected transport, and
suggest what to configure. The connectors call this module.

A wrong `protocol` or port is visible only in these bytes. Therefore, unlike all other modules of the transports, this
module contains protocol names.
"""

_HTTP = "it seems to be an HTTP/1.1 server, for the protocols v2-rest, v1-rest, umbridge, graphpipe and grps-rest"
_OR_TLS = "; or, because it answers 400, a server with TLS, which needs `tls` or an address such as grpcs://"
_GRPC = "it seems to be an HTTP/2 (gRPC) server, for the protocols v2-grpc, grps-grpc and tfs-grpc"
_BRPC = "it seems to be a server of Apache brpc's baidu_std, for the protocol grps-brpc"
_MIP = "it seems to be a server of KubeMo's MIP, for the protocol mip"
_TLS = "it seems to be a server with TLS, which needs `tls` or an address such as https://"

_HTML = (b"<!doctype html", b"<html")
"""The beginning of a page. Some HTTP/1.1 servers respond to unknown input with only a page, as in HTTP/0.9."""

FIRST_BYTES = 16
"""The number of bytes that are sufficient to recognize a server."""

_SETTINGS = 4
"""The type of the frame that begins every HTTP/2 connection (RFC 9113, section 3.4)."""
_SETTING_SIZE = 6
_MIP_ERRORS = 5
"""The highest code in a MIP error. MIP servers respond to unknown input with version 0, kind 0, an error code, 0, and
the size of a text."""


def foreign(first: bytes, expected: str = "") -> str:
    """Return the end of an error message, which names the protocol that the server seems to use.

    `first` contains the first bytes of a connection that does not begin like a valid reply. The result is empty if the
    protocol is unknown or belongs to the `expected` transport (`http` or `grpc`)."""
    transport, found = _of_another_transport(first)
    if expected and transport == expected:
        return ""
    if expected == "grpc" and found == _HTTP and first[8:12] == b" 400":  # typical of TLS servers
        found += _OR_TLS
    found = found or _of_a_byte_stream(first)
    return f"; {found}" if found else ""


def foreign_to_byte_streams(first: bytes) -> str:
    """Same as `foreign` if a byte stream is expected. `first` can be any bytes, even bytes that could begin a valid
    reply.

    For example, the bytes of an HTTP/2 server could be a MIP error."""
    _, found = _of_another_transport(first)
    return f"; {found}" if found else ""


def _of_another_transport(first: bytes) -> tuple[str, str]:
    if first.startswith(b"HTTP/1.") or first.lower().startswith(_HTML):
        return "http", _HTTP
    if _is_settings(first):
        return "grpc", _GRPC
    if first[:2] in (b"\x15\x03", b"\x16\x03"):  # an alert or a handshake, and the major version of TLS
        return "tls", _TLS
    return "", ""


def _is_settings(first: bytes) -> bool:
    """Return whether `first` begins with the header of a SETTINGS frame, which consists of length (u24), type (u8),
    flags (u8) and stream (u32)."""
    if len(first) < 9:
        return False
    return first[3] == _SETTINGS and not any(first[4:9]) and int.from_bytes(first[:3]) % _SETTING_SIZE == 0


def _of_a_byte_stream(first: bytes) -> str:
    if first.startswith(b"PRPC"):
        return _BRPC
    is_mip_error = len(first) >= 8 and not any((*first[:2], *first[3:6]))  # a text of less than 64 KiB
    return _MIP if is_mip_error and first[2] <= _MIP_ERRORS else ""
