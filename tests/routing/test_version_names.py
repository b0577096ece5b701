"""Names that hold a version."""

from collections.abc import AsyncGenerator

import pytest

from gateway.core.errors import GatewayError, Reason, not_found, refusal
from gateway.core.models import Signature
from gateway.core.operations import DERIVATIVES, Operation
from gateway.core.requests import Answer, Request, Response
from gateway.core.transport import Destination, Handler, StreamHandler
from gateway.routing.conditions import Conditions
from gateway.routing.router import Route, Router
from gateway.routing.version_names import renamed, split_version

INFER, GRADIENT, METADATA = Operation.INFER, Operation.GRADIENT, Operation.METADATA


@pytest.mark.parametrize(
    ("name", "split"),
    [
        ("echo-1.0.0", ("echo", "1.0.0")),
        ("echo-1", ("echo", "1")),
        ("echo-v2", ("echo", "v2")),
        ("echo-v2.1", ("echo", "v2.1")),
        ("resnet-50-1.0", ("resnet-50", "1.0")),
        ("a-1-2", ("a-1", "2")),
        ("M.gradient-1.0.0", ("M.gradient", "1.0.0")),
        ("line\nbreak-1", ("line\nbreak", "1")),
        ("echo", None),
        ("echo-", None),
        ("echo-latest", None),
        ("echo-1.0.0\n", None),
        ("echo-1.", None),
        ("echo-.1", None),
        ("echo-vv1", None),
        ("echo-\u0661", None),
        ("-1.0.0", None),
        ("", None),
    ],
)
def test_a_version_is_numbers_after_the_last_dash(name: str, split: tuple[str, str] | None) -> None:
    assert split_version(name) == split


def route(place: str, **conditions: object) -> Route:
    """A Route whose answers tell where, and by which names, they were asked."""

    def told(kind: str) -> Destination:
        async def handler(request: Request) -> Answer:
            asked = f"{place}{kind} {request.model} {request.version}"
            if request.operation is METADATA:
                return Signature(name=request.model, platform=asked)
            return Response(model=request.model, version=request.version, id=asked)

        async def stream(request: Request) -> AsyncGenerator[Response, None]:
            for each in range(2):
                yield Response(model=request.model, version=request.version, id=f"{place} {request.model} {each}")

        return Destination(handler, stream=stream)

    companions = {("toy", operation): told(f".{operation.value}") for operation in DERIVATIVES}
    return Route(Conditions(**conditions), {"toy": told(""), "plain": told("")}, companions)  # type: ignore[arg-type]


async def asked(routes: list[Route], name: str, protocol: str = "toy", version: str = "") -> str:
    """What the Destination of a request was asked."""
    request = Request(INFER, name, version, protocol=protocol)
    handler = Router(routes, {}, frozenset({"toy"})).select(request).handler
    assert handler is not None
    answer = await handler(request)
    assert isinstance(answer, Response)
    assert (answer.model, answer.version) == (name, version)  # the client's own names
    return answer.id or ""


GLOB, VERSION, ECHO = route("glob", model="*"), route("version", model="*", version="1.0"), route("echo", model="echo")
WHOLE, OLD = route("whole", model="echo-1.0"), route("old", model="echo", version="1.0")


@pytest.mark.parametrize(
    ("routes", "name", "place"),
    [
        ([GLOB], "echo-1.0", "glob echo-1.0 "),
        ([ECHO], "echo-1.0", "echo echo 1.0"),
        ([GLOB, ECHO], "echo-1.0", "echo echo 1.0"),
        ([GLOB, ECHO], "else-1.0", "glob else-1.0 "),
        ([ECHO, WHOLE], "echo-1.0", "whole echo-1.0 "),
        ([ECHO, WHOLE], "echo-2", "echo echo 2"),
        ([OLD, ECHO], "echo-1.0", "old echo 1.0"),
        ([OLD, ECHO], "echo-1.1", "echo echo 1.1"),
        ([OLD, ECHO], "echo", "echo echo "),
        ([VERSION, GLOB], "else-1.0", "version else 1.0"),
        ([VERSION, GLOB], "else-1.1", "glob else-1.1 "),
        ([GLOB, VERSION], "else-1.0", "glob else-1.0 "),
        ([route("all")], "echo-1.0", "all echo-1.0 "),
        ([ECHO], "echo.gradient-1.0", "echo.gradient echo.gradient 1.0"),
        ([ECHO, route("own", model="echo.gradient")], "echo.gradient-1.0", "own echo.gradient 1.0"),
        ([ECHO], "echo.gradient", "echo.gradient echo.gradient "),
        ([route("path", model="echo", path="/x"), ECHO], "echo-1.0", "echo echo 1.0"),
    ],
)
async def test_whole_names_come_first_and_exact_ones_before_globs(routes: list[Route], name: str, place: str) -> None:
    assert await asked(routes, name) == place


