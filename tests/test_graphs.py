"""Graphs through a whole gateway: steps of three protocols, clients of all, and what is seen of them."""

import asyncio
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest

from gateway.assembly.registry import protocols
from gateway.client import AsyncClient, ClientError, InvalidInput
from gateway.core.operations import Operation
from gateway.core.requests import Request
from gateway.core.tensors import tensor
from gateway.runtime.app import Gateway
from tests.graph_models import Gate, logdensity, slope
from tests.interop.processes import free_port
from tests.observing.collector import attributes, collecting
from tests.running_gateway import running_gateway
from tests.skipping_loop import skip

CONFIG = """
health: {bind: "127.0.0.1:0"}
listeners:
  - {name: http, bind: "127.0.0.1:0", protocols: [v2-rest, umbridge, v1-rest], reply_headers: true}
  - {name: grpc, bind: "127.0.0.1:0", protocols: [v2-grpc]}
  - {name: brief, bind: "127.0.0.1:0", protocols: [v2-rest], errors: {detail: brief}}
reference:
  - {protocol: umbridge, bind: "127.0.0.1:UM", models: ["tests.graph_models:heat"]}
  - {protocol: v2-grpc, bind: "127.0.0.1:GRPC", models: ["tests.graph_models:gauss", "tests.graph_models:tokenize",
     "tests.graph_models:gated", "tests.graph_models:failing", "tests.graph_models:counting",
     "tests.graph_models:cubic"]}
  - {protocol: v2-rest, bind: "127.0.0.1:REST", models: ["tests.graph_models:misfit", "tests.graph_models:classify"]}
backends:
  um: {protocol: umbridge, endpoints: ["http://127.0.0.1:UM"]}
  grpc: {protocol: v2-grpc, endpoints: ["127.0.0.1:GRPC"]}
  rest: {protocol: v2-rest, endpoints: ["http://127.0.0.1:REST"]}
routes:
  - {match: {model: heat}, backend: um}
  - {match: {model: misfit}, backend: rest}
  - {match: {model: classify}, backend: rest}
  - {match: {model: lost}, backend: rest}
  - {match: {model: "*"}, backend: grpc}
models:
  posterior:
    description: The logarithm of a density.
    inputs: {theta: "FP64 [-1, 2]"}
    steps:
      forward: {model: heat, inputs: {input0: $theta}}
      prior: {model: gauss, inputs: {x: $theta}}
      likelihood: {model: misfit, inputs: {observed: [0.1, 0.2], predicted: $forward}}
    outputs: {logdensity: {sum: [$prior.log, $likelihood.log]}}
  label:
    inputs: {text: "BYTES [-1, 1]"}
    steps:
      tokens: {model: tokenize, inputs: {text: $text}}
      class: {model: classify, inputs: {ids: $tokens}}
    outputs: {label: $class.label, sure: $class.sure}
  outer:
    inputs: {theta: "FP64 [-1, 2]"}
    steps:
      inner: {model: posterior, inputs: {theta: {sum: [$theta], weights: [2.0]}}}
    outputs: {half: {sum: [$inner], weights: [0.5]}}
  slow:
    inputs: {x: "FP64 [-1, 2]"}
    steps: {wait: {model: gated, inputs: {x: $x}}, prior: {model: gauss, inputs: {x: $wait}}}
    outputs: {log: $prior}
  broken:
    inputs: {x: "FP64 [-1, 2]"}
    steps: {bad: {model: failing, inputs: {x: $x}}, wait: {model: gated, inputs: {x: $x}}}
    outputs: {y: {sum: [$bad, $wait]}}
  counted:
    inputs: {x: "FP64 [-1, 2]"}
    steps: {prior: {model: gauss, inputs: {x: $x}}, parts: {model: counting, inputs: {x: $prior}}}
    outputs: {token: $parts}
  bent:
    inputs: {x: "FP64 [-1, 2]"}
    steps: {c: {model: cubic, inputs: {x: $x}}}
    outputs: {y: {sum: [$c], weights: [2.0]}}
    derivatives: {method: central}
  around:
    inputs: {x: "FP64 [-1, 2]"}
    steps: {b: {model: bent, inputs: {x: $x}}, p: {model: gauss, inputs: {x: $x}}}
    outputs: {y: {sum: [$b, $p]}}
  gone:
    inputs: {x: "FP64 [-1, 2]"}
    steps: {gone: {model: lost, inputs: {x: $x}}}
    outputs: {y: $gone}
"""
NESTED = """
  four:
    inputs: {x: "FP64 [-1, 2]"}
    steps: {a: STEP, b: STEP, c: STEP, d: STEP}
    outputs: {y: {sum: [$a, $b, $c, $d]}}
""".replace("STEP", "{model: gauss, inputs: {x: $x}}")
NESTED += NESTED.replace("four", "sixteen").replace("gauss", "four")
"""A request for `sixteen` makes 20 calls."""
THETA = np.array([[0.3, 0.4], [1.0, -2.0], [0.1, 0.1]])


