"""Checks of GraphPipe servers over HTTP. Section names refer to the GraphPipe specification."""

import struct
from math import prod
from urllib.parse import quote

from gateway.tools.conformance.check import (
    Options,
    Suite,
    Transcript,
    basis,
    deviate,
    fail,
    not_applicable,
    not_tested,
    require,
)
from gateway.tools.conformance.flatbuffer import (
    DATATYPES,
    TYPES,
    Inferred,
    ModelDescription,
    Output,
    infer_request,
    metadata_request,
    read_inferred,
    read_metadata,
)
from gateway.tools.conformance.inputs import InputSpec, Sample, same, sample
from gateway.tools.conformance.transports import HttpReply, HttpServer

MALFORMED = (ValueError, IndexError, TypeError, struct.error)


class GraphpipeServer(HttpServer):
    """A server with one model, and the inputs to send to it.

    A URL with a path is the model's URL, and stays unchanged. Otherwise, the path is `/graphpipe/NAME`, as in a
    gateway, or `/` without a model name. Raises ValueError if the user gives both a model name and a URL with a
    path."""

    def __init__(self, address: str, options: Options, transcript: Transcript) -> None:
        super().__init__(address, options, transcript)
        if self._prefix and options.model:
            raise ValueError(f"the URL {address} already selects a model; remove --model")
        if self._prefix:
            self.path = "/" if address.endswith("/") else ""
        else:
            self.path = f"/graphpipe/{quote(options.model, safe='')}" if options.model else "/"

    def send(self, body: bytes, content_type: str = "application/octet-stream") -> HttpReply:
        return self.request("POST", self.path, body, {"Content-Type": content_type})

    @basis
    def metadata(self) -> ModelDescription:
        reply = self.send(metadata_request())
        require(reply.status == 200, f"a MetadataRequest: status {reply.status}; expected 200")
        try:
            return read_metadata(reply.body)
        except MALFORMED as error:
            fail(f"the reply is not a MetadataResponse: {error}")

    @basis
    def tensors(self) -> list[Sample]:
        specs = self.options.inputs
        if not specs:
            described = [each for each in self.metadata.inputs if each.shape is not None and each.type in DATATYPES]
            specs = tuple(
                InputSpec((each.name or b"").decode(), DATATYPES[each.type], each.shape or ()) for each in described
            )
        if not specs:
            not_tested("the metadata describes no inputs; describe them with --input NAME=DATATYPE[SHAPE]")
        unknown = [each.datatype for each in specs if each.datatype not in TYPES]
        if unknown:
            not_tested(f"GraphPipe has no {unknown[0]}")
        try:
            return [sample(each) for each in specs]
        except ValueError as error:
            not_tested(str(error))

    @property
    def names(self) -> list[str]:
        return [each.name for each in self.tensors]

    def infer(self, *, inputs: list[str] | None = None, outputs: list[str] | None = None) -> tuple[Output, ...]:
        """Return the tensors of an inference that must succeed."""
        body = infer_request(self.tensors, self.names if inputs is None else inputs, outputs or [])
        return _succeeded(self.send(body)).tensors

    @basis
    def answer(self) -> tuple[Output, ...]:
        return self.infer()


SUITE = Suite("graphpipe", GraphpipeServer)
check = SUITE.check


@check("metadata.response", "3.3", "the server MUST respond to a MetadataRequest with a MetadataResponse")
def metadata_response(server: GraphpipeServer) -> None:
    require(server.metadata.inputs, "`inputs` (required) is absent or empty")
    require(server.metadata.outputs, "`outputs` (required) is absent or empty")


@check("metadata.tensors", "3.3.2.1", "IOMetadata: name, shape and type are required")
def metadata_tensors(server: GraphpipeServer) -> None:
    for each in (*server.metadata.inputs, *server.metadata.outputs):
        require(each.name is not None, "a tensor has no name")
        require(each.shape is not None, f"tensor {each.name!r} has no shape")
        require(all(size >= -1 for size in each.shape or ()), f"tensor {each.name!r} has the shape {each.shape}")
        require(each.type in DATATYPES, f"tensor {each.name!r} has the type {each.type}, which is not in the table")


