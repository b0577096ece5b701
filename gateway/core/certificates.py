"""TLS: contexts made of certificate files, with the versions and ciphers of Mozilla's intermediate profile; when
certificates expire, and whom a client's certificate names."""

import errno
import os
import ssl
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Literal

from gateway.core.frozen import frozen

MAX_BYTES = 2**20
"""The most bytes of a file with certificates. Debian's bundle of all public CAs has 220 KB."""

CIPHERS = ":".join(
    (
        "ECDHE-ECDSA-AES128-GCM-SHA256",
        "ECDHE-RSA-AES128-GCM-SHA256",
        "ECDHE-ECDSA-AES256-GCM-SHA384",
        "ECDHE-RSA-AES256-GCM-SHA384",
        "ECDHE-ECDSA-CHACHA20-POLY1305",
        "ECDHE-RSA-CHACHA20-POLY1305",
        "DHE-RSA-AES128-GCM-SHA256",
        "DHE-RSA-AES256-GCM-SHA384",
        "DHE-RSA-CHACHA20-POLY1305",
    )
)
"""Of TLS 1.2, from Mozilla's "Server Side TLS" 5.7, intermediate. TLS 1.3 has its own, all of which are allowed."""

ClientCertificates = Literal["none", "optional", "required"]
FileKey = Literal["certificate", "key", "client_ca", "ca"]
"""The key of the configuration that names a file."""


class CertificateError(ValueError):
    """A file cannot be used; `key` says which, the text why."""

    def __init__(self, key: FileKey, text: str) -> None:
        super().__init__(text)
        self.key = key


@frozen
class TlsFiles:
    """The files of one place in the configuration where TLS is used; empty paths for those that it does not have.
    `authorities` is `client_ca` of a listener, `ca` of a backend."""

    certificate: str = ""
    key: str = ""
    authorities: str = ""

    @property
    def paths(self) -> tuple[Path, ...]:
        """Those that there are."""
        return tuple(Path(each) for each in (self.certificate, self.key, self.authorities) if each)


NO_FILES = TlsFiles()


def server_context(files: TlsFiles, client: ClientCertificates = "none", alpn: Sequence[str] = ()) -> ssl.SSLContext:
    """What a listener needs for handshakes.

    Raises:
        CertificateError: a file cannot be read or used.
    """
    context = _context(ssl.PROTOCOL_TLS_SERVER, alpn)
    context.options &= ~ssl.OP_CIPHER_SERVER_PREFERENCE  # the profile: clients know best what is fast for them
    _load_pair(context, files)
    if client != "none":
        _load_authorities(context, files.authorities, "client_ca")
        context.verify_mode = ssl.CERT_REQUIRED if client == "required" else ssl.CERT_OPTIONAL
    return context


def client_context(files: TlsFiles = NO_FILES, *, verify: bool = True, alpn: Sequence[str] = ()) -> ssl.SSLContext:
    """What a backend's connections need for handshakes. Without authorities those of the system are trusted.

    Raises:
        CertificateError: a file cannot be read or used.
    """
    context = _context(ssl.PROTOCOL_TLS_CLIENT, alpn)
    if not verify:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    elif files.authorities:
        _load_authorities(context, files.authorities, "ca")
    else:
        context.load_default_certs()
    if files.certificate:
        _load_pair(context, files)
    return context


def faults(files: TlsFiles, authorities: FileKey) -> list[CertificateError]:
    """Why files cannot be used, one error for each. `authorities` is the key of the file with the CAs."""
    context, found = _context(ssl.PROTOCOL_TLS_SERVER, ()), []
    try:
        if files.certificate:
            _load_pair(context, files)
    except CertificateError as error:
        found.append(error)
    try:
        if files.authorities:
            _load_authorities(context, files.authorities, authorities)
    except CertificateError as error:
        found.append(error)
    return found


def _context(protocol: int, alpn: Sequence[str]) -> ssl.SSLContext:
    context = ssl.SSLContext(protocol)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.set_ciphers(CIPHERS)
    context.options |= ssl.OP_NO_RENEGOTIATION | ssl.OP_NO_COMPRESSION
    if alpn:
        context.set_alpn_protocols(list(alpn))
    return context


def _load_pair(context: ssl.SSLContext, files: TlsFiles) -> None:
    _read(files.certificate, "certificate")
    _read(files.key, "key")
    try:
        # A key with a passphrase would be asked for on the terminal.
        context.load_cert_chain(files.certificate, files.key, password=_no_passphrase)
    except ssl.SSLError as error:
        if error.reason == "KEY_VALUES_MISMATCH":
            raise CertificateError("key", "it is not the key of the certificate") from error
        try:
            expiry(files.certificate)
        except CertificateError:
            raise
        why = f" ({error.reason.replace('_', ' ').lower()})" if error.reason else ""
        raise CertificateError("key", f"it is not a private key in PEM{why}") from error
    except ValueError as error:  # from _no_passphrase
        raise CertificateError("key", "it has a passphrase; the key must be stored without one") from error


def _no_passphrase() -> str:
    raise ValueError("no passphrase")


def _load_authorities(context: ssl.SSLContext, path: str, key: FileKey) -> None:
    text = _read(path, key)
    try:
        context.load_verify_locations(cadata=text)
    except (ssl.SSLError, ValueError) as error:
        raise CertificateError(key, "it has no certificate in PEM") from error


