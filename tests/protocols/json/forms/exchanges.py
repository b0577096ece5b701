"""Exchanges of each ready form as bytes, and what they mean: recorded from real clients and servers where these can be
installed, else written after their documents."""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import numpy as np

from gateway.core.datatypes import DATATYPES
from gateway.core.errors import Reason
from gateway.core.tensors import ParameterValue, Tensor, tensor

Plain: TypeAlias = tuple[str, str, Any]
"""A tensor: its name, datatype and nested lists."""


def plain(tensor: Tensor) -> Plain:
    return tensor.name, tensor.datatype.value, _texts(tensor.array.tolist())


def _texts(values: Any) -> Any:
    if isinstance(values, list):
        return [_texts(each) for each in values]
    try:
        return values.decode() if isinstance(values, bytes) else values
    except UnicodeDecodeError:
        return values


def as_tensor(given: Plain) -> Tensor:
    name, datatype, values = given
    known = DATATYPES[datatype]
    return tensor(name, np.array(values, known.dtype), known)


def unnamed(datatype: str, values: Any) -> tuple[Plain]:
    """The only tensor of a message, which has no name there."""
    return (("", datatype, values),)


@dataclass(frozen=True)
class Told:
    """A reply of a server, its tensors, and how a listener writes these: if `writes` is empty, like `body`, but without
    blanks."""

    body: bytes
    outputs: tuple[Plain, ...]
    type: str = "application/json"
    writes: bytes = b""
    parameters: Mapping[str, ParameterValue] = field(default_factory=dict)
    read: bool = True
    """Whether a server gives it in answer to what the gateway writes."""


@dataclass(frozen=True)
class Asked:
    """A request of a client, its tensors, and how it is written to a backend: if `writes` is empty, like `body`, but
    without blanks. The default of `path` and `to` is the form's path."""

    body: bytes
    inputs: tuple[Plain, ...]
    told: Told
    also: tuple[Told, ...] = ()
    """Other replies, which are read, and written to a client that asks the same."""
    path: str = ""
    to: str = ""
    type: str = "application/json"
    headers: tuple[tuple[str, str], ...] = ()
    method: str = "POST"
    """Read by any method of the form; written by POST."""
    model: str = ""
    version: str = ""
    id: str = ""
    parameters: Mapping[str, ParameterValue] = field(default_factory=dict)
    writes: bytes = b""
    writes_type: str = ""
    """By default, JSON if the body is written in another way than it came, else the client's type."""
    query: str = ""


@dataclass(frozen=True)
class Failed:
    """A server's error, its message, and how a listener writes it, with the same status: if `writes` is empty, like
    `body`, but without blanks."""

    status: int
    body: bytes
    message: str
    writes: bytes = b""
    type: str = "application/json"
    reason: Reason | None = None
    """What it means, where HTTP's status does not say it."""


def written(recorded: Told | Asked | Failed) -> bytes:
    """The bytes that the gateway writes."""
    try:
        document = json.loads(recorded.body)
    except ValueError:
        return recorded.writes or recorded.body
    return recorded.writes or json.dumps(document, separators=(",", ":"), ensure_ascii=False).encode()


@dataclass(frozen=True)
class Exchanges:
    """All exchanges of one form; and its probe: the path, and replies of servers that are ready, and that are not."""

    path: str
    asked: Mapping[str, Asked]
    failed: Mapping[str, Failed]
    probe: str
    ready: tuple[bytes, ...]
    resting: tuple[bytes, ...] = ()
    model: str = ""
    """The model of the requests that give no other."""


def embeddings(*vectors: str, model: str = "m", more: str = "") -> bytes:
    """A reply of OpenAI's API."""
    data = ",".join(f'{{"object":"embedding","index":{at},"embedding":{each}}}' for at, each in enumerate(vectors))
    return f'{{"object":"list","data":[{data}],"model":"{model}"{more}}}'.encode()


def npy(values: Any, dtype: str) -> bytes:
    """A file of numpy, version 1.0, as `numpy.save` writes it."""
    array = np.array(values, dtype)
    header = f"{{'descr': '{array.dtype.str}', 'fortran_order': False, 'shape': {array.shape}, }}"
    header = header.ljust(117) + "\n"
    return b"\x93NUMPY\x01\x00" + len(header).to_bytes(2, "little") + header.encode() + array.tobytes()


X = unnamed("INT64", [[1, 2], [3, 4]])
Y = unnamed("FP64", [9.0, 19.5])
A_AND_B = (("a", "INT64", [1, 2]), ("b", "FP64", [1.5, 3.0]))
ROWS = (("a", "FP64", [1.0, 2.0]), ("b", "BYTES", ["x", "y"]))
DOUBLED = unnamed("INT64", [[2, 4, 6], [8, 10, 12]])
JPEG = unnamed("BYTES", [b"\xff\xd8\xff"])
PREDICTIONS = Told(b'{"predictions": [9.0, 19.5]}', Y)
HELLO_YOU = Told(
    b"hello you", unnamed("BYTES", ["hello you"]), type="text/plain; charset=utf-8", writes=b'["hello you"]'
)

