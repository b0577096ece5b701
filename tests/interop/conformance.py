"""What real servers do otherwise than the specifications say, as `gateway conformance` finds it: kept in
`conformance.json`, and as tables in docs/conformance.md. `make conformance` runs the checks and writes both."""

from __future__ import annotations

import json
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gateway.tools.conformance import suite
from gateway.tools.conformance.check import Options, Transcript, Verdict, run
from gateway.tools.conformance.inputs import parse_input
from tests.interop import processes, v2_servers
from tests.interop.kserve_v1 import start_kserve_v1
from tests.interop.kubemo_server import start_kubemo
from tests.interop.tensorflow_serving import start_tensorflow_serving
from tests.peers import graphpipe_go, grps_cpp, grps_python, umbridge_cpp
from tests.peers import tensorflow_serving as tensorflow
from tests.peers.build import ROOT

FILE = Path(__file__).with_suffix(".json")
PAGE = ROOT / "docs/conformance.md"
BEGIN, END = "<!-- findings -->\n", "<!-- end of findings -->\n"
TIMEOUT = 5.0
"""Seconds for each reply: some servers answer a wrong request with silence."""
TOLD = (Verdict.FAIL, Verdict.DEVIATES)

Document = dict[str, Any]


@dataclass(frozen=True)
class Tested:
    """One wire form of a server, and what is asked of it."""

    server: str
    protocol: str
    model: str = ""
    inputs: tuple[str, ...] = ()

    def found(self, address: str) -> Document:
        """How many checks have each verdict; and verdict and reason of those that are not passed."""
        chosen = suite(self.protocol)
        options = Options(self.model, tuple(map(parse_input, self.inputs)), TIMEOUT)
        outcomes = list(run(chosen, address, options, chosen.checks, Transcript()))
        counts = Counter(str(each.verdict) for each in outcomes)
        findings = {
            each.id: [str(each.verdict), each.reason.replace(address, "ADDRESS")]
            for each in outcomes
            if each.verdict in TOLD or each.verdict == Verdict.NOT_TESTED
        }
        return {"counts": {str(each): counts[each] for each in Verdict if counts[each]}, "findings": findings}


@contextmanager
def _folder() -> Iterator[Path]:
    with tempfile.TemporaryDirectory() as folder:
        yield Path(folder) / "server"


@contextmanager
def _triton() -> Iterator[Mapping[str, str]]:
    with _folder() as folder:
        server = processes.start_triton(folder)
        try:
            yield {"v2-rest": server.http, "v2-grpc": server.grpc}
        finally:
            server.stop()


def _v2(start: Callable[[Path], v2_servers.V2Server]) -> Callable[[], AbstractContextManager[Mapping[str, str]]]:
    @contextmanager
    def started() -> Iterator[Mapping[str, str]]:
        with _folder() as folder:
            server = start(folder)
            try:
                yield {"v2-rest": server.http, "v2-grpc": server.grpc}
            finally:
                server.stop()

    return started


@contextmanager
def _kserve_v1() -> Iterator[Mapping[str, str]]:
    with _folder() as folder:
        server = start_kserve_v1(folder)
        try:
            yield {"v1-rest": server.address}
        finally:
            server.stop()


@contextmanager
def _umbridge() -> Iterator[Mapping[str, str]]:
    with _folder() as folder:
        server = processes.start_umbridge(folder)
        try:
            yield {"umbridge": server.url}
        finally:
            server.stop()


@contextmanager
def _kubemo() -> Iterator[Mapping[str, str]]:
    with _folder() as folder:
        server = start_kubemo(folder)
        try:
            yield {"mip": server.url}
        finally:
            server.stop()


@contextmanager
def _umbridge_cpp() -> Iterator[Mapping[str, str]]:
    double = umbridge_cpp.Model("double", [3], [3], evaluate=lambda inputs, config: [[2 * each for each in inputs[0]]])
    with umbridge_cpp.serve([double]) as server:
        yield {"umbridge": server.url}


@contextmanager
def _graphpipe_go() -> Iterator[Mapping[str, str]]:
    with graphpipe_go.serve(lambda inputs, config: [each + each for each in inputs], inputs=1, outputs=1) as server:
        yield {"graphpipe": server.url}


@contextmanager
def _tensorflow() -> Iterator[Mapping[str, str]]:
    with tensorflow.serve() as server:
        yield {"v1-rest": server.address}


@contextmanager
def _tensorflow_grpc() -> Iterator[Mapping[str, str]]:
    with _folder() as folder:
        server = start_tensorflow_serving(folder)
        try:
            yield {"tfs-grpc": server.address}
        finally:
            server.stop()


@contextmanager
def _grps_python() -> Iterator[Mapping[str, str]]:
    with grps_python.serve() as server:
        assert server.grpc is not None
        yield {"grps-rest": server.http.address, "grps-grpc": server.grpc.address}


