"""`gateway reference`, and `gateway call` on what it serves."""

import json
import signal
import socket
from collections.abc import Iterator
from pathlib import Path
from urllib.request import urlopen

import pytest

from gateway.assembly.registry import protocols
from tests.cli.commands import gateway, started
from tests.limits import GENEROUS

SPOKEN = sorted(name for name, protocol in protocols().items() if protocol.names_models)
"""The protocols over which one server can have several models."""
NAMELESS = sorted(set(protocols()) - set(SPOKEN))

MODEL = """\
from gateway.reference import signature


@signature(inputs=[("theta", "FP64", [-1, 2])], outputs=[("total", "FP64", [-1, 1])])
def total(theta, config={}):
    return theta.sum(axis=1, keepdims=True) * config.get("scale", 1)


@signature(inputs=[("x", "FP64", [-1, 1])], outputs=[("y", "FP64", [-1, 1])])
def nothing(x):
    return x * float("nan")
"""


@pytest.fixture(scope="module", params=SPOKEN)
def server(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, str]]:
    """The protocol and the address of a server of one's own callables."""
    folder = tmp_path_factory.mktemp("own")
    (folder / "own.py").write_text(MODEL)
    options = ("--protocol", request.param, "--bind", "127.0.0.1:0")
    models = ("--model", "own:total", "--model", "own:nothing", "--model", "posterior")
    with started("reference", *options, *models, folder=folder) as (_, said):
        spoken, _, rest = said[0].partition(" on ")
        address, models_said = rest.split(": ", 1)
        assert (spoken, models_said, said[1:]) == (request.param, "own:total, own:nothing, posterior", ["ready"])
        yield request.param, address


def call_result(server: tuple[str, str], model: str, document: object, *file: str) -> tuple[int, str, str]:
    protocol, address = server
    arguments = ("--protocol", protocol, "--address", address, "--model", model)
    result = gateway("call", *arguments, *(file or ("-",)), given=json.dumps(document).encode())
    return result.exit_code, result.stdout, result.stderr


def tensor_name(server: tuple[str, str], name: str, role: str) -> str:
    """Names that no signature tells go by position: UM-Bridge has none, and GraphPipe's and MIP's are not trusted."""
    traits = protocols()[server[0]].traits
    known = traits.models.trusted_metadata and not traits.wire.points
    return name if known or (role == "input" and not traits.wire.points) else f"{role}0"


def vector(name: str, *numbers: float) -> dict[str, object]:
    return {"name": name, "datatype": "FP64", "shape": [1, len(numbers)], "data": numbers}


def test_a_callable_is_served_and_called(server: tuple[str, str], tmp_path: Path) -> None:
    path = tmp_path / "request.json"
    carries = protocols()[server[0]].traits.wire.parameters
    document = {
        "inputs": [vector(tensor_name(server, "theta", "input"), 1, 2)],
        "parameters": {"config": '{"scale": 5}'} if carries else {},
    }
    path.write_text(json.dumps(document))
    code, out, err = call_result(server, "total", {}, str(path))
    assert (code, err) == (0, "")
    (output,) = json.loads(out)["outputs"]
    # grps has names in its replies, whatever its metadata is worth
    assert output.pop("name") in ("total", tensor_name(server, "total", "output"))
    assert output == {"datatype": "FP64", "shape": [1, 1], "data": [15.0 if carries else 3.0]}


def test_a_derivative_is_called_by_its_companions_name(server: tuple[str, str]) -> None:
    document = {"inputs": [vector(tensor_name(server, "theta", "input"), 1, 2), vector("sens", 1)]}
    code, out, _ = call_result(server, "posterior.gradient", document)
    assert (code, json.loads(out)["outputs"][0]["data"]) == (0, [20.0, -10.0])


def test_nan_is_printed(server: tuple[str, str]) -> None:
    code, out, err = call_result(server, "nothing", {"inputs": [vector(tensor_name(server, "x", "input"), 1)]})
    if protocols()[server[0]].traits.wire.nan == "null":  # KServe writes null for NaN, so the number is lost
        assert (code, out) == (1, "")
        assert err == "output 'y': element 0: null is not a number\n" or err.endswith(": null is not a number\n")
        return
    assert (code, err) == (0, "")
    assert '"data":[NaN]' in out


def test_an_error_of_the_server_is_printed(server: tuple[str, str]) -> None:
    found = call_result(server, "totla", {"inputs": [vector("x", 1)]})
    why = "no model 'totla'; this server has total, nothing, posterior; did you mean 'total'?\n"
    assert found == (1, "", why)


@pytest.mark.long
@pytest.mark.parametrize("protocol", NAMELESS)
def test_a_protocol_without_model_names_serves_one_model(protocol: str, tmp_path: Path) -> None:
    (tmp_path / "own.py").write_text(MODEL)
    options = ("--protocol", protocol, "--bind", "127.0.0.1:0")
    with started("reference", *options, "--model", "own:nothing", folder=tmp_path) as (_, said):
        address = said[0].partition(" on ")[2].split(": ")[0]
        code, out, _ = call_result((protocol, address), "any", {"inputs": [vector("x", 1)]})
    assert code == 0
    assert '"data":[NaN]' in out
    result = gateway("reference", *options, "--model", "double", "--model", "upper")
    assert result.exit_code == 2
    assert result.stderr == f"clients of {protocol} do not name a model, so a server has only one; got double, upper\n"


