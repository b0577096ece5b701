"""Shared parts of the checks for the three grps protocols: models, and tensors as JSON members or protobuf fields."""

from collections.abc import Sequence
from typing import Any

import yaml

from gateway.tools.conformance.check import Options, deviate, fail, not_tested, require
from gateway.tools.conformance.inputs import InputSpec, Sample, Values, sample

UNKNOWN = "no-such-model-1.0.0"
SUCCESS, FAILURE = 1, 2
FLAT = {
    "UINT8": "flat_uint8", "INT8": "flat_int8", "INT16": "flat_int16", "INT32": "flat_int32", "INT64": "flat_int64",
    "FP16": "flat_float16", "FP32": "flat_float32", "FP64": "flat_float64", "BYTES": "flat_string",
}  # fmt: skip
"""The GenericTensor field that contains the elements, for each datatype."""
DTYPES = {
    "UINT8": "DT_UINT8", "INT8": "DT_INT8", "INT16": "DT_INT16", "INT32": "DT_INT32", "INT64": "DT_INT64",
    "FP16": "DT_FLOAT16", "FP32": "DT_FLOAT32", "FP64": "DT_FLOAT64", "BYTES": "DT_STRING",
}  # fmt: skip
DTYPE_RULES = {datatype: (name, f"{name} in {FLAT[datatype]}") for datatype, name in DTYPES.items()}
"""The name of each datatype, and the rule for its check."""
NAMES = {name: datatype for datatype, name in DTYPES.items()}


def listed(server_metadata: str) -> list[str]:
    """Return the models in a server's metadata, as `name-version`."""
    document = yaml.safe_load(server_metadata)
    models = document.get("models") if isinstance(document, dict) else None
    found = [each for each in models or [] if isinstance(each, dict) and isinstance(each.get("name"), str)]
    return [f"{each['name']}-{each['version']}" if each.get("version") else each["name"] for each in found]


def first(models: Sequence[str]) -> str:
    """Return the model that is checked if `--model` is not set."""
    if not models:
        not_tested("the server's metadata lists no models; set --model NAME-VERSION")
    return models[0]


def described(model_metadata: str) -> list[InputSpec]:
    """Return the inputs in a model's metadata, if present, because grps itself has no signatures."""
    document = yaml.safe_load(model_metadata)
    inputs = document.get("inputs") if isinstance(document, dict) else None
    specs = [each for each in inputs or [] if isinstance(each, dict) and {"name", "datatype", "shape"} <= each.keys()]
    return [InputSpec(each["name"], each["datatype"], tuple(each["shape"])) for each in specs]


def tensors(options: Options, told: Sequence[InputSpec]) -> list[Sample]:
    """Return a tensor for each input."""
    specs = options.inputs or tuple(told)
    if not specs:
        not_tested("grps has no signatures; describe the inputs with --input NAME=DATATYPE[SHAPE]")
    unknown = [each.datatype for each in specs if each.datatype not in DTYPES]
    if unknown:
        not_tested(f"grps has no {unknown[0]}")
    return [sample(each) for each in specs]


def names(server_metadata: str) -> list[str]:
    """Return the model names in a server's metadata, without versions; the result can be empty."""
    document = yaml.safe_load(server_metadata)
    models = document.get("models") if isinstance(document, dict) else None
    return [each["name"] for each in models or [] if isinstance(each, dict) and isinstance(each.get("name"), str)]


def bare(model: str, names: Sequence[str]) -> str:
    """Return the name in `model`, which can be `name-version`. `names` contains the names that the server lists. An
    unlisted name ends before the last dash that precedes a digit."""
    if model in names:
        return model
    listed = [each for each in names if model.startswith(f"{each}-")]
    if listed:
        return max(listed, key=len)
    name, _, version = model.rpartition("-")
    return name if name and version[:1].isdigit() else model


def generic(tensor: Sample) -> dict[str, Any]:
    """Return a GenericTensor as JSON."""
    return {
        "name": tensor.name,
        "dtype": DTYPES[tensor.datatype],
        "shape": list(tensor.shape),
        FLAT[tensor.datatype]: tensor.values,
    }


def equal(ours: Values, theirs: Values) -> bool:
    """Return whether the elements are the same. 64-bit integers can be strings, as in protobuf's JSON mapping."""
    return [_comparable(each) for each in ours] == [_comparable(each) for each in theirs]


def judge_status(code: int, flag: int, message: str, what: str) -> None:
    """Fail unless a Status is SUCCESS."""
    if flag == FAILURE:
        fail(f"{what}: FAILURE {code}, {message[:120]!r}")
    require(flag == SUCCESS, f"{what}: `status.status` is not SUCCESS")
    if code != 200:
        deviate(f"{what}: `status.code` is {code}; expected 200")


def judge_failure(
    code: int, flag: int, message: str, what: str, expected: tuple[int, ...], lenient: bool = False
) -> None:
    """Fail unless a Status indicates failure, with a message that contains no traceback. If `lenient` is True, the
    document does not require servers to reject this kind of request."""
    if lenient and flag == SUCCESS:
        deviate(f"{what}: accepted with SUCCESS")
    require(flag != SUCCESS, f"{what}: accepted with SUCCESS")
    require(flag == FAILURE, f"{what}: `status.status` is not FAILURE")
    require(message, f"{what}: `status.msg` is empty")
    if "Traceback (most recent call last)" in message:
        deviate(f"{what}: `status.msg` is a traceback with file names")
    if code not in expected:
        deviate(f"{what}: `status.code` is {code}; expected {' or '.join(map(str, expected))}")


def _comparable(element: Any) -> Any:
    return element.encode() if isinstance(element, str) else float(element)
