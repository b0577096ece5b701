"""The real kubemo client -> gateway -> the real Triton and UM-Bridge server; V2 and UM-Bridge clients -> gateway -> the
real kubemo server, which serves one connection at a time; and bytes that no real client sends."""

from __future__ import annotations

import base64
import math
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from struct import unpack
from typing import Any

import pytest

from tests.interop.client_scripts import run_steps
from tests.interop.exchanges import Addresses, Listen, get, listening, post
from tests.interop.kubemo_server import PING, PONG, connected, exchanged, start_kubemo
from tests.interop.processes import Triton
from tests.interop.real_clients import Step, doubles, infer, raw_of, tensor, tritonclient, tritonclient_grpc, umbridge

GIF = base64.b64encode(bytes.fromhex("47494638396101000100800000000000ffffff2c00000000010001000002024401003b")).decode()

# Each listener has a model: MIP's clients name none.
TO_REAL_SERVERS = """
listeners:
  - {{name: double, bind: "tcp://127.0.0.1:{double}", protocols: [mip], model: double}}
  - {{name: batched, bind: "tcp://127.0.0.1:{batched}", protocols: [mip], model: batched}}
  - {{name: single, bind: "tcp://127.0.0.1:{single}", protocols: [mip], model: single}}
  - {{name: upper, bind: "tcp://127.0.0.1:{upper}", protocols: [mip], model: upper}}
  - {{name: add_sub, bind: "tcp://127.0.0.1:{add_sub}", protocols: [mip], model: add_sub}}
  - {{name: identity_BYTES, bind: "tcp://127.0.0.1:{identity_BYTES}", protocols: [mip], model: identity_BYTES}}
  - {{name: identity_FP32, bind: "tcp://127.0.0.1:{identity_FP32}", protocols: [mip], model: identity_FP32}}
  - {{name: gone, bind: "tcp://127.0.0.1:{gone}", protocols: [mip], model: gone}}
  - {{name: unix, bind: "unix://{folder}/gateway.sock", protocols: [mip], model: double, limits: {{message: 100000}}}}
  - {{name: none, bind: "tcp://127.0.0.1:{none}", protocols: [mip], model: nothing}}
backends:
  science: {{protocol: umbridge, endpoints: ["{umbridge}"]}}
  triton: {{protocol: v2-rest, endpoints: ["{triton}"], flavor: triton}}
  nobody: {{protocol: mip, endpoints: ["unix://{folder}/nobody.sock"]}}
routes:
  - {{match: {{model: double}}, backend: science}}
  - {{match: {{model: gone}}, backend: nobody}}
  - {{match: {{model: "[!n]*"}}, backend: triton}}
"""


@dataclass
class Front:
    """A gateway in front of real servers; its MIP addresses by model."""

    addresses: Addresses
    unix: str

    def url(self, model: str) -> str:
        return f"tcp://{self.addresses[model]}"


@pytest.fixture(scope="module")
def front(listen: Listen, triton: Triton, umbridge_server: str, tmp_path_factory: pytest.TempPathFactory) -> Front:
    folder = tmp_path_factory.mktemp("mip")
    return Front(
        listen(TO_REAL_SERVERS, folder=folder, umbridge=umbridge_server, triton=triton.http),
        f"unix://{folder}/gateway.sock",
    )


def kubemo(url: str, *steps: Step) -> list[Any]:
    """Run the steps in the real kubemo client (see clients/kubemo_client.py)."""
    return run_steps("kubemo", "kubemo_client", url, steps)


def batch(*examples: list[Step]) -> Step:
    return {"op": "infer", "batch": list(examples)}


def json(*texts: str) -> list[Step]:
    return [{"json": text} for text in texts]


def refused(code: int) -> Step:
    return {"error": {"type": "InvocationError", "text": f"responded with error code: {code}"}}


