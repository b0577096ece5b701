"""Checks of UM-Bridge servers. Section names are headings of the protocol's documentation, "Interface"."""

import json
from typing import Any

from gateway.tools.conformance.check import Suite, basis, deviate, fail, not_applicable, not_tested, require
from gateway.tools.conformance.inputs import sample
from gateway.tools.conformance.transports import HttpReply, HttpServer

STEP = 1e-6
"""Step size of the finite differences, relative to the input."""
TOLERANCE = 1e-3
"""Maximum difference between a derivative and its finite-difference estimate, relative to the derivative."""
UNKNOWN = "no-such-model"

Vector = list[float]
Point = list[Vector]


class UmbridgeServer(HttpServer):
    """A server, one of its models, and a point at which to evaluate the model."""

    @basis
    def info(self) -> dict[str, Any]:
        reply = self.get("/Info")
        require(reply.status == 200, f"GET /Info: status {reply.status}; expected 200")
        return reply.object

    @basis
    def model(self) -> str:
        if self.options.model:
            return self.options.model
        models = self.info.get("models")
        if not isinstance(models, list) or not models or not isinstance(models[0], str):
            not_tested("/Info lists no models; set --model")
        return models[0]

    @basis
    def support(self) -> dict[str, Any]:
        support = self.ask("ModelInfo").get("support")
        return support if isinstance(support, dict) else {}

    @basis
    def input_sizes(self) -> list[int]:
        return self._sizes("InputSizes", "inputSizes")

    @basis
    def output_sizes(self) -> list[int]:
        return self._sizes("OutputSizes", "outputSizes")

    @basis
    def point(self) -> Point:
        """A vector for each input: the vectors from `--input`, or 0.25, 0.5, 0.75, ..."""
        given = [[float(each) for each in sample(spec).values] for spec in self.options.inputs]
        return given or [[0.25 * (1 + at % 4) for at in range(size)] for size in self.input_sizes]

    def ask(self, operation: str, **more: Any) -> dict[str, Any]:
        """Return the response to an operation on the model, which must succeed."""
        reply = self.post(f"/{operation}", {"name": self.model, "config": {}, **more})
        if reply.status != 200 or "error" in reply.object:
            fail(f"/{operation}: status {reply.status} for a valid request; expected 200")
        return reply.object

    def evaluate(self, point: Point | None = None) -> Point:
        self.needs("Evaluate")
        output = self.ask("Evaluate", input=self.point if point is None else point).get("output")
        if not isinstance(output, list) or not all(isinstance(each, list) for each in output):
            fail("/Evaluate: `output` is not an array of arrays")
        return output

    def differentiate(self, operation: str, **more: Any) -> Vector:
        self.needs(operation)
        output = self.ask(operation, input=self.point, **more).get("output")
        if not isinstance(output, list) or not all(_is_number(each) for each in output):
            fail(f"/{operation}: `output` is not an array of numbers")
        return output

    def needs(self, operation: str) -> None:
        if self.support.get(operation) is not True:
            not_applicable(f"/ModelInfo does not claim {operation}")

    def _sizes(self, operation: str, key: str) -> list[int]:
        sizes = self.ask(operation).get(key)
        if not isinstance(sizes, list) or not all(
            isinstance(each, int | float) and each == int(each) for each in sizes
        ):
            fail(f"/{operation}: `{key}` is not an array of whole numbers")
        return [int(each) for each in sizes]


SUITE = Suite("umbridge", UmbridgeServer)
check = SUITE.check


@check("info.version", "GET /Info", "protocolVersion is the protocol's version")
def info_version(server: UmbridgeServer) -> None:
    version = server.info.get("protocolVersion")
    require(version is not None, "`protocolVersion` is missing")
    # The table in the specification says String, but UM-Bridge's own clients and servers use a number.
    if version == "1.0":
        deviate("`protocolVersion` is a string, as specified; the Python and C++ clients accept only the number 1.0")
    require(version == 1, f"`protocolVersion` is {version!r}; expected 1.0")


@check("info.models", "GET /Info", "models are the names of models available on this server")
def info_models(server: UmbridgeServer) -> None:
    models = server.info.get("models")
    if not isinstance(models, list) or not all(isinstance(each, str) for each in models):
        fail("`models` is not an array of strings")
    require(models, "`models` is empty")
    require(server.model in models, f"`models` does not contain {server.model!r}")


@check("info.members", "GET /Info", "the reply has protocolVersion and models")
def info_members(server: UmbridgeServer) -> None:
    more = sorted(server.info.keys() - {"protocolVersion", "models"})
    if more:
        deviate(f"additional members: {', '.join(more)}")


