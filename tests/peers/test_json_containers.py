"""The test servers for containers behave as the documents of the originals say."""

import json
import urllib.error
import urllib.request

import pytest

from tests.limits import GENEROUS
from tests.peers.json_containers import CONTAINERS, serve

TORCHSERVE_FAILURE = b'{\n  "code": 503,\n  "type": "InternalServerException",\n  "message": "Prediction failed"\n}\n'
SELDON_FAILURE = {"code": -1, "info": "boom", "reason": "MICROSERVICE_INTERNAL_ERROR", "status": 1}


def posted(url: str, body: bytes, kind: str = "application/json", accept: str = "*/*") -> tuple[int, bytes, str]:
    """The status, the body and the content type of the reply."""
    request = urllib.request.Request(url, body, {"Content-Type": kind, "Accept": accept})
    try:
        with urllib.request.urlopen(request, timeout=GENEROUS) as reply:
            return reply.status, reply.read(), reply.headers.get("Content-Type", "")
    except urllib.error.HTTPError as error:
        with error:
            return error.code, error.read(), error.headers.get("Content-Type", "")


@pytest.mark.parametrize(
    ("name", "path", "body", "expected"),
    [
        ("torchserve", "/predictions/double", b"[1]", (200, b"[\n  2\n]", "")),
        ("torchserve", "/predictions/double/1.0", b"nope", (200, b'{\n  "bytes": 4\n}', "")),
        ("torchserve", "/predictions/double", b"[-1]", (503, TORCHSERVE_FAILURE, "application/json")),
        ("sagemaker", "/invocations", b"[[1, 2.5]]", (200, b"[[2.0, 5.0]]", "application/json")),
        ("vertex", "/predict", b'{"instances": [1]}', (200, b'{"predictions": [2]}', "application/json")),
        ("seldon", "/predict", b'{"strData": "a"}', (200, b'{"strData": "A", "meta": {}}', "application/json")),
        ("seldon", "/predict", b'{"binData": "AAE="}', (200, b'{"binData": "AQA=", "meta": {}}', "application/json")),
        ("ray", "/", b"[1, [2]]", (200, b"[2, [4]]", "application/json")),
        ("ray", "/", b"[-1]", (500, b"Internal Server Error", "text/plain")),
    ],
)
def test_a_container_answers(name: str, path: str, body: bytes, expected: tuple[int, bytes, str]) -> None:
    with serve(CONTAINERS[name]) as server:
        assert posted(server.url + path, body) == expected
        assert server.requests == [f"POST {path}"]


def test_sagemaker_s_container_reads_and_writes_lines_of_numbers() -> None:
    with serve(CONTAINERS["sagemaker"]) as server:
        url = f"{server.url}/invocations"
        assert posted(url, b"1,2\n", "text/csv", "text/csv") == (200, b"2.0,4.0\n", "text/csv")
        assert posted(url, b"1", "text/plain")[0] == 415


def test_seldon_and_cog_tell_what_their_models_raise() -> None:
    with serve(CONTAINERS["seldon"]) as server:
        status, body, _ = posted(f"{server.url}/predict", b'{"data": {"ndarray": [-1]}}')
        assert (status, json.loads(body)) == (500, {"status": SELDON_FAILURE})
    with serve(CONTAINERS["cog"]) as server:
        status, body, _ = posted(f"{server.url}/predictions", b'{"input": {"x": [-1]}}')
        assert (status, json.loads(body)["status"]) == (200, "failed")


def test_embeddings_are_numbers_or_base64() -> None:
    with serve(CONTAINERS["embeddings"]) as server:
        url = f"{server.url}/v1/embeddings"
        for more, expected in ((b"", [5.0, 2.5]), (b',"encoding_format":"base64"', "AACgQAAAIEA=")):
            _, body, _ = posted(url, b'{"model":"m","input":"hello"' + more + b"}")
            assert json.loads(body)["data"][0]["embedding"] == expected
