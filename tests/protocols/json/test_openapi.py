"""The description of a form: its schemas accept the bodies that the gateway reads, and its examples can be sent."""

import json
from typing import Any

import pytest
from jsonschema import Draft202012Validator

from gateway.core.errors import DecodeError
from gateway.core.json.openapi import HttpOperation, Media
from gateway.core.protocol import Protocol
from tests.protocols.json.declared import declared, read

TENSORS = {"x": "FP64 [-1, 2]", "s": "BYTES [1]", "k": "INT64 []", "y": "FP64 [-1]"}


def form(request: str) -> Protocol:
    """A form whose requests have this template."""
    used = {name: each for name, each in TENSORS.items() if name == "y" or f"${name}" in request}
    return declared(f"{{infer: {{path: /run, request: {request}, response: {{y: $y}}}}, tensors: {json.dumps(used)}}}")


def described(protocol: Protocol, pattern: str) -> HttpOperation | None:
    assert protocol.describer is not None
    describe = protocol.describer()
    assert describe is not None
    return describe(pattern, None, "")


def checker(media: Media) -> Draft202012Validator:
    assert media.schema is not None
    Draft202012Validator.check_schema(media.schema)
    return Draft202012Validator(media.schema)


def is_read(protocol: Protocol, body: Any) -> bool:
    try:
        read(protocol, "POST /run", json.dumps(body).encode())
    except DecodeError:
        return False
    return True


@pytest.mark.parametrize(
    ("request_", "accepted", "refused", "example"),
    [
        (
            '{x: $x, "s?": $s|text}',
            [{"x": [[1, 2]]}, {"x": [[1, 2], [3, 4]], "s": "a"}],
            [{"s": "a"}, {"x": [[1, 2, 3]]}, {"x": [[1, 2]], "s": 1}, {"x": [[1, 2]], "z": 1}],
            {"x": [[1.0, 2.0]]},
        ),
        (
            "{x: $x|flat, n: $x|shape, k: $k|scalar, fixed: [1, a]}",
            [{"x": [1, 2, 3, 4], "n": [2, 2], "k": 7, "fixed": [1, "a"]}],
            [
                {"x": [1, 2], "n": [1, 3], "k": 7, "fixed": [1, "a"]},
                {"x": [1, 2], "n": [1, 2], "k": "7", "fixed": [1, "a"]},
                {"x": [1, 2], "n": [1, 2], "k": 7, "fixed": [1, "b"]},
                {"x": [1, 2], "n": [1, 2], "k": 7, "fixed": [1]},
            ],
            {"x": [1.0, 2.0], "n": [1, 2], "k": 1, "fixed": [1, "a"]},
        ),
        (
            "{id: $id, rows: [{a: $x, i: $index}, ...]}",
            [{"id": "q", "rows": [{"a": [1, 2], "i": 0}, {"a": [3, 4], "i": 1}]}],
            [{"id": "q", "rows": [{"a": [1], "i": 0}]}, {"id": "q", "rows": [{"a": [1, 2]}]}, {"id": "q"}],
            {"id": "text", "rows": [{"a": [1.0, 2.0], "i": 0}]},
        ),
        ("{s: $s|items}", [{"s": "a"}, {"s": ["a"]}], [{"s": 1}, {"s": [1]}], {"s": ["text"]}),
        ("{s: $s|texts}", [{"s": "a"}, {"s": ["a"]}], [{"s": [[1]]}], None),
        ("{x: $x|numbers}", [{"x": [["1", "2.5"]]}], [{"x": [["1", "2", "3"]]}, {"x": "1"}], None),
        (
            "{x: $x|base64, n: $x|shape}",
            [{"x": "A" * 22 + "==", "n": [1, 2]}],
            [{"x": 1, "n": [1, 2]}, {"x": "A" * 22 + "=="}],
            None,
        ),
        (
            "{x: $x, p: $params}",
            [{"x": [[1, 2]], "p": {"t": 1}}, {"x": [[1, 2]], "p": {}}],
            [{"x": [[1, 2]], "p": 1}, {"x": [[1, 2]]}],
            {"x": [[1.0, 2.0]], "p": {}},
        ),
        (
            "{x: $x, k: $param.k, z: $_=2}",
            [{"x": [[1, 2]], "k": "a", "z": None}],
            [{"x": [[1, 2]], "k": 1}, {"x": [[1, 2]], "z": 2}],
            {"x": [[1.0, 2.0]], "k": 1, "z": 2},
        ),
        ("{x: $x|row}", [{"x": [1, 2]}], [{"x": [[1, 2]]}, {"x": 1}, {"x": ["1", "2"]}], None),
        ("[$x|flat, $k|scalar]", [[[1, 2], 3]], [[[1, 2]], [[1, 2], 3, 4], {}], [[1.0, 2.0], 1]),
    ],
)
def test_a_schema_accepts_what_is_read(request_: str, accepted: list[Any], refused: list[Any], example: Any) -> None:
    protocol = form(request_)
    operation = described(protocol, "POST /run")
    assert operation is not None
    media = operation.body["application/json"]
    schema = checker(media)
    bodies = [*accepted, *refused]
    assert [(body, schema.is_valid(body)) for body in bodies] == [(body, body in accepted) for body in bodies]
    assert [(body, is_read(protocol, body)) for body in bodies] == [(body, body in accepted) for body in bodies]
    assert media.example == example
    assert example is None or (schema.is_valid(example) and is_read(protocol, example))


