"""`gateway conformance` as its users meet it: exit codes, the table, the reports."""

import asyncio
import json
import socket
from collections.abc import Callable
from pathlib import Path
from xml.etree import ElementTree

import pytest
from typer.testing import CliRunner, Result

import gateway.tools.conformance
from gateway.cli import application
from gateway.cli.exit_codes import FAILED, UNREACHABLE, USAGE
from tests.cli.commands import gateway as command
from tests.running_gateway import reference
from tests.tools.conformance.broken import Change, errors, over_http


async def checked(*arguments: str, change: Change = lambda path, sent, status, body: (status, body)) -> Result:
    """The command at a V2 server that may be broken."""
    async with reference("v2-rest", "double") as upstream:
        with over_http(upstream, change) as address:
            words = ["conformance", address, "--protocol", "v2-rest", *arguments]
            return await asyncio.to_thread(CliRunner().invoke, application, words)


async def test_the_address_may_begin_with_the_protocol_as_for_other_commands() -> None:
    async with reference("v2-rest", "double") as upstream:
        with over_http(upstream, lambda path, sent, status, body: (status, body)) as address:
            address = "v2-rest://" + address.removeprefix("http://")
            words = ["conformance", address, "--protocol", "v2-rest", "--only", "health.live"]
            result = await asyncio.to_thread(CliRunner().invoke, application, words)
    assert (result.exit_code, result.output.split()[:2]) == (0, ["pass", "v2-rest.health.live"])


async def test_a_server_that_passes() -> None:
    result = await checked()
    assert result.exit_code == 0
    lines = result.output.splitlines()
    assert lines[0].split() == ["pass", "v2-rest.health.live"]
    assert lines[-1].endswith("requests")
    assert " fail" not in lines[-1]
    assert "\033" not in result.output


async def test_a_failure_tells_the_rule_and_the_messages() -> None:
    result = await checked("--only", "error.malformed-json", change=errors(400, b"<h1>\x1b[31mno</h1>"))
    assert result.exit_code == FAILED
    said = " ".join(result.output.split())
    assert "fail v2-rest.error.malformed-json malformed JSON: status 400 with no JSON object" in said
    assert 'sent: POST /v2/models/double/infer {"inputs": [' in said
    assert "rule: the request object is JSON (Inference Request JSON Object)" in said
    assert "\x1b" not in result.output


async def test_the_report_for_junit(tmp_path: Path) -> None:
    file = tmp_path / "junit.xml"
    result = await checked("--junit", str(file), change=errors(500, b'{"error": "a & b <c> \\u0001"}'))
    root = ElementTree.fromstring(file.read_text("utf-8"))
    cases = {each.get("name"): each for each in root.iter("testcase")}
    assert root.get("tests") == str(len(cases))
    assert int(root.get("failures") or 0) == len(list(root.iter("failure"))) == result.output.count("\nfail ")
    assert int(root.get("skipped") or 0) == len(list(root.iter("skipped")))
    assert cases["health.live"].find("*") is None
    assert "expected 4xx for a client error" in (cases["error.malformed-json"].findtext("system-out") or "")
    assert cases["health.unknown-model"].find("failure") is not None


async def test_json_alone_on_standard_output() -> None:
    result = await checked("--json", "-", "--only", "health.live")
    document = json.loads(result.stdout)
    assert (document["protocol"], document["passed"], document["requests"]) == ("v2-rest", True, 1)
    [check] = document["checks"]
    assert (check["id"], check["verdict"], check["received"]) == ("v2-rest.health.live", "pass", ['200 {"live":true}'])


async def test_a_deviation_is_no_failure(tmp_path: Path) -> None:
    file = tmp_path / "found.json"
    change = errors(500, b'{"error": "no"}')
    result = await checked("--only", "error.malformed-json", "--json", str(file), change=change)
    assert result.exit_code == 0
    assert json.loads(file.read_text("utf-8"))["checks"][0]["verdict"] == "deviates"


def test_nothing_answers() -> None:
    with socket.socket() as closed:  # bound, so that nobody else listens there
        closed.bind(("127.0.0.1", 0))
        result = command("conformance", f"127.0.0.1:{closed.getsockname()[1]}", "--protocol", "v2-rest")
    assert result.exit_code == UNREACHABLE
    assert "connection refused" in result.output


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (["127.0.0.1:1", "--protocol", "v3"], "no protocol 'v3'; expected umbridge, graphpipe"),
        (["--protocol", "mip"], "no address"),
        (["ftp://127.0.0.1:1", "--protocol", "v2-rest"], "is not HOST:PORT or a URL"),
        (["127.0.0.1", "--protocol", "mip"], "is not HOST:PORT, tcp://HOST:PORT or unix:///PATH"),
        (["127.0.0.1:1", "--protocol", "mip", "--input", "x"], "input 'x' is not NAME=DATATYPE[SHAPE]"),
        (["127.0.0.1:1", "--protocol", "mip", "--only", "nothing"], "no check matches 'nothing'"),
    ],
)
def test_wrong_arguments(arguments: list[str], text: str) -> None:
    result = command("conformance", *arguments)
    assert result.exit_code == USAGE
    assert text in result.output


@pytest.mark.parametrize("protocol", gateway.tools.conformance.MODULES)
def test_the_list_of_checks(protocol: str) -> None:
    result = command("conformance", "--protocol", protocol, "--list")
    assert result.exit_code == 0
    ids = [line.split()[0] for line in result.output.splitlines()]
    assert len(ids) == len(set(ids)) > 20
    assert all(each.startswith(f"{protocol}.") for each in ids)


def test_a_package_that_is_absent(monkeypatch: pytest.MonkeyPatch) -> None:
    def absent(name: str) -> None:
        raise ModuleNotFoundError(name="grpc")

    failing: Callable[[str], None] = absent
    monkeypatch.setattr(gateway.tools.conformance, "import_module", failing)
    result = command("conformance", "127.0.0.1:1", "--protocol", "v2-grpc")
    assert result.exit_code == USAGE
    assert "need the package 'grpc'; install 'modelglot[conformance]'" in result.output
