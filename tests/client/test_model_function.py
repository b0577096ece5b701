"""A model as a function of arrays, with its derivatives."""

import gc
from collections.abc import Iterator

import numpy as np
import pytest

from gateway.client import Client, InvalidInput, Unsupported
from tests.client.servers import asynchronous_client, served

THETA = np.array([1.0, 2.0])
GRADIENT = [20.0, -10.0]


@pytest.fixture(scope="module", params=["umbridge", "v2-rest"])
def client(request: pytest.FixtureRequest) -> Iterator[Client]:
    models = ("posterior", "double", "add_sub") if request.param == "v2-rest" else ("posterior", "double")
    with served(request.param, *models) as address, Client(address) as client:
        yield client


def test_a_density_with_its_derivatives(client: Client) -> None:
    posterior = client.model("posterior")
    assert posterior(THETA).tolist() == [-5.0]
    assert posterior.gradient(THETA).tolist() == GRADIENT
    assert posterior.jacobian(THETA).tolist() == [GRADIENT]
    hessian = posterior.hessian(THETA)
    columns = [client.apply_hessian("posterior", THETA, sens=[1.0], vec=vec) for vec in ([1.0, 0.0], [0.0, 1.0])]
    assert np.array_equal(hessian, np.stack(columns, axis=-1))
    assert np.array_equal(hessian, hessian.T)
    assert np.allclose(hessian, np.array([[-20.1, 20.0], [20.0, -10.0]]))


def test_a_derivative_comes_first(client: Client) -> None:
    """The length of the output is not known yet."""
    assert client.model("posterior").gradient(THETA).tolist() == GRADIENT
    assert client.model("posterior").gradient([THETA, THETA]).tolist() == [GRADIENT, GRADIENT]


def test_a_model_of_several_values(client: Client) -> None:
    """Its Jacobian is made of products where these are fewer or the only ones, else of gradients."""
    double = client.model("double")
    assert double.jacobian([1.0, 2.0, 3.0]).tolist() == (2 * np.eye(3)).tolist()
    assert double.gradient([1.0, 2.0, 3.0], sens=[0.0, 1.0, 0.0]).tolist() == [0.0, 2.0, 0.0]
    with pytest.raises(InvalidInput, match="the output of model 'double' has 3 values: give `sens`"):
        double.gradient([1.0, 2.0, 3.0])
    with pytest.raises(InvalidInput, match=r"the shapes \[\(1, 3\)\], expected one point"):
        double.jacobian([[1.0, 2.0, 3.0]])
    with pytest.raises(InvalidInput, match="in_wrt is 1, expected the position of one of 1 inputs"):
        double.hessian([1.0, 2.0, 3.0], sens=[1.0, 1.0, 1.0], in_wrt=1)


def test_several_outputs() -> None:
    with served("v2-rest", "add_sub", "identity") as address, Client(address) as client:
        first, second = client.signature("add_sub").inputs
        left, right = np.array([3], first.datatype.dtype), np.array([2], second.datatype.dtype)
        (name, *_) = [each.name for each in client.signature("add_sub").outputs]
        assert client.model("add_sub", output=name)(left, right).ravel().tolist() == [5]
        assert client.model("add_sub", output=name)(**{first.name: left, second.name: right}).ravel().tolist() == [5]
        with pytest.raises(InvalidInput, match=r"model 'add_sub' has several outputs: .*; `output` names one"):
            client.model("add_sub")(left, right)
        with pytest.raises(InvalidInput, match="model 'add_sub' has no output 'nothing'"):
            client.model("add_sub", output="nothing")(left, right)


def test_a_model_without_derivatives(client: Client) -> None:
    if client.protocol == "v2-rest":
        with pytest.raises((Unsupported, InvalidInput)):
            client.model("add_sub", output="OUTPUT0").jacobian([1.0], [2.0])


def test_a_function_keeps_its_client() -> None:
    with served("v2-grpc", "posterior") as address:
        posterior = Client(address).model("posterior")
        gc.collect()
        assert posterior(THETA).tolist() == [-5.0]
        assert repr(posterior).startswith("<ModelFunction 'posterior' of <Client v2-grpc ")


async def test_of_the_asynchronous_client() -> None:
    async with asynchronous_client("umbridge", "posterior") as client:
        posterior = client.model("posterior")
        assert (await posterior(THETA)).tolist() == [-5.0]
        assert (await posterior.gradient(THETA)).tolist() == GRADIENT
