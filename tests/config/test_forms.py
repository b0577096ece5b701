"""Forms in a configuration: `forms`, and the names of forms in its other parts."""

from typing import Any

import pytest

from gateway.assembly.forms import with_forms
from gateway.cli.options import catalog
from gateway.config.effective import effective
from gateway.config.forms import ExchangeConfig, FailureConfig, FormConfig, ListingConfig, OneModelConfig, ProbeConfig
from gateway.protocols.json import form
from tests.config.told import problem, problems, read, warnings

FORMS = """\
forms:
  prices:
    infer: {path: /predict, request: {features: $x}, response: {prediction: $y}}
    tensors: {x: "FP64 [-1, 4]", y: {datatype: FP64, shape: [-1]}}
"""
INFER = {"path": "/predict", "request": {"features": "$x"}, "response": {"prediction": "$y"}}
DOCUMENT = {"infer": [INFER], "tensors": {"x": "FP64 [-1, 4]", "y": {"datatype": "FP64", "shape": [-1]}}}
"""The form `prices`."""
REST = """\
listeners: [{name: http, bind: "127.0.0.1:8080", protocols: [v2-rest]}]
backends: {science: {protocol: json, form: prices, endpoints: ["h:1"], policies: [{timeout: {seconds: 1}}]}}
routes: [{match: {model: m}, backend: science}]
"""


def test_a_backend_speaks_a_declared_form() -> None:
    config = read(FORMS + REST)
    assert warnings(FORMS + REST) == []
    assert config.backends["science"].protocol == "json:prices"
    assert config.forms["prices"].document() == DOCUMENT


def test_both_ways_to_name_a_form_are_the_same() -> None:
    other = REST.replace("protocol: json, form: prices", 'protocol: "json:prices"')
    first, second = (read(FORMS + each).backends["science"] for each in (REST, other))
    assert first.protocol == second.protocol


