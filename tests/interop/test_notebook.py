"""The client in a real IPython: tables, a progress bar, and errors without a frame of the client."""

import subprocess
from pathlib import Path

from tests.cli.commands import ENVIRON
from tests.client.servers import served
from tests.limits import GENEROUS
from tests.peers.build import python_of, require

SCRIPT = Path(__file__).parent / "clients/notebook.py"


def test_what_a_notebook_shows() -> None:
    require("recipes")
    with served("umbridge", "posterior") as address:
        done = subprocess.run(
            [python_of("recipes"), SCRIPT, address], env=ENVIRON, capture_output=True, text=True, timeout=GENEROUS
        )
    assert done.returncode == 0, done.stderr
    errors, tables = done.stdout.split("<Client ")[0], done.stdout[done.stdout.index("<Client ") :].splitlines()
    assert "----> 1 client.infer('nobody', [1.0])\n\nNotFound: no model 'nobody'" in errors
    assert "----> 1 client.map('posterior', [[1.0, 2.0], [1.0]])\n\nInvalidInput: " in errors
    assert "at point 1, [1.0]\n`results` of this InvalidInput has the 1 of 2 points that were done" in errors
    assert "----> 2     return client.model('posterior')(theta)" in errors
    assert "gateway/client" not in errors
    assert [line.rpartition(" | ")[2] for line in tables] == ["True"] * 4
    assert tables[1].startswith("<Signature input0 FP64[-1,2] -> output0 FP64[-1,1]")
    assert "1/1" in done.stderr