MLFLOW = Exchanges(
    path="/invocations",
    asked={
        # ScoringServerClient of mlflow 3.17.2, `mlflow models serve` with scikit-learn
        "an array": Asked(
            b'{"inputs": [[1, 2], [3, 4]]}',
            X,
            PREDICTIONS,
            also=(
                Told(b'{"predictions": [9.0, NaN]}', unnamed("FP64", [9.0, float("nan")])),
                Told(b'{"predictions": [{"a": 1.0, "b": "x"}, {"a": 2.0, "b": "y"}]}', ROWS),
                Told(
                    b'{"predictions": {"p": [1.0, 2.0], "q": [[1], [2]]}}',
                    (("p", "FP64", [1.0, 2.0]), ("q", "INT64", [[1], [2]])),
                    writes=b'{"predictions":[{"p":1.0,"q":[1]},{"p":2.0,"q":[2]}]}',
                ),
            ),
        ),
        "a table": Asked(
            b'{"dataframe_split": {"index": [0, 1], "columns": ["a", "b"], "data": [[1, 1.5], [2, 3.0]]}}',
            A_AND_B,
            PREDICTIONS,
            writes=b'{"dataframe_split":{"columns":["a","b"],"data":[[1,1.5],[2,3.0]]}}',
        ),
        "records": Asked(
            b'{"dataframe_records": [{"a": 1, "b": 1.5}, {"a": 2, "b": 3.0}], "params": {"top": 3}}',
            A_AND_B,
            PREDICTIONS,
            parameters={"top": 3},
            writes=b'{"dataframe_split":{"columns":["a","b"],"data":[[1,1.5],[2,3.0]]},"params":{"top":3}}',
        ),
        "arrays by name": Asked(
            b'{"inputs": {"a": [[1, 2]], "b": [3.5]}}',
            (("a", "INT64", [[1, 2]]), ("b", "FP64", [3.5])),
            Told(b'{"predictions": [9.0]}', unnamed("FP64", [9.0])),
        ),
        "instances": Asked(b'{"instances": [[1, 2], [3, 4]]}', X, PREDICTIONS, writes=b'{"inputs":[[1,2],[3,4]]}'),
        "CSV": Asked(
            b"a,b\n1,1.5\n2,3.0\n",
            A_AND_B,
            PREDICTIONS,
            type="text/csv",
            writes=b'{"dataframe_split":{"columns":["a","b"],"data":[[1,1.5],[2,3.0]]}}',
        ),
    },
    failed={
        "of the model": Failed(
            400,
            b'{"error_code": "BAD_REQUEST", "message": "X has 3 features", "stack_trace": "Traceback ..."}',
            "X has 3 features",
            b'{"error_code":"BAD_REQUEST","message":"X has 3 features"}',
        ),
        "of mlflow 3": Failed(
            400,
            b'{"error_code": "BAD_REQUEST", "message": "Invalid input.", "sqlstate": "KAM00", "error_class": '
            b'"INVALID_PARAMETER_VALUE"}',
            "Invalid input.",
            b'{"error_code":"BAD_REQUEST","message":"Invalid input."}',
        ),
        "a content type": Failed(
            415,
            b"This predictor only supports the following content types",
            "This predictor only supports the following content types",
            b'{"error_code":"BAD_REQUEST","message":"This predictor only supports the following content types"}',
            type="text/plain",
        ),
    },
    probe="/ping",
    ready=(b"\n",),
)

SAGEMAKER = Exchanges(
    path="/invocations",
    asked={
        # boto3 1.44.5; it sends no Content-Type unless it is told one
        "instances, from boto3": Asked(
            b'{"instances": [[1, 2], [3, 4]]}',
            X,
            PREDICTIONS,
            path="/endpoints/prices/invocations",
            type="",
            headers=(
                ("x-amzn-sagemaker-inference-id", "i-1"),
                ("x-amzn-sagemaker-target-variant", "blue"),
                ("x-amzn-sagemaker-enable-explanations", "true"),
            ),
            model="prices",
            id="i-1",
            parameters={"target_variant": "blue", "enable_explanations": "true"},
            writes=b"[[1,2],[3,4]]",
        ),
        "features": Asked(
            b'{"instances":[{"features":[1,2]},{"features":[3,4]}]}',
            X,
            Told(b'{"predictions":[{"score":9.0},{"score":19.5}]}', Y, read=False),
            writes=b"[[1,2],[3,4]]",
        ),
        "a list": Asked(b"[[1,2],[3,4]]", X, Told(b"[9.0,19.5]", Y)),
        # multi-model-server 1.1.11
        "CSV": Asked(
            b"1,2\n3,4\n", X, Told(b"[[2, 4, 6], [8, 10, 12]]", DOUBLED), type="text/csv", writes=b"[[1,2],[3,4]]"
        ),
        "CSV for CSV": Asked(
            b"1,2\n3,4\n",
            X,
            Told(b"2,4,6\n8,10,12\n", DOUBLED, type="text/csv", writes=b"2,4,6\r\n8,10,12\r\n"),
            type="text/csv",
            headers=(("accept", "text/csv"),),
            writes=b"[[1,2],[3,4]]",
        ),
        ".npy": Asked(
            npy([[1.0, 2.0]], "<f4"),
            unnamed("FP32", [[1.0, 2.0]]),
            Told(b"[[2.0, 4.0, 7.0]]", unnamed("FP64", [[2.0, 4.0, 7.0]])),
            type="application/x-npy",
            writes=b"[[1.0,2.0]]",
        ),
        ".npy for .npy": Asked(
            npy([[1.0, 2.0]], "<f4"),
            unnamed("FP32", [[1.0, 2.0]]),
            Told(npy([9.0], "<f8"), unnamed("FP64", [9.0]), type="application/x-npy"),
            type="application/x-npy",
            headers=(("accept", "application/x-npy"),),
            writes=b"[[1.0,2.0]]",
        ),
        "JSON lines": Asked(
            b'{"features":[1,2]}\n{"features":[3,4]}\n',
            X,
            Told(b'{"score":9.0}\n{"score":19.5}\n', Y, type="application/jsonlines"),
            type="application/jsonlines",
            writes=b"[[1,2],[3,4]]",
        ),
    },
    failed={
        "of the container": Failed(500, b'{"message": "boom"}', "boom"),
        # multi-model-server 1.1.11
        "of the toolkit": Failed(
            500,
            b"boom\nTraceback (most recent call last):\n"
            b'  File "/opt/server/lib/python3.8/site-packages/sagemaker_inference/transformer.py", line 142, in '
            b"transform\n"
            b"    result = self._run_handler_function(\nValueError: boom\n",
            "boom",
            b'{"message":"boom"}',
            type="",
        ),
        "of the server": Failed(
            404,
            b'{\n  "code": 404,\n  "type": "ModelNotFoundException",\n  "message": "Model not found: nope"\n}\n',
            "Model not found: nope",
            b'{"message":"Model not found: nope"}',
        ),
        "of the service": Failed(
            424,
            b'{"Message":"Received server error (500)","OriginalMessage":"boom","OriginalStatusCode":500,'
            b'"LogStreamArn":"arn"}',
            "Received server error (500)",
            b'{"message":"Received server error (500)"}',
        ),
    },
    probe="/ping",
    ready=(b"",),
)

