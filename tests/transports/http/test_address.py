import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from gateway.transports.http.address import HttpAddress, parse_address

GOOD = {
    "127.0.0.1:8000": HttpAddress("127.0.0.1", 8000, "127.0.0.1:8000"),
    "triton-0:8000": HttpAddress("triton-0", 8000, "triton-0:8000"),
    "my_service.ns.svc.cluster.local.:80": HttpAddress(
        "my_service.ns.svc.cluster.local.", 80, "my_service.ns.svc.cluster.local."
    ),
    "[::1]:8000": HttpAddress("::1", 8000, "[::1]:8000"),
    "http://127.0.0.1:4242": HttpAddress("127.0.0.1", 4242, "127.0.0.1:4242"),
    "http://127.0.0.1:4242/": HttpAddress("127.0.0.1", 4242, "127.0.0.1:4242"),
    "http://host/models/a%20b/": HttpAddress("host", 80, "host", "/models/a%20b"),
    "HTTP://Host:80": HttpAddress("host", 80, "host"),
    "https://host": HttpAddress("host", 443, "host", tls=True),
    "https://[fd00::1]:8443/x": HttpAddress("fd00::1", 8443, "[fd00::1]:8443", "/x", tls=True),
}
BAD = {
    "": "it has no host",
    "host": "it has no port",
    ":8000": "it has no host",
    "host:": "port",
    "host:0": "its port is not between 1 and 65535",
    "host:65536": "[Pp]ort",
    "host:http": "[Pp]ort",
    "host:8000/v2": "a path needs a scheme",
    "::1:8000": "needs brackets",
    "[::1:8000": "Invalid IPv6",
    "[host]:80": "bad address",
    "ftp://host:21": "the scheme 'ftp' is not one of http, https",
    "http://": "it has no host",
    "http://user:secret@host": "it holds credentials",
    "http://host?x=1": "a query or a fragment",
    "http://host/#": "a query or a fragment",
    "http://host/a b": "a blank",
    "host:80\r\n": "a blank",
    "http://host//x": "percent-encoded",
    "http://host/%zz": "percent-encoded",
    "hö.st:80": "outside ASCII",
    "a..b:80": "is not a host name",
    "-a:80": "is not a host name",
    f"{'a' * 64}:80": "is not a host name",
}


@pytest.mark.parametrize(("text", "address"), GOOD.items())
def test_an_address_is_read(text: str, address: HttpAddress) -> None:
    assert parse_address(text) == address


@pytest.mark.parametrize(("text", "why"), BAD.items())
def test_a_bad_address_is_refused_saying_why(text: str, why: str) -> None:
    with pytest.raises(ValueError, match=f"{why}.*expected host:port or"):
        parse_address(text)


@given(st.text(alphabet="ah:/[]@?#%.0198 \t-é", max_size=20) | st.text(max_size=20))
@example("http://[v1.x]/")
def test_any_text_is_an_address_or_a_value_error(text: str) -> None:
    try:
        address = parse_address(text)
    except ValueError:
        return
    assert 0 < address.port < 65536
    assert parse_address(f"http://{address.authority}{address.prefix}").host == address.host


def test_spellings_of_one_address_are_equal() -> None:
    assert parse_address("http://[0::1]:80/") == parse_address("[::1]:80")
    assert parse_address("HTTP://Localhost") == parse_address("localhost:80")
