"""Servers that a running gateway starts, with real processes."""

import asyncio
import os
import re
import signal
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
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
from tests.servers.discovery.running import Messages, messages


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


@dataclass
class Running:
    """A gateway that starts servers, its client, and the lines of its log."""

    gateway: Gateway
    http: httpx.AsyncClient
    log: Messages


@asynccontextmanager
async def serving(text: str) -> AsyncIterator[Running]:
    with messages() as log:
        async with running_gateway(text) as gateway, client(gateway) as http:
            yield Running(gateway, http, log)


@asynccontextmanager
async def running(folder: Path, keys: str = "max: 1", *, text: str = "") -> AsyncIterator[Running]:
    """A gateway with these keys of `servers`, or with the configuration `text`. None of its processes is left."""
    async with serving(text or config(folder, keys)) as here:
        yield here
    assert not processes(folder)


async def evaluate(http: httpx.AsyncClient) -> int:
    """The process that has answered."""
    reply = await http.post("/Evaluate", json=EVALUATE)
    assert reply.status_code == 200, reply.text
    return int(reply.json()["output"][0][0])


async def failure(http: httpx.AsyncClient) -> str:
    """The text of the error that a call gets."""
    reply = await http.post("/Evaluate", json=EVALUATE)
    assert reply.status_code >= 500
    return reply.text


async def test_a_call_from_zero_starts_a_server_by_a_job_script_of_um_bridges_form(tmp_path: Path) -> None:
    job_script(tmp_path)
    async with running(tmp_path) as here:
        assert not processes(tmp_path)
        assert await evaluate(here.http) in processes(tmp_path)
    assert not list((tmp_path / "state/jobs").iterdir())


@pytest.mark.long
async def test_a_burst_from_zero_starts_as_many_servers_as_it_needs_at_once(tmp_path: Path) -> None:
    """All calls wait for the metadata of their model, which are one question, and no server comes before the third."""
    third = f'touch "{tmp_path}/started.$HQ_JOB_ID"\nuntil [ -e "{tmp_path}/go" ]; do sleep 0.05; done\nuntil (exec'
    job_script(tmp_path, SCRIPT.replace("until (exec", third))
    async with running(tmp_path, "max: 3") as here:
        calls = [asyncio.ensure_future(evaluate(here.http)) for _ in range(6)]
        await until(lambda: len(list(tmp_path.glob("started.*"))) == 3)
        (tmp_path / "go").touch()
        await asyncio.gather(*calls)


@pytest.mark.long
async def test_a_burst_is_answered_by_no_more_servers_than_allowed(tmp_path: Path) -> None:
    # The first call of each server ends when all four have one: none has answered them all before the others are there.
    called = f'import glob; open("{tmp_path}/called." + str(os.getpid()), "w").close(); '
    others = f'[time.sleep(0.02) for _ in iter(lambda: len(glob.glob("{tmp_path}/called.*")) == 4, True)]'
    job_script(tmp_path, call=called + others)
    async with running(tmp_path, "max: 4") as here:
        assert len(set(await asyncio.gather(*(evaluate(here.http) for _ in range(64))))) == 4
        status = here.gateway.state.status().backends["lab"].servers
        assert status is not None
        assert len(status) == 4
        assert sum(each.calls for each in status) == 64


async def test_a_server_without_calls_is_ended_and_another_started_for_the_next_call(tmp_path: Path) -> None:
    job_script(tmp_path)
    async with running(tmp_path, "max: 1, idle: 0.2") as here:
        first = await evaluate(here.http)
        await here.log.until("has ended: no call for 0.2 s")
        assert not processes(tmp_path)
        assert not here.gateway.state.status().backends["lab"].endpoints
        assert await evaluate(here.http) != first


async def test_a_server_is_replaced_after_its_calls(tmp_path: Path) -> None:
    job_script(tmp_path)
    async with running(tmp_path, "max: 1, calls_per_server: 2") as here:
        used = [await evaluate(here.http) for _ in range(5)]
    assert used[0] == used[1] != used[2] == used[3] != used[4]


FAILING = "#!/bin/bash\necho no licence for PUMPKIN\nexit 3\n"
STUCK = "#!/bin/bash\nsleep infinity\n"


