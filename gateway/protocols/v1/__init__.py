"""V1: the KServe V1 protocol and TensorFlow Serving's REST API, with tensors as JSON rows or columns.

Specifications: https://kserve.github.io/website/docs/concepts/architecture/data-plane/v1-protocol and
https://www.tensorflow.org/tfx/serving/api_rest. Where the servers differ, `flavor` selects the server type.
"""

from functools import partial

from gateway.core.examples import curl
from gateway.core.frozen import replace
from gateway.core.protocol import HttpBinding, Models, Protocol, Servers, Traits, Wire
from gateway.protocols.v1.client import decode_response, encode_request
from gateway.protocols.v1.errors import encode_error, is_unknown_servable
from gateway.protocols.v1.relay import RELAY
from gateway.protocols.v1.schema import FLAVORS, KSERVE, NAME, PAYLOADS, STATUS, TENSORFLOW, model_path
from gateway.protocols.v1.server import DECODERS, decode_request, encode_response

TRAITS = Traits(
    wire=Wire(untyped=True, unnamed=True, selects=False, nan="null"),
    models=Models(
        # digits are a version, and any other text is a label
        versions=bool,
        unknown_are_not_found=True,
        metadata_parts=("", STATUS),
        platform="v1",
    ),
    servers=Servers(
        flavors=FLAVORS,
        # after an exception in the model, KServe closes the connection without announcing this
        unannounced_ends=frozenset({500}),
        # TensorFlow Serving neither lists its models nor reports its name
        lacks_model=is_unknown_servable,
    ),
)


def _protocol(flavor: str) -> Protocol:
    """Return the protocol of a listener with this server type."""
    return Protocol(
        NAME,
        binding=HttpBinding(),
        patterns=tuple(DECODERS[flavor]),
        decode_request=partial(decode_request, flavor),
        encode_response=partial(encode_response, flavor),
        encode_error=partial(encode_error, flavor),
        encode_request=encode_request,
        decode_response=decode_response,
        traits=TRAITS,
        payloads=PAYLOADS,
        example=lambda address, model, version: curl(f"http://{address}{model_path(model, version)}/metadata"),
        relay=RELAY,
    )


V1_REST = replace(_protocol(KSERVE), emulated_servers={KSERVE: _protocol(KSERVE), TENSORFLOW: _protocol(TENSORFLOW)})

PROTOCOLS = (V1_REST,)
