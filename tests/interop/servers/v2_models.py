"""The models that the real MLServer and KServe serve, as one table; `v2_kinds.py` computes them.

It runs inside the peers' environments too, so it imports nothing but the standard library.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

# V2's, but for BF16, which neither server has.
DATATYPES = (
    "BOOL",
    "UINT8",
    "UINT16",
    "UINT32",
    "UINT64",
    "INT8",
    "INT16",
    "INT32",
    "INT64",
    "FP16",
    "FP32",
    "FP64",
    "BYTES",
)


@dataclass(frozen=True)
class Port:
    """One input or output, as the server's metadata has it."""

    name: str
    datatype: str
    shape: tuple[int, ...]

    def described(self) -> dict[str, Any]:
        return {"name": self.name, "datatype": self.datatype, "shape": list(self.shape)}


@dataclass(frozen=True)
class Model:
    name: str
    kind: str
    """Which function of v2_kinds.py serves it."""
    inputs: tuple[Port, ...] = ()
    outputs: tuple[Port, ...] = ()
    version: str = ""
    """Of MLServer's settings."""
    versions: tuple[str, ...] = ()
    """Of MLServer's metadata, which is another thing."""
    streams: bool = False
    """Only MLServer has these."""

    def output_names(self, inputs: Sequence[str]) -> list[str]:
        """Those declared; where nothing is, the names of the inputs."""
        return [port.name for port in self.outputs] or list(inputs)


def identity(datatype: str) -> Model:
    inputs, outputs = (Port("INPUT0", datatype, (-1,)),), (Port("OUTPUT0", datatype, (-1,)),)
    return Model(f"identity_{datatype}", "identity", inputs, outputs)


TABLE = (
    *map(identity, DATATYPES),
    Model("double", "double", (Port("x", "FP64", (-1, 3)),), (Port("y", "FP64", (-1, 3)),)),
    Model("single", "double", (Port("x", "FP32", (-1, 3)),), (Port("y", "FP32", (-1, 3)),)),
    Model("upper", "upper", (Port("INPUT0", "BYTES", (-1,)),), (Port("OUTPUT0", "BYTES", (-1,)),)),
    Model("posterior", "posterior", (Port("theta", "FP64", (-1, 2)),), (Port("logdensity", "FP64", (-1, 1)),)),
    Model("fail", "fail", (Port("code", "INT32", (1,)),), (Port("code", "INT32", (1,)),)),
    Model("undeclared", "identity"),
    Model("versioned", "identity", version="v10", versions=("v9", "v10")),
    # n responses of a megabyte; the file of the given name tells how many were made.
    Model(
        "flood",
        "flood",
        (Port("n", "INT32", (1,)), Port("file", "BYTES", (1,))),
        (Port("OUTPUT0", "BYTES", (1,)),),
        streams=True,
    ),
    Model("repeat", "repeat", (Port("n", "INT32", (1,)),), (Port("OUTPUT0", "INT32", (1,)),), streams=True),
)
BY_NAME = {model.name: model for model in TABLE}
