"""Servers that a running gateway starts, with real processes."""

import asyncio
import os
import re
import signal
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import httpx
import pytest

from gateway.config import ConfigError
from gateway.core.log_limit import LogLimit
from gateway.runtime.app import Gateway
from gateway.servers import started_server
from tests.interop.processes import free_port
from tests.limits import GENEROUS, until
from tests.peers.build import require
from tests.running_gateway import config_of, running_gateway
from tests.servers.discovery.running import messages


@pytest.fixture(autouse=True)
def _lines_of_other_tests_do_not_count(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(started_server, "_lines", LogLimit(started_server.log, lines=1000))


EVALUATE = {"name": "posterior", "input": [[1.0, 2.0]], "config": {}}

# As UM-Bridge's own job scripts: a server at $PORT, then one line in a file, then sleep.
SCRIPT = """#!/bin/bash
PYTHON -c '
import json, os, time
from http.server import BaseHTTPRequestHandler, HTTPServer

class Model(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    def reply(self, value):
        body = json.dumps(value).encode()
        self.send_response(200)
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)
    def do_GET(self):
        self.reply({"protocolVersion": 1.0, "models": ["posterior"]})
    def do_POST(self):
        asked = json.loads(self.rfile.read(int(self.headers["content-length"])))
        if self.path == "/Evaluate":
            CALL
            self.reply({"output": [[os.getpid()]]})
        elif self.path == "/ModelInfo":
            self.reply({"support": {"Evaluate": True}})
        else:
            self.reply({"inputSizes": [2], "outputSizes": [1]})
    def log_message(self, *args):
        pass

print("a server of", os.environ["HQ_JOB_ID"], flush=True)
HTTPServer(("127.0.0.1", int(os.environ["PORT"])), Model).serve_forever()
' &
until (exec 3<>/dev/tcp/127.0.0.1/$PORT) 2>/dev/null; do sleep 0.05; done
echo "http://127.0.0.1:$PORT" > "$UMBRIDGE_LOADBALANCER_COMM_FILEDIR/url-$HQ_JOB_ID.txt"
sleep infinity
"""

CONFIG = """
listeners: [{name: http, bind: "127.0.0.1:0", protocols: [umbridge]}]
backends:
  lab:
    protocol: umbridge
    servers: {engine: process, script: "FOLDER/job.sh", state: "FOLDER/state", KEYS}
routes: [{match: {model: "*"}, backend: lab}]
"""


def job_script(folder: Path, text: str = SCRIPT, call: str = "pass") -> None:
    (folder / "job.sh").write_text(text.replace("PYTHON", sys.executable).replace("CALL", call))


def config(folder: Path, keys: str = "max: 1") -> str:
    return CONFIG.replace("FOLDER", str(folder)).replace("KEYS", keys)


def processes(folder: Path) -> list[int]:
    """The processes that were started from `folder`: its watchers and jobs, with all below them."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdecimal():
            try:
                environment = (entry / "environ").read_bytes()
                command = (entry / "cmdline").read_bytes()
            except OSError:
                continue
            if str(folder).encode() + b"/state" in environment + command and int(entry.name) != os.getpid():
                found.append(int(entry.name))
    return found


@asynccontextmanager
async def client(gateway: Gateway) -> AsyncIterator[httpx.AsyncClient]:
    address = next(iter(gateway.state.listeners.values())).address
    limits = httpx.Limits(max_connections=200)
    async with httpx.AsyncClient(base_url=f"http://{address}", timeout=GENEROUS, limits=limits) as found:
        yield found


async def test_a_call_from_zero_starts_a_server_by_a_job_script_of_um_bridges_form(tmp_path: Path) -> None:
    job_script(tmp_path)
    async with running_gateway(config(tmp_path)) as gateway, client(gateway) as http:
        assert not processes(tmp_path)
        reply = await http.post("/Evaluate", json=EVALUATE)
        assert reply.status_code == 200, reply.text
        assert reply.json()["output"][0][0] in processes(tmp_path)
    assert not processes(tmp_path)
    assert not list((tmp_path / "state/jobs").iterdir())


@pytest.mark.long
async def test_a_burst_from_zero_starts_as_many_servers_as_it_needs_at_once(tmp_path: Path) -> None:
    """All calls wait for the metadata of their model, which are one question, and no server comes before the third."""
    third = f'touch "{tmp_path}/started.$HQ_JOB_ID"\nuntil [ -e "{tmp_path}/go" ]; do sleep 0.05; done\nuntil (exec'
    job_script(tmp_path, SCRIPT.replace("until (exec", third))
    async with running_gateway(config(tmp_path, "max: 3")) as gateway, client(gateway) as http:
        calls = [asyncio.ensure_future(http.post("/Evaluate", json=EVALUATE)) for _ in range(6)]
        await until(lambda: len(list(tmp_path.glob("started.*"))) == 3)
        (tmp_path / "go").touch()
        assert [(await each).status_code for each in calls] == [200] * 6
    assert not processes(tmp_path)


@pytest.mark.long
async def test_a_burst_is_answered_by_no_more_servers_than_allowed(tmp_path: Path) -> None:
    # The first call of each server ends when all four have one: none has answered them all before the others are there.
    called = f'import glob; open("{tmp_path}/called." + str(os.getpid()), "w").close(); '
    others = f'[time.sleep(0.02) for _ in iter(lambda: len(glob.glob("{tmp_path}/called.*")) == 4, True)]'
    job_script(tmp_path, call=called + others)
    async with running_gateway(config(tmp_path, "max: 4")) as gateway, client(gateway) as http:
        replies = await asyncio.gather(*(http.post("/Evaluate", json=EVALUATE) for _ in range(64)))
        assert [each.status_code for each in replies] == [200] * 64
        assert len({each.json()["output"][0][0] for each in replies}) == 4
        status = gateway.state.status().backends["lab"].servers
        assert status is not None
        assert len(status) == 4
        assert sum(each.calls for each in status) == 64
    assert not processes(tmp_path)


async def test_a_server_without_calls_is_ended_and_another_started_for_the_next_call(tmp_path: Path) -> None:
    job_script(tmp_path)
    text = config(tmp_path, "max: 1, idle: 0.2")
    with messages() as lines:
        async with running_gateway(text) as gateway, client(gateway) as http:
            first = (await http.post("/Evaluate", json=EVALUATE)).json()["output"][0][0]
            await lines.until("has ended: no call for 0.2 s")
            assert not processes(tmp_path)
            assert not gateway.state.status().backends["lab"].endpoints
            second = (await http.post("/Evaluate", json=EVALUATE)).json()["output"][0][0]
            assert second != first


async def test_a_server_is_replaced_after_its_calls(tmp_path: Path) -> None:
    job_script(tmp_path)
    async with running_gateway(config(tmp_path, "max: 1, calls_per_server: 2")) as gateway, client(gateway) as http:
        used = [(await http.post("/Evaluate", json=EVALUATE)).json()["output"][0][0] for _ in range(5)]
    assert used[0] == used[1] != used[2] == used[3] != used[4]


async def test_a_script_that_fails_at_once_is_tried_a_few_times_and_its_output_is_in_the_error(tmp_path: Path) -> None:
    job_script(tmp_path, "#!/bin/bash\necho no licence for PUMPKIN\nexit 3\n")
    async with running_gateway(config(tmp_path)) as gateway, client(gateway) as http:
        reply = await http.post("/Evaluate", json=EVALUATE)
        assert reply.status_code >= 500
        assert "failed (exit code 3) before it served" in reply.text
        assert "no licence for PUMPKIN" in reply.text
        assert gateway.state.assembly.backends["lab"].slots.starter.starts == 3  # type: ignore[attr-defined]


@pytest.mark.long
async def test_a_backend_whose_server_does_not_start_keeps_no_model_of_others_from_the_list(tmp_path: Path) -> None:
    job_script(tmp_path)
    (tmp_path / "stuck.sh").write_text("#!/bin/bash\nsleep infinity\n")
    stuck = f'{{engine: process, script: "{tmp_path}/stuck.sh", state: "{tmp_path}/state/stuck"}}'
    text = config(tmp_path).replace("routes: [", f"  stuck: {{protocol: umbridge, servers: {stuck}}}\nroutes: [")
    text = text.replace('{model: "*"}, backend: lab}', '{model: "s*"}, backend: stuck}, {match: {}, backend: lab}')
    async with running_gateway(text) as gateway, client(gateway) as http:
        assert (await http.get("/Info")).json()["models"] == ["posterior"]
        assert [each.state for each in gateway.state.status().backends["stuck"].servers or ()] == ["starting"]
    assert not processes(tmp_path)


@pytest.mark.long
async def test_the_output_of_a_job_is_hidden_from_clients_that_get_brief_errors(tmp_path: Path) -> None:
    job_script(tmp_path, "#!/bin/bash\necho no licence for PUMPKIN\nexit 3\n")
    text = config(tmp_path).replace("[umbridge]}", "[umbridge], errors: {detail: brief}}")
    async with running_gateway(text) as gateway, client(gateway) as http:
        reply = await http.post("/Evaluate", json=EVALUATE)
        assert reply.status_code >= 500
        assert "PUMPKIN" not in reply.text


@pytest.mark.long
@pytest.mark.parametrize("port", ["listener", "admin", "health"])
async def test_a_script_that_announces_the_gateway_itself_is_not_believed(tmp_path: Path, port: str) -> None:
    ports = {name: free_port() for name in ("listener", "admin", "health")}
    text = config(tmp_path, "max: 2, start_timeout: 2")
    text = text.replace('http, bind: "127.0.0.1:0"', f'http, bind: "127.0.0.1:{ports["listener"]}"')
    text += "".join(f'{name}: {{bind: "127.0.0.1:{ports[name]}"}}\n' for name in ("admin", "health"))
    folder = '"$UMBRIDGE_LOADBALANCER_COMM_FILEDIR/url-1.txt"'
    job_script(tmp_path, f"#!/bin/bash\necho http://localhost:{ports[port]} > {folder}\nsleep infinity\n")
    with messages() as log:
        async with running_gateway(text) as gateway, client(gateway) as http:
            reply = await http.post("/Evaluate", json=EVALUATE)
            assert reply.status_code >= 500
            assert "servers.start_timeout" in reply.text
            own = f"it is the gateway's own address 127.0.0.1:{ports[port]}"
            assert f"localhost:{ports[port]} cannot be used: {own}" in await log.until("cannot be used")


async def test_a_script_that_never_announces_is_ended_after_start_timeout(tmp_path: Path) -> None:
    job_script(tmp_path, "#!/bin/bash\nsleep infinity\n")
    async with running_gateway(config(tmp_path, "max: 2, start_timeout: 0.5")) as gateway, client(gateway) as http:
        reply = await http.post("/Evaluate", json=EVALUATE)
        assert reply.status_code >= 500
        assert "servers.start_timeout" in reply.text
    assert not processes(tmp_path)


@pytest.mark.long
@pytest.mark.parametrize("victim", ["server", "job"])
async def test_a_call_whose_server_is_killed_tells_so_and_the_next_call_gets_a_new_one(
    tmp_path: Path, victim: str
) -> None:
    busy, stuck = tmp_path / "busy", tmp_path / "stuck"
    os.mkfifo(busy)  # the server opens it when it has the call
    job_script(tmp_path, call=f'os.path.exists("{stuck}") and (open("{busy}", "w").close(), time.sleep(60))')
    stuck.touch()
    async with running_gateway(config(tmp_path)) as gateway, client(gateway) as http:
        call = asyncio.ensure_future(http.post("/Evaluate", json=EVALUATE))
        await asyncio.to_thread(busy.read_bytes)
        if victim == "server":
            found = [each for each in processes(tmp_path) if b"HTTPServer" in command(each)]
        else:
            found = [each for each in processes(tmp_path) if command(each).startswith(b"bash")]
        for each in found:
            os.kill(each, signal.SIGKILL)
        reply = await call
        assert reply.status_code >= 500
        assert "job lab-" in reply.text
        assert "a server of" in reply.text
        stuck.unlink()
        reply = await http.post("/Evaluate", json=EVALUATE)
        assert reply.status_code == 200, reply.text
    assert not processes(tmp_path)


def command(pid: int) -> bytes:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return b""


@asynccontextmanager
async def gateway_process(
    folder: Path, text: str
) -> AsyncIterator[tuple[asyncio.subprocess.Process, httpx.AsyncClient]]:
    """A gateway in a process of its own, which is killed at the end."""
    port = free_port()
    (folder / "gateway.yaml").write_text(text.replace("127.0.0.1:0", f"127.0.0.1:{port}"))
    command = [sys.executable, "-m", "gateway", "serve", "--config", str(folder / "gateway.yaml")]
    process = await asyncio.create_subprocess_exec(*command, stdout=asyncio.subprocess.PIPE)
    assert process.stdout is not None
    try:
        async with asyncio.timeout(GENEROUS):
            while b"ready" not in (line := await process.stdout.readline()):
                assert line, "the gateway has not started"
        async with httpx.AsyncClient(base_url=f"http://127.0.0.1:{port}", timeout=GENEROUS) as http:
            yield process, http
    finally:
        if process.returncode is None:
            process.kill()
        await process.communicate()


async def gone(folder: Path) -> None:
    """Return when no process of `folder` is left."""
    async with asyncio.timeout(GENEROUS):
        await until(lambda: not processes(folder))


@pytest.mark.long
async def test_servers_end_with_a_gateway_that_is_killed(tmp_path: Path) -> None:
    job_script(tmp_path)
    async with gateway_process(tmp_path, config(tmp_path)) as (process, http):
        first = (await http.post("/Evaluate", json=EVALUATE)).json()["output"][0][0]
        process.kill()
        await process.wait()
        await gone(tmp_path)
    async with gateway_process(tmp_path, config(tmp_path)) as (process, http):
        assert (await http.post("/Evaluate", json=EVALUATE)).json()["output"][0][0] != first
        process.terminate()
        await process.wait()
    assert not processes(tmp_path)


@pytest.mark.long
@pytest.mark.parametrize("end", [signal.SIGKILL, signal.SIGTERM])
async def test_servers_that_are_kept_are_adopted_by_the_next_gateway(tmp_path: Path, end: signal.Signals) -> None:
    job_script(tmp_path)
    kept = config(tmp_path, "max: 1, keep: true")
    async with gateway_process(tmp_path, kept) as (process, http):
        first = (await http.post("/Evaluate", json=EVALUATE)).json()["output"][0][0]
        process.send_signal(end)
        await process.wait()
    assert first in processes(tmp_path)
    async with gateway_process(tmp_path, kept) as (process, http):
        assert (await http.post("/Evaluate", json=EVALUATE)).json()["output"][0][0] == first
        process.kill()
        await process.wait()
    # It does not fit any more: it is ended, and nothing is kept.
    other = config(tmp_path, "max: 1, resources: {seconds: 1000}")
    async with gateway_process(tmp_path, other) as (process, http):
        assert (await http.post("/Evaluate", json=EVALUATE)).json()["output"][0][0] != first
        process.terminate()
        await process.wait()
    assert not processes(tmp_path)


@pytest.mark.long
async def test_a_reload_keeps_the_servers_of_a_backend_that_stays_and_ends_those_of_one_that_changes(
    tmp_path: Path,
) -> None:
    job_script(tmp_path)
    with messages() as lines:
        async with running_gateway(config(tmp_path)) as gateway, client(gateway) as http:
            first = (await http.post("/Evaluate", json=EVALUATE)).json()["output"][0][0]
            for keys in ("max: 1, idle: 100", "max: 2"):
                await gateway.reload(config_of(config(tmp_path, keys)))
                assert (await http.post("/Evaluate", json=EVALUATE)).json()["output"][0][0] == first
            changed = config(tmp_path, "max: 2, resources: {seconds: 1000}")
            await gateway.reload(config_of(changed))
            assert (await http.post("/Evaluate", json=EVALUATE)).json()["output"][0][0] != first
            await lines.until("has ended: the configuration has changed")
            assert first not in processes(tmp_path)
    assert not processes(tmp_path)


@pytest.mark.parametrize("keys", ["max: 2", "max: 1, resources: {seconds: 1000}"])
async def test_a_call_that_waits_for_its_server_while_the_configuration_is_reloaded_is_answered(
    tmp_path: Path, keys: str
) -> None:
    go = tmp_path / "go"
    os.mkfifo(go)
    job_script(tmp_path)
    script = (tmp_path / "job.sh").read_text().replace("#!/bin/bash\n", f"#!/bin/bash\nread < {go}\n")
    (tmp_path / "job.sh").write_text(script)
    with messages() as lines:
        async with running_gateway(config(tmp_path)) as gateway, client(gateway) as http:
            call = asyncio.ensure_future(http.post("/Evaluate", json=EVALUATE))
            await lines.until("is submitted to the engine process")
            with open(os.open(go, os.O_RDWR), "w") as opened:  # noqa: ASYNC230 - a pipe that is open at both ends
                await gateway.reload(config_of(config(tmp_path, keys)))
                opened.write("go\n" * 8)
                opened.flush()
                reply = await call
            assert reply.status_code == 200, reply.text
    assert not processes(tmp_path)


@pytest.mark.long
async def test_a_server_is_replaced_before_its_walltime_is_over(tmp_path: Path) -> None:
    job_script(tmp_path)
    keys = "min: 1, max: 2, resources: {seconds: 4}"
    with messages() as lines:
        async with running_gateway(config(tmp_path, keys)) as gateway, client(gateway) as http:
            for _ in range(2):
                assert (await http.post("/Evaluate", json=EVALUATE)).status_code == 200
                await lines.until("its walltime is nearly over")
            assert (await http.post("/Evaluate", json=EVALUATE)).status_code == 200
    assert not processes(tmp_path)


@pytest.mark.long
async def test_the_example_of_the_page_serves(tmp_path: Path) -> None:
    page = (Path(__file__).parents[2] / "docs/servers.md").read_text()
    text = page.split("```yaml\n")[1].split("```")[0]
    text = text.replace("127.0.0.1:8080", "127.0.0.1:0").replace("[gateway,", f"[{sys.executable}, -m, gateway,")
    text = text.replace("      idle: 60\n", f"      idle: 60\n      state: {tmp_path}/state\n")
    async with running_gateway(text) as gateway, client(gateway) as http:
        reply = await http.post("/Evaluate", json={"name": "posterior", "input": [[1.0, 1.0]], "config": {}})
        assert reply.json() == {"output": [[0.0]]}
    assert not processes(tmp_path)


async def test_a_state_folder_has_one_gateway_at_a_time(tmp_path: Path) -> None:
    job_script(tmp_path)
    with messages() as lines:
        async with running_gateway(config(tmp_path, "min: 1")):
            await lines.until("is submitted to the engine process")
            text = config(tmp_path, "max: 1, start_timeout: 0.5")
            async with running_gateway(text) as second, client(second) as http:
                reply = await http.post("/Evaluate", json=EVALUATE)
                assert reply.status_code >= 500
                assert "is in use by another gateway" in reply.text


@pytest.mark.long
async def test_a_job_has_no_more_memory_than_it_may(tmp_path: Path) -> None:
    job_script(tmp_path, f"#!/bin/bash\n{sys.executable} -c 'bytes(2**31)'\n")
    text = config(tmp_path, "max: 1, resources: {memory: 1000000000}")
    async with running_gateway(text) as gateway, client(gateway) as http:
        assert "MemoryError" in (await http.post("/Evaluate", json=EVALUATE)).text


@pytest.mark.parametrize(
    ("keys", "expected"),
    [
        ("command: [a]", "expected either `script` or `command`"),
        ("min: 3, max: 2", "expected at least `min`, which is 3"),
        ("max: 0", "must be at least 1"),
        ("resources: {gpus: 1}", "the engine process cannot limit this resource"),
        ("directory: /x", "the engine process has no directory"),
    ],
)
def test_keys_that_do_not_fit_are_refused(tmp_path: Path, keys: str, expected: str) -> None:
    job_script(tmp_path)
    with pytest.raises(ConfigError, match=re.escape(expected)):
        config_of(config(tmp_path, keys))


def test_a_script_that_is_not_there_and_workers_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="is not a file"):
        config_of(config(tmp_path))
    job_script(tmp_path)
    with pytest.raises(ConfigError, match="servers that the gateway starts cannot be shared between workers"):
        config_of(config(tmp_path) + "workers: 2\n")


@pytest.mark.real
async def test_the_python_server_of_um_bridge_is_started_by_a_job_script(tmp_path: Path) -> None:
    python = require("umbridge") / "bin" / "python"
    server = Path(__file__).parents[1] / "interop/servers/umbridge_models.py"
    waiting, _, rest = SCRIPT.partition("until ")
    job_script(tmp_path, f"{waiting.partition('PYTHON')[0]}{python} {server} $PORT &\nuntil {rest}")
    async with running_gateway(config(tmp_path, "max: 2")) as gateway, client(gateway) as http:
        calls = [{"name": "posterior", "input": [[1.0, 1.0 + each]], "config": {}} for each in range(8)]
        replies = await asyncio.gather(*(http.post("/Evaluate", json=each) for each in calls))
        assert [each.status_code for each in replies] == [200] * 8, replies[0].text
        assert len({each.text for each in replies}) == 8
    assert not processes(tmp_path)


async def test_a_job_whose_watcher_is_killed_leaves_no_process(tmp_path: Path) -> None:
    job_script(tmp_path)
    with messages() as lines:
        async with running_gateway(config(tmp_path)) as gateway, client(gateway) as http:
            first = (await http.post("/Evaluate", json=EVALUATE)).json()["output"][0][0]
            for each in processes(tmp_path):
                if b"watcher.py" in command(each):
                    os.kill(each, signal.SIGKILL)
            await lines.until("is unknown to the engine now")
            assert (await http.post("/Evaluate", json=EVALUATE)).json()["output"][0][0] != first
            assert first not in processes(tmp_path)
    assert not processes(tmp_path)


async def test_clients_that_leave_while_they_wait_leave_nothing_behind(tmp_path: Path) -> None:
    job_script(tmp_path, "#!/bin/bash\nsleep infinity\n")
    with messages() as lines:
        async with running_gateway(config(tmp_path, "max: 2")) as gateway, client(gateway) as http:
            calls = [asyncio.ensure_future(http.post("/Evaluate", json=EVALUATE)) for _ in range(8)]
            calls += [asyncio.ensure_future(http.get("/Info")) for _ in range(8)]
            await lines.until("is submitted to the engine process")
            for each in calls:
                each.cancel()
            await asyncio.wait(calls)
    assert gateway.state.assembly.backends["lab"].waiting == 0
    assert not processes(tmp_path)
    assert not list((tmp_path / "state/jobs").iterdir())


@pytest.mark.long
async def test_a_call_whose_server_is_killed_is_sent_to_another_one_where_that_is_safe(tmp_path: Path) -> None:
    busy, stuck = tmp_path / "busy", tmp_path / "stuck"
    os.mkfifo(busy)
    job_script(tmp_path, call=f'os.path.exists("{stuck}") and (open("{busy}", "w").close(), time.sleep(60))')
    stuck.touch()
    text = config(tmp_path).replace(
        "    protocol: umbridge\n", "    protocol: umbridge\n    safe: true\n    policies: [{retry: {attempts: 3}}]\n"
    )
    async with running_gateway(text) as gateway, client(gateway) as http:
        call = asyncio.ensure_future(http.post("/Evaluate", json=EVALUATE))
        await asyncio.to_thread(busy.read_bytes)
        stuck.unlink()
        for each in processes(tmp_path):
            if b"HTTPServer" in command(each):
                os.kill(each, signal.SIGKILL)
        reply = await call
        assert reply.status_code == 200, reply.text
    assert not processes(tmp_path)
