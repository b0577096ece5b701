"""Literal YAML to the exact problems, with their lines and columns."""

import pytest

from gateway.config import Catalog, ConfigError, loads
from gateway.config.backends import BackendConfig
from gateway.config.document import MAX_BYTES, MAX_DEPTH, MAX_NODES
from gateway.core.frozen import replace
from tests.config.toys import ANYWHERE, BACKEND, CATALOG, ENVIRON, LISTENER, MESSAGES, ROUTE, SOUND, TRANSLATE, TWO


def problems(text: str) -> list[str]:
    try:
        loads(text, "g.yaml", CATALOG, ENVIRON)
    except ConfigError as error:
        return [line.removeprefix("g.yaml:") for line in str(error).split("\n")]
    return []


def test_the_first_hundred_problems_are_told_and_that_there_are_more() -> None:
    told = problems(SOUND + "".join(f"key{number}: 1\n" for number in range(3000)))
    lines = SOUND.count("\n")
    assert [int(each.partition(":")[0]) for each in told[:-1]] == list(range(lines + 1, lines + 101))
    assert told[-1] == f"{lines + 100}:1: there are more than these 100 problems; fix these first"
    assert len(problems(SOUND + "key: 1\n" * 3000)) == 101


def test_a_file_that_is_something_else_has_one_problem() -> None:
    told = problems(SOUND + "".join(f"key{number}: 1\n" for number in range(20_000)))
    assert told == ["1:1: 20000 keys or values are wrong; is this a gateway configuration?"]


Row = tuple[str, ...]
"""YAML and its problems, without the name of the file."""


def sound(more: str, *problems: str) -> Row:
    return (f"{SOUND}{more}\n", *problems)


def listener(more: str, *problems: str) -> Row:
    return (f"{LISTENER}{more}\n", *problems)


def backend(keys: str, *problems: str, protocol: str = "umbridge") -> Row:
    return (BACKEND.replace("umbridge, endpoints", f"{protocol}, endpoints") + keys + "}}\n", *problems)


def route(keys: str, *problems: str) -> Row:
    return (ROUTE + keys + "}]\n", *problems)


def translate(keys: str, *problems: str) -> Row:
    return (TRANSLATE + keys + "}}]\n", *problems)


def messages(keys: str, *problems: str) -> Row:
    """A route to a backend of `messages`."""
    return (MESSAGES + keys + "}]\n", *problems)


BACKEND_KEYS = sorted(BackendConfig.model_fields)
PROTOCOL_NAMES = "anywhere, else, frames, messages, nameless, packets, points, umbridge or v2-rest"

STATUSES = (
    "2:117: expected CANCELLED, UNKNOWN, INVALID_ARGUMENT, DEADLINE_EXCEEDED, NOT_FOUND, ALREADY_EXISTS, "
    "PERMISSION_DENIED, RESOURCE_EXHAUSTED, FAILED_PRECONDITION, ABORTED, OUT_OF_RANGE, UNIMPLEMENTED, INTERNAL, "
    "UNAVAILABLE, DATA_LOSS or UNAUTHENTICATED, got "
)

