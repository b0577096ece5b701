"""The document of a listener: what its configuration makes of it."""

from collections.abc import Mapping
from typing import Any

import pytest
from openapi_spec_validator import OpenAPIV31SpecValidator

from gateway.admin.openapi.document import document, listener_url, security_schemes
from gateway.assembly import registry
from gateway.bridge.settings import RouteSettings
from gateway.config import paths
from gateway.config.access import AuthConfig
from gateway.config.keys import Config
from gateway.core.datatypes import Datatype
from gateway.core.frozen import replace
from gateway.core.json.openapi import DescribedModel
from gateway.core.models import Signature, TensorSpec
from gateway.core.protocol import Protocol
from tests.running_gateway import config_of

HTTP = [name for name, protocol in registry.protocols().items() if protocol.transport == "http"]
BACKEND = """
backends: {lab: {protocol: v2-rest, endpoints: ["http://127.0.0.1:1"]}}
routes: [{match: {model: "*"}, backend: lab}]
"""
EVERY_DATATYPE = Signature(
    tuple(TensorSpec(f"in_{each.value}", each, (-1, 2)) for each in Datatype),
    tuple(TensorSpec(f"out_{each.value}", each, (-1, 2, -1)) for each in Datatype),
    versions=("1", "2"),
)


def config(listener: str, rest: str = BACKEND) -> Config:
    return config_of(f"listeners: [{{name: http, bind: '127.0.0.1:8080', {listener}}}]\n{rest}")


def made(
    found: Config,
    models: Mapping[str, DescribedModel | str] | None = None,
    protocols: Mapping[str, Protocol] | None = None,
) -> Any:
    listener = found.listeners[0]
    rows = paths.rows(listener, found.routes, found.backends, protocols or registry.protocols())
    url = listener_url(listener, "127.0.0.1:8080", "")
    result = document(listener, rows, url, found.auth, models or {}, "1.2.3")
    OpenAPIV31SpecValidator(result).validate()
    return result


@pytest.mark.parametrize("protocol", HTTP)
def test_every_protocol_describes_each_of_its_paths(protocol: str) -> None:
    found = made(config(f"protocols: [{protocol}]"))
    assert found["paths"]
    for methods in found["paths"].values():
        for operation in methods.values():
            assert operation["summary"]
            assert "default" not in operation["responses"]
            assert {"404", "500"} & {*operation["responses"]}


@pytest.mark.parametrize("protocol", HTTP)
def test_every_datatype_and_version_has_its_place(protocol: str) -> None:
    model = DescribedModel("m", "", EVERY_DATATYPE)
    found = made(config(f"protocols: [{protocol}]"), {protocol: model})
    for path, methods in found["paths"].items():
        for operation in methods.values():
            for parameter in operation.get("parameters", ()):
                if parameter["name"] == "model" and parameter["in"] == "path":
                    assert parameter["schema"]["enum"] == ["m"], path
                if parameter["name"] == "version":
                    assert parameter["schema"]["enum"] == ["1", "2"], path


def test_fixed_dimensions_are_lengths() -> None:
    signature = Signature((TensorSpec("x", Datatype.FP32, (2, 3)),), (TensorSpec("y", Datatype.FP32, (2, 3)),))
    found = made(config("protocols: [v2-rest]"), {"v2-rest": DescribedModel("m", "", signature)})
    body = found["paths"]["/v2/models/{model}/infer"]["post"]["requestBody"]["content"]["application/json"]
    tensor = body["schema"]["properties"]["inputs"]["items"]["properties"]
    flat, nested = tensor["data"]["anyOf"]
    assert (flat["minItems"], flat["maxItems"]) == (6, 6)
    assert (nested["minItems"], nested["items"]["maxItems"]) == (2, 3)
    assert body["example"]["inputs"][0]["data"] == [1, 2, 3, 4, 1, 2]


def test_inputs_that_json_cannot_carry_are_described_in_binary_alone() -> None:
    signature = Signature((TensorSpec("x", Datatype.BF16, (1,)),), ())
    found = made(config("protocols: [v2-rest]"), {"v2-rest": DescribedModel("m", "", signature)})
    content = found["paths"]["/v2/models/{model}/infer"]["post"]["requestBody"]["content"]
    assert list(content) == ["application/octet-stream"]
    assert content["application/octet-stream"]["x-example-headers"]


def test_large_inputs_have_no_examples() -> None:
    signature = Signature((TensorSpec("x", Datatype.FP32, (-1, 224, 224, 3)),), ())
    found = made(config("protocols: [v2-rest, v1-rest]"), {"v1-rest": DescribedModel("m", "", signature)})
    content = found["paths"]["/v1/models/{model}:predict"]["post"]["requestBody"]["content"]
    assert "example" not in content["application/json"]
    assert "too large for examples" in found["info"]["description"]


def test_inputs_of_different_lengths_are_whole_in_the_example_of_v1() -> None:
    signature = Signature((TensorSpec("x", Datatype.FP32, (2,)), TensorSpec("y", Datatype.FP32, (1, 1))), ())
    found = made(config("protocols: [v1-rest]"), {"v1-rest": DescribedModel("m", "", signature)})
    body = found["paths"]["/v1/models/{model}:predict"]["post"]["requestBody"]["content"]["application/json"]
    assert body["example"] == {"inputs": {"x": [1, 2], "y": [[1]]}}


