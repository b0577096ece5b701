"""Which route a request takes."""

from collections.abc import Callable, Sequence
from typing import Any, cast

import pytest

from gateway.core.datatypes import Datatype
from gateway.core.errors import GatewayError, Status, not_found
from gateway.core.frozen import replace
from gateway.core.messages import Headers
from gateway.core.operations import DERIVATIVES, Operation
from gateway.core.requests import Answer, Request, Translate
from gateway.core.tensors import Tensor
from gateway.core.transport import Destination
from gateway.routing.conditions import Conditions, InputCondition
from gateway.routing.router import LONGEST_NAME, MOST_CACHED, Route, Router

INFER, GRADIENT, METADATA = Operation.INFER, Operation.GRADIENT, Operation.METADATA


def route(name: str, **conditions: object) -> Route:
    """A route whose destinations can be told by their `payload`."""

    def to(payload: str) -> Destination:
        return Destination(translate=Translate(payload=payload))

    companions = {("toy", operation): to(f"{name}.{operation.value}") for operation in DERIVATIVES}
    return Route(Conditions(**conditions), {"toy": to(name)}, companions)  # type: ignore[arg-type]


def taken(routes: Sequence[Route], request: Request) -> str:
    return Router(routes, {}).select(request).translate.payload


def asking(model: str = "", operation: Operation = INFER, path: str = "", headers: str = "", **fields: str) -> Request:
    raw = [(b"team", headers.encode())] if headers else []
    return Request(operation, model, **fields, protocol="toy", path=path, headers=Headers(raw))  # type: ignore[arg-type]


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
        (asking("unknown"), "unknown model 'unknown'"),
        (asking("infer", METADATA), "model 'infer' does not support 'metadata'"),
        (asking("g"), "unknown model 'g'"),
        (asking("u.gradient"), "unknown model 'u.gradient'; did you mean 'g.gradient'?"),
        (asking(""), NAMELESS),
        (asking("", path="/audio/x"), NAMELESS),
    ],
)
def test_what_no_route_matches_is_not_found(request_: Request, text: str) -> None:
    with pytest.raises(GatewayError) as failed:
        taken(ROUTES, request_)
    assert (failed.value.status, failed.value.message) == (Status.NOT_FOUND, text)


async def test_a_server_that_lacks_the_model_is_not_the_end_of_the_list() -> None:
    """The servers behind a glob name the models that they have, and not those of other routes."""
    missing = not_found("no model 'posteriro'; this server has double")
    asked = []

    async def answer(request: Request) -> Answer:
        asked.append(request.model)
        if request.model == "posteriro":
            raise missing
        return True

    glob = Route(Conditions(model="*"), {"toy": Destination(answer)})
    router = Router([route("science", model="posterior"), glob], {})
    for _ in range(2):
        with pytest.raises(GatewayError) as failed:
            await handled(router, asking("posteriro"))
        assert failed.value.message == "no model 'posteriro'; this server has double; did you mean 'posterior'?"
    assert await handled(router, asking("posteriors")) is True
    assert asked == ["posteriro", "posteriro", "posteriors"]


async def handled(router: Router, request: Request) -> Answer:
    handler = router.select(request).handler
    assert handler is not None
    return await handler(request)


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


def tensor_of(name: str, datatype: Datatype, *shape: int) -> Tensor:
    return Tensor(name, datatype, shape, b"")


FP32 = tensor_of("x", Datatype.FP32, 1, 3, 8, 8)
INT64 = tensor_of("n", Datatype.INT64, 1)
UNNAMED = tensor_of("", Datatype.FP32, 2)

BY_INPUT = [
    route("named", model="m", input=InputCondition(name="n")),
    route("image", model="m", input=InputCondition("x", Datatype.FP32, (-1, 3, 8, 8))),
    route("vector", model="m", input=InputCondition(shape=(-1,), datatype=Datatype.FP32)),
    route("scalar", model="m", input=InputCondition(shape=())),
]


@pytest.mark.parametrize(
    ("inputs", "name"),
    [
        ((FP32, INT64), "named"),
        ((FP32,), "image"),
        ((replace(FP32, shape=(9, 3, 8, 8)),), "image"),
        ((INT64, UNNAMED), "named"),
        ((UNNAMED,), "vector"),
        ((replace(UNNAMED, shape=()),), "scalar"),
    ],
)
def test_a_route_is_taken_for_an_input_that_has_all_that_is_given(inputs: tuple[Tensor, ...], name: str) -> None:
    assert taken(BY_INPUT, replace(asking("m"), inputs=inputs)) == name


@pytest.mark.parametrize(
    ("inputs", "shown"),
    [
        ((replace(FP32, shape=(1, 3, 8)),), "'x' FP32 [1, 3, 8]"),  # another rank
        ((replace(FP32, shape=(1, 3, 8, 9)),), "'x' FP32 [1, 3, 8, 9]"),
        ((replace(FP32, datatype=Datatype.FP16),), "'x' FP16 [1, 3, 8, 8]"),
        ((replace(FP32, name="y"),), "'y' FP32 [1, 3, 8, 8]"),
        # no input has all of it, though together they do
        ((replace(FP32, name="y"), tensor_of("x", Datatype.BOOL, 1)), "'y' FP32 [1, 3, 8, 8], 'x' BOOL [1]"),
        ((replace(UNNAMED, datatype=Datatype.FP64),), "FP64 [2]"),
        ((), "none"),
    ],
)
def test_a_request_whose_inputs_fit_no_route_is_told_so(inputs: tuple[Tensor, ...], shown: str) -> None:
    with pytest.raises(GatewayError) as failed:
        taken(BY_INPUT, replace(asking("m"), inputs=inputs))
    assert failed.value.status is Status.INVALID_ARGUMENT
    told, _, remedy = failed.value.message.partition("; ")
    assert told == f"model 'm' does not accept these inputs: {shown}"
    assert remedy == "send inputs that a route's `match: {input: ...}` describes"


def test_what_has_no_inputs_takes_the_first_route_by_names() -> None:
    assert taken(BY_INPUT, asking("m", METADATA)) == "named"
    assert taken(BY_INPUT, replace(asking("m"), flaw="not JSON")) == "named"


def test_inputs_that_only_the_signature_can_tell_meet_no_condition() -> None:
    request = replace(asking("m"), inputs=(FP32,), schemaless=True)
    assert taken([*BY_INPUT, route("rest", model="m")], request) == "rest"
    with pytest.raises(GatewayError, match="needs inputs with datatypes and shapes"):
        taken(BY_INPUT, request)


def test_a_request_that_is_forwarded_unread_is_read_where_its_input_decides() -> None:
    unread = cast(Any, object())  # nothing is asked of it
    chosen = Router(BY_INPUT, {}).select(replace(asking("m"), unread=unread))
    assert chosen.reads == "match.input"


def test_a_header_must_be_there_with_its_value_or_any() -> None:
    routes = [
        route("empty", model="m", headers=(("team", ""),)),
        route("red", model="m", headers=(("team", "red"),)),
        route("any", model="m", headers=(("team", None),)),
        route("rest", model="m"),
    ]
    assert [taken(routes, asking("m", headers=each)) for each in ("red", "blue")] == ["red", "any"]
    assert taken(routes, asking("m")) == "rest"
    assert taken(routes, replace(asking("m"), headers=Headers([(b"team", b"")]))) == "empty"
