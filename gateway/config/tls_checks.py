"""Checks of the `tls` keys of listeners, the health and admin ports, and backends: whether the files exist and are
usable, and whether the keys are consistent."""

from collections.abc import Iterator
from datetime import UTC, datetime

from gateway.config.catalog import Catalog
from gateway.config.document import Location
from gateway.config.fields import VALUE
from gateway.config.keys import Config
from gateway.config.partial import Parts, all_parts
from gateway.config.problems import Finding
from gateway.config.tls import BackendTlsConfig, ListenerTlsConfig
from gateway.core.certificates import CertificateError, FileKey, TlsFiles, expiry

_WITHOUT_TLS = ("http", "tcp", "unix")
"""URL schemes without TLS."""


def tls_findings(parts: Parts, catalog: Catalog) -> Iterator[Finding]:
    """Find errors in the `tls` keys."""
    for location, tls in _server_places(parts):
        yield from _files(location, tls.files, "client_ca", catalog)
        if tls.client != "none" and tls.client_ca is None:
            yield Finding((*location, "client"), f"{VALUE} needs client_ca, the CAs that sign these certificates")
        elif tls.client == "none" and tls.client_ca is not None:
            yield Finding((*location, "client_ca"), "needs client: optional or required", at_key=True)
        if tls.client_crl is not None and tls.client_ca is None:
            yield Finding((*location, "client_crl"), "needs client_ca, the CAs that sign the lists", at_key=True)
    for at, listener in parts.listeners.items():
        if listener.tls is not None and listener.bind.path:
            yield Finding(("listeners", at, "tls"), "a unix socket has no TLS; remove the key", at_key=True)
    for at, reference in parts.reference.items():
        if reference.tls is not None and reference.bind.path:
            yield Finding(("reference", at, "tls"), "a unix socket has no TLS; remove the key", at_key=True)
    for name, backend in parts.backends.items():
        if backend.tls is not None:
            yield from client_tls_findings(("backends", name, "tls"), backend.tls, catalog)
            yield from _addresses_without_tls(name, backend.addresses)


def tls_warnings(config: Config, catalog: Catalog) -> Iterator[Finding]:
    """Find probable mistakes in the `tls` keys."""
    for location, files in _places(all_parts(config)):
        if files.certificate:
            try:
                expires = expiry(files.certificate)
            except CertificateError:  # the file is being replaced; the gateway reads it again
                continue
            if expires < datetime.now(UTC):
                yield Finding(
                    (*location, "certificate"), f"the certificate in {VALUE} expired at {expires:%Y-%m-%d}; renew it"
                )
    for name, backend in config.backends.items():
        if backend.tls is not None and not backend.tls.verify:
            text = (
                "server certificates are not checked, so anyone on the network path can read and change all data; set "
                "`ca` instead"
            )
            yield Finding(("backends", name, "tls", "verify"), text, at_key=True)


def _places(parts: Parts) -> Iterator[tuple[Location, TlsFiles]]:
    yield from ((location, tls.files) for location, tls in _server_places(parts))
    for name, backend in parts.backends.items():
        if backend.tls is not None:
            yield ("backends", name, "tls"), backend.tls.files


def _server_places(parts: Parts) -> Iterator[tuple[Location, ListenerTlsConfig]]:
    for at, listener in parts.listeners.items():
        if listener.tls is not None:
            yield ("listeners", at, "tls"), listener.tls
    for at, reference in parts.reference.items():
        if reference.tls is not None:
            yield ("reference", at, "tls"), reference.tls
    for name, port in (("admin", parts.admin), ("health", parts.health), ("scaler", parts.scaler)):
        if port is not None and port.tls is not None:
            yield (name, "tls"), port.tls


def client_tls_findings(location: Location, tls: BackendTlsConfig, catalog: Catalog) -> Iterator[Finding]:
    """Find errors in the `tls` key at `location`, for connections to servers."""
    if (tls.certificate is None) != (tls.key is None):
        there, missing = ("key", "certificate") if tls.certificate is None else ("certificate", "key")
        yield Finding((*location, there), f"needs {missing}", at_key=True)
    else:
        yield from _files(location, tls.files, "ca", catalog)
    if tls.ca is not None and not tls.verify:
        yield Finding((*location, "ca"), "has no effect with verify: false; remove one of the keys", at_key=True)


def _addresses_without_tls(name: str, addresses: tuple[str, ...]) -> Iterator[Finding]:
    for at, address in enumerate(addresses):
        if address.partition(":")[0].lower() in _WITHOUT_TLS and address[address.find(":") :][1:2] == "/":
            text = f"the backend has `tls`, and {VALUE} is an address without TLS; change one of them"
            yield Finding(("backends", name, "endpoints", at, "address"), text)


def _files(location: Location, files: TlsFiles, authorities: FileKey, catalog: Catalog) -> Iterator[Finding]:
    paths = {
        "certificate": files.certificate, "key": files.key, authorities: files.authorities,
        "client_crl": files.revocations,
    }  # fmt: skip
    relative = [key for key, path in paths.items() if path and not path.startswith("/")]
    for key in relative:
        yield Finding((*location, key), f"expected an absolute path, got {VALUE}")
    if not relative:
        for fault in catalog.tls_faults(files, authorities):
            used = tuple(map(str, files.paths))  # if a key and a certificate do not match, either file can be wrong
            yield Finding((*location, fault.key), f"{VALUE} cannot be used: {fault}", files=used)
