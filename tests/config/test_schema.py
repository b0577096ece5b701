"""The JSON Schema, and `docs/configuration.md`, which is held to it."""

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from jsonschema import Draft202012Validator

from gateway.assembly import registry
from gateway.cli.options import catalog
from gateway.config import Catalog, json_schema, loads
from gateway.config.document import compose
from gateway.config.schema import below, dereferenced, keys_at
from tests.config.toys import CATALOG

SCHEMA = json_schema(CATALOG)
ROOT = Path(__file__).parents[2]
DOCUMENT = ROOT / "docs" / "configuration.md"
BEGIN, END = "<!-- keys: begin -->\n", "<!-- keys: end -->\n"


@pytest.mark.parametrize(
    ("location", "keys"),
    [
        (
            (),
            [
                "listeners",
                "limits",
                "admin",
                "auth",
                "permissions",
                "principals",
                "health",
                "scaler",
                "metrics",
                "tracing",
                "log",
                "request_ids",
                "drain",
                "workers",
                "reload",
                "ready",
                "reference",
                "forms",
                "backends",
                "models",
                "routes",
            ],
        ),
        (("reload",), ["watch", "interval"]),
        (("admin",), ["bind", "auth", "tls"]),
        (
            ("listeners", 7, "limits"),
            [
                "message",
                "headers",
                "json_values",
                "config",
                "inflation",
                "connections",
                "connections_per_client",
                "requests_per_connection",
                "connection_age",
                "connection_grace",
                "stream_first_message",
                "stream_idle",
                "ping_interval",
            ],
        ),
        (("limits",), ["connections", "handshakes", "memory", "connections_per_client", "memory_per_client", "shed"]),
        (("limits", "shed"), ["lag", "memory"]),
        (("models", "any"), ["outputs", "inputs", "steps", "description", "steps_at_once", "derivatives"]),
        (("models", "any", "steps", "any", "when"), ["parameter", "value", "equals", "differs", "above", "below"]),
        (("backends", "any", "policies", 0), ["hedge", "retry", "timeout"]),
        (("routes", 0, "policies", 0, "timeout"), ["seconds", "per_try"]),
        (("routes", 0, "signature", "inputs", 0), ["name", "datatype", "shape", "content_type"]),
        (("routes", 0, "translate", "rename", "outputs", 0), ["client", "backend"]),
        (("listeners", 0, "name"), []),
        (("nothing", 0, "there"), []),
    ],
)
def test_the_keys_of_every_map_are_known(location: tuple[str | int, ...], keys: list[str]) -> None:
    assert keys_at(SCHEMA, location) == keys


def test_the_protocols_that_there_are_are_in_it() -> None:
    names = sorted(CATALOG.protocols)
    assert below(SCHEMA, ("listeners", 0, "protocols", 0))["enum"] == names
    assert below(SCHEMA, ("backends", "x", "protocol"))["enum"] == names
    assert below(SCHEMA, ("routes", 0, "match", "protocol"))["enum"] == names


def test_every_key_is_described_and_nothing_is_left_over() -> None:
    text = json.dumps(SCHEMA)
    assert [key for key, _, part in keys(SCHEMA) if not part.get("description")] == []
    assert [name for name in SCHEMA["$defs"] if f'"#/$defs/{name}"' not in text] == []


REAL = json_schema(catalog())
SHIPPED = [ROOT / "config/gateway.yaml", *sorted((ROOT / "config/examples").glob("*.yaml"))]


@pytest.mark.parametrize("path", SHIPPED, ids=lambda path: path.name)
def test_what_is_shipped_is_valid_by_the_schema(path: Path) -> None:
    Draft202012Validator.check_schema(REAL)
    Draft202012Validator(REAL).validate(compose(path.read_text(), {})[0].plain())


BACKEND = {"protocol": "v2-rest", "endpoints": ["h:1"]}


@pytest.mark.parametrize("key", ["trust_metadata", "max_in_flight", "protocol"])
def test_a_reference_is_valid_where_a_scalar_is(key: str) -> None:
    valid = Draft202012Validator(REAL).is_valid
    listeners = [{"name": "a", "bind": "h:1", "protocols": ["${NAME}"]}]
    assert valid({"listeners": listeners, "backends": {"b": {**BACKEND, key: "${NAME:-x}"}}})
    assert not valid({"listeners": listeners, "backends": {"b": {**BACKEND, key: "NAME"}}})


