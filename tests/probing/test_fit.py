"""What does not fit between a route and its server is an error where calls cannot work, with its place."""

from typing import Any

import pytest

from gateway.cli.options import catalog
from gateway.config import loads
from gateway.probing.live import ERROR, OK, WARNING, Live, check_live
from gateway.registry import protocols
from tests.tls.running import reference

HEAD = 'listeners: [{name: a, bind: "127.0.0.1:8080", protocols: [v2-rest]}]\n'


async def live(backend: str, *models: str, route: str, listeners: str = HEAD, more: str = "") -> Live:
    async with reference(backend, *models) as bound:
        text = (
            f"{listeners}backends: {{b: {{protocol: {backend}, endpoints: ['{bound}']{more}}}}}\nroutes:\n  - {route}\n"
        )
        return await check_live(loads(text, "test.yaml", catalog(), {}), protocols(), 10)


def signature(inputs: str, outputs: str = "{name: y, datatype: FP64, shape: [-1, -1]}") -> str:
    return f"{{match: {{model: double}}, backend: b, signature: {{inputs: [{inputs}], outputs: [{outputs}]}}}}"


X = "{name: x, datatype: FP64, shape: [-1, -1]}"


@pytest.mark.parametrize(
    "route",
    ["{match: {model: double}, backend: b}", "{match: {model: '*'}, backend: b}", signature(X),
     "{match: {model: mine}, backend: b, rewrite: {model: double}}",
     "{match: {model: double, version: '1'}, backend: b}"],
)  # fmt: skip
async def test_a_route_that_fits(route: str) -> None:
    found = await live("v2-grpc", "double", route=route)
    assert ([each.result for each in found.rows], found.errors, found.warnings) == ([OK], (), ())


@pytest.mark.parametrize(
    ("route", "location", "text"),
    [
        ("{match: {model: Double}, backend: b}", ("match", "model"), "`rewrite: {model: double}`"),
        ("{match: {model: other}, backend: b}", ("match", "model"), "it has 'double'"),
        ("{match: {model: double}, backend: b, rewrite: {model: triple}}", ("rewrite", "model"), "no model 'triple'"),
        ("{match: {model: double, version: '7'}, backend: b}", ("match", "version"), "no version '7'"),
        ("{match: {model: double}, backend: b, rewrite: {version: '7'}}", ("rewrite", "version"), "it has 1"),
        (signature("{name: z, datatype: FP64, shape: [-1, -1]}"), ("signature", "inputs", 0, "name"), "it has 'x'"),
        (signature("{name: x, datatype: FP32, shape: [-1, -1]}"), ("signature", "inputs", 0, "datatype"), "has FP64"),
        (signature("{name: x, datatype: FP64, shape: [3]}"), ("signature", "inputs", 0, "shape"), "[-1, -1]"),
        (signature(X, "{name: q, datatype: FP64, shape: [1]}"), ("signature", "outputs", 0, "name"), "it has 'y'"),
    ],
)
async def test_a_route_that_does_not_fit(route: str, location: tuple[Any, ...], text: str) -> None:
    found = await live("v2-grpc", "double", route=route)
    assert [each.result for each in found.rows] == [ERROR]
    [error] = [each for each in found.errors if each.location == ("routes", 0, *location)]
    assert text in error.message


async def test_clients_that_cannot_call_a_model_are_a_warning() -> None:
    listeners = HEAD.replace("[v2-rest]", "[v2-rest, umbridge]")
    found = await live("v2-grpc", "upper", route="{match: {model: upper}, backend: b}", listeners=listeners)
    assert [each.result for each in found.rows] == [WARNING]
    assert "umbridge clients have no BYTES" in found.warnings[0].message


@pytest.mark.parametrize(
    ("model", "keys", "result"), [("double", "", OK), ("upper", "", WARNING), ("upper", "models: [upper]", OK)]
)
async def test_a_model_that_gather_leaves_alone_is_a_warning(model: str, keys: str, result: str) -> None:
    more = f", safe: true, policies: [{{gather: {{{keys}}}}}]"
    found = await live("v2-grpc", model, route=f"{{match: {{model: {model}}}, backend: b}}", more=more)
    assert [each.result for each in found.rows] == [result]
    assert not found.errors
    texts = [each.message for each in found.warnings]
    assert len(texts) == (result == WARNING)
    assert all("the policy gather does nothing for 'upper'" in each for each in texts)


async def test_an_endpoint_that_is_gone_is_an_error_at_its_address() -> None:
    async with reference("v2-rest", "double") as bound:
        pass
    text = (
        f"{HEAD}backends: {{b: {{protocol: v2-rest, endpoints: ['{bound}']}}}}\nroutes: [{{match: {{}}, backend: b}}]"
    )
    found = await check_live(loads(text, "test.yaml", catalog(), {}), protocols(), 10)
    assert [each.location for each in found.errors] == [("backends", "b", "endpoints", 0, "address")]


@pytest.mark.parametrize("backend", list(protocols()))
async def test_every_wire_form_can_be_checked(backend: str) -> None:
    found = await live(backend, "posterior", route="{match: {model: posterior}, backend: b}")
    assert not found.errors
