"""Certificates made for a test."""

import ssl
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import trustme
from cryptography import x509
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.serialization import Encoding, load_pem_private_key


@dataclass(frozen=True)
class Files:
    """A certificate, its key, and the CA that signed it, as PEM files."""

    certificate: Path
    key: Path
    ca: Path

    @property
    def server(self) -> str:
        """The YAML of a listener's `tls`."""
        return f"{{certificate: {self.certificate}, key: {self.key}}}"

    def asking(self, client: str, crl: Path | None = None) -> str:
        """The YAML of a listener that asks for client certificates, and looks them up in a revocation list."""
        own = f"certificate: {self.certificate}, key: {self.key}, client_ca: {self.ca}, client: {client}"
        return f"{{{own}}}" if crl is None else f"{{{own}, client_crl: {crl}}}"

    def shown_to(self, server: "Files") -> str:
        """The YAML of a backend's `tls`, which shows this certificate to a server with the other one."""
        return f"{{ca: {server.ca}, certificate: {self.certificate}, key: {self.key}}}"

    def trusting(self, own: "Files | None" = None, alpn: str = "") -> ssl.SSLContext:
        """A client that trusts the CA, with a certificate of its `own`."""
        context = ssl.create_default_context(cafile=str(self.ca))
        if own is not None:
            context.load_cert_chain(own.certificate, own.key)
        if alpn:
            context.set_alpn_protocols([alpn])
        return context


class Authority:
    """A CA."""

    def __init__(self) -> None:
        self._ca = trustme.CA()

    def issue(self, folder: Path, *names: str, days: float = 365, stem: str = "tls") -> Files:
        """A certificate for `names` that expires in `days`, as files in `folder` whose names begin with `stem`."""
        expires = datetime.now(UTC) + timedelta(days=days)
        made = self._ca.issue_cert(*names, not_after=expires)
        files = Files(folder / f"{stem}.crt", folder / f"{stem}.key", folder / f"{stem}-ca.crt")
        files.key.write_bytes(made.private_key_pem.bytes())
        files.certificate.write_bytes(b"".join(each.bytes() for each in made.cert_chain_pems))
        files.ca.write_bytes(self._ca.cert_pem.bytes())
        return files

    def revoke(self, file: Path, *revoked: Files, days: float = 1) -> Path:
        """Write a revocation list with these certificates, which expires in `days`; in one step, as cron jobs do."""
        now = datetime.now(UTC)
        ca = x509.load_pem_x509_certificate(self._ca.cert_pem.bytes())
        key: Any = load_pem_private_key(self._ca.private_key_pem.bytes(), None)
        next_update = now + timedelta(days=days)
        last_update = min(now, next_update) - timedelta(hours=1)
        made = x509.CertificateRevocationListBuilder(ca.subject, last_update=last_update, next_update=next_update)
        for each in revoked:
            number = x509.load_pem_x509_certificate(each.certificate.read_bytes()).serial_number
            made = made.add_revoked_certificate(
                x509.RevokedCertificateBuilder().serial_number(number).revocation_date(now).build()
            )
        new = file.with_suffix(".new")
        new.write_bytes(made.sign(key, SHA256()).public_bytes(Encoding.PEM))
        return new.replace(file)