@pytest.mark.parametrize("face", ["tcp", "unix"])
def test_the_client_in_front_of_umbridge(front: Front, face: str) -> None:
    url = front.url("double") if face == "tcp" else front.unix
    results = kubemo(
        url,
        {"op": "ping"},
        batch(json("[1, 2.5, -3]")),
        batch(json("[1, 2, 3]"), json("[4, 5, NaN]"), json("[Infinity, 0, -0.0]")),
        batch(json("[1, 2]")),
        batch(json("{}")),
        batch([{"text": "1"}]),
        {"op": "ping"},
    )
    assert results[0] is True
    assert results[1] == [[{"json": [2.0, 5.0, -6.0]}]]
    values = [example[0]["json"] for example in results[2]]
    assert values[0] == [2.0, 4.0, 6.0]
    assert values[1][:2] == [8.0, 10.0]
    assert math.isnan(values[1][2])
    assert values[2] == [math.inf, 0.0, 0.0]
    assert math.copysign(1, values[2][2]) == -1
    assert results[3:] == [refused(4), refused(4), refused(4), True]


def test_the_client_in_front_of_triton(front: Front) -> None:
    """A model with a batch dimension gets the batch; `add_sub` has none, and is called for each example."""
    for model in ("batched", "single"):
        [found, wrong] = kubemo(front.url(model), batch(json("[1, 2, 3]"), json("[0.5, 1e-9, 7]")), batch(json("[1]")))
        assert found == [[{"json": [2.0, 4.0, 6.0]}], [{"json": [1.0, 1.999999943436137e-09, 14.0]}]]
        assert wrong == refused(4)
    [found, few, floats] = kubemo(
        front.url("add_sub"),
        batch(json("[1, 2]", "[3, 4]"), json("[5, 6]", "[7, 8]")),
        batch(json("[1, 2]")),
        batch(json("[1.5, 2]", "[3, 4]")),
    )
    assert found == [[{"json": [4, 6]}, {"json": [-2, -2]}], [{"json": [12, 14]}, {"json": [-2, -2]}]]
    assert (few, floats) == (refused(4), refused(4))


def test_texts_images_and_arrays(front: Front) -> None:
    # the model knows ASCII only
    assert kubemo(front.url("upper"), batch([{"text": "kubemo é"}], [{"text": "x"}])) == [
        [[{"text": "KUBEMO é"}], [{"text": "X"}]]
    ]
    assert kubemo(front.url("upper"), batch(json('["a", "é"]'))) == [[[{"json": ["A", "é"]}]]]
    [image, label] = kubemo(front.url("identity_BYTES"), batch([{"image": GIF}]), batch(json('{"cat": 0.9}')))
    # Triton's model does not tell what its bytes are, and those of an image are no text
    assert image == refused(4)
    assert label == [[{"text": '{"cat": 0.9}'}]]
    array = {"npy": ["float32", [3], [0.5, 1.0, -2.25]]}
    assert kubemo(front.url("identity_FP32"), batch([array], [array])) == [[[array], [array]]]
    assert kubemo(front.url("single"), batch([array])) == [[[{"npy": ["float32", [3], [1.0, 2.0, -4.5]]}]]]


def test_errors_have_their_codes(front: Front) -> None:
    assert kubemo(front.url("none"), batch(json("[1]"))) == [refused(2)]
    assert kubemo(front.url("gone"), batch(json("[1]"))) == [refused(5)]
    [large, *_] = kubemo(front.unix, batch([{"text": "x" * 100_000}]))
    assert large == refused(3)


def test_many_clients_at_once(front: Front) -> None:
    clients = [[batch(json(f"[{client}, {step}, 0]")) for step in range(4)] for client in range(16)]
    [found] = kubemo(front.unix, {"op": "parallel", "clients": clients})
    expected = [[[[{"json": [2.0 * client, 2.0 * step, 0.0]}]] for step in range(4)] for client in range(16)]
    assert found == expected


# Bytes that no real client sends

ONE = bytes.fromhex("0002000000000015 01000001 00000002 00000009") + b"[1, 2, 3]"
REPLY = bytes.fromhex("0002010000000019 01010001 00000002 0000000d") + b"[2.0,4.0,6.0]"


def told(answer: bytes) -> tuple[int, str]:
    """The code and the text of an error, which is all that came."""
    assert answer[:2] == b"\0\0"
    assert int.from_bytes(answer[4:8], "big") == len(answer) - 8
    return answer[2], answer[8:].decode()


