"""Asking servers for their pages, over real HTTP, and reading the reports in replies."""

import asyncio
import logging
from base64 import b64encode
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager

import pytest

from gateway.assembly.load_reading import page_at
from gateway.core.messages import Headers, Message
from gateway.core.operations import Operation
from gateway.core.protocol import Target
from gateway.core.requests import Request
from gateway.routing.backend import local_backend
from gateway.routing.endpoint import Endpoint
from gateway.routing.load.orca import PAUSE, LoadReports
from gateway.routing.load.pages import (
    MOST_BYTES,
    MOST_SECONDS,
    Asking,
    GaugePageMeter,
    LoadPages,
    PageMeter,
    TritonPageMeter,
)
from gateway.routing.load.prometheus import ANSWERED
from gateway.routing.load.reported import ReportedLoads
from tests.clock import Clock
from tests.limits import GENEROUS, settle, until
from tests.routing.fakes import TOY, Wire
from tests.routing.load.test_orca import MESSAGE
from tests.routing.load.test_triton import PAGE

GAUGE = b"# TYPE busy gauge\nbusy 7\n"


class Pages:
    """A server of pages: its next answers, and how often it was asked."""

    def __init__(self) -> None:
        self.reply = b""
        self.asked = 0
        self.gone = asyncio.Event()
        """Set when an asker has closed its connection."""

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while await reader.readuntil(b"\r\n\r\n"):
                self.asked += 1
                writer.write(self.reply)
                await writer.drain()
        except (asyncio.IncompleteReadError, ConnectionError):
            self.gone.set()
        finally:
            writer.close()

    def says(self, body: bytes, status: int = 200) -> None:
        self.reply = b"HTTP/1.1 %d X\r\ncontent-length: %d\r\n\r\n%b" % (status, len(body), body)


class Measured:
    """A backend of one endpoint whose load is known."""

    def __init__(self) -> None:
        self.clock = Clock(1000.0)
        self.wire = Wire()
        self.endpoint = Endpoint("127.0.0.1:8001", self.wire, self.clock)
        self.backend = local_backend(Target("lab"), TOY, [self.endpoint], 0)
        self.loads = ReportedLoads(5.0, self.clock)

    def load_now(self) -> float | None:
        """The load; a method, since it changes."""
        told = self.loads.now(self.endpoint)
        return None if told is None else told.load


class Lab(Measured):
    """Its page is asked for, round by round."""

    def __init__(self, url: str, meter: Callable[[], PageMeter], timeout: float) -> None:
        super().__init__()
        asking = Asking(lambda endpoint: page_at(url), meter, timeout=timeout)
        self.pages = LoadPages(self.backend, asking, self.loads, self.clock, lambda: 0.5)

    async def round(self, seconds: float = 1.0) -> None:
        """The next round, until it is over."""
        self.clock.now += seconds
        self.pages.round()
        await asyncio.gather(*self.pages.running, return_exceptions=True)


@asynccontextmanager
async def lab(
    meter: Callable[[], PageMeter] = lambda: GaugePageMeter("busy", {}, "calls"), timeout: float = 30.0
) -> AsyncGenerator[tuple[Lab, Pages], None]:
    pages = Pages()
    async with await asyncio.start_server(pages.serve, "127.0.0.1") as server:
        port = server.sockets[0].getsockname()[1]
        each = Lab(f"http://127.0.0.1:{port}/metrics?x=1", meter, timeout)
        try:
            yield each, pages
        finally:
            await each.pages.stop()
            await asyncio.wait_for(pages.gone.wait(), 30)


async def test_a_page_is_asked_for_once_in_an_interval() -> None:
    async with lab() as (each, pages):
        pages.says(GAUGE)
        await each.round()
        assert (each.load_now(), pages.asked) == (7.0, 1)
        await each.round(0.5)
        assert pages.asked == 1
        await each.round(0.6)
        assert pages.asked == 2


async def test_triton_tells_the_time_of_a_call() -> None:
    async with lab(TritonPageMeter) as (each, pages):
        pages.says(PAGE)
        await each.round()
        told = each.loads.now(each.endpoint)
        assert told is not None
        assert told.per_call == pytest.approx(0.04)
        assert each.load_now() == pytest.approx(0.04 * 5.75)


