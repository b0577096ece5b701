"""`tls` of listeners and ports, and of what the gateway connects to."""

from gateway.config.fields import Flag, Keys, Name
from gateway.core.certificates import ClientCertificates, TlsFiles


class ListenerTlsConfig(Keys):
    """TLS towards clients, in versions 1.2 and 1.3. The files are read again when they change; connections that are
    open go on."""

    certificate: Name
    """The absolute path of a PEM file: the certificate, followed by those that sign it."""
    key: Name
    """The absolute path of a PEM file: the private key of the certificate, without a passphrase."""
    client_ca: Name | None = None
    """The absolute path of a PEM file: the CAs that sign the certificates of clients."""
    client_crl: Name | None = None
    """The absolute path of a PEM file: certificate revocation lists (CRLs), one of each CA in `client_ca` that signs
    certificates of clients. New handshakes with a revoked certificate fail."""
    client: ClientCertificates = "none"
    """Whether clients must have a certificate that one of `client_ca` has signed (`required`), may have one
    (`optional`), or are not asked for one (`none`)."""

    @property
    def files(self) -> TlsFiles:
        """The files that it names."""
        return TlsFiles(self.certificate, self.key, self.client_ca or "", self.client_crl or "")


class BackendTlsConfig(Keys):
    """TLS towards the servers of a backend. The files are read again when they change."""

    ca: Name | None = None
    """The absolute path of a PEM file: the CAs that sign the servers' certificates. Without it the CAs of the system
    are trusted."""
    certificate: Name | None = None
    """The absolute path of a PEM file: the certificate that servers are shown, followed by those that sign it."""
    key: Name | None = None
    """The absolute path of a PEM file: the private key of `certificate`, without a passphrase."""
    server_name: Name | None = None
    """The name that servers are asked for and that their certificates must have. The default is the host of each
    address."""
    verify: Flag = True
    """Check the certificates of servers. With `false` anybody between the gateway and a server can read and change
    everything."""

    @property
    def files(self) -> TlsFiles:
        """The files that it names."""
        return TlsFiles(self.certificate or "", self.key or "", self.ca or "")
