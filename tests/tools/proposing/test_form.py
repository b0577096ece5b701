"""The forms that examples suggest, for bodies as tutorials and well-known servers have them."""

from pathlib import Path
from typing import Any

import pytest

from gateway.assembly.forms import form
from gateway.core.datatypes import Datatype
from gateway.protocols.json import templates
from gateway.tools.probing.stanza import WrittenListener
from gateway.tools.proposing.examples import ExampleError, check, read_examples, server_at
from gateway.tools.proposing.form import RESERVED_NAMES, Example, NoProposalError, propose
from gateway.tools.proposing.text import configuration
from tests.running_gateway import config_of

FLASK = (
    {"features": [[5.1, 3.5, 1.4, 0.2], [6.2, 3.4, 5.4, 2.3]]},
    {"prediction": [0, 2]},
    {"features": "$features"},
    {"prediction": "$prediction"},
    {"features": "FP64 [-1, 4]", "prediction": "INT64 [-1]"},
)
BODIES = {
    "flask, one row in a flat list": (
        {"features": [1, 2]},
        {"prediction": 3.0},
        {"features": "$features"},
        {"prediction": "$prediction|scalar"},
        {"features": "INT64 [-1, 2]", "prediction": "FP64 [-1]"},
    ),
    "flask, rows": FLASK,
    "flask, with an id and a time": (
        {"features": [[1.5, 2]], "request_id": "a-1"},
        {"prediction": [3.5], "took_ms": 12, "status": "ok"},
        {"features": "$features", "request_id?": "$id"},
        {"prediction": "$prediction", "took_ms?": "$_", "status?": "$_"},
        {"features": "FP64 [-1, 2]", "prediction": "FP64 [-1]"},
    ),
    "fastapi, a model of pydantic": (
        {"sepal_length": 5.1, "sepal_width": 3.5, "wild": True, "place": "Gaspe"},
        {"species": "setosa", "probability": 0.97},
        {
            "sepal_length": "$sepal_length|scalar",
            "sepal_width": "$sepal_width|scalar",
            "wild": "$wild|scalar",
            "place": "$place|text",
        },
        {"species": "$species|text", "probability": "$probability|scalar"},
        {
            "sepal_length": "FP64 [-1]",
            "sepal_width": "FP64 [-1]",
            "wild": "BOOL [-1]",
            "place": "BYTES [-1]",
            "species": "BYTES [-1]",
            "probability": "FP64 [-1]",
        },
    ),
    "fastapi, a list of models": (
        [{"age": 22, "sex": "male"}, {"age": 38, "sex": "female"}],
        [{"survived": 0, "p": 0.1}, {"survived": 1, "p": 0.9}],
        [{"age": "$age", "sex": "$sex"}, "..."],
        [{"survived": "$survived", "p": "$p"}, "..."],
        {"age": "INT64 [-1]", "sex": "BYTES [-1]", "survived": "INT64 [-1]", "p": "FP64 [-1]"},
    ),
    "fastapi, a text with a parameter": (
        {"text": "I love it", "max_length": 5},
        {"label": "POSITIVE", "score": 0.99},
        {"text": "$text|text", "max_length?": "$param.max_length"},
        {"label": "$label|text", "score": "$score|scalar"},
        {"text": "BYTES [-1]", "label": "BYTES [-1]", "score": "FP64 [-1]"},
    ),
    "seldon, ndarray": (
        {"data": {"names": ["a", "b"], "ndarray": [[1, 2], [3, 4]]}},
        {"data": {"names": ["p", "q"], "ndarray": [[1, 2], [3, 4]]}, "meta": {}},
        {"data": {"names": ["a", "b"], "ndarray": "$ndarray"}},
        {"data": {"names": ["p", "q"], "ndarray": "$ndarray_out"}, "meta?": "$_"},
        {"ndarray": "INT64 [-1, 2]", "ndarray_out": "INT64 [-1, 2]"},
    ),
    "seldon, tensor": (
        {"data": {"tensor": {"shape": [2, 2], "values": [1, 2, 3, 4]}}},
        {"data": {"tensor": {"shape": [2, 1], "values": [0.5, 4]}}, "meta": {"tags": {"k": 1}}},
        {"data": {"tensor": {"shape": "$tensor|shape", "values": "$tensor|flat"}}},
        {"data": {"tensor": {"shape": "$tensor_out|shape", "values": "$tensor_out|flat"}}, "meta?": "$_"},
        {"tensor": "INT64 [-1, 2]", "tensor_out": "FP64 [-1, 1]"},
    ),
    "openai, embeddings": (
        {"model": "m", "input": ["hello", "you"], "encoding_format": "float"},
        {
            "object": "list",
            "data": [
                {"object": "embedding", "index": 0, "embedding": [0.5, 0.25]},
                {"object": "embedding", "index": 1, "embedding": [1, -2]},
            ],
            "model": "m",
            "usage": {"prompt_tokens": 2, "total_tokens": 2},
        },
        {"model": "$model", "input": "$input", "encoding_format?": "$param.encoding_format"},
        {
            "object?": "$_",
            "data": [{"object": "embedding", "index": "$index", "embedding": "$embedding"}, "..."],
            "model": "$model",
            "usage?": "$_",
        },
        {"input": "BYTES [-1]", "embedding": "FP64 [-1, 2]"},
    ),
    "hugging face, classification": (
        {"inputs": "good", "parameters": {"top_k": 2}},
        [[{"label": "POS", "score": 0.9}, {"label": "NEG", "score": 0.1}]],
        {"inputs": "$inputs|text", "parameters?": "$params"},
        [[{"label": "$label", "score": "$score"}, "..."], "..."],
        {"inputs": "BYTES [1]", "label": "BYTES [-1, -1]", "score": "FP64 [-1, -1]"},
    ),
    "tensorflow's rows": (
        {"signature_name": "serving_default", "instances": [{"a": [1, 2], "b": "x"}, {"a": [3, 4], "b": "y"}]},
        {"predictions": [[0.5], [1.5]]},
        {"signature_name?": "$param.signature_name", "instances": [{"a": "$a", "b": "$b"}, "..."]},
        {"predictions": "$predictions"},
        {"a": "INT64 [-1, 2]", "b": "BYTES [-1]", "predictions": "FP64 [-1, 1]"},
    ),
    "a table of columns with types of their own": (
        {"columns": ["name", "age"], "data": [["a", 1], ["b", 2]]},
        [0.5, 0.75],
        {"columns": ["name", "age"], "data": [["$data_0", "$data_1"], "..."]},
        "$y",
        {"data_0": "BYTES [-1]", "data_1": "INT64 [-1]", "y": "FP64 [-1]"},
    ),
    "bare arrays": ([[1, 2], [3, 4]], [1, 2], "$x", "$y", {"x": "INT64 [-1, 2]", "y": "INT64 [-1]"}),
    "an image in a list of pixels": (
        {"image": [[[0, 255, 0]], [[1, 2, 3]]]},
        {"scores": [0.5, 0.25, 0.25]},
        {"image": "$image"},
        {"scores": "$scores"},
        {"image": "INT64 [2, 1, 3]", "scores": "FP64 [3]"},
    ),
    "cog": (
        {"id": "abc", "input": {"x": [1, 2]}},
        {"id": "abc", "logs": "", "metrics": {"predict_time": 0.03}, "output": [2.0, 4.0], "status": "succeeded"},
        {"id?": "$id", "input": {"x": "$x"}},
        {"id?": "$id", "logs?": "$_", "metrics?": "$_", "output": "$output", "status?": "$_"},
        {"x": "INT64 [-1]", "output": "FP64 [-1]"},
    ),
    "a shape in words": (
        {"ring": {"shape": "round", "values": [1, 2]}},
        [1.5, 2.5],
        {"ring": {"shape?": "$param.shape", "values": "$values"}},
        "$y",
        {"values": "INT64 [-1]", "y": "FP64 [-1]"},
    ),
    "words that mean something in templates": (
        {"$price": [1, 2], "unit": {"params": "$"}},
        {"any": [1, 2]},
        {"$$price": "$_price", "unit": {"params?": "$param.params"}},
        {"any": "$any_"},
        {"_price": "INT64 [-1]", "any_": "INT64 [-1]"},
    ),
}


