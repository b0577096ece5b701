"""Prints the lowest version of each dependency that pyproject.toml allows, as `NAME==VERSION`: `make lowest` installs
them.

Dependencies of development are not among them: tests may need newer ones than the gateway does.
"""

import tomllib
from collections.abc import Iterator
from itertools import chain
from pathlib import Path

PROJECT = Path(__file__).parents[2] / "pyproject.toml"


def lowest() -> Iterator[str]:
    """The requirements of the gateway and of its extras, each at its lower bound."""
    project = tomllib.loads(PROJECT.read_text())["project"]
    for requirement in (*project["dependencies"], *chain(*project["optional-dependencies"].values())):
        yield requirement.replace(">=", "==")


if __name__ == "__main__":
    print("\n".join(lowest()))
