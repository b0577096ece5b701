"""How values look in a terminal and in a notebook."""

from inspect import getdoc, signature
from operator import methodcaller

import numpy as np
import pytest

from gateway.client import AsyncClient, Client, Outputs, Signature, TensorSpec
from gateway.core.datatypes import Datatype
from gateway.core.requests import Response
from tests.client.servers import served

html_of = methodcaller("_repr_html_")
SIGNATURE = Signature(
    (TensorSpec("x", Datatype.FP64, (-1, 3), description="<b>where</b>"),), (TensorSpec("y", Datatype.FP64, (-1, 1)),)
)


def test_a_signature() -> None:
    assert repr(SIGNATURE) == "<Signature x FP64[-1,3] -> y FP64[-1,1]>"
    assert repr(SIGNATURE.inputs[0]) == "<TensorSpec x FP64[-1,3]>"
    table = html_of(SIGNATURE)
    assert "<tr><td>output</td><td>y</td><td>FP64</td><td>-1, 1</td><td></td></tr>" in table
    assert "&lt;b&gt;where" in table, "a server's text is no markup"


def test_outputs() -> None:
    outputs = Outputs({"y": np.arange(100.0)}, Response((), "m", "2"))
    table = html_of(outputs)
    assert "<caption>m version 2</caption>" in table
    assert "<td>y</td><td>float64</td><td>100</td><td>[ 0.  1.  2. ... 97. 98. 99.]</td>" in table


def test_results() -> None:
    with served("v2-rest", "posterior") as address, Client(address) as client:
        results = client.map("posterior", [[1.0, 2.0], [1.0], *[[3.0, 4.0]] * 20], errors="return")
        table = html_of(results)
        assert "<caption>21 of 22 points, 1 failed</caption>" in table
        assert "<tr><td>0</td><td>[-5.]</td></tr><tr><td>1</td><td>InvalidInput: " in table
        assert table.count("<tr>") == 12
        assert html_of(client.map("posterior", [[1.0, 2.0]])).count("<tr>") == 2
        assert "<tr><td>calls at once</td><td>256</td></tr>" in html_of(client)
        assert "<th>open</th>" in html_of(client)
    assert "<th>closed</th>" in html_of(client)


@pytest.mark.parametrize("name", [name for name in vars(Client) if name[0] != "_" and name != "close"])
def test_both_clients_have_the_same_arguments_and_texts(name: str) -> None:
    waiting, asynchronous = getattr(Client, name), getattr(AsyncClient, name)
    assert list(signature(waiting).parameters.values())[1:] == list(signature(asynchronous).parameters.values())[1:]
    assert getdoc(waiting) == getdoc(asynchronous)
    assert getdoc(waiting)