def suggested(*examples: Example) -> tuple[Any, Any, dict[str, str]]:
    """The templates and the tensors that are proposed; the examples were read back."""
    found = propose(examples)
    tensors = {name: f"{datatype.value} {list(shape)}" for name, (datatype, shape) in found.tensors.items()}
    document: dict[str, Any] = {
        "infer": {"path": "/predict", "request": found.request, "response": found.response},
        "tensors": tensors,
    }
    if found.takes_one_row:
        document["batch"] = "each"
    check(form("proposed", document), "/predict", examples)
    return found.request, found.response, tensors


@pytest.mark.parametrize(("request_", "reply", "asked", "answered", "tensors"), BODIES.values(), ids=BODIES)
def test_one_example_suggests_a_form(
    request_: Any, reply: Any, asked: Any, answered: Any, tensors: dict[str, str]
) -> None:
    assert suggested(Example(request_, reply)) == (asked, answered, tensors)


def test_several_examples_tell_what_varies() -> None:
    first = Example(
        {"x": [[1, 2]], "unit": "m", "mode": "fast", "seed": 1}, {"y": [1.5], "status": "ok", "version": "1", "t": 3}
    )
    second = Example(
        {"x": [[1, 2], [3, 4]], "unit": "m", "mode": "slow"}, {"y": [2, 3], "status": "ok", "version": "2"}
    )
    assert suggested(first, second) == (
        {"x": "$x", "unit": "m", "mode?": "$param.mode", "seed?": "$param.seed"},
        {"y": "$y", "status": "ok", "version": "$version", "t?": "$_"},
        {"x": "INT64 [-1, 2]", "y": "FP64 [-1]"},
    )


