"""Routing decisions: the same as the Router's, with a reason for every route that does not match."""

from itertools import product
from typing import Any

import pytest

from gateway.assembly.assembly import Assembly
from gateway.assembly.explain.decision import Decision, decide
from gateway.assembly.explain.offline import assemble, not_connected
from gateway.assembly.explain.text import decision_lines
from gateway.assembly.registry import protocols
from gateway.config import Config
from gateway.core.datatypes import Datatype
from gateway.core.errors import GatewayError
from gateway.core.frozen import replace
from gateway.core.messages import Headers
from gateway.core.operations import Operation
from gateway.core.requests import Request
from gateway.core.tensors import Tensor
from gateway.routing.conditions import RoutingKey
from tests.running_gateway import config_of

TEXT = """
listeners:
  - {name: http, bind: "127.0.0.1:0", protocols: [v2-rest, grps-rest, umbridge]}
  - {name: other, bind: "127.0.0.1:1", protocols: [v2-rest]}
backends:
  triton: {protocol: v2-grpc, flavor: triton, endpoints: ["127.0.0.1:1"]}
  lab: {protocol: umbridge, endpoints: ["http://127.0.0.1:2"]}
  spare: {protocol: v2-rest, flavor: plain, endpoints: ["127.0.0.1:3"]}
routes:
  - {match: {listener: other, model: "a*"}, backend: triton}
  - {match: {protocol: umbridge, model: echo}, backend: lab}
  - {match: {model: echo, version: "2"}, backend: triton}
  - {name: by-header, match: {model: echo, header: {x-canary: "yes"}}, backend: triton}
  - {match: {model: echo, input: {name: x, datatype: UINT8}}, backend: triton}
  - {match: {model: echo, path: /v2/models/echo/infer}, backend: triton}
  - match: {model: echo}
    split: [{backend: triton, weight: 3}, {backend: spare}]
    fallback: [lab]
    rewrite: {model: renamed}
"""
X = Tensor("x", Datatype.FP32, (1, 2), b"")


@pytest.fixture
async def parts() -> tuple[Config, Assembly]:
    config = config_of(TEXT)
    return config, assemble(config, not_connected, protocols())


def asked(model: str = "echo", **fields: Any) -> Request:
    return replace(Request(Operation.INFER, model, listener="http", protocol="v2-rest", inputs=(X,)), **fields)


def reasons(decision: Decision) -> dict[str, str]:
    return {each.route: "; ".join(each.unmet) for each in decision.routes}


async def test_each_route_says_why_it_does_not_match(parts: tuple[Config, Assembly]) -> None:
    decision = decide(asked(path="/v2/models/echo"), *parts)
    assert decision.route == "echo"
    assert reasons(decision) == {
        "a*,listener=other": "listener is 'http', not 'other'; model 'echo' does not match 'a*'",
        "echo,protocol=umbridge": "protocol is 'v2-rest', not 'umbridge'",
        "echo,version=2": "no version, not '2'",
        "by-header": "header 'x-canary' is missing",
        "echo,input=x:UINT8": "no input 'x' UINT8; the request has 'x' FP32 [1, 2]",
        "echo,path=/v2/models/echo/infer": "path is '/v2/models/echo', not '/v2/models/echo/infer'",
        "echo": "",
    }


async def test_a_request_without_datatypes_and_of_another_operation(parts: tuple[Config, Assembly]) -> None:
    decision = decide(asked(schemaless=True), *parts)
    told = "no input 'x' UINT8; the request has inputs without datatypes and shapes"
    assert reasons(decision)["echo,input=x:UINT8"] == told
    config = config_of(TEXT.replace("path: /v2/models/echo/infer", "operation: metadata"))
    decision = decide(asked(), config, assemble(config, not_connected, protocols()))
    assert reasons(decision)["echo,operation=metadata"] == "operation is 'infer', not 'metadata'"


async def test_the_values_of_headers_are_not_repeated(parts: tuple[Config, Assembly]) -> None:
    decision = decide(asked(headers=Headers([(b"x-canary", b"secret")])), *parts)
    assert reasons(decision)["by-header"] == "header 'x-canary' has another value than the route needs"


async def test_it_names_the_backends_with_their_names_of_the_model(parts: tuple[Config, Assembly]) -> None:
    decision = decide(asked(version="7"), *parts)
    found = [(each.role, each.backend, each.model, each.version, bool(each.error)) for each in decision.backends]
    assert found == [
        ("split, 3 of 4", "triton", "renamed", "7", False),
        ("split, 1 of 4", "spare", "renamed", "7", False),
        ("fallback", "lab", "", "", True),  # an UM-Bridge server has no versions
    ]
    assert "has no version '7'" in decision.backends[2].error


async def test_derivatives_and_versions_in_names_are_read(parts: tuple[Config, Assembly]) -> None:
    decision = decide(asked("echo.gradient"), *parts)
    assert decision.readings == ("gradient of model 'echo'",)
    assert decision.backends[0].model == "renamed.gradient"
    decision = decide(asked("echo-2", protocol="grps-rest"), *parts)
    assert decision.readings == ("model 'echo-2'", "version '2' of model 'echo'")
    assert decision.route == "echo,version=2"
    assert reasons(decision)["echo,protocol=umbridge"].startswith("protocol is 'grps-rest', not 'umbridge'")


async def test_without_a_route_it_has_the_error_of_the_client(parts: tuple[Config, Assembly]) -> None:
    decision = decide(asked("ecko"), *parts)
    assert (decision.route, decision.error) == ("", "unknown model 'ecko'; did you mean 'echo'?")
    assert all(each.unmet for each in decision.routes)
    assert list(decision_lines(decision))[-1] == "  no route: unknown model 'ecko'; did you mean 'echo'?"


async def test_operations_on_the_server_take_no_route(parts: tuple[Config, Assembly]) -> None:
    decision = decide(asked(operation=Operation.READY), *parts)
    assert (decision.routes, decision.error) == ((), "")
    assert "itself" in decision.note


PATH = "/v2/models/echo/infer"
CANARY = (Headers(), Headers([(b"x-canary", b"yes")]))


@pytest.mark.parametrize("model", ["echo", "echo-2", "echo.gradient", "abc", "abc-1.gradient", ""])
async def test_it_decides_as_the_router(parts: tuple[Config, Assembly], model: str) -> None:
    """For every combination of what the routes look at: the route without unmet conditions is the one of the Router,
    and conditions hold if none is unmet."""
    assembly = parts[1]
    kinds = ("http", "v2-rest"), ("http", "grps-rest"), ("http", "umbridge"), ("other", "v2-rest")
    operations = Operation.INFER, Operation.METADATA, Operation.GRADIENT
    for (listener, protocol), version, headers, path in product(kinds, ("", "2"), CANARY, ("", PATH)):
        for operation in operations:
            named = {"listener": listener, "protocol": protocol, "version": version, "operation": operation}
            request = asked(model, headers=headers, path=path, **named)
            decision = decide(request, *parts)
            assert (decision.route, decision.error) == outcome(assembly, request)
            key = RoutingKey(listener, protocol, model, version, operation)
            for each in (route.conditions for route in assembly.router.routes):
                assert each.names(key, model, operation) == (not list(each.unmet_names(key, model, operation)))
                assert each.holds(request) == (not list(each.unmet(request)))


def outcome(assembly: Assembly, request: Request) -> tuple[str, str]:
    """The Router's route, or the text of its error."""
    try:
        return assembly.router.select(request).route, ""
    except GatewayError as error:
        return "", error.message
