"""Points of a map that travel in batches: as the same points one by one, in fewer requests."""

import json
import logging
import re
from collections.abc import Callable
from http.server import ThreadingHTTPServer
from typing import Any, ClassVar

import numpy as np
import pytest

from gateway.bridge.settings import Cast
from gateway.client import AsyncClient, Client, ClientError, InvalidInput, Outputs, Refused, ServerError, Timeout
from gateway.client.batches import (
    MOST_BYTES,
    MOST_ROWS,
    TARGET,
    AlikePoints,
    Batched,
    BatchSize,
    NotOfRows,
    check_same,
    split,
)
from gateway.client.errors import ConnectError
from gateway.client.map import Window, evaluations
from gateway.client.map_arguments import MapArguments
from gateway.client.results import Evaluation
from gateway.client.sending import ClientCalls
from gateway.client.settings import Seconds
from gateway.core.datatypes import Datatype
from gateway.core.errors import Reason
from gateway.core.models import Signature, TensorSpec
from gateway.core.requests import Answer, Request, Response
from gateway.core.tensors import tensor
from gateway.reference import signature
from tests.client.servers import served
from tests.clock import Clock
from tests.in_thread import QuietHandler, in_thread
from tests.limits import GENEROUS

FP64 = Datatype.FP64
IN_BATCHES = ["v2-rest", "v2-grpc", "v1-rest", "tfs-grpc"]
MANY = 4096
"""The models here declare no `max_batch_size`: the caller says that their rows are independent."""
PAIRS = np.random.default_rng(1).random((500, 2))


class Sizes:
    """The rows of each call that the models below have had."""

    seen: ClassVar[list[int]] = []


@pytest.fixture(autouse=True)
def _no_request_is_slow(monkeypatch: pytest.MonkeyPatch) -> None:
    """However busy this machine is."""
    monkeypatch.setattr("gateway.client.map.TARGET", GENEROUS)
    Sizes.seen = []


def noted(x: Any) -> Any:
    Sizes.seen.append(len(x))
    return x


@signature(inputs=[("x", "FP64", [-1, 2])], outputs=[("y", "FP64", [-1, 1])])
def added(x: Any) -> Any:
    return noted(x).sum(axis=1, keepdims=True)


@signature(inputs=[("x", "FP64", [-1, 2])], outputs=[("y", "FP64", [-1, 1])])
def positive(x: Any) -> Any:
    if (noted(x) < 0).any():
        raise ValueError("a negative number")
    return x.sum(axis=1, keepdims=True)


@signature(inputs=[("x", "FP64", [-1, 2])], outputs=[("y", "FP64", [-1, 1])])
def narrow(x: Any) -> Any:
    if len(noted(x)) > 20:
        raise ValueError("at most 20 rows")
    return x.sum(axis=1, keepdims=True)


@signature(inputs=[("x", "FP64", [-1, 2])], outputs=[("y", "FP64", [-1, 2])])
def centered(x: Any) -> Any:
    return x - noted(x).mean(axis=0)


@signature(inputs=[("x", "FP64", [-1, 2])], outputs=[("y", "FP64", [-1, 1])])
def shortened(x: Any) -> Any:
    return noted(x).sum(axis=1, keepdims=True)[:1]


@signature(inputs=[("x", "FP64", [-1, 2])], outputs=[("y", "FP64", [-1, -1])])
def padded(x: Any) -> Any:
    """As many numbers for each row as its first one says, and zeros up to the longest row."""
    counts = (5 + 10 * noted(x)[:, 0]).astype(int)
    return np.array([[1.0] * count + [0.0] * (counts.max() - count) for count in counts])


@signature(inputs=[("x", "FP64", [-1, 2])], outputs=[("label", "INT64", [-1])])
def classified(x: Any) -> Any:
    return (noted(x)[:, 0] > 0.5).astype(np.int64)


@signature(inputs=[("x", "INT32", [-1, -1])], outputs=[("y", "INT32", [-1, -1])])
def whole(x: Any) -> Any:
    return noted(x) + 1


@signature(inputs=[("text", "BYTES", [-1, 1]), ("n", "INT64", [-1, 1])], outputs=[("out", "BYTES", [-1, 1])])
def repeated(text: Any, n: Any) -> Any:
    noted(text)
    return np.array([[each * int(count)] for (each,), (count,) in zip(text, n, strict=True)], object)


