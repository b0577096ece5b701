"""tritonclient.http and tritonclient.grpc -> gateway -> a real Triton over REST and over gRPC: Triton's extensions.
What comes through is compared with what the same client gets from the same Triton directly."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pytest

from tests.interop import processes
from tests.interop.exchanges import Addresses, Listen, get
from tests.interop.processes import Triton, V2Server
from tests.interop.real_clients import Step, infer, packed, status_of, tensor, tritonclient, tritonclient_grpc

PAIRS = ("rest_rest", "rest_grpc", "grpc_rest", "grpc_grpc")
"""Listeners: the client's wire form, then the backend's."""

HEAD = """
listeners:
  - {{name: rest_rest, bind: "127.0.0.1:{rest_rest}", protocols: [v2-rest], allow_control: true}}
  - {{name: rest_grpc, bind: "127.0.0.1:{rest_grpc}", protocols: [v2-rest], allow_control: true}}
  - {{name: grpc_rest, bind: "127.0.0.1:{grpc_rest}", protocols: [v2-grpc], allow_control: true}}
  - {{name: grpc_grpc, bind: "127.0.0.1:{grpc_grpc}", protocols: [v2-grpc], allow_control: true}}
  - {{name: guarded, bind: "127.0.0.1:{guarded}", protocols: [v2-rest]}}
  - {{name: guarded_grpc, bind: "127.0.0.1:{guarded_grpc}", protocols: [v2-grpc]}}
  - {{name: mlserver, bind: "127.0.0.1:{mlserver}", protocols: [v2-rest]}}
  - {{name: mlserver_grpc, bind: "127.0.0.1:{mlserver_grpc}", protocols: [v2-grpc]}}
reference:
  - {{protocol: umbridge, bind: "127.0.0.1:{science}", models: [posterior]}}
backends:
  rest: {{protocol: v2-rest, endpoints: ["{triton.http}"]}}
  grpc: {{protocol: v2-grpc, endpoints: ["{triton.grpc}"]}}
  science: {{protocol: umbridge, endpoints: ["127.0.0.1:{science}"]}}
  mlserver: {{protocol: v2-rest, endpoints: ["{real_mlserver.http}"]}}
  mlserver_grpc: {{protocol: v2-grpc, endpoints: ["{real_mlserver.grpc}"]}}
routes:
  - {{match: {{model: lab}}, backend: science, rewrite: {{model: posterior}}}}
  - {{match: {{listener: guarded}}, backend: rest}}
  - {{match: {{listener: guarded_grpc}}, backend: grpc}}
  - {{match: {{listener: mlserver}}, backend: mlserver}}
  - {{match: {{listener: mlserver_grpc}}, backend: mlserver_grpc}}
"""
ROUTES = """
  - {{match: {{listener: {pair}, model: alias}}, backend: {back}, rewrite: {{model: single}}}}
  - {{match: {{listener: {pair}, model: first}}, backend: {back}, rewrite: {{model: versioned, version: "1"}}}}
  - {{match: {{listener: {pair}, model: named}}, backend: {back}, rewrite: {{model: batched}},
      translate: {{rename: {{outputs: [{{client: why, backend: y}}]}}}}}}
  - {{match: {{listener: {pair}, model: put_{pair}}}, backend: {back}, rewrite: {{model: new_{pair}}}}}
  - {{match: {{listener: {pair}, model: "*"}}, backend: {back}}}
  - {{match: {{listener: {pair}, operation: log-settings}}, backend: {back}}}
  - {{match: {{listener: {pair}, operation: trace-settings}}, backend: {back}}}
