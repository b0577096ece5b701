"""What `gateway check` says of wrong keys of circuit_breaker, concurrency_limit and rate_limit."""

import pytest

from tests.config.told import problem, read

CONFIG = """listeners: [{name: a, bind: "127.0.0.1:0", protocols: [v2-rest]}]
backends:
  b:
    protocol: v2-rest
    endpoints: ["h:1"]
    policies:
      - POLICY
routes: [{match: {model: "*"}, backend: b}]
"""


@pytest.mark.parametrize(
    ("policy", "text"),
    [
        ("circuit_braker: {}", "7:9: unknown policy 'circuit_braker'; did you mean 'circuit_breaker'?"),
        ("circuit_breaker: {failure: 1}", "7:27: unknown key 'failure'; did you mean 'failures'?"),
        ("circuit_breaker: {share: 1}", "7:34: must be below 1, got 1"),
        ("circuit_breaker: {statuses: [INTERNL]}", "7:38: expected"),
        ("concurrency_limit: {}", "7:28: expected either calls: NUMBER or adaptive: gradient"),
        ("concurrency_limit: {calls: many}", "7:36: expected a whole number, got 'many'"),
        ("rate_limit: {requests: 1, by: user}", "7:39: expected"),
        ("rate_limit: {seconds: 1}", "7:21: the key 'requests' is missing"),
        ('rate_limit: {requests: 1, redis: "${SECRET}"}', "7:42: expected a URL that begins with redis://"),
    ],
)
def test_errors_name_place_and_remedy(policy: str, text: str) -> None:
    told = problem(CONFIG.replace("POLICY", policy), SECRET="a-secret-word")
    assert told.startswith(text)
    assert "a-secret-word" not in told


@pytest.mark.parametrize(
    "policy", ["circuit_breaker:", "concurrency_limit: {adaptive: gradient}", "rate_limit: {requests: 1}"]
)
def test_the_defaults_are_enough(policy: str) -> None:
    read(CONFIG.replace("POLICY", policy))
