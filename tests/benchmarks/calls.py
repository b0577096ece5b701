"""`python -m tests.benchmarks.calls`: how many function calls a request takes in the gateway, for each pair.

A count does not depend on the machine, so that a test can hold it to the counts that are recorded in `calls.json`.
`--write` records today's, `--json` prints them alone. The counts depend on the version of Python: they are recorded for
one.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import socket
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

import grpc
import numpy as np
import uvloop

from gateway.cli.options import catalog
from gateway.config import loads
from gateway.core.datatypes import Datatype
from gateway.core.operations import Operation
from gateway.core.requests import Request, Response
from gateway.core.tensors import Tensor
from gateway.runtime.app import Gateway
from tests.benchmarks.contest.forms import UMBRIDGE, V2_GRPC_DOUBLES, V2_REST_DOUBLES, Form, Numbers, http, numbers
from tests.benchmarks.servers import own_address, reference_server
from tests.protocols.graphpipe.test_flatbuffers import request_of_the_package
from tests.protocols.graphpipe.wire import GRAPHPIPE as PROTOCOL
from tests.protocols.graphpipe.wire import TARGET, reply

RECORD = Path(__file__).with_name("calls.json")
SIZE = 10
WARM_UP, REQUESTS = 50, 50


def _graphpipe(address: str, model: str, given: Numbers) -> bytes:
    """In the order of the `flatbuffers` package, with which the real client writes it."""
    tensor = Tensor("", Datatype.FP64, (1, len(given)), given.tobytes())
    body = request_of_the_package((tensor,), [], "")
    return http(f"/graphpipe/{model}", address, body, content_type="application/octet-stream")


def _read_graphpipe(body: bytes) -> Numbers:
    response = PROTOCOL.decode_response(reply(body), Request(Operation.INFER), TARGET)
    assert isinstance(response, Response)
    [output] = response.outputs
    found: Numbers = output.array.reshape(-1)
    return found


GRAPHPIPE = Form("GraphPipe", _graphpipe, _read_graphpipe, doubles=True)
FORMS = {"v2-rest": V2_REST_DOUBLES, "v2-grpc": V2_GRPC_DOUBLES, "umbridge": UMBRIDGE, "graphpipe": GRAPHPIPE}
RECORDED = ("v2-rest", "v2-grpc", "umbridge")
PAIRS = (*((facing, behind) for facing in RECORDED for behind in RECORDED), ("graphpipe", "graphpipe"))
"""Those whose counts are recorded."""

CONFIG = """
listeners: [{{name: in, bind: "{address}", protocols: [{facing}]}}]
backends: {{server: {{protocol: {behind}, endpoints: ["{backend}"]}}}}
routes: [{{match: {{model: "*"}}, backend: server}}]
"""


@dataclass
class Counts:
    """Of the gateway's thread: calls of functions in Python, resumed coroutines included, and of those in C."""

    python: int = 0
    c: int = 0

    def count(self, _frame: object, event: str, _argument: object) -> None:
        """A profile function."""
        if event == "call":
            self.python += 1
        elif event == "c_call":
            self.c += 1


def measure() -> dict[str, dict[str, int]]:
    """The counts of one request of each pair, by the name of the pair.

    Raises:
        AssertionError: a reply has other numbers than were sent.
    """
    with tempfile.TemporaryDirectory() as folder, ExitStack() as stack:
        servers = {name: reference_server(name, Path(folder), stack).address for name in (*RECORDED, "graphpipe")}
        return {f"{facing} to {behind}": _pair(facing, behind, servers[behind]) for facing, behind in PAIRS}


