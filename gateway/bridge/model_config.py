"""Derives a model configuration (Triton's `model_configuration`) from metadata, for models whose server has none.

Triton clients read the configuration before they call a model: PyTriton's ModelClient needs names, datatypes and
`max_batch_size`, and perf_analyzer stops if it gets no response. The configuration contains only members that follow
from metadata. `bridge` calls this module.

Source: Triton's `model_config.proto`, in the JSON format of Triton's HTTP interface.
"""

from collections.abc import Mapping

from gateway.bridge import shapes
from gateway.core.datatypes import Datatype
from gateway.core.models import Signature, TensorSpec
from gateway.core.operations import CONFIG_FROM_METADATA


def written(name: str, signature: Signature, max_rows: int) -> Mapping[str, object]:
    """Return the configuration of the model `name`.

    If the first dimension of every tensor is the batch dimension, `dims` contains the other dimensions and
    `max_batch_size` is `max_rows`. Otherwise `max_batch_size` is 0 and `dims` contains all dimensions."""
    specs = (*signature.inputs, *signature.outputs)
    batches = bool(specs) and all(shapes.is_batch(each.shape) for each in specs)
    return {
        "name": name,
        "max_batch_size": max_rows if batches else 0,
        "input": [_tensor(each, batches=batches) for each in signature.inputs],
        "output": [_tensor(each, batches=batches) for each in signature.outputs],
        "parameters": {CONFIG_FROM_METADATA: {"string_value": "true"}},
    }


def _tensor(spec: TensorSpec, *, batches: bool) -> dict[str, object]:
    datatype = "STRING" if spec.datatype is Datatype.BYTES else spec.datatype.value
    dims = list(spec.shape[1:] if batches else spec.shape)
    found: dict[str, object] = {"name": spec.name, "data_type": f"TYPE_{datatype}", "dims": dims}
    return {**found, "optional": True} if spec.optional else found
