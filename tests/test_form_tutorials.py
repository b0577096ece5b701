"""Programs as the tutorials of Flask, FastAPI and Express have them, behind V2 by the forms of `docs/forms.md`: batches
go to programs that take one row, web forms, queries, texts for numbers and files."""

from __future__ import annotations

import re
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.interop import json_servers
from tests.interop.processes import Process, answers, free_port
from tests.limits import GENEROUS
from tests.running_gateway import running_gateway

PAGE = Path(__file__).parents[1] / "docs" / "forms.md"
SECTION = PAGE.read_text("utf-8").partition("## Forms of common programs\n")[2].partition("\n## ")[0]
BLOCKS: list[str] = re.findall(r"```yaml\n(.*?)```", SECTION, re.DOTALL)
WHOLE = BLOCKS[0]
FORMS = {block.splitlines()[1].strip(" :"): block for block in BLOCKS[1:]}
MOST_LINES = 12

Column = tuple[str, list[int], list[Any]]


def x(name: str, *values: Any, datatype: str = "FP64", shape: tuple[int, ...] = ()) -> dict[str, Any]:
    """An input of V2."""
    return {"name": name, "datatype": datatype, "shape": list(shape) or [len(values)], "data": list(values)}


FASTAPI: dict[str, tuple[list[dict[str, Any]], dict[str, Column]]] = {
    "flower": ([x("length", 5.1, 6.3), x("width", 3.5, 3.3)], {"species": ("BYTES", [2], ["setosa", "virginica"])}),
    "bmi": (
        [x("weight", 100, 50, 20), x("height", 2, 1, 1)],
        {"bmi": ("FP64", [3], [25.0, 50.0, 20.0]), "healthy": ("BOOL", [3], [False, False, True])},
    ),
    "passengers": (
        [x("age", 22, 38), x("sex", "male", "female", datatype="BYTES")],
        {"survived": ("INT64", [2], [0, 1])},
    ),
    "sentiment": (
        [x("text", "good", "a & b", datatype="BYTES")],
        {"label": ("BYTES", [2], ["GOOD", "A & B"]), "score": ("FP64", [2], [0.4, 0.5])},
    ),
}
FLASK: dict[str, tuple[list[dict[str, Any]], dict[str, Column]]] = {
    "iris": ([x("length", 5.1, 6.3, 7), x("width", 2, 3.3, 1)], {"class": ("INT64", [3], [0, 2, 1])}),
    "titanic": ([x("x", 22, 7.5, 38, 71, shape=(2, 2))], {"y": ("INT64", [2], [0, 2])}),
    "sum": ([x("x", 5.1, 3.5, 1.4, 1, 2, 3, shape=(2, 3))], {"y": ("FP64", [2], [10.0, 6.0])}),
    "price": ([x("area", 50, 80.5), x("rooms", 2, 3, datatype="INT64")], {"price": ("FP64", [2], [50100.0, 80650.0])}),
    "size": (
        [x("image", "abc", "\x00\x01\x02\x03\x04", datatype="BYTES")],
        {"class": ("BYTES", [2], ["small", "large"]), "confidence": ("FP64", [2], [0.3, 0.5])},
    ),
}
EXPRESS: dict[str, tuple[list[dict[str, Any]], dict[str, Column]]] = {
    "api": ([x("x", 1, 2, 3, 4, shape=(2, 2))], {"y": ("FP64", [2], [4.0, 10.0])})
}


def configuration(form: str, url: str) -> str:
    """The page's configuration with one of its forms, for a program at `url`. It has at most MOST_LINES lines."""
    others = "".join(line for line in WHOLE.splitlines(keepends=True)[2:])
    text = FORMS[form] + others.replace("form: model", f"form: {form}")
    assert len(text.splitlines()) <= MOST_LINES, text
    return text.replace("127.0.0.1:8080", "127.0.0.1:0").replace("127.0.0.1:5000", url)


async def outputs(form: str, url: str, inputs: list[dict[str, Any]]) -> Any:
    async with running_gateway(configuration(form, url)) as gateway, httpx.AsyncClient(timeout=GENEROUS) as client:
        address = gateway.state.listeners["http"].address
        reply = await client.post(f"http://{address}/v2/models/model/infer", json={"inputs": inputs})
        assert reply.status_code == 200, reply.text
        return {each["name"]: (each["datatype"], each["shape"], each["data"]) for each in reply.json()["outputs"]}


def test_every_form_of_the_page_has_a_program() -> None:
    assert list(FORMS) == [*FASTAPI, *FLASK, *EXPRESS]
    assert len(FORMS) == 10


@pytest.fixture(scope="module")
def fastapi(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    port = free_port()
    programs = str(json_servers.PROGRAMS)
    command = [sys.executable, "-m", "uvicorn", "--app-dir", programs, "fastapi_tutorials:app", "--port", str(port)]
    process = Process(command, tmp_path_factory.mktemp("fastapi"))
    process.wait_until(lambda: answers(f"http://127.0.0.1:{port}/none", 404), GENEROUS)
    yield f"127.0.0.1:{port}"
    process.stop()


@pytest.mark.parametrize(("form", "inputs", "expected"), [(form, *rest) for form, rest in FASTAPI.items()], ids=FASTAPI)
async def test_programs_of_fastapi(form: str, inputs: Any, expected: Any, fastapi: str) -> None:
    assert await outputs(form, fastapi, inputs) == expected


@pytest.fixture(scope="module")
def flask(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    server = json_servers.start_flask(tmp_path_factory.mktemp("flask"), "flask_tutorials")
    yield server.url.removeprefix("http://")
    server.stop()


@pytest.mark.real
@pytest.mark.parametrize(("form", "inputs", "expected"), [(form, *rest) for form, rest in FLASK.items()], ids=FLASK)
async def test_programs_of_flask(form: str, inputs: Any, expected: Any, flask: str) -> None:
    assert await outputs(form, flask, inputs) == expected


@pytest.mark.real("node")
async def test_a_program_of_node(tmp_path: Path) -> None:
    port, node = free_port(), shutil.which("node")
    assert node is not None
    process = Process([node, str(json_servers.PROGRAMS / "express_like.mjs"), str(port)], tmp_path)
    try:
        process.wait_until(lambda: answers(f"http://127.0.0.1:{port}/none", 404), GENEROUS)
        for form, (inputs, expected) in EXPRESS.items():
            assert await outputs(form, f"127.0.0.1:{port}", inputs) == expected
    finally:
        process.stop()
