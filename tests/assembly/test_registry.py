import importlib
import textwrap
from pathlib import Path
from types import ModuleType

import pytest

from gateway.assembly import registry
from gateway.policies import timeout

PROTOCOL = "from gateway.core.protocol import HttpBinding, Protocol\ndef f(*a): ...\nPROTOCOLS = ({},)\n"
TOY = "Protocol({!r}, HttpBinding(), (), f, f, f, f, f)"


def package(folder: Path, monkeypatch: pytest.MonkeyPatch, **modules: str) -> ModuleType:
    """A package of `modules` in a folder of its own on the path."""
    name = f"package_{folder.name}"
    (folder / name).mkdir(parents=True)
    for module, text in {"__init__": "", **modules}.items():
        (folder / name / f"{module}.py").write_text(textwrap.dedent(text))
    monkeypatch.syspath_prepend(folder)
    importlib.invalidate_caches()
    return importlib.import_module(name)


def test_a_protocol_is_there_because_its_file_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    one, two = PROTOCOL.format(f"{TOY.format('one-a')}, {TOY.format('one-b')}"), PROTOCOL.format(TOY.format("two"))
    found = registry.scan_protocols(package(tmp_path, monkeypatch, one=one, two=two, other=""))
    assert {name: protocol.name for name, protocol in found.items()} == {
        name: name for name in ("one-a", "one-b", "two")
    }


def test_two_protocols_of_a_name_are_both_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    toy = PROTOCOL.format(TOY.format("same"))
    found = package(tmp_path, monkeypatch, one=toy, two=toy)
    with pytest.raises(ValueError, match=rf"'same' is defined in {found.__name__}\.one and in {found.__name__}\.two"):
        registry.scan_protocols(found)


def test_every_protocol_and_policy_of_the_project_is_found() -> None:
    assert registry.policies()["timeout"].Settings is timeout.Settings
    assert all(name == protocol.name for name, protocol in registry.protocols().items())
    assert registry.protocols() is registry.protocols()


def test_a_policy_is_a_module_with_settings_and_both_wraps(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    half = "class Settings: ...\ndef wrap(handler, settings): return handler\n"
    whole = half + "def wrap_stream(handler, settings): return handler\n"
    only_streams = whole.replace("def wrap(", "def unwrap(")
    assert list(registry.scan_policies(package(tmp_path, monkeypatch, whole=whole, none=""))) == ["whole"]
    for policy, missing in ((half, "wrap_stream"), (only_streams, "wrap")):
        found = package(tmp_path / missing, monkeypatch, one=policy)
        why = rf"one\.py: the policy 'one' has no {missing}; a policy"
        with pytest.raises(registry.IncompletePolicyError, match=why):
            registry.scan_policies(found)


def test_transports_are_imported_by_name() -> None:
    assert registry.transport("http").__name__ == "gateway.transports.http"
    with pytest.raises(LookupError, match=r"no transport 'smoke'; expected .*http"):
        registry.transport("smoke")
