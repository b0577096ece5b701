"""`map` and `as_completed`: the order of results, what is in flight, errors, tries again, and the progress bar."""

import asyncio
import io
import sys
from collections.abc import Callable, Iterator
from contextlib import aclosing, closing
from functools import partial
from typing import Any

import numpy as np
import pytest
from tqdm import tqdm

from gateway.client import Client, ClientError, ConnectError, InvalidInput, Outputs, Refused, Timeout
from gateway.client.map import Window, evaluations
from gateway.client.map_arguments import MapArguments
from gateway.client.results import Evaluation, Results
from gateway.client.sending import LONGEST_WAIT, ClientCalls, seconds_until_next
from gateway.core.errors import Reason
from gateway.core.requests import Answer, Request, Response
from tests.client.servers import asynchronous_client, served

THETAS = np.random.default_rng(1).random((20, 2))
FAULTY = [[1.0, 2.0], [1.0, 2.0, 3.0], [3.0, 4.0]]
"""Points of `posterior`, of which the second is too long."""


def posterior(theta: Any) -> float:
    return float(-0.05 * (1 - theta[0]) ** 2 - 5 * (theta[1] - theta[0] ** 2) ** 2)


def only(outputs: Outputs) -> Any:
    (value,) = outputs.values()
    return value.item()


def failure(reason: Reason, retry_after: float | None = None, kind: type[ClientError] = Refused) -> ClientError:
    return kind(reason.value, reason.status, reason, "here", retry_after)


def unsent(error: ClientError) -> ClientError:
    assert isinstance(error, Timeout)
    error.sent = False
    return error


@pytest.fixture(scope="module")
def client() -> Iterator[Client]:
    with served("v2-grpc", "posterior", "double", "add_sub") as address, Client(address) as client:
        yield client


def test_results_are_in_the_order_of_the_points(client: Client) -> None:
    results = client.map("posterior", THETAS, most=7)
    expected = [posterior(theta) for theta in THETAS]
    assert np.allclose([only(each) for each in results], expected)
    assert np.allclose(results.array()[:, 0], expected)
    assert (len(results), results[-1].model, repr(results)) == (20, "posterior", "<Results: 20 of 20 points>")
    assert len(results[3:5]) == 2


async def test_the_asynchronous_client_maps_as_well() -> None:
    async with asynchronous_client("umbridge", "posterior") as client:
        results = await client.map("posterior", iter(THETAS))
        assert np.allclose(results.array()[:, 0], [posterior(theta) for theta in THETAS])
        ended = {each.index: each.outputs["output0"].item() async for each in client.as_completed("posterior", THETAS)}
        assert np.allclose([ended[index] for index in range(20)], results.array()[:, 0])
        with pytest.raises(InvalidInput, match=r"\[3\], expected \[-1, 2\]"):
            assert 1 not in [each.index async for each in client.as_completed("posterior", FAULTY)]


def test_inputs_by_name_as_points_and_as_columns(client: Client) -> None:
    left, right = np.arange(6, dtype=np.float32).reshape(3, 2), np.ones((3, 2), np.float32)
    inputs = client.signature("add_sub").inputs
    columns = {each.name: column for each, column in zip(inputs, (left, right), strict=True)}
    columns = {each.name: columns[each.name].astype(each.datatype.dtype) for each in inputs}
    points = [{name: column[at] for name, column in columns.items()} for at in range(3)]
    (name, *_) = client.signature("add_sub").outputs
    assert client.map("add_sub", points).array(name.name).tolist() == (left + right).tolist()
    assert client.map("add_sub", columns).array(name.name).tolist() == (left + right).tolist()
    with pytest.raises(ValueError, match=r"the outputs are .*; name one of them"):
        client.map("add_sub", columns).array()


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        ({"points": {"x": [1.0], "y": [1.0, 2.0]}}, "as many of each: 'x' has 1, 'y' has 2"),
        ({"points": {}}, "the points are an empty mapping"),
        ({"points": "abc"}, "the points are str, expected an array or an iterable"),
        ({"points": 3}, "the points are int"),
        ({"most": 0}, "most is 0, expected at least 1"),
        ({"batch": 0}, "batch is 0, expected at least 1 point in a request"),
        ({"retries": -1}, "retries is -1"),
        ({"errors": "ignore"}, "errors is 'ignore', expected 'raise' or 'return'"),
    ],
)
def test_wrong_arguments(client: Client, arguments: dict[str, Any], told: str) -> None:
    with pytest.raises(ValueError, match=told):
        client.map("posterior", **({"points": THETAS} | arguments))


