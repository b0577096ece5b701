"""A tensor client in front of a tensor backend (V2 to V2)."""

import numpy as np
import pytest

from gateway.bridge.settings import Renames, Renaming, RouteSettings
from gateway.core.datatypes import Datatype
from gateway.core.errors import DecodeError, GatewayError, Reason, Status
from gateway.core.frozen import field_names, replace
from gateway.core.messages import Headers, Message
from gateway.core.operations import Operation
from gateway.core.requests import Request, RequestedOutput, Response
from gateway.core.tensors import Tensor
from tests.bridge.fakes import COUNTERS, TENSORS, Backend, bridge, call, describe, infer, named, signature, spec
from tests.bridge.values import FP32, INT32, INT64, shown

GRADIENT = Operation.GRADIENT

MODEL = signature(spec("x", -1, 2, datatype=FP32), gives=(spec("y", -1, 1, datatype=FP32),))


def opaque_request() -> Request:
    """One that has something in every field."""
    return Request(
        Operation.INFER, "m", "2", "id", (named("x", [1, 2], INT64),), (RequestedOutput("y", {"classification": 3}),),
        {"priority": 1}, deadline=12.5, listener="http", protocol="tensors", headers=Headers([(b"a", b"b")]),
        peer="127.0.0.1:1", origin=Message("POST", "/m"),
    )  # fmt: skip


async def test_where_the_route_says_nothing_the_very_same_tensors_go_both_ways_in_one_call() -> None:
    reply = Response((named("z", [[[1]]], INT32), named("z2", [b"\x00"], Datatype.BYTES)), "whatever", "9", "other")
    backend = Backend({}, lambda _: reply)
    request = replace(opaque_request(), outputs=(RequestedOutput("z"), RequestedOutput("z2")))
    response = await call(bridge(TENSORS, TENSORS, backend), request)
    (asked,) = backend.asked
    for name in field_names(Request):
        assert getattr(asked, name) is getattr(request, name) or name == "translate"
    assert all(got is sent for got, sent in zip(response.outputs, reply.outputs, strict=True))
    assert (response.model, response.version, response.id) == ("m", "2", "id")


async def test_a_wire_with_fewer_datatypes_gets_wider_ones_although_the_route_says_nothing() -> None:
    anything = signature(gives=())
    backend = Backend({"m": anything}, lambda request: Response(request.inputs))
    response = await call(bridge(TENSORS, COUNTERS, backend), infer(named("x", [1.5], FP32), named("n", [7], INT32)))
    assert shown(backend.calls[0].inputs) == [("x", "FP64", [1.5]), ("n", "INT64", [7])]
    assert shown(response.outputs) == [("x", "FP64", [1.5]), ("n", "INT64", [7])]
    with pytest.raises(DecodeError, match="'x' is BYTES, which counters cannot carry"):
        await call(bridge(TENSORS, COUNTERS, backend), infer(named("x", [b"a"], Datatype.BYTES)))


async def test_a_client_with_fewer_datatypes_gets_wider_ones_although_the_route_says_nothing() -> None:
    backend = Backend({"m": signature(gives=())}, lambda _: Response((named("y", [1.5], FP32),)))
    response = await call(bridge(COUNTERS, TENSORS, backend), infer(named("x", [1], INT64)))
    assert shown(response.outputs) == [("y", "FP64", [1.5])]


async def test_a_route_with_a_signature_changes_nothing_but_what_it_must() -> None:
    backend = Backend({}, lambda _: Response((named("y", [[1]], FP32),)))
    settings = RouteSettings(
        model="other", version="3", takes_one_version=True, signature=MODEL, cast="round", nan="literal"
    )
    request = opaque_request()
    await call(bridge(TENSORS, TENSORS, backend, settings), request)
    (asked,) = backend.asked
    changed = {"model": "other", "version": "3", "translate": settings, "inputs": asked.inputs}
    for name in field_names(Request):
        assert getattr(asked, name) == changed.get(name, getattr(request, name))
    assert shown(asked.inputs) == [("x", "FP32", [[1.0, 2.0]])]


async def test_the_version_is_the_backends_where_the_client_gave_none() -> None:
    backend = Backend({}, lambda _: Response((), "other", "9"))
    response = await call(bridge(TENSORS, TENSORS, backend, RouteSettings(model="other")), infer())
    assert (backend.asked[0].model, response.model, response.version) == ("other", "m", "9")


