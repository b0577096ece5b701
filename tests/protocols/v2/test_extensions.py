"""V2's extensions on both wires: bytes as tritonclient and Triton write them, and what a wire cannot carry."""

import base64
import json
from typing import Any

import pytest

from gateway.core.errors import DecodeError, GatewayError, Reason
from gateway.core.messages import Message
from gateway.core.operations import Operation
from gateway.core.protocol import ListenerSettings, Protocol, Target
from gateway.core.requests import DEFAULT_TRANSLATE, Answer, ControlRequest, Request, RequestedOutput, SettingValue
from gateway.core.statistics import ModelStatistics, Statistics
from gateway.protocols.v2 import V2_GRPC, V2_REST

LISTENER = ListenerSettings("here")
EVERY = Target("b", "a:1", "triton")
COUNTED = Statistics((ModelStatistics("m", "1", {"inference_count": 2**53 + 1, "batch_stats": []}),))
GRPC = "/inference.GRPCInferenceService/"

SETTINGS: dict[str, tuple[Operation, dict[str, SettingValue]]] = {
    "load": (Operation.LOAD, {"config": '{"name":"m"}', "file:1/m.bin": b"\0\xff", "n": -1}),
    "unload": (Operation.UNLOAD, {"unload_dependents": True}),
    "nothing": (Operation.LOAD, {}),
    "trace": (Operation.TRACE_SETTINGS, {"trace_level": ("A", "B"), "trace_rate": "7", "trace_file": None}),
    "trace with several values": (Operation.TRACE_SETTINGS, {"trace_config": ("A", "B")}),
    "reset of the level": (Operation.TRACE_SETTINGS, {"trace_level": None}),
    "question for traces": (Operation.TRACE_SETTINGS, {}),
    "log": (Operation.LOG_SETTINGS, {"log_info": False, "log_verbose_level": 2**32 - 1, "log_file": ""}),
    "question for logs": (Operation.LOG_SETTINGS, {}),
}

PATTERNS = {
    Operation.LOAD: "POST /v2/repository/models/{model}/load",
    Operation.UNLOAD: "POST /v2/repository/models/{model}/unload",
    Operation.LOG_SETTINGS: "{method} /v2/logging",
}


def rest(request: Request) -> Message:
    """The message as a listener hands it over."""
    message = V2_REST.encode_request(request, EVERY)
    pattern = PATTERNS.get(request.operation, "{method} /v2/models/{model}/trace/setting" if request.model else "")
    pattern = (pattern or "{method} /v2/trace/setting").replace("{method}", message.method)
    assert pattern.replace("{model}", "m") == f"{message.method} {message.path}"
    return Message(
        message.method, message.path, parts=message.parts, pattern=pattern, captures={"model": request.model}
    )


@pytest.mark.parametrize("case", SETTINGS)
def test_control_requests_survive_a_round_trip(case: str) -> None:
    operation, settings = SETTINGS[case]
    model = "" if operation is Operation.LOG_SETTINGS else "m"
    request = ControlRequest(operation, model, settings=settings)
    for protocol, message in ((V2_REST, rest(request)), (V2_GRPC, V2_GRPC.encode_request(request, EVERY))):
        found = protocol.decode_request(message, LISTENER)
        assert isinstance(found, ControlRequest)
        assert (found.operation, found.model, found.settings) == (operation, model, settings)


def test_triton_gets_the_json_that_it_takes() -> None:
    load = V2_REST.encode_request(ControlRequest(Operation.LOAD, "m/1", settings=SETTINGS["load"][1]), EVERY)
    assert (load.method, load.path) == ("POST", "/v2/repository/models/m%2F1/load")
    file = base64.b64encode(b"\0\xff").decode()
    assert json.loads(bytes(load.body)) == {"parameters": {"config": '{"name":"m"}', "file:1/m.bin": file, "n": -1}}

    trace = V2_REST.encode_request(ControlRequest(Operation.TRACE_SETTINGS, settings=SETTINGS["trace"][1]), EVERY)
    assert (trace.method, trace.path) == ("POST", "/v2/trace/setting")
    assert json.loads(bytes(trace.body)) == {"trace_level": ["A", "B"], "trace_rate": "7", "trace_file": None}


