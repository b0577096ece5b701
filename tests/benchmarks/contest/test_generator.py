"""The load generator charges a server for the time in which it stood still, and counts no reply that is not right."""

import asyncio
from pathlib import Path

import pytest

from tests.benchmarks.contest.conftest import Serve
from tests.benchmarks.contest.echo import Grpc, Rest
from tests.benchmarks.contest.forms import V2_GRPC, V2_REST, Form, numbers
from tests.benchmarks.contest.generator import Load, LoadError, Run

PAUSE = 0.3


class Slow(Rest):
    """Stands still once, with its loop, in its 50th request."""

    requests = 0

    def data_received(self, data: bytes) -> None:
        Slow.requests += 1
        if Slow.requests == 50:
            asyncio.get_running_loop().call_later(PAUSE, super().data_received, data)
        else:
            super().data_received(data)


def written(form: Form, folder: Path) -> list[str]:
    files = []
    for seed in range(3):
        file = folder / str(seed)
        file.write_bytes(form.write("127.0.0.1:1", "vector_10", numbers(10, seed)))
        files.append(str(file))
    return files


@pytest.mark.parametrize(("form", "protocol"), [(V2_REST, Rest), (V2_GRPC, Grpc)])
async def test_it_has_all_replies(form: Form, protocol: type[Rest] | type[Grpc], tmp_path: Path, serve: Serve) -> None:
    address = await serve(protocol)
    reply = tmp_path / "reply"
    run = Run(Load(address, written(form, tmp_path), 1, 0.05, form.method, warm_up=1, reply=str(reply)))
    await run.prepare()
    result = await run.measure()
    run.close()
    assert result.answered > 0
    assert list(form.read(reply.read_bytes())) == list(numbers(10, 0))


async def test_requests_that_were_due_while_the_server_stood_still_waited(tmp_path: Path, serve: Serve) -> None:
    """One connection: all that is due meanwhile waits for it. A generator that sends the next request after the reply
    would see one slow request of hundreds."""
    Slow.requests = 0
    address = await serve(Slow)
    run = Run(Load(address, written(V2_REST, tmp_path), 1, 1.0, rate=300.0))
    await run.prepare()
    result = await run.measure()
    run.close()
    assert result.latencies["max"] >= 1e6 * PAUSE * 0.9
    assert result.latencies["p99"] >= 1e6 * PAUSE / 2
    assert result.peak_waiting > 10


async def test_an_error_is_no_reply(tmp_path: Path, serve: Serve) -> None:
    class Failing(Rest):
        def data_received(self, data: bytes) -> None:
            self.transport.write(b"HTTP/1.1 503 Service Unavailable\r\nContent-Length: 0\r\n\r\n")

    address = await serve(Failing)
    run = Run(Load(address, written(V2_REST, tmp_path), 1, 1.0))
    with pytest.raises(LoadError, match="503"):
        await run.prepare()
    run.close()
