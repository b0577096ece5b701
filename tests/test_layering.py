"""Who may import whom: codecs stay pure and protocols stay strangers only if nobody reaches across."""

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
EVERYTHING = {
    "app",
    "assembly",
    "bench",
    "cassettes",
    "cli",
    "client",
    "admin",
    "explain",
    "probing",
    "registry",
    "translate",
    "workers",
    "__main__",
    "__init__",
}
"""The modules at the top, which may see everything."""
PER_FOLDER = {"protocols", "transports"}
"""Folders whose subfolders are strangers to each other."""
# `gateway.config` reads the keys of `translate` from the class that the bridge declares them in.
COMMON = {f"gateway.transports.{path.stem}" for path in (ROOT / "gateway/transports").glob("[a-z]*.py")}
"""What those that open sockets themselves share: core has no sockets."""
FORMATS = {
    "gateway.http2": {"gateway.core.errors", "gateway.core.types"},
    "gateway.json": {"gateway.core", "gateway.core.errors", "gateway.core.frozen", "gateway.core.types"},
    "gateway.protobuf": {"gateway.core.casting", "gateway.core.datatypes", "gateway.core.errors", "gateway.core.types"},
}
"""Formats that others are made of, each a package that knows nothing of the gateway: of core they take the error for
malformed bytes, the type of buffers, and the raw form of tensors. Everybody but core and conformance may use them."""


def modules() -> Iterator[tuple[str, ast.Module]]:
    for path in sorted((ROOT / "gateway").rglob("*.py")):
        name = ".".join(path.relative_to(ROOT).with_suffix("").parts)
        yield name.removesuffix(".__init__"), ast.parse(path.read_text())


def imports(tree: ast.Module) -> Iterator[str]:
    for node in ast.walk(tree):
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


@pytest.mark.parametrize(("module", "tree"), list(modules()), ids=lambda each: each if isinstance(each, str) else "")
def test_imports_stay_within_core_and_the_own_folder(module: str, tree: ast.Module) -> None:
    parts = module.split(".")
    if len(parts) == 1 or parts[1] in EVERYTHING:
        return
    inside = [name for name in imports(tree) if name == "gateway" or name.startswith("gateway.")]
    if room(module) in FORMATS:
        beyond = {name for name in inside if room(name) != room(module)} - FORMATS[room(module)]
        assert not beyond, f"{module} imports {beyond}; a format knows nothing of the gateway"
        return
    formats = () if parts[1] in ("core", "conformance") else FORMATS  # the latter checks what is made of them
    allowed = {"gateway.core", room(module), *formats, *(COMMON if parts[1] == "transports" else ())}
    settings = {"gateway.bridge.settings"} if parts[1] == "config" else set()
    settings |= {name for name in inside if parts[1] == "policies" and room(name) == "gateway.comparing"}
    across = [name for name in inside if room(name) not in allowed and name not in settings]
    assert not across, f"{module} imports {across}; only {sorted(allowed)} are its business"


@pytest.mark.parametrize(("module", "tree"), list(modules()), ids=lambda each: each if isinstance(each, str) else "")
def test_only_transports_and_those_that_compose_touch_sockets(module: str, tree: ast.Module) -> None:
    if module == "gateway.core.transport":
        return  # names the socket in the types of its promises
    pure = module.startswith(("gateway.core", *FORMATS, "gateway.protocols", "gateway.bridge", "gateway.policies"))
    touching = {"socket", "ssl", "httptools", "uvicorn", "fastapi"}.intersection(imports(tree))
    assert not (pure and touching), f"{module} imports {touching}"
