"""What a client raises: one class for each cause, whatever the wire form."""

import asyncio
import re
from pathlib import Path

import numpy as np
import pytest

from gateway import client as package
from gateway.client import (
    AsyncClient,
    BadReply,
    Client,
    ClientError,
    ConnectError,
    InvalidInput,
    NotFound,
    Refused,
    ServerError,
    Timeout,
    Unsupported,
)
from gateway.client.errors import HINTS, as_client_error
from gateway.core.errors import DecodeError, GatewayError, Reason, Status, TransportError, refusal
from tests.client.servers import WIRE_FORMS, holding, served
from tests.interop.processes import free_port
from tests.limits import GENEROUS

ROOT = Path(__file__).parent.parent.parent


@pytest.mark.parametrize("reason", Reason, ids=lambda reason: reason.value)
def test_each_reason_has_a_class(reason: Reason) -> None:
    expected: dict[Status, type[ClientError]] = {
        Status.INVALID_ARGUMENT: InvalidInput,
        Status.OUT_OF_RANGE: InvalidInput,
        Status.FAILED_PRECONDITION: InvalidInput,
        Status.ALREADY_EXISTS: InvalidInput,
        Status.DEADLINE_EXCEEDED: Timeout,
        Status.NOT_FOUND: NotFound,
        Status.UNAUTHENTICATED: Refused,
        Status.PERMISSION_DENIED: Refused,
        Status.RESOURCE_EXHAUSTED: Refused,
        Status.UNIMPLEMENTED: Unsupported,
    }
    error = as_client_error(refusal(reason, "why", retry_after=7), "lab:1")
    wanted = BadReply if reason is Reason.INVALID_OUTPUT else expected.get(reason.status, ServerError)
    assert type(error) is wanted
    assert (str(error), error.status, error.reason) == ("why", reason.status, reason)
    assert (error.address, error.retry_after) == ("lab:1", 7)


@pytest.mark.parametrize("sent", [True, False])
def test_a_broken_connection_says_whether_the_request_was_sent(sent: bool) -> None:
    error = TransportError(Status.UNAVAILABLE, Reason.UNREACHABLE, "backend 'server' at lab:1: reset", sent=sent)
    found = as_client_error(error, "lab:1")
    assert isinstance(found, ConnectError)
    assert (found.sent, str(found)) == (sent, "lab:1: reset")


def test_what_does_not_fit_is_the_callers_fault() -> None:
    assert type(as_client_error(DecodeError("input 'x'"), "lab:1")) is InvalidInput


def test_a_server_without_the_path_may_speak_another_protocol() -> None:
    error = GatewayError(Status.NOT_FOUND, Reason.MODEL_NOT_FOUND, "404: Not Found")
    found = as_client_error(error, "http://lab:1")
    assert str(found).startswith(
        "http://lab:1: 404: Not Found: it may speak another protocol; `gateway probe http://lab:1`"
    )


def test_advice_for_routes_is_left_out_for_versions_too() -> None:
    text = 'has no versions like this; `rewrite: {version: ""}` on the route drops the client\'s version'
    assert str(as_client_error(GatewayError(Status.NOT_FOUND, Reason.MODEL_NOT_FOUND, text), "lab:1")).endswith(
        "has no versions like this; leave the version out"
    )


def test_the_advice_that_is_replaced_is_that_of_the_bridge() -> None:
    sources = "".join(
        path.read_text() for path in (ROOT / "gateway").rglob("*.py") if path.parent != ROOT / "gateway/client"
    )
    written = re.sub(r"[\"']\s*\n\s*f?[\"']", "", sources).replace("{{", "{").replace("}}", "}")
    assert [hint for hint in HINTS if hint not in written] == []


@pytest.mark.parametrize("protocol", WIRE_FORMS)
def test_nobody_listens(protocol: str) -> None:
    address = f"127.0.0.1:{free_port()}"
    with Client(f"{protocol}://{address}") as client:
        with pytest.raises(ConnectError, match=f"{address}: .*connection refused") as caught:
            client.infer("double", np.array([[1.0]]))
        assert not caught.value.sent
        assert not client.ready()
        assert "server'" not in str(caught.value)


def test_an_answer_that_does_not_come_in_time() -> None:
    with holding() as (_, held), Client(f"v2-rest://127.0.0.1:{held.port}", timeout=0.05) as client:
        with pytest.raises(Timeout, match=r"no answer within 0\.05 s, the limit that `timeout` sets"):
            client.infer("m", x=np.array([1], np.int32))
        with pytest.raises(Timeout):
            client.models(timeout=0.01)
        with pytest.raises(Timeout):
            list(client.stream("m", x=np.array([1], np.int32)))
        assert not client.ready()
        assert not client.ready("m")


async def test_a_cancelled_call_ends_its_connection() -> None:
    with holding() as (loop, held):
        async with AsyncClient(f"v2-rest://127.0.0.1:{held.port}") as client:
            call = asyncio.ensure_future(client.infer("m", x=np.array([1], np.int32)))
            await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(held.arrived.wait(), loop))
            call.cancel()
            with pytest.raises(asyncio.CancelledError):
                await call


@pytest.mark.parametrize("spoken", ["grps-brpc", "mip", "v2-grpc", "graphpipe", "v1-rest"])
def test_a_server_of_another_protocol(spoken: str) -> None:
    """The server speaks V2 over HTTP."""
    with served("v2-rest", "double") as address:
        place = address.partition("://")[2]
        with Client(place, protocol=spoken, timeout=GENEROUS) as client, pytest.raises(ClientError) as caught:
            client.infer("double", np.array([[1.0]]))
    assert isinstance(caught.value, ServerError | ConnectError | NotFound | InvalidInput | Unsupported)


def test_every_class_of_the_documented_tree_is_exported() -> None:
    """The client's page has the table of the classes in the module."""
    classes = {
        each for each in vars(package.errors).values() if isinstance(each, type) and issubclass(each, ClientError)
    }
    assert len(classes) == 9
    assert {each.__name__ for each in classes} <= {*package.__all__}


def test_the_cause_is_not_printed_and_not_lost() -> None:
    with Client(f"v2-rest://127.0.0.1:{free_port()}") as client, pytest.raises(ConnectError) as caught:
        client.infer("double", [1.0])
    assert isinstance(caught.value.__context__, GatewayError)
    assert caught.value.__suppress_context__
