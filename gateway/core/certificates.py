"""The TLS values that the configuration and the transports share: TLS files, the expiry time of a certificate, and the
identity in a client certificate. The functions have no side effects other than reading files.
"""

import binascii
import errno
import os
import re
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Literal

from gateway.core.frozen import frozen

MAX_BYTES = 2**20
"""Maximum size of a certificate file, in bytes. For comparison, Debian's bundle of all public CAs has 220 KB."""

MAX_REVOCATION_BYTES = 16 * 2**20
"""Maximum size of a file with revocation lists, in bytes. The limit allows about 400,000 revoked certificates."""


ClientCertificates = Literal["none", "optional", "required"]
FileKey = Literal["certificate", "key", "client_ca", "client_crl", "ca"]
"""A configuration key whose value is the path of a TLS file."""


class CertificateError(ValueError):
    """A TLS file is unusable. `key` is the file's key in the configuration, and the message gives the reason."""

    def __init__(self, key: FileKey, text: str) -> None:
        super().__init__(text)
        self.key = key


@frozen
class TlsFiles:
    """The TLS files of a listener or a backend.

    The path of a file that is not configured is empty. `authorities` comes from the key `client_ca` of a listener or
    `ca` of a backend, and `revocations` comes from `client_crl`."""

    certificate: str = ""
    key: str = ""
    authorities: str = ""
    revocations: str = ""

    @property
    def paths(self) -> tuple[Path, ...]:
        """The paths that are set."""
        return tuple(Path(each) for each in (self.certificate, self.key, self.authorities, self.revocations) if each)


NO_FILES = TlsFiles()


_LABEL = re.compile("-----BEGIN ([A-Z0-9 ]{1,40})-----")
_REVOCATION_LIST = "X509 CRL"
_PEM = re.compile("-----BEGIN CERTIFICATE-----([^-]*)-----END CERTIFICATE-----")


def expiry(path: str) -> datetime:
    """Return the expiry time of the first certificate in the file. This certificate belongs to the server or client
    itself, and its issuers' certificates follow.

    Raises:
        CertificateError: the file is unreadable, or contains no certificate.
    """
    found = _PEM.search(read(path, "certificate"))
    try:
        if found is None:
            raise ValueError("no PEM")
        return _not_after(binascii.a2b_base64(found[1]))
    except (ValueError, IndexError) as error:
        raise CertificateError("certificate", "expected a certificate in PEM") from error


def check_revocations(path: str) -> None:
    """Check that a file contains only certificate revocation lists in PEM format.

    The check is necessary because TLS would trust any certificate in this file as a CA.

    Raises:
        CertificateError: the file is unreadable, or contains anything else.
    """
    found = set(_LABEL.findall(read(path, "client_crl", MAX_REVOCATION_BYTES)))
    if found != {_REVOCATION_LIST}:
        others = ", ".join(sorted(found - {_REVOCATION_LIST}))
        why = f"it also has {others}" if _REVOCATION_LIST in found else f"it has {others}" if others else ""
        text = "expected certificate revocation lists in PEM (BEGIN X509 CRL)"
        raise CertificateError("client_crl", f"{text}; {why}" if why else text)


def read(path: str, key: FileKey, most: int = MAX_BYTES) -> str:
    """Return the contents of a PEM file of at most `most` bytes. Raises CertificateError if the file is unreadable."""
    try:
        if os.path.exists(path) and not os.path.isfile(path):  # opening a named pipe would wait for its writer
            raise CertificateError(key, "not a regular file")
        with open(path, "rb") as file:
            content = file.read(most + 1)
    except OSError as error:
        why = os.strerror(error.errno or errno.EIO).lower()
        raise CertificateError(key, f"cannot read the file: {why}; check the path and its permissions") from error
    if len(content) > most:
        raise CertificateError(key, f"larger than {most} bytes")
    return content.decode("latin-1").encode("ascii", "replace").decode()


_SEQUENCE, _INTEGER, _VERSION, _UTC_TIME = 0x30, 0x02, 0xA0, 0x17


def _not_after(certificate: bytes) -> datetime:
    """Return the end of the validity period (`notAfter`) of a DER-encoded certificate. The certificate has this
    structure (RFC 5280, section 4.1): `SEQUENCE { SEQUENCE { [0] version?, serial, algorithm, issuer, SEQUENCE {
    notBefore, notAfter }, ...`"""
    _, at, _ = _element(certificate, 0)
    _, at, _ = _element(certificate, at)
    kind, _, end = _element(certificate, at)
    if kind == _VERSION:
        _, _, end = _element(certificate, end)  # the serial number
    _, _, end = _element(certificate, end)  # the algorithm
    _, _, end = _element(certificate, end)  # the issuer
    _, at, _ = _element(certificate, end)
    _, _, at = _element(certificate, at)  # notBefore
    kind, at, end = _element(certificate, at)
    form = "%y%m%d%H%M%SZ" if kind == _UTC_TIME else "%Y%m%d%H%M%SZ"
    return datetime.strptime(certificate[at:end].decode("ascii"), form).replace(tzinfo=UTC)


def _element(data: bytes, at: int) -> tuple[int, int, int]:
    """Return the tag of the DER element at offset `at`, and the start and end of its content."""
    tag, size, at = data[at], data[at + 1], at + 2
    if size & 0x80:
        count = size & 0x7F
        size, at = int.from_bytes(data[at : at + count]), at + count
    return tag, at, at + size


def identity(peer: Mapping[str, Any] | None) -> str:
    """Return the name of the client with the verified certificate `peer` (from `SSLSocket.getpeercert`). The name is
    the first URI (used by SPIFFE) in the subject alternative names, or else the first DNS name there, or else the
    subject's common name. The result is empty without a certificate, or if the name contains non-printable
    characters."""
    if not peer:
        return ""
    names = peer.get("subjectAltName", ())
    subject = (pair for each in peer.get("subject", ()) for pair in each)
    found = (
        *(text for kind, text in names if kind == "URI"),
        *(text for kind, text in names if kind == "DNS"),
        *(text for kind, text in subject if kind == "commonName"),
    )
    return found[0] if found and found[0].isprintable() else ""
