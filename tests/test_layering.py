"""Who may import whom: codecs stay pure and protocols stay strangers only if nobody reaches across."""

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
PARTS = {
    "auth",
    "bridge",
    "comparing",
    "config",
    "discovery",
    "observing",
    "policies",
    "reference",
    "routing",
    "servers",
}
"""Rooms that know nothing of each other: a running gateway is made of them."""
COMPOSING: dict[str, set[str]] = {
    "process": {"config"},
    "registry": {"policies", "protocols", "transports"},
    "translate": {"registry"},
    "assembly": {*PARTS, "registry", "transports"},
    "client": {"assembly.connecting", "bridge", "registry", "routing", "transports"},
    "explain": {"assembly", "bridge", "config", "observing", "registry", "routing", "transports"},
    "bench": {"assembly", "bridge", "client"},
    "probing": {"assembly", "bridge", "client", "config", "policies", "registry", "transports"},
    "cassettes": {"assembly", "client", "comparing", "registry"},
    "admin": {*PARTS, "assembly", "client", "explain", "registry", "translate", "transports"},
    "app": {*PARTS, "admin", "assembly", "explain", "registry", "transports"},
    "workers": {*PARTS, "admin", "app", "assembly", "process", "registry", "transports"},
    "cli": {
        *PARTS,
        *("admin", "app", "assembly", "bench", "cassettes", "client", "conformance", "explain", "probing", "process"),
        *("registry", "translate", "transports", "workers"),
    },
    "__main__": {"cli", "process"},
    "__init__": set(),
}
"""The rooms that put others together, from the bottom to the top, and the rooms (or single modules) that each uses
beside core and the formats."""
PER_FOLDER = {"protocols", "transports"}
"""Folders whose subfolders are strangers to each other."""
# `gateway.config` reads the keys of `translate` from the class that the bridge declares them in.
COMMON = {f"gateway.transports.{path.stem}" for path in (ROOT / "gateway/transports").glob("[a-z]*.py")}
"""What those that open sockets themselves share: core has no sockets."""
FORMATS = {
    "gateway.http2": {"gateway.core.errors", "gateway.core.types"},
    "gateway.json": {
        "gateway.core",
        "gateway.core.casting",
        "gateway.core.datatypes",
        "gateway.core.errors",
        "gateway.core.frozen",
        "gateway.core.operations",
        "gateway.core.types",
    },
    "gateway.protobuf": {"gateway.core.casting", "gateway.core.datatypes", "gateway.core.errors", "gateway.core.types"},
}
"""Formats that others are made of, each a package that knows nothing of the gateway: of core they take the error for
malformed bytes, the type of buffers, and the raw form of tensors. Everybody but core and conformance may use them."""


def files() -> Iterator[tuple[str, Path]]:
    """The name of each module, and its file."""
    for path in sorted((ROOT / "gateway").rglob("*.py")):
        name = ".".join(path.relative_to(ROOT).with_suffix("").parts)
        yield name.removesuffix(".__init__"), path


each_module = pytest.mark.parametrize(("module", "file"), [pytest.param(*each, id=each[0]) for each in files()])


def imports(file: Path) -> Iterator[str]:
    for node in ast.walk(ast.parse(file.read_text())):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, "relative imports hide who imports whom"
            assert node.module is not None
            yield from (f"gateway.{alias.name}" for alias in node.names) if node.module == "gateway" else (node.module,)


def room(module: str) -> str:
    """The folder that a module may import freely: `gateway.core`, `gateway.protocols.v2`, ..."""
    parts = module.split(".")
    depth = 3 if len(parts) > 1 and parts[1] in PER_FOLDER else 2
    return ".".join(parts[:depth])


def top(module: str) -> str:
    """The folder at the top that a module is in."""
    return ".".join(module.split(".")[:2])


@each_module
def test_imports_stay_within_core_and_the_own_folder(module: str, file: Path) -> None:
    parts = module.split(".")
    inside = [name for name in imports(file) if name == "gateway" or name.startswith("gateway.")]
    if room(module) in FORMATS:
        beyond = {name for name in inside if room(name) != room(module)} - FORMATS[room(module)]
        assert not beyond, f"{module} imports {beyond}; a format knows nothing of the gateway"
        return
    formats = (
        () if room(module) in ("gateway.core", "gateway.conformance") else FORMATS
    )  # the latter checks what is made of them
    allowed = {"gateway.core", room(module), *formats, *(COMMON if top(module) == "gateway.transports" else ())}
    if len(parts) == 1 or parts[1] in COMPOSING:
        uses = COMPOSING["__init__" if len(parts) == 1 else parts[1]]
        beyond = {
            each
            for each in inside
            if not {each, room(each), top(each)} & (allowed | {f"gateway.{use}" for use in uses})
        }
        assert not beyond, f"{module} imports {beyond}; beside core and the formats it may use {sorted(uses)}"
        return
    settings = {"gateway.bridge.settings"} if parts[1] == "config" else set()
    settings |= {name for name in inside if parts[1] == "policies" and room(name) == "gateway.comparing"}
    across = [name for name in inside if room(name) not in allowed and name not in settings]
    assert not across, f"{module} imports {across}; only {sorted(allowed)} are its business"


def test_rooms_that_compose_use_only_rooms_below_them() -> None:
    order = list(COMPOSING)
    for at, (name, uses) in enumerate(COMPOSING.items()):
        above = {each.partition(".")[0] for each in uses} & set(order[at:])
        assert not above, f"{name} uses {above}, which stand above it or beside it"


@each_module
def test_only_transports_and_those_that_compose_touch_sockets(module: str, file: Path) -> None:
    if module == "gateway.core.transport":
        return  # names the socket in the types of its promises
    pure = module.startswith(("gateway.core", *FORMATS, "gateway.protocols", "gateway.bridge", "gateway.policies"))
    touching = {"socket", "ssl", "httptools", "uvicorn", "fastapi"}.intersection(imports(file))
    assert not (pure and touching), f"{module} imports {touching}"
