"""TLS contexts from certificate files, with the TLS versions and ciphers of Mozilla's intermediate profile. `assembly`
creates the contexts, and `tls` uses them.

The module also explains failed handshakes in plain words.
"""

import ssl
from collections.abc import Sequence

from gateway.core.certificates import (
    NO_FILES,
    CertificateError,
    ClientCertificates,
    FileKey,
    TlsFiles,
    check_revocations,
    expiry,
    read,
)

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
"""The TLS 1.2 ciphers of Mozilla's "Server Side TLS" 5.7, intermediate profile.

TLS 1.3 has its own ciphers, all of which are allowed."""


def server_context(files: TlsFiles, client: ClientCertificates = "none", alpn: Sequence[str] = ()) -> ssl.SSLContext:
    """Return the TLS context for a listener's handshakes.

    Raises:
        CertificateError: a file is unreadable or unusable.
    """
    context = _context(ssl.PROTOCOL_TLS_SERVER, alpn)
    context.options &= ~ssl.OP_CIPHER_SERVER_PREFERENCE  # as in the profile: clients prefer their fastest cipher
    _load_pair(context, files)
    if client != "none":
        _load_authorities(context, files.authorities, "client_ca")
        context.verify_mode = ssl.CERT_REQUIRED if client == "required" else ssl.CERT_OPTIONAL
        if files.revocations:
            _load_revocations(context, files.revocations)
            context.verify_flags |= ssl.VERIFY_CRL_CHECK_LEAF
    return context


def client_context(files: TlsFiles = NO_FILES, *, verify: bool = True, alpn: Sequence[str] = ()) -> ssl.SSLContext:
    """Return the TLS context for handshakes with a backend.

    Without `files.authorities`, the context trusts the system's CAs.

    Raises:
        CertificateError: a file is unreadable or unusable.
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
    """Return an error for each unusable file, with the reason. `authorities` is the configuration key of the CA
    file."""
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
    try:
        if files.revocations:
            _load_revocations(context, files.revocations)
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
    text = read(files.certificate, "certificate")
    read(files.key, "key")
    try:
        # Without this callback, OpenSSL would ask for a key's passphrase on the terminal.
        context.load_cert_chain(files.certificate, files.key, password=_no_passphrase)
    except ssl.SSLError as error:
        if error.reason == "KEY_VALUES_MISMATCH":
            raise CertificateError(
                "key", "the private key does not belong to the certificate; use the key of this certificate"
            ) from error
        try:
            expiry(files.certificate)
        except CertificateError:
            raise
        why = f" ({error.reason.replace('_', ' ').lower()})" if error.reason else ""
        raise CertificateError("key", f"expected a private key in PEM{why}") from error
    except ValueError as error:  # from _no_passphrase
        raise CertificateError("key", "it has a passphrase; store the key without a passphrase") from error
    _check_end(text, "certificate")


def _no_passphrase() -> str:
    raise ValueError("no passphrase")


def _load_authorities(context: ssl.SSLContext, path: str, key: FileKey) -> None:
    text = read(path, key)
    try:
        context.load_verify_locations(cadata=text)
    except (ssl.SSLError, ValueError) as error:
        raise CertificateError(key, "expected a certificate in PEM") from error
    _check_end(text, key)


def _check_end(text: str, key: FileKey) -> None:
    """Check that a file does not end inside a certificate, for example because another program is still writing the
    file, or because the disk is full. The check is necessary because OpenSSL ignores an incomplete certificate."""
    if text.count("-----BEGIN ") != text.count("-----END "):
        raise CertificateError(key, "it ends within a certificate; write the whole file")


def _load_revocations(context: ssl.SSLContext, path: str) -> None:
    check_revocations(path)
    try:
        context.load_verify_locations(cafile=path)  # `cadata` does not accept revocation lists
    except (ssl.SSLError, OSError) as error:
        raise CertificateError("client_crl", "expected a readable certificate revocation list") from error


def refusal_text(error: ssl.SSLError, host: str = "") -> str:
    """Return, in plain words, the reason for a failed handshake. `host` is the expected name of the peer."""
    if isinstance(error, ssl.SSLCertVerificationError):
        text = _UNVERIFIED.get(error.verify_code, f"its certificate is not accepted: {error.verify_message}")
        return text.format(host=host)
    reason: str = getattr(error, "reason", None) or ""  # errors that Python itself raises have no reason
    if reason in _REASONS:
        return _REASONS[reason]
    if "_ALERT_" in reason:
        return f"it ended the handshake: {reason.partition('_ALERT_')[2].replace('_', ' ').lower()}"
    return reason.replace("_", " ").lower() or str(error.args[-1])


_UNKNOWN_CA = "its certificate is signed by an unknown CA"
# OpenSSL's X509_V_ERR_* codes
_UNVERIFIED = {
    3: "the revocation list of the CA that signed its certificate is missing",
    8: "the revocation list of its CA is not signed by that CA",
    9: "its certificate is not valid yet",
    10: "its certificate has expired",
    11: "the revocation list of its CA is not valid yet",
    12: "the revocation list of its CA has expired",
    18: "its certificate is self-signed",
    19: _UNKNOWN_CA,
    20: _UNKNOWN_CA,
    21: _UNKNOWN_CA,
    23: "its certificate is revoked",
    26: "its certificate does not allow this purpose",
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
    "UNSUPPORTED_PROTOCOL": "it does not support TLS 1.2 or newer",
    "VERSION_TOO_LOW": "it does not support TLS 1.2 or newer",
    "TLSV1_ALERT_PROTOCOL_VERSION": "it does not support TLS 1.2 or newer",
    "NO_SHARED_CIPHER": "it does not support any of the ciphers",
    "PEER_DID_NOT_RETURN_A_CERTIFICATE": "it sent no certificate",
    "TLSV13_ALERT_CERTIFICATE_REQUIRED": "it requires a client certificate",
    "TLSV1_ALERT_UNKNOWN_CA": "it does not know the CA of the certificate that it got",
    "SSLV3_ALERT_CERTIFICATE_EXPIRED": "it says that the certificate that it got has expired",
    "SSLV3_ALERT_BAD_CERTIFICATE": "it does not accept the certificate that it got",
    "SSLV3_ALERT_CERTIFICATE_UNKNOWN": "it does not accept the certificate that it got",
    "SSLV3_ALERT_CERTIFICATE_REVOKED": "it says that the certificate that it got is revoked",
    "UNEXPECTED_EOF_WHILE_READING": "it closed the connection during the handshake",
}
