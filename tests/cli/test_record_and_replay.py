"""`gateway record` and `gateway replay` as users run them."""

import json
from pathlib import Path

import httpx
import pytest

from tests.cli.commands import ROOT, gateway, started, written
from tests.client.servers import served
from tests.interop.processes import free_port
from tests.limits import GENEROUS
from tests.tls.certificates import Authority

RECORDED = ROOT / "tests/tools/cassettes/recordings/version-1.jsonl"

CONFIG = """
listeners: [{name: http, bind: "127.0.0.1:FRONT", protocols: [v2-rest]}]
backends: {old: {protocol: graphpipe, endpoints: ["http://127.0.0.1:OLD/"]}}
routes: [{match: {model: double}, backend: old}]
reference:
  - {protocol: graphpipe, bind: "127.0.0.1:OLD", models: [double]}
  - {protocol: v2-grpc, bind: "127.0.0.1:NEW", models: [double]}
"""


def test_requests_are_recorded_until_the_gateway_stops_and_replayed_over_another_protocol(tmp_path: Path) -> None:
    ports = {word: free_port() for word in ("FRONT", "OLD", "NEW")}
    text = CONFIG
    for word, port in ports.items():
        text = text.replace(word, str(port))
    config = written(tmp_path, text)
    cassette, new = tmp_path / "c.jsonl", f"v2-grpc://127.0.0.1:{ports['NEW']}"
    body = {"inputs": [{"name": "x", "datatype": "FP64", "shape": [1, 2], "data": [1.5, 2.5]}]}
    with started("record", "--config", config, "--output", str(cassette)) as (process, _):
        url = f"http://127.0.0.1:{ports['FRONT']}/v2/models/double/infer"
        assert httpx.post(url, json=body, timeout=GENEROUS).status_code == 200
        process.terminate()
        assert process.wait() == 0
    assert len(cassette.read_text().splitlines()) == 2
    cassette.write_text(cassette.read_text() + '{"at": ')  # a recording that was killed
    with started("serve", "--config", config):
        found = gateway("replay", str(cassette), "--to", new, "--rename", "output0=y")
        assert (found.exit_code, found.stdout.splitlines()[1].split()[:5]) == (0, ["double", "1", "1", "0", "0"])
        warning = f"warning: {cassette}:3: the last line is incomplete, so it is left out\n"
        assert found.stderr == warning
        found = gateway("replay", str(cassette), "--to", new, "--json", str(tmp_path / "r.json"))
        assert found.exit_code == 1
        assert "output 'output0' is missing; output 'y' is not expected" in found.output
        assert json.loads((tmp_path / "r.json").read_text())["different"] == 1
        found = gateway("replay", str(cassette), "--to", new, "--wire")
        assert found.exit_code == 2
        why = "line 2 is a v2-rest message, but the server's protocol is v2-grpc; remove --wire to convert it"
        assert found.stderr.removeprefix(warning).strip() == why
    found = gateway("replay", str(cassette), "--to", new)
    assert found.exit_code == 3, found.output


def test_a_server_that_wants_a_client_certificate_is_replayed_to(tmp_path: Path) -> None:
    """The options of the way to the server are those of `gateway call`."""
    one, request, *_ = RECORDED.read_text().splitlines()
    cassette = tmp_path / "c.jsonl"
    cassette.write_text(f"{one}\n{request}\n")
    files = Authority().issue(tmp_path, "localhost", "127.0.0.1")
    pair = ("--certificate", str(files.certificate))
    own = (*pair, "--key", str(files.key), "--client-ca", str(files.ca))
    asked = ("reference", "--protocol", "v2-rest", "--bind", "127.0.0.1:0", "--model", "posterior", *own)
    with started(*asked, folder=tmp_path) as (_, said):
        port = said[0].partition(" on ")[2].partition(": ")[0].rpartition(":")[2]
        to = ("replay", str(cassette), "--to", f"v2-rest+tls://localhost:{port}", "--by-position")
        trusting = ("--ca", str(files.ca))
        assert gateway(*to, *trusting).exit_code == 3
        shown = gateway(*to, *trusting, *pair, "--certificate-key", str(files.key), "--header", "X-Team=a")
        assert shown.exit_code == 0, shown.output
    refused = gateway("replay", str(cassette), "--to", "mip://127.0.0.1:1", "--header", "X-Team=a")
    assert refused.exit_code == 2
    assert refused.stderr == "messages of mip cannot carry the header 'x-team'; use another protocol\n"


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        (("--to", "127.0.0.1:1"), "does not say the protocol"),
        (("--to", "v2-rest://127.0.0.1:1", "--model", "double"), "--model 'double'; expected RECORDED=NAME"),
        (("--to", "v2-rest://127.0.0.1:1", "--wire", "--model", "a=b"), "--wire sends the recorded bytes"),
        (("--to", "v2-rest://127.0.0.1:1"), "this is not a recording"),
    ],
)
def test_wrong_usage_is_told(tmp_path: Path, arguments: tuple[str, ...], problem: str) -> None:
    (tmp_path / "c").write_text("{}\n")
    found = gateway("replay", str(tmp_path / "c"), *arguments)
    assert found.exit_code == 2
    assert problem in found.stderr


def test_a_recording_without_requests_has_nothing_to_replay(tmp_path: Path) -> None:
    cassette = tmp_path / "c.jsonl"
    cassette.write_text(RECORDED.read_text().splitlines()[0] + "\n")
    found = gateway("replay", str(cassette), "--to", "v2-rest://127.0.0.1:1")
    assert (found.exit_code, found.stderr) == (2, f"{cassette}: the file contains no recorded requests\n")


def test_a_report_that_cannot_be_written_is_told(tmp_path: Path) -> None:
    cassette, report = tmp_path / "c.jsonl", tmp_path / "none" / "report.json"
    cassette.write_text("".join(RECORDED.read_text().splitlines(keepends=True)[:2]))
    with served("v2-grpc", "posterior") as address:
        found = gateway("replay", str(cassette), "--to", address, "--json", str(report))
    assert (found.exit_code, found.stderr) == (2, f"{report}: No such file or directory\n")


def test_record_refuses_to_append_to_another_file(tmp_path: Path) -> None:
    path = written(tmp_path, CONFIG)
    found = gateway("record", "--config", path, "--output", path)
    assert found.exit_code == 2
    assert "this is not a recording" in found.stderr