VERTEX = Exchanges(
    path="/predict",
    asked={
        "a client of the API": Asked(
            b'{"instances":[[1,2],[3,4]],"parameters":{"top":3}}',
            X,
            # google-cloud-aiplatform 2.7.0, a custom prediction routine
            Told(b'{"predictions": [[2, 4, 6], [8, 10, 12]]}', DOUBLED, type="*/*"),
            also=(
                Told(
                    b'{"predictions":[9.0,19.5],"deployedModelId":"77","model":"projects/1/locations/l/models/2",'
                    b'"modelDisplayName":"prices","modelVersionId":"1"}',
                    Y,
                    writes=b'{"predictions":[9.0,19.5]}',
                ),
                Told(b'{"predictions":[{"a":1.0,"b":"x"},{"a":2.0,"b":"y"}]}', ROWS),
            ),
            path="/v1/projects/p/locations/l/endpoints/prices:predict",
            model="prices",
            parameters={"top": 3},
        ),
        "the path of AIP_PREDICT_ROUTE": Asked(
            b'{"instances":[{"a":1,"b":1.5},{"a":2,"b":3.0}]}',
            A_AND_B,
            PREDICTIONS,
            path="/v1/endpoints/1/deployedModels/2:predict",
        ),
        "bytes": Asked(
            b'{"instances":[{"b64":"//4="},{"b64":"AA=="}]}',
            unnamed("BYTES", [b"\xff\xfe", "\0"]),
            PREDICTIONS,
            path="/v1/projects/p/locations/l/endpoints/prices:rawPredict",
            model="prices",
        ),
    },
    failed={
        "of the API": Failed(400, b'{"error":{"code":400,"message":"boom","status":"INVALID_ARGUMENT"}}', "boom"),
        "of a container": Failed(
            500,
            b'{"detail":"The following exception has occurred: ValueError. Arguments: (\'boom\',)."}',
            "The following exception has occurred: ValueError. Arguments: ('boom',).",
            b'{"error":{"code":500,"message":"The following exception has occurred: ValueError. Arguments: '
            b'(\'boom\',).","status":"INTERNAL"}}',
        ),
    },
    probe="/health",
    ready=(b"{}", b""),
)