def test_a_table_is_described_as_names_and_rows() -> None:
    protocol = declared("infer: {path: /run, request: {names: $*|names, rows: $*|table}, response: $y}")
    operation = described(protocol, "POST /run")
    assert operation is not None
    schema = checker(operation.body["application/json"])
    bodies = [{"names": ["a", "b"], "rows": [[1, "c"]]}, {"names": "a", "rows": [[1]]}, {"names": ["a"], "rows": [1]}]
    assert (
        [schema.is_valid(each) for each in bodies]
        == [is_read(protocol, each) for each in bodies]
        == [True, False, False]
    )


def test_a_body_that_is_not_json_has_no_schema() -> None:
    operation = described(declared("infer: {path: /run, media_type: text/csv, request: $x, response: $y}"), "POST /run")
    assert operation is not None
    assert operation.body == {"text/csv": Media()}


OTHERS = declared("""
infer: {path: /run, request: {x: $x}, response: {y: $y}}
ready: {path: /ready, status: 204}
live: {path: /live, response: {ok: true}}
models: {path: /models, response: {names: [$model, ...]}, one: {path: "/models/{model}", response: {id: $model}}}
error: {message: $message, code: $code}
""")


@pytest.mark.parametrize(
    ("pattern", "status", "reply"),
    [
        ("GET /ready", 204, None),
        ("GET /live", 200, {"ok": True}),
        ("GET /models", 200, {"names": ["a", "b"]}),
        ("GET /models/{model}", 200, {"id": "a"}),
    ],
)
def test_other_paths_are_described(pattern: str, status: int, reply: Any) -> None:
    operation = described(OTHERS, pattern)
    assert operation is not None
    assert list(operation.replies) == [status]
    content = operation.replies[status][1]
    assert bool(content) == (reply is not None)
    if reply is not None:
        schema = checker(content["application/json"])
        assert (schema.is_valid(reply), schema.is_valid([reply]), schema.is_valid({})) == (True, False, False)
    errors = checker(operation.error["application/json"])
    assert (errors.is_valid({"message": "wrong", "code": 400}), errors.is_valid({"message": "wrong"})) == (True, False)


def test_a_path_that_the_form_does_not_have_is_not_described() -> None:
    assert described(OTHERS, "GET /other") is None
