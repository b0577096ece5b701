"""Real clients that send files, tables, arrays and lines, and take streams, through declared forms to V2 servers."""

from __future__ import annotations

import io
import json
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest

from tests.interop.client_scripts import run_steps
from tests.interop.form_listeners import speaking_forms
from tests.interop.test_form_media_servers import IMAGE, UPLOAD
from tests.limits import GENEROUS

ROWS: dict[str, Any] = {
    "infer": [
        {"path": "/invocations", "request": {"instances": "$x"}, "response": {"predictions": "$y"}},
        *(
            {"path": "/invocations", "media_type": each, "request": "$x", "response_type": each, "response": "$y"}
            for each in ("text/csv", "application/x-npy", "application/jsonlines")
        ),
    ],
}

COLUMNS = {
    "infer": {
        "path": "/table",
        "media_type": "text/csv; header=present",
        "request": [{"a": "$a", "b": "$b"}, "..."],
        "response_type": "text/csv; header=present",
        "response": [{"prediction": "$y"}, "..."],
    },
    "tensors": {"a": "FP64 [-1]", "b": "FP64 [-1]", "y": "FP64 [-1]"},
}

COMPLETION = {
    "path": "/v1/completions",
    "response": {"object": "text_completion", "choices": [{"index": 0, "text": "$token|text"}]},
}
ASKED = {"model": "$model", "prompt": "$prompt|text"}
COMPLETIONS = {
    "infer": [
        {**COMPLETION, "request": {**ASKED, "stream": True}, "stream": "openai"},
        {**COMPLETION, "request": {**ASKED, "stream?": False}},
    ],
    "error": {"error": {"message": "$message"}},
}

LINES = {
    "infer": {
        "path": "/words",
        "request": {"prompt": "$prompt|text"},
        "response": {"word": "$token|text"},
        "stream": "jsonl",
    },
}

FORMS = {
    "cropped": {**UPLOAD, "error": {"detail": "$message"}},
    "rows": ROWS,
    "columns": COLUMNS,
    "completions": COMPLETIONS,
    "lines": LINES,
}
MODEL_OF = {"cropped": "upload", "rows": "plane_of_rows", "columns": "plane", "completions": "", "lines": "words"}
"""The model of each form's listener."""


@pytest.fixture(scope="module", params=["v2-rest", "v2-grpc"])
def urls(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, str]]:
    """The URL of a listener in front of a V2 server for each form."""
    models = ("upload", "plane_of_rows", "plane", "words", "embed")
    routes = [
        {"match": {"model": "words"}, "backend": "v2", "translate": {"stream": "collect"}},
        {"match": {"model": "*"}, "backend": "v2"},
    ]
    listeners = {name: (name, MODEL_OF[name]) for name in FORMS}
    folder = tmp_path_factory.mktemp("gateway")
    with speaking_forms(folder, request.param, models, listeners, forms=FORMS, routes=routes) as found:
        yield found


def curl(*arguments: str) -> bytes:
    """What curl prints. Without curl the test is skipped."""
    program = shutil.which("curl")
    if program is None:
        pytest.skip("no curl")
    done = subprocess.run([program, "-sS", *arguments], capture_output=True, timeout=GENEROUS, check=True)
    return done.stdout


def test_curl_uploads_a_file(urls: dict[str, str], tmp_path: Path) -> None:
    file = tmp_path / 'a "b".png'
    file.write_bytes(IMAGE)
    quoted = str(file).replace('"', '\\"')
    image, caption = f'image=@"{quoted}";type=image/png', 'caption=é "quoted"; \\ 100%'
    reply = curl("-F", image, "-F", "crop=[2, 10]", "--form-string", caption, f"{urls['cropped']}/upload")
    assert json.loads(reply) == {"size": 8, "caption": 'é "quoted"; \\ 100%'}


def test_curl_is_told_what_is_wrong_with_its_parts(urls: dict[str, str]) -> None:
    url = f"{urls['cropped']}/upload"
    assert b"caption" in curl("-F", "image=x", "-F", "crop=[0, 1]", url)
    assert b"part 'crop' is not one JSON document" in curl("-F", "image=x", "-F", "crop=0,1", "-F", "caption=", url)
    assert b"more" in curl("-F", "image=x", "-F", "crop=[0,1]", "-F", "caption=", "-F", "more=1", url)
    assert b"two parts" in curl("-F", "image=x", "-F", "image=y", url)
    assert b"multipart/form-data" in curl("--json", '{"image": "x"}', url)


