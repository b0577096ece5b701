"""The example commands that `gateway serve` prints: their text, and that each of them works."""

import json
import shlex
import subprocess
from collections.abc import Iterator

import grpc
import pytest

from gateway.assembly.registry import policies, protocols
from gateway.cli.examples import examples
from gateway.config import loads
from gateway.config.catalog import Catalog
from tests.cli.commands import started, written
from tests.documents.grpcurl import main as call
from tests.interop.processes import free_port
from tests.limits import GENEROUS

CONFIG = """
listeners:
  - {name: http, bind: "0.0.0.0:0", protocols: [v2-rest, umbridge, graphpipe, grps-rest], prefix: {umbridge: /a}}
  - {name: grpc, bind: "[::]:0", protocols: [v2-grpc, grps-grpc]}
backends:
  lab: {protocol: v2-rest, endpoints: ["127.0.0.1:1"]}
routes:
"""
ADDRESSES = {"http": "0.0.0.0:1", "grpc": "[::]:2"}


AUTH = """
auth: {keys: {file: /keys.yaml}, certificates: [{identity: a, principal: guest}]}
principals: {guest: {permissions: [use]}}
"""


def printed(*matches: str, keys: str = "") -> list[str]:
    """The commands for routes with these matches, of listeners with these keys."""
    routes = "".join(f"  - {{match: {{{match}}}, backend: lab, rewrite: {{model: m}}}}\n" for match in matches)
    text = AUTH + CONFIG.replace("{name: ", f"{{{keys}name: ") + routes
    found = examples(loads(text, "test.yaml", Catalog(protocols(), policies()), {}), ADDRESSES)
    assert found[:1] == ["try:"] or not found
    return [line.removeprefix("  ") for line in found[1:]]


V2 = "curl http://127.0.0.1:1/v2/models/"
UMBRIDGE = "curl http://127.0.0.1:1/a/InputSizes -d "
GRAPHPIPE = "curl http://127.0.0.1:1/graphpipe/"
GRPS = "curl http://127.0.0.1:1/grps/v1/metadata/model -d "
GRPCURL = "grpcurl -plaintext -d "
V2_GRPC = "'[::1]:2' inference.GRPCInferenceService/ModelMetadata"
GRPS_GRPC = "'[::1]:2' grps.protos.v1.GrpsService/ModelMetadata"


def test_one_for_each_protocol_of_each_listener() -> None:
    assert printed("model: m", "model: n") == [
        f"{V2}m",
        f"""{UMBRIDGE}'{{"name": "m"}}'""",
        f"{GRAPHPIPE}m",
        f"""{GRPS}'{{"str_data": "m"}}'""",
        f"""{GRPCURL}'{{"name": "m"}}' {V2_GRPC}""",
        f"""{GRPCURL}'{{"str_data": "m"}}' {GRPS_GRPC}""",
    ]


def test_a_version_is_written_as_the_protocol_does() -> None:
    assert printed("model: m, version: v1.2") == [
        f"{V2}m/versions/v1.2",
        f"""{GRPS}'{{"str_data": "m-v1.2"}}'""",
        f"""{GRPCURL}'{{"name": "m", "version": "v1.2"}}' {V2_GRPC}""",
        f"""{GRPCURL}'{{"str_data": "m-v1.2"}}' {GRPS_GRPC}""",
    ]
    # grps has no way to write such a version
    assert printed("model: m, version: latest")[0::2] == [f"{V2}m/versions/latest"]


TLS = "tls: {certificate: /tls/tls.crt, key: /tls/tls.key"
KEY = '-H "Authorization: Bearer $KEY" '


@pytest.mark.parametrize(
    ("keys", "curl", "grpcurl"),
    [
        (f"{TLS}}}", "curl --insecure https://", "grpcurl -insecure -d "),
        ("auth: {}", f"curl {KEY}http://", f"grpcurl {KEY}-plaintext -d "),
        (f"{TLS}}}, auth: {{}}", f"curl {KEY}--insecure https://", f"grpcurl {KEY}-insecure -d "),
        ("auth: {anonymous: guest}", "curl http://", "grpcurl -plaintext -d "),
    ],
)
def test_a_command_has_what_its_listener_asks_for(keys: str, curl: str, grpcurl: str) -> None:
    commands = printed("model: m", keys=f"{keys}, ")
    assert len(commands) == 6
    assert all(each.startswith(curl) for each in commands[:4])
    assert all(each.startswith(grpcurl) for each in commands[4:])


@pytest.mark.parametrize(
    "keys",
    [
        f"{TLS}, client_ca: /tls/ca.crt, client: required}}",
        f"{TLS}, client_ca: /tls/ca.crt, client: optional}}, auth: {{accept: [certificates]}}",
    ],
)
def test_a_listener_that_asks_for_certificates_has_no_command(keys: str) -> None:
    assert printed("model: m", keys=f"{keys}, ") == []


