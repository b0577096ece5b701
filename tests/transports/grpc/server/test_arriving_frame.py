"""Since when a frame arrives: reads of a connection, and what of them is an incomplete frame."""

from math import inf

import pytest

from gateway.transports.grpc.server.stalled import ArrivingFrame
from gateway.transports.timeouts import Timeouts
from tests.core.http2.by_hand import CONTINUATION, DATA, END_HEADERS, HEADERS, PING, frame

TIMES = Timeouts(head=20, body=30, rate=100)
BODY, HEAD = frame(DATA, 0, 1, bytes(1000)), frame(HEADERS, END_HEADERS, 1, bytes(1000))
OPEN_HEAD, MORE = frame(HEADERS, 0, 1, bytes(50)), frame(CONTINUATION, 0, 1, bytes(50))
BEAT = frame(PING, 0, 0, bytes(8))


def left(arriving: ArrivingFrame, now: float) -> float:
    return arriving.seconds_left(now, TIMES)


@pytest.mark.parametrize("rest", [b"\0", HEAD[:3], HEAD[:9], HEAD[:-1], BEAT[:-1]])
def test_a_frame_has_the_time_of_a_head_however_often_it_goes_on(rest: bytes) -> None:
    arriving = ArrivingFrame()
    arriving.note(rest, rest, None, 100)
    assert left(arriving, 100) == 20
    for now in range(101, 120):
        arriving.note(rest, rest, None, now)
    assert left(arriving, 120) == 0
    assert arriving.why_late(TIMES) == "a frame did not end within 20 s"
    arriving.note(HEAD, b"", None, 120)
    assert left(arriving, 120) == inf


def test_a_frame_of_data_has_the_time_of_a_message() -> None:
    arriving = ArrivingFrame()
    arriving.note(BODY[:400], BODY[:400], None, 100)
    assert left(arriving, 100) == 30 + 4
    assert arriving.why_late(TIMES) == "a DATA frame came at less than 100 bytes a second"
    arriving.note(BODY[:600], BODY[:600], None, 110)
    assert left(arriving, 110) == 20 + 6


def test_the_next_frame_has_a_time_of_its_own() -> None:
    arriving = ArrivingFrame()
    arriving.note(HEAD[:10], HEAD[:10], None, 100)
    for now in range(110, 200, 10):
        arriving.note(HEAD + HEAD[:10], HEAD[:10], None, now)
        assert left(arriving, now) == 20


def test_a_header_block_has_one_time_for_all_its_frames() -> None:
    arriving = ArrivingFrame()
    arriving.note(OPEN_HEAD[:20], OPEN_HEAD[:20], None, 100)
    arriving.note(OPEN_HEAD, b"", 110, 110)
    assert left(arriving, 110) == 10
    arriving.note(MORE + MORE[:20], MORE[:20], 110, 115)
    assert left(arriving, 115) == 5
    assert arriving.why_late(TIMES) == "a header block did not end within 20 s"
    arriving.note(MORE, b"", None, 116)
    assert left(arriving, 116) == inf


def test_a_block_that_begins_behind_other_frames_has_its_whole_time() -> None:
    arriving = ArrivingFrame()
    arriving.note(BODY[:20], BODY[:20], None, 100)
    arriving.note(BODY + OPEN_HEAD, b"", 119, 119)
    assert left(arriving, 119) == 20
    arriving.note(MORE + BODY + OPEN_HEAD, b"", 130, 130)  # another block
    assert left(arriving, 130) == 20


def test_the_time_in_which_nothing_was_read_does_not_count() -> None:
    arriving = ArrivingFrame()
    arriving.excuse(5)
    assert left(arriving, 0) == inf
    arriving.note(HEAD[:10], HEAD[:10], None, 100)
    arriving.excuse(15)
    assert left(arriving, 120) == 15
