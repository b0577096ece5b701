"""One graph of three real servers: a forward model of UM-Bridge, a prior on Triton, and a likelihood behind GraphPipe;
sampled by PyMC's NUTS and by tinyDA, and called by tritonclient."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.interop.client_scripts import run_client
from tests.interop.exchanges import Addresses, Listen
from tests.interop.processes import Triton
from tests.interop.real_clients import (
    doubles,
    elements,
    infer,
    raw_of,
    tensor,
    tritonclient,
    tritonclient_grpc,
    umbridge,
)
from tests.interop.servers.functions import POSTERIOR
from tests.peers.graphpipe_go import Array, serve

CONFIG = """
listeners:
  - {{name: http, bind: "127.0.0.1:{http}", protocols: [v2-rest, umbridge]}}
  - {{name: grpc, bind: "127.0.0.1:{grpc}", protocols: [v2-grpc]}}
reference:
  - {{protocol: v2-rest, bind: "127.0.0.1:{text}", models: ["tests.graph_models:tokenize"]}}
  - {{protocol: v2-grpc, bind: "127.0.0.1:{labels}", models: ["tests.graph_models:classify"]}}
backends:
  um: {{protocol: umbridge, endpoints: ["{um}"]}}
  triton: {{protocol: v2-grpc, endpoints: ["{triton}"]}}
  pipe: {{protocol: graphpipe, endpoints: ["{pipe}"]}}
  text: {{protocol: v2-rest, endpoints: ["127.0.0.1:{text}"]}}
  labels: {{protocol: v2-grpc, endpoints: ["127.0.0.1:{labels}"]}}
routes:
  - {{match: {{model: double}}, backend: um}}
  - {{match: {{model: posterior}}, backend: triton}}
  - {{match: {{model: upper}}, backend: triton}}
  - {{match: {{model: tokenize}}, backend: text}}
  - {{match: {{model: classify}}, backend: labels}}
  - match: {{model: misfit}}
    backend: pipe
    signature:
      inputs: [{{name: input0, datatype: FP64, shape: [-1, 3]}}]
      outputs: [{{name: output0, datatype: FP64, shape: [-1, 1]}}]
    translate: {{derivatives: {{method: central}}}}
models:
  density:
    inputs: {{theta: "FP64 [-1, 3]"}}
    steps:
      forward: {{model: double, inputs: {{input0: $theta}}}}
      prior: {{model: posterior, inputs: {{theta: {{slice: $theta, axis: 1, to: 2}}}}}}
      likelihood: {{model: misfit, inputs: {{input0: $forward}}}}
    outputs: {{log: {{sum: [$prior.logdensity, $likelihood.output0]}}}}
  label:
    inputs: {{text: "BYTES [-1, 1]"}}
    steps:
      tokens: {{model: tokenize, inputs: {{text: $text}}}}
      class: {{model: classify, inputs: {{ids: $tokens}}}}
      loud: {{model: upper, inputs: {{INPUT0: {{reshape: $class.label, shape: [-1]}}}}}}
    outputs: {{label: $class.label, loud: $loud}}
