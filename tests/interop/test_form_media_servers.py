"""A real server of FastAPI that takes files and tables, and streams lines and events, behind V2 by declared forms."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator
from typing import Any

import httpx
import pytest

from tests.interop import json_servers
from tests.interop.exchanges import gateway
from tests.interop.processes import free_port
from tests.interop.real_clients import Step, doubles, elements, infer, packed, status_of, tensor, tritonclient

UPLOAD = {
    "infer": {
        "path": "/upload",
        "media_type": "multipart/form-data",
        "request": {"image": "$image", "crop": "$crop", "caption": "$caption|text"},
        "response": {"size": "$size|scalar", "caption": "$said|text"},
    },
    "tensors": {
        "image": "BYTES [1]",
        "crop": "INT64 [2]",
        "caption": "BYTES [1]",
        "size": "INT64 [1]",
        "said": "BYTES [1]",
    },
}
FILES = {
    "infer": {
        "path": "/files",
        "media_type": "multipart/form-data",
        "request": {"one": "$one", "other": "$other"},
        "response": {"sizes": "$sizes"},
    },
    "tensors": {"one": "BYTES [1]", "other": "BYTES [1]", "sizes": "INT64 [2]"},
}
TABLE = {
    "infer": {
        "path": "/table",
        "media_type": "text/csv; header=present",
        "request": [{"a": "$a", "b": "$b", "name": "$name"}, "..."],
        "response_type": "text/csv; header=present",
        "response": [{"prediction": "$y", "name": "$named"}, "..."],
    },
    "tensors": {"a": "FP64 [-1]", "b": "FP64 [-1]", "name": "BYTES [-1]", "y": "FP64 [-1]", "named": "BYTES [-1]"},
}


def _stream(path: str, stream: str) -> dict[str, Any]:
    request, response = {"prompt": "$prompt|text"}, {"word": "$word|text"}
    return {
        "infer": {"path": path, "request": request, "response": response, "stream": stream},
        "tensors": {"prompt": "BYTES [1]", "word": "BYTES [1]"},
    }


FORMS = {
    "upload": UPLOAD,
    "files": FILES,
    "table": TABLE,
    "lines": _stream("/lines", "jsonl"),
    "events": _stream("/events", "sse"),
}
"""The forms, by the names of their models."""


@pytest.fixture(scope="module")
def address(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Where V2's clients reach the server."""
    found = f"127.0.0.1:{free_port()}"
    with json_servers.start_fastapi(tmp_path_factory.mktemp("server"), "fastapi_media") as server:
        backend = {"protocol": "json", "endpoints": [server.url], "max_in_flight": 4}
        config = {
            "forms": FORMS,
            "listeners": [{"name": "http", "bind": found, "protocols": ["v2-rest"]}],
            "backends": {name: {**backend, "form": name} for name in FORMS},
            "routes": [{"match": {"model": name}, "backend": name} for name in FORMS],
        }
        with gateway(json.dumps(config), tmp_path_factory.mktemp("gateway")):
            yield found


def texts(name: str, *values: bytes) -> Step:
    return tensor(name, "BYTES", [len(values)], elements(*values))


IMAGE = b"\x89PNG\r\n\x1a\n--\r\n\r\n--x\x00\xff"
CALLS = {
    "a file": infer(
        "upload",
        texts("image", IMAGE),
        tensor("crop", "INT64", [2], packed("q", 2, 10)),
        texts("caption", 'é "quoted"; \\ 100%\r\n'.encode()),
    ),
    "two files": infer("files", texts("one", b""), texts("other", IMAGE)),
    "no file": infer("files", texts("other", IMAGE)),
    "a table": infer("table", doubles("a", [2], 1, 3), doubles("b", [2], 2, 4.5), texts("name", b'a,"b"\n', b"12")),
}


@pytest.fixture(scope="module")
def told(address: str) -> dict[str, Any]:
    """What a V2 client gets for all calls: its start takes long."""
    return dict(zip(CALLS, tritonclient(address, "sync", *CALLS.values()), strict=True))


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("a file", [packed("q", 8), elements('é "quoted"; \\ 100%\r\n'.encode())]),
        ("two files", [packed("q", 0, len(IMAGE))]),
        ("a table", [packed("d", 9, 20.5), elements(b'a,"b"\n', b"12")]),
    ],
)
def test_files_fields_and_tables_go_and_come(told: dict[str, Any], name: str, expected: list[bytes]) -> None:
    assert "error" not in told[name], told[name]
    assert [base64.b64decode(each["raw"]) for each in told[name]["outputs"]] == expected


def test_a_file_that_is_missing_is_named(told: dict[str, Any]) -> None:
    assert status_of(told["no file"]) == "400"
    assert "'one' is missing" in told["no file"]["error"]["message"]


@pytest.mark.parametrize("model", ["lines", "events"])
def test_a_stream_comes_message_by_message(address: str, model: str) -> None:
    body = {"prompt": "one two three"}
    with httpx.stream("POST", f"http://{address}/v2/models/{model}/generate_stream", json=body) as reply:
        events = [json.loads(line.removeprefix("data: ")) for line in reply.iter_lines() if line]
    assert [each["word"] for each in events] == ["one", "two", "three"]
