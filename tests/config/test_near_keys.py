"""Keys under the names that other programs or readers have for them: the error names the key that is meant."""

import pytest

from tests.config.told import problem

CONFIG = """
listeners: [{name: a, bind: "127.0.0.1:0", protocols: [v2-rest]}]
LOG
backends:
  b: {protocol: v2-rest, endpoints: ["h:1"], safe: true, BACKEND}
  c: {protocol: v2-rest, endpoints: ["h:2"]}
routes: [{match: {model: "*"}, backend: b}]
"""


@pytest.mark.parametrize(
    ("backend", "text"),
    [
        ("most: 4", "unknown key 'most'; did you mean 'max_in_flight'?"),
        ("placement: {load: on_demand}", "unknown key 'load'; did you mean 'loading'?"),
        ("placement: {most: 8}", "unknown key 'most'; did you mean 'max_models'?"),
        ("placement: {maximum_models: 8}", "unknown key 'maximum_models'; did you mean 'max_models'?"),
        ("placement: {least_stay: 1m}", "unknown key 'least_stay'; did you mean 'min_stay'?"),
        ("health: {ejection: {most: 0.5}}", "unknown key 'most'; did you mean 'max_ejected_share'?"),
        ("policies: [{concurrency_limit: {most: 5}}]", "unknown key 'most'; did you mean 'max_calls'?"),
        ("policies: [{concurrency_limit: {least: 5}}]", "unknown key 'least'; did you mean 'min_calls'?"),
        ("policies: [{hedge: {least: 1}}]", "unknown key 'least'; did you mean 'min_delay'?"),
        ("policies: [{retry: {longest: 1}}]", "unknown key 'longest'; did you mean 'max_backoff'?"),
        ("policies: [{mirror: {backend: c, share: 1}}]", "unknown key 'share'; did you mean 'sample'?"),
        (
            "policies: [{cache: {redis: {url: 'redis://r', name: n, largest: 9}}}]",
            "unknown key 'largest'; did you mean 'max_response_bytes'?",
        ),
        ("policies: [{hedge: {most: 1}}]", "unknown key 'most'; expected min_delay or percentile"),
    ],
)
def test_the_key_that_is_meant_is_proposed(backend: str, text: str) -> None:
    assert problem(CONFIG.replace("BACKEND", backend).replace("LOG", "")).endswith(f": {text}")


@pytest.mark.parametrize(("key", "meant"), [("share", "sample"), ("most_bytes", "max_bytes")])
def test_keys_of_the_payload_log(key: str, meant: str) -> None:
    log = f"log: {{payloads: {{to: /log, {key}: 1}}}}"
    told = problem(CONFIG.replace(", BACKEND", "").replace("LOG", log))
    assert told.endswith(f": unknown key '{key}'; did you mean '{meant}'?")
