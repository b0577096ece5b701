"""The effective configuration: every key with its value, every declared secret masked."""

import json
from collections.abc import Iterator
from pathlib import Path
from types import UnionType
from typing import Annotated, Any, Union, get_args, get_origin

import pytest
from pydantic import BaseModel, SecretStr

from gateway.assembly.registry import policies
from gateway.cli.options import catalog
from gateway.config import Config, load
from gateway.config.effective import MASK, effective
from tests.config.told import read

ROOT = Path(__file__).parents[2]
TEXT = """
listeners: [{name: http, bind: "127.0.0.1:0", protocols: [v2-rest]}]
admin: {bind: "127.0.0.1:0"}
tracing: {otlp: "http://127.0.0.1:4318", headers: {api-key: planted-1}}
backends:
  lab:
    protocol: v2-rest
    endpoints: ["lab:1"]
    discovery: {register: {token: planted-2}}
    safe: true
    policies:
      - rate_limit: {requests: 5, seconds: 1, redis: "redis://:planted-3@host/0"}
      - cache: {redis: {url: "redis://:planted-6@host/0", name: lab}}
routes:
  - match: {model: m, input: {shape: [-1, 2]}}
    backend: lab
    translate: {constants: [{name: k, datatype: FP32, shape: [2], data: [1, .inf]}]}
    policies: [{timeout: {seconds: 2}}]
"""


def test_it_has_every_key_and_no_secret() -> None:
    found: Any = effective(read(TEXT))
    written = json.dumps(found, allow_nan=False)
    assert "planted" not in written
    assert found["tracing"]["headers"] == {"api-key": MASK}
    assert found["backends"]["lab"]["discovery"]["register"] == {"token": MASK, "seconds": 60}
    assert found["backends"]["lab"]["policies"][0]["rate_limit"]["redis"] == MASK
    assert found["backends"]["lab"]["policies"][1]["cache"]["redis"]["url"] == MASK
    assert found["listeners"][0]["bind"] == "127.0.0.1:0"
    assert found["drain"] == {"delay": 0, "timeout": 30}
    (route,) = found["routes"]
    assert route["policies"][0]["timeout"]["seconds"] == 2
    assert route["match"]["input"]["shape"] == [-1, 2]
    assert route["translate"]["constants"] == [{"name": "k", "datatype": "FP32", "data": [1.0, "inf"]}]


def test_bytes_of_constants_are_shown_as_text() -> None:
    text = TEXT.replace("datatype: FP32, shape: [2], data: [1, .inf]", "datatype: BYTES, shape: [2], data: [a, grün]")
    found: Any = effective(read(text))
    assert found["routes"][0]["translate"]["constants"] == [{"name": "k", "datatype": "BYTES", "data": ["a", "grün"]}]


def test_texts_from_files_and_variables_are_shown_as_their_references(tmp_path: Path) -> None:
    (tmp_path / "secret").write_text("planted-4\n")
    header = f"${{file:{tmp_path}/secret}}"
    text = TEXT.replace("match: {model: m,", f"match: {{model: '${{MODEL}}', header: {{x-key: '{header}'}},")
    found: Any = effective(read(text, MODEL="planted-5"))
    assert "planted" not in json.dumps(found)
    assert found["routes"][0]["match"]["header"] == {"x-key": header}
    assert found["routes"][0]["match"]["model"] == "${MODEL}"


@pytest.mark.parametrize("path", sorted((ROOT / "config").rglob("*.yaml")), ids=lambda path: path.stem)
def test_it_is_json_for_every_example(path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "lab").symlink_to(ROOT / "config/examples/hpc")
    monkeypatch.setenv("HOME", str(tmp_path))
    json.dumps(effective(load(path, catalog())), allow_nan=False)


def declared_secrets(kind: Any, seen: set[Any], place: str = "") -> Iterator[str]:
    """The keys below `kind` that are declared as secrets."""
    if kind is SecretStr:
        yield place
    elif isinstance(kind, type) and issubclass(kind, BaseModel):
        if kind not in seen:
            seen.add(kind)
            for name, key in kind.model_fields.items():
                yield from declared_secrets(key.annotation, seen, f"{place}.{name}")
    elif get_origin(kind) in (Annotated, Union, UnionType) or get_args(kind):
        for part in get_args(kind):
            if part is not Ellipsis and not isinstance(part, str):
                yield from declared_secrets(part, seen, place)


def test_the_planted_secrets_are_all_that_are_declared() -> None:
    """A new secret has to be planted above, too."""
    found = {*declared_secrets(Config, set())}
    for policy in policies().values():
        found |= {*declared_secrets(policy.Settings, set())}
    assert {name.rpartition(".")[2] for name in found} == {"headers", "token", "redis", "url"}
