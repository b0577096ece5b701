"""The shared checks of grps servers over gRPC and brpc. Section names are headings of the grps document "Interface"."""

from abc import ABC, abstractmethod
from math import prod
from typing import Any, TypeVar

from gateway.tools.conformance import grps
from gateway.tools.conformance.check import Options, Suite, basis, deviate, fail, require
from gateway.tools.conformance.grps import DTYPE_RULES, DTYPES, FLAT, NAMES, UNKNOWN
from gateway.tools.conformance.inputs import Sample, as_bytes
from gateway.tools.conformance.transports import GRPS, message

MESSAGE = "grps.protos.v1.GrpsMessage"


class GrpsRpcServer(ABC):
    """A server, one of its models, and the inputs to send, over either RPC."""

    options: Options

    @abstractmethod
    def call(self, method: str, **fields: Any) -> Any:
        """Return the GrpsMessage of the response. The RPC itself must succeed."""

    @abstractmethod
    def reach(self) -> None:
        """Raise OSError if no server answers at the address."""

    @abstractmethod
    def close(self) -> None:
        """Close open connections."""

    @basis
    def models(self) -> list[str]:
        return grps.listed(self.call("ServerMetadata").str_data)

    @basis
    def model(self) -> str:
        return self.options.model or grps.first(self.models)

    @basis
    def name(self) -> str:
        """The model's name without its version."""
        return grps.bare(self.model, grps.names(self.call("ServerMetadata").str_data))

    @basis
    def tensors(self) -> list[Sample]:
        if self.options.inputs:
            return grps.tensors(self.options, ())
        told = self.call("ModelMetadata", str_data=self.name)
        return grps.tensors(self.options, grps.described(told.str_data))

    @basis
    def answer(self) -> Any:
        return succeeded(self.call("Predict", **self.fields()), "a prediction with inputs from the signature")

    def fields(self, **more: Any) -> dict[str, Any]:
        """The fields of a request with the inputs."""
        return {"model": self.model, "gtensors": {"tensors": [generic(each) for each in self.tensors]}, **more}


R = TypeVar("R", bound=GrpsRpcServer)


def grps_message(**fields: Any) -> Any:
    """Return a GrpsMessage."""
    return message(GRPS, MESSAGE)(**fields)


def generic(tensor: Sample) -> Any:
    """Return a GenericTensor."""
    values = [as_bytes(each).decode() for each in tensor.values] if tensor.datatype == "BYTES" else tensor.values
    number = 1 + list(DTYPES).index(tensor.datatype)
    kind = message(GRPS, "grps.protos.v1.GenericTensor")
    return kind(name=tensor.name, dtype=number, shape=tensor.shape, **{FLAT[tensor.datatype]: values})


def succeeded(answer: Any, what: str) -> Any:
    """Return the response, whose status must be SUCCESS."""
    grps.judge_status(answer.status.code, answer.status.status, answer.status.msg, what)
    return answer


def failed(answer: Any, what: str, *codes: int, lenient: bool = False) -> None:
    """Fail unless the status of the response is FAILURE."""
    grps.judge_failure(answer.status.code, answer.status.status, answer.status.msg, what, codes, lenient)


def outputs(answer: Any) -> list[tuple[str, str, list[Any]]]:
    """Return the name, dtype and elements of each tensor."""
    found = []
    for each in answer.gtensors.tensors:
        require(1 <= each.dtype <= len(DTYPES), f"tensor {each.name!r} has the dtype {each.dtype}")
        dtype = list(DTYPES.values())[each.dtype - 1]
        values, count = list(getattr(each, FLAT[NAMES[dtype]])), prod(each.shape)
        require(
            len(values) == count,
            f"tensor {each.name!r} has {len(values)} elements; its shape {list(each.shape)} requires {count}",
        )
        found.append((each.name, dtype, values))
    return found


def add_checks(suite: Suite[R]) -> None:
    """Add the checks to the suite of one of the two transports."""
    _add_health_and_metadata(suite)
    _add_predictions(suite)
    _add_selection_errors(suite)
    _add_input_errors(suite)


