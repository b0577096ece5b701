"""Functions that determine from a model's metadata and configuration whether the rows of a batch are independent."""

from collections.abc import Mapping, Sequence

from gateway.core.models import Signature
from gateway.core.operations import CONFIG_FROM_METADATA


def are_rows_apart(signature: Signature, max_batch_size: int | None) -> bool:
    """Return True if batch rows are independent of each other.

    A first dimension of -1 alone does not prove this, because it can count the points of a set that the model evaluates
    together. If a server reports a positive `max_batch_size`, it computes each row separately (Triton's model
    configuration, "Maximum Batch Size"); 0 means that it does not."""
    return bool(max_batch_size) and takes_batches(signature)


def max_batch_size(config: Mapping[str, object]) -> int | None:
    """Return the `max_batch_size` in a model's configuration (from the V2 extension "model configuration").

    Return None if the configuration has no `max_batch_size`, or if a gateway wrote the configuration, because a gateway
    cannot know whether rows are independent."""
    parameters = config.get("parameters")
    if isinstance(parameters, Mapping) and CONFIG_FROM_METADATA in parameters:
        return None
    most = config.get("max_batch_size")
    return most if isinstance(most, int) and most >= 0 else None


def takes_batches(signature: Signature) -> bool:
    """Return True if all tensors have a batch dimension. A model with scalars or vectors of any length has no
    batches."""
    shapes = [each.shape for each in (*signature.inputs, *signature.outputs)]
    return bool(signature.inputs and signature.outputs) and all(map(is_batch, shapes))


def is_batch(shape: Sequence[int]) -> bool:
    """Return whether the first dimension is the batch dimension: true for `[-1, n]`, false for `[-1]`, a vector of any
    length."""
    return len(shape) > 1 and shape[0] == -1
