# mypy: ignore-errors
"""Records what the real `kserve` client and server say to each other: `python record.py`, where kserve 0.21 is.

The client's requests and the server's replies are written as NAME.request and NAME.reply beside this file, whole: head
and body, as they were on the wire. `date` and `ce-` values differ in every recording.
"""

import asyncio
import socket
import subprocess
import sys
import time
from pathlib import Path

from kserve import InferenceRESTClient, RESTConfig

HERE = Path(__file__).parent
SERVER = HERE.parents[1] / "interop" / "servers" / "kserve_v1_server.py"
PORT, PROXY = 18080, 18079

EVENT = (
    b"ce-specversion: 1.0\r\nce-id: 1\r\nce-source: test\r\nce-type: predict\r\n",
    b'{"specversion":"1.0","id":"1","source":"test","type":"predict","time":"2026-01-01T00:00:00Z",'
    b'"data":{"instances":[[1,2.5]]}}',
)
ECHO = "/v1/models/echo:predict"
# What the client has no call for: the path, further headers and the body of a POST.
RAW = {
    "named_rows": (ECHO, b"", b'{"instances":[{"x":[1,2.5],"y":"a"},{"x":[3,4.0],"y":"\xc3\xa9"}]}'),
    "columns": ("/v1/models/double:predict", b"", b'{"inputs":{"a":[[1,2.5]],"b":[3]}}'),
    "members": (ECHO, b"", b'{"signature_name":"s","instances":[1],"parameters":{"k":2.50},"other":{"deep":[1,"x"]}}'),
    "bytes": (ECHO, b"", b'{"instances":[{"b64":"AAEC"},{"b64":"/w=="}]}'),
    "any_json": (ECHO, b"", b'{"instances":[[1],[2,3],{"a":null}]}'),
    "explain": ("/v1/models/double:explain", b"", b'{"instances":[1]}'),
    "event_binary": ("/v1/models/double:predict", EVENT[0], b'{"instances":[[1,2.5]]}'),
    "event_structured": ("/v1/models/double:predict", b"content-type: application/cloudevents+json\r\n", EVENT[1]),
    "error_no_list": ("/v1/models/double:predict", b"", b'{"instances":5}'),
    "error_malformed": ("/v1/models/double:predict", b"", b'{"instances":[1,]}'),
    "error_refused": ("/v1/models/fail:predict", b"", b'{"instances":[1]}'),
    "error_crash": ("/v1/models/fail:predict", b"", b'{"instances":[2]}'),
    "error_unknown_model": ("/v1/models/nope:predict", b"", b'{"instances":[1]}'),
    "error_not_ready": ("/v1/models/resting:predict", b"", b'{"instances":[1]}'),
    "error_verb": ("/v1/models/double:classify", b"", b'{"instances":[1]}'),
    "error_version": ("/v1/models/double/versions/9:predict", b"", b'{"instances":[1]}'),
}
GET = {
    "live": "/",
    "models": "/v1/models",
    "ready": "/v1/models/double",
    "ready_unknown": "/v1/models/nope",
    "not_ready": "/v1/models/resting",
    "metadata": "/v1/models/double/metadata",
}


def exchange(request):
    with socket.create_connection(("127.0.0.1", PORT)) as connection:
        connection.sendall(request)
        reply = b""
        while not complete(reply):
            reply += connection.recv(65536)
    return reply


def complete(raw):
    head, end, body = raw.partition(b"\r\n\r\n")
    if not end:
        return False
    length = next((line for line in head.lower().split(b"\r\n") if line.startswith(b"content-length:")), b":0")
    return len(body) >= int(length.partition(b":")[2])


def keep(name, request, reply):
    (HERE / f"{name}.request").write_bytes(request)
    (HERE / f"{name}.reply").write_bytes(reply)


def raw():
    body = b'{"instances":[1]}'
    exchange(b"POST /v1/models/resting:predict HTTP/1.1\r\nhost: test\r\ncontent-length: %d\r\n\r\n" % len(body) + body)
    for name, (path, headers, body) in RAW.items():
        kind = b"" if b"content-type" in headers else b"content-type: application/json\r\n"
        head = b"POST %b HTTP/1.1\r\nhost: test\r\n%b%bcontent-length: %d\r\n\r\n"
        request = head % (path.encode(), kind, headers, len(body)) + body
        keep(name, request, exchange(request))
    for name, path in GET.items():
        request = b"GET %b HTTP/1.1\r\nhost: test\r\n\r\n" % path.encode()
        keep(name, request, exchange(request))


async def client():
    """What InferenceRESTClient writes, and the server answers to it."""
    seen = []

    async def forward(reader, writer):
        request = b""
        while not complete(request):
            request += await reader.read(65536)
        reply = await asyncio.to_thread(exchange, request)
        seen.append((request, reply))
        writer.write(reply)
        writer.close()

    proxy = await asyncio.start_server(forward, "127.0.0.1", PROXY)
    async with proxy:
        asking = InferenceRESTClient(RESTConfig(protocol="v1"))
        url = f"http://127.0.0.1:{PROXY}"
        await asking.infer(url, {"instances": [[1, 2.0], [3, 4]]}, model_name="double")
        keep("client_rows", *seen.pop())
        await asking.is_model_ready(url, "double")
        keep("client_ready", *seen.pop())
        await asking.is_server_live(url)
        keep("client_live", *seen.pop())


def main():
    server = subprocess.Popen([sys.executable, str(SERVER), str(PORT)], stderr=subprocess.DEVNULL)
    try:
        for _ in range(300):
            try:
                exchange(b"GET / HTTP/1.1\r\nhost: test\r\n\r\n")
                break
            except OSError:
                time.sleep(0.1)
        raw()
        asyncio.run(client())
    finally:
        server.terminate()
        server.wait()


if __name__ == "__main__":
    main()
