"""tritonclient -> gateway -> a real Triton: every datatype in every form, and whatever else clients ask it for."""

from __future__ import annotations

import base64
import gzip
import json
import random
import struct
import zlib
from collections.abc import Callable, Iterable
from functools import partial
from typing import Any

import pytest

from tests.interop import exchanges
from tests.interop.exchanges import Addresses, Listen
from tests.interop.processes import Triton
from tests.interop.rawhttp import post
from tests.interop.real_clients import Step, doubles, elements, infer, packed, raw_of, tensor, tritonclient
from tests.interop.servers.triton_models.repository import DATATYPES, TABLE
from tests.interop.v2_datatypes import (
    EXACT,
    FORMS,
    JSON_TEXTS,
    REFUSED,
    WITHOUT_JSON,
    WRONG,
    identity_step,
    mixed_step,
    mixtures,
    outcomes,
    table,
)

CONFIG = """
listeners:
  - {{name: http, bind: "127.0.0.1:{http}", protocols: [v2-rest]}}
  - {{name: checked, bind: "127.0.0.1:{checked}", protocols: [v2-rest]}}
backends:
  triton: {{protocol: v2-rest, endpoints: ["{triton}"]}}
routes:
  - {{match: {{listener: checked}}, backend: triton, check: full}}
  - {{match: {{model: literal}}, backend: triton, rewrite: {{model: identity_FP64}}, translate: {{nan: literal}}}}
  - {{match: {{model: string}}, backend: triton, rewrite: {{model: identity_FP64}}, translate: {{nan: string}}}}
  - {{match: {{model: "null"}}, backend: triton, rewrite: {{model: identity_FP64}}, translate: {{nan: null}}}}
  - {{match: {{model: base64}}, backend: triton, rewrite: {{model: identity_BYTES}}, translate: {{bytes: base64}}}}
  - {{match: {{model: first}}, backend: triton, rewrite: {{model: versioned, version: "1"}}}}
  - {{match: {{model: "*"}}, backend: triton}}
"""
KINDS = ("sync", "aio")
MIB = 2**20

Ask = Callable[..., list[Any]]


@pytest.fixture(scope="module")
def fronts(listen: Listen, triton: Triton) -> Addresses:
    """At `checked` every message is read."""
    return listen(CONFIG, triton=triton.http)


@pytest.fixture
def ask(kind: str, fronts: Addresses) -> Ask:
    """Runs steps in either client."""
    return partial(tritonclient, fronts["http"], kind)


# --- every datatype in every form ---


@pytest.fixture(scope="module")
def cells(fronts: Addresses, show_at_the_end: Callable[[str, str], None]) -> dict[tuple[str, str, str], str]:
    """What became of each (client, datatype, form)."""
    found = {}
    for kind in KINDS:
        found.update(_cells_of(fronts["http"], kind))
    for datatype in DATATYPES:
        for form, outcome in _texts(fronts["checked"], datatype).items():
            found.update({(kind, datatype, form): outcome for kind in KINDS})
    shown = {}
    for _, datatype, form in found:
        both = dict.fromkeys(found[kind, datatype, form] for kind in KINDS)
        shown[datatype, form] = " / ".join(both)
    show_at_the_end("V2 REST to Triton: datatype by form, tritonclient sync and aio", table(shown))
    return found


def _cells_of(address: str, kind: str) -> dict[tuple[str, str, str], str]:
    whole = [(datatype, name) for datatype in DATATYPES for name in FORMS]
    mixed = mixtures()
    steps = [*(identity_step(datatype, FORMS[name]) for datatype, name in whole), *map(mixed_step, mixed)]
    results = tritonclient(address, kind, *steps)
    found = {
        (kind, datatype, name): outcomes(result, {datatype: FORMS[name]})[0]
        for (datatype, name), result in zip(whole, results[: len(whole)], strict=True)
    }
    by_turn = [outcomes(result, forms) for forms, result in zip(mixed, results[len(whole) :], strict=True)]
    for at, datatype in enumerate(DATATYPES):
        found[kind, datatype, "mixed"] = _each(outcome[at] for outcome in by_turn)
    return found


def _each(several: Iterable[str]) -> str:
    return ", ".join(sorted(set(several)))


