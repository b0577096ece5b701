"""The V2 checks that REST and gRPC share. The server classes of `v2_rest` and `v2_grpc` send the requests and read the
replies. Each of these modules contains a table with the section and the rule of each check in its specification."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

from gateway.core.frozen import frozen
from gateway.tools.conformance.check import Options, Suite, deviate, fail, not_applicable, not_tested, require
from gateway.tools.conformance.inputs import DATATYPES, InputSpec, Sample, Values, same, sample

UNKNOWN = "no-such-model"
UNKNOWN_VERSION = "987654321"


@frozen
class V2Output:
    """An output in a reply, with all its elements."""

    datatype: str
    shape: list[int]
    values: Values


@frozen
class V2Answer:
    """The reply to an inference, as received (`raw`), and True if it contains an id. `read` returns the outputs."""

    raw: Any
    id: Any
    has_id: bool
    model_version: Any
    read: Callable[[], dict[str, V2Output]]

    @property
    def outputs(self) -> dict[str, V2Output]:
        """The outputs by name, in the order of the reply. The check fails if an output is malformed."""
        return self.read()


@frozen
class V2Inference:
    """An inference request. By default, it calls the server's model with the server's tensors. An empty id is
    omitted."""

    tensors: Sequence[Sample] | None = None
    id: str = "1"
    model: str = ""
    version: str = ""
    outputs: Sequence[str] = ()
    parameters: Sequence[tuple[str, str | int | bool]] = ()


class V2Speaker(Protocol):
    """A server under test. `versions` and `described` come from the model's metadata. There, each input and output has
    a name, a datatype and a shape, whose values are not checked. `plain` is the reply to a request with only the
    inputs."""

    model: str
    tensors: list[Sample]
    versions: Sequence[str]
    described: tuple[Sequence[Any], Sequence[Any]]
    plain: V2Answer

    def ask(self, inference: V2Inference) -> Any:
        """Return the reply, which can be an error."""

    def infer(self, inference: V2Inference) -> V2Answer:
        """Return the reply, which must be a success."""

    def ask_metadata(self, model: str, version: str = "") -> Any:
        """Return the reply to a request for a model's metadata, which can be an error."""

    def error(self, reply: Any) -> str:
        """Return the status or the code of an error, or an empty string for a success."""

    def answered(self, reply: Any) -> V2Answer:
        """Return the V2Answer in a reply, which must be a success."""

    def check_outputs(self) -> None:
        """Check that the reply to the inputs contains outputs in any encoding."""

    def refused(self, reply: Any, what: str, *codes: str, lenient: bool = False) -> None:
        """Check that `reply` is an error in the specification's form, over gRPC with one of `codes`. If `lenient` is
        True, servers can accept this request."""


def samples(options: Options, described: Callable[[], Sequence[InputSpec]]) -> list[Sample]:
    """Return a tensor for each input, from `--input` or else from the model's metadata."""
    specs = options.inputs or described()
    if not specs:
        not_tested("the model's metadata lists no inputs; describe them with --input NAME=DATATYPE[SHAPE]")
    try:
        return [sample(spec) for spec in specs]
    except ValueError as error:
        not_tested(str(error))


def same_outputs(expected: V2Answer, found: V2Answer, what: str) -> None:
    """Check that two answers contain the same outputs. `what` describes the request for the second answer."""
    ours, theirs = expected.outputs, found.outputs
    require(ours.keys() == theirs.keys(), f"{what} gets outputs {sorted(theirs)}; the plain one gets {sorted(ours)}")
    for name, each in ours.items():
        equal = same(each.datatype, each.values, theirs[name].values)
        require(equal and each.shape == theirs[name].shape, f"{what}: output {name!r} differs from the plain request's")


def _tensor_metadata(server: V2Speaker) -> None:
    described = [each for tensors in server.described for each in tensors]
    if not described:
        not_tested("the metadata lists no tensors")
    for name, datatype, shape in described:
        require(name and isinstance(name, str), f"a tensor has the name {name!r}")
        require(datatype in (*DATATYPES, "BF16"), f"tensor {name!r}: datatype {datatype!r} is not a V2 datatype")
        sizes = shape if isinstance(shape, list) else [None]
        if not all(isinstance(size, int) and size >= -1 for size in sizes):
            fail(f"tensor {name!r}: shape {shape!r}; expected an array of whole numbers, -1 or greater")


def _versions(server: V2Speaker) -> None:
    if not server.versions:
        not_applicable("the metadata lists no versions")
    for each in server.versions[:3]:
        reply = server.ask_metadata(server.model, each)
        error = server.error(reply)
        require(not error, f"version {each!r}: {error}; the metadata lists this version")


