"""Clients in Go, grpc-go in `k6` and connect-go in `buf curl`, call V2 and grps over gRPC at a port of its own and at
one that HTTP and others share, with and without TLS: single calls and streams, many at once, large ones, errors,
deadlines, clients that are killed, and connections and gateways that end."""

from __future__ import annotations

import struct
from base64 import b64decode, b64encode
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from random import Random
from signal import SIGCONT, SIGKILL, SIGSTOP, SIGTERM
from typing import Any

import pytest

from gateway.auth.keys import new_key, write_keys
from tests.attacks.attacked import MIB, Attacked, attacked, reference, reference_process
from tests.interop.exchanges import gateway, get, metric
from tests.interop.go_clients import (
    GRPS,
    HEALTH,
    INFER,
    KEDA,
    SERVICE,
    STREAM_INFER,
    V2,
    Step,
    buf,
    connect,
    infer,
    invoke,
    k6,
    start_k6,
    tensor,
    trusting,
)
from tests.interop.processes import eventually, free_port
from tests.limits import GENEROUS
from tests.tls.certificates import Authority, Files

WATCH = "grpc.health.v1.Health/Watch"
MODELS = ("identity", "double", "slow", "count", "fail", "add_sub")
PORTS = ("grpc", "shared", "tls", "shared_tls")
LISTENERS = """
  - {{name: tls, bind: "127.0.0.1:0", protocols: [v2-grpc, grps-grpc], tls: {tls}}}
  - {{name: shared_tls, bind: "127.0.0.1:0", protocols: [v2-rest, v2-grpc, umbridge], tls: {tls}}}
  - {{name: certified, bind: "127.0.0.1:0", protocols: [v2-grpc], tls: {certified}}}
  - {{name: short, bind: "127.0.0.1:0", protocols: [v2-grpc], limits: {{requests_per_connection: 20}}}}
  - {{name: pair, bind: "127.0.0.1:0", protocols: [v2-grpc], limits: {{connections: 2}}}}
  - {{name: small, bind: "127.0.0.1:0", protocols: [v2-grpc], limits: {{message: 100000}}}}
  - {{name: keyed, bind: "127.0.0.1:0", protocols: [v2-grpc], auth: {{}}}}
auth: {{keys: {{file: "{keys}"}}}}
principals: {{alice: {{permissions: [use]}}}}
request_ids: {{}}
"""
ROUTES = """
  - {match: {model: "*"}, backend: works}
"""
STOPPED = """
listeners: [{{name: all, bind: "{address}", protocols: [v2-rest, v2-grpc]}}]
health: {{bind: "{health}"}}
backends:
  works: {{protocol: v2-grpc, endpoints: ["{works}"], flavor: plain, policies: [{{timeout: {{seconds: 60}}}}]}}
routes: [{{match: {{model: "*"}}, backend: works}}]
"""
DOUBLES = tensor("x", "FP64", [1, 3], {"fp64_contents": [1, 2.5, -3]})
DOUBLED = [2.0, 5.0, -6.0]


@dataclass(frozen=True)
class Rig:
    gateway: Attacked
    certificate: Files
    client: Files
    stranger: Files
    key: str
    """Of one who may call the listener `keyed`: the value of `authorization`."""

    def connect(self, port: str, **params: object) -> Step:
        tls = trusting(self.certificate) if port.endswith("tls") else None
        return connect(self.address(port), tls, **params)

    def address(self, port: str) -> str:
        return "{}:{}".format(*self.gateway.address(port))

    def metrics(self, family: str, *labels: str) -> float:
        return metric(self.address("health"), family, *labels)

    @property
    def is_idle(self) -> bool:
        return not self.metrics("gateway_connections_open") and not self.metrics("gateway_requests_in_flight")

    def url(self, port: str, method: str = "") -> str:
        scheme = "https" if port.endswith("tls") else "http"
        return f"{scheme}://{self.address(port)}/{method}"


@pytest.fixture(scope="module")
def rig(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Rig]:
    folder = tmp_path_factory.mktemp("go")
    authority = Authority()
    server, client = authority.issue(folder, "127.0.0.1"), authority.issue(folder, "client", stem="client")
    stranger = Authority().issue(folder, "127.0.0.1", stem="stranger")
    keys, (key, entry) = folder / "keys.yaml", new_key("alice")
    keys.write_text(write_keys([entry]))
    listeners = LISTENERS.format(tls=server.server, certified=server.asking("required"), keys=keys)
    with (
        reference(folder / "works", "v2-grpc", *MODELS) as works,
        attacked(folder / "gateway", works, listener=listeners, routes=ROUTES) as running,
    ):
        yield Rig(running, server, client, stranger, f"Bearer {key}")


