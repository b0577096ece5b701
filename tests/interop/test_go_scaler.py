"""KEDA's external scaler, asked by grpc-go, as KEDA asks: from the schema of the contract, by reflection, and over TLS
with a client's certificate."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from signal import SIGKILL

import pytest

from tests.attacks.attacked import reference
from tests.interop.exchanges import Addresses, Listen, listening, post
from tests.interop.go_clients import KEDA, Step, buf, connect, invoke, k6, start_k6, trusting
from tests.interop.processes import eventually
from tests.limits import GENEROUS
from tests.tls.certificates import Authority, Files

SERVICE = "externalscaler.ExternalScaler"
CONFIG = """
listeners: [{{name: http, bind: "127.0.0.1:{http}", protocols: [v2-rest]}}]
scaler: {{bind: "127.0.0.1:{scaler}"{tls}}}
backends:
  lab: {{protocol: v2-grpc, endpoints: ["{works}"], max_in_flight: 2, policies: [{{timeout: {{seconds: 60}}}}]}}
  other: {{protocol: v2-grpc, endpoints: ["{works}"], policies: [{{timeout: {{seconds: 60}}}}]}}
routes: [{{match: {{model: slow}}, backend: lab}}, {{match: {{model: "*"}}, backend: other}}]
"""


@pytest.fixture(scope="module")
def works(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with reference(tmp_path_factory.mktemp("works"), "v2-grpc", "slow") as address:
        yield address


@pytest.fixture(scope="module")
def addresses(listen: Listen, works: str) -> Addresses:
    return listen(CONFIG, works=works, tls="")


def ref(**metadata: str) -> Step:
    """A ScaledObject with this metadata, and KEDA's own key beside it."""
    return {"name": "lab", "namespace": "models", "scalerMetadata": {"scalerAddress": "gateway:9092", **metadata}}


def ask(method: str, **metadata: str) -> Step:
    return invoke(f"{SERVICE}/{method}", ref(**metadata))


def value(metric: str, **metadata: str) -> Step:
    return invoke(f"{SERVICE}/GetMetrics", {"scaledObjectRef": ref(**metadata), "metricName": metric})


@pytest.mark.parametrize("protos", [[KEDA], []], ids=["contract", "reflection"])
def test_it_answers_all_questions(addresses: Addresses, tmp_path: Path, protos: Sequence[str]) -> None:
    active, specs, target, calls, queue = (
        ask("IsActive", backend="other"),
        ask("GetMetricSpec", backend="lab"),
        ask("GetMetricSpec", backend="other", target="2.5", metric="queue"),
        value("calls", backend="lab"),
        value("queue", backend="lab"),
    )
    _, *results = k6(
        tmp_path, connect(addresses["scaler"], reflect=not protos), active, specs, target, calls, queue, protos=protos
    )
    assert [(each["status"], each["error"]) for each in results] == [(0, None)] * 5
    assert [each["message"] for each in results] == [
        {"result": False},
        {"metricSpecs": [{"metricName": "calls", "targetSize": "2", "targetSizeFloat": 2}]},
        {"metricSpecs": [{"metricName": "queue", "targetSize": "3", "targetSizeFloat": 2.5}]},
        {"metricValues": [{"metricName": "calls", "metricValue": "0", "metricValueFloat": 0}]},
        {"metricValues": [{"metricName": "queue", "metricValue": "0", "metricValueFloat": 0}]},
    ]


def test_wrong_metadata_are_refused(addresses: Addresses, tmp_path: Path) -> None:
    steps = {
        "metadata.backend: unknown backend 'others'; did you mean 'other'?": ask("IsActive", backend="others"),
        "metadata.backend: expected the name of a backend": ask("IsActive"),
        "metadata: 'backendd' is unknown; did you mean 'backend'?": ask("IsActive", backendd="lab", backend="lab"),
        "metadata.target: expected a number": ask("GetMetricSpec", backend="lab", target="many"),
        "metadata.target: set the number of calls": ask("GetMetricSpec", backend="other"),
        "unknown metric 'calls-of-lab'": value("calls-of-lab", backend="lab"),
    }
    _, *results = k6(tmp_path, connect(addresses["scaler"]), *steps.values(), protos=[KEDA])
    assert [each["status"] for each in results] == [5, 3, 3, 3, 3, 3]
    assert [text for text, each in zip(steps, results, strict=True) if text not in each["error"]] == []


def test_a_stream_hears_of_the_first_call_and_of_the_end(addresses: Addresses, tmp_path: Path) -> None:
    """Of one that is refused, too."""
    method = f"{SERVICE}/StreamIsActive"
    messages = [ref(backend="lab", idle="1")]
    watch: Step = {"op": "stream", "method": method, "messages": messages, "take": 3, "tell": True}
    nobody: Step = {**watch, "messages": [ref(backend="nobody")]}
    with start_k6(tmp_path / "lab", connect(addresses["scaler"]), watch, protos=[KEDA]) as watching:
        _, refused = k6(tmp_path / "nobody", connect(addresses["scaler"]), nobody, protos=[KEDA])
        # k6 leaves out what is false in messages of streams.
        assert eventually(lambda: watching.results() == [[None, {}]], GENEROUS)
        seconds = {"name": "seconds", "datatype": "FP64", "shape": [1, 1], "data": [0.1]}
        assert post(addresses["http"], "/v2/models/slow/infer", inputs=[seconds])[0] == 200
        assert eventually(lambda: watching.results() == [[None, {}, {"result": True}, {}]], GENEROUS)
        watching.process.signal(SIGKILL)
    assert (refused["messages"], refused["error"]["code"]) == ([], 5)


def test_over_tls_a_client_has_a_certificate(works: str, tmp_path: Path) -> None:
    authority = Authority()
    server, client = authority.issue(tmp_path, "127.0.0.1"), authority.issue(tmp_path, "keda", stem="client")
    stranger: Files = Authority().issue(tmp_path, "keda", stem="stranger")
    tls = f", tls: {server.asking('required')}"
    with listening(CONFIG, tmp_path / "gateway", works=works, tls=tls) as addresses:
        scaler = addresses["scaler"]
        _, active, _, refused, _, without = k6(
            tmp_path / "k6",
            connect(scaler, trusting(server, client)), ask("IsActive", backend="lab"), {"op": "close"},
            connect(scaler, trusting(server, stranger), timeout="300ms"), {"op": "close"},
            connect(scaler, trusting(server), timeout="300ms"),
            protos=[KEDA],
        )  # fmt: skip
        assert active["message"] == {"result": False}
        assert ["thrown" in each for each in (refused, without)] == [True, True]
        own = ("--cacert", str(server.ca), "--cert", str(client.certificate), "--key", str(client.key))
        url = f"https://{scaler}/{SERVICE}/IsActive"
        assert buf(url, *own, messages=[ref(backend="lab")])[:2] == (0, [{}])
