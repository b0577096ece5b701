"""`gateway call`: what it sends, what it prints, and its exit codes."""

import json
import os
import pty
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from gateway.cli import call_inputs
from gateway.cli.call_inputs import BadArgument
from gateway.cli.commands.call import OPTIONS
from gateway.core.operations import Operation
from tests.cli.commands import ENVIRON, ROOT, gateway
from tests.client.servers import holding, served
from tests.interop.processes import free_port
from tests.limits import GENEROUS

MODELS = ("double", "posterior", "count", "upper", "identity")


@pytest.fixture(scope="module")
def v2() -> Iterator[str]:
    with served("v2-grpc", *MODELS) as address:
        yield address


@pytest.fixture(scope="module")
def science() -> Iterator[str]:
    with served("umbridge", "posterior") as address:
        yield address


def data(*arguments: str, given: bytes = b"") -> list[object]:
    """The data of the first output of each line that is printed."""
    result = gateway("call", *arguments, given=given)
    assert (result.exit_code, result.stderr) == (0, "")
    return [json.loads(line)["outputs"][0]["data"] for line in result.stdout.splitlines()]


@pytest.mark.parametrize(
    ("value", "expected"),
    [("x=1,2.5", [2.0, 5.0]), ("x=[[1,2],[3,4]]", [2.0, 4.0, 6.0, 8.0]), ("=5", [10.0]), ("x=-1e3", [-2000.0])],
)
def test_an_input_is_written_on_the_command_line(v2: str, value: str, expected: list[float]) -> None:
    assert data(v2, "double", "--set", value) == [expected]


@pytest.mark.parametrize("protocol", ["graphpipe", "grps-rest", "grps-grpc"])
def test_whole_numbers_become_those_of_metadata_that_are_not_relied_on_otherwise(protocol: str) -> None:
    with served(protocol, "double") as address:
        assert data(address, "double", "--set", "x=1,2,3") == [[2.0, 4.0, 6.0]]
        assert data(address, "double", "--set", "=1,2,3") == [[2.0, 4.0, 6.0]]
        result = gateway("call", address, "double", "--set", "x=a")
        assert result.exit_code == 1


def test_text_on_the_command_line(v2: str) -> None:
    assert data(v2, "upper", "--set", "text=grün,a") == [["GRÜN", "A"]]


def test_arrays_come_from_files(v2: str, tmp_path: Path) -> None:
    np.save(tmp_path / "x.npy", np.array([[1.5]]))
    np.savez(tmp_path / "all.npz", x=np.array([[1.5]]))
    assert data(v2, "double", "--set", f"x=@{tmp_path / 'x.npy'}") == [[3.0]]
    assert data(v2, "double", str(tmp_path / "x.npy")) == [[3.0]]
    assert data(v2, "double", str(tmp_path / "all.npz")) == [[3.0]]


def test_an_option_replaces_an_input_of_the_file(v2: str) -> None:
    document = {"inputs": [{"name": "x", "datatype": "FP64", "shape": [1], "data": [1]}]}
    assert data(v2, "double", "-", "--set", "x=4", given=json.dumps(document).encode()) == [[8.0]]


def test_a_stream_is_a_line_for_each_response(v2: str) -> None:
    assert data(v2, "count", "--set", "n=3", "--stream") == [[0], [1], [2]]


def test_derivatives(v2: str, science: str) -> None:
    for address, theta in ((v2, "theta"), (science, "input0")):
        assert data(address, "posterior", "--set", f"{theta}=1,2", "--gradient", "--set", "sens=1") == [[20.0, -10.0]]
        assert data(address, "posterior", "--set", f"{theta}=1,2", "--apply-jacobian", "--set", "vec=1,0") == [[20.0]]


def test_the_protocol_may_be_an_option(v2: str) -> None:
    place = v2.partition("://")[2]
    assert data("--protocol", "v2-grpc", "--address", place, "--model", "double", "--set", "x=1") == [[2.0]]
    assert data("--protocol", "v2-grpc", place, "double", "--set", "x=1") == [[2.0]]


def test_outputs_are_written_to_a_file(v2: str, tmp_path: Path) -> None:
    for name in ("out.npz", "out.npy"):
        result = gateway("call", v2, "double", "--set", "x=1,2", "--output", str(tmp_path / name))
        assert (result.exit_code, result.stdout) == (0, "")
        assert result.stderr == f"{tmp_path / name}: y [2]\n"
    assert np.load(tmp_path / "out.npz")["y"].tolist() == np.load(tmp_path / "out.npy").tolist() == [2.0, 4.0]
    result = gateway("call", v2, "upper", "--set", "text=a", "--output", str(tmp_path / "text.npz"))
    assert (result.exit_code, result.stderr.count("BYTES")) == (2, 1)


HALVED = """
from gateway.reference import signature

@signature(inputs=[("x", "BF16", [-1])], outputs=[("y", "BF16", [-1])])
def halved(x):
    return x / 2
"""


def test_numbers_that_numpy_files_do_not_have_are_written_as_fp32(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "halves_bf16.py").write_text(HALVED)
    with served("v2-grpc", "halves_bf16:halved") as address:
        result = gateway("call", address, "halved", "--set", "x=1,3", "--output", str(tmp_path / "y.npy"))
    assert result.exit_code == 0, result.stderr
    found = np.load(tmp_path / "y.npy")
    assert (found.dtype, found.tolist()) == (np.float32, [0.5, 1.5])


