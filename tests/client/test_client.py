"""The clients against a reference server of each wire form."""

import asyncio
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from gateway.assembly.registry import protocols
from gateway.client import AsyncClient, Client, ConnectError, InvalidInput, NotFound, Unsupported
from gateway.core.datatypes import Datatype
from gateway.core.operations import Operation
from tests.client.servers import NAMELESS, WIRE_FORMS, asynchronous_client, served

MODELS = ("double", "posterior", "count", "identity", "upper")
NAMED = tuple(name for name in WIRE_FORMS if name not in NAMELESS)
TYPED = tuple(
    name
    for name in NAMED
    if protocols()[name].traits.models.trusted_metadata and not protocols()[name].traits.wire.points
)
"""Protocols whose servers tell names, datatypes and shapes that a client relies on."""
STREAMING = tuple(name for name in NAMED if protocols()[name].traits.wire.streams)


@pytest.fixture(scope="module", params=NAMED)
def client(request: pytest.FixtureRequest) -> Iterator[Client]:
    models = ("double", "posterior") if request.param == "umbridge" else MODELS
    with served(request.param, *models) as address, Client(address) as client:
        yield client


@pytest.fixture(scope="module", params=TYPED)
def typed(request: pytest.FixtureRequest) -> Iterator[Client]:
    with served(request.param, *MODELS) as address, Client(address) as client:
        yield client


def test_a_row_and_a_batch_of_rows(client: Client) -> None:
    """A vector is one row, whatever the protocol; a matrix is a batch."""
    row = np.array([1.0, 2.0, 3.0])
    (one,) = client.infer("double", row).values()
    assert (one.dtype, one.tolist()) == (np.float64, [2.0, 4.0, 6.0])
    (two,) = client.infer("double", np.stack([row, row])).values()
    assert two.tolist() == [[2.0, 4.0, 6.0], [2.0, 4.0, 6.0]]


@pytest.mark.parametrize("protocol", NAMELESS)
def test_a_server_of_a_protocol_without_names(protocol: str) -> None:
    with served(protocol, "double") as address, Client(address) as client:
        assert client.ready()
        assert client.infer("double", np.array([[1.0, 2.0]]))["output0"].tolist() == [[2.0, 4.0]]
        with pytest.raises(Unsupported):
            client.models()


def test_inputs_and_outputs_have_the_names_of_the_signature(typed: Client) -> None:
    assert typed.infer("double", x=[[1, 2]]).keys() == {"y"}
    choices: list[Any] = [["y"], "y", {"y": {}}]
    for outputs in choices:
        assert typed.infer("double", inputs={"x": [[1, 2]]}, outputs=outputs)["y"].tolist() == [[2.0, 4.0]]
    with pytest.raises(InvalidInput, match="unknown input 'z'; the model takes 'x' FP64"):
        typed.infer("double", z=[[1.0]])
    with pytest.raises(InvalidInput, match="input 'x' occurs twice"):
        typed.infer("double", x=[[1.0]], inputs={"x": [[1.0]]})


def test_a_signature_is_typed(typed: Client) -> None:
    signature = typed.signature("double")
    (given,), (returned,) = signature.inputs, signature.outputs
    assert (given.name, given.datatype, given.shape) == ("x", Datatype.FP64, (-1, -1))
    assert (returned.name, returned.datatype) == ("y", Datatype.FP64)
    assert Operation.GRADIENT in typed.signature("posterior").operations


def test_the_models_are_listed(client: Client) -> None:
    if client.protocol == "graphpipe":
        with pytest.raises(Unsupported, match="'models' is not supported by GraphPipe"):
            client.models()
    elif client.protocol == "tfs-grpc":
        with pytest.raises(Unsupported, match="TensorFlow Serving cannot list its models"):
            client.models()
    else:
        assert {"double", "posterior"} <= {each.name for each in client.models()}


def test_an_unknown_model(client: Client) -> None:
    with pytest.raises(NotFound, match="no model 'nobody'"):
        client.infer("nobody", [1.0])
    assert client.ready("double")


def test_an_array_is_widened_and_never_cast_in_silence(typed: Client) -> None:
    """FP64 holds every INT32, and not every INT64, whatever the values are."""
    assert typed.infer("double", x=np.array([[1, 2]], np.int32))["y"].tolist() == [[2.0, 4.0]]
    large = np.array([[2**53 + 1]], np.int64)
    with pytest.raises(InvalidInput, match=r'is INT64, expected FP64.*send FP64, or call with cast="round"'):
        typed.infer("double", x=large)
    assert typed.infer("double", x=large, cast="round")["y"].tolist() == [[2.0**54]]


