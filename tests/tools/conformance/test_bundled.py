"""The gateway's own servers pass every check of their protocol, and so does a gateway in front of another protocol."""

import asyncio
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from gateway.tools.conformance import MODULES, suite
from gateway.tools.conformance.check import Options, Outcome, Transcript, Unreachable, Verdict, run
from gateway.tools.conformance.grps import DTYPES
from gateway.tools.conformance.inputs import DATATYPES, parse_input
from tests.limits import GENEROUS
from tests.running_gateway import reference, running_gateway

FINE = (Verdict.PASS, Verdict.NOT_APPLICABLE)
MOST = 100
"""Of the requests that the checks of one protocol send, as docs/conformance.md says."""
NONE = {
    "graphpipe": {"BOOL"},
    "v2-rest": {"FP16"},  # not in JSON
    "grps": {"BOOL", "UINT16", "UINT32", "UINT64"},
}
"""The datatypes that a protocol does not have."""


async def checked(protocol: str, address: str, options: Options) -> tuple[list[Outcome], int]:
    """The outcomes of all checks, and how many requests they sent."""
    transcript, chosen = Transcript(), suite(protocol)
    outcomes = await asyncio.to_thread(lambda: list(run(chosen, address, options, chosen.checks, transcript)))
    return outcomes, transcript.requests


async def of_reference(protocol: str, model: str, options: Options) -> tuple[list[Outcome], int]:
    """The checks of a reference server."""
    async with reference(protocol, model) as address:
        return await checked(protocol, address, options)


def unusual(outcomes: Sequence[Outcome]) -> list[Any]:
    return [(each.id, each.verdict, each.reason) for each in outcomes if each.verdict not in FINE]


GIVEN = {
    "posterior": ["theta=FP64[2]"],
    "double": ["x=FP64[3]"],
    "add_sub": ["INPUT0=INT32[]", "INPUT1=INT32[]"],
    "upper": ["text=BYTES[]"],
    "classify": ["scores=FP32[3]"],
}
"""The inputs of one example, for MIP, which tells no signature."""
UNLISTED = ("tfs-grpc",)
"""The protocols whose servers do not list their models."""
VECTORS = ("posterior", "double")
"""The models that UM-Bridge can have: their inputs and outputs are vectors of FP64."""


def options(protocol: str, model: str) -> Options:
    named = model if protocol in UNLISTED else ""
    return Options(named, tuple(map(parse_input, GIVEN[model] if protocol == "mip" else ())))


@pytest.mark.parametrize(
    ("protocol", "model"),
    [(protocol, model) for protocol in MODULES for model in GIVEN if protocol != "umbridge" or model in VECTORS],
)
async def test_a_reference_server_passes(protocol: str, model: str) -> None:
    outcomes, requests = await of_reference(protocol, model, options(protocol, model))
    assert unusual(outcomes) == []
    assert requests <= MOST
    assert sum(each.verdict == Verdict.PASS for each in outcomes) >= len(outcomes) / 2


@pytest.mark.parametrize("protocol", [name for name in MODULES if name not in ("umbridge", "mip")])
async def test_each_datatype_is_sent(protocol: str) -> None:
    without = NONE.get(protocol, NONE.get(protocol.partition("-")[0], set()))
    datatypes = [each for each in DATATYPES if each not in without]
    inputs = tuple(parse_input(f"{each.lower()}={each}[2]") for each in datatypes)
    named = "identity" if protocol in UNLISTED else ""
    outcomes, _ = await of_reference(protocol, "identity", Options(named, inputs=inputs))
    passed = {each.id.rpartition(".")[2] for each in outcomes if each.verdict == Verdict.PASS}
    names = {**dict(zip(DATATYPES, DATATYPES, strict=True)), **(DTYPES if protocol.startswith("grps") else {})}
    assert {names[each] for each in datatypes} <= passed


async def test_fp16_is_sent_as_bytes() -> None:
    outcomes, _ = await of_reference("v2-rest", "identity", Options(inputs=(parse_input("x=FP16[2]"),)))
    found = {each.id: each.verdict for each in outcomes}
    assert found["v2-rest.infer.datatype.FP16"] == Verdict.PASS
    assert found["v2-rest.infer.json"] == Verdict.NOT_TESTED


async def test_a_server_on_a_unix_socket(tmp_path: Path) -> None:
    place = f"unix://{tmp_path}/mip"
    with pytest.raises(Unreachable, match="no such file or directory"):
        await checked("mip", place, options("mip", "double"))
    async with reference("mip", "double", bind=place):
        outcomes, _ = await checked("mip", place, options("mip", "double"))
    assert unusual(outcomes) == []


GATEWAY = """
listeners:
  - {name: http, bind: "127.0.0.1:0", protocols: [umbridge, v1-rest, v2-rest, grps-rest], model: posterior}
  - {name: graphpipe, bind: "127.0.0.1:0", protocols: [graphpipe], model: posterior}
  - {name: grpc, bind: "127.0.0.1:0", protocols: [v2-grpc, grps-grpc, tfs-grpc]}
  - {name: brpc, bind: "tcp://127.0.0.1:0", protocols: [grps-brpc]}
  - {name: mip, bind: "tcp://127.0.0.1:0", protocols: [mip], model: posterior}
backends: {lab: {protocol: BACK, endpoints: [ADDRESS]}}
routes: [{match: {model: posterior}, backend: lab}]
"""
LISTENERS = {"graphpipe": "graphpipe", "mip": "mip", "v2-grpc": "grpc", "grps-grpc": "grpc", "grps-brpc": "brpc"} | {
    "tfs-grpc": "grpc"
}


async def of_two_models(path: str, model: str) -> tuple[list[Outcome], int]:
    """The checks of GraphPipe's server with the models `posterior` and `double`, at a path and for a model."""
    async with reference("graphpipe", "posterior", "double") as address:
        return await checked("graphpipe", f"http://{address}{path}", Options(model, timeout=GENEROUS))


@pytest.mark.parametrize(("path", "model"), [("/graphpipe/double", ""), ("", "double"), ("/", "double")])
async def test_one_of_several_graphpipe_models_is_checked(path: str, model: str) -> None:
    outcomes, _ = await of_two_models(path, model)
    assert unusual(outcomes) == []


async def test_a_graphpipe_url_with_a_path_is_one_models() -> None:
    with pytest.raises(ValueError, match="remove --model"):
        await of_two_models("/graphpipe/double", "posterior")


@pytest.mark.parametrize("back", ["umbridge", "v2-grpc"])
async def test_a_gateway_in_front_of_another_protocol_passes(back: str) -> None:
    text = GATEWAY.replace("BACK", back).replace("ADDRESS", ("http://" if back == "umbridge" else "") + "SERVER")
    found = {}
    async with reference(back, "posterior") as server, running_gateway(text.replace("SERVER", server)) as gateway:
        for protocol in MODULES:
            place = str(gateway.state.listeners[LISTENERS.get(protocol, "http")].address)
            outcomes, _ = await checked(protocol, place, options(protocol, "posterior"))
            found[protocol] = unusual(outcomes)
    assert found == {name: [] for name in MODULES}
