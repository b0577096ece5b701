"""The words of V1 on the wire, and the two forms that tensors travel in."""

from enum import Enum

from gateway.core.frozen import frozen
from gateway.core.types import Headers

NAME = "v1-rest"

JSON = Headers(((b"content-type", b"application/json"),))

SIGNATURE_NAME = "signature_name"
PARAMETERS = "parameters"
SERVING_DEFAULT = "serving_default"
"""The signature of a TensorFlow model that is used where nobody names one."""

STATUS = "status"
"""The part of a model's metadata that tells whether it is there, and its versions."""


class Form(Enum):
    """How the tensors stand in a body."""

    ROWS = "a list with one entry for each row of the batch"
    COLUMNS = "each tensor whole"


@frozen
class Keys:
    """The members of a body that hold its tensors, one for each form, and what one of those tensors is called in
    errors. A body has one of the two."""

    rows: str
    columns: str
    role: str

    def of(self, form: Form) -> str:
        """The member of a form."""
        return self.rows if form is Form.ROWS else self.columns


REQUEST = Keys("instances", "inputs", "input")
REPLY = Keys("predictions", "outputs", "output")
EXPLANATION = Keys("explanations", "outputs", "explanation")


class Payload:
    """The words of a route's `payload`: how requests to the backend are written."""

    ROWS = "rows"
    NAMED_ROWS = "named_rows"
    COLUMNS = "columns"
    NAMED_COLUMNS = "named_columns"


PAYLOADS = (Payload.ROWS, Payload.NAMED_ROWS, Payload.COLUMNS, Payload.NAMED_COLUMNS)
