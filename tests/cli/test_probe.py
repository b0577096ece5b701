"""`gateway probe`, `models`, `init`, `check --live` and completion, as a user types them."""

import json
import os
import re
import subprocess
import sys
from contextlib import AbstractContextManager
from http.server import ThreadingHTTPServer
from pathlib import Path

import pytest
from typer.testing import Result

from tests.cli.commands import ENVIRON, gateway
from tests.client.servers import served
from tests.in_thread import QuietHandler, in_thread


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """Where a command writes a configuration."""
    return tmp_path / "gateway.yaml"


def place(address: str) -> str:
    return address.rpartition("://")[2]


def init(file: Path, *addresses: str, options: tuple[str, ...] = ()) -> Result:
    backends = [word for each in addresses for word in ("--backend", each)]
    return gateway("init", *backends, *options, "--output", str(file))


def test_probe_prints_json_in_a_pipe() -> None:
    with served("v2-rest", "double") as address:
        result = gateway("probe", place(address))
    document = json.loads(result.stdout)
    assert result.exit_code == 0
    assert [each["protocol"] for each in document["spoken"]] == ["v2-rest"]
    assert document["spoken"][0]["models"][0]["inputs"] == [{"name": "x", "datatype": "FP64", "shape": [-1, -1]}]
    assert "protocol: v2-rest" in document["yaml"]


def test_no_name_of_a_server_turns_the_text_on_a_terminal() -> None:
    name = "safe\u202egnp.exe"

    class Server(QuietHandler):
        def do_GET(self) -> None:
            self.send_json({"protocolVersion": 1.0, "models": [name]})

        def do_POST(self) -> None:
            self.send_json({"error": {"type": "x", "message": name}} if self.path != "/ModelInfo" else {"support": {}})

    with in_thread(ThreadingHTTPServer(("127.0.0.1", 0), Server)) as address:
        found = [gateway(each, f"umbridge://{address}") for each in ("probe", "models")]
    for each in found:
        assert "\\u202egnp.exe" in each.stdout
        assert "\u202e" not in each.output


def test_exit_codes_of_probe() -> None:
    with served("v2-rest", "double") as address:
        assert gateway("probe", f"umbridge://{place(address)}").exit_code == 1
    assert gateway("probe", place(address)).exit_code == 3
    assert gateway("probe", "no address").exit_code == 2


def test_models_of_a_server_and_of_a_configuration(file: Path) -> None:
    with served("umbridge", "posterior") as address:
        alone = json.loads(gateway("models", place(address)).stdout)
        assert init(file, place(address)).exit_code == 0
        listed = json.loads(gateway("models", "--config", str(file)).stdout)
    assert [each["name"] for each in alone["models"]] == ["posterior"]
    assert [(each["backend"], each["models"]) for each in listed] == [("umbridge", alone["models"])]


def test_a_written_file_passes_the_strict_check_and_is_not_overwritten(file: Path) -> None:
    with served("v2-rest", "double") as first, served("mip", "double") as second:
        servers = place(first), place(second)
        listeners = ("--listener", "umbridge=127.0.0.1:8080", "--listener", "mip=127.0.0.1:8081")
        assert init(file, *servers, options=listeners).exit_code == 0
        assert gateway("check", "--strict", "--config", str(file)).exit_code == 0
        assert gateway("check", "--live", "--config", str(file)).exit_code == 0
        file.write_text("kept")
        assert init(file, *servers).exit_code == 2
        assert file.read_text() == "kept"
        assert init(file, *servers, options=("--force",)).exit_code == 0
    assert gateway("check", "--live", "--config", str(file)).exit_code == 1


def test_problems_of_a_live_check_have_lines_and_columns(file: Path) -> None:
    with served("v2-rest", "double") as address:
        assert init(file, place(address)).exit_code == 0
        file.write_text(file.read_text().replace('model: "double"', 'model: "Double"'))
        result = gateway("check", "--live", "--config", str(file))
    line = next(at for at, text in enumerate(file.read_text().splitlines(), 1) if "Double" in text)
    assert result.exit_code == 1
    assert f"{file}:{line}:20: " in result.stderr
    assert "rewrite: {model: double}" in result.stderr


