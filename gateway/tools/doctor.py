"""Collects information for a bug report: versions, the machine's limits, and a configuration's ports."""

import ctypes
import errno
import os
import platform
import re
import socket
import sys
from collections.abc import Iterator, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, requires, version
from pathlib import Path

from gateway.assembly.server_info import INFO
from gateway.config import Config, ConfigError, Problem, load_with_warnings
from gateway.config.catalog import Catalog
from gateway.core.address import Address
from gateway.core.frozen import frozen
from gateway.transports.listener_connections import descriptors
from gateway.transports.memory import cgroup_memory, physical_memory

GIBIBYTE = 1 << 30
_UNSYNCHRONIZED = 5
"""The TIME_ERROR code, which adjtimex(2) returns while the clock is not synchronized."""
_CPU_MAX = Path("/sys/fs/cgroup/cpu.max")


@frozen
class Diagnosis:
    """The output of `doctor`: rows with a name and a text, grouped by title. `is_bad` is True if the configuration has
    errors or a port is in use."""

    sections: Sequence[tuple[str, Sequence[tuple[str, str]]]]
    is_bad: bool


def diagnosis(config: Path | None, catalog: Catalog) -> Diagnosis:
    """Return the state of this machine and, if `config` is set, of the configuration's ports."""
    sections = [("versions", list(_versions())), ("extras", list(_extras())), ("machine", list(_machine()))]
    if config is None:
        return Diagnosis(sections, is_bad=False)
    loaded, problems = _loaded(config, catalog)
    ports = _ports(loaded) if loaded is not None else []
    sections += [("ports", ports), ("configuration", _problem_rows(problems, is_valid=loaded is not None))]
    return Diagnosis(sections, is_bad=loaded is None or any(text.startswith("taken") for _, text in ports))


def _versions() -> Iterator[tuple[str, str]]:
    yield "gateway", INFO.version
    where = "not in" if sys.prefix == sys.base_prefix else "in"
    yield "python", f"{platform.python_version()} ({platform.python_implementation()}, {where} a virtual environment)"
    yield "system", f"{platform.system()} {platform.release()}, {platform.machine()}"
    for name in sorted(_required("")):
        yield name, _installed(name)


def _extras() -> Iterator[tuple[str, str]]:
    """Yield each extra and its packages."""
    found = sorted(
        {each for line in requires("modelglot") or () for each in re.findall(r"extra == ['\"]([a-z]+)", line)}
    )
    for extra in found:
        packages = sorted(_required(extra))
        missing = [each for each in packages if not _installed(each)[0].isdigit()]
        shown = ", ".join(f"{each} {_installed(each)}" for each in packages)
        yield extra, f"not installed ({', '.join(missing)})" if missing else shown


def _required(extra: str) -> set[str]:
    """Return the packages that the gateway or one of its extras requires on this system."""
    found = set()
    for line in requires("modelglot") or ():
        name, _, condition = line.partition(";")
        of = re.search(r"extra == ['\"]([a-z]+)", condition)
        if (of[1] if of else "") == extra:
            found.add(re.split(r"[\[<>=!~ ]", name.strip())[0])
    return found


def _installed(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return "not installed"


def _machine() -> Iterator[tuple[str, str]]:
    usable = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    yield "processors", f"{os.cpu_count()}, usable: {usable}{_cpu_share()}"
    limit = cgroup_memory()
    shown = f"{physical_memory() / GIBIBYTE:.1f} GiB"
    yield "memory", shown if limit is None else f"{shown}, limited to {limit / GIBIBYTE:.1f} GiB (cgroup)"
    yield "open files", f"at most {descriptors()}"
    yield "clock", f"{datetime.now(UTC).isoformat(timespec='seconds')}, {_clock_state()}"


def _cpu_share() -> str:
    """Return the CPU limit that a container's cgroup sets."""
    with suppress(OSError, ValueError):
        quota, period = _CPU_MAX.read_text().split()
        if quota != "max":
            return f", limited to {int(quota) / int(period):.2f} (cgroup)"
    return ""


def _clock_state() -> str:
    """Return whether the clock is synchronized (Linux)."""
    try:
        state = ctypes.CDLL(None).adjtimex(ctypes.create_string_buffer(512))  # `modes` of 0 changes nothing
    except (OSError, AttributeError, TypeError):
        return "synchronization unknown"
    if state < 0:
        return "synchronization unknown"
    if state == _UNSYNCHRONIZED:
        return "not synchronized, according to the kernel, so checks of tokens and certificates can be wrong"
    return "synchronized"


def _loaded(path: Path, catalog: Catalog) -> tuple[Config | None, Sequence[Problem]]:
    try:
        return load_with_warnings(path, catalog)
    except ConfigError as error:
        return None, error.problems


def _ports(config: Config) -> list[tuple[str, str]]:
    """For each address that the configuration binds, return whether it is free."""
    binds = {f"listener {each.name}": each.bind for each in config.listeners}
    binds |= {f"reference {each.protocol}": each.bind for each in config.reference}
    others = {"health": config.health, "admin": config.admin}
    binds |= {name: each.bind for name, each in others.items() if each is not None}
    return [(name, _whether_free(bind)) for name, bind in binds.items()]


def _whether_free(address: Address) -> str:
    if address.path:
        return "a unix socket"
    family = socket.AF_INET6 if ":" in address.host else socket.AF_INET
    with socket.socket(family) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((address.host, address.port))
        except OSError as error:
            by_itself = "; possibly by this gateway, if it runs" if error.errno == errno.EADDRINUSE else ""
            return f"taken or not allowed: port {address.port}: {error.strerror}{by_itself}"
    return f"free: port {address.port}"


def _problem_rows(problems: Sequence[Problem], *, is_valid: bool) -> list[tuple[str, str]]:
    """Return the problems without their messages, because a message can quote a value from the configuration."""
    rows = [("valid", "yes" if is_valid else "no")]
    return rows + [("warning" if each.is_warning else "error", str(each)) for each in problems]