def _add_health_and_metadata(suite: Suite[R]) -> None:
    check = suite.check

    @check("health.live", "Health", "CheckLiveness: status SUCCESS")
    def live(server: R) -> None:
        succeeded(server.call("CheckLiveness"), "CheckLiveness")

    @check("health.ready", "Health", "CheckReadiness: a status, SUCCESS once the server is online")
    def ready(server: R) -> None:
        answer = server.call("CheckReadiness")
        if answer.status.status == grps.FAILURE:
            code = answer.status.code
            deviate(f"the server is not ready: code {code}; grps' own servers are not ready until a call of Online")
        succeeded(answer, "CheckReadiness")

    @check("metadata.server", "Metadata / Server level", "str_data is a YAML description")
    def server_metadata(server: R) -> None:
        require(server.models, "the description contains no `models`")

    @check("metadata.server-status", "Unified payload", "status: the status of a reply")
    def server_metadata_status(server: R) -> None:
        answer = server.call("ServerMetadata")
        if not answer.HasField("status"):
            deviate("the reply to ServerMetadata has no status")
        succeeded(answer, "ServerMetadata")

    @check(
        "metadata.model",
        "Metadata / Model level",
        "str_data is a YAML description of the requested model",
    )
    def model_metadata(server: R) -> None:
        answer = succeeded(server.call("ModelMetadata", str_data=server.name), "ModelMetadata")
        require("name" in answer.str_data, f"str_data is {answer.str_data[:80]!r}; expected YAML with the model's name")


def _add_predictions(suite: Suite[R]) -> None:
    check = suite.check

    @check(
        "predict.gtensors", "Infer / gtensors", "the reply has status and gtensors: name, dtype, shape, flattened data"
    )
    def gtensors(server: R) -> None:
        require(outputs(server.answer), "the reply has no tensors")

    @check("predict.again", "Infer", "the same request gets the same reply")
    def again(server: R) -> None:
        found = succeeded(server.call("Predict", **server.fields()), "a second prediction")
        require(outputs(found) == outputs(server.answer), "the same request gets a different reply")

    suite.check_datatypes(
        "predict.dtype",
        "gtensors",
        DTYPE_RULES,
        lambda server: require(outputs(server.answer), "the reply has no tensors"),
    )


def _add_selection_errors(suite: Suite[R]) -> None:
    check = suite.check

    @check("error.unknown-model", "Model selection", "name and version select the model")
    def unknown_model(server: R) -> None:
        failed(server.call("Predict", **server.fields(model=UNKNOWN)), "an unknown model", 404, 500)

    @check("error.unknown-model-metadata", "Metadata / Model level", "str_data selects the model")
    def unknown_metadata(server: R) -> None:
        failed(server.call("ModelMetadata", str_data="no-such-model"), "metadata of an unknown model", 404)


def _add_input_errors(suite: Suite[R]) -> None:
    check = suite.check

    @check("error.no-data", "Unified payload", "a request sets one member of data_oneof")
    def no_data(server: R) -> None:
        server.tensors  # noqa: B018 - the model takes tensors
        failed(server.call("Predict", model=server.model), "no data", 400, lenient=True)

    @check("error.shape", "gtensors", "the flattened data has as many elements as the shape")
    def wrong_shape(server: R) -> None:
        changed = [generic(each) for each in server.tensors]
        for each in changed:
            each.shape.append(7)
        fields = server.fields(gtensors={"tensors": changed})
        failed(server.call("Predict", **fields), "fewer elements than the shape requires", 400, lenient=True)

    @check("error.dtype", "gtensors", "dtype selects the list that contains the data")
    def wrong_dtype(server: R) -> None:
        changed = [generic(each) for each in server.tensors]
        for each in changed:
            each.dtype = 0
        fields = server.fields(gtensors={"tensors": changed})
        failed(server.call("Predict", **fields), "the dtype DT_INVALID", 400, lenient=True)

    @check("limit.long-name", "Model selection", "model is a string; the server stays available after a long name")
    def long_name(server: R) -> None:
        answer = server.call("Predict", **server.fields(model="n" * 100_000))
        failed(answer, "a name of 100,000 characters", 404, 500)


def decode(raw: bytes, method: str) -> Any:
    """Decode a GrpsMessage. The check fails if the bytes are invalid."""
    answer = grps_message()
    try:
        answer.ParseFromString(raw)
    except Exception as error:  # protobuf's DecodeError, whose base class depends on the implementation
        fail(f"{method}: the reply is not a GrpsMessage: {error}")
    return answer
