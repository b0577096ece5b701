"""Access lines, and what clients must not be able to put into them."""

import json
from datetime import UTC, datetime

from gateway.core.errors import not_found
from gateway.core.record import Record
from gateway.observing.access_lines import coloured_lines, json_lines, text_lines, times
from tests import records

TIME = "2026-01-02T03:04:05.678Z"
ENDED = 100.3125
SINCE = datetime.fromisoformat(TIME).timestamp() - ENDED
"""The Unix time at which the clock of the records was 0."""


def record(model: str = "m", *, fails: bool = False) -> Record:
    told = records.made((), "id-1", "http", "v2-rest", "10.0.0.1:5", 100.0, 200)
    records.route(told, "route-0", "b", "h:1", "mip")
    told.operation, told.model, told.principal = "infer", model, "team"
    told.tries, told.queued, told.upstream = 2, 0.0015, 0.25
    if fails:
        told.failed(not_found("no such model"))
    told.end(404 if fails else 200, 300)
    told.received, told.ended = ENDED - 0.3, ENDED
    return told


def test_a_json_line_has_every_field() -> None:
    line = json_lines(records.batch(record()), SINCE)
    assert line.endswith(b"}\n")
    assert json.loads(line) == {
        "time": TIME, "log": "access", "id": "id-1", "client": "10.0.0.1:5", "principal": "team", "listener": "http",
        "in_protocol": "v2-rest", "out_protocol": "mip", "operation": "infer", "model": "m", "route": "route-0",
        "backend": "b", "endpoint": "h:1", "tries": 2, "status": "OK", "reason": "", "code": 200, "bytes_in": 200,
        "bytes_out": 300, "queue_ms": 1.5, "upstream_ms": 250.0, "total_ms": 300.0,
    }  # fmt: skip


def test_a_text_line_is_read_from_left_to_right() -> None:
    assert text_lines(records.batch(record()), SINCE).decode() == (
        f"{TIME} access OK 200 operation=infer model=m listener=http in=v2-rest route=route-0 backend=b out=mip "
        "endpoint=h:1 principal=team client=10.0.0.1:5 queue=1.5ms tries=2 upstream=250.0ms total=300.0ms "
        "bytes=200/300 id=id-1\n"
    )


def test_a_line_has_what_a_cache_did_where_one_was_asked() -> None:
    hit, miss, other = record(), record(), record()
    hit.cache, miss.cache = "hit", "miss"
    lines = json_lines(records.batch(hit, miss, other), SINCE).splitlines()
    assert [json.loads(each).get("cache", "no member") for each in lines] == ["hit", "miss", "no member"]
    texts = text_lines(records.batch(hit, miss, other), SINCE).splitlines()
    assert [b" cache=hit " in texts[0], b" cache=miss " in texts[1], b"cache" in texts[2]] == [True, True, False]


def test_a_text_line_leaves_out_what_is_not_known() -> None:
    told = records.made((), "id-1", "http", "v2-rest", "", 100.0, 0)
    told.failed(not_found("no such path"))
    told.end(404, 10)
    told.received = told.ended = ENDED
    assert text_lines(records.batch(told), SINCE).decode() == (
        f"{TIME} access NOT_FOUND 404 reason=model-not-found listener=http in=v2-rest client= total=0.0ms bytes=0/10 "
        "id=id-1\n"
    )


def test_colours_tell_success_from_failure() -> None:
    assert b"\x1b[32mOK\x1b[0m" in coloured_lines(records.batch(record()), SINCE)
    assert b"\x1b[31mNOT_FOUND\x1b[0m" in coloured_lines(records.batch(record(fails=True)), SINCE)


def test_a_model_that_a_client_named_cannot_forge_a_line_or_a_field() -> None:
    for name in ("a\nb", "a status=OK", '"', "\x1b[2J", "é", "\ud800", "x" * 5000):
        text, members = (
            text_lines(records.batch(record(name)), SINCE),
            json.loads(json_lines(records.batch(record(name)), SINCE)),
        )
        assert text.count(b"\n") == 1
        assert text.count(b" ") == text_lines(records.batch(record()), SINCE).count(b" ") + name.count(" ")
        assert b"\x1b" not in text
        assert len(text) < 700
        assert members["code"] == 200
        assert len(members["model"]) <= 256
    assert b"model='a status=OK'" in text_lines(records.batch(record("a status=OK")), SINCE)


def test_times_are_rfc_3339_with_milliseconds() -> None:
    ends = (0.25, 0.9994, 1.0, 1_700_000_000.25, 1_700_000_000.75, 1_700_000_001.0, 1_700_000_000.5)
    told = [record() for _ in ends]
    for each, seconds in zip(told, ends, strict=True):
        each.ended = seconds
    for text, seconds in zip(times(records.batch(*told), 0.0), ends, strict=True):
        read = datetime.fromisoformat(text)
        assert read.tzinfo is not None
        assert 0 <= (datetime.fromtimestamp(seconds, UTC) - read).total_seconds() < 0.001
