"""tritonclient's streams through the gateway: to servers that stream, each in its own form, and to those that do not;
and streams for clients that want one response."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from tests.interop.exchanges import Addresses, Listen, post
from tests.interop.processes import Gateway, eventually
from tests.interop.real_clients import (
    doubles,
    elements,
    infer,
    number,
    packed,
    raw_of,
    status_of,
    stream,
    tensor,
    tritonclient_grpc,
)
from tests.interop.servers.functions import POSTERIOR

ROUTES = """
  - {match: {listener: mlserver, model: last}, backend: mlserver, rewrite: {model: repeat}, translate: {stream: last}}
  - match: {listener: mlserver, model: collect}
    backend: mlserver
    rewrite: {model: repeat}
    translate: {stream: collect}
  - {match: {model: last}, backend: triton, rewrite: {model: repeat}, translate: {stream: last}}
  - {match: {model: collect}, backend: triton, rewrite: {model: repeat}, translate: {stream: collect}}
"""
STREAMING = ("triton", "mlserver")
MIB = 2**20


@pytest.fixture(scope="module")
def fronts(in_front: Listen) -> Addresses:
    return in_front(ROUTES)


def shown(response: Any) -> object:
    """The number of a response of `repeat`, `final` for an empty last one, or the text of an error."""
    if "error" in response:
        return response["error"]["message"]
    if not response["outputs"]:
        return "final" if is_final(response) else "empty"
    return int.from_bytes(raw_of(response), "little")


def is_final(response: Any) -> bool | None:
    """`triton_final_response`; None where it is not there."""
    parameter = response["response"].get("parameters", {}).get("triton_final_response")
    return None if parameter is None else bool(parameter.get("bool_param"))


# --- servers that stream ---


# A model's stream without a response is an UnboundLocalError in MLServer 1.7.1.
COUNTS = {"triton": (3, 0, 1, 2), "mlserver": (3, 1, 2)}


@pytest.mark.parametrize("front", STREAMING)
def test_responses_come_in_order(fronts: Addresses, front: str, kind: str) -> None:
    many, several = tritonclient_grpc(
        fronts[front],
        kind,
        stream(infer("repeat", number("n", 500))),
        stream(*(infer("repeat", number("n", n), id=f"request-{n}") for n in COUNTS[front])),
    )

    assert list(map(shown, many)) == list(range(500))
    told = [(each["response"]["id"], each["response"]["model_name"], shown(each)) for each in several]
    assert told == [(f"request-{n}", "repeat", at) for n in COUNTS[front] for at in range(n)]


@pytest.mark.parametrize("front", STREAMING)
def test_the_empty_final_response_comes_once(fronts: Addresses, front: str) -> None:
    """tritonclient's asyncio form takes the option and does nothing with it."""
    counts = COUNTS[front]
    requests = [infer("repeat", number("n", n), id=f"request-{n}", final=True) for n in counts]
    (responses,) = tritonclient_grpc(fronts[front], "sync", stream(*requests))

    expected: list[tuple[str, object, bool]] = []
    for n in counts:
        expected += [(f"request-{n}", at, False) for at in range(n)] + [(f"request-{n}", "final", True)]
    assert [(each["response"]["id"], shown(each), is_final(each)) for each in responses] == expected


@pytest.mark.parametrize("front", STREAMING)
def test_an_error_ends_its_request_and_the_stream_goes_on(fronts: Addresses, front: str, kind: str) -> None:
    (responses,) = tritonclient_grpc(
        fronts[front],
        kind,
        stream(
            infer("repeat", number("n", -2)),
            infer("repeat", number("n", 1)),
            infer("nobody", number("n", 1)),
            infer("repeat", number("n", 2)),
        ),
    )
    seen = list(map(shown, responses))

    assert seen[:2] + seen[3:4] + seen[5:] == [0, 1, 0, 0, 1]
    assert "refused after 2 responses" in str(seen[2])
    assert "nobody" in str(seen[4])


def test_what_the_gateway_refuses_is_told_inside_the_stream(fronts: Addresses, kind: str) -> None:
    cut = tensor("n", "INT32", [1], packed("i", 1))
    (responses,) = tritonclient_grpc(
        fronts["triton"],
        kind,
        stream(
            infer("repeat", cut, parameters={"shared_memory_region": "r"}),
            infer("repeat", number("n", 1)),
            infer("repeat", number("wrong", 1)),
            infer("repeat", number("n", 1)),
        ),
    )
    first, *rest = map(shown, responses)

    assert "shared_memory_region" in str(first)
    assert [rest[0], rest[2]] == [0, 0]
    assert "unexpected inference input 'wrong'" in str(rest[1])


# --- servers that do not ---


UNARY = {
    "triton": (infer("identity_FP64", doubles("INPUT0", [2], 0.1, -3)), packed("d", 0.1, -3)),
    "by_rest": (infer("identity_FP64", doubles("INPUT0", [2], 0.1, -3)), packed("d", 0.1, -3)),
    "kserve": (infer("double", doubles("x", [1, 3], 1, 2.5, -3)), packed("d", 2, 5, -6)),
    "umbridge": (infer("double", doubles("input0", [3], 1, 2.5, -3)), packed("d", 2, 5, -6)),
}