def running(text: str = CONFIG) -> AbstractAsyncContextManager[Gateway]:
    Gate.entered, Gate.opened, Gate.left = asyncio.Event(), asyncio.Event(), asyncio.Event()
    for word in ("UM", "GRPC", "REST"):
        text = text.replace(f":{word}", f":{free_port()}")
    return running_gateway(text)


def client(gateway: Gateway, protocol: str, listener: str = "") -> AsyncClient:
    name = listener or ("grpc" if protocol == "v2-grpc" else "http")
    return AsyncClient(gateway.state.listeners[name].address, protocol=protocol)


async def metrics(gateway: Gateway) -> str:
    async with httpx.AsyncClient() as scraping:
        return (await scraping.get(f"http://{gateway.ports.all['health'].address}/metrics")).text


@pytest.mark.parametrize("protocol", ["v2-rest", "v2-grpc", "umbridge"])
async def test_clients_of_every_protocol_get_values_and_derivatives(protocol: str) -> None:
    async with running() as gateway, client(gateway, protocol) as asked:
        [found] = (await asked.infer("posterior", THETA)).values()
        assert found.tolist() == [logdensity(THETA[at : at + 1])[0].tolist() for at in range(3)]
        sens, vec = np.array([[1.0], [2.0], [-1.0]]), np.array([[1.0, 2.0], [0.0, 1.0], [1.0, 0.0]])
        pulled = await asked.gradient("posterior", THETA, sens=sens)
        np.testing.assert_allclose(pulled, sens * slope(THETA), rtol=1e-13)
        pushed = await asked.apply_jacobian("posterior", THETA, vec=vec)
        np.testing.assert_allclose(pushed, (slope(THETA) * vec).sum(1, keepdims=True), rtol=1e-12)
        second = await asked.apply_hessian("posterior", THETA, sens=sens, vec=vec)
        ahead, back = slope(THETA + 1e-6 * vec), slope(THETA - 1e-6 * vec)
        np.testing.assert_allclose(second, sens * (ahead - back) / 2e-6, rtol=1e-6, atol=1e-6)
        [nested] = (await asked.infer("outer", THETA)).values()
        assert nested.tolist() == [[0.5 * logdensity(2 * THETA[at : at + 1]).item()] for at in range(3)]
        pulled = await asked.gradient("outer", THETA, sens=sens)
        np.testing.assert_allclose(pulled, sens * slope(2 * THETA), rtol=1e-12)


EVERY = """
  - {name: forms, bind: "127.0.0.1:0", protocols: [v2-rest, v1-rest, umbridge, grps-rest, graphpipe]}
  - {name: calls, bind: "127.0.0.1:0", protocols: [v2-grpc, grps-grpc, tfs-grpc]}
  - {name: frames, bind: "tcp://127.0.0.1:0", protocols: [grps-brpc]}
  - {name: points, bind: "tcp://127.0.0.1:0", protocols: [mip], model: posterior}
reference:"""


async def test_the_graph_is_a_model_for_every_protocol() -> None:
    expected = [logdensity(THETA[at : at + 1])[0].tolist() for at in range(3)]
    async with running(CONFIG.replace("\nreference:", EVERY)) as gateway:
        asked_in = {
            protocol: each.name
            for each in gateway.state.config.listeners
            if each.name in ("forms", "calls", "frames", "points")
            for protocol in each.protocols
        }
        assert asked_in.keys() == protocols().keys()
        for protocol, listener in asked_in.items():
            async with client(gateway, protocol, listener) as asked:
                [found] = (await asked.infer("posterior", THETA)).values()
                assert found.tolist() == expected, protocol
                if protocol != "mip":  # which has no metadata
                    signature = await asked.signature("posterior")
                    specs = [(each.datatype.value, each.shape) for each in (*signature.inputs, *signature.outputs)]
                    assert specs == [("FP64", (-1, 2)), ("FP64", (-1, 1))], protocol


