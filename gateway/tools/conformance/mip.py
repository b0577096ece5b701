"""Checks of MIP servers. Section names are headings of KubeMo's protocol description; numbers that the description
omits come from KubeMo's code. The user describes the inputs with `--input`, because MIP has no metadata. The shapes are
for one example."""

import json
import struct
from typing import Any

from gateway.core.frozen import frozen
from gateway.tools.conformance.check import Suite, basis, deviate, fail, not_tested, require
from gateway.tools.conformance.inputs import Sample, as_bytes, nest, sample
from gateway.tools.conformance.transports import Bytes, SocketServer

HEADER = struct.Struct(">BBBBI")
COUNTS = struct.Struct(">BBH")
TLV = struct.Struct(">II")
ERROR, PING, INFERENCE = 0, 1, 2
REQUEST, RESPONSE = 0, 1
TEXT, JSON, IMAGE = 1, 2, 3
ERRORS = ("ERROR_PROTOCOL", "ERROR_SUBTYPE", "ERROR_METHOD", "ERROR_MEMORY", "ERROR_SHAPE", "ERROR_INTERNAL")
MAX_PAYLOAD = 64 << 20
"""Maximum size of a reply, in bytes."""
PATIENCE = 1.0
"""Seconds for which a client that waits for an error leaves its side of the connection open. The gateway sends no reply
to a client that closes its side before the reply is ready."""


@frozen
class Packet:
    """A received packet."""

    version: int
    kind: int
    subtype: int
    reserved: int
    payload: bytes


@frozen
class InferenceReply:
    """The payload of an inference response."""

    inputs: int
    outputs: int
    size: int
    elements: tuple[tuple[int, bytes], ...]


class MipServer(SocketServer):
    """A server with one model. Each request uses its own connection, as in KubeMo's client."""

    def exchange(self, packet: bytes, finish: bool = False) -> Packet | None:
        """Return the reply to a packet, or None if the server closes the connection without a reply. If `finish` is
        True, and no reply arrives within PATIENCE, the client announces that no more data follows, because some servers
        wait for this announcement."""
        with self.connection() as connection:
            connection.send(packet)
            if finish:
                connection.finish(PATIENCE)
            return read(connection)

    @basis
    def tensors(self) -> list[Sample]:
        if not self.options.inputs:
            not_tested("MIP has no metadata; describe the inputs of one example with --input NAME=DATATYPE[SHAPE]")
        return [sample(each) for each in self.options.inputs]

    def packet(self, examples: int = 1) -> bytes:
        """Return an inference packet with the given number of equal examples."""
        row = [_element(each) for each in self.tensors]
        return inference(len(row), examples, row * examples)

    @basis
    def answer(self) -> InferenceReply:
        return batch(self.exchange(self.packet()))


SUITE = Suite("mip", MipServer)
check = SUITE.check


def inference(inputs: int, size: int, elements: list[tuple[int, bytes]]) -> bytes:
    """Return an inference request. n-output is 0, as in requests from KubeMo's client."""
    payload = COUNTS.pack(inputs, 0, size) + b"".join(TLV.pack(kind, len(data)) + data for kind, data in elements)
    return HEADER.pack(0, INFERENCE, REQUEST, 0, len(payload)) + payload


def read(connection: Bytes) -> Packet | None:
    """Return the next packet, or None if the connection closes."""
    head = connection.read(HEADER.size)
    if len(head) < HEADER.size:
        require(not head, f"the connection ends after {len(head)} bytes; a header has {HEADER.size}")
        return None
    version, kind, subtype, reserved, size = HEADER.unpack(head)
    require(size <= MAX_PAYLOAD, f"`remaining size` of a reply is {size}")
    payload = connection.read(size) if size else b""
    require(len(payload) == size, f"`remaining size` is {size}, but {len(payload)} bytes follow")
    return Packet(version, kind, subtype, reserved, payload)


def batch(packet: Packet | None) -> InferenceReply:
    """Return the payload of a reply that must be an inference response."""
    if packet is None:
        fail("the connection was closed without a reply")
    if packet.kind == ERROR:
        fail(f"{_error_name(packet.subtype)} for a valid request; set other inputs with --input")
    found = (packet.version, packet.kind, packet.subtype)
    require(found == (0, INFERENCE, RESPONSE), f"version, kind and subtype are {found}; expected (0, 2, 1)")
    require(len(packet.payload) >= COUNTS.size, "the payload ends before n-input, n-output and batch size")
    inputs, outputs, size = COUNTS.unpack_from(packet.payload)
    elements, at = [], COUNTS.size
    while at < len(packet.payload):
        require(at + TLV.size <= len(packet.payload), "the payload ends within the head of an output")
        kind, length = TLV.unpack_from(packet.payload, at)
        at += TLV.size + length
        require(at <= len(packet.payload), f"an output of {length} bytes ends beyond the payload")
        elements.append((kind, packet.payload[at - length : at]))
    return InferenceReply(inputs, outputs, size, tuple(elements))


