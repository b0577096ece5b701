"""The JSON Schema, and the pages of keys in `docs/configuration` and `docs/policies`, which are held to it."""

import json
import re
from pathlib import Path
from typing import Any

import pytest
from jsonschema import Draft202012Validator

from gateway.assembly import registry
from gateway.cli.options import catalog
from gateway.config import Catalog, json_schema, loads
from gateway.config.document import compose
from gateway.config.schema import below, keys_at
from tests.config.document import DOCS, FOLDER, OVERVIEW, POLICIES, keys, keys_of_policy, pages
from tests.config.toys import CATALOG

SCHEMA = json_schema(CATALOG)
ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize(
    ("location", "keys"),
    [
        (
            (),
            ["listeners", "limits", "admin", "auth", "permissions", "principals", "health", "scaler", "metrics",
             "tracing", "log", "request_ids", "drain", "workers", "reload", "ready", "check", "reference", "forms",
             "backends", "models", "routes"],
        ),
        (("reload",), ["watch", "interval"]),
        (("admin",), ["bind", "auth", "tls"]),
        (
            ("listeners", 7, "limits"),
            ["message", "headers", "json_values", "config", "inflation", "connections", "connections_per_client",
             "requests_per_connection", "connection_age", "connection_grace", "stream_first_message", "stream_idle",
             "ping_interval"],
        ),
        (
            ("limits",),
            ["connections", "handshakes", "memory", "connections_per_client", "memory_per_client", "calls_per_request",
             "shed"],
        ),
        (("limits", "shed"), ["lag", "memory"]),
        (("models", "any"), ["outputs", "inputs", "steps", "description", "steps_at_once", "derivatives"]),
        (("models", "any", "steps", "any", "when"), ["parameter", "value", "equals", "differs", "above", "below"]),
        (("backends", "any", "policies", 0), ["hedge", "retry", "timeout"]),
        (("routes", 0, "policies", 0, "timeout"), ["seconds", "per_try"]),
        (("routes", 0, "signature", "inputs", 0), ["name", "datatype", "shape", "content_type", "optional"]),
        (("routes", 0, "translate", "rename", "outputs", 0), ["client", "backend"]),
        (("listeners", 0, "name"), []),
        (("nothing", 0, "there"), []),
    ],
)  # fmt: skip
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


def test_the_schema_is_a_schema() -> None:
    Draft202012Validator.check_schema(REAL)


@pytest.mark.parametrize("path", SHIPPED, ids=lambda path: path.name)
def test_what_is_shipped_is_valid_by_the_schema(path: Path) -> None:
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


KEYS = tuple(keys(json_schema(Catalog({}, registry.policies()))))
PAGES = pages()


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(DOCS)))
def test_a_page_of_keys_is_current(page: Path) -> None:
    assert page.read_text() == PAGES[page], "`make pages` writes it anew"


def test_every_key_has_one_anchor_on_the_page_where_a_reader_looks() -> None:
    """On the page of the key at the top, or on that of the policy."""
    told = [
        (page.relative_to(DOCS).as_posix(), anchor)
        for page in [*FOLDER.glob("*.md"), *(DOCS / "policies").glob("*.md")]
        for anchor in re.findall(r'<a id="([^"]+)">', page.read_text())
    ]
    expected = [
        (f"configuration/{re.split(r'[.[]', key.name)[0]}.md", re.sub(r"\[\]|\.\*", "", key.name))
        for key in KEYS
        if "." in key.name and POLICIES + "." not in key.name
    ]
    expected += [
        (f"policies/{name.split('.')[0]}.md", re.sub(r"\[\]|\.\*", "", name))
        for key in KEYS
        if key.name.startswith("routes[].policies[].") and "." in (name := key.name.split("policies[].", 1)[1])
    ]
    assert sorted(told) == sorted(expected)


def test_the_overview_links_to_a_page_for_each_key_at_the_top() -> None:
    linked = re.findall(r"^\| \[`(\w+)`\]\((\w+)\.md\)", OVERVIEW.read_text(), re.MULTILINE)
    assert linked == [(key.name, key.name) for key in KEYS if "." not in key.name]
    assert {page.stem for page in FOLDER.glob("*.md")} == {"README", *dict(linked)}, "a page of a key that is none"


@pytest.mark.parametrize("policy", sorted(registry.policies()))
def test_a_policy_has_the_same_keys_at_a_backend_and_at_a_route(policy: str) -> None:
    """So one page has them."""
    assert keys_of_policy(list(KEYS), policy, "backends.*") == keys_of_policy(list(KEYS), policy, "routes[]") != []


def test_the_documented_example_is_sound() -> None:
    """Only its keys and names are of interest: the toys stand in for the protocols."""
    example = OVERVIEW.read_text().split("```yaml\n")[1].split("```")[0]
    assert loads(example, "example", CATALOG).backends["science"].addresses == ("http://127.0.0.1:4242",)
