"""How a bridge fits a request does not depend on the requests before it."""

import asyncio
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gateway.bridge.bridge import Bridge
from gateway.bridge.fitting import Fitting
from gateway.bridge.settings import Renames, Renaming, RouteSettings
from gateway.bridge.signatures import MOST_DERIVED as MOST_SIGNATURES
from gateway.bridge.signatures import DerivedSignatures
from gateway.core.datatypes import NUMBERS, Datatype
from gateway.core.errors import DecodeError, GatewayError
from gateway.core.frozen import replace
from gateway.core.models import Signature
from gateway.core.protocol import Protocol, Traits, Wire
from gateway.core.requests import Request, RequestedOutput, Response
from gateway.core.tensors import Tensor, tensor
from tests.bridge.fakes import COUNTERS, POINTS, TENSORS, Backend, bridge, infer, signature, spec
from tests.bridge.test_rows import EXAMPLES, SINGLE, WHOLE
from tests.bridge.values import FP32, FP64, INT64
from tests.limits import examples

BOOL, UINT8, BYTES = Datatype.BOOL, Datatype.UINT8, Datatype.BYTES
PROTOCOLS = (TENSORS, POINTS, COUNTERS, EXAMPLES, SINGLE, WHOLE)

MODELS = {
    "one": signature(spec("x", -1, 2), gives=(spec("y", -1, 2),)),
    "row": signature(spec("x", 3), gives=(spec("y", -1),)),
    "two": signature(spec("a", -1, 2), spec("b", -1, 1, datatype=FP32), gives=(spec("y", -1), spec("z", -1, 1))),
    "flags": signature(spec("x", -1, 2, datatype=BOOL), gives=(spec("y", -1, 2, datatype=UINT8),)),
    "words": signature(spec("x", -1, datatype=BYTES), gives=(spec("y", -1, datatype=BYTES),)),
    "steps": signature(spec("x", -1, -1, datatype=INT64), gives=(spec("y", -1, -1, datatype=INT64),)),
}
SETTINGS = (
    RouteSettings(),
    RouteSettings(cast="round"),
    RouteSettings(rename=Renames((Renaming("in", "x"),), (Renaming("out", "y"),)), drop=("unused",)),
    RouteSettings(select=("y",), constants=(tensor("b", np.array([[1.0]], np.float32)),)),
)


def computed(request: Request) -> Response:
    """The model's outputs under its names, made of the first input as it came."""
    outputs = [each.name for each in request.outputs] or [each.name for each in MODELS[request.model].outputs]
    first = request.inputs[0] if request.inputs else made("", FP64, (1, 2), 1, untyped=False, marked=False)
    return Response(tuple(replace(first, name=name, parameters={}) for name in outputs))


FITTING: dict[str, list[list[tuple[str, Datatype, tuple[int, ...]]]]] = {
    "one": [[("x", FP64, (1, 2))], [("x", FP64, (3, 2))], [("x", FP64, (2,))], [("x", FP32, (1, 2))]],
    "row": [[("x", FP64, (3,))], [("x", FP64, (1, 3))], [("x", FP64, (2, 3))]],
    "two": [[("a", FP64, (1, 2)), ("b", FP32, (1, 1))], [("b", FP32, (2, 1)), ("a", FP64, (2, 2))]],
    "flags": [[("x", BOOL, (1, 2))], [("x", UINT8, (1, 2))]],
    "words": [[("x", BYTES, (2,))], [("x", BYTES, (1,))]],
    "steps": [[("x", INT64, (1, 2))], [("x", INT64, (2, 1))], [("x", UINT8, (2,))]],
}
"""Inputs of each model as most protocols send them."""