def test_names_are_quoted_for_the_shell_and_the_url() -> None:
    assert printed('model: "it\'s/a \\"b\\"", listener: http')[:2] == [
        f"{V2}it%27s%2Fa%20%22b%22",
        UMBRIDGE + shlex.quote('{"name": "it\'s/a \\"b\\""}'),
    ]
    assert printed("model: .., protocol: v2-rest") == []


@pytest.mark.parametrize(
    "matches",
    [
        *(("model: 'm*'",), ("",), ("model: m, header: {key: secret}",), ("model: m, operation: infer",)),
        ("model: m, protocol: v2-rest, path: /other",),
        ("model: m, protocol: umbridge, version: '1'",),  # there are none in its messages
        # what an earlier route takes is no example of this one
        ("model: '*'", "model: m"),
    ],
)
def test_routes_that_a_command_cannot_reach_are_left_out(matches: tuple[str, ...]) -> None:
    assert printed(*matches) == []


def test_a_condition_that_the_command_meets_is_no_obstacle() -> None:
    matches = (
        "model: a, path: /v2/models/a, protocol: v2-rest",
        "model: b, operation: metadata, protocol: umbridge",
        "model: c, listener: grpc, protocol: v2-grpc",
    )
    assert printed(*matches) == [
        f"{V2}a",
        f"""{UMBRIDGE}'{{"name": "b"}}'""",
        f"""{GRPCURL}'{{"name": "c"}}' {V2_GRPC}""",
    ]


RUNNING = """
listeners:
  - {name: http, bind: "127.0.0.1:0", protocols: [v2-rest, umbridge, graphpipe, grps-rest]}
  - {name: grpc, bind: "127.0.0.1:0", protocols: [v2-grpc, grps-grpc]}
reference:
  - {protocol: v2-rest, bind: "127.0.0.1:PORT", models: [double]}
backends:
  tensors: {protocol: v2-rest, endpoints: ["127.0.0.1:PORT"]}
routes:
  - match: {model: "dou ble", version: "1"}
    backend: tensors
    rewrite: {model: double}
    signature: &sizes
      inputs: [{name: x, datatype: FP64, shape: [-1, 3]}]
      outputs: [{name: y, datatype: FP64, shape: [-1, 3]}]
  - {match: {model: sizes}, backend: tensors, rewrite: {model: double}, signature: *sizes}
"""


@pytest.fixture(scope="module")
def commands(tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[str]]:
    """What a running gateway printed."""
    path = written(tmp_path_factory.mktemp("examples"), RUNNING.replace("PORT", str(free_port())))
    with started("serve", "--config", path) as (_, said):
        yield [line.strip() for line in said[said.index("try:") + 1 : -1]]


@pytest.mark.real("curl")
def test_each_command_works(commands: list[str]) -> None:
    replies = [curl(each, "--fail") if each.startswith("curl") else grpcurl(each) for each in commands]
    assert len(commands) == 6
    for at, about in enumerate(("dou%20ble/versions/1", "sizes", "sizes", "dou ble-1", "dou ble", "dou ble-1")):
        assert about in commands[at]
    assert '"name":"dou ble"' in replies[0]
    assert '"inputSizes":[3]' in replies[1]
    assert '"dou ble' in replies[4]


@pytest.mark.real("curl")
def test_an_error_comes_in_the_form_of_its_protocol(commands: list[str]) -> None:
    rest, umbridge, graphpipe, grps, v2_grpc, grps_grpc = commands
    version = "model 'dou ble' has version '1', not '2'"
    name = "unknown model 'sizs'; did you mean 'sizes'?"
    wrong = [each.replace("sizes", "sizs") for each in (umbridge, graphpipe)]
    assert json.loads(curl(rest.replace("versions/1", "versions/2"))) == {"error": version}
    assert json.loads(curl(wrong[0])) == {"error": {"type": "ModelNotFound", "message": name}}
    assert name in curl(wrong[1])
    assert json.loads(curl(grps.replace("ble-1", "ble-2")))["status"] == {
        "code": 404, "msg": version, "status": "FAILURE"
    }  # fmt: skip
    with pytest.raises(grpc.RpcError) as refused:
        grpcurl(v2_grpc.replace('"version": "1"', '"version": "2"'))
    assert (refused.value.code(), refused.value.details()) == (grpc.StatusCode.NOT_FOUND, version)
    assert version in grpcurl(grps_grpc.replace("ble-1", "ble-2"))


def curl(command: str, *options: str) -> str:
    words = [*shlex.split(command), "--silent", *options]
    return subprocess.run(words, stdout=subprocess.PIPE, text=True, timeout=GENEROUS, check=True).stdout


def grpcurl(command: str) -> str:
    program, *arguments = shlex.split(command)
    assert program == "grpcurl"
    return call(arguments)