def served_model(protocol: str, model: Callable[..., Any]) -> Any:
    return served(protocol, f"{__name__}:{model.__name__}")


def rows(results: Any) -> list[Any]:
    return [{name: each.tolist() for name, each in outputs.items()} for outputs in results]


@pytest.mark.parametrize("protocol", IN_BATCHES)
def test_the_results_are_those_of_single_calls_in_fewer_requests(protocol: str) -> None:
    with served_model(protocol, added) as address, Client(address) as client:
        results = client.map("added", PAIRS, batch=MANY)
        assert len(Sizes.seen) < 100
        assert np.allclose(results.array()[:, 0], PAIRS.sum(axis=1))
        single = client.map("added", PAIRS[:3], batch=1)
        assert Sizes.seen[-3:] == [1, 1, 1]
        for one, other in zip(single, results, strict=False):
            assert (one, one["y"].dtype, one["y"].shape) == (other, other["y"].dtype, other["y"].shape)
            assert (one.model, one.version, one.parameters) == (other.model, other.version, other.parameters)
        results[1]["y"][:] = -1.0  # arrays may be changed, without a change of others
        assert results[2]["y"] == pytest.approx(PAIRS[2].sum())


async def test_the_asynchronous_client_sends_batches_too() -> None:
    with served_model("v2-grpc", added) as address:
        async with AsyncClient(address) as client:
            assert np.allclose((await client.map("added", PAIRS, batch=MANY)).array()[:, 0], PAIRS.sum(axis=1))
            assert len(Sizes.seen) < 100
            ended = [each async for each in client.as_completed("added", PAIRS, batch=MANY)]
    assert sorted(each.index for each in ended) == list(range(500))
    assert all(each.point is PAIRS[each.index] or (each.point == PAIRS[each.index]).all() for each in ended)


def test_a_batch_has_at_most_so_many_points() -> None:
    with served_model("v2-rest", added) as address, Client(address) as client:
        client.map("added", PAIRS, batch=7)
        assert max(Sizes.seen) == 7


@pytest.mark.parametrize("protocol", IN_BATCHES)
def test_metadata_alone_does_not_say_that_rows_are_independent(protocol: str) -> None:
    with served_model(protocol, added) as address, Client(address) as client:
        assert len(client.map("added", PAIRS[:30])) == 30
        assert Sizes.seen == [1] * 30


@pytest.mark.parametrize("protocol", ["umbridge", "mip", "grps-rest", "graphpipe"])
def test_models_of_one_row_and_unknown_ones_get_single_points(protocol: str) -> None:
    with served_model(protocol, added) as address, Client(address) as client:
        points = [each[np.newaxis] for each in PAIRS[:30]] if protocol != "umbridge" else PAIRS[:30]
        assert len(client.map("added", points, batch=MANY)) == 30
        assert Sizes.seen == [1] * 30


def test_points_of_a_generator_are_not_collected_unless_asked_for() -> None:
    """The next point may depend on the results of those before."""
    with served_model("v2-grpc", added) as address, Client(address) as client:
        assert len(client.map("added", iter(PAIRS[:50]))) == 50
        assert Sizes.seen == [1] * 50
        assert len(client.map("added", iter(PAIRS[:50]), batch=20)) == 50
        assert len(Sizes.seen) < 90


@pytest.mark.parametrize("model", [classified, padded, centered, shortened])
def test_answers_are_never_others_than_those_of_single_points(
    model: Callable[..., Any], caplog: pytest.LogCaptureFixture
) -> None:
    """One label for each point has no batch dimension of its own. Rows that are padded to the longest, or computed from
    all points, or left out, are found out: then each point has its own request, and a line in the log says why."""
    points = PAIRS[np.argsort(-PAIRS[:, 0])][:100]  # the longest row of `padded` is the first
    with served_model("v2-grpc", model) as address, Client(address) as client:
        with caplog.at_level(logging.WARNING, "gateway.client"):
            found = rows(client.map(model.__name__, points, batch=MANY))
        calls = len(Sizes.seen)
        assert found == rows(client.map(model.__name__, points, batch=1))
    told = [each.getMessage() for each in caplog.records if each.name.startswith("gateway.client")]
    if model is classified:
        assert told == []
        assert calls < 50
    else:
        assert len(told) == 1
        assert told[0].startswith(f"model {model.__name__!r}: ")
        assert told[0].endswith("; map sends one point in each request")
        assert 100 <= calls < 120


