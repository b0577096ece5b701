"""The documents of listeners are true: a real gateway in front of the bundled reference servers answers their own
examples, and wrong requests, as they say."""

from base64 import b64decode
from collections.abc import AsyncIterator, Iterator
from typing import Any, NamedTuple

import httpx
import pytest
from jsonschema import Draft202012Validator
from openapi_spec_validator import OpenAPIV31SpecValidator

from gateway.runtime.app import Gateway
from tests.admin.asking import admin_client
from tests.interop.processes import free_port
from tests.running_gateway import running_gateway

CONFIG = """
listeners:
  - {name: all, bind: "127.0.0.1:0", protocols: [v2-rest, v1-rest, umbridge, graphpipe, grps-rest]}
  - name: below
    bind: "127.0.0.1:0"
    protocols: [v1-rest, grps-rest, graphpipe]
    prefix: {v1-rest: /serving, grps-rest: /ours}
    flavor: {v1-rest: tensorflow}
    model: double
    metrics_page: true
  - {name: rpc, bind: "127.0.0.1:0", protocols: [v2-grpc]}
admin: {bind: "127.0.0.1:0"}
reference:
  - {protocol: v2-rest, bind: "127.0.0.1:TENSORS", models: [double, add_sub, upper, classify]}
  - {protocol: umbridge, bind: "127.0.0.1:POINTS", models: [posterior]}
backends:
  tensors: {protocol: v2-rest, endpoints: ["http://127.0.0.1:TENSORS"]}
  points: {protocol: umbridge, endpoints: ["http://127.0.0.1:POINTS"]}
routes:
  - {match: {model: "posterior*"}, backend: points}
  - {match: {listener: below, path: /mine/predict, protocol: grps-rest}, backend: tensors}
  - {match: {model: "*"}, backend: tensors}
"""
NO_MODEL = "nothing"


@pytest.fixture
async def gateway() -> AsyncIterator[Gateway]:
    text = CONFIG.replace("TENSORS", str(free_port())).replace("POINTS", str(free_port()))
    async with running_gateway(text) as found:
        yield found


async def document(gateway: Gateway, listener: str, model: str = "") -> Any:
    async with admin_client(gateway) as admin:
        reply = await admin.get(f"/api/openapi/{listener}", params={"model": model} if model else {})
    assert reply.status_code == 200, reply.text
    return reply.json()


class Described(NamedTuple):
    method: str
    path: str
    operation: dict[str, Any]

    @property
    def content(self) -> dict[str, Any]:
        """The bodies that it takes, by media type."""
        return dict(self.operation.get("requestBody", {}).get("content", {}))


def operations(found: Any) -> Iterator[Described]:
    for path, methods in found["paths"].items():
        for method, operation in methods.items():
            yield Described(method.upper(), path, operation)


def filled(each: Described, model: str) -> str:
    """The path with values for its parameters."""
    return each.path.replace("{model}", model).replace("{version}", "1")


def has_unknown_version(each: Described) -> bool:
    """Whether the document does not tell which versions its path can name."""
    schemas = {parameter["name"]: parameter["schema"] for parameter in each.operation.get("parameters", ())}
    return "version" in schemas and "enum" not in schemas["version"]


def check(found: Any, each: Described, reply: httpx.Response) -> None:
    """The reply is one that the document describes."""
    responses = each.operation["responses"]
    what = f"{each.method} {each.path}: {reply.status_code} {reply.text[:300]}"
    assert str(reply.status_code) in responses, what
    response = responses[str(reply.status_code)]
    if "$ref" in response:
        response = found["components"]["responses"][response["$ref"].rpartition("/")[2]]
    content = response.get("content", {})
    if not reply.content and not content:
        return
    media_type = reply.headers["content-type"].partition(";")[0]
    assert media_type in content, what
    if "schema" in content[media_type]:
        value = reply.json() if media_type == "application/json" else reply.text
        errors = [error.message for error in Draft202012Validator(content[media_type]["schema"]).iter_errors(value)]
        assert not errors, f"{what}: {errors}"
    if reply.status_code >= 400 and "headers" in response:
        assert "gateway-reason" in reply.headers, what
        assert reply.headers["gateway-reason"] in response["headers"]["gateway-reason"]["schema"]["enum"], what


def examples(each: Described) -> Iterator[tuple[dict[str, str], bytes | None, Any]]:
    """The headers of each example of a request, with its bytes or its JSON value."""
    for media_type, media in each.content.items():
        headers = {"content-type": media_type, **media.get("x-example-headers", {})}
        if "example" in media:
            validator = Draft202012Validator(media["schema"])
            assert not list(validator.iter_errors(media["example"])), "an example does not fit its own schema"
            yield headers, None, media["example"]
        if "x-example-base64" in media:
            yield headers, b64decode(media["x-example-base64"]), None


RUNNING = {
    "all": [
        "/v2/models/{model}/infer", "/v2/models/{model}/generate", "/v2/models/{model}/infer_stream",
        "/v1/models/{model}:predict", "/Evaluate", "/graphpipe/{model}", "/grps/v1/infer/predict",
    ],
    "below": ["/serving/v1/models/{model}:predict", "/graphpipe/{model}", "/ours/grps/v1/infer/predict", "/"],
}  # fmt: skip

LACKING = {
    "add_sub": {"/"},  # the listener's model is another one
    "posterior": {"/"},
    # UM-Bridge has no text
    "upper": {"/", "/Evaluate"},
    "classify": {"/", "/Evaluate"},
}
"""The paths without an example that works, by model."""


@pytest.mark.parametrize("listener", RUNNING)
@pytest.mark.parametrize("model", ["double", "add_sub", "upper", "classify", "posterior"])
async def test_the_examples_work_and_are_answered_as_described(gateway: Gateway, listener: str, model: str) -> None:
    found = await document(gateway, listener, model)
    if model == "double":  # a validation takes seconds
        OpenAPIV31SpecValidator(found).validate()
    sent: set[str] = set()
    async with httpx.AsyncClient(base_url=found["servers"][0]["url"]) as client:
        for each in operations(found):
            if has_unknown_version(each):
                continue
            for headers, content, value in examples(each):
                url = filled(each, model)
                reply = await client.request(each.method, url, headers=headers, content=content, json=value)
                assert reply.status_code == 200, f"{each.method} {url}: {reply.text}"
                check(found, each, reply)
                sent.add(each.path)
    lacking = set(RUNNING[listener]) - sent
    assert lacking == (LACKING.get(model, set()) & set(RUNNING[listener]))


@pytest.mark.long
@pytest.mark.parametrize("listener", RUNNING)
@pytest.mark.parametrize("model", ["", "double"])
async def test_requests_without_examples_and_wrong_ones_are_answered_as_described(
    gateway: Gateway, listener: str, model: str
) -> None:
    found = await document(gateway, listener, model)
    async with httpx.AsyncClient(base_url=found["servers"][0]["url"]) as client:
        for each in operations(found):
            if "default" in each.operation["responses"]:
                continue
            for name in (model or "double", NO_MODEL):
                check(found, each, await client.request(each.method, filled(each, name)))
                for media_type in each.content:
                    for content in (b"{", b"{}", b'{"name": "nothing", "inputs": [{"name": 1}], "instances": 1}'):
                        headers = {"content-type": media_type}
                        reply = await client.request(each.method, filled(each, name), headers=headers, content=content)
                        check(found, each, reply)
