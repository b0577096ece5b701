"""The payload log as a file, and at a receiver."""

import asyncio
import json
import socket
from pathlib import Path

import pytest

from gateway.assembly.connecting import connect
from gateway.assembly.registry import protocols
from gateway.core.protocol import DEFAULT_LIMITS
from gateway.core.tasks import spawn
from gateway.observing.payload_log.events import EventForm
from gateway.observing.payload_log.sinks import ContentMode, EventReceiver, PayloadFile, PayloadReceiver
from tests.observing.payload_log.logged import FAILED, FORM, REPLY, REQUEST
from tests.observing.payload_log.receiving import receiving


async def test_each_event_is_a_line_of_json(tmp_path: Path) -> None:
    path = tmp_path / "log"
    file = PayloadFile(str(path), FORM)
    assert await file.send([REQUEST, REPLY, FAILED]) == (0, "")
    await file.close()
    documents = [json.loads(line) for line in path.read_bytes().splitlines()]
    assert [each["type"].rpartition(".")[2] for each in documents] == ["request", "response", "response"]
    assert documents[0]["data"]["inputs"][0]["data"] == [1.0]
    assert path.stat().st_mode & 0o777 == 0o640


async def test_a_file_that_was_renamed_is_opened_again(tmp_path: Path) -> None:
    path = tmp_path / "log"
    file = PayloadFile(str(path), FORM)
    await file.send([REQUEST])
    path.rename(tmp_path / "log.1")
    await file.send([REQUEST])
    file.reopen()
    await file.send([REPLY])
    await file.close()
    assert [(tmp_path / name).read_bytes().count(b"\n") for name in ("log.1", "log")] == [2, 1]


async def test_a_disk_that_is_full_loses_entries() -> None:
    file = PayloadFile("/dev/full", FORM)
    assert await file.send([REQUEST, REPLY]) == (2, "/dev/full: No space left on device")
    await file.close()


async def test_a_file_that_cannot_be_opened_again_loses_entries_until_it_can_be(tmp_path: Path) -> None:
    folder = tmp_path / "folder"
    folder.mkdir()
    file = PayloadFile(str(folder / "log"), FORM)
    folder.rename(tmp_path / "gone")
    file.reopen()
    assert await file.send([REQUEST]) == (1, f"{folder}/log: No such file or directory")
    folder.mkdir()
    file.reopen()
    assert await file.send([REPLY]) == (0, "")
    await file.close()
    assert (folder / "log").read_bytes().count(b"\n") == 1


def test_a_file_that_cannot_be_opened_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        PayloadFile(str(tmp_path / "none" / "log"), FORM)


LONG = 30.0


def sink(
    url: str, mode: ContentMode = "binary", timeout: float = LONG, form: EventForm = FORM, **headers: str
) -> PayloadReceiver:
    origin = "/".join(url.split("/")[:3])
    connector = connect(origin, protocols()["v2-rest"], DEFAULT_LIMITS)
    return PayloadReceiver(EventReceiver(url, headers, mode, timeout), connector, form)


async def test_binary_has_attributes_in_headers() -> None:
    async with receiving() as receiver:
        sender = sink(receiver.url, authorization="Bearer hidden")
        assert await sender.send([REQUEST]) == (0, "")
        await sender.close()
    [got] = receiver.requests
    assert got.line == "POST /events?a=b HTTP/1.1"
    assert {name: got.headers[name] for name in ("content-type", "ce-id", "ce-type", "authorization")} == {
        "content-type": "application/json", "ce-id": "id1", "ce-type": "org.kubeflow.serving.inference.request",
        "authorization": "Bearer hidden",
    }  # fmt: skip
    assert json.loads(got.body) == {
        "id": "id1", "inputs": [{"name": "x", "shape": [1], "datatype": "FP64", "data": [1.0]}],
    }  # fmt: skip


async def test_binary_with_binary_tensors_says_where_they_begin() -> None:
    async with receiving() as receiver:
        sender = sink(receiver.url, form=EventForm("here", is_binary=True))
        await sender.send([REQUEST])
        await sender.close()
    [got] = receiver.requests
    assert got.headers["content-type"] == "application/octet-stream"
    length = int(got.headers["inference-header-content-length"])
    assert got.headers["ce-headerlength"] == str(length)
    assert len(got.body) == length + 8


async def test_structured_is_one_object_and_batch_a_list() -> None:
    async with receiving() as receiver:
        for mode in ("structured", "batch"):
            sender = sink(receiver.url, mode)
            assert await sender.send([REQUEST, REPLY]) == (0, "")
            await sender.close()
    assert [each.headers["content-type"] for each in receiver.requests] == [
        *["application/cloudevents+json"] * 2, "application/cloudevents-batch+json",
    ]  # fmt: skip
    assert [each["status"] for each in json.loads(receiver.requests[2].body) if "status" in each] == ["OK"]


@pytest.mark.parametrize(
    ("answers", "expected", "requests"),
    [
        ([202], (0, ""), 2),
        ([500], (2, "the receiver answered 500"), 2),
        ([500, 200], (1, "the receiver answered 500"), 2),
        ([307], (2, "the receiver answered 307"), 2),
        ([503, 429, 200], (0, ""), 4),
    ],
)
async def test_what_is_not_taken_is_lost_unless_it_may_be_sent_again(
    answers: list[int | None], expected: tuple[int, str], requests: int
) -> None:
    async with receiving(*answers) as receiver:
        sender = sink(receiver.url)
        assert await sender.send([REQUEST, REPLY]) == expected
        await sender.close()
    assert len(receiver.requests) == requests


async def test_a_receiver_that_closes_in_the_middle_does_not_get_the_event_twice() -> None:
    async with receiving(0) as receiver:
        sender = sink(receiver.url)
        lost, why = await sender.send([REQUEST])
        await sender.close()
    assert lost == 1
    assert "closed" in why
    assert len(receiver.requests) == 1


async def test_a_receiver_that_hangs_costs_the_time_of_one_request() -> None:
    async with receiving(None) as receiver:
        sender = sink(receiver.url, timeout=0.05)
        assert await sender.send([REQUEST] * 100) == (100, "no answer within 0.05 s")
        await sender.close()
    assert 1 <= len(receiver.requests) <= 8  # the rest was not tried


async def test_an_event_waits_for_a_receiver_that_comes_back() -> None:
    with socket.create_server(("127.0.0.1", 0)) as place:
        port = place.getsockname()[1]
    sender = sink(f"http://127.0.0.1:{port}/events")
    sending = spawn(sender.send([REQUEST]))
    await asyncio.sleep(0)
    async with receiving(port=port) as receiver:
        assert await sending == (0, "")
        await sender.close()
    assert len(receiver.requests) == 1


async def test_a_receiver_that_is_away_is_told_with_the_reason() -> None:
    with socket.create_server(("127.0.0.1", 0)) as place:
        port = place.getsockname()[1]
    sender = sink(f"http://127.0.0.1:{port}/events", timeout=0.1)
    lost, why = await sender.send([REQUEST, REPLY])
    await sender.close()
    assert lost == 2
    assert "refused" in why.lower()