def test_a_file_that_changes_during_a_live_check_has_to_be_checked_again(file: Path) -> None:
    class Server(QuietHandler):
        def do_GET(self) -> None:
            file.write_text("listeners: [")
            self.send_json({}, 404)

        do_POST = do_GET

    with in_thread(ThreadingHTTPServer(("127.0.0.1", 0), Server)) as address:
        file.write_text(DIFFERENT.format(first=address, second="127.0.0.1:1"))
        result = gateway("check", "--live", "--config", str(file))
    told = f"{file}:1:1: the file changed during the check; run the check again\n"
    assert (result.exit_code, result.stderr) == (1, told)


ONE_NUMBER = """
from gateway.reference import signature

@signature(inputs=[("x", "INT32", [1])], outputs=[("y", "INT32", [1])])
def double(x):
    return 2 * x
"""
DIFFERENT = """
listeners: [{{name: http, bind: "127.0.0.1:0", protocols: [v2-rest]}}]
backends: {{lab: {{protocol: v2-rest, endpoints: ["{first}", "{second}"], policies: [{{timeout: {{seconds: 9}}}}]}}}}
routes: [{{match: {{model: "*"}}, backend: lab}}]
"""


def test_servers_of_a_backend_that_have_another_signature_are_told(
    file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "doubles_one_number.py").write_text(ONE_NUMBER)
    with served("v2-rest", "double") as first, served("v2-rest", "doubles_one_number:double") as second:
        file.write_text(DIFFERENT.format(first=place(first), second=place(second)))
        result = gateway("check", "--live", "--config", str(file))
    assert result.exit_code == 0
    assert f"{file}:3:" in result.stderr
    assert "warning: backend 'lab': model 'double': its signatures differ: " in result.stderr


NEEDS_KEY = """
listeners: [{{name: http, bind: "127.0.0.1:0", protocols: [v2-rest]}}]
backends:
  keyed: {{protocol: v2-rest, endpoints: ["{address}"], forward_headers: [Authorization]}}
  open: {{protocol: v2-rest, endpoints: ["{address}"]}}
routes: [{{match: {{model: double}}, backend: keyed}}, {{match: {{model: other}}, backend: open}}]
"""


def test_backends_are_sent_what_the_gateway_itself_would_send(file: Path) -> None:
    """`models --config` and `check --live` with a client's key: it goes to the backend that forwards it alone."""
    seen: list[str | None] = []

    class Keyed(QuietHandler):
        def do_GET(self) -> None:
            seen.append(self.headers["Authorization"])
            model = {"name": "double", "platform": "p", "inputs": [], "outputs": []}
            self.send_json(model if seen[-1] else {}, 200 if seen[-1] else 401)

        do_POST = do_GET

    with in_thread(ThreadingHTTPServer(("127.0.0.1", 0), Keyed)) as address:
        file.write_text(NEEDS_KEY.format(address=address))
        for command in (("models",), ("check", "--live")):
            seen.clear()
            result = gateway(*command, "--config", str(file), "--key", "secret")
            assert set(seen) == {"Bearer secret", None}, result.stderr


@pytest.mark.parametrize("configured", ["v2-rest", "v2-grpc", "graphpipe", "mip"])
def test_a_live_check_says_which_protocol_a_server_speaks_instead(file: Path, configured: str) -> None:
    with served("umbridge", "posterior") as address:
        assert init(file, place(address)).exit_code == 0
        file.write_text(file.read_text().replace("protocol: umbridge", f"protocol: {configured}"))
        result = gateway("check", "--live", "--config", str(file))
    assert result.exit_code == 1
    assert f"uses umbridge, not {configured}; write `protocol: umbridge`" in result.stderr


def test_a_second_server_of_the_same_model_gets_a_route_that_says_so(file: Path) -> None:
    with served("umbridge", "posterior") as first, served("umbridge", "posterior") as second:
        result = init(file, place(first), place(second))
    assert f"{place(second)}: umbridge, 1 model\n" in result.stderr
    assert "# The routes above already handle posterior." in file.read_text()
    assert "does not list its models" not in file.read_text()
    assert gateway("check", "--strict", "--config", str(file)).exit_code == 0