@pytest.mark.parametrize(
    ("keys", "valid"),
    [
        ({"backend": "a"}, True),
        ({"split": [{"backend": "a"}]}, True),
        ({}, False),
        ({"backend": "a", "split": []}, False),
    ],
)
def test_a_route_has_a_backend_or_a_split(keys: dict[str, Any], valid: bool) -> None:
    listeners = [{"name": "a", "bind": "h:1", "protocols": ["v2-rest"]}]
    assert Draft202012Validator(REAL).is_valid({"listeners": listeners, "routes": [{"match": {}, **keys}]}) == valid


def test_the_documentation_has_every_key() -> None:
    """`make pages` writes the table after a change of the keys."""
    real = json_schema(Catalog({}, registry.policies()))  # names of protocols are not its matter
    text = DOCUMENT.read_text()
    assert text[text.index(BEGIN) + len(BEGIN) : text.index(END)] == table(real)


def test_the_page_about_health_has_its_keys_and_their_defaults() -> None:
    real = json_schema(Catalog({}, registry.policies()))
    above = "backends.*.health."
    inner = [(key.removeprefix(above), part) for key, _, part in keys(real) if key.startswith(above)]
    rows = re.findall(r"^\| `([a-z.]+)` \| ([^|]+) \|", (ROOT / "docs/health.md").read_text(), re.MULTILINE)
    told = dict(rows) | {"probe": ""}  # its default depends on the protocol
    assert [(key, told.get(key)) for key, part in inner if key != "ejection"] == [
        (key, default(False, part)) for key, part in inner if key != "ejection"
    ]


def table(schema: dict[str, Any]) -> str:
    rows = [
        f"| `{key}` | {default(required, part)} | {values(schema, part)} | {' '.join(part['description'].split())} |\n"
        for key, required, part in keys(schema)
    ]
    return "| key | default | value | meaning |\n|---|---|---|---|\n" + "".join(rows)


def keys(
    schema: dict[str, Any], part: dict[str, Any] | None = None, above: str = ""
) -> Iterator[tuple[str, bool, Any]]:
    """Every key with its dotted name, whether it must be there, and its part of the schema."""
    part = schema if part is None else part
    for name, inner in part.get("properties", {}).items():
        dotted = f"{above}.{name}".removeprefix(".")
        yield dotted, name in part.get("required", ()), inner
        yield from keys(schema, *contents(schema, inner, dotted))


def contents(schema: dict[str, Any], part: dict[str, Any], dotted: str) -> tuple[dict[str, Any], str]:
    part = dereferenced(schema, part)
    if part.get("type") == "array":
        return contents(schema, part["items"], f"{dotted}[]")
    if isinstance(part.get("additionalProperties"), dict):
        return contents(schema, part["additionalProperties"], f"{dotted}.*")
    return part, dotted


def default(required: bool, part: dict[str, Any]) -> str:
    if required:
        return "*required*"
    if part.get("default") in (None, ""):
        return ""
    return f"`{json.dumps(part['default'])}`".replace('"', "")


WORDS = {
    "boolean": "`true`, `false`",
    "string": "text",
    "integer": "whole number",
    "number": "number",
    "object": "map",
    "array": "list",
}


def values(schema: dict[str, Any], part: dict[str, Any]) -> str:
    scalars = [each for each in part.get("anyOf", ()) if each.get("type") != "null" and "pattern" not in each]
    if len(scalars) > 1 and not any("$ref" in each or each.get("type") in ("array", "object") for each in scalars):
        return " or ".join(dict.fromkeys(values(schema, each) for each in scalars))
    part = dereferenced(schema, part)
    if part.get("enum"):
        return ", ".join(f"`{option}`" for option in part["enum"])
    word = WORDS.get(part.get("type", ""), "any")
    if word == "list":
        return f"list of {values(schema, part['items'])}"
    return word


def test_the_documented_example_is_sound() -> None:
    """Only its keys and names are of interest: the toys stand in for the protocols."""
    example = DOCUMENT.read_text().split("```yaml\n")[1].split("```")[0]
    assert loads(example, "example", CATALOG).backends["science"].addresses == ("http://127.0.0.1:4242",)
