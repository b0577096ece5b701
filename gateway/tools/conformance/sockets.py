"""Addresses and connections for the checks that do not use HTTP."""

import socket

from gateway.tools.conformance.check import Options, Transcript, readable


def target(address: str, *schemes: str) -> str:
    """Return `host:port`, or `unix:///path`. The address can have one of the `schemes`.

    Raises:
        ValueError: the address has another format.
    """
    scheme, separator, rest = address.rpartition("://")
    if scheme == "unix" and rest.startswith("/"):
        return address
    host, colon, port = rest.rpartition(":")
    if (separator and scheme not in schemes) or not host or not colon or not port.isdigit() or "/" in rest:
        prefixes = " or ".join(f"{each}://HOST:PORT" for each in schemes)
        raise ValueError(f"address {address!r} is not HOST:PORT, {prefixes} or unix:///PATH")
    return rest


def connect(place: str, timeout: float) -> socket.socket:
    """Return a connection to a `target`."""
    if place.startswith("unix://"):
        connection = socket.socket(socket.AF_UNIX)
        try:
            connection.settimeout(timeout)
            connection.connect(place.removeprefix("unix://"))
        except BaseException:
            connection.close()
            raise
        return connection
    host, _, port = place.rpartition(":")
    return socket.create_connection((host.strip("[]"), int(port)), timeout)


class Bytes:
    """A connection for raw bytes. The transcript records its messages."""

    def __init__(self, place: str, timeout: float, transcript: Transcript) -> None:
        self._socket = connect(place, timeout)
        self._transcript = transcript
        self._received = b""

    def __enter__(self) -> "Bytes":
        return self

    def __exit__(self, *_: object) -> None:
        self._socket.close()

    def send(self, data: bytes, requests: int = 1) -> None:
        """Send raw bytes. `requests` is the number of requests that they contain."""
        self._transcript.send("", data.hex() if len(data) < 200 else readable(data[:200]))
        self._transcript.requests += requests - 1
        self._socket.sendall(data)

    def send_in_pieces(self, data: bytes) -> None:
        """Send one message in three parts, each in its own packet."""
        if self._socket.family != socket.AF_UNIX:
            self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._transcript.send("in three pieces:", data.hex())
        for piece in (data[:3], data[3:13], data[13:]):
            self._socket.sendall(piece)

    def read(self, size: int) -> bytes:
        """Return this many bytes, or fewer if the server closes the connection first."""
        received = b""
        while len(received) < size and (piece := self._socket.recv(min(size - len(received), 1 << 20))):
            received += piece
        self._transcript.receive("", received.hex() if received else "(closed)")
        return received

    def finish(self) -> None:
        """Announce that no more data follows."""
        self._socket.shutdown(socket.SHUT_WR)


class SocketServer:
    """A server under test with connections for raw bytes."""

    schemes: tuple[str, ...] = ("tcp",)
    """The schemes that an address can use."""

    def __init__(self, address: str, options: Options, transcript: Transcript) -> None:
        self._place = target(address, *self.schemes)
        self.options = options
        self._transcript = transcript

    def reach(self) -> None:
        """Raise OSError if no server answers at the address."""
        connect(self._place, self.options.timeout).close()

    def close(self) -> None:
        """Do nothing: connections close after each request."""

    def connection(self) -> Bytes:
        """Return a new connection."""
        return Bytes(self._place, self.options.timeout, self._transcript)
