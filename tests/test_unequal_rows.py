"""Rows of unequal length in requests, such as the tokens of several texts, which are no tensor: a backend whose form
has `batch: each` gets a call for each row. For others the error says what helps."""

import json
from typing import Any

import pytest

from gateway.core.messages import Message
from tests.wires import Server, Wires

CONFIG = """
forms:
  tokens:
    batch: each
    infer: {path: /e, request: {ids: $ids}, response: {vector: $vector, "ms?": $param.ms}}
    tensors: {ids: "INT64 [-1, -1]", vector: "FP64 [-1, OUT]"}
  scaled:
    batch: each
    infer: {path: /e, request: {ids: $ids, scale: $scale|scalar}, response: {vector: $vector}}
    tensors: {ids: "INT64 [-1, -1]", scale: "FP64 [-1]", vector: "FP64 [-1, 2]"}
  weighed:
    batch: each
    infer: {path: /e, request: {ids: $ids, w: $w}, response: {vector: $vector}}
    tensors: {ids: "INT64 [-1, -1]", w: "FP64 [2]", vector: "FP64 [-1, 2]"}
  whole:
    infer: {path: /w, request: {ids: $ids}, response: {vector: $vector}}
    tensors: {ids: "INT64 [-1, -1]", vector: "FP64 [-1, 2]"}
  clients:
    infer:
      path: "/c/{model}"
      request: {ids: $ids, "scale?": $scale, "w?": $w}
      response: {vector: $vector, "ms?": $param.ms}
    tensors: {ids: "INT64 [-1, -1]", scale: "FP64 [-1]", w: "FP64 [-1]", vector: "FP64 [-1, OUT]"}
listeners:
  - {name: v1, bind: "127.0.0.1:0", protocols: [v1-rest]}
  - {name: in, bind: "127.0.0.1:0", model: tokens, protocols: ["json:clients", openai-embeddings, "json:whole"]}
backends:
  tokens: {protocol: json, form: tokens, endpoints: ["lab:1"]}
  scaled: {protocol: json, form: scaled, endpoints: ["lab:1"]}
  weighed: {protocol: json, form: weighed, endpoints: ["lab:1"]}
  whole: {protocol: json, form: whole, endpoints: ["lab:1"]}
routes:
  - {match: {model: tokens, input: {name: pixels}}, backend: whole}
  - {match: {model: weighed}, backend: weighed}
  - {match: {model: tokens}, backend: tokens, translate: {max_rows: 4}}
  - {match: {model: scaled}, backend: scaled}
  - {match: {model: whole}, backend: whole}
""".replace("openai-embeddings", '"json:openai-embeddings"')


def server(**more: Any) -> Server:
    """Answers with the number and the sum of the tokens of a row."""

    async def serve(message: Message) -> Message:
        row = json.loads(bytes(message.body))
        if 13 in row["ids"]:
            return Message(status=422, parts=(b'{"error": "no token is 13"}',))
        vector = [len(row["ids"]) * row.get("scale", 1), sum(row["ids"])]
        reply = {
            "vector": row["ids"] if "grows" in more else vector,
            **({"ms": more["ms"](row)} if "ms" in more else {}),
        }
        return Message(status=200, parts=(json.dumps(reply).encode(),))

    return serve


def wires(out: str = "2", **more: Any) -> Wires:
    return Wires(CONFIG.replace("OUT", out), lab=server(**more))


async def asked(wires: Wires, body: Any, path: str = "/c/tokens", protocol: str = "json:clients") -> tuple[int, Any]:
    reply = await wires.post(protocol, path, json.dumps(body).encode())
    return reply.status, json.loads(bytes(reply.body))


async def refused(wires: Wires, body: Any, path: str = "/c/tokens", protocol: str = "json:clients") -> str:
    """The text of the error. The server gets no call."""
    status, found = await asked(wires, body, path, protocol)
    assert (status, wires.sent["lab"]) == (400, []), found
    return str(found["error"])


async def test_rows_of_unequal_length_are_a_call_each() -> None:
    here = wires()
    found = await asked(here, {"ids": [[1, 2, 3], [4], [5, 6]]})
    assert found == (200, {"vector": [[3.0, 6.0], [1.0, 4.0], [2.0, 11.0]]})
    sent = [json.loads(bytes(each.body)) for each in here.sent["lab"]]
    assert sorted(sent, key=str) == [{"ids": [1, 2, 3]}, {"ids": [4]}, {"ids": [5, 6]}]


async def test_other_inputs_have_their_rows() -> None:
    here = wires()
    found = await asked(here, {"ids": [[1, 2], [4]], "scale": [10, 0.5]}, "/c/scaled")
    assert found == (200, {"vector": [[20.0, 3.0], [0.5, 4.0]]})
    status, refused = await asked(here, {"ids": [[1, 2], [4]], "scale": [10, 20, 30]}, "/c/scaled")
    assert status == 400
    assert "input 'scale' needs 2 rows" in refused["error"]


