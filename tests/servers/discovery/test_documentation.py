"""The examples of docs/discovery.md."""

import re
from pathlib import Path

import pytest
import yaml

from gateway.cli.options import catalog
from gateway.config.loading import loads_with_warnings

PAGE = (Path(__file__).parents[3] / "docs/discovery.md").read_text("utf-8")
EXAMPLES = re.findall(r"```yaml\n(.*?)```", PAGE, re.DOTALL)
REST = """\
listeners: [{name: http, bind: "127.0.0.1:0", protocols: [v2-rest]}]
routes: [{match: {model: m}, backend: NAME}]
"""


def test_there_is_one_for_each_way() -> None:
    ways = [way for text in EXAMPLES for each in yaml.safe_load(text)["backends"].values() for way in each["discovery"]]
    assert {"dns", "srv", "files", "register"} <= set(ways)


@pytest.mark.parametrize("text", EXAMPLES)
def test_it_is_valid_without_warnings(text: str, tmp_path: Path) -> None:
    (tmp_path / "token").write_text("sesame")
    [name] = yaml.safe_load(text)["backends"]
    whole = REST.replace("NAME", name) + text.replace("/secrets/register", str(tmp_path / "token"))
    config, warnings = loads_with_warnings(whole, "docs/discovery.md", catalog(), {})
    assert warnings == ()
    assert "sesame" not in repr(config)
