"""Derivatives by finite differences for real clients: in front of the real UM-Bridge server and the real Triton, over
UM-Bridge, V2 REST and V2 gRPC, whose own derivatives the gateway does not ask for."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any
from urllib.request import Request as UrlRequest
from urllib.request import urlopen

import numpy as np
import pytest

from tests.interop.exchanges import Addresses, Listen, get, metric
from tests.interop.processes import Triton
from tests.interop.real_clients import doubles, infer, operations, raw_of, tritonclient, tritonclient_grpc, umbridge
from tests.interop.servers.functions import POSTERIOR
from tests.limits import GENEROUS
from tests.peers.build import python_of

CONFIG = """
listeners:
  - {{name: science, bind: "127.0.0.1:{http}", protocols: [umbridge, v2-rest], reply_headers: true}}
  - {{name: grpc, bind: "127.0.0.1:{grpc}", protocols: [v2-grpc]}}
health: {{bind: "127.0.0.1:{health}"}}
backends:
  lab: {{protocol: umbridge, endpoints: ["{umbridge}"]}}
  triton: {{protocol: v2-rest, endpoints: ["{triton.http}"]}}
  triton-grpc: {{protocol: v2-grpc, endpoints: ["{triton.grpc}"]}}
routes:
  - {{match: {{model: batched}}, backend: triton, translate: {{derivatives: {{}}}}}}
  - {{match: {{model: batched4}}, backend: triton-grpc, rewrite: {{model: batched}},
      translate: {{derivatives: {{order: 4}}}}}}
  - {{match: {{model: on-triton}}, backend: triton, rewrite: {{model: posterior}},
      translate: {{derivatives: &hidden {{order: 4, replace: [gradient, apply_jacobian, apply_hessian]}}}}}}
  - {{match: {{model: on-triton-grpc}}, backend: triton-grpc, rewrite: {{model: posterior}},
      translate: {{derivatives: *hidden}}}}
  - {{match: {{model: scaled}}, backend: lab, translate: {{derivatives: {{}}}}}}
  - {{match: {{model: "*"}}, backend: lab, translate: {{derivatives: *hidden}}}}
"""
ROUTES = ("posterior", "on-triton", "on-triton-grpc")


class Urls:
    """Where the gateway listens."""

    def __init__(self, addresses: Addresses) -> None:
        self.address, self.grpc = addresses["http"], addresses["grpc"]
        self.http, self._health = f"http://{self.address}", addresses["health"]

    def calls(self, backend: str) -> float:
        """Requests that were sent to the backend so far."""
        return metric(self._health, "gateway_upstream_seconds_count", f'backend="{backend}"')


@pytest.fixture(scope="module")
def urls(listen: Listen, triton: Triton, umbridge_server: str) -> Urls:
    return Urls(listen(CONFIG, umbridge=umbridge_server, triton=triton))


def near(found: Any, expected: Any, operation: str) -> bool:
    bound = 1e-5 if operation == "apply_hessian" else 1e-9
    if operation == "evaluate":
        return bool(found == expected)
    return bool(np.allclose(found, expected, rtol=bound, atol=bound))


def gradient(url: str, model: str, point: list[float], sens: list[float]) -> tuple[list[float], str, int]:
    """The gradient, how it was computed, and the number of requests to the server."""
    body = {"name": model, "input": [point], "outWrt": 0, "inWrt": 0, "sens": sens, "config": {}}
    with urlopen(UrlRequest(f"{url}/Gradient", json.dumps(body).encode()), timeout=GENEROUS) as reply:
        told = reply.headers
        return json.load(reply)["output"], told["gateway-derivative"], int(told["gateway-tries"])


@pytest.mark.parametrize("model", [*ROUTES, "two"])
def test_the_umbridge_client_has_all_derivatives(urls: Urls, model: str) -> None:
    steps = operations("two" if model == "two" else "posterior")
    results = umbridge(urls.http, *({**step, "model": model} for step, _ in steps))
    for result, (step, expected) in zip(results, steps, strict=True):
        assert near(result, expected, step["op"]), (step, result, expected)


def test_a_model_that_only_evaluates_claims_all_operations(urls: Urls) -> None:
    at: dict[str, Any] = {"model": "scaled", "input": [[1.0, 2.0, 3.0]], "config": {"n": 3, "scale": 5}}
    where = {"out_wrt": 0, "in_wrt": 0}
    info, gradient, jacobian, hessian = umbridge(
        urls.http,
        {"op": "info", "model": "scaled"},
        {**at, **where, "op": "gradient", "sens": [1.0, 0.0, 2.0]},
        {**at, **where, "op": "apply_jacobian", "vec": [1.0, 2.0, 3.0]},
        {**at, "op": "apply_hessian", "out_wrt": 0, "in_wrt1": 0, "in_wrt2": 0, "sens": [1, 1, 1], "vec": [1, 1, 1]},
    )
    assert info == dict.fromkeys(("Evaluate", "Gradient", "ApplyJacobian", "ApplyHessian"), True)
    # The config goes to every point: with another one the model has other lengths and another scale.
    assert near(gradient, [5, 0, 10], "gradient")
    assert near(jacobian, [5, 10, 15], "apply_jacobian")
    assert np.allclose(hessian, [0, 0, 0], atol=1e-4)


THETA = [0.5, -1.5, 1.0, 2.0]
ROWS = [THETA[:2], THETA[2:]]
SENS = [1.0, 3.0]


@pytest.mark.parametrize("model", ROUTES)
@pytest.mark.parametrize("protocol", ["v2-rest", "v2-grpc"])
def test_tritons_clients_have_companions(urls: Urls, model: str, protocol: str) -> None:
    name = "input0" if model == "posterior" else "theta"
    step = infer(f"{model}.gradient", doubles(name, [2, 2], *THETA), doubles("sens", [2, 1], *SENS))
    if protocol == "v2-rest":
        [result] = tritonclient(urls.address, "sync", step)
    else:
        [result] = tritonclient_grpc(urls.grpc, "sync", step)
    found = np.frombuffer(raw_of(result)).reshape(2, 2)
    expected = [POSTERIOR.gradient(0, 0, [row], [sens]) for row, sens in zip(ROWS, SENS, strict=True)]
    assert near(found, expected, "gradient")


@pytest.mark.parametrize("model", ["on-triton", "on-triton-grpc"])
def test_triton_gets_all_points_as_one_batch(urls: Urls, model: str) -> None:
    found, how, calls = gradient(urls.http, model, THETA[:2], [1.0])
    assert near(found, POSTERIOR.gradient(0, 0, [THETA[:2]], [1.0]), "gradient")
    assert (how, calls) == ("central, order 4, step 0.00074, 8 evaluations", 1)


@pytest.mark.parametrize(("model", "points", "calls"), [("batched", 6, 1), ("batched4", 12, 2)])
def test_a_batch_is_not_larger_than_tritons_max_batch_size(urls: Urls, model: str, points: int, calls: int) -> None:
    """`batched` takes eight rows, in FP32."""
    gradient(urls.http, model, [1.0, 2.0, 3.0], [1.0, 0.0, 2.0])  # asks for metadata and configuration
    found, how, made = gradient(urls.http, model, [1.0, 2.0, 3.0], [1.0, 0.0, 2.0])
    assert np.allclose(found, [2, 0, 4], atol=1e-2)
    assert how.endswith(f", {points} evaluations")
    assert made == calls


def test_an_estimated_companion_has_no_statistics(urls: Urls) -> None:
    status, reply = get(urls.http, "/v2/models/on-triton.gradient/stats")
    assert status == 404
    assert "finite differences" in reply["error"]
    assert get(urls.http, "/v2/models/on-triton/stats")[0] == 200


SAMPLE = """
import sys

