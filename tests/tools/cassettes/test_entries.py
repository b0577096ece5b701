"""Cassettes as files: what is written is read again, and what is no cassette is refused with file, line and reason."""

import json
import math
import resource
from base64 import b64encode
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from gateway.core.errors import GatewayError, Reason, Status
from gateway.core.messages import Headers, Message
from gateway.core.operations import Operation
from gateway.core.requests import Request, RequestedOutput, Response
from gateway.core.tensors import tensor
from gateway.tools.cassettes.entries import CassetteError, Entry, header_line, read_entry
from gateway.tools.cassettes.files import CassetteFile, read

RECORDING = Path(__file__).parent / "recordings/version-1.jsonl"
HEADER = header_line("test").decode()
MOST = 2**30


def entry(outcome: Response | GatewayError | None = None) -> Entry:
    request = Request(
        Operation.INFER,
        "m",
        "1",
        "id",
        (tensor("x", np.arange(200_000, dtype="<f4").reshape(2, -1)), tensor("s", np.array([b"a\0", b""], object))),
        (RequestedOutput("y", {"classification": 2}),),
        {"nan": math.nan, "up": math.inf, "flag": True, "n": 3, "text": "\N{SNOWMAN}"},
        protocol="v2-rest",
        schemaless=True,
    )
    message = Message("POST", "/v2/models/m/infer", Headers(((b"accept", b"\xe9"),)), (b"one", b"two"), query="a=b")
    answered = Response((tensor("y", np.array([[1.5]])),), "m", "1", parameters={"sequence_end": False})
    reply = Message(parts=(b"reply",), status=200)
    return Entry("2026-01-02T03:04:05+00:00", "v2-rest", "l", "route-0", "b", request, message, outcome or answered,
                 reply, 0.25)  # fmt: skip


def written(path: Path, *entries: Entry) -> list[Entry]:
    file = CassetteFile(path)
    assert all(file.append(each, MOST) for each in entries)
    file.close()
    return [each for _, each in read(path)]


def test_what_is_written_is_read_again(tmp_path: Path) -> None:
    failed = GatewayError(Status.NOT_FOUND, Reason.MODEL_NOT_FOUND, "no model")
    first, second = written(tmp_path / "c", entry(), entry(failed))
    expected = entry()
    assert (first.at, first.seconds, first.listener, first.route, first.backend) == (
        expected.at, expected.seconds, "l", "route-0", "b",
    )  # fmt: skip
    assert first.request.parameters.pop("nan") != first.request.parameters.get("nan", 0)  # type: ignore[attr-defined]
    assert expected.request.parameters.pop("nan")  # type: ignore[attr-defined]
    for name in ("operation", "model", "version", "id", "outputs", "parameters", "schemaless", "protocol"):
        assert getattr(first.request, name) == getattr(expected.request, name), name
    for ours, theirs in zip(first.request.inputs, expected.request.inputs, strict=True):
        assert (ours.name, ours.datatype, ours.shape) == (theirs.name, theirs.datatype, theirs.shape)
        assert bytes(ours.data) == bytes(theirs.data)
    assert (first.message.method, first.message.path, first.message.query) == ("POST", "/v2/models/m/infer", "a=b")
    assert (first.message.body, first.message.headers.get("accept")) == (b"onetwo", "\xe9")
    assert (first.reply.status, first.reply.body) == (200, b"reply")
    assert isinstance(first.outcome, Response)
    assert first.outcome.outputs[0].array.tolist() == [[1.5]]
    assert isinstance(second.outcome, GatewayError)
    assert (second.outcome.status, second.outcome.reason) == (failed.status, failed.reason)


def test_a_recording_of_version_1_is_read() -> None:
    """Literal bytes, made by the first gateway that could record: later ones must read them too."""
    found = [each for _, each in read(RECORDING)]
    assert [(each.protocol, each.request.operation) for each in found] == [
        ("graphpipe", Operation.INFER),
        ("grps-brpc", Operation.INFER),
        ("mip", Operation.INFER),
        ("umbridge", Operation.INFER),
        ("umbridge", Operation.GRADIENT),
        ("v2-rest", Operation.INFER),
        ("v2-grpc", Operation.INFER),
    ]
    assert {each.request.inputs[0].array.reshape(-1).tolist()[0] for each in found} == {0.5}
    last = found[-1].outcome
    assert isinstance(last, Response)
    assert last.outputs[0].array.tolist() == [[-1.2625]]


def test_a_recording_that_was_interrupted_is_read_up_to_there_and_goes_on(tmp_path: Path) -> None:
    path = tmp_path / "c"
    written(path, entry())
    whole = path.read_bytes()
    path.write_bytes(whole + whole.splitlines(keepends=True)[1][:-5])
    told: list[str] = []
    assert len(list(read(path, told.append))) == 1
    assert told == [f"{path}:3: the last line is incomplete, so it is left out"]
    assert len(written(path, entry())) == 2
    assert len(path.read_bytes().splitlines()) == 3