@st.composite
def requests(draw: st.DrawFn, model: str) -> Request:
    """Mostly such as fit, with names, datatypes and shapes that may be those of something else."""
    inputs = []
    for name, datatype, shape in draw(st.sampled_from(FITTING[model])):
        other = draw(st.integers(0, 30))
        inputs.append(
            made(
                "" if other < 5 else "in" if other == 9 else name,
                draw(st.sampled_from([FP64, INT64, UINT8])) if other == 8 else datatype,
                draw(st.sampled_from([(2,), (1, 2), (0, 2), ()])) if other == 7 else shape,
                draw(st.integers(0, 3)),
                untyped=draw(st.integers(0, 3)) == 0,
                marked=draw(st.booleans()),
            )
        )
    if draw(st.integers(0, 20)) == 0:
        inputs.append(made("unused", FP64, (1,), 1, untyped=False, marked=False))
    outputs = draw(st.sampled_from([*[()] * 6, ("y",), ("y",), ("z", "y"), ("out",), ("unknown",)]))
    classes = {"classification": 1} if draw(st.integers(0, 5)) == 0 else {}
    wanted = tuple(RequestedOutput(each, dict(classes)) for each in outputs)
    return infer(*inputs, model=model, outputs=wanted, id="7")


def made(name: str, datatype: Datatype, shape: tuple[int, ...], seed: int, *, untyped: bool, marked: bool) -> Tensor:
    values = np.random.default_rng(seed).integers(0, 3, shape)
    if datatype is BYTES:
        words = np.empty(shape, object)
        words[...] = np.vectorize(lambda each: b"%d" % each, otypes=[object])(values) if values.size else words
        found = tensor(name, words)
    else:
        found = tensor(name, values.astype(datatype.dtype), datatype)
    parameters: dict[str, Any] = {"note": seed} if marked and seed == 0 else {}
    return replace(found, untyped=untyped and datatype is not BYTES, parameters=parameters)


async def outcome(handler: Bridge, backend: Backend, request: Request) -> object:
    """What the backend was sent, and the answer or the error."""
    before = len(backend.calls)
    try:
        answer: object = await handler(request)
    except (DecodeError, GatewayError) as error:
        answer = str(error)
    return [(each.inputs, each.outputs) for each in backend.calls[before:]], answer


@settings(max_examples=examples(200))
@given(
    st.sampled_from(PROTOCOLS),
    st.sampled_from(PROTOCOLS),
    st.sampled_from(SETTINGS),
    st.sampled_from(sorted(MODELS)).flatmap(lambda model: st.lists(requests(model), min_size=1, max_size=4)),
    st.lists(st.integers(0, 3), min_size=4, max_size=12),
)
def test_a_request_is_fitted_as_if_it_were_the_first(
    client: Protocol, server: Protocol, route: RouteSettings, drawn: list[Request], order: list[int]
) -> None:
    async def compare() -> None:
        backend = Backend(MODELS, computed)
        warm = bridge(client, server, backend, route)
        for at in order:
            request = drawn[at % len(drawn)]
            other = Backend(MODELS, computed)
            expected = await outcome(bridge(client, server, other, route), other, replace(request))
            assert await outcome(warm, backend, replace(request)) == expected

    asyncio.run(compare())


@pytest.mark.parametrize("route", SETTINGS)
@pytest.mark.parametrize("server", [POINTS, COUNTERS])
async def test_inputs_are_fitted_alike_in_any_order_and_by_position(server: Protocol, route: RouteSettings) -> None:
    names = [each.name for each in MODELS["two"].inputs if each.name not in {one.name for one in route.constants}]
    inputs = [
        made(name, FP64, (1, size), 1, untyped=True, marked=False) for name, size in zip(names, (2, 1), strict=False)
    ]
    unnamed = [replace(each, name="") for each in inputs]
    found = []
    for given_inputs in (inputs, list(reversed(inputs)), unnamed):
        backend = Backend(MODELS, computed)
        found.append(await outcome(bridge(TENSORS, server, backend, route), backend, infer(*given_inputs, model="two")))
    assert found[0] == found[1] == found[2]