def doubles(reply: Any) -> list[float]:
    """Of the first output of a ModelInferResponse, as k6 and buf write it."""
    (raw,) = reply["rawOutputContents"]
    data = b64decode(raw)
    return list(struct.unpack(f"<{len(data) // 8}d", data))


def raw(*numbers: float) -> str:
    return b64encode(struct.pack(f"<{len(numbers)}d", *numbers)).decode()


def number(name: str, datatype: str, value: float) -> Step:
    field = {"FP64": "fp64_contents", "INT32": "int_contents"}[datatype]
    return tensor(name, datatype, [1, 1], {field: [value]})


def told(result: Step) -> tuple[int, str | None]:
    return result["status"], result["error"]


@pytest.mark.parametrize("port", PORTS)
def test_what_a_client_asks_and_infers(rig: Rig, tmp_path: Path, port: str) -> None:
    typed, bytes_, index = (
        infer("double", DOUBLES, id="typed"),
        infer("double", tensor("x", "FP64", [2, 1]), raw=[raw(4, -0.5)]),
        invoke(f"{SERVICE}/RepositoryIndex"),
    )
    asked = [invoke(f"{SERVICE}/{name}") for name in ("ServerLive", "ServerReady", "ServerMetadata")]
    known = [invoke(f"{SERVICE}/{name}", {"name": "double"}) for name in ("ModelReady", "ModelMetadata")]
    results = k6(tmp_path, rig.connect(port), typed, bytes_, *asked, *known, index)[1:]
    assert [told(each) for each in results] == [(0, None)] * len(results)
    first, second, live, ready, server, model_ready, metadata, models = (each["message"] for each in results)
    assert (first["id"], first["modelName"], first["outputs"][0]["shape"]) == ("typed", "double", ["1", "3"])
    assert (doubles(first), doubles(second)) == (DOUBLED, [8.0, -1.0])
    assert (live["live"], ready["ready"], model_ready["ready"]) == (True, True, True)
    assert server["name"] == "modelglot"
    [x] = metadata["inputs"]
    assert (x["name"], x["datatype"], x["shape"]) == ("x", "FP64", ["-1", "-1"])
    assert {each["name"] for each in models["models"]} == {*MODELS, "dead"}


def test_errors_have_code_and_text(rig: Rig, tmp_path: Path) -> None:
    kinds = range(1, 17)
    steps = [infer("fail", number("kind", "INT32", kind)) for kind in kinds]
    unknown, short, method = (
        infer("modèle 100%", DOUBLES),
        infer("double", tensor("x", "FP64", [1, 3]), raw=[raw(1, 2)]),
        invoke("grpc.health.v1.Health/Check", {"service": "nobody"}),
    )
    _, *failed, absent, wrong, nobody = k6(
        tmp_path, rig.connect("grpc"), *steps, unknown, short, method, protos=[V2, HEALTH]
    )
    assert [each["status"] for each in failed] == list(kinds)
    assert told(failed[8 - 1]) == (8, "model 'fail' fails on request with too-large")
    assert absent["status"] == 5
    assert absent["error"].startswith("no model 'modèle 100%'; this server has")
    assert told(wrong) == (3, "input 'x': 16 bytes, but FP64 of shape [1, 3] takes 24")
    assert told(nobody) == (5, "no service 'nobody' here")
    assert wrong["trailers"]["gateway-reason"] == ["invalid-input"]


def test_metadata_go_in_and_come_out(rig: Rig, tmp_path: Path) -> None:
    def ask(**metadata: str) -> Step:
        return infer("double", DOUBLES, metadata=metadata)

    key, named = {"authorization": rig.key}, {"x-request-id": "client:1"}
    _, good, bad, none, wrong = k6(
        tmp_path,
        rig.connect("keyed"),
        ask(**key, **named),
        infer("double", metadata={**key, **named}),
        ask(),
        ask(authorization="Bearer of-nobody"),
    )
    assert doubles(good["message"]) == DOUBLED
    assert (good["trailers"]["x-request-id"], bad["trailers"]["x-request-id"]) == ([named["x-request-id"]],) * 2
    assert [each["status"] for each in (bad, none, wrong)] == [3, 16, 16]


