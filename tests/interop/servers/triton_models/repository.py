"""The models that the real Triton serves, as one table, and the model repository written from it.

Nearly every model is the same `model.py`, told what to be by a parameter of its configuration: thirty files that differ
in a word would hide their differences.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterable
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path

from tests.interop.servers import v2_models

HERE = Path(__file__).resolve().parent

# V2's names; Triton's configuration calls BYTES a string.
DATATYPES = (*v2_models.DATATYPES[:-1], "BF16", "BYTES")


@dataclass(frozen=True)
class Port:
    """One input or output of a model."""

    name: str
    datatype: str
    dims: tuple[int, ...]

    def config(self) -> str:
        kind = "TYPE_STRING" if self.datatype == "BYTES" else f"TYPE_{self.datatype}"
        return f'{{ name: "{self.name}" data_type: {kind} dims: {list(self.dims)} }}'


@dataclass(frozen=True)
class Model:
    name: str
    kind: str
    """Which function of model.py serves it."""
    inputs: tuple[Port, ...]
    outputs: tuple[Port, ...]
    code: str = "model.py"
    max_batch_size: int = 0
    versions: tuple[int, ...] = (1,)
    extra: tuple[str, ...] = field(default=())
    """Further lines of the configuration."""

    def config(self) -> str:
        lines = [
            f'name: "{self.name}"',
            'backend: "python"',
            f"max_batch_size: {self.max_batch_size}",
            *(f"input {port.config()}" for port in self.inputs),
            *(f"output {port.config()}" for port in self.outputs),
            f'parameters {{ key: "kind" value {{ string_value: "{self.kind}" }} }}',
            "instance_group { kind: KIND_CPU count: 1 }",
            *self.extra,
        ]
        return "\n".join(lines) + "\n"


@dataclass(frozen=True)
class Ensemble:
    """A chain of models, each with one input and one output, that Triton runs by itself."""

    name: str
    members: tuple[Model, ...]

    def config(self) -> str:
        (given,), (found,) = self.members[0].inputs, self.members[-1].outputs
        between = [given.name, *(f"after_{each.name}" for each in self.members[:-1]), found.name]
        steps = [
            f'step {{ model_name: "{each.name}" model_version: -1 '
            f'input_map {{ key: "{each.inputs[0].name}" value: "{before}" }} '
            f'output_map {{ key: "{each.outputs[0].name}" value: "{after}" }} }}'
            for each, (before, after) in zip(self.members, pairwise(between), strict=True)
        ]
        lines = [
            f'name: "{self.name}"',
            'platform: "ensemble"',
            "max_batch_size: 0",
            f"input {given.config()}",
            f"output {found.config()}",
            "ensemble_scheduling {",
            *steps,
            "}",
        ]
        return "\n".join(lines) + "\n"


def identity(datatype: str) -> Model:
    return Model(
        f"identity_{datatype}",
        "dlpack_identity" if datatype == "BF16" else "identity",  # numpy has no BF16
        (Port("INPUT0", datatype, (-1,)),),
        (Port("OUTPUT0", datatype, (-1,)),),
    )


# A companion takes the inputs of its model, then the operation's arguments, in the order of UM-Bridge's methods.
THETA = Port("theta", "FP64", (-1, 2))
OUT_WRT, IN_WRT, IN_WRT1, IN_WRT2 = (
    Port(name, "INT64", (-1, 1)) for name in ("out_wrt", "in_wrt", "in_wrt1", "in_wrt2")
)
SENS, VEC, OUTPUT = (Port(name, "FP64", (-1, -1)) for name in ("sens", "vec", "output"))

TABLE = (
    *(identity(datatype) for datatype in DATATYPES),
    Model("posterior", "posterior", (THETA,), (Port("logdensity", "FP64", (-1, 1)),)),
    Model("posterior.gradient", "companion", (THETA, OUT_WRT, IN_WRT, SENS), (OUTPUT,)),
    Model("posterior.apply_jacobian", "companion", (THETA, OUT_WRT, IN_WRT, VEC), (OUTPUT,)),
    Model("posterior.apply_hessian", "companion", (THETA, OUT_WRT, IN_WRT1, IN_WRT2, SENS, VEC), (OUTPUT,)),
    Model("single", "double", (Port("x", "FP32", (-1, 3)),), (Port("y", "FP32", (-1, 3)),)),
    Model(
        "add_sub",
        "add_sub",
        (Port("INPUT0", "INT32", (-1,)), Port("INPUT1", "INT32", (-1,))),
        (Port("OUTPUT0", "INT32", (-1,)), Port("OUTPUT1", "INT32", (-1,))),
    ),
    Model("upper", "upper", (Port("INPUT0", "BYTES", (-1,)),), (Port("OUTPUT0", "BYTES", (-1,)),)),
    # With a batch size the batch dimension is not written, but metadata shows it.
    Model("batched", "double", (Port("x", "FP32", (3,)),), (Port("y", "FP32", (3,)),), max_batch_size=8),
    Model(
        "versioned",
        "versioned",
        (Port("x", "INT32", (-1,)),),
        (Port("version", "INT32", (1,)),),
        versions=(1, 2),
        extra=("version_policy { all { } }",),
    ),
    # One tensor of each datatype, so that one request can mix those in JSON and those in binary.
    Model(
        "mixed",
        "mixed",
        tuple(Port(f"in_{datatype}", datatype, (-1,)) for datatype in DATATYPES),
        tuple(Port(f"out_{datatype}", datatype, (-1,)) for datatype in DATATYPES),
    ),
    Model("parameters", "parameters", (Port("x", "INT32", (-1,)),), (Port("json", "BYTES", (1,)),)),
    Model("fail", "fail", (Port("code", "INT32", (1,)),), (Port("code", "INT32", (1,)),)),
    # n responses, the numbers below n; for a negative n an error after -n of them.
    Model(
        "repeat",
        "repeat",
        (Port("n", "INT32", (1,)),),
        (Port("OUTPUT0", "INT32", (1,)),),
        code="decoupled.py",
        extra=("model_transaction_policy { decoupled: true }",),
    ),
    # Runs until it is cancelled, and tells so in the file of this name.
    Model(
        "cancellable",
        "cancellable",
        (Port("file", "BYTES", (1,)),),
        (Port("OUTPUT0", "BYTES", (1,)),),
        code="cancellable.py",
    ),
    Model("matrix", "transpose", (Port("x", "FP64", (-1, 2, 3)),), (Port("y", "FP64", (-1, 3, 2)),)),
)


def write_repository(folder: Path, models: Iterable[Model | Ensemble] = TABLE) -> Path:
    """Write the model repository to a folder that is not there yet."""
    for model in models:
        home = folder / model.name
        for version in model.versions if isinstance(model, Model) else (1,):
            code = home / str(version)
            code.mkdir(parents=True)
            if isinstance(model, Model):
                shutil.copy(HERE / model.code, code / "model.py")
                shutil.copy(HERE.parent / "functions.py", code)
        (home / "config.pbtxt").write_text(model.config())
    return folder
