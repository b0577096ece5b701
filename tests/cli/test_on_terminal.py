"""What `gateway probe`, `models` and `check --live` print on a terminal, and what `init` asks there."""

from http.server import ThreadingHTTPServer
from pathlib import Path

import pytest

from gateway.cli.probed_server import model_rows
from gateway.tools.probing.listing import FoundModel, ServerModels
from tests.cli.commands import gateway, written
from tests.client.servers import holding, served
from tests.in_thread import QuietHandler, in_thread
from tests.interop.processes import free_port

SIGNATURE = "x FP64[-1,-1] -> y FP64[-1,-1]"
SCIENCE = "input0 FP64[-1,2] -> output0 FP64[-1,1]"
OPERATIONS = "(apply_hessian, apply_jacobian, gradient, infer)"


@pytest.fixture(autouse=True)
def no_colours(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NO_COLOR", "1")


def cells(text: str) -> list[list[str]]:
    return [[cell.strip() for cell in line.split("  ") if cell.strip()] for line in text.splitlines()]


def printed(*arguments: str, given: str = "", code: int = 0, stderr: str = "") -> str:
    result = gateway(*arguments, given=given.encode(), in_terminal=True)
    assert (result.exit_code, result.stderr) == (code, stderr)
    return result.stdout


def test_a_probe_shows_the_server_its_models_and_the_yaml() -> None:
    with served("umbridge", "posterior") as address:
        servers, models, yaml = printed("probe", address).split("\n\n")
        alone = printed("models", address)
    at = address.replace("umbridge", "http")
    assert cells(servers) == [
        ["protocol", "flavor", "server", "address", "models"],
        ["umbridge", "-", "umbridge 1.0", at, "1"],
    ]
    rows = [["model", "versions", "state", "signature"], ["posterior", "-", "-", SCIENCE, OPERATIONS]]
    assert cells(models) == cells(alone) == rows
    assert yaml.startswith(f'backends:\n  umbridge:  # umbridge 1.0\n    protocol: umbridge\n    endpoints: ["{at}"]\n')


def test_a_server_that_cannot_list_its_models_says_why() -> None:
    class Server(QuietHandler):
        def do_GET(self) -> None:
            is_server = self.path == "/v2"
            self.send_json(
                {"name": "toy", "version": "", "extensions": []} if is_server else {}, 200 if is_server else 404
            )

        def do_POST(self) -> None:
            self.send_json({"error": "no list \u202e"}, 404)

    with in_thread(ThreadingHTTPServer(("127.0.0.1", 0), Server)) as address:
        servers, why, yaml = printed("probe", f"v2-rest://{address}").split("\n\n")
        models = gateway("models", f"v2-rest://{address}", in_terminal=True)
    assert cells(servers)[1] == ["v2-rest", "plain", "toy", f"http://{address}", "-"]
    assert why == "models unknown: no list ?"
    assert '  - match: {model: "*"}  # the server does not list its models\n' in yaml
    assert (models.exit_code, models.stdout, models.stderr) == (1, "", f"v2-rest://{address}: no list ?\n")


def test_a_row_tells_what_is_known_of_a_model() -> None:
    models = (FoundModel("m", ("1", "2"), "UNAVAILABLE", "no memory", error="it is not loaded"), FoundModel(""))
    assert model_rows(ServerModels(models=models, left_out=3)) == [
        ("m", "1, 2", "UNAVAILABLE (no memory)", "it is not loaded"),
        ("(any name)", "-", "-", "-"),
        ("...", "", "", "3 more models, whose signatures were not queried"),
    ]


def test_init_asks_for_servers_and_listeners(tmp_path: Path) -> None:
    file = tmp_path / "gateway.yaml"
    with served("umbridge", "posterior") as one, served("v2-grpc", "double") as other:
        first, second = (each.rpartition("://")[2] for each in (one, other))
        given = f"{first}\n{other}\n\nmip=127.0.0.1:1 v2-rest=127.0.0.1:2\n"
        asked = gateway("init", "--output", str(file), given=given.encode(), in_terminal=True)
        again = gateway(
            "init", "--output", "-", "--listener", "mip=127.0.0.1:3", given=f"{first}\n\n".encode(), in_terminal=True
        )
        models = printed("models", "--config", str(file))
        checked = printed("check", "--live", "--config", str(file))
    assert (asked.exit_code, again.exit_code) == (0, 0), asked.output
    assert asked.stdout.startswith(
        f"address of a model server (HOST:PORT or a URL): {first}\n"
        f"another server (empty: no more): {other}\n"
        "another server (empty: no more): \n"
        "protocols for clients: graphpipe, "
    )
    assert asked.stderr == (
        f"{first}: umbridge, 1 model\n{other}: v2-grpc, 1 model\n"
        f"wrote {file}; to start the gateway: gateway serve --config {file}\n"
    )
    text = file.read_text()
    assert '  - {name: mip, bind: "tcp://127.0.0.1:1", protocols: [mip]}\n' in text
    assert '  - {name: v2-rest, bind: "127.0.0.1:2", protocols: [v2-rest]}\n' in text
    assert "protocols for clients" not in again.stdout  # the option has them
    assert cells(models) == [
        ["backend", "endpoint", "model", "versions", "state", "signature"],
        ["umbridge", first, "posterior", "-", "-", SCIENCE, OPERATIONS],
        ["v2-grpc", second, "double", "1", "READY", SIGNATURE, OPERATIONS],
    ]
    assert cells(checked) == [
        ["route", "backend", "endpoint", "model", "result"],
        ["posterior", "umbridge", first, "posterior", "ok"],
        ["double", "v2-grpc", second, "double", "ok"],
    ]


def test_the_end_of_input_at_a_prompt_interrupts() -> None:
    result = gateway("init", "--output", "-", in_terminal=True)
    assert (result.exit_code, result.stderr) == (130, "interrupted\n")


ONE_BACKEND = """
listeners: [{{name: http, bind: "127.0.0.1:0", protocols: [v2-rest]}}]
backends: {{lab: {{protocol: v2-rest, endpoints: ["{address}"], policies: [{{timeout: {{seconds: 9}}}}]}}}}
routes: [{{match: {{model: "*"}}, backend: lab}}]
"""


@pytest.mark.parametrize(
    ("scheme", "options", "code", "why"),
    [
        ("", (), 4, "ADDRESS did not report its server type within 0.025 s"),
        ("https://", ("--ca", "/nowhere"), 1, "`ca`: cannot read the file: no such file or directory; check the path "),
    ],
)
def test_an_endpoint_that_lists_no_models_has_the_reason_in_its_row(
    tmp_path: Path, scheme: str, options: tuple[str, ...], code: int, why: str
) -> None:
    with holding() as (_, held):
        address = f"127.0.0.1:{held.port}"
        path = written(tmp_path, ONE_BACKEND.format(address=f"{scheme}{address}"))
        _, row = printed("models", "--config", path, "--timeout", "0.05", *options, code=code).splitlines()
    assert why.replace("ADDRESS", address) in row


def test_endpoints_that_are_not_there_have_a_row_and_the_worst_exit_code(tmp_path: Path) -> None:
    address = f"127.0.0.1:{free_port()}"
    path = written(tmp_path, ONE_BACKEND.format(address=address))
    rows = cells(printed("models", "--config", path, code=3))
    assert rows[1:] == [["lab", address, "-", "-", "-", f"{address}: connection refused"]]
    alone = gateway("models", address)
    assert (alone.exit_code, alone.stdout, alone.stderr) == (3, "", f"{address}: connection refused\n")
