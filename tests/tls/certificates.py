"""Certificates made for a test."""

import ssl
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

import trustme


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

    def asking(self, client: str) -> str:
        """The YAML of a listener that asks for client certificates."""
        return f"{{certificate: {self.certificate}, key: {self.key}, client_ca: {self.ca}, client: {client}}}"

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

    def issue(
        self, folder: Path, *names: str, common_name: str | None = None, days: float = 365, stem: str = "tls"
    ) -> Files:
        """A certificate for `names` that expires in `days`, as files in `folder` whose names begin with `stem`."""
        expires = datetime.now(UTC) + timedelta(days=days)
        made = self._ca.issue_cert(*names, common_name=common_name, not_after=expires)
        files = Files(folder / f"{stem}.crt", folder / f"{stem}.key", folder / f"{stem}-ca.crt")
        files.key.write_bytes(made.private_key_pem.bytes())
        files.certificate.write_bytes(b"".join(each.bytes() for each in made.cert_chain_pems))
        files.ca.write_bytes(self._ca.cert_pem.bytes())
        return files