PONG = (0, PING, RESPONSE, b"")
PING_PACKET = HEADER.pack(0, PING, REQUEST, 0, 0)


@check("ping", "Ping", "the server responds with a packet of kind 1 and subtype 1; there is no variable payload")
def ping(server: MipServer) -> None:
    _is_pong(server.exchange(PING_PACKET))


@check("ping.reserved", "Protocol", "reserved: reserved for later usage, and so ignored today")
def ping_reserved(server: MipServer) -> None:
    _is_pong(server.exchange(HEADER.pack(0, PING, REQUEST, 255, 0)))


@check("ping.again", "Protocol", "the header contains the packet's size, so one connection can carry several")
def ping_again(server: MipServer) -> None:
    with server.connection() as connection:
        connection.send(PING_PACKET)
        _is_pong(read(connection))
        try:
            connection.send(PING_PACKET)
            second = read(connection)
        except ConnectionError:
            second = None
        if second is None:
            deviate("the server closes the connection after one request, like KubeMo's server")
        _is_pong(second)


@check("ping.pieces", "Protocol", "the header has 8 octets, also if they arrive in pieces")
def ping_pieces(server: MipServer) -> None:
    with server.connection() as connection:
        connection.send_in_pieces(PING_PACKET)
        _is_pong(read(connection))


@check("inference", "Inference", "kind 2, subtype 1, n-input, n-output, batch size, and then the outputs as TLVs")
def infer(server: MipServer) -> None:
    require(server.answer.size == 1, f"`batch size` is {server.answer.size}; the request had 1")
    require(server.answer.elements, "there are no outputs")
    for kind, data in server.answer.elements:
        _is_readable(kind, data)


@check("inference.n-output", "Inference", "n-output specifies the number of the model's outputs")
def n_output(server: MipServer) -> None:
    found, count = server.answer, len(server.answer.elements)
    require(count == found.outputs * found.size, f"`n-output` is {found.outputs}; an example has {count} outputs")


@check("inference.n-input", "Inference", "n-input specifies the number of the model's inputs")
def n_input(server: MipServer) -> None:
    expected = len(server.tensors)
    if server.answer.inputs != expected:
        deviate(f"`n-input` of the response is {server.answer.inputs}; the request had {expected}")


@check("inference.batch", "Inference", "a flattened batch of outputs, by n-output and batch size")
def two_examples(server: MipServer) -> None:
    found, one = batch(server.exchange(server.packet(2))), server.answer.elements
    require(found.size == 2, f"`batch size` is {found.size}; the request had 2")
    require(len(found.elements) == 2 * len(one), f"{len(found.elements)} outputs for 2 examples; {len(one)} for 1")
    for at, each in enumerate(found.elements):
        equal = _value(each) == _value(one[at % len(one)])
        require(equal, f"output {at} for two equal examples differs from the output for one")


@check("inference.pieces", "Protocol", "remaining size: the payload's size in bytes, also if it arrives in pieces")
def infer_pieces(server: MipServer) -> None:
    with server.connection() as connection:
        connection.send_in_pieces(server.packet())
        found = batch(read(connection))
    require(_values(found) == _values(server.answer), "the reply differs from the reply to the packet in one piece")


@check("inference.several", "Protocol", "the header contains the packet's size, so one connection can carry several")
def several(server: MipServer) -> None:
    with server.connection() as connection:
        for number in (1, 2, 3):
            try:
                connection.send(server.packet())
                packet = read(connection)
            except ConnectionError:
                packet = None
            if packet is None and number > 1:
                deviate("the server closes the connection after one request, like KubeMo's server")
            require(_values(batch(packet)) == _values(server.answer), f"the reply to request {number} differs")


@check("inference.pipelined", "Protocol", "the header contains the packet's size, so one connection can carry several")
def pipelined(server: MipServer) -> None:
    with server.connection() as connection:
        connection.send(PING_PACKET + server.packet() + PING_PACKET, requests=3)
        _is_pong(read(connection))
        try:
            second = read(connection)
        except ConnectionError:
            second = None
        if second is None:
            deviate("the server closes the connection after one request, like KubeMo's server")
        require(_values(batch(second)) == _values(server.answer), "the reply differs from the single packet's")
        _is_pong(read(connection))


@check("error.version", "Errors", "ERROR_PROTOCOL used when receiving an invalid version")
def wrong_version(server: MipServer) -> None:
    _is_error(server.exchange(HEADER.pack(9, PING, REQUEST, 0, 0)), 0, "version 9")


@check("error.subtype", "Errors", "ERROR_SUBTYPE used when receiving an invalid subtype")
def wrong_subtype(server: MipServer) -> None:
    _is_error(server.exchange(HEADER.pack(0, PING, RESPONSE, 0, 0)), 1, "a response as a request")


