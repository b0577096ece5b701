"""Real clients with keys: UM-Bridge's Python client (in its URL), tritonclient over HTTP and gRPC, grpcio's call
credentials, and curl."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator

import pytest

from gateway.auth.keys import new_key, write_keys
from tests.interop.exchanges import Addresses, listening
from tests.interop.real_clients import tritonclient, tritonclient_grpc, umbridge
from tests.limits import GENEROUS

KEY, ENTRY = new_key("alice")
CONFIG = """
auth: {{keys: {{file: {file}}}}}
permissions: {{posterior: [{{operations: [infer, metadata], models: [posterior]}}]}}
principals: {{alice: {{permissions: [posterior]}}}}
listeners:
  - {{name: http, bind: "127.0.0.1:{http}", protocols: [umbridge, v2-rest], auth: {{}}}}
  - {{name: grpc, bind: "127.0.0.1:{grpc}", protocols: [v2-grpc], auth: {{}}}}
reference: [{{protocol: v2-grpc, bind: "127.0.0.1:{server}", models: [posterior, double]}}]
backends: {{lab: {{protocol: v2-grpc, endpoints: ["127.0.0.1:{server}"]}}}}
routes: [{{match: {{}}, backend: lab}}]
"""


@pytest.fixture(scope="module")
def addresses(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Addresses]:
    folder = tmp_path_factory.mktemp("gateway")
    (folder / "keys.yaml").write_text(write_keys([ENTRY]))
    with listening(CONFIG, folder, file=folder / "keys.yaml") as found:
        yield found
        assert KEY not in found.gateway.output()


def test_the_umbridge_client_has_its_key_in_the_url(addresses: Addresses) -> None:
    steps = ({"op": "models"}, {"op": "evaluate", "model": "posterior", "input": [[0.5, -1.5]]})
    models, answer = umbridge(f"http://user:{KEY}@{addresses['http']}", *steps)
    assert models == ["posterior"]
    assert "error" not in str(answer)
    refused = umbridge(f"http://user:wrong@{addresses['http']}", *steps)
    assert all("error" in str(each) for each in refused)


def test_tritonclient_has_it_in_headers_and_metadata(addresses: Addresses) -> None:
    def steps(model: str, headers: dict[str, str], **more: bool) -> dict[str, object]:
        arguments = {"model_name": model, "headers": headers, **more}
        return {"op": "call", "method": "get_model_metadata", "arguments": arguments}

    for headers in ({"x-api-key": KEY}, {"authorization": f"Bearer {KEY}"}):
        (over_http,) = tritonclient(addresses["http"], "sync", steps("posterior", headers))
        (over_grpc,) = tritonclient_grpc(addresses["grpc"], "sync", steps("posterior", headers, as_json=True))
        assert over_http["name"] == over_grpc["name"] == "posterior"
    for model, headers, status in (("posterior", {"x-api-key": "wrong"}, "401"), ("double", {"x-api-key": KEY}, "403")):
        (over_http,) = tritonclient(addresses["http"], "sync", steps(model, headers))
        (over_grpc,) = tritonclient_grpc(addresses["grpc"], "sync", steps(model, headers))
        assert status in str(over_http["error"]["status"])
        expected = "UNAUTHENTICATED" if status == "401" else "PERMISSION_DENIED"
        assert expected in str(over_grpc["error"]["status"])


def test_curl_has_it_in_any_of_the_three_ways(addresses: Addresses) -> None:
    url = f"{addresses['http']}/v2/models/posterior"
    for arguments in (["-u", f"me:{KEY}"], ["-H", f"x-api-key: {KEY}"], ["--oauth2-bearer", KEY]):
        done = subprocess.run(
            ["curl", "-sS", *arguments, url], capture_output=True, text=True, timeout=GENEROUS, check=True
        )
        assert json.loads(done.stdout)["name"] == "posterior"
    done = subprocess.run(["curl", "-si", url], capture_output=True, text=True, timeout=GENEROUS, check=True)
    assert done.stdout.startswith("HTTP/1.1 401 ")
