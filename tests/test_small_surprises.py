"""What clients and servers do that no specification expects, and what they get for it."""

import json
from typing import Any

import pytest

from gateway.core.messages import Headers, Message
from gateway.protocols.v2.grpc.schema import ModelInferResponse
from tests.wires import Server, Wires, replying

JSON = ((b"content-type", b"application/json"),)


def config(protocol: str, route: str = "", more: str = "", backend: str = "") -> str:
    return f"""
listeners:
  - {{name: in, bind: "127.0.0.1:0", protocols: [v2-rest, umbridge]}}
  - {{name: forms, bind: "127.0.0.1:0", protocols: ["json:openai-embeddings"]}}
check: full
backends: {{lab: {{protocol: {protocol}, endpoints: ["lab:1"]{backend}}}}}
routes: [{{match: {{model: m}}, backend: lab{route}}}]
{more}
"""


def body(**members: Any) -> bytes:
    tensor = {"name": "x", "datatype": "FP64", "shape": [1, 2], "data": [1.0, 2.0]}
    return json.dumps({"inputs": [tensor], **members}).encode()


def replied(document: object) -> Server:
    return replying(json.dumps(document).encode(), headers=JSON)


async def infer(wires: Wires, request: bytes | None = None, *, inputs: Any = ()) -> tuple[int, Any]:
    """The reply to a request, or to one with these inputs."""
    request = request or json.dumps({"inputs": inputs}).encode()
    reply = await wires.post("v2-rest", "/v2/models/m/infer", request)
    return reply.status, json.loads(bytes(reply.body))


async def test_an_id_that_a_server_ends_at_its_first_nul() -> None:
    reply = ModelInferResponse(model_name="m", id="seven")
    lab = replying(reply.SerializeToString(), status=0)
    status, answer = await infer(Wires(config("v2-grpc", backend=", flavor: triton"), lab=lab), body(id="seven\0"))
    assert (status, answer["id"]) == (200, "seven\0")
    status, answer = await infer(Wires(config("v2-grpc", backend=", flavor: triton"), lab=lab), body(id="seve"))
    assert status == 502


async def test_b64_in_v2_is_told_what_v2_has() -> None:
    tensor = {"name": "x", "datatype": "BYTES", "shape": [1], "data": [{"b64": "AP8="}]}
    wires = Wires(config("v2-rest", backend=", flavor: triton"), lab=replied({}))
    status, answer = await infer(wires, inputs=[tensor])
    assert status == 400
    assert answer["error"].endswith("base64 texts with the parameter `content_type: base64` of the input")


@pytest.mark.parametrize(("protocol", "backend"), [("v2-rest", ", flavor: mlserver"), ("v1-rest", ", flavor: kserve")])
async def test_an_error_with_status_200(protocol: str, backend: str) -> None:
    async def lab(message: Message) -> Message:
        document = {"detail": "Not Found"} if message.method == "GET" else {"error": "the model is out of order"}
        status = 404 if message.method == "GET" else 200
        return Message(headers=Headers(JSON), parts=(json.dumps(document).encode(),), status=status)

    status, answer = await infer(Wires(config(protocol, backend=backend), lab=lab), body())
    assert (status, answer["error"]) == (500, "the model is out of order")


@pytest.mark.parametrize("given", [True, 7, "level: 1"])
async def test_a_config_that_is_no_json_object(given: object) -> None:
    status, answer = await infer(Wires(config("umbridge"), lab=replied({})), body(parameters={"config": given}))
    assert status == 400
    shown = {True: "true", 7: "7"}.get(given, repr(given))  # type: ignore[call-overload]
    assert answer["error"].startswith(f"parameter 'config' is {shown}, expected a text that is a JSON object")
    assert "byte" not in answer["error"]


# --- embeddings ---

REPLY: dict[str, Any] = {
    "object": "list",
    "model": "m",
    "data": [
        {"object": "embedding", "index": 1, "embedding": [3.0]},
        {"object": "embedding", "index": 0, "embedding": [1.0]},
    ],
    "usage": None,
    "service_tier": None,
}
BATCH = {"name": "x", "datatype": "BYTES", "shape": [2], "data": ["a", "b"]}


EMBEDDINGS = config("json", backend=", form: openai-embeddings")


async def test_embeddings_are_put_in_the_order_of_their_indices() -> None:
    wires = Wires(EMBEDDINGS, lab=replied(REPLY))
    status, answer = await infer(wires, inputs=[BATCH])
    assert (status, answer["outputs"][0]["data"]) == (200, [1.0, 3.0])


@pytest.mark.parametrize("indices", [(0, 0), (0, 2), (-1, 0)])
async def test_indices_that_are_no_order(indices: tuple[int, int]) -> None:
    rows = [{**row, "index": index} for row, index in zip(REPLY["data"], indices, strict=True)]
    wires = Wires(EMBEDDINGS, lab=replied({**REPLY, "data": rows}))
    status, answer = await infer(wires, inputs=[BATCH])
    assert status == 502
    assert "expected each from 0 on once" in answer["error"]


async def test_what_a_client_of_embeddings_leaves_out_may_be_null() -> None:
    wires = Wires(EMBEDDINGS, lab=replied({**REPLY, "data": REPLY["data"][1:]}))
    asked = {"model": "m", "input": "a", **dict.fromkeys(("encoding_format", "dimensions", "user", "service_tier"))}
    reply = await wires.post("json:openai-embeddings", "/v1/embeddings", json.dumps(asked).encode())
    assert json.loads(bytes(reply.body))["data"][0]["embedding"] == [1.0]
    asked["service_tier"] = "flex"
    reply = await wires.post("json:openai-embeddings", "/v1/embeddings", json.dumps(asked).encode())
    assert reply.status == 400


