"""What works without Linux: on Windows the client, and the commands that ask or check.

No such machine is at hand: `as_windows` takes away what Python lacks there, which finds every use that does not ask.
"""

import json
import subprocess
import sys
from contextlib import ExitStack
from pathlib import Path

import pytest

from gateway.runtime.starting import WITHOUT_WINDOWS
from tests.cli.commands import ROOT
from tests.client.servers import WIRE_FORMS, served

CALLS = """
import json
import sys
from gateway.client import Client

answers = {}
for address in sys.stdin.read().split():
    with Client(address) as client:
        (answer,) = client.infer("double", [[1.0, 2.0, 3.0]]).values()
        answers[address.partition(":")[0]] = answer.tolist()
print(json.dumps(answers))
"""


def as_windows(*arguments: str, given: str = "") -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "tests.packaging.as_windows", *arguments]
    return subprocess.run(command, cwd=ROOT, input=given, capture_output=True, text=True, check=False)


def test_the_client_calls_in_every_wire_form_on_windows(tmp_path: Path) -> None:
    program = tmp_path / "calls.py"
    program.write_text(CALLS)
    with ExitStack() as stack:
        addresses = [stack.enter_context(served(name, "double")) for name in WIRE_FORMS]
        done = as_windows(str(program), given=" ".join(addresses))
    assert done.stderr == ""
    assert json.loads(done.stdout) == {name: [[2.0, 4.0, 6.0]] for name in WIRE_FORMS}


COMMANDS = [f"{name} --help" for name in ("route", "call", "probe", "init", "top")]


@pytest.mark.long
@pytest.mark.parametrize("command", ["--version", "check --config config/gateway.yaml", *COMMANDS])
def test_commands_that_ask_or_check_run_on_windows(command: str) -> None:
    done = as_windows("gateway", *command.split())
    assert (done.returncode, done.stderr) == (0, "")


def test_commands_that_serve_are_refused_on_windows_with_what_to_do_instead() -> None:
    done = as_windows("gateway", WITHOUT_WINDOWS[0], "--config", "gateway.yaml")
    assert done.returncode == 1
    assert done.stderr == (
        "gateway serve does not run on Windows: run it in WSL or a container; the client (gateway.client) and commands"
        " that query or check also run on Windows\n"
    )