def test_points_may_be_made_with_calls_of_the_same_client(client: Client) -> None:
    """They are taken in the caller's thread, which may wait for the client, and as late as they can be."""
    taken = 0

    def doubled() -> Iterator[Any]:
        nonlocal taken
        for theta in THETAS:
            taken += 1
            yield client.infer("double", theta)["y"]

    with closing(client.as_completed("posterior", doubled(), most=3)) as ended:
        next(ended)
        assert taken == 3
    assert np.allclose(client.map("posterior", doubled()).array()[:, 0], [posterior(2 * theta) for theta in THETAS])


def test_the_first_error_ends_it_and_the_results_are_kept(client: Client) -> None:
    with pytest.raises(InvalidInput, match=r"\[3\], expected \[-1, 2\]") as caught:
        client.map("posterior", FAULTY, batch=1)
    results = caught.value.results
    assert results is not None
    assert (list(results.errors), sorted(results.done)) == ([1], [0, 2])
    assert caught.value.__notes__ == [
        "at point 1, [1.0, 2.0, 3.0]",
        "`results` of this InvalidInput has the 2 of 3 points that were done",
    ]


@pytest.mark.parametrize("kind", [KeyboardInterrupt, ZeroDivisionError])
def test_the_results_are_kept_by_an_interrupt_and_by_an_error_of_the_points(
    client: Client, kind: type[BaseException]
) -> None:
    with pytest.raises(kind) as caught:
        client.map("posterior", ends_early(kind), most=1)
    assert np.allclose(caught.value.results.array()[:, 0], [posterior(theta) for theta in THETAS[:3]])  # type: ignore[attr-defined]
    assert caught.value.__notes__ == [f"`results` of this {kind.__name__} has the 3 points that were done"]


async def test_the_results_are_kept_when_the_task_is_cancelled() -> None:
    async with asynchronous_client("umbridge", "posterior") as client:
        with pytest.raises(asyncio.CancelledError) as caught:
            await client.map("posterior", ends_early(asyncio.CancelledError), most=1)
    assert len(caught.value.results.done) == 3  # type: ignore[attr-defined]


def ends_early(kind: type[BaseException]) -> Iterator[Any]:
    yield from THETAS[:3]
    raise kind


def test_the_points_are_the_rows_of_a_table(client: Client) -> None:
    assert np.allclose(client.map("posterior", Table()).array(), client.map("posterior", THETAS).array())


class Table:
    """A table as pandas has them: it is iterated by the names of its columns, and its array has the rows."""

    columns = ("a", "b")

    def __iter__(self) -> Iterator[str]:
        return iter(self.columns)

    def __len__(self) -> int:
        return len(THETAS)

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> Any:
        return THETAS


def test_an_array_in_a_file_is_read_row_by_row(client: Client) -> None:
    assert np.allclose(client.map("posterior", StoredArray()).array(), client.map("posterior", THETAS).array())


class StoredArray:
    """A data set of a file, as h5py has them: its array would be the whole of it."""

    def __iter__(self) -> Iterator[Any]:
        return iter(THETAS)

    def __len__(self) -> int:
        return len(THETAS)

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> Any:
        raise MemoryError


def test_arguments_that_have_changed_places(client: Client) -> None:
    with pytest.raises(ValueError, match="the model is ndarray, expected its name"):
        client.map(THETAS, "posterior")  # type: ignore[arg-type]
    with pytest.raises(InvalidInput, match="the model is list, expected its name"):
        client.infer([1.0, 2.0], "posterior")  # type: ignore[arg-type]


def test_errors_are_returned(client: Client) -> None:
    results = client.map("posterior", FAULTY, errors="return")
    assert (len(results), list(results.errors), results.missing) == (3, [1], [])
    assert only(results[2]) == pytest.approx(posterior(FAULTY[2]))
    for look in (lambda: results[1], lambda: list(results), results.array):
        with pytest.raises(InvalidInput, match=r"\[3\]"):
            look()
    assert np.isnan(results.array(fill=np.nan)[:, 0]).tolist() == [False, True, False]
    evaluations = sorted(client.as_completed("posterior", FAULTY, errors="return"), key=lambda each: each.index)
    assert repr(evaluations[1]) == f"<Evaluation of point 1: InvalidInput: {results.errors[1]}>"
    assert repr(evaluations[2]) == f"<Evaluation of point 2: {results[2]}>"
    ended = {each.index: each.error for each in evaluations}
    assert [isinstance(ended[at], InvalidInput) for at in range(3)] == [False, True, False]


