"""Shared parts of the checks of V2 over REST and over gRPC: tensors from a signature."""

from collections.abc import Callable, Sequence

from gateway.tools.conformance.check import Options, not_tested
from gateway.tools.conformance.inputs import InputSpec, Sample, sample

UNKNOWN = "no-such-model"
UNKNOWN_VERSION = "987654321"


def samples(options: Options, described: Callable[[], Sequence[InputSpec]]) -> list[Sample]:
    """Return a tensor for each input: from --input, else from the model's metadata."""
    specs = options.inputs or described()
    if not specs:
        not_tested("the model's metadata names no inputs; describe them with --input NAME=DATATYPE[SHAPE]")
    try:
        return [sample(spec) for spec in specs]
    except ValueError as error:
        not_tested(str(error))
