"""`log.payloads`: what is wrong with it is told with its place."""

import pytest

from gateway.config.observing import PayloadLogConfig
from tests.config import told

TEXT = """
listeners: [{name: http, bind: "127.0.0.1:0", protocols: [grps-rest, v2-rest]}]
log: {payloads: {SETTINGS}}
backends:
  a: {protocol: v2-rest, endpoints: ["127.0.0.1:1"]}
  g: {protocol: grps-rest, endpoints: ["127.0.0.1:2"]}
routes:
  - {match: {model: "fraud*"}, backend: a}
  - {match: {path: /own}, backend: g, passthrough: true}
"""


def read(settings: str) -> PayloadLogConfig:
    found = told.read(TEXT.replace("SETTINGS", settings)).log.payloads
    assert found is not None
    return found


@pytest.mark.parametrize(
    ("settings", "text"),
    [
        ("to: log", "expected the absolute path of a file, or a URL such as http://127.0.0.1:8080/, got 'log'"),
        ('to: "ftp://a/"', "expected the absolute path of a file, or a URL"),
        ('to: "http://me:secret@a/"', "the URL contains a password, which would not stay secret; use a header in"),
        ('to: "http://a/ b"', "expected a URL without a fragment, in visible ASCII characters"),
        ("to: /log, sample: 2", "must be at most 1, got 2"),
        ("to: /log, max_bytes: 64 kB", "expected a number of bytes, or one with a unit (KiB, MiB, GiB, TiB) such as"),
        ("to: /log, max_bytes: 0", "3:"),
        ("to: /log, memory: '10'", "3:"),
        ("to: /log, events: batch", "is for a URL in `to`, but `to` is a file; remove it"),
        ('to: "http://a/", tls: {}', "needs https in `to`"),
        ('to: "https://a/", tls: {ca: ca.pem}', "expected an absolute path, got 'ca.pem'"),
        ("to: /log, routes: [fraud]", "unknown route or graph 'fraud'; did you mean 'fraud*'?"),
        ("to: /log, routes: [path=/own]", "'path=/own' has passthrough, so the gateway"),
    ],
)  # fmt: skip
def test_what_is_wrong_is_told(settings: str, text: str) -> None:
    found = told.problem(TEXT.replace("SETTINGS", settings))
    assert text in found
    assert "secret@" not in found


@pytest.mark.parametrize(("written", "number"), [("65536", 65536), ("64KiB", 65536), ("1.5 MiB", 1572864), ("10B", 10)])
def test_bytes_may_have_a_unit(written: str, number: int) -> None:
    assert read(f"to: /log, memory: {written}").memory == number


def test_the_defaults_are_small() -> None:
    found = read("to: /log, routes: [fraud*]")
    assert (found.sample, found.max_bytes, found.hide, found.memory) == (0.01, 65536, (), 67108864)