@check("model-info.support", "POST /ModelInfo", "support contains a boolean for each operation")
def model_info(server: UmbridgeServer) -> None:
    support = server.ask("ModelInfo").get("support")
    if not isinstance(support, dict):
        fail("`support` is not an object")
    wrong = [key for key, value in support.items() if not isinstance(value, bool)]
    require(not wrong, f"not a boolean: {', '.join(wrong)}")
    missing = [each for each in ("Evaluate", "Gradient", "ApplyJacobian", "ApplyHessian") if each not in support]
    if missing:
        deviate(f"missing, which clients interpret as false: {', '.join(missing)}")


@check("input-sizes", "POST /InputSizes", "inputSizes is an array of numbers, the model's input dimensions")
def input_sizes(server: UmbridgeServer) -> None:
    _sizes(server, "InputSizes", "inputSizes")


@check("output-sizes", "POST /OutputSizes", "outputSizes is an array of numbers, the model's output dimensions")
def output_sizes(server: UmbridgeServer) -> None:
    _sizes(server, "OutputSizes", "outputSizes")


def _sizes(server: UmbridgeServer, operation: str, key: str) -> None:
    sizes = server.ask(operation).get(key)
    if not isinstance(sizes, list) or not all(_is_number(each) and each == int(each) >= 0 for each in sizes):
        fail(f"`{key}` is {sizes!r}; expected an array of whole numbers")
    if not all(isinstance(each, int) for each in sizes):
        deviate(f"`{key}` has numbers with a fraction part, such as 3.0")


@check("sizes.config-optional", "POST /InputSizes", "config is optional")
def sizes_without_config(server: UmbridgeServer) -> None:
    for operation in ("InputSizes", "OutputSizes"):
        reply = server.post(f"/{operation}", {"name": server.model})
        require(reply.status == 200, f"/{operation} without `config`: status {reply.status}; expected 200")


@check("evaluate", "POST /Evaluate", "output is the evaluation, with the dimensions of /OutputSizes")
def evaluate(server: UmbridgeServer) -> None:
    output = server.evaluate()
    sizes = [len(each) for each in output]
    require(sizes == server.output_sizes, f"`output` has the sizes {sizes}; /OutputSizes reports {server.output_sizes}")
    wrong = [each for vector in output for each in vector if not _is_number(each)]
    if wrong:
        fail(f"`output` contains {wrong[0]!r}, which is not a number")


@check("evaluate.integers", "POST /Evaluate", "input is an array of arrays of numbers, which can be integers")
def evaluate_integers(server: UmbridgeServer) -> None:
    if server.options.inputs:
        not_tested("the input is given with --input")
    server.evaluate([[1] * size for size in server.input_sizes])


@check("evaluate.config-optional", "POST /Evaluate", "config is optional")
def evaluate_without_config(server: UmbridgeServer) -> None:
    server.needs("Evaluate")
    reply = server.post("/Evaluate", {"name": server.model, "input": server.point})
    require(reply.status == 200, f"without `config`: status {reply.status}; expected 200")


@check("evaluate.content-type", "POST /Evaluate", "input is JSON; the protocol requires no Content-Type")
def evaluate_without_content_type(server: UmbridgeServer) -> None:
    server.needs("Evaluate")
    body = b'{"name": %s, "input": %s, "config": {}}' % (_text(server.model), _text(server.point))
    reply = server.request("POST", "/Evaluate", body)
    require(reply.status == 200, f"without a Content-Type: status {reply.status}; expected 200")


@check("gradient.finite-differences", "POST /Gradient", "output is the gradient of sens * output with respect to inWrt")
def gradient(server: UmbridgeServer) -> None:
    server.needs("Gradient")
    out_size = server.output_sizes[0]
    sens = [1.0 + at % 2 for at in range(out_size)]
    found = server.differentiate("Gradient", inWrt=0, outWrt=0, sens=sens)
    _has_size(found, server.input_sizes[0], "input 0")
    direction = _direction(server.input_sizes[0])
    slope = _difference(server, direction)
    _agree(_dot(found, direction), _dot(sens, slope), "the gradient in one direction", "finite differences")


@check("jacobian.finite-differences", "POST /ApplyJacobian", "output is the Jacobian applied to vec")
def jacobian(server: UmbridgeServer) -> None:
    server.needs("ApplyJacobian")
    direction = _direction(server.input_sizes[0])
    found = server.differentiate("ApplyJacobian", inWrt=0, outWrt=0, vec=direction)
    _has_size(found, server.output_sizes[0], "output 0")
    for at, (ours, theirs) in enumerate(zip(_difference(server, direction), found, strict=True)):
        _agree(theirs, ours, f"element {at} of the Jacobian's action", "finite differences")


