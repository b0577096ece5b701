import gzip
import zlib

from gateway.transports.http.compression import deflate


def test_deflates_parts_as_one_body() -> None:
    parts = (b"one ", memoryview(b"two "), bytearray(b"three"))
    assert gzip.decompress(deflate(parts, "gzip")) == b"one two three"
    assert zlib.decompress(deflate(parts, "deflate")) == b"one two three"
    assert gzip.decompress(deflate((), "gzip")) == b""