"""
OBSERVED = np.array([0.3, 0.1, -0.2])


def misfit(inputs: list[Array], config: str) -> list[Array]:
    [y] = inputs
    return [-2 * ((y - OBSERVED) ** 2).sum(1, keepdims=True)]


def density(theta: list[float]) -> float:
    likelihood = -2 * ((2 * np.array([theta]) - OBSERVED) ** 2).sum(1, keepdims=True)
    return float(POSTERIOR.evaluate([theta[:2]])[0][0] + likelihood[0, 0])


@pytest.fixture(scope="module")
def site(listen: Listen, triton: Triton, umbridge_server: str) -> Iterator[Addresses]:
    with serve(misfit) as pipe:
        yield listen(CONFIG, um=umbridge_server, triton=triton.grpc, pipe=pipe.url)


THETA = [0.5, -0.25, 0.75]


def test_the_real_umbridge_client_gets_values_and_derivatives(site: Addresses) -> None:
    common = {"model": "density", "input": [THETA]}
    found, gradient, jacobian, hessian = umbridge(
        f"http://{site['http']}",
        {**common, "op": "evaluate"},
        {**common, "op": "gradient", "out_wrt": 0, "in_wrt": 0, "sens": [1.0]},
        {**common, "op": "apply_jacobian", "out_wrt": 0, "in_wrt": 0, "vec": [1.0, 2.0, -1.0]},
        {**common, "op": "apply_hessian", "out_wrt": 0, "in_wrt1": 0, "in_wrt2": 0, "sens": [1.0], "vec": [1.0, 0, 0]},
    )
    assert found == [[density(THETA)]]
    steps = np.eye(3) * 1e-6
    slope = [(density([*(THETA + each)]) - density([*(THETA - each)])) / 2e-6 for each in steps]
    np.testing.assert_allclose(gradient, slope, rtol=1e-6)
    np.testing.assert_allclose(jacobian, [np.dot(slope, [1.0, 2.0, -1.0])], rtol=1e-6)
    # The prior's second derivatives, and -4 for each square of 2 theta.
    exact = [*POSTERIOR.apply_hessian(0, 0, 0, [THETA[:2]], [1.0], [1.0, 0.0]), 0.0]
    np.testing.assert_allclose(hessian, np.add(exact, [-16.0, 0.0, 0.0]), rtol=1e-5, atol=1e-4)


def test_derivatives_are_those_of_jax(site: Addresses) -> None:
    """At 1e-6 of the largest element, though the likelihood has its own by finite differences."""
    points, sens, vec = [THETA, [1.0, 0.5, -0.5], [-0.75, 1.5, 0.25]], 0.5, [1.0, 2.0, -1.0]
    by_jax: Any = run_client("recipes", "jax_derivatives", points, sens, vec, OBSERVED.tolist())
    for point, (value, *expected) in zip(points, by_jax, strict=True):
        at = {"model": "density", "input": [point], "out_wrt": 0}
        evaluated, *found = umbridge(
            f"http://{site['http']}",
            {**at, "op": "evaluate"},
            {**at, "op": "gradient", "in_wrt": 0, "sens": [sens]},
            {**at, "op": "apply_jacobian", "in_wrt": 0, "vec": vec},
            {**at, "op": "apply_hessian", "in_wrt1": 0, "in_wrt2": 0, "sens": [sens], "vec": vec},
        )
        np.testing.assert_allclose(evaluated, [[value]], rtol=1e-14)
        for ours, theirs in zip(found, expected, strict=True):
            most = np.abs(theirs).max()
            np.testing.assert_allclose(ours, np.atleast_1d(theirs), rtol=0, atol=1e-6 * most)


@pytest.mark.parametrize(("peer", "kind", "draws"), [("recipes", "nuts", 8), ("sampler", "tinyda", 40)])
def test_a_chain_is_that_of_the_composition_in_python(
    site: Addresses, peer: str, kind: str, draws: int, tmp_path: Path
) -> None:
    """Bit for bit: every value and every gradient is the same number."""
    found: Any = run_client(peer, "graph_sampler", f"http://{site['http']}", kind, draws, HOME=str(tmp_path))
    assert found["graph"] == found["python"]
    assert len(found["graph"]) >= draws
    assert len({tuple(each) for each in found["graph"]}) > draws / 4


@pytest.mark.parametrize("ask", [tritonclient, tritonclient_grpc])
def test_tritonclient_calls_the_graph(site: Addresses, ask: Any) -> None:
    address = site["http" if ask is tritonclient else "grpc"]
    batch = [*THETA, 1.0, 0.5, -0.5]
    described, ready, found, refused = ask(
        address,
        "sync",
        {"op": "metadata", "model": "density"},
        {"op": "model_ready", "model": "density"},
        infer("density", doubles("theta", [2, 3], *batch)),
        infer("density", doubles("theta", [1, 2], 1.0, 2.0)),
    )
    assert described["platform"] == "graph"
    assert ready is True
    assert struct.unpack("<2d", raw_of(found)) == (density(batch[:3]), density(batch[3:]))
    assert "input 'theta' is FP64 [1, 2], expected FP64 [-1, 3]" in str(refused)


@pytest.mark.parametrize("ask", [tritonclient, tritonclient_grpc])
def test_strings_in_and_labels_out(site: Addresses, ask: Any) -> None:
    address = site["http" if ask is tritonclient else "grpc"]
    texts = tensor("text", "BYTES", [2, 1], elements(b"a dog", b"cat and cat"))
    [found] = ask(address, "sync", infer("label", texts))
    assert [(each["name"], each["shape"]) for each in found["outputs"]] == [("label", [2, 1]), ("loud", [2])]
    assert raw_of(found) == elements(b"dogs", b"cats")