PROBLEMS: tuple[Row, ...] = (
    # the text
    ("", "1:1: the key 'listeners' is missing"),
    ("# nothing\n", "1:1: the key 'listeners' is missing"),
    ("listeners", "1:1: expected a map, got 'listeners'"),
    ("- a\n", "1:1: expected a map, got a list"),
    ("model: *\n", "1:8: text cannot begin with '*' in YAML; quote it: '*'"),
    ("a: {model: *.x, b: c}\n", "1:12: text cannot begin with '*' in YAML; quote it: '*.x'"),
    ("a: [*]\n", "1:5: text cannot begin with '*' in YAML; quote it: '*'"),
    ("a: *m*\n", "1:4: text cannot begin with '*' in YAML; quote it: '*m*'"),
    ("a: &\n", "1:4: text cannot begin with '&' in YAML; quote it: '&'"),
    ("a: @it's\n", "1:4: text cannot begin with '@' in YAML; quote it: '@it''s'"),
    ("a: [`x`]\n", "1:5: text cannot begin with '`' in YAML; quote it: '`x`'"),
    ("a: %x\n", "1:4: text cannot begin with '%' in YAML; quote it: '%x'"),
    ("%x: 1\n", "1:1: text cannot begin with '%' in YAML; quote it: '%x:'"),
    ("a: |x\n", "1:4: text cannot begin with '|' in YAML; quote it: '|x'"),
    ("a: {m: ?}\n", "1:8: text cannot begin with '?' in YAML; quote it: '?'"),
    ("a:\n\tb: 1\n", "2:1: a tab in the indentation; write spaces"),
    ("a:\n  b: 1\n\tc: 2\n", "3:1: a tab in the indentation; write spaces"),
    ("a:\n  b: 1\n  \tc: 2\n", "3:3: a tab in the indentation; write spaces"),
    ("a: [1,\n b: }\n", "2:5: a value is missing before '}'; quote text that begins with it"),
    ("a: [b,,c]\n", "1:7: a value is missing before ','; quote text that begins with it"),
    ("a: ]\n", "1:4: a value is missing before ']'; quote text that begins with it"),
    ("a: [1, 2\nb: 3\n", "1:4: '[' is never closed; ']' is missing"),
    ("a: {b: [1, 2]\nc: 3\n", "1:4: '{' is never closed; '}' is missing"),
    ("a: [[1, 2]\n", "1:4: '[' is never closed; ']' is missing"),
    ("a: {b: [1, 2}\n", "1:13: '}' does not close the '[' in column 8; ']' is missing before it"),
    ("a: [1]]\n", "1:7: ']' closes nothing; remove it, or quote the text that contains it"),
    ("a: {b: 1 c: 2}\n", "1:11: expected ',' or '}' before ':'; quote text that has ':' in it"),
    ("a: {b: ${X}}\n", "1:8: quote a reference inside brackets: '${X}'"),
    ("a: {b: [::1]:80}\n", "1:8: '[' begins a list in YAML; quote an IPv6 address: '[::1]:80'"),
    ("a: {x}-y\n", "1:7: '-y' follows a complete value; quote the whole value"),
    ("a: 'it's'\n", '1:8: "s\'" follows a complete value; quote the whole value'),
    ("a:1\nb: 2\n", "1:3: a space is missing after the colon: write a: 1"),
    ("a: 1\nb:2\n", "2:3: a space is missing after the colon: write b: 2"),
    ("a:\n- b:1\n  c: 2\n", "2:5: a space is missing after the colon: write b: 1"),
    ("listeners\n  - name: x\n", "1:1: expected KEY: VALUE, got 'listeners'; is a colon missing?"),
    ("a: b\nc\nd: e\n", "2:1: expected KEY: VALUE, got 'c'; is a colon missing?"),
    ("a: b: c\n", "1:5: a second ': ' in this line; quote the value: 'b: c'"),
    ("a: 1\n b: 2\n", "2:3: 'a' in line 1 already has a value; indent this line less"),
    ("a: [1] # x\n  b: 2\n", "2:3: 'a' in line 1 already has a value; indent this line less"),
    ("a:\n  b: 1\n c: 2\n", "3:2: the indentation of this line matches no line above it; align it with one"),
    ("- a\nb: c\n", "2:1: expected '- ', like in the list from line 1 on, or less indentation"),
    ("a: - b\n", "1:4: begin a list on a new line, or write it in brackets: [b]"),
    ("a: 'x\n", "1:4: the quote ' has no closing quote; add it"),
    (
        'a: "\\d"\n',
        "1:4: a \\ in \"...\" begins an escape that YAML does not have; write \\\\, or quote with '...'",
    ),
    sound(
        "health: {bind:localhost}",
        "4:9: the key 'bind' is missing",
        "4:10: 'bind:localhost' is one word without a space after the colon; write bind: localhost",
    ),
    ("a: 1\nb: \x01\n", "2:4: not YAML: control characters are not allowed"),
    ("a: 1\nb: \ud800\n", "2:4: not YAML: a lone surrogate; remove this character"),
    sound("---\na: 1", "4:1: a second document begins here; expected only one"),
    ("a: *b\n", "1:4: the alias *b has no anchor before it; if it is text, quote it: '*b'"),
    ("a: &b [*b]\n", "1:8: the alias *b has no anchor before it; if it is text, quote it: '*b'"),
    (
        "#" * MAX_BYTES + "\n",
        f"1:1: the configuration is larger than {MAX_BYTES} bytes; shorten it, or use several gateways",
    ),
    ("[" * 65 + "]" * 65, f"1:{MAX_DEPTH + 1}: nested deeper than {MAX_DEPTH} levels"),
    # billion laughs
    (
        "a0: &a0 [x, x, x, x, x, x, x, x, x, x]\n"
        + "".join(f"a{n + 1}: &a{n + 1} [{', '.join([f'*a{n}'] * 10)}]\n" for n in range(9)),
        f"5:5: more than {MAX_NODES} values, aliases expanded; use fewer aliases",
    ),
    # deep aliases
    (
        "a: &a " + "[" * 40 + "]" * 40 + "\nb: " + "[" * 40 + "*a" + "]" * 40 + "\n",
        f"2:19: nested deeper than {MAX_DEPTH} levels, aliases expanded",
    ),
    # keys
    sound(
        "admin: {bind: '[::1]:1'}\nadmin: {bind: '[::1]:2'}",
        "5:1: the key 'admin' occurs twice, first at line 4, column 1; remove one",
    ),
    sound("12: 1", "4:1: a key must be text, got 12; quote it if it is meant"),
    # flag as key
    sound(
        "true: 1",
        "4:1: a key must be text, got true; quote it if it is meant; YAML 1.1, which Helm reads, turns y, yes and "
        "on into true",
    ),
    sound("~: 1", "4:1: a key must be text, got ~; quote it if it is meant"),
    sound("? [a]\n: 1", "4:3: a key must be text"),
    # merge key
    sound(
        "x: &x {}\nhealth: {<<: *x, bind: '[::1]:1'}",
        "4:1: unknown key 'x'; expected admin, auth, backends, check, drain, forms, health, limits, "
        "listeners, log, metrics, models, permissions, principals, ready, reference, reload, request_ids, routes, "
        "scaler, tracing or workers",
        "5:10: merge keys are not supported; write the keys out, or use an alias for the whole map",
    ),
    sound(
        "health: !!map {bind: !x '[::1]:1'}",
        "4:9: the tag 'tag:yaml.org,2002:map' is not supported; remove the tag",
        "4:22: the tag '!x' is not supported; remove the tag",
    ),
    sound("lisenters: []", "4:1: unknown key 'lisenters'; did you mean 'listeners'?"),
    route("match: {listener: htpt, protocol: points}", "3:47: unknown listener 'htpt'; did you mean 'http'?"),
    route("match: {}, rewirte: {}", "3:40: unknown key 'rewirte'; did you mean 'rewrite'?"),
    (
        SOUND.replace("protocol: umbridge", "timeout: 60, protocol: umbridge"),
        "2:22: 'timeout' is a policy, not a key here; write policies: [{timeout: {...}}]",
    ),
    backend(
        "replicas: {}", f"2:73: unknown key 'replicas'; expected {', '.join(BACKEND_KEYS[:-1])} or {BACKEND_KEYS[-1]}"
    ),
    backend(
        "balance: round_robbin",
        "2:82: expected least_in_flight, least_load, round_robin or power_of_two, got 'round_robbin'; "
        "did you mean 'round_robin'?",
    ),
    (
        SOUND.replace(
            "backend: science}",
            "backend: science, signature: {inputs: [{name: x, datatype: float64, shape: [2]}], outputs: []}}",
        ),
        "3:89: expected BOOL, UINT8, UINT16, UINT32, UINT64, INT8, INT16, INT32, INT64, FP16, FP32, FP64, BF16 or "
        "BYTES, got 'float64'; did you mean 'FP64'?",
    ),
    backend("slow_start: -1", "2:85: must be at least 0, got -1"),
    backend("settings: {a: b}", "2:73: umbridge has no settings; remove the key"),
    backend("headers: {a: b}", "2:72: messages of packets have no headers; remove the key", protocol="packets"),
    backend(
        "servers: {engine: slurm, command: [m]}",
        "2:53: a backend with `servers` has no `endpoints`; remove one of them",
    ),
    (
        SOUND.replace(
            'endpoints: ["127.0.0.1:4242"]', "discovery: {srv: a.b}, servers: {engine: slurm, command: [m], state: run}"
        ),
        "2:42: a backend with `servers` cannot use `discovery`; remove one of the keys",
        "2:111: expected an absolute path, got 'run'",
    ),
    backend("queue: {length: 0}", "2:89: must be at least 1, got 0"),
    backend("queue: {timeout: 0}", "2:90: must be above 0, got 0"),
    backend("queue: {lenght: 5}", "2:81: unknown key 'lenght'; did you mean 'length'?"),
    sound("health: {bind: '[::1]:1', port: 3}", "4:27: unknown key 'port'; expected auth, bind, ready or tls"),
    backend(
        "health: {intervall: 1, ejection: {failure: 3}}",
        "2:82: unknown key 'intervall'; did you mean 'interval'?",
        "2:107: unknown key 'failure'; did you mean 'failures'?",
    ),
    backend(
        "health: {probe: alive, interval: 0, timeout: -1, unhealthy: 0, jitter: 2, ejection: {max_ejected_share: 1.5}}",
        "2:89: expected live, ready or none, got 'alive'; did you mean 'live'?",
        "2:106: must be above 0, got 0",
        "2:118: must be above 0, got -1",
        "2:133: must be at least 1, got 0",
        "2:144: must be at most 1, got 2",
        "2:177: must be at most 1, got 1.5",
    ),
    sound("health: {}", "4:9: the key 'bind' is missing"),
    ("listeners:\n  - name: a\n    protocols: [umbridge]\n", "2:5: the key 'bind' is missing"),
    # values
    sound("health: 127.0.0.1:1", "4:9: expected a map, got '127.0.0.1:1'; its keys are bind, ready, auth, tls"),
    ("listeners: a\n", "1:12: expected a list, got 'a'; write ['a']"),
    ("listeners: {name: a}\n", "1:12: expected a list, got a map; each of its items begins with `- `"),
    ("listeners:\n", "1:11: expected a list, got nothing"),
    ("listeners: []\n", "1:12: must not be empty"),
    *(
        (f"{TWO}match: {{}}, {end}}}]\n", told)
        for end, told in (
            ("rewrite: {}", "3:10: the key 'backend' is missing; add it, or 'split' for several backends"),
            (
                "backend: old, split: [{backend: science}]",
                "3:36: a route has either 'backend' or 'split'; remove one of them",
            ),
            ("backend: old, sticky: {header: x}", "3:36: sticky needs a split; remove the key"),
            ("split: []", "3:29: must not be empty"),
            (
                "split: [{backend: old, weight: 0}]",
                "3:29: all weights are 0; at least one weight must be greater than 0",
            ),
            ("split: [{backend: old, weight: -1}]", "3:53: must be at least 0, got -1"),
            ("split: [{backend: old, wieght: 1}]", "3:45: unknown key 'wieght'; did you mean 'weight'?"),
            ("split: [{backend: old}, {backend: old}]", "3:56: 'old' is listed twice"),
            ("split: [{backend: old}, {backend: odl}]", "3:56: unknown backend 'odl'; expected old or science"),
            (
                "split: [{backend: old}, {backend: science}], rewrite: {version: x}",
                "3:86: 'x' is not a possible version in v2-rest",
            ),
            (
                "split: [{backend: old}], sticky: {header: Trace-Bin}",
                "3:64: headers that end in -bin are bytes over gRPC; choose another name, got 'Trace-Bin'",
            ),
            (
                "backend: old, fallback: [science, old]",
                "3:56: 'old' is already one of the route's own backends; remove it",
            ),
            ("backend: old, fallback: [sceince]", "3:47: unknown backend 'sceince'; did you mean 'science'?"),
        )
    ),
    *(
        (f"{TWO}match: {{{wanted}}}, backend: old}}]\n", told)
        for wanted, told in (
            ("input: {}", "3:19: expected name, datatype or shape of an input"),
            ("input: {dtype: FP32}", "3:27: unknown key 'dtype'; did you mean 'datatype'?"),
            ("input: {shape: [-2]}", "3:35: must be at least -1, got -2"),
            (
                "operation: metadata, input: {name: x}",
                "3:40: only inference, explanation and derivatives have inputs; remove the key",
            ),
            (
                "header: {trace-bin: a}",
                "3:28: headers that end in -bin are bytes over gRPC; choose another name, got 'trace-bin'",
            ),
        )
    ),
    *(
        (f"{TWO}match: {{{match}}}, backend: old, rewrite: {{model: 'm{{3}}'}}}}]\n", told)
        for match, told in (
            ("model: 'a*b?'", "3:66: match.model has 2 wildcards, so there is no {3}; expected {0}, {1} or {2}"),
            ("model: 'a*'", "3:64: match.model has 1 wildcard, so there is no {3}; expected {0} or {1}"),
            ("model: a", "3:61: match.model has no wildcards, so there is no {3}; expected {0}"),
            ("", "3:53: 'm{3}' needs match: {model: GLOB}, whose wildcards are {1}, {2}, ..."),
        )
    ),
    *(
        (MESSAGES.replace("backend: science, ", "") + f"passthrough: true, match: {{path: /x{end}}}]\n", told)
        for end, told in (
            ("}, split: [{backend: science}]", "3:49: a route with passthrough has one backend; remove split"),
            ("}, backend: science, fallback: []", "3:67: a route with passthrough has one backend; remove fallback"),
            (
                ", input: {name: a}}, backend: science",
                "3:48: input has no effect on a route with passthrough; remove the key",
            ),
        )
    ),
    route("match: {version: 1}", "3:46: expected text, got 1; quote it"),
    route(
        "match: {model: false}",
        "3:44: expected text, got false; quote it; YAML 1.1, which Helm reads, turns n, no and off into false",
    ),
    route("match: {model: ''}", "3:44: must not be empty"),
    backend("max_in_flight: '3'", "2:88: expected a whole number, got '3'"),
    backend(
        "queue: {timeout: 500ms}, max_in_flight: 5 s",
        *[
            f"2:{place}, got {value}; write it without a unit: times are in seconds"
            for place, value in (("90: expected a number", "'500ms'"), ("113: expected a whole number", "'5 s'"))
        ],
    ),
    backend(
        "queue: {length: 64MiB}",
        "2:89: expected a whole number, got '64MiB'; write it without a unit: sizes are in bytes",
    ),
    backend("max_in_flight: 3%", "2:88: expected a whole number, got '3%'; write it without %"),
    sound("tracing: {otlp: 'http://c', sample: 10%}", "4:37: expected a number, got '10%'; write 0.1 for 10 %"),
    backend("max_in_flight: 1.5", "2:88: expected a whole number, got 1.5"),
    backend("max_in_flight: true", "2:88: expected a whole number, got true"),
    backend("limits: {message: 0}", "2:91: must be at least 1, got 0"),
    ("limits: {shed: {lag: 0}}\n" + SOUND, "1:22: must be above 0, got 0"),
    backend("flavor: triton", "2:73: umbridge has no flavors; remove the key"),
    backend("flavor: trition", "2:80: unknown flavor of v2-rest 'trition'; did you mean 'triton'?", protocol="v2-rest"),
    backend("batch: split", "2:73: umbridge has one way to send a batch; remove the key"),
    backend("batch: spilt", "2:79: unknown batch of packets 'spilt'; did you mean 'split'?", protocol="packets"),
    # discovery
    listener(
        "backends: {a: {protocol: umbridge}, b: {protocol: umbridge, endpoints: []}}",
        "2:15: `endpoints` needs an address, or `discovery` one of srv, files and register",
        "2:72: `endpoints` needs an address, or `discovery` one of srv, files and register",
    ),
    listener(
        "backends: {a: {protocol: umbridge, discovery: {dns: all}}}",
        "2:15: `endpoints` needs a host name, which `discovery: {dns: all}` looks up",
    ),
    backend(
        "discovery: {dns: all}", "2:85: no endpoint has a host name that the gateway could look up; remove the key"
    ),
    backend("discovery: {dns: some}", "2:90: expected all, got 'some'"),
    backend("discovery: {file: /run/x}", "2:85: unknown key 'file'; did you mean 'files'?"),
    backend("discovery: {interval: 5}", "2:84: expected at least one of dns, srv, files and register"),
    backend(
        "discovery: {srv: 'http://x:1'}",
        "2:90: expected a DNS name such as _http._tcp.models.default.svc, got 'http://x:1'",
    ),
    backend(
        "discovery: {files: url-*.txt, interval: 0}",
        "2:92: expected an absolute path such as /run/models/url-*.txt, got 'url-*.txt'",
        "2:113: must be above 0, got 0",
    ),
    backend(
        "discovery: {register: {token: '${SECRET}'}, interval: 1}",
        "2:85: servers register at the port of the status API, which is off; add admin: {bind: 127.0.0.1:PORT}",
        "2:117: has no effect on servers that register themselves; remove the key, or add dns, srv or files",
    ),
    backend(
        "discovery: {register: {token: x}}",
        "2:85: servers register at the port of the status API, which is off; add admin: {bind: 127.0.0.1:PORT}",
    ),
    backend("discovery: {register: {token: ''}}", "2:103: must not be empty"),
    backend("discovery: {register: {token: 5}}", "2:103: expected text, got 5; quote it"),
    listener("backends: {'': {protocol: umbridge, endpoints: [a:1]}}", "2:12: must not be empty"),
    translate("cast: rond", "3:58: expected refuse, round or saturate, got 'rond'; did you mean 'round'?"),
    translate("bytes: 3", "3:59: expected text or base64, got 3"),
    (TRANSLATE + f"bytes: {'x' * 500}}}}}]\n", f"3:59: expected text or base64, got '{'x' * 60}...'"),
    # addresses
    sound(
        "health: {bind: localhost}", "4:16: expected HOST:PORT such as 127.0.0.1:8080 or [::1]:8080, got 'localhost'"
    ),
    sound(
        "admin: {bind: '0.0.0.0:9090'}",
        "4:15: the status API must be on loopback unless it has `auth`; expected 127.0.0.1:PORT or `auth: {}`, got "
        "'0.0.0.0:9090'",
    ),
    sound(
        "health: {bind: '0.0.0.0:8080'}", "4:16: '0.0.0.0:8080' is taken by listeners[0].bind; choose another address"
    ),
    sound(
        "health: {bind: 'tcp://[::1]:1'}",
        "4:16: tcp:// is for protocols over TCP; expected HOST:PORT, got 'tcp://[::1]:1'",
    ),
    (
        "listeners: [{name: a, bind: 'unix:///a', protocols: [umbridge]}]\n",
        "1:29: unix:// is for protocols over TCP; expected HOST:PORT, got 'unix:///a'",
    ),
    listener("backends: {s: {protocol: umbridge, endpoints: ['a:1', 'triton', 'a:1']}}", "2:65: 'a:1' is listed twice"),
    listener(
        "backends: {s: {protocol: umbridge, endpoints: ['a:1', {address: 'a:1', weight: 2}]}}",
        "2:65: 'a:1' is listed twice",
    ),
    listener(
        "backends: {s: {protocol: umbridge, endpoints: [{weight: 0.5, address: triton}]}}",
        "2:71: bad address 'triton': it has no port; expected host:port (http)",
    ),
    listener(
        "backends: {s: {protocol: umbridge, endpoints: [{address: 'a:1', weight: 0}, "
        "{address: 'b:1', weight: heavy}, {address: 'c:1', wieght: 2}, {weight: 2}, 7]}}",
        "2:73: must be above 0, got 0",
        "2:102: expected a number, got 'heavy'",
        "2:127: unknown key 'wieght'; did you mean 'weight'?",
        "2:139: the key 'address' is missing",
        "2:152: expected text, got 7; quote it",
    ),
    listener(
        "backends: {s: {protocol: umbridge, endpoints: ['a:1', triton]}}",
        "2:55: bad address 'triton': it has no port; expected host:port (http)",
    ),
    # names
    (
        "listeners: [{name: a, bind: '[::1]:1', protocols: [v2-rst]}]\n",
        "1:52: unknown protocol 'v2-rst'; did you mean 'v2-rest'?",
    ),
    (
        LISTENER
        + "reference: [{protocol: a, bind: '[::1]:1', models: [double]}]\n"
        + "routes: [{match: {protocol: b}, backend: s}]\n",
        f"2:24: unknown protocol 'a'; expected {PROTOCOL_NAMES}",
        f"3:29: unknown protocol 'b'; expected {PROTOCOL_NAMES}",
        "3:42: unknown backend 's'; define one first",
    ),
    (SOUND.replace("backend: science", "backend: sceince"), "3:39: unknown backend 'sceince'; did you mean 'science'?"),
    route("match: {listener: grpc}", "3:47: unknown listener 'grpc'; expected http"),
    (
        "listeners:\n- {name: a, bind: '[::1]:1', protocols: [umbridge]}\n"
        "- {name: a, bind: '[::1]:2', protocols: [umbridge]}\n",
        "3:10: listeners[0] is also called 'a'; choose another name",
    ),
    listener(
        "reference: [{protocol: umbridge, bind: '[::1]:1', models: [posterio, 'a.b:c', 'a b:c']}]",
        "2:60: unknown bundled model 'posterio'; did you mean 'posterior'?",
        "2:79: expected module:attribute, got 'a b:c'",
    ),
    backend("policies: [{tiemout: {seconds: 1}}]", "2:85: unknown policy 'tiemout'; did you mean 'timeout'?"),
    backend("policies: [{cache: {seconds: 3}}]", "2:85: unknown policy 'cache'; expected hedge, retry or timeout"),
    backend(
        "policies: [timeout, {}, {timeout: {seconds: 1}, retry: 1}]",
        *[f"2:{column}: expected a map of one key, such as {{timeout: {{seconds: 2}}}}" for column in (84, 93, 97)],
    ),
    backend(
        "policies: [{timeout: {seconds: 0}}, {timeout: {secnds: 1}}, {timeout: }, {timeout: {seconds: '1'}}]",
        "2:104: must be above 0, got 0",
        "2:119: the key 'seconds' is missing",
        "2:120: unknown key 'secnds'; did you mean 'seconds'?",
        "2:143: the key 'seconds' is missing",
        "2:166: expected a number, got '1'",
    ),
    backend(
        "policies: [{timeout: {seconds: 2, per_try: 2.5}}, {timeout: {seconds: 2, per_try: 2}}]",
        "2:116: must be at most seconds, 2, got 2.5",
    ),
    backend(
        "policies: [{retry: {attempts: 1, statuses: [UNAVAILABEL, 14, OK], jitter: some}}]",
        "2:103: must be at least 2, got 1",
        STATUSES + "'UNAVAILABEL'; did you mean 'UNAVAILABLE'?",
        STATUSES.replace("2:117", "2:130") + "14",
        STATUSES.replace("2:117", "2:134") + "'OK'",
        "2:147: expected full or none, got 'some'",
    ),
    backend("policies: [{retry: {statuses: []}}]", "2:103: must not be empty"),
    # hedging of calls that must not be repeated
    (
        'listeners: [{name: http, bind: "127.0.0.1:8080", protocols: [umbridge]}]\n'
        "backends: {science: {protocol: umbridge, endpoints: ['127.0.0.1:4242'], policies: [hedge: {}]}}\n"
        "routes: [{match: {}, backend: science, policies: [{hedge: {percentile: 50}}]}]\n",
        "2:84: hedge sends calls twice, which needs safe: true on the backend 'science'",
        "3:52: hedge sends calls twice, which needs safe: true on the backend 'science'",
    ),
    backend("policies: [{timeout: {seconds: .inf}}]", "2:104: expected a finite number, got inf"),
    (
        ROUTE
        + "match: {}, signature: {inputs: [{name: x, datatype: FP32, shape: [1], content_type: image}, "
        + "{name: y, datatype: BYTES, shape: [1], content_type: npy}]}}]\n",
        "3:113: 'image' is a content type for BYTES, not for FP32",
        "3:174: 'npy' is a content type for numbers and BOOL, not for BYTES",
    ),
    # listeners
    (
        LISTENER.replace("protocols:", "prefix: {umbridge: um/}, protocols:"),
        "1:69: expected a path such as /science, without a slash at its end and without { } ? # %, got 'um/'",
    ),
    (
        LISTENER.replace("protocols:", "prefix: {v2-rest: /v2}, protocols:"),
        "1:59: the listener does not serve 'v2-rest'; expected umbridge",
    ),
    # routes
    route(
        "match: {operation: models}",
        "3:48: expected infer, explain, stream, model-ready, metadata, config, model-statistics, load, unload, "
        "trace-settings, log-settings, gradient, apply_jacobian or apply_hessian, "
        "got 'models'",
    ),
    route(
        "match: {path: '/a/*/b'}",
        "3:43: expected a path such as /v2/models/m/infer or, with one * at its end, /v2/*, got '/a/*/b'",
    ),
    route(
        "match: {protocol: v2-rest}",
        "3:47: no listener serves 'v2-rest', so no request takes this route; add it to a listener's protocols",
    ),
    route(
        "match: {protocol: v2-rest, listener: http}",
        "3:47: listener 'http' does not serve 'v2-rest', so no request takes this route; add it to a listener's "
        "protocols",
    ),
    (
        SOUND.replace("[umbridge]", "[umbridge, nameless]").replace("{model: m}", "{}"),
        "3:31: 'science' needs a model name, which nameless requests at listener 'http' do not have; add "
        "rewrite: {model: NAME} to the route or model: NAME to the listener",
    ),
    (
        SOUND.replace("[umbridge]", "[messages]").replace("{model: m}", "{}"),
        "3:31: 'science' needs a model name, which messages requests at listener 'http' may not have; add "
        "rewrite: {model: NAME} to the route or model: NAME to the listener",
    ),
    messages(
        "match: {model: m}, translate: {payload: tensor}",
        "3:69: messages has no payload 'tensor'; did you mean 'tensors'?",
    ),
    (
        TRANSLATE.replace("match: {}", "match: {model: m}") + "payload: text}}]\n",
        "3:60: umbridge, the backend's protocol, has only one tensor format; remove the key",
    ),
    (
        TRANSLATE.replace("match: {}", "match: {model: m}") + "carry_config: true}}]\n",
        "3:60: both sides have the config as a parameter (the backend's protocol is umbridge); remove the key",
    ),
    (
        SOUND.replace("[umbridge]", "[umbridge], metrics_page: true"),
        "1:73: the listener's protocols have no metrics page; remove the key, or add messages",
    ),
    (
        SOUND.replace("[umbridge]", "[messages, anywhere, umbridge], model: m, metrics_page: true").replace(
            "{model: m}", "{}"
        ),
        "1:61: messages and anywhere both serve GET /; give one of them a prefix",
    ),
    (
        SOUND.replace("[umbridge]", "[umbridge], allow_offline: 1, metrics_page: 'true'"),
        "1:88: expected true or false, got 1",
        "1:105: expected true or false, got 'true'",
    ),
    messages("match: {path: /free}, passtrough: true", "3:51: unknown key 'passtrough'; did you mean 'passthrough'?"),
    messages(
        "match: {}, passthrough: true",
        "3:40: a route with passthrough needs a path, such as match: {path: /v1/chat/completions}",
    ),
    route(
        "match: {path: /free}, passthrough: true",
        "3:51: umbridge, the backend's protocol, has no passthrough; expected messages",
    ),
    (
        MESSAGES.replace("[messages]", "[messages, umbridge]")
        + "match: {protocol: umbridge, path: /free}, passthrough: true}]\n",
        "3:47: with passthrough both sides have the same protocol; expected 'messages', got 'umbridge'",
    ),
    (
        MESSAGES.replace("[messages]", "[umbridge]") + "match: {path: /free}, passthrough: true}]\n",
        "3:20: the protocol of 'science' is messages, but no listener of this route serves it; add it to a listener",
    ),
    (
        MESSAGES + "match: {path: /free, operation: infer}, passthrough: true,\n"
        "  rewrite: {model: n}, signature: {inputs: []}, translate: {cast: round}}]\n",
        "3:50: operation has no effect on a route with passthrough; remove the key",
        "4:3: rewrite has no effect on a route with passthrough; remove the key",
        "4:24: signature has no effect on a route with passthrough; remove the key",
        "4:49: translate has no effect on a route with passthrough; remove the key",
    ),
    messages(
        "match: {path: /messages/predict, model: m}, passthrough: true}, {backend: science, match: {}",
        "3:112: routes[0] forwards messages requests to /messages/predict without decoding, so this route "
        "never gets them; use another path or listener for one of the two routes, or remove all conditions of "
        "routes[0] except path",
    ),
    messages(
        "match: {path: /a/*}, passthrough: true}, {backend: science, match: {path: /a/b}",
        "3:89: routes[0] forwards messages requests to /a/* without decoding, so this route never gets them; use"
        " another path or listener for one of the two routes",
    ),
    (
        MESSAGES.replace("[messages]", "[umbridge, messages]") + "match: {path: /Info}, passthrough: true}]\n",
        "1:61: umbridge and messages both serve GET /Info; give one of them a prefix",
    ),
    (
        SOUND.replace("[umbridge]", "[umbridge, anywhere]").replace("{model: m}", "{path: /free}"),
        "3:42: 'science' needs a model name, which anywhere requests at listener 'http' do not have; add "
        "rewrite: {model: NAME} to the route or model: NAME to the listener",
    ),
    # paths that two protocols would have
    (
        SOUND.replace("[umbridge]", "[nameless, anywhere], prefix: {nameless: /any}").replace(
            "match: {model: m}", "match: {protocol: anywhere, path: /any/nameless}, rewrite: {model: m}"
        ),
    ),
    (
        ANYWHERE + "match: {path: /free}, rewrite: {model: m}}]\n",
        "3:43: anywhere and else both take '/free' at listener 'http'; add protocol: anywhere or else",
    ),
    # path that one of two protocols takes, and a route of either
    (
        ANYWHERE + "match: {path: /free, protocol: else}, rewrite: {model: m}},\n"
        "  {backend: science, match: {path: /free}, rewrite: {model: m}}]\n",
        "4:36: anywhere and else both take '/free' at listener 'http'; add protocol: anywhere or else",
    ),
    (
        ANYWHERE + "match: {path: /free, protocol: anywhere}, rewrite: {model: m}},\n"
        "  {backend: science, match: {path: /free, protocol: else}, rewrite: {model: m}}]\n",
        "4:36: anywhere and else both take '/free' at listener 'http'; use another path for one of them",
    ),
    (
        ANYWHERE + "match: {path: '/free/*'}, rewrite: {model: m}}]\n",
        "3:43: no protocol of listener 'http' has paths such as '/free/*'; anywhere or else would take them; "
        "add protocol: anywhere",
    ),
    # paths that a protocol has
    (
        ANYWHERE + "match: {path: '/anywhere/team-*'}, rewrite: {model: m}},\n"
        "  {backend: science, match: {path: '/any*'}, rewrite: {model: m}}]\n",
    ),
    (
        BACKEND + "trust_metadata: true}}\nroutes: [{match: {model: m}, backend: science}]\n",
        "2:73: the gateway always trusts umbridge metadata; remove the key",
    ),
    backend("trust_metadata: true", "2:72: packets has no metadata; remove the key", protocol="packets"),
    backend("trust_metadata: yes", "2:89: expected true or false, got 'yes'", protocol="anywhere"),
    (
        SOUND.replace(
            "{match: {model: m}",
            "{match: {protocol: umbridge, model: m}, backend: science}, {match: {model: m, protocol: umbridge}",
        ),
        "3:77: routes[0] has the same match and comes first, so this route gets no requests; remove one of them",
    ),
    route(
        "match: {}, rewrite: {version: '1'}",
        "3:59: umbridge has no versions; expected \"\", which drops the client's, got '1'",
    ),
    (
        ROUTE.replace("protocol: umbridge", "protocol: v2-rest") + "match: {}, rewrite: {version: one}}]\n",
        "3:59: 'one' is not a possible version in v2-rest",
    ),
    # headers
    backend(
        "headers: {Transfer-Encoding: chunked}",
        "2:102: 'Transfer-Encoding' is set by the gateway for each request and cannot be in `headers`",
    ),
    backend(
        "headers: {grpc-timeout: 1S}",
        "2:97: 'grpc-timeout' is set by the gateway for each request and cannot be in `headers`",
    ),
    backend("headers: {X-A: b, x-a: c}", "2:96: 'x-a' and 'X-A' are the same header"),
    backend("headers: {Host: 'a b'}", "2:89: expected a host name, with or without :PORT"),
    backend("headers: {x-bin: a}", "2:90: 'x-bin': headers that end in -bin are bytes over gRPC; choose another name"),
    backend(
        "headers: {X-Id: a}, forward_headers: [x-id]",
        "2:111: 'x-id' is also in `headers`, whose value is always sent; remove one of them",
    ),
    backend(
        'headers: {X-Id: "a\\nb"}',
        "2:89: the value is invalid in a header: expected visible ASCII characters, with spaces only between them",
    ),
    backend(
        "forward_headers: [X-Id, Host, 'a b', x-id]",
        "2:97: 'Host' is set by the gateway for each connection and cannot be forwarded",
        "2:103: 'a b' is not a valid header name",
    ),
    backend(
        "forward_headers: [Inference-Header-Content-Length, request-timeout, gateway-reason]",
        "2:91: 'Inference-Header-Content-Length' is set by the gateway for each connection and cannot be forwarded",
        "2:124: 'request-timeout' is set by the gateway for each connection and cannot be forwarded",
        "2:141: 'gateway-reason' is set by the gateway for each connection and cannot be forwarded",
    ),
    backend("forward_headers: [X-Id, x-id]", "2:97: 'x-id' is listed twice"),
    # tensors
    route(
        "match: {}, signature: {inputs: [{name: x, datatype: FP46, shape: [1]}]}",
        "3:81: expected BOOL, UINT8, UINT16, UINT32, UINT64, INT8, INT16, INT32, INT64, FP16, FP32, FP64, BF16 or "
        "BYTES, got 'FP46'; did you mean 'FP64'?",
    ),
    route(
        "match: {}, signature: {inputs: [{name: x, datatype: FP64, shape: [-2, 1.0]}]}",
        "3:95: must be at least -1, got -2",
        "3:99: expected a whole number, got 1.0",
    ),
    (
        ROUTE + f"match: {{}}, signature: {{inputs: [{{name: x, datatype: FP64, shape: {[1] * 33}}}]}}}}]\n",
        "3:94: expected at most 32 elements",
    ),
    route(
        "match: {}, signature: {inputs: [{name: x, datatype: FP64, shape: []}, {name: x, datatype: FP64, shape: []}]}",
        "3:106: 'x' is already the name of another tensor",
    ),
    translate(
        "operations: {gradeint: g}",
        "3:65: expected gradient, apply_jacobian or apply_hessian, got 'gradeint'; did you mean 'gradient'?",
    ),
    translate("rename: {inputs: [{client: a, backend: b}, {client: c, backend: b}]}", "3:116: 'b' is renamed twice"),
    translate(
        "images: {outputs: [{name: y, format: jpeg}]}",
        "3:89: 'jpeg' is lossy; add `lossy: true`, or use png or webp, which are lossless",
    ),
    translate(
        "images: {outputs: [{name: y, format: png, lossy: true}]}",
        "3:101: png is lossless; expected false, or jpeg or webp as format",
    ),
    translate(
        "images: {outputs: [{name: y, format: jpeg, lossy: true, channels: rgba}]}",
        "3:118: jpeg does not support 'rgba'; use png or webp",
    ),
    translate("images: {inputs: [{name: x}, {name: x}]}", "3:88: 'x' is listed twice"),
    translate(
        "images: {inputs: [{name: x, resize: [0, 16384]}]}",
        "3:89: must be at least 1, got 0",
        "3:92: must be at most 16383, got 16384",
    ),
    translate("select: [a, b, a]", "3:67: 'a' is listed twice"),
    (
        TRANSLATE
        + "constants: [\n"
        + "{name: a, datatype: FP64, shape: [2], data: [1, 2, 3]},\n"
        + "{name: b, datatype: INT8, shape: [1], data: [128]},\n"
        + "{name: c, datatype: INT8, shape: [1], data: [0.5]},\n"
        + "{name: d, datatype: FP32, shape: [1], data: [no]},\n"
        + "{name: e, datatype: BOOL, shape: [1], data: [1]},\n"
        + "{name: f, datatype: BYTES, shape: [1], data: [1]},\n"
        + "{name: g, datatype: INT8, shape: [2, 1], data: [[1, 2]]},\n"
        + "{name: h, datatype: INT8, shape: [-1], data: []},\n"
        + "{name: i, datatype: UINT64, shape: [2], data: [-1, 18446744073709551615]},\n"
        + "]}}]\n",
        "4:45: 3 elements, but shape [2] has 2",
        "5:45: the constant: element 0, 128, is out of the range of INT8",
        "6:45: the constant: element 0, 0.5, is not integral, so no INT8",
        "7:45: expected numbers for FP32",
        "8:45: expected true and false for BOOL",
        "9:46: expected texts for BYTES; put quotes around numbers",
        "10:48: the nesting of the lists does not match the shape; nest them like the shape, or write one flat list",
        "11:35: must be at least 0, got -1",
        "12:47: an integer is outside the range of INT64 and UINT64; write it as a float",
    ),
    # references
    (
        SOUND.replace("127.0.0.1:8080", "${NONE}"),
        "1:32: the environment variable NONE is not set; ${NONE:-default} gives it a default",
    ),
    # a variable that is not set echoes nowhere
    backend(
        "max_in_flight: '${NONE}'",
        "2:88: the environment variable NONE is not set; ${NONE:-default} gives it a default",
    ),
    backend("max_in_flight: '1${COUNT}'", "2:88: expected a whole number, got '1${COUNT}'"),
    # secrets are not shown
    backend(
        "max_in_flight: '${SECRET}', limits: {message: 'x${SECRET}'}}, "
        "b: {protocol: '${SECRET}', endpoints: ['${SECRET}']",
        "2:88: expected a whole number, got '${SECRET}'",
        "2:119: expected a whole number, got 'x${SECRET}'",
        "2:149: unknown protocol '${SECRET}'; expected " + PROTOCOL_NAMES,
    ),
    listener(
        "backends: {b: {protocol: umbridge, endpoints: ['${SECRET}']}}",
        "2:48: bad address '${SECRET}': it has no port; expected host:port (http)",
    ),
)