def returned(protocol: Protocol, answer: Answer, request: Request) -> Any:
    """The answer as a client reads it."""
    return protocol.decode_response(protocol.encode_response(answer, request, DEFAULT_TRANSLATE), request, EVERY)


EACH_WIRE = pytest.mark.parametrize("protocol", [V2_REST, V2_GRPC], ids=lambda each: each.name)


@pytest.mark.parametrize("operation", [Operation.MODEL_STATISTICS, Operation.ALL_STATISTICS])
@EACH_WIRE
def test_statistics_survive_a_round_trip(protocol: Any, operation: Operation) -> None:
    [each] = returned(protocol, COUNTED, Request(operation, "m")).models
    assert (each.name, each.version, each.counters["inference_count"]) == ("m", "1", 2**53 + 1)


CONFIG: dict[str, Any] = {
    "name": "m",
    "input": [{"name": "x", "dims": [-1, 2**53 + 1]}],
    "instance_group": [{"name": "m_0", "count": 1}, {"name": "m_0b"}],
    "sequence_batching": {"direct": {"minimum_slot_utilization": 0.1}},
    "parameters": {"k": {"string_value": "v"}},
}


def test_a_configuration_is_the_same_document_over_both_wires() -> None:
    found = returned(V2_GRPC, CONFIG, Request(Operation.CONFIG, "m"))
    assert found["input"][0]["dims"] == [-1, 2**53 + 1]
    assert found["sequence_batching"]["direct"]["minimum_slot_utilization"] == 0.1
    assert found["parameters"] == CONFIG["parameters"]
    assert (found["max_batch_size"], found["batch_input"], found["metric_tags"]) == (0, [], {})
    assert "dynamic_batching" not in found


@EACH_WIRE
def test_a_configuration_has_the_clients_name(protocol: Any) -> None:
    found = returned(protocol, CONFIG, Request(Operation.CONFIG, "alias"))
    assert found["name"] == "alias"
    assert [each["name"] for each in found["instance_group"]] == ["alias_0", "m_0b"]


def test_an_unknown_member_of_a_configuration_passes_over_rest_only() -> None:
    request = Request(Operation.CONFIG, "m")
    config = {"name": "m", "newer": {"than": "the schema"}}
    written = V2_REST.encode_response(config, request, DEFAULT_TRANSLATE)
    assert json.loads(bytes(written.body)) == config
    assert "newer" not in returned(V2_GRPC, config, request)


def test_a_member_of_another_type_is_the_backends_fault() -> None:
    with pytest.raises(GatewayError) as caught:
        V2_GRPC.encode_response({"name": "m", "input": 5}, Request(Operation.CONFIG, "m"), DEFAULT_TRANSLATE)
    assert caught.value.reason is Reason.INVALID_OUTPUT
    assert "inference.ModelConfig" in caught.value.message


LOAD = PATTERNS[Operation.LOAD]
BAD = [
    (LOAD, {"parameters": []}, "parameters must be an object, not []"),
    (LOAD, {"parameters": {"config": {}}}, "'config' must be a string"),
    (LOAD, {"parameters": {"file:1/m": "?"}}, "'file:1/m' is not base64"),
    (LOAD, {"parameters": {"file:1/m": 1}}, "'file:1/m' must be a string of base64"),
    ("POST /v2/trace/setting", {"trace_rate": 5}, "'trace_rate' must be a string, a list of strings or null, not 5"),
    ("POST /v2/trace/setting", {"trace_level": ["A", 1]}, "'trace_level' must be a string, a list of strings"),
    ("POST /v2/logging", {"log_info": None}, "'log_info' must be a string, an integer or a boolean, not None"),
    ("POST /v2/logging", {"log_verbose_level": 2**63}, "'log_verbose_level' must be a string, an integer"),
]


@pytest.mark.parametrize(("pattern", "document", "text"), BAD)
def test_refuses_malformed_settings(pattern: str, document: object, text: str) -> None:
    message = Message("POST", pattern=pattern, captures={"model": "m"}, parts=(json.dumps(document).encode(),))
    with pytest.raises(DecodeError) as caught:
        V2_REST.decode_request(message, LISTENER)
    assert text in str(caught.value)