def test_a_value_of_the_response_that_changes_its_type_is_dropped() -> None:
    examples = [Example({"x": [1]}, {"y": [1.5], "note": note}) for note in ("ok", {"code": 7})]
    assert suggested(*examples)[1] == {"y": "$y", "note?": "$_"}


def test_an_empty_list_beside_a_full_one_tells_nothing() -> None:
    examples = [Example({"x": x}, {"y": [1.5]}) for x in ([[1, 2]], [])]
    assert propose(examples).tensors["x"] == (Datatype.INT64, (1, 2))


def test_a_dimension_that_varies_is_free_although_no_output_has_it() -> None:
    examples = [Example({"x": [[1, 2]] * rows}, {"y": 1.5}) for rows in (1, 3)]
    assert suggested(*examples)[2] == {"x": "INT64 [-1, 2]", "y": "FP64 [1]"}


def test_whole_numbers_in_one_example_and_others_in_another_are_floats() -> None:
    assert suggested(Example({"x": [1]}, {"y": [1]}), Example({"x": [1.5]}, {"y": [1]}))[2]["x"] == "FP64 [-1]"


ONE_ROW = {
    "values": ({"length": 5.1, "width": 3.5}, {"species": "setosa"}, True),
    "a text": ({"text": "a"}, {"embedding": [0.5, 0.25]}, True),
    "a flat list": ({"features": [5.1, 3.5]}, {"prediction": 0}, True),
    "lists on both sides": ({"x": [1, 2]}, {"y": [1.5, 2.5]}, False),
    "rows": ({"features": [[5.1, 3.5]]}, {"prediction": [0]}, False),
    "rows of objects": ([{"length": 5.1}], {"prediction": 0}, False),
}