async def test_a_script_that_fails_at_once_is_tried_a_few_times_and_its_output_is_in_the_error(tmp_path: Path) -> None:
    job_script(tmp_path, FAILING)
    async with running(tmp_path) as here:
        text = await failure(here.http)
        assert "failed (exit code 3) before it served" in text
        assert "no licence for PUMPKIN" in text
        assert here.gateway.state.assembly.backends["lab"].slots.starter.starts == 3  # type: ignore[attr-defined]


@pytest.mark.long
async def test_a_backend_whose_server_does_not_start_keeps_no_model_of_others_from_the_list(tmp_path: Path) -> None:
    job_script(tmp_path)
    (tmp_path / "stuck.sh").write_text(STUCK)
    stuck = f'{{engine: process, script: "{tmp_path}/stuck.sh", state: "{tmp_path}/state/stuck"}}'
    text = config(tmp_path).replace("routes: [", f"  stuck: {{protocol: umbridge, servers: {stuck}}}\nroutes: [")
    text = text.replace('{model: "*"}, backend: lab}', '{model: "s*"}, backend: stuck}, {match: {}, backend: lab}')
    async with running(tmp_path, text=text) as here:
        assert (await here.http.get("/Info")).json()["models"] == ["posterior"]
        assert [each.state for each in here.gateway.state.status().backends["stuck"].servers or ()] == ["starting"]


@pytest.mark.long
async def test_the_output_of_a_job_is_hidden_from_clients_that_get_brief_errors(tmp_path: Path) -> None:
    job_script(tmp_path, FAILING)
    text = config(tmp_path).replace("[umbridge]}", "[umbridge], errors: {detail: brief}}")
    async with running(tmp_path, text=text) as here:
        assert "PUMPKIN" not in await failure(here.http)


@pytest.mark.long
@pytest.mark.parametrize("port", ["listener", "admin", "health"])
async def test_a_script_that_announces_the_gateway_itself_is_not_believed(tmp_path: Path, port: str) -> None:
    ports = {name: free_port() for name in ("listener", "admin", "health")}
    text = config(tmp_path, "max: 2, start_timeout: 2")
    text = text.replace('http, bind: "127.0.0.1:0"', f'http, bind: "127.0.0.1:{ports["listener"]}"')
    text += "".join(f'{name}: {{bind: "127.0.0.1:{ports[name]}"}}\n' for name in ("admin", "health"))
    folder = '"$UMBRIDGE_LOADBALANCER_COMM_FILEDIR/url-1.txt"'
    job_script(tmp_path, f"#!/bin/bash\necho http://localhost:{ports[port]} > {folder}\nsleep infinity\n")
    async with running(tmp_path, text=text) as here:
        assert "servers.start_timeout" in await failure(here.http)
        own = f"it is the gateway's own address 127.0.0.1:{ports[port]}"
        assert f"localhost:{ports[port]} cannot be used: {own}" in await here.log.until("cannot be used")


async def test_a_script_that_never_announces_is_ended_after_start_timeout(tmp_path: Path) -> None:
    job_script(tmp_path, STUCK)
    async with running(tmp_path, "max: 2, start_timeout: 0.5") as here:
        assert "servers.start_timeout" in await failure(here.http)


def busy_script(folder: Path, write: Callable[..., None] = job_script) -> tuple[Path, Path]:
    """A server that opens the pipe `busy` when it has a call, which does not end while the file `stuck` is there."""
    busy, stuck = folder / "busy", folder / "stuck"
    os.mkfifo(busy)
    stuck.touch()
    write(folder, call=f'os.path.exists("{stuck}") and (open("{busy}", "w").close(), time.sleep(60))')
    return busy, stuck


def kill(folder: Path, pattern: bytes) -> None:
    """Kill the processes of `folder` whose commands match."""
    for each in processes(folder):
        if re.search(pattern, command(each)):
            os.kill(each, signal.SIGKILL)


