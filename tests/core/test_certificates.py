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


NAMES = (("DNS", "a.lab"), ("IP Address", "10.0.0.1"), ("URI", "spiffe://lab/a"), ("URI", "spiffe://lab/b"))
SUBJECT = ((("organizationName", "lab"),), (("commonName", "worker 7"),))


def test_the_identity_is_the_first_uri_else_the_first_dns_name_else_the_common_name() -> None:
    assert identity({"subjectAltName": NAMES, "subject": SUBJECT}) == "spiffe://lab/a"
    assert identity({"subjectAltName": NAMES[:2], "subject": SUBJECT}) == "a.lab"
    assert identity({"subjectAltName": NAMES[1:2], "subject": SUBJECT}) == "worker 7"
    assert identity({"subject": SUBJECT[:1]}) == ""
    assert identity({"subject": ((("commonName", "two\nlines"),),)}) == ""
    assert identity(None) == identity({}) == ""