async def test_a_version_that_cannot_be_is_not_found() -> None:
    with pytest.raises(GatewayError, match=r"model 'm' has no version 'latest': backend 'lab' \(tensors\)") as failed:
        await bridge(TENSORS, TENSORS, Backend({}))(infer(version="latest"))
    assert failed.value.status is Status.NOT_FOUND


async def test_an_operation_that_no_tensor_backend_has_is_unsupported() -> None:
    with pytest.raises(GatewayError, match="stream is not supported by backend 'lab'"):
        await bridge(TENSORS, TENSORS, Backend({}))(Request(Operation.STREAM, "m"))


async def test_metadata_passes_as_it_is_under_the_clients_name() -> None:
    backend = Backend({"other": MODEL})
    made = bridge(TENSORS, TENSORS, backend, RouteSettings(model="other"))
    described = await describe(made)
    assert (described.name, described.inputs, described.outputs) == ("m", MODEL.inputs, MODEL.outputs)
    backend.signatures["other"] = signature(gives=())
    assert (await describe(made)).inputs == ()


# With a signature


@pytest.mark.parametrize(("sent", "goes"), [([1.0, 2.0], [[1.0, 2.0]]), ([[1.0, 2.0]], [[1.0, 2.0]])])
async def test_a_lone_row_comes_back_alone(sent: list[float], goes: list[list[float]]) -> None:
    backend = Backend({}, lambda _: Response((named("y", [[5]], FP32),)))
    declared = bridge(TENSORS, TENSORS, backend, RouteSettings(signature=MODEL))
    response = await call(declared, infer(named("x", sent, FP32)))
    assert shown(backend.asked[0].inputs) == [("x", "FP32", goes)]
    assert response.outputs[0].array.tolist() == ([5.0] if sent == [1.0, 2.0] else [[5.0]])


async def test_an_input_without_a_batch_may_have_an_output_of_any_length() -> None:
    own = signature(spec("image", 2, 2), gives=(spec("boxes", -1, 4),))
    boxes = named("boxes", np.zeros((17, 4)))
    backend = Backend({}, lambda _: Response((boxes,)))
    settings = RouteSettings(signature=own)
    response = await call(bridge(TENSORS, TENSORS, backend, settings), infer(named("image", [[1, 2], [3, 4]])))
    assert response.outputs[0].shape == (17, 4)


async def test_a_batch_without_rows_goes_as_it_is() -> None:
    backend = Backend({}, lambda _: Response((named("y", np.zeros((0, 1)), FP32),)))
    settings = RouteSettings(signature=MODEL)
    response = await call(bridge(TENSORS, TENSORS, backend, settings), infer(named("x", np.zeros((0, 2)), FP32)))
    assert response.outputs[0].shape == (0, 1)


async def test_a_datatype_is_widened_or_refused_by_name() -> None:
    backend = Backend({}, lambda _: Response((named("y", [[5]], Datatype.FP16),)))
    made = bridge(TENSORS, TENSORS, backend, RouteSettings(signature=MODEL))
    response = await call(made, infer(named("x", [[1, 2]], Datatype.INT16)))
    assert shown(backend.asked[0].inputs) == [("x", "FP32", [[1.0, 2.0]])]
    assert shown(response.outputs) == [("y", "FP32", [[5.0]])]
    with pytest.raises(DecodeError, match="input 'x' is INT32, expected FP32, which cannot represent every INT32; se"):
        await made(infer(named("x", [[1, 2]], INT32)))


@pytest.mark.parametrize(
    ("output", "text"),
    [
        (named("y", [[5]]), "output 'y' is FP64, expected FP32, which cannot represent every FP64; send FP32"),
        (named("y", [5], FP32), "output 'y' has shape [1], expected [-1, 1]"),
        (named("y", [[5, 6]], FP32), "output 'y' has shape [1, 2], expected [-1, 1]"),
        (named("y", [[5], [6]], FP32), "output 'y' has 2 rows for the 1 that were sent"),
        (named("q", [[5]], FP32), "unknown output 'q'; the model gives 'y'"),
    ],
)
async def test_outputs_that_are_not_as_declared_are_the_backends_fault(output: Tensor, text: str) -> None:
    backend = Backend({}, lambda _: Response((output,)))
    with pytest.raises(GatewayError) as failed:
        await bridge(TENSORS, TENSORS, backend, RouteSettings(signature=MODEL))(infer(named("x", [[1, 2]], FP32)))
    assert failed.value.reason is Reason.INVALID_OUTPUT
    assert failed.value.message.startswith(f"backend 'lab': {text}")