@pytest.mark.parametrize(("request_", "reply", "expected"), ONE_ROW.values(), ids=ONE_ROW)
def test_a_server_of_one_row_is_called_for_each(request_: Any, reply: Any, expected: bool) -> None:
    assert propose([Example(request_, reply)]).takes_one_row is expected


def test_a_text_or_a_list_of_texts_are_items() -> None:
    examples = [Example({"input": "a"}, [[1.5]]), Example({"input": ["a", "b"]}, [[1.5], [2.5]])]
    assert suggested(*examples)[::2] == ({"input": "$input|items"}, {"input": "BYTES [-1]", "y": "FP64 [-1, 1]"})


NONE = {
    "ragged": (
        {"x": [[1], [2, 3]]},
        {"y": 1},
        "request.x: a ragged array, whose rows have different lengths; use examples with equal lengths",
    ),
    "null": (
        {"x": [1, None]},
        {"y": 1},
        "request.x: null beside numbers in one array; use an example without null; `translate: {nan: null}` on the"
        " route reads null as NaN",
    ),
    "null in a record": (
        [{"a": 1.5, "b": 2.5}, {"a": None, "b": 3.5}],
        {"y": [1, 2]},
        "request[0].a: the examples have values of different types here; use an example without null; `translate: {nan:"
        " null}` on the route reads null as NaN",
    ),
    "mixed": ({"x": 1}, {"y": [1, "a"]}, "response.y: numbers beside texts in one array"),
    "empty": (
        {"x": []},
        {"y": 1},
        "request.x: the list is empty in all examples; add an example in which it has elements",
    ),
    "shapes in rows": (
        [{"shape": [2], "values": [1, 2]}, {"shape": [1], "values": [3]}],
        {"y": [1, 2]},
        "request[0]: an array with its shape cannot be a part of rows",
    ),
    "no tensor": ({"x": None}, {"y": 1}, "request: found no tensor: the body has no array, number or text"),
}


@pytest.mark.parametrize(("request_", "reply", "expected"), NONE.values(), ids=NONE)
def test_bodies_that_suggest_no_form_are_refused_with_their_place(request_: Any, reply: Any, expected: str) -> None:
    with pytest.raises(NoProposalError) as caught:
        propose([Example(request_, reply)])
    assert str(caught.value) == expected


def test_examples_that_differ_in_kind_are_refused_with_their_place() -> None:
    with pytest.raises(NoProposalError, match=r"request\.x: the examples have arrays of 1 and 2 dimensions"):
        propose([Example({"x": [1]}, {"y": 1}), Example({"x": [[1]]}, {"y": 1})])
    with pytest.raises(NoProposalError, match=r"request\.x: the shapes in the examples have different lengths"):
        propose([Example({"x": {"shape": shape, "values": [1, 2]}}, {"y": 1}) for shape in ([2], [1, 2])])
    with pytest.raises(NoProposalError, match=r"request\.x: the examples have values of different types here"):
        propose([Example({"x": [1]}, {"y": 1}), Example({"x": {"a": 1}}, {"y": 1})])


@pytest.mark.parametrize(("name", "media_type"), [("r.png", "image/png"), ("r", "application/octet-stream")])
def test_a_file_of_bytes_is_told_what_to_write_for_it(tmp_path: Path, name: str, media_type: str) -> None:
    request, reply = tmp_path / name, tmp_path / "reply.json"
    request.write_bytes(b"\x89PNG\r\n\x1a\n\0")
    reply.write_text('{"label": "cat"}')
    with pytest.raises(ExampleError, match=f"{name} is not JSON, .*`media_type: {media_type}`"):
        read_examples([request, reply])


def test_files_that_are_no_json_are_told(tmp_path: Path) -> None:
    request, reply = tmp_path / "request.json", tmp_path / "reply.json"
    for text, why in ((None, ": No such file or directory"), ("{'x': 1}", " is not JSON: Expecting property name"),
                      ("[" * 100_000, " is not JSON: maximum recursion depth exceeded")):  # fmt: skip
        if text is not None:
            request.write_text(text)
        with pytest.raises(ExampleError) as caught:
            read_examples([request, reply])
        assert str(caught.value).startswith(f"{request}{why}")


