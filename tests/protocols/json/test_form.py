"""Forms that are wrong: the error names the place and says what would be right."""

from typing import Any

import pytest
import yaml

from gateway.core.datatypes import Datatype
from gateway.core.errors import Reason
from gateway.core.models import TensorSpec
from gateway.protocols.json.form import ABSENT, Exchange, FailureReply, Form, FormError, ModelListing, Probe, parse_form


def form(text: str) -> Form:
    document: Any = yaml.safe_load(text)
    return parse_form(document)


def test_a_form_is_read() -> None:
    found = form("""
infer:
- {path: /predict, request: $x, response: $y}
- path: ["/a/{model}", /b]
  method: [put, post, PUT]
  headers: {x-key: $param.key}
  query: {"top?": $param.top}
  media_type: text/csv
  response_type: text/plain
  stream: jsonl
  ignore_unknown: true
ready: {path: /health, status: 204, response: null}
models: {path: [/models, /v1], response: [$model, ...], one: {path: "/models/{model}", response: {id: $model}}}
failures: [{status: 409, reason: overloaded}, {status: 200, reason: model-error, error: {failed: $message}}]
error: {detail: $message}
error_type: text/plain
tensors:
  x: FP64 [-1, 4]
  y: float32[]
  z: {datatype: STRING, shape: [2]}
""")
    assert found.infer[0] == Exchange(("/predict",), request="$x", response="$y")
    assert found.infer[1] == Exchange(
        ("/a/{model}", "/b"), ("PUT", "POST"), {"x-key": "$param.key"}, {"top?": "$param.top"}, "text/csv", ABSENT,
        "text/plain", ABSENT, "jsonl", True,
    )  # fmt: skip
    assert found.ready == found.live == Probe(("/health",), 204, None, ignore_unknown=True)
    assert found.models == ModelListing(
        ("/models", "/v1"), ["$model", "..."], ignore_unknown=True, one_paths=("/models/{model}",), one={"id": "$model"}
    )
    assert found.failures == (
        FailureReply(409, Reason.OVERLOADED), FailureReply(200, Reason.MODEL_ERROR, {"failed": "$message"}),
    )  # fmt: skip
    assert (found.error, found.error_type, found.ignore_unknown) == ({"detail": "$message"}, "text/plain", False)
    assert found.tensors == {
        "x": TensorSpec("x", Datatype.FP64, (-1, 4)),
        "y": TensorSpec("y", Datatype.FP32, ()),
        "z": TensorSpec("z", Datatype.BYTES, (2,)),
    }


@pytest.mark.parametrize(
    ("text", "place", "why"),
    [
        ("{}", (), "`infer` is missing"),
        ("{infer: {path: /p}, inferr: 1}", ("inferr",), "did you mean 'infer'"),
        ("infer: []", ("infer",), "1 to 32"),
        ("infer: 1", ("infer",), "expected a mapping"),
        ("infer: {request: $x}", ("infer",), "`path` is missing"),
        ("infer: {path: /p, methods: GET}", ("infer", "methods"), "did you mean 'method'"),
        ("infer: {path: /p, method: FETCH}", ("infer", "method"), "no method"),
        ("infer: {path: /p, method: [POST, 1]}", ("infer", "method", 1), "no method"),
        ("infer: {path: /p, stream: tcp}", ("infer", "stream"), "sse, openai, jsonl"),
        ("infer: {path: p}", ("infer", "path"), "begins with a slash"),
        ('infer: {path: "/p?a=b"}', ("infer", "path"), "query"),
        ('infer: {path: "/a*"}', ("infer", "path"), "`*`"),
        ('infer: {path: "/{model}/{model}"}', ("infer", "path"), "{model} twice"),
        ('infer: {path: "/a{model}"}', ("infer", "path"), "must begin its segment"),
        ('infer: {path: "/{a b}"}', ("infer", "path"), "blank"),
        ('infer: {path: "/{}"}', ("infer", "path"), "no variable"),
        ("infer: {path: [/p, 1]}", ("infer", "path", 1), "1 is no path"),
        ("infer: {path: /p, headers: [a]}", ("infer", "headers"), "mapping of names"),
        ("infer: {path: /p, ignore_unknown: 1}", ("infer", "ignore_unknown"), "true or false"),
        ("infer: {path: /p, media_type: 1}", ("infer", "media_type"), "expected a text"),
        ("{infer: {path: /p}, ready: {path: /r, status: 700}}", ("ready", "status"), "no HTTP status"),
        ("{infer: {path: /p}, models: {path: /m}}", ("models",), "`response` is missing"),
        ('{infer: {path: /p}, models: {path: "/{model}", response: 1}}', ("models", "path"), "without variables"),
        ("{infer: {path: /p}, models: {path: /m, response: 1, one: {path: /m/a}}}", ("models", "one"), "`response`"),
        (
            "{infer: {path: /p}, models: {path: /m, response: 1, one: {path: /m/a, response: 1}}}",
            ("models", "one", "path"),
            "{model}, and no other",
        ),
        ("{infer: {path: /p}, failures: 1}", ("failures",), "a list of at most 32"),
        ("{infer: {path: /p}, failures: [{reason: unknown}]}", ("failures", 0, "status"), "no HTTP status"),
        (
            "{infer: {path: /p}, failures: [{status: 409, reason: overload}]}",
            ("failures", 0, "reason"),
            "did you mean 'overloaded'",
        ),
        ("{infer: {path: /p}, nan: zero}", ("nan",), "'zero' is none of error, literal, null, string"),
        ("{infer: {path: /p}, tensors: {1: 'FP64 [1]'}}", ("tensors", "1"), "a text as the name of a tensor"),
        ("{infer: {path: /p}, tensors: [x]}", ("tensors",), "mapping of names"),
        ("{infer: {path: /p}, tensors: {x: FP64}}", ("tensors", "x"), "such as FP64 [-1, 4]"),
        ("{infer: {path: /p}, tensors: {x: 'FP65 [1]'}}", ("tensors", "x"), "no datatype 'FP65', expected one of BOOL"),
        ("{infer: {path: /p}, tensors: {x: 'FP64 [a]'}}", ("tensors", "x"), "no shape"),
        ("{infer: {path: /p}, tensors: {x: 'FP64 [-2]'}}", ("tensors", "x"), "no shape"),
    ],
)
def test_a_form_with_a_mistake_is_refused(text: str, place: tuple[str | int, ...], why: str) -> None:
    with pytest.raises(FormError) as raised:
        form(text)
    assert raised.value.path == place
    assert why in raised.value.message
