"""What `gateway check` warns of: literal YAML to the exact warnings."""

from fnmatch import fnmatchcase
from itertools import product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.config import loads_with_warnings
from gateway.config.unreachable import covers, unreachable_routes
from tests.config.toys import CATALOG, ENVIRON, SOUND

LISTENERS = """\
listeners:
- {name: http, bind: "127.0.0.1:80", protocols: [v2-rest, umbridge, nameless]}
- {name: other, bind: "0.0.0.0:81", protocols: [umbridge]}
- {name: socket, bind: "unix:///run/g.sock", protocols: [packets]}
- {name: six, bind: "[::]:83", protocols: [messages]}
"""
TIMEOUT = "policies: [{timeout: {seconds: 1}}]"
ONE = "  a: {protocol: umbridge, endpoints: ['h:1']}\n"


def warnings(text: str) -> list[str]:
    _, found = loads_with_warnings(text, "g.yaml", CATALOG, ENVIRON)
    return [str(each).removeprefix("g.yaml:") for each in found]


def of_backends(*backends: str) -> list[str]:
    """The warnings about backends, to which a timeout is added."""
    names = [each.partition(":")[0] for each in backends]
    backends = tuple(f"{each.removesuffix('}')}, {TIMEOUT}}}" for each in backends)
    routes = "".join(f"- {{match: {{model: {name}}}, backend: {name}}}\n" for name in names)
    return warnings(f"{LISTENERS}backends:\n" + "".join(f"  {each}\n" for each in backends) + f"routes:\n{routes}")


def of_routes(*matches: str) -> list[str]:
    routes = "".join(f"- {{match: {{{match}}}, backend: a, rewrite: {{model: m}}}}\n" for match in matches)
    return [each.partition("warning: ")[2] for each in warnings(f"{LISTENERS}backends:\n{ONE}routes:\n{routes}")]


def test_the_sound_configuration_has_no_warnings() -> None:
    assert warnings(SOUND) == []


@pytest.mark.parametrize("end", ["", "routes: []\n"])
def test_no_routes(end: str) -> None:
    place = "9:1" if end else "1:1"
    text = LISTENERS + "backends:\n" + ONE + "  # nobody's\n" + end
    assert warnings(text) == [
        f"{place}: warning: `routes` is empty, so the gateway cannot answer any request; add a route"
    ]


TRUE = (
    "warning: the key 'true' is probably another word: YAML 1.1, which Helm reads, turns y, yes and on into true; "
    'quote the original key, such as "y"'
)
FALSE = (
    TRUE.replace("'true'", "'false'")
    .replace("y, yes and on into true", "n, no and off into false")
    .replace('"y"', '"n"')
)
STEP = """\
models:
  m:
    inputs: {x: "FP64 [1]"}
    steps: {s: {model: n, inputs: {"true": $x}}}
    outputs: {"false": $s}
"""


def test_names_that_yaml_1_1_has_made_booleans() -> None:
    """As Helm writes the keys `y` and `n`: only a request would tell that the model has no tensor of this name."""
    route = "routes: [{match: {model: n}, backend: a, signature: {inputs: [{name: x, datatype: FP64, shape: [1]}]}}]\n"
    text = f"{LISTENERS}backends:\n  a: {{protocol: umbridge, endpoints: ['h:1'], {TIMEOUT}}}\n{route}{STEP}"
    assert warnings(text) == [f"12:36: {TRUE}", f"13:15: {FALSE}"]


def test_a_backend_that_no_route_names() -> None:
    text = f"{LISTENERS}backends:\n{ONE}{ONE.replace('a:', 'b:')}routes: [{{match: {{model: m}}, backend: a}}]\n"
    assert warnings(text) == ["8:3: warning: no route uses backend 'b'; add a route, or remove the backend"]


@pytest.mark.parametrize(
    ("protocol", "endpoint", "path"),
    [
        ("umbridge", "http://h/Evaluate", "/Evaluate"),
        ("umbridge", "http://h/lab/Info/", "/Info"),
        ("v2-rest", "http://h/v2", "/v2/models/{model}/infer"),
        ("v2-rest", "http://h/a/v2/models/m/infer", "/v2/models/{model}/infer"),
        ("messages", "http://h/messages", "/messages/predict"),
    ],
)
def test_the_protocols_own_path_on_an_endpoint(protocol: str, endpoint: str, path: str) -> None:
    text = f"{protocol} appends its own paths, such as {path}, to the path of '{endpoint}'"
    text += "; remove this part from the path"
    column = len(f"  a: {{protocol: {protocol}, endpoints: [") + 1
    assert of_backends(f"a: {{protocol: {protocol}, endpoints: ['{endpoint}']}}") == [f"7:{column}: warning: {text}"]


