"""`gateway completion`: print a shell completion script. The script calls `gateway` to compute the completions."""

from enum import Enum
from typing import Annotated

import typer
from typer.completion import completion_init, get_completion_script  # type: ignore[attr-defined]  # not in __all__

PROGRAM = "gateway"
VARIABLE = "_GATEWAY_COMPLETE"
"""The environment variable that a shell sets to request completions from `gateway`. click defines the name."""


class Shell(Enum):
    """A shell that completion supports."""

    BASH = "bash"
    ZSH = "zsh"
    FISH = "fish"


def completion(
    shell: Annotated[Shell, typer.Argument(metavar="SHELL", help="bash, zsh or fish.")],
) -> None:
    """Print the completion script for a shell. To enable completion in bash: eval "$(gateway completion bash)"; in zsh:
    eval "$(gateway completion zsh)"; in fish: gateway completion fish | source."""
    print(get_completion_script(prog_name=PROGRAM, complete_var=VARIABLE, shell=shell.value))


def enable() -> None:
    """If a shell requests completions, print them. `main` calls this function before it runs a command."""
    completion_init()


def protocols(incomplete: str) -> list[str]:
    """Return the protocols whose names start with `incomplete`. Options use this function as their `autocompletion`."""
    from gateway.assembly.forms import known  # imported only if a shell requests completions

    return [each for each in known() if each.startswith(incomplete)]


def bundled_models(incomplete: str) -> list[str]:
    """Return the bundled models whose names start with `incomplete`. Options use this function as their
    `autocompletion`."""
    from gateway.reference.bundled import BUNDLED

    return [each for each in BUNDLED if each.startswith(incomplete)]