@pytest.mark.parametrize(
    ("sent", "code", "why"),
    [
        (bytes.fromhex("0901000000000000"), 0, "MIP version 9, expected 0"),
        (b"GET / HTTP/1.1\r\n\r\n", 0, "MIP version 71, expected 0"),
        (bytes.fromhex("0001010000000000"), 1, "subtype 1 is not a request"),
        (bytes.fromhex("0009010000000000"), 1, "subtype 1 is not a request"),
        (bytes.fromhex("0009000000000000"), 2, "kind 9 is not supported"),
        (bytes.fromhex("00020000ffffffff"), 3, "a message of 4294967295 bytes is larger than limits.message, 100000"),
        (ONE[:5], 4, "the connection ended in a message, after 5 of the 8 bytes of its header"),
        (ONE[:-1], 4, "after 20 of the 21 bytes that its header announces"),
        (ONE[:19] + b"\xff" + ONE[20:], 4, "TLV 0 has 255 bytes, but its packet has only 9 more"),
        (ONE[:11] + b"\x00" + ONE[12:], 4, "the batch is empty"),
        (ONE[:-1] + b"}", 4, "input 0 of example 0"),
    ],
)
def test_bad_input_is_answered_in_the_protocols_own_form(front: Front, sent: bytes, code: int, why: str) -> None:
    found = told(exchanged(front.unix, sent, end=True))
    assert found[0] == code
    assert why in found[1]
    with connected(front.unix) as connection:  # not half-closed: who is gone is not waited for, and backends are asked
        connection.sendall(PING)
        assert connection.recv(len(PONG)) == PONG


def test_a_wrong_shape_is_answered_when_the_model_was_asked_for_its_tensors_again(front: Front) -> None:
    with connected(front.unix) as connection:
        connection.sendall(ONE[:15] + b"\x09" + ONE[16:])
        answer = connection.recv(65536)
        while len(answer) < 8 + int.from_bytes(answer[4:8], "big"):
            answer += connection.recv(65536)
    assert told(answer) == (4, "invalid-input: input 'input0' has shape [1], expected [-1, 3]")


def test_several_requests_on_one_connection(front: Front) -> None:
    with connected(front.url("double")) as connection:
        for request, reply in ((PING, PONG), (ONE, REPLY), (ONE + ONE + PING, REPLY + REPLY + PONG)):
            connection.sendall(request)
            answer = b""
            while len(answer) < len(reply):
                answer += connection.recv(65536)
            assert answer == reply


def test_an_open_connection_holds_nobody_up(front: Front) -> None:
    """It does in front of a real server."""
    with connected(front.unix) as idle, connected(front.unix) as slow:
        slow.sendall(ONE[:10])
        assert kubemo(front.unix, {"op": "ping"}) == [True]
        idle.sendall(PING)
        assert idle.recv(100) == PONG


# The real server behind other faces

BEHIND = """
listeners:
  - {{name: http, bind: "127.0.0.1:{http}", protocols: [v2-rest, umbridge]}}
  - {{name: grpc, bind: "127.0.0.1:{grpc}", protocols: [v2-grpc]}}
  - {{name: mip, bind: "tcp://127.0.0.1:{mip}", protocols: [mip], model: free}}
backends:
  lab: {{protocol: mip, endpoints: ["{url}"]}}
  whole: {{protocol: mip, endpoints: ["{url}"], batch: whole}}
  each: {{protocol: mip, endpoints: ["{url}"], batch: each}}
routes:
  - match: {{model: double}}
    backend: lab
    signature: &double
      inputs: [{{name: x, datatype: FP64, shape: [-1, 3]}}]
      outputs: [{{name: y, datatype: FP64, shape: [-1, 3]}}]
  - match: {{model: each}}
    backend: each
    signature: *double
  - match: {{model: whole}}
    backend: whole
    signature:
      inputs: [{{name: x, datatype: FP32, shape: [-1, -1]}}]
      outputs: [{{name: y, datatype: FP32, shape: [-1, -1]}}]
  - match: {{model: npy}}
    backend: lab
    signature:
      inputs: [{{name: x, datatype: UINT64, shape: [-1, 2], content_type: npy}}]
      outputs: [{{name: y, datatype: UINT64, shape: [-1, 2]}}]
  - match: {{model: image}}
    backend: lab
    signature:
      inputs: [{{name: file, datatype: BYTES, shape: [-1, 1], content_type: image}}]
      outputs: [{{name: file, datatype: BYTES, shape: [-1, 1]}}]
  - match: {{model: command}}
    backend: each
    signature:
      inputs: [{{name: what, datatype: BYTES, shape: [1], content_type: json}}]
      outputs: [{{name: y, datatype: BYTES, shape: [1]}}]
  - {{match: {{model: free}}, backend: lab}}
  - {{match: {{model: free_each}}, backend: each}}
"""