@pytest.mark.parametrize("bad", [[], [0], [1], [77], [3, 4, 400], range(0, 500, 50)])
def test_errors_are_those_of_their_points(bad: list[int]) -> None:
    points = PAIRS.copy()
    points[list(bad)] *= -1
    with served_model("v2-grpc", positive) as address, Client(address) as client:
        results = client.map("positive", points, errors="return", batch=MANY)
        assert sorted(results.errors) == list(bad)
        assert all("a negative number" in str(each) for each in results.errors.values())
        good = [at for at in range(500) if at not in bad]
        assert np.allclose([results[at]["y"].item() for at in good], points[good].sum(axis=1))
        assert len(Sizes.seen) < 60 + 40 * len(bad)


def test_the_first_error_is_that_of_a_point() -> None:
    points = PAIRS.copy()
    points[77] *= -1
    with (
        served_model("v2-grpc", positive) as address,
        Client(address) as client,
        pytest.raises(ServerError, match="a negative number") as caught,
    ):
        client.map("positive", points, batch=MANY)
    results = caught.value.results
    assert results is not None
    assert list(results.errors) == [77]
    assert caught.value.__notes__[0].startswith("at point 77, array([-")


def test_a_size_that_fails_is_not_tried_again() -> None:
    with served_model("v2-grpc", narrow) as address, Client(address) as client:
        assert np.allclose(client.map("narrow", PAIRS, batch=MANY).array()[:, 0], PAIRS.sum(axis=1))
    assert max(Sizes.seen) > 20
    settled = Sizes.seen[20:]
    assert max(settled) <= 20


def test_points_that_are_not_alike_are_sent_apart() -> None:
    """Those that no request can hold, or that have a fraction or another name, are refused as they are alone."""
    points: list[Any] = [[1, 2], [3, 4], [5, 6], [1.5, 2], [7, 8, 9], [1, 2], np.array([1, 2], np.int8), [2.0, 3]]
    points = [*points, [None, 2], {"z": [1, 2]}] * 16
    with served_model("v2-grpc", whole) as address, Client(address) as client:
        results = client.map("whole", points, errors="return", batch=MANY)
        calls = len(Sizes.seen)
        single = client.map("whole", points, errors="return", batch=1)
    assert sorted(results.errors) == sorted(single.errors) == [at for at in range(160) if at % 10 in (3, 8, 9)]
    assert {str(each) for each in results.errors.values()} == {str(each) for each in single.errors.values()}
    assert all(isinstance(each, InvalidInput) for each in results.errors.values())
    assert {at: each["y"].tolist() for at, each in results.done.items()} == {
        at: each["y"].tolist() for at, each in single.done.items()
    }
    assert calls < 100


def test_texts_and_several_inputs() -> None:
    columns = {"text": [[f"ä{at}"] for at in range(100)], "n": np.arange(100).reshape(100, 1) % 3}
    with served_model("v2-rest", repeated) as address, Client(address) as client:
        results = client.map("repeated", columns, batch=MANY)
        assert [each["out"].tolist() for each in results] == [[f"ä{at}".encode() * (at % 3)] for at in range(100)]
        assert len(Sizes.seen) < 50
        points = [{"text": [b"\xff\x00"], "n": [2]}, {"n": [1], "text": ["b"]}] * 20
        assert client.map("repeated", points, batch=MANY).array().tolist() == [[b"\xff\x00\xff\x00"], [b"b"]] * 20


ROWS = AlikePoints(("x", np.dtype(np.float64), (1,), False), [0, 1], [(np.zeros(1),), (np.ones(1),)])
BATCHED = Batched(Signature((TensorSpec("x", FP64, (-1, 1)),), (TensorSpec("y", FP64, (-1, 1)),)), None)