async def test_values_and_gradients_at_one_point_share_evaluations() -> None:
    text = CONFIG.replace('"http://127.0.0.1:UM"]}', '"http://127.0.0.1:UM"], safe: true, policies: [{cache: {}}]}')
    async with running(text) as gateway, client(gateway, "v2-rest") as asked:
        for _ in range(2):
            await asked.infer("posterior", THETA[:1])
            await asked.gradient("posterior", THETA[:1], sens=np.ones((1, 1)))
        page = await metrics(gateway)
    # heat is evaluated for the value and the likelihood's gradient, and has a gradient of its own
    assert 'gateway_cache_calls_total{outcome="miss",owner="backends.um"} 2.0' in page
    assert 'gateway_cache_calls_total{outcome="hit",owner="backends.um"} 4.0' in page


@pytest.mark.parametrize("protocol", ["v2-rest", "v2-grpc", "umbridge"])
async def test_a_hessian_by_a_difference_of_gradients(protocol: str) -> None:
    """Of 2 (x^3 + y^3), whose step has its gradient alone; and in a graph of this one, by the chain rule."""
    vec, sens = np.array([[1.0, 2.0], [0.5, 0.0], [0.0, -1.0]]), np.array([[1.0], [2.0], [-1.0]])
    async with running() as gateway, client(gateway, protocol) as asked:
        found = await asked.apply_hessian("bent", THETA, sens=sens, vec=vec)
        np.testing.assert_allclose(found, 12 * sens * THETA * vec, rtol=1e-9)
        counts = gateway.state.graph_steps["bent", "c"]
        assert counts["calls"] == (1 if protocol != "umbridge" else 3), "the gradients of a row are one call"
        pushed = await asked.apply_jacobian("bent", THETA, vec=vec)
        np.testing.assert_allclose(pushed, (6 * THETA**2 * vec).sum(1, keepdims=True), rtol=1e-7, atol=1e-9)
        found = await asked.apply_hessian("around", THETA, sens=sens, vec=vec)
        np.testing.assert_allclose(found, sens * (12 * THETA - 1) * vec, rtol=1e-7)


async def test_derivatives_of_a_graph_that_are_not_asked_for_are_not_offered() -> None:
    text = CONFIG.replace("    derivatives: {method: central}\n", "")
    async with running(text) as gateway, client(gateway, "v2-rest") as asked:
        found = await asked.gradient("bent", THETA, sens=np.ones((3, 1)))
        np.testing.assert_allclose(found, 6 * THETA**2, rtol=1e-13)
        with pytest.raises(ClientError, match="apply_hessian"):
            await asked.apply_hessian("bent", THETA, sens=np.ones((3, 1)), vec=THETA)


async def test_the_model_is_described_listed_and_ready() -> None:
    async with running() as gateway, httpx.AsyncClient() as asked:
        url = f"http://{gateway.state.listeners['http'].address}"
        reply = (await asked.get(f"{url}/v2/models/posterior")).json()
        assert reply == {
            "name": "posterior",
            "versions": [],
            "platform": "graph",
            "inputs": [{"name": "theta", "datatype": "FP64", "shape": [-1, 2]}],
            "outputs": [{"name": "logdensity", "datatype": "FP64", "shape": [-1, 1]}],
        }
        assert (await asked.get(f"{url}/v2/models/posterior/ready")).status_code == 200
        assert (await asked.get(f"{url}/v2/models/gone/ready")).status_code != 200
        assert (await asked.get(f"{url}/v2/models/posterior.gradient/ready")).status_code == 200
        info = (await asked.post(f"{url}/ModelInfo", json={"name": "posterior"})).json()
        assert info["support"] == {"Evaluate": True, "Gradient": True, "ApplyJacobian": True, "ApplyHessian": True}
        sizes = (await asked.post(f"{url}/InputSizes", json={"name": "posterior", "config": {}})).json()
        assert sizes == {"inputSizes": [2]}
        names = (await asked.get(f"{url}/Info")).json()["models"]
        assert {"posterior", "label", "outer"} <= set(names)


async def test_strings_in_and_labels_out() -> None:
    async with running() as gateway, client(gateway, "v2-rest") as asked:
        texts = np.array([[b"dog dog cat"], [b"a cat"]], object)
        found: Any = await asked.infer("label", texts)
        assert {name: each.tolist() for name, each in found.items()} == {
            "label": [[b"dogs"], [b"cats"]],
            "sure": [[np.float32(2 / 3)], [1.0]],
        }


