"""tritonclient, over HTTP and gRPC, against the real MLServer, KServe and Triton, without a gateway: their habits,
which a gateway has to bridge."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from tests.interop.exchanges import call
from tests.interop.processes import Triton, V2Server
from tests.interop.real_clients import (
    SAMPLES,
    Step,
    doubles,
    elements,
    infer,
    number,
    packed,
    raw_of,
    status_of,
    stream,
    tensor,
    tritonclient,
    tritonclient_grpc,
)
from tests.interop.servers.v2_models import TABLE

SERVERS = ("mlserver", "kserve")
POINT = doubles("x", [1, 3], 1, 2.5, -3)
AS_JSON: Step = {"binary_input": False, "binary_output": False}

Ask = Callable[..., list[Any]]


@pytest.fixture(params=SERVERS)
def server(request: pytest.FixtureRequest) -> V2Server:
    found = request.getfixturevalue(request.param)
    assert isinstance(found, V2Server)
    return found


@pytest.fixture(params=[("http", "sync"), ("http", "aio"), ("grpc", "sync"), ("grpc", "aio")], ids="-".join)
def ask(request: pytest.FixtureRequest, server: V2Server) -> Ask:
    """Runs steps against a server in each of tritonclient's four forms."""
    transport, kind = request.param
    if transport == "grpc":
        return lambda *steps: tritonclient_grpc(server.grpc, kind, *steps)
    return lambda *steps: tritonclient(server.http, kind, *steps)


def test_they_tell_their_names_which_are_their_flavours(mlserver: V2Server, kserve: V2Server, triton: Triton) -> None:
    asked = [call(address, "/v2")[2] for address in (mlserver.http, kserve.http, triton.http)]

    assert [told["name"] for told in asked] == ["mlserver", "kserve", "triton"]
    assert ["binary_tensor_data" in told["extensions"] for told in asked] == [False, False, True]


def test_neither_has_bf16(server: V2Server) -> None:
    data = tensor("INPUT0", "BF16", [2], SAMPLES["BF16"])
    (over_grpc,) = tritonclient_grpc(server.grpc, "sync", infer("undeclared", data))
    (over_http,) = tritonclient(server.http, "sync", infer("undeclared", data))

    assert status_of(over_grpc) in ("INTERNAL", "INVALID_ARGUMENT")
    assert status_of(over_http) in ("422", "400")


def test_no_server_has_a_model_config(ask: Ask) -> None:
    assert status_of(ask({"op": "config", "model": "double"})[0]) in ("404", "UNIMPLEMENTED", "None")


@pytest.mark.parametrize(
    ("name", "kind", "form", "status"),
    [
        ("mlserver", "sync", {}, "422"),
        ("mlserver", "sync", AS_JSON, "OK"),
        ("mlserver", "aio", AS_JSON, "422"),
        ("kserve", "sync", AS_JSON, "400"),
    ],
    ids=["binary", "JSON without a Content-Type", "JSON as application/octet-stream", "KServe, without a Content-Type"],
)
def test_forms_of_tritonclient(request: pytest.FixtureRequest, name: str, kind: str, form: Step, status: str) -> None:
    """MLServer reads no binary tensors. Of JSON it takes what has no Content-Type, and KServe does not."""
    (result,) = tritonclient(request.getfixturevalue(name).http, kind, infer("double", POINT, **form, outputs=["y"]))

    assert status_of(result) == status
    if status == "OK":
        assert raw_of(result) == packed("d", 2, 5, -6)


def infer_document(name: str, datatype: str, shape: list[int], data: list[object], **members: object) -> object:
    return {**members, "inputs": [{"name": name, "datatype": datatype, "shape": shape, "data": data}]}