class Fake:
    """An `infer` that does as it is told for each point, and notes what is in flight."""

    def __init__(self, behaviour: Callable[[int, int], BaseException | None] = lambda point, tries: None) -> None:
        self._behaviour = behaviour
        self.tries: dict[int, int] = {}
        self.in_flight = self.most = 0
        self.gates: dict[int, asyncio.Event] = {}
        self.failed = asyncio.Event()
        self.cancelled = asyncio.Event()

    @property
    def calls(self) -> ClientCalls:
        async def batched(model: str, version: str, are_independent: bool) -> None:
            return None

        async def ask(request: Request, **_: object) -> Answer:
            raise AssertionError(request)

        return ClientCalls(self.infer, ask, batched)

    async def infer(self, model: str, point: int, **_: object) -> Outputs:
        self.tries[point] = self.tries.get(point, 0) + 1
        self.in_flight += 1
        self.most = max(self.most, self.in_flight)
        try:
            await self.gates[point].wait() if point in self.gates else await asyncio.sleep(0)
            error = self._behaviour(point, self.tries[point])
            if error is not None:
                self.failed.set()
                raise error
            return Outputs({"y": np.array([point])}, Response((), model))
        except asyncio.CancelledError:
            self.cancelled.set()
            raise
        finally:
            self.in_flight -= 1


async def mapped(infer: Fake, points: Any, **arguments: Any) -> Results:
    results = Results()
    with results.kept_by_errors(None):
        with Window(MapArguments("m", points, **arguments)) as window:
            async for each in evaluations(infer.calls, window):
                results.add(each)
        window.check()
    return results


async def test_no_more_than_most_are_in_flight() -> None:
    infer = Fake()
    assert (await mapped(infer, range(50), most=8)).array()[:, 0].tolist() == list(range(50))
    assert infer.most == 8


async def test_a_slow_point_holds_up_no_other() -> None:
    """They end in another order than they begin, and another takes the place of each."""
    infer = Fake()
    infer.gates[0] = asyncio.Event()
    order = []
    with Window(MapArguments("m", range(10), most=2)) as window:
        async for each in evaluations(infer.calls, window):
            order.append(each.index)
            if len(order) == 9:
                infer.gates[0].set()
    assert order == [*range(1, 10), 0]


async def test_after_an_error_no_other_point_is_begun_and_those_in_flight_end() -> None:
    infer = Fake(lambda point, tries: failure(Reason.MODEL_ERROR) if point == 1 else None)
    infer.gates[0] = asyncio.Event()
    running = asyncio.ensure_future(mapped(infer, iter(range(100)), most=3))
    await infer.failed.wait()
    infer.gates[0].set()
    with pytest.raises(Refused) as caught:
        await running
    assert caught.value.results is not None
    assert 0 in caught.value.results.done
    assert len(infer.tries) < 10, infer.tries


async def test_a_point_is_sent_again_when_the_server_says_later() -> None:
    later = partial(failure, Reason.RATE_LIMITED, 0.0)
    infer = Fake(lambda point, tries: later() if tries <= point else None)
    assert len(await mapped(infer, range(4))) == 4
    assert infer.tries == {0: 1, 1: 2, 2: 3, 3: 4}
    with pytest.raises(Refused, match="rate-limited"):
        await mapped(Fake(lambda point, tries: later()), range(1), retries=2)


async def test_a_point_that_was_never_sent_is_sent_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gateway.client.sending.FIRST_WAIT", 0.0)
    lost = [failure(Reason.UNREACHABLE, None, ConnectError), unsent(failure(Reason.TIMEOUT, None, Timeout))]
    infer = Fake(lambda point, tries: lost[tries - 1] if tries <= 2 else None)
    (found,) = await mapped(infer, range(1))
    assert found["y"] == 0
    assert infer.tries == {0: 3}


