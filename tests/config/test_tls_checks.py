from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    PrivateFormat,
    load_pem_private_key,
)

from gateway.cli.options import catalog
from gateway.config import ConfigError
from gateway.config.loading import loads_with_warnings
from tests.tls.certificates import Authority, Files

HEAD = 'listeners:\n- {name: a, protocols: [v2-rest], bind: "127.0.0.1:1",\n   tls: TLS}\n'
BACKEND = HEAD.replace(",\n   tls: TLS", "") + (
    "backends:\n  b: {protocol: v2-grpc, endpoints: [ADDRESS], policies: [{timeout: {seconds: 1}}],\n   tls: TLS}\n"
    "routes: [{match: {model: m}, backend: b}]\n"
)


@pytest.fixture
def files(tmp_path: Path) -> Files:
    return Authority().issue(tmp_path, "localhost")


def found(text: str) -> list[str]:
    """The errors and warnings, without the name of the file."""
    try:
        problems = loads_with_warnings(text, "f", catalog(), {})[1]
    except ConfigError as error:
        problems = error.problems
    return [str(each).removeprefix("f:") for each in problems if "`routes` is empty" not in each.message]


def test_files_that_fit_are_accepted(files: Files) -> None:
    assert found(HEAD.replace("TLS", files.server)) == []
    assert found(HEAD.replace("TLS", files.asking("optional"))) == []
    own = f"{{ca: {files.ca}, certificate: {files.certificate}, key: {files.key}}}"
    assert found(BACKEND.replace("TLS", own).replace("ADDRESS", "grpcs://h:1")) == []


def test_files_that_cannot_be_used_are_named_with_their_place(files: Files, tmp_path: Path) -> None:
    other = Authority().issue(tmp_path, "localhost", stem="other")
    locked = tmp_path / "locked.key"
    readable = load_pem_private_key(files.key.read_bytes(), None)
    locked.write_bytes(readable.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, BestAvailableEncryption(b"secret")))
    rows = {
        (files.certificate, other.key): "cannot be used: the private key does not belong to the certificate",
        (tmp_path / "none", files.key): "cannot be used: cannot read the file: no such file",
        (files.key, files.key): "cannot be used: expected a certificate in PEM",
        (files.certificate, files.ca): "cannot be used: expected a private key in PEM",
        (files.certificate, locked): "cannot be used: it has a passphrase; store the key without a passphrase",
        (tmp_path, files.key): "cannot be used: not a regular file",
        (files.certificate, "tls.key"): "expected an absolute path, got 'tls.key'",
    }
    for (certificate, key), text in rows.items():
        [line] = found(HEAD.replace("TLS", f"{{certificate: {certificate}, key: {key}}}"))
        assert line.startswith("3:")
        assert text in line


def test_keys_that_do_not_fit_together(files: Files) -> None:
    pair = f"certificate: {files.certificate}, key: {files.key}"
    rows = {
        HEAD.replace("TLS", f"{{{pair}, client: required}}"): "'required' needs client_ca",
        HEAD.replace("TLS", f"{{{pair}, client_ca: {files.ca}}}"): "needs client: optional or required",
        HEAD.replace("TLS", files.server).replace("v2-rest", "mip").replace("127.0.0.1:1", "unix:///run/a"):
            "a unix socket has no TLS",
        BACKEND.replace("TLS", f"{{certificate: {files.certificate}}}").replace("ADDRESS", "h:1"): "needs key",
        BACKEND.replace("TLS", f"{{ca: {files.ca}, verify: false}}").replace("ADDRESS", "h:1"): "has no effect with",
        BACKEND.replace("TLS", "{}").replace("v2-grpc", "v2-rest").replace("ADDRESS", '"http://h:1"'):
            "'http://h:1' is an address without TLS; change one of them",
    }  # fmt: skip
    for text, why in rows.items():
        assert any(why in line for line in found(text)), (why, found(text))


def test_what_is_probably_a_mistake_is_a_warning(tmp_path: Path) -> None:
    expired = Authority().issue(tmp_path, "localhost", days=-1)
    day = (datetime.now(UTC) - timedelta(days=1)).date()
    [line] = found(HEAD.replace("TLS", expired.server))
    assert "warning: the certificate in " in line
    assert line.endswith(f" expired at {day}; renew it")
    [line] = found(BACKEND.replace("TLS", "{verify: false}").replace("ADDRESS", "h:1"))
    assert "warning: server certificates are not checked" in line