def test_json_replies_are_what_the_recorded_ones_say(mlserver: V2Server, kserve: V2Server) -> None:
    document = infer_document("x", "FP64", [1, 3], [1, 2.5, -3], id="a")
    path = "/v2/models/double/infer"
    output = {"name": "y", "shape": [1, 3], "datatype": "FP64", "data": [2.0, 5.0, -6.0]}
    _, cloud_events, told = call(mlserver.http, path, document)
    _, _, with_nulls = call(kserve.http, path, document)

    assert told == {"model_name": "double", "id": "a", "parameters": {}, "outputs": [output]}
    assert [name for name in cloud_events if name.startswith("ce-")]
    assert with_nulls == {
        "model_name": "double",
        "model_version": None,
        "id": "a",
        "parameters": None,
        "outputs": [{**output, "parameters": None}],
    }


def test_nothing_finite_is_null_in_json(server: V2Server) -> None:
    document = infer_document("theta", "FP64", [3, 2], [101, 0, 0, 101, 0, -101], id="")
    _, _, told = call(server.http, "/v2/models/posterior/infer", document)

    assert told["outputs"][0]["data"] == [None, None, None]


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        (
            "mlserver",
            {400: "INVALID_ARGUMENT", 404: "NOT_FOUND", 422: "FAILED_PRECONDITION", 503: "UNKNOWN", 9: "INTERNAL"},
        ),
        # NOT_READY (3) and NotImplementedError (4) end in an AttributeError of its interceptor
        ("kserve", {1: "INVALID_ARGUMENT", 2: "INVALID_ARGUMENT", 3: "UNKNOWN", 4: "UNKNOWN", 9: "INTERNAL"}),
    ],
)
def test_errors_over_grpc(request: pytest.FixtureRequest, name: str, expected: dict[int, str]) -> None:
    address = request.getfixturevalue(name).grpc
    results = tritonclient_grpc(address, "sync", *(infer("fail", number("code", code)) for code in expected))

    assert list(map(status_of, results)) == list(expected.values())


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("mlserver", {400: 400, 404: 404, 422: 422, 503: 503, 9: 500}),
        ("kserve", {1: 400, 2: 500, 3: 503, 4: 501, 9: 500}),
    ],
)
def test_errors_over_http(request: pytest.FixtureRequest, name: str, expected: dict[int, int]) -> None:
    address = request.getfixturevalue(name).http
    path = "/v2/models/fail/infer"
    replies = [call(address, path, infer_document("code", "INT32", [1], [code], id="")) for code in expected]

    assert [status for status, _, _ in replies] == list(expected.values())
    crash = replies[-1][2]
    assert crash == ("Internal Server Error" if name == "mlserver" else {"error": "RuntimeError : refused with code 9"})


def test_mlserver_makes_an_id_for_who_gives_none(mlserver: V2Server) -> None:
    _, _, told = call(mlserver.http, "/v2/models/double/infer", infer_document("x", "FP64", [1, 3], [1, 2, 3]))

    assert len(told["id"]) == 36


def test_mlserver_serves_the_version_of_its_settings_and_no_other_that_it_lists(mlserver: V2Server) -> None:
    asked = [call(mlserver.http, f"/v2/models/versioned{version}") for version in ("", "/versions/v10", "/versions/v9")]

    assert [status for status, _, _ in asked] == [200, 200, 404]
    assert asked[0][2]["versions"] == ["v9", "v10"]


def test_mlserver_tells_its_models(mlserver: V2Server) -> None:
    _, _, over_http = call(mlserver.http, "/v2/repository/index", {})
    (over_grpc,) = tritonclient_grpc(mlserver.grpc, "sync", {"op": "index"})

    names = {model.name for model in TABLE}
    assert ({each["name"] for each in over_http}, {each["state"] for each in over_http}) == (names, {"READY"})
    states = {each["state"] for each in over_grpc["models"]}
    assert ({each["name"] for each in over_grpc["models"]}, states) == (names, {"State.READY"})


