"""Numbers that are missing: null among numbers is read as NaN where `nan: null` stands, in requests and replies; where
it does not, the error says so."""

import json
import re
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.bridge.settings import RouteSettings
from gateway.core.errors import DecodeError, GatewayError
from gateway.core.frozen import replace
from gateway.core.json import missing
from gateway.core.messages import Headers, Message
from gateway.core.operations import STREAM
from gateway.core.protocol import Target
from gateway.core.requests import Nan, Request, Response, Translate
from gateway.protocols.mip.json_examples import decode
from gateway.protocols.v2.flavors import TRITON
from gateway.protocols.v2.grpc.schema import ModelInferRequest, ModelInferResponse
from gateway.protocols.v2.rest.client import decode_response
from tests.bridge.fakes import TENSORS, Backend, bridge, call, infer, named, signature, spec
from tests.traced import traced
from tests.wires import Server, Wires, replying

JSON = ((b"content-type", b"application/json"),)
Y = named("y", [[1.0, 2.0], [3.0, 4.0]])
REMEDY = "`translate: {nan: null}` on the route reads null among numbers as NaN"


def config(backend: str = "protocol: v2-grpc, flavor: triton", translate: str = "{nan: null}", form: str = "") -> str:
    inputs, outputs = "[{name: x, datatype: FP32, shape: [-1, 2]}]", "[{name: y, datatype: FP32, shape: [-1]}]"
    signature = f"{{inputs: {inputs}, outputs: {outputs}}}"
    return f"""
listeners:
  - {{name: in, bind: "127.0.0.1:0", protocols: [v2-rest, v1-rest, umbridge, grps-rest]}}
  - {{name: forms, bind: "127.0.0.1:0", model: m, protocols: ["json:mlflow"]}}
backends: {{lab: {{endpoints: ["lab:1"], {backend}}}}}
routes: [{{match: {{model: m}}, backend: lab, translate: {translate}, signature: {signature}}}]
{form}
"""


def triton(*values: float, shape: tuple[int, ...] = ()) -> Server:
    reply = ModelInferResponse(model_name="m", raw_output_contents=[np.array(values, np.float32).tobytes()])
    reply.outputs.add(name="y", datatype="FP32", shape=shape or [len(values)])
    return replying(reply.SerializeToString(), status=0)


def got(wires: Wires) -> list[float]:
    request: Any = ModelInferRequest.FromString(bytes(wires.sent["lab"][0].body))
    return [float(each) for each in np.frombuffer(request.raw_input_contents[0], "<f4")]


V2 = b'{"inputs": [{"name": "x", "datatype": "FP32", "shape": [1, 2], "data": [[1, null]]}]}'


BATCH = V2.replace(b"[1, 2]", b"[2, 2]").replace(b"[[1, null]]", b"[1, 2, 3, 4]")


async def test_v2_reads_what_it_writes() -> None:
    wires = Wires(config(), lab=triton(float("nan")))
    reply = await wires.post("v2-rest", "/v2/models/m/infer", V2)
    assert got(wires) == pytest.approx([1.0, float("nan")], nan_ok=True)
    assert json.loads(bytes(reply.body))["outputs"][0]["data"] == [None]


@pytest.mark.parametrize("translate", ["{}", "{nan: literal}"])
async def test_without_the_key_the_error_says_what_to_write(translate: str) -> None:
    wires = Wires(config(translate=translate), lab=triton(1.0))
    reply = await wires.post("v2-rest", "/v2/models/m/infer", V2)
    assert reply.status == 400
    assert REMEDY in json.loads(bytes(reply.body))["error"]
    assert not wires.sent["lab"]


OTHERS = {
    "umbridge": ("umbridge", "/Evaluate", b'{"name": "m", "input": [[1, null]], "config": {}}'),
    "ndarray": ("grps-rest", "/grps/v1/infer/predict", b'{"model": "m", "ndarray": [[1, null]]}'),
    "gtensors": (
        "grps-rest",
        "/grps/v1/infer/predict",
        b'{"model": "m", "gtensors": {"tensors": [{"name": "x", "dtype": "DT_FLOAT32", "shape": [1, 2],'
        b' "flat_float32": [1, null]}]}}',
    ),
    "generate": ("v2-rest", "/v2/models/m/generate", b'{"x": [1, null]}'),
}
"""Requests in the other wire forms that are JSON."""
SIZED = config().replace("name: y, datatype: FP32, shape: [-1]", "name: y, datatype: FP32, shape: [-1, 1]")


