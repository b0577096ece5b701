"""Which route a request takes."""

from collections.abc import Callable, Sequence

import pytest

from gateway.core.errors import GatewayError, Status
from gateway.core.operations import DERIVATIVES, Operation
from gateway.core.transport import Destination
from gateway.core.types import Headers, Request, Translate
from gateway.routing.conditions import Conditions
from gateway.routing.router import LONGEST_NAME, MOST_CACHED, Route, Router

INFER, GRADIENT, METADATA = Operation.INFER, Operation.GRADIENT, Operation.METADATA


def route(name: str, **conditions: object) -> Route:
    """A route whose destinations can be told by their `payload`."""
    destinations = {
        operation: Destination(translate=Translate(payload=f"{name}.{operation.value}")) for operation in DERIVATIVES
    }
    return Route(
        Conditions(**conditions),  # type: ignore[arg-type]
        {"toy": Destination(translate=Translate(payload=name))},
        {("toy", operation): destination for operation, destination in destinations.items()},
    )


def taken(routes: Sequence[Route], request: Request) -> str:
    return Router(routes, {}).select(request).translate.payload


def asking(model: str = "", operation: Operation = INFER, path: str = "", headers: str = "", **fields: str) -> Request:
    raw = [(b"team", headers.encode())] if headers else []
    return Request(
        operation, model, protocol="toy", path=path, headers=Headers(raw), **fields  # type: ignore[arg-type]
    )  # fmt: skip


ROUTES = [
    route("versioned", model="m", version="2"),
    route("listener", model="m", listener="lab"),
    route("only infer", model="infer", operation=INFER),
    route("path", path="/vision/*"),
    route("whole path", path="/audio"),
    route("team", model="t*", headers=(("team", "red"),)),
    route("exact", model="m"),
    route("glob", model="t*"),
    route("other protocol", protocol="other"),
    route("gradient", model="g.gradient"),
]


@pytest.mark.parametrize(
    ("request_", "name"),
    [
        (asking("m"), "exact"),
        (asking("m", version="2"), "versioned"),
        (asking("m", version="3"), "exact"),
        (asking("m", listener="lab"), "listener"),
        (asking("tree"), "glob"),
        (asking("tree", headers="red"), "team"),
        (asking("tree", headers="blue"), "glob"),
        (asking("infer"), "only infer"),
        (asking("m", path="/vision/x"), "path"),
        (asking("", path="/vision/"), "path"),
        (asking("", path="/audio"), "whole path"),
        (asking("m", path="/audio/x"), "exact"),
        (asking("g.gradient"), "gradient"),
        (asking("g.gradient", METADATA), "gradient"),
        (asking("m.gradient"), "exact.gradient"),
        (asking("m.gradient", METADATA), "exact.gradient"),
        (asking("tree.apply_hessian"), "glob.apply_hessian"),
        (asking("tree.apply_hessian", headers="red"), "team.apply_hessian"),
    ],
)
def test_the_first_route_that_matches_is_taken(request_: Request, name: str) -> None:
    assert taken(ROUTES, request_) == name


NAMELESS = "no route for a request without a model: name one, or set `model` on the listener"


@pytest.mark.parametrize(
    ("request_", "text"),
    [
        (asking("unknown"), "no model 'unknown' here"),
        (asking("infer", METADATA), "model 'infer' does not take 'metadata' here"),
        (asking("g"), "no model 'g' here"),
        (asking("u.gradient"), "no model 'u.gradient' here; did you mean 'g.gradient'?"),
        (asking(""), NAMELESS),
        (asking("", path="/audio/x"), NAMELESS),
    ],
)
def test_what_no_route_matches_is_not_found(request_: Request, text: str) -> None:
    with pytest.raises(GatewayError) as failed:
        taken(ROUTES, request_)
    assert (failed.value.status, failed.value.message) == (Status.NOT_FOUND, text)


def test_a_request_without_a_model_takes_only_a_route_without_one() -> None:
    assert taken([route("star", model="*"), route("any")], asking("")) == "any"


def test_the_name_is_matched_case_by_case() -> None:
    with pytest.raises(GatewayError):
        taken([route("upper", model="M*")], asking("m"))


def test_a_companion_goes_to_the_exact_route_of_its_model_before_a_glob() -> None:
    routes = [route("glob", model="*"), route("exact", model="m")]
    assert taken(routes, asking("m")) == "glob"
    assert taken(routes, asking("m.gradient")) == "exact.gradient"
    assert taken(routes, asking("n.gradient")) == "glob.gradient"


def test_a_companions_inference_is_its_derivative_to_operation_conditions() -> None:
    routes = [route("derivatives", model="m", operation=GRADIENT), route("rest", model="*")]
    assert taken(routes, asking("m.gradient")) == "derivatives.gradient"
    assert taken(routes, asking("m.apply_jacobian")) == "rest.apply_jacobian"
    assert taken(routes, asking("m", GRADIENT)) == "derivatives"
    assert taken(routes, asking("m")) == "rest"


def test_decisions_are_remembered_and_there_is_an_end_to_them() -> None:
    looked: list[str] = []

    class Counting(Conditions):
        def names(self, key: object, model: str, operation: Operation) -> bool:
            looked.append(model)
            return True

    counting = Route(Counting(), {"toy": Destination()})
    router = Router([counting], {})
    for _ in range(2):
        router.select(asking("first"))
    assert looked == ["first"]
    for number in range(MOST_CACHED):
        router.select(asking(str(number)))
    router.select(asking("first"))
    assert looked.count("first") == 2


def test_what_is_asked_of_the_server_takes_no_route() -> None:
    here = Destination(local=lambda request: True)
    router = Router([route("any")], {Operation.LIVE: here})
    assert router.select(asking("", Operation.LIVE)) is here
    with pytest.raises(GatewayError, match="models is not supported here") as failed:
        router.select(asking("", Operation.MODELS))
    assert failed.value.status is Status.UNIMPLEMENTED


@pytest.mark.parametrize(
    "request_of", [lambda name: asking(name), lambda name: asking("m", version=name)], ids=["model", "version"]
)
def test_no_name_is_so_long_that_remembering_it_costs_memory(request_of: Callable[[str], Request]) -> None:
    routes = [route("any")]
    assert taken(routes, request_of("m" * LONGEST_NAME)) == "any"
    with pytest.raises(GatewayError, match=r"no route for 'm{40}\.\.\.': a .* at most 1024 characters, got 1025") as no:
        taken(routes, request_of("m" * (LONGEST_NAME + 1)))
    assert no.value.status is Status.NOT_FOUND