@pytest.mark.parametrize(
    ("protocol", "endpoint"),
    [
        ("umbridge", "http://h/lab"),
        ("umbridge", "http://h/"),
        ("umbridge", "http://h/Evaluate/lab"),
        ("v2-rest", "http://h/lab/v3"),
        ("v2-rest", "http://h/v2/lab"),
        ("nameless", "http://h/nameless"),  # a server without models' names may be anywhere
    ],
)
def test_other_paths_on_endpoints_are_meant(protocol: str, endpoint: str) -> None:
    assert of_backends(f"a: {{protocol: {protocol}, endpoints: ['{endpoint}']}}") == []


def test_two_spellings_of_one_endpoint() -> None:
    text = "is another spelling of endpoints[0]; remove one of them"
    assert of_backends("a: {protocol: umbridge, endpoints: ['h:80', 'http://H', 'i:80', 'h:81', 'http://h/']}") == [
        f"7:47: warning: 'http://H' {text}",
        f"7:75: warning: 'http://h/' {text}",
    ]
    assert of_backends(*(f"{name}: {{protocol: umbridge, endpoints: ['h:80']}}" for name in "ab")) == []


ENDPOINTS = {
    "http": ("127.0.0.1:80", "localhost:80", "http://LOCALHOST", "0.0.0.0:80"),
    "other": ("127.0.0.2:81", "localhost:81"),
    "six": ("127.0.0.1:83", "[::1]:83", "localhost:83"),
    "socket": ("unix:///run/g.sock",),
    "": ("[::1]:80", "h:80", "127.0.0.2:80", "127.0.0.1:82", "h:81", "[::1]:81", "h:83", "unix:///run/h.sock"),
}
"""Those that are this listener, and last those that are none."""


@pytest.mark.parametrize(("listener", "endpoint"), [(name, each) for name, all in ENDPOINTS.items() for each in all])
def test_an_endpoint_that_is_a_listener(listener: str, endpoint: str) -> None:
    text = f"'{endpoint}' is the gateway's own listener '{listener}': requests can loop; use the server's address"
    expected = [f"7:39: warning: {text}"] if listener else []
    assert of_backends(f"a: {{protocol: umbridge, endpoints: ['{endpoint}']}}") == expected


def test_a_warning_shows_a_reference_and_not_what_it_holds() -> None:
    (told,) = of_backends('a: {protocol: umbridge, endpoints: ["http://${SECRET}/Evaluate"]}')
    assert "${SECRET}" in told
    assert "s3cret" not in told


def unreachable(taker: int) -> list[str]:
    shown = f"routes[{taker}]"
    return [f"{shown} takes all requests that this route would take; put this route before {shown}"]


REACH: tuple[tuple[tuple[str, ...], int | None], ...] = (
    # models
    (("", "model: m*"), 0),
    (("model: m*", ""), None),
    (("model: '*'", ""), None),  # a request may come without a model
    (("model: '*'", "model: m*"), 0),
    (("model: 'm*'", "model: 'n*'"), None),
    (("model: 'm*'", "model: '*m'"), None),
    (("model: '*m'", "model: '*nm'"), 0),
    (("model: '*b]'", "model: '*[ab]'"), None),
    (("model: 'm?'", "model: 'm?', version: '2'"), 0),
    (("model: 'm?'", "model: 'm*'"), None),
    (("model: 'm[0-9]'", "model: 'm[0-9]', version: '2'"), 0),
    (("model: 'm[!a]'", "model: 'm[a-c]'"), None),
    # protocols, listeners, operations
    (("protocol: umbridge", "model: m*"), None),
    (("protocol: umbridge", "protocol: umbridge, listener: other"), 0),
    (("listener: http", "model: m*"), None),
    (("listener: http", "listener: http, model: m*"), 0),
    (("operation: infer", "operation: infer, model: m*"), 0),
    (("operation: infer", "model: m*"), None),
    (("model: m*", "operation: infer, model: m*"), 0),
    # versions, headers, paths
    (("version: '1'", "version: '1', model: m*"), 0),
    (("version: '1'", "version: '2', model: m*"), None),
    (("version: '1'", "model: m*"), None),
    (("header: {team: red}", "model: m*"), None),
    (("header: {Team: red}", "model: m*, header: {team: red, size: big}"), 0),
    (("header: {team: red}", "model: m*, header: {team: blue}"), None),
    (("header: {team: '*'}", "header: {team: red}"), 0),
    (("header: {team: red}", "header: {team: '*'}"), None),
    (("header: {team: '*'}", "model: m*"), None),
    # inputs, which only some operations have
    (("input: {datatype: FP32}", "model: m*"), None),
    (("model: m*", "model: m*, input: {datatype: FP32}"), 0),
    (("input: {datatype: FP32}", "input: {datatype: FP32, name: x}"), 0),
    (("input: {datatype: FP32}", "input: {name: x}"), None),
    (("input: {shape: [-1, 2]}", "input: {shape: [1, 2]}"), 0),
    (("input: {shape: [1, 2]}", "input: {shape: [-1, 2]}"), None),
    (("input: {shape: [-1]}", "input: {shape: [1, 2]}"), None),
    (("input: {name: x}", "operation: metadata"), 0),
    (("input: {name: x}", "operation: explain"), None),
    (("path: /a/*", "path: /a/b"), 0),
    (("path: /a/*", "path: /a/b/*"), 0),
    (("path: /a/b/*", "path: /a/*"), None),
    (("path: /a", "path: /a/b"), None),
    (("path: /a", ""), None),
)
"""Matches in their order, and the route that takes what the last of them would take."""


