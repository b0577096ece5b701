"""What the generator sends, and what it counts as an error."""

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import ThreadingHTTPServer
from threading import Event

import numpy as np
import pytest

from gateway.client.settings import ServerArguments
from gateway.core.datatypes import Datatype
from gateway.core.models import TensorSpec
from gateway.core.operations import Operation
from gateway.core.requests import Request
from gateway.core.tasks import spawn
from gateway.core.tensors import tensor
from gateway.tools.bench.load import CallFailed
from gateway.tools.bench.target import LARGEST_INTEGER, BenchSender, Question, prepared, random_inputs
from tests.in_thread import QuietHandler, in_thread
from tests.skipping_loop import skip

RIGHT = {"model_name": "m", "outputs": [{"name": "y", "datatype": "FP64", "shape": [1], "data": [2.5]}]}
OTHER = {"model_name": "m", "outputs": [{"name": "y", "datatype": "FP64", "shape": [1], "data": [3.5]}]}


@contextmanager
def answering(silent: Event, *replies: tuple[object, int]) -> Iterator[str]:
    """A V2 server that gives these answers, one after the other, and then none. It sets `silent` at the first request
    that it does not answer."""
    left = iter(replies)

    class Handler(QuietHandler):
        def do_GET(self) -> None:
            tensors = {"inputs": [{"name": "x", "datatype": "FP64", "shape": [1]}], "outputs": []}
            self.send_json({"name": "m", "platform": "p", **tensors})

        def do_POST(self) -> None:
            self.rfile.read(int(self.headers["content-length"]))
            reply = next(left, None)
            if reply is None:
                silent.set()
                self.rfile.read(1)  # until the caller gives up
            else:
                self.send_json(*reply)

    with in_thread(ThreadingHTTPServer(("127.0.0.1", 0), Handler)) as address:
        yield address


async def said(sender: BenchSender) -> str:
    """The size of the answer, or the error."""
    try:
        return str(await sender())
    except CallFailed as error:
        return f"{error.status}: {error}"


async def test_every_wrong_answer_is_counted_with_its_reason() -> None:
    question = Question(Request(Operation.INFER, "m", inputs=(tensor("x", np.array([1.5])),)), "refuse", None, 0)
    wrong = ({"outputs": 1}, 200), ({"error": "too cold"}, 503)
    silent = Event()
    with answering(silent, (RIGHT, 200), (RIGHT, 200), (OTHER, 200), *wrong) as address:
        settings = ServerArguments(f"v2-rest://{address}").checked()
        encoded = await prepared(settings, question, None)
        sender, patient = (BenchSender(settings, encoded, seconds, 1) for seconds in (None, 1000))
        found = [await said(sender) for _ in range(4)]
        waiting = spawn(said(patient))
        await asyncio.to_thread(silent.wait)
        await skip(2000)
        found.append(await waiting)
        await sender.close()
        await patient.close()
    assert found == [
        "96",
        "96",
        f"BAD_REPLY: http://{address}: outputs must be a list, not 1",
        "UNAVAILABLE: too cold",
        f"DEADLINE_EXCEEDED: http://{address}: no answer within 1000 s, the limit that `timeout` sets",
    ]


SPECS = {
    Datatype.FP32: (0, 1),
    Datatype.INT8: (0, LARGEST_INTEGER),
    Datatype.UINT64: (0, LARGEST_INTEGER),
    Datatype.BOOL: (False, True),
}


@pytest.mark.parametrize(("datatype", "bounds"), SPECS.items(), ids=lambda each: str(each))
def test_random_inputs_have_the_datatype_and_the_shape(datatype: Datatype, bounds: tuple[float, float]) -> None:
    [found] = random_inputs([TensorSpec("x", datatype, (-1, 50, -1))], 4, 0)
    assert (found.name, found.datatype, found.shape) == ("x", datatype, (4, 50, 1))
    assert (round(float(found.array.min())), round(float(found.array.max()))) == bounds


def test_random_texts_are_letters_and_depend_on_the_seed() -> None:
    one, same, other = (random_inputs([TensorSpec("x", Datatype.BYTES, (2,))], None, seed)[0] for seed in (0, 0, 1))
    assert (one.shape, one == same, one == other) == ((2,), True, False)
    assert all(len(each) == 8 and each.isalpha() and each.islower() for each in one.array.tolist())


def test_rows_are_refused_for_inputs_without_them() -> None:
    with pytest.raises(ValueError, match=r"^input 'x' has the shape \[2\], without a -1 first for --batch$"):
        random_inputs([TensorSpec("x", Datatype.FP32, (2,))], 3, 0)
