"""The key `servers`: commands as texts and as lists, and programs that are not there."""

import re
import sys

import pytest

from gateway.cli.options import catalog
from gateway.config import ConfigError, loads
from gateway.config.keys import Config
from gateway.config.warnings import find_warnings

CONFIG = """
listeners: [{name: http, bind: "127.0.0.1:8080", protocols: [umbridge]}]
backends:
  lab: {protocol: umbridge, servers: {engine: ENGINE, command: COMMAND}}
routes: [{match: {model: "*"}, backend: lab}]
"""


def loaded(command: str, engine: str = "process") -> Config:
    text = CONFIG.replace("COMMAND", command).replace("ENGINE", engine)
    return loads(text, "test.yaml", catalog(), {"HOME": "/a b"})


def warnings(config: Config) -> list[str]:
    return [each.message for each in find_warnings(config, catalog()) if "program" in each.message]


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
    servers = loaded(written).backends["lab"].servers
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
    with pytest.raises(ConfigError, match=re.escape(why)):
        loaded(written)


def test_a_program_that_is_not_there_is_told() -> None:
    """A warning: a configuration may be checked on another machine than the one that starts the servers."""
    assert warnings(loaded("'nosuchprogram {port}'")) == [
        "this machine cannot start servers: the program 'nosuchprogram' does not exist; "
        "install it, or write its full path"
    ]
    assert warnings(loaded("['python server.py {port}']")) == [
        "this machine cannot start servers: the program 'python server.py {port}' does not exist; write the command "
        "with its arguments as one text, or as a list of words"
    ]
    assert warnings(loaded(f"'{sys.executable} server.py'")) == []
    assert warnings(loaded("nosuchprogram", "slurm")) == []