def test_a_deadline_ends_the_call_here_and_at_the_backend(rig: Rig, tmp_path: Path) -> None:
    slow = infer("slow", number("seconds", "FP64", 3000), timeout="200ms")
    _, late, fine = k6(tmp_path, rig.connect("grpc"), slow, infer("double", DOUBLES, timeout="20s"))
    assert late["status"] == 4
    assert doubles(fine["message"]) == DOUBLED
    assert eventually(lambda: rig.is_idle, GENEROUS)


@pytest.mark.parametrize("port", PORTS)
def test_many_users_get_their_own_answers(rig: Rig, tmp_path: Path, port: str) -> None:
    """64 connections, one call after the other; then more at once on one connection than it may have streams."""
    assert eventually(lambda: rig.is_idle, GENEROUS)
    tasks, answered = rig.gateway.look().tasks, rig.metrics("gateway_requests_total", f'listener="{port}"')
    users, calls = (64, 60) if port == "grpc" else (8, 25)
    echo: Step = {"op": "echo", "calls": calls, "sizes": [3, 70, 20_000]}
    for each in k6(tmp_path, rig.connect(port), echo, users=users)[1::2]:
        assert each == {"right": calls, "wrong": [], "failed": {}}
    crowd: Step = {"op": "echo", "calls": 400, "at_once": 200, "sizes": [3, 70, 20_000]}
    assert k6(tmp_path, rig.connect(port), crowd)[1] == {"right": 400, "wrong": [], "failed": {}}
    assert rig.metrics("gateway_requests_total", f'listener="{port}"') == answered + users * calls + 400
    assert eventually(lambda: rig.is_idle, GENEROUS)
    assert rig.gateway.look().tasks <= tasks


@pytest.mark.parametrize("port", ["grpc", "shared_tls"])
def test_eight_mebibytes_there_and_back(rig: Rig, tmp_path: Path, port: str) -> None:
    """More than any window; and grpc-go measures the way with pings while it receives."""
    data = b64encode(Random(1).randbytes(8 * MIB)).decode()
    echo: Step = {"op": "echo", "calls": 2, "at_once": 2, "data": data}
    (_, found) = k6(tmp_path, rig.connect(port, maxReceiveSize=16 * MIB, maxSendSize=16 * MIB), echo)
    assert found == {"right": 2, "wrong": [], "failed": {}}


def count(number_of: int, id: str) -> Step:
    return {"model_name": "count", "id": id, "inputs": [number("n", "INT32", number_of)]}


def stream(*messages: Step, take: int = 0, leave: bool = False, **params: object) -> Step:
    return {
        "op": "stream", "method": STREAM_INFER, "messages": messages, "take": take, "leave": leave, "params": params,
    }  # fmt: skip


def counted(result: Step) -> list[tuple[str, int]]:
    """Of each reply that is no error, the id and the number."""
    replies = [each["inferResponse"] for each in result["messages"] if not each.get("errorMessage")]
    return [(each["id"], int.from_bytes(b64decode(each["rawOutputContents"][0]), "little")) for each in replies]


@pytest.mark.parametrize("port", PORTS)
def test_a_stream_takes_several_requests_and_gives_several_replies(rig: Rig, tmp_path: Path, port: str) -> None:
    both = [count(3, "a"), count(0, "none"), count(2, "b")]
    expected = [("a", 0), ("a", 1), ("a", 2), ("b", 0), ("b", 1)]
    _, whole, open_, long = k6(
        tmp_path, rig.connect(port), stream(*both), stream(*both, take=5), stream(count(2000, "long"))
    )
    assert (counted(whole), whole["error"]) == (expected, None)
    assert (counted(open_), open_["error"]) == (expected, None)
    assert (counted(long), long["error"]) == ([("long", i) for i in range(2000)], None)


def test_errors_within_a_stream_and_of_one(rig: Rig, tmp_path: Path) -> None:
    nobody = {**count(1, "x"), "model_name": "nobody"}
    _, inside, late, after = k6(
        tmp_path,
        rig.connect("grpc"),
        stream(count(2, "a"), nobody, count(-1, "b"), count(1, "c")),
        stream(count(1, "a"), take=2, timeout="800ms"),
        infer("double", DOUBLES),
    )
    assert counted(inside) == [("a", 0), ("a", 1), ("b", 0), ("c", 0)]
    errors = [each["errorMessage"] for each in inside["messages"] if each.get("errorMessage")]
    assert [text.partition(";")[0] for text in errors] == [
        "no model 'nobody'",
        "model 'count' fails on request after 1 responses",
    ]
    assert inside["error"] is None
    assert (counted(late), late["error"]["code"]) == ([("a", 0)], 4)
    assert doubles(after["message"]) == DOUBLED


