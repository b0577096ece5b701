"""Maps that go on from a file: what was done is not sent again, and a file of another map is refused."""

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from traceback import extract_tb
from typing import Any, ClassVar

import ml_dtypes
import numpy as np
import pytest

from gateway.client import Client, Outputs
from gateway.client.map_arguments import MapArguments
from gateway.client.results import Evaluation
from gateway.client.results_file import ResultsFile
from gateway.core.requests import Response
from gateway.reference import signature
from tests.client.servers import asynchronous_client, served

POINTS = np.arange(40.0).reshape(20, 2)
OF_M = MapArguments("m", POINTS)


class Seen:
    """The points that the model has had."""

    points: ClassVar[list[Any]] = []


@signature(inputs=[("x", "FP64", [-1, 2])], outputs=[("y", "FP64", [-1, 1])])
def added(x: Any) -> Any:
    Seen.points += x.tolist()
    if (x < 0).any():
        raise ValueError("a negative number")
    return x.sum(axis=1, keepdims=True)


@pytest.fixture(autouse=True)
def _nothing_seen() -> None:
    Seen.points = []


@pytest.fixture(params=["v2-grpc", "umbridge"])
def client(request: pytest.FixtureRequest) -> Iterator[Client]:
    with served(request.param, f"{__name__}:added") as address, Client(address) as client:
        yield client


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "map.jsonl"


def interrupted(after: int) -> Iterator[Any]:
    yield from POINTS[:after]
    raise KeyboardInterrupt


def test_points_that_were_done_are_not_sent_again(client: Client, file: Path) -> None:
    with pytest.raises(KeyboardInterrupt):
        client.map("added", interrupted(7), most=1, resume=file)
    assert Seen.points == POINTS[:7].tolist()
    Seen.points = []
    results = client.map("added", POINTS, resume=str(file))
    assert sorted({tuple(each) for each in Seen.points}) == sorted(map(tuple, POINTS[7:].tolist()))
    assert results.array()[:, 0].tolist() == POINTS.sum(axis=1).tolist()
    Seen.points = []
    again = client.map("added", POINTS, resume=file)
    assert Seen.points == []
    (name,) = again[0]
    for one, other in zip(again, results, strict=True):
        assert (one, one[name].dtype, one[name].shape) == (other, other[name].dtype, other[name].shape)
        assert (one.model, one.version, one.parameters) == (other.model, other.version, other.parameters)
    again[0][name][:] = 1.0  # as others, they may be changed
    ended = list(client.as_completed("added", iter(POINTS), resume=file))
    assert Seen.points == []
    assert [(each.index, each.tries) for each in ended] == [(at, 0) for at in range(20)]


def test_more_points_than_before(client: Client, file: Path) -> None:
    client.map("added", POINTS[:5], resume=file)
    Seen.points = []
    assert len(client.map("added", POINTS[:8], resume=file)) == 8
    assert {tuple(each) for each in Seen.points} == set(map(tuple, POINTS[5:8].tolist()))


def test_points_that_failed_are_sent_again(client: Client, file: Path) -> None:
    points = POINTS[:5].copy()
    points[2] *= -1
    assert list(client.map("added", points, errors="return", resume=file).errors) == [2]
    Seen.points = []
    assert list(client.map("added", points, errors="return", resume=file).errors) == [2]
    assert {tuple(each) for each in Seen.points} == {tuple(points[2])}


async def test_the_asynchronous_client_goes_on_too(file: Path) -> None:
    async with asynchronous_client("v2-rest", f"{__name__}:added") as client:
        await client.map("added", POINTS[:5], resume=file)
        Seen.points = []
        results = await client.map("added", POINTS[:6], resume=file)
        assert {tuple(each) for each in Seen.points} == {tuple(POINTS[5])}
        assert [results[at]["y"].item() for at in range(6)] == POINTS[:6].sum(axis=1).tolist()
        ended = [each.index async for each in client.as_completed("added", POINTS[:6], resume=file)]
        assert ended == list(range(6))


def test_a_map_that_is_done_needs_no_server(file: Path) -> None:
    with served("v2-grpc", f"{__name__}:added") as address, Client(address) as client:
        results = client.map("added", POINTS, resume=file)
    with Client(address) as client:
        assert client.map("added", POINTS, resume=file).array().tolist() == results.array().tolist()