@check("error.kind", "Errors", "ERROR_METHOD used when kind is not what the server has implemented")
def wrong_kind(server: MipServer) -> None:
    _is_error(server.exchange(HEADER.pack(0, 200, REQUEST, 0, 0)), 2, "kind 200")


@check("error.shape-count", "Errors", "ERROR_SHAPE used when variable payload does not match its header")
def wrong_count(server: MipServer) -> None:
    row = [_element(each) for each in server.tensors]
    packet = inference(len(row), 3, row)
    _is_error(server.exchange(packet, finish=True), 4, "a batch size of 3 with the inputs of one example")


@check("error.shape-length", "Errors", "ERROR_SHAPE used when variable payload does not match its header")
def wrong_length(server: MipServer) -> None:
    payload = COUNTS.pack(1, 0, 1) + TLV.pack(JSON, 1000) + b"[1]"
    packet = HEADER.pack(0, INFERENCE, REQUEST, 0, len(payload)) + payload
    _is_error(server.exchange(packet, finish=True), 4, "an input that is longer than the payload")


@check("error.empty-batch", "Errors", "ERROR_SHAPE used when variable payload does not match its header")
def empty_batch(server: MipServer) -> None:
    _is_error(server.exchange(inference(1, 0, []), finish=True), 4, "a batch size of 0")


@check("error.input-type", "Errors", "ERROR_INTERNAL used when other errors occur")
def unknown_type(server: MipServer) -> None:
    packet = inference(1, 1, [(9, b"x")])
    _is_error(server.exchange(packet, finish=True), 5, "an input of type 9", also=(4,))


@check("error.malformed-json", "Errors", "ERROR_INTERNAL used when other errors occur")
def malformed(server: MipServer) -> None:
    packet = inference(1, 1, [(JSON, b"[1, ")])
    _is_error(server.exchange(packet, finish=True), 5, "malformed JSON", also=(4,))


@check("error.serves-on", "Ping", "a ping checks whether a server is available, also after a connection broke off")
def serves_on(server: MipServer) -> None:
    with server.connection() as connection:
        connection.send(HEADER.pack(0, INFERENCE, REQUEST, 0, 100) + b"\0\0")
    _is_pong(server.exchange(PING_PACKET))


@check("limit.remaining", "Errors", "ERROR_MEMORY used when the server runs out of memory; the check announces 4 GiB")
def huge(server: MipServer) -> None:
    try:
        found = server.exchange(HEADER.pack(0, INFERENCE, REQUEST, 0, 0xFFFFFFFF) + COUNTS.pack(1, 0, 1), finish=True)
    except OSError:
        found = None
    _is_pong(server.exchange(PING_PACKET))
    if found is None:
        deviate("the connection was closed without an error")
    _is_error(found, 3, "a `remaining size` of 4 GiB", also=(4,))


def _is_pong(packet: Packet | None) -> None:
    if packet is None:
        fail("the connection was closed without a reply to a ping")
    found = (packet.version, packet.kind, packet.subtype, packet.payload)
    require(found == PONG, f"version, kind, subtype and payload are {found}; expected {PONG}")
    if packet.reserved:
        deviate(f"`reserved` of the reply is {packet.reserved}; expected 0")


def _is_error(packet: Packet | None, code: int, what: str, also: tuple[int, ...] = ()) -> None:
    if packet is None:
        fail(f"{what}: the connection was closed without a reply; expected {ERRORS[code]}")
    require(packet.kind == ERROR, f"{what}: accepted; expected {ERRORS[code]}")
    require(packet.version == 0, f"{what}: version {packet.version} in the reply; expected 0")
    require(packet.subtype < len(ERRORS), f"{what}: the error has the unknown code {packet.subtype}")
    if packet.subtype not in (code, *also):
        deviate(f"{what}: {_error_name(packet.subtype)}; expected {ERRORS[code]}")


def _error_name(code: int) -> str:
    return ERRORS[code] if code < len(ERRORS) else f"error {code}"


def _element(tensor: Sample) -> tuple[int, bytes]:
    if tensor.datatype == "BYTES" and len(tensor.values) == 1:
        return TEXT, as_bytes(tensor.values[0])
    return JSON, json.dumps(nest(tensor.values, tensor.shape)).encode()


def _is_readable(kind: int, data: bytes) -> None:
    if kind == JSON:
        try:
            json.loads(data)
        except ValueError as error:
            fail(f"an output of type JSON is not JSON: {error}")
    elif kind == TEXT:
        data.decode()
    elif kind != IMAGE:
        deviate(f"an output has the type {kind:#x}; the known types are TEXT, JSON and IMAGE (1 to 3)")


def _values(found: InferenceReply) -> list[Any]:
    return [_value(each) for each in found.elements]


def _value(element: tuple[int, bytes]) -> Any:
    kind, data = element
    return (kind, json.loads(data) if kind == JSON else data)
