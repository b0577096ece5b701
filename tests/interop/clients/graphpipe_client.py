"""Drive the real `graphpipe.remote`, in the peer's own environment.

Takes `uri, steps`, and gives a list with one result per step, `{"error": {"type", "text"}}` where the client raised. A
step's `path` is appended to the URI. Steps:

    {"op": "execute", "input": array, "input_name": null, "output_name": null}
    {"op": "execute_multi", "inputs": [array], "input_names": null, "output_names": null, "config": null}
    {"op": "metadata"}      {"name", "version", "server", "inputs": [{"name", "shape", "type"}], "outputs": [..]}
    {"op": "describe"}      what each of the client's six `get_` functions says

An array is {"dtype", "shape", "raw": base64}; one of strings, which come back as bytes, {"strings": [base64], "shape"}.
"""

import base64

import numpy as np
from graphpipe import remote


def execute(uri, step):
    result = remote.execute(uri, read(step["input"]), step.get("input_name"), step.get("output_name"))
    return write(result) if isinstance(result, np.ndarray) else [write(each) for each in result]


def execute_multi(uri, step):
    inputs = [read(each) for each in step["inputs"]]
    results = remote.execute_multi(uri, inputs, step.get("input_names"), step.get("output_names"), step.get("config"))
    return [write(each) for each in results]


def metadata(uri, step):
    told = remote.metadata(uri)
    return {
        "name": told.Name().decode(),
        "version": told.Version().decode(),
        "server": told.Server().decode(),
        "inputs": [tensor(told.Inputs(at)) for at in range(told.InputsLength())],
        "outputs": [tensor(told.Outputs(at)) for at in range(told.OutputsLength())],
    }


def tensor(told):
    return {"name": told.Name().decode(), "shape": told.ShapeAsNumpy().tolist(), "type": told.Type()}


def describe(uri, step):
    return {
        "names": [remote.get_input_names(uri), remote.get_output_names(uri)],
        "types": [[str(each) for each in ask(uri)] for ask in (remote.get_input_types, remote.get_output_types)],
        "shapes": [remote.get_input_shapes(uri), remote.get_output_shapes(uri)],
    }


def read(array):
    if "strings" in array:
        flat = np.empty(len(array["strings"]), object)
        flat[:] = [base64.b64decode(each) for each in array["strings"]]
        return flat.reshape(array["shape"])
    return np.frombuffer(base64.b64decode(array["raw"]), array["dtype"]).reshape(array["shape"])


def write(array):
    if array.dtype.kind in "SUO":
        strings = [base64.b64encode(bytes(each)).decode() for each in array.reshape(-1).tolist()]
        return {"strings": strings, "shape": list(array.shape)}
    raw = base64.b64encode(array.tobytes()).decode()
    return {"dtype": str(array.dtype), "shape": list(array.shape), "raw": raw}


OPERATIONS = {"execute": execute, "execute_multi": execute_multi, "metadata": metadata, "describe": describe}


def run(uri, step):
    try:
        return OPERATIONS[step["op"]](uri + step.get("path", ""), step)
    except Exception as error:
        return {"error": {"type": type(error).__name__, "text": str(error)}}


def main(uri, steps):
    return [run(uri, step) for step in steps]