async def test_values_that_are_checked_are_checked_every_time() -> None:
    """UINT8 stands for BOOL on a wire without BOOL: 0 and 1 alone."""
    given_back = Response((tensor("y", np.array([[1, 2]], np.uint8)),))
    backend = Backend(MODELS, lambda _: given_back)
    without_bool = replace(TENSORS, name="numbers", traits=Traits(wire=Wire(datatypes=NUMBERS)))
    route = bridge(without_bool, TENSORS, backend)
    right = tensor("x", np.array([[0, 1]], np.uint8))
    wrong = tensor("x", np.array([[0, 2]], np.uint8))
    for _ in range(3):
        await route(infer(right, model="flags"))
    with pytest.raises(DecodeError, match="2"):
        await route(infer(wrong, model="flags"))


async def test_inputs_that_share_their_data_are_told_apart() -> None:
    given_back = Response((tensor("y", np.array([1.0])),))
    pair = signature(spec("a", -1, 1, datatype=UINT8), spec("b", -1, 1, datatype=UINT8), gives=(spec("y", -1),))
    backend = Backend({"pair": pair}, lambda _: given_back)
    route = bridge(TENSORS, WHOLE, backend)
    for a, b in ((b"\x01", b"\x01"), (b"\x01", b"\x02")):  # Python has one object for each bytes of length 1
        await route(infer(Tensor("a", UINT8, (1, 1), a), Tensor("b", UINT8, (1, 1), b), model="pair"))
    sent = [[bytes(each.data) for each in call.inputs] for call in backend.calls]
    assert sent == [[b"\x01", b"\x01"], [b"\x01", b"\x02"]]


async def test_parameters_of_a_tensor_reach_the_backend() -> None:
    backend = Backend(MODELS, computed)
    route = bridge(TENSORS, COUNTERS, backend)
    plain = made("x", FP64, (1, 2), 1, untyped=False, marked=False)
    for each in (plain, plain, replace(plain, parameters={"note": 1})):
        await route(infer(each, model="one"))
    assert [call.inputs[0].parameters for call in backend.calls] == [{}, {}, {"note": 1}]


async def test_parameters_of_an_output_reach_the_backend() -> None:
    backend = Backend(MODELS, computed)
    route = bridge(COUNTERS, TENSORS, backend)
    x = made("x", FP64, (1, 2), 1, untyped=False, marked=False)
    for parameters in ({}, {}, {"classification": 2}):
        await route(infer(x, model="one", outputs=(RequestedOutput("y", parameters),)))
    assert [call.outputs[0].parameters for call in backend.calls] == [{}, {}, {"classification": 2}]


async def test_models_in_turns_are_fitted_once_each_where_the_route_has_inputs_of_its_own(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    fitted: list[Signature] = []
    fit = Fitting.to

    def noted(self: Fitting, signature: Signature) -> Fitting:
        fitted.append(signature)
        return fit(self, signature)

    monkeypatch.setattr(Fitting, "to", noted)
    models = {"one": MODELS["one"], "other": replace(MODELS["one"], platform="other")}
    backend = Backend(models, lambda request: computed(replace(request, model="one")))
    route = bridge(TENSORS, COUNTERS, backend, RouteSettings(signature=Signature(MODELS["one"].inputs)))
    x = made("x", FP64, (1, 2), 1, untyped=False, marked=False)
    for model in ("one", "other") * 3:
        await route(infer(x, model=model))
    assert [each.platform for each in fitted] == [each.platform for each in models.values()]


def test_of_signatures_that_were_made_the_first_are_forgotten() -> None:
    """A backend's metadata is asked for anew from time to time."""
    made_of: list[Signature] = []

    def derive(signature: Signature) -> Signature:
        made_of.append(signature)
        return replace(signature, outputs=())

    derived = DerivedSignatures(derive)
    given = [replace(MODELS["one"], platform=str(each)) for each in range(MOST_SIGNATURES + 1)]
    found = [derived.of(each) for each in given]
    assert derived.of(given[-1]) is found[-1]
    assert derived.of(given[0]) is not found[0]
    assert made_of == [*given, given[0]]
