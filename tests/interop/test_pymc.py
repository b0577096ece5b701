"""The programs of the tutorial about sampling, with a real Triton behind the gateway."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from tests.documents.pages import ROOT, blocks_of
from tests.interop.exchanges import Listen
from tests.interop.processes import Triton
from tests.peers.build import python_of

PAGE = ROOT / "docs/tutorials/sample-a-model.md"
METROPOLIS, PYMC = [block.text for block in blocks_of(PAGE) if block.language == "python"]
CONFIG = """
listeners: [{{name: science, bind: "127.0.0.1:{science}", protocols: [umbridge]}}]
backends: {{triton: {{protocol: v2-grpc, endpoints: ["{triton}"], policies: [{{timeout: {{seconds: 60}}}}]}}}}
routes: [{{match: {{model: "*"}}, backend: triton}}]
"""


@pytest.fixture(scope="module")
def url(listen: Listen, triton: Triton) -> str:
    return f"http://{listen(CONFIG, triton=triton.grpc)['science']}"


def draws_of(program: str, url: str, folder: Path) -> str:
    """What a program prints that asks the gateway at `url`."""
    (folder / "sample.py").write_text(program.replace("http://127.0.0.1:4243", url))
    done = subprocess.run([python_of("recipes"), "sample.py"], cwd=folder, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_metropolis_samples_a_model_on_triton(url: str, tmp_path: Path) -> None:
    assert draws_of(METROPOLIS, url, tmp_path).startswith("500 draws, mean [")


def test_pymc_samples_a_model_on_triton_with_its_gradient(url: str, tmp_path: Path) -> None:
    assert draws_of(PYMC, url, tmp_path).endswith("(1, 20, 2) True\n")
