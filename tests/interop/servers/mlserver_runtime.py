"""MLServer's runtime of the models in `v2_models`: the name in a model's settings says which one it is."""

from pathlib import Path

import numpy as np
from mlserver import MLModel
from mlserver.codecs import Base64Codec
from mlserver.errors import MLServerError
from mlserver.types import InferenceResponse, Parameters, ResponseOutput
from v2_kinds import KINDS, RefusedError
from v2_models import BY_NAME

DTYPES = {
    "BOOL": "?",
    "UINT8": "u1",
    "UINT16": "u2",
    "UINT32": "u4",
    "UINT64": "u8",
    "INT8": "i1",
    "INT16": "i2",
    "INT32": "i4",
    "INT64": "i8",
    "FP16": "f2",
    "FP32": "f4",
    "FP64": "f8",
    "BYTES": "O",
}
CRASH = 9
"""Of `fail`: a plain Python exception. Any other code is the HTTP status of MLServer's own error."""
BASE64 = "base64"


class Runtime(MLModel):
    async def predict(self, payload):
        model = BY_NAME[self.name]
        try:
            arrays = KINDS[model.kind]([array_of(given) for given in payload.inputs])
        except RefusedError as refused:
            if refused.code == CRASH:
                raise RuntimeError(str(refused)) from refused
            raise MLServerError(str(refused), refused.code) from refused
        names = model.output_names([given.name for given in payload.inputs])
        coded = any(is_base64(given) for given in payload.inputs)
        outputs = [output_of(name, array, coded) for name, array in zip(names, arrays, strict=True)]
        return InferenceResponse(
            model_name=self.name, model_version=self.version, id=payload.id, parameters=echoed(payload), outputs=outputs
        )


class Repeat(MLModel):
    """Answers each request of a stream with the numbers below its `n`; one below 0 fails after -n of them."""

    async def predict_stream(self, payloads):
        async for payload in payloads:
            count = int(payload.inputs[0].data[0])
            for number in range(abs(count)):
                output = ResponseOutput(name="OUTPUT0", shape=[1], datatype="INT32", data=[number])
                yield InferenceResponse(model_name=self.name, id=payload.id, outputs=[output])
            if count < 0:
                raise MLServerError(f"refused after {-count} responses")


class Flood(MLModel):
    """Answers with `n` responses of a megabyte; `file` tells how many were made."""

    async def predict_stream(self, payloads):
        async for payload in payloads:
            (n,), (file,) = (given.data for given in payload.inputs)
            made = Path(file.decode())
            for number in range(int(n)):
                write(made, number + 1)
                output = ResponseOutput(name="OUTPUT0", shape=[1], datatype="BYTES", data=[bytes([number]) * 2**20])
                yield InferenceResponse(model_name=self.name, id=payload.id, outputs=[output])


def write(file, number):
    file.write_text(str(number))


def is_base64(given):
    return given.parameters is not None and given.parameters.content_type == BASE64


def array_of(given):
    data = Base64Codec.decode_input(given) if is_base64(given) else list(given.data)
    return np.array(data, DTYPES[name_of(given.datatype)]).reshape(given.shape)


def name_of(datatype):
    """An enumeration over REST, text over gRPC."""
    return getattr(datatype, "value", datatype)


def output_of(name, array, coded):
    elements = array.ravel().tolist()
    if coded:
        return Base64Codec.encode_output(name, elements)
    datatype = next(each for each, dtype in DTYPES.items() if np.dtype(dtype) == array.dtype)
    return ResponseOutput(name=name, shape=list(array.shape), datatype=datatype, data=elements)


def echoed(payload):
    """The client's parameters. The headers among them would become those of the reply, a second Content-Length too."""
    given = payload.parameters.model_dump(exclude_none=True) if payload.parameters else {}
    given.pop("headers", None)
    return Parameters(**given) if given else None
