"""`balance: least_load` and the key `load`: what `gateway check` refuses and warns of, and where."""

import pytest

from gateway.assembly.load_reading import url_of
from tests.config.told import problems, read, warnings

CONFIG = """
listeners: [{name: rest, bind: "127.0.0.1:0", protocols: [v2-rest]}]
routes: [{match: {}, backend: lab}]
backends:
  lab: {protocol: PROTOCOL, endpoints: [ENDPOINT], policies: [{timeout: {seconds: 9}}], KEYS}
"""
GAUGE = 'from: prometheus, url: "http://{host}:9/metrics", metric: busy'
LEAST = "balance: least_load"


def text(keys: str, protocol: str = "v2-rest", endpoint: str = '"127.0.0.1:8000"') -> str:
    return CONFIG.replace("PROTOCOL", protocol).replace("ENDPOINT", endpoint).replace("KEYS", keys)


@pytest.mark.parametrize(
    ("keys", "protocol"),
    [
        ("balance: least_load", "v2-rest"),
        ("balance: least_load", "v2-grpc"),
        ("balance: least_load, flavor: triton", "v2-rest"),
        ("balance: least_load, load: {from: orca}", "v1-rest"),
        (f"balance: least_load, load: {{{GAUGE}, labels: {{model: m}}, measures: use}}", "mip"),
        ('balance: least_load, load: {url: "https://{host}:1{port}/m?x=1", interval: 0.5, stale: 2}', "v2-grpc"),
    ],
)
def test_what_is_sound(keys: str, protocol: str) -> None:
    assert read(text(keys, protocol)).backends["lab"].balance == "least_load"
    assert warnings(text(keys, protocol)) == []


@pytest.mark.parametrize(
    ("config", "expected"),
    [
        (text("balance: least_load", "v1-rest"), "'least_load' needs the key `load`, because the gateway cannot know"),
        (text("balance: least_load, flavor: mlserver"), "cannot know how mlserver servers report"),
        (text("balance: least_load, load: {from: prometheus, metric: x}"), "expected the key `url`"),
        (text('balance: least_load, load: {from: prometheus, url: "http://{host}:1/"}'),
         "expected the key `metric`: the gauge of a server's load"),
        (text(LEAST + ", load: {" + GAUGE.replace("busy", '"a b"') + "}"), "'a b' is not a valid metric name"),
        (text(LEAST + ", load: {" + GAUGE + ", labels: {a-b: c}}"), "'a-b' is not a valid label name"),
        (text("balance: least_load, load: {from: orca}", "mip"), "mip responses have no headers for load"),
        (text("balance: least_load, load: {stale: 0.5}"), "expected at least `interval`, which is 1, got 0.5"),
        (text("balance: least_load, load: {url: /metrics}"), "expected a URL such as http://{host}:8002/metrics, got"),
        (text('balance: least_load, load: {url: "http://{pod}:1"}'), "has {pod}; use only {host} and {port}"),
        (text('balance: least_load, load: {url: "http://a:b@c"}'), "the URL contains a password, which would not"),
        (text('balance: least_load, load: {url: "http://{host}:1/m#a"}'),
         "expected the URL of a page without a fragment (#...), got 'http://{host}:1/m#a'"),
        (text("balance: least_load, load: {from: statsd}"), "expected triton, prometheus or orca, got 'statsd'"),
        (text(LEAST + ", load: {" + GAUGE + "}", "mip", '"unix:/run/a"'),
         "a unix socket has no host for the server's load page; add `load_url`"),
    ],
)  # fmt: skip
def test_what_is_refused(config: str, expected: str) -> None:
    assert any(expected in each for each in problems(config))


@pytest.mark.parametrize(
    ("config", "expected"),
    [
        (text("load: {from: orca}"), "'load' has no effect: `balance` is least_in_flight"),
        (text("balance: least_load, load: {metric: x}"), "'metric' has no effect: `from` is triton"),
        (text("balance: least_load, load: {from: orca, interval: 2}"), "'interval' has no effect: `from` is orca"),
        (
            text("balance: least_in_flight", endpoint='{address: "a:1", load_url: "http://a:2/m"}'),
            "'load_url' has no effect: the gateway reads no load page",
        ),
    ],
)
def test_what_has_no_effect(config: str, expected: str) -> None:
    assert [expected in each for each in warnings(config)] == [True]


@pytest.mark.parametrize(
    ("pattern", "endpoint", "url"),
    [
        ("http://{host}:8002/metrics", "triton-0:8001", "http://triton-0:8002/metrics"),
        ("https://{host}:1{port}/m", "grpcs://triton-0:8001", "https://triton-0:18001/m"),
        ("http://{host}:8002/metrics", "http://[::1]:8000/prefix", "http://[::1]:8002/metrics"),
        ("http://pages:1/{host}", "10.0.0.1:8001", "http://pages:1/10.0.0.1"),
        ("http://{host}:9090/metrics", "unix:/run/model", "http://localhost:9090/metrics"),
    ],
)
def test_the_page_of_an_endpoint(pattern: str, endpoint: str, url: str) -> None:
    assert url_of(pattern, endpoint) == url
