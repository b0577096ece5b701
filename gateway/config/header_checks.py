"""Checks of the fixed headers for backends (`headers`), and of the headers for web pages (`cors`)."""

import re
from collections.abc import Iterator

from gateway.config.catalog import Catalog
from gateway.config.document import Location
from gateway.config.fields import VALUE
from gateway.config.partial import Parts
from gateway.config.problems import Finding
from gateway.core.protocol import ANY_ORIGIN, GrpcBinding, HttpBinding, StreamBinding
from gateway.core.transport import HOST

# "gRPC over HTTP2": Custom-Metadata consists of these characters; names that begin with grpc- are reserved, and the
# gateway writes user-agent itself.
_METADATA = re.compile(r"(?!grpc-|user-agent$)[0-9a-z_.-]+")


def server_headers(parts: Parts, catalog: Catalog) -> Iterator[Finding]:
    """Find headers that the backend's protocol cannot transport, or that are also forwarded from clients."""
    for key, backend in parts.backends.items():
        protocol = catalog.protocols.get(backend.protocol)
        if protocol is None or not backend.headers:
            continue
        location: Location = ("backends", key, "headers")
        if isinstance(protocol.binding, StreamBinding):
            yield Finding(location, f"messages of {protocol.name} have no headers; remove the key", at_key=True)
            continue
        for name in backend.headers:
            if isinstance(protocol.binding, GrpcBinding) and name != HOST and not _METADATA.fullmatch(name):
                yield Finding(location, f"gRPC cannot carry {name!r} as metadata; remove it", at_key=True)
            if name in backend.forward_headers:
                at = backend.forward_headers.index(name)
                text = f"{VALUE} is also in `headers`, whose value is always sent; remove one of them"
                yield Finding(("backends", key, "forward_headers", at), text)


def cross_origin(parts: Parts, catalog: Catalog) -> Iterator[Finding]:
    """Find `cors` on listeners without HTTP protocols, and `cors` that lets any web page use a browser's
    credentials."""
    for at, listener in parts.listeners.items():
        if listener.cors is None:
            continue
        location: Location = ("listeners", at, "cors")
        spoken = [catalog.protocols[name] for name in listener.protocols if name in catalog.protocols]
        if spoken and not any(isinstance(each.binding, HttpBinding) for each in spoken):
            yield Finding(
                location, "`cors` is for HTTP, but no protocol of the listener uses HTTP; remove the key", at_key=True
            )
        if ANY_ORIGIN in listener.cors.origins and listener.has_credentials:
            text = f"clients of this listener have credentials (`auth`, or `tls.client`): name the origins, got {VALUE}"
            yield Finding((*location, "origins", listener.cors.origins.index(ANY_ORIGIN)), text)