@pytest.mark.parametrize("protocol", ["v2-grpc", "v2-rest"])
async def test_the_last_step_streams(protocol: str) -> None:
    async with running() as gateway, client(gateway, protocol) as asked:
        found = [each["token"].tolist() async for each in asked.stream("counted", np.array([[2.0, 4.0]]))]
        assert found == [[-10.0], [-9.0], [-8.0]]
        assert gateway.state.graph_steps["counted", "parts"]["calls"] == 1


async def test_an_error_names_step_model_and_endpoint_as_far_as_the_client_may_know() -> None:
    async with running() as gateway:
        address = next(iter(gateway.state.assembly.backends["rest"].endpoints)).address
        told = {}
        for listener in ("http", "brief"):
            async with client(gateway, "v2-rest", listener) as asked:
                for model in ("broken", "gone"):
                    with pytest.raises(ClientError) as failed:
                        await asked.infer(model, np.zeros((1, 2)))
                    told[listener, model] = failed.value.message
        assert "step 'bad' (model 'failing'): " in told["http", "broken"]
        assert "the solver did not converge" in told["http", "broken"]
        assert told["brief", "broken"].startswith("step 'bad': ")
        assert "failing" not in told["brief", "broken"].replace("failed", "")
        assert told["http", "gone"].startswith("step 'gone' (model 'lost'): ")
        assert told["brief", "gone"].startswith("step 'gone': ")
        assert "lost" not in told["brief", "gone"]
        assert address not in told["brief", "gone"]


async def test_a_server_that_dies_is_named() -> None:
    """And only with its step where errors are brief."""
    async with running() as gateway:
        async with client(gateway, "v2-rest") as asked:
            await asked.infer("posterior", THETA)
        [at] = [at for at, each in enumerate(gateway.state.config.reference) if each.protocol == "umbridge"]
        await gateway.references[at].drain(0)
        async with client(gateway, "v2-rest") as asked:
            with pytest.raises(ClientError, match=r"^step 'forward' \(model 'heat'\): row 0: backend 'um' at http"):
                await asked.infer("posterior", THETA)
        async with client(gateway, "v2-rest", "brief") as asked:
            with pytest.raises(ClientError) as failed:
                await asked.infer("posterior", THETA)
        assert failed.value.message == (
            "step 'forward': the model's server cannot be reached; try again later, or ask the operator to check it"
        )


async def test_a_client_that_leaves_ends_the_steps_at_their_servers() -> None:
    async with running() as gateway:
        async with client(gateway, "v2-grpc") as asked:
            call = asyncio.ensure_future(asked.infer("slow", np.ones((1, 2))))
            await Gate.entered.wait()
            call.cancel()
            with pytest.raises(asyncio.CancelledError):
                await call
        await Gate.left.wait()
        counts = gateway.state.graph_steps["slow", "wait"]
        assert (counts["calls"], counts["errors"], counts["cancelled"]) == (1, 0, 1)


async def test_the_deadline_of_the_client_is_that_of_all_steps() -> None:
    async with running() as gateway, client(gateway, "v2-grpc") as asked:
        await asked.signature("slow")
        call = asyncio.ensure_future(asked.infer("slow", np.ones((1, 2)), timeout=30))
        await Gate.entered.wait()
        await skip(30)
        with pytest.raises(ClientError) as failed:
            await call
        assert failed.value.status.name == "DEADLINE_EXCEEDED"
        await Gate.left.wait()
        counts = gateway.state.graph_steps["slow", "wait"]
        assert counts["calls"] == counts["errors"] + counts["cancelled"] == 1


async def test_types_that_do_not_fit_are_told_by_the_first_request() -> None:
    text = CONFIG.replace("predicted: $forward}", "predicted: {slice: $forward, axis: 1, to: 1}}")
    async with running(text) as gateway, client(gateway, "v2-rest") as asked:
        with pytest.raises(InvalidInput) as refused:
            await asked.ask(Request(Operation.INFER, "posterior", inputs=(tensor("theta", THETA),)))
        assert refused.value.message == (
            "model 'posterior': steps.likelihood.inputs.predicted: slice($forward; axis 1, to 1) is FP64 [-1, 1], "
            "and the input is predicted FP64[-1,2]"
        )


async def test_unknown_parameters_are_refused() -> None:
    async with running() as gateway, client(gateway, "v2-rest") as asked:
        with pytest.raises(InvalidInput, match="is a graph and has no parameter 'temperature'; remove it"):
            await asked.infer("posterior", THETA, parameters={"temperature": 1})