@pytest.fixture(scope="module", params=["tcp", "unix"])
def behind(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Addresses]:
    """A gateway in front of a server, whose address is of either kind."""
    folder = tmp_path_factory.mktemp("kubemo")
    with (
        start_kubemo(folder, unix=request.param == "unix") as server,
        listening(BEHIND, folder / "gateway", url=server.url) as addresses,
    ):
        yield addresses


def test_the_server_behind_v2(behind: Addresses) -> None:
    split, lone, each, whole, free, free_each, ready = tritonclient(
        behind["http"],
        "sync",
        infer("double", doubles("x", [2, 3], 1, 2, 3, 4, 5.5, math.inf)),
        infer("double", doubles("x", [3], 1, 2, 3)),
        infer("each", doubles("x", [2, 3], 1, 2, 3, 4, 5.5, 6)),
        infer("whole", tensor("x", "FP32", [1, 2], bytes.fromhex("cdcccc3d0000803f"))),
        infer("free", doubles("x", [2, 1], 1, 2.5)),
        infer("free_each", doubles("x", [2, 2], 1, 2.5, 3, 4)),
        {"op": "model_ready", "model": "double"},
    )
    assert raw_of(split) == doubles_of(2, 4, 6, 8, 11, math.inf)
    assert (lone["outputs"][0]["shape"], raw_of(lone)) == ([3], doubles_of(2, 4, 6))
    assert raw_of(each) == doubles_of(2, 4, 6, 8, 11, 12)
    assert (whole["outputs"][0]["shape"], raw_of(whole)) == ([1, 2], bytes.fromhex("cdcc4c3e00000040"))
    assert (free["outputs"][0]["name"], free["outputs"][0]["datatype"]) == ("output0", "FP64")
    assert raw_of(free) == doubles_of(2, 5)
    assert (free_each["outputs"][0]["shape"], raw_of(free_each)) == ([2, 2], doubles_of(2, 5, 6, 8))
    assert ready is True


def doubles_of(*numbers: float) -> bytes:
    return base64.b64decode(doubles("x", [], *numbers)["raw"])


def test_forms_that_the_signature_tells(behind: Addresses) -> None:
    big = (2**62).to_bytes(8, "little") + (2**62 + 1).to_bytes(8, "little")
    gif = base64.b64decode(GIF)
    npy, image, command = tritonclient(
        behind["http"],
        "sync",
        infer("npy", tensor("x", "UINT64", [1, 2], big)),
        infer("image", tensor("file", "BYTES", [1, 1], len(gif).to_bytes(4, "little") + gif)),
        infer("command", tensor("what", "BYTES", [1], b"\x15\0\0\0" + b'{"labels": {"cat": 1}}'[:21])),
    )
    assert raw_of(npy) == (2**63).to_bytes(8, "little") + (2**63 + 2).to_bytes(8, "little")
    assert raw_of(image)[4:] == gif
    assert "error" in command  # half a JSON text


@pytest.mark.parametrize(
    ("command", "status", "text"),
    [
        ('{"raise": "ValueError"}', 500, "the server answered with MIP error 5 (INTERNAL)"),
        ('{"raise": "MemoryError"}', 429, "the server answered with MIP error 3 (MEMORY)"),
        ('{"text": "fine"}', 200, "fine"),
        ('{"labels": {"cat": 0.5}}', 200, '{"cat": 0.5}'),
    ],
)
def test_what_the_server_answers(behind: Addresses, command: str, status: int, text: str) -> None:
    given = {"name": "what", "datatype": "BYTES", "shape": [1], "data": [command]}
    code, document = post(behind["http"], "/v2/models/command/infer", inputs=[given])
    assert code == status, document
    assert text in (document["error"] if status != 200 else document["outputs"][0]["data"][0])