def test_a_model_without_outputs_has_no_example_of_umbridge() -> None:
    signature = Signature((TensorSpec("x", Datatype.FP64, (2,)),), ())
    found = made(config("protocols: [umbridge]"), {"umbridge": DescribedModel("m", "", signature)})
    body = found["paths"]["/Evaluate"]["post"]["requestBody"]["content"]["application/json"]
    assert "example" not in body


def test_prefixes_and_paths_of_routes_are_those_that_are_served() -> None:
    rest = """
backends:
  lab: {protocol: grps-rest, endpoints: ["http://127.0.0.1:1"]}
routes:
  - {match: {path: /mine/predict, protocol: grps-rest}, backend: lab}
  - {match: {path: "/page/*"}, passthrough: true, backend: lab}
  - {match: {model: "*"}, backend: lab}
"""
    found = made(config("protocols: [v2-rest, grps-rest], prefix: {v2-rest: /triton}, model: m", rest))
    assert "/triton/v2/models/{model}/infer" in found["paths"]
    assert not any(path.startswith("/v2") for path in found["paths"])
    assert found["paths"]["/mine/predict"]["post"]["summary"] == "Run the model"
    passed = found["paths"]["/page/{rest}"]
    assert set(passed) >= {"get", "post"}
    assert "as it is" in passed["get"]["summary"]


def test_paths_that_are_always_refused_are_left_out() -> None:
    found = made(config("protocols: [v2-rest, umbridge]"))
    assert not any("sharedmemory" in path or "ShMem" in path for path in found["paths"])


def test_a_protocol_without_descriptions_is_listed() -> None:
    protocols = {**registry.protocols(), "v2-rest": replace(registry.protocols()["v2-rest"], name="toy")}
    found = made(config("protocols: [v2-rest]"), protocols=protocols)
    operation = found["paths"]["/v2/models/{model}/infer"]["post"]
    assert operation["summary"] == "Served by toy"
    assert list(operation["responses"]) == ["default"]


def test_each_way_to_identify_oneself_is_a_security_scheme(tmp_path: Any) -> None:
    keys = tmp_path / "keys"
    keys.write_text("keys: []")
    auth = f"auth: {{keys: {{file: {keys}, header: x-lab-key}}}}"
    rest = f"{BACKEND}\n{auth}\nprincipals: {{guest: {{permissions: [use]}}}}\n"
    found = made(config("protocols: [v2-rest], auth: {anonymous: guest}", rest))
    assert found["components"]["securitySchemes"]["key"] == {"type": "apiKey", "in": "header", "name": "x-lab-key"}
    assert found["security"] == [{"bearer": []}, {"basic": []}, {"key": []}, {}]
    assert "security" not in made(config("protocols: [v2-rest]", rest))


@pytest.mark.parametrize(
    ("ways", "schemes"),
    [
        (
            ["jwt"],
            {
                "bearer": {"type": "http", "scheme": "bearer", "description": "A token."},
                "basic": {"type": "http", "scheme": "basic", "description": "Any user, and a token as the password."},
            },
        ),
        (["certificates"], {"certificate": {"type": "mutualTLS"}}),
    ],
)
def test_ways_without_api_keys_have_their_own_schemes(ways: list[str], schemes: dict[str, Any]) -> None:
    assert security_schemes(ways, AuthConfig()) == schemes


def test_a_model_whose_inputs_are_unknown_is_told() -> None:
    unknown = DescribedModel("toy", "", Signature(), RouteSettings())
    found = made(config("protocols: [v2-rest]"), {"v2-rest": unknown})
    assert "The inputs of `toy` are unknown to clients of v2-rest." in found["info"]["description"]


def test_errors_are_those_that_the_protocol_writes() -> None:
    found = made(config("protocols: [umbridge]"))
    reference = found["paths"]["/Evaluate"]["post"]["responses"]["429"]["$ref"].rpartition("/")[2]
    response = found["components"]["responses"][reference]
    assert response["headers"]["gateway-reason"]["schema"]["enum"] == ["rate-limited"]
    example = response["content"]["application/json"]["examples"]["rate-limited"]["value"]
    assert example["error"]["type"] == "RateLimited"


def test_a_model_that_one_protocol_cannot_show_is_explained() -> None:
    found = made(config("protocols: [v2-rest, umbridge]"), {"umbridge": "it has no fixed sizes"})
    assert "not described for umbridge: it has no fixed sizes" in found["info"]["description"]


def test_an_address_for_all_of_the_machines_is_that_of_the_asker() -> None:
    [listener] = config("protocols: [v2-rest]").listeners
    assert listener_url(listener, "0.0.0.0:8080", "gateway.lab") == "http://gateway.lab:8080"
    assert listener_url(listener, "[::]:8080", "::1") == "http://[::1]:8080"
    assert listener_url(listener, "127.0.0.1:8080", "gateway.lab") == "http://127.0.0.1:8080"
