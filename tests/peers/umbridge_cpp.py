"""An UM-Bridge server with the habits of the C++ one (umbridge.h on cpp-httplib), which no package index has.

Written from observations of the original's wire, and independent of the gateway. Its habits are the point:

- the connections are cpp-httplib's (see httplib.py)
- one model call at a time for all models
- an exception is a 500 with an empty body and the header `EXCEPTION_WHAT`
- NaN and infinities are sent as `null`, and null cannot be read

    with serve([Model("double", [1], [1], evaluate=lambda inputs, config: [[2 * inputs[0][0]]])]) as server:
        call(server.url)
        assert server.connections == 1
"""

from __future__ import annotations

import json
import math
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from tests.peers.httplib import Received, Reply, Server

GATE_SECONDS = 60.0

Vector = list[float]
Config = Any  # whatever JSON the client sent
Sizes = Sequence[int] | Callable[[Config], Sequence[int]]


class Gate:
    """Holds model calls until it is opened, so that a test can look at what happens meanwhile without sleeping."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._open = False
        self.entered = 0
        """Calls that reached the model so far."""
        self.inside = 0
        """Calls in the model now."""
        self.peak = 0
        """The most calls that were in the model at once."""

    def open(self) -> None:
        with self._changed:
            self._open = True
            self._changed.notify_all()

    def wait_entered(self, calls: int) -> bool:
        """Wait until so many calls have reached the model; False if they did not within 10 s."""
        with self._changed:
            return self._changed.wait_for(lambda: self.entered >= calls, 10)

    @contextmanager
    def passing(self) -> Iterator[None]:
        with self._changed:
            self.entered += 1
            self.inside += 1
            self.peak = max(self.peak, self.inside)
            self._changed.notify_all()
            self._changed.wait_for(lambda: self._open, GATE_SECONDS)
        try:
            yield
        finally:
            with self._changed:
                self.inside -= 1


@dataclass
class Model:
    """What is None is not claimed. Sizes may be functions of the config."""

    name: str
    input_sizes: Sizes
    output_sizes: Sizes
    evaluate: Callable[[list[Vector], Config], list[Vector]] | None = None
    gradient: Callable[[int, int, list[Vector], Vector, Config], Vector] | None = None
    apply_jacobian: Callable[[int, int, list[Vector], Vector, Config], Vector] | None = None
    apply_hessian: Callable[[int, int, int, list[Vector], Vector, Vector, Config], Vector] | None = None
    gate: Gate | None = None
    """Every call of the model passes it, if there is one."""

    def sizes(self, config: Config) -> tuple[list[int], list[int]]:
        return _sizes(self.input_sizes, config), _sizes(self.output_sizes, config)


def _sizes(sizes: Sizes, config: Config) -> list[int]:
    return list(sizes(config) if callable(sizes) else sizes)


class CppServer(Server):
    """`url`, and what a test may want to know: `requests`, `connections`, `open_connections`, `calls_peak`."""

    def __init__(self, models: Sequence[Model], parallel: bool, keep_alive: float) -> None:
        self._gates = [model.gate for model in models if model.gate]
        self._service = Service(models, parallel)
        super().__init__(self._service.answer, keep_alive)

    @property
    def calls_peak(self) -> int:
        """The most operations that were at the server at once, those waiting for the model included."""
        return self._service.calls_peak

    def stop(self) -> None:
        for gate in self._gates:
            gate.open()
        super().stop()


DOUBLE = Model("double", [3], [3], evaluate=lambda inputs, config: [[2 * each for each in inputs[0]]])


@contextmanager
def serve(models: Sequence[Model] = (DOUBLE,), *, parallel: bool = False, keep_alive: float = 5) -> Iterator[CppServer]:
    """Serve on a free loopback port; on leaving, gates are opened and every thread is joined."""
    server = CppServer(models, parallel, keep_alive)
    try:
        yield server
    finally:
        server.stop()


class CheckFailed(Exception):  # noqa: N818 - it is the answer to a request, not a fault of this server
    """Becomes the JSON error that the protocol knows."""

    def __init__(self, kind: str, message: str, status: int = 400) -> None:
        super().__init__(message)
        self.reply = Reply(status, dump({"error": {"type": kind, "message": message}}))


class Service:
    """From a request to the reply, the order of the checks being that of the original."""

    def __init__(self, models: Sequence[Model], parallel: bool) -> None:
        self._models = {model.name: model for model in models}
        self._parallel = parallel
        self._model_lock = threading.Lock()
        self._guard = threading.Lock()
        self._calls = 0
        self.calls_peak = 0

    def answer(self, request: Received) -> Reply:
        path = request.target.partition("?")[0]
        if (request.method, path) == ("GET", "/Info"):
            return Reply(200, dump({"protocolVersion": 1.0, "models": list(self._models)}))
        handler = HANDLERS.get(path) if request.method == "POST" else None
        if handler is None:
            return Reply(404)
        try:
            return Reply(200, dump(handler(self, load(request.body))))
        except CheckFailed as failed:
            return failed.reply
        except Exception as error:  # whatever the model or the JSON library throws
            what = str(error)
            # cpp-httplib leaves out a header that holds a line break.
            return Reply(500, headers=() if "\n" in what or "\r" in what else (("EXCEPTION_WHAT", what),))

    def model_info(self, body: dict[str, Any]) -> dict[str, Any]:
        model = self._model(body)
        return {"support": {name: getattr(model, field) is not None for name, field in OPERATIONS.items()}}

    def input_sizes(self, body: dict[str, Any]) -> dict[str, Any]:
        return {"inputSizes": self._model(body).sizes(body.get("config"))[0]}

    def output_sizes(self, body: dict[str, Any]) -> dict[str, Any]:
        return {"outputSizes": self._model(body).sizes(body.get("config"))[1]}

    def evaluate(self, body: dict[str, Any]) -> dict[str, Any]:
        model = self._supporting(body, "Evaluate")
        inputs, config = vectors(body), body.get("config")
        check_inputs(model, inputs, config)
        output = self._call(model, model.evaluate, inputs, config)
        check_output(model, output, config)
        return {"output": [as_doubles(vector) for vector in output]}

    def gradient(self, body: dict[str, Any]) -> dict[str, Any]:
        return self._first_derivative(body, "Gradient", "sens", "outWrt")

    def apply_jacobian(self, body: dict[str, Any]) -> dict[str, Any]:
        return self._first_derivative(body, "ApplyJacobian", "vec", "inWrt")

    def _first_derivative(self, body: dict[str, Any], operation: str, name: str, of: str) -> dict[str, Any]:
        """The vector `name` is as long as the one that the index `of` chooses."""
        model = self._supporting(body, operation)
        wrt = {key: index(body, key) for key in ("inWrt", "outWrt")}
        inputs, given, config = vectors(body), vector(body, name), body.get("config")
        sizes = dict(zip(wrt, model.sizes(config), strict=True))
        for key, at in wrt.items():
            check_index(key, at, sizes[key])
        check_inputs(model, inputs, config)
        check_length(name, given, sizes[of][wrt[of]])
        compute = getattr(model, OPERATIONS[operation])
        return {"output": as_doubles(self._call(model, compute, wrt["outWrt"], wrt["inWrt"], inputs, given, config))}

    def apply_hessian(self, body: dict[str, Any]) -> dict[str, Any]:
        model = self._supporting(body, "ApplyHessian")
        in_wrt1, in_wrt2, out_wrt = (index(body, key) for key in ("inWrt1", "inWrt2", "outWrt"))
        inputs, sens, vec, config = vectors(body), vector(body, "sens"), vector(body, "vec"), body.get("config")
        check_index("inWrt1", in_wrt1, model.sizes(config)[0])
        check_index("inWrt2", in_wrt2, model.sizes(config)[0])
        check_index("outWrt", out_wrt, model.sizes(config)[1])
        check_inputs(model, inputs, config)
        check_length("sens", sens, model.sizes(config)[1][out_wrt])
        # The original does not check `vec` here.
        arguments = (out_wrt, in_wrt1, in_wrt2, inputs, sens, vec, config)
        return {"output": as_doubles(self._call(model, model.apply_hessian, *arguments))}

    def _model(self, body: dict[str, Any]) -> Model:
        name = body.get("name")
        if not isinstance(name, str):
            raise type_error("string", name)
        if name not in self._models:
            known = ", ".join(self._models)
            raise CheckFailed("ModelNotFound", f"Model {name} not found on this server! Available: {known}")
        return self._models[name]

    def _supporting(self, body: dict[str, Any], operation: str) -> Model:
        model = self._model(body)
        if getattr(model, OPERATIONS[operation]) is None:
            raise CheckFailed("UnsupportedFeature", f"{operation} not supported by model {model.name}!")
        return model

    def _call(self, model: Model, function: Callable[..., Any] | None, *arguments: Any) -> Any:
        assert function is not None
        with self._guard:
            self._calls += 1
            self.calls_peak = max(self.calls_peak, self._calls)
        try:
            if self._parallel:
                return through_gate(model, function, *arguments)
            with self._model_lock:
                return through_gate(model, function, *arguments)
        finally:
            with self._guard:
                self._calls -= 1


OPERATIONS = {
    "Evaluate": "evaluate",
    "Gradient": "gradient",
    "ApplyJacobian": "apply_jacobian",
    "ApplyHessian": "apply_hessian",
}
HANDLERS: dict[str, Callable[[Service, dict[str, Any]], dict[str, Any]]] = {
    "/ModelInfo": Service.model_info,
    "/InputSizes": Service.input_sizes,
    "/OutputSizes": Service.output_sizes,
    "/Evaluate": Service.evaluate,
    "/Gradient": Service.gradient,
    "/ApplyJacobian": Service.apply_jacobian,
    "/ApplyHessian": Service.apply_hessian,
}


def through_gate(model: Model, function: Callable[..., Any], *arguments: Any) -> Any:
    if model.gate is None:
        return function(*arguments)
    with model.gate.passing():
        return function(*arguments)


def check_inputs(model: Model, inputs: list[Vector], config: Config) -> None:
    sizes = model.sizes(config)[0]
    if len(inputs) != len(sizes):
        raise CheckFailed("InvalidInput", f"Number of inputs does not match: expected {len(sizes)}, got {len(inputs)}!")
    for number, (given, size) in enumerate(zip(inputs, sizes, strict=True)):
        check_length(f"input {number}", given, size)


def check_output(model: Model, output: list[Vector], config: Config) -> None:
    sizes = model.sizes(config)[1]
    if [len(given) for given in output] != sizes:
        raise CheckFailed("InvalidOutput", f"The model's output does not have the declared sizes {sizes}!", 500)


def check_index(key: str, given: int, sizes: list[int]) -> None:
    if not 0 <= given < len(sizes):
        raise CheckFailed("InvalidInput", f"Invalid {key} index! Expected between 0 and {len(sizes) - 1}, got {given}")


def check_length(what: str, given: Vector, size: int) -> None:
    if len(given) != size:
        raise CheckFailed("InvalidInput", f"Length of {what} does not match: expected {size}, got {len(given)}!")


def load(body: bytes) -> dict[str, Any]:
    """JSON as nlohmann's library reads it: no NaN, no infinity, also not by a large exponent; a BOM is fine."""
    document = json.loads(body.decode("utf-8-sig"), parse_constant=_no_constant, parse_float=_finite)
    if not isinstance(document, dict):
        raise type_error("object", document)
    return document