@check("metadata.names", "3.3.2.1", "the name is the unique identifier for this input or output")
def metadata_names(server: GraphpipeServer) -> None:
    for described in (server.metadata.inputs, server.metadata.outputs):
        names = [each.name for each in described]
        require(len(set(names)) == len(names), f"duplicate names: {names}")


@check("metadata.get", "4", "a GET SHOULD be answered with helpful information, such as the metadata as JSON")
def metadata_get(server: GraphpipeServer) -> None:
    reply = server.get(server.path)
    if reply.status != 200:
        deviate(f"a GET: status {reply.status}")
    if not reply.body:
        deviate("a GET has an empty reply")


@check("infer.named", "3.3", "the server MUST respond to an InferRequest with an InferResponse")
def infer_named(server: GraphpipeServer) -> None:
    require(server.answer, "there are no output_tensors, and no errors")
    for at, each in enumerate(server.answer):
        require(not each.both, f"output {at} has both data and string_val; one MUST be empty")
        count = prod(each.shape)
        require(len(each.values) == count, f"output {at} has {len(each.values)} elements; its shape requires {count}")


@check("infer.default-inputs", "3.3.1", "if no input names are included, the server may apply the tensors to defaults")
def default_inputs(server: GraphpipeServer) -> None:
    reply = _read(server.send(infer_request(server.tensors)))
    if reply is None or reply.errors:
        not_applicable("the server has no default input names")
    _same_outputs(server.answer, reply.tensors, "the request without input names")


@check("infer.outputs-described", "3.3.2.1", "type and shape of the output")
def outputs_described(server: GraphpipeServer) -> None:
    said = server.metadata.outputs
    names = [(each.name or b"").decode() for each in said]
    for expected, found in zip(said, server.infer(outputs=names), strict=True):
        type_, shape = DATATYPES[expected.type], expected.shape or ()
        require(
            found.type == expected.type,
            f"output {expected.name!r} is {DATATYPES[found.type]}; the metadata says {type_}",
        )
        fits = len(shape) == len(found.shape) and all(b in (-1, a) for a, b in zip(found.shape, shape, strict=True))
        require(fits, f"output {expected.name!r} has the shape {found.shape}; the metadata says {shape}")


@check("infer.requested-output", "3.3.1", "the InferResponse contains one output tensor per requested output name")
def requested_output(server: GraphpipeServer) -> None:
    names = [(each.name or b"").decode() for each in server.metadata.outputs]
    found = server.infer(outputs=names[-1:])
    require(len(found) == 1, f"one output was requested; the reply has {len(found)}")
    backwards = server.infer(outputs=names[::-1])
    require(len(backwards) == len(names), f"{len(names)} outputs were requested; the reply has {len(backwards)}")
    _same_outputs(found, backwards[:1], "the request for all outputs in reverse order")


SUITE.check_datatypes(
    "infer.type",
    "3.1.1",
    {each: (each, f"type {number} is a supported tensor type") for each, number in TYPES.items()},
    lambda server: require(server.answer, "there are no outputs"),
)


@check("infer.content-type", "4", "the body contains only the request; no Content-Type is specified")
def content_type(server: GraphpipeServer) -> None:
    body = infer_request(server.tensors, server.names)
    for kind in ("application/x-www-form-urlencoded", "text/plain"):  # sent by axios and libcurl
        _same_outputs(server.answer, _succeeded(server.send(body, kind)).tensors, f"the request as {kind}")


@check("error.unknown-input", "3.3.1", "an InferResponse contains outputs or an error")
def unknown_input(server: GraphpipeServer) -> None:
    names = [f"no_such_{each}" for each in server.names]
    _is_error(server.send(infer_request(server.tensors, names)), "inputs with unknown names")


@check("error.unknown-output", "3.3.1", "one output tensor per requested output name, or an error")
def unknown_output(server: GraphpipeServer) -> None:
    reply = server.send(infer_request(server.tensors, server.names, ["no_such_output"]))
    _is_error(reply, "an output with an unknown name")


@check("error.name-count", "3.2.1", "the length of input_names and input_tensors MUST be the same")
def name_count(server: GraphpipeServer) -> None:
    reply = server.send(infer_request(server.tensors, [*server.names, "more"]))
    _is_error(reply, "more input names than tensors")