"""
LOADED = ("single", "versioned", "batched", "add_sub", "posterior", "posterior.gradient")


@dataclass
class Site:
    triton: Triton
    at: Addresses

    def ask(self, front: str, *steps: Step) -> list[Any]:
        """What tritonclient of the front's wire form gets through the gateway."""
        ask = tritonclient_grpc if front in GRPC else tritonclient
        return ask(self.at[front], "sync", *steps)

    def direct(self, front: str, *steps: Step) -> list[Any]:
        """What it gets from Triton."""
        if front.startswith("grpc"):
            return tritonclient_grpc(self.triton.grpc, "sync", *steps)
        return tritonclient(self.triton.http, "sync", *steps)


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory, mlserver: V2Server, listen: Listen) -> Iterator[Site]:
    folder = tmp_path_factory.mktemp("extensions")
    options = ["--model-control-mode=explicit", *(f"--load-model={name}" for name in LOADED)]
    options += [f"--trace-config=triton,file={folder / 'trace.json'}", "--trace-config=level=OFF"]
    with processes.start_triton(folder / "triton", *options) as triton:
        routes = "".join(ROUTES.format(pair=pair, back=pair.split("_")[1]) for pair in PAIRS)
        yield Site(triton, listen(HEAD + "{routes}", routes=routes, triton=triton, real_mlserver=mlserver))


GRPC = ("grpc_rest", "grpc_grpc", "guarded_grpc", "mlserver_grpc")

each_pair = pytest.mark.parametrize("pair", PAIRS)


def call(method: str, **arguments: object) -> Step:
    return {"op": "call", "method": method, "arguments": arguments}


def told(pair: str, method: str, **arguments: object) -> Step:
    """The same of a method that gives a document; the gRPC client has it as JSON on request."""
    described = {"as_json": True} if pair.startswith("grpc") else {}
    return call(method, **arguments, **described)


def named(document: Any, name: str) -> Any:
    """What Triton tells of `single`, as told of a model of another name."""
    return json.loads(json.dumps(document).replace('"single', f'"{name}'))


def port(name: str, kind: str, *dims: int) -> Step:
    return {"name": name, "data_type": f"TYPE_{kind}", "dims": list(dims)}


def loadable(**more: object) -> str:
    """A configuration of the model `single`, with what else there is in one."""
    document = {
        "backend": "python",
        "input": [port("x", "FP32", -1, 3)],
        "output": [port("y", "FP32", -1, 3)],
        "parameters": {"kind": {"string_value": "double"}},
        "instance_group": [{"kind": "KIND_CPU", "count": 1}],
        **more,
    }
    return json.dumps(document)


SOURCE = """
import json, os
import numpy as np
import triton_python_backend_utils as pb

class TritonPythonModel:
    def execute(self, requests):
        path = os.path.join(os.path.dirname(__file__), "add.bin")
        text = open(path, "rb").read()
        add = np.float32(len(text))
        return [pb.InferenceResponse([pb.Tensor("y", pb.get_input_tensor_by_name(each, "x").as_numpy() + add)])
                for each in requests]
"""


RICH = (
    {"max_batch_size": 4, "dynamic_batching": {
        "preferred_batch_size": [2, 4], "max_queue_delay_microseconds": 100, "priority_levels": 2,
        "default_priority_level": 1, "priority_queue_policy": {"1": {"default_timeout_microseconds": 2**53 + 1}},
    }},
    {"max_batch_size": 4, "sequence_batching": {
        "max_sequence_idle_microseconds": 5_000_000, "direct": {"minimum_slot_utilization": 0.1},
        "control_input": [{"name": "START", "control": [
            {"kind": "CONTROL_SEQUENCE_START", "fp32_false_true": [0, 1]}]}],
        "state": [{"input_name": "i", "output_name": "o", "data_type": "TYPE_INT64", "dims": [-1, 2]}],
    }},
    {"version_policy": {"specific": {"versions": [1]}}, "model_warmup": [{"name": "warm", "batch_size": 0}],
     "metric_tags": {"a": "b"}, "optimization": {"execution_accelerators": {
         "cpu_execution_accelerator": [{"name": "none", "parameters": {"p": "1"}}]}}},
    {"model_transaction_policy": {"decoupled": True}, "response_cache": {"enable": False}},
)  # fmt: skip


@each_pair
def test_a_models_configuration_is_that_of_triton(site: Site, pair: str) -> None:
    step = told(pair, "get_model_config", model_name="single")
    [direct], [through] = site.direct(pair, step), site.ask(pair, step)

    assert through == direct
    assert "single_0" in json.dumps(direct)


