"""The scripted server of a fleet: its habits over both wires, and each fault that a test can tell it to have."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator

import pytest

from tests.limits import GENEROUS
from tests.peers.fleet_client import CLIENTS, CallFailed, Client
from tests.peers.fleet_models import FleetModels
from tests.peers.fleet_server import FleetServer, serve

MODELS = ("a", "b", "c")


@pytest.fixture
def server() -> Iterator[FleetServer]:
    with serve(FleetModels(MODELS)) as running:
        yield running


@pytest.fixture(params=CLIENTS)
def client(server: FleetServer, request: pytest.FixtureRequest) -> Iterator[Client]:
    asked = CLIENTS[request.param](getattr(server, request.param))
    yield asked
    asked.close()


def refused(call: Callable[[], object]) -> str:
    """The text of the error that the call ends with."""
    with pytest.raises(CallFailed) as error:
        call()
    return error.value.text


def test_a_model_answers_its_name_while_it_is_loaded(server: FleetServer, client: Client) -> None:
    assert "'a' is not found" in refused(lambda: client.infer("a", [1.5]))
    client.load("a")
    assert client.infer("a", [1.5, -2.0]) == ("a", [1.5, -2.0])
    assert client.ready("a")
    assert not client.ready("b")
    assert client.index() == [{"name": "a", "version": "1", "state": "READY"}, {"name": "b"}, {"name": "c"}]
    client.unload("a")
    assert "has no available versions" in refused(lambda: client.infer("a", [1.5]))
    assert client.index(ready=True) == []
    assert (server.models.loads, server.models.unloads, server.models.calls) == ({"a": 1}, {"a": 1}, {"a": 1})
    assert server.models.missed == {"a": 2}


def test_a_version_is_the_one_that_the_server_has(server: FleetServer, client: Client) -> None:
    server.models.preload("a")
    server.models.version = "7"
    assert "version 1 is not found" in refused(lambda: client.infer("a", [], "1"))
    assert client.infer("a", [1.0], "7") == ("a", [1.0])
    assert "'none' is not found" in refused(lambda: client.infer("none", []))


def test_a_full_server_is_out_of_memory(server: FleetServer, client: Client) -> None:
    server.models.most = 1
    client.load("a")
    assert "load failed for model 'b': version 1 is at UNAVAILABLE state: Internal: out of memory" in refused(
        lambda: client.load("b")
    )
    assert server.models.held == {"a"}
    assert server.models.highest == 1
    server.models.lingering.add("a")
    client.unload("a")  # is answered before its place is free
    assert "out of memory" in refused(lambda: client.load("b"))
    server.models.release()
    while client.index()[0]["state"] == "UNLOADING":
        pass
    client.load("b")
    assert server.models.held == {"b"}


def test_a_load_fails_hangs_and_does_both(server: FleetServer, client: Client) -> None:
    server.models.failing["a"] = "CUDA out of memory"
    assert "Internal: CUDA out of memory" in refused(lambda: client.load("a"))
    server.models.hanging.update("ab")
    failures: list[str] = []
    loads = [
        threading.Thread(target=client_load, args=(server, "a", failures)),
        threading.Thread(target=client_load, args=(server, "b", failures)),
    ]
    for each in loads:
        each.start()
    assert server.models.wait_until_loading("a", GENEROUS)
    assert server.models.wait_until_loading("b", GENEROUS)
    assert [each.get("state") for each in client.index()] == ["LOADING", "LOADING", None]
    server.models.release()
    for each in loads:
        each.join()
    assert server.models.held == {"b"}
    assert len(failures) == 1
    assert "CUDA out of memory" in failures[0]


def client_load(server: FleetServer, model: str, failures: list[str]) -> None:
    """With a connection of its own; a failure's text is noted."""
    client = CLIENTS["grpc"](server.grpc)
    try:
        client.load(model)
    except CallFailed as error:
        failures.append(error.text)
    client.close()


def test_a_server_lies_in_both_directions(server: FleetServer, client: Client) -> None:
    server.models.claimed.add("a")
    server.models.preload("b")
    server.models.hidden.add("b")
    assert [each["name"] for each in client.index(ready=True)] == ["a"]
    assert client.ready("a")
    assert not client.ready("b")
    assert "not found" in refused(lambda: client.infer("a", []))
    assert client.infer("b", [1.0]) == ("b", [1.0])


def test_a_server_forgets_one_model_or_restarts_empty(server: FleetServer, client: Client) -> None:
    server.models.preload("a", "b")
    server.models.forget("a")
    assert [each["name"] for each in client.index(ready=True)] == ["b"]
    before = server.http, server.grpc
    server.stop()
    assert refused(lambda: client.infer("b", []))
    server.start()
    assert (server.http, server.grpc) == before
    fresh = CLIENTS["grpc"](server.grpc)
    assert fresh.index(ready=True) == []
    fresh.close()


def test_what_hangs_ends_with_the_server(server: FleetServer) -> None:
    server.models.hanging.add("a")
    failures: list[str] = []
    load = threading.Thread(target=client_load, args=(server, "a", failures))
    load.start()
    assert server.models.wait_until_loading("a", GENEROUS)
    server.stop()
    load.join()
    assert len(failures) == 1
    assert server.models.held == set()