async def test_clients_of_openai_send_tokens_of_several_texts() -> None:
    status, found = await asked(
        wires(), {"model": "tokens", "input": [[1, 2, 3], [4]]}, "/v1/embeddings", "json:openai-embeddings"
    )
    assert status == 200, found
    assert [each["embedding"] for each in found["data"]] == [[3.0, 6.0], [1.0, 4.0]]


async def test_clients_of_v1_send_rows_of_unequal_length() -> None:
    here = wires()
    for body in ({"instances": [[1, 2, 3], [4]]}, {"instances": [{"ids": [1, 2, 3]}, {"ids": [4]}]}):
        rows = await asked(here, body, "/v1/models/tokens:predict", "v1-rest")
        assert rows == (200, {"predictions": [[3.0, 6.0], [1.0, 4.0]]})
    status, found = await asked(here, {"instances": [[1, "a"], [4]]}, "/v1/models/tokens:predict", "v1-rest")
    assert status == 400, found


async def test_inputs_without_a_batch_dimension_are_the_same_in_all_calls() -> None:
    here = wires()
    status, _ = await asked(here, {"ids": [[1, 2], [4]], "w": [10, 20]}, "/c/weighed")
    assert status == 200
    assert [json.loads(bytes(each.body))["w"] for each in here.sent["lab"]] == [[10, 20]] * 2
    status, found = await asked(here, {"ids": [[1, 2], [4]], "w": [10]}, "/c/weighed")
    assert (status, len(here.sent["lab"])) == (400, 2), found


async def test_a_number_beside_lists_is_no_row() -> None:
    await refused(wires(), {"instances": [1, [2, 3]]}, "/v1/models/tokens:predict", "v1-rest")


async def test_one_error_names_the_row() -> None:
    status, found = await asked(wires(), {"ids": [[1, 2, 3], [13], [5, 6]]})
    assert status == 400
    assert found["error"].startswith("row 1: ")
    assert "no token is 13" in found["error"]


async def test_more_rows_than_the_route_allows_are_refused() -> None:
    assert "translate: {max_rows: 5}" in await refused(wires(), {"ids": [[1, 2], [1], [1], [1], [1]]})


async def test_outputs_of_unequal_length_are_an_error_of_the_server() -> None:
    status, found = await asked(wires("-1", grows=True), {"ids": [[1, 2, 3], [4]]})
    assert status == 502
    told = "cannot join outputs for rows of unequal length: output 'vector' is FP64 [1, 1] in one response"
    assert told in found["error"]


@pytest.mark.parametrize("ids", [[[1, 2], [4]], [[1, 2], [4, 5]]], ids=["unequal", "equal"])
async def test_parameters_of_a_reply_are_told_if_all_rows_have_them(ids: Any) -> None:
    """The time of one row is not that of the batch."""
    assert (await asked(wires(ms=lambda row: 3), {"ids": ids}))[1]["ms"] == 3
    assert "ms" not in (await asked(wires(ms=lambda row: row["ids"][0]), {"ids": ids}))[1]
    assert (await asked(wires(ms=lambda row: row["ids"][0]), {"ids": ids[:1]}))[1]["ms"] == 1


@pytest.mark.parametrize(
    ("body", "path", "protocol", "why"),
    [
        ({"ids": [[1, 2, 3], [4]]}, "/c/whole", "json:clients", "input 'ids': ragged"),
        ({"instances": [[1, 2, 3], [4]]}, "/v1/models/whole:predict", "v1-rest", "rows of unequal length"),
    ],
)
async def test_other_backends_refuse_them_with_the_remedy(body: Any, path: str, protocol: str, why: str) -> None:
    error = await refused(wires(), body, path, protocol)
    assert why in error
    assert "send one request for each row, or add `batch: each` to the backend's form" in error


@pytest.mark.parametrize(
    "ids", [[[1, 2], 3], [[1, [2]], [3]], [[1, 2], ["a"]], [[1], [[2]]], [[1, None], [3]], [[1.5, 2], [3]]]
)
async def test_what_is_no_list_of_rows_is_refused(ids: Any) -> None:
    assert "'ids'" in await refused(wires(), {"ids": ids})


async def test_a_reply_of_unequal_rows_is_refused() -> None:
    async def serve(message: Message) -> Message:
        return Message(status=200, parts=(b'{"vector": [[1.5, 2], [3]]}',))

    here = Wires(CONFIG.replace("OUT", "2"), lab=serve)
    status, found = await asked(here, {"ids": [[1, 2], [3, 4]]}, "/c/whole")
    assert status == 502
    assert "ragged" in found["error"]