TORCHSERVE = Exchanges(
    path="/predictions/m",
    model="m",
    asked={
        "a list": Asked(
            b"[[1,2],[3,4]]",
            X,
            Told(b"[\n  9.0,\n  19.5\n]", Y, type=""),
            also=(
                Told(
                    b'{\n  "tabby": 0.5,\n  "tiger": 0.25\n}',
                    (("tabby", "FP64", 0.5), ("tiger", "FP64", 0.25)),
                    type="",
                ),
            ),
            path="/predictions/m/1.0",
            to="/predictions/m/1.0",
            version="1.0",
        ),
        "KServe's envelope": Asked(
            b'{"instances":[[1,2],[3,4]]}',
            X,
            Told(b'{"predictions":[9.0,19.5]}', Y, read=False),
            writes=b"[[1,2],[3,4]]",
        ),
        "bytes": Asked(
            b"\xff\xd8\xff",
            JPEG,
            Told(b"[9.0,19.5]", Y, type=""),
            type="image/jpeg",
            writes_type="application/octet-stream",
        ),
        # `curl -T kitten.jpg`
        "bytes, by PUT": Asked(
            b"\xff\xd8\xff",
            JPEG,
            Told(b'{\n  "bytes": 20\n}', (("bytes", "INT64", 20),), type="", writes=b"20"),
            method="PUT",
            type="",
            writes_type="application/octet-stream",
        ),
        # `curl -T numbers.json`, and -H 'Content-Type:': the real server passes 9 bytes to the handler
        "JSON without a Content-Type": Asked(
            b"[[1,2,3]]",
            unnamed("BYTES", ["[[1,2,3]]"]),
            Told(b'{\n  "bytes": 9\n}', (("bytes", "INT64", 9),), type="", writes=b"9"),
            type="",
            writes_type="application/octet-stream",
        ),
        "a file": Asked(
            b'--b\r\nContent-Disposition: form-data; name="data"; filename="kitten.jpg"\r\n'
            b"Content-Type: image/jpeg\r\n\r\n\xff\xd8\xff\r\n--b--\r\n",
            JPEG,
            Told(b"[9.0,19.5]", Y, type=""),
            type="multipart/form-data; boundary=b",
            writes=b"\xff\xd8\xff",
            writes_type="application/octet-stream",
        ),
        # `curl -d data=...`
        "a text": Asked(
            b"data=caf%C3%A9+au+lait",
            unnamed("BYTES", ["caf\u00e9 au lait"]),
            Told(b'{\n  "bytes": 12\n}', (("bytes", "INT64", 12),), type="", writes=b"12"),
            type="application/x-www-form-urlencoded",
            writes="caf\u00e9 au lait".encode(),
            writes_type="application/octet-stream",
        ),
    },
    failed={
        "of the handler": Failed(
            503,
            b'{\n  "code": 503,\n  "type": "InternalServerException",\n  "message": "Prediction failed"\n}\n',
            "Prediction failed",
            reason=Reason.MODEL_ERROR,
        ),
        "without a worker": Failed(
            503,
            b'{\n  "code": 503,\n  "type": "ServiceUnavailableException",\n'
            b'  "message": "Model \\"m\\" has no worker"\n}\n',
            'Model "m" has no worker',
            b'{"code":503,"type":"InternalServerException","message":"Model \\"m\\" has no worker"}',
        ),
        "without the model": Failed(
            404,
            b'{\n  "code": 404,\n  "type": "ModelNotFoundException",\n  "message": "Model not found: nope"\n}\n',
            "Model not found: nope",
        ),
    },
    probe="/ping",
    ready=(b'{\n  "status": "Healthy"\n}\n',),
    resting=(b'{\n  "status": "Unhealthy"\n}\n',),
)

SELDON = Exchanges(
    path="/api/v1.0/predictions",
    asked={
        "ndarray": Asked(
            b'{"data":{"names":["a","b"],"ndarray":[[1,2],[3,4]]},"meta":{"puid":"u1","tags":{"k":1}}}',
            X,
            Told(
                b'{"data":{"names":["p"],"ndarray":[9.0,19.5]},"meta":{}}',
                Y,
                writes=b'{"data":{"ndarray":[9.0,19.5]},"meta":{"puid":"u1"}}',
            ),
            also=(
                Told(
                    b'{"strData":"HI","meta":{}}',
                    unnamed("BYTES", ["HI"]),
                    writes=b'{"data":{"ndarray":["HI"]},"meta":{"puid":"u1"}}',
                ),
            ),
            path="/seldon/ns/prices/api/v1.0/predictions",
            model="prices",
            id="u1",
            parameters={"k": 1},
            writes=b'{"data":{"ndarray":[[1,2],[3,4]]},"meta":{"puid":"u1","tags":{"k":1}}}',
        ),
        "tensor": Asked(
            b'{"data":{"tensor":{"shape":[2,2],"values":[1,2,3,4]}}}',
            X,
            Told(
                b'{"data":{"names":[],"tensor":{"shape":[2],"values":[9.0,19.5]}},"meta":{}}',
                Y,
                writes=b'{"data":{"tensor":{"shape":[2],"values":[9.0,19.5]}},"meta":{}}',
            ),
            path="/predict",
            writes=b'{"data":{"ndarray":[[1,2],[3,4]]}}',
        ),
        "strData": Asked(
            b'{"strData":"hi"}',
            unnamed("BYTES", ["hi"]),
            Told(b'{"strData":"HI","meta":{}}', unnamed("BYTES", ["HI"])),
            also=(Told(b'{"strData":"HI"}', unnamed("BYTES", ["HI"]), writes=b'{"strData":"HI","meta":{}}'),),
            writes=b'{"data":{"ndarray":["hi"]}}',
        ),
        "binData": Asked(
            b'{"binData":"AAH/"}',
            unnamed("BYTES", [b"\0\1\xff"]),
            Told(b'{"binData":"/wEA","meta":{}}', unnamed("BYTES", [b"\xff\1\0"])),
        ),
        # SeldonClient, and curl's --data-urlencode
        "the field of a web form": Asked(
            b"json=%7B%22data%22%3A%7B%22ndarray%22%3A%5B%5B1%2C+2%5D%2C+%5B3%2C+4%5D%5D%7D%7D",
            X,
            Told(
                b'{"data":{"names":["t:0","t:1","t:2"],"ndarray":[[2,4,6]]},"meta":{}}',
                unnamed("INT64", [[2, 4, 6]]),
                writes=b'{"data":{"ndarray":[[2,4,6]]},"meta":{}}',
            ),
            type="application/x-www-form-urlencoded",
            writes=b'{"data":{"ndarray":[[1,2],[3,4]]}}',
        ),
        # curl's -G --data-urlencode
        "the query": Asked(
            b"",
            X,
            Told(
                b'{"data":{"names":["t:0","t:1"],"ndarray":[[2,4],[6,8]]},"meta":{"puid":"p1","tags":{"t":1}}}',
                unnamed("INT64", [[2, 4], [6, 8]]),
                writes=b'{"data":{"ndarray":[[2,4],[6,8]]},"meta":{"puid":"p1","tags":{"t":1}}}',
                parameters={"t": 1},
            ),
            method="GET",
            query="json=%7B%22meta%22%3A%7B%22puid%22%3A%22p1%22%2C%22tags%22%3A%7B%22t%22%3A1%7D%7D%2C"
            "%22data%22%3A%7B%22ndarray%22%3A%5B%5B1%2C2%5D%2C%5B3%2C4%5D%5D%7D%7D",
            path="/predict",
            type="",
            id="p1",
            parameters={"t": 1},
            writes=b'{"data":{"ndarray":[[1,2],[3,4]]},"meta":{"puid":"p1","tags":{"t":1}}}',
        ),
        "bytes in the query": Asked(
            b"",
            unnamed("BYTES", [b"\0\1\xff"]),
            Told(b'{"binData":"/wEA","meta":{}}', unnamed("BYTES", [b"\xff\1\0"])),
            method="GET",
            query="json=%7B%22binData%22%3A%22AAH%2F%22%7D",
            type="",
            writes=b'{"binData":"AAH/"}',
        ),
    },
    failed={
        "of a body": Failed(
            400,
            b'{"status":{"code":-1,"info":"Can\'t find JSON in data","reason":"MICROSERVICE_BAD_DATA","status":1}}\n',
            "Can't find JSON in data",
        ),
        "of the model": Failed(
            500, b'{"status":{"code":-1,"info":"boom","reason":"MICROSERVICE_INTERNAL_ERROR","status":1}}', "boom"
        ),
    },
    probe="/health/ping",
    ready=(b"pong",),
)

