"""Inputs of examples as tensors with one row for each, and tensors as examples."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.core.datatypes import Datatype
from gateway.core.errors import DecodeError, GatewayError, Reason
from gateway.core.protobuf.fields import write_field, write_text
from gateway.core.tensors import Tensor, tensor
from gateway.protocols.tensorflow_serving.examples import read_input, write_input
from tests.protocols.tensorflow_serving.wire import google
from tests.traced import traced

LIMIT = 2**20
INPUT = google("tensorflow.serving.Input")


def example(**features: list[Any]) -> Any:
    """The message of Google's library."""
    made = google("tensorflow.Example")()
    for name, values in features.items():
        feature = made.features.feature[name]
        kind = {str: "bytes_list", float: "float_list", int: "int64_list"}[type(values[0])]
        getattr(feature, kind).value.extend(each.encode() if isinstance(each, str) else each for each in values)
    return made


def examples(*given: Any, context: Any = None) -> bytes:
    made = INPUT()
    if context is None:
        made.example_list.examples.extend(given)
    else:
        made.example_list_with_context.examples.extend(given)
        made.example_list_with_context.context.CopyFrom(context)
    body: bytes = made.SerializeToString(deterministic=True)
    return body


def read(body: bytes, limit: int = LIMIT) -> dict[str, Any]:
    tensors, count = read_input(body, limit)
    assert all(each.shape[0] == count for each in tensors)
    return {each.name: (each.datatype, each.array.tolist()) for each in tensors}


def refused(body: bytes) -> str:
    with pytest.raises(DecodeError) as caught:
        read_input(body, LIMIT)
    return str(caught.value)


def test_each_feature_is_a_tensor_with_a_row_for_each_example() -> None:
    body = examples(example(b=[1.0, 2.0], a=[-1], c=["x", ""]), example(a=[2**40], b=[0.5, -4.0], c=["", "é"]))
    assert read(body) == {
        "a": (Datatype.INT64, [[-1], [2**40]]),
        "b": (Datatype.FP32, [[1, 2], [0.5, -4]]),
        "c": (Datatype.BYTES, [[b"x", b""], [b"", "é".encode()]]),
    }


def test_features_of_the_context_are_in_each_example_that_lacks_them() -> None:
    body = examples(example(x=[1.0]), example(x=[2.0], age=[3]), context=example(age=[7]))
    assert read(body) == {"age": (Datatype.INT64, [[7], [3]]), "x": (Datatype.FP32, [[1], [2]])}


@pytest.mark.parametrize(
    "features",
    [
        write_field(1, write_text(1, "x", "") + write_field(2, write_field(9, b"") + write_field(3, b"\x0a\1\1"))),
        write_field(1, write_text(1, "x", "") + write_field(2, write_field(3, write_field(2, b"a") + b"\x0a\1\1"))),
    ],
    ids=["a list of an unknown type", "an unknown field of a list"],
)
def test_unknown_fields_are_ignored(features: bytes) -> None:
    assert read(in_one_example(features)) == {"x": (Datatype.INT64, [[1]])}


def test_values_that_are_not_packed() -> None:
    floats, numbers = bytes.fromhex("0d0000803f0d00000040"), bytes.fromhex("08010802")
    for kind, values in ((2, floats), (3, numbers)):
        assert read(in_one_feature(kind, values))["x"][1] == [[1, 2]]


@pytest.mark.parametrize(
    ("body", "text"),
    [
        (b"", "Input is empty."),
        (examples(), "Input is empty."),
        (examples(context=example(x=[1])), "Input is empty."),
        (examples(example()), "example 0 has no features"),
        (examples(example(x=[1]), example(y=[1])), "example 0 has the feature 'x' and example 1 has not"),
        (examples(example(x=[1]), example(x=[1], y=[1])), "example 1 has the feature 'y' and example 0 has not"),
        (examples(example(x=[1]), example(x=[1, 2])), "feature 'x' of example 1 has 2 values and that of example 0 1"),
        (examples(example(x=[1]), example(x=[1.5])), "feature 'x' of example 1 is FP32 and that of example 0 INT64"),
        (examples(example(x=[1])) + examples(example(x=[1]), context=example(x=[1])), "both example_list and"),
        (examples(example(x=[1]))[:-1], "no whole field"),
    ],
    ids=lambda each: each if isinstance(each, str) else "body",
)
def test_examples_that_are_no_rows_are_refused(body: bytes, text: str) -> None:
    assert text in refused(body)


