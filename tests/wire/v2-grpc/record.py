# mypy: ignore-errors
"""Records what the real `tritonclient.grpc` and a real server say to each other.

    python record.py triton|mlserver|kserve ADDRESS

A relay on loopback stands between the two and writes SERVER.json beside this file: by name, the method, the request
messages and the reply messages in hexadecimal, and the status. Runs where tritonclient[grpc] 2.73.0 is; no type is
checked here. Triton 2.51.0 serves the models of the interop tests and `repeat` (decoupled; x INT32 [1] to x times y),
MLServer 1.7.1 and KServe 0.21.0 serve `identity`.
"""

import json
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import partial
from pathlib import Path
from queue import Empty, Queue

import grpc
import numpy as np
import tritonclient.grpc as triton
from ml_dtypes import bfloat16
from tritonclient.grpc import service_pb2
from tritonclient.utils import InferenceServerException

HERE = Path(__file__).parent
SECONDS = 20
NAN = np.array([0x7FF8000000000001, 0x7FF0000000000001, 0x8000000000000000], np.uint64).view(np.float64)


class Relay(grpc.GenericRpcHandler):
    """Passes every method's messages on as bytes, and keeps them."""

    def __init__(self, server):
        self.channel = grpc.insecure_channel(server)
        self.seen = []

    def service(self, details):
        return grpc.stream_stream_rpc_method_handler(lambda requests, context: self.relay(details, requests, context))

    def relay(self, details, requests, context):
        exchange = {"method": details.method, "requests": [], "replies": [], "status": 0, "text": ""}
        self.seen.append(exchange)

        def noted():
            for request in requests:
                exchange["requests"].append(request.hex())
                yield request

        call = self.channel.stream_stream(details.method)(noted(), timeout=SECONDS)
        try:
            for reply in call:
                exchange["replies"].append(reply.hex())
                yield reply
        except grpc.RpcError as error:
            exchange["status"], exchange["text"] = error.code().value[0], error.details()
            context.abort(error.code(), error.details())


def tensor(name, datatype, array):
    given = triton.InferInput(name, list(array.shape), datatype)
    given.set_data_from_numpy(array)
    return given


def stream(address, requests, replies):
    """All `requests` in one stream; waits for so many replies, or a while."""
    client, seen = triton.InferenceServerClient(address), Queue()
    client.start_stream(lambda result, error: seen.put((result, error)))
    for request in requests:
        client.async_stream_infer(**request)
    for _ in range(replies):
        seen.get(timeout=3)
    client.stop_stream()


def infers(client, model):
    """Inferences of one tensor each, by the model that has its datatype."""
    x = np.array([[0.5, -1.5, 1e300]])
    arrays = {
        "fp64": ("FP64", x),
        "fp64_nan": ("FP64", NAN),
        "fp32": ("FP32", np.array([0.1, np.inf], np.float32)),
        "fp16": ("FP16", np.array([0.5, -2], np.float16)),
        "bf16": ("BF16", np.array([0.5, -2], bfloat16)),
        "bool": ("BOOL", np.array([True, False])),
        "int64": ("INT64", np.array([-(2**63), 2**63 - 1])),
        "bytes": ("BYTES", np.array([b"", b"a\x00b", b"\xff\xfe"], object)),
        "empty": ("FP64", np.zeros(0)),
    }
    for name, (datatype, array) in arrays.items():
        yield name, partial(client.infer, model(datatype), [tensor("INPUT0", datatype, array.reshape(-1))])
    yield (
        "parameters",
        lambda: client.infer(
            model("FP64"),
            [tensor("INPUT0", "FP64", x.reshape(-1))],
            outputs=[triton.InferRequestedOutput("OUTPUT0")],
            request_id="42",
            timeout=5_000_000,
            priority=3,
            sequence_id=7,
            sequence_start=True,
            parameters={"text": "größe", "integer": -5, "flag": True, "number": 0.5},
        ),
    )


def typed(address, model):
    """What tritonclient has no option for: data in typed contents, by its generated messages."""
    request = service_pb2.ModelInferRequest(model_name=model("FP64"), id="typed")
    request.inputs.add(name="INPUT0", datatype="FP64", shape=[3]).contents.fp64_contents.extend([0.5, -1.5, 1e300])
    channel = grpc.insecure_channel(address)
    channel.unary_unary("/inference.GRPCInferenceService/ModelInfer")(request.SerializeToString(), timeout=SECONDS)


def questions(client, model):
    yield "live", client.is_server_live
    yield "ready", client.is_server_ready
    yield "model_ready", lambda: client.is_model_ready(model("FP64"))
    yield "model_ready_unknown", lambda: client.is_model_ready("nosuch")
    yield "server_metadata", client.get_server_metadata
    yield "metadata", lambda: client.get_model_metadata(model("FP64"))
    yield "metadata_unknown", lambda: client.get_model_metadata("nosuch", "1")
    yield "config", lambda: client.get_model_config(model("FP64"))
    yield "index", client.get_model_repository_index
    yield "infer_unknown", lambda: client.infer("nosuch", [tensor("INPUT0", "FP64", np.zeros(1))])


def streams(address, model):
    one = {"model_name": model("FP64"), "inputs": [tensor("INPUT0", "FP64", np.array([1.5]))]}
    yield "stream", lambda: stream(address, [{**one, "request_id": "a"}, {**one, "request_id": "b"}], 2)
    yield "stream_unknown", lambda: stream(address, [{**one, "model_name": "nosuch", "request_id": "a"}, one], 2)


def decoupled(address):
    repeat = {"model_name": "repeat", "inputs": [tensor("x", "INT32", np.array([2], np.int32))], "request_id": "r"}
    yield "repeat", lambda: stream(address, [repeat], 2)
    yield "repeat_empty_final", lambda: stream(address, [{**repeat, "enable_empty_final_response": True}], 3)
    failing = {**repeat, "inputs": [tensor("x", "INT32", np.array([-1], np.int32))]}
    yield "repeat_failing", lambda: stream(address, [{**failing, "enable_empty_final_response": True}], 1)
    one = {"model_name": "identity_FP64", "inputs": [tensor("INPUT0", "FP64", np.array([1.5]))]}
    yield "stream_empty_final", lambda: stream(address, [{**one, "enable_empty_final_response": True}], 1)


def main(kind, server):
    relay = Relay(server)
    listener = grpc.server(ThreadPoolExecutor(4), handlers=[relay])
    address = f"127.0.0.1:{listener.add_insecure_port('127.0.0.1:0')}"
    listener.start()
    client = triton.InferenceServerClient(address)

    def model(datatype):
        return f"identity_{datatype}" if kind == "triton" else "identity"

    calls = dict(questions(client, model)) | dict(infers(client, model)) | {"typed": lambda: typed(address, model)}
    calls |= dict(streams(address, model)) if kind != "kserve" else {}
    calls |= dict(decoupled(address)) if kind == "triton" else {}
    recorded = {}
    for name, call in calls.items():
        relay.seen.clear()
        with suppress(InferenceServerException, grpc.RpcError, Empty):
            call()
        time.sleep(0.1)
        (recorded[name],) = relay.seen
    (HERE / f"{kind}.json").write_text(json.dumps(recorded, indent=1, ensure_ascii=False) + "\n")
    listener.stop(None)


if __name__ == "__main__":
    main(*sys.argv[1:])