@check("error.shape", "3.1", "data is the tensor in row-major order, of the shape's size")
def wrong_shape(server: GraphpipeServer) -> None:
    first, *others = server.tensors
    changed = Sample(first.name, first.datatype, (*first.shape, 7), first.values)
    _is_error(server.send(infer_request([changed, *others], server.names)), "less data than the shape needs")


@check(
    "error.request-type",
    "3.3",
    "a badly formatted Request with an invalid type SHOULD have an InferResponse with an Error",
)
def request_type(server: GraphpipeServer) -> None:
    reply = server.send(infer_request(server.tensors, server.names, kind=9))
    found = _read(reply)
    if reply.status == 200 and (found is None or not found.errors):
        deviate("a Request of unknown type 9: status 200 without an error")
    _is_error(reply, "a Request of unknown type 9")


@check("error.garbage", "4", "a server accepts flatbuffer-encoded Requests")
def garbage(server: GraphpipeServer) -> None:
    _is_error(server.send(b"\xff" * 64), "64 bytes that are not a flatbuffer")


@check("error.empty", "4", "a server accepts flatbuffer-encoded Requests")
def empty(server: GraphpipeServer) -> None:
    _is_error(server.send(b""), "an empty body")


@check("error.code", "3.3.1.1", "the server SHOULD include a numeric code for each error")
def error_code(server: GraphpipeServer) -> None:
    found = _read(server.send(infer_request(server.tensors, [f"no_such_{each}" for each in server.names])))
    if found is None or not found.errors:
        not_applicable("the server does not return errors as an InferResponse")
    code, message = found.errors[0]
    require(message, "the error has no message")
    if not code:
        deviate("the error's code is 0")


@check("limit.long-name", "3.2.1", "input_names are strings; the server stays available after a long name")
def long_name(server: GraphpipeServer) -> None:
    names = ["n" * 100_000 for _ in server.names]
    _is_error(server.send(infer_request(server.tensors, names)), "a name of 100,000 characters")


@check("http.keep-alive", "4", "over HTTP/1.1, a connection stays open until client or server closes it")
def keep_alive(server: GraphpipeServer) -> None:
    server.check_keeps_open("POST", server.path, metadata_request())


@check("http.chunked", "4", "over HTTP/1.1, requests may be chunked")
def chunked(server: GraphpipeServer) -> None:
    body = infer_request(server.tensors, server.names)
    reply = server.chunked(server.path, body, "application/octet-stream")
    _same_outputs(server.answer, _succeeded(reply).tensors, "the chunked request")


def _read(reply: HttpReply) -> Inferred | None:
    try:
        return read_inferred(reply.body)
    except MALFORMED:
        return None


def _succeeded(reply: HttpReply) -> Inferred:
    found = _read(reply)
    if found is not None and found.errors:
        fail(f"status {reply.status} with the error {found.errors[0]}; set other inputs with --input")
    if reply.status != 200:
        fail(f"status {reply.status} for inputs from the metadata: {reply.body[:120]!r}; set other inputs with --input")
    if found is None:
        fail("the reply is not an InferResponse")
    return found


def _is_error(reply: HttpReply, what: str) -> None:
    found = _read(reply)
    has_errors = found is not None and bool(found.errors)
    if reply.status == 200 and not has_errors:
        fail(f"{what}: accepted with status 200")
    if not has_errors:
        deviate(f"{what}: status {reply.status} without an InferResponse with `errors`: {reply.body[:80]!r}")
    require(found is None or not found.tensors, f"{what}: the reply has both output_tensors and errors")


def _same_outputs(expected: tuple[Output, ...], found: tuple[Output, ...], what: str) -> None:
    require(len(expected) == len(found), f"{what} gets {len(found)} outputs; the plain request gets {len(expected)}")
    for at, (ours, theirs) in enumerate(zip(expected, found, strict=True)):
        equal = ours.type == theirs.type and same(DATATYPES[ours.type], ours.values, theirs.values)
        require(equal, f"{what}: output {at} differs from the plain request's")