def test_a_crash_in_the_middle_of_a_line(file: Path) -> None:
    """At every byte: what was written whole is of use, and the rest is written again."""
    arguments = MapArguments("m", POINTS[:3])
    whole = written(file, 3, arguments)
    ends = [at + 1 for at, byte in enumerate(whole) if byte == ord("\n")]
    for size in range(len(whole)):
        file.write_bytes(whole[:size])
        with ResultsFile(file, arguments) as kept:
            found = [kept.find(at, POINTS[at]) is not None for at in range(3)]
            assert found == [size >= end for end in ends[1:]]
            kept.add([evaluation(at) for at in range(3) if not found[at]])
        assert file.read_bytes() == whole


def evaluation(at: int) -> Evaluation:
    return Evaluation(at, POINTS[at], 1, Outputs({"y": POINTS[at : at + 1, 0]}, Response((), "m", "1")))


def written(file: Path, count: int, arguments: MapArguments = OF_M) -> bytes:
    """What a file has after so many points."""
    with ResultsFile(file, arguments) as kept:
        assert [kept.find(at, POINTS[at]) for at in range(count)] == [None] * count
        kept.add(evaluation(at) for at in range(count))
    return file.read_bytes()


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({"points": POINTS[::-1]}, "its point 0 has other inputs than in this map"),
        ({"points": POINTS.astype(np.float32)}, "its point 0 has other inputs than in this map"),
        ({"points": {"x": POINTS}}, "its point 0 has other inputs than in this map"),
        ({"points": POINTS[:2]}, "it has a result of point 2, but this map has only 2 points"),
        ({"model": "n"}, "its model is 'm', but this map has 'n'"),
        ({"version": "2"}, "its version is '', but this map has '2'"),
        ({"outputs": ["y"]}, r"its outputs is None, but this map has \['y'\]"),
        ({"parameters": {"config": {"a": 1}}}, "its parameters is {}, but this map has {'config': {'a': 1}}"),
        ({"cast": "round"}, "its cast is 'refuse', but this map has 'round'"),
    ],
)
def test_a_file_of_another_map_is_refused(file: Path, change: dict[str, Any], told: str) -> None:
    before = written(file, 3)
    arguments: dict[str, Any] = {"model": "m", "points": POINTS, "resume": file} | change
    with Client("v2-rest://127.0.0.1:1") as client, pytest.raises(ValueError, match=told) as caught:
        client.map(**arguments)
    assert {frame.filename for frame in extract_tb(caught.value.__traceback__)} == {__file__}
    assert str(caught.value).startswith(f"resume={str(file)!r}: ")
    assert str(caught.value).endswith("; give another file for another map")
    assert file.read_bytes() == before


def test_a_file_with_one_result_of_other_points_stays_unchanged(file: Path) -> None:
    """Nothing is written before the first point whose result it has."""
    with ResultsFile(file, OF_M) as kept:
        assert [kept.find(at, POINTS[at]) for at in range(3)] == [None] * 3
        kept.add([evaluation(2)])
    before = file.read_bytes()
    with pytest.raises(ValueError, match="its point 2 has other inputs"):
        ResultsFile(file, MapArguments("m", -POINTS))
    assert file.read_bytes() == before
    with ResultsFile(file, OF_M) as kept:
        other = Evaluation(0, POINTS[0], 1, Outputs({"y": POINTS[0]}, Response((), "m", "2")))
        assert kept.find(0, POINTS[0]) is None
        with pytest.raises(ValueError, match="has results of version '1' of the model, and the server answers as '2'"):
            kept.add([other])
    assert file.read_bytes() == before


@pytest.mark.parametrize("other", [np.inf, -np.inf, None, "nan", 1.0])
def test_parameters_without_a_json_number_are_told_apart(file: Path, other: object) -> None:
    written(file, 3, MapArguments("m", POINTS, parameters={"t": np.nan, "a": 1}))
    with ResultsFile(file, MapArguments("m", POINTS, parameters={"a": 1, "t": np.nan})) as kept:
        assert kept.find(0, POINTS[0]) is not None
    with pytest.raises(ValueError, match="its parameters is"):
        ResultsFile(file, MapArguments("m", POINTS, parameters={"t": other, "a": 1}))


def test_parameters_of_numpy_are_those_of_python(file: Path) -> None:
    written(file, 1, MapArguments("m", POINTS, parameters={"n": np.int32(3)}))
    with ResultsFile(file, MapArguments("m", POINTS, parameters={"n": 3})) as kept:
        assert kept.find(0, POINTS[0]) is not None
    with pytest.raises(ValueError, match=r"^resume: 1j cannot be stored in the file; expected JSON values$"):
        ResultsFile(file, MapArguments("m", POINTS, parameters={"n": 1j}))