@pytest.mark.long
@pytest.mark.parametrize("victim", [b"HTTPServer", b"^bash"], ids=["server", "job"])
async def test_a_call_whose_server_is_killed_tells_so_and_the_next_call_gets_a_new_one(
    tmp_path: Path, victim: bytes
) -> None:
    busy, stuck = busy_script(tmp_path)
    async with running(tmp_path) as here:
        call = asyncio.ensure_future(failure(here.http))
        await asyncio.to_thread(busy.read_bytes)
        kill(tmp_path, victim)
        text = await call
        assert "job lab-" in text
        assert "a server of" in text
        stuck.unlink()
        await evaluate(here.http)


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


async def server_of_process(folder: Path, text: str, end: signal.Signals = signal.SIGTERM) -> int:
    """The server that answers a call to a gateway in a process of its own, which is ended by this signal."""
    async with gateway_process(folder, text) as (process, http):
        server = await evaluate(http)
        process.send_signal(end)
        await process.wait()
    return server


async def gone(folder: Path) -> None:
    """Return when no process of `folder` is left."""
    await until(lambda: not processes(folder))


@pytest.mark.long
async def test_servers_end_with_a_gateway_that_is_killed(tmp_path: Path) -> None:
    job_script(tmp_path)
    first = await server_of_process(tmp_path, config(tmp_path), signal.SIGKILL)
    await gone(tmp_path)
    assert await server_of_process(tmp_path, config(tmp_path)) != first
    assert not processes(tmp_path)


@pytest.mark.long
@pytest.mark.parametrize("end", [signal.SIGKILL, signal.SIGTERM])
async def test_servers_that_are_kept_are_adopted_by_the_next_gateway(tmp_path: Path, end: signal.Signals) -> None:
    job_script(tmp_path)
    kept = config(tmp_path, "max: 1, keep: true")
    first = await server_of_process(tmp_path, kept, end)
    assert first in processes(tmp_path)
    assert await server_of_process(tmp_path, kept, signal.SIGKILL) == first
    # It does not fit any more: it is ended, and nothing is kept.
    assert await server_of_process(tmp_path, config(tmp_path, "max: 1, resources: {seconds: 1000}")) != first
    assert not processes(tmp_path)


@pytest.mark.long
async def test_a_reload_keeps_the_servers_of_a_backend_that_stays_and_ends_those_of_one_that_changes(
    tmp_path: Path,
) -> None:
    job_script(tmp_path)
    async with running(tmp_path) as here:
        first = await evaluate(here.http)
        for keys in ("max: 1, idle: 100", "max: 2"):
            await here.gateway.reload(config_of(config(tmp_path, keys)))
            assert await evaluate(here.http) == first
        await here.gateway.reload(config_of(config(tmp_path, "max: 2, resources: {seconds: 1000}")))
        assert await evaluate(here.http) != first
        await here.log.until("has ended: the configuration has changed")
        assert first not in processes(tmp_path)


@pytest.mark.parametrize("keys", ["max: 2", "max: 1, resources: {seconds: 1000}"])
async def test_a_call_that_waits_for_its_server_while_the_configuration_is_reloaded_is_answered(
    tmp_path: Path, keys: str
) -> None:
    go = tmp_path / "go"
    os.mkfifo(go)
    job_script(tmp_path, SCRIPT.replace("#!/bin/bash\n", f"#!/bin/bash\nread < {go}\n"))
    async with running(tmp_path) as here:
        call = asyncio.ensure_future(evaluate(here.http))
        await here.log.until("is submitted to the engine process")
        with open(os.open(go, os.O_RDWR), "w") as opened:  # noqa: ASYNC230 - a pipe that is open at both ends
            await here.gateway.reload(config_of(config(tmp_path, keys)))
            opened.write("go\n" * 8)
            opened.flush()
            await call


@pytest.mark.long
async def test_a_server_is_replaced_before_its_walltime_is_over(tmp_path: Path) -> None:
    job_script(tmp_path)
    async with running(tmp_path, "min: 1, max: 2, resources: {seconds: 4}") as here:
        for _ in range(2):
            await evaluate(here.http)
            await here.log.until("its walltime is nearly over")
        await evaluate(here.http)


