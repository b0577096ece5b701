"""What `gateway check` says of the policy gather."""

import pytest

from tests.config.told import problem, warnings

CONFIG = """listeners: [{name: a, bind: "127.0.0.1:0", protocols: [v2-rest]}]
backends:
  own: {PROTOCOL, endpoints: ["http://h:1"], policies: [{timeout: {seconds: 1}}, BACKEND]}
routes:
  - {match: {model: "*"}, backend: own, policies: [ROUTE]}
"""


def config(protocol: str = "v2-rest", backend: str = "gather: {}", route: str = "timeout: {seconds: 1}") -> str:
    text = CONFIG.replace("PROTOCOL", f"protocol: {protocol}").replace("BACKEND", f"{{{backend}}}")
    return text.replace("ROUTE", f"{{{route}}}")


@pytest.mark.parametrize("policy", ["gather: {}", 'gather: {rows: 2, wait: 0, by: principal, models: ["a*", b]}'])
def test_it_is_for_backends_that_take_batches(policy: str) -> None:
    assert warnings(config(backend=policy)) == []


@pytest.mark.parametrize(
    ("change", "text"),
    [
        ({"route": "gather: {}"}, "5:53: gather is a policy for backends; move it to the backend 'own'"),
        (
            {"protocol": "umbridge"},
            "gather does nothing for a backend of umbridge, because each call is one row; remove it",
        ),
        (
            {"backend": "retry: {}}, {gather: {}"},
            "gather would see every attempt of a call; put this policy before retry",
        ),
        ({"backend": "gather: {rows: 1}"}, "3:107: "),
        ({"backend": "gather: {by: host}"}, "expected auto, none, client or principal, got 'host'"),
    ],
)
def test_errors_name_place_and_remedy(change: dict[str, str], text: str) -> None:
    assert text in problem(config(**change))
