"""Signals that come while a command starts: it ends at once with status 0 and is never ready, also as the first process
of a container, for which the kernel drops the signals that nothing handles."""

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.cli.commands import ENVIRON, ROOT
from tests.limits import GENEROUS

CONFIG = """
listeners: [{name: http, bind: "127.0.0.1:0", protocols: [v2-rest]}]
health: {bind: "127.0.0.1:0"}
workers: WORKERS
reference: [{protocol: umbridge, bind: "127.0.0.1:0", models: [double]}]
backends: {lab: {protocol: umbridge, endpoints: ["http://127.0.0.1:1"]}}
routes: [{match: {model: "*"}, backend: lab}]
"""
PROGRAM = """
import logging, os, runpy, signal, sys

number, kind, moment, *sys.argv = sys.argv[1:]


def at(found):
    if found.startswith(moment):
        os.kill(os.getpid(), getattr(signal, number))


class Imports:
    def find_spec(self, name, *ignored):
        at(name)


class Lines(logging.Handler):
    def emit(self, record):
        at(record.getMessage())


if kind == "import":
    sys.meta_path.insert(0, Imports())
else:
    logging.getLogger("gateway").addHandler(Lines())
runpy.run_module("gateway", run_name="__main__")
"""
"""The gateway, which gets a signal at a moment of its own start: at an import, or at a line of its log."""
MOMENTS = {
    "the first import": ("serve", 1, "import", "gateway.cli"),
    "an import of the command line": ("serve", 1, "import", "typer"),
    "imports of the command": ("serve", 1, "import", "gateway.cli.commands.serve"),
    "imports within the event loop": ("serve", 1, "import", "gateway.admin.console"),
    "a reference server that serves": ("serve", 1, "line", "reference"),
    "imports of the supervisor": ("serve", 2, "import", "gateway.runtime.workers.supervisor"),
    "the start of workers": ("serve", 2, "line", "health answers"),
    "recording": ("record", 1, "import", "gateway.runtime.app"),
    "a reference server": ("reference", 1, "import", "gateway.protocols"),
}
NAMESPACE = ("unshare", "--user", "--map-root-user", "--pid", "--fork", "--kill-child")
"""Makes the command PID 1 of a namespace."""


def can_unshare() -> bool:
    return shutil.which("unshare") is not None and not subprocess.run([*NAMESPACE, "true"], check=False).returncode


def arguments(command: str, workers: int, folder: Path) -> tuple[str, ...]:
    if command == "reference":
        return "reference", "--protocol", "v2-rest", "--bind", "127.0.0.1:0", "--model", "double"
    path = folder / "gateway.yaml"
    path.write_text(CONFIG.replace("WORKERS", str(workers)))
    output = ("--output", str(folder / "tape")) if command == "record" else ()
    return command, "--config", str(path), *output


def ended(before: tuple[str, ...], program: str, *given: str) -> "subprocess.CompletedProcess[str]":
    command = [*before, sys.executable, "-c", program, *given]
    return subprocess.run(command, cwd=ROOT, env=ENVIRON, capture_output=True, text=True, timeout=GENEROUS, check=False)


@pytest.mark.long
@pytest.mark.parametrize("is_first", [False, True], ids=["", "PID 1"])
@pytest.mark.parametrize("moment", MOMENTS)
def test_a_signal_ends_the_start(tmp_path: Path, moment: str, is_first: bool) -> None:
    if is_first and not can_unshare():
        pytest.skip("PID namespaces are not allowed here")
    command, workers, kind, text = MOMENTS[moment]
    namespace = NAMESPACE if is_first else ()
    done = ended(namespace, PROGRAM, "SIGTERM", kind, text, "gateway", *arguments(command, workers, tmp_path))
    assert done.returncode == 0, done
    assert "SIGTERM received" in done.stderr
    assert "Traceback" not in done.stderr
    assert "ready" not in done.stdout.split()
    assert not done.stderr.rstrip().endswith("ready")


@pytest.mark.parametrize("number", ["SIGINT", "SIGHUP"])
def test_other_signals_at_the_start(tmp_path: Path, number: str) -> None:
    """SIGINT ends it as SIGTERM does. SIGHUP means to read a file again that has not been read yet."""
    path = tmp_path / "gateway.yaml"
    path.write_text("listeners: 1")
    done = ended((), PROGRAM, number, "import", "gateway.cli.commands.serve", "gateway", "serve", "--config", str(path))
    if number == "SIGINT":
        assert (done.returncode, done.stderr) == (0, "SIGINT received before the start was over: ended\n")
    else:
        assert done.returncode == 1
        assert "gateway.yaml:1" in done.stderr


def test_other_commands_end_as_first_process_too() -> None:
    if not can_unshare():
        pytest.skip("PID namespaces are not allowed here")
    done = ended(NAMESPACE, PROGRAM, "SIGTERM", "import", "gateway.cli.commands.schema", "gateway", "schema")
    assert (done.returncode, done.stdout) == (143, "")


def test_workers_ignore_signals_before_they_import_anything() -> None:
    """A service manager sends SIGTERM to all processes; the supervisor says what it means."""
    code = """
import os, runpy, signal, sys
class Imports:
    def find_spec(self, name, *ignored):
        if name == 'gateway.runtime.workers.worker':
            os.kill(os.getpid(), signal.SIGTERM)
            print('goes on')
            raise SystemExit
sys.meta_path.insert(0, Imports())
runpy.run_module('gateway.runtime.workers', run_name='__main__')
"""
    done = ended((), code)
    assert (done.returncode, done.stdout) == (0, "goes on\n"), done


def test_a_start_looks_for_no_garbage() -> None:
    """All that is imported stays."""
    code = """
import gc, sys
from gateway.__main__ import main
before = gc.get_stats()[0]['collections']
sys.argv[1:] = ['check', 'gateway/demo.yaml']
try:
    main()
finally:
    print(gc.get_stats()[0]['collections'] - before)
"""
    assert int(ended((), code).stdout.splitlines()[-1]) < 10
