"""For every installed protocol, one side reads what the other side writes."""

import math
from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.core.datatypes import Datatype, Kind
from gateway.core.errors import GatewayError, Reason, Status
from gateway.core.frozen import replace
from gateway.core.models import ModelEntry, ServerInfo, Signature, TensorSpec
from gateway.core.operations import DERIVATIVES, Operation
from gateway.core.protocol import Traits, merge
from gateway.core.requests import Answer, Request, RequestedOutput, Response
from gateway.core.statistics import Measurements, Statistics
from gateway.core.tensors import Parameters, Tensor, tensor
from tests.contract import strategies as make
from tests.contract.cases import each, each_datatype, each_dialect
from tests.contract.comparing import check_all
from tests.contract.flavors import DIALECTS, Dialect, names_models
from tests.contract.samples import ANSWERS, extras
from tests.contract.wire import DEADLINE, LISTENER, LITERAL, PEER, or_error

REFUSED = frozenset({Status.INVALID_ARGUMENT, Status.UNIMPLEMENTED})
"""The errors for values that a protocol cannot represent."""


def of(datatype: Datatype, *shape: int) -> Tensor:
    """Return a tensor with 0, 1, 2, ... and the maximum, or with texts."""
    count = math.prod(shape)
    if datatype is Datatype.BYTES:
        return tensor("x", np.array([f"{at} é" for at in range(count)], object).reshape(shape))
    numbers = np.arange(count).astype(datatype.dtype)
    if datatype.kind in (Kind.SIGNED, Kind.UNSIGNED):
        numbers[-1] = np.iinfo(datatype.dtype).max
    return tensor("x", numbers.reshape(shape), datatype)


def plain(traits: Traits, datatype: Datatype = Datatype.FP64) -> Tensor:
    return of(datatype, 6) if traits.wire.points else of(datatype, 2, 3)


def plain_request(dialect: Dialect, **fields: Any) -> Request:
    return replace(Request(Operation.INFER, "m", inputs=(plain(dialect.traits),)), **fields)


# --- Tensors ---


@each_datatype
def test_plain_tensors_are_never_refused(dialect: Dialect, datatype: Datatype) -> None:
    sent = (plain(dialect.traits, datatype),)
    request = plain_request(dialect, inputs=sent)
    question = dialect.asked(request)
    check_all(question.inputs, sent, dialect.traits)

    answer = dialect.answered(Response(sent), question, request)
    assert isinstance(answer, Response)
    check_all(answer.outputs, sent, dialect.traits)


@each_dialect
@given(data=st.data())
def test_any_tensors_arrive_or_are_refused(dialect: Dialect, data: st.DataObject) -> None:
    request = data.draw(make.inferences(dialect.traits))
    question = or_error(lambda: dialect.asked(request))
    if isinstance(question, GatewayError):
        assert question.status in REFUSED
        return
    check_all(question.inputs, request.inputs, dialect.traits)
    check_addressing(dialect, question, request)


@each_dialect
@given(data=st.data())
def test_any_outputs_arrive_or_are_refused(dialect: Dialect, data: st.DataObject) -> None:
    request = plain_request(dialect)
    response = Response(data.draw(make.several(dialect.traits)))
    answer = or_error(lambda: dialect.answered(response, dialect.asked(request), request))
    if isinstance(answer, GatewayError):
        # INTERNAL: the client's request does not allow these outputs
        assert answer.status in REFUSED | {Status.INTERNAL}
        return
    assert isinstance(answer, Response)
    check_all(answer.outputs, response.outputs, dialect.traits)


@each(
    {"the wire does not have the datatype": lambda dialect, datatype: datatype not in dialect.traits.wire.datatypes},
    dialect=DIALECTS,
    datatype={each.value: each for each in Datatype if each.kind is Kind.FLOAT},
)
def test_what_is_not_finite_arrives(dialect: Dialect, datatype: Datatype) -> None:
    sent = tensor("x", np.array([math.nan, math.inf, -math.inf, -0.0]).astype(datatype.dtype), datatype)
    request = Request(Operation.INFER, "m", inputs=(sent,), translate=LITERAL)
    [found] = dialect.asked(request).inputs
    first, *rest = found.array.astype(np.float64).tolist()
    assert math.isnan(first)
    assert list(map(str, rest)) == ["inf", "-inf", "-0.0"]


# --- Members other than tensors ---


def check_addressing(dialect: Dialect, found: Request, sent: Request) -> None:
    traits = dialect.traits
    assert found.operation is sent.operation
    model, version = sent.model, sent.version if traits.models.versions else ""
    if traits.models.joined_versions and version:
        # the router splits them: only routes distinguish a version from the end of a name
        model, version = f"{model}-{version}", ""
    assert found.model in ((model,) if names_models(traits) else (model, LISTENER.model))
    assert found.version == version
    assert found.id in (sent.id, None)
    assert (found.protocol, found.listener, found.peer) == (dialect.protocol.name, LISTENER.name, PEER)
    assert found.deadline in (DEADLINE, None)


def is_refusal(found: object) -> bool:
    return isinstance(found, GatewayError) and found.status is Status.INVALID_ARGUMENT


@each_dialect
@given(parameters=make.PARAMETERS)
def test_parameters_arrive_or_are_refused(dialect: Dialect, parameters: Parameters) -> None:
    found = or_error(lambda: dialect.asked(plain_request(dialect, parameters=parameters)).parameters)
    assert found == parameters or is_refusal(found)


