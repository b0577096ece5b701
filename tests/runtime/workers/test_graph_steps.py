"""The steps of graphs are counted in the workers that take them, and shown together."""

from pathlib import Path

import pytest

from tests.interop.processes import free_port
from tests.runtime.workers.served import serving
from tests.runtime.workers.test_caches import MANY, counted, infer

pytestmark = pytest.mark.long

CONFIG = """
workers: 2
listeners: [{name: http, bind: "127.0.0.1:0", protocols: [v2-rest]}]
health: {bind: "127.0.0.1:0"}
reference: [{protocol: v2-rest, bind: "127.0.0.1:PORT", models: [identity]}]
backends: {lab: {protocol: v2-rest, flavor: plain, endpoints: ["127.0.0.1:PORT"]}}
routes: [{match: {model: identity}, backend: lab}]
models:
  m:
    inputs: {x: "INT32 [-1]"}
    steps:
      one: {model: identity, inputs: {x: $x}}
      other: {model: identity, inputs: {x: $x}}
    outputs: {y: {sum: [$one, $other]}}
"""


async def test_the_steps_of_all_workers_are_counted_together(tmp_path: Path) -> None:
    text = CONFIG.replace("PORT", str(free_port()))
    async with serving(text, tmp_path) as gateway:
        assert [await infer(gateway, at) for at in range(MANY)] == [200] * MANY
        for step in ("one", "other"):
            assert await counted(gateway, f'gateway_graph_step_calls_total{{graph="m",step="{step}"}}') == MANY
            assert await counted(gateway, f'gateway_graph_step_errors_total{{graph="m",step="{step}"}}') == 0
            assert await counted(gateway, f'gateway_graph_step_seconds_total{{graph="m",step="{step}"}}') > 0