@pytest.mark.long
async def test_the_example_of_the_page_serves(tmp_path: Path) -> None:
    page = (Path(__file__).parents[2] / "docs/servers.md").read_text()
    text = page.split("```yaml\n")[1].split("```")[0]
    text = text.replace("127.0.0.1:8080", "127.0.0.1:0").replace("[gateway,", f"[{sys.executable}, -m, gateway,")
    text = text.replace("      idle: 60\n", f"      idle: 60\n      state: {tmp_path}/state\n")
    async with running(tmp_path, text=text) as here:
        reply = await here.http.post("/Evaluate", json={**EVALUATE, "input": [[1.0, 1.0]]})
        assert reply.json() == {"output": [[0.0]]}


async def test_a_state_folder_has_one_gateway_at_a_time(tmp_path: Path) -> None:
    job_script(tmp_path)
    async with running(tmp_path, "min: 1") as here:
        await here.log.until("is submitted to the engine process")
        async with serving(config(tmp_path, "max: 1, start_timeout: 0.5")) as second:
            assert "is in use by another gateway" in await failure(second.http)


@pytest.mark.long
async def test_a_job_has_no_more_memory_than_it_may(tmp_path: Path) -> None:
    job_script(tmp_path, f"#!/bin/bash\n{sys.executable} -c 'bytes(2**31)'\n")
    async with running(tmp_path, "max: 1, resources: {memory: 1000000000}") as here:
        assert "MemoryError" in await failure(here.http)


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


def script_of_the_real_server(folder: Path, variable: str = "HQ_JOB_ID") -> None:
    """A job script that starts UM-Bridge's Python server. The job's id is in this variable."""
    python = require("umbridge") / "bin" / "python"
    server = Path(__file__).parents[1] / "interop/servers/umbridge_models.py"
    waiting, _, rest = SCRIPT.replace("HQ_JOB_ID", variable).partition("until ")
    job_script(folder, f"{waiting.partition('PYTHON')[0]}{python} {server} $PORT &\nuntil {rest}")


async def eight_values(http: httpx.AsyncClient) -> None:
    """Call the model at eight points at once, where it has eight values."""
    calls = [{"name": "posterior", "input": [[1.0, 1.0 + each]], "config": {}} for each in range(8)]
    replies = await asyncio.gather(*(http.post("/Evaluate", json=each) for each in calls))
    assert [each.status_code for each in replies] == [200] * 8, replies[0].text
    assert len({each.text for each in replies}) == 8


@pytest.mark.real
async def test_the_python_server_of_um_bridge_is_started_by_a_job_script(tmp_path: Path) -> None:
    script_of_the_real_server(tmp_path)
    async with running(tmp_path, "max: 2") as here:
        await eight_values(here.http)


async def test_a_job_whose_watcher_is_killed_leaves_no_process(tmp_path: Path) -> None:
    job_script(tmp_path)
    async with running(tmp_path) as here:
        first = await evaluate(here.http)
        kill(tmp_path, b"watcher.py")
        await here.log.until("is unknown to the engine now")
        assert await evaluate(here.http) != first
        assert first not in processes(tmp_path)


async def test_clients_that_leave_while_they_wait_leave_nothing_behind(tmp_path: Path) -> None:
    job_script(tmp_path, STUCK)
    async with running(tmp_path, "max: 2") as here:
        calls = [asyncio.ensure_future(here.http.post("/Evaluate", json=EVALUATE)) for _ in range(8)]
        calls += [asyncio.ensure_future(here.http.get("/Info")) for _ in range(8)]
        await here.log.until("is submitted to the engine process")
        for each in calls:
            each.cancel()
        await asyncio.wait(calls)
    assert here.gateway.state.assembly.backends["lab"].waiting == 0
    assert not list((tmp_path / "state/jobs").iterdir())


@pytest.mark.long
async def test_a_call_whose_server_is_killed_is_sent_to_another_one_where_that_is_safe(tmp_path: Path) -> None:
    busy, stuck = busy_script(tmp_path)
    protocol = "    protocol: umbridge\n"
    text = config(tmp_path).replace(protocol, f"{protocol}    safe: true\n    policies: [{{retry: {{attempts: 3}}}}]\n")
    async with running(tmp_path, text=text) as here:
        call = asyncio.ensure_future(evaluate(here.http))
        await asyncio.to_thread(busy.read_bytes)
        stuck.unlink()
        kill(tmp_path, b"HTTPServer")
        await call