@pytest.mark.long
def test_on_a_terminal_it_prints_a_table(v2: str) -> None:
    def printed(*arguments: str) -> list[str]:
        ours, theirs = pty.openpty()
        command = [sys.executable, "-m", "gateway", "call", v2, *arguments]
        process = subprocess.run(command, env=ENVIRON, stdout=theirs, check=True, timeout=GENEROUS)
        os.close(theirs)
        text = os.read(ours, 65536).decode()
        os.close(ours)
        assert process.returncode == 0
        return text.splitlines()

    assert printed("double", "--set", "x=1,2,3,4,5,6,7.5") == [
        "\x1b[1moutput  datatype  shape  values\x1b[0m",
        "y       FP64      [7]    2 4 6 8 10 12 ...",
    ]
    assert printed("upper", "--set", "text=a\nb") == [
        "\x1b[1moutput  datatype  shape  values\x1b[0m",
        r"upper   BYTES     [1]    A\nB",
    ]
    assert json.loads(printed("double", "--set", "x=1", "--json")[0])["outputs"][0]["data"] == [2.0]


FAILURES = {
    "model": (1, ("nobody", "--set", "x=1"), "no model 'nobody'"),
    "input": (1, ("double", "--set", "z=1"), "unknown input 'z'; the model takes 'x'"),
    "derivative": (1, ("identity", "--set", "x=1", "--gradient", "--set", "sens=1"), "identity"),
    "no value": (2, ("double", "--set", "x"), "--set: expected NAME=VALUE"),
    "twice": (2, ("double", "--set", "x=1", "--set", "x=2"), "--set x occurs twice"),
    "ragged": (2, ("double", "--set", "x=[[1],[2,3]]"), "--set x=[[1],[2,3]]: input 'x': its rows have"),
    "no list": (2, ("double", "--set", "x=[1,2"), "--set x=[1,2: not a list as JSON, such as [[1,2],[3,4]]: "),
    "texts": (2, ("double", "--set", "x=1,2,abc"), "--set x=1,2,abc: input 'x': it holds int and str; expected only"),
    "space": (2, ("double", "--set", "x", "1,2"), "--set: expected NAME=VALUE"),
    "type": (1, ("double", "--set", "x=@int64.npy"), "or call with --cast round or --cast saturate"),
    "no file": (2, ("double", "--set", "x=@no/such.npy"), "no/such.npy: No such file or directory"),
    "no array": (2, ("double", "no/such.npz"), "no/such.npz: No such file or directory"),
    "two kinds": (2, ("double", "--stream", "--gradient"), "only one of --stream, --gradient"),
    "no sens": (2, ("posterior", "--gradient", "--set", "theta=1,2"), "the derivative needs --set sens=..."),
    "parameter": (2, ("double", "--parameter", "a=null"), "--parameter: parameter 'a' is NoneType, expected a bool, "),
    "archive": (2, ("double", "--set", "x=@a.npz"), "--set x=@a.npz: expected an .npy file, which contains one array"),
    "two arrays": (
        2,
        ("identity", "a.npz", "--output", "b.npy"),
        "has 2 outputs, but .npy files contain one; use .npz",
    ),
    "output": (2, ("double", "--set", "x=1", "--output", "a.txt"), "expected a name that ends in .npy or .npz"),
    "header": (2, ("double", "--header", "secret"), "--header: expected NAME=VALUE"),
}


@pytest.mark.parametrize("case", FAILURES.values(), ids=FAILURES)
def test_what_is_wrong_is_said_in_one_line(
    v2: str, case: tuple[int, tuple[str, ...], str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    np.save("int64.npy", np.array([1, 2]))
    np.savez("a.npz", x=np.array([1.5]), z=np.array([2.5]))
    code, arguments, said = case
    result = gateway("call", v2, *arguments)
    assert (result.exit_code, result.stdout, result.stderr.count("\n")) == (code, "", 1)
    assert said in result.stderr


def test_a_server_that_is_not_there_and_one_that_is_silent() -> None:
    result = gateway("call", f"v2-rest://127.0.0.1:{free_port()}", "double", "--set", "x=1")
    assert (result.exit_code, "connection refused" in result.stderr) == (3, True)
    with holding() as (_, held):
        result = gateway("call", f"v2-rest://127.0.0.1:{held.port}", "m", "--set", "x=1", "--timeout", "0.05")
    assert (result.exit_code, "the limit that --timeout sets" in result.stderr) == (4, True)


def test_the_options_that_are_advised_replace_words_of_the_client_for_python() -> None:
    advised = "".join(path.read_text() for path in (ROOT / "gateway/client").glob("*.py"))
    assert [words for words in OPTIONS if words not in advised] == []


def test_an_address_without_a_protocol() -> None:
    result = gateway("call", "127.0.0.1:4242", "m", "--set", "x=1")
    assert (result.exit_code, "add --protocol NAME" in result.stderr) == (2, True)


def test_an_npy_file_with_objects_is_refused(tmp_path: Path) -> None:
    """Reading one would run what its author wants."""
    np.save(tmp_path / "objects.npy", np.array([{}], object), allow_pickle=True)
    with pytest.raises(BadArgument, match="allow_pickle"):
        call_inputs.read_arrays(str(tmp_path / "objects.npy"))


def test_positions_of_derivatives_are_0_where_they_are_left_out() -> None:
    tensors = call_inputs.assigned(["input0=1", "sens=2", "in_wrt=1"], Operation.GRADIENT)
    found = {each.name: each.array.tolist() for each in tensors}
    assert list(found.items()) == [("input0", [1]), ("out_wrt", [0]), ("in_wrt", [1]), ("sens", [2])]


def test_parameters_are_json_or_text() -> None:
    found = call_inputs.parameters(["a=3", "b=true", 'c={"d": [1.5]}', "e=big", "f=", 'g="3"'])
    assert found == {"a": 3, "b": True, "c": '{"d":[1.5]}', "e": "big", "f": "", "g": "3"}
