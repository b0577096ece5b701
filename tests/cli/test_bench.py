"""`gateway bench`: every wire form, its figures, its errors and exit codes."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from http.server import ThreadingHTTPServer
from typing import Any

import pytest

from tests.cli.commands import ENVIRON, gateway
from tests.client.servers import NAMELESS, WIRE_FORMS, holding, served
from tests.in_thread import QuietHandler, in_thread
from tests.interop.processes import free_port

FEW = ("--requests", "8", "--warmup", "0", "--in-flight", "2")


def figures(*arguments: str, code: int = 0) -> Any:
    result = gateway("bench", *arguments, "--json")
    assert (result.exit_code, result.stderr) == (code, "")
    return json.loads(result.stdout)


@pytest.mark.parametrize("form", WIRE_FORMS)
@pytest.mark.parametrize("rate", ["0", "2000"])
def test_every_wire_form_takes_load(form: str, rate: str) -> None:
    model = "posterior" if form == "umbridge" else "double"
    name = "theta" if model == "posterior" else "x"
    given = () if form not in ("mip", *NAMELESS, "graphpipe") else ("--set", f"{name}=[[1.5]]")
    with served(form, model) as address:
        found = figures(address, model, "--rate", rate, *FEW, *given)
    assert (found["requests"], found["errors"]) == (8, {})
    assert found["latency"]["count"] == sum(count for _, _, count in found["latency"]["buckets"]) == 8
    assert found["bytes"]["sent"] > 0


@pytest.mark.parametrize("form", ["graphpipe", "grps-rest", "grps-brpc"])
def test_whole_numbers_become_those_of_metadata_that_are_not_relied_on_otherwise(form: str) -> None:
    with served(form, "double") as address:
        assert figures(address, "double", *FEW, "--set", "x=1,2,3")["errors"] == {}


def test_errors_and_exit_codes() -> None:
    with served("v2-grpc", "double") as address:
        assert gateway("bench", address, "triple", *FEW, "--set", "x=1").exit_code == 1
        refused = gateway("bench", address, "double", *FEW, "--set", "x=1", "--batch", "2")
        assert refused.exit_code == 2
        assert refused.stderr == "--batch is only for random inputs; remove it, or remove FILE and --set\n"
    unreachable = gateway("bench", f"v2-grpc://127.0.0.1:{free_port()}", "double", *FEW)
    assert unreachable.exit_code == 3


def test_inputs_that_take_several_messages_cannot_be_sent_again_and_again() -> None:
    with served("umbridge", "posterior") as address:
        result = gateway("bench", address, "posterior", *FEW, "--set", "input0=[[1.5,2.5],[3.5,4.5]]")
    told = "these inputs take 2 messages over umbridge, expected one\n"
    assert (result.exit_code, result.output) == (2, told)


@pytest.mark.parametrize(
    ("arguments", "code", "told"),
    [
        (
            ("--in-flight", "2", "--processes", "3"),
            2,
            "--in-flight is 2, expected at least one for each of 3 processes",
        ),
        (("--timeout", "0.05"), 4, "http://127.0.0.1:PORT: no answer within 0.05 s, the limit that `timeout` sets"),
        (
            ("--parameter", "a=null"),
            2,
            "--parameter: parameter 'a' is NoneType, expected a bool, int, float, str, dict or list",
        ),
    ],
)
def test_a_run_that_cannot_begin_tells_why(arguments: tuple[str, ...], code: int, told: str) -> None:
    with holding() as (_, held):
        result = gateway("bench", f"v2-rest://127.0.0.1:{held.port}", "m", "--set", "x=1", *arguments)
    expected = told.replace("PORT", str(held.port))
    assert (result.exit_code, result.stdout, result.stderr) == (code, "", f"{expected}\n")


REPLY = {"model_name": "m", "outputs": [{"name": "y", "datatype": "INT32", "shape": [1], "data": [7]}]}


INPUT = {"name": "x", "datatype": "INT32", "shape": [1]}


@contextmanager
def answering(*, refused: int = 1000, interrupted: int = 0, inputs: Sequence[object] = (INPUT,)) -> Iterator[str]:
    """The address of a server that refuses inferences from the number `refused` on. At that of the number `interrupted`
    comes Ctrl-C, and no answer."""
    count = 0

    class Server(QuietHandler):
        def do_GET(self) -> None:
            self.send_json({"name": "m", "platform": "p", "inputs": list(inputs), "outputs": []})

        def do_POST(self) -> None:
            nonlocal count
            count += 1
            self.rfile.read(int(self.headers["content-length"]))
            if count == interrupted:
                os.kill(os.getpid(), signal.SIGINT)
                with suppress(ConnectionError):
                    self.rfile.read(1)  # until the client has closed the connection
                return
            is_refused = count >= refused
            self.send_json({"error": "no memory"} if is_refused else REPLY, 400 if is_refused else 200)

    with in_thread(ThreadingHTTPServer(("127.0.0.1", 0), Server)) as address:
        yield f"v2-rest://{address}"


def test_inputs_that_the_server_does_not_report_are_asked_for() -> None:
    with answering(inputs=()) as address:
        result = gateway("bench", address, "m", *FEW)
    told = "the server does not report the model's inputs; set them with --set NAME=VALUE\n"
    assert (result.exit_code, result.stdout, result.stderr) == (2, "", told)


def test_failed_requests_are_counted_and_are_the_exit_code() -> None:
    with answering(refused=2) as address:
        found = figures(address, "m", "--requests", "2", "--warmup", "0", code=1)
    assert (found["requests"], found["errors"]) == (2, {"INVALID_ARGUMENT": {"requests": 2, "example": "no memory"}})


def test_ctrl_c_before_the_first_measurement_says_that_there_is_none() -> None:
    with answering(interrupted=1) as address:
        result = gateway("bench", address, "m", "--flavor", "plain", "--requests", "2")
    told = "interrupted before the first measurement\n"
    assert (result.exit_code, result.stdout, result.stderr) == (130, "", told)


def test_ctrl_c_ends_a_comparison_after_the_server_that_is_measured() -> None:
    with answering(interrupted=2) as one, answering(refused=1) as other:
        options = ("--in-flight", "1", "--warmup", "0", "--seconds", "1000", "--compare", other)
        found = figures(one, "m", *options, code=130)
    assert (found["requests"], found["errors"]) == (0, {})


def test_two_servers_are_compared() -> None:
    with served("v2-grpc", "double") as one, served("v2-rest", "double") as other:
        found = figures(one, "double", *FEW, "--compare", other)
        assert [each["address"] for each in found["targets"]] == [one, other]
        assert [each["requests"] for each in found["targets"]] == [8, 8]
        assert found["ratios"]["p50"] > 0
        assert "ratio" in gateway("bench", one, "double", *FEW, "--compare", other).stdout


@pytest.mark.long
def test_several_processes_share_the_load() -> None:
    with served("v2-grpc", "double") as address:
        found = figures(address, "double", *FEW, "--processes", "2")
    assert (found["requests"], found["processes"]) == (8, 2)


@pytest.mark.long
def test_ctrl_c_prints_what_was_measured_so_far() -> None:
    with served("v2-grpc", "double") as address:
        command = [sys.executable, "-m", "gateway", "bench", address, "double", "--warmup", "0", "--seconds", "100"]
        parent, child = os.openpty()
        with subprocess.Popen(command, env=ENVIRON, stdout=subprocess.PIPE, stderr=child, text=True) as process:
            shown = b""
            while b" requests" not in shown or b" 0 requests" in shown[-60:]:  # the bar: requests have ended
                shown += os.read(parent, 1000)
            process.send_signal(signal.SIGINT)
            printed = process.communicate()[0]
        os.close(parent)
        os.close(child)
    assert process.returncode == 130
    assert "closed loop, 16 in flight" in printed
    assert "p99.9" in printed