async def test_an_answer_without_what_was_asked_for_is_the_backends_fault() -> None:
    own = signature(spec("x", 1), gives=(spec("a", 1), spec("b", 1)))
    backend = Backend({}, lambda _: Response((named("a", [1]),)))
    made = bridge(TENSORS, TENSORS, backend, RouteSettings(signature=own))
    with pytest.raises(GatewayError, match="backend 'lab': output 'b' is missing; the reply has 'a'"):
        await made(infer(named("x", [1]), outputs=(RequestedOutput("b"),)))
    assert [each.name for each in backend.asked[-1].outputs] == ["b"]


# What else a route says

NAMED = RouteSettings(
    rename=Renames(
        inputs=(Renaming("a", "INPUT__0"),), outputs=(Renaming("out", "OUTPUT__0"), Renaming("more", "OUTPUT__1"))
    ),
    drop=("note",),
    constants=(named("k", [[1, 2]], INT64),),
    select=("more",),
    order=("k", "INPUT__0"),
)


@pytest.mark.parametrize(
    ("known", "order"),
    [
        (signature(gives=()), ["k", "INPUT__0"]),
        (
            signature(
                spec("INPUT__0", -1, 2), spec("k", -1, 2, datatype=INT64),
                gives=(spec("OUTPUT__0", -1), spec("OUTPUT__1", -1, 1)),
            ),
            ["INPUT__0", "k"],
        ),
    ],
)  # fmt: skip
async def test_rename_drop_constants_order_and_select(known: object, order: list[str]) -> None:
    backend = Backend({"m": known}, lambda _: Response((named("OUTPUT__1", [[5]]),)))  # type: ignore[dict-item]
    made = bridge(TENSORS, TENSORS, backend, NAMED)
    sent = (named("note", [b"hi"], Datatype.BYTES), named("a", [[1, 2]]))
    response = await call(made, infer(*sent))
    (asked,) = backend.calls
    assert [each.name for each in asked.inputs] == order
    assert [each.name for each in asked.outputs] == ["OUTPUT__1"]
    assert shown(response.outputs) == [("more", "FP64", [[5.0]])]
    await call(made, infer(*sent, outputs=(RequestedOutput("more", {"classification": 2}),)))
    assert backend.calls[1].outputs == (RequestedOutput("OUTPUT__1", {"classification": 2}),)


async def test_a_constant_holds_for_every_row() -> None:
    own = signature(spec("x", -1, 1), spec("k", -1, 2), spec("c", 1), gives=())
    settings = RouteSettings(signature=own, constants=(named("k", [1, 2]), named("c", [3])))
    backend = Backend({"m": own}, lambda _: Response())
    await call(bridge(TENSORS, TENSORS, backend, settings), infer(named("x", [[1], [2], [3]])))
    assert shown(backend.calls[0].inputs)[1:] == [("k", "FP64", [[1, 2]] * 3), ("c", "FP64", [3.0])]


async def test_a_client_cannot_give_a_constant() -> None:
    settings = RouteSettings(signature=MODEL, constants=(named("x", [1, 2], FP32),))
    with pytest.raises(DecodeError, match="unknown input 'x'; the model takes none"):
        await bridge(TENSORS, TENSORS, Backend({}), settings)(infer(named("x", [[1, 2]], FP32)))


async def test_metadata_is_overridden_where_the_route_says_something() -> None:
    backend = Backend({"m": signature(spec("x", -1, -1), gives=(spec("y", -1, 1),))})
    settings = RouteSettings(signature=signature(spec("x", -1, 3), gives=()))
    described = await describe(bridge(TENSORS, TENSORS, backend, settings))
    assert (described.inputs, described.outputs) == ((spec("x", -1, 3),), (spec("y", -1, 1),))


