"""What importing the client brings along: no configuration, no web framework, no command line."""

import subprocess
import sys

import pytest

from tests.limits import GENEROUS

PROGRAM = "import sys, {module}; print(*sorted(name for name in sys.modules if '.' not in name or 'gateway' in name))"
HEAVY = {"fastapi", "starlette", "uvicorn", "pydantic", "typer", "yaml", "prometheus_client", "redis", "PIL"}
ABOVE = (
    "gateway.runtime.app.",
    "gateway.cli.",
    "gateway.admin.",
    "gateway.config.",
    "gateway.observing.",
    "gateway.reference.",
)


@pytest.mark.parametrize("module", ["gateway.client", "gateway.client.translate"])
def test_it_is_a_library_of_its_own(module: str) -> None:
    printed = subprocess.run(
        [sys.executable, "-c", PROGRAM.format(module=module)],
        stdout=subprocess.PIPE,
        text=True,
        check=True,
        timeout=GENEROUS,
    ).stdout.split()
    assert HEAVY.intersection(printed) == set()
    assert [name for name in printed if f"{name}.".startswith(ABOVE)] == []
