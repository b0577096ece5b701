# mypy: ignore-errors
"""Records what the real `umbridge` client and server say to each other: `python record.py`, where umbridge 1.2.10 is.

A proxy on loopback stands between the two and writes NAME.request and NAME.reply beside this file: the whole HTTP
messages, header and body, as they were on the wire. No type is checked here, where `umbridge` is not installed.
"""

import multiprocessing
import socket
import time
from contextlib import suppress
from functools import partial
from pathlib import Path
from threading import Thread

import requests
import umbridge
from aiohttp import web

HERE = Path(__file__).parent
SERVER, PROXY = ("127.0.0.1", 4242), ("127.0.0.1", 4243)
URL = f"http://{PROXY[0]}:{PROXY[1]}"


class Evaluates(umbridge.Model):
    """y = f(x) for the given sizes; claims Evaluate only."""

    def __init__(self, name, inputs, outputs, function):
        super().__init__(name)
        self.inputs, self.outputs, self.function = inputs, outputs, function

    def get_input_sizes(self, config):
        return self.inputs

    def get_output_sizes(self, config):
        return self.outputs

    def __call__(self, parameters, config):
        return self.function(parameters, config)

    def supports_evaluate(self):
        return True


class Toy(Evaluates):
    """([a0 a1 a2], [b0 b1]) -> ([a0 b0, a1 b1], [a2^2]); its derivatives only echo what they were asked, to be read."""

    def __init__(self):
        super().__init__("toy", [3, 2], [2, 1], lambda x, _: [[x[0][0] * x[1][0], x[0][1] * x[1][1]], [x[0][2] ** 2]])

    def gradient(self, out_wrt, in_wrt, parameters, sens, config):
        return [0.1 * sens[0]] * self.inputs[in_wrt]

    def apply_jacobian(self, out_wrt, in_wrt, parameters, vec, config):
        return [0.1 * vec[0]] * self.outputs[out_wrt]

    def apply_hessian(self, out_wrt, in_wrt1, in_wrt2, parameters, sens, vec, config):
        return [0.1 * sens[0] * vec[0]] * self.inputs[in_wrt1]

    def supports_gradient(self):
        return True

    def supports_apply_jacobian(self):
        return True

    def supports_apply_hessian(self):
        return True


def crash(parameters, config):
    raise RuntimeError("the model crashed on purpose")


INFINITE = [float("nan"), float("inf"), float("-inf"), 1.5]
MODELS = [
    Toy(),
    Evaluates("no_inputs", [], [1], lambda x, config: [[7]]),
    Evaluates("empty_vector", [0], [0], lambda x, config: [[]]),
    Evaluates("scaled", [2], [2], lambda x, config: [[config.get("scale", 1) * number for number in x[0]]]),
    Evaluates("infinite", [1], [4], lambda x, config: [INFINITE]),
    Evaluates("crash", [1], [1], crash),
    Evaluates("wrong", [1], [1], lambda x, config: [[1.0], [2.0]]),
]


def serve():
    web.run_app = partial(web.run_app, host=SERVER[0], print=None)
    umbridge.serve_models(MODELS, SERVER[1])


def relay(listener, seen):
    """One exchange per connection: `requests.post` opens a new one for each."""
    while True:
        client, _ = listener.accept()
        with client, socket.create_connection(SERVER) as server:
            request = read_message(client)
            server.sendall(request)
            reply = read_message(server)
            client.sendall(reply)
        seen.append((request, reply))


def read_message(peer):
    data = b""
    while b"\r\n\r\n" not in data:
        data += peer.recv(65536)
    header, _, body = data.partition(b"\r\n\r\n")
    lines = dict(line.lower().split(b": ", 1) for line in header.split(b"\r\n")[1:])
    while len(body) < int(lines.get(b"content-length", 0)):
        body += peer.recv(65536)
    return header + b"\r\n\r\n" + body


def conversations():
    """Names of exchanges, and the call that makes them."""
    toy, x = umbridge.HTTPModel(URL, "toy"), [[1.5, 2, 3], [0.1, 1e-300]]
    yield ["info", "model_info"], lambda: umbridge.HTTPModel(URL, "toy")
    yield ["input_sizes"], toy.get_input_sizes
    yield ["output_sizes"], toy.get_output_sizes
    yield ["input_sizes_config"], lambda: toy.get_input_sizes({"level": 2, "a": {"z": [1, 2.0], "b": None}, "µ": "ß"})
    yield ["evaluate"], lambda: toy(x)
    yield ["evaluate_integers"], lambda: toy([[2**62, -2, 3], [1, 4]])
    yield ["gradient"], lambda: toy.gradient(0, 1, x, [1.0, -2.5])
    yield ["apply_jacobian"], lambda: toy.apply_jacobian(1, 0, x, [1, 0, 0])
    yield ["apply_hessian"], lambda: toy.apply_hessian(0, 1, 0, x, [2.0, 3.0], [5, 6, 7])
    yield from errors(toy, x)
    yield from other_models()


def errors(toy, x):
    yield ["error_inputs"], lambda: toy([[1.0]])
    yield ["error_length"], lambda: toy([[1.0, 2.0, 3.0], [1.0]])
    yield ["error_index"], lambda: toy.gradient(-1, 0, x, [1.0])
    yield ["error_sens_length"], lambda: toy.gradient(0, 0, x, [1.0])
    yield ["error_hessian_text"], lambda: toy.apply_hessian(0, 1, 0, x, [], [])
    yield ["error_not_found"], lambda: post("/Evaluate", '{"name": "größe", "input": [[1]], "config": {}}')
    yield ["error_malformed"], lambda: post("/Evaluate", '{"name": "toy", "input": [[1')
    yield ["error_path"], lambda: post("/evaluate", "{}")
    yield ["error_method"], lambda: requests.get(URL + "/Evaluate")


def other_models():
    model = {each.name: umbridge.HTTPModel(URL, each.name) for each in MODELS}
    yield ["model_info_evaluate_only"], lambda: post("/ModelInfo", '{"name": "scaled"}')
    yield ["no_inputs_sizes"], model["no_inputs"].get_input_sizes
    yield ["no_inputs_evaluate"], lambda: model["no_inputs"]([])
    yield ["empty_vector_evaluate"], lambda: model["empty_vector"]([[]])
    yield ["scaled_evaluate"], lambda: model["scaled"]([[1, 2]], {"scale": 2.5, "input": {"vec": [1, "a"]}})
    yield ["infinite_evaluate"], lambda: model["infinite"]([[1.0]])
    yield ["error_crash"], lambda: model["crash"]([[1.0]])
    yield ["error_output"], lambda: model["wrong"]([[1.0]])
    yield ["error_unsupported"], lambda: post("/Gradient", '{"name": "scaled", "input": [[1, 2]]}')
    yield ["test_shmem"], lambda: umbridge.HTTPModel(URL, "toy", use_shmem=True)


def post(path, body):
    requests.post(URL + path, data=body.encode())


def main():
    server = multiprocessing.Process(target=serve, daemon=True)
    server.start()
    time.sleep(1.5)
    seen = []
    listener = socket.create_server(PROXY)
    Thread(target=relay, args=(listener, seen), daemon=True).start()
    for names, call in conversations():
        seen.clear()
        with suppress(Exception):
            call()
        time.sleep(0.05)
        for name, (request, reply) in zip(names, seen[-len(names) :], strict=True):
            (HERE / f"{name}.request").write_bytes(request)
            (HERE / f"{name}.reply").write_bytes(reply)
    server.terminate()


if __name__ == "__main__":
    main()