# --- rows ---

FORMS = """
forms:
  prices: {infer: {path: /p, request: {rows: $x}, response: {price: $y}}, tensors: {x: "FP64 [-1, 2]", y: "FP64 [-1]"}}
  undeclared: {infer: {path: /p, request: {rows: $x}, response: {price: $y}}}
  houses:
    infer: {path: /h, request: [{a: $a, b: $b}, "..."], response: {price: $y}}
    tensors: {a: "FP64 [-1]", b: "FP64 [-1]", y: "FP64 [-1]"}
  total: {infer: {path: /t, request: {x: $x}, response: {sum: $y}}, tensors: {x: "FP64 [-1]", y: "FP64 [-1]"}}
"""
VECTORS = FORMS.replace("FP64 [-1, 2]", "FP64 [-1]")
ROWS = {"name": "x", "datatype": "FP64", "shape": [2, 2], "data": [1.0, 2.0, 3.0, 4.0]}
COLUMNS = [{"name": name, "datatype": "FP64", "shape": [2], "data": [1.0, 2.0]} for name in "ab"]


@pytest.mark.parametrize(("form", "inputs"), [("prices", [ROWS]), ("houses", COLUMNS)])
async def test_one_row_for_a_batch_of_several(form: str, inputs: list[Any]) -> None:
    text = config("json", backend=f", form: {form}", more=FORMS)
    status, answer = await infer(Wires(text, lab=replied({"price": [7.0]})), inputs=inputs)
    assert status == 502
    assert "output 'y' has 1 row, but the request had 2" in answer["error"]
    status, _ = await infer(Wires(text, lab=replied({"price": [7.0, 8.0]})), inputs=inputs)
    assert status == 200


SIGNATURE = (
    ", signature: {inputs: [{name: x, datatype: FP64, shape: %s}], outputs: [{name: y, datatype: FP64, shape: %s}]}"
)
Y = {"name": "y", "datatype": "FP64"}
SERVERS: dict[str, tuple[str, str, Any]] = {
    "v1 of KServe": ("v1-rest", ", flavor: kserve", lambda *y: {"predictions": y}),
    "v1 of TensorFlow": ("v1-rest", ", flavor: tensorflow", lambda *y: {"predictions": y}),
    "v2": ("v2-rest", ", flavor: plain", lambda *y: {"outputs": [{**Y, "shape": [len(y)], "data": y}]}),
    "grps": ("grps-rest", "", lambda *y: {"status": {"status": "SUCCESS"}, "ndarray": y}),
    "mlflow": ("json", ", form: mlflow", lambda *y: {"predictions": y}),
    "prices": ("json", ", form: prices", lambda *y: {"price": y}),
    "undeclared": ("json", ", form: undeclared", lambda *y: {"price": y}),
}


@pytest.mark.parametrize(("protocol", "backend", "reply"), SERVERS.values(), ids=SERVERS)
async def test_one_number_for_several_rows(protocol: str, backend: str, reply: Any) -> None:
    asked = json.dumps({"inputs": [ROWS]}).encode()

    async def answered(shape: str, *y: float, asked: bytes = asked, x: str = "[-1, 2]") -> tuple[int, Any]:
        text = config(protocol, SIGNATURE % (x, shape), FORMS if x == "[-1, 2]" else VECTORS, backend)
        return await infer(Wires(text, lab=replied(reply(*y))), asked)

    status, answer = await answered("[-1]", 7.0)
    assert status == 502
    assert "output 'y' has 1 row, but the request had 2" in answer["error"]
    assert (await answered("[-1]", 7.0, 8.0))[0] == 200
    assert (await answered("[-1]", 7.0, asked=body()))[0] == 200
    assert (await answered("[1]", 7.0))[0] == 200
    vector = json.dumps({"inputs": [{**COLUMNS[0], "name": "x"}]}).encode()
    assert (await answered("[-1]", 7.0, asked=vector, x="[-1]"))[0] == 200


async def test_a_server_may_describe_a_vector_of_any_length() -> None:
    """In metadata, `[-1]` says nothing about rows: the points that are left, or the class of all of them."""
    x = {"name": "x", "datatype": "FP64", "shape": [-1, 2]}

    async def lab(message: Message) -> Message:
        document = {"name": "m", "versions": [], "platform": "p", "inputs": [x], "outputs": [{**Y, "shape": [-1]}]}
        if message.method == "POST":
            document = {"model_name": "m", "outputs": [{**Y, "shape": [1], "data": [7.0]}]}
        return Message(headers=Headers(JSON), parts=(json.dumps(document).encode(),), status=200)

    text = config("v2-rest", ", translate: {cast: round}", backend=", flavor: mlserver")
    status, answer = await infer(Wires(text, lab=lab), inputs=[ROWS])
    assert (status, answer["outputs"][0]["data"]) == (200, [7.0])


async def test_a_vector_may_become_one_number() -> None:
    text = config("json", backend=", form: total", more=FORMS)
    status, answer = await infer(
        Wires(text, lab=replied({"sum": [3.0]})), json.dumps({"inputs": [{**COLUMNS[0], "name": "x"}]}).encode()
    )
    assert (status, answer["outputs"][0]["data"]) == (200, [3.0])
