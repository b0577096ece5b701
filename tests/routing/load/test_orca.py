"""Load reports in the forms of ORCA, with literal bytes."""

import base64

import pytest

from gateway.core.errors import DecodeError
from gateway.core.messages import Headers
from gateway.routing.load.orca import LONGEST, load_in, report

# xds.data.orca.v3.OrcaLoadReport, serialized by protobuf: cpu_utilization 0.3, mem_utilization 0.8, rps 7,
# request_cost {"bytes": 2}, utilization {"gpu": 0.5}, rps_fractional 10, eps 1, named_metrics {"queue": 4},
# application_utilization 0.9
MESSAGE = bytes.fromhex(
    "09333333333333d33f"
    "119a9999999999e93f"
    "1807"
    "22100a056279746573110000000000000040"
    "2a0e0a0367707511000000000000e03f"
    "310000000000002440"
    "39000000000000f03f"
    "42100a057175657565110000000000001040"
    "49cdccccccccccec3f"
)
WHOLE = {
    "cpu_utilization": 0.3, "mem_utilization": 0.8, "rps": 7.0, "request_cost.bytes": 2.0, "utilization.gpu": 0.5,
    "rps_fractional": 10.0, "eps": 1.0, "named_metrics.queue": 4.0, "application_utilization": 0.9,
}  # fmt: skip


class Grpc(Headers):
    """Those of gRPC, whose values are decoded from base64 already."""

    __slots__ = ()


def over_http(text: bytes, name: bytes = b"endpoint-load-metrics") -> Headers:
    return Headers(((b"content-type", b"application/json"), (name, text)))


@pytest.mark.parametrize(
    ("headers", "found"),
    [
        (Headers(()), {}),
        # the examples of Triton's documents
        (
            over_http(
                b"TEXT cpu_utilization=0.3, mem_utilization=0.8, rps_fractional=10.0, eps=1,"
                b" named_metrics.custom_metric_util=0.4"
            ),
            {"cpu_utilization": 0.3, "mem_utilization": 0.8, "rps_fractional": 10.0, "eps": 1.0,
             "named_metrics.custom_metric_util": 0.4},
        ),
        (
            over_http(b'JSON {"cpu_utilization": 0.3, "eps": 1, "named_metrics": {"custom-metric-util": 0.4}}'),
            {"cpu_utilization": 0.3, "eps": 1.0, "named_metrics.custom-metric-util": 0.4},
        ),
        # as Triton writes it for TensorRT-LLM
        (
            over_http(b'JSON {"named_metrics":{"kv_cache_utilization":0.25,"max_token_capacity":64}}'),
            {"named_metrics.kv_cache_utilization": 0.25, "named_metrics.max_token_capacity": 64.0},
        ),
        (over_http(b'JSON {"cpuUtilization": 0.5}'), {"cpu_utilization": 0.5}),
        (over_http(b"BIN " + base64.b64encode(MESSAGE)), WHOLE),
        (over_http(base64.b64encode(MESSAGE).rstrip(b"="), b"endpoint-load-metrics-bin"), WHOLE),
        (Grpc(((b"endpoint-load-metrics-bin", MESSAGE),)), WHOLE),
        (Grpc(((b"endpoint-load-metrics-bin", b""),)), {}),
        # fields of a later version: one of the report, and one of an entry
        (Grpc(((b"endpoint-load-metrics-bin", b"\x78\x01" + MESSAGE),)), WHOLE),
        (
            Grpc(((b"endpoint-load-metrics-bin", bytes.fromhex("42120a0571756575651100000000000010401801")),)),
            {"named_metrics.queue": 4.0},
        ),
    ],
)  # fmt: skip
def test_reports(headers: Headers, found: dict[str, float]) -> None:
    assert report(headers, over_grpc=isinstance(headers, Grpc)) == pytest.approx(found)


@pytest.mark.parametrize(
    ("headers", "text"),
    [
        (over_http(b"cpu_utilization=1"), "expected TEXT, JSON or BIN and a report"),
        (over_http(b"TEXT cpu_utilization"), "has 'cpu_utilization', expected NAME=NUMBER"),
        (over_http(b"TEXT a=1, a=2"), "has 'a' twice"),
        (over_http(b"TEXT a=nan"), "'a' is nan"),
        (over_http(b"JSON {"), "is not JSON"),
        (over_http(b"JSON [1]"), "is not a JSON object"),
        (over_http(b'JSON {"a": 1, "a": 2}'), "has 'a' twice"),
        (over_http(b'JSON {"named_metrics": {"a": 1, "a": 2}}'), "has 'named_metrics.a' twice"),
        (over_http(b'JSON {"cpu_utilization": "much"}'), "'cpu_utilization' is not a number"),
        (over_http(b'JSON {"cpu_utilization": true}'), "'cpu_utilization' is not a number"),
        (over_http(b'JSON {"a": ' + b"9" * 400 + b"}"), "'a' is inf"),
        (over_http(b"JSON " + b"[" * 5000), "is not JSON"),
        (over_http(b"BIN !!"), "is not base64"),
        (over_http(b"TEXT " + b"a" * LONGEST), f"more than {LONGEST} bytes"),
        (Grpc(((b"endpoint-load-metrics-bin", MESSAGE[:5]),)), "no whole field"),
        (Grpc(((b"endpoint-load-metrics-bin", b"\x09" + b"\0" * 6 + b"\xf8\x7f"),)), "'cpu_utilization' is nan"),
    ],
)
def test_malformed_reports_are_refused(headers: Headers, text: str) -> None:
    with pytest.raises(DecodeError) as error:
        report(headers, over_grpc=isinstance(headers, Grpc))
    assert text in str(error.value)


@pytest.mark.parametrize(
    ("found", "metric", "value"),
    [
        (WHOLE, "", 0.9),
        ({"application_utilization": 0.0, "cpu_utilization": 0.3}, "", 0.3),
        ({"named_metrics.kv_cache_utilization": 0.2}, "", 0.2),
        ({"named_metrics.queue": 4.0}, "", None),
        ({"named_metrics.queue": 4.0}, "named_metrics.queue", 4.0),
        ({"named_metrics.queue": 0.0}, "named_metrics.queue", 0.0),
        ({"named_metrics.queue": -1.0}, "named_metrics.queue", None),
        ({}, "cpu_utilization", None),
    ],
)
def test_which_value_is_the_load(found: dict[str, float], metric: str, value: float | None) -> None:
    assert load_in(found, metric) == value
