"""Tests what the gateway does with a member: it sends two messages that differ only in this member through a
gateway."""

from asyncio import get_running_loop
from collections.abc import Sequence
from typing import Any

from gateway.assembly.registry import protocols
from gateway.core.datatypes import Datatype
from gateway.core.errors import DecodeError, GatewayError
from gateway.core.exchange import decoded
from gateway.core.frozen import frozen, replace
from gateway.core.messages import Message
from gateway.core.operations import CALLS, Operation
from gateway.core.protocol import Protocol, StreamBinding, Target
from gateway.core.requests import Request
from gateway.reference import signature
from gateway.reference.callables import from_callable
from tests.contract.members.forms import MODEL, Values, written
from tests.contract.wire import LISTENER, arrived, or_error, returned
from tests.wires import Server, Wires, reference

CARRIED, REFUSED, LEFT_OUT = "carried", "refused", "left out"


@frozen
class Setting:
    """The model behind the gateway: the datatype and shape of its input, which are also those of its output, and
    whether the route sets its signature."""

    datatype: str = "FP32"
    shape: Sequence[int] = (-1, 2)
    signature: bool = True


class Between:
    """A gateway between clients of `front` and servers of `back`. The result for the message without the tested member
    is determined once for all its members."""

    def __init__(self, front: str, back: str) -> None:
        self._front, self._back = front, back
        self._plain: dict[tuple[str, Setting], object] = {}

    async def request_outcome(self, base: Values, variant: Values, setting: Setting) -> str:
        """Return what the gateway does with the difference between two client requests."""
        changed = await _asked(self._front, self._back, variant, setting)
        if not changed:
            return REFUSED
        key = repr(base), setting
        if key not in self._plain:
            self._plain[key] = await _asked(self._front, self._back, base, setting)
        assert self._plain[key], f"the example without the member is not sent to {self._back}"
        return LEFT_OUT if self._plain[key] == changed else CARRIED

    async def reply_outcome(self, question: Values, base: Values, variant: Values, setting: Setting) -> str:
        """Return what the gateway does with the difference between two server replies to `question`."""
        changed, failed = await _told(self._front, self._back, question, variant, setting)
        if failed:
            return REFUSED
        key = repr(base), setting
        if key not in self._plain:
            self._plain[key], _ = await _told(self._front, self._back, question, base, setting)
        return LEFT_OUT if self._plain[key] == changed else CARRIED


async def _asked(front: str, back: str, values: Values, setting: Setting) -> list[object]:
    """Return the inferences that the server receives for one request."""
    message = written(front, values, "request")
    if not _is_message(message, protocols()[front]):
        return []
    wires = Wires(_config(front, back, setting), lab=_model(back, setting))
    await wires.send(front, replace(message, received=get_running_loop().time()))
    return [_comparable(each) for each in wires.sent["lab"] if _is_call(each, protocols()[back])]


async def _told(front: str, back: str, question: Values, values: Values, setting: Setting) -> tuple[object, bool]:
    """Return the client's reply if the server sends this reply, and whether it is an error."""
    message = written(back, values, "reply")
    if not _is_message(message, protocols()[back]):
        return None, True
    wires = Wires(_config(front, back, setting), lab=_replying(back, setting, message))
    reply = await wires.send(front, replace(written(front, question, "request"), received=get_running_loop().time()))
    return _comparable(reply), _is_error(reply, protocols()[front])


def _config(front: str, back: str, setting: Setting) -> str:
    address = "tcp://127.0.0.1:0" if isinstance(protocols()[front].binding, StreamBinding) else "127.0.0.1:0"
    tensor = f"datatype: {setting.datatype}, shape: {[*setting.shape]}"
    known = f"    signature: {{inputs: [{{name: x, {tensor}}}], outputs: [{{name: y, {tensor}}}]}}"
    return f"""
listeners: [{{name: in, bind: "{address}", protocols: [{front}], model: {MODEL}}}]
backends: {{lab: {{protocol: {back}, endpoints: ["lab:1"]}}}}
routes:
  - match: {{model: "*"}}
    backend: lab
{known if setting.signature else ""}
"""


def _model(protocol: str, setting: Setting) -> Server:
    """A sample server whose model returns its input. One-point protocols have only numbers."""
    has_texts = Datatype.BYTES in protocols()[protocol].traits.wire.datatypes
    spec = (setting.datatype, setting.shape) if has_texts else ("FP64", (-1, 2))

    @signature(inputs=[("x", *spec)], outputs=[("y", *spec)])
    async def same(x: Any) -> Any:
        return x

    return reference(protocol, from_callable(MODEL, same))


def _replying(protocol: str, setting: Setting, reply: Message) -> Server:
    """A sample server that answers inferences with `reply`."""
    model = _model(protocol, setting)

    async def serve(message: Message) -> Message:
        return reply if _is_call(message, protocols()[protocol]) else await model(message)

    return serve


def _is_message(message: Message, protocol: Protocol) -> bool:
    """Return whether a transport delivers the message. A byte stream ends at an invalid header."""
    if not isinstance(protocol.binding, StreamBinding):
        return True
    framing = protocol.binding.framing
    try:
        return framing.size(b"".join(map(bytes, message.parts))[: framing.header_size]) >= 0
    except DecodeError:
        return False


def _is_call(message: Message, protocol: Protocol) -> bool:
    understood = or_error(lambda: decoded(arrived(message, protocol), protocol, LISTENER))
    return isinstance(understood, Request) and understood.operation in CALLS


def _comparable(message: Message) -> object:
    body = b"".join(map(bytes, message.parts))
    has_deadline = message.deadline is not None  # each transport sends it in its own way
    return message.path, message.query, list(message.headers), body, message.status, has_deadline


def _is_error(reply: Message, protocol: Protocol) -> bool:
    request = Request(Operation.INFER, MODEL)
    found = or_error(lambda: protocol.decode_response(returned(reply, protocol), request, Target()))
    return isinstance(found, GatewayError)
