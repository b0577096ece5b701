"""Runs the commands that pages show without an output, and reads the JSON documents in pages."""

import json
import os
import re
import signal
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import numpy as np
import pytest
import yaml

from gateway.client import Client
from gateway.tools.cassettes.entries import check_header, read_entry
from tests.cli.commands import ENVIRON
from tests.documents.pages import ROOT, Block, blocks_of
from tests.documents.scripts import (
    SCRIPTS,
    Script,
    Shell,
    blocks_without_output,
    lines_here,
    run_here,
    script_of,
    until_ready,
)
from tests.interop.processes import eventually
from tests.limits import GENEROUS

pytestmark = pytest.mark.long

RUN = [block for block in blocks_without_output() if script_of(block)]
OWN_TESTS = {
    ("docs/discovery.md", "/path/to/server"): "test_the_script_of_a_job_announces_its_server",
    ("docs/discovery.md", "curl -X POST"): "test_a_server_registers",
    ("docs/hpc.md", "mkdir"): "test_the_files_for_a_cluster_are_served",
    ("docs/hpc.md", "gateway serve"): "test_the_files_for_a_cluster_are_served",
    ("docs/record-and-replay.md", "gateway replay"): "test_what_is_recorded_is_replayed",
    ("docs/security.md", "openssl req"): "test_the_certificate_for_a_trial_is_right_for_clients",
}
"""The scripts, by page and beginning of the block."""

CONFIG = {"gateway.yaml": "config/gateway.yaml"}


def the_block(page: str, start: str) -> Block:
    [found] = [each for each in blocks_of(ROOT / page) if each.text.startswith(start)]
    return found


def shell(folder: Path, page: str, **files: str) -> Shell:
    return Shell(folder, ROOT / page, Script(files=files))


@contextmanager
def serving(shell: Shell, line: str) -> Iterator[str]:
    """Yield the output of a server command until it was ready. At the end, stop the server like a user would."""
    with shell.start(line) as process:
        try:
            yield until_ready(process)
            process.send_signal(signal.SIGTERM)
            process.communicate(timeout=GENEROUS)
        finally:
            process.kill()
    assert process.returncode == 0, line


@pytest.mark.real("curl")
@pytest.mark.parametrize("block", RUN, ids=lambda each: each.place)
def test_each_command_without_an_output_succeeds(block: Block, tmp_path: Path) -> None:
    script = script_of(block)
    assert script
    here = Shell(tmp_path, block.page, script)
    with ExitStack() as stack:
        if script.demo:
            stack.enter_context(serving(here, "gateway serve --config demo.yaml"))
        printed = [here.run(line) for line in lines_here(block)]
    assert printed
    assert re.search(script.prints, printed[-1])


def test_every_command_without_an_output_is_run() -> None:
    """For a new block, show its output after `$ ` (`test_pages.py` runs it), or add it to SCRIPTS, or add a test
    here."""
    own = [the_block(*key) for key in OWN_TESTS]
    assert [each.place for each in blocks_without_output() if run_here(each) and each not in [*RUN, *own]] == []
    assert len(RUN) == len(SCRIPTS)
    assert all(name in globals() for name in OWN_TESTS.values())


def test_what_is_recorded_is_replayed(tmp_path: Path) -> None:
    page = "docs/record-and-replay.md"
    here = shell(tmp_path, page, **CONFIG)
    address = here.here("graphpipe://127.0.0.1:8080")
    with serving(here, lines_here(the_block(page, "gateway record"))[0]), Client(address) as client:
        client.infer("double", np.array([[1.5, 2.5]]))
    with (
        serving(here, "gateway serve --config gateway.yaml"),
        here.start("exec gateway reference --protocol graphpipe --bind 127.0.0.1:9000 --model double") as old,
    ):
        try:
            until_listening(here.here("http://127.0.0.1:9000/"))
            tables = [here.run(line) for line in lines_here(the_block(page, "gateway replay"))]
        finally:
            old.kill()
    assert len(tables) == 3
    for each in tables:
        assert re.search(r"^double +1 +1 +0 +0 ", each, re.MULTILINE)
    shown = subprocess.run(
        [sys.executable, "show.py", "cassette.jsonl"], cwd=tmp_path, capture_output=True, text=True, check=True
    )
    assert shown.stdout == "double - [[1.5, 2.5]]\n"


def until_listening(url: str) -> None:
    def answers() -> bool:
        try:
            urllib.request.urlopen(url, timeout=GENEROUS).close()
        except urllib.error.HTTPError:
            return True
        except OSError:
            return False
        return True

    assert eventually(answers, GENEROUS)


PAYLOADS = """
listeners: [{name: http, bind: "127.0.0.1:8080", protocols: [v2-rest]}]
reference: [{protocol: v2-rest, bind: "127.0.0.1:8000", models: [double]}]
backends: {models: {protocol: v2-rest, endpoints: ["127.0.0.1:8000"], policies: [{timeout: {seconds: 30}}]}}
routes: [{match: {model: "*"}, backend: models}]
log: {payloads: {to: FOLDER/payloads.jsonl, sample: 1}}
"""


