"""Every model of the Triton repository; the configuration's parameter `kind` says which of the functions below."""

import json

import numpy as np
import triton_python_backend_utils as pb_utils
from functions import POSTERIOR

# What `fail`'s input asks for; 0 succeeds, any other number is a plain Python exception. By name, since the stub adds
# TritonError to its module only after it has imported this one.
CODES = {
    1: "UNKNOWN",
    2: "INTERNAL",
    3: "NOT_FOUND",
    4: "INVALID_ARG",
    5: "UNAVAILABLE",
    6: "UNSUPPORTED",
    7: "ALREADY_EXISTS",
    8: "CANCELLED",
}


class TritonPythonModel:
    def initialize(self, args):
        config = json.loads(args["model_config"])
        self.name, self.version = config["name"], int(args["model_version"])
        self.outputs = [output["name"] for output in config["output"]]
        self.serve = KINDS[config["parameters"]["kind"]["string_value"]]

    def execute(self, requests):
        return [self.answer(request) for request in requests]

    def answer(self, request):
        self.parameters = request.parameters()
        try:
            arrays = self.serve(self, request.inputs())
        except RefusedError as refusal:
            return pb_utils.InferenceResponse(error=refusal.args[0])
        tensors = [tensor_of(name, value) for name, value in zip(self.outputs, arrays, strict=True)]
        return pb_utils.InferenceResponse(tensors)


class RefusedError(Exception):
    """Carries the TritonError to answer with."""


def tensor_of(name, value):
    """A numpy array is wrapped; anything else is the memory of another tensor (DLPack)."""
    if isinstance(value, np.ndarray):
        return pb_utils.Tensor(name, value)
    return pb_utils.Tensor.from_dlpack(name, value)


def identity(model, inputs):
    return [inputs[0].as_numpy()]


def dlpack_identity(model, inputs):
    return [inputs[0].to_dlpack()]


def mixed(model, inputs):
    tensors = {tensor.name().removeprefix("in_"): [tensor] for tensor in inputs}
    names = [output.removeprefix("out_") for output in model.outputs]
    return [(dlpack_identity if name == "BF16" else identity)(model, tensors[name])[0] for name in names]


def parameters(model, inputs):
    """Those of the request, as Triton tells them to its models: one JSON text."""
    return [np.array([model.parameters], dtype=object)]


def double(model, inputs):
    return [inputs[0].as_numpy() * np.float32(2)]


def add_sub(model, inputs):
    left, right = (tensor.as_numpy() for tensor in inputs)
    return [left + right, left - right]


def upper(model, inputs):
    texts = inputs[0].as_numpy()
    return [np.array([text.upper() for text in texts.ravel()], dtype=object).reshape(texts.shape)]


def versioned(model, inputs):
    return [np.array([model.version], np.int32)]


def transpose(model, inputs):
    return [np.ascontiguousarray(inputs[0].as_numpy().transpose(0, 2, 1))]


def fail(model, inputs):
    code = int(inputs[0].as_numpy()[0])
    if code in CODES:
        raise RefusedError(
            pb_utils.TritonError(f"refused with code {code}", getattr(pb_utils.TritonError, CODES[code]))
        )
    if code:
        raise RuntimeError(f"crashed with code {code}")
    return [np.array([code], np.int32)]


def posterior(model, inputs):
    rows = [POSTERIOR.evaluate([theta])[0] for theta in inputs[0].as_numpy().tolist()]
    return [np.array(rows, np.float64).reshape(-1, 1)]


def companion(model, inputs):
    """Row by row; whatever has one row only holds for all of them."""
    tensors = {tensor.name(): tensor.as_numpy().tolist() for tensor in inputs}
    thetas = tensors.pop("theta")
    operation = getattr(POSTERIOR, model.name.rpartition(".")[2])
    rows = []
    for number, theta in enumerate(thetas):
        picked = {name: rows_[number if len(rows_) > 1 else 0] for name, rows_ in tensors.items()}
        indices = {name: int(row[0]) for name, row in picked.items() if "wrt" in name}
        vectors = {name: row for name, row in picked.items() if "wrt" not in name}
        rows.append(operation(inputs=[theta], **indices, **vectors))
    return [np.array(rows, np.float64).reshape(len(thetas), -1 if rows else 0)]


KINDS = {
    "identity": identity,
    "dlpack_identity": dlpack_identity,
    "mixed": mixed,
    "parameters": parameters,
    "double": double,
    "add_sub": add_sub,
    "upper": upper,
    "versioned": versioned,
    "fail": fail,
    "transpose": transpose,
    "posterior": posterior,
    "companion": companion,
}