@each_pair
def test_a_configuration_has_the_clients_name_and_the_routes_version(site: Site, pair: str) -> None:
    names = ("alias", "first", "nobody", "posterior.gradient")
    alias, first, nobody, gradient, second = site.ask(
        pair,
        *(told(pair, "get_model_config", model_name=name) for name in names),
        told(pair, "get_model_config", model_name="versioned", model_version="9"),
    )
    [single] = site.direct(pair, told(pair, "get_model_config", model_name="single"))

    assert alias == named(single, "alias")
    assert '"name": "first"' in json.dumps(first)
    assert [status_of(each) for each in (second, nobody)] == ["NOT_FOUND" if pair.startswith("grpc") else "404"] * 2
    assert '"name": "posterior.gradient"' in json.dumps(gradient)


@pytest.mark.parametrize("more", RICH, ids=lambda each: ", ".join(each))
def test_every_sort_of_member_is_converted_as_triton_does(site: Site, more: Step) -> None:
    name = f"rich{RICH.index(more)}"
    load = call("load_model", model_name=name, config=loadable(**more))
    load["files"] = {"file:1/model.py": base64.b64encode(SOURCE.encode()).decode()}
    assert tritonclient(site.triton.http, "sync", load) == [None]

    for pair in PAIRS:
        step = told(pair, "get_model_config", model_name=name)
        [direct], [through] = site.direct(pair, step), site.ask(pair, step)
        assert through == direct
        assert next(iter(more)) in json.dumps(direct)


@each_pair
def test_statistics_of_a_model(site: Site, pair: str) -> None:
    one = infer("single", tensor("x", "FP32", [1, 3], packed("f", 1, 2, 3)))
    steps = [
        told(pair, "get_inference_statistics", model_name=name, **more)
        for name, more in (("single", {}), ("versioned", {}), ("versioned", {"model_version": "2"}))
    ]
    assert status_of(site.ask(pair, one)[0]) == "OK"

    assert site.ask(pair, *steps) == site.direct(pair, *steps)
    [alias] = site.ask(pair, told(pair, "get_inference_statistics", model_name="alias"))
    assert alias == named(site.direct(pair, steps[0])[0], "alias")


@each_pair
def test_statistics_of_all_models_have_the_clients_names(site: Site, pair: str) -> None:
    step = told(pair, "get_inference_statistics")
    [direct], [through] = site.direct(pair, step), site.ask(pair, step)

    counted = {(each["name"], each["version"]): each for each in through["model_stats"]}
    for each in direct["model_stats"]:
        assert counted.pop((each["name"], each["version"])) == each
    assert set(counted) == {("alias", "1"), ("first", "1"), ("named", "1")}


def classified(result: Any) -> list[bytes]:
    [output] = result["outputs"]
    assert output["datatype"] == "BYTES"
    raw, values = base64.b64decode(output["raw"]), []
    while raw:
        size = int.from_bytes(raw[:4], "little")
        values.append(raw[4 : 4 + size])
        raw = raw[4 + size :]
    return values


@each_pair
def test_the_classes_of_an_output(site: Site, pair: str) -> None:
    x = tensor("x", "FP32", [2, 3], packed("f", 1, 3, 2, 6, 5, 4))
    batched, named_, alias = site.ask(
        pair,
        infer("batched", x, classes={"y": 2}),
        infer("named", x, classes={"why": 2}),
        infer("alias", x, classes={"y": 1}),
    )
    best = [b"6.000000:1", b"4.000000:2", b"12.000000:0", b"10.000000:1"]

    assert classified(batched) == classified(named_) == best
    assert (batched["outputs"][0]["shape"], named_["outputs"][0]["shape"]) == ([2, 2], [2, 2])
    assert named_["outputs"][0]["name"] == "why"
    assert classified(alias) == [b"12.000000:3"]


