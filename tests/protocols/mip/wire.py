"""Messages of the tests: those recorded from the real client and server, and short ones written by hand."""

from pathlib import Path
from struct import pack
from typing import Any

import numpy as np

from gateway.core.datatypes import Datatype
from gateway.core.frozen import replace
from gateway.core.messages import Message
from gateway.core.operations import Operation
from gateway.core.protocol import ListenerSettings, Target
from gateway.core.requests import Request, Response
from gateway.core.tensors import Tensor, tensor
from gateway.protocols.mip import PROTOCOLS

MIP = PROTOCOLS[0]
RECORDED = Path(__file__).parents[2] / "wire" / "mip"
LISTENER = ListenerSettings("vision", model="classifier")
SPLIT = Target("lab", "127.0.0.1:9100", batch="split")
WHOLE = Target("lab", "127.0.0.1:9100", batch="whole")


def received(data: bytes) -> Message:
    """A packet as the TCP transport passes it on: in two parts."""
    assert int.from_bytes(data[4:8], "big") == len(data) - 8
    return Message(parts=(data[:8], data[8:]))


def of_hex(text: str) -> Message:
    """A packet written by hand."""
    return received(bytes.fromhex(text))


def recorded(name: str) -> Message:
    return received((RECORDED / name).read_bytes())


def sent(message: Message) -> bytes:
    return b"".join(message.parts)


def tlv(form: int, content: bytes) -> bytes:
    return pack("!2L", form, len(content)) + content


def inference(inputs: int, batch: int, *tlvs: bytes, outputs: int = 0, subtype: int = 0) -> Message:
    """An inference of these counts and TLVs."""
    payload = pack("!2BH", inputs, outputs, batch) + b"".join(tlvs)
    return received(pack("!4BL", 0, 2, subtype, 0, len(payload)) + payload)


def json(*texts: str) -> list[bytes]:
    return [tlv(2, text.encode()) for text in texts]


def named(name: str, values: Any, datatype: Datatype = Datatype.FP64, content_type: str = "") -> Tensor:
    return replace(tensor(name, np.array(values, datatype.dtype), datatype), content_type=content_type)


def asked(*inputs: Tensor) -> Request:
    return Request(Operation.INFER, inputs=inputs)


def decoded(message: Message) -> tuple[Tensor, ...]:
    """The inputs of a request."""
    return MIP.decode_request(message, LISTENER).inputs


def replied(message: Message, *inputs: Tensor, target: Target = SPLIT) -> tuple[Tensor, ...]:
    """The outputs of a reply to these inputs."""
    answer = MIP.decode_response(message, asked(*inputs), target)
    assert isinstance(answer, Response)
    return answer.outputs


def shown(tensors: tuple[Tensor, ...]) -> list[tuple[str, list[int], Any]]:
    """Datatype (`~` where it is only that of the literals), shape and flat values of each."""
    return [
        (each.datatype.value + "~" * each.untyped, list(each.shape), each.array.reshape(-1).tolist())
        for each in tensors
    ]