@pytest.mark.parametrize(
    ("url", "why"),
    [
        (
            "127.0.0.1:5000/predict",
            "expected a URL such as http://127.0.0.1:5000/predict, got '127.0.0.1:5000/predict'",
        ),
        ("ftp://h/p", "expected a URL such as http://127.0.0.1:5000/predict, got 'ftp://h/p'"),
        (
            "http://h/p?v=2",
            "the proposal cannot contain the query 'v=2'; remove it, and write it as `query:` in the form",
        ),
    ],
)
def test_an_url_that_no_form_can_have_is_told(url: str, why: str) -> None:
    with pytest.raises(ExampleError) as caught:
        server_at(url)
    assert str(caught.value) == why


@pytest.mark.parametrize(
    ("example", "why"),
    [
        (Example({"z": [1]}, {"y": [1]}), "request 1 correctly: "),
        (Example({"x": [1]}, {"z": [1]}), "response 1 correctly: "),
    ],
)
def test_an_example_that_a_form_does_not_read_is_told(example: Example, why: str) -> None:
    infer = {"path": "/predict", "request": {"x": "$x"}, "response": {"y": "$y"}}
    tensors = {"x": "FP64 [-1]", "y": "FP64 [-1]"}
    with pytest.raises(NoProposalError) as caught:
        check(form("f", {"infer": infer, "tensors": tensors}), "/predict", [example])
    assert str(caught.value).startswith(f"the proposed form does not read {why}")
    assert str(caught.value).endswith("; write the form by hand")


# --- the file ---

LISTENERS = (WrittenListener("http", "127.0.0.1:8080", ("v2-rest",)),)


def file(*examples: Example) -> str:
    return configuration("m", propose(examples), server_at(""), LISTENERS, len(examples))


FIXED = {"flag": True, "number": 2.5, "word": "yes", "nested": {"empty": {}, "word": "~"}}


@pytest.mark.parametrize(
    "examples",
    [*((Example(*each[:2]),) for each in BODIES.values()), (Example({"x": [1], **FIXED}, {"y": [1], **FIXED}),) * 2],
)
def test_the_file_has_the_form(examples: tuple[Example, ...]) -> None:
    found = propose(examples)
    document = config_of(file(*examples)).forms["m"].document()
    [infer] = document["infer"]
    assert (infer["request"], infer["response"]) == (found.request, found.response)
    assert ("batch" in document) == found.takes_one_row


NAMES = [f"a_long_name_of_a_column_{at}" for at in "abc"]
LONG_ROWS = """\
      request:
        - a_long_name_of_a_column_a: $a_long_name_of_a_column_a
          a_long_name_of_a_column_b: $a_long_name_of_a_column_b
          a_long_name_of_a_column_c: $a_long_name_of_a_column_c
        - ...
"""
LONG_COLUMNS = """\
      request:
        a_long_name_of_a_table:
          - [$a_long_name_of_a_table_0, $a_long_name_of_a_table_1, $a_long_name_of_a_table_2]
          - ...
"""


@pytest.mark.parametrize(
    ("request_", "lines"),
    [
        ([dict.fromkeys(NAMES, 1.5), dict.fromkeys(NAMES, 2.5)], LONG_ROWS),
        ({"a_long_name_of_a_table": [["a", 1, True], ["b", 2, False]]}, LONG_COLUMNS),
    ],
    ids=["objects", "lists"],
)
def test_rows_that_are_too_long_for_a_line_have_several(request_: Any, lines: str) -> None:
    text = file(Example(request_, [1.5, 2.5]))
    assert lines in text


def test_no_proposed_name_is_reserved() -> None:
    assert RESERVED_NAMES == templates.RESERVED_NAMES