@contextmanager
def _grps_cpp() -> Iterator[Mapping[str, str]]:
    with grps_cpp.serve() as server:
        assert server.grpc is not None
        assert server.brpc is not None
        yield {"grps-rest": server.http.address, "grps-grpc": server.grpc.address, "grps-brpc": server.brpc.address}


SERVERS: Mapping[str, Callable[[], AbstractContextManager[Mapping[str, str]]]] = {
    "Triton 2.51.0": _triton,
    "MLServer 1.7.1": _v2(v2_servers.start_mlserver),
    "KServe 0.21.0": _v2(v2_servers.start_kserve),
    "KServe 0.21.0, V1": _kserve_v1,
    "umbridge 1.2.10 (Python)": _umbridge,
    "kubemo 0.0.dev2": _kubemo,
    "test server like umbridge.h (C++)": _umbridge_cpp,
    "test server like graphpipe-go": _graphpipe_go,
    "test server like TensorFlow Serving": _tensorflow,
    "test server with the stubs of TensorFlow Serving": _tensorflow_grpc,
    "test server like grps' Python server": _grps_python,
    "test server like grps' C++ server": _grps_cpp,
}
"""Each gives its addresses by wire form. The versions are those of tests/peers/build.py."""
TWICE = ("twice-1.0.0", ("x=FP64[1,3]",))
TESTED = (
    Tested("Triton 2.51.0", "v2-rest", "single"),
    Tested("Triton 2.51.0", "v2-grpc", "single"),
    Tested("MLServer 1.7.1", "v2-rest", "double"),
    Tested("MLServer 1.7.1", "v2-grpc", "double"),
    Tested("KServe 0.21.0", "v2-rest", "double", ("x=FP64[1,3]",)),
    Tested("KServe 0.21.0", "v2-grpc", "double", ("x=FP64[1,3]",)),
    Tested("KServe 0.21.0, V1", "v1-rest", "double", ("x=FP64[2,3]",)),
    Tested("umbridge 1.2.10 (Python)", "umbridge"),
    Tested("kubemo 0.0.dev2", "mip", inputs=("x=FP64[3]",)),
    Tested("test server like umbridge.h (C++)", "umbridge"),
    Tested("test server like graphpipe-go", "graphpipe", inputs=("input0=FP64[1,3]",)),
    Tested("test server like TensorFlow Serving", "v1-rest", "double"),
    Tested("test server with the stubs of TensorFlow Serving", "tfs-grpc", "double"),
    Tested("test server like grps' Python server", "grps-rest", *TWICE),
    Tested("test server like grps' Python server", "grps-grpc", *TWICE),
    Tested("test server like grps' C++ server", "grps-rest", *TWICE),
    Tested("test server like grps' C++ server", "grps-grpc", *TWICE),
    Tested("test server like grps' C++ server", "grps-brpc", *TWICE),
)


def key(tested: Tested) -> str:
    """Of a server's findings in the file."""
    return f"{tested.server}: {tested.protocol}"


def rendered(known: Mapping[str, Document]) -> str:
    """The findings as Markdown."""
    rows = [
        "| server | protocol | pass | deviates | fail | not applicable | not tested |",
        "|---|---|---|---|---|---|---|",
    ]
    for each in TESTED:
        counts = known[key(each)]["counts"]
        cells = [str(counts.get(str(verdict), 0)) for verdict in ORDER]
        rows.append(f"| {each.server} | {each.protocol} | {' | '.join(cells)} |")
    parts = ["\n".join(rows)]
    for each in TESTED:
        findings = known[key(each)]["findings"]
        if findings:
            title = f"### {each.server}, {each.protocol}\n\n| check | verdict | finding |\n|---|---|---|"
            body = [f"| `{name}` | {verdict} | {_cell(reason)} |" for name, (verdict, reason) in findings.items()]
            parts.append("\n".join((title, *body)))
    return "\n\n".join(parts) + "\n"


ORDER = (Verdict.PASS, Verdict.DEVIATES, Verdict.FAIL, Verdict.NOT_APPLICABLE, Verdict.NOT_TESTED)


def _cell(text: str) -> str:
    return " ".join(text.split()).replace("|", "\\|").replace("<", "&lt;")


def main() -> None:
    """Run the checks of every server, and write the file and the page."""
    known = {}
    for server, start in SERVERS.items():
        with start() as addresses:
            for each in TESTED:
                if each.server == server:
                    known[key(each)] = each.found(addresses[each.protocol])
                    print(key(each), known[key(each)]["counts"])
    FILE.write_text(json.dumps(known, indent=1, ensure_ascii=False) + "\n", "utf-8")
    before, _, rest = PAGE.read_text("utf-8").partition(BEGIN)
    PAGE.write_text(before + BEGIN + "\n" + rendered(known) + "\n" + END + rest.partition(END)[2], "utf-8")


if __name__ == "__main__":
    main()
