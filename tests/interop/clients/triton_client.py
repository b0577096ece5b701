"""Drive the real `tritonclient.http`, in the peer's own environment.

Takes `address, kind, clients, steps`, `kind` being "sync" or "aio", and gives a list with one result per step,
`{"error": {"type", "status", "message"}}` where the client raised (`status` is null unless a server gave one). That
many `clients` work at once, each on its share of the steps in order.

    {"op": "live"}  {"op": "ready"}  {"op": "server_metadata"}  {"op": "index"}
    {"op": "model_ready" | "metadata" | "config", "model": M, "version": ""}
    {"op": "load" | "unload", "model": M}
    {"op": "call", "method": name, "arguments": {..}}, and optionally "files": {name: base64}: any other method
    {"op": "infer", "model": M, "inputs": [{"name", "datatype", "shape", "raw": base64}], and optionally
        "version", "id", "parameters", "headers", "priority", "timeout",
        "sequence_id", "sequence_start", "sequence_end",
        "request_compression", "response_compression": "gzip" | "deflate",
        "binary_input": true, "binary_output": true, "outputs": [names], "classes": {name of output: count}}
        For some tensors only: "binary" of an input, and "outputs": {name: binary}.

Raw is V2's form: little-endian, row-major, BYTES as u32 length + bytes. `infer` gives {"response": the reply's JSON
without data, "outputs": [{"name", "datatype", "shape", "raw", "binary"}]}. Without `outputs` this client asks for all
of them in binary, so `"binary_output": false` needs their names.
"""

import asyncio
import base64
from concurrent.futures import ThreadPoolExecutor

import tritonclient.http
import tritonclient.http.aio
from triton_words import OPTIONS, call_of, from_raw, options_of, to_raw, told

HTTP_OPTIONS = {
    **OPTIONS,
    "headers": "headers",
    "request_compression": "request_compression_algorithm",
    "response_compression": "response_compression_algorithm",
}


def infer_of(step):
    inputs = [input_of(tensor, tensor.get("binary", step.get("binary_input", True))) for tensor in step["inputs"]]
    arguments = options_of(step, HTTP_OPTIONS)
    return "infer", {"model_name": step["model"], "inputs": inputs, "outputs": outputs_of(step), **arguments}


def input_of(tensor, binary):
    built = tritonclient.http.InferInput(tensor["name"], tensor["shape"], tensor["datatype"])
    array = from_raw(tensor["datatype"], tensor["shape"], base64.b64decode(tensor["raw"]))
    return built.set_data_from_numpy(array, binary_data=binary)


def outputs_of(step):
    binary, names = step.get("binary_output", True), step.get("outputs")
    if "classes" in step:
        pairs = step["classes"].items()
        return [tritonclient.http.InferRequestedOutput(name, binary, class_count=count) for name, count in pairs]
    if names is None and not binary:
        raise ValueError("binary_output: false needs outputs: this client asks for all in binary if it names none")
    if not names:
        return None
    forms = names if isinstance(names, dict) else dict.fromkeys(names, binary)
    return [tritonclient.http.InferRequestedOutput(name, binary_data=form) for name, form in forms.items()]


def result_of(value):
    """What a call returned, as JSON."""
    if not isinstance(value, tritonclient.http.InferResult):
        return value
    response = value.get_response()
    outputs = [output_of(value, output) for output in response.get("outputs", [])]
    for output in response.get("outputs", []):
        output.pop("data", None)
    return {"response": response, "outputs": outputs}


def output_of(result, output):
    return {
        "name": output["name"],
        "datatype": output["datatype"],
        "shape": output["shape"],
        "raw": base64.b64encode(to_raw(result.as_numpy(output["name"]))).decode(),
        "binary": "binary_data_size" in output.get("parameters", {}),
    }


def run_sync(address, steps):
    results = []
    with tritonclient.http.InferenceServerClient(address) as client:
        for step in steps:
            try:
                method, arguments = call_of(step) or infer_of(step)
                results.append(result_of(getattr(client, method)(**arguments)))
            except Exception as error:
                results.append(told(error))
    return results


async def run_aio(address, steps):
    results = []
    async with tritonclient.http.aio.InferenceServerClient(address) as client:
        for step in steps:
            try:
                method, arguments = call_of(step) or infer_of(step)
                results.append(result_of(await getattr(client, method)(**arguments)))
            except Exception as error:
                results.append(told(error))
    return results


async def run_many_aio(address, shares):
    return await asyncio.gather(*(run_aio(address, share) for share in shares))


def run_many(address, kind, shares):
    if kind == "aio":
        return asyncio.run(run_many_aio(address, shares))
    with ThreadPoolExecutor(len(shares)) as threads:
        return list(threads.map(lambda share: run_sync(address, share), shares))


def main(address, kind, clients, steps):
    results = [None] * len(steps)
    for number, share in enumerate(run_many(address, kind, [steps[number::clients] for number in range(clients)])):
        results[number::clients] = share
    return results
