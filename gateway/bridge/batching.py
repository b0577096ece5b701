"""Whether a model has a batch dimension here, and whether its backend is called for each row."""

from collections.abc import Sequence

from gateway.bridge import shapes
from gateway.bridge.settings import RouteSettings
from gateway.bridge.signatures import as_batches
from gateway.core.protocol import Rows
from gateway.core.types import Signature, Tensor, TensorSpec


def batched(
    signature: Signature, inputs: Sequence[Tensor], settings: RouteSettings, client: Rows, upstream: Rows
) -> tuple[Signature, bool]:
    """The signature that `inputs` are fitted to, and whether the backend is called for each row of them.

    Where one side counts rows on every tensor (Rows.FIRST), a model without a batch dimension is given one: the
    backend's own, or made of one call for each row. A client's tensors that are what the model takes stay so.
    """
    single = upstream is Rows.ONE
    if Rows.FIRST not in (client, upstream) or not _is_one_row(signature):
        return signature, single
    if client is Rows.FIRST and _fit(inputs, signature, settings):
        return signature, single
    return as_batches(signature), single or upstream is Rows.FREE


def _is_one_row(signature: Signature) -> bool:
    """Whether the tensors are those of one row. Scalars are left out: `[-1]` would be a free dimension, not a batch."""
    every = (*signature.inputs, *signature.outputs)
    return bool(signature.inputs) and all(spec.shape and not shapes.is_batch(spec.shape) for spec in every)


def _fit(inputs: Sequence[Tensor], signature: Signature, settings: RouteSettings) -> bool:
    """Whether tensors without names are, by position, what the model takes."""
    wanted = _given_by_clients(signature, settings)
    return len(inputs) == len(wanted) and all(
        shapes.matches(tensor.shape, spec.shape) for tensor, spec in zip(inputs, wanted, strict=True)
    )


def _given_by_clients(signature: Signature, settings: RouteSettings) -> list[TensorSpec]:
    constants = {tensor.name for tensor in settings.constants}
    specs = {spec.name: spec for spec in signature.inputs if spec.name not in constants}
    return [specs[name] for name in settings.order if name in specs] or list(specs.values())
