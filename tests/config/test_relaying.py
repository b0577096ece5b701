"""Which routes pass calls on unread, and the first key that needs their content."""

from dataclasses import fields

import pytest

from gateway.assembly.registry import policies, protocols
from gateway.bridge.settings import TranslateSettings
from gateway.config.relaying import NEEDS_NO_CONTENT, relaying
from gateway.config.routes import RouteConfig
from tests.config import told

BACKEND = "protocol: v2-rest, endpoints: ['lab:1'], safe: true"


def first_key(route: str, backend: str = BACKEND, more: str = "", client: str = "v2-rest") -> str:
    text = f"""
listeners: [{{name: in, bind: "127.0.0.1:0", protocols: [v2-rest, v2-grpc, mip], model: m}}]
backends: {{lab: {{{backend}}}, other: {{{BACKEND}}}}}
routes: [{{{route}}}]
{more}
"""
    config = told.read(text)
    spoken = {name: protocols()[each.protocol] for name, each in config.backends.items()}
    found = relaying(config.routes[0], protocols()[client], config, spoken)
    assert (found.relay is None) == bool(found.reads)
    return found.reads


KEYS = {
    "match": ("match: {input: {name: x}}, backend: lab", "match.input"),
    "rewrite": ("match: {}, backend: lab, rewrite: {model: other}", "rewrite.model"),
    "signature": (
        "match: {}, backend: lab, signature: {inputs: [{name: x, datatype: FP32, shape: [1]}],"
        " outputs: [{name: y, datatype: FP32, shape: [1]}]}",
        "signature",
    ),
    "translate": ("match: {}, backend: lab, translate: {cast: round}", "translate.cast"),
    "check": ("match: {}, backend: lab, check: full", "check"),
    "policies": ("match: {}, backend: lab, policies: [{cache: {seconds: 1}}]", "policies.cache"),
}


def test_every_key_of_a_route_says_whether_it_needs_content() -> None:
    assert set(RouteConfig.model_fields) == NEEDS_NO_CONTENT | KEYS.keys()


@pytest.mark.parametrize(("route", "key"), KEYS.values(), ids=KEYS)
def test_a_key_that_needs_content_is_named(route: str, key: str) -> None:
    assert first_key(route) == key


@pytest.mark.parametrize("key", sorted(each.name for each in fields(TranslateSettings)))
def test_every_key_of_translate_needs_content(key: str) -> None:
    values = {
        "nan": "string", "bytes": "base64", "payload": "rows", "cast": "round", "operations": "{gradient: g}",
        "max_rows": "9", "stream": "last", "carry_config": "true", "rename": "{inputs: [{client: a, backend: b}]}",
        "constants": "[{name: c, datatype: FP32, shape: [1], data: [1]}]", "select": "[y]", "order": "[x]",
        "drop": "[x]", "images": "{inputs: [{name: x}]}", "derivatives": "{}",
    }  # fmt: skip
    if key == "payload":
        v1 = "protocol: v1-rest, endpoints: ['lab:1']"
        assert first_key("match: {}, backend: lab, translate: {payload: rows}", v1) == "backends.lab.protocol"
        return
    assert first_key(f"match: {{}}, backend: lab, translate: {{{key}: {values[key]}}}") == f"translate.{key}"


@pytest.mark.parametrize("name", sorted(policies()))
def test_every_policy_says_whether_it_needs_content(name: str) -> None:
    settings = {
        "timeout": "{seconds: 1}", "rate_limit": "{requests: 1}", "concurrency_limit": "{calls: 1}",
        "cache": "{seconds: 1}", "mirror": "{backend: other}",
    }.get(name, "{}")  # fmt: skip
    reads = name in ("cache", "gather", "mirror")
    if name == "gather":  # for backends alone
        backend = f"{BACKEND}, policies: [{{gather: {settings}}}]"
        assert first_key("match: {}, backend: lab", backend) == "backends.lab.policies.gather"
        return
    key = first_key(f"match: {{}}, backend: lab, policies: [{{{name}: {settings}}}]")
    assert key == (f"policies.{name}" if reads else "")


@pytest.mark.parametrize(
    ("route", "more", "key"),
    [
        ("match: {}, backend: lab", "", ""),
        ("match: {model: 'a*', header: {x: y}}, split: [{backend: lab}, {backend: other}]", "", ""),
        ("match: {}, backend: lab, fallback: [other]", "", ""),
        ("match: {}, backend: lab", "check: full", "check"),
        ("match: {}, backend: lab, check: none", "check: full", ""),
        ("match: {model: m}, backend: lab", "log: {payloads: {to: /tmp/p}}", "log.payloads"),
        ("match: {model: m}, backend: lab", "log: {payloads: {to: /tmp/p, routes: [m]}}", "log.payloads"),
        ("match: {}, name: m, backend: lab", "log: {payloads: {to: /tmp/p, routes: [m]}}", "log.payloads"),
    ],
)
def test_what_else_decides(route: str, more: str, key: str) -> None:
    assert first_key(route, more=more) == key


def test_both_sides_must_speak_one_wire_form_in_one_way() -> None:
    assert first_key("match: {}, backend: lab", client="v2-grpc") == "backends.lab.protocol"
    assert first_key("match: {}, backend: lab, fallback: [other]", "protocol: v2-grpc, endpoints: ['lab:1']") == (
        "backends.lab.protocol"
    )


def warnings(listener: str, backend: str, more: str = "") -> list[str]:
    return told.warnings(f"""
listeners: [{{name: in, bind: "{listener}", protocols: [v2-rest]}}]
backends: {{lab: {{{backend}, policies: [{{timeout: {{seconds: 9}}}}]}}}}
routes: [{{match: {{}}, backend: lab}}]
{more}
""")


def test_a_triton_that_anybody_can_reach_unread_is_warned_of() -> None:
    triton = "protocol: v2-rest, endpoints: ['lab:1'], flavor: triton"
    [found] = warnings("0.0.0.0:80", triton)
    assert "'in' requires no credentials, and its requests reach the Triton servers of backend 'lab' unread" in found
    assert warnings("127.0.0.1:80", triton) == []
    assert warnings("0.0.0.0:80", triton, "check: full") == []
    assert warnings("0.0.0.0:80", triton.replace("flavor: triton", "flavor: mlserver")) == []
    assert warnings("0.0.0.0:80", triton.replace("v2-rest", "v2-grpc")) == []