def _texts(address: str, datatype: str) -> dict[str, str]:
    """JSON as written by hand, as it is and in either coding, where messages are read; the reply repeats it to the
    letter."""
    text, count = JSON_TEXTS[datatype], len(json.loads(JSON_TEXTS[datatype]))
    head = f'{{"inputs":[{{"name":"INPUT0","datatype":"{datatype}","shape":[{count}],"data":'
    body = f"{head}{text}}}]}}".encode()
    coded = {"text": (body, ()), "gzip text": (gzip.compress(body), ("Content-Encoding: gzip",))}
    found = {}
    for form, (sent, headers) in coded.items():
        reply = post(address, f"/v2/models/identity_{datatype}/infer", sent, *headers)
        if reply.status == 400 and "has no JSON form; use the binary data format" in reply.error:
            found[form] = REFUSED
        else:
            exact = reply.status == 200 and f'"datatype":"{datatype}","shape":[{count}],"data":{text}'.encode()
            found[form] = EXACT if exact and exact in reply.body else WRONG
    return found


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("datatype", DATATYPES)
def test_every_datatype_in_every_form(cells: dict[tuple[str, str, str], str], kind: str, datatype: str) -> None:
    by_hand = REFUSED if datatype in WITHOUT_JSON else EXACT
    documented = {name: form.documented(datatype) for name, form in FORMS.items()}
    documented["mixed"] = _each(forms[datatype].documented(datatype) for forms in mixtures())
    documented |= {"text": by_hand, "gzip text": by_hand}

    found = {form: outcome for (client, name, form), outcome in cells.items() if (client, name) == (kind, datatype)}
    assert found == documented


@pytest.mark.parametrize(("coding", "undo"), [("gzip", gzip.decompress), ("deflate", zlib.decompress)])
def test_long_replies_are_in_the_coding_that_is_asked_for(
    fronts: Addresses, coding: str, undo: Callable[[bytes], bytes]
) -> None:
    document = {"name": "INPUT0", "datatype": "INT32", "shape": [1000], "data": [7] * 1000}
    body = json.dumps({"inputs": [document]}).encode()
    plain = post(fronts["http"], "/v2/models/identity_INT32/infer", body)
    coded = post(fronts["http"], "/v2/models/identity_INT32/infer", body, f"Accept-Encoding: {coding}")

    assert "content-encoding" not in plain.headers
    assert coded.headers["content-encoding"] == coding
    assert len(coded.body) < len(plain.body) == len(undo(coded.body))
    assert undo(coded.body) == plain.body


# --- values that JSON lacks ---


def test_nan_and_infinities_are_read_from_json(ask: Ask) -> None:
    """tritonclient writes the literals NaN and Infinity."""
    raw = packed("d", float("nan"), float("inf"), float("-inf"))
    (result,) = ask(infer("identity_FP64", tensor("INPUT0", "FP64", [3], raw), binary_input=False))

    assert raw_of(result) == raw


def test_nan_in_a_json_reply_that_is_read_is_rejected_by_name_unless_the_route_says_how(
    ask: Ask, fronts: Addresses, kind: str
) -> None:
    data = tensor("INPUT0", "FP64", [3], packed("d", 1, float("nan"), float("-inf")))
    (refused,) = tritonclient(fronts["checked"], kind, infer("identity_FP64", data, outputs={"OUTPUT0": False}))
    (literal,) = ask(infer("literal", data, outputs={"OUTPUT0": False}))

    assert refused["error"]["status"] == "400"
    assert "output 'OUTPUT0': element 1 is nan" in refused["error"]["message"]
    assert "translate: {nan: literal}" in refused["error"]["message"]
    assert raw_of(literal) == packed("d", 1, float("nan"), float("-inf"))


@pytest.mark.parametrize(
    ("model", "data"),
    [("literal", b"[1.0,NaN,-Infinity]"), ("string", b'[1.0,"NaN","-Infinity"]'), ("null", b"[1.0,null,null]")],
)
def test_nan_as_the_route_says(fronts: Addresses, model: str, data: bytes) -> None:
    body = b'{"inputs":[{"name":"INPUT0","datatype":"FP64","shape":[3],"data":[1,NaN,-Infinity]}]}'
    reply = post(fronts["http"], f"/v2/models/{model}/infer", body)

    assert b'"shape":[3],"data":%b}' % data in reply.body