*_OTHERS, _LAST = sorted(catalog().protocols)
PROTOCOL_NAMES = f"{', '.join(_OTHERS)} or {_LAST}"
LISTENER = REST.replace("[v2-rest]", '[v2-rest, "json:NAME"]')
BACKEND = REST.replace("form: prices", "form: NAME")
BROKEN: dict[str, tuple[str, ...]] = {
    "names that YAML 1.1 has made booleans": (
        FORMS.replace('x: "FP64', '"true": "FP64').replace(" y: {", ' "false": {').replace("$y", "$false") + REST,
        "3:38: $x is not declared in `tensors`; `tensors` has true, false",
        "4:15: warning: the key 'true' is probably another word: YAML 1.1, which Helm reads, turns y, yes and on",
        "4:39: warning: the key 'false' is probably another word: YAML 1.1, which Helm reads, turns n, no and off",
    ),
    "unknown form of a backend": (
        FORMS + BACKEND.replace("NAME", "pricess"),
        "6:44: unknown form 'pricess'; did you mean 'prices'?",
    ),
    "unknown form of a listener": (
        FORMS + LISTENER.replace("NAME", "mlfow"),
        "5:71: unknown form 'json:mlfow'; did you mean 'json:mlflow'?",
    ),
    "a form without `json:`": (
        FORMS + REST.replace("[v2-rest]", "[litserve]"),
        "5:62: unknown protocol 'litserve'; did you mean 'json:litserve'?",
    ),
    "a web framework in place of a protocol": (
        REST.replace("json, form: prices", "Flask"),
        f"2:32: unknown protocol 'Flask'; expected {PROTOCOL_NAMES}; for a server with its own JSON, use `json` "
        "with a `form`",
    ),
    "the transport in place of a protocol": (
        REST.replace("json, form: prices", "rest"),
        "2:32: unknown protocol 'rest'; did you mean 'v2-rest'? For a server with its own "
        "JSON, use `json` with a `form`",
    ),
    "a web framework in a listener": (
        REST.replace("[v2-rest]", "[flask]").replace("json, form: prices", "v2-rest"),
        f"1:62: unknown protocol 'flask'; expected {PROTOCOL_NAMES}",
    ),
    "no form named": (
        FORMS + REST.replace("form: prices, ", ""),
        "6:32: 'json' needs the name of a form: add `form: NAME`; expected bentoml, cog, huggingface, infinity, "
        "litserve, mlflow, openai-embeddings, prices, ray, ray-applications, sagemaker, seldon, torchserve or "
        "vertex",
    ),
    "a form of another protocol": (
        FORMS + REST.replace("protocol: json,", "protocol: umbridge,"),
        "6:42: `form` needs `protocol: json`, but the protocol is umbridge; remove one of them",
    ),
    "no form named by a listener": (
        FORMS + REST.replace("[v2-rest]", "[json]").replace("prices", "pr"),
        "5:62: 'json' needs the name of a form: write json:NAME; expected json:bentoml, json:cog, "
        "json:huggingface, json:infinity, json:litserve, json:mlflow, json:openai-embeddings, json:prices, "
        "json:ray, json:ray-applications, json:sagemaker, json:seldon, json:torchserve or json:vertex",
        "6:44: unknown form 'pr'; expected bentoml, cog, huggingface, infinity, litserve, mlflow, "
        "openai-embeddings, prices, ray, ray-applications, sagemaker, seldon, torchserve or vertex",
    ),
    "a spelling that no template has": (
        FORMS.replace("features: $x", "features: $x|flt") + REST,
        "3:49: |flt is not a spelling of a tensor; did you mean |flat?",
    ),
    "a datatype that does not exist": (
        FORMS.replace("FP64 [-1, 4]", "REAL [-1, 4]") + REST,
        "4:18: no datatype 'REAL', expected one of BOOL",
    ),
    "a name that cannot stand in an address": (
        FORMS.replace("prices:", "my/prices:") + REST.replace("form: prices", '"form": "my/prices"'),
        "2:3: expected a name of letters, digits, '-', '_' and '.', got 'my/prices'",
    ),
    "the second of several exchanges": (
        FORMS.replace("infer: {", "infer: [{path: /a, request: $x, response: $y}, {").replace("$y}}", "$y|x}}]") + REST,
        "3:117: |x is not a spelling",
    ),
    "an exchange's key": (
        FORMS.replace("infer: {", "infer: [{path: /a, request: $x, response: $y}, {methd: GET, ").replace(
            "$y}}\n", "$y}}]\n"
        )
        + REST,
        "3:53: unknown key 'methd'; did you mean 'method'?",
    ),
    "a problem elsewhere does not hide it": (
        FORMS.replace("$y}}", "$y|flt}}") + REST.replace("routes:", "ruotes:"),
        "3:77: |flt is not a spelling",
        "7:1: unknown key 'ruotes'; did you mean 'routes'?",
    ),
    "a key that no form has": (
        FORMS.replace("path:", "pth:") + REST,
        "3:12: the key 'path' is missing",
        "3:13: unknown key 'pth'; did you mean 'path'?",
    ),
}


@pytest.mark.parametrize("row", BROKEN.values(), ids=BROKEN)
def test_mistakes_are_told_with_their_places(row: tuple[str, ...]) -> None:
    text, *expected = row
    found = problems(text)
    assert len(found) == len(expected), found
    assert [each[: len(start)] for each, start in zip(found, expected, strict=True)] == expected


def test_the_path_of_a_form_does_not_stand_in_an_endpoint_again() -> None:
    assert warnings(FORMS + REST.replace('"h:1"', '"http://h:1/predict"')) == [
        "6:64: warning: json:prices appends its own paths, such as /predict, to the path of 'http://h:1/predict'; "
        "remove this part from the path"
    ]