@check("jacobian.gradient", "POST /Gradient", "the Gradient is the transposed Jacobian applied to sens")
def jacobian_and_gradient(server: UmbridgeServer) -> None:
    server.needs("ApplyJacobian")
    server.needs("Gradient")
    direction = _direction(server.input_sizes[0])
    sens = [1.0] * server.output_sizes[0]
    forward = server.differentiate("ApplyJacobian", inWrt=0, outWrt=0, vec=direction)
    backward = server.differentiate("Gradient", inWrt=0, outWrt=0, sens=sens)
    _has_size(forward, server.output_sizes[0], "output 0")
    _has_size(backward, server.input_sizes[0], "input 0")
    _agree(_dot(sens, forward), _dot(backward, direction), "sens * (J vec)", "(J^T sens) * vec")


@check(
    "hessian",
    "POST /ApplyHessian",
    "output is the Hessian of sens * output applied to vec, and as long as input inWrt1",
)
def hessian(server: UmbridgeServer) -> None:
    server.needs("ApplyHessian")
    size = server.input_sizes[0]
    sens, direction = [1.0] * server.output_sizes[0], _direction(size)
    found = server.differentiate("ApplyHessian", inWrt1=0, inWrt2=0, outWrt=0, sens=sens, vec=direction)
    _has_size(found, size, "input 0")
    if server.support.get("Gradient") is not True:
        return
    sides = []
    for sign in (1, -1):
        point = _moved(server.point, direction, sign * STEP)
        body = {"name": server.model, "config": {}, "input": point, "inWrt": 0, "outWrt": 0, "sens": sens}
        sides.append(server.post("/Gradient", body).object.get("output", []))
    if not all(len(each) == size for each in sides):
        return  # the gradient checks report this fault
    slope = [(more - less) / (2 * STEP) for more, less in zip(*sides, strict=True)]
    _agree(_dot(found, direction), _dot(slope, direction), "vec * (H vec)", "differences of gradients")


@check("error.model-not-found", "Errors", "ModelNotFound: model with given name not provided by server; status 400")
def unknown_model(server: UmbridgeServer) -> None:
    for operation in ("ModelInfo", "InputSizes", "OutputSizes", "Evaluate"):
        reply = server.post(f"/{operation}", {"name": UNKNOWN, "input": [[0.0]], "config": {}})
        _is_error(reply, "ModelNotFound", f"/{operation} of an unknown model")


@check("error.input-count", "Errors", "InvalidInput: input does not match the model's dimensions; status 400")
def wrong_count(server: UmbridgeServer) -> None:
    server.needs("Evaluate")
    reply = server.post("/Evaluate", {"name": server.model, "input": [*server.point, [0.0]], "config": {}})
    _is_error(reply, "InvalidInput", "one input too many")


@check("error.input-size", "Errors", "InvalidInput: input does not match the model's dimensions; status 400")
def wrong_size(server: UmbridgeServer) -> None:
    server.needs("Evaluate")
    if not server.point:
        not_applicable("the model has no inputs")
    point = [[*server.point[0], 0.0], *server.point[1:]]
    reply = server.post("/Evaluate", {"name": server.model, "input": point, "config": {}})
    _is_error(reply, "InvalidInput", "an input one number too long")


@check("error.input-missing", "Errors", "InvalidInput: input is otherwise invalid; status 400")
def no_input(server: UmbridgeServer) -> None:
    server.needs("Evaluate")
    _is_error(server.post("/Evaluate", {"name": server.model, "config": {}}), "InvalidInput", "no `input`")


@check("error.input-type", "Errors", "InvalidInput: input is otherwise invalid; status 400")
def wrong_type(server: UmbridgeServer) -> None:
    server.needs("Evaluate")
    body = {"name": server.model, "input": [["x"] * size for size in server.input_sizes], "config": {}}
    _is_error(server.post("/Evaluate", body), "InvalidInput", "strings instead of numbers")


@check("error.index", "Errors", "InvalidInput: inWrt and outWrt are indices of an input and an output; status 400")
def wrong_index(server: UmbridgeServer) -> None:
    server.needs("Gradient")
    body = {"name": server.model, "input": server.point, "config": {}, "outWrt": 0, "inWrt": len(server.input_sizes)}
    reply = server.post("/Gradient", {**body, "sens": [1.0] * server.output_sizes[0]})
    _is_error(reply, "InvalidInput", "an inWrt that is out of range")


@check("error.sens-size", "Errors", "InvalidInput: sens does not match the output's dimension; status 400")
def wrong_sens(server: UmbridgeServer) -> None:
    server.needs("Gradient")
    body = {"name": server.model, "input": server.point, "config": {}, "outWrt": 0, "inWrt": 0}
    reply = server.post("/Gradient", {**body, "sens": [1.0] * (server.output_sizes[0] + 1)})
    _is_error(reply, "InvalidInput", "`sens` one number too long")


