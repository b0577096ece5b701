"""What `gateway check` says of the policy gather."""

import pytest

from gateway.cli.options import catalog
from gateway.config import ConfigError
from gateway.config.loading import loads_with_warnings

CONFIG = """listeners: [{name: a, bind: "127.0.0.1:0", protocols: [v2-rest]}]
backends:
  own: {PROTOCOL, endpoints: ["http://h:1"], policies: [{timeout: {seconds: 1}}, BACKEND]}
routes:
  - {match: {model: "*"}, backend: own, policies: [ROUTE]}
"""


def loaded(protocol: str = "v2-rest", backend: str = "gather: {}", route: str = "timeout: {seconds: 1}") -> list[str]:
    text = CONFIG.replace("PROTOCOL", f"protocol: {protocol}").replace("BACKEND", f"{{{backend}}}")
    _, warnings = loads_with_warnings(text.replace("ROUTE", f"{{{route}}}"), "g.yaml", catalog(), {})
    return [str(each) for each in warnings]


@pytest.mark.parametrize("policy", ["gather: {}", 'gather: {rows: 2, wait: 0, by: principal, models: ["a*", b]}'])
def test_it_is_for_backends_that_take_batches(policy: str) -> None:
    assert loaded(backend=policy) == []


@pytest.mark.parametrize(
    ("change", "text"),
    [
        ({"route": "gather: {}"}, ":5:53: gather is a policy for backends; move it to the backend 'own'"),
        (
            {"protocol": "umbridge"},
            "gather does nothing for a backend of umbridge, because each call is one row; remove it",
        ),
        (
            {"backend": "retry: {}}, {gather: {}"},
            "gather would see every attempt of a call; put this policy before retry",
        ),
        ({"backend": "gather: {rows: 1}"}, ":3:107: "),
        ({"backend": "gather: {by: host}"}, "expected auto, none, client or principal, got 'host'"),
    ],
)
def test_errors_name_place_and_remedy(change: dict[str, str], text: str) -> None:
    with pytest.raises(ConfigError) as refused:
        loaded(**change)
    assert text in str(refused.value)
