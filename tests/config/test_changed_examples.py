"""Checks that need what other checks find wrong: configurations with one part changed are read or refused, and never
raise anything else than a ConfigError."""

from collections.abc import Iterator
from contextlib import suppress
from functools import cache
from itertools import cycle
from pathlib import Path
from typing import Any

import orjson
import pytest
import yaml

from gateway.cli.options import catalog
from gateway.config import ConfigError, loads_with_warnings
from tests.config.told import problems, warnings

EXAMPLES = sorted((Path(__file__).parents[2] / "config" / "examples").rglob("*.yaml"))
VALUES: tuple[Any, ...] = (None, [], {}, "grpc", ["grpc"], "*", -1, True, {"nothing": 1})
"""What a part is replaced by: some of these are wrong wherever they stand, some are right in places."""

ACCESS = """
listeners:
  - {name: http, bind: "127.0.0.1:0", protocols: [v2-rest, mip], auth: {accept: [keys], anonymous: team}}
admin: {bind: "127.0.0.1:0", auth: {}}
auth: {keys: {file: /nowhere/keys.yaml}}
principals: {team: {permissions: [use]}}
permissions: {own: [{models: ["*"], listeners: [http]}]}
backends:
  lab: {protocol: v2-grpc, flavor: triton, endpoints: ["127.0.0.1:1"], policies: [{timeout: {seconds: 1}}]}
  old: {protocol: mip, batch: whole, endpoints: ["127.0.0.1:2"]}
routes:
  - {match: {model: "a*", input: {name: x}}, split: [{backend: lab}, {backend: old, weight: 0}], fallback: [lab]}
  - {match: {model: "*", protocol: v2-rest}, backend: lab, translate: {carry_config: true}, rewrite: {version: "1"}}
"""


TEXTS = {"access": ACCESS} | {path.stem: path.read_text() for path in EXAMPLES}
Place = tuple[Any, ...]


def places(part: Any, above: Place = ()) -> Iterator[Place]:
    if above:
        yield above
    items = part.items() if isinstance(part, dict) else enumerate(part) if isinstance(part, list) else ()
    for key, each in items:
        yield from places(each, (*above, key))


def changed(document: Any, place: Place, value: Any) -> str:
    copy = orjson.loads(orjson.dumps(document))
    part = copy
    for key in place[:-1]:
        part = part[key]
    part[place[-1]] = value
    return orjson.dumps(copy).decode()


def check(text: str) -> None:
    """Read it. Raises what no configuration should raise."""
    with suppress(ConfigError):
        loads_with_warnings(text, "changed.yaml", catalog(), {})


@cache
def changes() -> dict[str, list[tuple[Any, Place, Any]]]:
    """For each text its document and a place in it with another value. Where a place is the first of its keys, whatever
    the numbers in lists, it has each of VALUES; else one of them, in turn."""
    found: dict[str, list[tuple[Any, Place, Any]]] = {}
    known: set[Place] = set()
    turns = cycle(VALUES)
    for name, text in TEXTS.items():
        document = orjson.loads(orjson.dumps(yaml.safe_load(text)))
        found[name] = []
        for place in places(document):
            keys = tuple(each for each in place if not isinstance(each, int))
            values = (next(turns),) if keys in known else VALUES
            known.add(keys)
            found[name] += [(document, place, value) for value in values]
    return found


@pytest.mark.long
@pytest.mark.parametrize("name", TEXTS)
def test_a_changed_configuration_is_read_or_refused(name: str) -> None:
    for document, place, value in changes()[name]:
        check(changed(document, place, value))


def test_an_unknown_protocol_is_told_with_credentials_as_without() -> None:
    listener = '{name: http, bind: "127.0.0.1:0", protocols: [v2-rest, grpc], auth: {anonymous: team}}'
    text = f"listeners: [{listener}]\nprincipals: {{team: {{permissions: [use]}}}}\nauth: {{keys: {{file: /keys}}}}\n"
    assert any("'grpc'; did you mean" in each for each in problems(text))


@pytest.mark.parametrize("operation", ["log-settings", "trace-settings", "load", "config", "model-statistics"])
def test_a_protocol_that_lacks_an_operation_says_nothing_about_its_route(operation: str) -> None:
    """Requests of grps may name no model, but none of them is for V2's settings."""
    listener = '{name: http, bind: "127.0.0.1:0", protocols: [v2-rest, grps-rest, umbridge], allow_control: true}'
    backend = "{protocol: v2-rest, endpoints: ['h:1'], policies: [{timeout: {seconds: 1}}]}"
    text = f"listeners: [{listener}]\nbackends: {{t: {backend}}}\nroutes: [{{match: {{operation: ANY}}, backend: t}}]\n"
    assert warnings(text.replace("ANY", operation)) == []
    told = "\n".join(problems(text.replace("ANY", "infer")))
    assert "needs a model name, which grps-rest requests at listener 'http' may not" in told
