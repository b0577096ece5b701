"""`gateway bench`: every wire form, its figures, its errors and exit codes."""

import json
import os
import signal
import socket
import subprocess
import sys
from typing import Any

import pytest

from tests.cli.commands import ENVIRON, gateway
from tests.client.servers import NAMELESS, WIRE_FORMS, served
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


@pytest.mark.parametrize(
    ("form", "model", "given", "expected"),
    [
        (
            "umbridge",
            "posterior",
            ("--set", "input0=[[1.5,2.5],[3.5,4.5]]"),
            "these inputs take 2 messages over umbridge, expected one",
        ),
        ("v2-rest", "identity", (), "the server does not report the model's inputs; set them with --set NAME=VALUE"),
    ],
)
def test_a_request_that_cannot_be_sent_again_and_again_is_told(
    form: str, model: str, given: tuple[str, ...], expected: str
) -> None:
    with served(form, model) as address:
        result = gateway("bench", address, model, *FEW, *given)
    assert (result.exit_code, result.output) == (2, f"{expected}\n")


def test_the_first_answer_has_a_time_limit() -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        address = f"127.0.0.1:{silent.getsockname()[1]}"
        result = gateway("bench", f"v2-rest://{address}", "double", *FEW, "--timeout", "0.05")
    assert (result.exit_code, result.output) == (
        4,
        f"http://{address}: no answer within 0.05 s, the limit that `timeout` sets\n",
    )


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