def test_init_tells_how_to_probe_an_address_that_is_not_an_option(file: Path) -> None:
    result = gateway("init", "http://127.0.0.1:1", "--output", str(file))
    advice = "files and --url need --example; to probe a server, use --backend http://127.0.0.1:1"
    assert (result.exit_code, advice in result.stderr, file.exists()) == (2, True, False)


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ((), "give --backend ADDRESS or --example REQUEST REPLY, or run the command in a terminal\n"),
        (
            ("--backend", "127.0.0.1:1", "--listener", "v2-rest"),
            "expected --listener PROTOCOL=ADDRESS, such as v2-rest=127.0.0.1:8080; got 'v2-rest'\n",
        ),
        (
            ("--backend", "127.0.0.1:1", "--listener", "v3=127.0.0.1:2"),
            "unknown protocol in --listener 'v3=127.0.0.1:2'; known protocols: graphpipe, ",
        ),
        (("--example", "--backend", "127.0.0.1:1"), "--backend cannot be used with --example; use --url URL\n"),
        (("--example", "--model", "a", "--model", "b"), "with --example, give --model only once\n"),
    ],
)
def test_init_refuses_options_before_it_asks_a_server(file: Path, options: tuple[str, ...], told: str) -> None:
    result = gateway("init", *options, "--output", str(file))
    assert (result.exit_code, result.stdout, file.exists()) == (2, "", False)
    assert result.stderr.startswith(told)


def test_init_tells_what_is_wrong_with_the_file_that_it_would_write(file: Path, tmp_path: Path) -> None:
    folder = tmp_path / "none" / "gateway.yaml"
    with served("umbridge", "posterior") as address:
        wrong = init(file, address, options=("--listener", "v2-rest=nonsense"))
        looping = init(file, address, options=("--listener", f"v2-rest={place(address)}"))
        missing = init(folder, address)
    found = f"{address}: umbridge, 1 model\n"
    assert (wrong.exit_code, missing.exit_code, looping.exit_code) == (2, 2, 0)
    assert wrong.stderr.startswith(f"{found}{file}:7:27: expected HOST:PORT such as 127.0.0.1:8080 or ")
    assert missing.stderr == f"{found}{folder}: No such file or directory\n"
    assert "is the gateway's own listener 'v2-rest': requests can loop; use the server's address\n" in looping.stderr


@pytest.mark.parametrize("arguments", [(), ("127.0.0.1:1", "--config", "config/gateway.yaml")])
def test_models_are_those_of_an_address_or_of_a_configuration(arguments: tuple[str, ...]) -> None:
    result = gateway("models", *arguments)
    assert (result.exit_code, result.stderr) == (2, "expected either ADDRESS or --config FILE\n")


def test_a_header_without_a_value_is_refused() -> None:
    result = gateway("models", "127.0.0.1:1", "--header", "secret")
    assert (result.exit_code, result.stderr) == (2, "--header: expected NAME=VALUE\n")


def test_init_writes_nothing_if_a_server_cannot_be_reached(file: Path) -> None:
    with served("umbridge", "posterior") as first:
        with served("umbridge", "posterior") as second:
            pass
        result = init(file, place(first), place(second))
    assert result.exit_code == 3
    assert f"{place(second)}: connection refused; no file written" in result.stderr
    assert not file.exists()


class OnlyPredict(QuietHandler):
    """A handwritten server with one path, `/v1/models/house:predict`."""

    def do_GET(self) -> None:
        self.send_error(404)

    do_POST = do_GET


def only_predict() -> AbstractContextManager[str]:
    return in_thread(ThreadingHTTPServer(("127.0.0.1", 0), OnlyPredict))


@pytest.mark.parametrize("more", [(), ("--model", "house")])
def test_a_probe_tells_what_to_write_for_a_server_that_only_predicts(more: tuple[str, ...]) -> None:
    with only_predict() as address:
        result = gateway("probe", address, *more)
        other = gateway("probe", f"umbridge://{address}", *more)
    assert result.exit_code == 1
    assert "`/v1/models/NAME:predict` cannot be detected: write `protocol: v1-rest`" in result.stderr
    assert "v1-rest" not in other.stderr