def test_a_client_that_leaves_within_a_stream_leaves_nothing(rig: Rig, tmp_path: Path) -> None:
    assert eventually(lambda: rig.is_idle, GENEROUS)
    tasks = rig.gateway.look().tasks
    _, left = k6(tmp_path, rig.connect("grpc"), stream(count(100_000, "a"), take=10, leave=True))
    assert counted(left)[:10] == [("a", i) for i in range(10)]
    assert eventually(lambda: rig.is_idle, GENEROUS)
    assert rig.gateway.look().tasks <= tasks


def test_only_trusted_servers_and_clients_are_talked_to(rig: Rig, tmp_path: Path) -> None:
    certified = rig.address("certified")
    call = infer("double", DOUBLES)
    close: Step = {"op": "close"}
    _, good, *refused = k6(
        tmp_path,
        connect(certified, trusting(rig.certificate, rig.client)), call, close,
        connect(certified, trusting(rig.certificate), timeout="300ms"), close,
        connect(certified, trusting(rig.certificate, rig.stranger), timeout="300ms"), close,
        connect(rig.address("tls"), trusting(rig.stranger), timeout="800ms"), close,
        connect(rig.address("tls"), None, timeout="800ms"), close,
        connect(rig.address("grpc"), trusting(rig.certificate), timeout="800ms"),
    )  # fmt: skip
    assert doubles(good["message"]) == DOUBLED
    assert ["thrown" in each for each in refused[1::2]] == [True] * 5
    assert "signed by unknown authority" in refused[5]["thrown"]
    assert "looked like an HTTP/1.1 header" in refused[7]["thrown"]
    assert "does not look like a TLS handshake" in refused[9]["thrown"]
    assert "failed: it sent no certificate" in rig.gateway.log
    assert "Traceback" not in rig.gateway.log


@pytest.mark.parametrize("port", PORTS)
def test_reflection_and_health(rig: Rig, tmp_path: Path, port: str) -> None:
    watch: Step = {"op": "stream", "method": WATCH, "messages": [{}], "take": 1, "params": {"timeout": "800ms"}}
    _, live, infers, check, watched = k6(
        tmp_path,
        rig.connect(port, reflect=True),
        invoke(f"{SERVICE}/ServerLive"),
        infer("double", DOUBLES),
        invoke("grpc.health.v1.Health/Check", {"service": SERVICE}),
        watch,
        protos=[],
    )
    assert live["message"] == {"live": True}
    assert doubles(infers["message"]) == DOUBLED
    assert check["message"] == {"status": "SERVING"}
    assert watched["messages"] == [{"status": "SERVING"}]
    assert watched["error"]["code"] == 4


@pytest.mark.parametrize("protos", [[GRPS], []], ids=["schema", "reflection"])
def test_grps(rig: Rig, tmp_path: Path, protos: Sequence[str]) -> None:
    x = {"name": "x", "dtype": "DT_FLOAT64", "shape": [1, 3], "flat_float64": [1, 2.5, -3]}
    service = "grps.protos.v1.GrpsService"
    _, predicted, live, metadata, absent = k6(
        tmp_path,
        rig.connect("grpc", reflect=not protos),
        invoke(f"{service}/Predict", {"model": "double", "gtensors": {"tensors": [x]}}),
        invoke(f"{service}/CheckLiveness"),
        invoke(f"{service}/ModelMetadata", {"str_data": "double"}),
        invoke(f"{service}/Predict", {"model": "nobody", "gtensors": {"tensors": [x]}}),
        protos=protos,
    )
    assert predicted["message"]["gtensors"]["tensors"][0]["flatFloat64"] == DOUBLED
    assert [each["message"]["status"]["status"] for each in (predicted, live)] == ["SUCCESS"] * 2
    assert metadata["message"]["strData"].startswith("name: double")
    assert (absent["message"]["status"]["code"], absent["message"]["status"]["status"]) == (404, "FAILURE")
    assert "no model 'nobody'" in absent["message"]["status"]["msg"]


