"""Help, version and usage errors of the commands."""

import json
import re
import subprocess
import sys
import tomllib
from threading import Event, Thread

import pytest

from gateway.assembly.registry import protocols
from gateway.cli import COMMANDS
from gateway.cli.options import catalog
from gateway.config import json_schema
from gateway.config.schema import below
from tests.cli.commands import ENVIRON, ROOT, Runner, gateway
from tests.cli.terminal import terminal


@pytest.mark.parametrize(
    ("command", "option"),
    [
        *(("serve", "--config FILE"), ("demo", "--print"), ("check", "--config FILE"), ("check", "--strict")),
        *(("reference", "--bind HOST:PORT"), ("call", "--model NAME")),
    ],
)
def test_each_command_lists_its_options(command: str, option: str) -> None:
    result = gateway(command, "--help")
    assert result.exit_code == 0
    assert option in result.output


@pytest.mark.parametrize(
    ("command", "usage"),
    [
        ("serve", "[OPTIONS] [FILE]"),
        ("call", "[OPTIONS] [ADDRESS] [MODEL] [FILE]"),
        ("bench", "[OPTIONS] ADDRESS MODEL [FILE]"),
        ("drain", "[OPTIONS] BACKEND ENDPOINT"),
        ("completion", "[OPTIONS] SHELL"),
    ],
)
def test_arguments_are_shown_without_the_types_of_python(command: str, usage: str) -> None:
    printed = gateway(command, "--help").output
    assert f" {command} {usage}\n" in printed
    assert re.search(r"<[a-z]+[>\[]", printed) is None


def test_an_option_that_is_written_as_an_argument_is_named() -> None:
    assert "extra argument(s) (gw.yaml) (use --config)" in gateway("doctor", "gw.yaml").stderr
    assert "extra argument(s) (x:1) (use --admin)" in gateway("top", "x:1").stderr


def test_the_schema_is_json_and_lists_installed_protocols() -> None:
    printed = json.loads(gateway("schema").stdout)
    assert printed == json_schema(catalog())
    assert below(printed, ("backends", "x", "protocol"))["enum"] == sorted(protocols())


@pytest.mark.parametrize(
    "arguments",
    [
        *(("serve",), ("check",), ("call", "-"), ("sevre",), ("check", "one.yaml", "--config", "other.yaml")),
        *(("check", "--config", "no/such/file.yaml"), ("check", "--config", "/")),
    ],
)
def test_wrong_usage_exits_with_2(arguments: tuple[str, ...]) -> None:
    result = gateway(*arguments)
    assert result.exit_code == 2
    assert "Error: " in result.stderr


def test_wrong_usage_is_told_in_red_on_a_terminal() -> None:
    with terminal("check", "--nosuch") as shown:
        assert shown.ended() == 2
        assert shown.colours("Error: No such option: --nosuch") == {"red"}
        assert shown.colours("Usage: ") == {"default"}


def test_it_prints_its_version() -> None:
    version = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]
    result = gateway("--version")
    assert (result.exit_code, result.output) == (0, f"gateway {version}\n")


def test_the_configuration_of_the_demo_is_the_documented_default() -> None:
    result = gateway("demo", "--print")
    assert (result.exit_code, result.output) == (0, (ROOT / "config/gateway.yaml").read_text())


@pytest.mark.parametrize("command", COMMANDS)
def test_the_list_of_commands_says_what_their_own_help_says(command: str) -> None:
    own = " ".join(gateway(command, "--help").output.split())
    assert COMMANDS[command].rstrip(".").partition(",")[0] in own


@pytest.mark.parametrize("arguments", [(), ("--help",)])
def test_the_list_of_commands_shows_each_text_whole(arguments: tuple[str, ...]) -> None:
    printed = " ".join(gateway(*arguments).output.split())
    assert [name for name, text in COMMANDS.items() if f"{name} {text}" not in printed] == []


def test_a_mistyped_command_is_guessed() -> None:
    assert "No such command 'chek'. Did you mean 'check'" in gateway("chek").output


def run(code: str) -> str:
    """What a Python program prints."""
    return subprocess.run(
        [sys.executable, "-c", code], stdout=subprocess.PIPE, text=True, check=True, env=ENVIRON
    ).stdout


def test_help_imports_nothing_that_takes_long() -> None:
    """In a process of its own: shells wait for it."""
    code = "import sys; from gateway.cli import main; sys.argv = ['gateway', '--help']\n"
    code += "try: main()\nexcept SystemExit: pass\n"
    code += "print(sorted({'numpy', 'grpc', 'pydantic', 'uvloop', 'yaml'} & sys.modules.keys()))"
    printed = run(code)
    assert "Usage: " in printed
    assert printed.splitlines()[-1] == "[]"


def test_the_web_framework_is_not_imported_without_an_admin_port() -> None:
    """In a process of its own: it takes a third of the start, and 25 MB in each worker."""
    code = "import sys, gateway.cli.commands.serve, gateway.runtime.app\n"
    code += "print(sorted({'fastapi', 'starlette', 'uvicorn'} & sys.modules.keys()))"
    assert run(code) == "[]\n"


def test_what_another_thread_prints_is_not_the_command_s(capsys: pytest.CaptureFixture[str]) -> None:
    begun = Event()

    def other() -> None:
        begun.wait()
        print("a server's", file=sys.stderr)

    thread = Thread(target=other)
    thread.start()
    with Runner().isolation() as (_, error, _):
        begun.set()
        thread.join()
        print("the command's", file=sys.stderr)
        sys.stderr.flush()
        assert error.getvalue() == b"the command's\n"
    assert capsys.readouterr().err == "a server's\n"
