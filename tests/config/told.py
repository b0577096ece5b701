"""What is told of configurations with the protocols that there are."""

import pytest

from gateway.cli.options import catalog
from gateway.config import Config, ConfigError, loads, loads_with_warnings


def read(text: str, **environ: str) -> Config:
    return loads(text, "g.yaml", catalog(), environ)


def problems(text: str, **environ: str) -> list[str]:
    """The errors, of which there is at least one, each with its place in the file."""
    with pytest.raises(ConfigError) as caught:
        read(text, **environ)
    return [str(each).removeprefix("g.yaml:") for each in caught.value.problems]


def problem(text: str, **environ: str) -> str:
    """The only error."""
    [found] = problems(text, **environ)
    return found


def warnings(text: str, **environ: str) -> list[str]:
    """The warnings, each with its place in the file."""
    return [str(each).removeprefix("g.yaml:") for each in loads_with_warnings(text, "g.yaml", catalog(), environ)[1]]
