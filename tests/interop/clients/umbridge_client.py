"""Drive the real `umbridge.HTTPModel`, in the peer's own environment.

Takes `url, steps`, and gives a list with one result per step, `{"error": {"type", "text"}}` where the client raised.
Steps, all but the first and the last naming their `model`:

    {"op": "models"}                                    the names that /Info lists
    {"op": "info"}                                      {"Evaluate": bool, ...}, what the client believes is supported
    {"op": "sizes", "config": {}}                       {"inputs": [..], "outputs": [..]}
    {"op": "evaluate", "input": [[..]], "config": {}}
    {"op": "gradient", "out_wrt", "in_wrt", "input", "sens", "config"}
    {"op": "apply_jacobian", "out_wrt", "in_wrt", "input", "vec", "config"}
    {"op": "apply_hessian", "out_wrt", "in_wrt1", "in_wrt2", "input", "sens", "vec", "config"}
    {"op": "parallel", "clients": [[step, ..], ..]}     each list of steps by a client of its own, all at once
    {"op": "raw", "method": "POST", "path": "/Evaluate", "body": "text", "headers": {}}

`raw` gives {"status", "headers", "body"}. A model's first step constructs it (GET /Info, POST /ModelInfo), with
`"use_shmem": true` the way the client does to pass numbers through shared memory.
"""

from concurrent.futures import ThreadPoolExecutor

import requests
import umbridge


class Client:
    def __init__(self, url):
        self.url = url
        self.models = {}

    def model(self, step):
        key = step["model"], step.get("use_shmem", False)
        if key not in self.models:
            self.models[key] = umbridge.HTTPModel(self.url, *key)
        return self.models[key]

    def run(self, step):
        try:
            return OPERATIONS[step["op"]](self, step)
        except Exception as error:
            return {"error": {"type": type(error).__name__, "text": str(error)}}


def models(client, step):
    return umbridge.supported_models(client.url)


def info(client, step):
    model = client.model(step)
    return {
        "Evaluate": model.supports_evaluate(),
        "Gradient": model.supports_gradient(),
        "ApplyJacobian": model.supports_apply_jacobian(),
        "ApplyHessian": model.supports_apply_hessian(),
    }


def sizes(client, step):
    model, config = client.model(step), step.get("config", {})
    return {"inputs": model.get_input_sizes(config), "outputs": model.get_output_sizes(config)}


def evaluate(client, step):
    return client.model(step)(step["input"], step.get("config", {}))


def gradient(client, step):
    arguments = step["out_wrt"], step["in_wrt"], step["input"], step["sens"]
    return client.model(step).gradient(*arguments, step.get("config", {}))


def apply_jacobian(client, step):
    arguments = step["out_wrt"], step["in_wrt"], step["input"], step["vec"]
    return client.model(step).apply_jacobian(*arguments, step.get("config", {}))


def apply_hessian(client, step):
    arguments = step["out_wrt"], step["in_wrt1"], step["in_wrt2"], step["input"], step["sens"], step["vec"]
    return client.model(step).apply_hessian(*arguments, step.get("config", {}))


def raw(client, step):
    reply = requests.request(
        step.get("method", "POST"),
        client.url + step["path"],
        data=step.get("body", "").encode(),
        headers=step.get("headers", {}),
        timeout=30,
    )
    return {"status": reply.status_code, "headers": dict(reply.headers), "body": reply.text}


def parallel(client, step):
    def run_all(steps):
        own = Client(client.url)
        return [own.run(each) for each in steps]

    with ThreadPoolExecutor(len(step["clients"])) as threads:
        return list(threads.map(run_all, step["clients"]))


OPERATIONS = {
    "models": models,
    "info": info,
    "sizes": sizes,
    "evaluate": evaluate,
    "gradient": gradient,
    "apply_jacobian": apply_jacobian,
    "apply_hessian": apply_hessian,
    "parallel": parallel,
    "raw": raw,
}


def main(url, steps):
    client = Client(url)
    return [client.run(step) for step in steps]