def test_a_program_reads_the_payload_log(tmp_path: Path) -> None:
    page = "docs/payload-log.md"
    here = shell(tmp_path, page)
    (tmp_path / "gateway.yaml").write_text(here.here(PAYLOADS.replace("FOLDER", str(tmp_path))))
    address = here.here("v2-rest://127.0.0.1:8080")
    with serving(here, "gateway serve --config gateway.yaml"), Client(address) as client:
        for first in (1.0, 2.0):
            client.infer("double", inputs={"x": np.array([[first, 0.5]])})
    program = f'{the_block(page, "import json").text}\nprint(rows("payloads.jsonl", "double", "x").tolist())'
    done = subprocess.run(
        [sys.executable, "-c", program], cwd=tmp_path, capture_output=True, text=True, check=True, timeout=GENEROUS
    )
    assert done.stdout == "[[1.0, 0.5], [2.0, 0.5]]\n"


def test_the_lines_of_a_cassette_are_as_the_page_shows() -> None:
    header, entry = (each.text for each in blocks_of(ROOT / "docs/record-and-replay.md") if each.language == "json")
    check_header(header.encode())
    read = read_entry(json.dumps(json.loads(entry)).encode())
    assert read.request.inputs[0].array.tolist() == [[1.5, 2.5]]
    assert read.outcome.outputs[0].array.tolist() == [[3.0, 5.0]]  # type: ignore[union-attr]


@pytest.mark.real("curl")
def test_a_server_registers(tmp_path: Path) -> None:
    page = "docs/discovery.md"
    [part] = [each.text for each in blocks_of(ROOT / page) if each.language == "yaml" and "register:" in each.text]
    (tmp_path / "token").write_text("secret")
    listeners = 'listeners: [{name: http, bind: "127.0.0.1:8080", protocols: [v2-rest]}]\n'
    whole = f"{listeners}{part}routes: [{{match: {{}}, backend: science}}]\n"
    here = shell(tmp_path, page)
    (tmp_path / "gateway.yaml").write_text(here.here(whole.replace("/secrets/register", f"{tmp_path}/token")))
    with serving(here, "gateway serve --config gateway.yaml"):
        reply = json.loads(here.run("TOKEN=secret; " + the_block(page, "curl -X POST").text.replace("curl", "curl -s")))
    [shown] = [json.loads(each.text) for each in blocks_of(ROOT / page) if each.language == "json"]
    assert reply == {**shown, "lease": reply["lease"]}


@pytest.mark.real("curl")
def test_the_script_of_a_job_announces_its_server(tmp_path: Path) -> None:
    """A job that ends removes the file."""
    page = "docs/discovery.md"
    here = shell(tmp_path, page)
    (tmp_path / "urls").mkdir()
    (tmp_path / "bin/hostname").write_text("#!/bin/sh\necho 127.0.0.1\n")
    (tmp_path / "bin/hostname").chmod(0o755)
    port = here.here("127.0.0.1:4242").partition(":")[2]
    server = f"gateway reference --protocol umbridge --bind 127.0.0.1:{port} --model posterior"
    text = the_block(page, "/path/to/server").text.replace("/path/to/server", server).replace("/shared", str(tmp_path))
    environment = {**ENVIRON, "PATH": f"{tmp_path}/bin:{os.environ['PATH']}", "PORT": port, "SLURM_JOB_ID": "7"}
    announced = tmp_path / "urls/url-7.txt"
    with subprocess.Popen(["bash", "-c", text], env=environment, start_new_session=True) as job:
        try:
            assert eventually(lambda: announced.exists() and bool(announced.read_text()), GENEROUS)
            assert announced.read_text() == f"http://127.0.0.1:{port}\n"
            urllib.request.urlopen(f"{announced.read_text().strip()}/Info", timeout=GENEROUS).close()
            os.killpg(job.pid, signal.SIGTERM)
            job.wait(GENEROUS)
        finally:
            if job.poll() is None:
                os.killpg(job.pid, signal.SIGKILL)
    assert not announced.exists()


@pytest.mark.real("curl", "openssl")
def test_the_certificate_for_a_trial_is_right_for_clients(tmp_path: Path) -> None:
    page = "docs/security.md"
    here = shell(tmp_path, page, **CONFIG)
    here.run(the_block(page, "openssl req").text)
    config = yaml.safe_load((tmp_path / "gateway.yaml").read_text())
    config["listeners"][0]["tls"] = {"certificate": f"{tmp_path}/tls.crt", "key": f"{tmp_path}/tls.key"}
    (tmp_path / "gateway.yaml").write_text(yaml.safe_dump(config))
    port = here.here("127.0.0.1:8080").partition(":")[2]
    with serving(here, "gateway serve --config gateway.yaml"):
        for host in ("127.0.0.1", "localhost"):
            line = f"curl -s --cacert tls.crt --resolve localhost:{port}:127.0.0.1 https://{host}:{port}/v2/health/live"
            assert json.loads(here.run_as_it_is(line)) == {"live": True}


@pytest.mark.parametrize("engine", ["hyperqueue", "slurm"])
def test_the_files_for_a_cluster_are_served(engine: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """tests/interop/test_sampler.py and tests/servers start servers with them."""
    page = "docs/hpc.md"
    monkeypatch.setitem(ENVIRON, "HOME", str(tmp_path))
    here = shell(tmp_path, page)
    here.run_as_it_is(the_block(page, "mkdir").text.replace("hyperqueue.yaml", f"{engine}.yaml"))
    served = tmp_path / "lab/gateway.yaml"
    served.write_text(here.here(served.read_text()))
    with serving(here, lines_here(the_block(page, "gateway serve"))[0]):
        pass