@pytest.mark.parametrize("levels", [5000, 500_000])
def test_nesting_that_would_crash_a_recursive_reader(levels: int) -> None:
    """A libyaml with a limit of its own meets that first, since it looks ahead."""
    [told] = problems("[" * levels)
    assert told in {f"1:{column}: nested deeper than {MAX_DEPTH} levels" for column in (MAX_DEPTH + 1, 1001)}


@pytest.mark.parametrize("row", PROBLEMS, ids=lambda row: row[-1][:200])
def test_every_problem_is_told_with_its_place(row: Row) -> None:
    text, *expected = row
    assert problems(text) == expected


def test_one_fault_hides_no_other() -> None:
    assert problems("""\
lsteners: []
listeners:
  - {name: http, bind: "127.0.0.1:8080", protocols: [v2-rst], model: 3}
  - {name: http, bind: "127.0.0.1:8080", protocols: [umbridge], limits: {mesage: 1}}
admin: {bind: "0.0.0.0:1"}
backends:
  science: {protocol: umbrigde, endpoints: [nowhere], policies: [{timeout: {}}]}
  other: {protocol: umbridge, endpoints: [nowhere]}
routes:
  - {match: {model: 1, listener: htp}, backend: sceince, rewirte: {}}
""") == [
        "1:1: unknown key 'lsteners'; did you mean 'listeners'?",
        "3:54: unknown protocol 'v2-rst'; did you mean 'v2-rest'?",
        "3:70: expected text, got 3; quote it",
        "4:12: listeners[0] is also called 'http'; choose another name",
        "4:24: '127.0.0.1:8080' is taken by listeners[0].bind; choose another address",
        "4:74: unknown key 'mesage'; did you mean 'message'?",
        "5:15: the status API must be on loopback unless it has `auth`; expected 127.0.0.1:PORT or `auth: {}`, got "
        "'0.0.0.0:1'",
        "7:23: unknown protocol 'umbrigde'; did you mean 'umbridge'?",
        "7:76: the key 'seconds' is missing",
        "8:43: bad address 'nowhere': it has no port; expected host:port (http)",
        "10:21: expected text, got 1; quote it",
        "10:34: unknown listener 'htp'; did you mean 'http'?",
        "10:49: unknown backend 'sceince'; did you mean 'science'?",
        "10:58: unknown key 'rewirte'; did you mean 'rewrite'?",
    ]


