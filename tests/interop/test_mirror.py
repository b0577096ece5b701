"""A GraphPipe server with the Go one's habits is mirrored to the real Triton: clients get the old answers, and the new
ones are compared."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.interop.exchanges import Addresses, get, listening, post
from tests.interop.processes import Triton
from tests.peers.graphpipe_go import Apply, Array, serve, twice

CONFIG = """
admin: {{bind: "127.0.0.1:{admin}"}}
listeners:
  - {{name: http, bind: "127.0.0.1:{http}", protocols: [v2-rest, umbridge, graphpipe]}}
backends:
  old: {{protocol: graphpipe, endpoints: ["{old}"]}}
  triton: {{protocol: v2-grpc, endpoints: ["{triton}"]}}
routes:
  - match: {{model: single}}
    backend: old
    policies:
      - mirror:
          backend: triton
          sample: 1
          tolerance: {{rtol: 1e-5}}
          rename: {{inputs: [{{client: input0, backend: x}}], outputs: [{{client: output0, backend: y}}]}}
"""
ROW = [1.0, 2.0, 3.5]


class Site:
    def __init__(self, addresses: Addresses) -> None:
        self.url, self.admin = addresses["http"], addresses["admin"]

    def infer(self) -> list[float]:
        tensor = {"name": "input0", "datatype": "FP32", "shape": [1, 3], "data": ROW}
        status, reply = post(self.url, "/v2/models/single/infer", inputs=[tensor])
        assert status == 200, reply
        found: list[float] = reply["outputs"][0]["data"]
        return found

    def state(self, mirrored: int) -> Any:
        """What /status shows when so many requests are compared."""
        end = time.monotonic() + 30
        while time.monotonic() < end:
            _, status = get(self.admin, "/status")
            state = status["policies"][0]["state"]
            if sum(state[outcome] for outcome in ("equal", "different", "failed", "dropped")) == mirrored:
                return state
        raise AssertionError(json.dumps(state))


@contextmanager
def site(triton: Triton, apply: Apply, folder: Path) -> Iterator[Site]:
    with serve(apply) as old, listening(CONFIG, folder, old=old.url, triton=triton.grpc) as addresses:
        yield Site(addresses)


def nearly_twice(inputs: list[Array], config: str) -> list[Array]:
    return [each * each.dtype.type(2.001) for each in inputs]


def test_equal_servers_are_found_equal(triton: Triton, tmp_path: Path) -> None:
    with site(triton, twice, tmp_path) as here:
        assert here.infer() == [2.0, 4.0, 7.0]
        state = here.state(1)
        assert state["equal"] == 1, state


def test_a_server_that_is_wrong_by_a_thousandth_is_found(triton: Triton, tmp_path: Path) -> None:
    with site(triton, nearly_twice, tmp_path) as here:
        assert here.infer() == pytest.approx([2.001, 4.002, 7.0035], rel=1e-6)
        state = here.state(1)
        assert state["differences"] == {"values": 1}
        [output] = state["last_differences"][0]["outputs"]
        assert (output["differing"], output["elements"]) == (3, 3)
        assert output["largest"]["relative"]["value"] == pytest.approx(0.0005, rel=0.01)
