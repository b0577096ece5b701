"""Documents written like one before are those that are written member by member."""

import math
from collections.abc import Iterator
from unittest import mock

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.core import layouts
from gateway.core.datatypes import Datatype, Kind
from gateway.core.errors import GatewayError
from gateway.core.frozen import replace
from gateway.core.operations import INFER
from gateway.core.protocol import Target
from gateway.core.types import Message, Request, RequestedOutput, Response, Tensor, Translate, tensor
from gateway.protocols.v2 import V2_REST
from gateway.protocols.v2.rest import repeated
from gateway.protocols.v2.rest.server import BinaryOutputMessage

TARGETS = [Target("models", "127.0.0.1:8000", flavor) for flavor in ("plain", "mlserver", "triton", "kserve")]
ORIGINS = [Message(), BinaryOutputMessage(binary_data_output=True), BinaryOutputMessage(binary_data={"other": True})]


@pytest.fixture(autouse=True)
def begin_with_nothing() -> Iterator[None]:
    with (
        mock.patch.object(repeated, "_json", layouts.LayoutStore()),
        mock.patch.object(repeated, "_binary", layouts.LayoutStore()),
    ):
        yield


def sent(tensors: tuple[Tensor, ...], request: Request, response: Response) -> list[object]:
    """What each kind of server and client gets."""
    found: list[object] = []
    for target in TARGETS:
        found.append(tried(lambda target=target: V2_REST.encode_request(replace(request, inputs=tensors), target)))
    for origin in ORIGINS:
        for nan in ("error", "literal", "null", "string"):
            asked, answer = replace(request, origin=origin), replace(response, outputs=tensors)
            translate = Translate(nan=nan)
            found.append(tried(lambda asked=asked, answer=answer, translate=translate: V2_REST.encode_response(
                answer, asked, translate
            )))  # fmt: skip
    return found


def tried(encode: object) -> object:
    assert callable(encode)
    try:
        with np.errstate(invalid="ignore"):  # of a signalling NaN
            message = encode()
    except GatewayError as error:
        return str(error)
    return b"".join(map(bytes, message.parts)), message.headers, message.path, message.status


def assert_same(tensors: tuple[Tensor, ...], request: Request, response: Response) -> None:
    """Written twice, so that the text is made and found again."""
    nothing = mock.Mock(return_value=None)
    with mock.patch.multiple(repeated, request_in=nothing, response_in=nothing):
        expected = sent(tensors, request, response)
    assert sent(tensors, request, response) == expected
    assert sent(tensors, request, response) == expected


REQUEST, RESPONSE = Request(INFER, "m"), Response((), "backend's", "3")
NAMES = st.text(st.characters(blacklist_categories=["Cs"]), max_size=6)
DATATYPES = [each for each in Datatype if each is not Datatype.BYTES]


@given(
    data=st.data(),
    names=st.lists(NAMES, min_size=1, max_size=2, unique=True),
    datatype=st.sampled_from(DATATYPES),
    id=st.one_of(st.none(), NAMES),
    model=NAMES.filter(lambda name: name not in ("", ".", "..")),
    version=st.sampled_from(["", "1"]),
    parameters=st.sampled_from([{}, {"p": 1}]),
    own=st.sampled_from([{}, {}, {"q": "\0"}]),
    outputs=st.sampled_from([(), (), (RequestedOutput("y"),)]),
)
def test_any_message(
    data: st.DataObject, names: list[str], datatype: Datatype, id: str | None, model: str, version: str,
    parameters: dict[str, int], own: dict[str, str], outputs: tuple[RequestedOutput, ...],
) -> None:  # fmt: skip
    tensors = []
    for name in names:
        shape = tuple(data.draw(st.lists(st.integers(0, 4), max_size=3)))
        raw = data.draw(st.binary(min_size=math.prod(shape) * datatype.size, max_size=math.prod(shape) * datatype.size))
        if datatype is Datatype.BOOL:
            raw = bytes(each & 1 for each in raw)
        tensors.append(Tensor(name, datatype, shape, raw, "", own))
    request = Request(INFER, model, version, id, (), outputs, parameters)
    assert_same(tuple(tensors), request, Response((), "backend's", "3", "7", parameters))


@pytest.mark.parametrize("count", [31, 32, 33, 64, 65, 200])
@pytest.mark.parametrize("datatype", [Datatype.FP64, Datatype.FP32, Datatype.INT8, Datatype.UINT64])
def test_about_as_many_numbers_as_are_few(count: int, datatype: Datatype) -> None:
    numbers = np.random.default_rng(count).standard_normal(count) * 100
    numbers = numbers if datatype.kind is Kind.FLOAT else numbers.round().clip(0, 100)
    assert_same((tensor("x", numbers.astype(datatype.dtype)),), REQUEST, RESPONSE)


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf, -0.0, 5e-324, 1e22, 1.7976931348623157e308])
def test_numbers_at_the_edge(value: float) -> None:
    assert_same((tensor("x", np.array([1.5, value])),), REQUEST, RESPONSE)


def test_the_same_names_with_other_numbers() -> None:
    for numbers in ([1.5, 2.0], [3.0, math.nan], [math.inf, 1.0], [-4.25, 1e300]):
        assert_same((tensor("x", np.array(numbers)),), REQUEST, RESPONSE)
    assert len(repeated._json) == 2  # a request and a response


def test_an_id_of_its_own() -> None:
    for id in (None, "1", "", 'quote"', "\0", "ü"):
        assert_same((tensor("x", np.array([1.5])),), replace(REQUEST, id=id), RESPONSE)


def test_what_is_kept_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(layouts, "MOST", 10)
    for at in range(30):
        sent((tensor(f"x{at}", np.array([1.5])),), REQUEST, RESPONSE)
    assert len(repeated._json) == len(repeated._binary) == 10
    repeated._json.clear()
    assert_same((tensor("x" * layouts.LONGEST, np.array([1.5])),), REQUEST, RESPONSE)
    assert not repeated._json