def test_columns_count_characters() -> None:
    assert problems(SOUND + 'health: {"é€😀": 1, bind: "[::1]:1"}\n') == [
        "4:10: unknown key 'é€😀'; expected auth, bind, ready or tls"
    ]
    assert problems(SOUND + 'health: {bind: "é€😀", x: 1}\n') == [
        "4:16: expected HOST:PORT such as 127.0.0.1:8080 or [::1]:8080, got 'é€😀'",
        "4:23: unknown key 'x'; expected auth, bind, ready or tls",
    ]


@pytest.mark.parametrize(
    ("protocols", "listener", "match", "route"),
    [
        ("nameless", "", "{model: m}", ""),
        ("nameless", ", model: m", "{}", ""),
        ("nameless", "", "{}", ", rewrite: {model: m}"),
        ("nameless, umbridge", "", "{protocol: umbridge}", ""),
    ],
)
def test_routes_that_need_no_rewrite_are_accepted(protocols: str, listener: str, match: str, route: str) -> None:
    text = SOUND.replace("[umbridge]", f"[{protocols}]{listener}").replace("{model: m}", match)
    assert problems(text.replace("backend: science", f"backend: science{route}")) == []


def test_a_backend_without_names_needs_no_rewrite() -> None:
    text = SOUND.replace("[umbridge]", "[nameless]").replace("{model: m}", "{}")
    assert problems(text.replace("protocol: umbridge", "protocol: nameless")) == []


