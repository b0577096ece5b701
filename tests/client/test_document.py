"""docs/client.md names every argument, method and exit code. tests/documents runs its programs and commands."""

import re
from inspect import Parameter, signature

from gateway.cli.exit_codes import FAILED, TIMED_OUT, UNREACHABLE, USAGE
from gateway.client import Client
from tests.cli.commands import ROOT

PAGE = (ROOT / "docs/client.md").read_text("utf-8")


def test_the_page_has_every_argument_and_method() -> None:
    arguments = [name for name, each in signature(Client).parameters.items() if each.kind is Parameter.KEYWORD_ONLY]
    assert [name for name in arguments if f"`{name}`" not in PAGE and f'{name}="' not in PAGE] == []
    methods = [name for name in vars(Client) if name[0] != "_" and name not in ("ask", "ask_stream")]
    assert [name for name in methods if f"`{name}(" not in PAGE] == []


def test_the_exit_codes_are_those_of_the_command() -> None:
    (told,) = re.findall(r"\[exit\s+code\]\(commands\.md\)\s+is\s+([^.]*)\.", PAGE)
    assert [int(code) for code in re.findall(r"(\d)\s+for", told)] == [FAILED, USAGE, UNREACHABLE, TIMED_OUT]
