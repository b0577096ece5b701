"""Copies of messages: never half a tensor, never more bytes than allowed, nothing that is hidden."""

import numpy as np
import pytest

from gateway.core.datatypes import Datatype
from gateway.core.models import TensorSpec
from gateway.core.requests import RequestedOutput
from gateway.core.tensors import Parameters, Tensor, tensor
from gateway.observing.payload_log.copies import (
    HIDDEN,
    MOST_HEADS,
    TOO_LARGE,
    CopyBounds,
    KnownTensors,
    copied,
    fitted_request,
    same_name,
)

X = tensor("x", np.arange(4, dtype=np.float32))
Y = tensor("y", np.arange(2, dtype=np.float32))


def shown(*tensors: Tensor, max_bytes: int = 100, hide: tuple[str, ...] = ()) -> list[tuple[str, bool, str]]:
    """The names of tensors, whether their data are there, and why not."""
    message = copied(tensors, {}, CopyBounds(max_bytes, hide))
    return [(each.name, each.data is not None, each.left_out) for each in message.tensors]


@pytest.mark.parametrize(
    ("max_bytes", "expected"),
    [
        (24, [("x", True, ""), ("y", True, "")]),
        (23, [("x", True, ""), ("y", False, TOO_LARGE)]),
        (15, [("x", False, TOO_LARGE), ("y", True, "")]),  # a smaller one that comes later has its room
        (7, [("x", False, TOO_LARGE), ("y", False, TOO_LARGE)]),
    ],
)
def test_a_tensor_is_there_whole_or_not(max_bytes: int, expected: list[tuple[str, bool, str]]) -> None:
    assert shown(X, Y, max_bytes=max_bytes) == expected


def test_a_copy_does_not_hold_the_message_that_a_tensor_is_a_view_of() -> None:
    body = bytes(2**20)
    small = Tensor("x", X.datatype, (4,), memoryview(body)[100:116])
    [copy] = copied([small], {}, CopyBounds(100)).tensors
    assert type(copy.data) is bytes
    assert len(copy.data) == 16


@pytest.mark.parametrize(
    ("hide", "is_hidden"), [("ssn", True), ("card_ssn", False), ("*ssn", True), ("s?n", True), ("SSN", False)]
)
def test_hidden_tensors_keep_their_names_alone(hide: str, is_hidden: bool) -> None:
    one = tensor("ssn", np.array([123456789]))
    assert shown(one, hide=(hide,)) == [("ssn", not is_hidden, HIDDEN if is_hidden else "")]


def test_a_tensor_is_hidden_by_the_name_that_its_backend_has_for_it() -> None:
    message = copied([X], {}, CopyBounds(100, ("ssn",)), others={"x": "ssn"}.get)  # type: ignore[arg-type]
    assert message.tensors[0].left_out == HIDDEN


def test_parameters_share_the_room_and_can_be_hidden() -> None:
    given: Parameters = {"key": "secret", "long": "x" * 200, "n": 3}
    message = copied([], given, CopyBounds(100, ("key",)))
    assert message.parameters == {"n": 3}
    assert message.left_out == {"key": HIDDEN, "long": TOO_LARGE}
    assert not message.is_complete


def test_parameters_of_tensors_can_be_hidden() -> None:
    one = Tensor("x", X.datatype, (4,), X.data, parameters={"key": "secret", "n": 1})
    message = copied([one], {}, CopyBounds(100, ("key",)))
    assert message.tensors[0].parameters == {"n": 1}
    assert message.left_out == {"x.key": HIDDEN}


def test_names_take_bounded_room_and_what_is_beyond_is_counted() -> None:
    many = [Tensor(f"{at}" * 100, X.datatype, (0,), b"") for at in range(2000)]
    message = copied(many, {}, CopyBounds(100), [RequestedOutput("y")])
    assert len(message.tensors) + len(message.requested) + message.uncounted == 2001
    assert message.uncounted > 1000
    assert message.held <= MOST_HEADS
    assert not message.is_complete


@pytest.mark.parametrize("of_tensor", [False, True])
def test_parameters_beyond_the_room_for_names_are_counted(of_tensor: bool) -> None:
    many: Parameters = {f"{at}" * 100: at for at in range(2000)}
    one = Tensor("x", X.datatype, (4,), X.data, parameters=many if of_tensor else {})
    message = copied([one], {} if of_tensor else many, CopyBounds(100_000))
    kept = message.tensors[0].parameters if of_tensor else message.parameters
    assert kept == dict(list(many.items())[: len(kept)])
    assert len(kept) + message.uncounted == 2000
    assert message.held <= 100_000 + MOST_HEADS


def test_numbers_that_do_not_fit_the_model_stay_as_they_came() -> None:
    message = copied([Tensor("x", Datatype.FP64, (1,), np.array([1.5]).tobytes(), untyped=True)], {}, CopyBounds(100))
    known = KnownTensors((TensorSpec("x", Datatype.INT32, (-1, 1)),))
    [fitted] = fitted_request(message, known, CopyBounds(100), same_name).tensors
    assert (fitted.datatype, fitted.shape, fitted.data) == (Datatype.FP64, (1, 1), message.tensors[0].data)


def test_an_empty_tensor_is_complete() -> None:
    assert copied([Tensor("x", X.datatype, (0,), b"")], {}, CopyBounds(1)).is_complete
