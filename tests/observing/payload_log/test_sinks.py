"""The payload log as a file, and at a receiver."""

import asyncio
import json
from pathlib import Path

import pytest

from gateway.assembly.connecting import connect
from gateway.assembly.registry import protocols
from gateway.core.protocol import DEFAULT_LIMITS
from gateway.core.tasks import spawn
from gateway.observing.payload_log.events import Entry, EventForm
from gateway.observing.payload_log.sinks import ContentMode, EventReceiver, PayloadFile, PayloadReceiver
from tests.interop.processes import free_port
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


async def sent(
    url: str, *entries: Entry, mode: ContentMode = "binary", timeout: float = 30.0, form: EventForm = FORM,
    **headers: str,
) -> tuple[int, str]:  # fmt: skip
    """How many entries a receiver does not get, and why not."""
    origin = "/".join(url.split("/")[:3])
    connector = connect(origin, protocols()["v2-rest"], DEFAULT_LIMITS)
    receiver = PayloadReceiver(EventReceiver(url, headers, mode, timeout), connector, form)
    found = await receiver.send(entries)
    await receiver.close()
    return found


async def test_binary_has_attributes_in_headers() -> None:
    async with receiving() as receiver:
        assert await sent(receiver.url, REQUEST, authorization="Bearer hidden") == (0, "")
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
        await sent(receiver.url, REQUEST, form=EventForm("here", is_binary=True))
    [got] = receiver.requests
    assert got.headers["content-type"] == "application/octet-stream"
    length = int(got.headers["inference-header-content-length"])
    assert got.headers["ce-headerlength"] == str(length)
    assert len(got.body) == length + 8


async def test_structured_is_one_object_and_batch_a_list() -> None:
    async with receiving() as receiver:
        assert await sent(receiver.url, REQUEST, REPLY, mode="structured") == (0, "")
        assert await sent(receiver.url, REQUEST, REPLY, mode="batch") == (0, "")
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
        assert await sent(receiver.url, REQUEST, REPLY) == expected
    assert len(receiver.requests) == requests


async def test_a_receiver_that_closes_in_the_middle_does_not_get_the_event_twice() -> None:
    async with receiving(0) as receiver:
        lost, why = await sent(receiver.url, REQUEST)
    assert lost == 1
    assert "closed" in why
    assert len(receiver.requests) == 1


async def test_a_receiver_that_hangs_costs_the_time_of_one_request() -> None:
    async with receiving(None) as receiver:
        assert await sent(receiver.url, *[REQUEST] * 100, timeout=0.05) == (100, "no answer within 0.05 s")
    assert 1 <= len(receiver.requests) <= 8  # the rest was not tried


async def test_an_event_waits_for_a_receiver_that_comes_back() -> None:
    port = free_port()
    sending = spawn(sent(f"http://127.0.0.1:{port}/events", REQUEST))
    await asyncio.sleep(0)
    async with receiving(port=port) as receiver:
        assert await sending == (0, "")
    assert len(receiver.requests) == 1


async def test_a_receiver_that_is_away_is_told_with_the_reason() -> None:
    lost, why = await sent(f"http://127.0.0.1:{free_port()}/events", REQUEST, REPLY, timeout=0.1)
    assert lost == 2
    assert "refused" in why.lower()
