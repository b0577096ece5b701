"""What one message costs: read in a process of its own, by the functions that read every message of the gateway."""

from __future__ import annotations

import asyncio
import gc
import json
import os
import resource
import sys
import time
import traceback
from collections.abc import AsyncGenerator
from pathlib import Path

from gateway.core import exchange
from gateway.core.errors import GatewayError, Reason, Status, TransportError
from gateway.core.frozen import frozen, replace
from gateway.core.messages import Message
from gateway.core.protocol import Limits, ListenerSettings
from gateway.core.requests import Answer, Request, Unread
from gateway.core.transport import Destination
from gateway.runtime.process import COLLECT_AFTER, SWITCH_INTERVAL
from gateway.transports.memory import set_allocator
from tests.attacks.observed import Ticker
from tests.attacks.readers.readers import Reader

MOST_MEMORY, MOST_SECONDS = 4 * 2**30, 60
"""What ends a process that reads a body, so that no other one suffers."""
_STATUS = Path("/proc/self/status")


@frozen
class Cost:
    """What a message took: bytes of memory beside its body, the longest stall of the loop and the processor's time, in
    seconds. `said` is what was answered."""

    memory: int
    stall: float
    seconds: float
    said: str


class _Sends:
    """A model server that gives one reply; without one it cannot be reached."""

    def __init__(self, reply: Message | None) -> None:
        self._reply = reply

    async def exchange(self, message: Message) -> Message:
        if self._reply is None:
            raise TransportError(Status.UNAVAILABLE, Reason.UNREACHABLE, "not there", sent=False)
        return self._reply

    def stream(self, message: Message) -> AsyncGenerator[Message, None]:
        raise NotImplementedError

    async def close(self) -> None:
        pass


def cost(reader: Reader, body: bytes, limits: Limits, *, unread: bool) -> Cost:
    """What `body` costs. `unread`: on a route between equal sides, on which messages may pass unread."""
    gc.freeze()
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            os.close(read)
            os.write(write, json.dumps(_measured(reader, body, limits, unread)).encode())
        except BaseException:
            traceback.print_exc()
        finally:
            os._exit(0)
    os.close(write)
    with open(read, "rb") as pipe:
        told = pipe.read()
    os.waitpid(child, 0)
    assert told, f"the reader of {reader.name} ended"
    return Cost(*json.loads(told))


def _measured(reader: Reader, body: bytes, limits: Limits, unread: bool) -> tuple[int, float, float, str]:
    resource.setrlimit(resource.RLIMIT_AS, (MOST_MEMORY, MOST_MEMORY))
    resource.setrlimit(resource.RLIMIT_CPU, (MOST_SECONDS, MOST_SECONDS))
    set_allocator()
    sys.setswitchinterval(SWITCH_INTERVAL)
    gc.enable()
    gc.set_threshold(COLLECT_AFTER, *gc.get_threshold()[1:])
    message = reader.with_body(body)
    return asyncio.run(_run(reader, message, limits, unread))


async def _run(reader: Reader, message: Message, limits: Limits, unread: bool) -> tuple[int, float, float, str]:
    work = _reply if reader.is_reply else _request
    before = _resident("VmRSS")
    _forget_peak()
    ticker = Ticker(asyncio.get_running_loop())
    await asyncio.sleep(0.02)
    ticker.restart()
    spent = time.process_time()
    said = await work(reader, message, limits, unread)
    spent = time.process_time() - spent
    await asyncio.sleep(0.02)
    return _resident("VmHWM") - before, ticker.stall, spent, said[:200]


def _forget_peak() -> None:
    Path("/proc/self/clear_refs").write_text("5")


def _resident(name: str) -> int:
    (line,) = (line for line in _STATUS.read_text().splitlines() if line.startswith(name))
    return int(line.split()[1]) * 1024


async def _request(reader: Reader, message: Message, limits: Limits, unread: bool) -> str:
    """A client's request: read, and written for a server of the same wire form."""
    protocol = reader.protocol
    target = replace(reader.dialect.target, limits=limits)
    relays = frozenset({protocol.name}) if unread else frozenset()
    listener = ListenerSettings("l", limits, "of the listener", relays=relays)
    sent = _Sends(None)

    async def ask(request: Request) -> Answer:
        return await exchange.ask(request, protocol, sent, target)

    destination = Destination(ask, relay=protocol.relay if unread else None)
    answering = exchange.answer(message, protocol, listener, lambda request: destination)
    reply = answering if isinstance(answering, Message) else await answering
    return f"{reply.status} {bytes(reply.body)[:150]!r}"


async def _reply(reader: Reader, message: Message, limits: Limits, unread: bool) -> str:
    """A server's reply: read, and written for a client of the same wire form."""
    protocol, request = reader.protocol, reader.request
    target = replace(reader.dialect.target, limits=limits)
    if unread:

        def read() -> Request:
            return request

        assert protocol.relay is not None
        head = protocol.relay.head(reader.message, ListenerSettings("l", limits, "of the listener"))
        if head is not None:
            passing = Unread(reader.message, head.found, read, protocol.encode_response)
            request = replace(request, unread=passing, origin=head.origin or request.origin)
    try:
        answer = await exchange.ask(request, protocol, _Sends(message), target)
    except GatewayError as error:
        return f"{error.reason} {error.message[:150]}"
    return type(answer).__name__