def test_numbers_of_python_become_what_the_model_takes(typed: Client) -> None:
    """They have no datatype: each value is checked."""
    assert typed.infer("double", x=[[1, 2]])["y"].tolist() == [[2.0, 4.0]]
    if protocols()[typed.protocol].traits.wire.streams:
        with pytest.raises(InvalidInput, match=r"element 0, 1\.5, is not integral"):
            list(typed.stream("count", n=[1.5]))


def test_text_and_bytes(typed: Client) -> None:
    shouted = typed.infer("upper", text=["straße", b"a"])["upper"]
    assert shouted.tolist() == [b"STRASSE", b"A"]


@pytest.mark.parametrize("protocol", STREAMING)
def test_a_stream(protocol: str) -> None:
    with served(protocol, "count") as address, Client(address) as client:
        responses = client.stream("count", n=np.array([3], np.int32))
        assert [each["i"].tolist() for each in responses] == [[0], [1], [2]]


@pytest.mark.parametrize("protocol", STREAMING)
def test_a_stream_that_is_closed_half_way_leaves_the_client_usable(protocol: str) -> None:
    with served(protocol, "count", "double") as address, Client(address) as client:
        responses = client.stream("count", n=np.array([100_000], np.int32))
        assert next(responses)["i"].tolist() == [0]
        responses.close()
        assert client.infer("double", x=np.array([1.0]))["y"].tolist() == [2.0]


def test_a_model_that_does_not_stream_gives_one_response(client: Client) -> None:
    (only,) = client.stream("double", np.array([1.0, 2.0, 3.0]))
    assert next(iter(only.values())).tolist() == [2.0, 4.0, 6.0]


THETA = np.array([1.0, 2.0])


def test_derivatives(client: Client) -> None:
    """UM-Bridge has them as operations; servers of other protocols have a model for each."""
    assert client.gradient("posterior", THETA, sens=[1]).tolist() == [20.0, -10.0]
    assert client.gradient("posterior", np.stack([THETA, THETA]), sens=[[1.0], [2.0]]).tolist() == [
        [20.0, -10.0],
        [40.0, -20.0],
    ]
    assert client.apply_jacobian("posterior", THETA, vec=[1.0, 0.0]).tolist() == [20.0]
    hessian = client.apply_hessian("posterior", THETA, sens=[1.0], vec=[1.0, 0.0])
    assert hessian.shape == (2,)
    with pytest.raises((InvalidInput, Unsupported)):
        client.gradient("posterior", THETA, sens=[1.0], in_wrt=7)


def test_a_model_without_the_derivative(typed: Client) -> None:
    with pytest.raises((Unsupported, NotFound), match="identity"):
        typed.gradient("identity", [1.0], sens=[1.0])


def test_a_parameter_may_be_an_object() -> None:
    """The config of UM-Bridge."""
    with served("umbridge", "posterior") as address, Client(address) as client:
        without = client.infer("posterior", THETA)["output0"]
        with_config = client.infer("posterior", THETA, parameters={"config": {}})["output0"]
        assert without.tolist() == with_config.tolist() == [-5.0]
        with pytest.raises(InvalidInput, match="parameter 'config' is set, expected a bool"):
            client.infer("posterior", THETA, parameters={"config": {1, 2}})


async def test_the_asynchronous_client() -> None:
    async with asynchronous_client("v2-grpc", *MODELS) as client:
        assert await client.ready("double")
        assert (await client.infer("double", x=[[1.0]]))["y"].tolist() == [[2.0]]
        assert [each["i"].item() async for each in client.stream("count", n=[2])] == [0, 1]
        assert (await client.gradient("posterior", THETA, sens=[1.0])).tolist() == [20.0, -10.0]
        assert (await client.server()).name == "modelglot"
    with pytest.raises(RuntimeError, match="the client has been closed; create a new one"):
        await client.models()


def test_an_asynchronous_client_belongs_to_one_loop() -> None:
    client = AsyncClient("v2-rest://127.0.0.1:1")
    with pytest.raises(ConnectError):
        asyncio.run(client.models())
    with pytest.raises(
        RuntimeError, match=r"the client belongs to another event loop: make one for each `asyncio.run`"
    ):
        asyncio.run(client.models())


def test_an_output_says_who_answered() -> None:
    with served("v2-rest", "double") as address, Client(address) as client:
        outputs = client.infer("double", x=[[1.0]], id="seven", version="1")
    assert (outputs.model, outputs.version, outputs.id) == ("double", "1", "seven")