@pytest.mark.parametrize(
    ("reply", "text"),
    [
        (b"HTTP/1.1 404 X\r\ncontent-length: 0\r\n\r\n", "/metrics was answered with status 404"),
        (b"HTTP/1.1 200 X\r\ncontent-length: 2\r\n\r\nhi", "the page has no metric busy"),
        (b"HTTP/1.1 200 X\r\ncontent-length: %d\r\n\r\n" % (MOST_BYTES + 1), "limit"),
        (b"HTTP/1.1 200 X\r\ncontent-length: 9\r\n\r\nbusy oops", "a line of busy is malformed"),
        (b"\0" * 100, ""),
    ],
    ids=["404", "no metric", "huge", "malformed", "not HTTP"],
)
async def test_a_page_that_cannot_be_read_is_told_once_and_asked_for_less(
    reply: bytes, text: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    async with lab() as (each, pages):
        pages.reply = reply
        await each.round()
        assert each.load_now() is None
        (line,) = caplog.messages
        assert line.startswith("backend 'lab' at 127.0.0.1:8001: its load is unknown, its calls in flight count")
        assert text in line
        for _ in range(10):
            await each.round(1.1)
        assert pages.asked < 6
        await each.round(MOST_SECONDS)
        assert len(caplog.messages) == 1
        pages.says(GAUGE)
        await each.round(2 * MOST_SECONDS)
        assert each.load_now() == 7.0
        assert caplog.messages[1:] == ["backend 'lab' at 127.0.0.1:8001: its load is available again"]


async def test_a_page_that_never_comes_is_given_up(caplog: pytest.LogCaptureFixture) -> None:
    async with lab(timeout=0.01) as (each, _):
        await each.round()
        assert each.load_now() is None
        assert "no page within 0.01 s" in caplog.messages[0]
        assert each.endpoint.health.is_up


async def test_a_page_that_is_not_tritons_says_what_to_set(caplog: pytest.LogCaptureFixture) -> None:
    async with lab(TritonPageMeter) as (each, pages):
        pages.says(GAUGE)
        await each.round()
        assert each.load_now() is None
    assert f"the page has no metric {ANSWERED}, so it is not Triton's; set `load`" in caplog.messages[0]


async def test_an_endpoint_that_goes_while_it_is_asked_is_waited_for_no_longer() -> None:
    async with lab() as (each, pages):
        each.pages.round()
        await until(lambda: pages.asked)
        each.backend.remove(each.endpoint)
        each.clock.now += 1.0
        each.pages.round()
        await asyncio.wait_for(pages.gone.wait(), GENEROUS)
        assert each.load_now() is None


async def test_an_endpoint_that_has_gone_is_not_asked_and_its_connection_is_closed() -> None:
    async with lab() as (each, pages):
        pages.says(GAUGE)
        await each.round()
        each.backend.remove(each.endpoint)
        each.clock.now += 1.0
        each.pages.round()
        await asyncio.wait_for(pages.gone.wait(), 30)
        assert (each.load_now(), pages.asked) == (None, 1)


async def test_the_rounds_go_on_by_themselves() -> None:
    async with lab() as (each, pages):
        pages.says(GAUGE)
        each.pages.start()
        await until(lambda: each.load_now() is not None, 0)


class Reported(Measured):
    """Its replies are read."""

    def __init__(self) -> None:
        super().__init__()
        self.reports = LoadReports(self.backend.choice, "named_metrics.queue", "calls", self.loads, self.clock)

    async def call(self, headers: Headers, *, in_stream: bool = False) -> None:
        """A call that is answered with these headers."""
        stream = self.backend.stream(Request(Operation.INFER, "m"))
        asked = anext(stream) if in_stream else self.backend(Request(Operation.INFER, "m"))
        call = asyncio.ensure_future(asked)
        await settle()
        self.wire.open[-1].set_result(Message(status=200, headers=headers, parts=(b"x",)))
        await call
        await stream.aclose()


TEXT = Headers(((b"endpoint-load-metrics", b"TEXT named_metrics.queue=12"),))
JUNK = Headers(((b"endpoint-load-metrics", b"TEXT junk"),))


async def test_reports_in_replies_are_read_as_they_pass() -> None:
    lab = Reported()
    await lab.call(TEXT)
    assert lab.load_now() is None  # nobody reads yet
    lab.reports.start()
    await lab.call(TEXT)
    assert lab.load_now() == 12
    await lab.call(Headers(((b"endpoint-load-metrics-bin", b64encode(MESSAGE)),)))
    assert lab.load_now() == 4
    await lab.call(Headers(()))
    assert lab.load_now() == 4
    await lab.call(TEXT, in_stream=True)
    assert lab.load_now() == 12
    await lab.reports.stop()
    await lab.call(TEXT)
    assert lab.load_now() is None


async def test_a_malformed_report_is_told_once_and_the_answer_is_not_touched(caplog: pytest.LogCaptureFixture) -> None:
    lab = Reported()
    lab.reports.start()
    for _ in range(3):
        await lab.call(JUNK)
    await lab.call(TEXT)
    assert lab.load_now() is None
    lab.clock.now += PAUSE
    await lab.call(JUNK)
    assert len(caplog.messages) == 1
    lab.clock.now += PAUSE
    await lab.call(TEXT)
    assert lab.load_now() == 12


async def test_endpoints_that_come_later_are_read_and_those_that_leave_are_not() -> None:
    lab = Reported()
    lab.reports.start()
    await lab.call(TEXT)
    lab.backend.remove(lab.endpoint)
    assert lab.load_now() is None
    lab.backend.add(lab.endpoint)
    await lab.call(TEXT)
    assert lab.load_now() == 12
    lab.backend.add(Endpoint("127.0.0.1:8002", Wire(), lab.clock))
    assert lab.load_now() == 12  # the other one keeps its load
