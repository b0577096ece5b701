"""A few doubles are written in one step: the same bytes as in several."""

import math
from collections.abc import Callable
from unittest import mock

from hypothesis import given
from hypothesis import strategies as st

from gateway.core.datatypes import Datatype
from gateway.core.errors import GatewayError
from gateway.core.operations import INFER
from gateway.core.types import Message, Request, RequestedOutput, Response, Tensor, Translate
from gateway.protocols.umbridge import client, server
from tests.protocols.umbridge.wire import TARGET, UMBRIDGE


def written(request: Request, response: Response, translate: Translate) -> list[object]:
    """What a server and a client get."""
    found: list[object] = []
    encoders: list[Callable[[], Message]] = [
        lambda: UMBRIDGE.encode_request(request, TARGET),
        lambda: UMBRIDGE.encode_response(response, request, translate),
    ]
    for encode in encoders:
        try:
            message = encode()
        except GatewayError as error:
            found.append(str(error))
        else:
            found.append((b"".join(map(bytes, message.parts)), message.headers, message.path, message.deadline))
    return found


def assert_same(tensors: tuple[Tensor, ...], parameters: dict[str, str], translate: Translate) -> None:
    request = Request(INFER, 'm"\0', "", "7", tensors, (RequestedOutput("y"),), parameters, "", 2.5, Message())
    response = Response(tensors, parameters=parameters)
    with (
        mock.patch.object(client, "few_doubles", return_value=None),
        mock.patch.object(server, "few_doubles", return_value=None),
    ):
        expected = written(request, response, translate)
    assert written(request, response, translate) == expected


DOUBLES = st.one_of(st.floats(), st.sampled_from([0.0, -0.0, 1e16, 1e22, 5e-324, math.nan, math.inf, 1.0, 123456.75]))


@given(
    vectors=st.lists(st.lists(DOUBLES, max_size=35), min_size=0, max_size=2),
    datatype=st.sampled_from([Datatype.FP64, Datatype.FP64, Datatype.FP32, Datatype.INT64, Datatype.UINT8]),
    parameters=st.sampled_from([{}, {"config": '{"level": 1}'}, {"other": "1"}]),
    own=st.sampled_from([{}, {"gateway_datatype": "BOOL"}, {"other": "1"}]),
    nan=st.sampled_from([None, "error", "literal", "null", "string"]),
)
def test_any_vectors(
    vectors: list[list[float]], datatype: Datatype, parameters: dict[str, str], own: dict[str, str], nan: None
) -> None:
    tensors = []
    for vector in vectors:
        numbers = vector if datatype is Datatype.FP64 else [1.5 if datatype is Datatype.FP32 else 3] * len(vector)
        raw = b"".join([datatype.dtype.type(number).tobytes() for number in numbers])
        tensors.append(Tensor("", datatype, (len(vector),), raw, "", own))
    assert_same(tuple(tensors), parameters, Translate(nan=nan))


def test_a_matrix_is_written_flat() -> None:
    assert_same((Tensor("x", Datatype.FP64, (1, 2), bytes(16)),), {}, Translate())
    assert_same((Tensor("x", Datatype.FP64, (0, 2), b""),), {}, Translate())