@contextmanager
def files_of_at_most(size: int) -> Iterator[None]:
    """As on a disk that is full behind so many bytes: a write takes what fits, and the next one fails."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


def test_a_disk_that_fills_up_leaves_whole_entries_and_the_recording_goes_on(tmp_path: Path) -> None:
    path = tmp_path / "c"
    file = CassetteFile(path)
    assert file.append(entry(), MOST)
    whole = path.stat().st_size
    with files_of_at_most(whole + 1000):
        for _ in range(2):
            with pytest.raises(OSError, match="File too large"):
                file.append(entry(), MOST)
            assert path.stat().st_size == file.size == whole
    assert file.append(entry(), MOST)
    file.close()
    told: list[str] = []
    assert [number for number, _ in read(path, told.append)] == [2, 3]
    assert told == []


def test_a_cassette_whose_head_does_not_fit_is_begun_again(tmp_path: Path) -> None:
    path = tmp_path / "c"
    with files_of_at_most(10), pytest.raises(CassetteError, match="File too large"):
        CassetteFile(path)
    assert len(written(path, entry())) == 1


def changed(**members: Any) -> str:
    """A line with other members; `request.inputs` of the only input."""
    tensor_of_it = {"name": "x", "datatype": "FP32", "shape": [1], "data": b64encode(bytes(4)).decode()}
    input_of_it = members.pop("input", {})
    document: dict[str, Any] = {
        "protocol": "v2-rest",
        "request": {"operation": "infer", "model": "m", "inputs": [{**tensor_of_it, **input_of_it}]},
        "reply": {"status": "OK", "outputs": []},
    }
    return json.dumps(document | members) + "\n"


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        (
            "",
            'c:1: this is not a recording: expected a first line such as {"format": "gateway-cassette", "version": 1}',
        ),
        ("GIF89a\n", "c:1: this is not a recording"),
        ('{"inputs": []}\n', "c:1: this is not a recording"),
        ('{"format": "gateway-cassette", "version": 2}\n', "c:1: this recording has version 2; record again"),
        (HEADER + "not JSON\n", "c:2: not JSON: "),
        (HEADER + "\n", "c:2: not JSON: "),
        (HEADER + changed() + "{}\n", "c:3: protocol: Field required"),
        (HEADER + "[" * 100_000 + "\n", "c:2: not JSON: "),
        (
            HEADER + changed(request={"operation": "load"}),
            "c:2: request.operation: 'load' is unknown; expected one of ",
        ),
        (HEADER + changed(reply={"status": "FINE"}), "c:2: reply.status: 'FINE' is unknown; expected one of OK, "),
        (HEADER + changed(seconds=-1), "c:2: seconds: "),
        (HEADER + changed(request_wire={"body": "%%"}), "c:2: request_wire.body: not base64: "),
        (HEADER + changed(reply_wire={"headers": [["one"]]}), "c:2: reply_wire.headers.0: "),
        (HEADER + changed(reply_wire={"headers": [["a", "\u2603"]]}), "c:2: reply_wire.headers: "),
        (HEADER + changed(input={"datatype": "FP128"}), "c:2: request.inputs.0.datatype: 'FP128' is not one of BOOL,"),
        (HEADER + changed(input={"shape": [2**40, 2**40]}), "c:2: request.inputs.0.data: 4 bytes, and FP32 of shape"),
        (HEADER + changed(input={"shape": [-1]}), "c:2: request.inputs.0.shape.0: "),
        (HEADER + changed(input={"shape": [1] * 33}), "c:2: request.inputs.0.shape: "),
        (
            HEADER + changed(input={"datatype": "BYTES", "data": "/////w=="}),
            "c:2: request.inputs.0.data: BYTES element",
        ),
        (HEADER + changed(input={"datatype": "BYTES", "data": ""}), "c:2: request.inputs.0.data: 0 elements, and the"),
        (HEADER + changed(input={"parameters": {"p": {"float": "1"}}}), "c:2: request.inputs.0.parameters.p."),
    ],
)
def test_what_is_no_cassette_is_refused_with_line_and_reason(tmp_path: Path, text: str, problem: str) -> None:
    path = tmp_path / "c"
    path.write_text(text)
    with pytest.raises(CassetteError) as raised:
        list(read(path))
    assert f"{tmp_path}/{problem}" in str(raised.value)


def test_a_line_that_is_too_long_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gateway.tools.cassettes.files.LONGEST_LINE", 1000)
    path = tmp_path / "c"
    path.write_text(HEADER + "x" * 1001 + "\n")
    with pytest.raises(CassetteError, match="c:2: the line is longer than 1000 bytes"):
        list(read(path))


def test_members_that_a_later_gateway_adds_are_ignored() -> None:
    assert read_entry(changed(colour="red").encode()).request.model == "m"


def test_nothing_is_appended_to_another_file(tmp_path: Path) -> None:
    path = tmp_path / "c"
    path.write_text("precious\n")
    with pytest.raises(CassetteError, match="this is not a recording"):
        CassetteFile(path)
    assert path.read_text() == "precious\n"
