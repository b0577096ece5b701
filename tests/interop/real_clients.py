"""Steps for the client scripts, and data worth sending: shared by the tests with and without a gateway."""

from __future__ import annotations

import base64
import struct
from typing import Any

from tests.interop.client_scripts import run_steps
from tests.interop.servers.functions import DOUBLE, POSTERIOR, TWO, Function

Step = dict[str, Any]


def umbridge(url: str, *steps: Step) -> list[Any]:
    """Run the steps in the real UM-Bridge client (see clients/umbridge_client.py)."""
    return run_steps("umbridge", "umbridge_client", url, steps)


def tritonclient(address: str, kind: str, *steps: Step, clients: int = 1) -> list[Any]:
    """Run the steps in the real Triton client, "sync" or "aio" (see clients/triton_client.py)."""
    return run_steps("tritonclient", "triton_client", address, kind, clients, steps)


def tritonclient_grpc(address: str, kind: str, *steps: Step) -> list[Any]:
    """The same over gRPC (see clients/triton_grpc_client.py)."""
    return run_steps("tritonclient", "triton_grpc_client", address, kind, steps)


INPUTS: dict[str, list[list[float]]] = {
    "posterior": [[0.5, -1.5]],
    "double": [[1.0, 2.5, -3.0]],
    "two": [[0.5, 1.5, -2.0], [3.0, 4.0]],
}
FUNCTIONS: dict[str, Function] = {"posterior": POSTERIOR, "double": DOUBLE, "two": TWO}


def operations(model: str) -> list[tuple[Step, object]]:
    """Every operation of a model for every combination of its indices, with what it should give."""
    function, inputs = FUNCTIONS[model], INPUTS[model]
    common: Step = {"model": model, "input": inputs}
    steps: list[tuple[Step, object]] = [({**common, "op": "evaluate"}, function.evaluate(inputs))]
    for out, outs in enumerate(function.output_sizes):
        sens = [1.0 + number for number in range(outs)]
        for one, ones in enumerate(function.input_sizes):
            vec = [0.5 - number for number in range(ones)]
            at = {**common, "out_wrt": out, "in_wrt": one}
            steps.append(({**at, "op": "gradient", "sens": sens}, function.gradient(out, one, inputs, sens)))
            steps.append(({**at, "op": "apply_jacobian", "vec": vec}, function.apply_jacobian(out, one, inputs, vec)))
            for other in range(len(function.input_sizes)):
                pair = {**common, "out_wrt": out, "in_wrt1": other, "in_wrt2": one}
                hessian = function.apply_hessian(out, other, one, inputs, sens, vec)
                steps.append(({**pair, "op": "apply_hessian", "sens": sens, "vec": vec}, hessian))
    return steps


def tensor(name: str, datatype: str, shape: list[int], raw: bytes) -> Step:
    return {"name": name, "datatype": datatype, "shape": shape, "raw": base64.b64encode(raw).decode()}


def doubles(name: str, shape: list[int], *numbers: float) -> Step:
    return tensor(name, "FP64", shape, struct.pack(f"<{len(numbers)}d", *numbers))


def infer(model: str, *inputs: Step, **options: object) -> Step:
    return {"op": "infer", "model": model, "inputs": list(inputs), **options}


def stream(*requests: Step, **options: object) -> Step:
    """Requests of one stream, in order."""
    return {"op": "stream", "requests": list(requests), **options}


def number(name: str, value: int) -> Step:
    return tensor(name, "INT32", [1], packed("i", value))


def status_of(result: Any) -> str:
    """`400` or `NOT_FOUND`; OK where the result is no error."""
    return str(result["error"]["status"]).removeprefix("StatusCode.") if "error" in result else "OK"


def error_of(result: Any) -> tuple[str, str]:
    """The status and the text of an error."""
    return status_of(result), str(result["error"]["message"])


def raw_of(result: Any) -> bytes:
    """The data of the first output."""
    assert "error" not in result, result
    return base64.b64decode(result["outputs"][0]["raw"])


def packed(form: str, *values: float) -> bytes:
    return struct.pack(f"<{len(values)}{form}", *values)


def elements(*values: bytes) -> bytes:
    return b"".join(struct.pack("<I", len(value)) + value for value in values)


# The ends of each range, and what is special in it.
SAMPLES = {
    "BOOL": packed("?", True, False),
    "UINT8": packed("B", 0, 255),
    "UINT16": packed("H", 0, 2**16 - 1),
    "UINT32": packed("I", 0, 2**32 - 1),
    "UINT64": packed("Q", 0, 2**64 - 1),
    "INT8": packed("b", -(2**7), 2**7 - 1),
    "INT16": packed("h", -(2**15), 2**15 - 1),
    "INT32": packed("i", -(2**31), 2**31 - 1),
    "INT64": packed("q", -(2**63), 2**63 - 1),
    "FP16": packed("e", 0.1, 65504),
    "FP32": packed("f", 0.1, -0.0),
    "FP64": packed("d", 0.1, 5e-324),
    "BF16": b"\xcd\x3d\x80\xff",  # 0.1 and -inf
    "BYTES": elements("é\0".encode(), b""),
}
