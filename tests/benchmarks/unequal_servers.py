"""Model servers of V2 over HTTP that are not equally fast, with Triton's metrics pages: `python unequal_servers.py
SLOWNESS:PORT:METRICS_PORT...`. Each has two instances, which sleep: a call takes the seconds of its model times
SLOWNESS, after those that came before it. Needs the standard library alone."""

import asyncio
import json
import sys
import time

INSTANCES = 2
SECONDS = {"light": 0.03, "heavy": 0.3}
ANSWER = json.dumps({"outputs": [{"name": "y", "datatype": "FP32", "shape": [1], "data": [1]}]}).encode()
METADATA = json.dumps(
    {
        "name": "light",
        "inputs": [{"name": "x", "datatype": "FP32", "shape": [1]}],
        "outputs": [{"name": "y", "datatype": "FP32", "shape": [1]}],
    }
).encode()


class Models:
    """One server."""

    def __init__(self, slowness: float) -> None:
        self.slowness = slowness
        self.instances = asyncio.Semaphore(INSTANCES)
        self.pending, self.answered = 0, 0
        self.took, self.waited = 0.0, 0.0

    async def infer(self, model: str) -> bytes:
        began = time.perf_counter()
        self.pending += 1
        async with self.instances:
            self.pending -= 1
            self.waited += time.perf_counter() - began
            await asyncio.sleep(SECONDS[model] * self.slowness)
        self.answered += 1
        self.took += time.perf_counter() - began
        return ANSWER

    def page(self) -> bytes:
        figures = {
            "nv_inference_request_success": self.answered,
            "nv_inference_request_duration_us": int(self.took * 1e6),
            "nv_inference_queue_duration_us": int(self.waited * 1e6),
            "nv_inference_pending_request_count": self.pending,
        }
        return "".join(f'{name}{{model="all",version="1"}} {value}\n' for name, value in figures.items()).encode()

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while True:
                head = await reader.readuntil(b"\r\n\r\n")
                path = head.split(b" ", 2)[1].decode()
                size = [line for line in head.lower().split(b"\r\n") if line.startswith(b"content-length:")]
                await reader.readexactly(int(size[0].partition(b":")[2]) if size else 0)
                if path.endswith("/infer"):
                    body = await self.infer(path.split("/")[3])
                else:
                    body = self.page() if path == "/metrics" else METADATA
                writer.write(b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\n")
                writer.write(b"content-length: %d\r\n\r\n%b" % (len(body), body))
                await writer.drain()
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            writer.close()


async def main() -> None:
    for each in sys.argv[1:]:
        slowness, port, metrics = each.split(":")
        models = Models(float(slowness))
        for bound in (port, metrics):
            await asyncio.start_server(models.serve, "127.0.0.1", int(bound))
    print("ready", flush=True)
    await asyncio.Event().wait()


if __name__ == "__main__":
    asyncio.run(main())