@pytest.mark.parametrize("asked", OTHERS.values(), ids=OTHERS)
async def test_other_wire_forms_read_null_where_the_key_stands(asked: tuple[str, str, bytes]) -> None:
    text = SIZED.replace("[-1, 2]", "[1, 2]") if asked[1].endswith("generate") else SIZED
    wires = Wires(text, lab=triton(float("nan"), shape=(1, 1)))
    reply = await wires.post(*asked)
    assert reply.status == 200, bytes(reply.body)
    assert got(wires) == pytest.approx([1.0, float("nan")], nan_ok=True)
    assert b"null" in bytes(reply.body)


@pytest.mark.parametrize("asked", OTHERS.values(), ids=OTHERS)
async def test_other_wire_forms_say_what_to_write_without_the_key(asked: tuple[str, str, bytes]) -> None:
    wires = Wires(SIZED.replace("translate: {nan: null}", "translate: {}"), lab=triton(1.0))
    reply = await wires.post(*asked)
    assert reply.status >= 400
    assert REMEDY in bytes(reply.body).decode()
    assert "element 1: null is not a number" in bytes(reply.body).decode()
    assert not [each for each in wires.sent["lab"] if each.path.endswith("ModelInfer")]


@pytest.mark.parametrize("nan", ["error", "null"])
async def test_examples_of_mip_with_null_are_refused_by_element_or_read(nan: Nan) -> None:
    backend = Backend({"m": signature(spec("x", -1, 2), gives=(spec("y", -1, 2),))}, lambda _: Response((Y,)))
    examples = replace(decode([b"[1, 2]", b"[3, null]"], "input 0", 1000), name="x")
    made = bridge(TENSORS, TENSORS, backend, RouteSettings(cast="round", nan=nan))
    if nan == "error":
        with pytest.raises(DecodeError, match=f"input 'x': element 3: null is not a number; {re.escape(REMEDY)}"):
            await call(made, infer(examples))
        return
    await call(made, infer(examples))
    assert np.isnan(backend.calls[0].inputs[0].array).tolist() == [[False, False], [False, True]]


async def test_a_null_in_a_config_of_umbridge_stays_one() -> None:
    body = b'{"name": "m", "input": [[1, null]], "config": {"levels": [1, 2], "a": null}}'
    back = "protocol: umbridge"
    wires = Wires(config(back).replace("[-1]", "[-1, 1]"), lab=replying(b'{"output": [[1.5]]}', headers=JSON))
    reply = await wires.post("umbridge", "/Evaluate", body)
    assert reply.status == 200, bytes(reply.body)
    sent = json.loads(bytes(wires.sent["lab"][0].body))
    assert sent["config"] == {"levels": [1, 2], "a": None}
    reply = await wires.post("umbridge", "/Evaluate", body.replace(b"2]", b"null]"))
    assert reply.status == 400
    assert len([each for each in wires.sent["lab"] if each.path == "/Evaluate"]) == 1


async def test_a_missing_integer_is_refused_by_name() -> None:
    text = V2.replace(b"FP32", b"INT32")
    reply = await Wires(config(), lab=triton(1.0)).post("v2-rest", "/v2/models/m/infer", text)
    assert reply.status == 400
    assert "input 'x'" in json.loads(bytes(reply.body))["error"]


async def test_a_null_elsewhere_is_still_null() -> None:
    """Older clients of MLServer write null for what they leave out."""
    body = V2.replace(b'"data"', b'"parameters": null, "data"').replace(b'{"inputs"', b'{"id": null, "inputs"')
    wires = Wires(config(), lab=triton(1.0))
    assert (await wires.post("v2-rest", "/v2/models/m/infer", body)).status == 200


FORM = "forms: {api: {infer: {path: /p, request: {rows: $x}, response: {y: $y}}}}"
REPLIES = {
    "v2": (
        "protocol: v2-rest, flavor: kserve",
        b'{"model_name": "m", "outputs": [{"name": "y", "datatype": "FP32", "shape": [2], "data": [2.0, null]}]}',
    ),
    "v1": ("protocol: v1-rest, flavor: kserve", b'{"predictions": [2.0, null]}'),
    "FastAPI": ("protocol: json, form: api", b'{"y": [2.0, null]}'),
    "grps": ("protocol: grps-rest", b'{"status": {"status": "SUCCESS"}, "ndarray": [2.0, null]}'),
}
"""The keys of a backend, and a reply of its server."""


@pytest.mark.parametrize(("back", "body"), REPLIES.values(), ids=REPLIES)
async def test_a_reply_with_null(back: str, body: bytes) -> None:
    server = replying(body, headers=JSON)
    reply = await Wires(config(back, form=FORM), lab=server).post("v2-rest", "/v2/models/m/infer", BATCH)
    assert json.loads(bytes(reply.body))["outputs"][0]["data"] == [2.0, None]
    reply = await Wires(config(back, "{}", FORM), lab=server).post("v2-rest", "/v2/models/m/infer", BATCH)
    assert reply.status == 502
    assert REMEDY in bytes(reply.body).decode()


