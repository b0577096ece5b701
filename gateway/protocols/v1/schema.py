"""The keys and constants of V1, and the two tensor formats.

Specifications: the KServe V1 protocol, and TensorFlow Serving's REST API, which defines the row format and the columnar
format.
"""

from enum import Enum

from gateway.core.frozen import frozen

NAME = "v1-rest"

SIGNATURE_NAME = "signature_name"
PARAMETERS = "parameters"
SERVING_DEFAULT = "serving_default"
"""The default signature of a TensorFlow model."""

STATUS = "status"
"""The `part` of a metadata request for the available versions (`GET /v1/models/{model}`)."""


class TensorFormat(Enum):
    """The format of a body's tensors."""

    ROWS = "a list with one entry for each row of the batch"
    COLUMNS = "each tensor whole"


@frozen
class BodyKeys:
    """The keys of the tensors in a body, one for each format.

    A body contains one of the two keys. Error messages call the tensors `role`."""

    rows: str
    columns: str
    role: str

    def of(self, tensor_format: TensorFormat) -> str:
        """Return the key of the tensors in this format."""
        return self.rows if tensor_format is TensorFormat.ROWS else self.columns


REQUEST = BodyKeys("instances", "inputs", "input")
REPLY = BodyKeys("predictions", "outputs", "output")
EXPLANATION = BodyKeys("explanations", "outputs", "explanation")


class Payload:
    """The values of a route's `translate.payload`: the format of requests to the backend."""

    ROWS = "rows"
    NAMED_ROWS = "named_rows"
    COLUMNS = "columns"
    NAMED_COLUMNS = "named_columns"


PAYLOADS = (Payload.ROWS, Payload.NAMED_ROWS, Payload.COLUMNS, Payload.NAMED_COLUMNS)
