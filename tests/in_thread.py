"""Servers of the standard library that run in a thread."""

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler
from socketserver import TCPServer


@contextmanager
def in_thread(server: TCPServer) -> Iterator[str]:
    """The address of `server`, which serves until the end of the context."""
    thread = threading.Thread(target=server.serve_forever, args=(0.02,))
    thread.start()
    try:
        yield f"127.0.0.1:{server.server_address[1]}"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


class QuietHandler(BaseHTTPRequestHandler):
    """Logs nothing."""

    def send_json(self, document: object, status: int = 200) -> None:
        """Send `document` as JSON."""
        body = json.dumps(document).encode()
        self.send_response(status)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:
        """Nothing is logged."""
