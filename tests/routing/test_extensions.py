"""The extensions that the gateway lists, the statistics of all models, and who may control servers."""

from collections.abc import Sequence

import pytest

from gateway.core.errors import GatewayError, Reason, Status, unsupported
from gateway.core.globs import ModelRenaming, Rewritten
from gateway.core.models import ServerInfo
from gateway.core.operations import CONTROL_OPERATIONS, Operation
from gateway.core.principal import Grant, Principal
from gateway.core.protocol import Servers, Traits
from gateway.core.requests import Answer, Request
from gateway.core.statistics import ModelStatistics, Statistics
from gateway.core.transport import Destination
from gateway.routing.conditions import Conditions
from gateway.routing.extensions import AllStatistics, Extended, ServerExtensions
from gateway.routing.listing import Remembered
from gateway.routing.router import Route, Router

DOWN = GatewayError(Status.UNAVAILABLE, Reason.UNREACHABLE, "down")
EXTENSIONS = {Operation.ALL_STATISTICS: "statistics", Operation.LOAD: "model_repository"}
TRAITS = Traits(servers=Servers(extensions=EXTENSIONS, further_extensions=frozenset({"classification"})))
CLIENTS = frozenset({"toy"})


class Lab:
    """A backend with models `name` or `name:version`, and these extensions."""

    def __init__(
        self, name: str, *models: str, extensions: Sequence[str] = (), error: GatewayError | None = None
    ) -> None:
        self.name, self.models, self.extensions, self.error = name, models, tuple(extensions), error
        self.info: Remembered[ServerInfo | None] = Remembered(self, Operation.SERVER_METADATA, None, lambda: 0.0)

    async def __call__(self, request: Request) -> Answer:
        if self.error:
            raise self.error
        if request.operation is Operation.SERVER_METADATA:
            return ServerInfo(self.name, "1", self.extensions)
        parted = (each.partition(":") for each in self.models)
        return Statistics(
            tuple(ModelStatistics(name, version or "1", {"of": self.name}) for name, _, version in parted)
        )

    def route(self, model: str = "", rewritten: Rewritten = None, version: str | None = None, **more: str) -> Extended:
        conditions = Conditions(model=model, **more)  # type: ignore[arg-type]
        return Extended(conditions, CLIENTS, self.name, TRAITS, rewritten, version, self.info, self)


def plain(model: str) -> Extended:
    """A route to a backend whose protocol has no extensions."""
    return Extended(Conditions(model=model), CLIENTS, "plain", Traits())


async def counted(*routes: Extended, listener: str = "") -> list[str]:
    request = Request(Operation.ALL_STATISTICS, listener=listener, protocol="toy")
    found = await AllStatistics(routes)(request)
    return [f"{each.name}:{each.version} of {each.counters['of']}" for each in found.models]


async def test_every_model_is_counted_once_under_the_clients_name() -> None:
    one, two = Lab("one", "a", "b:1", "b:2"), Lab("two", "a", "c")
    found = await counted(one.route("alias", "a"), one.route("*"), two.route("*"))
    assert found == ["alias:1 of one", "a:1 of one", "b:1 of one", "b:2 of one"]
    assert await counted(one.route("first", "b", "1")) == ["first:1 of one"]
    assert await counted(two.route("a"), one.route()) == ["a:1 of two", "b:1 of one", "b:2 of one"]


async def test_what_another_route_takes_first_is_not_counted() -> None:
    one = Lab("one", "a", "b")
    assert await counted(plain("a"), one.route("*")) == ["b:1 of one"]
    assert await counted(one.route("a"), one.route("*", "b")) == ["a:1 of one"]
    assert await counted(one.route("a", listener="x"), listener="x") == ["a:1 of one"]
    with pytest.raises(GatewayError, match="the gateway has no V2 backend"):
        await counted(one.route("a", listener="x"), listener="y")


async def test_a_client_sees_only_the_models_that_it_may_use() -> None:
    alice = Principal("alice", [Grant(frozenset({"metadata"}), ("a*",))])
    request = Request(Operation.ALL_STATISTICS, protocol="toy", principal=alice)
    found = await AllStatistics([Lab("one", "a1", "b1", "a2").route("*")])(request)
    assert [each.name for each in found.models] == ["a1", "a2"]


async def test_names_made_of_captures_are_those_that_clients_use() -> None:
    lab = Lab("lab", "prod-a", "prod-b:2", "other")
    found = await counted(lab.route("team-*", ModelRenaming("team-*", "prod-{1}")))
    assert found == ["team-a:1 of lab", "team-b:2 of lab"]


async def test_a_backend_that_does_not_answer_is_left_out_unless_none_does() -> None:
    one, down = Lab("one", "a"), Lab("down", error=DOWN)
    without = Lab("without", error=unsupported("no extension 'statistics'"))
    assert await counted(down.route("x"), one.route("*"), without.route("y")) == ["a:1 of one"]
    for routes, reason in (
        ([down.route("*"), without.route("*")], Reason.UNREACHABLE),
        ([without.route("*")], Reason.UNSUPPORTED),
        ([plain("*")], Reason.UNSUPPORTED),
    ):
        with pytest.raises(GatewayError) as caught:
            await counted(*routes)
        assert caught.value.reason is reason


async def test_what_backends_list_and_the_gateway_serves_is_listed() -> None:
    lab = Lab("lab", extensions=["statistics", "model_repository", "classification", "telepathy"])
    routes = [lab.route("a"), Lab("down", error=DOWN).route("*"), lab.route("b", listener="free")]

    async def listed(listener: str, *routes: Extended) -> tuple[str, ...]:
        handler = ServerExtensions(ServerInfo("here", "2"), routes, {"toy": ("parameters",)}, {"free"})
        info = await handler(Request(Operation.SERVER_METADATA, listener=listener, protocol="toy"))
        assert (info.name, info.version) == ("here", "2")
        return info.extensions

    assert await listed("free", *routes) == ("parameters", "statistics", "model_repository", "classification")
    assert await listed("other", *routes) == ("parameters", "statistics", "classification")
    assert await listed("other", routes[1], routes[2], plain("*")) == ("parameters",)


@pytest.mark.parametrize("operation", sorted(CONTROL_OPERATIONS, key=str))
def test_only_clients_of_some_listeners_control_servers(operation: Operation) -> None:
    there = Destination()
    router = Router([Route(Conditions(), {"toy": there})], {}, controlling={"free"})
    assert router.select(Request(operation, "m", listener="free", protocol="toy")) is there
    with pytest.raises(GatewayError, match="set `allow_control: true` on it") as caught:
        router.select(Request(operation, "m", listener="other", protocol="toy"))
    assert caught.value.reason is Reason.PERMISSION_DENIED


def test_settings_of_a_whole_server_take_a_route_without_a_model() -> None:
    first, named = Destination(), Destination()
    routes = [Route(Conditions(model="*"), {"toy": first})]
    asked = Request(Operation.LOG_SETTINGS, listener="free", protocol="toy")
    with pytest.raises(GatewayError, match=r"`match: \{operation: log-settings\}` says which"):
        Router(routes, {}, controlling={"free"}).select(asked)
    routes.append(Route(Conditions(operation=Operation.LOG_SETTINGS), {"toy": named}))
    assert Router(routes, {}, controlling={"free"}).select(asked) is named