@pytest.mark.parametrize(
    ("protocol", "operation", "setting"),
    [
        (V2_REST, Operation.LOAD, b"bytes"),
        (V2_GRPC, Operation.LOG_SETTINGS, -1),
        (V2_GRPC, Operation.LOG_SETTINGS, 2**32),
        (V2_GRPC, Operation.LOG_SETTINGS, b"bytes"),
    ],
)
def test_a_setting_that_the_wire_cannot_carry_is_refused_by_name(
    protocol: Any, operation: Operation, setting: SettingValue
) -> None:
    with pytest.raises(GatewayError) as caught:
        protocol.encode_request(ControlRequest(operation, "m", settings={"key": setting}), EVERY)
    assert caught.value.reason is Reason.INVALID_INPUT
    assert "'key'" in caught.value.message


def test_a_setting_that_is_no_unicode_is_refused() -> None:
    request = ControlRequest(Operation.LOAD, "m", settings={"config": "\ud800"})
    with pytest.raises(GatewayError, match=r"the request: .*not UTF-8"):
        V2_GRPC.encode_request(request, EVERY)


@pytest.mark.parametrize(
    ("method", "body"),
    [
        ("RepositoryModelLoad", b"\x0a\x01r\x12\x01m"),  # {repository_name: "r", model_name: "m"}
        ("RepositoryIndex", b"\x0a\x01r"),  # {repository_name: "r"}
    ],
)
def test_another_repository_is_refused(method: str, body: bytes) -> None:
    message = Message(pattern=f"{GRPC}{method}", parts=(body,))
    with pytest.raises(GatewayError) as caught:
        V2_GRPC.decode_request(message, LISTENER)
    assert caught.value.reason is Reason.UNSUPPORTED
    assert "'repository_name'" in caught.value.message


OF_EXTENSIONS = [
    (Request(Operation.CONFIG, "m"), "model_configuration"),
    (Request(Operation.MODEL_STATISTICS, "m"), "statistics"),
    (Request(Operation.ALL_STATISTICS), "statistics"),
    (ControlRequest(Operation.LOAD, "m"), "model_repository"),
    (ControlRequest(Operation.UNLOAD, "m"), "model_repository"),
    (ControlRequest(Operation.TRACE_SETTINGS, "m"), "trace"),
    (ControlRequest(Operation.LOG_SETTINGS), "logging"),
    (Request(Operation.INFER, "m", outputs=(RequestedOutput("y", {"classification": 2}),)), "classification"),
]


@EACH_WIRE
@pytest.mark.parametrize(("request_", "extension"), OF_EXTENSIONS)
def test_only_servers_that_list_an_extension_are_asked(protocol: Any, request_: Request, extension: str) -> None:
    """If `flavor` is configured, the server's list is not known: Triton and gateways then get every request."""
    for target in (
        Target("b", flavor="triton", extensions=frozenset({"other"})),
        Target("b", flavor="binary", extensions=frozenset()),
        Target("b", flavor="mlserver"),
        Target("b", flavor="kserve"),
        Target("b", flavor="plain"),
    ):
        if target.flavor == "mlserver" and extension == "model_repository":
            assert protocol.encode_request(request_, target)  # which MLServer has, and does not list
            continue
        with pytest.raises(GatewayError) as caught:
            protocol.encode_request(request_, target)
        assert caught.value.reason is Reason.UNSUPPORTED
        assert f"extension {extension!r}" in caught.value.message
    for target in (Target("b", flavor="binary", extensions=frozenset({extension})), Target("b", flavor="binary")):
        assert protocol.encode_request(request_, target)


@pytest.mark.parametrize("kind", ["system", "cuda", "tpu"])
def test_shared_memory_is_refused_by_name(kind: str) -> None:
    patterns = [(V2_REST, each) for each in V2_REST.patterns if f"{kind}sharedmemory" in each]
    patterns += [(V2_GRPC, each) for each in V2_GRPC.patterns if f"{kind.title()}SharedMemory" in each]
    assert len(patterns) == 8
    for protocol, pattern in patterns:
        with pytest.raises(GatewayError) as caught:
            protocol.decode_request(Message(pattern=pattern, captures={"region": "r"}), LISTENER)
        assert caught.value.reason is Reason.UNSUPPORTED
        assert f"{kind} shared memory cannot cross the gateway" in caught.value.message