def _pair(facing: str, behind: str, backend: str) -> dict[str, int]:
    """Counts the calls of a usual request."""
    address = own_address()
    config = CONFIG.format(address=address, facing=facing, behind=behind, backend=backend)
    form, found = FORMS[facing], Counts()
    given = numbers(SIZE, 0, doubles=True)
    request = form.write(address, f"vector_{SIZE}", given)
    with _gateway(config) as loop, _caller(form, address) as call:
        for _ in range(WARM_UP):
            assert np.array_equal(form.read(call(request)), given)
        _in_thread(loop, lambda: sys.setprofile(found.count))
        own = _usual(found, lambda: _in_thread(loop, _nothing))

        def exchange() -> None:
            call(request)
            # In the next turn of the loop the request is over, with what follows the reply.
            _in_thread(loop, _nothing)

        of_exchange = _usual(found, exchange)
        _in_thread(loop, lambda: sys.setprofile(None))
    return {"python": of_exchange.python - own.python, "c": of_exchange.c - own.c}


def _usual(found: Counts, action: Callable[[], object]) -> Counts:
    """Returns what one `action` adds to the counts: the lowest tenth, because few requests include what the gateway
    does now and then, and on a busy machine most requests can arrive in several pieces."""
    seen = []
    for _ in range(REQUESTS):
        before = found.python, found.c
        action()
        seen.append((found.python - before[0], found.c - before[1]))
    python, c = (sorted(each)[REQUESTS // 10] for each in zip(*seen, strict=True))
    return Counts(python, c)


def _nothing() -> None:
    """Called in a turn of the loop."""


def _in_thread(loop: asyncio.AbstractEventLoop, function: Callable[[], object]) -> None:
    """Call it in the loop's thread, and wait for it."""
    done = threading.Event()

    def run() -> None:
        function()
        done.set()

    loop.call_soon_threadsafe(run)
    assert done.wait(20)


@contextmanager
def _gateway(text: str) -> Iterator[asyncio.AbstractEventLoop]:
    """A gateway that runs in a thread of its own, as it does by itself: on uvloop."""
    loop = uvloop.new_event_loop()
    thread = threading.Thread(target=loop.run_forever)
    thread.start()
    try:
        gateway = asyncio.run_coroutine_threadsafe(_started(text), loop).result(20)
        yield loop
        asyncio.run_coroutine_threadsafe(gateway.drain(0), loop).result(20)
    finally:
        loop.call_soon_threadsafe(loop.stop)
        thread.join(20)
        loop.close()


async def _started(text: str) -> Gateway:
    gateway = Gateway(loads(text, "calls.yaml", catalog(), {}))
    await gateway.start()
    return gateway


@contextmanager
def _caller(form: Form, address: str) -> Iterator[Callable[[bytes], bytes]]:
    """What sends a request and gives the body of the reply, on one connection."""
    host, port = address.split(":")
    if form.method:
        with grpc.insecure_channel(address) as channel:
            method = channel.unary_unary(form.method)
            # Forms read a message with gRPC's prefix.
            yield lambda request: b"\0" * 5 + method(request, timeout=20)
        return
    with socket.create_connection((host, int(port)), 20) as connection, connection.makefile("rb") as replies:

        def call(request: bytes) -> bytes:
            connection.sendall(request)
            status = replies.readline()
            assert status.startswith(b"HTTP/1.1 200 "), status
            length = 0
            while (line := replies.readline()) != b"\r\n":
                name, _, value = line.partition(b":")
                if name.lower() == b"content-length":
                    length = int(value)
            return replies.read(length)

        yield call


def version() -> str:
    """Of Python, as the record names it."""
    return f"{sys.version_info.major}.{sys.version_info.minor}"


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.benchmarks.calls", description=__doc__)
    parser.add_argument("--write", action="store_true", help="record the counts")
    parser.add_argument("--json", action="store_true", help="print the counts as JSON")
    options = parser.parse_args()
    found = measure()
    if options.json:
        print(json.dumps(found))
        return
    recorded = json.loads(RECORD.read_text()) if RECORD.exists() else {"pairs": {}}
    for name, counts in found.items():
        was = recorded["pairs"].get(name, {})
        print(f"{name:24}{counts['python']:6} in Python, was {was.get('python', '-'):>5}; ", end="")
        print(f"{counts['c']:5} in C, was {was.get('c', '-'):>5}")
    if options.write:
        RECORD.write_text(json.dumps({"python": version(), "pairs": found}, indent=2) + "\n")


if __name__ == "__main__":
    main()
