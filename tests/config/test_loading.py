"""A whole configuration to exact values."""

import re
from pathlib import Path

import numpy as np
import pytest

from gateway.bridge.settings import TranslateSettings
from gateway.config import Config, ConfigError, load, loads
from gateway.core.address import Address
from gateway.core.datatypes import Datatype
from gateway.core.models import Signature, TensorSpec
from gateway.core.operations import Operation
from gateway.core.protocol import Limits
from gateway.policies import timeout
from tests.config.toys import BACKEND, CATALOG, ENVIRON, SOUND, TRANSLATE, WHOLE


@pytest.fixture(scope="module")
def whole() -> Config:
    return loads(WHOLE, "g.yaml", CATALOG)


def test_listeners_are_read(whole: Config) -> None:
    http, vision = whole.listeners
    assert (http.name, http.bind, http.protocols) == ("http", Address("127.0.0.1", 8080), ("v2-rest", "umbridge"))
    assert (http.model, http.prefix, http.limits) == ("", {"umbridge": "/science"}, Limits())
    assert (vision.bind, vision.model) == (Address("127.0.0.1", 9100, "", "tcp"), "classifier")
    assert vision.limits == Limits(message=1024)
    assert whole.admin is not None
    assert whole.admin.bind == Address("127.0.0.1", 9090)
    assert whole.health is not None
    assert whole.health.bind == Address("0.0.0.0", 9091)


def test_bounds_are_read() -> None:
    text = "limits: {connections_per_client: 5, memory_per_client: 6, shed: {}}\n" + SOUND
    limits = loads(text, "g.yaml", CATALOG).limits
    assert (limits.connections_per_client, limits.memory_per_client) == (5, 6)
    assert limits.shed is not None
    assert (limits.shed.lag, limits.shed.memory) == (0.25, 0.9)
    assert loads(SOUND, "g.yaml", CATALOG).limits.shed is None


def test_backends_are_read(whole: Config) -> None:
    [reference] = whole.reference
    assert (reference.protocol, reference.bind) == ("umbridge", Address("127.0.0.1", 4242))
    assert reference.models == ("posterior", "double", "my.models:half")
    triton, science = whole.backends["triton"], whole.backends["science"]
    assert (triton.protocol, triton.addresses) == ("v2-rest", ("triton-0:8001", "triton-1:8001"))
    assert (triton.max_in_flight, triton.limits, triton.forward_headers) == (None, Limits(), ("x-request-id",))
    [policy] = triton.policies
    assert (policy.name, policy.settings) == ("timeout", timeout.Settings(seconds=2))
    assert (science.max_in_flight, science.policies) == (1, ())


def test_routes_are_read(whole: Config) -> None:
    first, vision, rest = whole.routes
    assert (first.match.protocol, first.match.model, first.match.listener) == ("umbridge", "posterior", None)
    assert (first.match.operation, first.match.header) == (Operation.GRADIENT, {"x-tenant": "a"})
    assert (first.backend, first.rewrite.model, first.rewrite.version) == ("triton", "posterior_v3", "")
    assert first.signature == Signature(
        (TensorSpec("theta", Datatype.FP64, (-1, 2)),), (TensorSpec("logdensity", Datatype.FP64, (-1, 1)),)
    )
    assert [policy.settings for policy in first.policies] == [timeout.Settings(seconds=0.5)]
    assert (vision.match.listener, vision.rewrite.model, vision.signature) == ("vision", None, None)
    assert (rest.match.model, rest.backend) == ("*", "science")


def test_translate_is_read(whole: Config) -> None:
    translate, default = whole.routes[0].translate, whole.routes[1].translate
    assert (translate.cast, translate.nan, translate.bytes) == ("round", "null", "base64")
    assert (translate.operations, translate.max_rows) == ({Operation.GRADIENT: "posterior_grad"}, 16)
    assert [(pair.client, pair.backend) for pair in translate.rename.inputs] == [("A", "y")]
    assert [(pair.client, pair.backend) for pair in translate.rename.outputs] == [("B", "n")]
    assert (translate.select, translate.order, translate.drop) == (("B",), ("y", "scale"), ("no",))
    assert default == TranslateSettings()


CONSTANTS = (
    ("{datatype: FP16, shape: [1, 2], data: [1, 2.5]}", [[1.0, 2.5]]),
    ("{datatype: INT64, shape: [2, 1], data: [[1], [-9223372036854775808]]}", [[1], [-(2**63)]]),
    ("{datatype: UINT64, shape: [1], data: [18446744073709551615]}", [2**64 - 1]),
    ("{datatype: INT8, shape: [], data: 1e1}", 10),
    ("{datatype: BOOL, shape: [2], data: [true, false]}", [True, False]),
    ("{datatype: BYTES, shape: [2, 1], data: [[no], ['']]}", [[b"no"], [b""]]),
    ("{datatype: FP32, shape: [0, 3], data: []}", np.empty((0, 3)).tolist()),
)


@pytest.mark.parametrize(("text", "expected"), CONSTANTS)
def test_constants_become_tensors(text: str, expected: object) -> None:
    config = loads(TRANSLATE + f"constants: [{{name: k, {text[1:]}]}}}}]\n", "g.yaml", CATALOG)
    [constant] = config.routes[0].translate.constants
    assert (constant.name, constant.array.tolist()) == ("k", expected)


def test_a_reference_takes_the_type_that_its_key_wants() -> None:
    text = BACKEND.replace("science", "'12'") + (
        "max_in_flight: '${COUNT}', policies: [{timeout: {seconds: '${NONE:-1e1}'}}]}}\n"
        "routes:\n- match: {model: '${DIGITS}'}\n  backend: ${TWELVE:-12}\n"
        "  signature: {inputs: [{name: x, datatype: FP64, shape: ['${COUNT}', 1]}]}\n"
    )
    config = loads(text, "g.yaml", CATALOG, ENVIRON)
    assert config.backends["12"].max_in_flight == 3
    assert config.backends["12"].policies[0].settings == timeout.Settings(seconds=10)
    [route] = config.routes
    assert (route.match.model, route.backend) == ("12345", "12")
    assert route.signature is not None
    assert route.signature.inputs[0].shape == (3, 1)


def test_aliases_stand_for_what_they_name() -> None:
    config = loads(SOUND + "health: &port {bind: '[::1]:0'}\nadmin: *port\n", "g.yaml", CATALOG)
    assert config.admin is not None
    assert config.health is not None
    assert config.admin.bind == config.health.bind == Address("::1", 0)


def test_a_file_is_named_in_its_problems(tmp_path: Path) -> None:
    path = tmp_path / "g.yaml"
    path.write_bytes(b"\xef\xbb\xbf" + SOUND.encode())
    assert len(load(path, CATALOG).listeners) == 1
    path.write_bytes(b"a: 1\nb: \xff\n")
    with pytest.raises(ConfigError, match=f"^{re.escape(str(path))}:2:4: not UTF-8: invalid start byte$"):
        load(path, CATALOG)
    with pytest.raises(ConfigError, match=f"^{re.escape(str(tmp_path))}/x:1:1: cannot read the file: No such file"):
        load(tmp_path / "x", CATALOG)
