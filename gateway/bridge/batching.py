"""Whether a model has a batch dimension here, and whether its backend is called for each row."""

from gateway.bridge import shapes
from gateway.bridge.signatures import as_batches
from gateway.core.protocol import Rows
from gateway.core.types import Signature


def batched(signature: Signature, client: Rows, upstream: Rows) -> tuple[Signature, bool]:
    """The signature that tensors are fitted to, and whether the backend is called for each row of them.

    Where one side counts rows on every tensor (Rows.FIRST), a model without a batch dimension is given one: the
    backend's own, or made of one call for each row.
    """
    single = upstream is Rows.ONE
    if Rows.FIRST not in (client, upstream) or not _is_one_row(signature):
        return signature, single
    return as_batches(signature), single or upstream is Rows.FREE


def _is_one_row(signature: Signature) -> bool:
    """Whether the tensors are those of one row. Scalars are left out: `[-1]` would be a free dimension, not a batch."""
    every = (*signature.inputs, *signature.outputs)
    return bool(signature.inputs) and all(spec.shape and not shapes.is_batch(spec.shape) for spec in every)
