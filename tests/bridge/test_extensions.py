"""What only some model servers have reaches them under the backend's names, and comes back under the client's."""

import json
from collections.abc import Callable
from typing import Any

import pytest

from gateway.bridge.bridge import Bridge
from gateway.bridge.settings import RouteSettings
from gateway.core.errors import GatewayError, Reason, refusal, unsupported
from gateway.core.operations import CONTROL_OPERATIONS, Operation
from gateway.core.requests import Answer, ControlRequest, Request
from gateway.core.statistics import ModelStatistics, Statistics
from tests.bridge.fakes import TENSORS, bridge
from tests.bridge.traits import adapted

HAS_ALL = {each: each.value for each in (Operation.CONFIG, Operation.MODEL_STATISTICS, *CONTROL_OPERATIONS)}


class Server:
    """Answers by `answer`, and keeps what it was asked."""

    def __init__(self, answer: Callable[[Request], Answer]) -> None:
        self._answer = answer
        self.asked: list[Request] = []

    async def __call__(self, request: Request) -> Answer:
        self.asked.append(request)
        return self._answer(request)


def renamed(server: Server, extensions: dict[Operation, str] = HAS_ALL) -> Bridge:
    extended = adapted(TENSORS, servers={"extensions": extensions})
    return bridge(TENSORS, extended, server, RouteSettings(model="backends"))


async def test_statistics_have_the_clients_name() -> None:
    server = Server(lambda request: Statistics((ModelStatistics("backends", "1", {"inference_count": 5}),)))
    found = await renamed(server)(Request(Operation.MODEL_STATISTICS, "clients"))
    assert found == Statistics((ModelStatistics("clients", "1", {"inference_count": 5}),))
    assert [each.model for each in server.asked] == ["backends"]


@pytest.mark.parametrize(
    ("config", "sent"),
    [
        ('{"name":"clients","max_batch_size":4}', {"name": "backends", "max_batch_size": 4}),
        ('{"name":"another"}', {"name": "another"}),
        ("{}", {}),
    ],
)
async def test_a_model_is_loaded_with_a_configuration_of_the_backends_name(config: str, sent: dict[str, Any]) -> None:
    server = Server(lambda request: True)
    request = ControlRequest(Operation.LOAD, "clients", settings={"config": config, "file:1/model": b"\0"})
    assert await renamed(server)(request) is True
    [asked] = server.asked
    assert isinstance(asked, ControlRequest)
    assert asked.model == "backends"
    text = asked.settings["config"]
    assert isinstance(text, str)
    assert json.loads(text) == sent
    assert asked.settings["file:1/model"] == b"\0"


async def test_a_configuration_that_is_no_json_goes_as_it_is() -> None:
    server = Server(lambda request: True)
    await renamed(server)(ControlRequest(Operation.LOAD, "clients", settings={"config": "{no"}))
    [asked] = server.asked
    assert isinstance(asked, ControlRequest)
    assert asked.settings == {"config": "{no"}


async def test_settings_of_the_whole_server_name_no_model() -> None:
    server = Server(lambda request: {"log_info": True})
    assert await renamed(server)(ControlRequest(Operation.LOG_SETTINGS)) == {"log_info": True}
    assert [each.model for each in server.asked] == [""]


async def test_a_derivative_model_is_asked_for_under_the_backends_name_too() -> None:
    server = Server(lambda request: Statistics((ModelStatistics("backends.gradient", "1"),)))
    gradient = renamed(server).companion(Operation.GRADIENT)
    found = await gradient(Request(Operation.MODEL_STATISTICS, "clients.gradient"))
    assert found == Statistics((ModelStatistics("clients.gradient", "1"),))
    server = Server(lambda request: True)
    assert await renamed(server).companion(Operation.GRADIENT)(ControlRequest(Operation.LOAD, "clients.gradient"))
    assert [(each.operation, each.model) for each in server.asked] == [(Operation.LOAD, "backends.gradient")]


async def test_a_backend_that_has_no_extensions_is_not_asked() -> None:
    server = Server(lambda request: True)
    with pytest.raises(GatewayError, match=r"model 'clients' has no load: .* backend 'lab'") as caught:
        await renamed(server, {})(ControlRequest(Operation.LOAD, "clients"))
    assert caught.value.reason is Reason.UNSUPPORTED
    assert server.asked == []


async def test_a_server_may_have_no_configuration_to_tell() -> None:
    """Unless it tells the tensors either."""

    def answer(request: Request) -> Answer:
        raise unsupported("not here")

    with pytest.raises(GatewayError) as caught:
        await renamed(Server(answer))(Request(Operation.CONFIG, "clients"))
    assert caught.value.reason is Reason.UNSUPPORTED


async def test_an_error_about_the_configuration_is_told() -> None:
    def answer(request: Request) -> Answer:
        raise refusal(Reason.NOT_READY, "starting")

    with pytest.raises(GatewayError, match=r"^starting$"):
        await renamed(Server(answer))(Request(Operation.CONFIG, "clients"))


@pytest.mark.parametrize("settings", [{"config": 7}, {}])
async def test_other_settings_of_a_load_go_as_they_are(settings: dict[str, Any]) -> None:
    server = Server(lambda request: True)
    await renamed(server)(ControlRequest(Operation.LOAD, "clients", settings=settings))
    [asked] = server.asked
    assert isinstance(asked, ControlRequest)
    assert (asked.model, asked.settings) == ("backends", settings)