@pytest.mark.parametrize(
    ("error", "tries", "seconds"),
    [
        (failure(Reason.OVERLOADED, 3.0), 1, 3.0),
        (failure(Reason.OVERLOADED, 3.0), 50, 3.0),
        (failure(Reason.RATE_LIMITED), 1, 0.1),
        (failure(Reason.NOT_READY), 3, 0.4),
        (failure(Reason.CIRCUIT_OPEN), 50, 10.0),
        (failure(Reason.UNREACHABLE, 2.0), 1, 2.0),
        (failure(Reason.UNREACHABLE), 1, None),
        (failure(Reason.OVERLOADED, LONGEST_WAIT + 1), 1, None),
        (failure(Reason.TOO_LARGE, 1.0), 1, None),
        (failure(Reason.MODEL_ERROR), 1, None),
        (failure(Reason.TIMEOUT), 1, None),
        (failure(Reason.TIMEOUT, 1.0, Timeout), 1, 1.0),
        (unsent(failure(Reason.TIMEOUT, None, Timeout)), 1, 0.1),
        (unsent(failure(Reason.TIMEOUT, None, Timeout)), 6, None),
        (failure(Reason.UNREACHABLE, None, ConnectError), 1, 0.1),
        (failure(Reason.UNREACHABLE, None, ConnectError), 6, None),
    ],
)
def test_when_a_point_is_sent_again(error: ClientError, tries: int, seconds: float | None) -> None:
    """After the server's own time, or after one that grows; up to a tenth later. Never if the model may have run."""
    found = seconds_until_next(error, tries)
    assert found is None if seconds is None else found is not None and seconds <= found <= 1.1 * seconds


def test_a_request_that_may_have_arrived_is_not_sent_again() -> None:
    error = failure(Reason.UNREACHABLE, None, ConnectError)
    assert isinstance(error, ConnectError)
    error.sent = True
    assert seconds_until_next(error, 1) is None


async def test_closing_cancels_what_is_in_flight() -> None:
    infer = Fake()
    infer.gates[1] = asyncio.Event()
    with Window(MapArguments("m", range(2))) as window:
        async with aclosing(evaluations(infer.calls, window)) as ended:
            assert (await anext(ended)).index == 0
            assert infer.in_flight == 1
    await infer.cancelled.wait()


def test_the_progress_bar(client: Client) -> None:
    text = io.StringIO()
    bar = partial(tqdm, file=text, mininterval=0)
    client.map("posterior", FAULTY, errors="return", progress=bar)
    last = text.getvalue().split("\r")[-1]
    assert last.startswith("posterior: 100%")
    assert "3/3" in last
    assert "eval/s" in last
    assert "1 failed" in last
    assert "tried again" not in last
    text.seek(0)
    assert len(list(client.as_completed("posterior", iter(THETAS), progress=bar))) == 20
    assert "20eval" in text.getvalue()


def test_a_bar_by_default_is_that_of_tqdm(client: Client, capsys: pytest.CaptureFixture[str]) -> None:
    client.map("posterior", THETAS, progress=True)
    assert "20/20" in capsys.readouterr().err
    client.map("posterior", THETAS)
    assert capsys.readouterr() == ("", "")


def test_missing_points_are_not_taken_for_results() -> None:
    results = Results()
    assert (len(results), list(results)) == (0, [])
    for at in (0, 2):
        results.add(_evaluation(at))
    assert (results.missing, repr(results)) == ([1], "<Results: 2 of 3 points, 1 not evaluated>")
    with pytest.raises(IndexError, match="point 1 was not evaluated"):
        results[1]
    assert results.array(fill=-1)[:, 0].tolist() == [0, -1, 2]
    with pytest.raises(ValueError, match=r"nan is no value of the output's datatype int64"):
        results.array(fill=np.nan)
    with pytest.raises(ValueError, match=r"0\.5 is no value"):
        results.array(fill=0.5)
    failed = Results()
    failed.add(Evaluation(0, 0, 1, None, failure(Reason.MODEL_ERROR)))
    with pytest.raises(ValueError, match="all points failed, so the shape of a row is unknown; see their `errors`"):
        failed.array(fill=np.nan)


def _evaluation(at: int) -> Evaluation:
    return Evaluation(at, at, 1, Outputs({"y": np.array([at])}, Response((), "m")))


def test_without_tqdm_the_extra_is_named(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "tqdm.auto", None)
    with pytest.raises(ModuleNotFoundError, match=r'pip install "modelglot\[progress\]"'):
        client.map("posterior", THETAS, progress=True)
