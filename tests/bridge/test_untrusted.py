"""A protocol whose tensors may come without names, that lacks some datatypes, and whose servers' metadata is not to be
trusted (GraphPipe): in front of tensors, behind them, and on both sides."""

import numpy as np
import pytest

from gateway.bridge.settings import Renames, Renaming, RouteSettings
from gateway.core.datatypes import Datatype
from gateway.core.errors import (
    DecodeError,
    GatewayError,
    Reason,
    Status,
    invalid_output,
    not_found,
    refusal,
    unsupported,
)
from gateway.core.frozen import replace
from gateway.core.models import ModelEntry, Signature
from gateway.core.operations import Operation
from gateway.core.protocol import Models, Protocol, Traits, Wire
from gateway.core.requests import Answer, Request, RequestedOutput, Response
from tests.bridge.fakes import POINTS, TENSORS, Backend, bridge, call, describe, infer, named, signature, spec
from tests.bridge.traits import adapted
from tests.bridge.values import FP32

TRAITS = Traits(
    wire=Wire(datatypes=frozenset(Datatype) - {Datatype.BOOL, Datatype.BF16}, unnamed=True),
    models=Models(named=False, trusted_metadata=False, platform="unnamed"),
)
UNNAMED = replace(TENSORS, name="unnamed", traits=TRAITS)
TOLD = signature(spec("x", 1, datatype=FP32), gives=(spec("y", 1, datatype=FP32),))
METADATA = Request(Operation.METADATA, "m")


async def test_inputs_without_names_stay_so_for_a_backend_that_nothing_is_known_of() -> None:
    backend = Backend({"m": TOLD}, lambda _: Response((named("", [1]), named("", [2]))))
    response = await call(bridge(UNNAMED, UNNAMED, backend), infer(named("", [1]), named("", [2])))
    assert backend.questions == []
    assert [tensor.name for tensor in backend.calls[0].inputs] == ["", ""]
    assert [tensor.name for tensor in response.outputs] == ["", ""]


@pytest.mark.parametrize(
    ("client", "settings", "name"),
    [
        (TENSORS, RouteSettings(), "output0"),
        (UNNAMED, RouteSettings(rename=Renames(outputs=(Renaming("y", "output0"),))), "y"),
        (UNNAMED, RouteSettings(select=("output0",)), "output0"),
    ],
)
async def test_outputs_without_names_get_one_where_it_is_needed(
    client: Protocol, settings: RouteSettings, name: str
) -> None:
    backend = Backend({}, lambda _: Response((named("", [1]),)))
    response = await call(bridge(client, UNNAMED, backend, settings), infer(named("x", [1])))
    assert [tensor.name for tensor in response.outputs] == [name]


async def test_a_backend_that_takes_unnamed_inputs_gets_the_names_of_the_routes_order() -> None:
    backend = Backend({})
    ordered = bridge(UNNAMED, UNNAMED, backend, RouteSettings(order=("a", "b")))
    await call(ordered, infer(named("", [1]), named("", [2])))
    assert [tensor.name for tensor in backend.calls[0].inputs] == ["a", "b"]


async def test_inputs_without_names_take_those_of_a_backends_metadata() -> None:
    backend = Backend({"m": TOLD}, lambda _: Response((named("y", [3], FP32),)))
    response = await call(bridge(UNNAMED, TENSORS, backend), infer(named("", [1], FP32)))
    assert [tensor.name for tensor in backend.calls[0].inputs] == ["x"]
    assert [tensor.name for tensor in response.outputs] == ["y"]


async def test_requested_outputs_take_their_names_by_position() -> None:
    backend = Backend({}, lambda _: Response((named("", [1]), named("", [2]))))
    request = infer(named("x", [1]), outputs=(RequestedOutput("b"), RequestedOutput("a")))
    response = await call(bridge(TENSORS, UNNAMED, backend), request)
    assert [(tensor.name, tensor.array.tolist()) for tensor in response.outputs] == [("b", [1]), ("a", [2])]


async def test_metadata_that_cannot_be_trusted_is_for_those_whose_own_cannot() -> None:
    backend = Backend({"m": TOLD})
    assert await bridge(TENSORS, UNNAMED, backend)(METADATA) == Signature(name="m", platform="unnamed")
    assert await bridge(UNNAMED, UNNAMED, backend)(METADATA) == replace(TOLD, name="m", platform="unnamed")
    declared = RouteSettings(signature=signature(spec("a", 2), gives=(spec("b", 2),)))
    assert (await describe(bridge(UNNAMED, UNNAMED, backend, declared))).inputs == (spec("a", 2),)