GENERATOR = """\
from gateway.reference import signature


@signature(inputs=[("x", "FP64", [-1, 1])], outputs=[("y", "FP64", [-1, 1])])
def multiples(x):
    for factor in (1, 2):
        yield factor * x
"""


def test_a_generator_is_served_as_a_stream(tmp_path: Path) -> None:
    (tmp_path / "own.py").write_text(GENERATOR)
    options = ("--protocol", "v2-rest", "--bind", "127.0.0.1:0", "--model", "own:multiples", "--model", "count")
    with started("reference", *options, folder=tmp_path) as (_, said):
        url = f"http://{said[0].partition(' on ')[2].split(': ')[0]}/v2/models"
        own = streamed(f"{url}/multiples/generate_stream", b'{"x": 3}')
        none = streamed(f"{url}/count/generate_stream", b'{"n": 0}')
    events = "text/event-stream; charset=utf-8"
    assert own == (
        events,
        b'data: {"model_name":"multiples","model_version":"1","y":3.0}\n\n'
        b'data: {"model_name":"multiples","model_version":"1","y":6.0}\n\n',
    )
    assert none == (events, b"")


def streamed(url: str, body: bytes) -> tuple[str, bytes]:
    """The Content-Type and the body of the answer."""
    with urlopen(url, body, timeout=GENEROUS) as reply:
        return reply.headers["content-type"], reply.read()


CALLS = {
    "protocol": (("v2", "127.0.0.1:1", "-"), b"", "no protocol 'v2'; expected "),
    "address": (("v2-rest", "localhost", "-"), b'{"inputs": []}', "bad address 'localhost': it has no port; "),
    "file": (("v2-rest", "127.0.0.1:1", "no/such/file"), b"", "no/such/file: No such file or directory"),
    "JSON": (("v2-rest", "127.0.0.1:1", "-"), b"{", "not JSON: "),
    "request": (("v2-rest", "127.0.0.1:1", "-"), b"{}", "inputs are missing"),
    "server": (("v2-rest", "127.0.0.1:1", "-"), b'{"inputs": []}', "127.0.0.1:1: connection refused"),
}
USAGE, UNREACHABLE = 2, 3


@pytest.mark.parametrize("case", CALLS.values(), ids=CALLS)
def test_an_impossible_call_is_a_one_line_error(case: tuple[tuple[str, str, str], bytes, str]) -> None:
    (protocol, address, file), given, said = case
    result = gateway("call", "--protocol", protocol, "--address", address, "--model", "m", file, given=given)
    code = UNREACHABLE if said.endswith("refused") else USAGE
    assert (result.exit_code, result.stdout, result.stderr.count("\n")) == (code, "", 1)
    assert result.stderr.startswith(said)


SERVERS = {
    "protocol": (("umbrige", "127.0.0.1:0", "double"), "--protocol: unknown protocol 'umbrige'; did you mean "),
    "no port": (("umbridge", "127.0.0.1", "double"), "--bind: expected HOST:PORT such as 127.0.0.1:8080 or "),
    "scheme": (("umbridge", "unix:///tmp/a.sock", "double"), "--bind: unix:// is for protocols over TCP; expected "),
    "model": (("umbridge", "127.0.0.1:0", "duoble"), "--model: unknown bundled model 'duoble'; did you mean "),
    "twice": (("umbridge", "127.0.0.1:0", "double", "double"), "--model: 'double' is listed twice"),
    "module": (("umbridge", "127.0.0.1:0", "no_such_module:x"), "no module 'no_such_module'; looked in "),
    "sizes": (("umbridge", "127.0.0.1:0", "upper"), "model 'upper' does not fit umbridge: "),
}


@pytest.mark.parametrize("case", SERVERS.values(), ids=SERVERS)
def test_an_impossible_server_is_a_one_line_error(case: tuple[tuple[str, ...], str]) -> None:
    (protocol, bind, *models), said = case
    options = [word for model in models for word in ("--model", model)]
    result = gateway("reference", "--protocol", protocol, "--bind", bind, *options)
    assert (result.exit_code, result.stdout, result.stderr.count("\n")) == (2, "", 1)
    assert result.stderr.startswith(said)


def test_an_address_in_use_is_an_error() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        result = gateway("reference", "--protocol", "umbridge", "--bind", address, "--model", "double")
    assert result.exit_code == 1
    assert result.stderr == f"reference 'umbridge': cannot bind {address}: Address already in use\n"


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_ends_it(number: signal.Signals) -> None:
    with started("reference", "--protocol", "umbridge", "--bind", "127.0.0.1:0", "--model", "double") as (process, _):
        process.send_signal(number)
        assert process.wait() == 0