import numpy
import pymc
from umbridge.pymc import UmbridgeOp

density = UmbridgeOp(sys.argv[1], "on-triton")
with pymc.Model():
    theta = pymc.Uniform("theta", [0.5, 0], [1.5, 3], shape=2)
    pymc.Potential("density", density(theta)[0])
    step = pymc.NUTS(max_treedepth=4)
    draws = pymc.sample(150, tune=150, chains=1, cores=1, step=step, random_seed=3, progressbar=False)
found = draws.posterior["theta"].values[0]
print(*numpy.mean(found, axis=0), *numpy.std(found, axis=0), float(draws.sample_stats["step_size"].mean()))
"""


def test_pymc_finds_the_posterior_through_estimated_gradients(urls: Urls, tmp_path: Path) -> None:
    """On a rectangle, where sums over a grid give the mean and the deviation."""
    a, b = np.meshgrid(np.linspace(0.5, 1.5, 201), np.linspace(0, 3, 601))
    weight = np.exp(-0.5 * (1 - a) ** 2 - 5 * (b - a * a) ** 2)
    means = [np.average(each, weights=weight) for each in (a, b)]
    deviations = [
        np.average((each - mean) ** 2, weights=weight) ** 0.5 for each, mean in zip((a, b), means, strict=True)
    ]
    (tmp_path / "sample.py").write_text(SAMPLE)
    before = urls.calls("triton")
    done = subprocess.run(
        [python_of("recipes"), "sample.py", urls.http], cwd=tmp_path, capture_output=True, text=True, timeout=GENEROUS
    )
    assert done.returncode == 0, done.stderr
    mean_a, mean_b, sd_a, sd_b, length = map(float, done.stdout.split()[-5:])
    for found, mean, deviation in zip((mean_a, mean_b), means, deviations, strict=True):
        assert abs(found - mean) < 0.6 * deviation, done.stdout
    assert np.allclose([sd_a, sd_b], deviations, rtol=0.4), done.stdout
    # With a wrong gradient the sampler's steps do not keep the energy, and it makes them ever shorter.
    assert length > 0.02, done.stdout
    assert urls.calls("triton") - before > 1000  # the gradients went there, one batch each