class Server:
    """What is behind a glob: models by name and version, its answers, and what it was asked."""

    def __init__(self, *models: tuple[str, str], fails: GatewayError | None = None, breaks: bool = False) -> None:
        self.models = models
        self.fails, self.breaks = fails, breaks
        self.asked: list[tuple[str, str]] = []

    def _find(self, request: Request) -> Response:
        self.asked.append((request.model, request.version))
        if (request.model, request.version) not in self.models:
            raise not_found(f"unknown model {request.model!r}, version {request.version!r}")
        if self.fails is not None:
            raise self.fails
        return Response(model=request.model, version=request.version)

    async def handler(self, request: Request) -> Answer:
        return self._find(request)

    async def stream(self, request: Request) -> AsyncGenerator[Response, None]:
        yield self._find(request)
        if self.breaks:
            raise not_found("gone meanwhile")
        yield self._find(request)

    def router(self, *, joins_versions: bool = False) -> Router:
        here = {"toy": Destination(self.handler, stream=self.stream)}
        return Router([Route(Conditions(model="*"), here, joins_versions=joins_versions)], {}, frozenset({"toy"}))


def ways(destination: Destination) -> tuple[Handler, StreamHandler]:
    """For calls, and for streams."""
    assert destination.handler is not None
    assert destination.stream is not None
    return destination.handler, destination.stream


async def asked_both_ways(router: Router, name: str) -> list[tuple[str, str]]:
    """The names in a call's answer, and in a stream's."""
    request = Request(INFER, name, protocol="toy")
    handler, stream = ways(router.select(request))
    answer = await handler(request)
    assert isinstance(answer, Response)
    return [(each.model, each.version) for each in [answer, *[each async for each in stream(request)]]]


async def test_behind_a_glob_the_backend_knows_whether_a_name_holds_a_version() -> None:
    server = Server(("resnet-50", ""), ("double", "1"))
    assert await asked_both_ways(server.router(), "resnet-50") == [("resnet-50", "")] * 3
    assert server.asked == [("resnet-50", "")] * 3
    server.asked.clear()
    assert await asked_both_ways(server.router(), "double-1") == [("double-1", "")] * 3
    assert server.asked == [("double-1", ""), ("double", "1"), ("double-1", ""), ("double", "1"), ("double", "1")]


@pytest.mark.parametrize(
    ("server", "told", "questions"),
    [
        (Server(), "unknown model 'double-1', version ''", 2),
        (Server(("double", "1"), fails=refusal(Reason.INVALID_INPUT, "too short")), "too short", 2),
        (Server(("double-1", ""), fails=refusal(Reason.UNREACHABLE, "gone")), "gone", 1),
        (Server(("double-1", ""), fails=refusal(Reason.PATH_NOT_FOUND, "no such path")), "no such path", 1),
    ],
    ids=["neither", "split fails", "whole fails", "no path"],
)
async def test_of_two_errors_the_client_gets_the_one_that_tells_more(server: Server, told: str, questions: int) -> None:
    request = Request(INFER, "double-1", protocol="toy")
    handler, stream = ways(server.router().select(request))
    with pytest.raises(GatewayError, match=told):
        await handler(request)
    with pytest.raises(GatewayError, match=told):
        await anext(stream(request))
    assert len(server.asked) == 2 * questions


async def test_a_stream_that_has_begun_does_not_begin_again() -> None:
    server = Server(("double-1", ""), ("double", "1"), breaks=True)
    request = Request(INFER, "double-1", protocol="toy")
    _, stream = ways(server.router().select(request))
    responses = stream(request)
    assert (await anext(responses)).model == "double-1"
    with pytest.raises(GatewayError, match="gone meanwhile"):
        await anext(responses)
    assert server.asked == [("double-1", "")]


async def test_a_backend_that_would_see_one_name_in_both_is_asked_once() -> None:
    server = Server(("double", "1"))
    with pytest.raises(GatewayError, match="unknown model 'double-1', version ''"):
        await asked_both_ways(server.router(joins_versions=True), "double-1")
    assert server.asked == [("double-1", "")]


async def test_a_glob_of_clients_with_versions_of_their_own_takes_the_name_as_it_is() -> None:
    assert await asked([GLOB, ECHO], "echo-1.0", protocol="plain") == "glob echo-1.0 "
    assert await asked([GLOB, ECHO], "echo-1.0", version="3") == "glob echo-1.0 3"


async def test_metadata_and_streams_have_the_clients_names_too() -> None:
    handler, stream = ways(renamed(ECHO.whole["toy"], "echo", "1.0"))
    told = await handler(Request(METADATA, "echo-1.0"))
    assert isinstance(told, Signature)
    assert (told.name, told.platform) == ("echo-1.0", "echo echo 1.0")
    responses = [(each.model, each.version, each.id) async for each in stream(Request(INFER, "echo-1.0"))]
    assert responses == [("echo-1.0", "", "echo echo 0"), ("echo-1.0", "", "echo echo 1")]


async def test_whether_a_model_is_ready_has_no_name() -> None:
    async def ready(request: Request) -> Answer:
        return (request.model, request.version) == ("echo", "1.0")

    handler = renamed(Destination(ready), "echo", "1.0").handler
    assert handler is not None
    assert await handler(Request(Operation.MODEL_READY, "echo-1.0")) is True