def test_bytes_that_are_no_text(fronts: Addresses, kind: str) -> None:
    data = tensor("INPUT0", "BYTES", [2], elements(b"\xff\0", b""))
    (refused,) = tritonclient(fronts["checked"], kind, infer("identity_BYTES", data, outputs={"OUTPUT0": False}))
    sent: Step = {"name": "INPUT0", "datatype": "BYTES", "shape": [2], "data": ["/wA=", ""]}
    sent["parameters"] = {"content_type": "base64"}
    _, answer = exchanges.post(fronts["http"], "/v2/models/base64/infer", inputs=[sent])

    assert refused["error"]["status"] == "400"
    assert "output 'OUTPUT0' holds bytes that are not UTF-8" in refused["error"]["message"]
    assert answer["outputs"][0]["data"] == ["/wA=", ""]
    assert answer["outputs"][0]["parameters"] == {"content_type": "base64"}


# --- what else a server is asked ---


def test_health_and_metadata(ask: Ask) -> None:
    live, ready, server, known, other, unknown, metadata, versioned, config = ask(
        {"op": "live"},
        {"op": "ready"},
        {"op": "server_metadata"},
        {"op": "model_ready", "model": "versioned", "version": "2"},
        {"op": "model_ready", "model": "versioned", "version": "3"},
        {"op": "model_ready", "model": "nobody"},
        {"op": "metadata", "model": "batched"},
        {"op": "metadata", "model": "versioned", "version": "1"},
        {"op": "config", "model": "batched"},
    )

    assert (live, ready, known, other, unknown) == (True, True, True, False, False)
    assert server["name"] == "modelglot"
    extensions = {"binary_tensor_data", "parameters", "classification", "sequence", "model_configuration"}
    assert set(server["extensions"]) == extensions | {"statistics", "schedule_policy"}
    assert metadata == {
        "name": "batched",
        "versions": ["1"],
        "platform": "python",
        "inputs": [{"name": "x", "datatype": "FP32", "shape": [-1, 3]}],
        "outputs": [{"name": "y", "datatype": "FP32", "shape": [-1, 3]}],
    }
    assert versioned["versions"] == ["1"]
    assert (config["name"], config["max_batch_size"], config["input"][0]["dims"]) == ("batched", 8, [3])


def test_the_repository_index_lists_routes_and_what_triton_serves(ask: Ask) -> None:
    (index,) = ask({"op": "index"})

    renamed = ["literal", "string", "null", "base64", "first"]
    assert [entry["name"] for entry in index[: len(renamed)]] == renamed
    assert {(entry["name"], entry["version"], entry["state"]) for entry in index[len(renamed) :]} == {
        (model.name, str(version), "READY") for model in TABLE for version in model.versions
    }


def test_versions(ask: Ask) -> None:
    data = tensor("x", "INT32", [1], packed("i", 0))
    steps = [infer("versioned", data, version=version) for version in ("", "1", "2", "3", "abc")]
    latest, first, second, unknown, word, rewritten = ask(*steps, infer("first", data))

    answers = [(raw_of(result), result["response"]["model_version"]) for result in (latest, first, second, rewritten)]
    assert answers == [(packed("i", number), str(number)) for number in (2, 1, 2, 1)]
    assert rewritten["response"]["model_name"] == "first"
    assert [result["error"]["status"] for result in (unknown, word)] == ["404", "404"]
    assert "'versioned' version 3 is not found" in unknown["error"]["message"]


def test_unknown_names(ask: Ask) -> None:
    data = tensor("INPUT0", "INT32", [1], packed("i", 0))
    infers, metadata, config, unknown_input, unknown_output = ask(
        infer("nobody", data),
        {"op": "metadata", "model": "nobody"},
        {"op": "config", "model": "nobody"},
        infer("identity_INT32", {**data, "name": "other"}),
        infer("identity_INT32", data, outputs=["other"]),
    )

    assert [result["error"]["status"] for result in (infers, metadata, config)] == ["404"] * 3
    assert [result["error"]["status"] for result in (unknown_input, unknown_output)] == ["400"] * 2
    assert "'nobody' is not found" in infers["error"]["message"]
    assert "unexpected inference input 'other'" in unknown_input["error"]["message"]
    assert "unexpected inference output 'other'" in unknown_output["error"]["message"]


