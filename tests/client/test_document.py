"""docs/client.md: its programs and commands are run, and print what stands below them."""

import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from inspect import Parameter, signature
from itertools import pairwise
from pathlib import Path

import pytest

from gateway.cli.call import SERVER_ERROR, TIMED_OUT, UNREACHABLE, USAGE
from gateway.client import Client
from tests.cli.commands import ENVIRON, ROOT
from tests.client.servers import served

PAGE = (ROOT / "docs/client.md").read_text("utf-8")
BLOCKS = re.findall(r"^```(\w*)\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)
PROGRAMS = [(text, printed) for (kind, text), (_, printed) in pairwise(BLOCKS) if kind == "python"]
COMMANDS = [tuple(example.strip().split("\n", 1)) for _, block in BLOCKS for example in f"\n{block}".split("\n$ ")[1:]]
FIRST = "import numpy as np\nfrom gateway.client import Client\n"


@pytest.fixture(scope="module")
def addresses() -> Iterator[dict[str, str]]:
    """The addresses of the page, each with the one of this test's own server."""
    with ExitStack() as servers:
        yield {
            "umbridge://127.0.0.1:4242": servers.enter_context(served("umbridge", "posterior")),
            "v2-grpc://127.0.0.1:8001": servers.enter_context(
                served("v2-grpc", "double", "count", "upper", "posterior")
            ),
        }


def here(text: str, addresses: dict[str, str]) -> str:
    for shown, own in addresses.items():
        text = text.replace(shown, own)
    return text


@pytest.mark.parametrize(("program", "printed"), PROGRAMS)
def test_each_program_prints_what_the_page_shows(program: str, printed: str, addresses: dict[str, str]) -> None:
    command = [sys.executable, "-c", FIRST + here(program, addresses)]
    done = subprocess.run(command, env=ENVIRON, stdout=subprocess.PIPE, text=True, timeout=60, check=True)
    assert done.stdout == printed


@pytest.mark.parametrize(("command", "printed"), COMMANDS)
def test_each_command_prints_what_the_page_shows(command: str, printed: str, addresses: dict[str, str]) -> None:
    command = here(command, addresses).replace("gateway", f"{sys.executable} -m gateway", 1)
    done = subprocess.run(["sh", "-c", command], env=ENVIRON, stdout=subprocess.PIPE, text=True, timeout=60, check=True)
    assert done.stdout.rstrip("\n") == printed.rstrip("\n")


def test_the_page_has_every_argument_and_method() -> None:
    arguments = [name for name, each in signature(Client).parameters.items() if each.kind is Parameter.KEYWORD_ONLY]
    assert [name for name in arguments if f"`{name}`" not in PAGE and f'{name}="' not in PAGE] == []
    methods = [name for name in vars(Client) if name[0] != "_" and name not in ("ask", "ask_stream")]
    assert [name for name in methods if f"`{name}(" not in PAGE] == []


def test_the_exit_codes_are_those_of_the_command() -> None:
    codes = [int(code) for code in re.findall(r"^\| (\d) \|", PAGE, re.MULTILINE)]
    assert codes == [0, SERVER_ERROR, USAGE, UNREACHABLE, TIMED_OUT]


def test_the_page_is_found(tmp_path: Path) -> None:
    assert "docs/client.md" in (ROOT / "README.md").read_text("utf-8")
