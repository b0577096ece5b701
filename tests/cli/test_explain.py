"""`gateway explain`: a recorded request from a file or standard input, as text and as JSON, and its exit status."""

import json
from pathlib import Path

from tests.cli.commands import ROOT, gateway, written

DEMO = ("--config", str(ROOT / "config/gateway.yaml"))
RECORDED = b"POST /Evaluate HTTP/1.1\r\nHost: x\r\nContent-Length: 49\r\n\r\n" + (
    b'{"name":"double","input":[[1,2,3.5]],"config":{}}'
)

ASKING = """
listeners: [{name: http, bind: "127.0.0.1:1080", protocols: [v2-rest], auth: {anonymous: all}}]
principals: {all: {permissions: [use]}}
forms:
  f: {infer: {path: /p, request: {x: $x}, response: {y: $y}}, tensors: {x: "FP64 [-1]", y: "FP64 [-1]"}}
backends: {b: {protocol: json, form: f, endpoints: ["127.0.0.1:1"]}}
routes: [{match: {model: m}, backend: b}]
"""


def test_it_explains_a_file(tmp_path: Path) -> None:
    (tmp_path / "request").write_bytes(RECORDED)
    result = gateway("explain", *DEMO, str(tmp_path / "request"))
    assert result.exit_code == 0
    assert result.stdout.startswith("umbridge over http at listener 'http'\n  pattern POST /Evaluate\n")
    assert "  without a name FP64 [3] (JSON gave no datatype) -> 'x' FP64 [1, 3]\n" in result.stdout
    assert "would be sent to 127.0.0.1:8001" in result.stdout


def test_it_says_that_credentials_are_not_judged_and_no_signature_after_an_error(tmp_path: Path) -> None:
    unknown = {"name": "y", "datatype": "FP64", "shape": [1], "data": [1]}
    given = json.dumps({"path": "/v2/models/m/infer", "body": {"inputs": [unknown]}}).encode()
    result = gateway("explain", "--config", written(tmp_path, ASKING), "-", given=given)
    assert "note: listener 'http' requires credentials; this explanation checks neither" in result.stdout
    assert "error in stage fit: INVALID_ARGUMENT (invalid-input): unknown input 'y'" in result.stdout
    assert "signature:" not in result.stdout


def test_it_prints_json_and_exits_with_1_for_an_error() -> None:
    result = gateway("explain", *DEMO, "--json", "-", given=RECORDED.replace(b"3.5", b"555"[:1] + b"  "))
    assert (result.exit_code, json.loads(result.stdout)["error"]) == (0, None)
    result = gateway("explain", *DEMO, "--json", "-", given=RECORDED.replace(b"3.5", b"[5]"))
    found = json.loads(result.stdout)
    assert result.exit_code == 1
    assert found["error"]["stage"] == "decode"
    assert found["reply"]["status"] == 400


def test_what_is_no_request_is_told() -> None:
    result = gateway("explain", *DEMO, "-", given=b"nothing")
    assert result.exit_code == 2
    assert result.stderr.startswith("-: no request found: expected an HTTP request")


def test_a_shared_port_explains_each_of_its_transports(tmp_path: Path) -> None:
    demo = (ROOT / "config/gateway.yaml").read_text()
    shared = demo.replace("[v2-grpc, grps-grpc, tfs-grpc]", "[mip, v2-grpc, umbridge]")
    options = ("--config", written(tmp_path, shared.replace("[v2-rest, v1-rest, umbridge,", "[")))
    result = gateway("explain", *options, "-", given=RECORDED)
    assert result.stdout.startswith("umbridge over http at listener 'grpc'\n  pattern POST /Evaluate\n")
    packet = bytes.fromhex("0002000000000012010000010000000200000006") + b"[1, 2]"
    result = gateway("explain", *options, "--listener", "grpc", "--protocol", "mip", "-", given=packet)
    assert result.stdout.startswith("mip over tcp at listener 'grpc'\n")
