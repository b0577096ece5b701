"""What `gateway record` writes: requests of clients of every wire form at a running gateway."""

import asyncio
import json
import os
import threading
from pathlib import Path

import httpx
import numpy as np
import pytest

from gateway.assembly.registry import protocols
from gateway.client import AsyncClient, ClientError
from gateway.core.errors import GatewayError, Status
from gateway.core.frozen import replace
from gateway.core.operations import Operation
from gateway.core.requests import Response
from gateway.runtime.app import Gateway
from gateway.tools.cassettes.entries import Entry
from gateway.tools.cassettes.files import CassetteFile, read
from gateway.tools.cassettes.recorder import Bounds, Recorder
from tests.cli.commands import gateway as command
from tests.running_gateway import config_of
from tests.tools.cassettes.recording import FILE, WIRE_FORMS, at, configuration, entries, recorded

THETA = np.array([[0.5, -0.25]])
BODY = {"inputs": [{"name": "theta", "datatype": "FP64", "shape": [1, 2], "data": THETA.tolist()[0]}]}
PATH = "/v2/models/posterior/infer"


@pytest.mark.parametrize("protocol", WIRE_FORMS)
async def test_a_request_of_each_wire_form_is_recorded_with_its_reply(tmp_path: Path, protocol: str) -> None:
    async with recorded(tmp_path) as (gateway, recorder), AsyncClient(at(gateway, protocol)) as client:
        [output] = (await client.infer("posterior", THETA)).values()
    [entry] = entries(tmp_path)
    assert (entry.protocol, entry.listener, entry.route, entry.backend) == (protocol, protocol, "*", "models")
    assert (entry.request.operation, entry.request.model) == (Operation.INFER, "posterior")
    assert entry.request.inputs[0].array.reshape(-1).tolist() == THETA.reshape(-1).tolist()
    assert isinstance(entry.outcome, Response)
    assert entry.outcome.outputs[0].array.reshape(-1).tolist() == np.asarray(output).reshape(-1).tolist()
    assert entry.message.body
    assert entry.reply.body
    assert entry.seconds > 0
    assert recorder.recorded == 1


async def test_derivatives_and_errors_of_models_are_recorded_and_questions_and_streams_are_not(tmp_path: Path) -> None:
    async with recorded(tmp_path) as (gateway, _):
        async with AsyncClient(at(gateway, "umbridge")) as client:
            await client.gradient("posterior", [0.5, -0.25], sens=[1.0])
        async with AsyncClient(at(gateway, "v2-rest")) as client:
            await client.signature("posterior")
        async with http(gateway) as other:
            assert (await other.post(PATH.replace("posterior", "none"), json=BODY)).status_code == 404
        async with AsyncClient(at(gateway, "v2-grpc")) as client:
            assert [each async for each in client.stream("count", n=np.array([2], "i4"))]
    derivative, error = entries(tmp_path)
    assert derivative.request.operation is Operation.GRADIENT
    assert isinstance(error.outcome, GatewayError)
    assert error.outcome.status is Status.NOT_FOUND


async def test_answers_that_say_nothing_about_the_model_are_not_recorded(tmp_path: Path) -> None:
    text = configuration().partition("reference:")[0]  # nothing listens there
    async with recorded(tmp_path, text) as (gateway, _), AsyncClient(at(gateway, "graphpipe")) as client:
        with pytest.raises(ClientError):
            await client.infer("posterior", THETA)
    assert entries(tmp_path) == []


KEYS = """
auth: {keys: {file: "FILE"}}
permissions: {testing: [{operations: [infer, metadata]}]}
principals: {tester: {permissions: [testing]}}
"""


