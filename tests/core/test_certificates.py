import ssl
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from gateway.core.certificates import expiry, identity
from tests.tls.certificates import Authority


@pytest.mark.parametrize("year", [2049, 2050])
def test_the_expiry_is_read_in_both_forms_of_time(tmp_path: Path, year: int) -> None:
    """RFC 5280: two digits of the year until 2049, four from 2050 on."""
    days = (datetime(year, 6, 1, tzinfo=UTC) - datetime.now(UTC)) / timedelta(days=1)
    files = Authority().issue(tmp_path, "localhost", days=days)
    assert abs(expiry(str(files.certificate)) - datetime(year, 6, 1, tzinfo=UTC)) < timedelta(minutes=1)


def test_the_expiry_of_a_certificate_of_the_first_version_is_read(tmp_path: Path) -> None:
    """RFC 5280, section 4.1: it does not tell its version."""

    def element(kind: int, *contents: bytes) -> bytes:
        content = b"".join(contents)
        return bytes([kind, len(content)]) + content

    times = element(0x17, b"260101000000Z"), element(0x17, b"270203040506Z")
    told = element(0x30, element(0x02, b"\7"), element(0x30), element(0x30), element(0x30, *times))
    (tmp_path / "first.pem").write_text(ssl.DER_cert_to_PEM_cert(element(0x30, told)))
    assert expiry(str(tmp_path / "first.pem")) == datetime(2027, 2, 3, 4, 5, 6, tzinfo=UTC)


NAMES = (("DNS", "a.lab"), ("IP Address", "10.0.0.1"), ("URI", "spiffe://lab/a"), ("URI", "spiffe://lab/b"))
SUBJECT = ((("organizationName", "lab"),), (("commonName", "worker 7"),))


def test_the_identity_is_the_first_uri_else_the_first_dns_name_else_the_common_name() -> None:
    assert identity({"subjectAltName": NAMES, "subject": SUBJECT}) == "spiffe://lab/a"
    assert identity({"subjectAltName": NAMES[:2], "subject": SUBJECT}) == "a.lab"
    assert identity({"subjectAltName": NAMES[1:2], "subject": SUBJECT}) == "worker 7"
    assert identity({"subject": SUBJECT[:1]}) == ""
    assert identity({"subject": ((("commonName", "two\nlines"),),)}) == ""
    assert identity(None) == identity({}) == ""
