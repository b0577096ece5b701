"""The `tls` keys of listeners, of the health and admin ports, and of outgoing connections."""

from collections.abc import Iterator
from datetime import UTC, datetime

from gateway.config.catalog import Catalog
from gateway.config.document import Location
from gateway.config.fields import VALUE, Flag, Keys, Name
from gateway.config.problems import Finding
from gateway.core.certificates import CertificateError, ClientCertificates, FileKey, TlsFiles, expiry


class ListenerTlsConfig(Keys):
    """TLS 1.2 and 1.3 for client connections. The gateway reloads the files when they change; open connections
    continue."""

    certificate: Name
    """Absolute path of a PEM file with the certificate, followed by its intermediate certificates."""
    key: Name
    """Absolute path of a PEM file with the certificate's private key, without a passphrase."""
    client_ca: Name | None = None
    """Absolute path of a PEM file with the CAs that sign client certificates."""
    client_crl: Name | None = None
    """Absolute path of a PEM file with a certificate revocation list (CRL) from each CA in `client_ca` that signs
    client certificates. New handshakes with a revoked certificate fail."""
    client: ClientCertificates = "none"
    """Client certificates signed by a CA in `client_ca`: `required`, `optional`, or `none` (not requested)."""

    @property
    def files(self) -> TlsFiles:
        """The files in this configuration."""
        return TlsFiles(self.certificate, self.key, self.client_ca or "", self.client_crl or "")

    def findings(self, location: Location, catalog: Catalog) -> Iterator[Finding]:
        """Find unusable files, and inconsistent keys."""
        yield from _unusable(location, self.files, "client_ca", catalog)
        if self.client != "none" and self.client_ca is None:
            yield Finding((*location, "client"), f"{VALUE} needs client_ca, the CAs that sign these certificates")
        elif self.client == "none" and self.client_ca is not None:
            yield Finding((*location, "client_ca"), "needs client: optional or required", at_key=True)
        if self.client_crl is not None and self.client_ca is None:
            yield Finding((*location, "client_crl"), "needs client_ca, the CAs that sign the lists", at_key=True)

    def warnings(self, location: Location) -> Iterator[Finding]:
        """Find a certificate that has expired."""
        return _expired(location, self.certificate)


class BackendTlsConfig(Keys):
    """TLS for connections to a backend's servers. The gateway reloads the files when they change."""

    ca: Name | None = None
    """Absolute path of a PEM file with the CAs that sign the servers' certificates. Default: the system's CAs."""
    certificate: Name | None = None
    """Absolute path of a PEM file with the gateway's client certificate, followed by its intermediate certificates."""
    key: Name | None = None
    """Absolute path of a PEM file with the private key of `certificate`, without a passphrase."""
    server_name: Name | None = None
    """Host name that the gateway requests (SNI), and for which the servers' certificates must be valid. Default: the
    host in each address."""
    verify: Flag = True
    """Verify the servers' certificates. If `false`, anyone on the network path between the gateway and a server can
    read and change all data."""

    @property
    def files(self) -> TlsFiles:
        """The files in this configuration."""
        return TlsFiles(self.certificate or "", self.key or "", self.ca or "")

    def findings(self, location: Location, catalog: Catalog) -> Iterator[Finding]:
        """Find unusable files, and inconsistent keys."""
        if (self.certificate is None) != (self.key is None):
            there, missing = ("key", "certificate") if self.certificate is None else ("certificate", "key")
            yield Finding((*location, there), f"needs {missing}", at_key=True)
        else:
            yield from _unusable(location, self.files, "ca", catalog)
        if self.ca is not None and not self.verify:
            yield Finding((*location, "ca"), "has no effect with verify: false; remove one of the keys", at_key=True)

    def warnings(self, location: Location) -> Iterator[Finding]:
        """Find a certificate that has expired, and servers whose certificates are not verified."""
        yield from _expired(location, self.certificate)
        if not self.verify:
            text = "server certificates are not checked, so anyone on the network path can read and change all data"
            yield Finding((*location, "verify"), f"{text}; set `ca` instead", at_key=True)


def _unusable(location: Location, files: TlsFiles, authorities: FileKey, catalog: Catalog) -> Iterator[Finding]:
    """Find files that cannot be used for TLS. `authorities` is the key of the file with the CAs."""
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


def _expired(location: Location, certificate: str | None) -> Iterator[Finding]:
    if certificate is not None:
        try:
            expires = expiry(certificate)
        except CertificateError:  # the file is being replaced; the gateway reads it again
            return
        if expires < datetime.now(UTC):
            text = f"the certificate in {VALUE} expired at {expires:%Y-%m-%d}; renew it"
            yield Finding((*location, "certificate"), text)