@pytest.mark.parametrize("text", [b"a,b\n1,2\n", b"a,b", b'{"a": 1}\n', b"[]\n"])
def test_a_file_of_something_else_is_left_as_it_is(file: Path, text: bytes) -> None:
    file.write_bytes(text)
    with Client("v2-rest://127.0.0.1:1") as client, pytest.raises(ValueError, match="expected a results file of `map`"):
        client.map("m", POINTS, resume=file)
    assert file.read_bytes() == text


@pytest.mark.parametrize("line", [b"\0\0\0", b"{}", b'{"point":"a","inputs":"","outputs":[]}', b"[1]", b""])
def test_a_damaged_line_is_named(file: Path, line: bytes) -> None:
    first, rest = written(file, 3).split(b"\n", 1)
    file.write_bytes(b"\n".join([first, line, rest]))
    with pytest.raises(ValueError, match="line 2 is damaged; remove this line"):
        ResultsFile(file, OF_M)


def test_a_damaged_result_is_named(file: Path) -> None:
    file.write_bytes(written(file, 3).replace(b'"FP64"', b'"FP99"'))
    with ResultsFile(file, OF_M) as kept, pytest.raises(ValueError, match="the line of point 0 is damaged; remove"):
        kept.find(0, POINTS[0])


def test_a_point_that_no_request_can_hold_is_not_stored(file: Path) -> None:
    before = written(file, 1)
    with ResultsFile(file, OF_M) as kept:
        assert kept.find(1, [None]) is None
        kept.add([Evaluation(1, [None], 1, Outputs({"y": POINTS[0]}, Response((), "m", "1")))])
    assert file.read_bytes() == before


def test_two_maps_do_not_write_to_one_file(file: Path) -> None:
    with ResultsFile(file, OF_M), pytest.raises(ValueError, match="another map writes to it"):
        ResultsFile(file, OF_M)
    written(file, 1)


def test_results_of_two_versions_of_a_model_are_not_mixed(file: Path) -> None:
    written(file, 1)
    with ResultsFile(file, OF_M) as kept:
        assert kept.find(0, POINTS[0]) is not None
        assert kept.find(1, POINTS[1]) is None
        other = Evaluation(1, POINTS[1], 1, Outputs({"y": POINTS[1]}, Response((), "m", "2")))
        with pytest.raises(ValueError, match="has results of version '1' of the model, and the server answers as '2'"):
            kept.add([other])


ARRAYS: list[Callable[[], Any]] = [
    lambda: np.array([[0.1, 1e300, -0.0]]),
    lambda: np.array([np.nan, np.inf, -np.inf, 1.0]),
    lambda: np.array([0.1, 16777217], np.float32),
    lambda: np.array([0.1, 3], np.float16),
    lambda: np.array([0.1, np.nan], ml_dtypes.bfloat16),
    lambda: np.array([0.1, 2], ml_dtypes.bfloat16),
    lambda: np.array([2**63 + 1, 1], np.uint64),
    lambda: np.array([-(2**63), 2**63 - 1], np.int64),
    lambda: np.array([True, False]),
    lambda: np.array([[b"a", "ä".encode()]], object),
    lambda: np.array([b"\xff\0", b""], object),
    lambda: np.array([], np.float32).reshape(0, 3),
    lambda: np.array(3.5),
]


@pytest.mark.parametrize("make", ARRAYS)
def test_every_value_is_kept_as_it_is(file: Path, make: Callable[[], Any]) -> None:
    array = make()
    with ResultsFile(file, OF_M) as kept:
        assert kept.find(0, POINTS[0]) is None
        outputs = Outputs({"y": array}, Response((), "m", "3", None, {"a": 1, "b": "c"}))
        kept.add([Evaluation(0, POINTS[0], 1, outputs)])
    assert all(isinstance(json.loads(each), dict) for each in file.read_text().splitlines())
    with ResultsFile(file, OF_M) as kept:
        found = kept.find(0, POINTS[0])
    assert found is not None
    again = found.outputs["y"]
    assert (again.dtype, again.shape, again.flags.writeable) == (array.dtype, array.shape, True)
    assert again.tobytes() == array.tobytes() if array.dtype != object else again.tolist() == array.tolist()
    assert (found.outputs.model, found.outputs.version, found.outputs.parameters) == ("m", "3", {"a": 1, "b": "c"})