def _no_constant(text: str) -> float:
    raise ValueError(f"[json.exception.parse_error.101] parse error: invalid literal '{text}'")


def _finite(text: str) -> float:
    number = float(text)
    if math.isinf(number):
        raise ValueError(f"[json.exception.out_of_range.406] number overflow parsing '{text}'")
    return number


def dump(document: dict[str, Any]) -> bytes:
    """Keys in alphabetical order and no blanks, as nlohmann's library writes them."""
    return json.dumps(document, sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False).encode()


def as_doubles(numbers: Sequence[float]) -> list[float | None]:
    """C++ has doubles only, so that 18 becomes 18.0; what JSON has no number for becomes null."""
    return [float(number) if math.isfinite(number) else None for number in numbers]


def vectors(body: dict[str, Any]) -> list[Vector]:
    """An absent `input` counts as no inputs: asking nlohmann's null for its size gives 0."""
    given = body.get("input")
    if given is None:
        return []
    if not isinstance(given, list):
        raise type_error("array", given)
    return [_numbers(item) for item in given]


def vector(body: dict[str, Any], key: str) -> Vector:
    return _numbers(body.get(key))


def _numbers(given: Any) -> Vector:
    if not isinstance(given, list):
        raise type_error("array", given)
    for number in given:
        if isinstance(number, bool) or not isinstance(number, int | float):
            raise type_error("number", number)
    return [float(number) for number in given]


def index(body: dict[str, Any], key: str) -> int:
    given = body.get(key)
    if not isinstance(given, int | float):
        raise type_error("number", given)
    return int(given)


JSON_NAMES = {dict: "object", list: "array", str: "string", bool: "boolean", type(None): "null"}


def type_error(wanted: str, given: Any) -> TypeError:
    name = JSON_NAMES.get(type(given), "number")
    return TypeError(f"[json.exception.type_error.302] type must be {wanted}, but is {name}")