def test_mlserver_streams_are_no_streams_of_triton(mlserver: V2Server, kind: str) -> None:
    """Its plain ModelInferResponse is read as a ModelStreamInferResponse, and the model's name as the error."""
    (responses,) = tritonclient_grpc(mlserver.grpc, kind, stream(infer("repeat", number("n", 3))))

    assert [response["error"]["message"] for response in responses] == ["repeat"] * 3


def test_kserve_reads_binary_strings_as_text(kserve: V2Server) -> None:
    data = tensor("INPUT0", "BYTES", [1], elements(b"\xff"))
    (over_http,) = tritonclient(kserve.http, "sync", infer("identity_BYTES", data))
    (over_grpc,) = tritonclient_grpc(kserve.grpc, "sync", infer("identity_BYTES", data))

    assert status_of(over_http) == "500"
    assert raw_of(over_grpc) == elements(b"\xff")


def test_kserve_needs_an_id_for_json(kserve: V2Server) -> None:
    path = "/v2/models/double/infer"
    without, empty = (
        call(kserve.http, path, infer_document("x", "FP64", [1, 3], [1, 2, 3], **members))
        for members in ({}, {"id": ""})
    )

    assert (without[0], empty[0], empty[2]["id"]) == (500, 200, "")


def test_kserve_has_no_versions_over_http_and_ignores_them_over_grpc(kserve: V2Server) -> None:
    suffixes = ("", "/ready")
    over_http = [call(kserve.http, f"/v2/models/double/versions/1{suffix}")[0] for suffix in suffixes]
    (over_grpc,) = tritonclient_grpc(kserve.grpc, "sync", infer("double", POINT, version="1"))

    assert over_http == [501, 501]
    assert raw_of(over_grpc) == packed("d", 2, 5, -6)


def test_kserve_has_no_index_and_no_streams(kserve: V2Server) -> None:
    index, responses = tritonclient_grpc(kserve.grpc, "sync", {"op": "index"}, stream(infer("double", POINT)))

    assert status_of(index) == "UNIMPLEMENTED"
    assert list(map(status_of, responses)) == ["UNIMPLEMENTED"]
    assert call(kserve.http, "/v2/repository/index", {})[0] == 404


def final_of(response: Any) -> bool:
    return bool(response["response"]["parameters"]["triton_final_response"].get("bool_param"))


def test_triton_streams(triton: Triton, kind: str) -> None:
    decoupled, unary, failing = tritonclient_grpc(
        triton.grpc,
        kind,
        stream(infer("repeat", number("n", 3))),
        stream(infer("identity_INT32", number("INPUT0", 7))),
        stream(infer("repeat", number("n", -1)), infer("repeat", number("n", 2))),
    )

    assert [(raw_of(each), final_of(each)) for each in decoupled] == [(packed("i", n), False) for n in range(3)]
    assert [(raw_of(each), final_of(each)) for each in unary] == [(packed("i", 7), True)]
    # an error ends its own request; the stream goes on
    assert failing[1]["error"]["message"] == "refused after 1 responses"
    assert [raw_of(each) for at, each in enumerate(failing) if at != 1] == [packed("i", n) for n in (0, 0, 1)]


def test_triton_ends_a_request_with_an_empty_response_where_that_is_wanted(triton: Triton) -> None:
    # tritonclient's asyncio form takes the option and does nothing with it
    (responses,) = tritonclient_grpc(triton.grpc, "sync", stream(infer("repeat", number("n", 1), final=True, id="a")))

    first, last = responses
    assert (raw_of(first), final_of(first), final_of(last)) == (packed("i", 0), False, True)
    assert (last["outputs"], last["response"]["id"]) == ([], "a")


def test_triton_refuses_a_decoupled_model_outside_a_stream(triton: Triton) -> None:
    (over_grpc,) = tritonclient_grpc(triton.grpc, "sync", infer("repeat", number("n", 1)))
    (over_http,) = tritonclient(triton.http, "sync", infer("repeat", number("n", 1)))

    assert (status_of(over_grpc), status_of(over_http)) == ("UNIMPLEMENTED", "501")