@pytest.mark.parametrize("protocol", ["v2-rest", "v2-grpc", "grps-brpc"])
async def test_no_credential_is_in_the_file(tmp_path: Path, protocol: str) -> None:
    made = command("keys", "add", "--file", str(tmp_path / "keys.yaml"), "--principal", "tester")
    assert made.exit_code == 0, made.output
    key = next(word for word in made.output.split() if word.startswith("gw_"))
    text = configuration(KEYS.replace("FILE", str(tmp_path / "keys.yaml")))
    text = text.replace(f"protocols: [{protocol}]", f"protocols: [{protocol}], auth: {{accept: [keys]}}")
    async with recorded(tmp_path, text) as (gateway, _):
        async with AsyncClient(at(gateway, protocol), key=key) as client:
            await client.infer("posterior", THETA)
        async with AsyncClient(at(gateway, protocol)) as client:
            with pytest.raises(ClientError, match=r"(?i)credential|key|token"):
                await client.infer("posterior", THETA)
    written = (tmp_path / FILE).read_bytes()
    [entry] = entries(tmp_path)  # without a key there is no request
    secret = key.encode()
    for text_of_it in (written, bytes(entry.message.body), bytes(entry.reply.body)):
        assert secret not in text_of_it
        assert secret[-12:] not in text_of_it
    assert b"authorization" not in written.lower()


async def test_other_headers_and_parameters_of_the_query_are_left_out(tmp_path: Path) -> None:
    async with recorded(tmp_path) as (gateway, _):
        url = (
            f"http://{gateway.state.listeners['grps-rest'].address}/grps/v1/infer/predict?model=posterior&token=s3cret"
        )
        tensor = {"name": "theta", "dtype": "DT_FLOAT64", "shape": [1, 2], "flat_float64": [0.5, -0.25]}
        headers = {"x-api-key": "s3cret", "cookie": "id=s3cret", "accept": "application/json"}
        async with httpx.AsyncClient() as client:
            reply = await client.post(url, json={"gtensors": {"tensors": [tensor]}}, headers=headers)
    assert reply.status_code == 200, reply.text
    [entry] = entries(tmp_path)
    assert entry.message.query == "model=posterior"
    assert {name for name, _ in entry.message.headers} == {"accept", "content-type"}
    assert b"s3cret" not in (tmp_path / FILE).read_bytes()


def http(gateway: Gateway) -> httpx.AsyncClient:
    return httpx.AsyncClient(base_url=f"http://{gateway.state.listeners['v2-rest'].address}")


async def infer(client: httpx.AsyncClient) -> None:
    reply = await client.post(PATH, json=BODY)
    assert reply.status_code == 200, reply.text


@pytest.mark.parametrize(
    ("bounds", "models"),
    [
        (Bounds(2, 2**30), ["posterior", "posterior"]),
        (Bounds(9, 1800), ["posterior"]),  # the second line would be beyond
        (Bounds(9, 2**30, ("dou*", "none")), []),
        (Bounds(9, 2**30, share=0.5), []),  # the numbers of the test are not below
        (Bounds(9, 2**30, share=0.51), ["posterior"] * 3),
    ],
    ids=["requests", "bytes", "models", "share", "larger-share"],
)
async def test_what_is_recorded_is_bounded_and_serving_goes_on(
    tmp_path: Path, bounds: Bounds, models: list[str]
) -> None:
    async with recorded(tmp_path, "", bounds) as (gateway, _), http(gateway) as client:
        for _ in range(3):
            await infer(client)
    assert [each.request.model for each in entries(tmp_path)] == models
    assert (tmp_path / FILE).stat().st_size <= bounds.size


class SlowFile(CassetteFile):
    """A file on a disk that is slow until `fast`."""

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        self.fast = threading.Event()

    def append(self, entry: Entry, most: int) -> bool:
        self.fast.wait()
        return super().append(entry, most)


@pytest.fixture
def entry() -> Entry:
    return next(each for _, each in read(Path(__file__).parent / "recordings/version-1.jsonl"))