def test_a_feature_without_values_or_given_twice_is_refused() -> None:
    made = google("tensorflow.Example")()
    made.features.feature["x"].SetInParent()
    assert "feature 'x' of example 0 has no values" in refused(examples(made))
    one = example(x=[1]).features.SerializeToString(deterministic=True)
    assert "occurs twice" in refused(in_one_example(one * 2))
    nameless = write_field(1, write_field(2, write_field(3, b"\x0a\1\1")))
    assert refused(in_one_example(nameless)) == "a feature of example 0 has no name"
    two = write_field(1, write_text(1, "x", "") + write_field(2, write_field(2, b"") + write_field(3, b"")))
    assert refused(in_one_example(two)) == "feature 'x' of example 0 has lists of two types; expected one"
    assert refused(in_one_feature(3, b"\x0d\1\0\0\0")) == "feature 'x' of example 0: a value has wire type 5"


def test_a_number_that_goes_on_in_the_next_example_is_refused() -> None:
    """Joined, the two would be other numbers."""
    body = bytearray(examples(example(x=[1, 1]), example(x=[1])))
    body[body.index(b"\x01\x01") + 1] = 0xFF
    assert "cut short" in refused(bytes(body))


def test_a_context_is_not_repeated_beyond_the_limit() -> None:
    body = examples(*[example(x=[1])] * 100, context=example(text=["a" * 1000]))
    with pytest.raises(GatewayError) as caught:
        read_input(body, 50_000)
    assert caught.value.reason is Reason.TOO_LARGE


def in_one_example(features: bytes) -> bytes:
    return write_field(1, write_field(1, write_field(1, features)))


def in_one_feature(kind: int, values: bytes) -> bytes:
    return in_one_example(write_field(1, write_text(1, "x", "") + write_field(2, write_field(kind, values))))


@pytest.mark.parametrize(
    "body",
    [
        write_field(1, b"\x0a\0" * 100_000),
        b"\x0a\0" * 100_000,
        in_one_example(b"\x0a\0" * 100_000),
        in_one_feature(1, b"\x0a\0" * 100_000),
        in_one_feature(3, b"\x08\1" * 100_000),
        examples(*[example(x=[1]), example(x=[1000])] * 1000),
    ],
    ids=["examples", "lists", "features", "texts", "integers", "not alike"],
)
def test_fields_are_bounded_by_the_memory_that_they_take(body: bytes) -> None:
    refused = pytest.raises(GatewayError, match=r"more than 8192 fields, .* \(limits\.message\)")
    with traced() as memory, refused as caught:
        read_input(memoryview(body), LIMIT)
    assert caught.value.reason is Reason.TOO_LARGE
    assert memory.peak < 2 * LIMIT


KINDS = {
    "floats": tensor("", np.array([[1.5, 2], [3, 4]], np.float32)),
    "integers": tensor("", np.array([[1], [-(2**63)]], np.int64)),
    "texts": tensor("", np.array([["a", ""], ["é", "b"]], object)),
    "no floats": tensor("", np.zeros((2, 0), np.float32)),
    "no integers": tensor("", np.zeros((2, 0), np.int64)),
}
COLUMNS = st.dictionaries(st.text(min_size=1, max_size=5), st.sampled_from([*KINDS]), min_size=1, max_size=4)


@given(COLUMNS)
def test_what_is_written_is_read_by_google_and_by_us(kinds: dict[str, str]) -> None:
    columns = {name: KINDS[kind] for name, kind in kinds.items()}
    sent = tuple(Tensor(name, each.datatype, each.shape, each.data) for name, each in sorted(columns.items()))
    body = write_input(sent)
    assert read_input(body, LIMIT) == (sent, 2)
    made = INPUT.FromString(body)
    assert [sorted(each.features.feature) for each in made.example_list.examples] == [sorted(columns)] * 2
    for name, each in columns.items():
        feature = made.example_list.examples[1].features.feature[name]
        kind = {"FP32": "float_list", "INT64": "int64_list", "BYTES": "bytes_list"}[each.datatype]
        assert list(getattr(feature, kind).value) == each.array[1].tolist()


@pytest.mark.parametrize(
    ("dtype", "expected"),
    [(np.float16, Datatype.FP32), (np.int32, Datatype.INT64), (np.uint32, Datatype.INT64), (bool, Datatype.INT64)],
)
def test_other_numbers_are_widened(dtype: Any, expected: Datatype) -> None:
    [found], _ = read_input(write_input((tensor("x", np.array([[1], [0]], dtype)),)), LIMIT)
    assert (found.datatype, found.array.tolist()) == (expected, [[1], [0]])


@pytest.mark.parametrize(
    ("inputs", "text"),
    [
        ((), "expected at least one input"),
        ((tensor("x", np.array(1.0, np.float32)),), "'x' []; all must have as many rows"),
        ((tensor("x", np.zeros((2, 1), np.float32)), tensor("y", np.zeros((1, 1), np.float32))), "as many rows"),
        ((tensor("x", np.zeros((1, 1))),), "input 'x' is FP64, and a feature of an example is BYTES, FP32 or INT64"),
        ((tensor("x", np.zeros((1, 1), np.uint64)),), "input 'x' is UINT64"),
        ((tensor("", np.zeros((1, 1), np.float32)),), "has no name"),
        ((tensor("\ud800", np.zeros((1, 1), np.float32)),), "not UTF-8"),
    ],
)
def test_tensors_that_are_no_examples_are_refused(inputs: tuple[Tensor, ...], text: str) -> None:
    with pytest.raises(GatewayError) as caught:
        write_input(inputs)
    assert text in caught.value.message
    assert caught.value.reason is Reason.INVALID_INPUT