TWO_LABELS = (("", "BYTES", [["POSITIVE", "NEGATIVE"]]), ("", "FP64", [[0.75, 0.25]]))

HUGGINGFACE = Exchanges(
    path="/",
    asked={
        # huggingface_hub.InferenceClient 2.4.0
        "text_classification": Asked(
            b'{"inputs":"good","parameters":{"top_k":2}}',
            unnamed("BYTES", ["good"]),
            Told(b'[[{"label": "POSITIVE", "score": 0.75}, {"label": "NEGATIVE", "score": 0.25}]]', TWO_LABELS),
            also=(
                Told(
                    b'[{"label":"POSITIVE","score":0.75},{"label":"NEGATIVE","score":0.25}]',
                    (("", "BYTES", ["POSITIVE", "NEGATIVE"]), ("", "FP64", [0.75, 0.25])),
                ),
            ),
            parameters={"top_k": 2},
            writes=b'{"inputs":["good"],"parameters":{"top_k":2}}',
        ),
        "feature_extraction": Asked(
            b'{"inputs":["hello","you"],"normalize":true}',
            unnamed("BYTES", ["hello", "you"]),
            Told(b"[[0.5,0.25],[1.0,2.0]]", unnamed("FP64", [[0.5, 0.25], [1.0, 2.0]])),
            parameters={"normalize": True},
        ),
        "zero_shot_classification": Asked(
            b'{"inputs":"x","parameters":{"candidate_labels":["a","b"],"multi_label":false}}',
            (("", "BYTES", ["x"]), ("", "BYTES", ["a", "b"])),
            Told(b'[{"label":"a","score":0.75}]', (("", "BYTES", ["a"]), ("", "FP64", [0.75]))),
            parameters={"multi_label": False},
            writes=b'{"inputs":["x"],"parameters":{"candidate_labels":["a","b"],"multi_label":false}}',
        ),
        "sentence_similarity": Asked(
            b'{"inputs":{"source_sentence":"a","sentences":["b","c"]},"parameters":{}}',
            (("", "BYTES", ["a"]), ("", "BYTES", ["b", "c"])),
            Told(b"[0.5,0.25]", unnamed("FP64", [0.5, 0.25])),
            writes=b'{"inputs":["a"],"parameters":{"candidate_labels":["b","c"]}}',
        ),
        "tabular_classification": Asked(
            b'{"parameters":{},"table":{"a":["1","2"],"b":["3","4"]}}',
            (("a", "BYTES", ["1", "2"]), ("b", "BYTES", ["3", "4"])),
            Told(b'["x","y"]', unnamed("BYTES", ["x", "y"])),
            writes=b'{"inputs":["1","2"],"parameters":{"candidate_labels":["3","4"]}}',
        ),
        "image_classification": Asked(
            b"\xff\xd8\xff",
            JPEG,
            Told(b'[{"label":"cat","score":0.75}]', (("", "BYTES", ["cat"]), ("", "FP64", [0.75]))),
            type="",
            writes_type="application/octet-stream",
        ),
    },
    failed={
        "an error": Failed(400, b'{"error":"boom"}', "boom"),
        "several": Failed(400, b'{"error":["a","b"]}', '["a","b"]', b'{"error":"[\\"a\\",\\"b\\"]"}'),
    },
    probe="/health",
    ready=(b"", b"{}"),
)

