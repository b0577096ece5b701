"""Generates the tables of docs/architecture.md: the folders, from the docstrings of packages, and the glossary, from
the docstrings of classes and modules. `generate` calls it."""

import ast
import re
from collections.abc import Iterable, Iterator
from functools import cache
from pathlib import Path

from tests.documents.pages import ROOT
from tests.test_layering import ROOMS, STRANGERS

TERMS: dict[str, tuple[str, ...]] = {
    "attempt": ("gateway.core.requests.Tries", "gateway.routing.endpoint.Attempt"),
    "backend": ("gateway.routing.backend.Backend",),
    "batch, row": ("gateway.core.protocol.Rows", "gateway.bridge.rows"),
    "branch": ("gateway.routing.branches.Branch",),
    "bridge": ("gateway.bridge.bridge.Bridge",),
    "capture": ("gateway.core.globs.ModelRenaming",),
    "cassette": ("gateway.tools.cassettes.files.CassetteFile", "gateway.tools.cassettes.entries"),
    "compatibility matrix": ("tests.contract.matrix",),
    "derivative model": ("gateway.bridge.derivatives",),
    "drain of a gateway": ("gateway.cli.stopping",),
    "drain of an endpoint": ("gateway.routing.endpoint.Drain", "gateway.assembly.discovery.EndpointCloser"),
    "dynamic batching": ("gateway.policies.gather",),
    "emulated server": ("gateway.core.protocol.Protocol.emulated_servers",),
    "endpoint": ("gateway.routing.endpoint.Endpoint",),
    "engine": ("gateway.servers.engine.Engine",),
    "explanation": ("gateway.assembly.explain.request.Explanation",),
    "extension": ("gateway.bridge.extensions", "gateway.routing.extensions"),
    "fallback": ("gateway.routing.branches.Branches",),
    "fitting": ("gateway.bridge.fitting.Fitting",),
    "form, JSON mapping": ("gateway.protocols.json.form.Form", "gateway.assembly.forms"),
    "framing": ("gateway.core.protocol.Framing", "gateway.core.protocol.StreamFraming"),
    "graph": ("gateway.bridge.graphs.graph.Graph", "gateway.bridge.graphs.model.GraphModel"),
    "graph evaluation": (
        "gateway.bridge.graphs.evaluation.GraphEvaluation",
        "gateway.bridge.graphs.chain_rule.ChainRule",
    ),
    "handler": ("gateway.core.transport.Handler", "gateway.core.transport.StreamHandler"),
    "listener authentication": ("gateway.assembly.authentication.ListenerAuthentication",),
    "load coordinator": ("gateway.routing.placement.agreement.LoadCoordinator",),
    "loader": ("gateway.routing.placement.loading.Loader",),
    "message splitter": ("gateway.core.protocol.MessageSplitter",),
    "passthrough": ("gateway.core.protocol.HttpBinding.passthrough",),
    "payload": ("gateway.core.requests.Translate.payload",),
    "peer": ("tests.peers",),
    "placement": ("gateway.routing.placement.table.Placement", "gateway.routing.placement.table.Placements"),
    "point": ("gateway.core.protocol.Wire.points",),
    "protocol, codec": ("gateway.core.protocol.Protocol", "gateway.protocols"),
    "reason": ("gateway.core.errors.Reason",),
    "record": ("gateway.core.record.Record",),
    "replica": ("gateway.routing.placement.table.ReplicaState.HELD",),
    "reported load": ("gateway.routing.load.reported.ReportedLoad",),
    "route": ("gateway.routing.router.Route",),
    "safe": ("gateway.policies.context.PolicyContext",),
    "sample server": ("gateway.reference",),
    "sequence": ("gateway.routing.sequences.Sequences",),
    "server capacity": ("gateway.routing.placement.plan.Capacity", "gateway.routing.placement.plan.ServerCapacities"),
    "server inventory": (
        "gateway.routing.placement.table.ServerInventory",
        "gateway.routing.placement.inventory.InventoryRefresher",
    ),
    "server type": ("gateway.core.protocol.ServerTypes",),
    "signature": ("gateway.core.models.Signature",),
    "slot": ("gateway.routing.endpoint.Endpoint",),
    "started servers": ("gateway.servers.fleet.StartedServers",),
    "step of a graph": ("gateway.bridge.graphs.graph.GraphStep", "gateway.bridge.graphs.calls.StepCalls"),
    "target": ("gateway.core.protocol.Target",),
    "traits": ("gateway.core.protocol.Traits",),
    "transport binding": ("gateway.core.protocol.TransportBinding",),
}
"""The project's terms, each with the objects in the code that it stands for. The docstring of the first object defines
the term."""