@pytest.mark.parametrize(
    ("text", "catalog", "expected"),
    [
        (
            LISTENER + "backends: {b: {protocol: umbridge, discovery: {srv: _http._tcp.lab}}}\n",
            replace(CATALOG, srv=False),
            '2:48: needs dnspython, which is not installed: pip install "modelglot[discovery]"',
        ),
        (
            TRANSLATE + "images: {inputs: [{name: x}]}}}]\n",
            replace(CATALOG, images=False),
            '3:52: needs Pillow, which is not installed: pip install "modelglot[images]"',
        ),
    ],
)
def test_keys_that_need_a_package(text: str, catalog: Catalog, expected: str) -> None:
    assert problems(text) == []
    with pytest.raises(ConfigError) as caught:
        loads(text, "g.yaml", catalog, ENVIRON)
    assert str(caught.value).endswith(f":{expected}")


def test_calls_wait_for_servers_without_wait_for_endpoints() -> None:
    servers = "servers: {engine: process, command: [model]}, queue: {wait_for_endpoints: 5}"
    found = problems(LISTENER + f"backends: {{b: {{protocol: umbridge, {servers}}}}}\n")
    assert [each.partition(" ")[2] for each in found] == [
        "calls wait for servers anyway, for at most `servers.start_timeout`; remove the key"
    ]


