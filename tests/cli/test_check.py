"""`gateway check`."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

import gateway.policies as gateway_policies
from gateway.assembly import registry
from tests.cli.commands import ENVIRON, ROOT, gateway, written

SHIPPED = [ROOT / "config/gateway.yaml", *sorted((ROOT / "config/examples").glob("*.yaml"))]


@pytest.mark.parametrize("path", SHIPPED, ids=lambda path: path.name)
def test_shipped_configurations_are_valid(path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "lab").symlink_to(ROOT / "config/examples/hpc")
    monkeypatch.setenv("HOME", str(tmp_path))
    for command in ("sbatch", "squeue", "scontrol", "scancel"):  # SLURM's, which `check` looks for
        (tmp_path / command).touch(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=os.pathsep)
    for named in ([str(path)], ["--config", str(path)]):
        result = gateway("check", *named)
        assert (result.exit_code, result.output) == (0, "")


def test_every_error_is_printed_with_its_place(tmp_path: Path) -> None:
    path = written(
        tmp_path,
        """listeners:
  - {name: http, bind: "127.0.0.1:8080", protocols: [v2-rst]}
backends:
  science:
    protocol: umbridge
    endpoints: ["http://127.0.0.1:4242"]
    polcies: []
routes:
  - {match: {model: "*"}, backend: sceince}
""",
    )
    result = gateway("check", "--config", path)
    assert result.exit_code == 1
    assert result.stderr == (
        f"{path}:2:54: unknown protocol 'v2-rst'; did you mean 'v2-rest'?\n"
        f"{path}:7:5: unknown key 'polcies'; did you mean 'policies'?\n"
        f"{path}:9:36: unknown backend 'sceince'; did you mean 'science'?\n"
    )


@pytest.mark.parametrize(
    ("word", "told"),
    [
        ("triton", "'triton', which is a server type; use v2-grpc or v2-rest"),
        ("kserve-v2", "'kserve-v2'; did you mean v2-grpc or v2-rest?"),
        ("tensorflow", "'tensorflow', which is a server type; use v1-rest"),
        ("mlflow", "'mlflow'; did you mean 'json:mlflow'?"),
        ("http", "'http'; expected graphpipe, grps-brpc, "),
    ],
)
def test_the_protocols_that_a_wrong_name_may_mean_are_told(tmp_path: Path, word: str, told: str) -> None:
    path = written(tmp_path, f'listeners: [{{name: http, bind: "127.0.0.1:8080", protocols: [{word}]}}]\n')
    assert f"unknown protocol {told}" in gateway("check", path).stderr


def test_files_of_another_machine_are_not_looked_at_where_that_is_asked_for(tmp_path: Path) -> None:
    """A configuration that Helm has rendered names files of the pod."""
    tls = "tls: {certificate: /nowhere/tls.crt, key: /nowhere/tls.key}"
    text = (
        f'listeners: [{{name: http, bind: "0.0.0.0:8080", protocols: [v2-rest], auth: {{}}, {tls}}}]\n'
        "auth:\n  keys: {file: /nowhere/keys.yaml}\n"
        "  jwt: {issuer: 'https://a', audience: [b], jwks: /nowhere/keys.json}\n"
        "principals: {'*': {permissions: [use]}}\n"
        "backends: {a: {protocol: umbridge, endpoints: ['a:1']}}\nroutes: [{match: {}, backend: a}]\n"
    )
    found = gateway("check", "--strict", written(tmp_path, text))
    assert (found.exit_code, found.stderr.count("/nowhere/")) == (1, 3)
    without = gateway("check", "--strict", "--no-files", written(tmp_path, text))
    assert (without.exit_code, without.stderr) == (0, "")
    path = written(tmp_path, text.replace("/nowhere/tls.crt", "tls.crt"))
    assert "expected an absolute path" in gateway("check", "--no-files", path).stderr


def test_the_port_of_a_collector_for_grpc_is_a_warning(tmp_path: Path) -> None:
    sound = 'listeners: [{name: http, bind: "127.0.0.1:8080", protocols: [v2-rest]}]\n'
    path = written(tmp_path, f'{sound}tracing: {{otlp: "http://collector:4317"}}\n')
    assert f"{path}:2:17: warning: 4317 is the OTLP port for gRPC" in gateway("check", path).stderr
    path = written(tmp_path, f'{sound}tracing: {{otlp: "http://collector:4318"}}\n')
    assert "4317" not in gateway("check", path).stderr


def test_a_policy_that_lacks_a_part_is_named_with_its_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As of somebody who writes one in a clone."""
    module = tmp_path / "half.py"
    module.write_text("class Settings: ...\ndef wrap(handler, settings): return handler\n")
    monkeypatch.setattr(gateway_policies, "__path__", [*gateway_policies.__path__, str(tmp_path)])
    registry.policies.cache_clear()
    try:
        for command in ("check", "serve"):
            result = gateway(command, "--config", str(SHIPPED[0]))
            assert (result.exit_code, result.stdout) == (1, "")
            assert result.stderr == (
                f"{module}: the policy 'half' has no wrap_stream; a policy has Settings, wrap, wrap_stream "
                "(see gateway.policies)\n"
            )
    finally:
        sys.modules.pop("gateway.policies.half", None)
        registry.policies.cache_clear()


DOUBTFUL = """listeners:
  - {name: http, bind: "127.0.0.1:8080", protocols: [v2-rest]}
backends:
  a: {protocol: umbridge, endpoints: ["localhost:8080", "http://h", "http://H:80/", "http://h/Evaluate"]}
  b: {protocol: v2-grpc, endpoints: ["h:1", "dns:///H:1", "[::1]:1", "[0::1]:1"]}
routes:
  - {match: {model: "*"}, backend: a}
  - {match: {model: m}, backend: a}
"""
WARNINGS = """\
4:39: 'localhost:8080' is the gateway's own listener 'http': requests can loop; use the server's address
4:69: 'http://H:80/' is another spelling of endpoints[1]; remove one of them
4:85: umbridge appends its own paths, such as /Evaluate, to the path of 'http://h/Evaluate'; remove this part \
from the path
5:3: no route uses backend 'b'; add a route, or remove the backend
5:45: 'dns:///H:1' is another spelling of endpoints[0]; remove one of them
5:70: '[0::1]:1' is another spelling of endpoints[2]; remove one of them
8:13: routes[0] takes every request for 'm', so this route gets only derived names such as m.gradient; put it \
before routes[0]
"""


def test_a_probable_mistake_is_a_warning(tmp_path: Path) -> None:
    path = written(tmp_path, DOUBTFUL)
    lines = [line.split(": ", 1) for line in WARNINGS.splitlines()]
    for options, code, kind in (((), 0, "warning: "), (("--strict",), 1, "")):
        result = gateway("check", *options, "--config", path)
        expected = "".join(f"{path}:{place}: {kind}{text}\n" for place, text in lines)
        assert (result.exit_code, result.stdout, result.stderr) == (code, "", expected)


def test_strict_accepts_a_configuration_without_warnings() -> None:
    assert gateway("check", "--strict", "--config", str(SHIPPED[0])).exit_code == 0


def test_on_a_terminal_it_says_that_there_are_no_errors() -> None:
    main, terminal = os.openpty()
    command = [str(Path(sys.executable).with_name("gateway")), "check", "--config", str(SHIPPED[0])]
    try:
        assert subprocess.run(command, env={**os.environ, **ENVIRON}, stderr=terminal).returncode == 0
        assert os.read(main, 4096).decode().strip() == f"{SHIPPED[0]}: no errors"
    finally:
        os.close(main)
        os.close(terminal)