OPENAI_EMBEDDINGS = Exchanges(
    path="/v1/embeddings",
    model="m",
    asked={
        # openai 3.54.0, which asks for base64 by itself
        "a text": Asked(
            b'{"model":"m","input":"hello","encoding_format":"base64"}',
            unnamed("BYTES", ["hello"]),
            Told(
                embeddings('"AACAPwAAIEAAAEDA"', more=',"usage":{"prompt_tokens":1,"total_tokens":1}'),
                unnamed("FP32", [[1.0, 2.5, -3.0]]),
                parameters={"prompt_tokens": 1, "total_tokens": 1},
                read=False,
            ),
            writes=b'{"model":"m","input":["hello"]}',
        ),
        "texts, as numbers": Asked(
            b'{"model":"m","input":["a","b"],"dimensions":2,"encoding_format":"float"}',
            unnamed("BYTES", ["a", "b"]),
            Told(embeddings("[0.5,1.0]", "[0.25,2.0]"), unnamed("FP64", [[0.5, 1.0], [0.25, 2.0]])),
            parameters={"dimensions": 2},
            writes=b'{"model":"m","input":["a","b"],"dimensions":2}',
        ),
        "tokens": Asked(
            b'{"model":"m","input":[1,2,3]}',
            unnamed("INT64", [[1, 2, 3]]),
            Told(embeddings("[0.5,1.0]", model="m-2"), unnamed("FP64", [[0.5, 1.0]]), writes=embeddings("[0.5,1.0]")),
        ),
        "sequences of tokens": Asked(
            b'{"model":"m","input":[[1,2],[3,4]]}',
            X,
            Told(embeddings("[0.5]", "[0.25]"), unnamed("FP64", [[0.5], [0.25]])),
        ),
    },
    failed={
        "an error": Failed(
            400,
            b'{"error":{"message":"boom","type":"invalid_request_error","param":null,"code":null}}',
            "boom",
            b'{"error":{"message":"boom","type":"api_error"}}',
        )
    },
    probe="/health",
    ready=(b"",),
)

INFINITY_REPLY = (
    b'{"object":"list","data":[{"object":"embedding","embedding":[-0.33053016662597656,-0.20325514674186707],"index":0},'
    b'{"object":"embedding","embedding":[-0.10460096597671509,-0.2277822494506836],"index":1}],"model":"tiny",'
    b'"usage":{"prompt_tokens":8,"total_tokens":8},"id":"infinity-3e92f3a7-59f8-46d7-bb3b-6a6440517249",'
    b'"created":1795877665}'
)

INFINITY = Exchanges(
    path="/embeddings",
    model="tiny",
    asked={
        # infinity-emb 0.0.78
        "texts": Asked(
            b'{"model":"tiny","input":["hello","you"]}',
            unnamed("BYTES", ["hello", "you"]),
            Told(
                INFINITY_REPLY,
                unnamed(
                    "FP64", [[-0.33053016662597656, -0.20325514674186707], [-0.10460096597671509, -0.2277822494506836]]
                ),
                parameters={"prompt_tokens": 8, "total_tokens": 8},
                writes=embeddings(
                    "[-0.33053016662597656,-0.20325514674186707]",
                    "[-0.10460096597671509,-0.2277822494506836]",
                    model="tiny",
                    more=',"usage":{"prompt_tokens":8,"total_tokens":8}',
                ),
            ),
        ),
        "a text, with OpenAI's path": Asked(
            b'{"model":"tiny","input":"hello","encoding_format":"base64","dimensions":2}',
            unnamed("BYTES", ["hello"]),
            Told(
                embeddings('"QDupvh4iUL4="', model="tiny"),
                unnamed("FP32", [[-0.33053016662597656, -0.20325514674186707]]),
                read=False,
            ),
            path="/v1/embeddings",
            parameters={"dimensions": 2},
            writes=b'{"model":"tiny","input":["hello"],"dimensions":2}',
        ),
    },
    failed={
        "of a body": Failed(
            422,
            b'{"detail":[{"type":"json_invalid","loc":["body",24],"msg":"JSON decode error","input":{},'
            b'"ctx":{"error":"Expecting value"}}]}',
            '[{"type":"json_invalid","loc":["body",24],"msg":"JSON decode error","input":{},'
            '"ctx":{"error":"Expecting value"}}]',
            b'{"error":{"message":"[{\\"type\\":\\"json_invalid\\",\\"loc\\":[\\"body\\",24],'
            b'\\"msg\\":\\"JSON decode error\\",\\"input\\":{},\\"ctx\\":{\\"error\\":\\"Expecting value\\"}}]",'
            b'"type":"api_error"}}',
        ),
        "of a path": Failed(
            404, b'{"detail":"Not Found"}', "Not Found", b'{"error":{"message":"Not Found","type":"api_error"}}'
        ),
    },
    probe="/health",
    ready=(b'{"unix":1795877665.6505158}',),
)

BENTOML = Exchanges(
    path="/m",
    model="m",
    asked={
        "arguments by name": Asked(
            b'{"x":[[1,2],[3,4]]}',
            (("x", "INT64", [[1, 2], [3, 4]]),),
            Told(b"[[2, 4], [6, 8]]", unnamed("INT64", [[2, 4], [6, 8]])),
            also=(
                Told(b"3.5", unnamed("FP64", 3.5)),
                Told(b"HI", unnamed("BYTES", ["HI"]), type="text/plain; charset=utf-8", writes=b'["HI"]'),
                Told(b'[{"a":1.0,"b":"x"},{"a":2.0,"b":"y"}]', ROWS),
            ),
        ),
        "an argument without a name": Asked(
            b"[[1,2],[3,4]]", X, Told(b"[9.0,19.5]", Y), writes=b'{"input0":[[1,2],[3,4]]}'
        ),
    },
    failed={
        "a missing argument": Failed(
            400,
            b'{"error":"1 validation error for Input","detail":[{"type":"missing","loc":["x"],"msg":"Field required",'
            b'"url":"https://errors.pydantic.dev/2.14/v/missing"}]}',
            "1 validation error for Input",
            b'{"error":"1 validation error for Input"}',
        ),
        "of the library": Failed(500, b'[{"error":"no"}]', "no", b'{"error":"no"}'),
        "no such method": Failed(404, b"Not Found", "Not Found", b'{"error":"Not Found"}', type="text/plain"),
    },
    probe="/readyz",
    ready=(b"",),
)

