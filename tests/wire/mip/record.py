"""Asks the real kubemo server, over a raw socket, what stands below, and writes what was said: whole packets, as
NAME.request and NAME.reply. What kubemo's client sends for `inference` and `ping` is recorded through a socket that
listens in between. The peer must have been built: `make peers`."""

import base64
import socket
import tempfile
import threading
from pathlib import Path

from tests.interop.client_scripts import run_client
from tests.interop.kubemo_server import connected, exchanged, start_kubemo

HERE = Path(__file__).parent
GIF = base64.b64encode(bytes.fromhex("47494638396101000100800000000000ffffff2c00000000010001000002024401003b")).decode()

STEPS = {
    "ping": {"op": "ping"},
    "json": {"op": "infer", "batch": [[{"json": "[1, 2]"}]]},
    "json_floats": {"op": "infer", "batch": [[{"json": "[0.5, -0.0, NaN, Infinity]"}]]},
    "scalar": {"op": "infer", "batch": [[{"json": "3"}]]},
    "batch": {"op": "infer", "batch": [[{"json": "[1, 2]"}], [{"json": "[3, 4]"}]]},
    "two_inputs": {"op": "infer", "batch": [[{"json": "[1]"}, {"json": "[2]"}], [{"json": "[3]"}, {"json": "[4]"}]]},
    "two_outputs": {"op": "infer", "batch": [[{"json": '{"outputs": 2}'}]]},
    "labels": {"op": "infer", "batch": [[{"json": '{"labels": {"cat": 0.9, "dog": 0.1}}'}]]},
    "text": {"op": "infer", "batch": [[{"text": "kubemo é"}], [{"text": "x"}]]},
    "image": {"op": "infer", "batch": [[{"image": GIF}]]},
    "npy": {"op": "infer", "batch": [[{"npy": ["float32", [3], [0.5, 1, 2]]}]]},
    "npy_scalar": {"op": "infer", "batch": [[{"npy": ["float16", [], [1.5]]}]]},
    "npy_integers": {"op": "infer", "batch": [[{"npy": ["uint64", [1, 2], [1, 2]]}]]},
    "error_memory": {"op": "infer", "batch": [[{"json": '{"raise": "MemoryError"}'}]]},
    "error_shape": {"op": "infer", "batch": [[{"json": '{"outputs": 2}'}], [{"json": '{"outputs": 2}'}]]},
    "error_internal": {"op": "infer", "batch": [[{"json": '{"raise": "ValueError"}'}]]},
}
RAW = {
    "error_protocol": "0901000000000000",
    "error_subtype": "0001010000000000",
    "error_method": "0009000000000000",
    "no_inputs": "000200000000000400000001",
    "ping_reserved": "000100ff00000000",
}


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        server = start_kubemo(Path(folder))
        for name, step in STEPS.items():
            write(name, *overheard(server.url, step))
        for name, packet in RAW.items():
            write(name, bytes.fromhex(packet), exchanged(server.url, bytes.fromhex(packet)))
        server.stop()


def write(name: str, request: bytes, reply: bytes) -> None:
    (HERE / f"{name}.request").write_bytes(request)
    (HERE / f"{name}.reply").write_bytes(reply)


def overheard(url: str, step: dict[str, object]) -> tuple[bytes, bytes]:
    """What the client and the server say to each other."""
    said: dict[str, bytes] = {"request": b"", "reply": b""}
    with socket.create_server(("127.0.0.1", 0)) as between:
        port = between.getsockname()[1]
        listener = threading.Thread(target=lambda: said.update(relayed(between, url)))
        listener.start()
        print(run_client("kubemo", "kubemo_client", f"tcp://127.0.0.1:{port}", [step]))
        listener.join()
    return said["request"], said["reply"]


def relayed(between: socket.socket, url: str) -> dict[str, bytes]:
    client, _ = between.accept()
    with client, connected(url) as server:
        request = client.recv(65536)
        server.sendall(request)
        reply = b"".join(iter(lambda: server.recv(65536), b""))
        client.sendall(reply)
    return {"request": request, "reply": reply}


if __name__ == "__main__":
    main()