def test_a_prefix_with_which_the_form_has_a_path_and_without_which_it_has_another_is_meant() -> None:
    """Infinity serves /embeddings, or with `--url-prefix /v1` /v1/embeddings."""
    infinity = REST.replace("form: prices", "form: infinity").replace('"h:1"', '"http://h:1/v1"')
    assert warnings(infinity) == []
    for other in (infinity.replace("/v1", "/embeddings"), infinity.replace("infinity", "openai-embeddings")):
        assert "appends its own paths" in warnings(other)[0]


SECRET = FORMS.replace("request: {", 'headers: {x-key: "${KEY}"}, request: {')


def test_the_configuration_in_use_shows_forms_as_they_are_written_and_references_in_place_of_secrets() -> None:
    shown: Any = effective(read(SECRET + REST, KEY="s3cret"))
    assert shown["forms"]["prices"] == {**DOCUMENT, "infer": [{**INFER, "headers": {"x-key": "${KEY}"}}]}


def test_a_form_with_a_reference_is_for_backends() -> None:
    assert warnings(SECRET + REST, KEY="s3cret") == []
    assert problem(SECRET + LISTENER.replace("NAME", "prices"), KEY="s3cret") == (
        "5:71: errors would show clients the reference in form 'json:prices'; "
        "use a form with references only in backends"
    )


def test_a_form_that_nothing_names_has_no_effect() -> None:
    assert warnings(FORMS + REST.replace("form: prices", "form: litserve")) == [
        "2:3: warning: 'prices' has no effect: no backend or listener names this form; write `json:prices` as protocol"
    ]


def test_a_form_in_place_of_a_ready_one_is_told() -> None:
    text = (FORMS + REST).replace("prices", "litserve")
    assert warnings(text) == [
        "2:3: warning: 'litserve' replaces the built-in form of this name; rename it to keep both"
    ]
    assert with_forms({}, read(text))["json:litserve"].patterns == ("POST /predict",)


def test_ready_forms_are_read_only_where_they_are_named() -> None:
    config = read(FORMS + REST.replace("form: prices", "form: litserve"))
    assert sorted(with_forms({}, config)) == ["json:litserve", "json:prices"]


WHOLE: dict[str, Any] = {
    "infer": [
        {
            "path": ["/a/{model}", "/a"], "method": ["PUT", "POST"], "headers": {"h?": "$id"}, "query": {"q?": "$id"},
            "media_type": "application/json", "request": {"x": "$x"}, "response_type": "application/json",
            "response": {"y": "$y"}, "ignore_unknown": False, "client_path": "/clients/{model}", "columns": "n",
        }
    ],
    "ready": {"path": ["/ready"], "status": 204, "response": {"ok": True}, "ignore_unknown": False},
    "live": {"path": "/live"},
    "models": {
        "path": ["/models"], "response": [{"id": "$model"}, "..."], "ignore_unknown": False,
        "one": {"path": "/models/{model}", "response": {"id": "$model"}},
    },
    "error": {"error": "$message"},
    "error_type": "application/json",
    "failures": [{"status": 409, "reason": "overloaded", "error": {"busy": "$message"}}],
    "tensors": {"x": "FP64 [2]", "y": "FP64 [2]"},
    "ignore_unknown": True,
    "nan": "null",
    "batch": "each",
    "default_type": "application/json",
}  # fmt: skip


def test_the_keys_of_the_configuration_are_those_of_forms() -> None:
    assert form.parse_form(FormConfig.model_validate(WHOLE).document()) == form.parse_form(WHOLE)
    assert set(FormConfig.model_fields) == set(WHOLE)
    assert set(ExchangeConfig.model_fields) - {"stream"} == set(WHOLE["infer"][0])
    assert set(ProbeConfig.model_fields) == set(WHOLE["ready"])
    assert set(ListingConfig.model_fields) == set(WHOLE["models"])
    assert set(OneModelConfig.model_fields) == set(WHOLE["models"]["one"])
    assert set(FailureConfig.model_fields) == set(WHOLE["failures"][0])
