"""The `tls` keys of listeners, of the health and admin ports, and of outgoing connections."""

from gateway.config.fields import Flag, Keys, Name
from gateway.core.certificates import ClientCertificates, TlsFiles


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