@pytest.mark.parametrize(
    ("name", "output", "why"),
    [
        ("y", [[0.0], [1.0]], ""),
        ("y", [[0.0], [1.0], [2.0]], "output 'y' has 3 rows for 2 points"),
        ("y", 1.0, "output 'y' has no rows for 2 points"),
        ("z", [[0.0], [1.0]], "output 'z' has 2 rows for 2 points"),
        ("y", [[[0.0]], [[1.0]]], "output 'y' has a size that can differ between points"),
    ],
)
def test_outputs_that_have_no_row_for_each_point(name: str, output: Any, why: str) -> None:
    response = Response((tensor(name, np.array(output)),), "m")
    if why:
        with pytest.raises(NotOfRows, match=f"^{re.escape(why)}$"):
            split(response, ROWS, BATCHED)
    else:
        assert rows(split(response, ROWS, BATCHED)) == [{"y": [0.0]}, {"y": [1.0]}]


@pytest.mark.parametrize(
    ("alone", "among", "why"),
    [
        ([1.0], [1.0], ""),
        ([np.nan, np.inf], [np.nan, np.inf], ""),
        ([np.nan, 1.0], [np.inf, 1.0], "output 'y' of a point alone has other values than among others"),
        ([1.0], [1.1], "output 'y' of a point alone has other values than among others"),
        ([1.0], [1.0, 2.0], "output 'y' of a point alone is float64 [1], and among others float64 [2]"),
        ([1.0], None, "a point alone has the outputs ['y'], and among others []"),
    ],
)
def test_outputs_of_a_point_alone_and_among_others(alone: Any, among: Any, why: str) -> None:
    first, second = (
        Outputs({} if each is None else {"y": np.array(each)}, Response((), "m")) for each in (alone, among)
    )
    if why:
        with pytest.raises(NotOfRows, match=f"^{re.escape(why)}$"):
            check_same(first, second)
    else:
        check_same(first, second)


class Model:
    """A client of a model that takes batches of at most `most` rows, and fails as it is told."""

    def __init__(self, most: int | None = None, errors: list[ClientError] | None = None) -> None:
        self.sizes: list[int] = []
        self._errors = errors or []
        specs = [TensorSpec(name, Datatype.FP64, (-1, 1)) for name in "xy"]
        self._batched = Batched(Signature(inputs=(specs[0],), outputs=(specs[1],)), most)
        self.calls = ClientCalls(self._infer, self._ask, self._describe)

    async def _infer(self, model: str, point: Any, **_: object) -> Outputs:
        self.sizes.append(1)
        return Outputs({"y": np.asarray(point, np.float64)}, Response((), model))

    async def _ask(self, request: Request, *, cast: Cast, timeout: Seconds) -> Answer:
        array = request.inputs[0].array
        self.sizes.append(len(array))
        if self._errors:
            raise self._errors.pop(0)
        return Response((tensor("y", array),), request.model)

    async def _describe(self, model: str, version: str, are_independent: bool) -> Batched | None:
        return self._batched


async def ended(model: Model, count: int, **arguments: Any) -> list[Evaluation]:
    with Window(MapArguments("m", np.arange(float(count)).reshape(count, 1), **arguments)) as window:
        found = [each async for each in evaluations(model.calls, window)]
    assert sorted(each.index for each in found) == list(range(count))
    return found


class Triton(QuietHandler):
    """The few replies of Triton, with a model of at most four rows."""

    def do_GET(self) -> None:
        x, y = ({"name": name, "datatype": "FP64", "shape": [-1, 1]} for name in "xy")
        replies: dict[str, object] = {
            "/v2": {"name": "triton", "version": "2.50.0", "extensions": ["model_configuration"]},
            "/v2/models/m": {"name": "m", "versions": ["1"], "platform": "x", "inputs": [x], "outputs": [y]},
            "/v2/models/m/config": {"name": "m", "max_batch_size": 4},
        }
        self.send_json(replies[self.path])

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["content-length"]))
        size = int(self.headers["inference-header-content-length"])
        shape = json.loads(body[:size])["inputs"][0]["shape"]
        Sizes.seen.append(shape[0])
        output = {"name": "y", "datatype": "FP64", "shape": shape, "data": np.frombuffer(body[size:]).tolist()}
        self.send_json({"model_name": "m", "model_version": "1", "outputs": [output]})


def test_the_bound_of_a_models_configuration_is_kept() -> None:
    with (
        in_thread(ThreadingHTTPServer(("127.0.0.1", 0), Triton)) as address,
        Client(f"v2-rest://{address}", timeout=GENEROUS) as client,
    ):
        results = client.map("m", np.arange(30.0).reshape(30, 1))
    assert results.array()[:, 0].tolist() == list(range(30))
    assert max(Sizes.seen) == 4