@pytest.mark.parametrize(("matches", "taker"), REACH)
def test_a_route_that_nothing_reaches(matches: tuple[str, ...], taker: int | None) -> None:
    assert of_routes(*matches) == ([] if taker is None else unreachable(taker))


def test_every_backend_of_a_route_is_used() -> None:
    backends = "".join(ONE.replace("a:", f"{name}:") for name in "abc")
    routes = "[{match: {model: m}, split: [{backend: a}, {backend: b, weight: 0}], fallback: [c]}]"
    assert warnings(f"{LISTENERS}backends:\n{backends}routes: {routes}\n") == []


def test_a_route_that_only_names_made_of_its_model_reach() -> None:
    """The router tries exact names first for `m.gradient`."""
    assert of_routes("model: '*'", "model: m, version: '2'") == [
        "routes[0] takes every request for 'm', so this route gets only derived names such as m.gradient; "
        "put it before routes[0]"
    ]
    assert of_routes("model: m", "model: m, version: '2'") == unreachable(0)


def test_messages_that_pass_untouched_have_routes_of_their_own() -> None:
    backend = f"  a: {{protocol: messages, endpoints: ['h:1'], {TIMEOUT}}}\n"
    routes = "- {match: {}, backend: a}\n- {match: {path: /x}, backend: a, passthrough: true}\n"
    assert warnings(f"{LISTENERS}backends:\n{backend}routes:\n{routes}") == []


@given(st.text("ab*?[]!-", max_size=6), st.text("ab*?[]!-", max_size=6))
def test_a_glob_that_covers_another_takes_all_its_names(wide: str, narrow: str) -> None:
    if covers(wide, narrow):
        names = ["".join(each) for size in (1, 2, 3, 4) for each in product("ab*]-[", repeat=size)]
        assert all(fnmatchcase(name, wide) for name in names if fnmatchcase(name, narrow))


def compared(most: int, *models: str) -> list[int]:
    """The routes that nothing reaches, as `most` comparisons find them."""
    routes = "".join(f"- {{match: {{model: '{model}'}}, backend: a}}\n" for model in models)
    config, _ = loads_with_warnings(f"{LISTENERS}backends:\n{ONE}routes:\n{routes}", "g.yaml", CATALOG, ENVIRON)
    return [int(str(each.location[1])) for each in unreachable_routes(config, CATALOG, most)]


def test_routes_for_thousands_of_models_are_compared_only_where_the_text_before_a_wildcard_is_the_same() -> None:
    models = [f"m{at}" for at in range(1000, 3000)]
    assert compared(3, *models, "m1700*", "m1700x") == [2001]


def test_after_the_most_comparisons_nothing_is_reported() -> None:
    assert compared(1, "*c", "*bc", "*abc") == [1]
    assert compared(3, "*c", "*bc", "*abc") == [1, 2]


def test_an_endpoint_that_backends_share_with_different_health() -> None:
    same = "{protocol: umbridge, endpoints: ['h:1'], health: {interval: 3}}"
    other = "{protocol: umbridge, endpoints: ['h:2', 'http://h:1/']}"
    assert of_backends(f"a: {same}", f"b: {same}") == []
    assert of_backends(f"a: {same}", f"b: {other}") == [
        "8:46: warning: backend 'a' also has the endpoint 'http://h:1/', but with another `health`; make them equal"
    ]


UNBOUNDED = (
    "7:3: warning: no policy limits the duration of calls to the backend 'a'; add policies: [{timeout: {seconds: 60}}]"
)