async def test_sizes_that_nobody_tells_are_asked_of_the_route() -> None:
    with pytest.raises(GatewayError, match="reports no inputs for model 'm'; declare them by"):
        await bridge(POINTS, UNNAMED, Backend({"m": TOLD}))(replace(METADATA, part="inputs"))


async def test_a_model_that_the_backend_does_not_have_is_not_described() -> None:
    for part in ("", "ModelInfo", "InputSizes"):
        for client in (TENSORS, POINTS, UNNAMED):
            with pytest.raises(GatewayError, match="unknown model m") as refused:
                await bridge(client, UNNAMED, Backend({}))(replace(METADATA, part=part))
            assert refused.value.status is Status.NOT_FOUND


@pytest.mark.parametrize("told", [unsupported("no metadata here"), invalid_output("no metadata")])
async def test_a_server_that_tells_nothing_of_its_models_may_have_them(told: GatewayError) -> None:
    backend = Backend({"m": told})
    assert await bridge(TENSORS, UNNAMED, backend)(METADATA) == Signature(name="m", platform="unnamed")


READY = Request(Operation.MODEL_READY, "m")
AS_A_WHOLE = adapted(UNNAMED, models={"ready_as_a_whole": True, "versions": str.isdigit})


async def test_where_servers_are_ready_as_a_whole_a_model_is_ready_if_it_is_there() -> None:
    assert await bridge(TENSORS, AS_A_WHOLE, Backend({"m": TOLD}))(READY) is True
    with pytest.raises(GatewayError, match="unknown model m") as refused:
        await bridge(TENSORS, AS_A_WHOLE, Backend({}))(READY)
    assert refused.value.status is Status.NOT_FOUND


TELLS_UNKNOWN = adapted(TENSORS, models={"unknown_are_not_found": True})


async def test_clients_that_tell_unknown_models_from_those_that_are_not_ready_are_told() -> None:
    """A V1 server answers the readiness of an unknown model with 404; an UM-Bridge server lists the models it has."""
    known, unknown = Backend({"m": TOLD}), Backend({})
    known.ready = unknown.ready = False
    for client in (TENSORS, TELLS_UNKNOWN):
        assert await bridge(client, UNNAMED, known)(READY) is False
    assert await bridge(TENSORS, UNNAMED, unknown)(READY) is False
    with pytest.raises(GatewayError, match="unknown model m") as refused:
        await bridge(TELLS_UNKNOWN, UNNAMED, unknown)(READY)
    assert refused.value.status is Status.NOT_FOUND
    silent = Backend({"m": unsupported("no metadata here")})
    silent.ready = False
    assert await bridge(TELLS_UNKNOWN, UNNAMED, silent)(READY) is False
    silent = Backend({"m": refusal(Reason.NOT_READY, "starting")})
    silent.ready = False
    assert await bridge(TELLS_UNKNOWN, TENSORS, silent)(READY) is False


@pytest.mark.parametrize(("version", "ready"), [("", True), ("1", True), ("2", True), ("3", False)])
async def test_versions_count_and_a_list_of_models_is_as_good_as_their_metadata(version: str, ready: bool) -> None:
    """grps' C++ server tells of its first model only, but lists all."""

    async def backend(request: Request) -> Answer:
        if request.operation is Operation.MODELS:
            return (ModelEntry("m", "1"), ModelEntry("m", "2"), ModelEntry("n", "1"))
        if request.operation is Operation.METADATA:
            if request.model == "n":
                raise not_found("Not Found")
            return Signature(versions=("1",))
        return True

    for model in ("m", "n"):
        through = bridge(TENSORS, AS_A_WHOLE, backend)
        asked = replace(READY, model=model, version=version)
        if ready and (model, version) != ("n", "2"):
            assert await through(asked) is True
        else:
            with pytest.raises(GatewayError) as refused:
                await through(asked)
            assert refused.value.status is Status.NOT_FOUND


async def test_no_derivatives_are_claimed_that_only_untrusted_metadata_could_tell() -> None:
    named_by_route = RouteSettings(operations={Operation.GRADIENT: "m_gradient"})
    for settings, derivatives in ((RouteSettings(), set()), (named_by_route, {Operation.GRADIENT})):
        told = await describe(bridge(POINTS, UNNAMED, Backend({"m": TOLD}), settings), part="ModelInfo")
        assert told.operations == {Operation.INFER} | derivatives