def texts(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [each.message for each in caplog.records if each.name.startswith("gateway.tools.cassettes")]


UNWRITABLE = "left out a request: the file format cannot represent it"


@pytest.mark.parametrize(
    ("cause", "told"),
    [
        ("size", "left out a request: it has 368 bytes; the maximum is 10"),
        ("error", "left out a request: No space left on device"),
        ("", "the recorder failed"),
        (
            "form",
            "left out a request: the file format cannot represent it: str is not valid UTF-8: surrogates not allowed",
        ),
    ],
)
def test_an_entry_that_cannot_be_written_is_left_out_with_the_reason(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    entry: Entry,
    cause: str,
    told: str,
) -> None:
    file = CassetteFile(tmp_path / FILE)
    recorder = Recorder(file, Bounds(9, 2**30))
    protocol = protocols()[entry.protocol]
    if cause == "size":
        monkeypatch.setattr("gateway.tools.cassettes.recorder.LARGEST_ENTRY", 10)
    elif cause == "error":
        with open("/dev/full", "wb") as disk:
            os.dup2(disk.fileno(), file._file.fileno())
    elif not cause:
        file.close()
    else:
        entry = replace(entry, request=replace(entry.request, id="\ud800"))
    recorder.add(entry, protocol)
    recorder.close()
    assert (recorder.recorded, recorder.left_out) == (0, {cause: 1} if cause else {})
    assert texts(caplog) == [told]


def test_entries_are_left_out_while_the_file_is_slow_and_after_the_last(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, entry: Entry
) -> None:
    monkeypatch.setattr("gateway.tools.cassettes.recorder.MOST_WAITING", 10)
    caplog.set_level("INFO")
    file = SlowFile(tmp_path / FILE)
    recorder = Recorder(file, Bounds(1000, file.size + 1))
    protocol = protocols()[entry.protocol]
    for _ in range(2):
        recorder.add(entry, protocol)
    assert recorder.left_out == {"slow": 1}
    file.fast.set()
    recorder.close()
    assert recorder.left_out == {"slow": 1, "size of the file": 1}
    recorder.add(entry, protocol)
    assert texts(caplog) == ["left out a request: writing the file is too slow"]


async def test_a_request_that_does_not_fit_the_model_is_recorded_with_the_error(tmp_path: Path) -> None:
    wrong = {"inputs": [{**BODY["inputs"][0], "datatype": "INT64", "data": [1, 2]}]}
    async with recorded(tmp_path) as (gateway, _), http(gateway) as client:
        reply = await client.post(PATH, json=wrong)
    [entry] = entries(tmp_path)
    assert isinstance(entry.outcome, GatewayError)
    assert (reply.status_code, entry.outcome.status) == (400, Status.INVALID_ARGUMENT)
    assert reply.json()["error"] == entry.outcome.message


@pytest.mark.long
async def test_a_reload_goes_on_recording_and_a_second_run_appends(tmp_path: Path) -> None:
    for _ in range(2):
        text = configuration()
        async with recorded(tmp_path, text) as (gateway, _), http(gateway) as client:
            await infer(client)
            await gateway.reload(config_of(f"{text}drain: {{timeout: 3}}"))
            await infer(client)
    assert len(entries(tmp_path)) == 4


async def test_many_clients_at_once_are_all_recorded(tmp_path: Path) -> None:
    async with recorded(tmp_path) as (gateway, _), http(gateway) as client:
        await asyncio.gather(*(infer(client) for _ in range(50)))
    assert len(entries(tmp_path)) == 50


def test_the_file_is_its_owner_s_alone(tmp_path: Path) -> None:
    CassetteFile(tmp_path / FILE).close()
    assert (tmp_path / FILE).stat().st_mode & 0o777 == 0o600
    [head] = (tmp_path / FILE).read_text().splitlines()
    assert json.loads(head)["version"] == 1


def test_a_file_that_was_cut_in_its_first_line_begins_anew(tmp_path: Path) -> None:
    (tmp_path / FILE).write_text('{"format": "gateway-cassette", "version": 1}')
    CassetteFile(tmp_path / FILE).close()
    [head] = (tmp_path / FILE).read_text().splitlines()
    assert json.loads(head)["made_by"].startswith("modelglot ")