def expiry(path: str, key: FileKey = "certificate") -> datetime:
    """When the first certificate in the file expires: the server's or client's own, which precedes those that sign it.

    Raises:
        CertificateError: the file cannot be read, or has no certificate.
    """
    text = _read(path, key)
    begin, end = text.find(ssl.PEM_HEADER), text.find(ssl.PEM_FOOTER)
    try:
        if not 0 <= begin < end:
            raise ValueError("no PEM")
        return _not_after(ssl.PEM_cert_to_DER_cert(text[begin : end + len(ssl.PEM_FOOTER)]))
    except (ValueError, IndexError) as error:
        raise CertificateError(key, "it has no certificate in PEM") from error


def _read(path: str, key: FileKey) -> str:
    try:
        if os.path.exists(path) and not os.path.isfile(path):  # opening a named pipe would wait for its writer
            raise CertificateError(key, "it is not a regular file")
        with open(path, "rb") as file:
            content = file.read(MAX_BYTES + 1)
    except OSError as error:
        raise CertificateError(key, f"it cannot be read: {os.strerror(error.errno or errno.EIO).lower()}") from error
    if len(content) > MAX_BYTES:
        raise CertificateError(key, f"it is larger than {MAX_BYTES} bytes")
    return content.decode("latin-1").encode("ascii", "replace").decode()


_SEQUENCE, _INTEGER, _VERSION, _UTC_TIME = 0x30, 0x02, 0xA0, 0x17


def _not_after(certificate: bytes) -> datetime:
    """The end of validity in a certificate in DER (RFC 5280, section 4.1):
    `SEQUENCE { SEQUENCE { [0] version?, serial, algorithm, issuer, SEQUENCE { notBefore, notAfter }, ...`"""
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
    """The DER element at `at`: its tag, where its content begins, and where it ends."""
    tag, size, at = data[at], data[at + 1], at + 2
    if size & 0x80:
        count = size & 0x7F
        size, at = int.from_bytes(data[at : at + count]), at + count
    return tag, at, at + size


def identity(peer: Mapping[str, Any] | None) -> str:
    """Whom a verified certificate, as `SSLSocket.getpeercert` returns it, names: its first URI (as SPIFFE's), else its
    first DNS name, of its subject alternative names; else the common name of its subject. Empty without a certificate,
    and for a name with characters that cannot be printed."""
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


def refusal_text(error: ssl.SSLError, host: str = "") -> str:
    """Why a handshake failed, in plain words. `host` is the name that the other side should have had."""
    if isinstance(error, ssl.SSLCertVerificationError):
        text = _UNVERIFIED.get(error.verify_code, f"its certificate is not accepted: {error.verify_message}")
        return text.format(host=host)
    reason = error.reason or ""
    if reason in _REASONS:
        return _REASONS[reason]
    if "_ALERT_" in reason:
        return f"it ended the handshake: {reason.partition('_ALERT_')[2].replace('_', ' ').lower()}"
    return (reason or str(error)).replace("_", " ").lower()


_UNKNOWN_CA = "its certificate is signed by an unknown CA"
# X509_V_ERR_* of OpenSSL
_UNVERIFIED = {
    9: "its certificate is not valid yet",
    10: "its certificate has expired",
    18: "its certificate is self-signed",
    19: _UNKNOWN_CA,
    20: _UNKNOWN_CA,
    21: _UNKNOWN_CA,
    23: "its certificate is revoked",
    26: "its certificate is not made for this purpose",
    62: "its certificate is not for the host {host!r}",
    64: "its certificate is not for the address {host!r}",
}
_NOT_TLS = "it does not speak TLS"
_REASONS = {
    "HTTP_REQUEST": "it speaks HTTP without TLS",
    "WRONG_VERSION_NUMBER": _NOT_TLS,
    "UNKNOWN_PROTOCOL": _NOT_TLS,
    "PACKET_LENGTH_TOO_LONG": _NOT_TLS,
    "RECORD_LAYER_FAILURE": _NOT_TLS,
    "BAD_RECORD_TYPE": _NOT_TLS,
    "UNSUPPORTED_PROTOCOL": "it has no version of TLS from 1.2 on",
    "VERSION_TOO_LOW": "it has no version of TLS from 1.2 on",
    "TLSV1_ALERT_PROTOCOL_VERSION": "it has no version of TLS from 1.2 on",
    "NO_SHARED_CIPHER": "it has none of the ciphers",
    "PEER_DID_NOT_RETURN_A_CERTIFICATE": "it sent no certificate",
    "TLSV13_ALERT_CERTIFICATE_REQUIRED": "it wants a client certificate",
    "TLSV1_ALERT_UNKNOWN_CA": "it does not know the CA of the certificate that it got",
    "SSLV3_ALERT_CERTIFICATE_EXPIRED": "it says that the certificate that it got has expired",
    "SSLV3_ALERT_BAD_CERTIFICATE": "it does not accept the certificate that it got",
    "SSLV3_ALERT_CERTIFICATE_UNKNOWN": "it does not accept the certificate that it got",
    "SSLV3_ALERT_CERTIFICATE_REVOKED": "it says that the certificate that it got is revoked",
    "UNEXPECTED_EOF_WHILE_READING": "it closed the connection during the handshake",
}