@pytest.mark.parametrize("front", ["mlserver", "mlserver_grpc"])
def test_classes_of_a_server_without_them_are_refused_by_name(site: Site, front: str) -> None:
    x = tensor("x", "FP64", [1, 3], packed("d", 1, 2, 3))
    step = infer("double", x, classes={"y": 1})
    [mlserver] = site.ask(front, step)
    two = tensor("input0", "FP64", [1, 2], packed("d", 1, 2))
    [science] = site.ask("rest_rest", infer("lab", two, classes={"output0": 1}))

    assert status_of(mlserver) in ("501", "UNIMPLEMENTED")
    assert "extension 'classification'" in mlserver["error"]["message"]
    assert "'classification'" in science["error"]["message"]
    assert status_of(science) in ("400", "501")


@each_pair
def test_models_are_loaded_and_unloaded(site: Site, pair: str) -> None:
    ready = {"op": "model_ready", "model": "upper"}
    results = site.ask(
        pair,
        ready,
        {"op": "index"},
        {"op": "load", "model": "upper"},
        ready,
        {"op": "index"},
        call("unload_model", model_name="upper", unload_dependents=True),
        {"op": "load", "model": "nobody"},
        {"op": "unload", "model": "nobody"},
    )
    states = [_state(index, "upper") for index in (results[1], results[4])]

    assert (results[0], results[2], results[3], results[5]) == (False, None, True, None)
    assert (states[0] == "READY", states[1]) == (False, "READY")
    assert "failed to load 'nobody'" in results[6]["error"]["message"]
    assert results[7] is None


def _state(index: Any, model: str) -> str:
    models = index if isinstance(index, list) else index["models"]
    return next(str(each.get("state", "")) for each in models if each["name"] == model)


@each_pair
@pytest.mark.parametrize("name", ["same", "put"])
def test_a_model_is_loaded_with_a_configuration_and_files(site: Site, pair: str, name: str) -> None:
    """Under its own name and under another; the configuration has the client's, and the files hold every byte."""
    name = f"{name}_{pair}"
    files = {"file:1/model.py": SOURCE.encode(), "file:1/add.bin": bytes(range(256))}
    load = call("load_model", model_name=name, config=loadable(name=name))
    load["files"] = {key: base64.b64encode(each).decode() for key, each in files.items()}
    one = infer(name, tensor("x", "FP32", [1, 3], packed("f", 1, 2, 3)))
    ready = {"op": "model_ready", "model": name}

    loaded, config, result, unloaded = site.ask(
        pair, load, told(pair, "get_model_config", model_name=name), one, {"op": "unload", "model": name}
    )

    assert (loaded, unloaded) == (None, None), loaded
    assert f'"name": "{name}"' in json.dumps(config)
    assert base64.b64decode(result["outputs"][0]["raw"]) == packed("f", 257, 258, 259)
    assert site.ask(pair, ready) == [False]


@each_pair
def test_trace_settings(site: Site, pair: str) -> None:
    get = told(pair, "get_trace_settings")
    get_single, get_alias = (told(pair, "get_trace_settings", model_name=name) for name in ("single", "alias"))
    assert site.ask(pair, get, get_single, get_alias) == site.direct(pair, get, get_single, get_single)

    changes = {"trace_rate": "7", "trace_level": ["TIMESTAMPS", "TENSORS"]}
    try:
        [changed] = site.ask(pair, told(pair, "update_trace_settings", model_name="alias", settings=changes))
        assert site.direct(pair, get_single) == [changed]
        assert _setting(changed, "trace_rate") == "7"
        assert sorted(_setting(changed, "trace_level")) == ["TENSORS", "TIMESTAMPS"]
        [unchanged] = site.ask(pair, get)
        assert _setting(unchanged, "trace_rate") != "7"
    finally:
        reset = dict.fromkeys(changes)
        [cleared] = site.ask(pair, told(pair, "update_trace_settings", model_name="alias", settings=reset))
    assert site.ask(pair, get) == [cleared]


def _setting(document: Any, key: str) -> Any:
    if "settings" not in document:
        return document[key]
    values = document["settings"][key]["value"]
    return values if key == "trace_level" else values[0]