async def test_who_may_call_a_graph_may_call_it_whole(tmp_path: Path) -> None:
    (keys := tmp_path / "keys.yaml").write_text("keys: []\n")
    text = CONFIG.replace("reply_headers: true", "reply_headers: true, auth: {anonymous: guest}")
    access = f"""
auth: {{keys: {{file: {keys}}}}}
permissions: {{graphs: [{{operations: [infer, metadata], models: [posterior]}}]}}
principals: {{guest: {{permissions: [graphs]}}}}
"""
    async with running(text + access) as gateway, client(gateway, "v2-rest") as asked:
        [found] = (await asked.infer("posterior", THETA)).values()
        assert found.shape == (3, 1)
        with pytest.raises(ClientError, match="'guest' does not have the permission metadata on model 'gauss'"):
            await asked.infer("gauss", THETA)


async def test_metrics_name_graph_and_step() -> None:
    async with running() as gateway, client(gateway, "v2-rest") as asked:
        await asked.infer("posterior", THETA)
        body = {"inputs": [{"name": "x", "datatype": "FP64", "shape": [1, 2], "data": [0, 0]}]}
        async with httpx.AsyncClient(base_url=f"http://{gateway.state.listeners['http'].address}") as posting:
            assert (await posting.post("/v2/models/gone/infer", json=body)).status_code == 404
        page = await metrics(gateway)
    for step in ("forward", "prior", "likelihood"):
        assert f'gateway_graph_step_calls_total{{graph="posterior",step="{step}"}} 1.0' in page
        assert f'gateway_graph_step_errors_total{{graph="posterior",step="{step}"}} 0.0' in page
    assert 'gateway_graph_step_errors_total{graph="gone",step="gone"} 1.0' in page
    assert 'gateway_graph_step_cancelled_total{graph="gone",step="gone"} 0.0' in page
    assert 'route="models.posterior"' in page


async def test_counts_of_steps_outlive_a_reload() -> None:
    async with running() as gateway, client(gateway, "v2-rest") as asked:
        await asked.infer("posterior", THETA)
        await gateway.reload(gateway.state.config.model_copy(update={"ready": "none"}))
        await asked.infer("posterior", THETA)
        assert gateway.state.graph_steps["posterior", "forward"]["calls"] == 2


async def test_the_access_log_says_that_it_was_a_graph(tmp_path: Path) -> None:
    path = tmp_path / "access.jsonl"
    text = CONFIG + f"log: {{access: {{path: {path}}}}}\n"
    async with running(text) as gateway, client(gateway, "v2-rest") as asked:
        await asked.infer("posterior", THETA)
    [line] = [each for each in path.read_text().splitlines() if "infer" in each]
    assert "models.posterior" in line, line


async def test_traces_have_a_span_for_each_step() -> None:
    with collecting() as collector:
        text = CONFIG + f"tracing: {{otlp: {collector.url}, sample: 1, interval: 3600}}\n"
        async with running(text) as gateway, client(gateway, "v2-rest") as asked:
            await asked.infer("posterior", THETA[:1])
    found = {each.name: each for each in collector.spans}
    steps = {str(attributes(each.attributes)["gateway.step"]): each for each in collector.spans if each.name == "step"}
    assert steps.keys() == {"forward", "prior", "likelihood"}
    told = attributes(steps["prior"].attributes)
    assert (told["gateway.model"], told["gateway.route"]) == ("gauss", "*")
    call = found["inference.GRPCInferenceService/ModelInfer"]
    assert call.parent_span_id == steps["prior"].span_id
    [root] = [each for each in collector.spans if each.name.startswith("POST /v2")]
    assert all(each.parent_span_id == root.span_id for each in steps.values())


@pytest.mark.parametrize(("most", "status"), [(20, 200), (19, 400)])
async def test_the_calls_of_graphs_within_graphs_are_bounded_together(most: int, status: int) -> None:
    async with running(f"{CONFIG}{NESTED}limits: {{calls_per_request: {most}}}\n") as gateway:
        body = {"inputs": [{"name": "x", "datatype": "FP64", "shape": [1, 2], "data": [1, 2]}]}
        async with httpx.AsyncClient(base_url=f"http://{gateway.state.listeners['http'].address}") as client:
            for _ in range(2):  # each request has as many
                reply = await client.post("/v2/models/sixteen/infer", json=body)
                assert reply.status_code == status
                assert ("more than 19 calls; raise limits.calls_per_request" in reply.text) is (most == 19)
        made = [each["calls"] for (graph, _), each in gateway.state.graph_steps.items() if graph == "four"]
        assert sum(made) <= 2 * 16
