"""Drive the real `tritonclient.grpc`, in the peer's own environment.

Takes `address, kind, steps`, `kind` being "sync" or "aio", and gives a list with one result per step, `{"error":
{"type", "status", "message"}}` where the client raised. The steps are those of `triton_client.py`, but that this client
has only the raw form (no `binary_input`, `binary_output`), `compression` in place of the two, and

    "client_timeout": seconds, of `infer`
    {"op": "stream", "requests": [steps of infer], and optionally "client_timeout", and "stall": file}
    {"op": "cancel" | "cancel_stream", "request": step of infer, "file": file}

A request of a stream may have "final": true, for an empty last response. `stream` gives the list of its responses, each
as of `infer` or an error, in the order in which they came; told to stall, the sync client reads none behind the first
until the file is there. Both `cancel`s wait until the file says "started" and give the request up.
"""

import asyncio
import base64
import time
from concurrent.futures import Future
from contextlib import suppress
from pathlib import Path

import tritonclient.grpc
import tritonclient.grpc.aio
from google.protobuf.json_format import MessageToDict
from grpc.aio import AioRpcError
from triton_words import OPTIONS, call_of, from_raw, options_of, to_raw, told
from tritonclient.utils import InferenceServerException

STREAMED_OPTIONS = {**OPTIONS, "final": "enable_empty_final_response"}
UNARY_OPTIONS = {"headers": "headers", "client_timeout": "client_timeout", "compression": "compression_algorithm"}
AS_JSON = {"server_metadata", "index", "metadata", "config"}
SECONDS = 20
POLL = 0.01


def method_of(step):
    """The client's method and its arguments; the same for both clients."""
    method, arguments = call_of(step) or ("infer", request_of(step) | options_of(step, UNARY_OPTIONS))
    return method, arguments | ({"as_json": True} if step["op"] in AS_JSON else {})


def request_of(step):
    outputs = step.get("outputs")
    classes = step.get("classes", {})
    wanted = [tritonclient.grpc.InferRequestedOutput(name, class_count=count) for name, count in classes.items()]
    return {
        "model_name": step["model"],
        "inputs": [input_of(tensor) for tensor in step["inputs"]],
        "outputs": wanted or (outputs and [tritonclient.grpc.InferRequestedOutput(name) for name in outputs]),
        **options_of(step, STREAMED_OPTIONS),
    }


def input_of(tensor):
    built = tritonclient.grpc.InferInput(tensor["name"], tensor["shape"], tensor["datatype"])
    return built.set_data_from_numpy(from_raw(tensor["datatype"], tensor["shape"], base64.b64decode(tensor["raw"])))


def result_of(value):
    """What a call returned, as JSON."""
    if not isinstance(value, tritonclient.grpc.InferResult):
        return value
    response = value.get_response()
    outputs = [output_of(value, output) for output in response.outputs]
    shown = MessageToDict(response, preserving_proto_field_name=True)
    shown.pop("raw_output_contents", None)
    return {"response": shown, "outputs": outputs}


def output_of(result, output):
    """The data as `as_numpy` reads it: by position in raw_output_contents."""
    raw = to_raw(result.as_numpy(output.name))
    shape = list(output.shape)
    return {"name": output.name, "datatype": output.datatype, "shape": shape, "raw": base64.b64encode(raw).decode()}


def streamed(result, error):
    return told(error) if error is not None else result_of(result)


def run_sync(address, steps):
    results = []
    with tritonclient.grpc.InferenceServerClient(address) as client:
        for step in steps:
            try:
                results.append(run_step(client, step))
            except Exception as error:
                results.append(told(error))
    return results


def run_step(client, step):
    if step["op"] in SPECIAL:
        return SPECIAL[step["op"]](client, step)
    method, arguments = method_of(step)
    return result_of(getattr(client, method)(**arguments))


def wait_for(file, text):
    end = time.monotonic() + SECONDS
    while not (file.exists() and file.read_text() == text):
        if time.monotonic() > end:
            raise TimeoutError(f"{file} does not say {text!r}")
        time.sleep(POLL)


def cancel(client, step):
    told = Future()
    call = client.async_infer(
        callback=lambda result, error: told.set_result((result, error)), **request_of(step["request"])
    )
    wait_for(Path(step["file"]), "started")
    call.cancel()
    return streamed(*told.result(SECONDS))


def cancel_stream(client, step):
    responses = []
    client.start_stream(callback=lambda result, error: responses.append(streamed(result, error)))
    client.async_stream_infer(**request_of(step["request"]))
    wait_for(Path(step["file"]), "started")
    client.stop_stream(cancel_requests=True)
    return responses


def stream(client, step):
    responses = []

    def receive(result, error):
        if "stall" in step and not responses:
            wait_for(Path(step["stall"]), "")
        responses.append(streamed(result, error))

    client.start_stream(callback=receive, stream_timeout=step.get("client_timeout"))
    with suppress(InferenceServerException):  # a stream that has ended: why, the callback was told
        for request in step["requests"]:
            client.async_stream_infer(**request_of(request))
    client.stop_stream()  # waits for what is still to come
    return responses


SPECIAL = {"stream": stream, "cancel": cancel, "cancel_stream": cancel_stream}


async def run_aio(address, steps):
    results = []
    async with tritonclient.grpc.aio.InferenceServerClient(address) as client:
        for step in steps:
            try:
                results.append(await run_step_aio(client, step))
            except Exception as error:
                results.append(told(error))
    return results


async def run_step_aio(client, step):
    if step["op"] in SPECIAL_AIO:
        return await SPECIAL_AIO[step["op"]](client, step)
    method, arguments = method_of(step)
    return result_of(await getattr(client, method)(**arguments))


async def cancel_aio(client, step):
    return await cancelled_aio(step, client.infer(**request_of(step["request"])))


async def cancel_stream_aio(client, step):
    return await cancelled_aio(step, stream_aio(client, {"requests": [step["request"]]}))


async def cancelled_aio(step, call):
    running = asyncio.ensure_future(call)
    await asyncio.to_thread(wait_for, Path(step["file"]), "started")
    running.cancel()
    (outcome,) = await asyncio.gather(running, return_exceptions=True)
    return told(outcome) if isinstance(outcome, BaseException) else result_of(outcome)


async def stream_aio(client, step):
    async def requests():
        for request in step["requests"]:
            yield request_of(request)

    responses = []
    try:
        async for result, error in client.stream_infer(requests(), stream_timeout=step.get("client_timeout")):
            responses.append(streamed(result, error))
    except AioRpcError as error:  # which the sync client tells its callback
        responses.append(
            {"error": {"type": type(error).__name__, "status": str(error.code()), "message": error.details()}}
        )
    return responses


SPECIAL_AIO = {"stream": stream_aio, "cancel": cancel_aio, "cancel_stream": cancel_stream_aio}


def main(address, kind, steps):
    return run_sync(address, steps) if kind == "sync" else asyncio.run(run_aio(address, steps))