@pytest.mark.parametrize(
    ("protocols", "route"),
    [
        ("messages", "match: {path: /free}"),
        ("messages", "match: {protocol: messages, listener: http, path: '/free/*', header: {X-A: b}}"),
        ("messages", "match: {path: /messages/predict}"),
        ("messages", "match: {path: /free, model: m, version: '1.0'}"),
        ("umbridge, messages", "match: {path: /free}, policies: [{timeout: {seconds: 1}}]"),
    ],
)
def test_a_path_may_pass_untouched(protocols: str, route: str) -> None:
    text = MESSAGES.replace("[messages]", f"[{protocols}]")
    assert problems(f"{text}{route}, passthrough: true}}]\n") == []


def test_a_route_may_say_how_tensors_travel_and_that_configs_do() -> None:
    text = MESSAGES + "match: {}, translate: {payload: text, carry_config: true}}]\n"
    assert loads(text, "g.yaml", CATALOG, ENVIRON).routes[0].translate.payload == "text"


@pytest.mark.parametrize(
    "text",
    [
        SOUND,
        SOUND.replace("[umbridge]", "[umbridge, points], prefix: {points: /p}"),
        SOUND + "admin: {bind: '127.0.0.2:8080'}\n",  # the same port of another address
        SOUND.replace("[umbridge]", "[umbridge, messages], metrics_page: true, allow_offline: true"),
    ],
)
def test_sound_configurations_have_no_problems(text: str) -> None:
    assert problems(text) == []
