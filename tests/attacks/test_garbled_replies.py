"""MIP and brpc servers send corrupted replies: no client gets the reply to another client, every call ends, and the
event loop is not blocked."""

from __future__ import annotations

import hashlib
import itertools
import json
import random
import re
import socket
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from gateway.assembly import registry
from gateway.core.errors import DecodeError
from gateway.core.messages import Message
from gateway.core.protobuf.schema import parse
from gateway.core.protocol import ListenerSettings
from gateway.core.requests import Response, Translate
from gateway.protocols.grps.brpc.frames import HEADER
from gateway.protocols.grps.schema import RpcMeta
from tests.attacks import hostile
from tests.attacks.attacked import attacked_by
from tests.attacks.clients import Http, at_once, infer
from tests.attacks.stalls import STALL, Figure

CLIENTS = 8
GOOD = 0.4
"""The fraction of correct replies."""
TAG = 24
"""Size of the value that identifies a request, in bytes."""


@dataclass(frozen=True)
class Form:
    """How a protocol's server takes requests, and what must be left alone in its replies: `may_send` says of a garbled
    one whether it is no answer to another request, in which nobody could see anything wrong."""

    protocol: str
    read: Callable[[socket.socket], bytes]
    header: int
    replies: int
    size: Callable[[bytes], int]
    """How long a reply says that it is."""
    may_send: Callable[[bytes, bytes], bool]


def brpc_id(frame: bytes) -> int | None:
    """The call that a frame answers; None where its meta cannot be read."""
    if len(frame) < HEADER.size:
        return None
    _, _, size = HEADER.unpack_from(frame)
    try:
        found: int = parse(RpcMeta, frame[HEADER.size : HEADER.size + size]).correlation_id
    except DecodeError:
        return None
    return found


def answers_no_other(garbled: bytes, reply: bytes) -> bool:
    """Of brpc: the gateway numbers its calls from 1, so that a high number is nobody's. Every frame that might begin
    within is looked at."""
    own = brpc_id(reply)
    for at in range(len(garbled)):
        if garbled.startswith(b"PRPC", at) and (found := brpc_id(garbled[at:])) not in (None, own):
            assert found is not None
            if found < 10**9:
                return False
    return True


FORMS = {
    "mip": Form("mip", hostile.mip_request, 8, 11_000, lambda reply: 8 + int.from_bytes(reply[4:8]), lambda *_: True),
    "brpc": Form(
        "grps-brpc", hostile.brpc_request, 12, 12_300, lambda reply: 12 + int.from_bytes(reply[4:8]), answers_no_other
    ),
}


def echo(form: Form, asked: bytes) -> bytes:
    """The reply of a server that gives back what it gets."""
    protocol = registry.protocols()[form.protocol]
    message = Message(parts=(asked[: form.header], asked[form.header :]))
    request = protocol.decode_request(message, ListenerSettings(model="hostile"))
    reply = protocol.encode_response(Response(request.inputs, request.model), request, Translate())
    return b"".join(map(bytes, reply.parts))


# --- garbling ---


def flipped(chance: random.Random, reply: bytes) -> bytes:
    found = bytearray(reply)
    for _ in range(chance.choice((1, 1, 2, 8))):
        found[chance.randrange(len(found))] ^= 1 << chance.randrange(8)
    return bytes(found)


def overwritten(chance: random.Random, reply: bytes) -> bytes:
    at = chance.randrange(len(reply))
    piece = chance.choice((b"\0", b"\xff", b"\x7f\xff\xff\xff", b"\0\0\0\0", b"\xff\xff\xff\xff", chance.randbytes(9)))
    return (reply[:at] + piece + reply[at + len(piece) :])[: max(len(reply), 1)]


def header_overwritten(chance: random.Random, reply: bytes) -> bytes:
    at = chance.randrange(12)
    return reply[:at] + chance.choice((b"\0", b"\1", b"\x7f", b"\xff", chance.randbytes(1))) + reply[at + 1 :]


def cut(chance: random.Random, reply: bytes) -> bytes:
    return reply[: chance.randrange(len(reply))]


def without(chance: random.Random, reply: bytes) -> bytes:
    at = chance.randrange(len(reply))
    return reply[:at] + reply[at + chance.randrange(1, 20) :]


