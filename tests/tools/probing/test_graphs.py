"""`gateway check --live` asks whether the models of steps fit together."""

import asyncio
import socket
from pathlib import Path

import pytest

from gateway.assembly.reference import serve_reference
from gateway.assembly.registry import protocols
from gateway.cli.options import catalog
from gateway.config import reference_config
from gateway.core.tasks import spawn
from gateway.tools.probing.asking import ServerAccess
from gateway.tools.probing.live import ERROR, OK, WARNING, Live, check_live
from tests.running_gateway import config_of, reference
from tests.skipping_loop import skip
from tests.tls.certificates import Authority

TEXT = """listeners: [{{name: a, bind: "127.0.0.1:8080", protocols: [v2-rest]}}]
backends: {{b: {{protocol: {protocol}, endpoints: ['{bound}']}}}}
routes: [{{match: {{}}, backend: b}}]
models:
  posterior:
    inputs: {{theta: "FP64 [-1, 2]"}}
    steps:
      forward: {{model: heat, inputs: {{{heat}: $theta}}}}
      likelihood: {{model: misfit, inputs: {{observed: [0.1, 0.2], predicted: {predicted}}}}}
    outputs: {{logdensity: $likelihood.log}}
"""


async def live(predicted: str, heat: str = "x", misfit: str = "misfit") -> Live:
    async with reference("v2-grpc", "tests.graph_models:heat", "tests.graph_models:misfit") as bound:
        text = TEXT.format(protocol="v2-grpc", bound=bound, predicted=predicted, heat=heat)
        text = text.replace("model: misfit", f"model: {misfit}")
        return await check_live(config_of(text), protocols(), 10)


async def test_a_graph_that_fits() -> None:
    found = await live("$forward.temperature")
    assert (found.errors, found.warnings) == ((), ())
    assert [(each.route, each.result) for each in found.rows] == [("any", OK), ("models.posterior", OK)]


@pytest.mark.parametrize(
    ("predicted", "heat", "location", "text"),
    [
        (
            "{slice: $forward, axis: 1, to: 1}", "x", ("steps", "likelihood", "inputs", "predicted"),
            "step 'likelihood': slice($forward; axis 1, to 1) is FP64 [-1, 1], and the input is predicted FP64[-1,2]",
        ),
        (
            "$forward.heat", "x", ("steps", "likelihood", "inputs", "predicted"),
            "step 'likelihood': model 'heat' of step 'forward' has no output 'heat'; expected temperature",
        ),
        (
            "$forward", "z", ("steps", "forward", "inputs", "z"),
            "step 'forward': model 'heat' has no input 'z'; expected x",
        ),
    ],
)  # fmt: skip
async def test_a_mismatch_has_the_place_of_its_tensor(
    predicted: str, heat: str, location: tuple[str, ...], text: str
) -> None:
    found = await live(predicted, heat)
    assert [(each.location, each.message) for each in found.errors] == [(("models", "posterior", *location), text)]
    assert found.rows[-1].result == ERROR
    assert found.rows[-1].text == text


async def test_a_model_that_the_server_does_not_have() -> None:
    found = await live("$forward", misfit="mosfit")
    [error] = found.errors
    assert error.location == ("models", "posterior")
    assert "step 'likelihood' (model 'mosfit'): " in error.message


async def test_a_model_without_metadata_is_a_warning() -> None:
    async with reference("graphpipe", "tests.graph_models:heat") as bound:
        text = TEXT.format(protocol="graphpipe", bound=bound, predicted="$forward", heat="x")
        text = text.replace("      likelihood:", "      #").replace("$likelihood.log", "$forward.temperature")
        found = await check_live(config_of(text), protocols(), 10)
    assert found.errors == ()
    [warning] = found.warnings
    assert warning.location == ("models", "posterior", "outputs", "logdensity")
    assert warning.message.startswith("tensors unknown for model 'heat' of step 'forward'")
    assert found.rows[-1].result == WARNING


async def test_a_server_that_does_not_answer_about_its_models_is_told() -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        text = TEXT.format(
            protocol="v2-grpc", bound=f"127.0.0.1:{silent.getsockname()[1]}", predicted="$forward", heat="x"
        )
        checking = spawn(check_live(config_of(text), protocols(), 1))
        while not checking.done():
            await skip(6)
        found = await checking
    told = "no answer about the models of its steps within 5 s; raise --timeout for slow servers"
    assert (("models", "posterior"), told) in [(each.location, each.message) for each in found.errors]


async def test_models_behind_tls_and_a_key_are_asked_as_the_gateway_asks(tmp_path: Path) -> None:
    files = Authority().issue(tmp_path, "localhost", "127.0.0.1")
    tls = {"certificate": str(files.certificate), "key": str(files.key)}
    models = ["tests.graph_models:heat", "tests.graph_models:misfit"]
    config = reference_config("v2-grpc", "127.0.0.1:0", models, catalog(), tls)
    listener = await serve_reference(config, asyncio.get_running_loop().time)
    try:
        bound = f"grpcs://localhost:{str(listener.address).rpartition(':')[2]}"
        text = TEXT.format(protocol="v2-grpc", bound=bound, predicted="$forward.temperature", heat="x")
        text = text.replace("endpoints:", f"tls: {{ca: '{files.ca}'}}, endpoints:")
        found = await check_live(config_of(text), protocols(), 10, ServerAccess(key="secret"))
    finally:
        await listener.drain(0)
    assert ([each.result for each in found.rows], found.errors) == ([OK, OK], ())