UMBRIDGES = {
    "evaluate": ("/Evaluate", {"input": [[1, 2]]}, [[2.0, None]]),
    "gradient": ("/Gradient", {"input": [[1, 2]], "outWrt": 0, "inWrt": 0, "sens": [1.0, 1.0]}, [2.0, None]),
    "jacobian": ("/ApplyJacobian", {"input": [[1, 2]], "outWrt": 0, "inWrt": 0, "vec": [1.0, 1.0]}, [2.0, None]),
    "hessian": (
        "/ApplyHessian",
        {"input": [[1, 2]], "outWrt": 0, "inWrt1": 0, "inWrt2": 0, "sens": [1.0, 1.0], "vec": [1.0, 1.0]},
        [2.0, None],
    ),
}
"""Paths, members of a call, and the output of its reply."""
UMBRIDGE = """
listeners: [{{name: in, bind: "127.0.0.1:0", protocols: [umbridge]}}]
backends: {{lab: {{endpoints: ["lab:1"], protocol: umbridge}}}}
routes: [{{match: {{model: m}}, backend: lab, translate: {translate}}}]
check: full
"""


@pytest.mark.parametrize(("path", "members", "output"), UMBRIDGES.values(), ids=UMBRIDGES)
async def test_a_reply_of_umbridge_with_null(path: str, members: dict[str, Any], output: Any) -> None:
    support = dict.fromkeys(("Evaluate", "Gradient", "ApplyJacobian", "ApplyHessian"), True)
    replies = {
        "/Info": {"protocolVersion": 1.0, "models": ["m"]},
        "/InputSizes": {"inputSizes": [2]},
        "/OutputSizes": {"outputSizes": [2]},
        "/ModelInfo": {"support": support},
    }

    async def server(message: Message) -> Message:
        body = replies.get(message.path, {"output": output})
        return Message(headers=Headers(JSON), parts=(json.dumps(body).encode(),), status=200)

    body = json.dumps({"name": "m", **members, "config": {}}).encode()
    reply = await Wires(UMBRIDGE.format(translate="{nan: null}"), lab=server).post("umbridge", path, body)
    assert (reply.status, json.loads(bytes(reply.body))) == (200, {"output": output})
    for translate in ("{}", "{nan: literal}"):
        reply = await Wires(UMBRIDGE.format(translate=translate), lab=server).post("umbridge", path, body)
        assert reply.status >= 500
        assert REMEDY in bytes(reply.body).decode()
        assert "element 1: null is not a number" in bytes(reply.body).decode()


async def test_a_message_of_a_stream_of_triton_with_null() -> None:
    request = Request(STREAM, "m", translate=Translate(nan="null"))
    reply = Message(headers=Headers(JSON), parts=(b'{"model_name": "m", "y": [2.0, null]}',), status=200)
    target = Target("lab", flavor=TRITON)
    answer = decode_response(reply, request, target)
    assert isinstance(answer, Response)
    assert answer.outputs[0].array.tolist() == pytest.approx([2.0, float("nan")], nan_ok=True)
    with pytest.raises(DecodeError, match=re.escape(REMEDY)):
        decode_response(reply, replace(request, translate=Translate()), target)


MLFLOW = {
    "inputs": b'{"inputs": [[1, null]]}',
    "split": b'{"dataframe_split": {"columns": ["a", "b"], "data": [[1, null]]}}',
    "instances": b'{"instances": [[1, null]]}',
}


@pytest.mark.parametrize("body", MLFLOW.values(), ids=MLFLOW)
async def test_mlflows_clients_send_null_without_any_key(body: bytes) -> None:
    text = config(translate="{}")
    if b"columns" in body:
        text = text.replace(
            "{name: x, datatype: FP32, shape: [-1, 2]}",
            "{name: a, datatype: FP32, shape: [-1]}, {name: b, datatype: FP32, shape: [-1]}",
        )
    wires = Wires(text, lab=triton(float("nan")))
    reply = await wires.post("json:mlflow", "/invocations", body)
    assert (reply.status, json.loads(bytes(reply.body))) == (200, {"predictions": [None]})
    request: Any = ModelInferRequest.FromString(bytes(wires.sent["lab"][0].body))
    raw = b"".join(request.raw_input_contents)
    assert list(np.frombuffer(raw, "<f4")) == pytest.approx([1.0, float("nan")], nan_ok=True)


async def test_mlflow_gets_the_null_of_its_own_clients() -> None:
    wires = Wires(
        config("protocol: json, form: mlflow", "{}").replace("routes:", "check: full\nroutes:"),
        lab=replying(b'{"predictions": [NaN]}', headers=JSON),
    )
    reply = await wires.post("json:mlflow", "/invocations", MLFLOW["inputs"])
    assert json.loads(bytes(wires.sent["lab"][0].body)) == {"inputs": [[1.0, None]]}
    assert json.loads(bytes(reply.body)) == {"predictions": [None]}


