"""The key `servers`: commands as texts and as lists, and programs that are not there."""

import sys

import pytest

from tests.config import told

CONFIG = """
listeners: [{name: http, bind: "127.0.0.1:8080", protocols: [umbridge]}]
backends:
  lab: {protocol: umbridge, servers: {engine: ENGINE, command: COMMAND}}
routes: [{match: {model: "*"}, backend: lab}]
"""


def config(command: str, engine: str = "process") -> str:
    return CONFIG.replace("COMMAND", command).replace("ENGINE", engine)


def warnings(command: str, engine: str = "process") -> list[str]:
    found = told.warnings(config(command, engine), HOME="/a b")
    return [each.partition(" warning: ")[2] for each in found if "program" in each]


@pytest.mark.parametrize(
    ("written", "words"),
    [
        ('"python server.py {port}"', ("python", "server.py", "{port}")),
        ("""'python "my server.py" --name=a\\ b'""", ("python", "my server.py", "--name=a b")),
        ('[python, "my server.py", "{port}"]', ("python", "my server.py", "{port}")),
        ("python", ("python",)),
    ],
)
def test_a_command_is_a_list_or_a_text_that_is_split_as_a_shell_does(written: str, words: tuple[str, ...]) -> None:
    servers = told.read(config(written), HOME="/a b").backends["lab"].servers
    assert servers is not None
    assert servers.command == words


@pytest.mark.parametrize(
    ("written", "why"),
    [
        ('"python \'server.py"', "is not a command: no closing quotation"),
        ('"python server.py > log"', "no shell runs the command, so '>' would be an argument"),
        ('"a && b"', "no shell runs the command, so '&&' would be an argument"),
        ('" "', "must not be empty"),
        ("3", "expected a list, got 3"),
    ],
)
def test_what_is_no_command_is_refused(written: str, why: str) -> None:
    assert any(why in each for each in told.problems(config(written), HOME="/a b"))


def test_a_program_that_is_not_there_is_told() -> None:
    """A warning: a configuration may be checked on another machine than the one that starts the servers."""
    assert warnings("'nosuchprogram {port}'") == [
        "this machine cannot start servers: the program 'nosuchprogram' does not exist; "
        "install it, or write its full path"
    ]
    assert warnings("['python server.py {port}']") == [
        "this machine cannot start servers: the program 'python server.py {port}' does not exist; write the command "
        "with its arguments as one text, or as a list of words"
    ]
    assert warnings(f"'{sys.executable} server.py'") == []
    assert warnings("nosuchprogram", "slurm") == []