@pytest.mark.parametrize("front", UNARY)
def test_one_response_to_each_request(fronts: Addresses, front: str, kind: str) -> None:
    step, expected = UNARY[front]
    (responses,) = tritonclient_grpc(fronts[front], kind, stream({**step, "id": "a"}, {**step, "id": "b"}))

    assert [(each["response"]["id"], raw_of(each)) for each in responses] == [("a", expected), ("b", expected)]


@pytest.mark.parametrize("front", UNARY)
def test_one_response_and_the_empty_final_one(fronts: Addresses, front: str) -> None:
    step, expected = UNARY[front]
    (responses,) = tritonclient_grpc(fronts[front], "sync", stream({**step, "final": True, "id": "a"}))

    first, last = responses
    assert (raw_of(first), is_final(first)) == (expected, False)
    assert (last["outputs"], is_final(last), last["response"]["id"]) == ([], True, "a")


def test_a_derivative_is_one_response_too(fronts: Addresses, kind: str) -> None:
    inputs, sens = [[0.5, -1.5]], [2.0]
    tensors = [doubles("input0", [1, 2], *inputs[0]), doubles("sens", [1, 1], *sens)]
    (responses,) = tritonclient_grpc(fronts["umbridge"], kind, stream(infer("posterior.gradient", *tensors)))

    assert list(map(raw_of, responses)) == [packed("d", *POSTERIOR.gradient(0, 0, inputs, sens))]


def test_their_errors_are_told_inside_the_stream(fronts: Addresses, kind: str) -> None:
    failing, fine = infer("fail", number("code", 1)), infer("fail", number("code", 0))
    (kserve,) = tritonclient_grpc(fronts["kserve"], kind, stream(failing, fine))
    crash = infer("crash", doubles("input0", [1], 1))
    (umbridge,) = tritonclient_grpc(fronts["umbridge"], kind, stream(crash, UNARY["umbridge"][0]))

    assert "refused with code 1" in kserve[0]["error"]["message"]
    assert raw_of(kserve[1]) == packed("i", 0)
    assert umbridge[0]["error"]["message"].startswith("the server's error is only")
    assert raw_of(umbridge[1]) == UNARY["umbridge"][1]


# --- clients that want one response ---


@pytest.mark.parametrize("front", STREAMING)
def test_a_unary_client_has_the_stream_as_the_route_says(fronts: Addresses, front: str, kind: str) -> None:
    three = number("n", 3)
    refused, last, collected, failed = tritonclient_grpc(
        fronts[front],
        kind,
        infer("repeat", three),
        infer("last", three),
        infer("collect", three),
        infer("collect", number("n", -2)),
    )

    assert status_of(refused) in ("UNIMPLEMENTED", "INTERNAL")
    assert (last["response"]["model_name"], raw_of(last)) == ("last", packed("i", 2))
    assert (collected["outputs"][0]["shape"], raw_of(collected)) == ([3], packed("i", 0, 1, 2))
    assert "refused after 2 responses" in failed["error"]["message"]


def test_a_rest_client_has_it_so_too(fronts: Addresses) -> None:
    given = {"name": "n", "datatype": "INT32", "shape": [1], "data": [3]}
    answers = {
        model: post(f"http://{fronts['rest']}", f"/v2/models/{model}/infer", inputs=[given])
        for model in ("repeat", "last", "collect")
    }

    assert answers["repeat"][0] == 501
    assert "decoupled" in answers["repeat"][1]["error"]
    assert [answers[model][1]["outputs"][0]["data"] for model in ("last", "collect")] == [[2], [0, 1, 2]]


def test_a_stream_without_responses_is_no_response(fronts: Addresses, kind: str) -> None:
    results = tritonclient_grpc(fronts["triton"], kind, *(infer(name, number("n", 0)) for name in ("last", "collect")))

    assert [status_of(result) for result in results] == ["INTERNAL"] * 2
    assert all("ended without a response" in result["error"]["message"] for result in results)


RESPONSES = 200
"""Of 1 MiB each. Sockets and gRPC's own windows held up to 72 of them on the way."""


def test_a_client_that_stops_reading_stops_the_model(fronts: Addresses, tmp_path: Path) -> None:
    """Nobody keeps what it does not read: neither the gateway, nor the model, which is not asked for more."""
    made, go = tmp_path / "made", tmp_path / "go"
    flood = infer("flood", number("n", RESPONSES), tensor("file", "BYTES", [1], elements(str(made).encode())))
    before = peak(fronts.gateway)
    with ThreadPoolExecutor() as pool:
        client = pool.submit(tritonclient_grpc, fronts["mlserver"], "sync", stream(flood, stall=str(go)))
        try:
            assert eventually(made.exists, seconds=60)
            # Each of these goes the same ways; before the last is answered the model could have made all responses.
            others = [infer("double", doubles("x", [1, 3], 1, 2, 3))] * 150
            assert len(tritonclient_grpc(fronts["mlserver"], "sync", *others)) == len(others)
            stalled, grown = int(made.read_text()), peak(fronts.gateway) - before
        finally:
            go.touch()
        (responses,) = client.result()

    assert stalled < RESPONSES // 2
    assert grown < RESPONSES // 2 * MIB
    assert [raw_of(each) for each in responses] == [elements(bytes([at]) * MIB) for at in range(RESPONSES)]


def peak(gateway: Gateway) -> int:
    """The most memory that the gateway ever had, in bytes."""
    status = Path(f"/proc/{gateway.process.pid}/status").read_text()
    (line,) = (line for line in status.splitlines() if line.startswith("VmHWM"))
    return int(line.split()[1]) * 1024
