"""`python -m tests.attacks.probe HOST PORT` is a well-behaved client, which sends small V2 REST inferences one after
the other. For each line on standard input, it prints the results since the previous line as JSON: the numbers of
successful and failed inferences, and the longest duration in seconds."""

from __future__ import annotations

import json
import os
import select
import socket
import sys
import time
from contextlib import suppress

from tests.limits import GENEROUS

BODY = b'{"inputs":[{"name":"x","datatype":"FP64","shape":[1,2],"data":[1.0,2.0]}]}'
REQUEST = b"POST /v2/models/identity/infer HTTP/1.1\r\nHost: a\r\nContent-Length: %d\r\n\r\n%b" % (len(BODY), BODY)
ECHOED = b'"data":[1.0,2.0]'
PAUSE = 0.01


class Client:
    """A client with one connection, which it opens again after a loss."""

    def __init__(self, address: tuple[str, int]) -> None:
        self._address = address
        self._socket: socket.socket | None = None

    def call(self) -> bool:
        """Return whether the correct answer arrived."""
        try:
            if self._socket is None:
                self._socket = socket.create_connection(self._address, GENEROUS)
            self._socket.sendall(REQUEST)
            reply = b""
            while b"}]}" not in reply and b"error" not in reply:
                piece = self._socket.recv(65536)
                if not piece:
                    raise ConnectionError("closed")
                reply += piece
        except OSError:
            with suppress(AttributeError):
                self._socket.close()  # type: ignore[union-attr]
            self._socket = None
            return False
        return ECHOED in reply


def main() -> None:
    client = Client((sys.argv[1], int(sys.argv[2])))
    good = failed = 0
    longest = 0.0
    while True:
        begun = time.perf_counter()
        answered = client.call()
        longest = max(longest, time.perf_counter() - begun)
        good, failed = good + answered, failed + (not answered)
        if select.select([sys.stdin], [], [], PAUSE)[0]:
            if not os.read(sys.stdin.fileno(), 4096):
                return
            print(json.dumps({"good": good, "failed": failed, "longest": longest}), flush=True)
            good = failed = 0
            longest = 0.0


if __name__ == "__main__":
    main()
