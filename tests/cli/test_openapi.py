"""`gateway openapi`."""

import json
from pathlib import Path

from tests.cli.commands import gateway, written

CONFIG = """
listeners:
  - {name: http, bind: "0.0.0.0:8080", protocols: [umbridge]}
  - {name: rpc, bind: "127.0.0.1:8081", protocols: [v2-grpc]}
MORE
backends: {lab: {protocol: umbridge, endpoints: ["http://127.0.0.1:1"]}}
routes: [{match: {model: "*"}, backend: lab, policies: [{timeout: {seconds: 9}}]}]
"""


def test_it_prints_the_document_of_the_only_listener_over_http(tmp_path: Path) -> None:
    done = gateway("openapi", "--config", written(tmp_path, CONFIG.replace("MORE", "")))
    assert done.exit_code == 0, done.stderr
    found = json.loads(done.stdout)
    assert found["servers"][0]["url"] == "http://localhost:8080"
    assert "/Evaluate" in found["paths"]


def test_a_listener_must_be_one_over_http(tmp_path: Path) -> None:
    done = gateway("openapi", "--config", written(tmp_path, CONFIG.replace("MORE", "")), "--listener", "rpc")
    assert (done.exit_code, done.stdout) == (2, "")
    assert "unknown HTTP listener 'rpc'; expected http" in done.stderr
    two = CONFIG.replace("MORE", '  - {name: other, bind: "127.0.0.1:8082", protocols: [v2-rest]}')
    done = gateway("openapi", "--config", written(tmp_path, two))
    assert done.exit_code == 2
    assert "choose one with --listener: http, other" in done.stderr


def test_of_a_shared_port_it_has_the_paths_over_http(tmp_path: Path) -> None:
    text = CONFIG.replace("MORE", "").replace("[umbridge]", "[v2-grpc, umbridge, mip]")
    done = gateway("openapi", "--config", written(tmp_path, text))
    assert done.exit_code == 0, done.stderr
    found = json.loads(done.stdout)
    assert found["tags"] == [{"name": "umbridge"}]
    assert "/Evaluate" in found["paths"]
    assert not [path for path in found["paths"] if "GRPC" in path or "grpc" in path]