@pytest.mark.parametrize(
    ("protocol", "backend", "routes", "expected"),
    [
        ("messages", "", ["", ""], [UNBOUNDED]),
        ("messages", f", {TIMEOUT}", ["", ""], []),
        ("messages", "", [f", {TIMEOUT}", f", {TIMEOUT}"], []),
        ("messages", "", [f", {TIMEOUT}", ""], [UNBOUNDED]),
        ("messages", ", safe: true, policies: [retry: {}]", [f", {TIMEOUT}"], []),
        ("messages", ", safe: true, policies: [retry: {}]", [""], [UNBOUNDED]),
        ("umbridge", "", [""], []),  # its calls may take hours
    ],
)
def test_a_backend_whose_calls_no_timeout_bounds(
    protocol: str, backend: str, routes: list[str], expected: list[str]
) -> None:
    text = "".join(f"- {{match: {{model: m{at}}}, backend: a{each}}}\n" for at, each in enumerate(routes))
    backend = f"  a: {{protocol: {protocol}, endpoints: ['h:1']{backend}}}\n"
    assert warnings(f"{LISTENERS}backends:\n{backend}routes:\n{text}") == expected


def test_a_retry_that_covers_less_than_one_may_expect() -> None:
    policies = "policies: [{timeout: {seconds: 1}}, {retry: {}}]"
    backend = f"  a: {{protocol: messages, endpoints: ['h:1'], {policies}}}\n"
    routes = "- {match: {}, backend: a, policies: [{retry: {}}]}\n"
    text = (
        "warning: retry repeats only calls that were not sent at all, because the backend 'a' does not have safe: "
        "true; add it if calls can be repeated"
    )
    assert warnings(f"{LISTENERS}backends:\n{backend}routes:\n{routes}") == [f"7:84: {text}", f"9:39: {text}"]
    assert warnings(f"{LISTENERS}backends:\n{backend.replace(', pol', ', safe: true, pol')}routes:\n{routes}") == []


TINY = """\
listeners: [{name: http, bind: "127.0.0.1:80", protocols: [v2-rest]}]
backends: {a: {protocol: messages, endpoints: ['h:1'], policies: [{timeout: {seconds: 1}}]MORE}}
routes: [{match: {}, backend: a}]
"""


@pytest.mark.parametrize(
    ("text", "of_backend", "expected"),
    [
        ("metrics: {models: 5}", "", "metrics' has no effect: the metrics page is on the health port; add `health:"),
        ("metrics: {models: 5}\nhealth: {bind: 'h:1'}", "", ""),
        ("metrics: {enabled: false}", "", ""),
        (
            "metrics: {enabled: false}\nhealth: {bind: 'h:1', auth: {}}\n"
            "auth: {jwt: {issuer: 'https://i', audience: [m], jwks: 'https://i/jwks'}}\n"
            "principals: {a: {permissions: [use]}}",
            "",
            "auth' has no effect: it applies to /metrics, but `metrics.enabled` is false",
        ),
        ("metrics: {enabled: false, models: 5}", "", "models' has no effect: `enabled` is false"),
        ("log: {access: {when: never, sample: 0.5}}", "", "sample' has no effect: `when` is never"),
        ("log: {access: {when: always, sample: 0.5}}", "", ""),
        ("permissions: {a: [{operations: [infer]}]}", "", "a' has no effect: no principal uses it"),
        ("principals: {a: {permissions: [use]}}", "", "principals' has no effect: authentication is off"),
        (
            "",
            ", queue: {length: 5}",
            "queue' has no effect: calls wait only if `max_in_flight` limits them; add `max_in_flight`",
        ),
        ("", ", queue: {length: 5}, max_in_flight: 2", ""),
        (
            "",
            ", queue: {wait_for_endpoints: 5}",
            "wait_for_endpoints' has no effect: endpoints never change, because `discovery` is missing; remove it",
        ),
        ("", ", health: {probe: none, interval: 5}", "interval' has no effect: `probe` is none"),
        ("", ", health: {probe: none, ejection: {failures: 2}}", ""),
    ],
)
def test_keys_that_have_no_effect(text: str, of_backend: str, expected: str) -> None:
    found = warnings(TINY.replace("MORE", of_backend) + text)
    assert [expected in each for each in found] == [True] * bool(expected), found


def test_identities_of_certificates_that_no_client_is_asked_for() -> None:
    text = """
auth: {certificates: [{identity: "*", principal: a}]}
principals: {a: {permissions: [use]}}
listeners: [{name: http, bind: "127.0.0.1:80", protocols: [v2-rest], auth: {}, tls: {certificate: /c, key: /kMORE}}]
backends: {a: {protocol: messages, endpoints: ['h:1'], policies: [{timeout: {seconds: 1}}]}}
routes: [{match: {}, backend: a}]
"""
    (found,) = warnings(text.replace("MORE", ""))
    assert "'certificates' has no effect: no listener with `auth` requests certificates" in found
    assert warnings(text.replace("MORE", ", client_ca: /ca, client: optional")) == []