async def test_a_server_that_no_request_names_a_model_to_has_no_companions() -> None:
    alone = adapted(UNNAMED, models={"companions": False})
    backend = Backend({"m": TOLD})
    settings = RouteSettings(signature=TOLD, operations={Operation.GRADIENT: "m_gradient"})
    gradient = bridge(TENSORS, alone, backend, settings).companion(Operation.GRADIENT)
    refused = "not supported by model 'm': its server has one model and no derivative models"
    with pytest.raises(GatewayError, match=refused):
        await gradient(infer(named("x", [1]), named("sens", [1]), model="m.gradient"))
    assert await gradient(Request(Operation.MODEL_READY, "m.gradient")) is False
    assert (await describe(bridge(POINTS, alone, backend, settings), part="ModelInfo")).operations == {Operation.INFER}
    assert backend.calls == []


@pytest.mark.parametrize("client", [TENSORS, UNNAMED], ids=["named", "unnamed"])
async def test_that_a_server_answers_for_any_name_is_no_evidence_of_a_companion(client: Protocol) -> None:
    """graphpipe-go's ServeRaw answers at any path, with the values of its only model."""
    backend = Backend({"m": replace(TOLD, name="only"), "m.gradient": replace(TOLD, name="only")})
    gradient = bridge(client, UNNAMED, backend).companion(Operation.GRADIENT)
    with pytest.raises(GatewayError, match=r"backend 'lab' does not list model 'm\.gradient'") as refused:
        await gradient(infer(named("x", [1]), named("sens", [1]), model="m.gradient"))
    assert refused.value.status is Status.UNIMPLEMENTED
    with pytest.raises(GatewayError, match="gradient is not supported by model 'm'"):
        await gradient(replace(METADATA, model="m.gradient"))
    assert await gradient(Request(Operation.MODEL_READY, "m.gradient")) is False
    assert backend.calls == []


async def test_an_outage_is_no_answer_about_a_companion() -> None:
    backend = Backend({"m": TOLD, "m.gradient": refusal(Reason.NOT_READY, "starting")})
    with pytest.raises(GatewayError, match=r"^starting$"):
        await bridge(UNNAMED, UNNAMED, backend).companion(Operation.GRADIENT)(
            infer(named("x", [1]), named("sens", [1]), model="m.gradient")
        )
    assert backend.calls == []


@pytest.mark.parametrize("settings", [RouteSettings(), RouteSettings(operations={Operation.GRADIENT: "slope"})])
async def test_a_companion_that_the_server_or_the_route_names_is_called(settings: RouteSettings) -> None:
    backend = Backend({"m": TOLD, "m.gradient": replace(TOLD, name="m.gradient")})
    gradient = bridge(UNNAMED, UNNAMED, backend, settings).companion(Operation.GRADIENT)
    await gradient(infer(named("x", [1]), named("sens", [1]), model="m.gradient"))
    await gradient(infer(named("x", [1]), named("sens", [1]), model="m.gradient"))
    assert [call.model for call in backend.calls] == [settings.operations.get(Operation.GRADIENT, "m.gradient")] * 2
    assert backend.questions == ([] if settings.operations else ["m.gradient"])


async def test_uint8_is_bool_again_where_the_clients_wire_has_none() -> None:
    wanted = signature(spec("x", 2, datatype=Datatype.BOOL), gives=(spec("y", 2, datatype=Datatype.BOOL),))
    backend = Backend({"m": wanted}, lambda request: Response((replace(request.inputs[0], name="y"),)))
    response = await call(bridge(UNNAMED, TENSORS, backend), infer(named("", np.array([0, 1]), Datatype.UINT8)))
    assert backend.calls[0].inputs[0].array.tolist() == [False, True]
    assert (response.outputs[0].datatype, bytes(response.outputs[0].data)) == (Datatype.UINT8, b"\0\1")
    with pytest.raises(DecodeError, match="input 'x': element 1 is 7, expected 0 or 1 for BOOL"):
        await call(bridge(UNNAMED, TENSORS, backend), infer(named("", np.array([0, 7]), Datatype.UINT8)))
    declared = bridge(TENSORS, TENSORS, backend, RouteSettings(signature=wanted))
    with pytest.raises(DecodeError, match="input 'x' is UINT8, expected BOOL"):
        await call(declared, infer(named("x", [0, 1], Datatype.UINT8)))