def test_a_message_beyond_the_limit_is_refused_while_it_is_sent(rig: Rig, tmp_path: Path) -> None:
    data = b64encode(bytes(3 * MIB)).decode()
    large: Step = {"op": "echo", "calls": 5, "at_once": 5, "data": data}
    _, refused, fine = k6(tmp_path, rig.connect("small"), large, infer("double", DOUBLES))
    assert (refused["right"], refused["wrong"], sum(refused["failed"].values())) == (0, [], 5)
    for text in refused["failed"]:
        assert text.startswith("ResourceExhausted the message of ")
        assert text.endswith(" is larger than limits.message, 100000 bytes; send less, or raise the limit")
    assert doubles(fine["message"]) == DOUBLED


def test_metadata_of_many_frames_and_unknown_methods(rig: Rig, tmp_path: Path) -> None:
    _, fine, unknown = k6(
        tmp_path,
        rig.connect("grpc"),
        infer("double", DOUBLES, metadata={"x-long": "é".encode().hex() * 5000}),
        invoke("externalscaler.ExternalScaler/IsActive"),
        protos=[V2, KEDA],
    )
    assert doubles(fine["message"]) == DOUBLED
    assert told(unknown) == (
        12,
        "no method /externalscaler.ExternalScaler/IsActive here; this listener speaks v2-grpc, grps-grpc",
    )


def test_one_connection_too_many_fails_at_once_and_is_tried_again_ever_more_rarely(rig: Rig, tmp_path: Path) -> None:
    """A connection that seems to be ready would be opened again at once, thousands of times a second."""
    refused = rig.metrics("gateway_connections_refused_total", 'listener="pair"')
    hold = stream(count(1, "a"), take=2, timeout="20s")
    with start_k6(tmp_path / "held", rig.connect("pair"), {**hold, "tell": True}, users=2) as held:
        assert eventually(lambda: [len(each) for each in held.results()] == [2, 2], GENEROUS)
        for each in k6(tmp_path / "more", rig.connect("pair", timeout="2500ms"), users=3):
            assert "context deadline exceeded" in each["thrown"]
            assert "error" in each["thrown"].partition("exceeded")[2]  # why
        # At first, after 1 s, and after 1.6 s more; the pauses vary by a fifth.
        tries = rig.metrics("gateway_connections_refused_total", 'listener="pair"') - refused
        assert 3 <= tries <= 3 * 3
        held.process.signal(SIGKILL)
    assert eventually(lambda: rig.is_idle, GENEROUS)
    assert doubles(k6(tmp_path / "later", rig.connect("pair"), infer("double", DOUBLES))[1]["message"]) == DOUBLED


def test_no_call_is_lost_when_connections_reach_their_last_request(rig: Rig, tmp_path: Path) -> None:
    """Each connection ends after 20 requests, with up to 100 in flight on it: grpc-go goes on at the next one."""
    assert eventually(lambda: rig.is_idle, GENEROUS)
    tasks = rig.gateway.look().tasks
    echo: Step = {"op": "echo", "calls": 250, "at_once": 100, "sizes": [3, 70, 20_000]}
    for each in k6(tmp_path, rig.connect("short"), echo, users=4)[1::2]:
        assert each == {"right": 250, "wrong": [], "failed": {}}
    assert eventually(lambda: rig.is_idle, GENEROUS)
    assert rig.gateway.look().tasks <= tasks


def test_clients_that_are_killed_leave_nothing_and_few_lines(rig: Rig, tmp_path: Path) -> None:
    """Calls in flight, streams that are read and streams that are not."""
    assert eventually(lambda: rig.is_idle, GENEROUS)
    before, lines = rig.gateway.look().tasks, len(rig.gateway.log.splitlines())
    data = b64encode(bytes(MIB)).decode()
    crowds: list[tuple[str, Step]] = [
        ("grpc", {"op": "echo", "calls": 10**6, "at_once": 50, "sizes": [3, 20_000]}),
        ("shared_tls", {"op": "echo", "calls": 10**6, "at_once": 4, "data": data}),
        ("tls", stream(*[count(100_000, "a")] * 5)),
        ("grpc", infer("slow", number("seconds", "FP64", 3000))),
    ]
    with ExitStack() as stack:
        running = []
        for at, (port, step) in enumerate(crowds):
            client = start_k6(tmp_path / str(at), rig.connect(port), step, users=8)
            running.append(stack.enter_context(client).process)
        assert eventually(lambda: rig.metrics("gateway_connections_open") == 8 * len(crowds), GENEROUS)
        assert eventually(lambda: rig.metrics("gateway_requests_in_flight") > 16, GENEROUS)
        for each in running[:3]:
            each.signal(SIGSTOP)  # nothing is read any more
        answered = rig.metrics("gateway_requests_total")
        assert get(rig.address("shared"), "/v2/health/live")[0] == 200
        assert rig.metrics("gateway_requests_total") >= answered
        for each in running:
            each.signal(SIGKILL)
    assert eventually(lambda: rig.is_idle, GENEROUS)
    assert eventually(lambda: rig.gateway.look().tasks <= before, GENEROUS)
    log = rig.gateway.log
    assert len(log.splitlines()) <= lines + 10
    assert "Traceback" not in log


