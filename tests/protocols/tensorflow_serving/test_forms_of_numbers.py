"""Numbers in typed lists stay in lists, and those in `tensor_content` stay there, when the gateway reads a message."""

import pytest

from gateway.core.messages import Message
from tests.protocols.tensorflow_serving.wire import google
from tests.wires import Wires, replying

PREDICT = "/tensorflow.serving.PredictionService/Predict"
CONFIG = """
listeners: [{name: in, bind: "127.0.0.1:0", protocols: [tfs-grpc, v2-grpc]}]
backends: {lab: {protocol: tfs-grpc, endpoints: ["lab:1"]}}
routes: [{match: {model: "*"}, backend: lab, check: full}]
"""
RAW, LISTS, TEXTS = b"\0\0\x80?\0\0\0@", [1.0, 2.0], [b"a", b"b"]
TENSORS = {
    "raw": {"dtype": 1, "tensor_content": RAW},
    "typed": {"dtype": 1, "float_val": LISTS},
    "texts": {"dtype": 7, "string_val": TEXTS},
}


def message(kind: str, member: str, *forms: str) -> bytes:
    whole = google(f"tensorflow.serving.{kind}")()
    whole.model_spec.name = "m"
    for form in forms:
        tensor = getattr(whole, member)[f"x{form}"]
        given = google("tensorflow.TensorProto")(**TENSORS[form])
        given.tensor_shape.dim.add(size=2)
        tensor.CopyFrom(given)
    return bytes(whole.SerializeToString())


def forms(body: bytes, kind: str, member: str) -> dict[str, str]:
    """How each tensor of a message is sent."""
    tensors = getattr(google(f"tensorflow.serving.{kind}").FromString(body), member)
    fields = {name: [field.name for field, _ in each.ListFields()] for name, each in tensors.items()}
    names = {"tensor_content": "raw", "float_val": "typed", "string_val": "texts"}
    return {name[1:]: names[found[-1]] for name, found in fields.items()}


CASES = [
    (("raw",), ("typed",)),
    (("raw",), ("raw",)),
    (("typed",), ("typed",)),
    (("typed",), ("raw",)),
    (("typed", "texts"), ("raw", "texts")),
    (("raw", "texts"), ("typed", "texts")),
]


@pytest.mark.parametrize(("asked", "told"), CASES)
async def test_each_message_keeps_its_form(asked: tuple[str, ...], told: tuple[str, ...]) -> None:
    wires = Wires(CONFIG, lab=replying(message("PredictResponse", "outputs", *told), status=0))
    body = message("PredictRequest", "inputs", *asked)
    reply = await wires.send("tfs-grpc", Message(path=PREDICT, parts=(body,)))
    [sent] = wires.sent["lab"]
    assert forms(bytes(sent.body), "PredictRequest", "inputs") == {each: each for each in asked}
    assert forms(bytes(reply.body), "PredictResponse", "outputs") == {each: each for each in told}


async def test_a_message_with_both_has_the_usual_form() -> None:
    wires = Wires(CONFIG, lab=replying(message("PredictResponse", "outputs", "raw", "typed"), status=0))
    body = message("PredictRequest", "inputs", "raw", "typed")
    reply = await wires.send("tfs-grpc", Message(path=PREDICT, parts=(body,)))
    assert set(forms(bytes(wires.sent["lab"][0].body), "PredictRequest", "inputs").values()) == {"raw"}
    assert set(forms(bytes(reply.body), "PredictResponse", "outputs").values()) == {"typed"}
