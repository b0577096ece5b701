"""Servers that a running gateway starts, with real processes."""

import asyncio
import os
import signal
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import httpx
import pytest

from gateway.app import Gateway
from tests.discovery.running import running

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
    address = next(iter(gateway.listeners.values())).address
    limits = httpx.Limits(max_connections=200)
    async with httpx.AsyncClient(base_url=f"http://{address}", timeout=60.0, limits=limits) as found:
        yield found


async def test_a_call_from_zero_starts_a_server_by_a_job_script_of_um_bridges_form(tmp_path: Path) -> None:
    job_script(tmp_path)
    async with running(config(tmp_path)) as gateway, client(gateway) as http:
        assert not processes(tmp_path)
        reply = await http.post("/Evaluate", json=EVALUATE)
        assert reply.status_code == 200, reply.text
        assert reply.json()["output"][0][0] in processes(tmp_path)
    assert not processes(tmp_path)
    assert not list((tmp_path / "state/jobs").iterdir())