# Companions


async def test_a_companion_passes_as_it_is() -> None:
    reply = named("output", [[1.0]])
    backend = Backend({"other.gradient": MODEL}, lambda _: Response((reply,)))
    made = bridge(TENSORS, TENSORS, backend, RouteSettings(model="other")).companion(GRADIENT)
    sent = named("anything", [1])
    response = await call(made, infer(sent, model="m.gradient"))
    assert (backend.calls[0].operation, backend.calls[0].model) == (Operation.INFER, "other.gradient")
    assert backend.calls[0].inputs == (sent,)
    assert (response.model, response.outputs) == ("m.gradient", (reply,))
    assert (await describe(made, "m.gradient")).name == "m.gradient"
    assert await made(Request(Operation.MODEL_READY, "m.gradient")) is True
    assert [each.model for each in backend.asked] == ["other.gradient"] * 3


async def test_a_companion_of_a_renamed_model_has_the_clients_names() -> None:
    companion = signature(spec("INPUT__0", -1, 2), spec("sens", -1, 1), gives=(spec("output", -1, 2),))
    backend = Backend({"m.gradient": companion}, lambda _: Response((named("output", [[1, 2]]),)))
    settings = RouteSettings(rename=Renames(inputs=(Renaming("a", "INPUT__0"),)), select=("y",))
    made = bridge(TENSORS, TENSORS, backend, settings).companion(GRADIENT)
    described = await describe(made, "m.gradient")
    assert ([each.name for each in described.inputs], described.outputs) == (["a", "sens"], companion.outputs)
    response = await call(made, infer(named("a", [1, 2]), named("sens", [1]), model="m.gradient"))
    assert [each.name for each in backend.calls[0].inputs] == ["INPUT__0", "sens"]
    assert shown(response.outputs) == [("output", "FP64", [1.0, 2.0])]


@pytest.mark.parametrize("index", [False, True])
async def test_rows_without_a_byte_do_not_make_inputs_of_gigabytes(index: bool) -> None:
    """`[4294967296, 0]` is a tensor of no bytes, and 32 GiB of what is the same in every row."""
    name = "in_wrt" if index else "k"
    own = signature(spec("x", -1, -1), spec(name, -1, 1, datatype=INT64), gives=())
    settings = RouteSettings(signature=own, constants=() if index else (named("k", [7], INT64),))
    sent = infer(Tensor("x", Datatype.FP64, (2**32, 0), b""))
    text = rf"{name}' for each of {2**32} rows takes {2**35} bytes; limits.message"
    with pytest.raises(GatewayError, match=text) as no:
        await bridge(TENSORS, TENSORS, Backend({"m": replace(own, outputs=(spec("y", 1),))}), settings)(sent)
    assert no.value.reason is Reason.TOO_LARGE


async def test_long_names_are_not_compared_with_those_that_there_are() -> None:
    name = "x" * 257
    backend = Backend({"m": signature(spec(name, -1, 1), gives=())})
    settings = RouteSettings(cast="round")
    with pytest.raises(DecodeError, match=r"unknown input 'x+y'; the model takes 'x+' FP64"):
        await bridge(TENSORS, TENSORS, backend, settings)(infer(named(f"{name}y", [[1.0]])))


async def test_a_client_of_named_tensors_that_knows_derivatives_is_told_of_companions() -> None:
    backend = Backend({"m": MODEL, "m.gradient": MODEL})
    assert (await describe(bridge(COUNTERS, TENSORS, backend))).operations == {Operation.INFER, GRADIENT}
    assert (await describe(bridge(TENSORS, TENSORS, backend))).operations == {Operation.INFER}


@pytest.mark.parametrize("told", [(), ("1", "2")])
@pytest.mark.parametrize("settings", [RouteSettings(version="1"), RouteSettings(version="1", signature=MODEL)])
async def test_a_route_that_sets_the_version_has_no_other(told: tuple[str, ...], settings: RouteSettings) -> None:
    backend = Backend({"m": replace(MODEL, versions=told)})
    assert (await describe(bridge(TENSORS, TENSORS, backend, settings))).versions == ("1",)
    assert (await describe(bridge(TENSORS, TENSORS, backend, RouteSettings(version="")))).versions == told
