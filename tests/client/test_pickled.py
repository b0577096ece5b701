"""Clients, functions, results and errors in other processes, and in files."""

import copy
import pickle
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from typing import Any

import numpy as np
import pytest

from gateway.client import AsyncClient, CallLimits, Client, NotFound
from gateway.core.errors import Reason
from tests.client.servers import served

THETAS = [[1.0, 2.0], [1.0, 1.0]]


@pytest.fixture(scope="module")
def address() -> Iterator[str]:
    with served("v2-grpc", "posterior") as address:
        yield address


def test_a_pool_of_processes_calls_a_function(address: str) -> None:
    """And its errors come back: a pool hangs where one cannot be unpickled."""
    with Client(address) as client, ProcessPoolExecutor(1, get_context("forkserver")) as pool:
        posterior = client.model("posterior")
        assert [each.tolist() for each in pool.map(posterior, THETAS)] == [[-5.0], [0.0]]
        with pytest.raises(NotFound, match="nobody"):
            pool.submit(client.model("nobody"), THETAS[0]).result()


def test_a_client_is_made_again_with_its_arguments(address: str) -> None:
    given: dict[str, Any] = {"timeout": None, "headers": {"x-user": "me"}, "limits": CallLimits(max_in_flight=3)}
    with Client(address, **given) as client:
        for made in (pickle.loads(pickle.dumps(client)), copy.deepcopy(client)):
            with made:
                assert repr(made) == repr(client)
                assert made.model("posterior")(THETAS[0]).tolist() == [-5.0]
                assert "<td>any time</td>" in made._repr_html_()
                assert "<td>calls at once</td><td>3</td>" in made._repr_html_()
    asynchronous = pickle.loads(pickle.dumps(AsyncClient(address, **given)))
    assert {name: asynchronous.arguments[name] for name in given} == given
    function = pickle.loads(pickle.dumps(asynchronous.model("posterior")))
    assert repr(function) == f"<AsyncModelFunction 'posterior' of <AsyncClient v2-grpc {address.partition('://')[2]}>>"


def test_results_with_errors_are_kept_in_a_file(address: str) -> None:
    with Client(address) as client:
        results = client.map("posterior", [*THETAS, [1.0]], errors="return")
    read = pickle.loads(pickle.dumps(results))
    assert repr(read) == "<Results: 2 of 3 points, 1 failed>"
    assert np.array_equal(read.array(fill=np.nan), results.array(fill=np.nan), equal_nan=True)
    found, expected = read.errors[2], results.errors[2]
    assert (str(found), found.reason, found.__notes__) == (str(expected), Reason.INVALID_INPUT, ["at point 2, [1.0]"])