@each_dialect
@given(parameters=make.PARAMETERS)
def test_parameters_of_tensors_arrive_or_are_refused(dialect: Dialect, parameters: Parameters) -> None:
    sent = replace(plain(dialect.traits), parameters=parameters)
    found = or_error(lambda: dialect.asked(plain_request(dialect, inputs=(sent,))).inputs[0].parameters)
    assert found == parameters or is_refusal(found)


@each({"no request says which outputs it wants": lambda dialect: not dialect.traits.wire.selects}, dialect=DIALECTS)
@given(outputs=make.REQUESTED)
def test_requested_outputs_arrive(dialect: Dialect, outputs: tuple[RequestedOutput, ...]) -> None:
    assert dialect.asked(plain_request(dialect, outputs=outputs)).outputs == outputs


# --- Operations ---


@each(
    {"the wire has no derivatives": lambda dialect, _: not dialect.traits.wire.derivatives},
    dialect=DIALECTS,
    operation={each.value: each for each in DERIVATIVES},
)
@given(data=st.data())
def test_derivatives_arrive_where_the_wire_has_them(
    dialect: Dialect, operation: Operation, data: st.DataObject
) -> None:
    request = data.draw(make.inferences(dialect.traits, operation=operation))
    question = dialect.asked(request)
    assert question.operation is operation
    count = len(DERIVATIVES[operation])
    check_all(question.inputs[:-count], request.inputs[:-count], dialect.traits)
    named = replace(dialect.traits, wire=replace(dialect.traits.wire, unnamed=False))
    check_all(question.inputs[-count:], request.inputs[-count:], named)

    response = Response((tensor("output", np.array([0.5, -1.0])),))
    answer = dialect.answered(response, question, request)
    assert isinstance(answer, Response)
    [output] = answer.outputs
    assert output.array.tolist() == [0.5, -1.0]


@each(
    {"the wire has derivatives": lambda dialect, _: dialect.traits.wire.derivatives},
    "{dialect}",
    ("operation",),
    dialect=DIALECTS,
    operation={each.value: each for each in DERIVATIVES},
)
def test_derivatives_are_refused_where_the_wire_has_none(dialect: Dialect, operation: Operation) -> None:
    inputs = (plain(dialect.traits), *extras(operation))
    with pytest.raises(GatewayError) as caught:
        dialect.asked(plain_request(dialect, operation=operation, inputs=inputs))
    assert caught.value.reason is Reason.UNSUPPORTED


MODELS = (ModelEntry("a model", "1", "READY"), ModelEntry("b/é"))

TOLD: Mapping[Operation, Answer] = {
    # without statistics, of which gRPC tells every counter
    **{operation: answer for operation, answer in ANSWERS.items() if not isinstance(answer, Statistics)},
    Operation.MODELS: MODELS,
    Operation.ONLINE: True,
    Operation.OFFLINE: True,
    Operation.STATISTICS: Measurements(),
}
"""The answers of a server. A protocol can send another operation: UM-Bridge requests the models as a liveness check."""


@each_dialect
@pytest.mark.parametrize("operation", TOLD)
def test_what_is_asked_is_answered(dialect: Dialect, operation: Operation) -> None:
    request = Request(operation, "a model")
    question = or_error(lambda: dialect.asked(request))
    if isinstance(question, GatewayError):
        assert question.reason is Reason.UNSUPPORTED
        return
    told = TOLD.get(question.operation) or Signature()
    found = dialect.answered(told, question, request)
    if operation is Operation.SERVER_METADATA:
        assert isinstance(found, ServerInfo)
    elif operation is Operation.MODELS:
        assert isinstance(found, tuple)
        assert [entry.name for entry in found] == [entry.name for entry in MODELS]
    elif operation is Operation.CONFIG:
        assert isinstance(found, Mapping)
    else:
        assert found == TOLD[operation]


@each(
    {"no request asks for a model's metadata": lambda dialect: not dialect.traits.models.metadata_parts},
    dialect=DIALECTS,
)
def test_metadata_arrives(dialect: Dialect) -> None:
    traits = dialect.traits
    datatypes = [Datatype.FP64] if traits.wire.points else sorted(traits.wire.datatypes)
    specs = tuple(
        TensorSpec(f"n{at}", each, (3,) if traits.wire.points else (-1, 3)) for at, each in enumerate(datatypes)
    )
    claimed = frozenset({Operation.INFER, *(DERIVATIVES if traits.wire.derivatives else ())})
    told = Signature(specs, specs[::-1], claimed, "m", ("1",), traits.models.platform)
    parts = []
    for part in traits.models.metadata_parts:
        request = Request(Operation.METADATA, "m", part=part)
        answer = dialect.answered(told, dialect.asked(request), request)
        assert isinstance(answer, Signature)
        parts.append(answer)
    found = merge(tuple(parts))
    if not dialect.tells_names:
        specs = tuple(replace(spec, name="") for spec in specs)
    outputs = specs[::-1] if traits.models.ordered else specs
    assert (found.inputs, found.outputs, found.operations) == (specs, outputs, claimed)


@each_dialect
def test_a_stream_is_asked_for_where_the_traits_say_so(dialect: Dialect) -> None:
    request = plain_request(dialect, operation=Operation.STREAM)
    if dialect.traits.wire.streams:
        assert dialect.asked(request).operation is Operation.STREAM
        return
    with pytest.raises(GatewayError) as caught:
        dialect.asked(request)
    assert caught.value.reason is Reason.UNSUPPORTED
