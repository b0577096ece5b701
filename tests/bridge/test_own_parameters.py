"""What only one protocol can say: it goes on between equal protocols, and is refused towards others."""

import json

import pytest

from gateway.assembly.registry import protocols
from tests.protocols.mip.wire import inference, sent, tlv
from tests.wires import Wires, cut, replying

CONFIG = """
listeners:
- {{name: mip, bind: "tcp://127.0.0.1:1", protocols: [mip], model: m}}
- {{name: http, bind: "127.0.0.1:2", protocols: [v2-rest]}}
backends:
  own: {{protocol: mip, endpoints: ["tcp://own:1"]}}
  other: {{protocol: v2-rest, endpoints: ["other:1"], flavor: plain}}
routes:
- {{match: {{protocol: mip}}, backend: {backend}, rewrite: {{model: m}}}}
- {{match: {{protocol: v2-rest}}, backend: own}}
"""
REGISTERED = [tlv(9, b"\0\xff"), tlv(9, b"")]
REPLY = inference(1, 2, tlv(0xABCDEF01, b"{"), tlv(0xABCDEF01, b"\x80"), outputs=1, subtype=1)


def own_server() -> Wires:
    parts = cut(protocols()["mip"], sent(REPLY))
    return Wires(CONFIG.format(backend="own"), own=replying(*parts), other=replying())


async def test_registered_tlvs_go_on_between_peers_of_mip() -> None:
    wires = own_server()
    asked = inference(1, 2, *REGISTERED)
    reply = await wires.send("mip", asked)
    assert [sent(each) for each in wires.sent["own"]] == [sent(asked)]
    assert sent(reply) == sent(REPLY)


async def test_registered_tlvs_are_refused_towards_other_protocols() -> None:
    metadata = replying(b'{"name": "m", "inputs": [], "outputs": []}')
    wires = Wires(CONFIG.format(backend="other"), own=replying(), other=metadata)
    reply = await wires.send("mip", inference(1, 2, *REGISTERED))
    assert b"input 'input0' has a registered TLV type, 9, which v2-rest cannot carry" in sent(reply)
    assert {each.method for each in wires.sent["other"]} == {"GET"}


async def test_a_reply_with_registered_tlvs_is_refused_to_clients_of_other_protocols() -> None:
    x = {"name": "x", "datatype": "FP64", "shape": [2, 1], "data": [1, 2]}
    reply = await own_server().post("v2-rest", "/v2/models/m/infer", json.dumps({"inputs": [x]}).encode())
    told = "backend 'own': output 0 has a registered TLV type, 2882400001, which v2-rest cannot carry"
    assert (reply.status, json.loads(bytes(reply.body))) == (502, {"error": told})


@pytest.mark.parametrize("value", [7, "text", 2**40])
@pytest.mark.parametrize("of_tensor", [True, False], ids=["of an input", "of the request"])
async def test_clients_of_other_protocols_cannot_name_such_a_parameter(value: object, of_tensor: bool) -> None:
    given = {"parameters": {"registered TLV type": value}}
    x = {"name": "x", "datatype": "BYTES", "shape": [2], "data": ["a", "b"], **(given if of_tensor else {})}
    wires = own_server()
    body = json.dumps({"inputs": [x], **({} if of_tensor else given)}).encode()
    reply = await wires.post("v2-rest", "/v2/models/m/infer", body)
    assert reply.status == 400
    assert b"registered TLV type" in bytes(reply.body)
    assert b"which v2-rest cannot carry" in bytes(reply.body)
    assert not wires.sent["own"]
