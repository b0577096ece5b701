"""What `gateway check` says of the policy mirror."""

import pytest

from tests.config.told import problem, read, warnings

CONFIG = """listeners: [{name: a, bind: "127.0.0.1:0", protocols: [v2-rest, grps-rest]}]
backends:
  own: {protocol: v2-rest, endpoints: ["h:1"], policies: [{timeout: {seconds: 1}}]}
  next: {protocol: v2-rest, endpoints: ["h:2"]}
routes:
  - match: {model: "*"}
    backend: own
    policies:
      - POLICY
"""
MIRROR = "mirror: {backend: next}"


@pytest.mark.parametrize(
    ("policy", "text"),
    [
        ("mirror: {}", "9:17: the key 'backend' is missing"),
        ("mirror: {backend: nxt}", "9:27: unknown backend 'nxt'; did you mean 'next'?"),
        ("mirror: {backend: next, sample: 2}", "9:41: "),
        ("mirror: {backend: next, sampel: 1}", "9:33: unknown key 'sampel'; did you mean 'sample'?"),
        ("mirror: {backend: next, tolerance: {rtl: 1}}", "9:45: unknown key 'rtl'; did you mean 'rtol'?"),
        ("mirror: {backend: next, tolerance: {rtol: -1}}", "9:51: "),
        ("mirror: {backend: next, rename: {inputs: [{client: a}]}}", "the key 'backend' is missing"),
    ],
)
def test_errors_name_place_and_remedy(policy: str, text: str) -> None:
    assert text in problem(CONFIG.replace("POLICY", policy))


def test_the_backend_of_a_mirror_is_used_and_needs_no_timeout() -> None:
    assert warnings(CONFIG.replace("POLICY", MIRROR)) == []


def test_a_mirror_belongs_to_a_route() -> None:
    text = CONFIG.replace("POLICY", "timeout: {seconds: 1}").replace("[{timeout: {seconds: 1}}]", f"[{{{MIRROR}}}]")
    text = text.replace('"h:2"]', '"h:2"], policies: [{timeout: {seconds: 1}}]')
    assert problem(text) == "3:60: mirror is a policy for routes; move it to a route to the backend 'own'"


def test_a_mirror_within_retries_would_see_each_try() -> None:
    text = CONFIG.replace("POLICY", f"retry: {{}}\n      - {MIRROR}")
    assert problem(text) == "10:9: mirror would see every attempt of a call; put this policy before retry"
    read(CONFIG.replace("POLICY", f"{MIRROR}\n      - retry: {{}}"))


def test_a_mirror_does_nothing_with_passthrough() -> None:
    text = CONFIG.replace("POLICY", MIRROR).replace("protocol: v2-rest", "protocol: grps-rest")
    text = text.replace('match: {model: "*"}', "passthrough: true\n    match: {path: /v1/chat}")
    assert problem(text) == (
        "10:9: mirror does nothing on a route with passthrough, whose messages the gateway does not decode; remove it"
    )
