"""The bodies that `libraries` measures are those of requests that are read."""

from gateway.core.requests import Request
from tests.benchmarks.libraries import _read, letters, numbers


def test_a_large_request_is_read() -> None:
    for body, datatype in ((letters(), "BYTES"), (numbers(), "FP64")):
        request = _read(body)()
        assert isinstance(request, Request)
        assert [each.datatype.value for each in request.inputs] == [datatype]
