"""What `gateway check` says of policies: of wrong keys, and of places where they do nothing or too much."""

import pytest

from tests.config.told import problem, read, warnings

CONFIG = """listeners: [{name: a, bind: "127.0.0.1:0", protocols: [v2-rest, grps-rest]}]
backends:
  own: {protocol: v2-rest, endpoints: ["http://h:1"], policies: [{timeout: {seconds: 1}}]}
  next: {protocol: v2-rest, endpoints: ["h:2"], policies: [{timeout: {seconds: 1}}]}
routes:
  - match: {model: "*"}
    backend: own
    policies:
      - POLICY
  - {match: {model: n}, backend: next}
"""
MIRROR = "mirror: {backend: next}"


def of_route(policy: str) -> str:
    return CONFIG.replace("POLICY", policy)


def of_backend(policy: str) -> str:
    return of_route("timeout: {seconds: 1}").replace(
        "{timeout: {seconds: 1}}]", f"{{timeout: {{seconds: 1}}}}, {{{policy}}}]", 1
    )


@pytest.mark.parametrize(
    ("policy", "text"),
    [
        ("circuit_braker: {}", "9:9: unknown policy 'circuit_braker'; did you mean 'circuit_breaker'?"),
        ("circuit_breaker: {failure: 1}", "9:27: unknown key 'failure'; did you mean 'failures'?"),
        ("circuit_breaker: {share: 1}", "9:34: must be below 1, got 1"),
        ("circuit_breaker: {statuses: [INTERNL]}", "9:38: expected"),
        ("concurrency_limit: {}", "9:28: expected either calls: NUMBER or adaptive: gradient"),
        ("concurrency_limit: {calls: many}", "9:36: expected a whole number, got 'many'"),
        ("rate_limit: {requests: 1, by: user}", "9:39: expected"),
        ("rate_limit: {seconds: 1}", "9:21: the key 'requests' is missing"),
        ('rate_limit: {requests: 1, redis: "${SECRET}"}', "9:42: expected a URL that begins with redis://"),
        ("mirror: {}", "9:17: the key 'backend' is missing"),
        ("mirror: {backend: nxt}", "9:27: unknown backend 'nxt'; did you mean 'next'?"),
        ("mirror: {backend: next, sample: 2}", "9:41: "),
        ("mirror: {backend: next, sampel: 1}", "9:33: unknown key 'sampel'; did you mean 'sample'?"),
        ("mirror: {backend: next, tolerance: {rtl: 1}}", "9:45: unknown key 'rtl'; did you mean 'rtol'?"),
        ("mirror: {backend: next, tolerance: {rtol: -1}}", "9:51: "),
        ("mirror: {backend: next, rename: {inputs: [{client: a}]}}", "9:51: the key 'backend' is missing"),
        (
            f"retry: {{}}\n      - {MIRROR}",
            "10:9: mirror would see every attempt of a call; put this policy before retry",
        ),
        ("gather: {}", "9:9: gather is a policy for backends; move it to the backend 'own'"),
    ],
)
def test_a_wrong_policy_of_a_route(policy: str, text: str) -> None:
    told = problem(of_route(policy), SECRET="a-secret-word")
    assert told.startswith(text)
    assert "a-secret-word" not in told


@pytest.mark.parametrize(
    ("policy", "text"),
    [
        (MIRROR, "3:92: mirror is a policy for routes; move it to a route to the backend 'own'"),
        ("retry: {}}, {gather: {}", "3:105: gather would see every attempt of a call; put this policy before retry"),
        ("gather: {rows: 1}", "3:107: "),
        ("gather: {by: host}", "3:105: expected auto, none, client or principal, got 'host'"),
    ],
)
def test_a_wrong_policy_of_a_backend(policy: str, text: str) -> None:
    assert problem(of_backend(policy)).startswith(text)


def test_gathering_is_for_backends_that_take_batches() -> None:
    assert problem(of_backend("gather: {}").replace("v2-rest, endpoints", "umbridge, endpoints", 1)) == (
        "3:93: gather does nothing for a backend of umbridge, because each call is one row; remove it"
    )


def test_a_mirror_does_nothing_with_passthrough() -> None:
    text = of_route(MIRROR).replace("protocol: v2-rest", "protocol: grps-rest")
    text = text.replace('match: {model: "*"}', "passthrough: true\n    match: {path: /v1/chat}")
    assert problem(text) == (
        "10:9: mirror does nothing on a route with passthrough, whose messages the gateway does not decode; remove it"
    )


def test_the_backend_of_a_mirror_is_used_and_needs_no_timeout() -> None:
    text = of_route(MIRROR).replace("  - {match: {model: n}, backend: next}\n", "")
    assert warnings(text.replace('"h:2"], policies: [{timeout: {seconds: 1}}]', '"h:2"]')) == []


@pytest.mark.parametrize(
    "text",
    [
        *map(of_route, ("circuit_breaker:", "concurrency_limit: {adaptive: gradient}", "rate_limit: {requests: 1}")),
        of_route(f"{MIRROR}\n      - retry: {{}}"),
        *map(of_backend, ("gather: {}", 'gather: {rows: 2, wait: 0, by: principal, models: ["a*", b]}')),
    ],
)
def test_sound_policies(text: str) -> None:
    read(text)