def test_outputs_that_the_server_does_not_count_are_found(behind: Addresses) -> None:
    given = {"name": "x", "datatype": "BYTES", "shape": [1], "data": ['{"outputs": 2}']}
    assert kubemo(f"tcp://{behind['mip']}", batch(json('{"outputs": 2}'))) == [[[{"json": 0}, {"json": 1}]]]
    # two examples of it the real server cannot answer, and says so with its own word for a bad shape
    assert kubemo(f"tcp://{behind['mip']}", batch(json('{"outputs": 2}'), json('{"outputs": 2}'))) == [refused(4)]
    code, document = post(behind["http"], "/v2/models/free/infer", inputs=[given])
    assert code == 500 or document["outputs"]


def test_the_server_behind_umbridge(behind: Addresses) -> None:
    sizes, found, free, wrong = umbridge(
        f"http://{behind['http']}",
        {"op": "sizes", "model": "double"},
        {"op": "evaluate", "model": "double", "input": [[1, 2.5, 3]]},
        {"op": "evaluate", "model": "each", "input": [[1, 2.5, 3]]},
        {"op": "evaluate", "model": "double", "input": [[1, 2]]},
    )
    assert sizes == {"inputs": [3], "outputs": [3]}
    assert found == free == [[2.0, 5.0, 6.0]]
    assert "error" in wrong


def test_the_server_behind_the_gateway_for_its_own_client(behind: Addresses) -> None:
    steps = [
        {"op": "ping"},
        batch(json("[1, 2]"), json("[3, 4]")),
        batch([{"text": "kubemo é"}], [{"text": "x"}]),
        batch([{"image": GIF}]),
        batch([{"npy": ["float16", [2], [0.5, 1.5]]}]),
        batch(json('{"labels": {"cat": 0.9}}')),
    ]
    assert kubemo(f"tcp://{behind['mip']}", *steps) == [
        True,
        [[{"json": [2, 4]}], [{"json": [6, 8]}]],
        [[{"text": "KUBEMO É"}], [{"text": "X"}]],
        [[{"image": GIF}]],
        [[{"npy": ["float16", [2], [1.0, 3.0]]}]],
        [[{"json": {"cat": 0.9}}]],
    ]


def test_sixteen_clients_of_a_server_that_serves_one(behind: Addresses) -> None:
    """Nothing is lost, refused or reordered, and readiness is answered in between."""
    faces = [over_umbridge, over_rest, over_grpc, readiness]
    with ThreadPoolExecutor(16) as pool:
        found = list(pool.map(lambda client: faces[client % 4](behind, client), range(16)))
    for client, answers in enumerate(found):
        expected = [[2.0 * client, 2.0 * step, 1.0] for step in range(STEPS)]
        assert answers == (expected if client % 4 < 3 else [200] * STEPS)


STEPS = 6


def over_umbridge(behind: Addresses, client: int) -> list[Any]:
    points = ([client, step, 0.5] for step in range(STEPS))
    return [
        post(behind["http"], "/Evaluate", name="double", input=[each], config={})[1]["output"][0] for each in points
    ]


def over_rest(behind: Addresses, client: int) -> list[Any]:
    inputs = ({"name": "x", "datatype": "FP64", "shape": [1, 3], "data": [client, step, 0.5]} for step in range(STEPS))
    return [post(behind["http"], "/v2/models/double/infer", inputs=[each])[1]["outputs"][0]["data"] for each in inputs]


def over_grpc(behind: Addresses, client: int) -> list[Any]:
    steps = [infer("double", doubles("x", [1, 3], client, step, 0.5)) for step in range(STEPS)]
    return [list(unpack("<3d", raw_of(each))) for each in tritonclient_grpc(behind["grpc"], "sync", *steps)]


def readiness(behind: Addresses, client: int) -> list[Any]:
    return [get(behind["http"], "/v2/models/double/ready")[0] for _ in range(STEPS)]
