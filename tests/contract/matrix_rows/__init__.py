"""The rows of docs/matrix.md: the results of requests from a client protocol to a server protocol, each as a short
text."""

from collections.abc import Mapping

from gateway.core.datatypes import Datatype
from tests.contract.matrix_rows import beside, models, tensors
from tests.contract.matrix_rows.asked import Asked, Observe

ROWS: Mapping[str, Observe] = {
    "NaN and infinities": tensors.not_finite,
    "BYTES that are not UTF-8": tensors.not_text,
    "shape `[3, 1, 2]`": tensors.shape,
    "two rows": tensors.batch,
    "inputs are matched": tensors.input_names,
    "output names": tensors.output_names,
    "requested outputs": tensors.selection,
    "stream responses": tensors.stream,
    "supported `translate.stream`": tensors.reduction,
    "`config`, without `carry_config`": beside.config,
    "other parameters": beside.parameter,
    "id": beside.identifier,
    "version": beside.version,
    "derivatives": beside.derivatives,
    "errors": beside.errors,
    "metadata": models.metadata,
    "readiness": models.readiness,
    "list of models": models.listing,
}
"""All rows except datatypes, in the order of the document."""

Observed = Mapping[str, str]
"""A short result for each datatype and each row in ROWS."""


async def observed(asked: Asked) -> Observed:
    datatypes = {each.value: await tensors.datatype(asked, each) for each in Datatype}
    return {**datatypes, **{name: await observe(asked) for name, observe in ROWS.items()}}
