"""Files of certificates that were emptied, or cut while they were being written, cannot be used."""

from pathlib import Path

import pytest

from gateway.core.certificates import CertificateError, TlsFiles
from gateway.transports.certificates import client_context, server_context
from tests.tls.certificates import Authority, Files


@pytest.fixture
def files(tmp_path: Path) -> Files:
    return Authority().issue(tmp_path, "localhost")


def cuts(content: bytes) -> list[int]:
    """Where to cut: nothing is left, each end of a line within a block, and some bytes before it."""
    lines = content.splitlines(keepends=True)
    ends = [sum(map(len, lines[: at + 1])) for at, line in enumerate(lines) if not line.startswith(b"-----END")]
    return [0, *ends, *(end - 5 for end in ends)]


@pytest.mark.parametrize("part", ["certificate", "key", "ca"])
def test_a_cut_file_cannot_be_used(files: Files, part: str) -> None:
    path: Path = getattr(files, part)
    # Several of them in one file: the first ones are whole.
    whole = path.read_bytes() if part == "key" else 2 * path.read_bytes()
    path.write_bytes(whole)
    own = TlsFiles(str(files.certificate), str(files.key), str(files.ca))
    server_context(own, "required")
    client_context(own)
    for at in cuts(whole):
        path.write_bytes(whole[:at])
        with pytest.raises(CertificateError):
            server_context(own, "required")
        with pytest.raises(CertificateError):
            client_context(own)
