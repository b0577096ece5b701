"""What a client is told of a model that no route has for it."""

import pytest

from gateway.core.errors import GatewayError, Status
from gateway.core.operations import Operation
from gateway.core.principal import Grant, Principal
from gateway.core.requests import Request
from gateway.core.transport import Destination
from gateway.routing.conditions import Conditions
from gateway.routing.router import LONGEST_NAME, LONGEST_SUGGESTED, MOST_NAMES, Route, Router, variants


def route(*protocols: str, **conditions: object) -> Route:
    return Route(Conditions(**conditions), {name: Destination() for name in protocols or ("toy",)})  # type: ignore[arg-type]


ROUTES = [
    route(model="posterior"),
    route(model="Net-50"),
    route(model="net_51", listener="lab"),
    route(model="prior", protocol="other"),
    route("other", model="likelihood"),
    route(model="secret1", headers=(("key", "k"),)),
    route(model="hidden", path="/hidden"),
    route(model="vision*", version="7"),
    route(model="m", version="2"),
    route(model="two", version="1"),
    route(model="two", version="2"),
    *(route(model="many", version=str(each)) for each in range(9)),
    route(model="calls", operation=Operation.INFER),
    route(model="ab"),
]
ROUTER = Router(ROUTES, {}, frozenset({"toy"}))


def told(
    model: str,
    version: str = "",
    listener: str = "http",
    operation: Operation = Operation.METADATA,
    principal: Principal | None = None,
) -> str:
    with pytest.raises(GatewayError) as failed:
        ROUTER.select(Request(operation, model, version, protocol="toy", listener=listener, principal=principal))
    assert failed.value.status is Status.NOT_FOUND
    return failed.value.message


@pytest.mark.parametrize(
    ("name", "near"),
    [
        ("posterio", "posterior"),
        ("posteriors", "posterior"),
        ("postexior", "posterior"),
        ("psoterior", "posterior"),
        ("Posterior", "posterior"),
        ("net_50", "Net-50"),
        ("NET-5", "Net-50"),
        # two mistakes, or another word
        ("postxxior", None),
        ("post", None),
        # of other clients, under conditions, and behind globs
        ("net_52", "Net-50"),
        ("priors", None),
        ("likelihoods", None),
        ("secret", None),
        ("secret1", None),
        ("hidden", None),
        ("visio", None),
        # too short to guess from
        ("ac", None),
        ("a", None),
    ],
)
def test_a_name_that_differs_by_one_mistake_is_suggested(name: str, near: str | None) -> None:
    assert told(name) == f"unknown model {name!r}" + (f"; did you mean {near!r}?" if near else "")


def test_only_what_the_principal_may_use_is_suggested() -> None:
    alice = Principal("alice", [Grant(frozenset({"metadata"}), ("net*",))])
    bob = Principal("bob", [Grant(frozenset({"metadata"}), ("net*", "Net-50"))])
    assert told("net_50", principal=alice) == "unknown model 'net_50'"
    assert told("net_50", principal=bob) == "unknown model 'net_50'; did you mean 'Net-50'?"


def test_only_what_the_listener_has_is_suggested() -> None:
    assert told("net_551", listener="lab") == "unknown model 'net_551'; did you mean 'net_51'?"
    assert told("net_551") == "unknown model 'net_551'"


@pytest.mark.parametrize(
    ("model", "version", "text"),
    [
        ("m", "3", "model 'm' has version '2', not '3'"),
        ("m", "", "model 'm' has version '2'; name it"),
        ("m-3", "", "model 'm' has version '2', not '3'"),
        ("two", "3", "model 'two' has versions '1', '2', not '3'"),
        ("two", "", "model 'two' has versions '1', '2'; name one"),
        ("many", "x", "model 'many' has versions '0', '1', '2', '3', '4', ..., not 'x'"),
        # a glob says nothing of the models behind it
        ("vision1", "8", "unknown model 'vision1'"),
    ],
)
def test_the_versions_of_a_model_are_told(model: str, version: str, text: str) -> None:
    assert told(model, version) == text


def test_an_operation_that_no_route_takes_is_told() -> None:
    assert told("calls") == "model 'calls' does not support 'metadata'"


def test_what_a_wrong_name_costs_is_bounded() -> None:
    """However many models there are, one lookup for each character of a name that is not too long."""
    assert len(list(variants("x" * LONGEST_SUGGESTED))) == LONGEST_SUGGESTED + 1
    assert list(variants("x" * (LONGEST_SUGGESTED + 1))) == []
    assert told("p" * LONGEST_NAME) == f"unknown model {'p' * LONGEST_NAME!r}"
    names = [f"model{each}x" for each in range(MOST_NAMES + 1)]
    router = Router([route(model=name) for name in names], {})
    for name, near in ((names[-2], True), (names[-1], False)):
        with pytest.raises(GatewayError) as failed:
            router.select(Request(Operation.INFER, f"{name}y", protocol="toy"))
        assert (name in failed.value.message.partition(";")[2]) == near
