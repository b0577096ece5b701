"""Reference servers over TLS: the command, the key of the configuration, and real clients of them."""

import json
import ssl
import subprocess
from pathlib import Path

import grpc
import httpx
import pytest

from gateway.config import ConfigError
from tests.cli.commands import gateway, started
from tests.limits import GENEROUS
from tests.paused_server import port_of
from tests.running_gateway import config_of, running_gateway
from tests.tls.certificates import Authority, Files
from tests.tls.running import ask, at, check_density, credentials, infer, near

BODY = json.dumps({"inputs": [{"name": "x", "datatype": "FP64", "shape": [1, 1], "data": [1.5]}]})


def options(files: Files, protocol: str, *more: str) -> tuple[str, ...]:
    tls = ("--certificate", str(files.certificate), "--key", str(files.key))
    return "reference", "--protocol", protocol, "--bind", "127.0.0.1:0", "--model", "double", *tls, *more


def address(said: list[str]) -> str:
    return "localhost:" + said[0].partition(" on ")[2].partition(": ")[0].rpartition(":")[2]


def curl(url: str, *more: str) -> subprocess.CompletedProcess[str]:
    command = ["curl", "--silent", "--show-error", "--max-time", "30", "--noproxy", "*", "--data", BODY, *more, url]
    return subprocess.run(command, capture_output=True, text=True, check=False)


@pytest.mark.real("curl")
def test_curl_reaches_the_command_and_trusts_its_certificate(files: Files, tmp_path: Path) -> None:
    with started(*options(files, "v2-rest"), folder=tmp_path) as (_, said):
        url = f"https://{address(said)}/v2/models/double/infer"
        assert json.loads(curl(url, "--cacert", str(files.ca)).stdout)["outputs"][0]["data"] == [3.0]
        assert "certificate" in curl(url).stderr
        assert curl(url.replace("https", "http")).stdout.startswith("This port is served over TLS")


def test_with_a_client_ca_clients_need_a_certificate(authority: Authority, files: Files, tmp_path: Path) -> None:
    own = authority.issue(tmp_path, "worker.lab", stem="own")
    with started(*options(files, "v2-rest", "--client-ca", str(files.ca)), folder=tmp_path) as (_, said):
        url = f"https://{address(said)}/v2/models/double/infer"
        with httpx.Client(verify=files.trusting(own), trust_env=False) as client:
            assert client.post(url, content=BODY).json()["outputs"][0]["data"] == [3.0]
        with httpx.Client(verify=files.trusting(), trust_env=False) as client, pytest.raises(httpx.TransportError):
            client.post(url, content=BODY)
    with (
        started(*options(files, "v2-grpc", "--client-ca", str(files.ca)), folder=tmp_path) as (_, said),
        grpc.secure_channel(address(said), credentials(files, own)) as channel,
    ):
        ready = channel.unary_unary("/inference.GRPCInferenceService/ServerReady")
        assert ready(b"", timeout=GENEROUS) == b"\x08\x01"


@pytest.mark.long
def test_a_certificate_that_changes_is_read_again(authority: Authority, files: Files, tmp_path: Path) -> None:
    def serial(port: int) -> bytes:
        pem = ssl.get_server_certificate(("127.0.0.1", port), ca_certs=str(files.ca), timeout=GENEROUS)
        return pem.encode()

    with started(*options(files, "v2-rest"), folder=tmp_path) as (_, said):
        port = port_of(address(said))
        before = serial(port)
        authority.issue(tmp_path, "localhost", "127.0.0.1")
        while serial(port) == before:
            pass


def test_what_is_wrong_with_the_options_is_told(files: Files, tmp_path: Path) -> None:
    broken = tmp_path / "broken.pem"
    broken.write_text("nothing")
    alone = gateway(*options(files, "v2-rest")[:-2])
    assert (alone.exit_code, alone.stderr) == (2, "TLS needs both --certificate and --key\n")
    wrong = gateway(*options(files, "v2-rest", "--client-ca", str(broken)))
    assert wrong.exit_code == 2
    assert wrong.stderr.startswith("--client-ca: ")
    assert "expected a certificate in PEM" in wrong.stderr


@pytest.mark.parametrize("protocol", ["v2-rest", "v2-grpc", "grps-brpc", "mip", "umbridge", "graphpipe"])
async def test_the_servers_of_a_configuration_have_it_and_backends_reach_them(
    protocol: str, authority: Authority, files: Files
) -> None:
    """Through the gateway's own connectors, with a certificate of the client."""
    own = authority.issue(files.key.parent, "gateway.lab", stem="own")
    server = f"""
listeners: [{{name: own, bind: "127.0.0.1:0", protocols: [v2-rest]}}]
reference: [{{protocol: {protocol}, bind: "127.0.0.1:0", models: [posterior], tls: {files.asking("required")}}}]
"""
    async with running_gateway(server) as far:
        port = port_of(far.references[0].address)
        (found,) = far.state.status().certificates
        assert found.used_by == [f"reference {protocol!r}"]
        text = near({protocol: port}, own.shown_to(files), model="posterior")
        async with running_gateway(text) as known:
            await check_density(known, protocol)
        without = text.replace(f", certificate: {own.certificate}, key: {own.key}", "")
        async with running_gateway(without) as stranger:
            assert (await ask(at(stranger, "near"), None, infer(protocol)))[0] != 200


def test_what_is_wrong_in_the_configuration_is_told_with_its_place(files: Files) -> None:
    text = """
listeners: [{name: own, bind: "127.0.0.1:0", protocols: [v2-rest]}]
reference: [{protocol: v2-rest, bind: "127.0.0.1:0", models: [double], tls: {certificate: KEY, key: KEY}}]
"""
    with pytest.raises(ConfigError, match=r"test\.yaml:3:91: .* cannot be used: expected a certificate in PEM"):
        config_of(text.replace("KEY", str(files.key)))
