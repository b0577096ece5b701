"""A model server of UM-Bridge for loads that wait: `python sleeping_server.py PORT`. A call takes as many seconds
as its first number says. Needs the standard library alone, and starts quickly."""

import json
import os
import sys
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

MODELS = ["sleeping"]


class Models(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True

    def do_GET(self) -> None:
        self._reply({"protocolVersion": 1.0, "models": MODELS})

    def do_POST(self) -> None:
        asked = json.loads(self.rfile.read(int(self.headers["content-length"])))
        if self.path == "/Evaluate":
            time.sleep(asked["input"][0][0])
            self._reply({"output": [[os.getpid()]]})
        elif self.path == "/ModelInfo":
            self._reply({"support": {"Evaluate": True}})
        else:
            self._reply({"inputSizes": [1], "outputSizes": [1]})

    def _reply(self, value: object) -> None:
        body = json.dumps(value).encode()
        head = f"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
        self.wfile.write(head.encode() + body)

    def log_message(self, format: str, *args: object) -> None:
        pass


def main() -> None:
    server = ThreadingHTTPServer(("127.0.0.1", int(sys.argv[1])), Models)
    job = os.environ.get("HQ_JOB_ID") or os.environ.get("SLURM_JOB_ID")
    if job:  # the node's own name may be that of an address which this machine does not have
        folder = Path(os.environ["UMBRIDGE_LOADBALANCER_COMM_FILEDIR"])
        (folder / f"url-{job}.txt").write_text(f"http://127.0.0.1:{server.server_port}\n")
    server.serve_forever()


if __name__ == "__main__":
    main()
