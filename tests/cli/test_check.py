"""`gateway check`."""

from pathlib import Path

import pytest

from tests.cli.commands import ROOT, gateway

SHIPPED = [ROOT / "config/gateway.yaml", *sorted((ROOT / "config/examples").glob("*.yaml"))]


@pytest.mark.parametrize("path", SHIPPED, ids=lambda path: path.name)
def test_what_is_shipped_is_right(path: Path) -> None:
    result = gateway("check", "--config", str(path))
    assert (result.exit_code, result.output) == (0, "")


def test_every_error_is_told_with_its_place(tmp_path: Path) -> None:
    path = tmp_path / "gateway.yaml"
    path.write_text(
        """listeners:
  - {name: http, bind: "127.0.0.1:8080", protocols: [v2-rst]}
backends:
  science:
    protocol: umbridge
    endpoints: ["http://127.0.0.1:4242"]
    polcies: []
routes:
  - {match: {model: "*"}, backend: sceince}
"""
    )
    result = gateway("check", "--config", str(path))
    assert result.exit_code == 1
    assert result.stderr == (
        f"{path}:2:54: no protocol is called 'v2-rst'; did you mean 'v2-rest'?\n"
        f"{path}:7:5: 'polcies' is not a key here; did you mean 'policies'?\n"
        f"{path}:9:36: no backend is called 'sceince'; did you mean 'science'?\n"
    )
