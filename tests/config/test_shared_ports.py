"""Which protocols a listener may have together, by the bytes that their connections begin with."""

import pytest

from gateway.config import ConfigError, loads
from gateway.core.frozen import replace
from gateway.core.protocol import Framing, GrpcBinding, StreamBinding
from tests.config.toys import CATALOG, toy

PROTOCOLS = (
    toy("calls", GrpcBinding()),
    toy("magical", StreamBinding(Framing(0, len, magic=b"MA"))),
    toy("more_magical", StreamBinding(Framing(0, len, magic=b"MAGIC"))),
    toy("other_magic", StreamBinding(Framing(0, len, magic=b"\0"))),
)
WITH_MAGIC = replace(CATALOG, protocols={**CATALOG.protocols, **{each.name: each for each in PROTOCOLS}})


@pytest.mark.parametrize(
    ("bind", "protocols", "expected"),
    [
        ("'[::1]:1'", "umbridge, calls", ""),
        ("'[::1]:1'", "calls, magical, other_magic, umbridge", ""),
        ("'tcp://[::1]:1'", "magical, other_magic", ""),
        ("'unix:///run/a.sock'", "magical", ""),
        ("'[::1]:1'", "packets", ""),
        (
            "'[::1]:1'",
            "umbridge, packets",
            "1:51: the first bytes of packets do not identify it among other protocols; use a separate listener for it",
        ),
        (
            "'[::1]:1'",
            "magical, umbridge, more_magical",
            "1:51: magical and more_magical begin with the same bytes; use a listener for each protocol",
        ),
        (
            "'unix:///run/a.sock'",
            "magical, other_magic",
            "1:29: a unix socket serves one protocol; use HOST:PORT, or a listener for each protocol, got 'unix:///run/a.sock'",
        ),
        (
            "'tcp://[::1]:1'",
            "umbridge, magical",
            "1:29: tcp:// is for protocols over TCP; expected HOST:PORT, got 'tcp://[::1]:1'",
        ),
        (
            "'[::1]:1'",
            "umbridge, calls, points",
            "1:51: umbridge and points both serve POST /Evaluate; give one of them a prefix",
        ),
    ],
)
def test_protocols_share_a_port_if_their_first_bytes_tell_them_apart(bind: str, protocols: str, expected: str) -> None:
    text = f"listeners: [{{name: a, bind: {bind}, protocols: [{protocols}]}}]\n"
    try:
        loads(text, "g.yaml", WITH_MAGIC, {})
        found = ""
    except ConfigError as error:
        found = str(error).removeprefix("g.yaml:")
    assert found == expected