@each_pair
def test_log_settings(site: Site, pair: str) -> None:
    get = told(pair, "get_log_settings")
    [before] = site.ask(pair, get)
    assert [before] == site.direct(pair, get)

    changes = {"log_verbose_level": 1, "log_warning": False, "log_format": "ISO8601"}
    try:
        [changed] = site.ask(pair, told(pair, "update_log_settings", settings=changes))
        assert site.direct(pair, get) == [changed]
        assert changed != before
    finally:
        back = {"log_verbose_level": 0, "log_warning": True, "log_format": "default"}
        assert site.ask(pair, told(pair, "update_log_settings", settings=back)) == [before]


@each_pair
def test_asyncio_clients_get_the_same(site: Site, pair: str) -> None:
    steps = [
        told(pair, "get_model_config", model_name="alias"),
        told(pair, "get_inference_statistics"),
        told(pair, "get_trace_settings", model_name="single"),
        told(pair, "get_log_settings"),
    ]
    ask = tritonclient_grpc if pair in GRPC else tritonclient
    assert ask(site.at[pair], "aio", *steps) == site.ask(pair, *steps)


CONTROLS = (
    {"op": "load", "model": "single"},
    {"op": "unload", "model": "single"},
    call("get_trace_settings"),
    call("get_trace_settings", model_name="single"),
    call("get_log_settings"),
)


@pytest.mark.parametrize("front", ["guarded", "guarded_grpc"])
def test_nobody_controls_a_server_without_leave(site: Site, front: str) -> None:
    for result in site.ask(front, *CONTROLS):
        assert status_of(result) in ("403", "PERMISSION_DENIED")
        assert "`allow_control: true`" in result["error"]["message"]


@pytest.mark.parametrize("front", ["mlserver", "mlserver_grpc"])
def test_a_server_without_statistics_is_told_by_name(site: Site, front: str) -> None:
    one, every, config = site.ask(
        front,
        call("get_inference_statistics", model_name="double"),
        call("get_inference_statistics"),
        {"op": "config", "model": "double"},
    )
    for result in (one, every):
        assert status_of(result) in ("501", "UNIMPLEMENTED")
        assert "extension 'statistics'" in result["error"]["message"]
    written = config.get("config", config)
    ports = [each["name"] for each in (*written["input"], *written["output"])]
    assert (written["name"], ports) == ("double", ["x", "y"])


@each_pair
def test_an_umbridge_model_has_neither_statistics_nor_settings(site: Site, pair: str) -> None:
    asked = [call(method, model_name="lab") for method in ("get_inference_statistics", "get_trace_settings")]
    for result in site.ask(pair, *asked, {"op": "load", "model": "lab"}):
        assert status_of(result) in ("501", "UNIMPLEMENTED")
        assert "an extension of V2 servers, which backend 'science' (umbridge) is not" in result["error"]["message"]


def test_extensions_are_listed_where_some_backend_has_them(site: Site) -> None:
    """perf_analyzer asks for statistics where they are listed, and ends if it gets none."""
    [free, guarded, mlserver] = [
        set(get(site.at[front], "/v2")[1]["extensions"]) for front in ("rest_grpc", "guarded", "mlserver")
    ]
    always = {"binary_tensor_data", "parameters"}
    asked = {"classification", "sequence", "model_configuration", "statistics", "schedule_policy"}

    assert free == always | asked | {"model_repository", "trace", "logging"}
    assert guarded == always | asked
    assert mlserver == always


@pytest.mark.parametrize("kind", ["system", "cuda"])
@pytest.mark.parametrize("pair", ["rest_rest", "grpc_grpc"])
def test_shared_memory_is_refused_by_name(site: Site, pair: str, kind: str) -> None:
    status, unregister = f"get_{kind}_shared_memory_status", f"unregister_{kind}_shared_memory"
    of_one = [call(status, region_name="r"), call(unregister, name="r")]
    for result in site.ask(pair, call(status), call(unregister), *of_one):
        assert status_of(result) in ("501", "UNIMPLEMENTED")
        assert f"{kind} shared memory cannot cross the gateway" in result["error"]["message"]