BATCHES = {
    "floats": [example(x=[float(at), 0.5], y=[-1.0]) for at in range(40)],
    "texts of one length": [example(x=[f"{at:02}", ""], y=[1.0]) for at in range(40)],
    "texts of several lengths": [example(x=["a" * at]) for at in range(40)],
    "integers of one byte": [example(x=[at, 1]) for at in range(40)],
    "integers of several bytes": [example(x=[at * 10]) for at in range(40)],
    "integers of as many bytes in all": [example(x=[1, 300]) if at % 2 else example(x=[300, 1]) for at in range(40)],
    "one without the feature": [*[example(x=[1.0])] * 39, example(y=[1.0])],
    "one with another kind": [*[example(x=[1.0])] * 39, example(x=["abcd"])],
    "one with more": [*[example(x=[1.0])] * 39, example(x=[1.0, 2.0])],
    "no values": [example(y=[1.0])] * 40,
}


@pytest.mark.parametrize("name", BATCHES)
def test_a_batch_is_read_as_its_examples_are_one_by_one(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    body = examples(*BATCHES[name])

    def outcome() -> object:
        try:
            return read_input(body, LIMIT)
        except DecodeError as error:
            return str(error)

    found = outcome()
    monkeypatch.setattr("gateway.protocols.tensorflow_serving.examples.LEAST", 1000)
    assert found == outcome()
    if not isinstance(found, str):
        assert INPUT.FromString(write_input(found[0])) == INPUT.FromString(body)  # type: ignore[index]


def in_one_list(values: bytes, name: bytes = b"\x0a\1x") -> bytes:
    """An Example with one feature, whose only list is `values`."""
    return write_field(1, write_field(1, name + write_field(2, values)))


ONE = write_field(3, b"\x0a\1\1")
# an example, and the values of its feature `x` or an error
ODD_LAYOUTS: dict[str, tuple[bytes, list[int] | str]] = {
    "an unknown field beside the features": (in_one_list(ONE) + write_field(9, b""), [1]),
    "no features": (write_field(2, b"a"), "example 0 has no features"),
    "the value before the name": (write_field(1, write_field(1, write_field(2, ONE) + b"\x0a\1x")), [1]),
    "no name": (in_one_list(ONE, b"\x0a\0"), "a feature of example 0 has no name"),
    "a list in two pieces": (in_one_list(ONE + ONE), [1, 1]),
    "integers that are not packed": (in_one_list(write_field(3, b"\x08\1\x08\2")), [1, 2]),
    "floats of three bytes": (
        in_one_list(write_field(2, b"\x0a\3abc")),
        "feature 'x' of example 0 has 3 bytes, no multiple of 4",
    ),
    "an integer that goes on": (in_one_list(write_field(3, b"\x0a\1\xff")), "feature 'x' of example 0: "),
}


@pytest.mark.parametrize(("each", "expected"), ODD_LAYOUTS.values(), ids=ODD_LAYOUTS)
def test_a_batch_of_another_layout_is_read_one_by_one(each: bytes, expected: list[int] | str) -> None:
    body = write_field(1, write_field(1, each) * 20)
    if isinstance(expected, str):
        assert refused(body).startswith(expected)
    else:
        assert read(body) == {"x": (Datatype.INT64, [expected] * 20)}


@pytest.mark.parametrize(
    "values",
    [
        np.arange(40, dtype=np.float32).reshape(20, 2),
        np.arange(20).reshape(20, 1),
        np.arange(0, 200, 10).reshape(20, 1),
        np.arange(-1, 19).reshape(20, 1),
        np.zeros((20, 0), np.int64),
        np.zeros((20, 0), np.float32),
        np.arange(20).reshape(20, 1) > 5,
    ],
    ids=["floats", "small integers", "integers of two sizes", "negative", "no integers", "no floats", "booleans"],
)
def test_many_examples_are_written_as_each_alone(values: Any) -> None:
    ones = np.ones((20, 1), np.float32)
    alone = [write_input((tensor("x", values[at : at + 1]), tensor("y", ones[at : at + 1]))) for at in range(20)]
    many = INPUT.FromString(write_input((tensor("x", values), tensor("y", ones))))
    assert list(many.example_list.examples) == [INPUT.FromString(each).example_list.examples[0] for each in alone]