LITSERVE = Exchanges(
    path="/predict",
    asked={
        "the number of the quick start": Asked(
            b'{"input":4.0}', unnamed("FP64", [4.0]), Told(b'{"output":80.0}', unnamed("FP64", [80.0]))
        ),
        "a list": Asked(b'{"input":[[1,2],[3,4]]}', X, Told(b'{"output":[9.0,19.5]}', Y)),
    },
    failed={"of the model": Failed(500, b'{"detail":"Internal server error"}', "Internal server error")},
    probe="/health",
    ready=(b"ok",),
)

RAY = Exchanges(
    path="/",
    asked={
        "a list": Asked(b"[[1,2],[3,4]]", X, Told(b"[9.0,19.5]", Y), also=(HELLO_YOU,)),
        "a list, by PUT": Asked(b"[1]", unnamed("INT64", [1]), Told(b"[2]", unnamed("INT64", [2])), method="PUT"),
        "an object": Asked(
            b'{"sepal length":[1.5],"petal length":[2.5]}',
            (("sepal length", "FP64", [1.5]), ("petal length", "FP64", [2.5])),
            Told(b'{"result":["setosa"]}', (("result", "BYTES", ["setosa"]),), writes=b'["setosa"]'),
        ),
    },
    failed={
        "of the deployment": Failed(500, b"Internal Server Error", "Internal Server Error", type=""),
        "of an application with FastAPI": Failed(
            422,
            b'{"detail":[{"type":"list_type","loc":["body"],"msg":"Input should be a valid list","input":{"a":1}}]}',
            '{"detail":[{"type":"list_type","loc":["body"],"msg":"Input should be a valid list","input":{"a":1}}]}',
        ),
        "without a route": Failed(
            404,
            b"Path '/nope' not found. Ping http://.../-/routes for available routes.",
            "Path '/nope' not found. Ping http://.../-/routes for available routes.",
            type="text/plain; charset=utf-8",
        ),
    },
    probe="/-/healthz",
    ready=(b"success",),
)

RAY_APPLICATIONS = Exchanges(
    path="/double",
    model="double",
    asked={
        "a list": Asked(
            b"[[1,2,3],[4,5,6]]", unnamed("INT64", [[1, 2, 3], [4, 5, 6]]), Told(b"[[2,4,6],[8,10,12]]", DOUBLED)
        ),
        "an object": Asked(
            b'{"a":[1,2],"b":[3.5]}',
            (("a", "INT64", [1, 2]), ("b", "FP64", [3.5])),
            Told(b'{"a":[2,4],"b":[7.0]}', (("a", "INT64", [2, 4]), ("b", "FP64", [7.0]))),
        ),
        "a text": Asked(b'"you"', unnamed("BYTES", "you"), HELLO_YOU, path="/text", to="/text", model="text"),
    },
    failed=RAY.failed,
    probe="/-/healthz",
    ready=(b"success",),
)

SUMS = unnamed("FP64", [2.0, 5.0, 6.0])

