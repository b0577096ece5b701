import pytest

from gateway.core.errors import GatewayError, Reason
from gateway.core.operations import Operation
from gateway.core.protocol import Target
from gateway.core.requests import Request
from gateway.protocols.v2.rest.paths import backend_path

TRITON = Target("models", "127.0.0.1:8000", flavor="triton")
PLAIN = Target("models", "127.0.0.1:8000")


@pytest.mark.parametrize(("name", "version"), [("", ""), (".", ""), ("..", ""), ("m", "."), ("m", "..")])
def test_a_name_or_version_that_would_leave_the_path_is_refused(name: str, version: str) -> None:
    with pytest.raises(GatewayError, match="has no URL"):
        backend_path(Request(Operation.INFER, name, version), PLAIN, "/infer")


@pytest.mark.parametrize("version", ["v10", "1.0", "²", "-1"])
def test_triton_has_only_integer_versions(version: str) -> None:
    with pytest.raises(GatewayError, match=r"rewrite\.version") as raised:
        backend_path(Request(Operation.INFER, "m", version), TRITON, "/infer")
    assert raised.value.reason is Reason.MODEL_NOT_FOUND


def test_triton_takes_an_integer_version_and_none() -> None:
    assert backend_path(Request(Operation.INFER, "m", "10"), TRITON, "") == "/v2/models/m/versions/10"
    assert backend_path(Request(Operation.INFER, "m"), TRITON, "") == "/v2/models/m"