def test_init_takes_the_stated_protocol_of_a_server_that_only_predicts(file: Path, tmp_path: Path) -> None:
    with only_predict() as address:
        result = init(file, f"v1-rest://{address}", options=("--model", "house"))
        refused = init(tmp_path / "other.yaml", f"umbridge://{address}")
    assert (result.exit_code, refused.exit_code) == (0, 1)
    assert "the server responds, but no response shows v1-rest" in result.stderr
    text = file.read_text()
    assert "protocol: v1-rest" in text
    assert 'match: {model: "house"}' in text
    # the stub is right where it is: without the marks of comments it is a signature of the route
    file.write_text(re.sub(r"^    # (?=signature|  inputs|  outputs)", "    ", text, flags=re.MULTILINE))
    assert gateway("check", "--strict", "--config", str(file)).exit_code == 0
    assert "\n    signature:\n" in file.read_text()


def test_a_stated_protocol_needs_a_server_over_http(file: Path) -> None:
    with served("mip", "double") as address:
        result = init(file, f"v1-rest://{place(address)}", options=("--timeout", "0.5"))
    assert result.exit_code != 0
    assert not file.exists()


def test_init_writes_the_servers_that_it_recognizes(file: Path, tmp_path: Path) -> None:
    with served("umbridge", "posterior") as known, only_predict() as unknown:
        result = init(file, unknown, place(known))
        nothing = init(tmp_path / "none.yaml", unknown)
    assert result.exit_code == 1
    assert f"{unknown}: a server responds, but its protocol is not one of " in result.stderr
    assert "the file has no backend for it" in result.stderr
    text = file.read_text()
    assert "protocol: umbridge" in text
    assert f"# TODO: no backend for {unknown}: a server responds" in text
    assert f'#   NAME: {{protocol: PROTOCOL, endpoints: ["{unknown}"]}}' in text
    assert gateway("check", "--strict", "--config", str(file)).exit_code == 0
    assert (nothing.exit_code, (tmp_path / "none.yaml").exists()) == (1, False)
    assert "; no file written" in nothing.stderr


@pytest.mark.parametrize(
    ("url", "reply", "is_v1"),
    [
        ("http://127.0.0.1:1/v1/models/house:predict", '{"predictions": [1.5]}', True),
        ("http://127.0.0.1:1/predict", '{"predictions": [1.5]}', False),
        ("http://127.0.0.1:1/v1/models/house:predict", '{"prices": [1.5]}', False),
    ],
)
def test_init_from_an_example_of_kserve_v1_names_the_protocol(
    file: Path, tmp_path: Path, url: str, reply: str, *, is_v1: bool
) -> None:
    file, request, response = (tmp_path / name for name in ("gateway.yaml", "request.json", "reply.json"))
    request.write_text('{"instances": [[1.5, 2.0]]}')
    response.write_text(reply)
    result = gateway("init", "--example", str(request), str(response), "--url", url, "--output", str(file))
    assert result.exit_code == 0, result.stderr
    assert ("# This is KServe V1: `protocol: v1-rest`" in file.read_text()) == is_v1


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion_scripts(shell: str) -> None:
    result = gateway("completion", shell)
    assert result.exit_code == 0
    assert "_GATEWAY_COMPLETE" in result.stdout


@pytest.mark.long
def test_bash_completes_commands_and_protocols() -> None:
    def completed(words: str) -> list[str]:
        asked = {"_GATEWAY_COMPLETE": "complete_bash", "COMP_WORDS": words, "COMP_CWORD": str(words.count(" "))}
        command = [str(Path(sys.executable).with_name("gateway"))]
        done = subprocess.run(command, env={**os.environ, **ENVIRON, **asked}, capture_output=True, text=True)
        return done.stdout.split()

    assert completed("gateway pro") == ["probe"]
    assert completed("gateway call --protocol v2") == ["v2-rest", "v2-grpc"]
    assert completed("gateway reference --model po") == ["posterior"]


@pytest.mark.long
def test_bash_runs_the_script() -> None:
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    script = """
        eval "$(gateway completion bash)"
        COMP_WORDS=(gateway reference --protocol umb) COMP_CWORD=3
        _gateway_completion gateway
        echo "${COMPREPLY[@]}"
    """
    done = subprocess.run(["bash", "-c", script], env={**os.environ, "PATH": path}, capture_output=True, text=True)
    assert done.stdout == "umbridge\n"
