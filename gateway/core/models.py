"""The data that servers report about themselves and their models: metadata, lists of models, readiness, and the
independence of a batch's rows.
"""

import dataclasses
from collections.abc import Mapping, Sequence

from gateway.core.datatypes import BYTES, Datatype
from gateway.core.frozen import frozen
from gateway.core.html_tables import html_table
from gateway.core.operations import CONFIG_FROM_METADATA, Operation
from gateway.core.tensors import Shape


@frozen
class TensorSpec:
    """The name, datatype and shape of an input or output. In the shape, -1 means a dimension of any size.

    `content_type` has the same values as `Tensor.content_type`. If it is empty, each tensor keeps its own content type.
    `description` is the server's text for users. Requests can omit an `optional` input. An `image` is a numeric input
    for which the server also accepts image files, with one BYTES element per row."""

    name: str
    datatype: Datatype
    shape: Shape
    content_type: str = ""
    description: str = ""
    optional: bool = False
    image: bool = False

    def __str__(self) -> str:
        """Return a text like `x FP64[-1,3]`."""
        return f"{self.name} {self.datatype.value}[{','.join(map(str, self.shape))}]".strip()

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self}>"


@frozen
class Signature:
    """A model's inputs, outputs and other metadata: the response to `metadata`.

    Fields that were not requested, or that the server does not report, are empty. `operations` contains the operations
    that the model supports."""

    inputs: tuple[TensorSpec, ...] = ()
    outputs: tuple[TensorSpec, ...] = ()
    operations: frozenset[Operation] = frozenset({Operation.INFER})
    name: str = ""
    versions: tuple[str, ...] = ()
    platform: str = ""
    description: str = ""
    server_version: str = ""
    """The version of the server software."""
    further: Mapping[str, object] = dataclasses.field(default_factory=dict)
    """Additional members of a grps server's metadata (YAML)."""

    def with_images(self) -> "Signature":
        """Return this signature for a server that decodes image files itself.

        Each input whose rows have three dimensions (height, width and channels in some order) becomes an `image`."""
        inputs = (
            dataclasses.replace(each, image=len(each.shape) == 4 and each.datatype is not BYTES) for each in self.inputs
        )
        return dataclasses.replace(self, inputs=tuple(inputs))

    def __str__(self) -> str:
        """Return a text like `x FP64[-1,3] -> y FP64[-1,1]`, followed by the operations other than plain inference."""
        inputs, outputs = (", ".join(map(str, each)) or "(unknown)" for each in (self.inputs, self.outputs))
        further = ", ".join(sorted(each.value for each in self.operations - {Operation.INFER}))
        return f"{inputs} -> {outputs}  ({further})" if further else f"{inputs} -> {outputs}"

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self}>"

    def _repr_html_(self) -> str:
        """Return an HTML table for notebooks, with a row for each input and output."""
        rows = [
            [kind, each.name, each.datatype.value, ", ".join(map(str, each.shape)), each.description]
            for kind, specs in (("input", self.inputs), ("output", self.outputs))
            for each in specs
        ]
        told = [self.name, *(f"version {each}" for each in self.versions), self.platform]
        told.append(", ".join(sorted(each.value for each in self.operations)))
        return html_table(["", "name", "datatype", "shape", "description"], rows, "; ".join(filter(None, told)))


@frozen
class ServerInfo:
    """The response to `server-metadata`."""

    name: str
    version: str
    extensions: tuple[str, ...] = ()


@frozen
class ModelEntry:
    """One model in the response to `models`."""

    name: str
    version: str = ""
    state: str = ""
    reason: str = ""


@frozen
class NotReady:
    """A negative response to `ready`, with the reason."""

    text: str


# --- Independent rows of a batch ---


def are_rows_apart(signature: Signature, max_batch_size: int | None) -> bool:
    """Return True if batch rows are independent of each other.

    A first dimension of -1 alone does not prove this, because its size can be the number of points in a set that the
    model evaluates together. A server that reports a positive `max_batch_size` computes each row separately (Triton's
    model configuration, "Maximum Batch Size"). A server that reports 0 does not."""
    return bool(max_batch_size) and takes_batches(signature)


def max_batch_size(config: Mapping[str, object]) -> int | None:
    """Return the `max_batch_size` in a model's configuration (from the V2 extension "model configuration").

    Return None if the configuration has no `max_batch_size`, or if a gateway wrote the configuration, because a gateway
    cannot determine whether rows are independent."""
    parameters = config.get("parameters")
    if isinstance(parameters, Mapping) and CONFIG_FROM_METADATA in parameters:
        return None
    most = config.get("max_batch_size")
    return most if isinstance(most, int) and most >= 0 else None


def takes_batches(signature: Signature) -> bool:
    """Return True if all tensors have a batch dimension. A model with scalars, or with vectors of any length, has no
    batches."""
    shapes = [each.shape for each in (*signature.inputs, *signature.outputs)]
    return bool(signature.inputs and signature.outputs) and all(map(is_batch, shapes))


def is_batch(shape: Sequence[int]) -> bool:
    """Return whether the first dimension is the batch dimension. The result is True for `[-1, n]`, and False for
    `[-1]`, which is a vector of any length."""
    return len(shape) > 1 and shape[0] == -1