def test_a_gateway_that_stops_answers_what_it_has_and_clients_go_on_at_the_next(tmp_path: Path) -> None:
    address, health = (f"127.0.0.1:{free_port()}" for _ in range(2))
    watch: Step = {"op": "stream", "method": WATCH, "messages": [{}], "take": 3, "tell": True}
    echo: Step = {"op": "echo", "calls": 400, "at_once": 50, "sizes": [3, 70, 20_000], "again": True}
    with reference_process(tmp_path / "works") as (works, server):
        config = STOPPED.format(address=address, health=health, works=works)
        with (
            gateway(config, tmp_path / "first") as first,
            start_k6(tmp_path / "watching", connect(address), watch, protos=[HEALTH]) as watching,
        ):
            assert eventually(lambda: [len(each) for each in watching.results()] == [2], GENEROUS)
            server.signal(SIGSTOP)  # the calls would end before they were counted
            with start_k6(tmp_path / "calling", connect(address), echo, users=4) as calling:
                assert eventually(lambda: metric(health, "gateway_requests_in_flight") >= 200, GENEROUS)
                first.process.signal(SIGTERM)
                server.signal(SIGCONT)
                first.process.wait(GENEROUS)
                with gateway(config, tmp_path / "second"):
                    found = [results[1] for results in calling.wait()]
            [[*_, seen]] = watching.wait()
        assert "cancelled requests: 0" in first.output()
    assert [(each["right"], each["wrong"]) for each in found] == [(400, [])] * 4
    # Only calls that no gateway had: their connection was refused.
    assert {text.partition(" ")[0] for each in found for text in each["failed"]} <= {"Unavailable"}
    assert [text for each in found for text in each["failed"] if "connection refused" not in text] == []
    assert [each["status"] for each in seen["messages"]] == ["SERVING", "NOT_SERVING"]


@pytest.mark.parametrize("port", PORTS)
def test_buf_curl(rig: Rig, port: str) -> None:
    trust = ("--cacert", str(rig.certificate.ca)) if port.endswith("tls") else ()
    if port == "shared_tls":
        # It offers HTTP/1.1 in the handshake as well, and gets that where HTTP is served.
        assert buf(rig.url(port), "--list-services", *trust)[0] < 0
        trust = (*trust, "--http2-prior-knowledge")
    status, services, _ = buf(rig.url(port), "--list-services", *trust)
    assert (status, SERVICE in services, "grpc.health.v1.Health" in services) == (0, True, True)
    status, methods, _ = buf(rig.url(port), "--list-methods", *trust)
    assert (status, INFER in methods) == (0, True)
    asked = {"model_name": "double", "id": "a", "inputs": [DOUBLES]}
    status, [reply], _ = buf(rig.url(port, INFER), *trust, messages=[asked])
    assert (status, reply["id"], doubles(reply)) == (0, "a", DOUBLED)
    status, replies, _ = buf(rig.url(port, STREAM_INFER), *trust, messages=[count(3, "a"), count(2, "b")])
    assert status == 0
    assert counted({"messages": replies}) == [("a", 0), ("a", 1), ("a", 2), ("b", 0), ("b", 1)]
    status, [check], _ = buf(rig.url(port, "grpc.health.v1.Health/Check"), *trust)
    assert (status, check) == (0, {"status": "SERVING"})


def test_buf_curl_is_told_errors(rig: Rig) -> None:
    asked = {"model_name": "modèle", "inputs": [DOUBLES]}
    status, replies, error = buf(rig.url("grpc", INFER), messages=[asked])
    assert (status, replies) == (5, [])
    assert "no model 'modèle'" in error
    status, replies, error = buf(rig.url("keyed", INFER), messages=[{**asked, "model_name": "double"}])
    assert (status, replies) == (16, [])
    key = ("-H", f"authorization: {rig.key}")
    status, [reply], error = buf(rig.url("keyed", INFER), *key, messages=[{**asked, "model_name": "double"}])
    assert (status, doubles(reply)) == (0, DOUBLED)
    status, _, error = buf(rig.url("tls", INFER), messages=[asked])
    assert status < 0