def glossary() -> str:
    """Return the table of terms."""
    rows = (f"| {term} | {definition(term)} | {_code(places)} |\n" for term, places in TERMS.items())
    return "| term | meaning | where |\n|---|---|---|\n" + "".join(rows)


def definition(term: str) -> str:
    """Return the first sentence of a docstring, or the sentence in its list item for the term (- `slot`: ...)."""
    text = docstring(TERMS[term][0])
    listed = re.search(rf"^ *- `{term}`: (.+?)(?=\n *- |\n\n|\Z)", text, re.MULTILINE | re.DOTALL)
    return _first_sentence(listed[1] if listed else text)


def _first_sentence(text: str) -> str:
    paragraph = " ".join(text.split("\n\n")[0].split())
    found = re.search(r"(?<!\.\.)\.(?= |$)", paragraph)
    sentence = paragraph[: found.start()] if found else paragraph.rstrip(":")
    return f"{sentence[0].upper()}{sentence[1:]}.".replace("|", "\\|")


def docstring(path: str) -> str:
    """Return the docstring of a module, class, function, variable or field.

    Raises:
        LookupError: the object does not exist, or has no docstring.
    """
    parts = path.split(".")
    for end in range(len(parts), 0, -1):
        place = ROOT.joinpath(*parts[:end])
        for file in (place.with_suffix(".py"), place / "__init__.py"):
            if file.is_file():
                return _within(_parsed(file), parts[end:], path)
    raise LookupError(f"{path}: there is no such module")


@cache
def _parsed(file: Path) -> ast.Module:
    return ast.parse(file.read_text("utf-8"))


def _within(scope: ast.AST, names: list[str], path: str) -> str:
    text = ast.get_docstring(scope) if isinstance(scope, ast.Module | ast.ClassDef) else None
    for name in names:
        scope, text = _named(scope, name, path)
    if not text:
        raise LookupError(f"{path}: it has no docstring")
    return text


def _named(scope: ast.AST, name: str, path: str) -> tuple[ast.AST, str | None]:
    """Return the object `name` of a module or class, and its docstring."""
    inside = getattr(scope, "body", [])
    for node, after in zip(inside, [*inside[1:], None], strict=True):
        if isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef) and node.name == name:
            return node, ast.get_docstring(node)
        targets = node.targets if isinstance(node, ast.Assign) else [getattr(node, "target", None)]
        if any(isinstance(each, ast.Name) and each.id == name for each in targets):
            is_text = isinstance(after, ast.Expr) and isinstance(after.value, ast.Constant)
            return node, str(after.value.value) if is_text else None
    raise LookupError(f"{path}: there is no {name}")


def folders() -> str:
    """Return the table of the folders of `gateway`, from the lowest layer to the highest."""
    return "| folder | contents | can import |\n|---|---|---|\n" + "".join(_folder_rows())


def _folder_rows() -> Iterator[str]:
    below: set[str] = set()
    for room, uses in ROOMS.items():
        if not (ROOT / "gateway" / room).is_dir():
            continue
        yield _folder_row(room, "all of the above" if len(below) > 1 and uses >= below else _code(sorted(uses)))
        below.add(room)
        if room in ("protocols", "transports"):
            continue
        for file in sorted((ROOT / "gateway" / room).glob("*/__init__.py")):
            name = f"{room}.{file.parent.name}"
            yield _folder_row(name, _code(sorted(STRANGERS[name])) if name in STRANGERS else "")


def _folder_row(name: str, uses: str) -> str:
    paragraph = " ".join(docstring(f"gateway.{name}").split("\n\n")[0].split()).replace("|", "\\|")
    return f"| `gateway/{name.replace('.', '/')}` | {paragraph} | {uses} |\n"


def _code(names: Iterable[str]) -> str:
    return ", ".join(f"`{name}`" for name in names)