CSV_FORM = (
    "forms: {table: {infer: {path: /t, media_type: text/csv, request: $x, response_type: text/csv, response: $y}}}"
)


@pytest.mark.parametrize(("translate", "line"), [("{}", b"NaN"), ("{nan: null}", b'""'), ("{nan: literal}", b"NaN")])
async def test_nan_in_csv(translate: str, line: bytes) -> None:
    text = config(translate=translate, form=CSV_FORM).replace("json:mlflow", "json:table")
    wires = Wires(text, lab=triton(float("nan"), 1.0))
    reply = await wires.post("json:table", "/t", b"1,nan\n,2\n", "text/csv")
    assert (reply.status, bytes(reply.body).split()) == (200, [line, b"1.0"])
    assert got(wires) == pytest.approx([1.0, float("nan"), float("nan"), 2.0], nan_ok=True)


def test_a_word_in_a_string_is_never_a_missing_number() -> None:
    assert missing.as_nan(b'["a,null,b", 1]', members=True) is None
    assert missing.as_nan(b'["null", null]', members=True) is None
    assert missing.as_nan(b"[null,null , 1]", members=False) == b"[NaN ,NaN  , 1]"
    assert missing.as_nan(b'{"a": null}', members=False) is None
    assert missing.as_nan(b'{"a": null}', members=True) == b'{"a": NaN }'
    assert missing.as_nan(b"[1, nullable]", members=True) is None
    for blanks, expected in ((b" " * 63, b"[1,%bNaN ]"), (b" " * 64, None)):  # so many are looked over
        found = missing.as_nan(b"[1,%bnull]" % blanks, members=True)
        assert found == (expected and expected % blanks)


@given(
    st.lists(
        st.sampled_from(["null", '"a"', '"nul"', "1", " null", "null\n", "[null]", '{"b":null}', "1.5"]), max_size=9
    ),
    st.integers(4, 9),
)
def test_nulls_are_found_wherever_a_piece_ends(values: list[str], size: int) -> None:
    text = f"[{','.join(values)}]"
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(missing, "_PIECE", size)
        found = missing.as_nan(text.encode(), members=True)
    expected = re.sub(r"\bnull\b", "NaN ", text)
    assert found == (expected.encode() if expected != text else None)


def test_many_strings_and_nulls_take_no_memory_of_their_own() -> None:
    text = b'["",' + b'"",null,' * 200_000 + b"1]"
    with traced() as memory:
        assert missing.as_nan(text, members=False) is not None
    assert memory.peak < 4 * len(text) + 32 * missing._PIECE


@pytest.mark.parametrize("translate", ["{}", "{nan: null}", "{nan: literal}"])
async def test_v1_reads_the_null_that_kserves_client_writes(translate: str) -> None:
    wires = Wires(config(translate=translate), lab=triton(float("nan")))
    reply = await wires.post("v1-rest", "/v1/models/m:predict", b'{"instances": [[1, null]]}')
    assert bytes(reply.body) == b'{"predictions":[%b]}' % (b"NaN" if "literal" in translate else b"null")
    assert got(wires) == pytest.approx([1.0, float("nan")], nan_ok=True)


@pytest.mark.parametrize("flavor", ["kserve", "tensorflow"])
async def test_a_reply_of_v1_with_null_says_what_to_write_without_the_key(flavor: str) -> None:
    server = replying(b'{"predictions": [2.0, null]}', headers=JSON)
    wires = Wires(config(f"protocol: v1-rest, flavor: {flavor}", "{}"), lab=server)
    reply = await wires.post("v2-rest", "/v2/models/m/infer", BATCH)
    assert reply.status == 502
    assert f"output 'y': element 1: null is not a number; {REMEDY}" in bytes(reply.body).decode()


@pytest.mark.parametrize("nan", ["error", "null"])
async def test_examples_of_mip_with_null_in_a_reply(nan: Nan) -> None:
    examples = replace(decode([b"[1, 2]", b"[3, null]"], "output 0", 1000), name="y")
    backend = Backend({"m": signature(spec("x", -1, 2), gives=(spec("y", -1, 2),))}, lambda _: Response((examples,)))
    made = bridge(TENSORS, TENSORS, backend, RouteSettings(cast="round", nan=nan))
    if nan == "error":
        with pytest.raises(GatewayError, match=f"output 'y': element 3: null is not a number; {re.escape(REMEDY)}"):
            await call(made, infer(replace(Y, name="x")))
        return
    answer = await call(made, infer(replace(Y, name="x")))
    assert isinstance(answer, Response)
    assert np.isnan(answer.outputs[0].array).tolist() == [[False, False], [False, True]]
