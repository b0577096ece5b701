"""What importing the client brings along: no configuration, no web framework, no command line."""

import subprocess
import sys

import pytest

from tests.limits import GENEROUS

PROGRAM = "import sys, {module}; print(*sorted(name for name in sys.modules if '.' not in name or 'gateway' in name))"
HEAVY = {"fastapi", "starlette", "uvicorn", "pydantic", "typer", "yaml", "prometheus_client", "redis", "PIL"}
ABOVE = tuple(f"gateway.{name}." for name in ("runtime.app", "cli", "admin", "config", "observing", "reference"))


@pytest.mark.parametrize("module", ["gateway.client", "gateway.client.translate"])
def test_it_is_a_library_of_its_own(module: str) -> None:
    command = [sys.executable, "-c", PROGRAM.format(module=module)]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True, timeout=GENEROUS)
    printed = done.stdout.split()
    assert HEAVY.intersection(printed) == set()
    assert [name for name in printed if f"{name}.".startswith(ABOVE)] == []
