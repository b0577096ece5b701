"""The snippets of the playground, run."""

import ast
import asyncio
import os
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import orjson
import pytest

from tests.admin.playground.gateways import DOUBLE, HOSTILE, UPPER, RunningPlayground, played
from tests.cli.commands import ROOT
from tests.peers.build import require

PEERS = {"umbridge": "umbridge", "tritonclient.http": "tritonclient", "tritonclient.grpc": "tritonclient"}


@pytest.fixture
async def gateway(tmp_path: Path) -> AsyncIterator[RunningPlayground]:
    (tmp_path / "bin").mkdir()
    command = tmp_path / "bin" / "gateway"
    command.write_text(f'#!/bin/sh\nexec {sys.executable} -m gateway "$@"\n')
    command.chmod(0o755)
    async with played(tmp_path) as found:
        (tmp_path / "ca.crt").write_bytes(found.ca.read_bytes())
        yield found


async def output(gateway: RunningPlayground, form: dict[str, Any], name: str) -> str:
    """What the snippet prints."""
    [snippet] = [each for each in await gateway.ask("snippets", form) if each["name"] == name]
    assert snippet["code"], snippet["note"]
    folder = gateway.ca.parent
    python = str(require(PEERS[name]) / "bin/python") if name in PEERS else sys.executable
    command = ["bash", "-c", snippet["code"]] if snippet["language"] == "bash" else [python, "-c", snippet["code"]]
    environment = {"PATH": f"{folder}/bin:{os.environ['PATH']}", "GATEWAY_KEY": gateway.key, "HOME": str(folder)}
    if name not in PEERS:
        environment["PYTHONPATH"] = str(ROOT)
    process = await asyncio.create_subprocess_exec(
        *command, cwd=folder, env=environment, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE
    )
    found, errors = await process.communicate()
    assert process.returncode == 0, errors.decode()
    return found.decode()


def printed(text: str, name: str) -> Any:
    """The values in what a snippet prints."""
    if name in ("curl", "gateway call"):
        return orjson.loads(text)["outputs"][0]["data"]
    found = ast.literal_eval(text if name == "umbridge" else text.partition(" ")[2])
    return found[0] if isinstance(found[0], list) else found


RUN = [pytest.param("curl", marks=pytest.mark.real("curl")), "gateway call", "gateway.client"]
WITH_PEERS = [pytest.param(each, marks=pytest.mark.real) for each in PEERS]


@pytest.mark.parametrize("name", [*RUN, *WITH_PEERS])
async def test_a_snippet_gets_the_answer_that_the_playground_gets(gateway: RunningPlayground, name: str) -> None:
    for model in ("double", HOSTILE):
        if (name, model) == ("umbridge", HOSTILE):
            continue  # the route for it is V2's
        form = {**DOUBLE, "model": model}
        sent = await gateway.ask("send", form)
        expected = orjson.loads(sent["outputs"][0][0]["values"])[0]
        assert printed(await output(gateway, form, name), name) == expected


@pytest.mark.long
@pytest.mark.parametrize("name", RUN)
async def test_a_snippet_has_tls_and_the_key(gateway: RunningPlayground, name: str) -> None:
    form = {**DOUBLE, "listener": "secure"}
    assert gateway.key not in orjson.dumps(await gateway.ask("snippets", {**form, "key": gateway.key})).decode()
    assert printed(await output(gateway, form, name), name) == [2.0, 5.0, -6e-5]


@pytest.mark.long
@pytest.mark.parametrize("name", RUN)
async def test_a_snippet_has_texts_as_they_are(gateway: RunningPlayground, name: str) -> None:
    expected = ["IT'S", '$HOME "B" \\N']
    found = printed(await output(gateway, UPPER, name), name)
    assert [each.decode() if isinstance(each, bytes) else each for each in found] == expected


async def test_a_client_that_cannot_send_it_says_why(gateway: RunningPlayground) -> None:
    found = {each["name"]: each for each in await gateway.ask("snippets", UPPER)}
    assert found["umbridge"]["code"] == ""
    assert found["umbridge"]["note"] == "this protocol supports only numbers; choose a numeric datatype"
    many = {**DOUBLE, "inputs": [{"name": "x", "values": "1 " * 2001}]}
    assert all("too many" in each["note"] for each in await gateway.ask("snippets", many))