async def test_large_points_are_not_sent_together(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also if the first ones were small."""
    monkeypatch.setattr("gateway.client.sending.MOST_BYTES", 24)  # three numbers, and once the one that checks them
    model = Model()
    found = await ended(model, 50)
    assert max(model.sizes) == 4
    assert [each.outputs["y"].tolist() for each in sorted(found, key=lambda each: each.index)] == [
        [float(at)] for at in range(50)
    ]


async def test_the_models_own_bound_is_kept() -> None:
    model = Model(most=4)
    await ended(model, 50)
    assert max(model.sizes) == 4


def failure(reason: Reason, kind: type[ClientError] = Refused, after: float | None = None) -> ClientError:
    return kind(reason.value, reason.status, reason, "here", after)


async def test_a_batch_is_sent_again_when_the_server_says_later() -> None:
    model = Model(errors=[failure(Reason.RATE_LIMITED, after=0.0)])
    found = await ended(model, 8)
    assert model.sizes == [1, 8, 8]  # with the first point once more
    assert [each.tries for each in found] == [1, *[2] * 7]


async def test_a_batch_that_is_too_large_is_sent_in_parts() -> None:
    model = Model(errors=[failure(Reason.TOO_LARGE)])
    found = await ended(model, 33)
    assert all(each.error is None for each in found)
    assert set(model.sizes) == {1, 8}


@pytest.mark.parametrize(
    ("error", "is_split"),
    [
        (failure(Reason.MODEL_ERROR, ServerError), True),
        (failure(Reason.TIMEOUT, Timeout), True),
        (failure(Reason.MODEL_NOT_FOUND), False),
        (failure(Reason.UNAUTHENTICATED), False),
        (failure(Reason.OVERLOADED, after=1e9), False),
        (failure(Reason.UNREACHABLE, ConnectError, after=1e9), False),
    ],
)
async def test_which_errors_may_be_those_of_points(error: ClientError, is_split: bool) -> None:
    """Others are those of every point: no other request would help."""
    model = Model(errors=[error])
    found = await ended(model, 8, errors="return")
    assert model.sizes == ([1, 8, *[1] * 7] if is_split else [1, 8])
    assert [each.error for each in found] == [None, *[None if is_split else error] * 7]
    assert [each.tries for each in found] == [1, *[2 if is_split else 1] * 7]
    if not is_split:
        assert error.__notes__ == ["at points 1 to 7, which were in one request"]


def test_the_size_grows_while_requests_are_fast() -> None:
    size = BatchSize(MOST_ROWS, clock=Clock(100.0))
    seen: list[int] = []
    while not seen or size.rows > seen[-1]:
        seen.append(size.rows)
        size.begun()
        assert size.patience(0) == 0.0
        assert size.patience(1) == pytest.approx(TARGET)
        size.succeeded(size.rows, 0.001 + size.rows * 1e-6, 8, 1)
    assert seen == [1, 8, 64, 512, 4096]
    assert size.patience(1) == 0.0


@pytest.mark.parametrize(("seconds", "rows"), [(0.2, 1), (0.04, 2), (0.02, 5)])
def test_a_model_that_takes_its_time_gets_few_points_at_once(seconds: float, rows: int) -> None:
    size = BatchSize(MOST_ROWS, clock=Clock(100.0))
    for _ in range(5):
        size.begun()
        size.succeeded(size.rows, size.rows * seconds, 8, 1)
    assert size.rows == rows
    assert size.patience(1) == 0.0


def test_a_slow_request_does_not_hold_up_the_others() -> None:
    clock = Clock(100.0)
    size = BatchSize(MOST_ROWS, clock=clock)
    size.begun()
    clock.now += TARGET
    assert size.patience(1) == 0.0
    size.succeeded(1, TARGET / 2, 8, 64)  # it grows later, by less
    assert size.rows == 2
    size.succeeded(2, 200 * TARGET, 8, 64)
    assert size.rows == 1


def test_large_points_travel_in_small_batches() -> None:
    size = BatchSize(MOST_ROWS, clock=Clock(100.0))
    size.succeeded(1, 0.001, MOST_BYTES // 3, 1)
    assert size.rows == 3
    size.succeeded(3, 0.001, 10 * MOST_BYTES, 1)
    assert size.rows == 1
