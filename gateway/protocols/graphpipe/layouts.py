"""How the tables lie that are written: all fields that a reader of the real clients and servers needs, always."""

from gateway.protocols.graphpipe import schema
from gateway.protocols.graphpipe.flatbuffer_writer import Layout

REQUEST = Layout((schema.Request.REQ, 4), (schema.Request.REQ_TYPE, 1))

METADATA_REQUEST = Layout()

INFER_REQUEST = Layout(
    (schema.InferRequest.CONFIG, 4),
    (schema.InferRequest.INPUT_NAMES, 4),
    (schema.InferRequest.INPUT_TENSORS, 4),
    (schema.InferRequest.OUTPUT_NAMES, 4),
)

NUMBERS = Layout((schema.Tensor.SHAPE, 4), (schema.Tensor.DATA, 4), (schema.Tensor.TYPE, 1))
STRINGS = Layout((schema.Tensor.SHAPE, 4), (schema.Tensor.STRING_VAL, 4), (schema.Tensor.TYPE, 1))
"""Two layouts of one table: "one of `data` and `string_val` MUST be empty"."""

RESULTS = Layout((schema.InferResponse.OUTPUT_TENSORS, 4))
ERRORS = Layout((schema.InferResponse.ERRORS, 4))
"""Two layouts of InferResponse: "the server MUST include data in only one of" them."""

ERROR = Layout((schema.Error.MESSAGE, 4), (schema.Error.CODE, 8))

METADATA_RESPONSE = Layout(
    (schema.MetadataResponse.NAME, 4),
    (schema.MetadataResponse.VERSION, 4),
    (schema.MetadataResponse.SERVER, 4),
    (schema.MetadataResponse.DESCRIPTION, 4),
    (schema.MetadataResponse.INPUTS, 4),
    (schema.MetadataResponse.OUTPUTS, 4),
)

IO_METADATA = Layout(
    (schema.IOMetadata.NAME, 4),
    (schema.IOMetadata.DESCRIPTION, 4),
    (schema.IOMetadata.SHAPE, 4),
    (schema.IOMetadata.TYPE, 1),
)
