"""The unit for systemd: its commands exist, and it waits as long as the gateway drains."""

from configparser import ConfigParser

import pytest

from gateway.cli.options import catalog
from gateway.config import loads
from tests.cli.commands import ROOT, gateway

UNIT = ROOT / "deploy" / "systemd" / "modelglot.service"


@pytest.fixture(scope="module")
def service() -> dict[str, str]:
    parser = ConfigParser(interpolation=None)
    parser.optionxform = str  # type: ignore[assignment,method-assign]  # keys of units have capitals
    parser.read_string(UNIT.read_text())
    return dict(parser["Service"])


@pytest.mark.parametrize("key", ["ExecStartPre", "ExecStart"])
def test_its_commands_are_those_of_the_gateway(service: dict[str, str], key: str) -> None:
    program, command, option, _ = service[key].split()
    assert program == "/opt/modelglot/bin/gateway"
    assert option in gateway(command, "--help").stdout


def test_it_waits_for_the_end_of_requests(service: dict[str, str]) -> None:
    drain = loads('listeners: [{name: a, bind: "127.0.0.1:1", protocols: [v2-rest]}]', "g.yaml", catalog()).drain
    assert float(service["TimeoutStopSec"]) >= drain.delay + drain.timeout + 10
    assert "KillSignal" not in service, "SIGTERM, the default, drains"
    assert service["ExecReload"] == "/bin/kill -HUP $MAINPID"
