"""The table of models by servers: on the admin port, in the metrics, and printed by `gateway models`."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx
import numpy as np
from typer.testing import CliRunner

from gateway.cli import application
from gateway.cli.commands.models import placement_of, placement_table, rates, tables
from gateway.cli.options import catalog
from gateway.client import AsyncClient
from gateway.config import loads
from gateway.runtime.app import Gateway
from gateway.tools.probing.listing import FoundModel, ServerModels
from tests.running_gateway import reference, running_gateway

CONFIG = """
listeners: [{{name: grpc, bind: "127.0.0.1:0", protocols: [v2-grpc]}}]
health: {{bind: "127.0.0.1:0"}}
admin: {{bind: "127.0.0.1:{port}"}}
backends: {{fleet: {{protocol: v2-grpc, endpoints: {endpoints}, placement: {{}}}}}}
routes: [{{match: {{model: "*"}}, backend: fleet}}]
"""


@asynccontextmanager
async def running() -> AsyncIterator[tuple[Gateway, list[str]]]:
    """A gateway in front of one server with `double`, and one with `double` and `posterior`; and their addresses."""
    async with (
        reference("v2-grpc", "double") as one,
        reference("v2-grpc", "double", "posterior") as other,
        running_gateway(CONFIG.format(port=0, endpoints=json.dumps([one, other]))) as gateway,
    ):
        yield gateway, [one, other]


async def models(file: Path, *arguments: str) -> Any:
    run = CliRunner().invoke
    result = await asyncio.to_thread(run, application, ("models", "--config", str(file), "--json", *arguments))
    assert result.exit_code == 0, result.output
    return json.loads(result.stdout), result.stderr


async def test_the_admin_port_the_metrics_and_the_command_tell_who_holds_what(tmp_path: Path) -> None:
    async with running() as (gateway, addresses):
        async with AsyncClient(f"v2-grpc://{gateway.state.listeners['grpc'].address}") as client:
            for _ in range(3):
                await client.infer("double", inputs={"x": np.array([[1.0]])})
        admin = f"http://{gateway.ports.all['admin'].address}"
        async with httpx.AsyncClient() as web:
            found = (await web.get(f"{admin}/api/placement")).json()["backends"]["fleet"]
            topology = (await web.get(f"{admin}/api/topology")).json()
            page = (await web.get(f"http://{gateway.ports.all['health'].address}/metrics")).text
        file = tmp_path / "gateway.yaml"
        file.write_text(CONFIG.format(port=1, endpoints=json.dumps(addresses)))
        (told,), _ = await models(file, "--admin", admin)
        asked, said = await models(file)
    assert [(each["address"], each["held"], each["has_told"]) for each in found["servers"]] == [
        (addresses[0], 1, True),
        (addresses[1], 2, True),
    ]
    double, posterior = found["models"]
    assert (double["model"], double["copies"], double["calls"], double["in_flight"]) == ("double", 2, 3, 0)
    assert [each["server"] for each in posterior["places"]] == [1]
    assert (found["on_demand"], topology["backends"][0]["placed"]) == (False, True)
    for address, held in zip(addresses, (1, 2), strict=True):
        assert f'gateway_placed_models{{backend="fleet",endpoint="{address}",state="held"}} {held}.0' in page
    calls = {each["model"]: each["calls_per_second"] for each in told["placement"]["models"]}
    assert calls == {"double": 0, "posterior": 0}
    assert [each["address"] for each in asked] == addresses
    assert "no running gateway, so querying the servers" in said


def test_the_table_has_a_row_for_each_model_and_a_column_for_each_server() -> None:
    places = [{"server": 0, "state": "held", "why": ""}, {"server": 1, "state": "failed", "why": "no memory"}]
    placed = {
        "servers": [
            {"address": "a:1", "error": "", "drain": None},
            {"address": "b:1", "error": "refused", "drain": "drained"},
        ],
        "models": [
            {"model": "m", "versions": ["1", "2"], "copies": 1, "calls": 9, "in_flight": 1, "places": places},
            {"model": "n", "versions": [], "copies": 0, "calls": 0, "in_flight": 0, "places": []},
        ],
    }  # fmt: skip
    made = placement_table(placed, {"m": 2.5})
    assert made.head == ("model", "versions", "copies", "calls/s", "in flight", "a:1", "b:1")
    assert made.rows == (
        ("m", "1, 2", "1", "2.5", "1", "held", "failed"),
        ("n", "-", "0", "0.0", "0", "-", "-"),
    )
    assert made.notes == ("m at b:1: no memory", "b:1: refused", "b:1 is drained")


def test_what_servers_say_themselves_is_the_same_table() -> None:
    servers = {
        "a:1": ServerModels(models=(FoundModel("m", ("1",), "READY"), FoundModel("n", ("1",), "UNAVAILABLE"))),
        "b:1": ServerModels(models=(FoundModel("m", ("2",), "READY"),)),
        "c:1": ServerModels(error="it cannot be reached"),
    }
    made = placement_table(placement_of(servers), None)
    assert made.head == ("model", "versions", "copies", "a:1", "b:1", "c:1")
    assert made.rows == (("m", "1, 2", "2", "held", "held", "-"), ("n", "-", "0", "-", "-", "-"))
    assert made.notes == ("c:1: it cannot be reached",)


def test_calls_per_second_are_those_between_two_times() -> None:
    before = {"models": [{"model": "m", "calls": 10}]}
    after = {"models": [{"model": "m", "calls": 15}, {"model": "new", "calls": 4}]}
    assert rates(before, after, 2.0) == {"m": 2.5, "new": 0.0}


def test_other_backends_keep_their_own_table() -> None:
    text = CONFIG.replace("backends: {{", 'backends: {{lab: {{protocol: mip, endpoints: ["tcp://h:1"]}}, ')
    config = loads(text.format(port=1, endpoints='["a:1"]'), "t", catalog())
    found = {
        ("lab", "tcp://h:1"): ServerModels(error="no list"),
        ("fleet", "a:1"): ServerModels(models=(FoundModel("m", ("1",), "READY"),)),
    }
    placed, others = tables(config, {}, found)
    assert placed.splitlines()[0] == "backend fleet:"
    assert placed.splitlines()[2].split() == ["m", "1", "1", "held"]
    assert others.splitlines()[1].split() == ["lab", "tcp://h:1", "-", "-", "-", "no", "list"]


def test_the_table_of_a_running_gateway_has_its_calls_per_second() -> None:
    config = loads(CONFIG.format(port=1, endpoints='["a:1"]'), "t", catalog())
    places = [{"server": 0, "state": "held", "why": ""}]
    model = {"model": "m", "versions": ["1"], "copies": 1, "calls": 9, "in_flight": 1, "places": places}
    placed = {"servers": [{"address": "a:1", "error": "", "drain": None}], "models": [model]}
    (table,) = tables(config, {"fleet": (placed, {"m": 2.5})}, {})
    assert table.splitlines()[2].split() == ["m", "1", "1", "2.5", "1", "held"]


def test_a_gateway_that_is_named_and_not_there_is_an_error(tmp_path: Path) -> None:
    file = tmp_path / "gateway.yaml"
    file.write_text(CONFIG.format(port=1, endpoints='["a:1"]'))
    found = CliRunner().invoke(application, ("models", "--config", str(file), "--admin", "http://127.0.0.1:1"))
    assert (found.exit_code, found.stdout) == (3, "")
    assert "http://127.0.0.1:1" in found.stderr
    assert "querying the servers" not in found.stderr