def test_httpx_uploads_a_file(urls: dict[str, str]) -> None:
    data = {"crop": "[0, 100]", "caption": "a\r\nb"}
    reply = httpx.post(f"{urls['cropped']}/upload", data=data, files={"image": ("x.png", IMAGE, "image/png")})
    assert (reply.status_code, reply.json()) == (200, {"size": len(IMAGE), "caption": "a\r\nb"})


def test_curl_sends_rows_of_csv(urls: dict[str, str], tmp_path: Path) -> None:
    file = tmp_path / "rows.csv"
    file.write_text("1,2\n3,4.5\n")
    url = f"{urls['rows']}/invocations"
    sent = ["-H", "content-type: text/csv", "--data-binary", f"@{file}"]
    assert curl(*sent, url) == b"9.0\r\n20.5\r\n"
    assert json.loads(curl(*sent, "-H", "accept: application/json", url)) == {"predictions": [9.0, 20.5]}


def test_pandas_sends_and_reads_tables(urls: dict[str, str]) -> None:
    table = {"b": [2.0, 4.5], "a": [1, 3]}
    named, quoted, rounded = run_steps(
        "json-servers",
        "pandas_client",
        f"{urls['columns']}/table",
        [
            {"table": table, "header": True},
            {"table": table, "header": True, "to_csv": {"quoting": 1}},
            {"table": table, "header": True, "to_csv": {"lineterminator": "\r\n", "float_format": "%.3e"}},
        ],
    )
    assert named == quoted == rounded == {"prediction": [9.0, 20.5]}
    step = {"table": {"a": [1, 3], "b": [2, 4.5]}, "header": False}
    [rows] = run_steps("json-servers", "pandas_client", f"{urls['rows']}/invocations", [step])
    assert rows == {"0": [9.0, 20.5]}


def test_numpy_sends_and_reads_files(urls: dict[str, str]) -> None:
    file = io.BytesIO()
    np.save(file, np.asfortranarray(np.array([[1, 2], [3, 4.5]], ">f8")))
    kind = "application/x-npy"
    reply = httpx.post(
        f"{urls['rows']}/invocations", content=file.getvalue(), headers={"content-type": kind, "accept": kind}
    )
    assert reply.headers["content-type"] == kind
    assert np.load(io.BytesIO(reply.content), allow_pickle=False).tolist() == [9.0, 20.5]


def test_httpx_sends_lines(urls: dict[str, str]) -> None:
    reply = httpx.post(
        f"{urls['rows']}/invocations",
        content="[1, 2]\n[3, 4.5]\n",
        headers={"content-type": "application/jsonlines", "accept": "application/jsonlines"},
    )
    assert [json.loads(line) for line in reply.iter_lines()] == [9.0, 20.5]


def test_a_media_type_that_no_form_has_is_refused(urls: dict[str, str]) -> None:
    reply = httpx.post(f"{urls['rows']}/invocations", content=b"x", headers={"content-type": "image/png"})
    assert reply.status_code == 415
    assert "image/png" in reply.text


def test_openai_takes_a_stream(urls: dict[str, str]) -> None:
    steps = [
        {"op": "stream", "model": "words", "prompt": "one two three"},
        {"op": "complete", "model": "words", "prompt": "one"},
        {"op": "stream", "model": "none", "prompt": "one"},
    ]
    streamed, whole, absent = run_steps("json-clients", "openai_client", urls["completions"], steps)
    assert streamed == ["one", "two", "three"]
    assert whole == "one"
    assert absent["error"]["type"] == "NotFoundError"


def test_curl_takes_events_up_to_the_last(urls: dict[str, str]) -> None:
    body = {"model": "words", "prompt": "one two", "stream": True}
    events = curl("-N", "--json", json.dumps(body), f"{urls['completions']}/v1/completions").decode().split("\n\n")
    assert [json.loads(each.removeprefix("data: "))["choices"][0]["text"] for each in events[:2]] == ["one", "two"]
    assert events[2:] == ["data: [DONE]", ""]


def test_httpx_takes_lines(urls: dict[str, str]) -> None:
    with httpx.stream("POST", f"{urls['lines']}/words", json={"prompt": "one two"}) as reply:
        assert reply.headers["content-type"] == "application/jsonlines"
        assert [json.loads(line) for line in reply.iter_lines()] == [{"word": "one"}, {"word": "two"}]
