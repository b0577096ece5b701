"""Who may import whom: codecs stay pure and protocols stay strangers only if nobody reaches across."""

import ast
import re
from collections.abc import Iterator
from functools import cache
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

from tests.every_case import failures

ROOT = Path(__file__).parent.parent
ROOMS: dict[str, set[str]] = {
    "core": set(),
    "protocols": {"core"},
    "transports": {"core"},
    "bridge": {"core"},
    "routing": {"core"},
    "policies": {"core"},
    "auth": {"core"},
    "servers": {"core"},
    "observing": {"core"},
    "reference": {"core"},
    "config": {"core", "bridge.settings", "bridge.graphs", "protocols.json.form"},
    "assembly": {
        *("core", "protocols", "transports", "bridge", "routing", "policies", "auth", "servers"),
        *("observing", "reference", "config"),
    },
    "client": {
        *("core", "transports", "bridge", "routing", "assembly.connecting", "assembly.forms", "assembly.registry")
    },
    "admin": {
        *("core", "transports", "bridge", "routing", "policies", "auth", "servers", "observing", "config", "assembly"),
        "client",
    },
    "runtime": {
        *("core", "transports", "bridge", "routing", "policies", "servers", "observing", "config", "assembly", "admin")
    },
    "tools": {"core", "transports", "bridge", "policies", "config", "assembly", "client"},
    "cli": {
        *("core", "transports", "bridge", "routing", "policies", "auth", "reference", "config", "assembly", "client"),
        *("admin", "runtime", "tools"),
    },
    "__main__": {"cli", "runtime.starting"},
}
"""The rooms of `gateway`, from the bottom to the top, and the rooms (or single modules) that each may import."""

STRANGERS: dict[str, set[str]] = {
    "core.http2": {"core.errors", "core.messages"},
    "core.json": {
        *("core.bytes_elements", "core.casting", "core.datatypes", "core.errors", "core.frozen", "core.operations"),
        *("core.messages", "core.models", "core.requests", "core.tensors"),
    },
    "core.protobuf": {"core.casting", "core.datatypes", "core.errors", "core.messages"},
    "policies.comparing": {"core"},
    "servers.discovery": {"core"},
    "tools.bench": {"core", "assembly.connecting", "bridge", "client"},
    "tools.cassettes": {"core", "assembly", "client", "policies.comparing", "tools.printed"},
    "tools.conformance": {"core"},
    "tools.probing": {*("core", "transports", "bridge", "policies", "config", "assembly", "client", "tools.printed")},
    "tools.proposing": {"core", "config", "tools.probing"},
    "tools.top": {"core", "tools.admin_port", "tools.printed"},
}
"""Folders that know nothing of the room that they stand in, and all that they may import beside themselves. Formats
take from core the error for malformed bytes, the type of buffers, and the raw form of tensors; `conformance` must not
share code with what it checks."""

FILES_IN_COMMON = {f"gateway.transports.{path.stem}" for path in (ROOT / "gateway/transports").glob("[a-z]*.py")}
"""The files that all transports share. Every folder of `transports` and of `protocols` is a stranger to the others."""


def files() -> Iterator[tuple[str, Path]]:
    """The name of each module, and its file."""
    for path in sorted((ROOT / "gateway").rglob("*.py")):
        name = ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__")
        if name != "gateway":
            yield name, path


@cache
def parsed(path: Path) -> ast.Module:
    """The syntax tree of a module."""
    try:
        return ast.parse(path.read_text())
    except SystemError:  # Python before 3.11.8, if another thread or a finalizer parses at the same time (gh-106905)
        return ast.parse(path.read_text())


@cache
def imports(path: Path) -> tuple[str, ...]:
    """The names that a module imports."""
    return tuple(_imports(path))


def _imports(path: Path) -> Iterator[str]:
    for node in ast.walk(parsed(path)):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, "relative imports hide who imports whom"
            assert node.module is not None
            if node.module.count(".") < 2 and node.module.startswith("gateway"):
                yield from (f"{node.module}.{alias.name}" for alias in node.names)
            else:
                yield node.module


def of_gateway(path: Path) -> list[str]:
    """The names that a module imports from this package."""
    return [name for name in imports(path) if name == "gateway" or name.startswith("gateway.")]


def room(module: str) -> str:
    return module.split(".")[1]


def is_within(module: str, place: str) -> bool:
    """Whether `module` is `place`, a room, a folder or a module below `gateway`, or in it."""
    return f"{module}.".startswith(f"gateway.{place}.")


def test_rooms_use_the_rooms_below_them() -> None:
    with failures() as failed:
        for module, path in files():
            with failed.of(module):
                uses = {*ROOMS[room(module)], room(module)}
                beyond = [name for name in of_gateway(path) if not any(is_within(name, use) for use in uses)]
                assert not beyond, f"beside its own room it may use {sorted(uses - {room(module)})}"


def test_no_arrow_points_upward() -> None:
    order = list(ROOMS)
    for at, (name, uses) in enumerate(ROOMS.items()):
        above = {use.partition(".")[0] for use in uses} & set(order[at:])
        assert not above, f"{name} uses {above}, which stand above it or beside it"


