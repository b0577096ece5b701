"""MIP: what the text says, and what kubemo's client and server send."""

import json
from typing import Any

import pytest

from gateway.core.messages import Message
from gateway.reference import signature
from gateway.reference.callables import from_callable
from gateway.reference.loading import find
from tests.wires import Wires, reference, replying

CONFIG = """
listeners:
  - {name: vision, bind: "tcp://127.0.0.1:0", protocols: [mip], model: m}
  - {name: http, bind: "127.0.0.1:0", protocols: [v2-rest]}
backends: {lab: {protocol: PROTOCOL, endpoints: ["ENDPOINT"]}}
routes: [{match: {model: "*"}, backend: lab, rewrite: {model: MODEL}}]
"""


def config(protocol: str, model: str = "m") -> str:
    endpoint = "tcp://lab:1" if protocol == "mip" else "lab:1"
    return CONFIG.replace("PROTOCOL", protocol).replace("ENDPOINT", endpoint).replace("MODEL", model)


def packet(text: str) -> bytes:
    return bytes.fromhex(text)


ONE = packet("00 02 00 00 00000012  01 00 0001  00000002 00000006 5b312c20325d")
"""An inference of `[1, 2]`."""
ITS_REPLY = packet("00 02 01 00 00000016  01 01 0001  00000002 0000000a 5b322e302c20342e305d")


async def ask(wires: Wires, data: bytes) -> bytes:
    reply = await wires.send("mip", Message(parts=(data,)))
    return b"".join(map(bytes, reply.parts))


@signature(inputs=[("x", "FP64", [-1, 2])], outputs=[("y", "FP64", [-1, 2])])
def hungry(x: Any) -> Any:
    raise MemoryError("cannot allocate 1 TiB")


async def test_a_models_memory_error_is_error_memory() -> None:
    reply = await reference("mip", from_callable("hungry", hungry))(Message(parts=(ONE,)))
    assert bytes(reply.parts[0])[:4] == packet("00 00 03 00")


@pytest.mark.parametrize("protocol", ["mip", "v2-rest", "v2-grpc", "umbridge", "graphpipe", "grps-rest"])
async def test_so_it_is_through_the_gateway(protocol: str) -> None:
    flavored = "v2-rest, flavor: binary" if protocol == "v2-rest" else protocol
    text = config(flavored, "hungry").replace(
        "rewrite: {model: hungry}",
        """rewrite: {model: hungry}, signature: {
      inputs: [{name: x, datatype: FP64, shape: [-1, 2]}], outputs: [{name: y, datatype: FP64, shape: [-1, 2]}]}""",
    )
    wires = Wires(text, lab=reference(protocol, from_callable("hungry", hungry)))
    reply = await ask(wires, ONE)
    assert reply[:4] == packet("00 00 03 00")
    assert b"MemoryError: cannot allocate 1 TiB" in reply


@pytest.mark.parametrize("number", [0, 1, 2, 3, 4, 5, 9])
async def test_a_backends_error_keeps_its_number(number: int) -> None:
    wires = Wires(config("mip"), lab=replying(bytes([0, 0, number, 0]) + bytes(4)))
    assert (await ask(wires, ONE))[:4] == bytes([0, 0, number, 0])


STRINGS = packet("00 02 00 00 00000010  01 00 0001  00000002 00000004 22c3a922")
"""The JSON text of a string, "é"."""


@pytest.mark.parametrize("protocol", ["mip", "v2-rest", "grps-rest"])
async def test_strings_in_json_stay_json(protocol: str) -> None:
    flavored = "v2-rest, flavor: binary" if protocol == "v2-rest" else protocol
    wires = Wires(config(flavored, "identity"), lab=reference(protocol, find("identity")))
    reply = await ask(wires, STRINGS)
    assert reply == packet("00 02 01 00 00000010  01 01 0001  00000002 00000004 22c3a922")
    if protocol == "mip":
        assert b"".join(map(bytes, wires.sent["lab"][-1].parts)) == STRINGS


async def test_a_text_stays_a_text() -> None:
    text = packet("00 02 00 00 0000000e  01 00 0001  00000001 00000002 c3a9")
    wires = Wires(config("mip"), lab=reference("mip", find("identity")))
    assert (await ask(wires, text)) == packet("00 02 01 00 0000000e  01 01 0001  00000001 00000002 c3a9")


@pytest.mark.parametrize(("name", "status"), [("output0", 200), ("anything", 502)])
async def test_an_output_without_a_name_is_not_whatever_a_client_asks_for(name: str, status: int) -> None:
    wires = Wires(config("mip"), lab=replying(ITS_REPLY))
    x = {"name": "x", "datatype": "INT64", "shape": [1, 2], "data": [1, 2]}
    body = {"inputs": [x], "outputs": [{"name": name}]}
    reply = await wires.post("v2-rest", "/v2/models/m/infer", json.dumps(body).encode())
    assert reply.status == status
