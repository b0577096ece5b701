"""`tracing`: what is wrong with it is told with its place."""

import json

import pytest

from tests.config.told import problem, read

SOUND = """
listeners: [{name: http, bind: "127.0.0.1:0", protocols: [umbridge]}]
tracing: {otlp: URL}
"""


@pytest.mark.parametrize(
    ("url", "text"),
    [
        ("collector:4317", "3:17: expected a URL such as http://127.0.0.1:4318, got 'collector:4317'"),
        ("http://me:secret@c", "3:17: the URL contains a password, which would not stay secret; use a header in"),
    ],
)
def test_a_wrong_url_is_told(url: str, text: str) -> None:
    told = problem(SOUND.replace("URL", f'"{url}"'))
    assert told.startswith(text)
    assert "secret@" not in told


def test_the_package_that_is_missing_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gateway.config.observing.find_spec", lambda name: None)
    told = problem(SOUND.replace("URL", '"http://c"'))
    assert told == '3:17: needs the package of the extra `tracing`: pip install "modelglot[tracing]"'


@pytest.mark.parametrize(
    ("url", "used"), [("http://c:4318", "http://c:4318/v1/traces"), ("https://c/otlp/traces", "https://c/otlp/traces")]
)
def test_a_url_without_a_path_gets_that_of_traces(url: str, used: str) -> None:
    tracing = read(SOUND.replace("URL", f'"{url}"')).tracing
    assert tracing is not None
    assert tracing.otlp == used


@pytest.mark.parametrize("value", [" hidden", "hidden ", "hid\nden", "hid\u20acden", "\x7fhidden"])
def test_a_header_that_cannot_be_sent_is_told_without_it(value: str) -> None:
    told = problem(SOUND.replace("URL", f'"http://c", headers: {{x-key: {json.dumps(value)}}}'))
    assert told.startswith("3:46: the value is invalid in a header: expected visible ASCII characters")
    assert "hid" not in told


def test_a_header_may_have_spaces_within() -> None:
    tracing = read(SOUND.replace("URL", '"http://c", headers: {a: "Basic x ~"}')).tracing
    assert tracing is not None
    assert tracing.headers["a"].get_secret_value() == "Basic x ~"