def test_errors_of_a_model(ask: Ask) -> None:
    """TritonError's codes, and a Python exception, of which clients see neither paths nor source lines."""
    steps = [infer("fail", tensor("code", "INT32", [1], packed("i", code))) for code in range(10)]
    fine, *refusals, crash = ask(*steps)

    assert raw_of(fine) == packed("i", 0)
    told = [(refusal["error"]["status"], refusal["error"]["message"]) for refusal in refusals]
    statuses = ["400", "500", "404", "400", "503", "501", "400", "400"]
    assert told == [(status, f"refused with code {code}") for code, status in enumerate(statuses, 1)]
    assert crash["error"]["status"] == "500"
    assert crash["error"]["message"].endswith("RuntimeError: crashed with code 9")


def test_id_and_parameters(ask: Ask) -> None:
    data = tensor("x", "INT32", [1], packed("i", 0))
    given = {"text": "é", "integer": -(2**63), "number": 1.5, "flag": True}
    plain, carried, consumed, reserved = ask(
        infer("parameters", data),
        infer("parameters", data, id="request-7", parameters=given),
        infer("parameters", data, priority=3, timeout=30_000_000, headers={"x-secret": "1", "authorization": "b"}),
        # tritonclient itself refuses names that begin with triton_ and those of its own arguments
        infer("parameters", data, parameters={"sequence": 1}),
    )

    assert "id" not in plain["response"]
    assert carried["response"]["id"] == "request-7"
    assert [_parameters(result) for result in (plain, carried, consumed, reserved)] == [{}, given, {}, {"sequence": 1}]


def _parameters(result: Any) -> object:
    (length,) = struct.unpack("<I", raw_of(result)[:4])
    text = raw_of(result)[4:]
    assert len(text) == length
    return json.loads(text or b"{}")


def test_timeout_is_in_microseconds(ask: Ask) -> None:
    data = tensor("x", "INT32", [1], packed("i", 0))
    passed, fine = ask(infer("versioned", data, timeout=1), infer("versioned", data, timeout=60_000_000))

    assert passed["error"]["status"] == "504"
    assert raw_of(fine) == packed("i", 2)


def test_empty_batches_and_several_tensors(ask: Ask) -> None:
    numbers = [tensor(f"INPUT{at}", "INT32", [2], packed("i", 5, at)) for at in (0, 1)]
    both, one, empty = ask(
        infer("add_sub", *numbers),
        infer("add_sub", *numbers, outputs={"OUTPUT1": False}),
        infer("posterior", doubles("theta", [0, 2])),
    )

    sums = [packed("i", 10, 1), packed("i", 0, -1)]
    assert [base64.b64decode(output["raw"]) for output in both["outputs"]] == sums
    assert [(output["name"], base64.b64decode(output["raw"])) for output in one["outputs"]] == [("OUTPUT1", sums[1])]
    assert (empty["outputs"][0]["shape"], raw_of(empty)) == ([0, 1], b"")


def test_large_tensors(ask: Ask) -> None:
    """16 MiB in binary; and JSON of two megabytes, which is read in pieces."""
    large = random.Random(1).randbytes(16 * MIB)
    integers = random.Random(2).randbytes(8 * 100_000)
    step: Step = {"binary_input": False, "outputs": {"OUTPUT0": False}}
    binary, text = ask(
        infer("identity_UINT8", tensor("INPUT0", "UINT8", [16 * MIB], large)),
        infer("identity_INT64", tensor("INPUT0", "INT64", [100_000], integers), **step),
    )

    assert raw_of(binary) == large
    assert raw_of(text) == integers


def test_sixteen_clients_at_once(ask: Ask) -> None:
    numbers = range(16 * 10)
    inputs = [[tensor(f"INPUT{at}", "INT32", [1], packed("i", number)) for at in (0, 1)] for number in numbers]
    steps = [infer("add_sub", *pair, id=str(number)) for number, pair in enumerate(inputs)]
    results = ask(*steps, clients=16)

    assert [(result["response"]["id"], raw_of(result)) for result in results] == [
        (str(number), packed("i", 2 * number)) for number in numbers
    ]
