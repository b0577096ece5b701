"""Clients in Go: k6's, which is grpc-go, and `buf curl`, which is connect-go on Go's own HTTP/2."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

from tests.interop.processes import HERE, Process, Running, clean_environment
from tests.limits import GENEROUS
from tests.peers.build import ROOT, require
from tests.tls.certificates import Files

Step: TypeAlias = dict[str, Any]

SERVICE = "inference.GRPCInferenceService"
INFER, STREAM_INFER = f"{SERVICE}/ModelInfer", f"{SERVICE}/ModelStreamInfer"
PROTOS = ROOT / "protos"
V2, GRPS, HEALTH, KEDA = (
    "v2/inference.proto",
    "grps/grps.proto",
    "grpc/health/v1/health.proto",
    "keda/externalscaler.proto",
)


def connect(address: str, tls: Mapping[str, str] | None = None, **params: object) -> Step:
    """A step that opens the connection."""
    way = {"plaintext": True} if tls is None else {"tls": dict(tls)}
    return {"op": "connect", "address": address, "params": {**way, **params}}


def trusting(server: Files, own: Files | None = None) -> dict[str, str]:
    """The `tls` of a client that trusts the CA of `server`, with a certificate of its `own`."""
    given = {} if own is None else {"cert": own.certificate.read_text(), "key": own.key.read_text()}
    return {"cacerts": server.ca.read_text(), **given}


def invoke(method: str, message: object = None, **params: object) -> Step:
    return {"op": "invoke", "method": method, "message": message or {}, "params": params}


def infer(model: str, *inputs: object, raw: Sequence[str] = (), id: str = "", **params: object) -> Step:
    """`raw` is base64."""
    message = {"model_name": model, "id": id, "inputs": inputs, **({"raw_input_contents": raw} if raw else {})}
    return invoke(INFER, message, **params)


def tensor(
    name: str, datatype: str, shape: Sequence[int], contents: Mapping[str, Sequence[object]] | None = None
) -> Step:
    typed = {} if contents is None else {"contents": contents}
    return {"name": name, "datatype": datatype, "shape": shape, **typed}


@dataclass
class K6(Running):
    """A running `k6`; its process may be killed."""

    _results: Path

    def results(self) -> list[list[Any]]:
        """Of each virtual user, the results of its steps so far."""
        written = self._results.read_text() if self._results.exists() else ""
        found: dict[int, list[Any]] = {}
        for line in map(json.loads, written.split("\n")[:-1]):  # the last may be half a line
            found.setdefault(line["user"], []).append(line["result"])
        return [found[user] for user in sorted(found)]

    def wait(self) -> list[list[Any]]:
        """The same, once it has ended."""
        assert self.process.wait(GENEROUS) == 0, self.process.output()
        return self.results()


def start_k6(folder: Path, *steps: Step, users: int = 1, protos: Sequence[str] = (V2,)) -> K6:
    """`protos` are read from the project's schemas; without any, the steps have to ask for reflection."""
    folder.mkdir(parents=True, exist_ok=True)
    plan, results = folder / "plan.json", folder / "results"
    results.unlink(missing_ok=True)  # k6 appends to it
    plan.write_text(json.dumps({"users": users, "root": str(PROTOS), "protos": protos or None, "steps": steps}))
    options = ["--quiet", "--no-color", "--no-usage-report", "--no-summary", "--no-thresholds", "--address="]
    told = ["--log-format=raw", f"--console-output={results}"]
    program = str(require("go") / "bin" / "k6")
    command = [program, "run", *options, *told, str(HERE / "clients" / "k6_grpc.js")]
    return K6(Process(command, folder, clean_environment(PLAN=str(plan))), results)


def k6(folder: Path, *steps: Step, users: int = 1, protos: Sequence[str] = (V2,)) -> list[Any]:
    """The results of the steps; with several users, of all of them one after the other."""
    with start_k6(folder, *steps, users=users, protos=protos) as running:
        every = running.wait()
    assert [len(each) for each in every] == [len(steps)] * users
    return [result for each in every for result in each]


def buf(url: str, *options: str, messages: Sequence[object] = ()) -> tuple[int, list[Any], str]:
    """`buf curl`: gRPC's status, below 0 if there is none; the replies; and what it says besides."""
    data = ["-d", "\n".join(map(json.dumps, messages))] if messages else []
    command = [str(require("go") / "bin" / "buf"), "curl", "--protocol", "grpc", *data, *options, url]
    done = subprocess.run(
        command, capture_output=True, text=True, timeout=GENEROUS, env=clean_environment(), check=False
    )
    status = done.returncode >> 3 if done.returncode >= 8 else -done.returncode
    if any(option.startswith("--list") for option in options):
        return status, done.stdout.split(), done.stderr
    decoder, text, replies = json.JSONDecoder(), done.stdout.strip(), []
    while text:
        reply, end = decoder.raw_decode(text)
        replies.append(reply)
        text = text[end:].strip()
    return status, replies, done.stderr
