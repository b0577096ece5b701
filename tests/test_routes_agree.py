"""`gateway check`, `gateway route` and a running gateway say the same about random routes: with paths and models, for
listeners and protocols, with and without passthrough."""

import asyncio
import json
import re
from collections.abc import Sequence
from fnmatch import fnmatchcase
from typing import Any, NamedTuple

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from gateway.cli.commands.route import _decide
from gateway.cli.options import catalog
from gateway.config import Config, ConfigError, loads_with_warnings
from gateway.config.routes import RouteConfig
from gateway.core.messages import Headers
from gateway.core.operations import Operation
from gateway.core.requests import Request
from tests.limits import examples
from tests.paused_server import ask, http, port_of
from tests.running_gateway import running_gateway

LISTENERS = {"one": ["grps-rest", "v2-rest"], "two": ["umbridge", "grps-rest"], "three": ["v2-rest"]}
PREDICT = "/grps/v1/infer/predict"


class Sent(NamedTuple):
    """A request of a client to a listener, and what it says: path, model and header."""

    listener: str
    protocol: str
    path: str
    model: str
    team: bool

    @property
    def message(self) -> bytes:
        target, body = self.path, b'{"ndarray": [[1]]}'
        if self.protocol == "v2-rest":
            body = b'{"inputs": [{"name": "x", "datatype": "FP64", "shape": [1], "data": [1]}]}'
        elif self.protocol == "umbridge":
            body = json.dumps({"name": self.model, "input": [[1]], "config": {}}).encode()
        elif self.model:
            target = f"{self.path}?model={self.model}"
        head = f"POST {target} HTTP/1.1\r\nConnection: close" + ("\r\nX-Team: t" if self.team else "")
        return http(head.encode(), body)

    @property
    def request(self) -> Request:
        """What `gateway route` is asked."""
        headers = Headers([(b"x-team", b"t")] if self.team else [])
        return Request(
            Operation.INFER, self.model, listener=self.listener, protocol=self.protocol, path=self.path, headers=headers
        )


def every_request() -> list[Sent]:
    found = []
    for listener, protocols in LISTENERS.items():
        for team in (False, True):
            for model in ("a", "b"):
                if "v2-rest" in protocols:
                    found.append(Sent(listener, "v2-rest", f"/v2/models/{model}/infer", model, team))
                if "umbridge" in protocols:
                    found.append(Sent(listener, "umbridge", "/Evaluate", model, team))
            if "grps-rest" in protocols:
                found += [
                    Sent(listener, "grps-rest", path, model, team)
                    for path in (PREDICT, "/x", "/x/y")
                    for model in ("", "a", "b")
                ]
    return found


REQUESTS = every_request()
OPTIONAL = {
    "model": st.sampled_from(["a", "b", "a*", "*"]),
    "listener": st.sampled_from(list(LISTENERS)),
    "header": st.just({"x-team": "t"}),
}
PASSING = st.fixed_dictionaries({"path": st.sampled_from([PREDICT, "/x", "/x/y", "/x/*"])}, optional=OPTIONAL)
READ = st.fixed_dictionaries(
    {},
    optional={
        **OPTIONAL,
        "path": st.sampled_from([PREDICT, "/x", "/x/y", "/x/*", "/v2/models/a/infer"]),
        "protocol": st.sampled_from(["grps-rest", "v2-rest", "umbridge"]),
    },
)
ROUTES = st.lists(
    PASSING.map(lambda match: {"match": match, "passthrough": True})
    | READ.map(lambda match: {"match": match, "rewrite": {"model": "m"}}),
    min_size=1,
    max_size=5,
)


def loaded(routes: Sequence[dict[str, Any]]) -> tuple[Config, frozenset[int]]:
    """The configuration of `routes`, each with a backend of its own, and the places of those of which `check` says that
    no request reaches them."""
    document = {
        "listeners": [
            {"name": name, "bind": "127.0.0.1:0", "protocols": protocols} for name, protocols in LISTENERS.items()
        ],
        # Nothing listens at these addresses: the error of each call names the backend of the route that it took.
        "backends": {
            f"b{at}": {"protocol": "grps-rest", "endpoints": [f"127.0.0.1:{at + 1}"]} for at in range(len(routes))
        },
        "routes": [{**route, "backend": f"b{at}"} for at, route in enumerate(routes)],
        "ready": "none",
    }
    config, warnings = loads_with_warnings(json.dumps(document), "test.yaml", catalog(), {})
    unreachable = (each for each in warnings if "takes all requests that this route would take" in each.message)
    return config, frozenset(int(each.location[1]) for each in unreachable)


async def taken(config: Config) -> list[str]:
    """The backend that each of REQUESTS comes to in a running gateway; the text of the error if it comes to none."""
    async with running_gateway(config) as gateway:
        replies = [
            await ask(port_of(gateway.state.listeners[each.listener].address), each.message) for each in REQUESTS
        ]
    texts = [each.partition(b"\r\n\r\n")[2].decode() for each in replies]
    named = [re.search(r"backend '(b\d)'", text) for text in texts]
    return [text if name is None else name[1] for name, text in zip(named, texts, strict=True)]


def reads(route: RouteConfig, sent: Sent) -> bool:
    """Whether a route would take the request and read it, by the words of the documentation alone. A path that no
    protocol has is served for the routes that name it."""
    match, path = route.match, route.match.path
    return (
        not route.passthrough
        and (path is not None or not sent.path.startswith("/x"))
        and match.listener in (None, sent.listener)
        and match.protocol in (None, sent.protocol)
        and (match.model is None or (sent.model != "" and fnmatchcase(sent.model, match.model)))
        and (path is None or (sent.path.startswith(path[:-1]) if path.endswith("*") else sent.path == path))
        and (not match.header or sent.team)
    )


def compare(routes: Sequence[dict[str, Any]]) -> None:
    config, unreachable = loaded(routes)
    running = asyncio.run(taken(config))
    decisions = asyncio.run(_decide(config, [each.request for each in REQUESTS]))
    for sent, backend, decision in zip(REQUESTS, running, decisions, strict=True):
        told = "".join(f"b{at}" for at, each in enumerate(config.routes) if each.name == decision.route)
        is_refused = not re.fullmatch(r"b\d", backend)
        assert told == ("" if is_refused else backend), (sent, backend, decision)
        assert is_refused or int(backend[1:]) not in unreachable, sent
        if is_refused and "no route" in backend:
            assert not any(reads(each, sent) for each in config.routes), (sent, backend)


def test_check_knows_a_route_that_an_earlier_one_leaves_without_requests() -> None:
    assert loaded([{"match": {"model": "*"}}, {"match": {"model": "a*"}}])[1] == {1}


PASSED_IN_PART: list[dict[str, Any]] = [
    {"match": {"path": PREDICT, "model": "a"}, "passthrough": True},
    {"match": {"model": "*"}, "rewrite": {"model": "m"}},
]
"""The requests for other models at that path would be lost: nobody reads them to find their route."""


def test_check_refuses_a_route_whose_requests_are_passed_on_unread() -> None:
    with pytest.raises(ConfigError, match=r"routes\[0\] forwards grps-rest requests to .* this route never gets them"):
        loaded(PASSED_IN_PART)


@settings(max_examples=examples(60), deadline=None)
@given(ROUTES)
def test_whatever_check_accepts_the_three_agree(routes: list[dict[str, Any]]) -> None:
    try:
        loaded(routes)
    except ConfigError:
        assume(False)
    compare(routes)