def test_rooms_are_few_and_all_of_them_have_rules() -> None:
    top = {path.stem for path in (ROOT / "gateway").iterdir() if path.is_dir() or path.suffix == ".py"}
    assert top - {"__init__", "__pycache__"} == set(ROOMS)
    assert len(ROOMS) - 1 <= 17


def test_folders_of_a_room_are_strangers() -> None:
    with failures() as failed:
        for module, path in files():
            with failed.of(module):
                check_stranger(module, path)


def check_stranger(module: str, path: Path) -> None:
    name = module.removeprefix("gateway.")
    folder = next((each for each in STRANGERS if is_within(module, each)), None)
    if folder is not None:
        uses = STRANGERS[folder]
    elif room(module) in ("protocols", "transports") and module not in FILES_IN_COMMON and "." in name:
        folder, uses = ".".join(name.split(".")[:2]), ROOMS[room(module)]
    else:
        return
    beyond = [
        each
        for each in of_gateway(path)
        if not any(is_within(each, use) for use in {folder, *uses}) and not FILES_IN_COMMON & {each, _parent(each)}
    ]
    assert not beyond, f"{module} imports {beyond}; beside its own folder it may use {sorted(uses)}"


def _parent(name: str) -> str:
    return name.rpartition(".")[0]


def test_only_transports_and_those_that_compose_touch_sockets() -> None:
    touching = {
        module: {"socket", "ssl", "httptools", "uvicorn", "fastapi"}
        & {name.partition(".")[0] for name in imports(path)}
        for module, path in files()
        if room(module) in ("core", "protocols", "bridge", "policies")
        and module != "gateway.core.transport"  # names the socket in the types of its promises
    }
    assert {module: names for module, names in touching.items() if names} == {}


PRIVATE = re.compile(r"_[a-z]")


def classes() -> dict[str, list[tuple[str, ast.ClassDef]]]:
    """All classes by name, each with the module that it is in."""
    found: dict[str, list[tuple[str, ast.ClassDef]]] = {}
    for module, path in files():
        for node in ast.walk(parsed(path)):
            if isinstance(node, ast.ClassDef):
                found.setdefault(node.name, []).append((module, node))
    return found


def private_methods(node: ast.ClassDef) -> set[str]:
    methods = (each for each in node.body if isinstance(each, ast.FunctionDef | ast.AsyncFunctionDef))
    return {each.name for each in methods if PRIVATE.match(each.name)}


def test_no_private_method_is_overridden() -> None:
    """A method for subclasses to override has a public name, and a docstring that says when it is called."""
    known = classes()
    overridden = [
        f"{module}.{node.name}.{method} over {base.name}"
        for found in known.values()
        for module, node in found
        for name in node.bases
        for _, base in known.get(ast.unparse(name).partition("[")[0].rpartition(".")[2], [])
        for method in private_methods(node) & private_methods(base)
    ]
    assert overridden == []


def test_classes_leave_the_private_names_of_other_classes_alone() -> None:
    """A class may know another object of its own kind. The two clients are one: Client runs AsyncClient in a thread."""
    with failures() as failed:
        for module, path in files():
            if module != "gateway.client.synchronous":
                with failed.of(module):
                    check_private_names(path)


def check_private_names(path: Path) -> None:
    for owner in ast.walk(parsed(path)):
        if not isinstance(owner, ast.ClassDef):
            continue
        own = {each.attr for each in ast.walk(owner) if isinstance(each, ast.Attribute) and _of_self(each)}
        own |= private_methods(owner) | {"_replace", "_value_"}  # named tuples and enums have no other names for them
        for node in ast.walk(owner):
            if isinstance(node, ast.Attribute) and PRIVATE.match(node.attr) and not _of_self(node):
                assert node.attr in own, f"line {node.lineno}: {ast.unparse(node)}"


def _of_self(node: ast.Attribute) -> bool:
    match node.value:
        case ast.Name(id="self" | "cls") | ast.Call(func=ast.Name(id="super"), args=[]):
            return True
    return False


def test_no_call_has_more_than_eight_positional_arguments() -> None:
    calls = [
        f"{module}, line {node.lineno}: {ast.unparse(node.func)}"
        for module, path in files()
        for node in ast.walk(parsed(path))
        if isinstance(node, ast.Call) and len(node.args) > 8
    ]
    assert calls == []


def test_backends_are_of_one_kind_and_only_its_slots_differ() -> None:
    below = [
        f"{module}.{node.name}"
        for found in classes().values()
        for module, node in found
        if "Backend" in map(ast.unparse, node.bases)
    ]
    assert below == []


def test_files_import_each_other_in_one_direction_only() -> None:
    """Imports for types included: else nobody can read one file before the other."""
    names = {module for module, _ in files()}
    graph = {module: _modules(path, names) - {module} for module, path in files()}
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as error:
        pytest.fail(" imports ".join(reversed(error.args[1])))


def _modules(path: Path, names: set[str]) -> set[str]:
    """The modules, of these names, that a file imports or imports something from."""
    tree = ast.walk(parsed(path))
    found = [(each.module, alias.name) for each in tree if isinstance(each, ast.ImportFrom) for alias in each.names]
    full = {f"{module}.{name}" if f"{module}.{name}" in names else module or "" for module, name in found}
    return full & names
