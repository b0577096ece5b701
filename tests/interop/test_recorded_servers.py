"""The real servers whose replies are recorded, by themselves and behind their ready forms; their clients in front.

A gateway has the form on a listener and before the server, so that messages pass, and V2 on another listener.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.interop import json_servers
from tests.interop.client_scripts import run_client
from tests.interop.exchanges import exchange, gateway
from tests.interop.processes import Server, eventually, free_port
from tests.limits import GENEROUS
from tests.peers.recordings import Reply, asked, recorded


@dataclass(frozen=True)
class Recorded:
    """A server: its form, the file of its replies, how it is started, and the name and the input of its model."""

    form: str
    file: str
    start: Callable[[Path], Server]
    model: str = "m"
    rows: tuple[list[float], ...] | list[float] = ([1.0, 2.0, 3.0], [4.0, 5.0, 6.0])


SERVERS = {
    "cog": Recorded("cog", "cog-0.23", json_servers.start_cog, rows=[1.0, 2.5, 3.0]),
    "seldon": Recorded("seldon", "seldon", json_servers.start_seldon),
    "torchserve": Recorded("torchserve", "torchserve", json_servers.start_torchserve, "double"),
    "ray": Recorded("ray-applications", "ray", json_servers.start_ray, "double"),
}


RETRY = {"retry": {"attempts": 8, "statuses": ["RESOURCE_EXHAUSTED"]}}


@dataclass(frozen=True)
class Site:
    """A running server, and the gateway before it: the URLs of the server and of listeners, and the configuration."""

    server: Recorded
    own: str
    form: str
    v2: str
    config: Path


@pytest.fixture(scope="module", params=SERVERS)
def site(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    server = SERVERS[request.param]
    folder = tmp_path_factory.mktemp(request.param)
    form, v2 = (f"http://127.0.0.1:{free_port()}" for _ in range(2))
    with server.start(folder) as running:
        config = json.dumps(_config(server, running.url, form, v2))
        with gateway(config, tmp_path_factory.mktemp("gateway")) as started:
            yield Site(server, running.url, form, v2, started.config)


def _config(server: Recorded, own: str, form: str, v2: str) -> dict[str, Any]:
    return {
        "listeners": [
            {"name": "form", "bind": form[7:], "protocols": [f"json:{server.form}"], "model": server.model},
            {"name": "v2", "bind": v2[7:], "protocols": ["v2-rest"]},
        ],
        "backends": {
            "server": {
                "protocol": "json",
                "form": server.form,
                "endpoints": [own],
                "max_in_flight": 1,
                "safe": True,
                "policies": [{"timeout": {"seconds": GENEROUS}}, RETRY],
            }
        },
        "routes": [{"match": {"model": "*"}, "backend": "server"}],
    }


def test_a_server_says_what_is_recorded_of_it(site: Site) -> None:
    """What the imitations say, and the tests of forms, is what this version of the server says."""
    for command, reply in recorded(site.server.file).items():
        assert _said(site.own, command).comparable == reply.comparable, command


def test_the_same_form_in_front_and_behind_changes_nothing(site: Site) -> None:
    commands = [command for command, reply in recorded(site.server.file).items() if _runs_the_model(command, reply)]
    assert len(commands) > 5
    for command in commands:
        assert _shown(_said(site.form, command)) == _shown(_said(site.own, command)), command


def _said(url: str, command: str) -> Reply:
    """The reply to a command. A Cog is busy for a moment after it has answered."""
    replies: list[Reply] = []

    def is_there() -> bool:
        replies.append(asked(url, command))
        return not replies[-1].status.startswith("HTTP/1.1 409")

    assert eventually(is_there, GENEROUS)
    return replies[-1]


def _runs_the_model(command: str, reply: Reply) -> bool:
    """Whether a command is one for the model that the server answers. Paths below an application's are its own."""
    is_sent = " -d " in command or " --data" in command
    return (
        is_sent
        and " /double/" not in command
        and "-G" not in command
        and reply.status.startswith("HTTP/1.1 20")
        and "-d ''" not in command
    )


def _shown(reply: Reply) -> object:
    """A reply without what belongs to a connection."""
    kind = dict(reply.headers).get("content-type", "")
    return reply.status[:12], kind, reply.comparable[2:]


def test_a_client_of_v2_runs_the_model(site: Site) -> None:
    status, told = _inferred(site, site.server.rows)
    flat = [2 * each for row in site.server.rows for each in (row if isinstance(row, list) else [row])]
    assert (status, told["outputs"][0]["data"]) == (200, flat)


def test_a_client_of_v2_gets_the_error_of_the_model(site: Site) -> None:
    status, told = _inferred(site, [-1.0])
    assert status == 500
    assert "boom" in told["error"] or told["error"] in ("Internal Server Error", "Prediction failed")


def _inferred(site: Site, rows: Any) -> tuple[int, Any]:
    is_flat = not isinstance(rows[0], list)
    shape = [len(rows)] if is_flat else [len(rows), len(rows[0])]
    data = rows if is_flat else [each for row in rows for each in row]
    tensor = {"name": "x", "datatype": "FP64", "shape": shape, "data": data}
    return exchange(site.v2, "POST", f"/v2/models/{site.server.model}/infer", json.dumps({"inputs": [tensor]}))


def test_the_model_is_ready(site: Site) -> None:
    assert exchange(site.v2, "GET", f"/v2/models/{site.server.model}/ready")[0] == 200


def test_probe_and_live_check_recognise_the_server(site: Site) -> None:
    found = json.loads(_gateway("probe", site.own, "--json"))
    assert [each["protocol"] for each in found["spoken"]] == [f"json:{site.server.form}"]
    assert "error" not in _gateway("check", "--live", "--config", str(site.config))


def _gateway(*command: str) -> str:
    program = str(Path(sys.prefix) / "bin" / "python")
    done = subprocess.run([program, "-m", "gateway", *command], capture_output=True, text=True, timeout=GENEROUS)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout + ("" if "--json" in command else done.stderr)


@pytest.mark.parametrize("site", ["torchserve"], indirect=True)
def test_curl_uploads_a_file_to_torchserve(site: Site, tmp_path: Path) -> None:
    kitten = tmp_path / "kitten.jpg"
    kitten.write_bytes(b"\xff\xd8\xff\x00")
    for url in (site.own, site.form):
        for option in (["-T", str(kitten)], ["-F", f"data=@{kitten}"]):
            done = subprocess.run(
                [str(shutil.which("curl")), "-sS", *option, f"{url}/predictions/double"],
                capture_output=True,
                timeout=GENEROUS,
                check=True,
            )
            assert json.loads(done.stdout) == {"bytes": 4}


@pytest.mark.parametrize("site", ["seldon"], indirect=True)
def test_seldon_s_client_gets_what_the_microservice_says(site: Site) -> None:
    """Its requests are web forms."""
    steps = [
        {"data": [[1.0, 2.0, 3.0]], "payload_type": "ndarray"},
        {"data": [[1.0, 2.0, 3.0]], "payload_type": "tensor"},
        {"str_data": "hello"},
        {"data": [[-1.0]], "payload_type": "ndarray"},
    ]
    direct, through = (run_client("seldon", "seldon_client", url, steps) for url in (site.own, site.form))
    assert through == direct
    assert isinstance(direct, list)
    assert [each["success"] for each in direct] == [True, True, True, False]
