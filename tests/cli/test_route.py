"""`gateway route`: the decision for a request, as text and as JSON, and its exit status."""

import json
from pathlib import Path

import pytest

from tests.cli.commands import ROOT, gateway, written

DEMO = ("--config", str(ROOT / "config/gateway.yaml"))
CANARY = ("--config", str(ROOT / "config/examples/canary.yaml"))


def test_it_prints_every_route_and_the_backend() -> None:
    result = gateway("route", *DEMO, "--protocol", "v2-rest", "--model", "upper")
    assert result.exit_code == 0
    assert result.stdout == (
        "infer for model 'upper' over v2-rest at listener 'http'\n"
        "  posterior: model 'upper' is not 'posterior'\n"
        "  double,protocol=umbridge: protocol is 'v2-rest', not 'umbridge'; model 'upper' is not 'double'\n"
        "  upper: matches\n"
        "  count: model 'upper' is not 'count'\n"
        "  *: would match, but an earlier route does\n"
        "  backend 'texts' (grps-rest): model 'upper'\n"
        "  the gateway decodes messages because of backends.texts.protocol\n"
    )


def test_of_a_graph_it_prints_the_route_of_each_step() -> None:
    result = gateway(
        "route", "--config", str(ROOT / "config/examples/graph-posterior.yaml"),
        "--protocol", "umbridge", "--model", "posterior.gradient",
    )  # fmt: skip
    assert result.exit_code == 0
    assert result.stdout == (
        "infer for model 'posterior.gradient' over umbridge at listener 'samplers'\n"
        "  the name is read as gradient of model 'posterior'\n"
        "  models.posterior: matches\n"
        "  heat: model 'posterior' is not 'heat'\n"
        "  prior: model 'posterior' is not 'prior'\n"
        "  misfit: model 'posterior' is not 'misfit'\n"
        "  step 'forward' calls model 'heat': heat\n"
        "    input0 = $theta\n"
        "    backend 'simulation' (umbridge): model 'heat'\n"
        "  step 'prior' calls model 'prior': prior\n"
        "    theta = $theta\n"
        "    backend 'triton' (v2-grpc): model 'prior'\n"
        "  step 'likelihood' calls model 'misfit': misfit\n"
        "    predicted = $forward\n"
        "    observed = constant [3]\n"
        "    backend 'misfit' (graphpipe): model 'misfit'\n"
    )


def test_without_a_route_it_exits_with_1() -> None:
    result = gateway("route", *DEMO, "--protocol", "v2-rest", "--json")
    (decision,) = json.loads(result.stdout)["decisions"]
    assert result.exit_code == 1
    assert decision["error"].startswith("no route for a request without a model")


def test_headers_and_inputs_decide() -> None:
    def chosen(*arguments: str) -> str:
        result = gateway("route", *CANARY, "--protocol", "v2-rest", "--model", "resnet", "--json", *arguments)
        return str(json.loads(result.stdout)["decisions"][0]["route"])

    assert chosen("--header", "x-canary=always") == "resnet,header=x-canary"
    assert chosen("--input", "image:UINT8:1,224,224,3") == "resnet,input=UINT8"
    assert chosen("--input", "image:FP32:1,3") == "resnet"


def test_the_listeners_model_is_that_of_clients_that_name_none() -> None:
    result = gateway("route", *DEMO, "--protocol", "mip")
    assert result.exit_code == 0
    assert "model 'classify'" in result.stdout.splitlines()[0]


PASSING = """
listeners: [{name: in, bind: "127.0.0.1:0", protocols: [grps-rest, v2-rest]}]
backends:
  llm: {protocol: grps-rest, endpoints: ["127.0.0.1:1"]}
  all: {protocol: grps-rest, endpoints: ["127.0.0.1:2"]}
routes:
  - {match: {model: "*"}, backend: all}
  - {match: {path: /v1/chat}, backend: llm, passthrough: true}
  - {match: {path: /grps/v1/infer/predict}, backend: llm, passthrough: true}
"""


@pytest.mark.parametrize(
    ("arguments", "route", "error"),
    [
        (("--protocol", "grps-rest", "--path", "/v1/chat"), "path=/v1/chat", ""),
        (("--protocol", "grps-rest", "--model", "m"), "path=/grps/v1/infer/predict", ""),
        (("--protocol", "grps-rest", "--model", "m", "--operation", "metadata"), "*", ""),
        (("--protocol", "v2-rest", "--model", "m"), "*", ""),
        (("--protocol", "v2-rest", "--model", "m", "--path", "/v2/models/m/infer"), "*", ""),
        (("--protocol", "v2-rest", "--model", "m", "--path", "/v2/models/m"), "*", ""),
        (
            ("--protocol", "v2-rest", "--model", "m", "--path", "/v1/chat"),
            "",
            "/v1/chat belongs to grps-rest; listener 'in' does not serve it over v2-rest",
        ),
        (
            ("--protocol", "v2-rest", "--model", "m", "--path", "/v1/%"),
            "",
            "unknown path: '/v1/%'; listener 'in' does not serve it over v2-rest",
        ),
    ],
)
def test_the_path_decides_whether_a_request_is_read(
    tmp_path: Path, arguments: tuple[str, ...], route: str, error: str
) -> None:
    result = gateway("route", "--config", written(tmp_path, PASSING), "--json", *arguments)
    (decision,) = json.loads(result.stdout)["decisions"]
    assert (decision["route"], decision["error"], result.exit_code) == (route, error, 1 if error else 0)


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (("--protocol", "v3"), "no protocol 'v3'; expected "),
        (("--protocol", "mip", "--listener", "http"), "listener 'http' does not accept mip; 'http' accepts v2-rest, "),
        (("--protocol", "mip", "--listener", "nowhere"), "no listener 'nowhere'; expected http, grpc, mip, brpc"),
        (("--protocol", "mip", "--operation", "guess"), "no operation 'guess'; expected infer"),
        (("--protocol", "mip", "--header", "x"), "expected --header NAME=VALUE, got 'x'"),
        (("--protocol", "mip", "--input", "x:FLOAT:1"), "expected --input NAME:DATATYPE:SHAPE"),
    ],
)
def test_wrong_arguments_are_told(arguments: tuple[str, ...], text: str) -> None:
    result = gateway("route", *DEMO, *arguments)
    assert result.exit_code == 2
    assert text in result.stderr
