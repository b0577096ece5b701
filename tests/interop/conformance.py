"""What real servers do otherwise than the specifications say, as `gateway conformance` finds it: kept in
`conformance.json`, and as tables in docs/conformance.md. `make conformance` runs the checks and writes both."""

from __future__ import annotations

import json
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from operator import attrgetter
from pathlib import Path
from typing import Any, TypeAlias

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


Start: TypeAlias = Callable[[], AbstractContextManager[Mapping[str, str]]]
V2 = {"v2-rest": "http", "v2-grpc": "grpc"}
GRPS = {"grps-rest": "http.address", "grps-grpc": "grpc.address"}


def _started(start: Callable[[Path], AbstractContextManager[Any]], addresses: Mapping[str, str]) -> Start:
    """Starts a server in a folder of its own. Its `addresses` are told by their attributes."""

    @contextmanager
    def started() -> Iterator[Mapping[str, str]]:
        with tempfile.TemporaryDirectory() as folder, start(Path(folder) / "server") as server:
            yield {protocol: attrgetter(name)(server) for protocol, name in addresses.items()}

    return started


SERVERS: Mapping[str, Start] = {
    "Triton 2.51.0": _started(processes.start_triton, V2),
    "MLServer 1.7.1": _started(v2_servers.start_mlserver, V2),
    "KServe 0.21.0": _started(v2_servers.start_kserve, V2),
    "KServe 0.21.0, V1": _started(start_kserve_v1, {"v1-rest": "address"}),
    "umbridge 1.2.10 (Python)": _started(processes.start_umbridge, {"umbridge": "url"}),
    "kubemo 0.0.dev2": _started(start_kubemo, {"mip": "url"}),
    "test server like umbridge.h (C++)": _started(lambda _: umbridge_cpp.serve(), {"umbridge": "url"}),
    "test server like graphpipe-go": _started(lambda _: graphpipe_go.serve(), {"graphpipe": "url"}),
    "test server like TensorFlow Serving": _started(lambda _: tensorflow.serve(), {"v1-rest": "address"}),
    "test server with the stubs of TensorFlow Serving": _started(start_tensorflow_serving, {"tfs-grpc": "address"}),
    "test server like grps' Python server": _started(lambda _: grps_python.serve(), GRPS),
    "test server like grps' C++ server": _started(lambda _: grps_cpp.serve(), {**GRPS, "grps-brpc": "brpc.address"}),
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