COG = Exchanges(
    path="/predictions",
    asked={
        "a prediction, of Cog 0.23": Asked(
            b'{"id":"abc","input":{"x":[1,2.5,3]}}',
            (("x", "FP64", [1.0, 2.5, 3.0]),),
            Told(
                b'{"id":"abc","logs":"","metrics":{"predict_time":0.004242264},"output":[2,5.0,6],"status":"succeeded"}',
                SUMS,
                writes=b'{"status":"succeeded","output":[2.0,5.0,6.0],"id":"abc"}',
            ),
            also=(
                Told(
                    b'{"id":"abc","output":{"a":[1.0],"b":["x"]},"status":"succeeded"}',
                    (("a", "FP64", [1.0]), ("b", "BYTES", ["x"])),
                    writes=b'{"status":"succeeded","output":{"a":[1.0],"b":["x"]},"id":"abc"}',
                ),
            ),
            id="abc",
            writes=b'{"input":{"x":[1.0,2.5,3.0]},"id":"abc"}',
        ),
        "a prediction without an id": Asked(
            b'{"input":{"x":[1,2.5,3]}}',
            (("x", "FP64", [1.0, 2.5, 3.0]),),
            # Cog 0.9
            Told(
                b'{"input":{"x":[1.0,2.5,3.0],"fail":false},"output":[2.0,5.0,6.0],"id":null,"version":null,'
                b'"created_at":null,"started_at":"2026-11-28T14:08:11.122435+00:00",'
                b'"completed_at":"2026-11-28T14:08:11.128316+00:00","logs":"","error":null,"status":"succeeded",'
                b'"metrics":{"predict_time":0.005881},"output_file_prefix":null,'
                b'"webhook_events_filter":["start","output","logs","completed"],"webhook":null}',
                SUMS,
                writes=b'{"status":"succeeded","output":[2.0,5.0,6.0]}',
            ),
            also=(
                # Cog 0.12 and 0.16
                Told(
                    b'{"input":{"x":[1.0,2.5,3.0],"fail":false,"wait":0},"output":[2.0,5.0,6.0],"id":null,"version":null,'
                    b'"created_at":null,"started_at":"2026-11-28T14:09:47.394922+00:00",'
                    b'"completed_at":"2026-11-28T14:09:47.399352+00:00","logs":"","error":null,"status":"succeeded",'
                    b'"metrics":{"predict_time":0.00443}}',
                    SUMS,
                    writes=b'{"status":"succeeded","output":[2.0,5.0,6.0]}',
                ),
                # Cog 0.23
                Told(
                    b'{"id":"pred_18ec3d703a0bab1a","logs":"","metrics":{"predict_time":0.001882662},"output":[2,5.0,6],'
                    b'"status":"succeeded"}',
                    SUMS,
                    writes=b'{"status":"succeeded","output":[2.0,5.0,6.0]}',
                ),
            ),
            writes=b'{"input":{"x":[1.0,2.5,3.0]}}',
        ),
        "one that runs once": Asked(
            b'{"input":{"x":[1]}}',
            (("x", "INT64", [1]),),
            Told(
                b'{"id":"abc","logs":"","metrics":{"predict_time":0.00106168},"output":[2],"status":"succeeded"}',
                unnamed("INT64", [2]),
                writes=b'{"status":"succeeded","output":[2],"id":"abc"}',
            ),
            path="/predictions/abc",
            method="PUT",
            id="abc",
            writes=b'{"input":{"x":[1]},"id":"abc"}',
        ),
        "all members of a request": Asked(
            b'{"id":"abc","input":{"x":[1]},"created_at":"2026-11-28T20:00:00Z","output_file_prefix":"a",'
            b'"webhook_events_filter":["start"]}',
            (("x", "INT64", [1]),),
            Told(
                b'{"id":"abc","output":[2],"status":"succeeded"}',
                unnamed("INT64", [2]),
                writes=b'{"status":"succeeded","output":[2],"id":"abc"}',
            ),
            headers=(("prefer", "respond-async"),),
            id="abc",
            writes=b'{"input":{"x":[1]},"id":"abc"}',
        ),
    },
    failed={
        "of the model, of Cog 0.23": Failed(
            200,
            b'{"error":"Prediction failed: Prediction failed: ValueError: boom","id":"abc","logs":"",'
            b'"metrics":{"predict_time":0.000938557},"status":"failed"}',
            "Prediction failed: Prediction failed: ValueError: boom",
            b'{"error":"Prediction failed: Prediction failed: ValueError: boom","status":"failed"}',
            reason=Reason.MODEL_ERROR,
        ),
        "of the model, of Cog 0.9": Failed(
            200,
            b'{"input":{"x":[-1.0],"fail":false},"output":null,"id":null,"version":null,"created_at":null,'
            b'"started_at":"2026-11-28T14:08:11.247925+00:00","completed_at":"2026-11-28T14:08:11.254804+00:00",'
            b'"logs":"Traceback (most recent call last):\\nValueError: boom\\n","error":"boom","status":"failed",'
            b'"metrics":null,"output_file_prefix":null,"webhook_events_filter":["start"],"webhook":null}',
            "boom",
            b'{"error":"boom","status":"failed"}',
            reason=Reason.MODEL_ERROR,
        ),
        "of a Cog that is busy": Failed(
            409,
            b'{"error":"At capacity - all prediction slots busy","status":"failed"}',
            "At capacity - all prediction slots busy",
            reason=Reason.OVERLOADED,
        ),
        "of an older Cog that is busy": Failed(
            409,
            b'{"detail":"Already running a prediction"}',
            "Already running a prediction",
            b'{"error":"Already running a prediction","status":"failed"}',
            reason=Reason.OVERLOADED,
        ),
        "of the set-up": Failed(
            503,
            b'{"error":"Setup has not finished yet. Wait until it has finished, or GET /health-check for status.",'
            b'"status":"failed"}',
            "Setup has not finished yet. Wait until it has finished, or GET /health-check for status.",
        ),
        "of a validation": Failed(
            422,
            b'{"detail":[{"loc":["body","input","x"],"msg":"field required","type":"value_error.missing"}]}',
            '[{"loc":["body","input","x"],"msg":"field required","type":"value_error.missing"}]',
            b'{"error":"[{\\"loc\\":[\\"body\\",\\"input\\",\\"x\\"],\\"msg\\":\\"field required\\",'
            b'\\"type\\":\\"value_error.missing\\"}]","status":"failed"}',
        ),
        "of a content type": Failed(
            415,
            b"Expected request with `Content-Type: application/json`",
            "Expected request with `Content-Type: application/json`",
            b'{"error":"Expected request with `Content-Type: application/json`","status":"failed"}',
            type="text/plain; charset=utf-8",
        ),
        "of a path": Failed(
            404, b"", "status 404 without a body", b'{"error":"status 404 without a body","status":"failed"}', type=""
        ),
    },
    probe="/health-check",
    ready=(b'{"status":"READY","setup":{"status":"succeeded"}}', b'{"status":"BUSY"}'),
    resting=(b'{"status":"STARTING"}', b'{"status":"SETUP_FAILED","setup":{}}'),
)

FORMS: Mapping[str, Exchanges] = {
    "mlflow": MLFLOW,
    "sagemaker": SAGEMAKER,
    "vertex": VERTEX,
    "torchserve": TORCHSERVE,
    "seldon": SELDON,
    "huggingface": HUGGINGFACE,
    "openai-embeddings": OPENAI_EMBEDDINGS,
    "infinity": INFINITY,
    "bentoml": BENTOML,
    "litserve": LITSERVE,
    "ray": RAY,
    "ray-applications": RAY_APPLICATIONS,
    "cog": COG,
}