def _outputs_described(server: V2Speaker) -> None:
    said = {name: (datatype, list(shape)) for name, datatype, shape in server.described[1]}
    if not said:
        not_tested("the metadata lists no outputs")
    outputs = server.plain.outputs
    require(outputs.keys() == said.keys(), f"the outputs are {sorted(outputs)}; the metadata lists {sorted(said)}")
    for name, each in outputs.items():
        datatype, shape = said[name]
        said_of = f"output {name!r} has the datatype {each.datatype} and the shape {each.shape}; the metadata says"
        require(each.datatype == datatype, f"{said_of} {datatype}")
        fits = len(each.shape) == len(shape) and all(map(lambda size, free: free in (-1, size), each.shape, shape))
        require(fits, f"{said_of} {shape}")


def _id(text: str) -> Callable[[V2Speaker], None]:
    def run(server: V2Speaker) -> None:
        found = server.infer(V2Inference(id=text)).id
        require(found == text, f"`id` is {found!r}; the request had {text!r}")

    return run


def _no_id(server: V2Speaker) -> None:
    if server.infer(V2Inference(id="")).has_id:
        deviate("the response has an `id`, but the request had none")


def _requested_output(server: V2Speaker) -> None:
    wanted = [*server.plain.outputs][-1]
    found = [*server.infer(V2Inference(outputs=[wanted])).outputs]
    require(wanted in found, f"output {wanted!r} was requested; the response contains {found}")
    if found != [wanted]:
        deviate(f"output {wanted!r} was requested; the response contains {found}")


def _parameters(server: V2Speaker) -> None:
    reply = server.ask(V2Inference(parameters=[("note", "x"), ("level", 1), ("on", True)]))
    if server.error(reply):
        server.refused(reply, "unknown parameters")
    else:
        same_outputs(server.plain, server.answered(reply), "the request with parameters")


def _version(server: V2Speaker) -> None:
    if not server.versions:
        not_applicable("the metadata lists no versions")
    wanted = server.versions[-1]
    found = server.infer(V2Inference(version=wanted)).model_version
    require(found in (None, "", wanted), f"`model_version` is {found!r}; version {wanted!r} was requested")


def _unknown_model(server: V2Speaker) -> None:
    server.refused(server.ask_metadata(UNKNOWN), "metadata of an unknown model", "NOT_FOUND")
    reply = server.ask(V2Inference([Sample("x", "FP32", (1,), [1.0])], model=UNKNOWN))
    server.refused(reply, "inference with an unknown model", "NOT_FOUND")


def _unknown_version(server: V2Speaker) -> None:
    reply = server.ask(V2Inference(version=UNKNOWN_VERSION))
    server.refused(reply, "a version that does not exist", "NOT_FOUND", "INVALID_ARGUMENT")


def _missing_input(server: V2Speaker) -> None:
    if len(server.tensors) < 2:
        not_applicable("the model has one input")
    server.refused(server.ask(V2Inference(server.tensors[1:])), f"no input {server.tensors[0].name!r}")


def _unknown_input(server: V2Speaker) -> None:
    renamed = [Sample(f"no_such_{e.name}", e.datatype, e.shape, e.values) for e in server.tensors]
    server.refused(server.ask(V2Inference(renamed)), "inputs with unknown names", lenient=True)


def _unknown_output(server: V2Speaker) -> None:
    server.refused(server.ask(V2Inference(outputs=["no_such_output"])), "an output with an unknown name", lenient=True)


def _other_datatype(server: V2Speaker) -> None:
    first, *others = server.tensors
    changed = Sample(first.name, "BOOL", first.shape, [True] * len(first.values))
    if first.datatype == "BOOL":
        changed = Sample(first.name, "FP32", first.shape, [0.5] * len(first.values))
    server.refused(
        server.ask(V2Inference([changed, *others])), f"{changed.datatype} instead of {first.datatype}", lenient=True
    )


_CHECKS: dict[str, Callable[[V2Speaker], None]] = {
    "metadata.tensors": _tensor_metadata,
    "metadata.versions": _versions,
    "infer.outputs-described": _outputs_described,
    "infer.id": _id("conformance-42"),
    "infer.id-text": _id("é \u4e2d/%00"),
    "infer.id-absent": _no_id,
    "infer.requested-output": _requested_output,
    "infer.parameters": _parameters,
    "infer.version": _version,
    "error.unknown-model": _unknown_model,
    "error.unknown-version": _unknown_version,
    "error.missing-input": _missing_input,
    "error.unknown-input": _unknown_input,
    "error.unknown-output": _unknown_output,
    "error.other-datatype": _other_datatype,
}


def add_checks(suite: Suite[Any], rules: Mapping[str, tuple[str, str]]) -> None:
    """Add the checks to a suite. `rules` contains the section and the rule of each check, by name."""
    for name, run in _CHECKS.items():
        suite.check(name, *rules[name])(run)
    rules_of_datatypes = {each: (each, f"{each} is a tensor datatype") for each in DATATYPES}
    suite.check_datatypes(
        "infer.datatype", "Tensor Data Types", rules_of_datatypes, lambda server: server.check_outputs()
    )