def with_more(chance: random.Random, reply: bytes) -> bytes:
    at = chance.randrange(len(reply) + 1)
    return reply[:at] + chance.randbytes(chance.randrange(1, 40)) + reply[at:]


def repeated(chance: random.Random, reply: bytes) -> bytes:
    at = chance.randrange(len(reply))
    size = chance.randrange(1, 40)
    return reply[: at + size] + reply[at:]


def twice(chance: random.Random, reply: bytes) -> bytes:
    return reply + reply


def noise(chance: random.Random, reply: bytes) -> bytes:
    return chance.randbytes(chance.randrange(1, 2 * len(reply)))


GARBLES = (flipped, flipped, overwritten, header_overwritten, cut, without, with_more, repeated, twice, noise)


@dataclass
class Garbling:
    """Garbles some of a server's replies, the same ones in each run as far as threads go in the same order."""

    form: Form
    chance: random.Random = field(default_factory=lambda: random.Random(7))
    garbled: int = 0
    guard: threading.Lock = field(default_factory=threading.Lock)

    @property
    def is_done(self) -> bool:
        return self.garbled >= self.form.replies

    def script(self, connection: socket.socket) -> None:
        while True:
            reply = echo(self.form, self.form.read(connection))
            sent, closes = self._of(reply)
            connection.sendall(sent)
            if closes:
                return

    def _of(self, reply: bytes) -> tuple[bytes, bool]:
        """What is sent, and whether the connection is closed behind it: always if the gateway waits for more."""
        with self.guard:
            if self.chance.random() < GOOD:
                return reply, False
            self.garbled += 1
            while True:
                found = self.chance.choice(GARBLES)(self.chance, reply)
                if self.form.may_send(found, reply):
                    break
            is_short = len(found) < 12 or self.form.size(found) > len(found)
            return found, is_short or self.chance.random() < 0.5


def tag_of(number: int) -> bytes:
    return hashlib.sha256(number.to_bytes(8)).digest()[:TAG]


@pytest.mark.parametrize("name", FORMS)
def test_no_client_gets_the_reply_to_another(tmp_path: Path, works: str, name: str, figure: Figure) -> None:
    form = FORMS[name]
    server = Garbling(form)
    numbers = itertools.count(1)
    found: list[tuple[int, bytes]] = []
    more = "policies: [{timeout: {seconds: 5}}]"
    with attacked_by(server.script, form.protocol, tmp_path, works, more=more) as gateway:
        gateway.beside()
        gateway.look()

        def ask() -> None:
            with Http(gateway.address("http")) as connection:
                while not server.is_done:
                    number = next(numbers)
                    found.append((number, connection.call(infer("hostile", tag_of(number)))))

        at_once(CLIENTS, ask)
        seen, beside = gateway.look(), gateway.beside()
        assert "Traceback" not in gateway.log

    asked = next(numbers) - 1
    owners = {tag_of(number): number for number in range(1, asked + 1)}
    answered = [(number, value_of(reply)) for number, reply in found if b" 200 " in reply[:20]]
    late = sum(b" 504 " in reply[:20] for _, reply in found)
    wrong = [number for number, value in answered if owners.get(value, number) != number]
    figure(
        f"{server.garbled} garbled replies, {len(found)} calls: {len(answered)} answered, {late} timed out, "
        f"{len(wrong)} with another's; stall {1e3 * seen.stall:.0f} ms, longest beside {1e3 * beside.longest:.0f} ms"
    )
    assert not wrong
    assert len(found) == asked
    assert sum(value == tag_of(number) for number, value in answered) > asked // 50
    assert all(re.match(rb"HTTP/1.1 (200 |[45](?s:.)*\r\n\r\n\{\"error\":)", reply) for _, reply in found)
    assert not beside.failed
    assert seen.stall < STALL


def value_of(reply: bytes) -> bytes:
    """The tensor of a reply of V2 REST."""
    head, _, body = reply.partition(b"\r\n\r\n")
    for line in head.split(b"\r\n"):
        if line.lower().startswith(b"inference-header-content-length:"):
            return body[int(line.split(b":")[1]) :]
    (output,) = json.loads(body)["outputs"]
    return bytes(output["data"]) if output["datatype"] == "UINT8" else b""
