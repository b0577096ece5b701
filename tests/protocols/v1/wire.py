"""Recorded bytes of a real KServe and its client, as messages: tests/wire/v1-rest/record.py made them."""

from pathlib import Path

from gateway.core.messages import Headers, Message
from gateway.core.patterns import Match, PathTable, rows
from gateway.core.protocol import ListenerSettings, Protocol, Target
from gateway.protocols.v1 import PROTOCOLS
from gateway.protocols.v1.schema import KSERVE, TENSORFLOW

HERE = Path(__file__).parents[2] / "wire" / "v1-rest"
LISTENER = ListenerSettings("test")
[V1] = PROTOCOLS
FACES = V1.emulated_servers
TARGET = Target("lab", "lab:1", flavor=KSERVE)
TF_TARGET = Target("lab", "lab:1", flavor=TENSORFLOW)


def recorded(name: str) -> tuple[bytes, Headers, bytes]:
    """The first line, the headers in lower case, and the body of a recorded message."""
    head, _, body = (HERE / name).read_bytes().partition(b"\r\n\r\n")
    first, *lines = head.split(b"\r\n")
    pairs = [(key.lower(), text.strip()) for key, _, text in (line.partition(b":") for line in lines)]
    return first, Headers(pairs), body


def recorded_request(name: str, protocol: Protocol = V1) -> Message:
    """As decode_request gets it."""
    first, headers, body = recorded(f"{name}.request")
    method, path, _ = first.decode().split(" ")
    return received(Message(method, path, headers, (body,)), protocol)


def recorded_reply(name: str) -> Message:
    """As decode_response gets it."""
    first, headers, body = recorded(f"{name}.reply")
    return Message(headers=headers, parts=(body,), status=int(first.split(b" ")[1]))


def received(message: Message, protocol: Protocol = V1) -> Message:
    match = PathTable(rows([(protocol, "")], "", ())).match(message.method, message.path)
    assert isinstance(match, Match), match
    return Message(
        message.method, message.path, message.headers, message.parts, pattern=match.pattern, captures=match.captures
    )


def post(path: str, body: bytes, protocol: Protocol = V1) -> Message:
    """A client's POST, as decode_request gets it."""
    return received(Message("POST", path, parts=(body,)), protocol)