@check("error.hessian-vec-size", "Errors", "InvalidInput: vec does not match the dimension of input inWrt2; status 400")
def wrong_vec(server: UmbridgeServer) -> None:
    server.needs("ApplyHessian")
    body = {"name": server.model, "input": server.point, "config": {}, "outWrt": 0, "inWrt1": 0, "inWrt2": 0}
    sens, vec = [1.0] * server.output_sizes[0], [1.0] * (server.input_sizes[0] + 1)
    _is_error(server.post("/ApplyHessian", {**body, "sens": sens, "vec": vec}), "InvalidInput", "`vec` too long")


@check("error.unsupported", "Errors", "UnsupportedFeature: the model does not support the feature; status 400")
def unsupported(server: UmbridgeServer) -> None:
    members: dict[str, dict[str, Any]] = {
        "Evaluate": {},
        "Gradient": {"inWrt": 0, "outWrt": 0, "sens": [1.0]},
        "ApplyJacobian": {"inWrt": 0, "outWrt": 0, "vec": [1.0]},
        "ApplyHessian": {"inWrt1": 0, "inWrt2": 0, "outWrt": 0, "sens": [1.0], "vec": [1.0]},
    }
    absent = [each for each in members if server.support.get(each) is not True]
    if not absent:
        not_applicable("the model supports every operation")
    for operation in absent:
        body = {"name": server.model, "input": server.point, "config": {}, **members[operation]}
        reply = server.post(f"/{operation}", body)
        _is_error(reply, "UnsupportedFeature", f"/{operation}, which /ModelInfo does not claim")


@check("error.malformed-json", "Errors", "each endpoint may return errors: 400 for user errors, and a JSON structure")
def malformed(server: UmbridgeServer) -> None:
    reply = server.post("/Evaluate", b'{"name": ')
    _is_error(reply, "InvalidInput", "malformed JSON")


@check(
    "http.keep-alive",
    "Protocol",
    "HTTP/1.1 keeps a connection open until client or server closes it",
)
def keep_alive(server: UmbridgeServer) -> None:
    server.check_keeps_open("GET", "/Info")


@check("http.chunked", "Protocol", "a simple HTTP protocol: HTTP/1.1 requests may be chunked")
def chunked(server: UmbridgeServer) -> None:
    reply = server.chunked("/InputSizes", b'{"name": %s, "config": {}}' % _text(server.model))
    require(reply.status == 200, f"a chunked request: status {reply.status}; expected 200")


@check("limit.long-name", "POST /ModelInfo", "name is a string; the server stays available after a long name")
def long_name(server: UmbridgeServer) -> None:
    _is_error(server.post("/ModelInfo", {"name": "n" * 10_000}), "ModelNotFound", "a name of 10,000 characters")


def _is_error(reply: HttpReply, type_: str, what: str) -> None:
    """Check that the reply is an error in the specification's format."""
    if reply.status == 200:
        fail(f"{what}: status 200; expected 400 and an error of type {type_}")
    document = reply.document
    if not isinstance(document, dict):
        fail(f"{what}: status {reply.status} without a JSON object; expected 400 and an error of type {type_}")
    error = document.get("error")
    if not (isinstance(error, dict) and isinstance(error.get("type"), str) and isinstance(error.get("message"), str)):
        fail(f"{what}: `error` is {error!r}; expected an object with `type` and `message`")
    if error["type"] != type_:
        deviate(f"{what}: error of type {error['type']}; expected {type_}")
    if reply.status != 400:
        deviate(f"{what}: status {reply.status}; expected 400")


def _direction(size: int) -> Vector:
    return [1.0 if at % 2 == 0 else -0.5 for at in range(size)]


def _moved(point: Point, direction: Vector, step: float) -> Point:
    return [[each + step * along for each, along in zip(point[0], direction, strict=True)], *point[1:]]


def _difference(server: UmbridgeServer, direction: Vector) -> Vector:
    """Return a central-difference estimate of the derivative of output 0 along a direction of input 0."""
    more, less = (server.evaluate(_moved(server.point, direction, sign * STEP))[0] for sign in (1, -1))
    return [(a - b) / (2 * STEP) for a, b in zip(more, less, strict=True)]


def _agree(found: float, expected: float, what: str, other: str) -> None:
    if not abs(found - expected) <= TOLERANCE * max(1.0, abs(expected)):  # NaN must fail
        fail(f"{what} is {found:.6g}; {other} give {expected:.6g}")


def _has_size(vector: Vector, size: int, of: str) -> None:
    require(len(vector) == size, f"`output` has {len(vector)} numbers; expected {size}, as {of}")


def _dot(first: Vector, second: Vector) -> float:
    return sum(a * b for a, b in zip(first, second, strict=True))


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _text(value: Any) -> bytes:
    return json.dumps(value).encode()
